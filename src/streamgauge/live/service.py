"""Answers samples that clients send, one message at a time, and trains on their labels.

A sample gets an answer and an arrival number at once. Its label arrives later, in any order, or
never. The row of a sample is written when its label arrives; B labels in the order of their arrival
are one step, whose batch is offered to the trainer. How messages are transported is not decided
here.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from streamgauge.bridges.foreign import load_own_state
from streamgauge.errors import StreamgaugeError, nearest
from streamgauge.live.dispatcher import Dispatcher, TrainingRequest
from streamgauge.live.monitoring import ServiceFigures, quantiles
from streamgauge.live.snapshots import MAX_DELAYED, Answering, DueSnapshot, Snapshots
from streamgauge.live.spool import NAME_BYTES, NONE, Spool
from streamgauge.live.trainer import NO_ADDRESSES
from streamgauge.running import jobs
from streamgauge.streams import Spec
from streamgauge.streams.gate import to_device

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from streamgauge.learners.base import Learner
    from streamgauge.live.journal import Journal

# Why a message is refused -> HTTP status.
REASONS = {
    "malformed": 400,
    "denied": 401,  # without the token
    "unknown": 404,  # a label for a sample that never arrived
    "gone": 410,  # a label for a sample that has expired
    "duplicate": 409,  # a second label, or an id that is taken
    "too_large": 413,
    "too_fast": 429,  # more messages per second than allowed
    "failed": 500,  # the learner gave no usable answer
    "full": 503,  # nothing in the spool may be dropped
    "busy": 503,  # too many connections
    "stopping": 503,
}


class Refused(Exception):
    """A message that is refused, with the reason and a sentence."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.message = {"error": sentence, "reason": reason}


class Limits(NamedTuple):
    """Limits of the service."""

    waiting: int = 1000  # samples without a label; beyond that the oldest expire
    uncommitted: int = 512  # labels that are in the spool and not yet in the log


class Service(Answering):
    """One learner, one spool, one trainer. Every public method may be called from any thread."""

    def __init__(
        self,
        spec: Spec,
        learner: Learner,
        build: Callable[[], Learner],
        dispatcher: Dispatcher,
        journal: Journal,
        spool: Spool,
        device: torch.device,
        *,
        batch: int = 10,
        snapshots: Snapshots | None = None,
        limits: Limits | None = None,
        class_names: Sequence[str] | None = None,
        users: bool = False,
        now: Callable[[], float] = time.perf_counter,
        today: Callable[[], float] = time.time,
        log: Callable[[str], None] = print,
    ) -> None:
        snapshots = Snapshots((), 0) if snapshots is None else snapshots
        super().__init__(learner, build, spec.classes, dispatcher, journal, device, snapshots)
        self.spec, self.spool, self.batch = spec, spool, batch
        self.limits, self.users = limits or Limits(), users
        self.class_names = class_names
        self.refused: Counter[str] = Counter()
        self.arrivals = self.labels = self.right = self.expired = 0
        self.addresses = NO_ADDRESSES  # that the trainer's learner may read
        self.stopping = False
        self.training_ended = ""  # why, in a sentence, once it has ended for good
        self.lock = threading.RLock()
        self._number = {name: number for number, name in enumerate(class_names or ())}
        self._waiting: OrderedDict[int, None] = OrderedDict()  # without a label, oldest first
        self._gathering: list[int] = []  # labelled samples of the next batch
        self._trained_step = -1  # the newest step whose training has ended
        self._due: list[DueSnapshot] = []  # snapshots that answer this block of arrivals too
        self._now, self._today, self._log_message = now, today, log
        self.restarts: list[str] = []  # of the trainer: the reasons
        self.figures = ServiceFigures(snapshots.shifts)
        self._began, self._earlier_seconds = now(), 0.0

    # Messages.

    def handle(self, message: Any, received: float | None = None) -> dict[str, Any]:
        """A sample or a label, by the fields of the message; refusals are raised and counted."""
        if isinstance(message, dict) and "label" in message and "x" not in message:
            return self.label(message)
        return self.sample(message, received)

    def sample(self, message: Any, received: float | None = None) -> dict[str, Any]:
        """Answer a sample: `{"x": ..., "id": ..., "user": ...}`; only `x` is required."""
        received = self._now() if received is None else received
        with self._accepting():
            required = ["x", "user"] if self.users else ["x"]
            fields = _fields(message, required, known=("x", "id", "user"))
            x = self._input(fields["x"])
            name = _name(fields.get("id"))
            if name in self.spool.names:
                sample = self.spool.names[name]
                raise Refused("duplicate", f"The id {fields['id']!r} is sample {sample} already.")
            user = _user(fields.get("user", NONE))
            self._make_room()
            self.apply_update()
            return self._answer(x, name, user, received)

    def label(self, message: Any) -> dict[str, Any]:
        """Accept a label: `{"sample": 7, "label": 2}`, or `id` in place of `sample`."""
        with self._accepting():
            fields = _fields(message, required=["label"], known=("sample", "id", "label"))
            sample = self._which(fields)
            label = self._class(fields["label"])
            self._expect_label(sample)
            # In the spool first: from here on the label survives a crash.
            self.spool.set_label(sample, label, self.labels)
            del self._waiting[sample]
            self._append_labelled(sample)
            self.apply_update()
            self.dispatcher.dispatch(self._now())
            if self._must_commit():
                self.commit()
            return {"sample": sample, "label": label, "labels": self.labels}

    def refuse(self, reason: str, sentence: str) -> NoReturn:
        """Refuse what is not a message at all."""
        with self.lock:
            self.refused[reason] += 1
        raise Refused(reason, sentence)

    def facts(self, restarts: list[str]) -> dict[str, Any]:
        counts = {"arrivals": self.arrivals, "expired": self.expired, "refused": dict(self.refused)}
        return {**super().facts(restarts), **counts, "stopped": ""}

    def status(self) -> dict[str, Any]:
        with self.lock:
            return {
                "samples": self.arrivals,
                "labels": self.labels,
                "waiting": len(self._waiting),
                "expired": self.expired,
                "accuracy": self.right / self.labels if self.labels else None,
                "version": self.dispatcher.version,
                "updates": self.dispatcher.finished,
                "batches_skipped": self.dispatcher.skipped,
                "training": self.training_ended or "running",
                "refused": dict(self.refused),
                "spool": {"samples": len(self.spool), "slots": self.spool.slots},
            }

    def heartbeat(self) -> dict[str, Any]:
        """The facts of a heartbeat; without the lock, as a heartbeat must not wait."""
        figures, wait = self.figures, quantiles(tuple(self.latencies))[0.99]
        more = {"waiting": len(self._waiting), "p99 ms": 1e3 * wait, "labels": self.labels}
        more["blind"] = max(figures.blind.values())
        known = {name: value for name, value in more.items() if value == value}
        step = self.labels // self.batch
        return {"step": step, "steps": 0, "right": self.right, "asked": self.labels, "more": known}

    # Between messages.

    def advance(self) -> None:
        """Apply a new version, dispatch the waiting batch, let a snapshot answer, commit."""
        with self.lock:
            self.apply_update()
            self.dispatcher.dispatch(self._now())
            if self.delayed:
                self._answer_delayed()
            if self.journal.due or self._must_commit():
                self.commit()

    def _must_commit(self) -> bool:
        """Samples whose labels are not in the log yet cannot be dropped from the spool."""
        if self.labels - self.journal.committed < self.limits.uncommitted:
            return False
        return not self.journal.busy

    def apply_update(self) -> None:
        """Answer with the newest version from here on; called between two answers only."""
        try:
            finished = self.dispatcher.collect(self._now())
        except StreamgaugeError as error:
            self._log_message(f"{error} Answers go on, training ends.")
            self.dispatcher.training_ended = True
            self.training_ended = f"ended: {error}"
            return
        if self.dispatcher.training_ended and not self.training_ended:
            self.training_ended = f"ended: the trainer was lost ({self.dispatcher.lost_reason})."
        self.dispatcher.dispatch(self._now())
        if finished is not None:
            self._apply(finished)
            self.addresses = finished.update.addresses
            self._trained_step = finished.request.step

    def commit(self, done: bool = False, wait: bool = False) -> None:
        """Write the log up to the last label; samples without a label stay in the spool."""
        state = {
            "learner": self.state,
            "version": self.version,
            "arrivals": self.arrivals,
            "expired": self.expired,
            "trained_step": self._trained_step,
            "offered": self.dispatcher.offered,
            "finished": self.dispatcher.finished,
            "lost": self.dispatcher.lost,
            "refused": dict(self.refused),
            "near_future_left_out": self.near_future_left_out,
            "duration": self.duration(),
            "until": self._today(),
            "restarts": list(self.restarts),
        }
        self.journal.commit(self.labels // self.batch, state, done, mark=self.labels, wait=wait)

    def duration(self) -> float:
        """Seconds of service, in all processes that served this run."""
        return self._earlier_seconds + self._now() - self._began

    def stop(self) -> None:
        """Accept no more messages, and write everything that was accepted."""
        with self.lock:
            if self.stopping:
                return
            self.stopping = True
            self.apply_update()
            while self.delayed:
                self._answer_delayed()
            self.spool.flush()
            self.commit(done=True, wait=True)

    def restore(self, state: Mapping[str, Any] | None, committed: int, right: int) -> None:
        """Go on from a checkpoint, the spool, and `committed` labels and `right` answers."""
        facts = self.spool.facts
        if state is not None:
            self.state = dict(state["learner"])
            load_own_state(self.learner, self.state)
            self.arrivals = state["arrivals"]
            self.expired, self._trained_step = state["expired"], state["trained_step"]
            self.dispatcher.version, self.dispatcher.offered = state["version"], state["offered"]
            self.dispatcher.finished, self.dispatcher.lost = state["finished"], state["lost"]
            self.refused.update(state["refused"])
            # Versions before 0.2 did not store these.
            self.near_future_left_out = state.get("near_future_left_out", 0)
            self.restarts[:0] = state.get("restarts", [])
            self._earlier_seconds = float(state.get("duration", 0.0))
        self.labels = self.journal.committed = committed
        self.right = right
        used = facts["sample"] != NONE
        self.arrivals = max([self.arrivals, *(facts["sample"][used] + 1).tolist()])
        unlabelled = used & (facts["label_position"] == NONE)
        self._waiting.update((s, None) for s in np.sort(facts["sample"][unlabelled]).tolist())
        labelled = np.flatnonzero(used & (facts["label_position"] != NONE))
        labelled = labelled[np.argsort(facts["label_position"][labelled])]
        position, sample = facts["label_position"][labelled], facts["sample"][labelled]
        full = committed // self.batch  # batches in the log; after them, the one being gathered
        newest = (position // self.batch == full - 1) & (position < committed)
        if full - 1 > self._trained_step and newest.sum() == self.batch:
            self.dispatcher.waiting = TrainingRequest(
                full - 1, sample[newest].copy(), slots=labelled[newest]
            )
        self._gathering = sample[(position >= full * self.batch) & (position < committed)].tolist()
        for number in sample[position >= committed].tolist():
            self._append_labelled(number)
        self._count_after_kill(state, facts[used])

    def _count_after_kill(self, state: Mapping[str, Any] | None, facts: Any) -> None:
        """Figures that changed after the last checkpoint, from the spool."""
        self.expired = max(0, self.arrivals - self.labels - len(self._waiting))
        if not len(facts):
            return
        until = state.get("until") if state is not None else float(facts["time"].min())
        if until is not None:
            self._earlier_seconds += max(0.0, float(facts["time"].max()) - until)
        # Updates after the checkpoint are lost. What answers now is none of them, so it gets a
        # number of its own.
        newest = int(facts["version"].max())
        if newest > self.dispatcher.version:
            self.dispatcher.version = newest + 1

    # Answers.

    def _answer(self, x: Any, name: bytes, user: int, received: float) -> dict[str, Any]:
        number = self.arrivals
        try:
            with self.journal.timed("predict"):
                answers = self._engine.answer(self._tensor(x[None]))
        except StreamgaugeError as error:
            raise Refused("failed", str(error)) from None
        if number % self.batch == 0:  # a block of arrivals; after the answer, which may fail
            self._due = self.snapshots.begin(number, self.version, self.state)
        prediction, confidence = int(answers.prediction[0]), float(answers.confidence[0])
        answer = {"prediction": prediction, "confidence": confidence, "version": self.version}
        self.spool.put(number, x, **answer, time=self._today(), user=user, name=name)
        self.arrivals += 1
        self.figures.arrived(number)
        self._waiting[number] = None
        if len(self._waiting) > self.limits.waiting:
            oldest, _ = self._waiting.popitem(last=False)
            self.spool.drop(oldest)
            self.figures.expired(oldest)
            self.expired += 1
        self._delay(number, self._due, MAX_DELAYED * self.batch)
        step = self.labels // self.batch
        self._append_latency(step, self._now() - received)
        named = {} if self.class_names is None else {"class": self.class_names[prediction]}
        return {"sample": number, **answer, **named}

    def _tensor(self, x: Any) -> Tensor:
        if not self._adapter.sees_input:
            return jobs.blank(len(x), self.device)
        return to_device(x, self.device)

    def _answer_delayed(self) -> None:
        """Let a snapshot answer. The answer goes to the spool until the label arrives, or to the
        log if the label has arrived already."""
        sample, due, column = self.delayed.popleft()
        if sample not in self.spool.slot_of:
            return
        engine = self._load_snapshot(due)
        slot = self.spool.slot_of[sample]
        try:
            answers = engine.answer(self._tensor(np.array(self.spool.inputs[slot : slot + 1])))
        except StreamgaugeError:  # as with a sample: the answer is missing, and the service goes on
            self.near_future_left_out += 1
            return
        near = self.spool.facts["near"][slot]
        near[column] = (due.age, answers.prediction[0], answers.confidence[0], due.version)
        if self.spool.facts["label_position"][slot] != NONE:
            self._append_near(slot, column)

    # Labels become rows and batches.

    def _append_labelled(self, sample: int) -> None:
        """Append the row of a sample whose label is in the spool, and add it to the next batch."""
        slot = self.spool.slot_of[sample]
        row = self.spool.facts[slot]
        step = self.labels // self.batch
        self._append(row, step, row, 0)
        self.right += int(row["prediction"] == row["label"])
        self.figures.labelled(sample, int(row["label"]), int(row["prediction"]))
        self.labels += 1
        for column in range(len(row["near"])):
            if row["near"][column]["version"] != NONE:
                self._append_near(slot, column)
        self._gathering.append(sample)
        if len(self._gathering) == self.batch:
            index = np.array(self._gathering, np.int64)
            slots = np.array([self.spool.slot_of[s] for s in self._gathering], np.int64)
            self._gathering = []
            if step > self._trained_step:
                self.dispatcher.offer(TrainingRequest(step, index, slots=slots))

    def _append_near(self, slot: int, column: int) -> None:
        row = self.spool.facts[slot]
        near = row["near"][column]
        self._append(row, int(row["label_position"]) // self.batch, near, int(near["age"]))
        self.figures.near(int(near["age"]), bool(near["prediction"] == row["label"]))

    def _append(self, row: Any, step: int, answer: Any, shift: int) -> None:
        columns = {"user": row["user"]} if self.users else {}
        self.journal.rows["predictions"].append(
            1,
            step=step,
            sample=row["sample"],
            label=row["label"],
            prediction=answer["prediction"],
            confidence=answer["confidence"],
            version=answer["version"],
            shift=shift,
            time=row["time"],
            **columns,
        )

    # Room in the spool.

    def _make_room(self) -> None:
        if self.spool.free:
            return
        pending = (self.dispatcher.training, self.dispatcher.waiting)
        referenced = [request.index for request in pending if request is not None]
        referenced += [self.addresses, np.array(self._gathering, np.int64)]
        self.spool.drop_unreferenced(self.journal.committed, referenced)
        if not self.spool.free:
            if not self.journal.busy:
                self.commit()  # samples that are in the log can be dropped
            why = f"All {self.spool.slots} slots of the spool are in use; try again in a moment."
            raise Refused("full", why)

    # Checks of messages.

    @contextmanager
    def _accepting(self) -> Iterator[None]:
        """One message at a time, none once the service stops; refusals are counted."""
        with self.lock:
            try:
                if self.stopping:
                    raise Refused("stopping", "The service is stopping.")
                yield
            except Refused as refused:
                self.refused[refused.reason] += 1
                raise

    def _input(self, value: Any) -> Any:
        shape, dtype = self.spec.input_shape, self.spool.dtype
        try:
            text = isinstance(value, str)
            array = _from_base64(value, shape, dtype) if text else np.asarray(value)
        except ValueError:
            raise Refused("malformed", "x has rows of unequal length.") from None
        if array.size == 0:
            array = array.astype(dtype)
        if array.dtype.kind not in "iuf":
            raise Refused("malformed", "x must hold numbers and nothing else.")
        if array.shape != shape:
            raise Refused("malformed", f"x has the shape {array.shape}, where {shape} is needed.")
        if dtype == np.uint8 and (array.dtype.kind == "f" or ((array < 0) | (array > 255)).any()):
            raise Refused("malformed", "x must hold whole numbers from 0 to 255.")
        with np.errstate(over="ignore"):
            array = array.astype(dtype)
        if not np.isfinite(array).all():
            raise Refused("malformed", "x holds a NaN, an infinity, or a number that is too large.")
        return array

    def _which(self, fields: Mapping[str, Any]) -> int:
        if ("sample" in fields) == ("id" in fields):
            raise Refused("malformed", "A label needs either 'sample' or 'id'.")
        if "id" in fields:
            name = _name(fields["id"])
            if name not in self.spool.names:
                raise Refused("unknown", f"There is no sample with the id {fields['id']!r}.")
            return self.spool.names[name]
        return _integer(fields["sample"], "'sample' is the number from an answer")

    def _class(self, label: Any) -> int:
        if isinstance(label, str):
            if label not in self._number:
                hint = nearest(label, self._number) if self._number else "give its number."
                raise Refused("malformed", f"There is no class '{label}'; {hint}")
            return self._number[label]
        number = _integer(label, "A label is the number of a class")
        if not 0 <= number < self.spec.classes:
            raise Refused("malformed", f"Label {number} lies outside 0..{self.spec.classes - 1}.")
        return number

    def _expect_label(self, sample: int) -> None:
        if sample in self._waiting:
            return
        if not 0 <= sample < self.arrivals:
            raise Refused("unknown", f"There is no sample {sample}.")
        if sample in self.spool.slot_of:
            raise Refused("duplicate", f"Sample {sample} has its label already.")
        raise Refused("gone", f"Sample {sample} has its label already, or has waited too long.")


def _fields(message: Any, required: list[str], known: Sequence[str]) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise Refused("malformed", "A message is a JSON object.")
    for field in required:
        if field not in message:
            raise Refused("malformed", f"The message has no '{field}'.")
    for field in message:
        if field not in known:
            raise Refused("malformed", f"A message has no field '{field}'; {nearest(field, known)}")
    return message


def _integer(value: Any, expected: str, bits: int | None = None) -> int:
    """A whole number of at most that many bits, with its sign."""
    if type(value) is not int or (bits and not -(1 << bits - 1) <= value < 1 << bits - 1):
        raise Refused("malformed", f"{expected}, not {value!r}.")
    return value


def _name(value: Any) -> bytes:
    if value is None:
        return b""
    text = value if isinstance(value, str) else _integer(value, "An id is text or a whole number")
    name = _encoded(str(text), "An id")
    if not name or len(name) > NAME_BYTES or b"\0" in name:
        raise Refused("malformed", f"An id has 1 to {NAME_BYTES} bytes.")
    return name


def _encoded(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # half of a pair of surrogates, which JSON can hold
        raise Refused("malformed", f"{what} is text that can be written as UTF-8.") from None


def _user(value: Any) -> int:
    """Users by number, or by name: only equality matters."""
    if isinstance(value, str):
        name = _encoded(value, "A user")
        return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest()) >> 1
    return _integer(value, "A user is text or a whole number", 64)


def _from_base64(text: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Raw values, little-endian, row by row: a quarter of the size of numbers in JSON."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Refused("malformed", "x is text, but not base64.") from None
    wanted = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if len(data) != wanted:
        raise Refused("malformed", f"x has {len(data)} bytes, where {wanted} are needed.")
    return np.frombuffer(data, dtype.newbyteorder("<")).reshape(shape)
