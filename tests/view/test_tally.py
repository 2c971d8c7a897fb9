"""Counts of segments against a slow version, whatever the pieces they come in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamgauge as sg
from made_runs import finished, made_run
from streamgauge.errors import Damaged
from streamgauge.metrics import score
from streamgauge.record import Run
from streamgauge.tables.commit import read_progress
from streamgauge.view import tally as tallies
from streamgauge.view.tally import RunTally


def read_all(path: Path, steps: int, shifts: tuple[int, ...] = (40,)) -> RunTally:
    tally, progress = RunTally(steps, shifts), read_progress(path)
    assert progress is not None
    while tally.read(path, progress, progress["segments"]["predictions"]):
        pass
    return tally


@pytest.mark.parametrize("pieces", [1, 3, 7])
def test_accuracies_are_those_of_score(tmp_path: Path, pieces: int) -> None:
    path = finished(tmp_path, pieces, steps=103, shifts=(40, 100))
    tally, found = read_all(path, 103), score(Run(path))
    assert tally.segments == pieces
    assert tally.accuracy(0) == pytest.approx(found["online_accuracy"], abs=1e-12)
    for shift in (40, 100):
        expected = found[f"near_future_accuracy@{shift}"]
        assert tally.accuracy(shift) == pytest.approx(expected, abs=1e-12)
    assert tally.shifts == [0, 40, 100]
    assert np.isnan(tally.accuracy(7))


def test_steps_are_those_of_a_leaderboard(tmp_path: Path) -> None:
    path = finished(tmp_path, 2, steps=90)
    table, tally = Run(path).predictions, read_all(path, 90)
    for shift in (0, 40):
        rows = table["shift"] == shift
        hit = (table["label"] == table["prediction"])[rows]
        right, asked = tally.steps(shift)
        assert right.tolist() == np.bincount(table["step"][rows], hit, 90).astype(int).tolist()
        assert asked.tolist() == np.bincount(table["step"][rows], minlength=90).tolist()


@given(
    st.lists(st.tuples(st.integers(0, 60_000), st.integers(0, 2), st.integers(0, 2)), max_size=60),
    st.integers(0, 50_000),
    st.lists(st.integers(1, 59), max_size=4),
)
def test_any_rows_in_any_pieces(
    rows: list[tuple[int, int, int]], steps: int, cuts: list[int]
) -> None:
    """A stream may be longer than its header says; bins then grow, and no answer is lost."""
    tally = RunTally(steps)
    columns = np.array([(s, y, p, 0) for s, y, p in rows], np.int64).reshape(-1, 4)
    for part in np.split(columns, sorted(c for c in cuts if c < len(rows))):
        tally.add(*part.T)
    right, asked = tally.steps(0)
    assert len(asked) <= tallies.MOST
    assert asked.sum() == tally.rows == len(rows)
    for at in range(len(asked)):
        here = [y == p for s, y, p in rows if s // tally.width == at]
        assert (asked[at], right[at]) == (len(here), sum(here))


def test_a_curve_has_few_points_and_all_answers(tmp_path: Path) -> None:
    tally = read_all(finished(tmp_path, steps=3000, batch=2), 3000)
    counted = tally.counted("er", "pair")
    assert counted is not None
    assert len(counted.hits) <= 256
    assert counted.end[-1] == sum(counted.counts) == 6000
    assert sum(counted.hits) == tally.steps(0).right.sum()
    assert RunTally(10).counted("er", "pair") is None


def test_a_run_that_goes_on_has_the_first_bins_of_the_whole(tmp_path: Path) -> None:
    """So that its window is as wide, and differences are at the same positions."""
    done = read_all(finished(tmp_path, steps=3000, batch=2, learner="a"), 3000)
    with made_run(tmp_path, steps=3000, batch=2, learner="b") as run:
        run.go_on(1000)
        going = read_all(run.path, 3000)
    whole, part = done.counted("a", "p"), going.counted("b", "p")
    assert whole is not None
    assert part is not None
    assert whole.whole == part.whole == len(whole.hits)
    assert part.end[:-1] == list(whole.end)[: len(part.end) - 1]
    assert len(part.hits) == -(-len(whole.hits) // 3)


def test_ages_count_for_the_largest_shift_that_they_reach() -> None:
    tally = RunTally(0, (10, 100), ages=True)
    ages = np.array([0, 3, 10, 57, 100, 5000])
    tally.add(np.arange(6), np.zeros(6), np.array([0, 1, 0, 0, 0, 1]), ages)
    assert tally.shifts == [0, 10, 100]
    assert [tally.asked(shift) for shift in tally.shifts] == [2, 2, 2]
    assert [tally.accuracy(shift) for shift in tally.shifts] == [0.5, 1.0, 0.5]


def test_a_run_of_the_loop_is_counted_as_scored(tmp_path: Path) -> None:
    protocol = sg.Protocol(shifts=(20,))
    stream = sg.stream("albums", length=1000)
    run = sg.run(stream, "ncm", protocol=protocol, out=tmp_path, checkpoint=0)
    tally = read_all(run.path, run.stream["steps"], (20,))
    assert tally.accuracy(0) == sg.score(run)["online_accuracy"]
    assert tally.accuracy(20) == sg.score(run)["near_future_accuracy@20"]


@pytest.mark.parametrize("damage", ["cut", "flip", "gone", "not parquet"])
def test_a_damaged_segment_is_named(tmp_path: Path, damage: str) -> None:
    path = finished(tmp_path)
    file = next(path.glob("log/predictions/*.parquet"))
    data = bytearray(file.read_bytes())
    if damage == "gone":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(data[:-10])
    elif damage == "flip":
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    else:
        file.write_bytes(b"x" * len(data))
    with pytest.raises(Damaged, match=r"00000\.parquet"):
        read_all(path, 100)


def test_what_is_not_committed_is_not_counted(tmp_path: Path) -> None:
    with made_run(tmp_path) as run:
        run.go_on(50)
        (run.path / "log/predictions/00001.parquet").write_bytes(b"half of a segment")
        assert read_all(run.path, 100).rows == 10 * 50 + 460
