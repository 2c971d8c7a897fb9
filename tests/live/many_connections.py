"""Thousands of clients that connect to a service and say nothing; others are answered all the same.

    python tests/live/many_connections.py                       # 2,000 connections, some seconds
    python tests/live/many_connections.py --connections 10000

All connections stay open on the side of the clients. After every tenth of them a new client sends a
sample and may be told to come back; it must be answered within --seconds. Memory and open files of
the service are read each time. The exit code is 1 if a client got no answer, or if the memory grew
by more than --most megabytes after the first tenth. Reads /proc, so it needs Linux.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import resource
import signal
import socket
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from kill_service import started

from provenance import provenance


@dataclass(frozen=True)
class Measured:
    """The service with so many connections: how long a client waited, memory and open files."""

    connections: int
    seconds: float
    megabytes: float
    files: int


def memory_of(process: int) -> float:
    """Megabytes."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def files_of(process: int) -> int:
    return len(os.listdir(f"/proc/{process}/fd"))


def seconds_until_answered(port: int, limit: float) -> float:
    """A client that comes back until it is answered; infinite if that takes longer than `limit`."""
    began = time.monotonic()
    while time.monotonic() - began < limit:
        with contextlib.suppress(OSError, http.client.HTTPException):
            client = http.client.HTTPConnection("127.0.0.1", port, timeout=limit)
            with contextlib.closing(client):
                client.request("POST", "/predict", json.dumps({"x": [0, 0, 9]}).encode())
                if client.getresponse().status == 200:
                    return time.monotonic() - began
        time.sleep(0.05)
    return float("inf")


def connect_and_ask(out: Path, connections: int, limit: float = 15.0) -> list[Measured]:
    """Open so many connections to a service of its own, and ask after each tenth."""
    allow_files(connections + 200)
    process, port = started(out)
    clients: list[socket.socket] = []
    measured = []
    try:
        while len(clients) < connections:
            for _ in range(min(-(-connections // 10), connections - len(clients))):
                with contextlib.suppress(ConnectionError):  # turned away already
                    clients.append(socket.create_connection(("127.0.0.1", port), timeout=limit))
            waited = seconds_until_answered(port, limit)
            measured.append(Measured(len(clients), waited, memory_of(process), files_of(process)))
            print(measured[-1], flush=True)
    finally:
        for client in clients:
            client.close()
        os.kill(process, signal.SIGTERM)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert code == 0, f"the service ended with code {code}"
    return measured


def allow_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        sys.exit(f"So many connections need {count:,} open files; `ulimit -Hn` is {hard:,}.")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connections", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=15.0, help="until a client is answered")
    parser.add_argument("--most", type=float, default=100.0, help="megabytes of growth allowed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="connections-") as folder:
        measured = connect_and_ask(Path(folder), options.connections, options.seconds)
    slowest = max(one.seconds for one in measured)
    grown = max(one.megabytes for one in measured) - measured[0].megabytes
    print(
        f"RESULT: {measured[-1].connections:,} silent connections: a client was answered within"
        f" {slowest:.1f} s each time ({len(measured)} times), memory {measured[0].megabytes:.0f} MB"
        f" and at most {grown:.0f} MB more, at most {max(one.files for one in measured)} open"
        f" files; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {provenance()}"
    )
    sys.exit(0 if slowest < options.seconds and grown <= options.most else 1)


if __name__ == "__main__":
    main()
