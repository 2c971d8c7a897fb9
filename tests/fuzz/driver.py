"""The mutational fuzzer: inputs made from valid ones, each read by a worker with limits.

    python tests/fuzz/driver.py --inputs 1000000 --workers 2 --out findings

A worker reads one input after another and says which one it is at. A worker that takes longer than
--limit seconds for an input is ended: a hang. One that dies is a crash. One whose memory grows by
more than --memory megabytes with an input is a finding, too, as is every exception other than
`StreamgaugeError`. The same --seed makes the same inputs; --only TARGET --at NUMBER repeats one.
The exit code is 1 if there is a finding.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import queue
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "src")]

CHUNK = 20_000  # inputs per worker process
START_SECONDS = 180.0  # for imports and seeds
_AT = struct.Struct("<qd")  # number of the input, when it began


class Outcome(Exception):
    """What is wrong with an input."""


def try_input(target: Any, folder: Path) -> str:
    """ "accepted" or "refused"; raises `Outcome` with the kind and place of a finding."""
    from streamgauge.errors import StreamgaugeError

    try:
        target.run(folder)
    except StreamgaugeError as error:
        if not str(error).strip():
            raise Outcome("empty message") from error
        return "refused"
    except Exception as error:
        raise Outcome(signature(error)) from error
    return "accepted"


def signature(error: BaseException) -> str:
    """The type, and the last line of Streamgauge that it went through."""
    package = str(HERE.parents[1] / "src" / "streamgauge")
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(package)
    ]
    at = frames[-1] if frames else None
    where = f"{Path(at.filename).relative_to(package)}:{at.lineno}" if at else "outside"
    text = (str(error).splitlines() or [""])[0][:120]
    return f"{type(error).__name__} at {where}: {text}"


def work(name: str, seed: int, start: int, stop: int, state: str, memory: int) -> None:
    """The worker: reads inputs start..stop-1 and prints a line of JSON per finding."""
    import resource
    import warnings

    warnings.simplefilter("ignore")
    with open(state, "r+b") as file:
        shared = mmap.mmap(file.fileno(), _AT.size)
    lines = os.fdopen(os.dup(1), "w", buffering=1)

    def say(**values: Any) -> None:
        lines.write(json.dumps(values) + "\n")

    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    from targets import TARGETS, in_folder, make_input

    target = TARGETS[name]
    counts: Counter[str] = Counter()

    def peak() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=_fast()) as base:
        for files in target.seeds():  # valid inputs first: what they load is no finding
            with in_folder(Path(base), files) as folder:
                try_input(target, folder)
        before = peak()
        for number in range(start, stop):
            _AT.pack_into(shared, 0, number, time.monotonic())
            with in_folder(Path(base), make_input(target, seed, number)) as folder:
                try:
                    counts[try_input(target, folder)] += 1
                except Outcome as found:
                    say(at=number, kind="traceback", why=str(found))
                    counts["traceback"] += 1
            grown = peak() - before
            if grown > memory:
                say(at=number, kind="memory", why=f"{grown} MB")
                counts["memory"] += 1
            # A fresh worker after much memory, and after a slow rise over many inputs.
            if grown > memory or (grown > memory // 4 and number % 2000 == 0):
                break
        say(counts=counts, next=number + 1)


def quick(targets: list[Any], seed: int, count: int) -> int:
    """The same inputs without workers and limits, for a test that takes seconds."""
    from targets import in_folder, make_input

    found = 0
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=_fast()) as base:
        for target in targets:
            for number in range(count):
                with in_folder(Path(base), make_input(target, seed, number)) as folder:
                    try:
                        try_input(target, folder)
                    except Outcome as outcome:
                        print(f"{target.name} {number}: {outcome}")
                        found += 1
    print(f"{count * len(targets):,} inputs, {found:,} findings.")
    return 1 if found else 0


def repeat_failed() -> int:
    """Every input in `failed/`, each of which was a finding once."""
    from targets import TARGETS, in_folder, read_files

    folders, found = sorted((HERE / "failed").iterdir()), 0
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=_fast()) as base:
        for one in folders:
            target = TARGETS[one.name.partition("-")[0].replace("_", " ")]
            with in_folder(Path(base), read_files(one)) as folder:
                try:
                    try_input(target, folder)
                except Outcome as outcome:
                    print(f"{one.name}: {outcome}")
                    found += 1
    print(f"{len(folders)} inputs, {found} findings.")
    return 1 if found else 0


def _fast() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class Campaign:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.counts: dict[str, Counter[str]] = {}
        self.findings: dict[tuple[str, str, str], list[int]] = {}
        self.lock = threading.Lock()
        self.chunks: queue.Queue[tuple[str, int, int]] = queue.Queue()
        self.end = time.monotonic() + options.seconds

    def plan(self, targets: dict[str, Any]) -> None:
        total = sum(target.weight for target in targets.values())
        plans = {name: max(1, round(self.options.inputs * t.weight / total)) for name, t in
                 targets.items()}  # fmt: skip
        for begin in range(0, max(plans.values()), CHUNK):
            for name, count in plans.items():
                if begin < count:
                    self.chunks.put((name, begin, min(begin + CHUNK, count)))

    def run(self) -> None:
        threads = [threading.Thread(target=self._thread) for _ in range(self.options.workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _thread(self) -> None:
        while time.monotonic() < self.end:
            try:
                name, start, stop = self.chunks.get_nowait()
            except queue.Empty:
                return
            while start < stop and time.monotonic() < self.end:
                start = self._chunk(name, start, stop)

    def _chunk(self, name: str, start: int, stop: int) -> int:
        """One worker process; returns the number of the input to go on with."""
        with tempfile.NamedTemporaryFile(dir=_fast()) as state:
            state.write(_AT.pack(start - 1, time.monotonic()))
            state.flush()
            command = [sys.executable, __file__, "--work", name, "--seed", str(self.options.seed),
                       "--range", f"{start}:{stop}", "--state", state.name,
                       "--memory", str(self.options.memory)]  # fmt: skip
            worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            lines: list[dict[str, Any]] = []
            reader = threading.Thread(target=self._read, args=(worker, lines))
            reader.start()
            hung = stopped = False
            while worker.poll() is None:
                time.sleep(0.1)
                at, began = _AT.unpack(Path(state.name).read_bytes())
                limit = self.options.limit if at >= start else START_SECONDS
                hung = time.monotonic() - began > limit
                stopped = time.monotonic() > self.end
                if hung or stopped:
                    worker.kill()
                    break
            worker.wait()
            reader.join()
            at, _ = _AT.unpack(Path(state.name).read_bytes())
        return self._note(name, lines, at, hung, stopped, worker.returncode, start)

    @staticmethod
    def _read(worker: Any, lines: list[dict[str, Any]]) -> None:
        for line in worker.stdout:
            lines.append(json.loads(line))

    def _note(self, name: str, lines: list[dict[str, Any]], at: int, hung: bool, stopped: bool,
              code: int, start: int) -> int:  # fmt: skip
        with self.lock:
            counts = self.counts.setdefault(name, Counter())
            done = None
            for line in lines:
                if "counts" in line:
                    counts.update(line["counts"])
                    done = int(line["next"])
                else:
                    self._add(name, line["kind"], line["why"], line["at"])
            if done is not None:
                return done
            if at < start:
                raise SystemExit(f"The worker of '{name}' did not start (exit {code}).")
            counts["inputs without counts"] += at - start
            counts["traceback"] += sum("at" in line for line in lines)
            if stopped and not hung:
                return at
            kind = "hang" if hung else "crash"
            counts[kind] += 1
            self._add(name, kind, f"signal {-code}" if code < 0 else f"exit {code}", at)
            return at + 1

    def _add(self, name: str, kind: str, why: str, number: int) -> None:
        key = why.partition(": ")[0]
        known = self.findings.setdefault((name, kind, key), [])
        known.append(number)
        if len(known) == 1:
            print(f"{name} {number}: {kind}: {why}", flush=True)
            if self.options.out:
                self._save(name, kind, number)

    def _save(self, name: str, kind: str, number: int) -> None:
        from targets import TARGETS, make_input, write_files

        files = make_input(TARGETS[name], self.options.seed, number)
        write_files(Path(self.options.out) / f"{name.replace(' ', '_')}-{kind}-{number}", files)

    def report(self) -> int:
        total, found = 0, 0
        print(f"{'target':14} {'inputs':>9} {'accepted':>9} {'refused':>9} "
              f"{'traceback':>9} {'hang':>5} {'crash':>5} {'memory':>6}")  # fmt: skip
        for name, counts in sorted(self.counts.items()):
            bad = [counts[kind] for kind in ("traceback", "hang", "crash", "memory")]
            inputs = counts["accepted"] + counts["refused"] + counts["traceback"]
            inputs += counts["inputs without counts"] + counts["hang"] + counts["crash"]
            total, found = total + inputs, found + sum(bad)
            print(f"{name:14} {inputs:9,} {counts['accepted']:9,} {counts['refused']:9,} "
                  f"{bad[0]:9,} {bad[1]:5} {bad[2]:5} {bad[3]:6}")  # fmt: skip
        print(f"{total:,} inputs, {found:,} findings of {len(self.findings)} kinds.")
        for (name, kind, why), numbers in sorted(self.findings.items()):
            print(f"  {name} {numbers[0]} ({len(numbers)}): {kind}: {why}")
        return 1 if self.findings else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=20.0, help="seconds per input")
    parser.add_argument("--memory", type=int, default=1000, help="megabytes per input")
    parser.add_argument("--only", help="targets, separated by commas")
    parser.add_argument("--at", type=int, help="repeat one input of --only, with its traceback")
    parser.add_argument("--quick", type=int, help="inputs per target, all in this process")
    parser.add_argument("--out", help="folder for the inputs of findings")
    for hidden in ("--work", "--range", "--state"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        start, _, stop = options.range.partition(":")
        work(options.work, options.seed, int(start), int(stop), options.state, options.memory)
        return
    from targets import TARGETS, in_folder, make_input

    if options.at is not None:
        target = TARGETS[options.only]
        files = make_input(target, options.seed, options.at)
        with tempfile.TemporaryDirectory() as base, in_folder(Path(base), files) as folder:
            target.run(folder)
        return
    names = options.only.split(",") if options.only else list(TARGETS)
    if options.quick:
        sys.exit(quick([TARGETS[name] for name in names], options.seed, options.quick))
    campaign = Campaign(options)
    campaign.plan({name: TARGETS[name] for name in names})
    campaign.run()
    sys.exit(campaign.report())


if __name__ == "__main__":
    main()
