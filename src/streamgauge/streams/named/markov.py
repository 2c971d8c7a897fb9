"""Labels only: each stays with probability rho or is drawn afresh. The truth is a formula.

There is nothing to look at (inputs have no entries), so whatever accuracy a learner reaches here
it owes to the labels before. Ten million samples cost ten megabytes of labels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.named import _generate as generate
from streamgauge.streams.source import ArraySource, IntArray
from streamgauge.streams.stream import Arrangement, Stream, arrange

_MOVES, _CLASSES = 100, 101  # which draws a generator is for


@dataclass(frozen=True)
class Config(Arrangement):
    """Settings of the label stream."""

    length: int = 100_000  # samples
    classes: int = 10
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


def blind_accuracy_truth(config: Config, shift: int = 0, step: int = 1) -> float:
    """Expected accuracy of repeating the last known label, `shift` samples ahead.

    pi + (1 − pi) rho^(shift + 1) sample by sample, where pi is the sum of squared class
    frequencies; with `step` samples revealed at once the mean over the places in a step.

    >>> round(blind_accuracy_truth(Config(classes=4, rho=0.8), shift=1), 12)  # .25 + .75 · .64
    0.73
    """
    return truth(config).blind_accuracy(shift, step)


def unlimited_history_truth(config: Config) -> float:
    """What the mode of all labels so far tends to: the frequency of the commonest class."""
    return truth(config).unlimited_history


def true_shift(config: Config, margin: float = 0.005) -> int:
    """The smallest shift at which (1 − pi) rho^(shift + 1) lies below the margin.

    >>> true_shift(Config(classes=2, rho=0.5), margin=0.1)  # .5 · .5^3 is the first below .1
    2
    """
    return truth(config).true_shift(margin)


def blind_shift(config: Config, margin: float = 0.005) -> int:
    """The smallest shift from which on labels alone are no better than the commonest class."""
    return truth(config).blind_shift(margin)


def _labels(config: Config) -> IntArray:
    """The chain, piece by piece, so that only the labels themselves grow with its length."""
    _check(config)
    weight = generate.weights(config.classes, config.skew)
    fresh = generate.redraws(config.length, config.rho, generate.words(config.seed, _MOVES))
    choices = generate.words(config.seed, _CLASSES)
    label = np.empty(config.length, generate.smallest_type(config.classes))
    last = 0
    for part in generate.pieces(config.length):
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
