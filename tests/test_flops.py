"""FLOPs of jobs: figures that are used again are those that counting every job gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import streamgauge as sg
from helpers import Spy, same_log, small_stream
from streamgauge import catalogue, conformance
from streamgauge.flops import Meter, counting, part
from streamgauge.loop import Loop
from streamgauge.streams import Stream

CPU = torch.device("cpu")
# Small numbers, so that everything that can vary does within a few steps.
SMALL = {
    "memory": 24, "recall": 6, "candidates": 15, "subset": 4, "subsets": 3, "warmup": 20,
    "refresh": 4, "epochs": 2, "train_batch": 10, "steps": "4/3", "measure": 3, "size_interval": 20,
    "rate_interval": 30, "passes": 2,
}  # fmt: skip
VARIANTS = {
    "er": {"wait": True},
    "er_ace": {"as_published": True},
    "derpp": {"as_published": True},
    "mir": {"as_published": True},
    "rar": {"as_published": True},
    "scr": {"as_published": True},
    "gss": {"as_published": True, "lr": 0.5},
    "adrep": {"as_published": True},
    "polrs": {"judge": "answers"},
    "replay_only": {"train": "head", "sampler": "fifo"},
    "ncm": {"model": "cnn4"},
}


class CountsAll:
    """In the meter's place: counts every job, as slowly and obviously as that goes."""

    def __init__(self, learner: Any) -> None:
        self.flops = float("nan")

    def job(self, kind: str, *shape: Any) -> CountsAll:
        return self

    def __enter__(self) -> None:
        self.counter = FlopCounterMode(display=False)
        self.counter.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.counter.__exit__(*error)
        self.flops = float(self.counter.get_total_flops())

    def state_dict(self) -> dict[str, Any]:
        return {}


def settings_of(name: str, extra: dict[str, Any]) -> dict[str, Any]:
    config = catalogue.learner(name).config
    return {k: v for k, v in SMALL.items() if hasattr(config, k)} | extra


def stream_of() -> Stream:
    """Two tasks, and a short last batch in each."""
    return small_stream(16, held_out=0.1, order="classes", tasks=2)


def driven(recipe: catalogue.Recipe, monkeypatch: pytest.MonkeyPatch, meter: type) -> Any:
    monkeypatch.setattr("streamgauge.loop.Meter", meter)
    protocol = sg.Protocol(evaluate=6, cost="4/3", busy="store", probe="never")
    return conformance._Drive(recipe, CPU, stream_of(), protocol)


CASES = [(name, {}) for name in catalogue.names("learners")] + list(VARIANTS.items())


@pytest.mark.parametrize(("name", "extra"), CASES)
def test_figures_used_again_are_those_of_counting_every_job(
    name: str, extra: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = catalogue.learner(name, **settings_of(name, extra))
    every = driven(recipe, monkeypatch, CountsAll).end()
    drive = driven(recipe, monkeypatch, Meter)
    again = drive.end()
    # And counting changes nothing that a learner does: all tables are equal to the last bit.
    for table, columns in every.items():
        for column, values in columns.items():
            np.testing.assert_array_equal(again[table][column], values, f"{table}.{column}")
    assert not drive.loop.meter.varies
    flops = again["jobs"]["flops"]
    assert np.isfinite(flops).all()
    has_network = hasattr(drive.loop.learner, "model")
    assert (flops.sum() > 0) == (has_network or extra.get("model") == "cnn4" or name == "slda")
    times = drive.loop.meter.seen.values()
    assert max(times, default=0) > 2 or name in ("blind", "majority", "random")  # used again


def test_the_rarer_half_of_gss_is_met(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test above is to cover: samples compared while the memory fills, and after."""
    recipe = catalogue.learner("gss", **settings_of("gss", VARIANTS["gss"]))
    jobs = driven(recipe, monkeypatch, Meter).end()["jobs"]
    full = jobs["bytes"] == jobs["bytes"].max()
    assert len(np.unique(jobs["flops"][full & (jobs["kind"] == "learn")])) > 1


def test_a_run_that_is_interrupted_has_the_same_log(tmp_path: Path) -> None:
    stream, recipe = stream_of(), catalogue.learner("gss", memory=20, recall=6)
    protocol = sg.Protocol(evaluate=6)
    whole = sg.run(stream, recipe, protocol=protocol, out=tmp_path / "whole")

    class Enough(Exception):
        pass

    def stop_at(step: int) -> Any:
        def progress(loop: Loop) -> None:
            if loop.step == step:
                raise Enough

        return progress

    for step in (2, 5, 11):
        with pytest.raises(Enough):
            sg.run(stream, recipe, protocol=protocol, out=tmp_path / "cut", checkpoint=0,
                   progress=stop_at(step), said=str)  # fmt: skip
    cut = sg.run(stream, recipe, protocol=protocol, out=tmp_path / "cut", said=str)
    assert same_log(whole, cut)
    assert whole.jobs["flops"].sum() > 0


class Grows(Spy):
    """Its work grows, and it does not say so."""

    def learn(self, batch: sg.Batch, predicted: torch.Tensor | None) -> dict[str, Any]:
        size = 1 if self.learnt < 5 else self.learnt
        torch.ones(size, 3) @ torch.ones(3, 2)
        return super().learn(batch, predicted)


def test_a_learner_whose_figures_differ_is_counted_from_there_on(tmp_path: Path) -> None:
    flops = sg.run(small_stream(12), Grows, out=tmp_path).jobs["flops"]
    true = np.array([12.0] * 5 + [12.0 * n for n in range(5, 12)])
    assert (flops[:5] == true[:5]).all()
    assert (flops[7:] == true[7:]).all()  # the eighth is looked at again, and then all are


def test_parts_are_added_and_their_own_counter_is_not_seen_twice() -> None:
    def product(size: int) -> None:
        torch.ones(size, 3) @ torch.ones(3, 2)  # 2 x 3 x 2 FLOPs a row

    meter = Meter(object())
    for size, wanted in ((4, 60), (4, 60), (4, 60), (7, 96), (0, 12), (7, 96)):
        with meter.job("learn", 1):
            product(1)
            assert counting() == meter.counting
            if size:
                with part("more", size):
                    product(size)
        assert meter.flops == wanted
    assert not counting()
    with part("more", 1):  # outside of a job it does nothing
        product(1)
    copy = Meter(object())
    copy.load_state_dict(meter.state_dict())
    assert copy.state_dict() == meter.state_dict()


def test_a_job_that_fails_leaves_no_figure() -> None:
    meter = Meter(object())
    with pytest.raises(ZeroDivisionError), meter.job("learn", 1):
        raise ZeroDivisionError
    assert not meter.known
    assert not counting()


def test_a_known_part_is_not_counted_again_within_a_job_that_is() -> None:
    """Else GDumb's training, one job of thousands of steps, would never be replayed."""
    meter = Meter(None)
    a = torch.ones(4, 4)
    for job in range(3):
        counted = []
        with meter.job("prepare", job):  # a new shape each time, so that every job is counted
            a @ a
            assert counting()
            for _ in range(5):
                with part("fit", 4):
                    counted.append(counting())
                    a @ a
                assert counting()
            a @ a
        assert counted == [job == 0, False, False, False, False]
        assert meter.flops == 7 * 2 * 4**3
    with pytest.raises(ValueError, match="on the way"), meter.job("prepare", 3), part("fit", 4):
        raise ValueError("on the way")
    assert not counting()
    with meter.job("prepare", 4), part("fit", 4):
        a @ a
    assert meter.flops == 2 * 4**3
