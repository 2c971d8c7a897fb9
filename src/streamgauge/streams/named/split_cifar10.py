"""CIFAR-10 class by class, 5 tasks of 2."""

from __future__ import annotations

from dataclasses import dataclass

from streamgauge.streams.datasets import cifar10
from streamgauge.streams.named import _split
from streamgauge.streams.stream import Stream


@dataclass(frozen=True)
class Config(_split.Config):
    """Settings of the stream."""

    tasks: int = 5


def build(config: Config) -> Stream:
    """The stream of a configuration."""
    return _split.split(cifar10.DATA, config, "split_cifar10")
