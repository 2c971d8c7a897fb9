"""Labels only: each stays with probability rho or is drawn afresh. The truth is a formula.

There is nothing to look at (inputs have no entries), so whatever accuracy a learner reaches here
it owes to the labels before. Ten million samples cost ten megabytes of labels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.named import _generate as generate
from streamgauge.streams.source import ArraySource, IntArray, pieces
from streamgauge.streams.stream import Arrangement, Stream, arrange

_MOVES, _CLASSES = 100, 101  # which draws a generator is for


@dataclass(frozen=True)
class Config(Arrangement):
    """Settings of the label stream."""

    length: int = 100_000  # samples
    classes: int = 10  # number of classes
    rho: float = 0.9  # probability that the next label is not drawn afresh
    skew: float = 0.0  # of the class frequencies: 0 uniform, 1 Zipf's law


def build(config: Config) -> Stream:
    """The stream of a configuration."""
    labels = _labels(config)
    nothing = np.empty((config.length, 0), np.uint8)
    source = ArraySource(nothing, labels, classes=config.classes)
    return arrange(source, config, name="markov", settings=vars(config))


def truth(config: Config) -> generate.Chain:
    """All closed forms of the label process, as one object."""
    _check(config)
    return generate.Chain(
        generate.shares(generate.weights(config.classes, config.skew)), config.rho
    )


blind_accuracy_truth, unlimited_history_truth, true_shift, blind_shift = generate.closed_forms(
    truth
)


def _labels(config: Config) -> IntArray:
    """The chain, piece by piece, so that only the labels themselves grow with its length."""
    _check(config)
    weight = generate.weights(config.classes, config.skew)
    fresh = generate.redraws(config.length, config.rho, generate.words(config.seed, _MOVES))
    choices = generate.words(config.seed, _CLASSES)
    label = np.empty(config.length, generate.smallest_type(config.classes))
    last = 0
    for part in pieces(config.length):
        number = np.cumsum(fresh[part])
        drawn = generate.draw(choices.random_raw(int(number[-1])), weight)
        label[part] = np.append(last, drawn)[number]
        last = int(label[part][-1])
    return label


def _check(config: Config) -> None:
    if config.length < 1:
        raise StreamgaugeError(f"The stream is empty: length is {config.length}.")
    if not 0 <= config.rho < 1:
        raise StreamgaugeError(
            f"rho is a probability from 0 up to, but not including, 1; it is {config.rho}."
        )
