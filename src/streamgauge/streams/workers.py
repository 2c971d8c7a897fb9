"""Forked worker processes, which end with their work or with the parent process.

Each worker has its own pipe and answers tasks in the order in which they were sent. There is no
shared lock, so a killed worker blocks nobody, and its end is noticed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection, wait
from typing import Any

from streamgauge.errors import StreamgaugeError

Work = Callable[[Any], Any]
CAN_FORK = hasattr(os, "fork")  # not on Windows


class Failed(Exception):
    """An error in a worker, as text."""


class Workers:
    """`count` processes that call `work(task)` for every task they are sent. They are forked and
    share the parent's memory: tens of millions of paths are not copied."""

    def __init__(self, count: int, work: Work) -> None:
        context: Any = multiprocessing.get_context("fork")
        self.pipes: list[Any] = []
        self.processes = []
        for _ in range(count):
            ours, theirs = context.Pipe()
            inherited = [*self.pipes, ours]
            process = context.Process(target=_serve, args=(theirs, work, inherited), daemon=True)
            with warnings.catch_warnings():
                # Python warns when a process with threads is forked, since a child could wait for a
                # lock of a thread that it does not have; these only read, decode and write.
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)

    def __len__(self) -> int:
        return len(self.pipes)

    def send(self, worker: int, task: Any) -> bool:
        """Send a task; false if the worker has ended."""
        try:
            self.pipes[worker].send(task)
        except (OSError, ValueError):
            return False
        return True

    def receive(self, workers: Iterable[int], timeout: float | None) -> list[tuple[int, Any]]:
        """Answers of these workers, waiting for at least one; (worker, None) if a worker ended."""
        number = {id(self.pipes[w]): w for w in workers}
        waiting = [self.pipes[w] for w in number.values()]
        answers = []
        ready: list[Any] = wait(waiting, timeout)
        for pipe in ready:
            try:
                answers.append((number[id(pipe)], pipe.recv()))
            except (EOFError, OSError):
                answers.append((number[id(pipe)], None))
        return answers

    def stop(self) -> None:
        """End all workers; unfinished tasks are lost."""
        for pipe in self.pipes:
            pipe.close()
        for process in self.processes:
            process.terminate()
            process.join()


def _serve(pipe: Connection, work: Work, inherited: list[Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in inherited:  # an open copy would hide the parent's end from the others
        other.close()
    if hasattr(work, "report"):  # progress is sent as ints
        work.report = pipe.send
    while True:
        try:
            task = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            answer = work(task)
        except (StreamgaugeError, OSError) as error:
            answer = error
        except Exception as error:
            answer = Failed(f"{type(error).__name__}: {error}")
        try:
            pipe.send(answer)
        except OSError:
            return


def cores() -> int:
    """Number of processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
