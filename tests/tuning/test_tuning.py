"""Choosing settings on the beginning of a stream: the search, its storage, and its bill."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
import torch

from streamgauge import catalogue
from streamgauge.errors import Busy, StreamgaugeError
from streamgauge.files import release_lock
from streamgauge.metrics import score
from streamgauge.pages.units import scaled
from streamgauge.record import Run, find_runs
from streamgauge.running.active_run import run_to_completion
from streamgauge.running.execution import Execution
from streamgauge.running.plan import Experiment
from streamgauge.running.runner import resume
from streamgauge.streams.prefix import prefix
from streamgauge.tuning import Ask, attempt, load, tune
from streamgauge.tuning import space as spaces
from streamgauge.tuning.chosen import into, summary_text
from streamgauge.tuning.study import LocalTrial, Study, Worker, plan
from streamgauge.tuning.trial import Task, marks, measure

STREAM = {"stream.per_class": "40", "stream.size": "4", "stream.held_out": "0.2"}
SMALL = {**STREAM, "er.model": "mlp"}
ASK = Ask("blobs", "er", ("er.lr=log:0.001:1",), SMALL, prefix="2 tasks", trials=5, prune="none")


def quiet(sentence: str) -> None:
    pass


def stored(folder: Path, name: str | None = None) -> optuna.Study:
    return optuna.load_study(study_name=name or folder.name, storage=f"sqlite:///{folder}/study.db")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """One study, made once, that several tests look at."""
    folder = tmp_path_factory.mktemp("study") / "er"
    return folder, tune(ASK, out=folder, log=quiet)


# What is searched


def test_a_search_is_read_by_the_type_of_its_setting() -> None:
    recipe = catalogue.learner("er")
    texts = ["er.lr=log:1e-3:0.1", "learner.memory=10:20", "passes=1,2", "policy=fifo,ring"]
    space = spaces.read(texts, recipe)
    assert space["lr"] == spaces.Range(0.001, 0.1, log=True)
    assert space["memory"] == spaces.Range(10, 20, whole=True)
    assert space["passes"] == spaces.Choice((1, 2))
    assert space["policy"] == spaces.Choice(("fifo", "ring"))
    again = spaces.read({name: str(one) for name, one in space.items()}, recipe)
    assert again == space  # what is stored can be read again


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("er.lr", "is no search"),
        ("er.lrr=0:1", "did you mean 'er.lr'"),
        ("mir.lr=0:1", "no setting 'mir.lr' to search"),
        ("er.lr=a:b", "must be a number"),
        ("er.lr=2:1", "is no range"),
        ("er.lr=1:2:3", "is no range"),
        ("er.lr=0:inf", "is no range"),
        ("er.lr=log:0:1", "lies above 0"),
        ("er.lr=0.1,0.1", "must differ"),
        ("er.policy=0:1", "is no number"),
        ("er.policy=fifo,lifo", "er.policy cannot be 'lifo'"),
        ("er.memory=1.5:3", "a whole number"),
        ("er.mean=0.5,0.4", "is a list"),
    ],
)
def test_what_is_no_search_is_said_in_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(StreamgaugeError, match=sentence):
        spaces.read([text], catalogue.learner("er"))


def test_a_grid_is_every_combination_and_refuses_ranges() -> None:
    space = spaces.read(["lr=0.1,0.2", "memory=3:5"], catalogue.learner("er"))
    assert spaces.grid(space) == [
        {"lr": lr, "memory": memory} for lr in (0.1, 0.2) for memory in (3, 4, 5)
    ]
    with pytest.raises(StreamgaugeError, match="A grid needs values"):
        spaces.grid(spaces.read(["lr=0.1:0.2"], catalogue.learner("er")))
    with pytest.raises(StreamgaugeError, match="more than 10000 points"):
        spaces.grid(spaces.read(["memory=1:20000"], catalogue.learner("er")))


def test_the_end_of_a_range_is_told_in_its_own_scale() -> None:
    log, line = spaces.Range(1e-5, 0.1, log=True), spaces.Range(0, 1)
    assert [log.end(v) for v in (1.1e-5, 0.001, 0.0817, 0.0999)] == ["lower", "", "", "upper"]
    assert log.end(0.0851) == "upper"  # (ln 0.0851 - ln 1e-5) / (ln 0.1 - ln 1e-5) = 0.9825
    assert [line.end(v) for v in (0.01, 0.5, 0.99)] == ["lower", "", "upper"]
    assert [spaces.Choice((1, 2, 5)).end(v) for v in (1, 2, 5)] == ["lower", "", "upper"]
    assert spaces.Choice(("a", "b", "c")).end("a") == ""


def test_every_published_search_fits_its_learner() -> None:
    for paper, how in spaces.published().items():
        for name, searches in how["search"].items():
            space = spaces.read(searches, catalogue.learner(name))
            assert space, (paper, name)
            if how["sampler"] == "grid":
                assert len(spaces.grid(space)) == 4
    survey = spaces.like("survey")
    assert (survey["trials"], survey["prefix"], survey["sampler"]) == (200, "4 tasks", "tpe")
    # The presets' own values lie inside what was searched for them.
    for paper in ("survey", "realtime"):
        for name, searches in spaces.like(paper)["search"].items():
            space = spaces.read(searches, catalogue.learner(name))
            for preset, values in catalogue.presets()[name].items():
                if preset in (f"{paper}-cifar100", f"{paper}-cifar10", f"{paper}-cloc"):
                    for setting, one in space.items():
                        if isinstance(one, spaces.Range):
                            assert one.low <= values[setting] <= one.high
                        else:
                            assert values[setting] in one.values


def test_the_ready_made_search_is_that_of_the_presets_paper() -> None:
    assert "0.001" in spaces.ready_made(catalogue.learner("er@realtime-cifar10"), None)["lr"]
    assert "log" in spaces.ready_made(catalogue.learner("er@survey-cifar100"), None)["lr"]
    assert "log" in spaces.ready_made(catalogue.learner("mine=er"), "survey")["lr"]
    with pytest.raises(StreamgaugeError, match="no ready-made search of survey for gss"):
        spaces.ready_made(catalogue.learner("gss"), "survey")
    with pytest.raises(StreamgaugeError, match="did you mean 'survey'"):
        spaces.like("surveys")


# One trial


def task(out: Path, **changes: Any) -> Task:
    settings = {**SMALL, "er.lr": 0.1}
    settings |= {"protocol.evaluate": "boundaries", "protocol.milestones": ()}
    made = Experiment("blobs", ("er",), settings=settings)
    return Task(made, "3 tasks", changes.pop("objective", "held_out"), str(out), **changes)


def test_a_trial_is_a_function_of_plain_data(tmp_path: Path) -> None:
    import pickle

    one = pickle.loads(pickle.dumps(task(tmp_path / "a")))
    result = attempt(one)
    again = attempt(task(tmp_path / "a"))  # there is nothing left to do, or to say on the way
    assert again == replace(result, reports={})
    (run,) = find_runs([tmp_path / "a"])
    table = run.evaluations
    last = (table["evaluation"] == table["evaluation"].max()) & (table["within"] < 0)
    assert result.value == table["correct"][last].sum() / table["count"][last].sum()
    assert result.count == table["count"][last].sum() == 48  # 3 tasks, 2 classes, 20 % of 40
    assert result.flops == run.jobs["flops"].sum()
    assert result.seconds == pytest.approx(run.timing["seconds"].sum())
    # After each task but the last it says how it stands, on the tasks seen so far.
    assert sorted(result.reports) == [1, 2]
    assert pickle.loads(pickle.dumps(result)) == result


def test_a_trial_tells_its_accuracy_after_each_task_and_can_be_given_up(tmp_path: Path) -> None:
    heard = []

    def listen(part: int, value: float) -> bool:
        heard.append((part, value))
        return part == 2

    result = attempt(task(tmp_path), listen)
    assert [part for part, _ in heard] == [1, 2]
    assert result.pruned
    assert math.isnan(result.value)
    (run,) = find_runs([tmp_path])
    assert not run.done
    stream = prefix(catalogue.stream("blobs", per_class=40, size=4, held_out=0.2), "3 tasks")
    assert run.step == marks(stream)[1] == int((stream.task < 2).sum())
    table = run.evaluations
    for part, value in heard:
        rows = (table["evaluation"] == part - 1) & (table["within"] < 0)
        assert value == table["correct"][rows].sum() / table["count"][rows].sum()
        assert set(table["task"][rows].tolist()) == set(range(part))
    # What it took is what was done up to then.
    assert 0 < result.flops == run.jobs["flops"].sum()
    assert run.jobs["step"].max() == run.step - 1
    with pytest.raises(StreamgaugeError, match="is a trial"):
        resume(run.path)


def test_a_trial_sees_nothing_behind_the_prefix(tmp_path: Path) -> None:
    attempt(task(tmp_path))
    (run,) = find_runs([tmp_path])
    whole = catalogue.stream("blobs", per_class=40, size=4, held_out=0.2)
    early = np.unique(whole.source.label[whole.order[: whole.starts[(whole.task < 3).sum()]]])
    assert set(run.predictions["label"].tolist()) == set(early.tolist())
    assert len(early) == 6
    assert run.stream["settings"]["prefix"] == "3 tasks"
    assert run.predictions["task"].max() == run.evaluations["task"].max() == 2


def test_other_objectives(tmp_path: Path) -> None:
    ask = Ask("blobs", "er", ("lr=0.1,0.2",), SMALL, prefix="60 %", trials=1)
    for name, of in (
        ("online", "online_accuracy"),
        ("near_future_accuracy@20", "near_future_accuracy@20"),
        ("anytime_accuracy", "anytime_accuracy"),
    ):
        found = tune(replace(ask, objective=name), out=tmp_path / name, log=quiet)
        (run,) = find_runs([tmp_path / name / "trials"])
        assert found["value"] == pytest.approx(score(run)[of])
        assert measure(run, name).accuracy == found["value"]


# The search


def test_the_choice_is_the_best_trial_and_the_bill_is_complete(
    made: tuple[Path, dict[str, Any]],
) -> None:
    folder, found = made
    trials = stored(folder).get_trials()
    assert len(trials) == found["trials"] == 5
    best = max(trials, key=lambda one: (one.value, -one.number))
    assert found["choice"] == best.params
    assert found["value"] == best.value
    runs = find_runs([folder / "trials"])
    assert len(runs) == 5
    assert found["flops"] == pytest.approx(sum(float(r.jobs["flops"].sum()) for r in runs))
    assert found["seconds"] == pytest.approx(sum(float(r.timing["seconds"].sum()) for r in runs))
    lrs = {one.number: one.params["lr"] for one in trials}
    for run in runs:  # each run has the settings of its trial
        number = run.header["config"]["trial"]["number"]
        assert run.header["config"]["learner"]["settings"]["lr"] == lrs[number]
        assert not list(run.path.glob("checkpoint-*"))
    p = (found["value"] * 32 + 1) / 34  # 2 tasks, 2 classes, 20 % of 40
    assert found["count"] == 32
    assert found["error"] == pytest.approx(math.sqrt(p * (1 - p) / 32))
    assert load(folder) == found


def test_again_there_is_nothing_to_do_and_more_trials_go_on(
    made: tuple[Path, dict[str, Any]],
) -> None:
    folder, found = made
    heard: list[str] = []
    assert tune(ASK, out=folder, log=heard.append) == found
    assert heard == [f"5 trials of {folder} are there already; 0 to go."]
    more = tune(replace(ASK, trials=7), out=folder, log=quiet)
    assert more["trials"] == 7
    params = [one.params["lr"] for one in stored(folder).get_trials()]
    assert len(set(params)) == 7  # a sampler that began anew would repeat itself
    with pytest.raises(StreamgaugeError, match=r"another one \(.*prefix differ"):
        tune(replace(ASK, prefix="1 task"), out=folder, log=quiet)
    with pytest.raises(StreamgaugeError, match=r"\(search differ"):
        tune(replace(ASK, search=("er.lr=log:0.001:2",)), out=folder, log=quiet)


def test_a_grid_tries_every_point_once(tmp_path: Path) -> None:
    ask = Ask("blobs", "er", ("lr=0.01,0.1", "memory=5,50"), SMALL, prefix="1 task", sampler="grid")
    found = tune(ask, out=tmp_path / "g", log=quiet)
    tried = {tuple(sorted(t.params.items())) for t in stored(tmp_path / "g").get_trials()}
    assert tried == {(("lr", lr), ("memory", m)) for lr in (0.01, 0.1) for m in (5, 50)}
    assert found["trials"] == 4
    assert tune(replace(ask, trials=9), out=tmp_path / "g", log=quiet)["trials"] == 4


def test_equal_trials_are_run_and_charged_once(tmp_path: Path) -> None:
    ask = Ask("blobs", "er", ("lr=0.1,0.2",), SMALL, prefix="1 task", trials=5, prune="none")
    found = tune(ask, out=tmp_path / "s", log=quiet)
    runs = find_runs([tmp_path / "s" / "trials"])
    assert found["trials"] == 5
    assert len(runs) == 2
    assert found["flops"] == pytest.approx(sum(float(r.jobs["flops"].sum()) for r in runs))
    values = {t.params["lr"]: t.value for t in stored(tmp_path / "s").get_trials()}
    assert all(t.value == values[t.params["lr"]] for t in stored(tmp_path / "s").get_trials())


def test_bad_trials_are_given_up_early_and_cost_less(tmp_path: Path) -> None:
    lrs = "0.1,0.11,0.12,0.13,0.14,1e-9"
    settings = {**SMALL, "er.passes": "3"}
    ask = Ask("blobs", "er", (f"lr={lrs}",), settings, prefix="4 tasks", sampler="grid",
              prune="median")  # fmt: skip
    found = tune(ask, out=tmp_path / "p", log=quiet)
    trials = {t.params["lr"]: t for t in stored(tmp_path / "p").get_trials()}
    assert trials[1e-9].state == optuna.trial.TrialState.PRUNED
    assert found["pruned"] >= 1
    cost = {lr: t.user_attrs["result"]["flops"] for lr, t in trials.items()}
    assert cost[1e-9] < 0.5 * cost[0.1]
    assert found["choice"]["lr"] > 0.05


def test_a_trial_that_diverges_is_said_and_the_search_goes_on(tmp_path: Path) -> None:
    ask = Ask("blobs", "er", ("lr=0.1,1e30",), SMALL, prefix="2 tasks", sampler="grid")
    heard: list[str] = []
    found = tune(ask, out=tmp_path / "d", log=heard.append)
    assert found["failed"] == 1
    assert found["choice"] == {"lr": 0.1}
    assert any("no value: The learner's scores" in line for line in heard)
    assert found["flops"] > 0
    nothing = Ask("blobs", "er", ("lr=1e30,1e31",), SMALL, prefix="2 tasks", sampler="grid")
    empty = tune(nothing, out=tmp_path / "n", log=quiet)
    assert empty["choice"] is None
    assert "None gave a value. The first problem: The learner's scores" in summary_text(empty)
    with pytest.raises(StreamgaugeError, match="No trial of the study"):
        load(tmp_path / "n")


def test_what_cannot_begin_is_said_at_once(tmp_path: Path) -> None:
    ask = Ask("blobs", "er", ("passes=0,1",), SMALL, prefix="1 task", sampler="grid")
    with pytest.raises(StreamgaugeError, match="passes must be at least 1"):
        tune(ask, out=tmp_path / "x", log=quiet)
    found = tune(ask, out=tmp_path / "x", log=quiet)  # the other point of the grid
    assert found["choice"] == {"passes": 1}
    assert found["failed"] == 1


def test_the_usual_prefix_and_objective() -> None:
    ask = replace(ASK, prefix=None)
    assert plan(ask).prefix == "1 task"
    assert plan(replace(ask, settings={**SMALL, "stream.tasks": "10"})).prefix == "2 tasks"
    assert plan(replace(ask, like="survey")).prefix == "4 tasks"
    assert plan(replace(ask, like="survey", trials=None)).trials == 200
    prepared = {**SMALL, "stream.preparation": "0.2"}
    for paper in (None, "realtime"):
        planned = plan(replace(ask, settings=prepared, like=paper, sampler="tpe"))
        assert planned.prefix == "preparation"
        assert planned.objective == "online"
    realtime = plan(Ask("blobs", "er", settings={**SMALL, "stream.order": "iid"}, like="realtime"))
    assert (realtime.prefix, realtime.objective, realtime.sampler) == ("5 %", "online", "grid")
    assert realtime.trials == 4
    assert realtime.experiment.settings["protocol.evaluate"] == "never"
    with pytest.raises(StreamgaugeError, match="needs held-out samples"):
        plan(replace(ask, settings=prepared, objective="held_out"))
    with pytest.raises(StreamgaugeError, match="both searched and set"):
        plan(replace(ask, settings={**SMALL, "er.lr": "0.1"}))
    with pytest.raises(StreamgaugeError, match="did you mean 'online'"):
        plan(replace(ask, objective="onlin"))


def test_storages_by_url(tmp_path: Path) -> None:
    ask = replace(ASK, trials=2)
    url = f"sqlite:///{tmp_path}/shared.db"
    first = tune(ask, out=tmp_path / "a", storage=url, study="both", log=quiet)
    assert first["trials"] == 2
    # A second place goes on with the same study and leaves alone what the first has under way.
    shared = optuna.load_study(study_name="both", storage=url)
    begun = shared.ask()
    begun.set_user_attr("place", "another machine")
    second = tune(replace(ask, trials=4), out=tmp_path / "b", storage=url, study="both", log=quiet)
    assert second["trials"] == 3
    assert len(list((tmp_path / "b" / "trials").iterdir())) == 1
    assert shared.get_trials()[2].state == optuna.trial.TrialState.RUNNING
    for bad in ("nonsense", "mydb://x", "postgresql://me:secret@127.0.0.1:1/db"):
        with pytest.raises(StreamgaugeError, match="cannot be opened") as told:
            tune(ask, out=tmp_path / "c", storage=bad, log=quiet)
        assert "secret" not in str(told.value)
        assert "\n" not in str(told.value)


def worker_of(folder: Path, ask: Ask) -> tuple[Worker, Study]:
    """As another process would work on the folder."""
    folder.mkdir(exist_ok=True)
    worker = Worker(folder).__enter__()
    return worker, Study(plan(ask), folder, None, "shared", "cpu", Execution(log=quiet), worker)


def test_workers_share_a_folder_and_take_over_what_a_dead_one_left(tmp_path: Path) -> None:
    search = ("lr=0.01,0.05,0.1",)
    ask = Ask("blobs", "er", search, SMALL, prefix="1 task", sampler="grid", prune="none")
    first, one = worker_of(tmp_path / "s", ask)
    second, other = worker_of(tmp_path / "s", ask)
    begun, taken = one.ask(0), other.ask(0)
    assert begun is not None
    assert taken is not None
    assert begun.chosen != taken.chosen
    assert one.waits()
    lines: list[str] = []
    other.log = lines.append
    assert other.todo() == 3
    assert lines == ["Another process works on this study (trials under way: 1)."]
    release_lock(first._lock)  # as by SIGKILL: its folder stays
    assert not other.worker.works(first.name)
    rest = [other.ask(number) for number in (1, 2, 3)]
    assert [None if one is None else one.trial.number for one in rest] == [0, 2, None]
    assert rest[0] is not None
    assert rest[0].chosen == begun.chosen
    assert not other.waits()
    second.__exit__()
    assert not (tmp_path / "s" / "workers").exists()


def test_equal_values_are_left_until_the_other_worker_has_ended(tmp_path: Path) -> None:
    ask = Ask("blobs", "er", ("lr=0.01",), SMALL, prefix="1 task", sampler="random", trials=3)
    first, one = worker_of(tmp_path / "s", ask)
    second, other = worker_of(tmp_path / "s", ask)
    trial = LocalTrial(one, 0)
    run_to_completion(trial)
    theirs = LocalTrial(other, 0)
    with pytest.raises(Busy):
        theirs.open()  # all values there are belong to a run that the other makes
    one.end(0)
    run_to_completion(theirs)
    other.end(0)
    results = [t.user_attrs.get("result") for t in one.trials("COMPLETE")]
    assert [result.get("repeats") for result in results] == [None, 0]
    assert len(find_runs([tmp_path / "s" / "trials"])) == 1
    first.__exit__()
    second.__exit__()


def test_trials_side_by_side_are_those_that_go_one_by_one(tmp_path: Path) -> None:
    """By hand, on a CPU, what a GPU does: three at a time, a step in turn, two of them alike."""
    ask = Ask("blobs", "er", ("lr=0.01,0.1",), SMALL, prefix="1 task", trials=6, prune="none")
    work = Study(plan(ask), tmp_path, None, "turns", "cpu", Execution(log=quiet))
    trials = [LocalTrial(work, number) for number in range(6)]
    for trial in trials[:3]:
        trial.open()
    active = {trial.number: trial.steps() for trial in trials[:3]}
    assert len({tuple(one.chosen.items()) for one in work.under_way.values()}) < 3  # some are alike
    assert len({one.trial.number for one in work.under_way.values()}) == 3
    waiting, order = [3, 4, 5], []
    while active:
        for number, steps in list(active.items()):
            if next(steps, "end") == "end":
                trials[number].close()
                work.end(number)
                order.append(number)
                del active[number]
                if waiting:
                    following = waiting.pop(0)
                    trials[following].open()
                    active[following] = trials[following].steps()
    assert sorted(order) == list(range(6))
    found = work.summary()
    assert found["trials"] == 6
    assert found["failed"] == 0
    assert len(find_runs([tmp_path / "trials"])) == 2
    grid = tune(replace(ask, sampler="grid", trials=2), out=tmp_path / "g", log=quiet)
    alone = {t.params["lr"]: t.value for t in stored(tmp_path / "g").get_trials()}
    for one in work.trials():
        assert one.value == alone[one.params["lr"]]
    assert found["flops"] == grid["flops"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_trials_side_by_side_on_a_gpu(tmp_path: Path) -> None:
    settings = {**STREAM, "stream.size": "8", "er.model": "cnn4"}
    ask = Ask("blobs", "er", ("lr=0.01,0.05,0.1,0.2",), settings, prefix="2 tasks", sampler="grid")
    heard: list[str] = []
    together = tune(ask, out=tmp_path / "a", device="cuda", side_by_side=3, log=heard.append)
    assert any("3 runs side by side" in line for line in heard)
    alone = tune(ask, out=tmp_path / "b", device="cuda", side_by_side=1, log=quiet)
    for one, other in zip(stored(tmp_path / "a").get_trials(), stored(tmp_path / "b").get_trials(),
                          strict=True):  # fmt: skip
        assert (one.params, one.value) == (other.params, other.value)
    assert together["flops"] == alone["flops"]


# A stop in the middle

COMMAND = (
    "--stream", "blobs", "--learner", "er", "--search", "er.lr=log:0.001:1", "--prefix", "3 tasks",
    "--trials", "4", "--checkpoint", "0.05", *(f"--{k}={v}" for k, v in SMALL.items()),
    "--stream.per_class", "100", "--prune", "none",
)  # fmt: skip


def start(out: Path) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "streamgauge", "tune", *COMMAND, "--out", str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)


def states(folder: Path) -> list[str]:
    if not (folder / "study.db").exists():
        return []
    try:
        with sqlite3.connect(f"file:{folder}/study.db?mode=ro", uri=True, timeout=5) as db:
            return [row[0] for row in db.execute("SELECT state FROM trials")]
    except sqlite3.OperationalError:  # its tables are not there yet
        return []


@pytest.mark.long
@pytest.mark.parametrize("killed", [False, True])
def test_two_commands_share_a_study(tmp_path: Path, killed: bool) -> None:
    """Every trial once, none lost or mixed, also where one of them is killed."""
    out = tmp_path / "study"
    processes = [start(out), start(out)]
    if killed:
        while states(out).count("COMPLETE") < 1:
            time.sleep(0.005)
        processes[1].send_signal(signal.SIGKILL)
    outputs = [process.communicate() for process in processes]
    assert processes[0].returncode == 0, outputs
    assert processes[1].returncode == (-signal.SIGKILL if killed else 0), outputs
    trials = stored(out).get_trials()
    assert [t.state.name for t in trials] == ["COMPLETE"] * 4
    runs = {run.header["config"]["trial"]["number"]: run for run in find_runs([out / "trials"])}
    assert sorted(runs) == [0, 1, 2, 3]
    for trial in trials:
        run = runs[trial.number]
        assert run.done
        assert run.path.name == trial.user_attrs["result"]["run"]
        assert run.header["config"]["learner"]["settings"]["lr"] == trial.params["lr"]
    assert json.loads((out / "study.json").read_text())["trials"] == 4
    assert not (out / "workers").exists()


@pytest.mark.long
def test_a_killed_study_goes_on_and_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    out = tmp_path / "killed" / "study"
    for wanted in (1, 2):
        process = start(out)
        while states(out).count("COMPLETE") < wanted and process.poll() is None:
            time.sleep(0.005)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and process.poll() is None:  # into a trial's own steps
            under_way = [p for p in (out / "trials").glob("*/progress.json")
                         if not json.loads(p.read_text())["done"]]  # fmt: skip
            if under_way and "RUNNING" in states(out):
                break
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
        before = states(out)
        assert wanted <= before.count("COMPLETE") < 4
        assert before.count("RUNNING") == 1
    ended = {t.number: (t.params, t.value, t.datetime_complete)
             for t in stored(out).get_trials() if t.value is not None}  # fmt: skip
    last = start(out)
    printed, complaint = last.communicate()
    assert last.returncode == 0, complaint
    assert f"{len(ended)} trials of".encode() in printed
    trials = stored(out).get_trials()
    assert [t.state.name for t in trials] == ["COMPLETE"] * 4
    for number, (params, value, when) in ended.items():  # what had ended was not done again
        assert (trials[number].params, trials[number].value) == (params, value)
        assert trials[number].datetime_complete == when
    settings = {**SMALL, "stream.per_class": "100"}
    ask = replace(ASK, settings=settings, prefix="3 tasks", trials=4)
    b = tune(ask, out=tmp_path / "whole" / "study", log=quiet)
    straight = stored(tmp_path / "whole" / "study").get_trials()
    assert [t.params for t in trials] == [t.params for t in straight]
    assert [t.value for t in trials] == [t.value for t in straight]
    assert [t.intermediate_values for t in trials] == [t.intermediate_values for t in straight]
    a = load(out)
    assert a["flops"] == b["flops"]
    assert a["choice"] == b["choice"]
    assert len(find_runs([out / "trials"])) == 4


# Into a run


def test_the_choice_and_its_bill_go_into_the_run(
    call: Any, made: tuple[Path, dict[str, Any]]
) -> None:
    folder, _ = made
    found = load(folder)
    code, out, err = call("run", "--tuned", str(folder), "--seeds", "2")
    assert code == 0, err
    runs = find_runs(["runs"])
    assert [run.seed for run in runs] == [0, 1]
    for run in runs:
        config = run.header["config"]
        assert config["learner"]["settings"]["lr"] == found["choice"]["lr"]
        assert config["learner"]["settings"]["model"] == "mlp"
        assert config["stream"]["settings"]["per_class"] == 40
        assert "prefix" not in config["stream"]["settings"]
        assert run.stream["tasks"] == 5
        note = config["tuned"]
        assert note["search"] == {"lr": "log:0.001:1"}
        assert note["choice"] == found["choice"]
        assert note["flops"] == found["flops"]
        assert note["trials"] == found["trials"]
        assert note["prefix"] == "2 tasks"
    one = float(runs[0].jobs["flops"].sum())
    assert f"{scaled(found['flops'])}FLOP of training" in out
    assert f"a run costs {scaled(found['flops'] + one)}FLOP" in out
    words = ("run", "--tuned", str(folder), "--learner", "finetune", "--finetune.model", "mlp")
    assert call(*words)[0] == 0
    code, out, _ = call("report", "runs")
    assert "er was tuned in" in out
    assert "er was tuned in" in Path("report.html").read_text()
    assert Run(runs[0].path).done


def test_what_a_run_is_given_goes_before(made: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    folder, _ = made
    lr = load(folder)["choice"]["lr"]
    given = into({"stream": "albums", "learners": ["finetune"], "settings": {"er.memory": 9}},
                 [folder])  # fmt: skip
    assert given["stream"] == "albums"
    assert given["learners"] == ["finetune", "er"]
    assert given["settings"] == {"er.model": "mlp", "er.lr": lr, "er.memory": 9}
    assert set(given["notes"]) == {"er"}
    other = tmp_path / "other"
    other.mkdir()
    found = {**load(folder), "name": "mir", "learner": "mir", "given": {"stream.tasks": "10"}}
    (other / "study.json").write_text(json.dumps(found))
    with pytest.raises(StreamgaugeError, match="streams with other settings"):
        into({}, [folder, other])
    with pytest.raises(StreamgaugeError, match="set here and chosen by the study"):
        into({"settings": {"er.lr": "0.1"}}, [folder])


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    "text", [DEEP, "[]", "3", '{"choice": {"lr": 1}}', '{"choice": []}', "\x00", "",
             '{"stream": 1, "learner": "er", "name": "er", "given": {}, "choice": {"lr": 1}}',
             '{"stream": "blobs", "learner": "er", "name": "er", "given": [], "choice": {}}'],
)  # fmt: skip
def test_any_text_as_a_study_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "study.json").write_text(text)
    with pytest.raises(StreamgaugeError, match=r"study.json is damaged"):
        into({}, [tmp_path])


def test_a_changed_choice_is_noticed(made: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    text = (made[0] / "study.json").read_text()
    changed = re.sub(r'("choice": \{\s*"[a-z.]+": )', r"\g<1>1", text)
    assert changed != text
    (tmp_path / "study.json").write_text(changed)
    with pytest.raises(StreamgaugeError, match=r"study.json is damaged \(its checksum"):
        into({}, [tmp_path])


def test_the_command(call: Any, tmp_path: Path) -> None:
    fixed = [f"--{name}={value}" for name, value in SMALL.items()]
    words = ("tune", "--stream", "blobs", "--learner", "er", "--search", "er.lr=0.05,0.1",
             "--sampler", "grid", "--prefix", "1 task", *fixed)  # fmt: skip
    code, out, err = call(*words)
    assert code == 0, err
    assert "trial 1: lr 0.1: " in out
    assert "each saw 64 samples, 1 task of blobs" in out
    assert "streamgauge run --tuned studies/blobs-er" in out
    code, out, _ = call(*words, "--json")
    assert code == 0
    assert json.loads(out) == load(tmp_path / "studies" / "blobs-er")
    (one, _) = find_runs(["studies/blobs-er/trials"])
    code, _, err = call("resume", str(one.path))
    assert code == 0
    assert "tune" in call("--help")[1]
    assert "streamgauge tune" in call("tune", "--help")[1]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--learner", "er", "--search", "er.lrr=1,2"), "did you mean 'er.lr'"),
        (("--learner", "er", "--like", "surve"), "did you mean 'survey'"),
        (("--learner", "er", "--sampler", "tpee"), "did you mean 'tpe'"),
        (("--learner", "er", "--prune", "mean"), "--prune cannot be 'mean'"),
        (("--learner", "er", "--trials", "0"), "--trials must be at least 1"),
        (("--learner", "er", "--prefix", "first"), "A prefix is"),
        (("--learner", "ncm"), "no ready-made search for ncm"),
        (("--learner", "er", "--er.memry", "3"), "did you mean 'er.memory'"),
        (("--learner", "er", "--like", "survey", "--sampler", "grid"), "A grid needs values"),
        (("--learner", "er", "--device", "tpu9"), "device"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(
    call: Any, words: tuple[str, ...], sentence: str
) -> None:
    code, out, err = call("tune", "--stream", "blobs", *words)
    assert code == 2
    assert sentence in err
    assert err.count("\n") == 1
    assert out == ""
    assert call("run", "--tuned", "nowhere")[2].startswith("streamgauge: nowhere is no study")
