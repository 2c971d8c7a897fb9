"""The page as files: for a machine without ports, or to be put on a web server.

The files have what the server would answer, as scripts: a page that is opened from disk may load
scripts next to it, and nothing else.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamgauge.errors import StreamgaugeError
from streamgauge.files import write_atomic, writing
from streamgauge.view import assets
from streamgauge.view.content import TABS, PageContent
from streamgauge.view.follow import RunFollower

PAIRS = 120  # of learners of one board, at most


def write_bundle(
    follower: RunFollower, folder: Path, *, ledger: bool = False, filter_text: str = ""
) -> Path:
    """Write the page and everything that it shows into a folder, and return the page's path."""
    follower.scan()
    follower.count_all()
    content = PageContent(follower, wait=True, ledger=ledger)
    try:
        answers = _answers(content, filter_text, only_ledger=ledger and not follower.paths)
    finally:
        content.close()
    files = {name: f"{number}.js" for number, name in enumerate(answers)}
    written: dict[str, bytes] = {
        f"data/{files[name]}": _script(files[name], value) for name, value in answers.items()
    }
    written |= {f"assets/{name}": each.data for name, each in assets.assets().items()}
    written["assets/themes.js"] = assets.constants(files)
    written["index.html"] = assets.page(policy=True).encode()
    for name, data in written.items():
        with writing(folder / name), write_atomic(folder / name) as part:
            part.write_bytes(data)
    for file in (folder / "data").glob("*.js"):
        if file.stem.isdecimal() and f"data/{file.name}" not in written:
            file.unlink()  # of an earlier bundle
    return folder / "index.html"


def _answers(content: PageContent, filter_text: str, only_ledger: bool) -> dict[str, Any]:
    options = {"filter": filter_text}
    chosen = content.chosen(filter_text)
    if filter_text and not chosen:
        raise StreamgaugeError(f"No run matches the filter {filter_text!r}.")
    runs = content.runs(chosen)
    if only_ledger:
        runs["tabs"] = ["ledger"]
    runs["made"] = time.strftime("%Y-%m-%d %H:%M")
    tabs: list[str] = [tab for tab in TABS if tab in runs["tabs"]]
    answers = {"runs": runs, "alive": content.alive(chosen)}
    answers |= {name: content.value(name, options) for name in tabs if name != "compare"}
    if "compare" in tabs:
        answers |= _pairs(content, options)
    if content.ledger:
        answers["ledger"] = content.value("ledger", {})
    return answers


def _pairs(content: PageContent, options: Mapping[str, str]) -> dict[str, Any]:
    """The comparisons of learners on one board, in both orders."""
    first = content.value("compare", options)
    boards = content.tabs.boards(content.chosen(options["filter"]))
    known = set(first["choices"])
    answers: dict[str, Any] = {}
    choices: dict[str, None] = {}
    for board in boards:
        where = f" on {board.title}" if len(boards) > 1 else ""
        names = []
        for row in board.rows:
            of = [*row.runs, *row.incomplete]
            name = f"{row.learner}{where}" if len(of) > 1 else of[0].path.name
            names += [name] if name in known else []
        for a, b in itertools.permutations(names, 2):
            if len(answers) < PAIRS:
                answers[f"compare {a} | {b}"] = content.value(
                    "compare", {**options, "a": a, "b": b}
                )
                choices |= {a: None, b: None}
    for answer in (first, *answers.values()):
        answer["choices"] = list(choices)
    return {"compare": next(iter(answers.values()), first), **answers}


def _script(file: str, value: Any) -> bytes:
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return f"(window.given ||= {{}})[{json.dumps(file)}] = {text};\n".encode()
