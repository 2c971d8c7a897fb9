"""The exception whose message is written for users."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class StreamgaugeError(Exception):
    """A problem that the user can fix, in one sentence. The command line exits with code 2."""


def first_line(error: Exception) -> str:
    """The first line of an error's message; the name of its type if there is no message."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint: the closest of the known names, or a list of all.

    >>> nearest("lerning_rate", ["learning_rate", "memory"])
    "did you mean 'learning_rate'?"
    """
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if close:
        return f"did you mean '{close[0]}'?"
    return "there is " + (", ".join(known) if known else "none") + "."
