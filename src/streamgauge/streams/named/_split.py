"""What class-incremental streams over a stored data set share, and those of the real-time paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from streamgauge.streams.datasets.data_set import DataSet, Stored
from streamgauge.streams.stream import Arrangement, Stream, arrange


@dataclass(frozen=True)
class Config(Arrangement):
    """As the survey has them: classes by `torch.randperm` after `manual_seed(class_seed)`, 5 % of
    each task held out, the official test set evaluated at task boundaries."""

    order: Literal["given", "time", "iid", "classes", "blurry", "domains"] = "classes"
    tasks: int = 20
    held_out: float = 0.05
    held_out_by: Literal["time", "task", "random"] = "task"


@dataclass(frozen=True)
class Shuffled(Arrangement):
    """As the real-time paper has them: shuffled, no tasks, 1,000 of 50,000 images held out (the
    paper says 5 %, its code holds out 2 %)."""

    order: Literal["given", "time", "iid", "classes", "blurry", "domains"] = "iid"
    held_out: float = 0.02
    held_out_by: Literal["time", "task", "random"] = "random"


def split(data: DataSet, config: Any, name: str) -> Stream:
    """The training images in the order that the configuration says; the official test set apart."""
    stored = Stored(data)
    test = stored.test if len(stored.test) else None
    return arrange(stored.source(), config, name=name, test=test, settings=vars(config))
