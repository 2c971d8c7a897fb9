"""Trials on a cluster: the same study, whatever order they end in and whoever is lost on the way.

Without Ray, a pool of threads of which one works at a time stands in for its workers; what needs
Ray is marked.
"""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from test_cluster import Resources, holder
from test_tuning import SMALL, quiet, stored

from streamgauge.errors import StreamgaugeError
from streamgauge.record import Run, find_runs
from streamgauge.running.execution import Execution
from streamgauge.running.executors.cluster import Cluster, Misplaced, Shared, Store, room
from streamgauge.running.executors.on_ray import Workspace
from streamgauge.tuning import Ask, Task, attempt, load, tune
from streamgauge.tuning.spread import TrialQueue, attempt_in, drive
from streamgauge.tuning.study import Study, plan
from streamgauge.tuning.trial import TrialStanding

RANDOM = Ask(
    "blobs", "er", ("er.lr=log:0.001:1",), SMALL, prefix="3 tasks", trials=6, sampler="random",
    prune="none",
)  # fmt: skip


class Lost(BaseException):
    """A worker that is gone."""


class Threads:
    """A pool. Which of those that have room goes on is chosen by `pick`; a worker that is lost is
    replaced by another, as Ray does."""

    device = "cpu"

    def __init__(
        self, size: int, workspace: Workspace, pick: Callable[[list[int]], int] = min
    ) -> None:
        self.size, self.workspace, self.pick = size, workspace, pick
        self.said: queue.Queue[tuple[int, Any]] = queue.Queue()
        self.going: dict[int, queue.Queue[bool]] = {}  # where each waits for an answer or its turn
        self.ready: list[int] = []
        self.order: list[int] = []
        self.lose: set[tuple[int, int]] = set()  # (trial, part) at which a worker is lost
        self.broken: dict[int, str] = {}
        self.most = 0

    def room(self) -> int:
        return self.size

    def submit(self, number: int, task: Task) -> None:
        self.going[number] = queue.Queue()
        self.ready.append(number)
        self.most = max(self.most, len(self.going))
        threading.Thread(target=self._work, args=(number, task), daemon=True).start()

    def _work(self, number: int, task: Task) -> None:
        def report(part: int, value: float) -> bool:
            if (number, part) in self.lose:
                self.lose.remove((number, part))
                raise Lost
            self.said.put((number, TrialStanding(part, value)))
            return self.going[number].get()

        self.going[number].get()
        if number in self.broken:
            self.said.put((number, StreamgaugeError(self.broken[number])))
            return
        while True:
            try:
                self.said.put((number, attempt_in(self.workspace, task, report)))
            except Lost:
                continue
            return

    def receive(self) -> tuple[int, Any]:
        turn = self._turn()
        if turn is not None:
            self.going[turn].put(False)
        number, said = self.said.get(timeout=60)
        if not isinstance(said, TrialStanding):
            del self.going[number]
            self.order.append(number)
        return number, said

    def _turn(self) -> int | None:
        """One works at a time, to its end."""
        if not self.ready or len(self.ready) < len(self.going):
            return None
        number = self.pick(self.ready)
        self.ready.remove(number)
        return number

    def answer(self, number: int, part: int, give_up: bool) -> None:
        self.going[number].put(give_up)


def nothing(_: Threads) -> None:
    """A pool as it is."""


def spread(
    ask: Ask, folder: Path, size: int, change: Callable[[Threads], None] = nothing, **how: Any
) -> tuple[Threads, dict[str, Any]]:
    store = how.pop("store", "")
    folder.mkdir(parents=True, exist_ok=True)
    execution = Execution(**{"checkpoint": 0.0, "log": quiet, **how})
    work = Study(plan(ask), folder, None, folder.name, "cpu", execution)
    with Shared(folder / "trials") as shared:
        pool = Threads(size, Workspace("cpu", shared, store))
        change(pool)
        try:
            drive(work, pool)
        finally:
            found = work.summary()
    return pool, found


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study as one process makes it."""
    folder = tmp_path_factory.mktemp("study") / "er"
    tune(RANDOM, out=folder, log=quiet)
    return folder


def trials_of(folder: Path) -> list[tuple[dict[str, Any], float | None, dict[int, float]]]:
    return [(t.params, t.value, t.intermediate_values) for t in stored(folder).get_trials()]


@pytest.mark.parametrize("pick", [min, max])
def test_the_study_is_the_same_whatever_order_trials_end_in(
    here: Path, tmp_path: Path, pick: Callable[[list[int]], int]
) -> None:
    pool, found = spread(RANDOM, tmp_path / "er", 3, lambda pool: setattr(pool, "pick", pick))
    assert pool.most == 3
    assert (pool.order == sorted(pool.order)) == (pick is min)
    assert sorted(pool.order) == list(range(6))
    assert trials_of(tmp_path / "er") == trials_of(here)
    alone = load(here)
    assert {**found, "folder": "", "seconds": 0} == {**alone, "folder": "", "seconds": 0}
    assert len(find_runs([tmp_path / "er" / "trials"])) == 6
    assert not list((tmp_path / "er").rglob("checkpoint-*.pt"))
    heard: list[str] = []
    tune(RANDOM, out=tmp_path / "er", log=heard.append)  # and there is nothing left for one here
    assert heard == [f"6 trials of {tmp_path / 'er'} are there already; 0 to go."]


@pytest.mark.long
def test_with_room_for_one_a_learning_sampler_proposes_the_same(tmp_path: Path) -> None:
    ask = replace(RANDOM, sampler="tpe", trials=13, prefix="1 task", prune="median")
    tune(ask, out=tmp_path / "alone" / "er", log=quiet)
    spread(ask, tmp_path / "er", 1)
    assert trials_of(tmp_path / "er") == trials_of(tmp_path / "alone" / "er")
    # With room for three, those that are drawn before there is anything to learn from are the same.
    spread(ask, tmp_path / "three" / "er", 3)
    params = [[p for p, *_ in trials_of(tmp_path / one / "er")] for one in ("alone", "three")]
    assert params[0][:10] == params[1][:10]


@pytest.mark.parametrize("store", [False, True])
def test_a_lost_workers_trial_goes_on_elsewhere(here: Path, tmp_path: Path, store: bool) -> None:
    url = f"file://{tmp_path / 'store'}" if store else ""

    def lose(pool: Threads) -> None:
        pool.lose = {(1, 1), (4, 2)}

    pool, found = spread(RANDOM, tmp_path / "er", 2, lose, store=url)
    assert not pool.lose
    assert trials_of(tmp_path / "er") == trials_of(here)
    assert found["flops"] == load(here)["flops"]  # nothing was trained, or charged, twice
    if store:
        left = Store(url)
        names = {path.name for path in (tmp_path / "store").iterdir()}
        assert len(names) == 6
        assert not any((left.scratch / name).exists() for name in names)


def test_trials_are_given_up_from_here(tmp_path: Path) -> None:
    settings = {**SMALL, "er.passes": "3"}
    ask = Ask("blobs", "er", ("lr=0.1,0.11,0.12,0.13,0.14,1e-9",), settings, prefix="4 tasks",
              sampler="grid", prune="median")  # fmt: skip
    _, found = spread(ask, tmp_path / "p", 2)
    trials = {t.params["lr"]: t for t in stored(tmp_path / "p").get_trials()}
    assert trials[1e-9].state == optuna.trial.TrialState.PRUNED
    assert found["pruned"] >= 1
    cost = {lr: t.user_attrs["result"]["flops"] for lr, t in trials.items()}
    assert cost[1e-9] < 0.5 * cost[0.1]


def test_equal_trials_are_made_once(tmp_path: Path) -> None:
    ask = Ask("blobs", "er", ("lr=0.1,0.2",), SMALL, prefix="1 task", trials=7, prune="none")
    pool, found = spread(ask, tmp_path / "s", 3)
    assert found["trials"] == 7
    assert len(pool.order) == len(find_runs([tmp_path / "s" / "trials"])) == 2
    values = {t.params["lr"]: t.value for t in stored(tmp_path / "s").get_trials()}
    assert all(t.value == values[t.params["lr"]] for t in stored(tmp_path / "s").get_trials())


def test_what_cannot_be_made_stops_the_study_after_the_others_and_it_goes_on(
    here: Path, tmp_path: Path
) -> None:
    def broken(pool: Threads) -> None:
        pool.broken = {1: "The disk is full."}

    with pytest.raises(StreamgaugeError, match="The disk is full"):
        spread(RANDOM, tmp_path / "er", 3, broken)
    states = [t.state.name for t in stored(tmp_path / "er").get_trials()]
    assert states.count("RUNNING") == 1
    assert 2 <= states.count("COMPLETE") < 5  # no more were asked for
    heard: list[str] = []
    spread(RANDOM, tmp_path / "er", 3, log=heard.append)
    assert trials_of(tmp_path / "er") == trials_of(here)
    assert any(line.startswith("trial 1: ") for line in heard)


def test_settings_that_cannot_begin_are_said_at_once(tmp_path: Path) -> None:
    ask = Ask("blobs", "er", ("passes=0,1",), SMALL, prefix="1 task", sampler="grid")
    with pytest.raises(StreamgaugeError, match="passes must be at least 1"):
        spread(ask, tmp_path / "x", 1)
    _, found = spread(ask, tmp_path / "x", 1)
    assert found["choice"] == {"passes": 1}


def test_a_machine_at_fault_is_no_fault_of_the_settings(tmp_path: Path) -> None:
    """A search that turned away from what a machine lacked would choose by chance."""
    work = Study(plan(RANDOM), tmp_path, None, "er", "cpu", Execution(log=quiet))
    one = work.ask(0)
    assert one is not None
    assert one.task is not None
    task = replace(one.task, execution=Execution(checkpoint=0.0))
    with Shared(tmp_path / "trials") as shared:
        gone = Workspace("cpu", shared)
        (shared.folder / shared.mark).unlink()
        with pytest.raises(Misplaced, match="is not the same folder on every machine"):
            attempt_in(gone, task, lambda *_: False)
    with pytest.raises(Misplaced, match="cannot be used"):
        attempt_in(Workspace("cpu", shared, "nothing://x"), task, lambda *_: False)

    def stop(part: int, value: float) -> bool:
        # Another process that believes itself to be this trial's: one writes, the other is told.
        with pytest.raises(StreamgaugeError, match="is being written by another process"):
            attempt(task)
        raise Lost

    with pytest.raises(Lost):
        attempt(task, stop)
    assert attempt(task).failed == ""


def test_a_worker_that_was_believed_lost_is_told_to_stop(here: Path, tmp_path: Path) -> None:
    """Its trial has been ended by another."""
    answers = []

    class Haunted(Threads):
        def receive(self) -> tuple[int, Any]:
            if self.order == [0, 1] and not answers:
                return 0, TrialStanding(2, 0.5)
            return super().receive()

        def answer(self, number: int, part: int, give_up: bool) -> None:
            if number in self.order:
                answers.append((number, part, give_up))
            else:
                super().answer(number, part, give_up)

    (tmp_path / "er").mkdir()
    work = Study(plan(RANDOM), tmp_path / "er", None, "er", "cpu", Execution(log=quiet))
    with Shared(tmp_path / "er" / "trials") as shared:
        drive(work, Haunted(1, Workspace("cpu", shared)))
    assert answers == [(0, 2, True)]
    assert trials_of(tmp_path / "er") == trials_of(here)


def test_a_queue_hands_answers_to_whoever_asked_last() -> None:
    async def scene() -> None:
        trials = TrialQueue()
        first = asyncio.create_task(trials.report(4, 1, 0.5))
        assert await trials.receive() == (4, TrialStanding(1, 0.5))
        other = asyncio.create_task(trials.report(5, 1, 0.25))
        assert await trials.receive() == (5, TrialStanding(1, 0.25))
        first.cancel()  # its worker is lost before the answer, and another says the same
        again = asyncio.create_task(trials.report(4, 1, 0.5))
        assert await trials.receive() == (4, TrialStanding(1, 0.5))
        await trials.answer(4, 1, True)
        await trials.answer(4, 1, False)  # the answer to the first
        await trials.answer(5, 1, False)
        assert (await again, await other) == (True, False)

    asyncio.run(scene())


def test_how_many_trials_there_is_room_for() -> None:
    assert room(Cluster(), Resources(CPU=6)) == 6
    assert room(Cluster(cpus=4), Resources(CPU=6)) == 1
    assert room(Cluster(cpus=0), Resources(CPU=6)) == 6
    assert room(Cluster(cpus=0.1), Resources(CPU=1)) == 10
    assert room(Cluster(), Resources(CPU=64, GPU=2), 0.25) == 8
    assert room(Cluster(), Resources(CPU=64, GPU=2), 0.4) == 4  # two a GPU: no task has two halves
    assert room(Cluster(), Resources(CPU=64, GPU=1), 0.1) == 10
    assert room(Cluster(), Resources(CPU=2, GPU=8), 1) == 2
    assert room(Cluster(), Resources(), 1) == 1  # machines may still come


def test_options(call: Any) -> None:
    words = ("tune", "--stream", "blobs", "--learner", "er")
    assert "--gpus has a meaning with --on ray only" in call(*words, "--gpus", "0.5")[2]
    assert "no executor 'rai'" in call(*words, "--on", "rai")[2]
    code, _, err = call(*words, "--on", "ray", "--side-by-side", "4")
    assert code == 2
    assert "--gpus 0.25" in err


# Several machines on one storage, each with a folder of its own


def test_what_other_machines_did_meanwhile_is_not_done_again(tmp_path: Path) -> None:
    ask = replace(RANDOM, trials=4, prefix="1 task")
    url = f"sqlite:///{tmp_path}/shared.db"
    heard: list[str] = []

    def meanwhile(sentence: str) -> None:
        if sentence.startswith("trial") and not heard:
            other = optuna.load_study(study_name="both", storage=url)
            for value in (0.1, 0.2):  # another machine ends two of the four
                trial = other.ask(
                    {"lr": optuna.distributions.FloatDistribution(0.001, 1, log=True)}
                )
                other.tell(trial, value)
        heard.append(sentence)

    found = tune(ask, out=tmp_path / "a", storage=url, study="both", log=meanwhile)
    assert found["trials"] == 4
    assert len(find_runs([tmp_path / "a" / "trials"])) == 2


def test_a_study_killed_right_after_asking_proposes_the_same(here: Path, tmp_path: Path) -> None:
    folder = tmp_path / "er"
    tune(replace(RANDOM, trials=2), out=folder, log=quiet)
    stored(folder).ask()  # and nothing was suggested before the process was killed
    tune(RANDOM, out=folder, log=quiet)
    assert [params for params, *_ in trials_of(folder)] == [p for p, *_ in trials_of(here)]


# With Ray


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """Two CPUs, and two GPUs that are only counted: enough to see what is placed where."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray = pytest.importorskip("ray")
    ray.init(
        address="local", num_cpus=2, num_gpus=2, include_dashboard=False,
        object_store_memory=80 << 20, log_to_driver=False,
    )  # fmt: skip
    yield ray
    ray.shutdown()


@pytest.mark.ray
def test_a_killed_worker_costs_no_trial(ray: Any, tmp_path: Path) -> None:
    """One of two workers is killed in the middle of a trial; the study is that of one process."""
    settings = {**SMALL, "stream.per_class": "400"}
    ask = replace(RANDOM, settings=settings, trials=4)
    out, killed = tmp_path / "ray" / "er", []

    def kill() -> None:
        until = time.monotonic() + 300
        while time.monotonic() < until and not killed:
            for path in (out / "trials").glob("*/progress.json"):
                one = Run(path.parent)
                if one.step > 0 and not one.done:
                    worker = holder(path.parent / "lock")
                    if worker is not None and worker != os.getpid():
                        os.kill(worker, signal.SIGKILL)
                        killed.append(path.parent.name)
                        return
            time.sleep(0.01)

    killer = threading.Thread(target=kill)
    killer.start()
    how: dict[str, Any] = {"device": "cpu", "checkpoint": 0.05}
    found = tune(ask, out=out, on="ray", log=quiet, **how)
    killer.join()
    assert len(killed) == 1
    alone = tune(ask, out=tmp_path / "alone" / "er", log=quiet, **how)
    assert trials_of(out) == trials_of(tmp_path / "alone" / "er")
    assert found["choice"] == alone["choice"]
    assert found["flops"] == alone["flops"]
    assert not list((out / "trials").glob(".cluster-*"))


@pytest.mark.ray
def test_a_stopped_study_resumes_on_ray_and_travels_through_a_store(
    ray: Any, here: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "er"
    tune(replace(RANDOM, trials=2), out=folder, log=quiet)
    stored(folder).ask()
    cluster = Cluster(store=f"file://{tmp_path / 'store'}")
    tune(RANDOM, out=folder, on="ray", cluster=cluster, device="cpu", log=quiet)
    assert trials_of(folder) == trials_of(here)
    assert len(find_runs([folder / "trials"])) == 6
    assert len(list((tmp_path / "store").iterdir())) == 4


@pytest.mark.ray
def test_trials_are_given_up_on_ray(ray: Any, tmp_path: Path) -> None:
    settings = {**SMALL, "er.passes": "3"}
    lrs = "lr=0.1,0.11,0.12,0.13,0.14,0.15,0.16,0.17,1e-9"  # some end before the last is judged
    ask = Ask("blobs", "er", (lrs,), settings, prefix="4 tasks", sampler="grid", prune="median")
    found = tune(ask, out=tmp_path / "p", on="ray", device="cpu", log=quiet)
    trials = {t.params["lr"]: t for t in stored(tmp_path / "p").get_trials()}
    assert trials[1e-9].state == optuna.trial.TrialState.PRUNED
    assert found["trials"] == 9


SEER = """
import os
import time

import torch
from dataclasses import dataclass


@dataclass(frozen=True)
class Config:
    wait: float = 0.01
    folder: str = ""
    crowd: int = 1


class Seer:
    def __init__(self, spec, source, seed, device, config: Config):
        self.classes, self.config, self.learnt = spec.classes, config, 0

    def predict(self, x):
        return torch.zeros(len(x), self.classes)

    def learn(self, batch, predicted):
        if not self.learnt:
            with open(f"{self.config.folder}/{os.getpid()}-{time.time()}", "w") as file:
                file.write(f"{os.environ['CUDA_VISIBLE_DEVICES']} {time.time()} ")
            until = time.time() + 60
            while len(os.listdir(self.config.folder)) < self.config.crowd and time.time() < until:
                time.sleep(0.01)
        self.learnt += 1
        time.sleep(self.config.wait)
        name = max(f for f in os.listdir(self.config.folder) if f.startswith(f"{os.getpid()}-"))
        with open(f"{self.config.folder}/{name}", "a") as file:
            file.write(f"{time.time()} ")
        return {}

    def state_dict(self):
        return {"learnt": self.learnt}

    def load_state_dict(self, state):
        self.learnt = state["learnt"]
"""


@pytest.mark.ray
@pytest.mark.parametrize("share", [0.25, 1.0])
def test_tasks_get_the_part_of_a_gpu_that_was_asked_for(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """Runs and trials alike: each sees one of the two GPUs, and no more share one than fit. There
    are no GPUs here, so what is placed by them is computed on the CPUs."""
    from streamgauge.running.executors import on_ray as remote
    from streamgauge.running.plan import Experiment
    from streamgauge.running.runner import run_all
    from streamgauge.tuning import spread as spreading

    monkeypatch.setattr(remote, "device_of", lambda gpus: "cpu")
    monkeypatch.setattr(spreading, "device_of", lambda gpus: "cpu")
    (tmp_path / "seer.py").write_text(SEER)
    learner = f"seer={tmp_path / 'seer.py'}:Seer"
    cluster = Cluster(gpus=share, cpus=0.1)
    seen = {}
    for kind in ("runs", "trials"):
        folder = tmp_path / f"seen-{kind}"
        folder.mkdir()
        settings = {"stream.per_class": 20, "stream.size": 4, "seer.folder": str(folder)}
        settings["seer.crowd"] = 4 if share == 0.25 else 2
        if kind == "runs":
            experiment = Experiment("blobs", (learner,), 4, settings)
            list(run_all(experiment, cluster=cluster, out=tmp_path / "runs", device="cuda",
                         log=quiet, engine="eager", precision="fp32"))  # fmt: skip
        else:
            waits = "seer.wait=0.01,0.011,0.012,0.013"
            ask = Ask("blobs", learner, (waits,), settings, prefix="2 tasks", sampler="grid",
                      prune="none", objective="online")  # fmt: skip
            tune(ask, out=tmp_path / "study", on="ray", cluster=cluster, device="cuda", log=quiet)
        seen[kind] = [file.read_text().split() for file in folder.iterdir()]
    for found in seen.values():
        assert len(found) == 4
        assert {words[0] for words in found} <= {"0", "1"}  # one GPU each, no list of them
        spans = [(words[0], float(words[1]), float(words[-1])) for words in found]
        crowds = [sum(g == gpu and a <= at < b for g, a, b in spans) for gpu, at, _ in spans]
        assert max(crowds) > 1 if share == 0.25 else max(crowds) == 1
        if share == 1.0:
            assert {words[0] for words in found} == {"0", "1"}
