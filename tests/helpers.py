"""Small things that several tests need."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import streamgauge as sg
from streamgauge import catalogue
from streamgauge.files import write_sealed
from streamgauge.learners.base import Batch
from streamgauge.record import TABLES, Run
from streamgauge.streams import Gate, Stream

CPU = torch.device("cpu")


def small_stream(steps: int = 30, batch: int = 5, classes: int = 4, **settings: Any) -> Stream:
    """Images of easy classes, with users and times, in the order given."""
    rng = np.random.default_rng(settings.pop("data_seed", 0))
    count = steps * batch
    label = rng.integers(0, classes, count)
    prototype = rng.integers(60, 196, (classes, 3, 8, 8))
    x = (prototype[label] + rng.integers(-40, 41, (count, 3, 8, 8))).astype(np.uint8)
    return sg.stream(
        x, label, time=np.arange(count), user=np.arange(count) // 3, batch=batch, **settings
    )


def rewrite(file: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change a sealed JSON file; it gets the checksum of its new content."""
    value = json.loads(file.read_text())
    changed = change(value)
    write_sealed(file, value if changed is None else changed)


def clouds(count: int, classes: int, width: int = 4) -> tuple[Any, Any]:
    """Classes that are normal clouds, in random order."""
    rng = np.random.default_rng(5)
    label = rng.integers(0, classes, count)
    x = rng.normal(size=(classes, width))[label] + rng.normal(size=(count, width))
    return x.astype(np.float32), label


def build(stream: Stream, name: str, **settings: Any) -> tuple[Any, Gate]:
    """A learner and the gate that it sees its source through."""
    gate = Gate(stream.source, stream.preparation, CPU)
    return catalogue.learner(name, **settings).build(stream.spec, gate, 0, CPU), gate


def batch_of(stream: Stream, step: int, gate: Gate) -> Batch:
    """A step's batch, revealed and with its labels due."""
    index = stream.index(step).astype(np.int64)
    gate.reveal(index)
    gate.label_due(index)
    return Batch(gate.read(index), gate.label(index), index)


def same_log(a: Run, b: Run) -> bool:
    """Whether all tables but timing are equal, row by row."""
    for name in TABLES:
        if name == "timing":
            continue
        left, right = a.table(name), b.table(name)
        if list(left) != list(right) or left.rows != right.rows:
            return False
        for column in left:
            x, y = left[column], right[column]
            if not ((x == y) | ((x != x) & (y != y))).all():
                return False
    return True


class Spy:
    """A learner that writes down everything that happens to it."""

    calls: list[tuple[Any, ...]]

    def __init__(self, spec: Any, source: Any, seed: int, device: torch.device) -> None:
        self.classes = spec.classes
        self.source = source
        self.learnt = 0
        type(self).calls = []

    def predict(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.append(("predict", len(x), self.learnt))
        scores = torch.zeros(len(x), self.classes)
        scores[:, self.learnt % self.classes] = 1.0
        return scores

    def learn(self, batch: sg.Batch, predicted: torch.Tensor | None) -> dict[str, Any]:
        self.calls.append(("learn", batch.index.tolist(), batch.y.tolist(), predicted))
        self.learnt += 1
        return {"loss": torch.tensor(float(self.learnt)), "recalled": 3}

    def store(self, batch: sg.Batch) -> None:
        self.calls.append(("store", batch.index.tolist()))

    def state_dict(self) -> dict[str, Any]:
        return {"learnt": self.learnt}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.learnt = state["learnt"]
