"""What makes runs quick on a processor changes no meaning; where the time goes is told truly."""

from __future__ import annotations

import importlib.util
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import streamgauge as sg
from helpers import CPU, build, same_log, small_stream
from streamgauge import models
from streamgauge.errors import StreamgaugeError
from streamgauge.learners.parts.sgd import forget_gradients, step
from streamgauge.running import determinism, profile
from streamgauge.running.profile import Profile
from streamgauge.streams import Gate

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


# --- the optimiser's step


@pytest.mark.parametrize("settings", [{}, {"momentum": 0.9}, {"weight_decay": 0.1}])
def test_a_lean_step_is_torchs_own_number_for_number(settings: dict[str, float]) -> None:
    rng = torch.Generator().manual_seed(0)
    shapes = [(4, 3), (7,), (2, 2, 3, 3), (5,)]
    first = [torch.randn(s, generator=rng) for s in shapes]
    mine, theirs = ([w.clone().requires_grad_() for w in first] for _ in range(2))
    quick = torch.optim.SGD(mine, lr=0.3, **settings)
    plain = torch.optim.SGD(theirs, lr=0.3, **settings)
    for round_ in range(3):
        for group in (*quick.param_groups, *plain.param_groups):
            group["lr"] = 0.3 / (1 + round_)  # a schedule
        forget_gradients(quick)
        assert all(w.grad is None for w in mine)
        for a, b, shape in zip(mine[:-1], theirs[:-1], shapes, strict=False):
            a.grad = torch.randn(shape, generator=rng)  # the last weight has no gradient
            b.grad = a.grad.clone()
        step(quick)
        plain.step()
    for a, b, w in zip(mine, theirs, first, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, first[-1]) if w is first[-1] else not torch.equal(a, w)


# --- layout and precision

layout = import_module("streamgauge.models.build")  # `models.build` is its function


@pytest.mark.parametrize("name", ["cnn4", "slim_resnet18"])
def test_channels_last_changes_the_layout_and_not_the_values(name: str) -> None:
    plain = models.build(name, (3, 32, 32), 10, seed=0, masked=False)
    suited = models.suit(models.build(name, (3, 32, 32), 10, seed=0, masked=False), CPU)
    for (key, a), b in zip(plain.state_dict().items(), suited.state_dict().values(), strict=True):
        assert torch.equal(a, b), key
        if a.ndim == 4 and a.shape[1] > 1 and a.shape[2] > 1:
            assert b.is_contiguous(memory_format=torch.channels_last), key
    x = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(suited(x), plain(x), rtol=1e-4, atol=1e-4)


def test_bf16_rounds_products_and_leaves_weights_and_features_in_fp32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(layout, "_processor_flags", lambda: {"avx512_bf16"})
    exact = models.suit(models.build("cnn4", (3, 16, 16), 10, seed=0, masked=False), CPU)
    rough = models.suit(models.build("cnn4", (3, 16, 16), 10, seed=0, masked=False), CPU, "bf16")
    x = torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    a, b = exact.features(x), rough.features(x)
    assert b.dtype == torch.float32
    assert not torch.equal(a, b)
    assert (
        float(((a - b).norm() / a.norm()).detach()) < 0.02
    )  # bfloat16 has 8 bits: 0.4 % a product
    rough(x).sum().backward()
    assert {p.grad.dtype for p in rough.parameters() if p.grad is not None} == {torch.float32}


def test_bf16_is_refused_where_the_processor_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_processor_flags", lambda: {"avx2"})
    with pytest.raises(StreamgaugeError, match="leave precision at fp32"):
        build(small_stream(), "er", precision="bf16")


def test_a_learner_in_bf16_keeps_its_weights_in_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_processor_flags", lambda: {"avx512_bf16"})
    learner, _ = build(small_stream(), "er", precision="bf16")
    assert learner.model.precision == torch.bfloat16
    assert all(p.dtype == torch.float32 for p in learner.model.parameters())


# --- threads


@pytest.fixture
def four_cores(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in determinism.SET_BY_USER:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(4), raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    return monkeypatch


def suitable(name: str, shape: tuple[int, ...] = (3, 8, 8), **settings: Any) -> int:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (20, *shape), dtype=np.uint8)
    stream = sg.stream(x, np.arange(20) % 4, batch=10)
    recipe = sg.catalogue.learner(name, **settings) if settings else sg.catalogue.learner(name)
    return determinism.suitable_threads(
        lambda gate: recipe.build(stream.spec, gate, 0, CPU), stream, CPU
    )


def test_small_networks_take_one_thread_and_large_ones_what_is_set(
    four_cores: pytest.MonkeyPatch,
) -> None:
    assert suitable("er", model="mlp") == 1
    assert suitable("er", model="cnn4") == 1
    assert suitable("er", (3, 32, 32), model="slim_resnet18") == 4
    assert suitable("blind") == 4  # nothing to share: left alone


def test_a_users_number_of_threads_wins(four_cores: pytest.MonkeyPatch) -> None:
    four_cores.setattr(torch, "get_num_threads", lambda: 3)  # no default of four cores
    assert suitable("er", model="mlp") == 3
    four_cores.setattr(torch, "get_num_threads", lambda: 4)
    four_cores.setenv("OMP_NUM_THREADS", "4")
    assert suitable("er", model="mlp") == 4


def test_the_choice_is_stored_with_the_run_and_taken_back_after_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in determinism.SET_BY_USER:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(2), raising=False)
    before = torch.get_num_threads()
    seen = []
    torch.set_num_threads(2)
    try:
        run = sg.run(
            small_stream(),
            "er",
            out=tmp_path,
            progress=lambda loop: seen.append(torch.get_num_threads()),
        )
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set(seen) == {1}
    assert run.header["environment"]["threads"] == 1


# --- where the time went


def test_a_part_within_a_part_counts_for_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(profile.time, "perf_counter", lambda: now[0])
    found = Profile()
    with found.part("learn"):
        now[0] += 1.0
        with found.part("recall"):
            now[0] += 4.0
            with found.part("read"):
                now[0] += 0.5
        now[0] += 2.0
    with found.part("recall"):
        now[0] += 0.25
    assert found.seconds == {"learn": 3.0, "recall": 4.25, "read": 0.5}
    found.total, found.steps = 10.0, 2
    shares = found.shares()
    assert list(shares) == ["recall", "learn", "loop", "read"]
    assert shares["loop"] == pytest.approx(0.225)
    assert sum(shares.values()) == pytest.approx(1.0)
    assert "To spend less on recall" in found.text()
    assert "GPU" not in found.text()


def test_a_profiled_run_has_the_same_log_and_names_all_parts(tmp_path: Path) -> None:
    stream = small_stream(held_out=0.2)
    protocol = sg.Protocol(evaluate=5)
    plain = sg.run(stream, "er", protocol=protocol, out=tmp_path / "plain")
    found = Profile()
    watched = sg.run(stream, "er", protocol=protocol, out=tmp_path / "watched", profile=found)
    assert same_log(plain, watched)
    parts = {"read", "predict", "recall", "augment", "forward", "backward", "store", "learn"}
    assert parts | {"evaluate", "record"} <= set(found.seconds)
    assert found.steps == len(stream)
    assert sum(found.seconds.values()) <= found.total
    assert min(found.seconds.values()) >= 0
    again = Profile()
    sg.run(stream, "er", protocol=protocol, out=tmp_path / "watched", profile=again)
    assert "complete already" in again.text()


# --- the benchmark's own arithmetic and data


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("task", [1, 3, 20])
def test_both_sides_are_given_one_task_and_a_memory_of_the_earlier_ones(task: int) -> None:
    work = load("versus_work")
    stream = work.build(work.Config(kind="features", task=task, batches=30))
    label = stream.source.label
    assert set(label[stream.order]) == set(range(5 * task - 5, 5 * task))
    assert set(label[stream.preparation]) == set(range(5 * task - 5))
    held = stream.splits["held_out"]
    assert len(held) == 125 * task
    assert not np.isin(held.index, [*stream.order, *stream.preparation]).any()
    gate = Gate(stream.source, stream.preparation, CPU)
    learner = sg.catalogue.learner(
        f"er={BENCHMARKS / 'versus_work.py'}:Filled", policy="class_balanced", model="mlp"
    ).build(stream.spec, gate, 0, CPU)
    assert len(learner.memory) == min(2000, 75 * 5 * (task - 1))  # 75 of a class are not held out


def test_a_sum_over_tasks_is_drawn_only_between_tasks_measured() -> None:
    versus = load("versus_avalanche")
    rows = [
        {"work": "er_eval", "evaluation": "once", "task": t, "avalanche_ms": a, "streamgauge_ms": s}
        for t, a, s in [(1, 100.0, 10.0), (10, 1000.0, 100.0), (20, 3000.0, 200.0)]
    ]
    (found,) = versus.extrapolated(rows)
    theirs = sum(100 + 100 * (t - 1) for t in range(1, 11))
    theirs += sum(1000 + 200 * (t - 10) for t in range(11, 21))
    assert found["avalanche_s"] == pytest.approx(versus.MINI_BATCHES * theirs / 1e3)
    assert found["ratio"] == pytest.approx(found["avalanche_s"] / found["streamgauge_s"])
    assert versus.extrapolated(rows[:2]) == []
