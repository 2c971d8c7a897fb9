"""What the answers of each learner add to past labels, in bits: the figures of the audit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from streamgauge.audit.auditor import bits_of_run
from streamgauge.history.bits import Explanation
from streamgauge.record import Run
from streamgauge.report.failures import online_rows
from streamgauge.report.leaderboard import Row

MOST = 100_000  # samples of a stream that are read, from its beginning
LEAST = 500  # samples that say something about bits


class Added(NamedTuple):
    """Bits per sample of one run, with a 95 % interval from blocks of its stream."""

    added: float
    low: float
    high: float
    base: float  # that class frequencies need
    history: float  # of these, what past labels save
    samples: int
    whole: bool  # whether these are all samples of the stream
    seed: int


def added_bits(rows: Iterable[Row]) -> dict[str, Added]:
    """By learner: the bits that the answers of its first seed add. Learners are left out whose logs
    hold too few labels."""
    bits = {row.learner: _of_run(row.runs[0]) for row in rows if row.runs}
    return {name: each for name, each in bits.items() if each is not None}


def _of_run(run: Run) -> Added | None:
    values = run.result("added_bits", lambda: _computed(Run(run.path)))
    return None if values is None else Added._make([*values, run.seed])


def _computed(run: Run) -> list[Any] | None:
    explained = explanation(run)
    if explained is None:
        return None
    figures = [*explained.added[:3], explained.base.value, explained.history.value]
    if not all(map(math.isfinite, figures)):
        return None
    rows = int((np.asarray(run.predictions["shift"]) == 0).sum())
    return [*map(float, figures), min(rows, MOST), rows <= MOST]


def explanation(run: Run) -> Explanation | None:
    """The bits of the audit for the online answers, at most the first ones of the stream."""
    if len(online_rows(run)) < LEAST:
        return None
    # The loop delays labels by steps, bits by samples: the same where steps are equal.
    size = np.bincount(np.asarray(run.predictions["step"])[online_rows(run)[:MOST]])
    if run.label_delay and len(np.unique(size[:-1])) > 1:
        return None
    return bits_of_run(run.path, MOST, run.label_delay * int(size[0]))


def two_places(bits: float) -> str:
    """A number of bits.

    >>> two_places(-0.0012), two_places(1.586)
    ('0.00', '1.59')
    """
    return f"{bits:.2f}".replace("-0.00", "0.00")


def sentence(added: Mapping[str, Added], seeing: Sequence[str]) -> str:
    """What the answers add beyond past labels; "" where that is not known."""
    known = {name: added[name] for name in seeing if name in added}
    if not known:
        return ""
    best = max(known, key=lambda name: known[name].added)
    of = known[best]
    first = "" if of.whole else f" in the first {of.samples:,} samples"
    history, base, of_answers, low, high = map(
        two_places, (of.history, of.base, of.added, of.low, of.high)
    )
    text = (
        f"Past labels save {history if of.history >= 0.005 else 'nothing'} of the {base} bits per "
        f"sample that class frequencies need; beyond that, the answers of {best} add"
        f"{' most,' if len(known) > 1 else ''} {of_answers} bits [{low}, {high}]{first}."
    )
    nothing = [name for name, each in known.items() if each.low <= 0]
    if nothing:
        listed = ", ".join(nothing[:3]) + (f" and {len(nothing) - 3} more" if nothing[3:] else "")
        text += f" Not shown to add anything: {listed}."
    return text
