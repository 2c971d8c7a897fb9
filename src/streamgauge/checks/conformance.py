"""The checks of `streamgauge check`, which every built-in learner passes.

Each check runs the learner in the real loop on a few samples and compares what it answers. States
are never compared: two pickles of equal models may differ, and what a learner answers may not.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from streamgauge import catalogue
from streamgauge.catalogue import Recipe
from streamgauge.checks.base import (
    MOST_SAMPLES,
    Broken,
    CheckResult,
    CheckSamples,
    described,
    images,
    samples_of,
    vectors,
)
from streamgauge.checks.leaks import Prover
from streamgauge.checks.loops import LoopStream
from streamgauge.engine.eager import ask
from streamgauge.errors import StreamgaugeError
from streamgauge.record.tables import TABLES, RowBuffer, columns_of
from streamgauge.record.writer import from_plain, to_plain
from streamgauge.running.determinism import make_deterministic
from streamgauge.running.loop import Loop
from streamgauge.running.protocol import Protocol
from streamgauge.streams import Arrangement, ArraySource, Stream, arrange
from streamgauge.versions import renamed

__all__ = [
    "Broken",
    "CheckResult",
    "CheckSamples",
    "check_learner",
    "images",
    "samples_of",
    "vectors",
]
__getattr__ = renamed(__name__, {"Result": "CheckResult", "Samples": "CheckSamples"})

STEPS, BATCH = 24, 4
PROBE = 32  # samples of which the scores are compared
# The size of the state is followed for MOST_SAMPLES, or so many seconds and FEWEST samples.
GROWTH_SECONDS, FEWEST = 5.0, 1000


def check_learner(
    recipe: Recipe, device: str = "cpu", samples: CheckSamples | None = None
) -> Iterator[CheckResult]:
    """All checks one after the other, the most basic first. Without samples, generated ones that
    the learner can take: images, or vectors."""
    make_deterministic(device)
    case, first = _first_case(recipe, torch.device(device), samples)
    yield first
    for name, check in list(_CHECKS.items())[1:]:
        if first.passed is False:  # the rest would fail for the same reason
            yield CheckResult(name, None, "not tried, since it does not run")
        else:
            yield _result(name, check, case)


def _first_case(
    recipe: Recipe, device: torch.device, samples: CheckSamples | None
) -> tuple[_Case, CheckResult]:
    """The samples on which a learner runs, and the result of the first check. A learner that is not
    made with torch gets vectors first."""
    name, check = next(iter(_CHECKS.items()))
    if samples is not None:
        case = _Case(recipe, device, samples)
        return case, _result(name, check, case)
    cases = [_Case(recipe, device, kind()) for kind in (images, vectors)]
    if not _made_with_torch(cases[0]):
        cases.reverse()
    case, other = cases
    first = _result(name, check, case)
    if first.passed is False and _result(name, check, other).passed:
        why = f"on {other.samples.name}; on {case.samples.name} {first.why}"
        return other, CheckResult(name, True, why)
    return case, first


def _made_with_torch(case: _Case) -> bool:
    try:
        return case.drive().loop.adapter.uses_torch()
    except Exception:  # it cannot take images
        return True


def _result(name: str, check: Callable[[_Case], str | None], case: _Case) -> CheckResult:
    try:
        why = check(case)
        return CheckResult(name, None if why else True, why or "")
    except StreamgaugeError as error:
        return CheckResult(name, False, str(error))
    except Exception as error:
        return CheckResult(name, False, f"it raised {described(error, case.recipe.kind)}")


class _Memo:
    """A recorder that keeps its rows in memory."""

    full = False

    def __init__(self, absent: frozenset[str]) -> None:
        self.rows = {name: RowBuffer(columns_of(name, absent)) for name in TABLES}

    def checkpoint(self, step: int, state: dict[str, Any], done: bool = False) -> None:
        pass

    def log(self) -> dict[str, dict[str, np.ndarray[Any, Any]]]:
        """All tables but timing, as arrays."""
        return {
            name: {c: rows.peek(c) for c in rows.columns}
            for name, rows in self.rows.items()
            if name != "timing"
        }


class _Drive:
    """A learner in the loop on a small stream; the log stays in memory."""

    def __init__(
        self,
        recipe: Recipe,
        device: torch.device,
        stream: Stream | None = None,
        protocol: Protocol | None = None,
    ) -> None:
        stream = _stream(_source(images())) if stream is None else stream
        self.memo = _Memo(frozenset({"task"} if stream.task is None else ()))
        self.loop = Loop(
            stream,
            lambda gate: recipe.build(stream.spec, gate, 7, device),
            protocol or Protocol(evaluate=6),
            self.memo,
            device,
        )

    def to(self, step: int) -> _Drive:
        self.loop.run(checkpoint_seconds=float("inf"), until=step)
        return self

    def end(self) -> dict[str, dict[str, np.ndarray[Any, Any]]]:
        self.to(len(self.loop.stream))
        return self.memo.log()

    def answers(self) -> dict[str, Any]:
        """Online predictions of the whole stream."""
        return _predictions(self.end())

    def state(self) -> Any:
        return self.loop.learner.state_dict()

    def scores(self, x: NDArray[Any]) -> torch.Tensor:
        loop = self.loop
        inputs = torch.from_numpy(x).to(loop.device)
        if not loop.sees_input:
            inputs = torch.empty((len(x), 0), device=loop.device)
        with torch.no_grad():
            return ask(loop.learner, inputs, loop.stream.spec.classes).clone()


class _Case(NamedTuple):
    """A learner and what it is checked on."""

    recipe: Recipe
    device: torch.device
    samples: CheckSamples

    def drive(self, stream: Stream | None = None, protocol: Protocol | None = None) -> _Drive:
        return _Drive(self.recipe, self.device, stream or self.stream(), protocol)

    def stream(self, **changes: Any) -> Stream:
        return _stream(_source(self.samples), **changes)

    def probe(self, drive: _Drive) -> torch.Tensor:
        """Scores of samples, most of which are not in the stream."""
        return drive.scores(self.samples.x[-PROBE:])


def learner_loop(
    learner: str | type | Recipe, device: str = "cpu"
) -> tuple[Callable[[LoopStream], NDArray[Any]], list[str]]:
    """A learner in our loop as a function from a stream to answers, and what it declares to need.
    An answer is a row with the confidence in the column of the predicted class."""
    recipe = learner if isinstance(learner, Recipe) else catalogue.learner(learner)
    make_deterministic(device)

    def answers(given: LoopStream) -> NDArray[Any]:
        source = _with_columns(given.x, given.y, given.classes)
        stream = arrange(source, Arrangement(batch=given.batch))
        rows = _Drive(recipe, torch.device(device), stream, Protocol(evaluate="never")).answers()
        scores = np.zeros((len(given.y), given.classes))
        scores[rows["sample"], rows["prediction"]] = rows["confidence"]
        return scores

    return answers, recipe.needs


def _source(samples: CheckSamples) -> ArraySource:
    return _with_columns(*samples.spread(STEPS * BATCH), samples.classes)


def _with_columns(x: NDArray[Any], label: NDArray[np.int64], classes: int) -> ArraySource:
    columns: dict[str, Any] = {"time": np.arange(len(x)), "user": np.arange(len(x)) // 3}
    return ArraySource(x, label, classes=classes, **columns)


def _stream(source: ArraySource, batch: int = BATCH, tasks: int = 3) -> Stream:
    """A stream in the order of its source, with tasks of equal length and held-out samples."""
    stream = arrange(source, Arrangement(batch=batch, held_out=0.1, held_out_by="time"))
    if tasks == 1:
        return stream
    steps = len(stream)
    task = np.arange(steps) * tasks // steps
    split = stream.splits["held_out"]
    home = task[np.searchsorted(stream.starts, split.position, side="right") - 1]
    return replace(stream, task=task, splits={"held_out": replace(split, task=home)})


def _predictions(log: dict[str, Any]) -> dict[str, Any]:
    """Columns of online predictions that the learner decides."""
    rows = log["predictions"]
    keep = rows["shift"] == 0
    return {c: rows[c][keep] for c in ("step", "sample", "prediction", "confidence")}


def _parting(a: dict[str, Any], b: dict[str, Any]) -> int | None:
    """The first step at which two sets of rows differ."""
    first = None
    for column in a:
        x, y = a[column], b[column]
        size = min(len(x), len(y))
        unequal = (x[:size] != y[:size]) & ~((x[:size] != x[:size]) & (y[:size] != y[:size]))
        rows = np.flatnonzero(unequal)
        if len(rows) or len(x) != len(y):
            row = int(rows[0]) if len(rows) else max(0, size - 1)
            step = int(a["step"][row]) if len(a["step"]) else 0
            first = step if first is None else min(first, step)
    return first


def _require_same(a: dict[str, Any], b: dict[str, Any], difference: str) -> None:
    """Compare predictions; `difference` is a sentence with {step} in it."""
    step = _parting(a, b)
    if step is not None:
        raise Broken(difference.format(step=step))


def _state_bytes(state: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(to_plain(state), buffer)
    return buffer.getvalue()


def _through_disk(state: Any, device: torch.device) -> Any:
    try:
        buffer = io.BytesIO(_state_bytes(state))
        return from_plain(torch.load(buffer, map_location=device, weights_only=True))
    except Exception as error:
        raise Broken(
            f"its state cannot be stored: {described(error)}; let state_dict return dicts, lists, "
            "numbers, text, bytes, tensors and arrays only, other objects as pickle.dumps(object)"
        ) from error


def _runs(case: _Case) -> None:
    case.drive().end()


def _predict_is_pure(case: _Case) -> None:
    remedy = (
        "predict may not learn, draw from a generator or update statistics (in torch: model.eval() "
        "and torch.no_grad())"
    )
    plain, asked = case.drive().answers(), case.drive().to(8)
    if not torch.equal(case.probe(asked), case.probe(asked)):
        raise Broken(f"predict answers the same inputs differently the second time; {remedy}")
    for x in np.array_split(case.samples.x[-4 * PROBE :], 8):
        asked.scores(x)
    again = case.drive(protocol=Protocol(evaluate=6, shifts=(8,)))
    sentence = f"predicting more often changes what it answers, from step {{step}} on; {remedy}"
    for more in (asked, again):
        _require_same(plain, more.answers(), sentence)


def _repeats(case: _Case) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        first = case.drive()
        answers = first.answers()
        torch.manual_seed(2)
        second = case.drive()
        step = _parting(answers, second.answers())
    if step is not None or not torch.equal(case.probe(first), case.probe(second)):
        where = "end differently" if step is None else f"part at step {step}"
        raise Broken(
            f"two runs with the same seed {where}; draw random numbers from a generator made from "
            "the seed (torch.Generator, np.random.default_rng, random_state=seed), not from a "
            "global one"
        )


def _state_round_trip(case: _Case) -> None:
    drive = case.drive().to(10)
    state = _through_disk(drive.loop.state_dict(), case.device)
    for times in ("its state is", "its state is loaded, taken and again"):
        other = case.drive()
        other.loop.load_state_dict(state)
        if not torch.equal(case.probe(drive), case.probe(other)):
            raise Broken(
                f"after {times} loaded into a new learner, it predicts something else; put all "
                "that predict reads into state_dict, as copies, and set all of it in "
                "load_state_dict"
            )
        state = _through_disk(other.loop.state_dict(), case.device)


def _resumes(case: _Case) -> None:
    whole = case.drive()
    answers = whole.answers()
    for stop in (1, STEPS // 2):
        begun, rest = case.drive().to(stop), case.drive()
        rest.loop.load_state_dict(_through_disk(begun.loop.state_dict(), case.device))
        expected = {column: values[answers["step"] >= stop] for column, values in answers.items()}
        step = _parting(expected, rest.answers())
        if step is not None or not torch.equal(case.probe(whole), case.probe(rest)):
            where = "ends differently from" if step is None else f"parts at step {step} from"
            raise Broken(
                f"a run interrupted after {stop} steps and resumed {where} one that ran through: "
                "something that learn reads is not in its state (a generator, an optimiser, a "
                "counter); add it to state_dict and load_state_dict"
            )


def _is_bounded(case: _Case) -> str | None:
    x, label = case.samples.spread(MOST_SAMPLES)
    stream = _stream(_with_columns(x, label, case.samples.classes), 20, 1)
    drive = case.drive(stream, Protocol(evaluate="never"))
    if drive.loop.adapter.unbounded:
        return None
    end, every = time.perf_counter() + GROWTH_SECONDS, FEWEST // 10
    memory = drive.loop.adapter.memory
    capacity = getattr(memory, "capacity", None) or 0
    sizes: list[int] = []
    filled: list[bool] = []
    for count in range(every, stream.samples, every):
        if count > FEWEST and time.perf_counter() > end:
            break
        drive.to(count // 20)
        sizes.append(len(_state_bytes(drive.state())))
        filled.append(memory is None or len(memory) >= capacity)
    parts = np.array_split(np.diff(sizes[len(sizes) // 2 :]), 4)
    growth = np.array([part.mean() / every for part in parts])  # bytes per sample
    last, first = sizes[-1], sizes[len(sizes) // 2]
    if growth.mean() < 0.5:
        return None
    samples = f"{every * len(sizes):,} samples"
    if not filled[len(filled) // 2]:  # it grew while the memory was filled, as it may
        return f"its memory was not full long enough after {samples}; check it with a smaller one"
    grown = (
        f"its state still grows after {samples} ({first:,} to {last:,} bytes in their second half)"
    )
    if growth.min() < 0.5 * growth.mean():
        return f"{grown}, not with every sample; if it has no limit, declare `unbounded = True`"
    raise Broken(
        f"{grown}; bound it, declare `unbounded = True`, or check it with a smaller memory"
    )


def _batch_of_one(case: _Case) -> None:
    try:
        log = case.drive(case.stream(batch=1)).end()
    except Exception as error:
        raise Broken(
            f"a batch of one sample fails: {described(error, case.recipe.kind)}; streams end with "
            "batches that are not full, and many have batches of one"
        ) from error
    if not np.isfinite(log["predictions"]["confidence"]).all():
        raise Broken(
            "a batch of one sample gives scores that are not finite; statistics of a batch, such "
            "as its deviation, need a fallback for one sample"
        )


def _class_never_seen(case: _Case) -> None:
    drive = case.drive().to(12)
    stream, scores = drive.loop.stream, case.probe(drive)
    if torch.isnan(scores).any():
        raise Broken("scores hold a NaN when there are classes that were never seen")
    seen = np.unique(stream.source.label[stream.order[: stream.starts[12]]])
    unseen = ~np.isin(scores.argmax(1).cpu().numpy(), seen)
    if unseen.mean() > 0.5:
        raise Broken(
            "a class that was never seen wins over those that were, in most answers; give classes "
            "without a label so far a score below the others, such as -1e6"
        )


def _moves_device(case: _Case) -> str | None:
    drive, device = case.drive().to(8), case.device
    answers_from = case.probe(drive).device
    if answers_from.type != device.type:
        raise Broken(
            f"it was given the device {device} and answers from {answers_from}; make tensors and "
            "modules on the device that the learner is made with"
        )
    if not torch.cuda.is_available():
        return "this machine has one kind of device only"
    other = torch.device("cuda" if device.type == "cpu" else "cpu")
    moved = _Drive(case.recipe, other, case.stream())
    moved.loop.load_state_dict(_through_disk(drive.loop.state_dict(), other))
    moved.end()
    return None


def _no_peeking(case: _Case) -> None:
    leak = _prover(case).leak()
    if leak is not None:
        raise Broken(
            f"{leak.effect}; use samples and labels only that learn was given, and of the source "
            "those that it lets you read"
        )


def _prover(case: _Case) -> Prover:
    loop, _ = learner_loop(case.recipe, str(case.device))
    given = case.samples.spread(STEPS * BATCH)
    return Prover(loop, LoopStream(*given, case.samples.classes, BATCH))


def _declares_needs(case: _Case) -> None:
    drive = case.drive()
    needs = drive.loop.adapter.needs
    if needs and drive.loop.adapter.tell is None:
        raise Broken(
            f"it declares that it needs {sorted(needs)} but has no `tell` to receive it; add "
            "`def tell(self, **facts)`, or remove `needs`"
        )
    sentence = (
        "its answers at step {step} depend on %s, which `needs` does not declare; add "
        'needs = frozenset({{"%s"}}) and take it from `tell`'
    )
    if "horizon" not in needs:
        prover = _prover(case)
        prover.base = prover.answer()
        if violation := prover.ended(0.0):
            step = violation[0] // BATCH
            raise Broken((sentence % ("how long the stream is", "horizon")).format(step=step))
    if "boundaries" not in needs:
        flat = case.drive(case.stream(tasks=1)).answers()
        _require_same(drive.answers(), flat, sentence % ("task boundaries", "boundaries"))


_CHECKS: dict[str, Callable[[_Case], str | None]] = {
    "runs from end to end": _runs,
    "predict changes nothing": _predict_is_pure,
    "same seed, same result": _repeats,
    "state survives a round trip": _state_round_trip,
    "a resumed run is identical": _resumes,
    "memory is bounded, or declared not to be": _is_bounded,
    "a batch of one": _batch_of_one,
    "a class never seen": _class_never_seen,
    "moves to another device": _moves_device,
    "no sample or label used before it is due": _no_peeking,
    "nothing used that `needs` does not declare": _declares_needs,
}
