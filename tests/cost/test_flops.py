"""FLOPs of jobs: figures that are used again are those that counting every job gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import streamgauge as sg
from helpers import Spy, batch_of, build, same_log, small_stream
from streamgauge import catalogue
from streamgauge.checks import conformance
from streamgauge.cost.flops import Affine, Meter, counting, part
from streamgauge.learners.parts.replay_batch import (
    NONE,
    draw_sizes_of_other_classes,
    next_of_other_classes,
)
from streamgauge.memory import Reservoir
from streamgauge.running.loop import Loop
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

    def __init__(self, *learner: Any) -> None:
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
    monkeypatch.setattr("streamgauge.running.loop.Meter", meter)
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
    assert max(times, default=0) > 2 or not drive.loop.sees_input  # used again


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
                   progress=stop_at(step), log=str)  # fmt: skip
    cut = sg.run(stream, recipe, protocol=protocol, out=tmp_path / "cut", log=str)
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

    meter = Meter()
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
    copy = Meter()
    copy.load_state_dict(meter.state_dict())
    assert copy.state_dict() == meter.state_dict()


def test_a_job_that_fails_leaves_no_figure() -> None:
    meter = Meter()
    with pytest.raises(ZeroDivisionError), meter.job("learn", 1):
        raise ZeroDivisionError
    assert not meter.known
    assert not counting()


def test_a_known_part_is_not_counted_again_within_a_job_that_is() -> None:
    """Else GDumb's training, one job of thousands of steps, would never be replayed."""
    meter = Meter()
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


# Families of shapes


class Rows:
    """A learner that multiplies so many rows, and says so."""

    def __init__(self, kind: type[int] = Affine) -> None:
        self.kind, self.rows, self.side = kind, 0, 3

    def work(self) -> tuple[int, ...]:
        return (self.kind(self.rows), self.side)

    def learn(self, really: int) -> float:
        """2 x side x 2 FLOPs a row."""
        torch.ones(really, self.side) @ torch.ones(self.side, 2)
        return 4.0 * self.side * really


def metered(meter: Meter, rows: Rows, number: int, really: int | None = None) -> tuple[bool, bool]:
    """Whether the job was counted, and whether its figure is the true one."""
    rows.rows = number
    with meter.job("learn", 1):
        counted = counting()
        true = rows.learn(number if really is None else really)
    return counted, meter.flops == true


def test_a_new_number_is_read_off_a_line_that_three_agree_on_and_looked_at_ever_more_rarely() -> (
    None
):
    rows = Rows()
    meter = Meter(rows.work)
    found = [metered(meter, rows, number) for number in range(2, 22)]
    assert all(right for _, right in found)
    # Three are counted; of those computed the first, second, fourth, eighth and sixteenth are.
    at = [place for place, (counted, _) in enumerate(found) if counted]
    assert at == [0, 1, 2, *(2 + 2**k for k in range(5))]
    # A shape met again is looked at by the rule for shapes, computed or not; not so in replays.
    assert metered(meter, rows, 7) == (True, True)
    assert metered(meter, rows, 7) == (False, True)
    meter.replayed = True
    assert metered(meter, rows, 8) == (False, True)
    # 0 is no number of samples, another side is another family, and so is another size of batch.
    assert metered(meter, rows, 0) == (True, True)
    rows.side = 5
    assert [metered(meter, rows, n)[0] for n in (9, 30, 31, 32, 33, 34)] == [
        True, True, True, True, True, False,
    ]  # fmt: skip
    assert not meter.varies


def test_numbers_that_are_not_marked_are_counted() -> None:
    rows = Rows(int)
    meter = Meter(rows.work)
    assert all(metered(meter, rows, number) == (True, True) for number in range(20))
    assert not meter.lines


@pytest.mark.parametrize("replayed", [False, True])
def test_a_figure_beside_the_line_ends_it_for_good(replayed: bool) -> None:
    rows = Rows()
    meter = Meter(rows.work)
    meter.replayed = replayed

    def true(number: int) -> int:
        return number if number < 6 else 7 * number

    found = {number: metered(meter, rows, number, true(number)) for number in range(1, 11)}
    # 4 and 5 are looked at and 7, the fourth computed: 6 was not, and its figure was wrong.
    assert [number for number, (_, right) in found.items() if not right] == [6]
    assert found[7] == found[8] == (True, True)
    assert metered(meter, rows, 6, true(6)) == (True, True)  # forgotten, and counted
    assert all(metered(meter, rows, n, true(n)) == (True, True) for n in range(20, 40))
    assert all(metered(meter, rows, n) == (True, True) for n in range(40, 60))
    assert not meter.varies


def test_a_number_whose_figure_varies_ends_its_line_too() -> None:
    rows = Rows()
    meter = Meter(rows.work)
    for number in range(1, 8):
        metered(meter, rows, number)
    assert metered(meter, rows, 1, 100) == (True, True)  # its second time
    assert meter.varies
    assert metered(meter, rows, 50) == (True, True)


def test_families_are_part_of_the_checkpoint_and_older_ones_have_none() -> None:
    rows = Rows()
    whole, meter = Meter(rows.work), Meter(rows.work)
    older = Meter(rows.work)
    for number in range(1, 40):
        state = meter.state_dict()
        meter = Meter(rows.work)
        meter.load_state_dict(state)
        assert meter.state_dict() == state
        assert metered(meter, rows, number) == metered(whole, rows, number)
    older.load_state_dict({name: state[name] for name in ("known", "seen", "varies")})
    assert [metered(older, rows, n)[0] for n in range(50, 56)] == [True] * 5 + [False]


MIR = {"as_published": True, "memory": 90, "recall": 7, "candidates": 24}


@pytest.mark.parametrize(
    "extra",
    [{"passes": 1}, {"passes": 3}, {"passes": 2, "select": "batch"}, {"passes": 2, "recall": 0},
     {"passes": 2, "code": "realtime"}, {"passes": 2, "as_published": False, "policy": "mixed"}],
)  # fmt: skip
def test_what_is_computed_for_mir_is_what_counting_gives(
    extra: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = catalogue.learner("mir", model="linear", **MIR | extra)
    protocol = sg.Protocol(evaluate="never")

    def drive(meter: type) -> Any:
        monkeypatch.setattr("streamgauge.running.loop.Meter", meter)
        return conformance._Drive(recipe, CPU, small_stream(140, 6, 6), protocol)

    every = drive(CountsAll).end()["jobs"]
    some = drive(Meter)
    some.loop.meter.replayed = True  # so that what is met again is not looked at
    np.testing.assert_array_equal(some.end()["jobs"]["flops"], every["flops"])
    lines = some.loop.meter.lines.values()
    assert not any(line.bent for line in lines)
    survey = extra.get("code", "survey") == "survey" and extra.get("as_published", True)
    assert (sum(line.read for line in lines) > 8) == survey  # so that there is something to see


@pytest.mark.parametrize("extra", [{"passes": 1}, {"passes": 3}, {"passes": 2, "select": "batch"}])
def test_mir_knows_its_candidates_and_what_it_will_recall(extra: dict[str, Any]) -> None:
    stream = small_stream(90, 6, 6)
    learner, gate = build(stream, "mir", model="linear", **MIR | extra)
    choose, seen = learner.choose, []

    def watched(batch: sg.Batch, hand: Any) -> sg.Batch:
        chosen: sg.Batch = choose(batch, hand)
        seen.append((len(hand.parts[0].y), len(chosen.y)))
        return chosen

    learner.choose = watched
    odd = 0
    for step in range(len(stream)):
        said = learner.work()
        seen.clear()
        learner.learn(batch_of(stream, step, gate), None)
        assert said == tuple(sum(column) for column in zip(*seen, strict=True))
        odd += any(0 < recalled < learner.config.recall for _, recalled in seen)
    assert (odd > 0) == (extra == {"passes": 3})  # with one hand, fewer than `recall` give none


@pytest.mark.parametrize(("n", "least"), [(5, 3), (5, 0), (4, 9), (1, 1), (0, 2)])
def test_sizes_of_hands_are_known_before_they_are_dealt(n: int, least: int) -> None:
    for count in range(24):
        memory = Reservoir(40, seed=0)
        memory.add(np.arange(count + 7), np.repeat([0, 1], [count, 7]))
        left, sizes = NONE, []
        for _ in range(8):
            hand, left = next_of_other_classes(left, n, memory, np.array([1]), least)
            sizes.append(len(hand))
        assert draw_sizes_of_other_classes(count, n, least, draws=8) == sizes
