"""A sign of life of a run: `heartbeat.json` in its folder, written every two seconds.

A checkpoint comes every half minute, and a step can take longer; the heartbeat comes from a thread
of its own. It is no part of the log: nothing is computed from it, it is not synced to disk, and it
is removed when the run ends in an orderly way, with or without an error. So a heartbeat that is old
belongs to a process that was killed, or stopped, or has lost its machine.
"""

from __future__ import annotations

import json
import math
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from streamgauge.files import misfit, open_regular, write_unsynced

NAME = "heartbeat.json"
EVERY = 2.0  # seconds between two heartbeats
STALLED = 30.0  # seconds without a heartbeat after which a run has stalled
MOST_BYTES = 4096  # a larger file is not ours
LATELY = 30  # heartbeats over which the pace is taken
SHAPE = {
    "step": int, "steps": int, "right": int, "asked": int, "pace": float, "time": float,
    "pid": int, "host": str, "more?": dict,
}  # fmt: skip


class HeartbeatWriter:
    """Writes the file from a thread, between `start` and `stop`.

    `facts` gives `step`, `steps` (0: unknown), `right` and `asked` (answers without a shift), and
    under `more` other numbers by name. Whatever goes wrong here is no concern of the run.
    """

    def __init__(
        self, folder: Path, facts: Callable[[], Mapping[str, Any]], every: float = EVERY
    ) -> None:
        self._file, self._facts, self._every = folder / NAME, facts, every
        self._stop, self._writing = threading.Event(), threading.Lock()
        self._about: dict[str, Any] = {"pid": os.getpid(), "host": socket.gethostname()}
        self._lately: deque[tuple[float, int]] = deque(maxlen=LATELY)  # times and steps
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """The first heartbeat comes at once."""
        self._beat()
        self._thread = threading.Thread(
            target=self._go_on, name="streamgauge-heartbeat", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """No heartbeat comes after this, and the file is gone. May be called again."""
        self._stop.set()
        if self._thread is None:
            return
        if self._writing.acquire(timeout=self._every):  # a disk that hangs keeps it
            with suppress(OSError):
                self._file.unlink(missing_ok=True)
            self._writing.release()
            self._thread.join(self._every)
        self._thread = None

    def _go_on(self) -> None:
        while not self._stop.wait(self._every):
            self._beat()

    def _beat(self) -> None:
        with suppress(Exception):  # a full disk, a removed folder, a learner's own counters
            facts = self._facts()
            pace = self._pace(int(facts["step"]))
            text = json.dumps({**facts, "pace": pace, **self._about, "time": time.time()})
            with self._writing:
                if not self._stop.is_set():
                    write_unsynced(self._file, text)

    def _pace(self, step: int) -> float:
        """Steps per second lately, 0 where that is unknown."""
        now = time.monotonic()
        self._lately.append((now, step))
        since, taken = now - self._lately[0][0], step - self._lately[0][1]
        return taken / since if since > 0 else 0.0


class Heartbeat(NamedTuple):
    """The newest heartbeat of a run."""

    step: int
    steps: int  # 0: unknown
    right: int
    asked: int
    pace: float  # steps per second lately, 0 where unknown
    time: float  # by the clock of its machine
    pid: int
    host: str
    more: Mapping[str, float]

    @property
    def left(self) -> float:
        """Seconds to the end at this pace; NaN where unknown."""
        if self.pace <= 0 or not self.steps:
            return math.nan
        return (self.steps - self.step) / self.pace

    @property
    def ended(self) -> bool:
        """Whether its process is known to be gone; False for other machines."""
        if self.host != socket.gethostname() or os.name == "nt":
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except (OSError, OverflowError):  # of another user; no number of a process
            return False
        return False


def read_heartbeat(folder: Path) -> Heartbeat | None:
    """The newest heartbeat; None if there is none, or none that can be read."""
    try:
        with open_regular(folder / NAME) as file:
            data = file.read(MOST_BYTES + 1)
        value: Any = json.loads(data) if len(data) <= MOST_BYTES else None
        if misfit(value, SHAPE, ""):
            return None
        numbers = {
            str(name): float(number)
            for name, number in value.pop("more", {}).items()
            if isinstance(number, int | float) and math.isfinite(number)
        }
        known = {name: value[name] for name in Heartbeat._fields if name != "more"}
        if not all(math.isfinite(v) for v in known.values() if isinstance(v, int | float)):
            return None
    except (OSError, ValueError, RecursionError, OverflowError):  # also of numbers without end
        return None
    return Heartbeat(**known, more=numbers)
