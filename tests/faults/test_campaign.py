"""The tool under the fuzzer, the flips and the faults: no case is lost, doubled or forgotten."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import campaign as campaign_module
from campaign import Campaign, Part, Report, unpacked
from provenance import code_hash


def odd_cases(tried: Path) -> Any:
    """Work that fails in every way, and appends the number of each case to a file."""

    def work(part: str, start: int, stop: int, report: Report, folder: Path) -> None:
        assert not list(folder.iterdir())
        for number in range(start, stop):
            if not report.begin(number):
                return
            with open(tried, "a") as file:
                file.write(f"{part} {number}\n")
            if part == "odd" and number == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            if part == "odd" and number == 5:
                time.sleep(60)
            why = "broken: by 7" if number == 7 else ""
            report.note("bad" if why else "good", number, why, {"a/b": b"\x00x"})
            if number == 8:
                return  # a fresh worker goes on

    return work


def test_every_case_is_tried_once_and_failures_are_found(tmp_path: Path) -> None:
    said: list[str] = []
    campaign = Campaign({"odd": 20, "even": 10}, odd_cases(tmp_path / "tried"), ("good", "bad"),
                        workers=2, limit=0.5, block=6, say=said.append)  # fmt: skip
    campaign.run()
    tried = (tmp_path / "tried").read_text().split("\n")[:-1]
    assert sorted(tried) == sorted(
        [f"odd {n}" for n in range(20)] + [f"even {n}" for n in range(10)]
    )
    result = campaign.result()
    assert result["complete"]
    assert result["tried"] == 30
    assert result["parts"]["odd"]["counts"] == {"good": 17, "bad": 1, "crash": 1, "hang": 1}
    found = {(f["part"], f["kind"]): f for f in result["findings"]}
    assert sorted(found) == [("even", "bad"), ("odd", "bad"), ("odd", "crash"), ("odd", "hang")]
    assert found["odd", "crash"]["numbers"] == [3]
    assert "exit code -9" in found["odd", "crash"]["why"]
    assert "test_campaign.py" in found["odd", "hang"]["why"]  # where it hung
    assert unpacked(found["odd", "bad"]["input"]) == {"a/b": b"\x00x"}
    assert len(said) == 4


def test_a_stopped_campaign_goes_on_where_it_was(tmp_path: Path) -> None:
    tried, state = tmp_path / "tried", tmp_path / "state.json"

    def slow(part: str, start: int, stop: int, report: Report, folder: Path) -> None:
        for number in range(start, stop):
            if not report.begin(number):
                return
            with open(tried, "a") as file:
                file.write(f"{number}\n")
            time.sleep(0.02)
            report.note("good", number)

    def make(seconds: float, seed: int = 1) -> Campaign:
        return Campaign({"all": 60}, slow, ("good",), workers=2, seconds=seconds, block=25,
                        state=state, settings={"seed": seed})  # fmt: skip

    make(0.3).run()
    assert 0 < json.loads(state.read_text())["tried"] < 60
    campaign = make(60)
    campaign.run()
    assert sorted(map(int, tried.read_text().split())) == list(range(60))
    assert json.loads(state.read_text())["parts"]["all"]["counts"] == {"good": 60}
    with pytest.raises(SystemExit, match="other settings"):
        make(1, seed=2)


def test_what_is_left_of_a_part() -> None:
    part = Part(10)
    for start, stop in ((2, 4), (7, 8), (4, 5), (20, 30)):
        part.add(start, stop)
    assert part.done == [[2, 5], [7, 8], [20, 30]]
    assert part.left() == [(0, 2), (5, 7), (8, 10)]


def test_the_last_line_has_findings_time_and_every_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state.json"

    def work(part: str, start: int, stop: int, report: Report, folder: Path) -> None:
        for number in range(start, stop):
            if report.begin(number):
                report.note("good", number, "broken: here" if number < 2 else "")

    for code, planned in (("commit a", 1000), ("commit b", 1200)):
        monkeypatch.setattr(campaign_module, "provenance", lambda code=code: code)
        campaign = Campaign({"all": planned}, work, ("good",), state=state, say=lambda _: None)
        campaign.run()
    line = campaign.table("inputs").splitlines()[-1]
    assert line.startswith("RESULT: 2 findings (kinds: 1) in 1,200 of 1,200 inputs; ")
    assert line.endswith(" core-minutes; commit a and commit b")


def test_a_hash_of_code_changes_with_any_file(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    hashes = {code_hash(tmp_path)}
    (tmp_path / "a.py").write_text("2")
    hashes.add(code_hash(tmp_path))
    (tmp_path / "b.css").write_text("")
    hashes.add(code_hash(tmp_path))
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_text("compiled")
    assert code_hash(tmp_path) in hashes
    assert len(hashes) == 3
