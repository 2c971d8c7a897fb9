"""What a live run came to, from its log and the few facts beside it."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from streamgauge.errors import StreamgaugeError
from streamgauge.live.rate import RateFound
from streamgauge.live.stored import FACTS
from streamgauge.metrics import online_accuracy
from streamgauge.record import Run


class NearFuture(NamedTuple):
    shift: int  # the smallest age of a version that answered for it
    accuracy: float
    samples: int
    oldest: int  # the largest age, where steps are not all of one length


class Summary(NamedTuple):
    """Seconds and samples a second; NaN for what is undefined."""

    samples: int  # answered, with a label
    seconds: float
    rate: float  # asked for; NaN where a client sets the pace
    rate_held: float
    latency_p50: float
    latency_p99: float
    updates: int
    skipped: int  # batches never trained on
    trained: float  # share of the batches
    cost: float  # steps of the stream that one update took, from its start until it answered
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
    """Everything that `live` and `serve` report, of a stored run."""
    try:
        facts: dict[str, Any] = json.loads((run.path / FACTS).read_text())
    except FileNotFoundError:
        raise StreamgaugeError(
            f"{run.path} is not a live run, or it did not come to an end: it has no {FACTS}."
        ) from None
    table, timing = run.predictions, run.timing
    live = np.flatnonzero(table["shift"] == 0)
    late = timing["seconds"][timing["part"] == "latency"]
    jobs = timing["seconds"][timing["part"] == "job"]
    updates = int((run.jobs["kind"] == "learn").sum())
    steps = max(1, facts["offered"])
    seconds = float(facts["duration"])
    return Summary(
        samples=len(live),
        seconds=seconds,
        rate=float(facts.get("rate", math.nan)),
        rate_held=float(facts.get("rate_held", _divide(facts.get("arrivals", 0), seconds))),
        latency_p50=_quantile(late, 0.5),
        latency_p99=_quantile(late, 0.99),
        updates=updates,
        skipped=int(facts["skipped"]),
        trained=_divide(updates, facts["offered"]),
        cost=float(jobs.mean()) / (seconds / steps) if len(jobs) and seconds else math.nan,
        accuracy=online_accuracy(table["label"][live], table["prediction"][live]),
        near_future=_near_future(run),
        snapshots=int(facts["snapshots"]),
        near_future_left_out=int(facts["near_future_left_out"]),
        restarts=tuple(facts["restarts"]),
        refused=dict(facts.get("refused", {})),
        arrivals=int(facts.get("arrivals", len(live))),
        expired=int(facts.get("expired", 0)),
        stopped=str(facts["stopped"]),
    )


def _near_future(run: Run) -> tuple[NearFuture, ...]:
    """By the shifts that were asked for: an age counts for the largest of them that it reaches."""
    table = run.predictions
    age = table["shift"]
    asked = sorted({int(s) for s in run.header["config"]["protocol"]["shifts"]})
    found = []
    for least, most in pairwise([*asked, np.inf]):
        rows = np.flatnonzero((age >= least) & (age < most))
        if len(rows):
            right = online_accuracy(table["label"][rows], table["prediction"][rows])
            ages = age[rows]
            found.append(NearFuture(int(ages.min()), right, len(rows), int(ages.max())))
    return tuple(found)


def summary_text(run: Run) -> str:
    """The summary in a few lines."""
    found = summarise(run)
    lines = [f"{run.learner} on {run.stream['name']}, live: {run.path}"]
    if found.arrivals == 0:
        return "\n".join(
            [*lines, "  nothing came, so there is nothing to gauge", *_went_wrong(found)]
        )
    if math.isnan(found.rate):
        lines.append(
            f"  samples    {found.arrivals:,} in {found.seconds:.1f} s, {found.samples:,} with "
            f"their label" + (f", {found.expired:,} given up waiting" if found.expired else "")
        )
    else:
        lines.append(
            f"  rate       {found.rate:,.0f} samples/s asked, {found.rate_held:,.1f} held for "
            f"{found.seconds:.1f} s ({found.samples:,} samples)"
        )
    lines += [
        f"  answers    p50 {1e3 * found.latency_p50:.1f} ms, p99 {1e3 * found.latency_p99:.1f} ms",
        f"  training   {_training(found)}",
        f"  accuracy   {_accuracy(found)}",
    ]
    if found.near_future:
        left_out = f", {found.near_future_left_out} left out for want of time"
        lines.append(
            f"             near future from {found.snapshots} snapshots"
            + (left_out if found.near_future_left_out else "")
        )
    return "\n".join([*lines, *_went_wrong(found)])


def _training(found: Summary) -> str:
    if math.isnan(found.trained):
        return "no batch was full, so there was nothing to train on"
    took = "" if math.isnan(found.cost) else f"; an update takes {found.cost:.2f} steps"
    return (
        f"{found.updates:,} updates, {found.skipped:,} batches skipped"
        f" ({100 * found.trained:.1f} % trained){took}"
    )


def _accuracy(found: Summary) -> str:
    if found.samples == 0:
        return "unknown: no label came"
    parts = [f"online {100 * found.accuracy:.1f} %"]
    for one in found.near_future:
        ages = f"{one.shift}" + f" to {one.oldest}" * (one.oldest > one.shift)
        parts.append(f"{ages} samples ahead {100 * one.accuracy:.1f} % (on {one.samples:,})")
    return ", ".join(parts)


def _went_wrong(found: Summary) -> list[str]:
    lines = []
    if found.restarts:
        lines.append(f"  trainer    restarted {len(found.restarts)} x: {'; '.join(found.restarts)}")
    if found.refused:
        said = ", ".join(f"{count:,} {reason}" for reason, count in sorted(found.refused.items()))
        lines.append(f"  refused    {said}")
    if found.stopped:
        lines.append(f"  ended      early: {found.stopped}")
    return lines


def rates_text(found: RateFound) -> str:
    """What `find_rate` found, in words."""

    def rate(value: float) -> str:
        return "no rate that was tried" if math.isnan(value) else f"{value:,.0f} samples/s"

    within = f"{1e3 * found.patience:.0f} ms"
    lines = [
        f"answers keep up (99 % within {within}) with  {rate(found.predicting)}",
        f"every batch of {found.step_size} is trained at  {rate(found.training)}",
    ]
    if not math.isnan(found.cut):
        lines.append(
            f"Time was up after {found.cut:.0f} s, before the search had come to its end: there may"
            " be higher rates (--seconds gives it more)."
        )
    return "\n".join(lines)


def _quantile(values: Any, share: float) -> float:
    return float(np.quantile(values, share)) if len(values) else math.nan


def _divide(a: float, b: float) -> float:
    return a / b if b else math.nan
