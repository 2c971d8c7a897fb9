"""For the documentation site: examples in docstrings (`>>>`) become code blocks, and references of
Sphinx (`:func:`) become code."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(?m)^( *)>>> .*\n?(?:^(?=.*\S).*\n?)*")
ROLE = re.compile(r":\w+:`~?([^`]+)`")


def fenced(text: str) -> str:
    """A docstring as Markdown."""
    text = EXAMPLE.sub(
        lambda m: f"{m[1]}```pycon\n{m[0].rstrip()}\n{m[1]}```" + "\n" * m[0].endswith("\n"), text
    )
    return ROLE.sub(r"`\1`", text)


class Fences(griffe.Extension):
    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
