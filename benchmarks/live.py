"""Live against simulated, and whether a rate that was found is held.

    python benchmarks/live.py                    # 5 pairs of 60 s, then 60 s at the rate found
    python benchmarks/live.py --seconds 10 --runs 3
    python benchmarks/live.py --serve            # messages a second, by HTTP and by JSON lines

ER on `albums`, one thread for answers and one process of one thread for training. The rate is
chosen so that an update takes about two steps. Each live run is followed by a simulated one on the
same samples whose clock has the cost that was measured live: the mean time from the beginning of a
job until its version answers, over the time of a step. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import math
import os
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import streamgauge as sg
from streamgauge.live import find_rate, live, rates_text, serve, summarise, summary_text
from streamgauge.live.stored_stream import beginning
from streamgauge.streams import Spec, Stream

BATCH = 10


def long_enough(rate: float, seconds: float, seed: int = 0) -> Stream:
    """Albums for so many seconds; a twentieth is held out."""
    length = int(rate * seconds / 0.95) + 10 * BATCH
    stream: Stream = sg.stream("albums", length=length, batch=BATCH, seed=seed)
    return stream


def calibrate(target: float, out: Path) -> float:
    """A rate at which an update takes about so many steps, from two short runs."""
    rate = 1000.0
    for _ in range(2):
        run = live(long_enough(rate, 4), "er", rate, seconds=4, out=out, log=_quiet)
        rate *= target / summarise(run).cost
    return round(rate, -1)


def compare(rate: float, seconds: float, seed: int, out: Path) -> dict[str, float]:
    stream = long_enough(rate, seconds, seed)
    run = live(stream, "er", rate, seconds=seconds, shifts=(200,), out=out, log=_quiet)
    summary = summarise(run)
    shown = beginning(stream, summary.samples)  # less than was asked for where it was not held
    protocol = sg.Protocol(cost=f"{summary.cost:.3f}", evaluate="end", shifts=(200,))
    torch.set_num_threads(1)
    simulated = sg.run(shown, "er", protocol=protocol, out=out, log=_quiet)
    scores = sg.score(simulated)
    return {
        "held": summary.rate_held / rate,
        "cost": summary.cost,
        "p99_ms": 1e3 * summary.latency_p99,
        "trained_live": 100 * summary.trained,
        "trained_simulated": 100 * len(simulated.jobs["step"]) / len(shown),
        "accuracy_live": 100 * summary.accuracy,
        "accuracy_simulated": 100 * scores["online_accuracy"],
        "near_live": 100 * summary.near_future[0].accuracy,
        "near_simulated": 100 * scores["near_future_accuracy@200"],
    }


def against_simulated(seconds: float, runs: int, out: Path) -> bool:
    rate = calibrate(2.0, out)
    print(f"er on albums, {rate:,.0f} samples/s in steps of {BATCH}, {runs} runs of {seconds:g} s")
    rows = []
    for seed in range(runs):
        row = compare(rate, seconds, seed, out)
        rows.append(row)
        print("  " + ", ".join(f"{name} {value:.2f}" for name, value in row.items()), flush=True)
    trained, accuracy, near = (
        statistics.median(row[f"{what}_live"] - row[f"{what}_simulated"] for row in rows)
        for what in ("trained", "accuracy", "near")
    )
    print(
        f"median difference, live - simulated, in points: trained share {trained:+.2f} (limit 5), "
        f"online accuracy {accuracy:+.2f} (limit 3), near future {near:+.2f}"
    )
    return abs(trained) <= 5 and abs(accuracy) <= 3


def holds_what_it_found(seconds: float, trial: float, out: Path) -> bool:
    limits = find_rate(long_enough(2000, 10), "er", trial=trial)
    print(rates_text(limits))
    good = True
    for what, rate in (("answers", limits.predicting), ("training", limits.training)):
        if math.isnan(rate):
            good = False
            continue
        run = live(long_enough(rate, seconds), "er", rate, seconds=seconds, out=out, log=_quiet)
        print(summary_text(run))
        told = summarise(run)
        kept_up = told.rate_held >= 0.99 * rate and told.latency_p99 <= max(
            limits.patience, BATCH / rate
        )
        if what == "training":
            kept_up = kept_up and told.trained >= 0.99
        print(
            f"{what} at {rate:,.0f} samples/s for {seconds:g} s: "
            f"{'kept up' if kept_up else 'NOT kept up'}"
        )
        good = good and kept_up
    return good


def messages(out: Path, count: int = 2000) -> None:
    """Pairs of a sample and its label, one after the other from one client."""
    x = np.random.default_rng(0).integers(0, 256, (3, 16, 16)).tolist()
    spec = Spec((3, 16, 16), 20)
    pairs = []
    for n in range(count):
        pairs += [{"x": x}, {"sample": n, "label": n % 20}]

    answers = io.BytesIO()
    text = io.BytesIO(b"".join(json.dumps(m).encode() + b"\n" for m in pairs))
    run = serve(spec, "er", lines=text, answers=answers, inputs="uint8", name="lines", out=out)
    print(f"JSON lines: {count / summarise(run).seconds:,.0f} pairs/s")
    print(summary_text(run))

    stop = threading.Event()

    def talk(port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        began = time.perf_counter()
        for message in pairs:
            path = "/label" if "label" in message else "/predict"
            connection.request("POST", path, json.dumps(message).encode())
            connection.getresponse().read()
        print(f"HTTP: {count / (time.perf_counter() - began):,.0f} pairs/s")
        stop.set()

    def ready(port: int) -> None:
        threading.Thread(target=talk, args=(port,)).start()

    run = serve(
        spec, "er", port=0, inputs="uint8", name="http", out=out, stop=stop, ready=ready
    )  # fmt: skip
    print(summary_text(run))


def _quiet(sentence: Any) -> None:
    pass


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--seconds", type=float, default=60.0)
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--trial", type=float, default=4.0)
    options.add_argument("--serve", action="store_true")
    given = options.parse_args()
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, load {load:.1f} at the start")
    with tempfile.TemporaryDirectory() as folder:
        if given.serve:
            messages(Path(folder))
            return 0
        good = against_simulated(given.seconds, given.runs, Path(folder))
        good = holds_what_it_found(given.seconds, given.trial, Path(folder)) and good
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
