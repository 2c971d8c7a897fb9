"""What the loop and live runs do with a learner: show inputs, train, prepare, and tell facts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from streamgauge.cost.flops import Meter
from streamgauge.errors import StreamgaugeError
from streamgauge.learners.adapter import LearnerAdapter
from streamgauge.learners.base import Batch, Learner
from streamgauge.streams import Source, Stream
from streamgauge.streams.gate import fetch


def inputs(
    source: Source, index: NDArray[Any], learner: LearnerAdapter, device: torch.device
) -> Tensor:
    """Inputs by address; a learner that does not look at inputs gets empty ones."""
    if learner.sees_input:
        return fetch(source, index, device)
    return blank(len(index), device)


def blank(count: int, device: torch.device) -> Tensor:
    """Empty inputs, for a learner that does not look at inputs."""
    return torch.empty((count, 0), device=device)


def train(learner: Learner, meter: Meter, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
    """One training job; returns the scalars that `learn` returned."""
    with meter.job("learn", len(batch.index), predicted is None):
        scalars = learner.learn(batch, predicted)
    if scalars is not None and not isinstance(scalars, Mapping):
        raise StreamgaugeError(
            "learn must return a dictionary of numbers to log, such as {'loss': 0.5}, or nothing;"
            f" it returned a {type(scalars).__name__}."
        )
    return dict(scalars or {})


def prepare(learner: LearnerAdapter, meter: Meter) -> bool:
    """Let a learner that has `prepare` get ready for an evaluation; returns whether it has."""
    if learner.prepare is None:
        return False
    with meter.job("prepare"):
        learner.prepare()
    return True


# Facts: a learner is told only what it declared in `needs`.


def start_facts(stream: Stream, needs: Collection[str]) -> dict[str, Any]:
    """Facts for a learner before the first step."""
    facts: dict[str, Any] = {}
    if "horizon" in needs:
        facts["horizon"] = len(stream)
    if "class_count" in needs:
        facts["class_count"] = len(np.unique(stream.source.label[stream.order]))
    return facts


def boundary_facts(stream: Stream, step: int, needs: Collection[str]) -> dict[str, Any]:
    """Facts for a learner before the first batch of the task that begins with a step."""
    if "boundaries" not in needs or stream.task is None:
        return {}
    task = int(stream.task[step])
    first, last = np.searchsorted(stream.task, [task, task + 1])
    coming = stream.order[stream.starts[first] : stream.starts[last]]
    return {"boundary": task, "classes": np.unique(stream.source.label[coming])}
