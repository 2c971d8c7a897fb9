"""The checks of `streamgauge check`, which every built-in learner passes.

Each check runs the learner in the real loop on a small generated stream and compares logs.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from streamgauge.catalogue import Recipe
from streamgauge.errors import StreamgaugeError
from streamgauge.record.tables import TABLES, RowBuffer, columns_of
from streamgauge.record.writer import from_plain, to_plain
from streamgauge.running.determinism import make_deterministic
from streamgauge.running.loop import Loop
from streamgauge.running.protocol import Protocol
from streamgauge.streams import Arrangement, ArraySource, Stream, arrange

STEPS, BATCH, CLASSES, NEVER = 24, 4, 4, 2  # the last two classes never arrive


class Result(NamedTuple):
    """`passed` is None where a check could not be made; `why` says what is missing or wrong."""

    name: str
    passed: bool | None
    why: str = ""


class Broken(StreamgaugeError):
    """What a learner does against the contract."""


def check_learner(recipe: Recipe, device: str = "cpu") -> list[Result]:
    """All checks, the most basic first."""
    torch_device = torch.device(device)
    make_deterministic(device)
    results: list[Result] = []
    for name, check in _CHECKS.items():
        if results and results[0].passed is False:  # the rest would fail for the same reason
            results.append(Result(name, None, "not tried"))
            continue
        try:
            why = check(recipe, torch_device)
            results.append(Result(name, None if why else True, why or ""))
        except StreamgaugeError as error:
            results.append(Result(name, False, str(error)))
        except Exception as error:
            results.append(Result(name, False, f"it raised {_first_line(error)}"))
    return results


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}" + (f": {text[0]}" if text else "")


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
        stream = _stream() if stream is None else stream
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

    def stored_state(self) -> Any:
        """The state as it comes back from disk."""
        return _through_disk(self.state(), self.loop.device)

    def scores(self, step: int) -> torch.Tensor:
        return self.loop.learner.predict(self.loop.inputs(self.loop.stream.index(step)))


def _source(steps: int = STEPS, changed_from: int | None = None) -> ArraySource:
    """Images of easy classes. From `changed_from` on labels differ, two steps later inputs too."""
    rng = np.random.default_rng(3)
    count = steps * BATCH
    label = rng.integers(0, CLASSES, count)
    prototype = rng.integers(60, 196, (CLASSES, 3, 8, 8))
    x = (prototype[label] + rng.integers(-40, 41, (count, 3, 8, 8))).astype(np.uint8)
    if changed_from is not None:
        label[changed_from * BATCH :] = (label[changed_from * BATCH :] + 1) % CLASSES
        x[(changed_from + 2) * BATCH :] = 255 - x[(changed_from + 2) * BATCH :]
    columns: dict[str, Any] = {"time": np.arange(count), "user": np.arange(count) // 3}
    return ArraySource(x, label, classes=CLASSES + NEVER, **columns)


def _stream(source: ArraySource | None = None, batch: int = BATCH, tasks: int = 3) -> Stream:
    """A stream in the order of its source, with tasks of equal length and held-out samples."""
    source = source or _source()
    stream = arrange(source, Arrangement(batch=batch, held_out=0.1, held_out_by="time"))
    if tasks == 1:
        return stream
    steps = len(stream)
    task = np.arange(steps) * tasks // steps
    split = stream.splits["held_out"]
    home = task[np.searchsorted(stream.starts, split.position, side="right") - 1]
    return replace(stream, task=task, splits={"held_out": replace(split, task=home)})


def _predictions(log: dict[str, Any], before: int | None = None) -> dict[str, Any]:
    """Columns of online predictions that the learner decides, of the steps before one."""
    rows = log["predictions"]
    keep = rows["shift"] == 0
    if before is not None:
        keep &= rows["step"] < before
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
    buffer = io.BytesIO(_state_bytes(state))
    try:
        return from_plain(torch.load(buffer, map_location=device, weights_only=True))
    except Exception as error:
        raise Broken(
            f"its state cannot be stored: {_first_line(error)}; a state is made of dicts, lists, "
            "numbers, text, tensors and arrays"
        ) from error


def _same(a: Any, b: Any) -> bool:
    """Whether two states are equal, tensor by tensor."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.shape == b.shape and bool(torch.equal(a.cpu(), b.cpu()))
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return bool(np.array_equal(np.asarray(a), np.asarray(b)))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)


def _runs(recipe: Recipe, device: torch.device) -> None:
    _Drive(recipe, device).end()


def _predict_is_pure(recipe: Recipe, device: torch.device) -> None:
    drive = _Drive(recipe, device).to(8)
    before = drive.stored_state()
    if not _same(drive.scores(9).clone(), drive.scores(9)):
        raise Broken("predict answers the same inputs differently the second time")
    if not _same(before, drive.stored_state()):
        raise Broken("predict changes the learner's state")
    more = _Drive(recipe, device, protocol=Protocol(evaluate=6, shifts=(8,)))
    sentence = "predicting more often changes what it learns, from step {step} on"
    _require_same(_Drive(recipe, device).answers(), more.answers(), sentence)


def _repeats(recipe: Recipe, device: torch.device) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        first = _Drive(recipe, device)
        answers = first.answers()
        torch.manual_seed(2)
        second = _Drive(recipe, device)
        step = _parting(answers, second.answers())
    if step is not None or not _same(first.state(), second.state()):
        where = "end differently" if step is None else f"part at step {step}"
        raise Broken(
            f"two runs with the same seed {where}; draw random numbers from a generator made from "
            "the seed, not from a global one"
        )


def _state_round_trip(recipe: Recipe, device: torch.device) -> None:
    drive, other = _Drive(recipe, device).to(10), _Drive(recipe, device)
    state = drive.stored_state()
    other.loop.load_state_dict({**drive.loop.state_dict(), "learner": state})
    if not _same(state, other.stored_state()):
        raise Broken("a state that is loaded and taken again is not the same")
    if not _same(drive.scores(11), other.scores(11)):
        raise Broken("after its state is loaded into a new learner, it predicts something else")


def _resumes(recipe: Recipe, device: torch.device) -> None:
    whole = _Drive(recipe, device)
    answers = whole.answers()
    for stop in (1, STEPS // 2):
        begun, rest = _Drive(recipe, device).to(stop), _Drive(recipe, device)
        rest.loop.load_state_dict(_through_disk(begun.loop.state_dict(), device))
        expected = {column: values[answers["step"] >= stop] for column, values in answers.items()}
        step = _parting(expected, rest.answers())
        if step is not None or not _same(whole.state(), rest.state()):
            where = "ends in another state than" if step is None else f"parts at step {step} from"
            raise Broken(
                f"a run interrupted after {stop} steps and resumed {where} one that ran through: "
                "something it needs is not in its state"
            )


def _is_bounded(recipe: Recipe, device: torch.device) -> str | None:
    sizes = {}
    drive = _Drive(recipe, device, _stream(_source(2000), 40, 1), Protocol(evaluate="never"))
    if drive.loop.adapter.unbounded:
        return None
    for samples in (2000, 4000, 7000):
        drive.to(samples // 40)
        sizes[samples] = len(_state_bytes(drive.state()))
    if sizes[7000] - sizes[4000] > 3000:
        memory = drive.loop.adapter.memory
        if memory is not None and len(memory) < (getattr(memory, "capacity", None) or 0):
            return "its memory was not full yet after 7,000 samples; check it with a smaller one"
        raise Broken(
            f"its state still grows after 4,000 samples ({sizes[4000]:,} to {sizes[7000]:,} bytes "
            "at 7,000); bound it, declare `unbounded = True`, or check it with a smaller memory"
        )
    return None


def _batch_of_one(recipe: Recipe, device: torch.device) -> None:
    try:
        log = _Drive(recipe, device, _stream(batch=1)).end()
    except Exception as error:
        raise Broken(f"a batch of one sample fails: {_first_line(error)}") from error
    if not np.isfinite(log["predictions"]["confidence"]).all():
        raise Broken("a batch of one sample gives scores that are not finite")


def _class_never_seen(recipe: Recipe, device: torch.device) -> None:
    drive = _Drive(recipe, device).to(12)
    rng = np.random.default_rng(5)
    strange = torch.from_numpy(rng.integers(0, 256, (5, 3, 8, 8)).astype(np.uint8)).to(device)
    if not drive.loop.adapter.sees_input:
        strange = torch.empty((5, 0), device=device)
    scores = drive.loop.learner.predict(strange)
    if tuple(scores.shape) != (5, CLASSES + NEVER):
        raise Broken(
            f"predict returns scores of shape {tuple(scores.shape)}, where one column for each of "
            f"the {CLASSES + NEVER} classes that may come is needed, seen or not"
        )
    if torch.isnan(scores).any():
        raise Broken("scores hold a NaN when there are classes that were never seen")
    if (scores.argmax(1) >= CLASSES).any():
        raise Broken("a class that was never seen wins over those that were")


def _moves_device(recipe: Recipe, device: torch.device) -> str | None:
    drive = _Drive(recipe, device).to(8)
    answers_from = drive.scores(9).device
    if answers_from.type != device.type:
        raise Broken(f"it was given the device {device} and answers from {answers_from}")
    if not torch.cuda.is_available():
        return "this machine has one kind of device only"
    other = torch.device("cuda" if device.type == "cpu" else "cpu")
    moved = _Drive(recipe, other)
    moved.loop.load_state_dict(_through_disk(drive.loop.state_dict(), other))
    moved.end()
    return None


def _no_peeking(recipe: Recipe, device: torch.device) -> None:
    at = 10
    true = _Drive(recipe, device).end()
    other = _Drive(recipe, device, _stream(_source(changed_from=at))).end()
    # The first step with a changed label is answered before its labels are due: it counts too.
    last = int(np.searchsorted(_stream().order, at * BATCH)) // BATCH + 1
    sentence = "what it answers at step {step} depends on samples or labels that come later"
    _require_same(_predictions(true, last), _predictions(other, last), sentence)


def _declares_needs(recipe: Recipe, device: torch.device) -> None:
    drive = _Drive(recipe, device)
    needs = drive.loop.adapter.needs
    if needs and drive.loop.adapter.tell is None:
        raise Broken(f"it declares that it needs {sorted(needs)} but has no `tell` to receive it")
    answers, stream = drive.answers(), drive.loop.stream
    sentence = "its answers at step {step} depend on %s, which `needs` does not declare (%s)"
    if "horizon" not in needs:
        longer = _predictions(_Drive(recipe, device, _longer(stream)).end(), len(stream))
        _require_same(answers, longer, sentence % ("how long the stream is", "horizon"))
    if "boundaries" not in needs:
        flat = _Drive(recipe, device, _stream(tasks=1)).answers()
        _require_same(answers, flat, sentence % ("task boundaries", "boundaries"))


def _longer(stream: Stream) -> Stream:
    """The same stream with its second half once more at the end, and a source twice as long."""
    assert stream.task is not None
    once = stream.source
    everything = np.arange(len(once))
    columns: dict[str, Any] = {
        name: np.concatenate([c, c + c.max() + 1]) for name, c in once.columns.items()
    }
    source = ArraySource(
        np.concatenate([once.read(everything), 255 - once.read(everything)]),
        np.concatenate([once.label, once.label[::-1]]),
        classes=once.spec.classes,
        **columns,
    )
    return replace(
        stream,
        source=source,
        order=np.concatenate([stream.order, stream.order + len(once)]),
        starts=np.concatenate([stream.starts, stream.starts[1:] + stream.samples]),
        task=np.concatenate([stream.task, stream.task + stream.tasks]),
    )


_CHECKS: dict[str, Callable[[Recipe, Any], str | None]] = {
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
