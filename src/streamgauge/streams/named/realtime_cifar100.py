"""CIFAR-100 shuffled, 4,900 steps of ten, 1,000 images held out (the real-time paper's)."""

from __future__ import annotations

from dataclasses import dataclass

from streamgauge.streams.datasets import cifar100
from streamgauge.streams.named import _split
from streamgauge.streams.stream import Stream


@dataclass(frozen=True)
class Config(_split.Shuffled):
    """Settings of the stream."""


def build(config: Config) -> Stream:
    """The stream of a configuration."""
    return _split.split(cifar100.DATA, config, "realtime_cifar100")
