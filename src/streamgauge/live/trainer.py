"""Trainers that work beside the answers: in a thread, or in a process that may die and come back.

Either way a thread here waits for the work to be done, and the desk only looks whether it has
been. A state that arrives is whole before anyone else sees it.
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
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Literal, Protocol

import numpy as np

from streamgauge.catalogue import Recipe
from streamgauge.errors import StreamgaugeError
from streamgauge.live.bench import NOTHING, Bench, Setup, addresses, pack, unpack
from streamgauge.live.desk import Ints, Job, Lost, Update
from streamgauge.live.spool import SpoolSource

Kind = Literal["process", "thread"]
MOST_DEATHS = 3  # in a row, without a job done in between
START_SECONDS = 120.0  # for a trainer to be ready, and for its first job
# A job that takes this many times as long as the longest so far, and at least so many seconds, does
# not come back: no learner's jobs differ that much, and a machine has other things to do.
HANGS_AFTER = 20.0
HANGS_SECONDS = 10.0


class Gone(Exception):
    """The process that trained is no more."""


class Hands(Protocol):
    """What does the work: `Here` in this process, `Elsewhere` in another."""

    can_be_ended: bool

    def open(self, state: dict[str, Any] | None) -> Ints:
        """Get ready, from a state; returns the addresses that the learner may read."""

    def do(self, job: Job, seconds: float) -> Update:
        """Raises `Gone` if it takes longer than so many seconds, where it can be ended."""

    def alive(self) -> bool: ...
    def close(self) -> None: ...


class Worker:
    """A trainer for the desk: hands, and a thread that waits for them.

    When the hands die they are replaced and go on from the last version that was handed over;
    the batch that they worked on is lost, and `said` is told. `wake` is called with every outcome.
    Hands that live but do not finish are ended and replaced as well: `hang` is after how many
    seconds, by default `HANGS_AFTER` times the longest job so far.
    """

    def __init__(
        self,
        hands: Hands,
        wake: Callable[[], None] = lambda: None,
        said: Callable[[str], None] = print,
        state: dict[str, Any] | None = None,
        hang: float | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        if hang is not None and not hang > 0:
            raise StreamgaugeError(f"A trainer hangs after more than 0 seconds, not {hang}.")
        self.hands = hands
        self._hang, self._now = hang, now
        self._longest = 0.0  # seconds of a job that was done
        self._since: float | None = None  # when the job at hand was begun
        self.restarts: list[str] = []  # why, each time
        self.held: Ints = NOTHING  # what the learner may read before its first job
        self._wake, self._said, self._state = wake, said, state
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
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

    @contextmanager
    def when_ready(self) -> Iterator[None]:
        self.wait_until_ready()
        yield

    @property
    def hangs_after(self) -> float:
        """Seconds after which a job is given up."""
        if self._hang is not None:
            return self._hang
        if not self._longest:
            return START_SECONDS
        return max(HANGS_SECONDS, HANGS_AFTER * self._longest)

    def begin(self, job: Job) -> None:
        self._since = self._now()
        self._jobs.put(job)

    def collect(self) -> Update | Lost | None:
        try:
            outcome = self._outcomes.get_nowait()
        except queue.Empty:
            return self._given_up()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _given_up(self) -> Lost | None:
        """Hands that cannot be ended (a thread) are left to themselves when they hang."""
        if self.hands.can_be_ended or self._since is None or self._closed:
            return None
        if self._now() - self._since <= self.hangs_after:
            return None
        self._closed = True
        why = f"it has worked on one batch for more than {self.hangs_after:.0f} s"
        self.restarts.append(why)
        self._said(f"The trainer hangs ({why}), and a thread cannot be ended: answers go on, "
                   f"training ends.")  # fmt: skip
        return Lost(why, for_good=True)

    def wait(self, seconds: float = 600.0) -> Update | Lost:
        """The outcome, waited for."""
        try:
            outcome = self._outcomes.get(timeout=seconds)
        except queue.Empty:
            raise StreamgaugeError(
                f"The trainer has worked on one batch for {seconds:.0f} s: this learner is too "
                f"slow for a live stream here."
            ) from None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def close(self) -> None:
        """Without waiting for a process; a thread is given the time to finish its job."""
        if self._closed:
            return  # a thread that hangs is not waited for
        self._closed = True
        self._jobs.put(None)
        for _ in range(120):
            self.hands.close()  # again, should it just have been started
            self._thread.join(timeout=0.5)
            if not self._thread.is_alive():
                break

    def _run(self) -> None:
        try:
            self.held = self.hands.open(self._state)
        except Exception as error:
            self._failure = (
                StreamgaugeError(f"The trainer did not start: {error}.")
                if isinstance(error, Gone)
                else error
            )
            return
        finally:
            self._ready.set()
        while (job := self._next()) is not None:
            try:
                began = self._now()
                outcome: Update | Lost | Exception = self.hands.do(job, self.hangs_after)
                assert isinstance(outcome, Update)
                self._longest = max(self._longest, self._now() - began)
                self._state, self._deaths = outcome.state, 0
            except Gone as gone:
                outcome = self._replace(str(gone))
            except Exception as error:
                outcome = error
            self._outcomes.put(outcome)
            self._wake()

    def _next(self) -> Job | None:
        """The next job. Hands that die in the meantime are replaced before it comes."""
        while True:
            try:
                return self._jobs.get(timeout=0.25)
            except queue.Empty:
                if self._deaths < MOST_DEATHS and not self.hands.alive():
                    self._replace("it ended while it had nothing to do")

    def _replace(self, why: str) -> Lost:
        if self._closed:
            return Lost(why, for_good=True)
        self.restarts.append(why)
        while self._deaths < MOST_DEATHS and not self._closed:
            self._deaths += 1
            self._said(f"The trainer is gone ({why}); answers go on, and it is started again.")
            try:
                self.hands.open(self._state)
            except Gone as gone:
                why = str(gone)
            else:
                self._said("The trainer is back and goes on from the last version.")
                return Lost(why)
        if self._closed:  # ended by ourselves while it was coming back: that is no death
            return Lost(why, for_good=True)
        self._said(
            f"The trainer died {MOST_DEATHS} times in a row ({why}): answers go on, training ends."
        )
        return Lost(why, for_good=True)


class Here:
    """Training in this process; the interpreter and the cores are shared with the answers."""

    can_be_ended = False

    def __init__(self, recipe: Recipe, setup: Setup) -> None:
        self._recipe, self._setup = recipe, setup
        self._bench: Bench | None = None

    def open(self, state: dict[str, Any] | None) -> Ints:
        self._bench = Bench(self._recipe, self._setup, state)
        return addresses(self._bench.learner)

    def do(self, job: Job, seconds: float) -> Update:
        assert self._bench is not None
        try:
            update = self._bench.do(job)
        except Exception as error:
            raise _failed(job, error) from error
        # The learner goes on changing its own tensors: what is served must be a copy.
        return update._replace(state=unpack(pack(update.state)))

    def alive(self) -> bool:
        return True

    def close(self) -> None:
        pass


class Elsewhere:
    """Training in a process of its own, which knows nothing but what comes through a pipe.

    It is started as a program and not as a copy of this one: a copy of a process with threads may
    hang, and one that imports the caller's script again would run it again.
    """

    can_be_ended = True

    def __init__(self, recipe: Recipe, setup: Setup) -> None:
        self._described = recipe.describe()
        self._setup = setup
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        # What was sent to be learnt, a byte a sample as in a gate. A spool needs no such thing.
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
        first = self._first(state)
        self.close()
        ours, theirs = Pipe()
        threads = str(self._setup.threads)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "streamgauge.live.child", str(theirs.fileno())],
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
        held = self._ask(first, START_SECONDS)
        return np.asarray(held)

    def _first(self, state: dict[str, Any] | None) -> bytes:
        try:
            known = np.flatnonzero(self._known)
            packed = None if state is None else pack(state)
            return pickle.dumps((self._described, self._setup, packed, known), protocol=5)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise StreamgaugeError(
                f"The stream's source cannot be handed to another process ({error}): "
                f"use the trainer 'thread'."
            ) from None

    def do(self, job: Job, seconds: float) -> Update:
        if len(self._known):
            self._known[job.index] = True
        late = f"it hung: a job had not ended after {seconds:.0f} s"
        update, state = self._ask(pickle.dumps(job, protocol=5), seconds, late)
        return Update(*update)._replace(state=unpack(state))

    def _ask(self, message: bytes, seconds: float, late: str = "") -> Any:
        assert self._pipe is not None
        try:
            self._pipe.send_bytes(message)
            if not self._pipe.poll(seconds):
                self.close()
                raise Gone(late or f"it was not ready after {seconds:.0f} s")
            good, reply = pickle.loads(self._pipe.recv_bytes())
        except (EOFError, OSError):
            raise Gone(self._why()) from None
        if not good:
            raise StreamgaugeError(reply)
        return reply

    def _why(self) -> str:
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
        """What it was working on is of no use any more, so it need not finish."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        # The pipe is left to the thread that reads it: its end closes with the process.


def _failed(job: Job, error: Exception) -> StreamgaugeError:
    return StreamgaugeError(failure(job, error))


def failure(job: Job, error: Exception) -> str:
    what = f"{type(error).__name__}: {error}"
    return f"The learner failed while training on step {job.step} ({what})."


def hire(
    kind: Kind,
    recipe: Recipe,
    setup: Setup,
    wake: Callable[[], None],
    said: Callable[[str], None],
    state: dict[str, Any] | None = None,
    hang: float | None = None,
) -> Worker:
    """A trainer of a kind, on its way to being ready."""
    if kind not in ("process", "thread"):
        raise StreamgaugeError(f"A trainer is a 'process' or a 'thread', not '{kind}'.")
    hands: Hands = Here(recipe, setup) if kind == "thread" else Elsewhere(recipe, setup)
    return Worker(hands, wake, said, state, hang)
