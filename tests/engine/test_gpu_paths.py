"""What only a GPU walks, walked without one: on the device `meta`, which has shapes and no values,
by the engine of a GPU on the CPU, and with torch.cuda replaced."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import streamgauge as sg
from helpers import small_stream
from streamgauge.engine import make
from streamgauge.engine.graph import Graph
from streamgauge.engine.steps import CannotRecord, CudaTape
from streamgauge.errors import Busy, StreamgaugeError
from streamgauge.learners.base import Batch
from streamgauge.record import Run
from streamgauge.record.run import remembering_failure
from streamgauge.record.tables import RowBuffer
from streamgauge.running import active_run, determinism
from streamgauge.running.active_run import ActiveRun
from streamgauge.running.execution import Execution
from streamgauge.running.executors import dispatch
from streamgauge.running.executors.torchrun import Ranks
from streamgauge.running.loop import Loop
from streamgauge.running.protocol import Protocol
from streamgauge.streams import ArraySource, Gate, arrange
from streamgauge.streams.stream import Arrangement

CPU, META = torch.device("cpu"), torch.device("meta")


def a_stream() -> sg.Stream:
    rng = np.random.default_rng(0)
    label = np.repeat(np.arange(6), 40)
    x = rng.integers(60, 196, (6, 3, 8, 8))[label] + rng.integers(-60, 60, (240, 3, 8, 8))
    how = Arrangement(order="classes", tasks=3, batch=7, held_out=0.1, held_out_by="task")
    return arrange(ArraySource(x.astype(np.uint8), label), how)


class AnyGenerator(type):
    def __instancecheck__(cls, value: Any) -> bool:
        return type(value).__name__ == "Generator"


@pytest.fixture
def generators(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device `meta` has no generator: one of the CPU is in its place."""
    real = torch.Generator

    class Generator(metaclass=AnyGenerator):
        def __new__(cls, device: Any = None) -> Any:
            return real()

    monkeypatch.setattr(torch, "Generator", Generator)


def learn_on_meta(name: str, settings: dict[str, Any], steps: int = 12) -> Any:
    stream = a_stream()
    gate = Gate(stream.source, stream.preparation, META)
    learner: Any = sg.learner(name, **settings).build(stream.spec, gate, 0, META)
    for step in range(steps):
        index = stream.index(step)
        gate.reveal(index)
        gate.label_due(index)
        label = stream.source.label[index].astype(np.int64)
        x, y = (torch.from_numpy(v).to(META) for v in (stream.source.read(index), label))
        scores = learner.predict(x)
        assert scores.device.type == "meta"
        learner.learn(Batch(x, y, index.astype(np.int64), label), scores)
    return learner


# Those that bring nothing to the host in a step.
ON_DEVICE: list[tuple[str, dict[str, Any]]] = [
    ("er", {}),
    ("er", {"passes": 3, "policy": "class_balanced", "augment": "crop_flip", "momentum": 0.9}),
    ("er_ace", {"as_published": True, "passes": 2}),
    ("er_lwf", {"as_published": True}),
    ("mir", {"as_published": True, "candidates": 12}),
    ("mir", {"select": "batch", "passes": 2, "candidates": 12}),
    ("mir", {"as_published": True, "code": "realtime", "candidates": 12}),
    ("rar", {}),
    ("rar", {"as_published": True}),
    ("derpp", {}),
    ("derpp", {"as_published": True}),
    ("agem", {}),
    ("scr", {}),
    ("lwf", {"warmup": 30}),
    ("er_plus", {"steps": "3/2"}),
    ("ace", {}),
    ("finetune", {}),
    ("rwalk", {"warmup": 30, "refresh": 7, "path_steps": 3}),
    ("rwalk", {"warmup": 30, "refresh": 8, "path_steps": 3, "as_published": True, "stride": 2}),
]


@pytest.mark.parametrize(("name", "settings"), ON_DEVICE)
def test_steps_stay_on_the_device(name: str, settings: dict[str, Any], generators: None) -> None:
    """A tensor that is made on the CPU, or brought there, is an error on `meta`."""
    learn_on_meta(name, {"model": "mlp", "memory": 30, "recall": 5, **settings})


@pytest.mark.parametrize("name", ["ncm", "slda", "acm"])
def test_class_means_and_neighbours_stay_on_the_device(name: str, generators: None) -> None:
    learn_on_meta(name, {})


def test_a_tensor_on_another_device_does_not_pass(generators: None) -> None:
    learner = learn_on_meta("derpp", {"model": "mlp", "memory": 30, "recall": 5})
    assert learner.stored_logits.device.type == "meta"
    learner.trained_logits = {7: torch.zeros(7, 6)}  # on the CPU
    stream = a_stream()
    x = torch.zeros(7, 3, 8, 8, dtype=torch.uint8, device="meta")
    y = torch.zeros(7, dtype=torch.int64, device="meta")
    index = stream.index(0).astype(np.int64)
    with pytest.raises((RuntimeError, NotImplementedError)):
        learner.learn(Batch(x, y, index, np.zeros(7, np.int64)), None)


class Counts:
    """A learner of NumPy arrays: scores are the counts of labels."""

    kind: Any = staticmethod(np.asarray)

    def __init__(self, spec: Any, source: Any, seed: int, device: Any) -> None:
        self.counts = np.zeros(spec.classes, np.float32)

    def predict(self, x: Any) -> Any:
        return self.kind(np.tile(self.counts, (len(x), 1)))

    def learn(self, batch: Any, predicted: Any) -> dict[str, Any]:
        np.add.at(self.counts, batch.labels(), 1)
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {"counts": self.counts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.counts = state["counts"]


def test_numpy_scores_are_evaluated_within_a_task_by_the_engine_of_a_gpu(tmp_path: Path) -> None:
    """`auto` takes that engine on every GPU, also for learners that it cannot record."""
    logs = [
        sg.run(a_stream(), Counts, protocol=Protocol(evaluate=1), engine=engine, progress=False,
               out=tmp_path / engine)
        for engine in ("eager", "graph")
    ]  # fmt: skip
    for table in ("evaluations", "predictions", "answers"):
        one, other = (run.table(table) for run in logs)
        assert one.rows == other.rows > 0
        for column in one:
            if column == "confidence":
                np.testing.assert_allclose(one[column], other[column], rtol=1e-5)
            else:
                assert np.array_equal(one[column], other[column]), (table, column)


class ForeignArray:
    """Of a library that is neither torch nor NumPy."""

    def __init__(self, array: Any) -> None:
        self._array, self.shape = array, array.shape

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self._array, dtype)


class ForeignCounts(Counts):
    kind = ForeignArray


def test_scores_may_be_arrays_of_another_library(tmp_path: Path) -> None:
    assert sg.run(small_stream(5), ForeignCounts, out=tmp_path, progress=False).done


def test_no_learner_is_made_on_the_cpu_to_try_a_state_of_a_gpu(tmp_path: Path) -> None:
    """The state of a CUDA generator has 16 bytes, and no generator of the CPU takes it."""
    with pytest.raises((RuntimeError, TypeError)):
        torch.Generator().set_state(torch.zeros(16, dtype=torch.uint8))
    execution = Execution(device="cpu", log=lambda _: None)
    run = ActiveRun(small_stream(5), sg.learner(Counts), execution, out=tmp_path)
    assert isinstance(run._second_learner(), Counts)
    run.device = torch.device("cuda")
    assert run._second_learner() is None


def test_rows_of_a_failed_run_are_fetched_on_the_stream_of_its_engine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Elsewhere a copy would not wait for the computation of the values."""
    inside, taken = [False], list[bool]()
    take = RowBuffer.take

    @contextmanager
    def scope() -> Iterator[None]:
        inside[0] = True
        yield
        inside[0] = False

    def noting(rows: RowBuffer) -> Any:
        taken.append(inside[0])
        return take(rows)

    def fail(loop: Loop) -> None:
        if loop.step == 3:
            inside[0] = False  # as an error on its way leaves the block
            raise ValueError("broken")

    execution = Execution(device="cpu", log=lambda _: None)
    run = ActiveRun(small_stream(5), sg.learner("ncm"), execution, out=tmp_path, progress=fail)
    monkeypatch.setattr(run.engine, "scope", scope)
    monkeypatch.setattr(RowBuffer, "take", noting)
    with pytest.raises(ValueError, match="broken"), run:
        list(run.steps())
    assert taken
    assert all(taken)
    assert len(Run(run.path).predictions["step"]) > 0


def test_an_error_is_kept_where_rows_cannot_be_fetched_from_the_device(tmp_path: Path) -> None:
    """After an error on a GPU every call fails there, and must not hide what was wrong."""
    (tmp_path / "run.json").write_text("{}")

    def rows() -> dict[str, Any]:
        raise RuntimeError("CUDA error: device-side assert triggered")

    with pytest.raises(ValueError, match="a label of 7"), remembering_failure(tmp_path, rows):
        raise ValueError("a label of 7")
    kept = [f.read_text() for f in tmp_path.iterdir() if f.is_file() and f.name != "run.json"]
    assert any("a label of 7" in text for text in kept)


class FakeMemory:
    def __init__(self, device: torch.device) -> None:
        pass

    def reserved(self) -> int:
        return 0

    def free(self) -> int:
        return 1 << 40

    def synchronize(self) -> None:
        pass


class FakeRun:
    """A run of 3,000 steps; another process has the first `busy` seconds of it."""

    loop: Any = SimpleNamespace(step=dispatch.TRIAL_STEPS)

    def __init__(self, clock: list[float], busy_until: float = 0.0) -> None:
        self.clock, self.busy_until, self.opened, self.closed = clock, busy_until, 0, 0

    def open(self) -> None:
        self.opened += 1
        if self.clock[0] < self.busy_until:
            raise Busy("another process writes it.")

    def steps(self) -> Iterator[None]:
        for _ in range(3000):
            self.clock[0] += 0.001
            yield

    def close(self) -> None:
        self.closed += 1


def test_memory_of_a_resumed_run_is_measured_once_its_steps_are_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its loop counts the steps of earlier processes, too."""

    class Resumed(FakeRun):
        loop: Any = SimpleNamespace(step=5000)

    steps: list[int] = []
    clock = [0.0]
    monkeypatch.setattr(dispatch, "DeviceMemory", FakeMemory)
    monkeypatch.setattr(dispatch, "_slots", lambda *_: steps.append(round(1000 * clock[0])) or 2)
    list(dispatch.run_interleaved([Resumed(clock), Resumed([0.0])], CPU, log=lambda _: None))
    assert steps == [dispatch.TRIAL_STEPS]


def test_what_evaluation_adds_to_is_made_on_the_stream_of_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Zeroed on another stream, a count may be zeroed after the first answers were added."""
    within: list[bool] = [False]
    made: list[bool] = []
    zeros = torch.zeros

    @contextmanager
    def scope(engine: Any) -> Iterator[None]:
        within[0] = True
        yield
        within[0] = False

    def noted(*args: Any, **kwargs: Any) -> Any:
        made.append(within[0])
        return zeros(*args, **kwargs)

    monkeypatch.setattr(Graph, "scope", scope)
    monkeypatch.setattr(torch, "zeros", noted)
    Graph(CPU)
    assert made == [True, True]


def test_a_run_of_another_process_is_tried_now_and_then_and_not_at_every_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To open a run on a GPU copies its data there."""
    clock = [0.0]
    monkeypatch.setattr(dispatch, "DeviceMemory", FakeMemory)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(dispatch, "_slots", lambda *_: 2)
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    busy, free = FakeRun(clock, busy_until=2.0), FakeRun(clock)
    ended = list(dispatch.run_interleaved([busy, free], CPU, log=lambda _: None))
    assert [run is busy for run in ended] == [False, True]
    assert 2 <= busy.opened <= 8
    assert busy.closed >= 1
    alone = FakeRun(clock, busy_until=clock[0] + 2.0)
    assert list(dispatch.run_interleaved([alone], CPU, log=lambda _: None)) == [alone]
    assert alone.opened <= 7


class SecondRank(Ranks):
    def __init__(self) -> None:
        super().__init__(1, 2)

    def told(self, value: Any = None) -> Any:
        return False


def test_only_rank_0_looks_at_a_run_that_it_may_move_away(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    execution = Execution(device="cpu", log=lambda _: None)
    first = ActiveRun(small_stream(5), sg.learner("er"), execution, out=tmp_path)
    with first as run:
        list(run.steps())

    def moved(*_: Any) -> Any:
        raise StreamgaugeError("run.json is not there any more.")

    monkeypatch.setattr(active_run, "_ranks", lambda recipe: SecondRank())
    monkeypatch.setattr(active_run, "Run", moved)
    again = ActiveRun(small_stream(5), sg.learner("er"), execution, out=tmp_path)
    assert again.path == first.path
    assert not again.complete


def test_memory_of_a_gpu_is_what_torch_says(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 5)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (7, 9))
    monkeypatch.setattr(torch.cuda, "synchronize", asked.append)
    memory = dispatch.DeviceMemory(torch.device("cuda:1"))
    memory.synchronize()
    assert (memory.reserved(), memory.free(), asked) == (5, 7, [torch.device("cuda:1")])


def test_generators_of_all_gpus_are_as_before_if_cuda_was_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And no GPU is asked if it was not: that would take memory on each."""
    states = {0: "a", 1: "b"}
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: states[device])
    monkeypatch.setattr(
        torch.cuda, "set_rng_state", lambda state, device: states.__setitem__(device, state)
    )
    for used, after in ((True, {0: "a", 1: "b"}), (False, {0: "x", 1: "b"})):
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda used=used: used)
        with determinism.same_randomness():
            states[0] = "x"
        assert states == after


def test_each_rank_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert Ranks(1, 2).device("cuda") == "cuda:1"
    assert chosen == [1]
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(StreamgaugeError, match="There are 2 GPUs for 3 or more ranks"):
        Ranks(2, 3).device("cuda")


def test_a_rank_leaves_with_its_code_and_all_that_it_printed() -> None:
    """Also where a thread is alive whose end would abort the process."""
    code = (
        "import threading, time\n"
        "from streamgauge.running.executors.torchrun import leave\n"
        "threading.Thread(target=time.sleep, args=(900,)).start()\n"
        "print('the last line', end='')\n"
        "leave(3)\n"
    )
    made = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, timeout=600
    )
    assert (made.returncode, made.stdout) == (3, "the last line")


def test_which_engine_a_device_gets() -> None:
    assert make("auto", CPU).name == "eager"
    assert make("auto", META).name == "eager"
    assert make("graph", CPU).name == "graph"
    assert Execution().interleaves(torch.device("cuda", 1))
    assert not Execution(engine="eager").interleaves(torch.device("cuda"))


class FailsOnce:
    """A learner that fails at its third batch, where it is told to."""

    fails: bool = False

    def __init__(self, spec: Any, source: Any, seed: int, device: Any) -> None:
        self.classes, self.batches, self.seed = spec.classes, 0, seed

    def predict(self, x: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(x), self.classes)

    def learn(self, batch: Batch, predicted: Any) -> dict[str, Any]:
        self.batches += 1
        if self.seed == 0 and self.batches == 3:
            raise ValueError("broken")
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def active_runs(folder: Path, seeds: int) -> list[ActiveRun]:
    execution = Execution(device="cpu", log=lambda _: None)
    recipe = sg.learner(FailsOnce)
    return [
        ActiveRun(small_stream(20), recipe, execution, seed=seed, out=folder)
        for seed in range(seeds)
    ]


def test_a_run_that_failed_keeps_no_memory_while_others_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """After "out of memory" the runs that wait need what it had."""
    monkeypatch.setattr(dispatch, "DeviceMemory", FakeMemory)
    monkeypatch.setattr(dispatch, "_slots", lambda *_: 1)  # one after another
    failing, other = active_runs(tmp_path, 2)
    made: list[Any] = []
    opened = failing.open

    def noting() -> None:
        opened()
        made.append(weakref.ref(failing.loop))

    monkeypatch.setattr(failing, "open", noting)
    ended = dispatch.run_interleaved([failing, other], CPU, log=lambda _: None)
    freed: list[bool] = []
    gc.disable()
    try:
        with pytest.raises(StreamgaugeError, match="ValueError: broken"):
            freed.extend(made[0]() is None for _ in ended)
    finally:
        gc.enable()
    assert freed == [True]  # when the other one ended


def test_the_error_of_the_only_run_is_itself_on_a_gpu_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As where runs follow each other: it was a step, of many, that failed."""
    monkeypatch.setattr(dispatch, "DeviceMemory", FakeMemory)
    with pytest.raises(ValueError, match=r"^broken$"):
        list(dispatch.run_interleaved(active_runs(tmp_path, 1), CPU, log=lambda _: None))


def test_trials_that_fail_on_a_gpu_have_no_empty_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial has no folder before it begins."""

    class Failing(FakeRun):
        def open(self) -> None:
            raise StreamgaugeError("The disk is full.")

    monkeypatch.setattr(dispatch, "DeviceMemory", FakeMemory)
    with pytest.raises(StreamgaugeError, match=r"^The disk is full\.$"):
        list(dispatch.run_interleaved([Failing([0.0]), Failing([0.0])], CPU))


class FakeGraph:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def capture_begin(self, pool: Any, capture_error_mode: str) -> None:
        self.calls.append("begin")

    def capture_end(self) -> None:
        self.calls.append("end")

    def replay(self) -> None:
        pass


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), NotImplementedError()])
def test_whatever_ends_a_recording_the_stream_does_not_go_on_recording(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a stream of this thread records, CUDA refuses it many calls, also those of other runs
    on streams of their own."""
    graph, pools = FakeGraph(), iter(range(9))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: graph)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: next(pools))

    def fails(x: Any) -> None:
        raise error

    tape = CudaTape(torch.device("cuda"), [])
    expected = CannotRecord if isinstance(error, RuntimeError) else type(error)
    with pytest.raises(expected):
        tape.record(fails, [torch.zeros(1)])
    assert graph.calls == ["begin", "end"]
    assert tape._pool == 1  # of its own for the next one


def test_a_recording_that_cannot_begin_is_a_step_that_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Refuses(FakeGraph):
        def capture_begin(self, pool: Any, capture_error_mode: str) -> None:
            raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Refuses)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: 0)
    with pytest.raises(CannotRecord, match="not permitted"):
        CudaTape(torch.device("cuda"), []).record(torch.sin, [torch.zeros(1)])
