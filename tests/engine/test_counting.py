"""Counts on a device against a loop over samples and classes."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.engine.counting import HeldOutLabels, classes_of, right, right_within


def known(label: np.ndarray, task: np.ndarray) -> HeldOutLabels:
    return HeldOutLabels(*(torch.from_numpy(v) for v in (label, task, np.unique(task))))


@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(1, 5), st.integers(1, 9))
def test_counts_are_those_of_a_loop(seed: int, samples: int, limits: int, classes: int) -> None:
    """Few different scores, so that many are equal; some classes are of tasks that come later, and
    some tasks have no class or no sample."""
    rng = np.random.default_rng(seed)
    label, task = rng.integers(0, classes, samples), rng.integers(0, limits, samples)
    class_task = rng.integers(0, limits + 1, classes)
    scores = rng.choice([-np.inf, -1000.0, 0.0, 1.0], (samples, classes)).astype(np.float32)
    numbers = list(np.unique(task))
    plain = np.zeros(len(numbers))
    within = np.zeros((len(numbers), limits))
    for i in range(samples):
        plain[numbers.index(task[i])] += scores[i].argmax() == label[i]
        for limit in range(task[i], limits):
            said, best = -1, -np.inf
            for number in range(limit + 1):
                for c in np.flatnonzero(class_task == number):
                    if scores[i, c] > best:
                        said, best = c, scores[i, c]
            within[numbers.index(task[i]), limit] += said == label[i]
    marks = known(label, task)
    prediction = torch.from_numpy(scores.argmax(1))
    assert right(prediction, marks).tolist() == plain.tolist()
    classes = torch.from_numpy(classes_of(class_task, limits))
    counted = right_within(torch.from_numpy(scores), marks, classes)
    assert counted.tolist() == within.tolist()
