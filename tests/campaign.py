"""Many cases on several cores: forked workers with limits, a state file, and findings by kind.

A campaign has parts, each with numbered cases. A forked worker tries cases of one part one after
another for a slice of time; it inherits what the process has imported and compiled. A case that
takes longer than the limit is a hang, and one that ends the worker is a crash: both are findings,
and a new worker goes on after them. The limit is of the processor's time, as the machine may be
busy; a case that only waits is a hang after IDLE times as long by the clock. With a state file, a
campaign that was stopped goes on later where it was, and the file holds the result at any time.
"""

from __future__ import annotations

import base64
import faulthandler
import io
import json
import mmap
import os
import signal
import struct
import tarfile
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from provenance import provenance

_AT = struct.Struct("qdd")  # number of the case, when it began: clock, processor time
_COUNT = struct.Struct("q")
IDLE = 5
START_SECONDS = 300.0  # until the first case of a worker
SLICE_SECONDS = 15.0  # of a worker, then another part may have its turn
KEPT = 20  # numbers per finding, and the largest input kept, in kB


def fast_folder() -> str | None:
    """A folder in memory, where there is one with room."""
    shared = "/dev/shm"
    if not os.access(shared, os.W_OK):
        return None
    about = os.statvfs(shared)
    return shared if about.f_bavail * about.f_frsize > 1 << 28 else None


class Report:
    """What a worker says: each case as it begins, its outcome, and findings."""

    def __init__(self, outcomes: tuple[str, ...], end: float) -> None:
        self.outcomes, self.end = outcomes, end
        self.turn: float | None = None  # when this worker ends, from its first case on
        self.memory = mmap.mmap(-1, _AT.size + len(outcomes) * _COUNT.size)
        self.lines = tempfile.TemporaryFile("w+", dir=fast_folder())  # noqa: SIM115
        self.stack = tempfile.TemporaryFile("w+", dir=fast_folder())  # noqa: SIM115

    def begin(self, number: int) -> bool:
        """False where the worker's time is over: the case is not tried."""
        now = time.monotonic()
        if self.turn is None:
            self.turn = now + SLICE_SECONDS
        if now > min(self.end, self.turn):
            return False
        _AT.pack_into(self.memory, 0, number, now, time.process_time())
        return True

    def note(self, outcome: str, number: int, why: str = "", files: Any = None) -> None:
        """A case has ended; `why` makes it a finding, with the files of its input."""
        at = _AT.size + self.outcomes.index(outcome) * _COUNT.size
        (count,) = _COUNT.unpack_from(self.memory, at)
        _COUNT.pack_into(self.memory, at, count + 1)
        if why:
            self.say(outcome, number, why, packed(files))

    def say(self, kind: str, number: int, why: str, input: str = "") -> None:
        line = {"kind": kind, "number": number, "why": why, "input": input}
        self.lines.write(json.dumps(line) + "\n")
        self.lines.flush()

    def began(self) -> tuple[int, float, float]:
        return _AT.unpack_from(self.memory, 0)

    def counts(self) -> dict[str, int]:
        values = struct.unpack_from(f"{len(self.outcomes)}q", self.memory, _AT.size)
        return {name: n for name, n in zip(self.outcomes, values, strict=True) if n}

    def where(self) -> str:
        """The innermost frames of a worker that hung."""
        self.stack.seek(0)
        frames = [line.strip() for line in self.stack if line.startswith("  File")]
        return " < ".join(frame.removeprefix("File ") for frame in frames[:8])

    def findings(self) -> list[dict[str, Any]]:
        self.lines.seek(0)
        return [json.loads(line) for line in self.lines]


def _takes_longer(pid: int, case: tuple[int, float, float], limit: float) -> bool:
    """Whether a case of a process takes longer than the limit."""
    _, began, used_before = case
    waited = time.monotonic() - began
    if waited <= limit:
        return False
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        used = (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
    except OSError:  # not Linux
        return True
    return used - used_before > limit or waited > IDLE * limit


def packed(files: Mapping[str, bytes] | None) -> str:
    """The files of an input as text, "" if there are none or they are too large."""
    if not files:
        return ""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:xz") as archive:
        for name, data in files.items():
            about = tarfile.TarInfo(name)
            about.size = len(data)
            archive.addfile(about, io.BytesIO(data))
    text = base64.b64encode(out.getvalue()).decode()
    return text if len(text) < KEPT * 1000 else ""


def unpacked(text: str) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(text))) as archive:
        return {m.name: archive.extractfile(m).read() for m in archive}  # type: ignore[union-attr]


@dataclass
class Part:
    planned: int
    done: list[list[int]] = field(default_factory=list)  # from, to, in order and apart
    counts: Counter[str] = field(default_factory=Counter)
    processor_seconds: float = 0.0

    def left(self) -> list[tuple[int, int]]:
        gaps, at = [], 0
        for start, stop in [*self.done, [self.planned, self.planned]]:
            if at < min(start, self.planned):
                gaps.append((at, min(start, self.planned)))
            at = max(at, stop)
        return gaps

    def add(self, start: int, stop: int) -> None:
        merged: list[list[int]] = []
        for begin, end in sorted([*self.done, [start, stop]]):
            if merged and begin <= merged[-1][1]:
                merged[-1][1] = max(end, merged[-1][1])
            elif begin < end:
                merged.append([begin, end])
        self.done = merged

    @property
    def tried(self) -> int:
        return sum(stop - start for start, stop in self.done)


@dataclass
class _Worker:
    name: str
    start: int
    stop: int
    report: Report


Work = Callable[[str, int, int, Report, Path], None]


class Campaign:
    """`work(part, start, stop, report, folder)` tries cases in a forked process.

    `settings` say what makes the cases, such as a seed; a state file of others is refused.
    `folder` is the worker's own, empty, and is removed after it.
    """

    def __init__(
        self, plan: Mapping[str, int], work: Work, outcomes: tuple[str, ...], *,
        workers: int = 1, seconds: float = 1e9, limit: float = 60.0, block: int = 1000,
        state: Path | None = None, settings: Mapping[str, Any] | None = None,
        say: Callable[[str], None] = lambda text: print(text, flush=True),
    ) -> None:  # fmt: skip
        self.parts = {name: Part(count) for name, count in plan.items()}
        self.work, self.outcomes = work, (*outcomes, "hang", "crash")
        self.workers, self.limit, self.block = workers, limit, block
        self.code = [provenance()]  # more than one where a later call had other code
        self.end = time.monotonic() + seconds
        self.state, self.settings, self.say = state, dict(settings or {}), say
        self.findings: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.seconds, self.began, self.saved = 0.0, time.monotonic(), 0.0
        if state is not None and state.exists():
            self._read(json.loads(state.read_text()))

    def run(self) -> None:
        blocks = self._blocks()
        running: dict[int, _Worker] = {}
        with tempfile.TemporaryDirectory(prefix="campaign-", dir=fast_folder()) as name:
            base = Path(name)
            try:
                while running or (blocks and time.monotonic() < self.end):
                    while blocks and len(running) < self.workers and time.monotonic() < self.end:
                        worker = self._start(base, *blocks.pop(0))
                        running[worker[0]] = worker[1]
                    time.sleep(0.005)
                    for pid in list(running):
                        if rest := self._ended(pid, running):
                            blocks.insert(0, rest)
                    if time.monotonic() - self.saved > 10:
                        self._save()
            finally:
                for pid in running:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                self._save()

    def _blocks(self) -> list[tuple[str, int, int]]:
        """Blocks of all parts in turns, so that each gets on as far as the others."""
        found = []
        for name, part in self.parts.items():
            for start, stop in part.left():
                for at in range(start, stop, self.block):
                    found.append((at / part.planned, name, at, min(at + self.block, stop)))
        return [(name, start, stop) for _, name, start, stop in sorted(found)]

    def _start(self, base: Path, name: str, start: int, stop: int) -> tuple[int, _Worker]:
        report = Report(self.outcomes, self.end)
        _AT.pack_into(report.memory, 0, start - 1, time.monotonic(), 0.0)
        child = os.fork()
        if child == 0:
            code = 1
            faulthandler.register(signal.SIGUSR1, file=report.stack)
            try:
                with tempfile.TemporaryDirectory(dir=base) as folder:
                    self.work(name, start, stop, report, Path(folder))
                code = 0
            except BaseException as error:
                report.say("driver", report.began()[0], repr(error))
            finally:
                os._exit(code)
        return child, _Worker(name, start, stop, report)

    def _ended(self, pid: int, running: dict[int, _Worker]) -> tuple[str, int, int] | None:
        """What is left of the block of a worker that has ended, or that takes too long."""
        worker = running[pid]
        done, status, used = os.wait4(pid, os.WNOHANG)
        case = worker.report.began()
        limit = self.limit if case[0] >= worker.start else START_SECONDS
        hung = not done and _takes_longer(pid, case, limit)
        if hung:  # a read while the worker writes may give half of each: read again
            time.sleep(0.05)
            hung = worker.report.began() == case
        if hung:
            os.kill(pid, signal.SIGUSR1)
            time.sleep(0.2)
            os.kill(pid, signal.SIGKILL)
            done, status, used = os.wait4(pid, 0)
        if not done:
            return None
        del running[pid]
        code = os.waitstatus_to_exitcode(status)
        part, counts = self.parts[worker.name], worker.report.counts()
        part.processor_seconds += used.ru_utime + used.ru_stime
        at = worker.report.began()[0]
        for found in worker.report.findings():
            if found["kind"] == "driver":
                raise SystemExit(f"The driver failed in '{worker.name}': {found['why']}")
            self._find(worker.name, **found)
        if at < worker.start and (hung or code):
            raise SystemExit(f"A worker of '{worker.name}' did not start (exit code {code}).")
        part.counts.update(counts)
        if hung or code:
            kind = "hang" if hung else "crash"
            part.counts[kind] += 1
            why = (
                f"over {self.limit:.0f} s: {worker.report.where()}" if hung else f"exit code {code}"
            )
            self._find(worker.name, kind, at, why, "")
        part.add(worker.start, at + 1)
        return (worker.name, at + 1, worker.stop) if at + 1 < worker.stop else None

    def _find(self, name: str, kind: str, number: int, why: str, input: str) -> None:
        key = (name, kind, why.partition(": ")[0])
        known = self.findings.get(key)
        if known is None:
            self.findings[key] = {"part": name, "kind": kind, "why": why, "times": 1,
                                  "numbers": [number], "input": input}  # fmt: skip
            self.say(f"{name} {number}: {kind}: {why}")
            return
        known["times"] += 1
        known["numbers"] = sorted({*known["numbers"], number})[:KEPT]

    def result(self) -> dict[str, Any]:
        return {
            "settings": self.settings,
            "code": self.code,
            "complete": not self._blocks(),
            "tried": sum(part.tried for part in self.parts.values()),
            "seconds": round(self.seconds + time.monotonic() - self.began, 1),
            "workers": self.workers,
            "parts": {
                name: {"planned": part.planned, "tried": part.tried, "done": part.done,
                       "counts": dict(part.counts),
                       "processor_seconds": round(part.processor_seconds, 1)}
                for name, part in self.parts.items()
            },
            "findings": list(self.findings.values()),
        }  # fmt: skip

    def _save(self) -> None:
        self.saved = time.monotonic()
        if self.state is not None:
            self.state.parent.mkdir(parents=True, exist_ok=True)
            part = self.state.with_name(self.state.name + ".part")
            part.write_text(json.dumps(self.result(), indent=1) + "\n")
            part.replace(self.state)

    def _read(self, stored: Mapping[str, Any]) -> None:
        if stored["settings"] != self.settings:
            raise SystemExit(f"{self.state} is of other settings: {stored['settings']}.")
        self.seconds = stored["seconds"]
        self.code = list(dict.fromkeys([*stored.get("code", ["unknown code"]), *self.code]))
        for name, values in stored["parts"].items():
            if name not in self.parts:
                self.parts[name] = Part(0)
            part = self.parts[name]
            part.done, part.counts = values["done"], Counter(values["counts"])
            part.processor_seconds = values["processor_seconds"]
        for found in stored["findings"]:
            key = (found["part"], found["kind"], found["why"].partition(": ")[0])
            self.findings[key] = found

    def table(self, unit: str) -> str:
        """Cases, outcomes and processor time per part, and every finding."""
        outcomes = [o for o in self.outcomes if any(p.counts[o] for p in self.parts.values())]
        rows = [["part", unit, *outcomes, "ms each"]]
        for name, part in sorted(self.parts.items()):
            each = f"{1000 * part.processor_seconds / max(1, part.tried):.1f}"
            rows.append([name, f"{part.tried:,}", *(f"{part.counts[o]:,}" for o in outcomes), each])
        widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
        lines = ["  ".join(cell.rjust(w) if n else cell.ljust(w) for n, (cell, w) in
                           enumerate(zip(row, widths, strict=True))) for row in rows]  # fmt: skip
        result = self.result()
        planned = sum(part.planned for part in self.parts.values())
        lines.append(f"{result['tried']:,} of {planned:,} {unit}"
                     f" in {result['seconds']:,.0f} s with {self.workers} workers,"
                     f" {len(self.findings)} kinds of findings")  # fmt: skip
        for found in self.findings.values():
            lines.append(f"  {found['part']} {found['numbers'][0]} ({found['times']} times): "
                         f"{found['kind']}: {found['why']}")  # fmt: skip
        return "\n".join([*lines, self.last_line(unit)])

    def last_line(self, unit: str) -> str:
        """Tried, findings, time and code in one line, for docs/promises.md."""
        planned = sum(part.planned for part in self.parts.values())
        tried = sum(part.tried for part in self.parts.values())
        found = sum(finding["times"] for finding in self.findings.values())
        minutes = sum(part.processor_seconds for part in self.parts.values()) / 60
        kinds = f" (kinds: {len(self.findings)})" if self.findings else ""
        given = "".join(f", {name} {value}" for name, value in self.settings.items())
        return (
            f"RESULT: {found:,} findings{kinds} in {tried:,} of {planned:,} {unit}{given};"
            f" {minutes:.1f} core-minutes; {' and '.join(self.code)}"
        )


def one_thread() -> None:
    """Refuses to fork a process with threads: a child could wait for a lock for ever."""
    others = [thread.name for thread in threading.enumerate() if thread.name != "MainThread"]
    if others:
        raise SystemExit(f"Threads run before the fork: {others}")
