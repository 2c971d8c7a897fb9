"""The filter of runs: its rules in Python, and the same in the page's script."""

from __future__ import annotations

import json
import time
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from browser import Browser, needs_browser
from streamgauge.errors import StreamgaugeError
from streamgauge.view.query import LONGEST, parse

NAMES = ["run", "stream", "learner", "seed", "status", "lr", "policy", "wait", "stream.batch",
         "protocol.shifts", "online", "progress"]  # fmt: skip
RUNS: list[dict[str, Any]] = [
    {"run": "albums-er-s0-1a2b", "stream": "albums", "learner": "er", "seed": 0,
     "status": "running", "lr": 0.05, "policy": "fifo", "wait": False, "stream.batch": 10,
     "protocol.shifts": "40,100", "online": 0.5, "progress": 0.25},
    {"run": "albums-er-s10-3c4d", "stream": "albums", "learner": "er", "seed": 10,
     "status": "done", "lr": 1e-05, "policy": "reservoir", "wait": True, "stream.batch": 10,
     "protocol.shifts": "", "online": 0.75, "progress": 1},
    {"run": "mine-er_ace-s1-5e6f", "stream": "mine.csv", "learner": "er_ace", "seed": 1,
     "status": "failed", "lr": 0.1, "stream.batch": 1, "online": None, "progress": None},
    {"run": "mine-My own-s2-7a8b", "stream": "mine.csv", "learner": "My own", "seed": 2,
     "status": "stalled", "stream.batch": 1, "online": 0.0, "progress": 0.5},
]  # fmt: skip
CASES: list[tuple[str, list[int]]] = [
    ("", [0, 1, 2, 3]),
    ("   ", [0, 1, 2, 3]),
    ("learner:er", [0, 1]),
    ("learner:ER", [0, 1]),
    ("learner:er*", [0, 1, 2]),
    ("learner:*", [0, 1, 2, 3]),
    ("learner:er,er_ace", [0, 1, 2]),
    ('learner:"my own"', [3]),
    ("-learner:er", [2, 3]),
    ("er", [0, 1, 2]),
    ("albums running", [0]),
    ('"my own"', [3]),
    ("-albums", [2, 3]),
    ("s10", [1]),
    ("lr>0.01", [0, 2]),
    ("lr>=0.1", [2]),
    ("lr<0.01", [1]),
    ("lr<=0.05", [0, 1]),
    ("lr=0.05", [0]),
    ("lr:1e-5", [1]),
    ("lr=0.00001", [1]),
    ("lr!=0.05", [1, 2]),
    ("-lr=0.05", [1, 2, 3]),
    ("learner:er lr>0.01 status:running", [0]),
    ("seed:0", [0]),
    ("seed>1", [1, 3]),
    ("batch:10", [0, 1]),
    ("stream.batch=1", [2, 3]),
    ("shifts=40,100", [0]),
    ("wait:true", [1]),
    ("wait=false", [0]),
    ("wait>0", []),
    ("policy:f*o", [0]),
    ("policy:f.fo", []),
    ("online>=.5", [0, 1]),
    ("online=0", [3]),
    ("progress<1", [0, 3]),
    ("run:albums-er-s0-1a2b", [0]),
    ("status:done,failed", [1, 2]),
    ("stream:mine.csv -status:failed", [3]),
    ("stream:mine?csv", []),
]
WRONG = [
    ("learner:", "learner: needs a value"),
    ("lr>", "lr> needs a value"),
    ("lr>high", "lr> needs a number"),
    ("lr>=1_0", "lr>= needs a number"),
    ("nothing:3", "No run has a setting 'nothing'"),
    ('"open', "cannot be read"),
    ('a"b"', "cannot be read"),
    ("x" * (LONGEST + 1), f"at most {LONGEST:,}"),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_a_filter_lets_through(text: str, expected: list[int]) -> None:
    terms = parse(text, NAMES)
    found = [n for n, run in enumerate(RUNS) if all(term.holds(run) for term in terms)]
    assert found == expected


@pytest.mark.parametrize(("text", "sentence"), WRONG)
def test_what_is_wrong_is_said(text: str, sentence: str) -> None:
    with pytest.raises(StreamgaugeError, match=r"^[A-Za-z]") as caught:
        parse(text, NAMES)
    assert sentence in str(caught.value)


@given(st.text(max_size=60))
def test_any_text_is_a_filter_or_a_sentence(text: str) -> None:
    try:
        terms = parse(text, NAMES)
    except StreamgaugeError:
        return
    for run in RUNS:
        assert all(term.holds(run) in (True, False) for term in terms)


@pytest.mark.browser
@needs_browser
def test_many_stars_take_no_time() -> None:
    (term,) = parse("learner:" + "*a" * 8 + "*b", ["learner"])
    start = time.process_time()
    assert not term.holds({"learner": "a" * 48})
    assert time.process_time() - start < 1
    (term,) = parse("learner:*[a?]*", ["learner"])
    assert term.holds({"learner": "b[A?]c"})
    assert not term.holds({"learner": "ba?c"})


def test_the_script_of_the_page_has_the_same_rules(tmp_path: Path) -> None:
    script = (resources.files("streamgauge.view") / "filter.js").read_text(encoding="utf-8")
    page = tmp_path / "page.html"
    page.write_text(f"<!doctype html><script>{script}; window.pageReady = true;</script>")
    browser = Browser()
    try:
        browser.open(page)
        given_cases = [[text, expected] for text, expected in CASES]
        found = browser.run(
            f"(() => {{ const runs = {json.dumps(RUNS)};"
            f"return {json.dumps(given_cases)}.map(([text]) => {{"
            f"const terms = filter.parse(text, {json.dumps(NAMES)});"
            "return runs.map((_, n) => n).filter((n) => filter.matches(terms, (name) =>"
            "runs[n][name] === undefined ? null : runs[n][name])); }); })()"
        )
        assert dict(zip([t for t, _ in CASES], found, strict=True)) == dict(CASES)
        messages = browser.run(
            f"{json.dumps([text for text, _ in WRONG])}.map((text) => {{ try {{"
            f"filter.parse(text, {json.dumps(NAMES)}); return ''; }}"
            "catch (error) { return error.message; } })"
        )
        for (text, sentence), message in zip(WRONG, messages, strict=True):
            assert sentence.replace(",", "") in message.replace(",", ""), text
    finally:
        browser.close()
