"""What `versus_avalanche.py` gives both sides to do: one task of Split-CIFAR100, or of features.

A stream and a learner of one's own, as any user could write them. The stream begins in a task of
one's choice; the samples of earlier tasks are its preparation, with which the learner fills its
memory, so that the twentieth task can be measured without training on nineteen others.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from streamgauge import models
from streamgauge.learners.replay import er
from streamgauge.streams import Arrangement, ArraySource, Split, Stream

CLASSES, TASKS, HELD_OUT = 100, 20, 25  # the survey holds back 5 %: 25 a class, 125 a task
IN_TASK = CLASSES // TASKS


@dataclass(frozen=True)
class Config(Arrangement):
    kind: str = "images"  # or features
    data: str = ""  # folder with CIFAR-100; without, images are generated
    task: int = 1
    batches: int = 60  # steps of the stream
    memory: int = 2000


def build(config: Config) -> Stream:
    """The batches of one task; held out, samples of all tasks up to it."""
    x, y = images(config.data) if config.kind == "images" else features()
    members = [np.flatnonzero(y == c) for c in range(CLASSES)]
    past = range((config.task - 1) * IN_TASK)
    now = range((config.task - 1) * IN_TASK, config.task * IN_TASK)
    share = config.memory // max(1, len(past)) + 1
    tested = np.concatenate([members[c][:HELD_OUT] for c in (*past, *now)])
    earlier = [members[c][HELD_OUT : HELD_OUT + share] for c in past]
    rng = np.random.default_rng(config.seed)
    coming = rng.permutation(np.concatenate([members[c][HELD_OUT:] for c in now]))
    coming = np.resize(coming, config.batches * config.batch)  # more than there are come again
    steps = config.batches
    return Stream(
        name=f"{config.kind}-task{config.task}",
        source=ArraySource(x, y, classes=CLASSES),
        order=coming,
        starts=np.arange(steps + 1) * config.batch,
        size=config.batch,
        task=np.full(steps, config.task - 1),
        splits={"held_out": Split(tested, np.zeros(len(tested), np.int64), y[tested] // IN_TASK)},
        preparation=np.concatenate(earlier) if earlier else np.empty(0, np.int64),
        settings=vars(config),
    )


class Filled(er.ER):
    """ER whose memory holds samples of the tasks before the first step; on features, with an MLP
    smaller than the one it would get by name."""

    def __init__(
        self, spec: Any, source: Any, seed: int, device: torch.device, config: er.Config
    ) -> None:
        super().__init__(spec, source, seed, device, config)
        if len(source.preparation):
            labels = source.label(source.preparation)
            self.model.head.see(labels)
            self.memory.add(source.preparation, labels.cpu().numpy())

    def build_model(self, spec: Any, seed: int) -> models.Model:
        if len(spec.input_shape) > 1:
            return super().build_model(spec, seed)
        return models.build("mlp", spec.input_shape, spec.classes, seed, hidden=(64, 64))


def images(folder: str) -> tuple[np.ndarray, np.ndarray]:
    """CIFAR-100's training images [50000, 3, 32, 32] from mosaics of 100 x 100 tiles, or images of
    the same shape and number."""
    if not folder:
        rng = np.random.default_rng(0)
        y = np.tile(np.arange(CLASSES), 500)
        return rng.integers(0, 256, (len(y), 3, 32, 32), dtype=np.uint8), y
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None
    parts = []
    for number in range(5):
        with Image.open(Path(folder) / f"train_{number}.webp") as mosaic:
            tiles = np.asarray(mosaic.convert("RGB")).reshape(100, 32, 100, 32, 3)
        parts.append(tiles.transpose(0, 2, 4, 1, 3).reshape(-1, 3, 32, 32))
    labels = np.load(Path(folder) / "train_labels_u8.npy").astype(np.int64)
    return np.ascontiguousarray(np.concatenate(parts)), labels


def features(width: int = 128) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian clusters, as wide as the features of the network `cnn4`."""
    rng = np.random.default_rng(0)
    y = np.tile(np.arange(CLASSES), 100)
    centre = rng.normal(size=(CLASSES, width))
    return (centre[y] + rng.normal(size=(len(y), width))).astype(np.float32), y
