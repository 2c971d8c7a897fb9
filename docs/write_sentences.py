"""Writes the table of the audit's sentences into docs/audit.md; --check: is it up to date?"""

from __future__ import annotations

import sys
from pathlib import Path

from streamgauge.audit.words import SENTENCES

PAGE = Path(__file__).parent / "audit.md"
START, END = "<!-- sentences: docs/write_sentences.py -->\n", "<!-- end of sentences -->\n"


def table() -> str:
    """The sentences with their conditions; a new group begins where the first cell is filled."""
    rows = ["| group | condition | sentence |", "|---|---|---|"]
    group = ""
    for sentence in SENTENCES:
        condition = f"`{sentence.condition}`" if sentence.condition else "otherwise"
        first = sentence.group if sentence.group != group else ""
        group = sentence.group
        rows.append(f"| {first} | {condition} | {sentence.text} |")
    return "\n".join(rows) + "\n"


def page() -> str:
    before, rest = PAGE.read_text().split(START)
    return before + START + table() + END + rest.split(END)[1]


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(PAGE.read_text() != page())
    PAGE.write_text(page())
