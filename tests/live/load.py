"""A service under load for an hour: memory and open files stay flat, and nothing is lost.

    python tests/live/load.py                 # a minute
    python tests/live/load.py --minutes 60

Clients send --rate messages per second: samples, labels, messages that are refused, and connections
that are closed in the middle of a request. The service has a trainer in a process of its own.
Memory of both is compared between the second quarter of the time and the last. At the end every
acknowledged label must be in the log once. The exit code is 1 if memory grew by more than --most
megabytes, or if the number of open files grew. Reads /proc, so it needs Linux.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import signal
import socket
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from kill_service import started
from many_connections import files_of, memory_of

from provenance import provenance

SAMPLES = 100  # measurements in all
UNFINISHED = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{"


@dataclass
class Client:
    """Sends messages of all kinds, and knows which labels were acknowledged."""

    port: int
    rng: random.Random
    sent: int = 0
    refused: int = 0
    waiting: list[int] = field(default_factory=list)
    labelled: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def send(self) -> None:
        self.sent += 1
        match self.sent % 20:
            case 0:
                self._post("/predict", b"{")
            case 7:
                self._post("/predict", b"x" * 50_000)
            case 13:
                self._hang_up()
            case _ if self.waiting and self.rng.random() < 0.5:
                self._label()
            case _:
                reply = self._post("/predict", {"x": [self.rng.random() for _ in range(3)]})
                self.waiting.append(reply["sample"])

    def _label(self) -> None:
        sample, label = self.waiting.pop(self.rng.randrange(len(self.waiting))), self.sent % 4
        if self._post("/label", {"sample": sample, "label": label}).get("sample") == sample:
            self.labelled[sample] = label

    def _post(self, path: str, message: Any) -> dict[str, Any]:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.connection.request("POST", path, body)
        response = self.connection.getresponse()
        reply: dict[str, Any] = json.loads(response.read())
        self.refused += response.status != 200
        return reply

    def _hang_up(self) -> None:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.port)) as half,
        ):
            half.sendall(UNFINISHED)


def trainer_of(process: int) -> int | None:
    """The child of the service with the most memory; None while there is none."""
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    children = [int(child) for task in tasks for child in task.read_text().split()]
    return max(children, key=memory_of, default=None)


def load(out: Path, seconds: float, rate: float, learner: str = "er") -> dict[str, Any]:
    """Measurements of the service and its trainer, and the counts of messages."""
    import streamgauge as sg

    process, port = started(out, learner, trainer="process", batch=10, checkpoint=10.0)
    client, measured = Client(port, random.Random(0)), list[dict[str, float]]()
    began = time.monotonic()
    try:
        while (now := time.monotonic() - began) < seconds:
            client.send()
            if len(measured) < SAMPLES * now / seconds and (trainer := trainer_of(process)):
                measured.append({
                    "service MB": memory_of(process), "service files": files_of(process),
                    "trainer MB": memory_of(trainer), "trainer files": files_of(trainer),
                })  # fmt: skip
            time.sleep(max(0.0, client.sent / rate - (time.monotonic() - began)))
    finally:
        os.kill(process, signal.SIGTERM)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert code == 0, f"the service ended with code {code}"
    (run,) = sg.find_runs([out])
    table = run.predictions
    logged = dict(zip(table["sample"].tolist(), table["label"].tolist(), strict=True))
    assert logged == client.labelled, "the log has other labels than those acknowledged"
    assert table.rows == len(logged), "labels are doubled"
    return {"measured": measured, "sent": client.sent, "refused": client.refused,
            "labels": len(logged)}  # fmt: skip


def growth(measured: list[dict[str, float]]) -> dict[str, float]:
    """From the second quarter to the last; the first one warms up. Of megabytes the most counts, of
    open files the least: a connection may be open when they are counted, and one that is never
    closed raises the least, too."""
    quarter = max(1, len(measured) // 4)
    early, late = measured[quarter : 2 * quarter], measured[-quarter:]
    return {
        name: end(m[name] for m in late) - end(m[name] for m in early)
        for name in measured[0]
        for end in [max if name.endswith("MB") else min]
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--rate", type=float, default=100.0, help="messages per second")
    parser.add_argument("--most", type=float, default=20.0, help="megabytes of growth allowed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="load-") as folder:
        result = load(Path(folder), 60 * options.minutes, options.rate)
    measured, grown = result["measured"], growth(result["measured"])
    for one in measured[:: max(1, len(measured) // 10)]:
        print("  " + ", ".join(f"{name} {value:.0f}" for name, value in one.items()))
    last = ", ".join(f"{name} {measured[-1][name]:.0f} ({grown[name]:+.1f})" for name in grown)
    print(
        f"RESULT: {options.minutes:g} minutes, {result['sent']:,} messages ({result['refused']:,}"
        f" refused), {result['labels']:,} acknowledged labels, none lost or doubled; at the end,"
        f" and since the second quarter: {last}; {provenance()}"
    )
    memory = all(value <= options.most for name, value in grown.items() if name.endswith("MB"))
    files = all(value <= 0 for name, value in grown.items() if name.endswith("files"))
    sys.exit(0 if memory and files else 1)


if __name__ == "__main__":
    main()
