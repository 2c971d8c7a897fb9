"""CIFAR-100 in 20 tasks whose borders blur: a tenth of the images comes in any task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from streamgauge.streams.datasets import cifar100
from streamgauge.streams.named import _split
from streamgauge.streams.stream import Stream


@dataclass(frozen=True)
class Config(_split.Config):
    """Settings of the stream."""

    order: Literal["given", "time", "iid", "classes", "blurry", "domains"] = "blurry"


def build(config: Config) -> Stream:
    """The stream of a configuration."""
    return _split.split(cifar100.DATA, config, "blurry_cifar100")
