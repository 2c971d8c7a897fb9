"""Overhead of our loop around models of river and scikit-learn.

    python benchmarks/bridges.py [--samples 10000] [--turns 5] [--only tree]

Models of river compared with river's own `progressive_val_score`, which gets the same samples one
by one, as dictionaries that are made before the clock starts; `SGDClassifier.partial_fit` next to a
plain loop that predicts, compares and fits. With inputs that are standardised online, as those of
tables are by default, river's side is a pipeline `StandardScaler | model`. Models with `learn_many`
have another column: what `predict_proba_many` and `learn_many` take alone, on data frames that are
made before the clock starts.

Both sides take turns, so that a busy machine slows both. The median ratio of the pairs is printed,
by the clock and by CPU time (of all threads); where other programs use the cores, the second is
the one to believe. Opening and closing a run folder is timed apart, as it does not depend on the
length of the stream; the last checkpoint is a part of our loop.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas
import torch
from river import evaluate, linear_model, metrics, naive_bayes, preprocessing, tree
from sklearn.linear_model import SGDClassifier

import streamgauge as sg
from streamgauge.bridges.river import feature_names, iterate
from streamgauge.running.active_run import ActiveRun

BATCH = 100
ONE_BY_ONE = 2000  # samples of scikit-learn, one by one: it takes 2 ms for each


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


def our_loop(stream: Any, model: Any) -> tuple[Took, float]:
    """Time of the steps, and seconds of opening and closing the run."""
    with tempfile.TemporaryDirectory() as folder:
        began = now()
        execution = sg.Execution(device="cpu", threads=1, log=lambda _: None)
        run = ActiveRun(stream, sg.learner(model), execution, out=folder)
        run.open()
        stepping = now()
        for _ in run.steps():
            pass
        stepped = now() - stepping
        run.close()
        return stepped, (now() - began - stepped).clock


def progressive(stream: Any, model: Any) -> Took:
    data = list(iterate(stream))
    model = model.clone()
    began = now()
    evaluate.progressive_val_score(data, model, metrics.Accuracy())
    return now() - began


def in_frames(stream: Any, model: Any) -> Took:
    """River's own work on batches: to answer and to learn them, and nothing else."""
    x, y = stream.source.read(stream.order), stream.source.label[stream.order]
    names = pandas.Index(feature_names(x.shape[1]))
    frames = [
        (
            pandas.DataFrame(x[begin : begin + BATCH], columns=names),
            pandas.Series(y[begin : begin + BATCH]),
        )
        for begin in range(0, len(x), BATCH)
    ]
    model = model.clone()
    began = now()
    for number, (frame, label) in enumerate(frames):
        if number:
            model.predict_proba_many(frame)
        model.learn_many(frame, label)
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


class Case(NamedTuple):
    name: str
    samples: int
    ours: Callable[[], tuple[Took, float]]
    theirs: Callable[[], Took]
    frames: Callable[[], Took] | None = None


def cases(count: int) -> list[Case]:
    def stream(batch: int, classes: int, scale: str, width: int, length: int = count) -> Any:
        x, y = samples(length, classes, width)
        return sg.stream(x, y > 0 if classes == 2 else y, batch=batch, scale=scale)

    result: list[Case] = []

    def river(name: str, model: Any, classes: int = 5, width: int = 10) -> None:
        for scale, how in (("none", ""), ("online", ", standardised")):
            one = stream(1, classes, "none", width)
            partner = model if scale == "none" else preprocessing.StandardScaler() | model
            for batch in (1, BATCH):
                own = stream(batch, classes, scale, width)
                many = hasattr(model, "learn_many") and batch > 1
                result.append(
                    Case(
                        f"{name}{how}, {'batches' if batch > 1 else 'one by one'}",
                        count,
                        partial(our_loop, own, model),
                        partial(progressive, one, partner),
                        partial(in_frames, one, partner) if many else None,
                    )
                )

    river("Hoeffding tree", tree.HoeffdingTreeClassifier())
    river("LogisticRegression", linear_model.LogisticRegression(), 2)
    river("LogisticRegression of 100", linear_model.LogisticRegression(), 2, 100)
    river("GaussianNB", naive_bayes.GaussianNB())
    for batch, length in ((1, min(count, ONE_BY_ONE)), (BATCH, count)):
        own = stream(batch, 5, "none", 10, length)
        how = "batches" if batch > 1 else "one by one"
        ours = partial(our_loop, own, SGDClassifier())
        result.append(Case(f"SGDClassifier, {how}", length, ours, partial(plain_loop, own)))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--only", default="", help="a part of the names of cases")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for model in (tree.HoeffdingTreeClassifier(), SGDClassifier()):  # imports and compiles
        our_loop(sg.stream(*samples(300), batch=BATCH), model)
    heads = ("ours, us", "theirs, us", "ratio", "CPU ratio", "open, close, s", "frames alone, us")
    print(f"{'':41}" + "".join(f"{head:>{len(head) + 2}}" for head in heads))
    for case in cases(given.samples):
        if given.only not in case.name:
            continue
        pairs = [(*case.ours(), case.theirs()) for _ in range(given.turns)]
        ratio, cpu = (
            statistics.median(own[clock] / other[clock] for own, _, other in pairs)
            for clock in (0, 1)
        )
        least = min(own.cpu for own, _, _ in pairs), min(other.cpu for _, _, other in pairs)
        own, other = (1e6 * seconds / case.samples for seconds in least)
        opening = min(opening for _, opening, _ in pairs)
        line = f"{case.name:41}{own:>10.1f}{other:>12.1f}{ratio:>7.2f}{cpu:>11.2f}{opening:>16.2f}"
        if case.frames is not None:
            alone = min(case.frames().cpu for _ in range(given.turns))
            line += f"{1e6 * alone / case.samples:>18.1f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
