"""The results of a live run, from its log and `live.json`."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from streamgauge.errors import StreamgaugeError
from streamgauge.files import read_sealed
from streamgauge.live.rate import RateFound
from streamgauge.live.stored_stream import FACTS
from streamgauge.metrics import online_accuracy
from streamgauge.record import Run
from streamgauge.report.figures import online_answers

# Entries of `live.json` that are read.
SHAPE = {
    "offered": int, "skipped": int, "snapshots": int, "near_future_left_out": int,
    "duration": float, "restarts": [str], "stopped": str, "rate?": float, "rate_held?": float,
    "refused?": {"*": int}, "arrivals?": int, "expired?": int,
}  # fmt: skip


class NearFuture(NamedTuple):
    shift: int  # the smallest age of a version that answered for it
    accuracy: float
    samples: int
    oldest: int  # the largest age, where steps are not all of one length


class Summary(NamedTuple):
    """Times in seconds, rates in samples per second; NaN where undefined."""

    samples: int  # answered, with a label
    seconds: float
    rate: float  # requested; NaN where clients send the samples
    rate_held: float
    latency_p50: float
    latency_p99: float
    updates: int
    skipped: int  # batches never trained on
    trained: float  # share of the batches
    cost: float  # of one update in stream steps, from its start until its version answers
    accuracy: float
    near_future: tuple[NearFuture, ...]
    snapshots: int
    near_future_left_out: int
    restarts: tuple[str, ...]
    refused: dict[str, int]
    arrivals: int
    expired: int
    stopped: str


def summarise(run: Run) -> Summary:
    """Everything that `live` and `serve` report about a stored run."""
    try:
        facts = read_sealed(run.path / FACTS, SHAPE, "its run has to be made again")
    except FileNotFoundError:
        raise StreamgaugeError(
            f"{run.path} is not a live run, or it still runs or was killed: it has no {FACTS}. The "
            f"command that started a service goes on with it."
        ) from None
    label, prediction = online_answers(run)
    seconds_of, part = run.timing["seconds"], run.timing["part"]
    late, jobs = seconds_of[part == "latency"], seconds_of[part == "job"]
    p50, p99 = np.quantile(late, [0.5, 0.99]) if len(late) else (math.nan, math.nan)
    updates = int((run.jobs["kind"] == "learn").sum())
    steps = max(1, facts["offered"])
    seconds = float(facts["duration"])
    return Summary(
        samples=len(label),
        seconds=seconds,
        rate=float(facts.get("rate", math.nan)),
        rate_held=float(facts.get("rate_held", _divide(facts.get("arrivals", 0), seconds))),
        latency_p50=float(p50),
        latency_p99=float(p99),
        updates=updates,
        skipped=int(facts["skipped"]),
        trained=_divide(updates, facts["offered"]),
        cost=float(jobs.mean()) / (seconds / steps) if len(jobs) and seconds else math.nan,
        accuracy=online_accuracy(label, prediction),
        near_future=_near_future(run),
        snapshots=int(facts["snapshots"]),
        near_future_left_out=int(facts["near_future_left_out"]),
        restarts=tuple(facts["restarts"]),
        refused=dict(facts.get("refused", {})),
        arrivals=int(facts.get("arrivals", len(label))),
        expired=int(facts.get("expired", 0)),
        stopped=str(facts["stopped"]),
    )


def _near_future(run: Run) -> tuple[NearFuture, ...]:
    """Per requested shift: an age counts for the largest shift that it reaches."""
    table = run.predictions
    age = table["shift"]
    requested = sorted({int(s) for s in run.header["config"]["protocol"]["shifts"]})
    results = []
    for least, most in pairwise([*requested, np.inf]):
        rows = np.flatnonzero((age >= least) & (age < most))
        if len(rows):
            right = online_accuracy(table["label"][rows], table["prediction"][rows])
            ages = age[rows]
            results.append(NearFuture(int(ages.min()), right, len(rows), int(ages.max())))
    return tuple(results)


def summary_text(run: Run) -> str:
    """The summary of a run in a few lines."""
    summary = summarise(run)
    lines = [f"{run.learner} on {run.stream['name']}, live: {run.path}"]
    if summary.arrivals == 0:
        return "\n".join(
            [*lines, "  nothing came, so there is nothing to gauge", *_went_wrong(summary)]
        )
    if math.isnan(summary.rate):
        expired = f", {summary.expired:,} given up waiting" if summary.expired else ""
        lines.append(
            f"  samples    {summary.arrivals:,} in {summary.seconds:.1f} s, {summary.samples:,} "
            f"with their label{expired}"
        )
    else:
        lines.append(
            f"  rate       {summary.rate:,.0f} samples/s asked, {summary.rate_held:,.1f} sustained"
            f" for {summary.seconds:.1f} s ({summary.samples:,} samples)"
        )
    lines += [
        f"  answers    p50 {1e3 * summary.latency_p50:.1f} ms, "
        f"p99 {1e3 * summary.latency_p99:.1f} ms",
        f"  training   {_training(summary)}",
        f"  accuracy   {_accuracy(summary)}",
    ]
    if summary.near_future:
        left_out = f", {summary.near_future_left_out} left out for want of time"
        lines.append(
            f"             near future from {summary.snapshots} snapshots"
            + (left_out if summary.near_future_left_out else "")
        )
    return "\n".join([*lines, *_went_wrong(summary)])


def _training(summary: Summary) -> str:
    if math.isnan(summary.trained):
        return "no batch was full, so there was nothing to train on"
    took = "" if math.isnan(summary.cost) else f"; an update takes {summary.cost:.2f} steps"
    return (
        f"{summary.updates:,} updates, {summary.skipped:,} batches skipped"
        f" ({100 * summary.trained:.1f} % trained){took}"
    )


def _accuracy(summary: Summary) -> str:
    if summary.samples == 0:
        return "unknown: no label came"
    parts = [f"online {100 * summary.accuracy:.1f} %"]
    for near in summary.near_future:
        ages = f"{near.shift}" + f" to {near.oldest}" * (near.oldest > near.shift)
        parts.append(f"{ages} samples ahead {100 * near.accuracy:.1f} % (on {near.samples:,})")
    return ", ".join(parts)


def _went_wrong(summary: Summary) -> list[str]:
    lines = []
    if summary.restarts:
        lines.append(
            f"  trainer    restarted {len(summary.restarts)} x: {'; '.join(summary.restarts)}"
        )
    if summary.refused:
        refusals = ", ".join(
            f"{count:,} {reason}" for reason, count in sorted(summary.refused.items())
        )
        lines.append(f"  refused    {refusals}")
    if summary.stopped:
        lines.append(f"  ended      early: {summary.stopped}")
    return lines


def rates_text(rates: RateFound) -> str:
    """The result of `find_rate` in words."""

    def rate(value: float) -> str:
        return "no rate that was tried" if math.isnan(value) else f"{value:,.0f} samples/s"

    within = f"{1e3 * rates.patience:.0f} ms"
    lines = [
        f"answers keep up (99 % within {within}) with  {rate(rates.predicting)}",
        f"every batch of {rates.step_size} is trained at  {rate(rates.training)}",
    ]
    if not math.isnan(rates.cut):
        lines.append(
            f"Time was up after {rates.cut:.0f} s, before the search had come to its end: there may"
            " be higher rates (--seconds gives it more)."
        )
    return "\n".join(lines)


def _divide(a: float, b: float) -> float:
    return a / b if b else math.nan
