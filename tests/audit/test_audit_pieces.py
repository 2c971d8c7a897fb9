"""An audit in pieces is the audit in one piece, to the last digit."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from streamgauge.audit import audit
from streamgauge.audit.log import PredictionLog
from streamgauge.audit.parallel import piece_edges, scan_pieces, tally_pieces
from streamgauge.audit.tally import NO_HISTORY, CountRequest, join_runs, run_lengths, scan, tally
from streamgauge.errors import StreamgaugeError


def serial_map(work: Any, tasks: Any) -> list[Any]:
    """Call a function for every tuple of arguments, in this process."""
    return [work(*task) for task in tasks]


def bursts(rng: np.random.Generator, length: int, classes: int, mean: float) -> Any:
    """Labels that come in runs."""
    starts = rng.random(length) < 1 / mean
    return rng.integers(0, classes, length)[np.maximum.accumulate(starts * np.arange(length))]


def columns(length: int = 30_000, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    label = bursts(rng, length, 12, 6.0)
    prediction = np.where(rng.random(length) < 0.6, label, rng.integers(0, 12, length))
    return {
        "label": label,
        "prediction": prediction,
        "age": rng.integers(0, 300, length),
        "step": np.cumsum(rng.random(length) < 0.2),
        "time": np.arange(length) * 60,
    }


@pytest.mark.parametrize("ties", ["recent", "smallest"])
@pytest.mark.parametrize("rows", [4_000, 7_777, 29_999])
def test_pieces_give_the_audit_of_one(ties: str, rows: int) -> None:
    log = columns()
    one = audit(log, ties=ties, hold=1_000)
    many = audit(log, ties=ties, hold=1_000, spread=serial_map, rows=rows)
    assert many.to_dict() == one.to_dict()


@given(
    seed=st.integers(0, 10**6),
    length=st.integers(300, 1500),
    step=st.sampled_from([1, 4, 10, None]),
    ties=st.sampled_from(["recent", "smallest"]),
    rows=st.integers(30, 400),
    look_rows=st.integers(30, 400),
)
@settings(max_examples=40, deadline=None)
def test_hits_and_tries_are_equal_wherever_it_is_cut(
    seed: int, length: int, step: int | None, ties: str, rows: int, look_rows: int
) -> None:
    rng = np.random.default_rng(seed)
    classes = int(rng.integers(2, 9))
    given_columns = {
        "label": np.concatenate([[0, 1], bursts(rng, length - 2, classes, 4.0)]),
        "prediction": rng.integers(-1, classes, length) * 1.0,
        "step": np.cumsum(rng.random(length) < 0.3),
    }
    given_columns["prediction"][given_columns["prediction"] < 0] = np.nan
    if step is not None:
        del given_columns["step"]
    wanted: dict[str, Any] = {
        "windows": np.array([1.0, 3.0, 10.0, 64.0, np.inf]),
        "shifts": np.array([0, 1, 7, 90]),
        "step": step,
        "ties": ties,
        "block": int(rng.integers(1, 40)),
        "length": length,
    }

    def request(log: PredictionLog) -> CountRequest:
        order = log.classes.sorted_ranks()
        return CountRequest(**wanted, classes=order.size, class_order=order)

    before = PredictionLog(given_columns)
    found = scan(before, hold=100)
    one = tally(before, found, request(before))
    log = PredictionLog(given_columns)
    again = scan_pieces(log, serial_map, look_rows)
    assert (again.length, again.unpredicted) == (found.length, found.unpredicted)
    # Classes may be met, and so numbered, in another order: names are what counts.
    names, numbers = list(before.classes.numbers), log.classes.numbers
    order = [numbers[name] for name in names]
    size = len(found.counts)
    assert again.counts[order[:size]].tolist() == found.counts.tolist()
    assert again.in_memory.label.tolist() == np.array(order)[found.in_memory.label].tolist()
    if step is None:
        assert again.largest_step == run_lengths(given_columns["step"]).max()
    many = tally_pieces(log, again, request(log), serial_map, rows)
    assert (many.blind.tries == one.blind.tries).all()
    assert (many.blind.hits == one.blind.hits).all()
    assert (many.model.hits == one.model.hits).all()
    assert (many.model.tries == one.model.tries).all()


def test_parquet_is_read_from_the_middle(tmp_path: Path) -> None:
    """Several files with small row groups; names as text; what is said names the right row."""
    log = columns(9_000)
    table = pa.table({**log, "label": [f"class {n}" for n in log["label"]]}).drop(["prediction"])
    for number, part in enumerate((slice(0, 2_500), slice(2_500, 2_600), slice(2_600, 9_000))):
        some = table.slice(part.start, part.stop - part.start)
        parquet.write_table(some, tmp_path / f"{number}.parquet", row_group_size=700)
    source: Any = PredictionLog(tmp_path).source
    for start, stop in [(0, 9_000), (0, 1), (699, 701), (2_499, 2_601), (8_999, 9_000), (5, 7_000)]:
        found = list(source.part(start, stop).pieces(["age"], []))
        assert pa.concat_tables(found)["age"].to_pylist() == log["age"][start:stop].tolist()
    one = audit(tmp_path, hold=1_000)
    many = audit(tmp_path, hold=1_000, spread=serial_map, rows=2_000)
    assert many.to_dict() == one.to_dict()
    log["time"][5_000] = 0
    del log["prediction"]
    parquet.write_table(pa.table(log), tmp_path / "back.parquet")
    sentences = []
    for more in ({}, {"spread": serial_map, "rows": 5_000}):
        with pytest.raises(StreamgaugeError) as caught:
            audit(tmp_path / "back.parquet", hold=1_000, **more)
        sentences.append(str(caught.value))
    assert sentences[0] == sentences[1]
    assert "go back at row 5,001" in sentences[0]


def test_what_cannot_be_counted_in_pieces_is_refused(tmp_path: Path) -> None:
    log = columns(3_000)
    with pytest.raises(StreamgaugeError, match="evalocl depends on the whole stream"):
        audit(log, ties="evalocl", hold=100, spread=serial_map, rows=500)
    shifted = {**log, "shift": np.arange(3_000) % 2}
    with pytest.raises(StreamgaugeError, match="contains answers at 2 shifts"):
        audit(shifted, step="none", hold=100, spread=serial_map, rows=500)
    with pytest.raises(StreamgaugeError, match="cannot be sorted in pieces"):
        audit(log, sort=True, hold=100, spread=serial_map, rows=500)
    lines = "label\n" + "\n".join(str(n) for n in log["label"])
    (tmp_path / "log.csv").write_text(lines)
    with pytest.raises(StreamgaugeError, match="write it as Parquet"):
        audit(tmp_path / "log.csv", spread=serial_map)
    # A short log is held whole, and nothing is left out.
    assert audit(log, spread=serial_map).to_dict() == audit(log).to_dict()


@given(st.integers(1, 500), st.integers(1, 50), st.integers(1, 200), st.integers(1, 300))
def test_cuts(length: int, block: int, least: int, rows: int) -> None:
    edges = piece_edges(length, block, least, rows)
    assert (edges[0], edges[-1]) == (0, length)
    assert all(edge % block == 0 for edge in edges[:-1])
    assert all(b - a >= min(least, length) for a, b in itertools.pairwise(edges))


def test_the_standing_says_who_leads() -> None:
    standing = NO_HISTORY.after(np.array([2, 0, 0, 2, 1], np.int32), 10)
    assert standing.counts.tolist() == [2, 1, 2]
    assert standing.last.tolist() == [12, 14, 13]
    assert (standing.mode(smallest=True), standing.mode(smallest=False)) == (0, 2)
    assert NO_HISTORY.mode(smallest=False) == -1
    assert join_runs(np.array([2, 3]), np.array([4])).tolist() == [2, 7]
