"""Kills a service again and again while clients talk to it, and checks its log.

    python tests/live/kill_service.py 200 [SEED]

A client sends samples and labels all the time; after a random moment the service gets SIGKILL and
is started again with the same command. Every acknowledged label must be in the log once, with its
value; every sample that was answered must still take its label after the restart; and the figures
of the service must agree with the log.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from provenance import provenance


class Talk:
    """One client that sends samples and labels, and knows what was acknowledged."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.labelled: dict[int, int] = {}
        self.unlabelled: list[int] = []
        self.asked: dict[int, int] = {}  # labels that were sent, whether acknowledged or not
        self.answered = 0
        self.problems: list[str] = []

    def until_closed(self, port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)

        def post(path: str, message: Any) -> tuple[int, Any]:
            connection.request("POST", path, json.dumps(message).encode())
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read())

        try:
            while True:
                if self.unlabelled and self.rng.random() < 0.5:
                    self._label(post)
                    continue
                status, reply = post("/predict", {"x": [self.rng.random() for _ in range(3)]})
                if status == 503:
                    return
                if status != 200:
                    self.problems.append(f"sample: {reply}")
                    return
                self.answered += 1
                self.unlabelled.append(reply["sample"])
        except (OSError, http.client.HTTPException, ValueError):
            return

    def _label(self, post: Any) -> None:
        sample = self.unlabelled.pop(self.rng.randrange(len(self.unlabelled)))
        label = self.asked.get(sample, self.rng.randrange(4))
        again = sample in self.asked
        self.asked[sample] = label
        try:
            status, reply = post("/label", {"sample": sample, "label": label})
        except (OSError, http.client.HTTPException, ValueError):
            self.unlabelled.append(sample)  # unknown whether it was taken: sent again
            raise
        if status == 503:  # it is stopping
            self.unlabelled.append(sample)
            raise ConnectionError
        if status != 200 and not (again and status in (409, 410)):
            self.problems.append(f"label of {sample}: {reply}")
            return
        self.labelled[sample] = label


def started(out: Path, learner: str = "ncm", **options: Any) -> tuple[int, int]:
    """The process id and the port of a service. It is forked, so that torch is imported once."""
    from streamgauge.live import serve
    from streamgauge.streams import Spec

    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        code = 1
        try:
            os.close(reading)
            settings = {"batch": 3, "checkpoint": 0.2, "trainer": "thread", "log": str, **options}
            serve(Spec((3,), 4), learner, port=0, out=out,
                  ready=lambda port: os.write(writing, b"%d\n" % port), **settings)  # fmt: skip
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        return process, int(pipe.readline())


def kill_and_check(out: Path, kills: int, seed: int = 0) -> dict[str, int]:
    """Kill a service so many times, end it with SIGTERM, and check; returns the counts."""
    import streamgauge as sg
    from streamgauge.live import summarise

    rng = random.Random(seed)
    talk = Talk(rng)
    for number in range(kills + 1):
        process, port = started(out)
        thread = threading.Thread(target=talk.until_closed, args=(port,))
        thread.start()
        time.sleep(rng.uniform(0.02, 0.6))
        os.kill(process, signal.SIGKILL if number < kills else signal.SIGTERM)
        thread.join(60)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        if number == kills and code != 0:
            talk.problems.append(f"the service ended with code {code}")
    (run,) = sg.find_runs([out])
    table = run.predictions
    logged = dict(zip(table["sample"].tolist(), table["label"].tolist(), strict=True))
    lost = {s: label for s, label in talk.labelled.items() if logged.get(s) != label}
    foreign = {s for s, label in logged.items() if talk.asked.get(s) != label}
    figures = summarise(run)
    problems = [
        *talk.problems,
        *([f"lost or changed: {lost}"] if lost else []),
        *([f"labels that nobody sent: {foreign}"] if foreign else []),
        *([f"{table.rows - len(logged)} labels are doubled"] if table.rows != len(logged) else []),
    ]
    if table["step"].tolist() != [n // 3 for n in range(table.rows)]:
        problems.append("the steps of the log are not labels in order of arrival")
    if figures.samples != len(logged) or figures.arrivals < talk.answered:
        problems.append(f"the figures are wrong: {figures}")
    if figures.expired != figures.arrivals - figures.samples - _waiting(run.path):
        problems.append(f"the number of expired samples is wrong: {figures.expired}")
    if problems:
        raise AssertionError("; ".join(problems))
    return {"kills": kills, "acknowledged": len(talk.labelled), "logged": len(logged),
            "answered": talk.answered, "arrivals": figures.arrivals}  # fmt: skip


def _waiting(path: Path) -> int:
    """Samples in the spool without a label."""
    import numpy as np

    from streamgauge.live.spool import NONE, facts_type

    facts = np.fromfile(path / "spool" / "facts.bin", facts_type(0))
    return int(((facts["sample"] != NONE) & (facts["label_position"] == NONE)).sum())


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as folder:
        started_at, seed = time.monotonic(), int(sys.argv[2]) if len(sys.argv) > 2 else 0
        counts = kill_and_check(Path(folder), count, seed)
        print(
            f"RESULT: {counts['kills']} kills of a service, {counts['acknowledged']:,} acknowledged"
            f" labels: 0 lost, 0 doubled; seed {seed}; {time.monotonic() - started_at:,.0f} s;"
            f" {provenance()}"
        )
