"""The tool under the fuzzer, the flips and the faults: no case is lost, doubled or forgotten."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from campaign import Campaign, Part, Report, unpacked


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
