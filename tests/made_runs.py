"""Run folders with answers that are made up, written like any other: quick, and of any length."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from streamgauge.record import OPTIONAL, RunWriter
from streamgauge.record.environment import environment

ENVIRONMENT = environment(None) | {"device": "cpu", "threads": 1}


def header_of(
    learner: str = "er", seed: int = 0, steps: int = 100, batch: int = 10, *,
    shifts: tuple[int, ...] = (40,), stream: str = "made", settings: dict[str, Any] | None = None,
    sees_input: bool = True, **config: Any,
) -> dict[str, Any]:  # fmt: skip
    """The header of a run on a stream that all seeds have in common."""
    about: dict[str, Any] = {
        "stream": {"origin": None, "name": stream, "settings": {"batch": batch}},
        "learner": {"name": learner, "where": learner, "settings": settings or {}, "needs": [],
                    "sees_input": sees_input, "code": "c" * 16, "weights": None},
        "protocol": {"shifts": list(shifts), "label_delay": 0},
        "seed": seed,
        "device": "cpu",
        **config,
    }  # fmt: skip
    described = {
        "name": stream, "settings": {"batch": batch}, "samples": steps * batch, "steps": steps,
        "step_size": batch, "albums": False, "tasks": 0, "input_shape": [3], "classes": 4,
        "class_names": None, "class_task": None, "held_out": {}, "preparation": 0,
        "data_hash": f"d{stream}", "order_hash": f"o{seed}", "notes": {},
    }  # fmt: skip
    return {
        "id": hashlib.blake2b(repr(about).encode(), digest_size=16).hexdigest(),
        "config": about,
        "stream": described,
        "environment": ENVIRONMENT,
    }


class MadeRun:
    """A run that answers when a test says so; right with probability `share`."""

    def __init__(self, folder: Path, share: float = 0.6, **header: Any) -> None:
        self.header = header_of(**header)
        config = self.header["config"]
        name = config["learner"]["name"].replace("/", "_")[:40]
        short = self.header["id"][:8]
        self.path = folder / f"made-{name}-s{config['seed']}-{short}"
        self.steps, self.batch = (self.header["stream"][n] for n in ("steps", "step_size"))
        self.share, self.step = share, 0
        self.rng = np.random.default_rng(config["seed"])
        self.writer = RunWriter(self.path, self.header, OPTIONAL)

    def go_on(self, until: int | None = None, commit: bool = True) -> None:
        """Answer up to a step, and commit; at the end the run is complete."""
        end = self.steps if until is None else until
        steps = np.repeat(np.arange(self.step, end), self.batch)
        labels = self.rng.integers(0, 4, len(steps))
        for shift in (0, *self.header["config"]["protocol"]["shifts"]):
            keep = np.flatnonzero(steps * self.batch >= shift)
            right = self.rng.random(len(keep)) < self.share - 0.1 * (shift > 0)
            self.writer.rows["predictions"].append(
                len(keep), step=steps[keep], sample=np.arange(self.step * self.batch,
                end * self.batch)[keep], label=labels[keep],
                prediction=np.where(right, labels[keep], (labels[keep] + 1) % 4),
                confidence=0.5, version=steps[keep], shift=shift,
            )  # fmt: skip
        self.step = end
        if end == self.steps:
            self.writer.rows["evaluations"].append(
                1, evaluation=0, step=end, version=end, current=-1, split="held_out", task=-1,
                within=-1, correct=round(100 * self.share), count=100,
            )  # fmt: skip
        if commit:
            self.writer.checkpoint(end, None, end == self.steps)

    def close(self) -> None:
        self.writer.close()


@contextmanager
def made_run(folder: Path, **options: Any) -> Iterator[MadeRun]:
    with closing(MadeRun(folder, **options)) as run:
        yield run


def finished(folder: Path, pieces: int = 1, **options: Any) -> Path:
    """A complete run, of so many segments."""
    with made_run(folder, **options) as run:
        for piece in range(1, pieces + 1):
            run.go_on(run.steps * piece // pieces)
    return run.path
