"""The calibration: its streams' truth, its counting, and a few short streams of the real thing."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def streams():
    sys.path.insert(0, str(BENCHMARKS))
    import calibration_streams

    yield calibration_streams
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def calibration(streams):
    import calibration

    return calibration


def test_known_probabilities_are_those_of_the_labels(streams):
    """The code length under the exact probabilities is the entropy, on every family."""
    for family in streams.families().values():
        stream = family.draw(np.random.default_rng(1), 4_000)
        known = stream.predictive
        np.testing.assert_allclose(known.sum(1), 1)
        code = -np.log2(known[np.arange(4_000), stream.labels])
        gap = code - streams.entropy(known)
        assert abs(gap.mean()) < 5 * gap.std() / math.sqrt(len(gap)) + 1e-9, family.name


def test_forward_algorithm_against_all_paths(streams):
    """P(label | labels before) of a stream with hidden states, by summing over all paths."""
    from itertools import product

    stream = streams.regimes(np.random.default_rng(2), 6, classes=3)
    made, n = stream.generator, 6

    def joint(labels):
        total = 0.0
        for path in product(range(2), repeat=len(labels)):
            chance = made.start[path[0]]
            for t, label in enumerate(labels):
                chance *= made.move[path[t - 1], path[t]] if t else 1.0
                chance *= made.emit[path[t], labels[t - 1] if t else 3, label]
            total += chance
        return total

    for t in range(n):
        past = list(stream.labels[:t])
        expected = [joint([*past, c]) / (joint(past) if past else 1.0) for c in range(3)]
        np.testing.assert_allclose(stream.predictive[t], expected)


@pytest.mark.parametrize("fallback", [None, 2])
def test_information_against_the_joint_table(streams, fallback):
    rng = np.random.default_rng(3)
    known = rng.dirichlet(np.ones(4))
    share, accuracy = (1.0, 0.7) if fallback is None else (0.4, 0.7)
    joint = np.zeros((4, 4))
    for label in range(4):
        for answer in range(4):
            chance = accuracy if answer == label else (1 - accuracy) / 3
            joint[label, answer] = known[label] * (
                share * chance + (1 - share) * (answer == fallback)
            )
    outer = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = np.nansum(joint * np.log2(joint / outer))
    fixed = None if fallback is None else np.array([fallback])
    found = streams.information(known[None], accuracy, share, fixed)
    assert found[0] == pytest.approx(expected)


def test_rules_that_answer(streams):
    stream = streams.sticky(np.random.default_rng(4), 300, 0.6, classes=3)
    labels = stream.labels
    modes = streams.mode(stream, 10)
    for t in range(1, 300):
        counts = np.bincount(labels[max(0, t - 10) : t], minlength=3)
        assert counts[modes[t]] == counts.max()
    made = streams.interleaved(np.random.default_rng(5), 300)
    answers = streams.context_label(made)
    last = {}
    for user, label, answer in zip(made.columns["users"], made.labels, answers, strict=True):
        assert answer == last.get(user, 0)
        last[user] = label


def test_coverage_is_counted_against_the_other_streams(calibration):
    rng = np.random.default_rng(6)
    rows = np.zeros((4_000, len(calibration.FIELDS)))
    rows[:, 0] = rng.normal(0.3, 0.01, 4_000)
    rows[:, 1], rows[:, 2] = rows[:, 0] - 0.0196, rows[:, 0] + 0.0196
    assert calibration.covered(rows) / 4_000 == pytest.approx(0.95, abs=0.015)


def test_shifts_are_judged_by_the_exact_curve(calibration, streams):
    family = streams.families()["sticky 0.9"]
    curve = {"0": 0.8, "16": 0.1, "64": 0.0}
    right = {"shift": 40, "low": 20, "high": 40, "curve": curve}
    early = {"shift": 20, "low": 10, "high": 20, "curve": curve}
    found = calibration.shift_summary(family, [right, right, early, {**early, "shift": None}])
    # .9 * (.9 - .1 / 9) ** (shift + 1) is below .02 from 32 on.
    counts = {"given": 4, "covered": 2, "named": 3, "early": 1}
    assert found == {"streams": 4, "truth": 32, **counts}


def test_a_quick_calibration(calibration):
    """Rough coverage on short streams, and a page of all sections."""
    found = calibration.quick(count=24)
    made = [one for name in found for one in found[name]["bits"]["1000"].values()]
    share = sum(one["covered"] for one in made) / sum(one["streams"] for one in made)
    assert share > 0.85
    sticky = found["sticky 0.9"]["bits"]["1000"]
    assert sticky["copy"]["yes"] == 0
    assert sticky["honest"]["no"] == 0
    assert abs(sticky["honest"]["bias"]) < 0.1
    assert sticky["honest"]["streams"] == 8
    assert found["sticky 0.9"]["shift"]["1000"]["early"] == 0
    page = calibration.page(found)
    assert page.count("| sticky 0.9 |") == 1 + 3 * 5 + 1
