"""Overhead of our loop around models of river and scikit-learn.

    python benchmarks/bridges.py [--samples 4000] [--turns 5]

River's Hoeffding tree one by one and in batches of 100, beside river's own `progressive_val_score`
on the same samples, and `SGDClassifier.partial_fit` in batches of 1 and 100 beside a plain loop
that predicts, compares and fits. Both sides take turns, so that a busy machine slows both; the
median ratio of the turns is printed, by the clock and by CPU time (of all threads). Where other
programs use the cores, the second is the one to believe. Opening and closing a run folder is timed
apart, as it does not depend on the length of the stream.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from river import evaluate, metrics, tree
from sklearn.linear_model import SGDClassifier

import streamgauge as sg
from streamgauge.bridges.river import iterate
from streamgauge.running.active_run import ActiveRun


class Took(NamedTuple):
    """Seconds by the clock and of CPU time."""

    clock: float
    cpu: float

    def __sub__(self, other: Took) -> Took:
        return Took(self.clock - other.clock, self.cpu - other.cpu)


def now() -> Took:
    return Took(time.perf_counter(), time.process_time())


def samples(count: int, classes: int = 5, width: int = 10) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    label = rng.integers(0, classes, count)
    x = rng.normal(size=(classes, width))[label] + rng.normal(size=(count, width))
    return x.astype(np.float32), label


def our_loop(stream: Any, name: str, **settings: Any) -> tuple[Took, float]:
    """Time of the steps, and seconds of opening and closing the run."""
    with tempfile.TemporaryDirectory() as folder:
        began = now()
        execution = sg.Execution(device="cpu", threads=1, log=lambda _: None)
        run = ActiveRun(stream, sg.learner(name, **settings), execution, out=folder)
        run.open()
        stepping = now()
        for _ in run.steps():
            pass
        stepped = now() - stepping
        run.close()
        return stepped, (now() - began - stepped).clock


def progressive(stream: Any) -> Took:
    data = list(iterate(stream))
    began = now()
    evaluate.progressive_val_score(data, tree.HoeffdingTreeClassifier(), metrics.Accuracy())
    return now() - began


def plain_loop(stream: Any) -> Took:
    model, classes, right = SGDClassifier(random_state=0), np.arange(stream.spec.classes), 0
    began = now()
    for step in range(len(stream)):
        index = stream.index(step)
        x, y = stream.source.read(index), stream.source.label[index]
        if step:
            right += int((model.predict(x) == y).sum())
        model.partial_fit(x, y, classes=classes)
    return now() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=4000)
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    x, y = samples(given.samples)
    one, many = sg.stream(x, y, batch=1), sg.stream(x, y, batch=100)
    tree_name, sgd = "river:tree.HoeffdingTreeClassifier", "sklearn:linear_model.SGDClassifier"
    cases: list[tuple[str, Callable[[], tuple[Took, float]], Callable[[], Took]]] = [
        ("Hoeffding tree, one by one", lambda: our_loop(one, tree_name), lambda: progressive(one)),
        ("Hoeffding tree, batches", lambda: our_loop(many, tree_name), lambda: progressive(one)),
        ("SGDClassifier, one by one", lambda: our_loop(one, sgd), lambda: plain_loop(one)),
        ("SGDClassifier, batches", lambda: our_loop(many, sgd), lambda: plain_loop(many)),
    ]
    our_loop(one, tree_name)  # imports and compiles
    heads = ("ours, us", "theirs, us", "ratio", "CPU ratio", "open, close, s")
    print(f"{'':28}" + "".join(f"{head:>{len(head) + 2}}" for head in heads))
    for name, ours, theirs in cases:
        pairs = [(*ours(), theirs()) for _ in range(given.turns)]
        ratio, cpu = (
            statistics.median(own[clock] / other[clock] for own, _, other in pairs)
            for clock in (0, 1)
        )
        least = min(own.cpu for own, _, _ in pairs), min(other.cpu for _, _, other in pairs)
        own, other = (1e6 * seconds / given.samples for seconds in least)
        opening = min(opening for _, opening, _ in pairs)
        print(f"{name:28}{own:>10.1f}{other:>12.1f}{ratio:>7.2f}{cpu:>11.2f}{opening:>16.2f}")


if __name__ == "__main__":
    main()
