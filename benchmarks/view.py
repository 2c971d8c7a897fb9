"""How quick `streamgauge view` stays: a poll of the page with many runs, and with a long log.

    python benchmarks/view.py                         # 2,000 runs, 50 of them running; 39 M rows
    python benchmarks/view.py --runs 200 --rows 1e6   # smaller; 0: without

Makes the folders, starts the command, and asks it as the page does. Prints the time of a poll that
has changed and of one that has not (p50, p99), seconds of the server's processor per poll, the time
until everything is counted after a start, its memory, and what one more segment of the long log
costs.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from made_runs import MadeRun, finished, header_of
from streamgauge.files import sealed
from streamgauge.record.heartbeat import HeartbeatWriter
from streamgauge.record.writer import MAX_ROWS

LEARNERS = ("er", "mir", "er_ace", "ncm", "finetune", "gss", "agem", "scr", "lwf", "derpp")


def many_runs(folder: Path, count: int, running: int) -> list[HeartbeatWriter]:
    """Complete runs of ten learners with ten rates each, and some that go on."""
    template = finished(folder, steps=1140, learner="template")
    for number in range(count - running):
        learner, rate, seed = LEARNERS[number % 10], number // 10 % 10, number // 100
        header = header_of(learner, seed, 1140, settings={"lr": 0.001 * 2**rate})
        path = folder / f"made-{learner}-s{seed}-{header['id'][:8]}"
        shutil.copytree(template, path)
        (path / "run.json").write_text(json.dumps(sealed({"log_version": 1, **header})))
    shutil.rmtree(template)
    beats = []
    for number in range(running):
        run = MadeRun(folder, steps=1140, learner=LEARNERS[number % 10], seed=1000 + number)
        run.go_on(200)
        facts = {"step": 200, "steps": 1140, "right": 1200, "asked": 2000}

        def advance(facts: dict[str, int] = facts) -> dict[str, int]:
            facts["step"] += 1
            return facts

        beats.append(HeartbeatWriter(run.path, advance))
    return beats


def long_run(folder: Path, rows: int) -> MadeRun:
    """A run of so many rows that goes on, in segments as the loop writes them."""
    batch, segment = 256, MAX_ROWS
    run = MadeRun(folder, steps=2 * rows // batch, batch=batch, learner="er", shifts=())
    while run.step * batch < rows:
        run.go_on(min(run.step + segment // batch, -(-rows // batch)))
    return run


class Asked:
    """The command, and what it costs."""

    def __init__(self, *folders: Path) -> None:
        words = [sys.executable, "-m", "streamgauge", "view", *map(str, folders), "--port", "0"]
        self.start = time.perf_counter()
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        port = int(line.partition("127.0.0.1:")[2].partition("/")[0])
        self.client = http.client.HTTPConnection("127.0.0.1", port, timeout=600)

    def ask(self, name: str, tag: str = "") -> tuple[int, str, bytes]:
        headers = {"Accept-Encoding": "gzip"} | ({"If-None-Match": tag} if tag else {})
        self.client.request("GET", f"/data/{name}", headers=headers)
        reply = self.client.getresponse()
        return reply.status, reply.headers["ETag"], reply.read()

    def value(self, name: str) -> Any:
        self.client.request("GET", f"/data/{name}")
        return json.loads(self.client.getresponse().read())

    def until_counted(self) -> float:
        while self.value("alive")["uncounted"] or not self.value("runs")["numbers"]:
            time.sleep(0.2)
        return time.perf_counter() - self.start

    def processor(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """MB: now, and at most."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        lines = dict(line.split(":", 1) for line in text.splitlines())
        return int(lines["VmHWM"].split()[0]) / 1000

    def read_bytes(self) -> int:
        text = Path(f"/proc/{self.process.pid}/io").read_text()
        return int(dict(line.split(": ") for line in text.splitlines())["rchar"])

    def close(self) -> None:
        self.process.send_signal(2)
        self.process.wait(30)


def polls(server: Asked, count: int, pause: float) -> None:
    """Ask for what has changed, as the page does."""
    took: dict[int, list[float]] = {200: [], 304: []}
    sizes, tag, before = [], "", server.processor()
    for _ in range(count):
        time.sleep(pause)
        start = time.perf_counter()
        status, tag, body = server.ask("alive", tag)
        took[status].append(1e3 * (time.perf_counter() - start))
        sizes += [len(body)] if status == 200 else []
    used = 1e3 * (server.processor() - before) / count
    for status, times in took.items():
        if len(times) > 1:
            what = "changed" if status == 200 else "not changed"
            p50, p99 = statistics.median(times), float(np.quantile(times, 0.99))
            print(f"  poll, {what} ({len(times)}): p50 {p50:.1f} ms, p99 {p99:.1f} ms")
    if sizes:
        print(f"  {statistics.median(sizes):,.0f} bytes where something has changed")
    print(f"  {used:.2f} ms of the processor per poll, with the looks at the folders between")


def tabs(server: Asked) -> None:
    for name in ("runs", "board?filter=", "stream?filter=", "board?filter=learner:er"):
        before, start = server.processor(), time.perf_counter()
        _, tag, body = server.ask(name)
        first, used = time.perf_counter() - start, server.processor() - before
        start = time.perf_counter()
        server.ask(name, tag)
        again = time.perf_counter() - start
        print(
            f"  /data/{name}: {first:.2f} s ({used:.2f} s of the processor), {len(body):,} bytes"
            f" packed; again {1e3 * again:.1f} ms"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--running", type=int, default=50)
    parser.add_argument("--rows", type=float, default=39e6)
    parser.add_argument("--polls", type=int, default=300)
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as name:
        if options.runs:
            with_many_runs(Path(name) / "many", options.runs, options.running, options.polls)
        if options.rows:
            with_a_long_log(Path(name) / "long", int(options.rows), options.polls)


def with_many_runs(folder: Path, runs: int, running: int, asked: int) -> None:
    beats = many_runs(folder, runs, running)
    for beat in beats:
        beat.start()
    server = Asked(folder)
    print(f"{runs:,} runs, {running} of them running")
    seconds = server.until_counted()
    print(f"  all listed and counted {seconds:.1f} s after the start of the command")
    polls(server, asked, 0.1)
    tabs(server)
    print(f"  at most {server.memory():,.0f} MB of memory")
    server.close()
    for beat in beats:
        beat.stop()


def with_a_long_log(folder: Path, rows: int, asked: int) -> None:
    run = long_run(folder, rows)
    size = sum(file.stat().st_size for file in run.path.rglob("*.parquet"))
    server = Asked(folder)
    print(f"a log of {run.step * run.batch:,} rows, {size / 1e6:,.0f} MB")
    seconds = server.until_counted()
    used = server.processor()
    print(f"  counted {seconds:.1f} s after the start ({used:.1f} s of the processor)")
    read = server.read_bytes()
    polls(server, asked, 0.02)
    print(f"  {(server.read_bytes() - read) / 1e6:.1f} MB were read from disk for these polls")
    grow(run, server)
    tabs(server)
    print(f"  at most {server.memory():,.0f} MB of memory")
    server.close()


def grow(run: MadeRun, server: Asked) -> None:
    """One more segment: what is read for it, and when the page has it."""
    before = server.value("alive")["changed"]["log"]
    read, used = server.read_bytes(), server.processor()
    segment = MAX_ROWS // run.batch
    run.go_on(run.step + segment)
    start = time.perf_counter()
    while server.value("alive")["changed"]["log"] < before + 2:  # committed, and counted
        time.sleep(0.02)
    took = time.perf_counter() - start
    mb, used = (server.read_bytes() - read) / 1e6, server.processor() - used
    print(
        f"  one more segment of {segment * run.batch:,} rows: counted {took:.2f} s after its"
        f" commit, {mb:.1f} MB read, {used:.2f} s of the processor"
    )


if __name__ == "__main__":
    main()
