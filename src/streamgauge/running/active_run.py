"""One run from the state of its folder to its end: prepare, open, take steps, close."""

from __future__ import annotations

import time
import typing
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from functools import partial
from glob import escape
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import torch

from streamgauge import engine as engines
from streamgauge import metrics
from streamgauge.bridges.foreign import refusal, trust_pickles
from streamgauge.catalogue import Recipe
from streamgauge.errors import Busy, StreamgaugeError, explain_exit, sentence_of
from streamgauge.files import acquire_lock
from streamgauge.learners.base import Learner
from streamgauge.learners.user_code import reads_of
from streamgauge.record import Run, RunWriter
from streamgauge.record.heartbeat import HeartbeatWriter
from streamgauge.record.renamed import current_state
from streamgauge.record.run import remembering_failure
from streamgauge.record.writer import read_back
from streamgauge.running import determinism
from streamgauge.running.execution import Execution, Logger
from streamgauge.running.executors.torchrun import Ranks, of_torchrun
from streamgauge.running.header import absent_columns, identity, run_config, run_header
from streamgauge.running.lookahead import LookAhead, nth
from streamgauge.running.loop import Loop, Progress
from streamgauge.running.plan import PlannedRun, check_seed
from streamgauge.running.prefetch import prefetching, with_prefetch
from streamgauge.running.protocol import Protocol
from streamgauge.settings import RUNS, as_plain
from streamgauge.streams import Gate, Stream
from streamgauge.streams.gate import Resident, fits

_QUICK_BUILD = 5.0  # seconds in which a learner is made, so that a second one costs little
BUSY_WAIT = 0.5  # seconds between two looks at runs that other processes write


class FolderStore(typing.Protocol):
    """A remote copy of run folders, for machines that share no disk."""

    def get(self, path: Path) -> None: ...
    def put(self, path: Path) -> None: ...


class StepwiseRun(typing.Protocol):
    """A run that advances step by step, so that several can take turns."""

    @property
    def loop(self) -> Loop | None:
        """None where there is nothing to step through."""

    def open(self) -> None: ...
    def steps(self) -> Iterator[None]: ...
    def close(self) -> None:
        """May be called again."""


def run_to_completion(run: StepwiseRun) -> None:
    """Take all steps of a run."""
    try:
        run.open()
        for _ in run.steps():
            pass
    finally:
        run.close()


class ActiveRun:
    """One learner on one stream into one run folder. Made, it knows its folder (`path`) and whether
    the run is `complete` already; `open` starts it or loads its last checkpoint; `steps` advances
    it; `close` releases the folder."""

    def __init__(
        self,
        stream: Stream,
        recipe: Recipe,
        execution: Execution,
        *,
        protocol: Protocol | None = None,
        seed: int = 0,
        out: str | Path = RUNS,
        origin: str | None = None,
        notes: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
        path: Path | None = None,  # of its folder, where that is not a new one in `out`
        store: FolderStore | None = None,
    ) -> None:
        self.stream, self.recipe = stream, recipe
        self.protocol = protocol or Protocol()
        self.seed = check_seed(seed, "seed")
        self.ranks = _ranks(recipe)
        if self.ranks is not None:
            execution = replace(execution, engine="eager", profile=None)
            if self.ranks.rank:
                execution, progress = replace(execution, log=lambda _: None), None
        if execution.profile is not None:
            execution = replace(execution, engine="eager")  # a recorded step has no parts
        self.execution, self.log, self.progress = execution, execution.log, progress
        if self.ranks is None:
            self.device = execution.torch_device
        else:
            self.device = torch.device(self.ranks.device(execution.device))
        determinism.make_deterministic(str(self.device), execution.deterministic)
        self.engine = engines.make(execution.engine, self.device, execution.precision)
        self.engine.say = self.log
        self.header = self._header(origin, notes or {})
        name = f"{stream.name}-{recipe.name}-s{self.seed}"
        self.path = path or _folder(Path(out), name, self.header["id"])
        self.store = store
        if store is not None:
            store.get(self.path)
        done = False
        if self.ranks is None or not self.ranks.rank:  # the others may not look while one moves it
            if path is None:
                self._set_aside()
            done = (self.path / "run.json").exists() and Run(self.path).done
        self.complete: bool = done if self.ranks is None else self.ranks.told(done)
        if self.complete:
            self.log(complete_already(Run(self.path)) + _not_covered(recipe))
        self._open = ExitStack()  # what `close` releases
        self._heartbeat: HeartbeatWriter | None = None
        self._loop: Loop | None = None

    @classmethod
    def of(
        cls, planned: PlannedRun, stream: Stream, execution: Execution, **more: Any
    ) -> ActiveRun:
        """A planned run on its stream; `more` are further arguments of the class."""
        return cls(
            stream,
            planned.recipe,
            execution,
            protocol=planned.protocol,
            seed=planned.learner_seed,
            origin=planned.origin,
            notes=planned.notes,
            **more,
        )

    def _header(self, origin: str | None, notes: Mapping[str, Any]) -> dict[str, Any]:
        stream = self.stream
        config = run_config(
            stream.name,
            stream.settings,
            self.recipe.describe(stream),
            as_plain(self.protocol),
            self.seed,
            self.device.type,
            origin,
            notes,
        )
        if self.engine.name != "eager":
            config["engine"] = {"name": self.engine.name, "precision": self.engine.precision}
        described = stream.describe()
        return run_header(identity(config, described), config, described, str(self.device))

    def _set_aside(self) -> None:
        """Move a stored run away that is not to be used: as asked, or since it may be stale."""
        unknown = self.recipe.unknown
        if not (self.path / "run.json").exists() or not (self.execution.force or unknown):
            return
        why = ""
        if not self.execution.force:
            why = f", since it may be of older code: {unknown}, so what it uses cannot be known"
        self._move_away(f"is run again{why}")

    def _move_away(self, what: str) -> None:
        """Keep a stored run in `replaced/`, and say what happens to it."""
        acquire_lock(self.path, f"{self.path} is being written by another process.").release()
        folder = self.path.parent / "replaced"
        folder.mkdir(exist_ok=True)
        made = Run(self.path).made
        aside = next(
            free
            for number in count(1)
            if not (free := folder / f"{self.path.name}.{number}").exists()
        )
        self.path.rename(aside)
        self.log(f"{self.path} (made {made}) {what}; the stored run is now {aside}.")

    @property
    def loop(self) -> Loop | None:
        return self._loop

    def __enter__(self) -> ActiveRun:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Start the run, or load its last checkpoint. A complete run stays as it is."""
        if self.complete:
            return
        with explain_exit(), determinism.explain_refusals(), ExitStack() as stack:
            thread_count = determinism.suitable_threads(self._build, self.stream, self.device)
            self.header["environment"]["threads"] = thread_count
            if self.ranks is not None:
                self.header["environment"]["ranks"] = self.ranks.count
            stream = stack.enter_context(prefetching(self.stream, self.execution.workers))
            stream = _on_device(stream, self.device)
            recorder = self._recorder()
            stack.enter_context(closing(recorder))
            if recorder.done:  # by another process, since this one looked
                self.complete = True
                return
            if self.ranks is None or not self.ranks.rank:
                self._heartbeat = stack.enter_context(HeartbeatWriter(self.path, self._facts))
            second = self._second_learner()
            try:
                build = partial(self._build, ranks=self.ranks)
                loop = Loop(stream, build, self.protocol, recorder, self.device, self.engine)
            except BaseException:
                self._discard(recorder)  # a run that cannot start leaves no folder
                raise
            if not self.recipe.built_in:
                loop.check_state = partial(self._check_state, recorder, second)
            if self.engine.reason:
                self.log(f"{self.recipe.name} is run step by step: {self.engine.reason}.")
            stack.enter_context(determinism.threads(recorder.threads or thread_count))
            if self.execution.profile is not None:
                stack.enter_context(self.execution.profile.attached(loop))
            state = recorder.state  # can be read once
            if state is not None:
                state["learner"] = current_state(self.recipe.where, state["learner"])
                with self.engine.scope(), trust_pickles(self.execution.trust_pickle):
                    loop.load_state_dict(state)
                self.log(f"{self.path} goes on from step {loop.step}.")
            else:
                alone = _one_class(self.stream)
                for sentence in alone + loop.lookahead.sentences() + loop.idle_costs():
                    self.log(sentence)
            self._loop, self._open = loop, stack.pop_all()

    def steps(self) -> Iterator[None]:
        """Advance by one step at a time; checkpoints are made on the way."""
        loop = self._loop
        if loop is None:
            return
        with (
            remembering_failure(self.path, loop.unsaved_rows),
            explain_exit(),
            determinism.explain_refusals(),
        ):
            progress = with_prefetch(loop, self.progress)
            steps = loop.steps(self.execution.checkpoint, progress, self.execution.steps)
            if self.ranks is not None:
                loop.meter.total, steps = self.ranks.total, self.ranks.and_wait(steps)
            yield from steps if self.store is None else self._stored(steps, self.store)
        if loop.step < len(loop.stream):
            trusted = " and with --trust-pickle" if self.recipe.library else ""
            self.log(
                f"{self.path} ended after {loop.step:,} of {len(loop.stream):,} steps (--steps);"
                f" the same command without --steps{trusted} goes on."
            )
            return
        for sentence in _end_notes(Run(self.path), loop):
            self.log(sentence)

    def _stored(self, steps: Iterator[None], store: FolderStore) -> Iterator[None]:
        """The same steps; after every checkpoint the folder is copied to the store."""
        assert self._loop is not None
        recorder: Any = self._loop.recorder
        stored = recorder.step
        for _ in steps:
            if recorder.step != stored:
                store.put(self.path)
                stored = recorder.step
            yield
        store.put(self.path)

    def close(self) -> None:
        """Release the folder, and the memory of the network and its recorded steps."""
        self._open.close()
        self._heartbeat = None
        self._loop, self.engine = None, engines.Eager()

    def _check_state(self, recorder: Any, second: Learner | None, state: dict[str, Any]) -> None:
        try:
            restored = read_back(state, self.recipe.name)
            if second is not None:
                with determinism.same_randomness():
                    _require_loadable(second, restored, self.recipe.name)
        except StreamgaugeError:
            self._discard(recorder)  # there is nothing to resume
            raise

    def _second_learner(self) -> Learner | None:
        """A user's learner that is thrown away after its `load_state_dict` was tried; made first,
        since a class may count its objects. None if making it took long or failed, and for a GPU:
        its memory is not for two learners, and its generators' states do not load on the CPU."""
        if self.recipe.built_in or self.recipe.library or self.ranks is not None:
            return None
        cpu, began = torch.device("cpu"), time.monotonic()
        if self.device.type != cpu.type:
            return None
        gate = Gate(self.stream.source, self.stream.preparation, cpu)
        with determinism.same_randomness(), suppress(Exception, SystemExit):
            second = self.recipe.build(self.stream.spec, gate, self.seed, cpu)
            return second if time.monotonic() - began < _QUICK_BUILD else None
        return None

    def _discard(self, recorder: Any) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()  # no file comes into the folder after this
        recorder.discard()

    def _facts(self) -> dict[str, int]:
        """For the heartbeat, also before the loop is made."""
        loop = self._loop
        if loop is None:
            return {"step": 0, "steps": len(self.stream), "right": 0, "asked": 0}
        return {"step": loop.step, "steps": loop.end, "right": loop.right, "asked": loop.asked}

    def _recorder(self) -> Any:
        make = partial(RunWriter, self.path, self.header, absent_columns(self.stream))
        if self.ranks is not None:
            return self.ranks.recorder(make)
        recorder = make()
        if not self.recipe.library or recorder.peek is None:
            return recorder
        with trust_pickles(self.execution.trust_pickle):
            why = refusal(recorder.peek["learner"])
        if not why:
            return recorder
        recorder.close()
        self._move_away(f"starts again from its first step: its state is not loaded, as {why}")
        return make()

    def _build(self, gate: Gate, ranks: Ranks | None = None) -> Learner:
        try:
            share = None if ranks is None else ranks.share
            with determinism.explain_refusals():
                return self.recipe.build(self.stream.spec, gate, self.seed, self.device, share)
        except (ValueError, TypeError, RuntimeError, OverflowError) as error:
            reason = str(error).strip().splitlines()[0] if str(error) else type(error).__name__
            raise StreamgaugeError(
                f"The learner {self.recipe.name} cannot be made: {reason}"
            ) from error


AnyRun = TypeVar("AnyRun")


def opened_in_turn(
    runs: Iterable[AnyRun], open_run: Callable[[AnyRun], None], log: Logger
) -> Iterator[AnyRun]:
    """Each run, opened. Those that another process writes come last: they are complete when that
    process has ended them, and are taken over if it died."""
    later = deque[AnyRun]()
    for run in runs:
        try:
            open_run(run)
        except Busy as busy:
            log(f"{busy} It comes after the others.")
            later.append(run)
        else:
            yield run
    stalled = 0
    while later:
        run = later.popleft()
        try:
            open_run(run)
        except Busy:
            later.append(run)
            stalled += 1
            if stalled >= len(later):
                time.sleep(BUSY_WAIT)
                stalled = 0
        else:
            stalled = 0
            yield run


def _one_class(stream: Stream) -> list[str]:
    """A sentence if the stream has a single class."""
    label, names = stream.source.label, stream.source.class_names
    if not len(label) or label.min() != label.max():
        return []
    name = int(label[0]) if names is None else repr(names[int(label[0])])
    return [
        f"All labels are of the class {name}: answering it always is right, so accuracy says"
        " nothing."
    ]


def complete_already(run: Run) -> str:
    return f"{run.path} is complete already (made {run.made}); nothing to do."


def _require_loadable(second: Learner, state: dict[str, Any], name: str) -> None:
    try:
        second.load_state_dict(state)
    except Exception as error:
        raise StreamgaugeError(
            f"The learner {name} could not be resumed: its load_state_dict does not take what its"
            f" state_dict returned. {sentence_of(error)}"
        ) from error


def _not_covered(recipe: Recipe) -> str:
    """Of a stored run that is used: what the identity of its learner does not cover."""
    if recipe.built_in or recipe.library:
        return ""
    reads = reads_of(recipe.kind)
    if not reads:
        return ""
    return (
        f" {recipe.name} reads a file or the environment ({reads}), and a change of that is not"
        " noticed: --force or force=True repeats the run."
    )


def _folder(out: Path, prefix: str, run_id: str) -> Path:
    """The folder of a run; an older version may have named it after another hash of the same."""
    path = out / f"{prefix}-{run_id[:8]}"
    if not path.exists():
        for file in sorted(out.glob(f"{escape(prefix)}-*/run.json")):
            with suppress(StreamgaugeError, KeyError):  # damaged, or not a run with an identity
                header = Run(file.parent).header
                if identity(header["config"], header["stream"]) == run_id:
                    return file.parent
    return path


_RESIDENT: dict[tuple[str, str], Resident] = {}


def _on_device(stream: Stream, device: torch.device) -> Stream:
    """The stream with its inputs on the device, where they fit; the last source stays there."""
    if not fits(stream.source, device):
        return stream
    key = (stream.source.fingerprint, str(device))
    if key not in _RESIDENT:
        _RESIDENT.clear()
        _RESIDENT[key] = Resident(stream.source, device)
    return replace(stream, source=_RESIDENT[key])


def _ranks(recipe: Recipe) -> Ranks | None:
    """The processes that share this run, where `torchrun` started some."""
    ranks = of_torchrun()
    if ranks is not None:
        ranks.check(recipe)
    return ranks


def _end_notes(run: Run, loop: Loop) -> Iterator[str]:
    """One sentence per metric that was computed on some steps only: its value and its error."""
    stream, every = loop.stream, loop.protocol.evaluate
    if loop.lookahead.every > 1:
        yield _near_future_text(run, loop.lookahead)
    if stream.task is not None and stream.splits and isinstance(every, int) and every > 1:
        yield _continual_text(run, every)


def _near_future_text(run: Run, lookahead: LookAhead) -> str:
    shifts = sorted(set(run.header["config"]["protocol"]["shifts"]))
    accuracies, errors = (
        metrics.near_future_accuracy(run, shifts),
        metrics.near_future_error(run, shifts),
    )
    by_shift = ", ".join(
        f"{shift} ahead {100 * accuracy:.2f} % (standard error {100 * error:.2f})"
        for shift, accuracy, error in zip(shifts, accuracies, errors, strict=True)
    )
    return (
        f"Near future on every {nth(lookahead.every)} step: {by_shift}; "
        f"{100 * lookahead.extra():.0f} % more forward passes."
    )


def _continual_text(run: Run, every: int) -> str:
    acc, task, step = metrics.continual_accuracy(run)
    accuracy, error = (
        float(metrics.anytime_accuracy(acc, task)[-1]),
        metrics.anytime_error(acc, task, step),
    )
    return (
        f"Evaluated after every {nth(every)} step: anytime accuracy {100 * accuracy:.2f} %, with a"
        f" standard error of {100 * error:.2f} for the steps between; a worst case is the worst of"
        " these."
    )
