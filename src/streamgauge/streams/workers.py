"""Worker processes that end with their work, and with the process that started them.

Each worker has its own pipe and answers tasks in the order they were sent, with a result or an
exception. There is no lock that a killed worker could keep: its pipe closes, which is noticed.
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


class Failed(Exception):
    """An unexpected error in a worker, in words."""


class Workers:
    """`count` processes that each call `work(task)` for what they are sent.

    They are forked, so they share what the parent holds: tens of millions of paths are not copied.
    """

    def __init__(self, count: int, work: Work) -> None:
        context: Any = multiprocessing.get_context("fork")
        self.pipes: list[Any] = []
        self.processes = []
        for _ in range(count):
            ours, theirs = context.Pipe()
            inherited = [*self.pipes, ours]
            process = context.Process(target=_serve, args=(theirs, work, inherited), daemon=True)
            with warnings.catch_warnings():
                # Python warns where a process with threads is forked, since a child could wait for
                # a lock that no thread of its own holds; the children only read, decode and write.
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)

    def __len__(self) -> int:
        return len(self.pipes)

    def send(self, worker: int, task: Any) -> bool:
        """False if that worker is gone."""
        try:
            self.pipes[worker].send(task)
        except (OSError, ValueError):
            return False
        return True

    def receive(self, workers: Iterable[int], timeout: float | None) -> list[tuple[int, Any]]:
        """What came from any of these workers by now, waiting for the first; (worker, None) of one
        that is gone."""
        number = {id(self.pipes[w]): w for w in workers}
        waiting = [self.pipes[w] for w in number.values()]
        came = []
        ready: list[Any] = wait(waiting, timeout)
        for pipe in ready:
            try:
                came.append((number[id(pipe)], pipe.recv()))
            except (EOFError, OSError):
                came.append((number[id(pipe)], None))
        return came

    def stop(self) -> None:
        """End all of them; a task under way is given up."""
        for pipe in self.pipes:
            pipe.close()
        for process in self.processes:
            process.terminate()
            process.join()


def _serve(pipe: Connection, work: Work, inherited: list[Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in inherited:  # or this process would keep the others from noticing the parent's end
        other.close()
    if hasattr(work, "progress"):  # reported as whole numbers
        work.progress = pipe.send
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
    """Processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
