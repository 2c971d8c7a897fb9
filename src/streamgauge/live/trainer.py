"""Trainers in the background: in a thread, or in a process that may die and is restarted.

In both cases a thread in this process waits for the training, and the dispatcher only polls it. A
state that arrives is complete before anybody else sees it.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from streamgauge.catalogue import Recipe
from streamgauge.errors import StreamgaugeError
from streamgauge.live.dispatcher import Ints, Lost, TrainingRequest, Update
from streamgauge.live.local_trainer import (
    NO_ADDRESSES,
    LocalTrainer,
    Setup,
    pack,
    stored_addresses,
    unpack,
)
from streamgauge.live.spool import SpoolSource

if TYPE_CHECKING:
    from streamgauge.running.execution import Logger

Kind = Literal["process", "thread"]
MAX_DEATHS = 3  # in a row, without a finished request in between
START_SECONDS = 120.0  # for a trainer to be ready, and for its first request
# A request that takes this many times as long as the longest so far, and at least this many
# seconds, is taken for hanging: requests of one learner do not differ that much.
HANGS_AFTER = 20.0
HANGS_SECONDS = 10.0


class TrainerDied(Exception):
    """The process that trained has ended."""


class TrainerBackend(Protocol):
    """What executes requests: `ThreadBackend` in this process, `ProcessBackend` in another."""

    can_be_killed: bool

    def open(self, state: dict[str, Any] | None) -> Ints:
        """Get ready, from a state; returns the addresses that the learner may read."""

    def train(self, request: TrainingRequest, seconds: float) -> Update:
        """Raises `TrainerDied` if it takes longer than `seconds` and can be killed."""

    def alive(self) -> bool: ...
    def close(self) -> None: ...


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


class ThreadBackend:
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

    def alive(self) -> bool:
        return True

    def close(self) -> None:
        pass


class ProcessBackend:
    """Trains in a process of its own, which is controlled through a pipe.

    The process is a new program, not a fork: a fork of a process with threads may hang, and
    `multiprocessing` would import the caller's script again.
    """

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
            [sys.executable, "-m", "streamgauge.live.trainer_process", str(theirs.fileno())],
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
            known = np.flatnonzero(self._known)
            packed = None if state is None else pack(state)
            return pickle.dumps((self._described, self._setup, packed, known), protocol=5)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise StreamgaugeError(
                f"The stream's source cannot be sent to another process ({error}): "
                f"use the trainer 'thread'."
            ) from None

    def train(self, request: TrainingRequest, seconds: float) -> Update:
        if len(self._known):
            self._known[request.index] = True
        late = f"it hung: a job had not ended after {seconds:.0f} s"
        update, state = self._request(pickle.dumps(request, protocol=5), seconds, late)
        return Update(*update)._replace(state=unpack(state))

    def _request(self, message: bytes, seconds: float, late: str = "") -> Any:
        assert self._pipe is not None
        try:
            self._pipe.send_bytes(message)
            if not self._pipe.poll(seconds):
                self.close()
                raise TrainerDied(late or f"it was not ready after {seconds:.0f} s")
            good, reply = pickle.loads(self._pipe.recv_bytes())
        except (EOFError, OSError):
            raise TrainerDied(self._exit_reason()) from None
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
