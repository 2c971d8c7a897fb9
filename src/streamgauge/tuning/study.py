"""The search: Optuna proposes, trials answer, and everything that ended is stored at once.

A study lies in a folder: `study.db` (or any other storage by its URL), `trials/` with a run folder
each, and `study.json` with the choice. The same command goes on where it stopped: what ended is not
done again, and what was under way goes on from its last checkpoint.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import shutil
import socket
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, Unpack

from streamgauge import catalogue
from streamgauge.catalogue import Recipe
from streamgauge.errors import Busy, StreamgaugeError, packages_for
from streamgauge.files import acquire_lock, locked, release_lock, turn, write_sealed, writing
from streamgauge.learners.behaviour import stored_code
from streamgauge.running import plan as runs
from streamgauge.running.active_run import BUSY_WAIT, run_to_completion
from streamgauge.running.determinism import user_threads
from streamgauge.running.execution import Execution, ExecutionKeywords, execution_of
from streamgauge.running.executors.dispatch import run_interleaved
from streamgauge.running.plan import Experiment
from streamgauge.settings import as_plain, coerce
from streamgauge.streams import Stream
from streamgauge.streams.prefix import prefix
from streamgauge.tuning import space as spaces
from streamgauge.tuning.space import Space
from streamgauge.tuning.trial import (
    Result,
    SteppedTrial,
    Task,
    check_objective,
    marks,
    protocol_for,
)

Sampler = Literal["tpe", "random", "grid"]
Prune = Literal["median", "halving", "none"]
TRIALS = 50  # where neither the user nor a paper says
LOCKED_SECONDS = 120  # that SQLite waits for another process
STUDIES = "studies"  # default folder of study folders


@dataclass(frozen=True)
class Ask:
    """What is searched, and how. None: as in the paper `like`, or the default."""

    stream: str
    learner: str
    search: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    like: str | None = None
    prefix: str | None = None
    objective: str | None = None
    sampler: str | None = None
    prune: str | None = None
    trials: int | None = None
    seed: int = 0  # of what the sampler draws; the runs have their own

    def option(self, name: str, default: Any) -> Any:
        """A field, or what the paper `like` has for it, or the default."""
        given = getattr(self, name)
        if given is not None:
            return given
        return default if self.like is None else spaces.like(self.like).get(name, default)


@dataclass(frozen=True)
class StudyPlan:
    """A search with every option checked and set."""

    ask: Ask
    recipe: Recipe
    space: Space
    experiment: Experiment
    stream: Stream  # the part that trials may see
    prefix: str
    objective: str
    sampler: Sampler
    prune: Prune
    trials: int

    def comparable(self) -> dict[str, Any]:
        """Everything that must be equal for trials of one study."""
        return {
            "stream": self.ask.stream,
            "learner": self.ask.learner,
            "settings": {k: _plain(v) for k, v in sorted(self.experiment.settings.items())},
            "search": {name: str(searched) for name, searched in self.space.items()},
            "prefix": self.prefix,
            "objective": self.objective,
            "sampler": self.sampler,
            "seed": self.ask.seed,
            "code": self.recipe.code,
            "data": self.stream.source.fingerprint,
            "order": self.stream.order_hash,
        }


def plan(ask: Ask) -> StudyPlan:
    """Check everything before anything runs."""
    recipe = catalogue.learner(ask.learner)
    space = spaces.read(ask.search or spaces.ready_made(recipe, ask.like), recipe)
    for name in space:
        for owner in (recipe.name, "learner"):
            if f"{owner}.{name}" in ask.settings:
                raise StreamgaugeError(f"{owner}.{name} is both searched and set: choose one.")
    # The path of a user's file must be valid in any folder, also on another machine.
    learner = f"{recipe.name}={recipe.where}" if ".py:" in recipe.where else ask.learner
    base = Experiment(runs.origin(ask.stream), (learner,), settings=dict(ask.settings))
    (planned,) = runs.plan(base)
    for name, searched in space.items():  # an invalid end is refused now, not after hours
        for value in _ends(searched):
            runs.plan(_with(base, recipe, {name: value}))
    whole = planned.build_stream()
    part = ask.prefix or _usual_prefix(whole, ask)
    cut = prefix(whole, part)
    objective = ask.option("objective", "held_out" if "held_out" in cut.splits else "online")
    check_objective(objective, cut)
    settings = {**protocol_for(objective, cut), **ask.settings}
    sampler = coerce(ask.option("sampler", "tpe"), Sampler, "--sampler")
    prune = coerce(ask.option("prune", "median"), Prune, "--prune")
    trials = ask.option("trials", None)
    if sampler == "grid":  # more would be the same again
        points = len(spaces.grid(space))
        trials = points if trials is None else min(trials, points)
    elif trials is None:
        trials = TRIALS
    if trials < 1:
        raise StreamgaugeError(f"--trials must be at least 1, not {trials}.")
    experiment = replace(base, settings=settings)
    return StudyPlan(ask, recipe, space, experiment, cut, part, objective, sampler, prune, trials)


def _ends(searched: spaces.Range | spaces.Choice) -> Sequence[Any]:
    if isinstance(searched, spaces.Choice):
        return searched.values
    low, high = searched.low, searched.high
    return (int(low), int(high)) if searched.whole else (low, high)


def _with(experiment: Experiment, recipe: Recipe, chosen: Mapping[str, Any]) -> Experiment:
    settings = {f"{recipe.name}.{name}": value for name, value in chosen.items()}
    return replace(experiment, settings={**experiment.settings, **settings})


def _usual_prefix(stream: Stream, ask: Ask) -> str:
    """A paper's; the preparation part where there is one, since nothing in it is ever scored; else
    a fifth of the tasks (the survey: 4 of 20), or 5 %."""
    if len(stream.preparation) and ask.like in (None, "realtime"):
        return "preparation"
    if ask.like is not None:
        return str(spaces.like(ask.like)["prefix"])
    tasks = max(1, stream.tasks // 5)
    return f"{tasks} task{'s' * (tasks > 1)}" if stream.tasks > 1 else "5 %"


def tune(
    ask: Ask,
    *,
    out: str | Path | None = None,
    storage: str | None = None,
    study: str | None = None,
    execution: Execution | None = None,
    **options: Unpack[ExecutionKeywords],
) -> dict[str, Any]:
    """Do what is missing of a study, and return the content of `study.json`: the choice, what was
    searched, and the compute it took. `execution`, or keywords with the names of its fields, says
    how trials are made; with `on="ray"` on `cluster`."""
    execution = execution_of(execution, options)
    planned = plan(ask)
    folder = Path(out or Path(STUDIES) / f"{planned.stream.name}-{planned.recipe.name}")
    name = study or folder.name
    with ExitStack() as stack:
        with writing(folder / "study.json"):
            worker = stack.enter_context(Worker(folder))
        stack.enter_context(user_threads(execution.threads))
        if execution.cluster is not None:
            return _tune_on_ray(planned, folder, storage, name, execution, worker)
        device = execution.torch_device
        work = Study(planned, folder, storage, name, device.type, execution, worker)
        trials = [LocalTrial(work, number) for number in range(work.todo())]
        if execution.interleaves(device):
            for trial in run_interleaved(trials, device, execution.side_by_side, execution.log):
                work.end(trial.number)
        else:
            for trial in trials:
                while not _made(trial):
                    time.sleep(BUSY_WAIT)
                work.end(trial.number)
        return work.summary()


def _made(trial: LocalTrial) -> bool:
    """False where other processes have all that is left, and may yet leave some of it."""
    try:
        run_to_completion(trial)
    except Busy:
        return False
    return True


def _tune_on_ray(
    planned: StudyPlan,
    folder: Path,
    storage: str | None,
    name: str,
    execution: Execution,
    worker: Worker,
) -> dict[str, Any]:
    from streamgauge.tuning.spread import drive, ray_pool

    side_by_side = execution.side_by_side or 1
    if side_by_side > 1:
        raise StreamgaugeError(
            "On Ray every trial is a task of its own: leave out --side-by-side, and give "
            f"--gpus {1 / side_by_side:.2g} for so many to share a GPU."
        )
    with ray_pool(execution, folder / "trials") as pool:
        work = Study(planned, folder, storage, name, pool.device, execution, worker)
        work.todo()
        drive(work, pool)
        return work.summary()


class Worker:
    """A process that works on a study. It holds the lock of a folder of its own in the folder of
    the study; the operating system frees it when the process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = f"{os.getpid()}-{secrets.token_hex(4)}"

    def __enter__(self) -> Self:
        self._path(self.name).mkdir(parents=True)
        self._lock = acquire_lock(self._path(self.name), "")
        return self

    def __exit__(self, *_: object) -> None:
        release_lock(self._lock)
        shutil.rmtree(self._path(self.name), ignore_errors=True)
        with suppress(OSError):  # other workers have folders there
            self._path("").rmdir()

    def _path(self, name: str) -> Path:
        return self.folder / "workers" / name

    def works(self, name: str | None) -> bool:
        """Whether a worker of this folder is at work; the folder of one that died is removed."""
        if name == self.name:
            return True
        if not name or not self._path(name).is_dir():
            return False
        try:
            with locked(self._path(name), ""):
                pass
        except Busy:
            return True
        shutil.rmtree(self._path(name), ignore_errors=True)
        return False


@dataclass
class UnderWay:
    """A trial that this process has begun and not ended."""

    trial: Any  # Optuna's
    chosen: dict[str, Any]
    task: Task | None = None  # None: it repeats another
    twin: int | None = None  # the one it repeats, where that is under way itself
    local: SteppedTrial | None = None  # where this process makes it


class Study:
    """An Optuna study and the trials of it that this process has under way. Several processes may
    work on one folder: they take turns to ask and to store, and each trial says whose it is."""

    def __init__(
        self,
        plan: StudyPlan,
        folder: Path,
        storage: str | None,
        name: str,
        device: str,  # kind of device that trials run on
        execution: Execution | None = None,
        worker: Worker | None = None,
    ) -> None:
        self.worker = worker or Worker(folder)
        self.execution = execution or Execution()
        self.plan, self.folder, self.name, self.log = plan, folder, name, self.execution.log
        self.own = storage is None
        self.url = storage or f"sqlite:///{(folder / 'study.db').resolve()}"
        # Who works here: a trial that this folder began is this folder's to end.
        self.here = f"{socket.gethostname()}:{folder.resolve()}"
        self.under_way: dict[int, UnderWay] = {}
        self._waited = False
        with turn(folder):
            self._open(device)

    def _open(self, device: str) -> None:
        optuna, plan = _optuna(), self.plan
        early = len(marks(plan.stream)) // 4  # parts after which too few answers are in to judge
        pruners = {
            "median": lambda: optuna.pruners.MedianPruner(
                n_startup_trials=5, n_warmup_steps=early + 1, n_min_trials=3
            ),
            "halving": optuna.pruners.SuccessiveHalvingPruner,
            "none": optuna.pruners.NopPruner,
        }
        self.optuna = _opened(self.url, self.name, pruners[plan.prune](), self.own)
        comparable = {**plan.comparable(), "device": device}
        known = self.optuna.user_attrs.get("what")
        if known is None:
            self.optuna.set_user_attr("what", comparable)
        else:
            settings = as_plain(plan.recipe.config)
            known["code"] = stored_code({"settings": settings, "code": known["code"]})
        if known not in (None, comparable):
            names = ", ".join(sorted(k for k in comparable if known.get(k) != comparable[k]))
            raise StreamgaugeError(
                f"The study in {self.folder} is another one ({names} differ): give this one a"
                " folder of its own with --out."
            )
        if plan.sampler == "grid":
            for point in spaces.grid(plan.space):
                self.optuna.enqueue_trial(point, skip_if_exists=True)

    def trials(self, *states: str) -> list[Any]:
        from optuna.trial import TrialState

        chosen = tuple(TrialState[name] for name in states)
        trials: list[Any] = self.optuna.get_trials(deepcopy=False, states=chosen or None)
        return trials

    def todo(self) -> int:
        """How many trials are not done, except those of other folders; logs what there is."""
        done = len(self.trials("COMPLETE", "PRUNED", "FAIL"))
        running = self.trials("RUNNING")
        elsewhere = sum(not self._mine(trial) for trial in running)
        left = max(0, self.plan.trials - done - elsewhere)
        if done:
            self.log(f"{done} trials of {self.folder} are there already; {left} to go.")
        if elsewhere:
            self.log(f"{elsewhere} trials are under way elsewhere.")
        if others := sum(self._theirs(trial) for trial in running):
            self.log(f"Another process works on this study (trials under way: {others}).")
        return left

    def _mine(self, trial: Any) -> bool:
        """Whether this folder began it."""
        return self.own or trial.user_attrs.get("place") == self.here

    def _theirs(self, trial: Any) -> bool:
        """Whether another process that works on this folder has it under way."""
        name = trial.user_attrs.get("worker")
        return self._mine(trial) and name != self.worker.name and self.worker.works(name)

    def waits(self) -> bool:
        """Whether other processes have trials of this folder under way: should one of them die,
        what it leaves is for this one."""
        others = sum(self._theirs(trial) for trial in self.trials("RUNNING"))
        if others and not self._waited:
            self._waited = True
            self.log(f"Another process has the last of the trials ({others}): waiting for it.")
        return others > 0

    def ask(self, number: int) -> UnderWay | None:
        """Go on with an interrupted trial of this folder, or ask Optuna for the next; None where
        all trials are done or under way, here, in other processes or on other machines."""
        with turn(self.folder):
            while trial := self._next():
                chosen = {
                    name: searched.suggest(trial, name)
                    for name, searched in self.plan.space.items()
                }
                if chosen not in self._chosen_by_others():
                    made = self._begun(trial, chosen)
                    self.under_way[number] = made
                    return made
                # Its run is the one of the other trial: left until that has ended.
                trial.set_user_attr("worker", "")
        return None

    def _next(self) -> Any:
        """Optuna's trial: one that was left, or a new one."""
        from optuna.trial import Trial

        others = self._chosen_by_others()
        busy = {other.trial.number for other in self.under_way.values()}
        running = self.trials("RUNNING")
        mine = [t for t in running if self._mine(t) and t.number not in busy]
        left = [t for t in mine if not self._theirs(t) and t.params not in others]
        begun = len(running) + len(self.trials("COMPLETE", "PRUNED", "FAIL"))
        if not left and begun >= self.plan.trials:
            return None
        self.optuna.sampler = self._sampler(left[0].number if left else len(self.trials()))
        trial = Trial(self.optuna, left[0]._trial_id) if left else self.optuna.ask()
        trial.set_user_attr("place", self.here)
        trial.set_user_attr("worker", self.worker.name)
        return trial

    def _chosen_by_others(self) -> list[dict[str, Any]]:
        return [trial.params for trial in self.trials("RUNNING") if self._theirs(trial)]

    def _begun(self, trial: Any, chosen: dict[str, Any]) -> UnderWay:
        made = UnderWay(trial, chosen)
        made.twin = next((n for n, other in self.under_way.items() if other.chosen == chosen), None)
        if made.twin is None and self._as_before(trial.number, chosen) is None:
            made.task = Task(
                _with(self.plan.experiment, self.plan.recipe, chosen),
                self.plan.prefix,
                self.plan.objective,
                str(self.folder / "trials"),
                # A trial may be made on another machine, where this log and cluster are not.
                replace(self.execution, log=print, profile=None, cluster=None),
                {"study": self.name, "number": trial.number},
            )
        return made

    def report(self, number: int, part: int, value: float) -> bool:
        """Store the value of a trial after a part; returns whether to give it up."""
        trial = self.under_way[number].trial
        if part not in self.trials()[trial.number].intermediate_values:  # not before a stop
            trial.report(value, part)
        return bool(trial.should_prune())

    def _sampler(self, number: int) -> Any:
        """A sampler for the trial of this number. Each has its own seed: one generator for all
        would begin anew, and propose the same again, when a stopped study goes on."""
        optuna = _optuna()
        seed = (self.plan.ask.seed * 1_000_003 + number) % 2**32
        if self.plan.sampler == "tpe":
            return optuna.samplers.TPESampler(seed=seed)
        return optuna.samplers.RandomSampler(seed=seed)

    def _as_before(self, number: int, chosen: Mapping[str, Any]) -> Any | None:
        """An earlier trial with the same values: equal settings give equal runs."""
        ended = self.trials("COMPLETE", "PRUNED")
        same = (t for t in ended if t.number != number and t.params == chosen)
        return next((t for t in same if "result" in t.user_attrs), None)

    def end(self, number: int, result: Result | None = None) -> None:
        """Store and log the result of a trial; `result` is given for a trial made elsewhere."""
        if number in self.under_way:  # else all trials were done when its turn came
            with turn(self.folder):
                self._end(self.under_way.pop(number), result)

    def _end(self, under_way: UnderWay, result: Result | None) -> None:
        from optuna.trial import TrialState

        trial, chosen = under_way.trial, under_way.chosen
        if under_way.task is None:
            before = self._as_before(trial.number, chosen)
            assert before is not None
            earlier = before.user_attrs["result"]
            repeated = {**earlier, "flops": 0.0, "seconds": 0.0, "repeats": before.number}
            trial.set_user_attr("result", repeated)
            pruned, value, words = earlier["value"] is None, earlier["value"], "as before"
        else:
            if result is None:
                assert under_way.local is not None
                result = under_way.local.result()
            trial.set_user_attr("result", result.as_plain())
            if result.failed and not result.run and self.best() is None:
                # It could not start, and most likely none can: stop the search.
                self.optuna.tell(trial, state=TrialState.FAIL)
                raise StreamgaugeError(result.failed)
            pruned, value = math.isnan(result.value), result.value
            words = _words(result)
        # A trial without a value counts as worst, so that the search turns away from it.
        if pruned:
            self.optuna.tell(trial, state=TrialState.PRUNED)
        else:
            self.optuna.tell(trial, value)
        if result is not None and result.run:
            for file in (self.folder / "trials" / result.run).glob("checkpoint-*.pt"):
                file.unlink()  # the weights of a trial that ended are of no more use
        self.summary()
        best = self.best()
        shown = "" if pruned else f"{100 * value:.2f} %"
        leading = "" if best is None else f" (best {100 * best.value:.2f} %)"
        values = ", ".join(f"{name} {spaces.short(v)}" for name, v in chosen.items())
        parts = [part for part in (shown, words) if part]
        self.log(f"trial {trial.number}: {values}: {', '.join(parts)}{leading}")

    def best(self) -> Any | None:
        """The best of all, and of equal ones the first."""
        complete = self.trials("COMPLETE")
        return max(complete, key=lambda trial: (trial.value, -trial.number)) if complete else None

    def summary(self) -> dict[str, Any]:
        """What `study.json` holds; written there, too."""
        ended = self.trials("COMPLETE", "PRUNED", "FAIL")
        results = [trial.user_attrs.get("result", {}) for trial in ended]
        best = self.best()
        failed = [result["failed"] for result in results if result.get("failed")]
        summary: dict[str, Any] = {
            "study": self.name,
            "folder": str(self.folder),
            "storage": _without_password(self.url) if not self.own else "study.db",
            "name": self.plan.recipe.name,
            **self.plan.comparable(),
            "prune": self.plan.prune,
            "like": self.plan.ask.like,
            "given": {k: _plain(v) for k, v in self.plan.ask.settings.items()},
            "steps": len(self.plan.stream),
            "samples": self.plan.stream.samples,
            "trials": len(ended),
            "asked": self.plan.trials,
            "pruned": sum(1 for result in results if result.get("pruned")),
            "failed": len(failed),
            "why": failed[0] if failed else None,
            "flops": _total(results, "flops"),
            "seconds": _total(results, "seconds"),
            "choice": None if best is None else dict(best.params),
            "value": None if best is None else best.value,
            "trial": None if best is None else best.number,
        }
        summary |= self._uncertainty(best)
        write_sealed(self.folder / "study.json", summary)
        return summary

    def _uncertainty(self, best: Any | None) -> dict[str, Any]:
        """The standard error of the best accuracy, and how many other trials lie within it."""
        if best is None:
            return {"error": None, "count": None, "within": None, "ends": []}
        count = best.user_attrs["result"]["count"]
        error = within = None
        if count:
            p = (best.value * count + 1) / (count + 2)  # so that 100 % of a few is not certain
            error = math.sqrt(p * (1 - p) / count)
            others = (trial for trial in self.trials("COMPLETE") if trial.number != best.number)
            distinct = {
                json.dumps(trial.params, sort_keys=True)
                for trial in others
                if trial.value >= best.value - error and trial.params != best.params
            }
            within = len(distinct)
        ends = spaces.at_the_end(self.plan.space, best.params)
        return {"error": error, "count": count, "within": within, "ends": ends}


class LocalTrial(SteppedTrial):
    """The next trial of a study, made here; its task depends on the trials before it."""

    def __init__(self, study: Study, number: int) -> None:
        super().__init__(partial(study.report, number), study.plan.stream)
        self.study, self.number = study, number
        self._twin: int | None = None

    def open(self) -> None:
        under_way = self.study.under_way.get(self.number) or self.study.ask(self.number)
        if under_way is None:
            if self.study.waits():
                raise Busy("Other processes make the trials that are left.")
            return
        self._twin = under_way.twin
        if under_way.task is not None:
            self.task, under_way.local = under_way.task, self
            super().open()

    def steps(self) -> Iterator[None]:
        yield from super().steps()
        while self._twin in self.study.under_way:
            yield  # a trial with the same values is under way: its result holds for both


def _words(result: Result) -> str:
    if result.failed:
        return f"no value: {result.failed}"
    if not result.pruned:
        return ""
    part, value = max(result.reports.items())
    return f"given up after part {part} at {100 * value:.2f} %"


def _total(results: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """A sum; None where a part of it is unknown."""
    values = [result.get(name) for result in results]
    return None if None in values else float(sum(v for v in values if v is not None))


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _optuna() -> Any:
    with packages_for("Tuning"):
        import optuna
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # Streamgauge logs its own lines
    return optuna


def _opened(url: str, name: str, pruner: Any, own: bool) -> Any:
    """The study in its storage, made if it is not there."""
    optuna = _optuna()
    from sqlalchemy.exc import SQLAlchemyError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            storage: Any = url
            if own:  # other processes may write the file
                connect = {"timeout": LOCKED_SECONDS}
                storage = optuna.storages.RDBStorage(url, {"connect_args": connect})
            return optuna.create_study(
                storage=storage,
                study_name=name,
                direction="maximize",
                pruner=pruner,
                load_if_exists=True,
            )
    except (SQLAlchemyError, ImportError, ValueError, optuna.exceptions.OptunaError) as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        reason = lines[0].rstrip(".") if lines else type(error).__name__
        raise StreamgaugeError(
            f"The storage {_without_password(url)} cannot be opened: {reason}."
        ) from None


def _without_password(url: str) -> str:
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import SQLAlchemyError

    try:
        return make_url(url).render_as_string(hide_password=True)
    except SQLAlchemyError:
        return url
