"""Figures of a service for monitoring, and `/metrics` in the text format of Prometheus.

Counters are of the run, also after a restart. Accuracies are those of the newest thousand labels
whose samples this process answered, so that an alarm can be raised on them.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from streamgauge.live.service import Service

WINDOW = 1000  # labels, and answers at each shift
QUANTILES = (0.5, 0.99)  # of the seconds that an answer takes
FORECASTERS = ("last_label", "most_frequent_label")
TEXT = "text/plain; version=0.0.4; charset=utf-8"


class _Guess(NamedTuple):
    """What past labels alone would have answered when a sample came; None before the first."""

    last: int | None
    frequent: int | None


class ServiceFigures:
    """The newest answers and labels. The service changes them under its lock; they may be read at
    any time."""

    def __init__(self, shifts: Sequence[int] = ()) -> None:
        self.shifts = sorted(shifts)
        self._guesses: dict[int, _Guess] = {}
        self._last: int | None = None
        self._frequent: int | None = None
        self._labels: Counter[int] = Counter()
        self._newest: deque[tuple[bool, bool, bool]] = deque(maxlen=WINDOW)
        self._near = {shift: deque[bool](maxlen=WINDOW) for shift in self.shifts}

    def arrived(self, sample: int) -> None:
        self._guesses[sample] = _Guess(self._last, self._frequent)

    def expired(self, sample: int) -> None:
        self._guesses.pop(sample, None)

    def labelled(self, sample: int, label: int, prediction: int) -> None:
        guess = self._guesses.pop(sample, None)
        if guess is not None:  # not of an earlier process
            blind = guess.last == label, guess.frequent == label
            self._newest.append((prediction == label, *blind))
        self._last = label
        self._labels[label] += 1
        if self._frequent is None or self._labels[label] > self._labels[self._frequent]:
            self._frequent = label

    def near(self, age: int, right: bool) -> None:
        """An answer of an earlier version; an age counts for the largest shift it reaches."""
        at = bisect_right(self.shifts, age) - 1
        if at >= 0:
            self._near[self.shifts[at]].append(right)

    @property
    def online(self) -> float:
        return _share([right for right, *_ in tuple(self._newest)])

    @property
    def blind(self) -> dict[str, float]:
        """By forecaster, on the same samples as `online`."""
        each = zip(*([b for _, *b in tuple(self._newest)] or [[]]), strict=True)
        shares = [_share(hits) for hits in each] or [math.nan] * len(FORECASTERS)
        return dict(zip(FORECASTERS, shares, strict=True))

    @property
    def near_future(self) -> dict[int, float]:
        return {shift: _share(hits) for shift, hits in self._near.items()}


def _share(hits: Collection[bool]) -> float:
    return sum(hits) / len(hits) if hits else math.nan


def quantiles(seconds: Collection[float]) -> dict[float, float]:
    values = np.quantile(list(seconds), QUANTILES) if seconds else [math.nan] * len(QUANTILES)
    return {q: float(value) for q, value in zip(QUANTILES, values, strict=True)}


def metrics_text(service: Service) -> str:
    """All metrics of a service; those that are not known yet are left out."""
    with service.lock:
        families = list(_families(service))
    lines = []
    for name, kind, meaning, values in families:
        full = f"streamgauge_{name}"
        known = [(labels, value) for labels, value in values if not math.isnan(value)]
        lines += [f"# HELP {full} {_escaped(meaning)}", f"# TYPE {full} {kind}"]
        lines += [f"{full}{_labels(labels)} {_number(value)}" for labels, value in known]
    return "\n".join([*lines, ""])


Family = tuple[str, str, str, list[tuple[Mapping[str, Any], float]]]


def _families(service: Service) -> Iterator[Family]:
    """Name, type, meaning, and values by labels."""
    status, figures = service.status(), service.figures
    online, blind = figures.online, figures.blind
    waits = quantiles(service.latencies)
    over = f"of the newest {WINDOW:,} labels"

    def one(name: str, kind: str, meaning: str, value: float) -> Family:
        return name, kind, meaning, [({}, value)]

    yield one("samples_total", "counter", "Samples that were answered.", status["samples"])
    yield one("labels_total", "counter", "Labels that were accepted.", status["labels"])
    yield one("right_total", "counter", "Answers that were right.", service.right)
    yield one("expired_total", "counter", "Samples whose label came too late.", status["expired"])
    yield (
        "refused_total", "counter", "Messages that were refused, by reason.",
        [({"reason": reason}, count) for reason, count in sorted(status["refused"].items())],
    )  # fmt: skip
    yield one("updates_total", "counter", "Training jobs that have ended.", status["updates"])
    skipped = status["batches_skipped"]
    yield one("batches_skipped_total", "counter", "Batches that were not trained on.", skipped)
    yield one("online_accuracy", "gauge", f"Share of right answers {over}.", online)
    yield (
        "blind_accuracy", "gauge",
        f"Share {over} that past labels alone predict, known when the sample came.",
        [({"forecaster": name}, value) for name, value in blind.items()],
    )  # fmt: skip
    yield (
        "near_future_accuracy", "gauge",
        "Share of right answers to samples so far ahead, of the newest of them.",
        [({"shift": shift}, value) for shift, value in figures.near_future.items()],
    )  # fmt: skip
    yield (
        "near_future_gap", "gauge", "Online accuracy minus near-future accuracy.",
        [({"shift": shift}, online - value) for shift, value in figures.near_future.items()],
    )  # fmt: skip
    yield (
        "answer_seconds", "gauge",
        f"Seconds from a message to its answer, quantiles of the newest {WINDOW:,}.",
        [({"quantile": q}, value) for q, value in waits.items()],
    )  # fmt: skip
    yield one("waiting_samples", "gauge", "Samples without a label yet.", status["waiting"])
    yield one(
        "uncommitted_labels", "gauge", "Labels that are in the spool and not yet in the log.",
        service.labels - service.journal.committed,
    )  # fmt: skip
    yield one("model_version", "gauge", "Version of the model that answers.", status["version"])
    training = float(status["training"] == "running")
    yield one("training", "gauge", "1 while training goes on, 0 once it has ended.", training)


def _labels(labels: Mapping[str, Any]) -> str:
    r"""Labels of a metric in the text format of Prometheus.

    >>> print(_labels({"reason": 'a "b"'}))
    {reason="a \"b\""}
    """
    pairs = ",".join(f'{name}="{_escaped(str(v), True)}"' for name, v in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escaped(text: str, quoted: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quoted else text


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
