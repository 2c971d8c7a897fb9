"""Tiny ImageNet class by class, 20 tasks of 10 (the survey); tasks=100 for the metrics paper."""

from __future__ import annotations

from dataclasses import dataclass

from streamgauge.streams.datasets import tinyimagenet
from streamgauge.streams.named import _split
from streamgauge.streams.stream import Stream


@dataclass(frozen=True)
class Config(_split.Config):
    """Settings of the stream."""


def build(config: Config) -> Stream:
    """The stream of a configuration."""
    return _split.split(tinyimagenet.DATA, config, "split_tinyimagenet")
