"""Trainers: a learner that trains on one request after another in the background, in a thread or in
a process that may die and is restarted.

In both cases a thread in this process waits for the training, and the dispatcher only polls it. A
trainer returns the learner's whole state, which is complete before anybody else sees it.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

import numpy as np

from streamgauge import catalogue
from streamgauge.bridges.foreign import load_own_state
from streamgauge.catalogue import Recipe
from streamgauge.cost.flops import Meter
from streamgauge.errors import StreamgaugeError
from streamgauge.learners.adapter import LearnerAdapter
from streamgauge.learners.base import Batch, Learner
from streamgauge.live.dispatcher import Ints, Lost, TrainingRequest, Update
from streamgauge.live.spool import SpoolGate, SpoolSource
from streamgauge.memory import Memory, RingPerClass
from streamgauge.running import jobs
from streamgauge.streams import ArraySource, Gate, Source, Spec
from streamgauge.streams.gate import fetch_labels

if TYPE_CHECKING:
    import torch

    from streamgauge.running.execution import Logger

Kind = Literal["process", "thread"]
NO_ADDRESSES: Ints = np.empty(0, np.int64)
MAX_DEATHS = 3  # in a row, without a finished request in between
START_SECONDS = 120.0  # for a trainer to be ready, and for its first request
# A request that takes this many times as long as the longest so far, and at least this many
# seconds, is taken for hanging: requests of one learner do not differ that much.
HANGS_AFTER = 20.0
HANGS_SECONDS = 10.0
START_BACKEND = "import sys, streamgauge.live.trainer as t; t.serve_backend(int(sys.argv[1]))"


@dataclass(frozen=True)
class Setup:
    """What a trainer needs besides the recipe of its learner."""

    spec: Spec
    source: Source
    batch: int  # samples of a usual batch
    seed: int = 0
    device: str = "cpu"
    threads: int = 1
    preparation: Ints = field(default_factory=lambda: NO_ADDRESSES)
    facts: Mapping[str, Any] = field(default_factory=dict)  # for the learner, before the first step

    def build(self, recipe: Recipe, gate: Gate) -> LearnerAdapter:
        """A new learner, with the facts that it is told before the first step."""
        import torch

        learner = recipe.build(self.spec, gate, self.seed, torch.device(self.device))
        adapter = LearnerAdapter(learner)
        adapter.tell_facts(**self.facts)
        return adapter


class LocalTrainer:
    """Trains in the thread that calls `train`."""

    def __init__(
        self,
        recipe: Recipe,
        setup: Setup,
        state: dict[str, Any] | None = None,
        known: Ints = NO_ADDRESSES,
    ) -> None:
        """A learner that goes on from a `state` has learnt the addresses in `known` before."""
        import torch

        self.setup = setup
        self.device = torch.device(setup.device)
        warm_up(recipe, setup)
        self.gate = gate_for(setup.source, setup.preparation, self.device)
        self.adapter = setup.build(recipe, self.gate)
        self.learner = self.adapter.learner
        self.meter = Meter(self.adapter.work, self.adapter.sees_input, self.adapter.uses_torch)
        if state is not None:
            self.gate.label_due(known)
            load_own_state(self.learner, state)

    def train(self, request: TrainingRequest) -> Update:
        import torch

        source, index = self.setup.source, request.index
        if isinstance(source, SpoolSource) and request.slots is not None:
            source.add_slots(index, request.slots)
        began = time.perf_counter()
        self.gate.reveal(index)
        self.gate.label_due(index)
        for facts in request.facts:
            self.adapter.tell_facts(**facts)
        scores = request.predicted
        predicted = None if scores is None else torch.from_numpy(scores).to(self.device)
        batch = _batch(source, index, self.adapter, self.device)
        returned = jobs.train(self.learner, self.meter, batch, predicted)
        scalars = {name: float(value) for name, value in returned.items()}
        seconds = time.perf_counter() - began
        kept = NO_ADDRESSES
        if isinstance(source, SpoolSource):
            kept = stored_addresses(self.adapter)
            source.keep_only(kept)
        state = self.learner.state_dict()
        return Update(state, scalars, seconds, self.adapter.memory_bytes(), kept, self.meter.flops)


def _batch(source: Source, index: Ints, adapter: LearnerAdapter, device: torch.device) -> Batch:
    x = jobs.inputs(source, index, adapter, device)
    return Batch(x, fetch_labels(source, index, device), index)


def gate_for(source: Source, preparation: Ints, device: torch.device) -> Gate:
    if isinstance(source, SpoolSource):
        return cast(Gate, SpoolGate(source, device))
    return Gate(source, preparation, device)


def warm_up(recipe: Recipe, setup: Setup, times: int = 3) -> None:
    """Train and predict a few times on zeros with a temporary learner, so that the first step of
    the stream does not pay for what libraries do at their first use."""
    import torch

    spec, count = setup.spec, 4 * setup.batch
    dtype = getattr(setup.source, "dtype", None)
    if dtype is None:
        first = np.zeros(1, np.int64)
        dtype = setup.source.read(first).dtype if len(setup.source) else np.float32
    zeros = np.zeros((count, *spec.input_shape), dtype)
    source = ArraySource(zeros, np.arange(count) % spec.classes, classes=spec.classes)
    device = torch.device(setup.device)
    gate = Gate(source, np.arange(count), device)
    # A learner that fails on zeros starts cold; the data of the stream may well suit it.
    with contextlib.suppress(Exception):
        adapter = setup.build(recipe, gate)
        meter = Meter(adapter.work, adapter.sees_input, adapter.uses_torch)
        for number in range(times):
            index = np.arange(setup.batch) + number * setup.batch
            batch = _batch(source, index, adapter, device)
            adapter.learner.predict(batch.x)
            jobs.train(adapter.learner, meter, batch, None)
            unpack(pack(adapter.learner.state_dict()))


def memories(learner: Learner) -> list[Memory]:
    """The memories of addresses among the attributes of a learner."""
    memories: list[Memory] = []
    for value in vars(learner).values():
        values: Iterable[Any] = value if type(value) in (list, tuple) else (value,)
        memories += [value for value in values if isinstance(value, Memory)]
    return memories


def stored_addresses(adapter: LearnerAdapter) -> Ints:
    """Addresses that a learner may still read."""
    learner = adapter.learner
    if adapter.stored_addresses is not None:
        return np.unique(np.asarray(adapter.stored_addresses(), np.int64))
    parts = [memory.index[memory.slots()] for memory in memories(learner)]
    parts += [value.index for value in vars(learner).values() if isinstance(value, Batch)]
    return np.unique(np.concatenate([NO_ADDRESSES, *parts]))


def max_samples(memory: Memory, spec: Spec) -> int | None:
    """The most samples that a memory will ever hold; None without a limit."""
    if not memory.bounded:
        return None
    if isinstance(memory, RingPerClass):
        return memory.per_class * spec.classes
    return memory.capacity


class _Pickler(pickle.Pickler):
    """Writes tensors as arrays, which is ten times as fast."""

    def reducer_override(self, value: Any) -> Any:
        import torch

        if not isinstance(value, torch.Tensor):
            return NotImplemented
        value = value.detach().cpu()
        try:
            return _to_tensor, (value.numpy(),)
        except (TypeError, RuntimeError):  # a type that NumPy does not have
            return value.__reduce_ex__(5)


def _to_tensor(array: Any) -> torch.Tensor:
    import torch

    return torch.from_numpy(np.require(array, requirements="W"))


def pack(state: Any) -> bytes:
    """A state as bytes, for `unpack`."""
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=5).dump(state)
    return buffer.getvalue()


unpack = pickle.loads


class TrainerDied(Exception):
    """The process that trained has ended."""


class TrainerBackend(Protocol):
    """What executes requests: `ThreadBackend` in this process, `ProcessBackend` in another."""

    can_be_killed: bool

    def open(self, state: dict[str, Any] | None) -> Ints:
        """Get ready, from a state; returns the addresses that the learner may read."""

    def train(self, request: TrainingRequest, seconds: float) -> Update:
        """Raises `TrainerDied` if it takes longer than `seconds` and can be killed."""

    def alive(self) -> bool:
        return True

    def close(self) -> None:
        return


class BackgroundTrainer:
    """A trainer for the dispatcher: a backend, and a thread that waits for it.

    A backend that dies is restarted from the last version that it returned; its request is lost,
    and `log` gets a message. A backend that hangs is killed and restarted in the same way: `hang`
    is after how many seconds, by default `HANGS_AFTER` times the longest request so far. `wake` is
    called with every outcome.
    """

    def __init__(
        self,
        backend: TrainerBackend,
        wake: Callable[[], None] = lambda: None,
        log: Logger = print,
        state: dict[str, Any] | None = None,
        hang: float | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        if hang is not None and not hang > 0:
            raise StreamgaugeError(f"A trainer hangs after more than 0 seconds, not {hang}.")
        self.backend = backend
        self._hang, self._now = hang, now
        self._longest = 0.0  # seconds of a finished request
        self._since: float | None = None  # when the current request was begun
        self.restarts: list[str] = []  # the reasons
        self.addresses: Ints = NO_ADDRESSES  # that the learner may read before its first request
        self._wake, self._log, self._state = wake, log, state
        self._requests: queue.SimpleQueue[TrainingRequest | None] = queue.SimpleQueue()
        self._outcomes: queue.SimpleQueue[Update | Lost | Exception] = queue.SimpleQueue()
        self._deaths = 0
        self._closed = False
        self._ready = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="streamgauge-trainer", daemon=True)
        self._thread.start()

    def wait_until_ready(self) -> None:
        self._ready.wait()
        if self._failure is not None:
            raise self._failure

    @property
    def hangs_after(self) -> float:
        """Seconds after which a request is given up."""
        if self._hang is not None:
            return self._hang
        if not self._longest:
            return START_SECONDS
        return max(HANGS_SECONDS, HANGS_AFTER * self._longest)

    def begin(self, request: TrainingRequest) -> None:
        self._since = self._now()
        self._requests.put(request)

    def collect(self) -> Update | Lost | None:
        return self._outcome(0.0) or self._give_up_thread()

    def wait(self, seconds: float = 600.0) -> Update | Lost:
        """Wait for the outcome."""
        outcome = self._outcome(seconds)
        if outcome is None:
            raise StreamgaugeError(
                f"The trainer has worked on one batch for {seconds:.0f} s: this learner is too "
                f"slow for a live stream here."
            )
        return outcome

    def _outcome(self, seconds: float) -> Update | Lost | None:
        try:
            outcome = self._outcomes.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _give_up_thread(self) -> Lost | None:
        """A backend that hangs and cannot be killed (a thread) is abandoned."""
        if self.backend.can_be_killed or self._since is None or self._closed:
            return None
        if self._now() - self._since <= self.hangs_after:
            return None
        self._closed = True
        why = f"it has worked on one batch for more than {self.hangs_after:.0f} s"
        self.restarts.append(why)
        self._log(f"The trainer hangs ({why}), and a thread cannot be killed: answers go on, "
                  f"training ends.")  # fmt: skip
        return Lost(why, permanent=True)

    def close(self) -> None:
        """Kills a process; waits for a thread to finish its request."""
        if self._closed:
            return  # a thread that hangs is not waited for
        self._closed = True
        self._requests.put(None)
        for _ in range(120):
            self.backend.close()  # again, in case it has just been started
            self._thread.join(timeout=0.5)
            if not self._thread.is_alive():
                break

    def _run(self) -> None:
        try:
            self.addresses = self.backend.open(self._state)
        except Exception as error:
            self._failure = (
                StreamgaugeError(f"The trainer did not start: {error}.")
                if isinstance(error, TrainerDied)
                else error
            )
            return
        finally:
            self._ready.set()
        while (request := self._next()) is not None:
            try:
                began = self._now()
                outcome: Update | Lost | Exception = self.backend.train(request, self.hangs_after)
                assert isinstance(outcome, Update)
                self._longest = max(self._longest, self._now() - began)
                self._state, self._deaths = outcome.state, 0
            except TrainerDied as death:
                outcome = self._restart(str(death))
            except Exception as error:
                outcome = error
            self._outcomes.put(outcome)
            self._wake()

    def _next(self) -> TrainingRequest | None:
        """The next request. A backend that dies in the meantime is restarted before it comes."""
        while True:
            try:
                return self._requests.get(timeout=0.25)
            except queue.Empty:
                if self._deaths < MAX_DEATHS and not self.backend.alive():
                    self._restart("it ended while it had nothing to do")

    def _restart(self, why: str) -> Lost:
        if self._closed:
            return Lost(why, permanent=True)
        self.restarts.append(why)
        while self._deaths < MAX_DEATHS and not self._closed:
            self._deaths += 1
            self._log(f"The trainer died ({why}); answers go on, and it is restarted.")
            try:
                self.backend.open(self._state)
            except TrainerDied as death:
                why = str(death)
            else:
                self._log("The trainer is back and goes on from the last version.")
                return Lost(why)
        if self._closed:  # it was closed while it restarted, which does not count as a death
            return Lost(why, permanent=True)
        self._log(
            f"The trainer died {MAX_DEATHS} times in a row ({why}): answers go on, training ends."
        )
        return Lost(why, permanent=True)


class ThreadBackend(TrainerBackend):
    """Trains in this process; the interpreter and the cores are shared with the answers."""

    can_be_killed = False

    def __init__(self, recipe: Recipe, setup: Setup) -> None:
        self._recipe, self._setup = recipe, setup
        self._trainer: LocalTrainer | None = None

    def open(self, state: dict[str, Any] | None) -> Ints:
        self._trainer = LocalTrainer(self._recipe, self._setup, state)
        return stored_addresses(self._trainer.adapter)

    def train(self, request: TrainingRequest, seconds: float) -> Update:
        assert self._trainer is not None
        try:
            update = self._trainer.train(request)
        except Exception as error:
            raise StreamgaugeError(failure(request, error)) from error
        # The learner goes on changing its tensors, so the state that answers must be a copy.
        return update._replace(state=unpack(pack(update.state)))


class ProcessBackend:
    """Trains in a process of its own, which is controlled through a pipe. The process is a new
    program, not a fork: a fork of a process with threads may hang, and `multiprocessing` would
    import the caller's script again."""

    can_be_killed = True

    def __init__(self, recipe: Recipe, setup: Setup) -> None:
        self._described = recipe.describe()
        self._setup = setup
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        # Whether each sample was sent to be learnt, as in a gate. A spool needs no such record.
        spooled = isinstance(setup.source, SpoolSource)
        self._known = np.zeros(0 if spooled else len(setup.source), bool)
        if recipe.where.startswith("__main__:"):
            raise StreamgaugeError(
                f"The learner {recipe.name} is defined in the program that runs, where another "
                f"process cannot find it: move it to a file, or use the trainer 'thread'."
            )

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def open(self, state: dict[str, Any] | None) -> Ints:
        first = self._first_message(state)
        self.close()
        ours, theirs = Pipe()
        threads = str(self._setup.threads)
        self._process = subprocess.Popen(
            [sys.executable, "-c", START_BACKEND, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=2,  # our own output may be what a client reads
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
                "OMP_NUM_THREADS": threads,
                "MKL_NUM_THREADS": threads,
            },
        )
        theirs.close()
        self._pipe = ours
        return np.asarray(self._request(first, START_SECONDS))

    def _first_message(self, state: dict[str, Any] | None) -> bytes:
        try:
            return pack((self._described, self._setup, state, np.flatnonzero(self._known)))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise StreamgaugeError(
                f"The stream's source cannot be sent to another process ({error}): "
                f"use the trainer 'thread'."
            ) from None

    def train(self, request: TrainingRequest, seconds: float) -> Update:
        if len(self._known):
            self._known[request.index] = True
        late = f"it hung: a job had not ended after {seconds:.0f} s"
        return Update(*self._request(pickle.dumps(request, protocol=5), seconds, late))

    def _request(self, message: bytes, seconds: float, late: str = "") -> Any:
        assert self._pipe is not None
        # A process that is stopped, or stuck, may neither read all of a request nor write all of a
        # reply, so the deadline covers both.
        process, expired = self._process, threading.Event()
        assert process is not None

        def give_up() -> None:
            expired.set()
            process.kill()

        watchdog = threading.Timer(min(seconds, threading.TIMEOUT_MAX), give_up)
        watchdog.daemon = True
        watchdog.start()
        try:
            self._pipe.send_bytes(message)
            good, reply = pickle.loads(self._pipe.recv_bytes())
        except (EOFError, OSError):
            reason = self._exit_reason()  # waits for the end of a process that was killed
            why = late or f"it was not ready after {seconds:.0f} s"
            raise TrainerDied(why if expired.is_set() else reason) from None
        finally:
            watchdog.cancel()
        if not good:
            raise StreamgaugeError(reply)
        return reply

    def _exit_reason(self) -> str:
        assert self._process is not None
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "it stopped listening"
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"it ended with code {code}"

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def close(self) -> None:
        """Kill the process; the result of its request is not needed any more."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        # The pipe is left to the thread that reads it: its end closes with the process.


def failure(request: TrainingRequest, error: Exception) -> str:
    what = f"{type(error).__name__}: {error}"
    return f"The learner failed while training on step {request.step} ({what})."


@contextmanager
def start_trainer(
    kind: Kind,
    recipe: Recipe,
    setup: Setup,
    wake: Callable[[], None],
    log: Logger,
    state: dict[str, Any] | None = None,
    hang: float | None = None,
) -> Iterator[BackgroundTrainer]:
    """A trainer that is ready; closed at the end of the block."""
    if kind not in ("process", "thread"):
        raise StreamgaugeError(f"A trainer is a 'process' or a 'thread', not '{kind}'.")
    backend = (ThreadBackend if kind == "thread" else ProcessBackend)(recipe, setup)
    with closing(BackgroundTrainer(backend, wake, log, state, hang)) as trainer:
        trainer.wait_until_ready()
        yield trainer


def serve_backend(descriptor: int) -> None:
    """What the process of a `ProcessBackend` does, until its pipe is closed."""
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that answers
        _train_requests(Connection(descriptor))


def _train_requests(pipe: Connection) -> None:
    import torch

    def reply(good: bool, value: Any) -> None:
        pipe.send_bytes(pickle.dumps((good, value), protocol=5))

    described, setup, state, known = pickle.loads(pipe.recv_bytes())
    torch.set_num_threads(setup.threads)
    name = f"{described['name']}={described['where']}"
    try:
        recipe = catalogue.learner(name, **described["settings"])
        trainer = LocalTrainer(recipe, setup, state, known)
    except Exception as error:
        sentence = str(error)
        if not isinstance(error, StreamgaugeError):
            traceback.print_exc()
            why = f"{type(error).__name__}: {error}"
            sentence = f"The learner could not be built in the trainer's process ({why})."
        reply(False, sentence)
        return
    reply(True, stored_addresses(trainer.adapter))
    while True:
        request = pickle.loads(pipe.recv_bytes())
        try:
            update = trainer.train(request)
        except Exception as error:
            traceback.print_exc()
            reply(False, failure(request, error))
        else:
            pipe.send_bytes(pack((True, tuple(update))))
