"""Streams with permuted inputs, and placebo runs on them."""

from __future__ import annotations

import numpy as np
import pytest

from streamgauge import catalogue
from streamgauge.errors import StreamgaugeError
from streamgauge.record import Run, find_runs
from streamgauge.running.plan import Experiment
from streamgauge.running.runner import placebo, resume, run_all
from streamgauge.streams import ArraySource, Stream
from streamgauge.streams.permuted import permuted_inputs


def test_labels_stay_and_inputs_are_those_of_other_samples() -> None:
    stream = catalogue.stream("blobs", per_class=40, size=4, held_out=0.2, preparation=0.1)
    other = permuted_inputs(stream, seed=3)
    parts = [(stream.order, other.order), (stream.preparation, other.preparation)]
    parts.append((stream.splits["held_out"].index, other.splits["held_out"].index))
    for before, after in parts:
        assert (other.source.label[after] == stream.source.label[before]).all()
        first = [one.tobytes() for one in stream.source.read(before)]
        second = [one.tobytes() for one in other.source.read(after)]
        assert sorted(first) == sorted(second)
        assert np.mean([a == b for a, b in zip(first, second, strict=True)]) < 0.2
    assert (other.starts == stream.starts).all()
    assert other.settings["permuted_inputs"] == 3
    assert other.source.fingerprint != stream.source.fingerprint
    assert other.source.fingerprint != permuted_inputs(stream, seed=4).source.fingerprint


def test_a_sample_that_comes_twice_has_two_inputs() -> None:
    """Otherwise a learner could memorise which label belongs to an input."""
    x = np.arange(10, dtype=np.float32)[:, None]
    source = ArraySource(x, np.arange(10) % 2)
    order = np.tile(np.arange(10), 50)
    other = permuted_inputs(Stream("twice", source, order, np.arange(501), 1))
    label = other.source.label[other.order]
    read = other.source.read(other.order)[:, 0]
    for value in range(10):
        assert 0 < label[read == value].mean() < 1


def test_a_placebo_run_learns_nothing_from_inputs(tmp_path) -> None:
    settings = {"stream.per_class": 40, "stream.size": 4, "stream.order": "iid"}
    (stored,) = run_all(Experiment("blobs", ("ncm",), settings=settings), out=tmp_path)
    again = placebo(stored.path)
    assert again.path.parent == stored.path.parent
    assert again.path.name.startswith("blobs-placebo-ncm-s0-")
    assert again.header["config"]["placebo_of"] == stored.id
    assert (again.predictions["label"] == stored.predictions["label"]).all()

    def accuracy(run: Run) -> float:
        return float(np.mean(run.predictions["prediction"] == run.predictions["label"]))

    assert accuracy(stored) > 0.5 > 0.25 > accuracy(again)
    assert placebo(stored.path).path == again.path  # complete already
    with pytest.raises(StreamgaugeError, match="placebo run already"):
        placebo(again.path)
    assert len(find_runs([tmp_path])) == 2
    assert resume(tmp_path)  # both are complete
