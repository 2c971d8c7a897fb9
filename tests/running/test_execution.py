"""How runs are carried out: options in one place, and executors that write the same logs."""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import streamgauge as sg
from helpers import small_stream
from streamgauge.errors import StreamgaugeError
from streamgauge.record import Run
from streamgauge.record.diff import differences
from streamgauge.running import execution as execution_module
from streamgauge.running import runner
from streamgauge.running.active_run import ActiveRun, complete_already
from streamgauge.running.execution import Execution
from streamgauge.running.executors import dispatch, torchrun
from streamgauge.running.executors.cluster import Cluster
from streamgauge.running.plan import Experiment, PlannedRun, StreamCache, plan
from streamgauge.running.profile import Profile
from streamgauge.tuning import Ask, tune

CPU = torch.device("cpu")
# `--speed fast`: what a job costs is part of every planned run.
FAST = Experiment(
    "blobs",
    ("er", "mir"),
    seeds=2,
    settings={
        "stream.per_class": 8,
        "stream.size": 4,
        "learner.model": "mlp",
        "learner.memory": 30,
        "learner.recall": 5,
    },
    speed="fast",
    baselines=True,
)


def quiet(_: str) -> None:
    """Logs nothing."""


class FakeMemory:
    """A GPU with room for so many more runs."""

    more = 2
    synchronized = 0

    def __init__(self, device: torch.device) -> None:
        self.run = 1 << 30
        self.asked = 0

    def reserved(self) -> int:
        self.asked += 1
        return self.run if self.asked > 1 else 0

    def free(self) -> int:
        return int((type(self).more + 0.5) * self.run / dispatch.FREE_SHARE)

    def synchronize(self) -> None:
        type(self).synchronized += 1


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> type[FakeMemory]:
    """The CPU is taken for a device that replays recorded steps."""
    monkeypatch.setattr(execution_module, "records_steps", lambda device: True)
    monkeypatch.setattr(dispatch, "DeviceMemory", FakeMemory)
    monkeypatch.setattr(FakeMemory, "synchronized", 0)
    return FakeMemory


def by_id(runs: Any) -> dict[str, Run]:
    return {run.id: run for _, run in runs}


@pytest.mark.parametrize("engine", ["eager", "graph"])
def test_interleaved_runs_write_the_logs_of_sequential_ones(engine: Any, tmp_path: Path) -> None:
    planned = plan(FAST)
    execution = Execution(device="cpu", engine=engine, log=quiet)
    alone = by_id(dispatch.execute(planned, execution, tmp_path / "alone"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispatch, "DeviceMemory", FakeMemory)
        active = dispatch.activate(planned, execution, tmp_path / "turns")
        turns = list(dispatch.interleaved(active, execution))
    assert {planned_run for planned_run, _ in turns} == set(planned)
    assert len(planned) == 2 * 4  # er, mir, er++(mir), er--(mir)
    for planned_run, run in turns:
        assert run.learner == planned_run.recipe.name
        assert run.seed == planned_run.learner_seed
        assert run.done
        assert differences(alone[run.id], run)["same"]


def test_runs_take_turns_as_many_as_fit(gpu: type[FakeMemory], tmp_path: Path) -> None:
    """The whole path of a GPU: the choice of the executor, the first run alone for a few steps,
    evaluation warmed up, memory measured, and so many runs at once."""
    sentences: list[str] = []
    order: list[tuple[str, int]] = []

    def watch(planned_run: PlannedRun, stream: Any) -> Any:
        return lambda loop: order.append((planned_run.title, loop.step))

    execution = Execution(device="cpu", engine="graph", log=sentences.append)
    runs = list(dispatch.execute(plan(FAST), execution, tmp_path, watch))
    assert len(runs) == 8
    assert "3 runs side by side on cpu." in sentences
    assert gpu.synchronized == 1
    first = order[0][0]
    assert [title for title, _ in order[: dispatch.TRIAL_STEPS]] == [first] * 8
    after = [title for title, _ in order[dispatch.TRIAL_STEPS :]]
    assert len(set(after[:3])) == 3
    assert after[:3] == after[3:6]  # each a step in turn
    again = list(dispatch.execute(plan(FAST), execution, tmp_path, watch))  # nothing is left
    assert by_id(again).keys() == by_id(runs).keys()
    assert gpu.synchronized == 1


def test_a_limit_is_kept_and_a_small_gpu_takes_one_run_at_a_time(
    gpu: type[FakeMemory], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sentences: list[str] = []
    execution = Execution(device="cpu", engine="graph", side_by_side=2, log=sentences.append)
    list(dispatch.execute(plan(FAST), execution, tmp_path / "two"))
    assert "2 runs side by side on cpu." in sentences
    monkeypatch.setattr(gpu, "more", 0)
    execution = Execution(device="cpu", engine="graph", log=sentences.append)
    list(dispatch.execute(plan(FAST), execution, tmp_path / "one"))
    assert sentences.count("1 runs side by side on cpu.") == 1  # measured once, not every step


def test_which_executor_is_chosen(gpu: type[FakeMemory], monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(**fields: Any) -> str:
        (name,) = dispatch.execute([], Execution(device="cpu", **fields))
        return str(name)

    def naming(name: str) -> Any:
        def execute(*_: Any) -> Iterator[str]:
            yield name

        return execute

    for executor in ("one_by_one", "interleaved"):
        monkeypatch.setattr(dispatch, executor, naming(executor))
    assert chosen() == "interleaved"
    assert chosen(engine="eager") == "one_by_one"
    assert chosen(side_by_side=1) == "one_by_one"
    assert chosen(profile=Profile()) == "one_by_one"
    monkeypatch.setattr(torchrun, "launched", lambda: True)
    monkeypatch.setattr(torchrun, "of_torchrun", lambda: None)
    assert chosen() == "one_by_one"  # over all ranks
    monkeypatch.undo()
    assert not Execution().interleaves(CPU)
    assert Execution().interleaves(torch.device("cuda"))


def test_trials_take_turns_too(gpu: type[FakeMemory], tmp_path: Path) -> None:
    settings = {"stream.per_class": 30, "stream.size": 4, "er.model": "mlp"}
    ask = Ask("blobs", "er", ("lr=0.01,0.05,0.1,0.2",), settings, prefix="2 tasks", sampler="grid",
              prune="none")  # fmt: skip
    sentences: list[str] = []
    how: dict[str, Any] = {"device": "cpu", "engine": "graph"}
    turns = tune(ask, out=tmp_path / "a" / "er", log=sentences.append, **how)
    assert "3 runs side by side on cpu." in sentences
    alone = tune(ask, out=tmp_path / "b" / "er", log=quiet, side_by_side=1, **how)
    for name in ("choice", "value", "trials", "flops", "within"):
        assert turns[name] == alone[name], name


def test_a_run_that_fails_among_others_closes_them_all(tmp_path: Path) -> None:
    planned = plan(FAST)[:3]
    execution = Execution(device="cpu", log=quiet)
    runs = [run for _, run in dispatch.activate(planned, execution, tmp_path)]

    def fail(loop: Any) -> None:
        if loop.step == 5:
            raise ValueError("broken")

    runs[1].progress = fail
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispatch, "DeviceMemory", FakeMemory)
        with pytest.raises(StreamgaugeError, match="ValueError: broken"):
            list(dispatch.run_interleaved(runs, CPU, log=quiet))
    for run in dispatch.execute(planned, execution, tmp_path):  # no folder is still locked
        assert run[1].done


def test_an_active_run_from_its_folder_to_its_end(tmp_path: Path) -> None:
    sentences: list[str] = []
    execution = Execution(device="cpu", log=sentences.append, checkpoint=0.0)

    def active() -> ActiveRun:
        return ActiveRun(small_stream(5), sg.learner("ncm"), execution, out=tmp_path)

    first = active()
    assert not first.complete
    assert not first.path.exists()  # nothing is written before it is opened
    with first as run:
        steps = run.steps()
        next(steps)
        next(steps)
        assert run.loop is not None
        assert run.loop.step == 2
        memory = weakref.ref(run.loop)
    del steps
    gc.collect()
    assert memory() is None  # a list of closed runs holds no networks
    second = active()
    assert second.path == first.path
    assert not second.complete
    with second as run:
        assert f"{run.path} goes on from step 2." in sentences
        for _ in run.steps():
            pass
    third = active()
    assert third.complete
    assert sentences[-1] == complete_already(sg.Run(third.path))
    with third as run:
        assert list(run.steps()) == []
    assert Run(first.path).done


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("threads", 0, "threads must be at least 1, not 0"),
        ("side_by_side", 0, "side.by.side must be at least 1, not 0"),
        ("workers", -1, "workers must be at least 0, not -1"),
        ("checkpoint", -1.0, "checkpoint must be at least 0, not -1.0"),
        ("engine", "fast", "There is no engine 'fast'"),
        ("precision", "fp8", "There is no precision 'fp8'"),
    ],
)
def test_an_option_is_checked_in_one_place(field: str, value: Any, sentence: str) -> None:
    options: Any = {field: value}
    with pytest.raises(StreamgaugeError, match=sentence):
        sg.run(small_stream(2), "ncm", **options)
    with pytest.raises(StreamgaugeError, match=sentence):
        sg.resume("nowhere", **options)
    with pytest.raises(StreamgaugeError, match=sentence):
        list(runner.run_all(FAST, **options))


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--stream", "blobs", "--learner", "er"],
        ["suite", "run", "demo", "--generated", "--only", "NCM"],
        ["resume", "runs"],
        ["pretrain", "--stream", "blobs"],
    ],
)
def test_no_command_takes_zero_threads(call: Any, words: list[str]) -> None:
    code, _, complaint = call(*words, "--threads", "0")
    assert code == 2
    assert "--threads must be at least 1, not 0." in complaint


def test_threads_hold_for_the_runs_and_not_after(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    run = sg.run(small_stream(3), "er", out=tmp_path, execution=Execution(threads=3, log=quiet))
    assert run.header["environment"]["threads"] == 3
    assert torch.get_num_threads() == before


def test_keywords_and_an_execution_say_the_same(tmp_path: Path) -> None:
    sentences: list[str] = []
    execution = Execution(device="cpu", engine="graph", log=sentences.append)
    first = sg.run(small_stream(3), "ncm", out=tmp_path, execution=execution)
    again = sg.run(small_stream(3), "ncm", out=tmp_path, device="cpu", engine="graph",
                   log=sentences.append)  # fmt: skip
    assert (again.path, again.id) == (first.path, first.id)
    assert sentences[-1] == complete_already(sg.Run(first.path))
    with pytest.warns(DeprecationWarning, match="said is now log"):
        sg.run(small_stream(3), "ncm", out=tmp_path, execution=execution, said=sentences.append)
    with pytest.warns(DeprecationWarning, match="said is now log"):
        sg.resume(first.path, said=quiet)
    with pytest.raises(StreamgaugeError, match="works in this process"):
        sg.run(small_stream(3), "ncm", cluster=Cluster())
    with pytest.raises(StreamgaugeError, match="leave it out with --on ray"):
        Execution(profile=Profile(), cluster=Cluster())


def test_old_names_work_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match=r"carry_out is now .*\.execute;"):
        assert runner.carry_out is runner.execute
    with pytest.warns(DeprecationWarning, match=r"Planned is now .*\.PlannedRun;"):
        assert runner.Planned is PlannedRun
    with pytest.raises(AttributeError):
        _ = runner.nothing_of_this_name


def test_planned_runs_are_told_apart_and_travel() -> None:
    planned = plan(FAST)
    assert len(set(planned)) == len(planned)
    twin: PlannedRun = pickle.loads(pickle.dumps(planned[-1]))
    assert twin != planned[-1]
    for name in ("stream", "stream_settings", "learner_seed", "protocol", "relative",
                 "baseline_of", "notes", "part", "title", "stream_seed"):  # fmt: skip
        assert getattr(twin, name) == getattr(planned[-1], name), name
    assert twin.recipe == planned[-1].recipe


def test_a_stream_is_built_once_and_not_kept_longer_than_needed() -> None:
    planned = plan(FAST)
    built: list[int] = []

    class Counting(PlannedRun):
        def build_stream(self) -> Any:
            built.append(self.stream_seed)
            return super().build_stream()

    counting = [Counting(**vars(planned_run)) for planned_run in planned]
    streams = StreamCache(counting)
    for planned_run in counting:
        assert streams.stream_of(planned_run).settings["seed"] == planned_run.stream_seed
        assert len(streams._streams) <= 1
    assert built == [0, 1]
    assert not streams._streams
