"""Overhead of our loop around models of river and scikit-learn.

    python benchmarks/bridges.py [--samples 4000] [--turns 5]

River's Hoeffding tree one by one and in batches of 100, beside river's own `progressive_val_score`
on the same samples, and `SGDClassifier.partial_fit` in batches of 1 and 100 beside a plain loop
that predicts, compares and fits. Both sides take turns, so that a busy machine slows both; the
median ratio of the turns is printed. Opening and closing a run folder is timed apart, as it does
not depend on the length of the stream.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from river import evaluate, metrics, tree
from sklearn.linear_model import SGDClassifier

import streamgauge as sg
from streamgauge.bridges.river import iterate
from streamgauge.running.active_run import ActiveRun


def samples(count: int, classes: int = 5, width: int = 10) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    label = rng.integers(0, classes, count)
    x = rng.normal(size=(classes, width))[label] + rng.normal(size=(count, width))
    return x.astype(np.float32), label


def our_loop(stream: Any, name: str, **settings: Any) -> tuple[float, float]:
    """Seconds of the steps, and of opening and closing the run."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        execution = sg.Execution(device="cpu", threads=1, log=lambda _: None)
        run = ActiveRun(stream, sg.learner(name, **settings), execution, out=folder)
        run.open()
        stepping = time.perf_counter()
        for _ in run.steps():
            pass
        stepped = time.perf_counter() - stepping
        run.close()
        return stepped, time.perf_counter() - began - stepped


def progressive(stream: Any) -> float:
    data = list(iterate(stream))
    began = time.perf_counter()
    evaluate.progressive_val_score(data, tree.HoeffdingTreeClassifier(), metrics.Accuracy())
    return time.perf_counter() - began


def plain_loop(stream: Any) -> float:
    model, classes, right = SGDClassifier(random_state=0), np.arange(stream.spec.classes), 0
    began = time.perf_counter()
    for step in range(len(stream)):
        index = stream.index(step)
        x, y = stream.source.read(index), stream.source.label[index]
        if step:
            right += int((model.predict(x) == y).sum())
        model.partial_fit(x, y, classes=classes)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=4000)
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    x, y = samples(given.samples)
    one, many = sg.stream(x, y, batch=1), sg.stream(x, y, batch=100)
    tree_name, sgd = "river:tree.HoeffdingTreeClassifier", "sklearn:linear_model.SGDClassifier"
    cases: list[tuple[str, Callable[[], tuple[float, float]], Callable[[], float]]] = [
        ("Hoeffding tree, one by one", lambda: our_loop(one, tree_name), lambda: progressive(one)),
        ("Hoeffding tree, batches", lambda: our_loop(many, tree_name), lambda: progressive(one)),
        ("SGDClassifier, one by one", lambda: our_loop(one, sgd), lambda: plain_loop(one)),
        ("SGDClassifier, batches", lambda: our_loop(many, sgd), lambda: plain_loop(many)),
    ]
    our_loop(one, tree_name)  # imports and compiles
    print(f"{'':28}{'ours, us':>10}{'theirs, us':>12}{'ratio':>8}{'open, close, s':>16}")
    for name, ours, theirs in cases:
        times = [(ours(), theirs()) for _ in range(given.turns)]
        ratio = statistics.median(own[0] / other for own, other in times)
        least, opening = min(own[0] for own, _ in times), min(own[1] for own, _ in times)
        other = min(other for _, other in times)
        print(
            f"{name:28}{1e6 * least / given.samples:>10.1f}{1e6 * other / given.samples:>12.1f}"
            f"{ratio:>8.2f}{opening:>16.2f}"
        )


if __name__ == "__main__":
    main()
