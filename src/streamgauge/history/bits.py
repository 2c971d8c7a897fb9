"""How many bits of the labels past labels explain, and how many a model's answers add.

All figures are bits per sample, prequential: each label is coded with what was known when its
sample was answered. With base(y) the running frequencies and q(y) the mixture of all forecasters
(:mod:`streamgauge.history.forecasters`),

    base      = mean of -log2 base(label)
    remaining = mean of -log2 q(label)
    history   = base - remaining

The answers a of a model are used through

    p_beta(y) = q(y) (beta if y = a, else 1) / (1 + (beta - 1) q(a)),

mixed over a grid of beta from 1/8 to 4096 that holds 1 (half of the weight at the beginning).
Weights v are proportional to v p_beta(label)^(1 / (D + 1)) and get a share of 0.0002 / (D + 1)
toward equal weights when a label becomes known (D and situations as for the forecasters). Further
experts, where the log has what they need: the model's own p(label), 0.9 p + 0.1 q and 0.5 p + 0.5
q; and its confidence c, as c for the answer and (1 - c) q(y) / (1 - q(a)) for the rest.

    added     = mean of log2 (sum of v p(label) / q(label))
    placebo   = the same for answers that are the mixture's own top class

Both are "beyond these forecasters, if each answer came before its label": an answer that follows a
pattern of past labels outside of the family, or that saw labels of its own batch, adds bits too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamgauge.errors import StreamgaugeError
from streamgauge.history.forecasters import (
    Codes,
    FamilyRun,
    Forecasts,
    GroupColumns,
    forecast,
    groups_of,
)
from streamgauge.history.intervals import correlated_blocks, ratio_error, t_quantile
from streamgauge.history.known import (
    Floats,
    Known,
    Regular,
    as_seconds,
    check_shifts,
    check_step,
    encode,
    known_labels,
)

WARM_UP = 0.1
BLOCKS = 2000
PARTS = 100
RESOLUTION = 2.0  # bits in the whole stream that learning beta can cost by chance
SCHEMA = {
    "base, history, remaining, added, placebo": "object: value, low, high (bits per sample or null)"
    ", blocks (independent blocks behind the interval), samples",
    "scored": "samples that are scored",
    "warm_up": "samples before them, learnt but not scored",
    "classes": "classes among the labels",
    "blocks": "independent blocks behind the interval of added (of history without answers)",
    "missing": "list of columns that could hold further history: user, album, time",
    "experts": "list of objects, heaviest first: name, weight (mean), weights (per part)",
    "over_time": "object of lists per part of the stream: position (its first sample), samples, "
    "base, history, remaining, added, placebo (bits per sample or null)",
}
"""The JSON object of :meth:`Explanation.to_dict`."""


class BitEstimate(NamedTuple):
    """Bits per sample with a 95 % interval; NaN where unknown."""

    value: float
    low: float
    high: float
    blocks: float = 0.0
    """Independent blocks behind the interval."""
    samples: int = 0


UNKNOWN = BitEstimate(math.nan, math.nan, math.nan)


class Expert(NamedTuple):
    """A forecaster and its weight in the mixture."""

    name: str
    weight: float
    """Mean over the scored samples."""
    weights: list[float]
    """Per part of the stream, as in ``Explanation.over_time``."""


@dataclass(frozen=True)
class Explanation:
    """What past labels explain of the labels, and what the answers add, in bits per sample."""

    base: BitEstimate
    history: BitEstimate
    remaining: BitEstimate
    added: BitEstimate
    """NaN without answers."""
    placebo: BitEstimate
    """NaN without answers."""
    experts: list[Expert]
    """Heaviest first."""
    over_time: dict[str, list[float]]
    """Per part of the stream: position (of its first sample), samples, base, history, remaining,
    added, placebo."""
    scored: int
    warm_up: int
    """Samples before the scored ones: learnt, but not scored."""
    classes: int
    missing: list[str]
    """Columns that could hold further history and were not given: user, album, time."""

    @property
    def blocks(self) -> float:
        """Independent blocks behind the interval of ``added``; of ``history`` without answers."""
        return self.history.blocks if math.isnan(self.added.value) else self.added.blocks

    def to_dict(self) -> dict[str, Any]:
        """Plain objects for JSON, as described by SCHEMA; unknown numbers are None."""
        figures = ("base", "history", "remaining", "added", "placebo")
        result: dict[str, Any] = {name: getattr(self, name)._asdict() for name in figures}
        for name in ("scored", "warm_up", "classes", "blocks", "missing", "over_time"):
            result[name] = getattr(self, name)
        result["experts"] = [expert._asdict() for expert in self.experts]
        plain: dict[str, Any] = _without_nan(result)
        return plain


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_without_nan(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def explain(
    labels: ArrayLike,
    predictions: ArrayLike | None = None,
    *,
    shift: ArrayLike = 0,
    step: ArrayLike = 1,
    times: ArrayLike | None = None,
    label_times: ArrayLike | None = None,
    users: ArrayLike | None = None,
    albums: ArrayLike | None = None,
    logp: ArrayLike | None = None,
    confidence: ArrayLike | None = None,
    delay: int = 0,
) -> Explanation:
    """Bits per sample that past labels explain, and that the predictions add to them.

    ``shift``, ``step``, ``times``, ``label_times`` and ``delay`` say which labels were known when a
    sample was answered: see :func:`streamgauge.history.known.known_labels`. ``logp`` is the natural
    logarithm of the model's probability of the true label, ``confidence`` that of its answer.
    Samples without an answer (None, NaN, or below 0 where labels are class numbers) are learnt but
    not scored, as is the first tenth of the stream. An answer that no label has adds nothing. The
    classes are those of all labels.

    >>> labels = np.arange(3000) % 10
    >>> result = explain(labels, predictions=labels)
    >>> round(result.base.value, 1), round(result.history.value, 1), round(result.added.value, 1)
    (3.3, 3.3, 0.0)
    """
    codes, classes, names = _compact(labels)
    count = codes.size
    seconds = None if times is None else _checked(as_seconds(times), count, "times")
    groups = groups_of(
        count,
        times=None if seconds is None else np.nan_to_num(seconds, nan=-1.0),
        users=None if users is None else _checked(encode(users)[0], count, "users"),
        albums=None if albums is None else _checked(encode(albums)[0], count, "albums"),
    )
    known: Known | Regular
    if label_times is None and np.ndim(shift) == np.ndim(step) == 0:
        known = Regular(int(check_shifts(shift)[0]), check_step(step)[1], delay)
    else:
        known = known_labels(
            count, shift=shift, step=step, times=times, label_times=label_times, delay=delay
        )
    answers = None
    if predictions is not None:
        answers = _checked(_answers(predictions, names, classes), count, "predictions")
    elif logp is not None:
        answers = np.full(count, -1, np.int32)
    start = int(count * WARM_UP)
    done = forecast(
        codes,
        classes,
        known,
        groups,
        answers=answers,
        logp=None if logp is None else _checked(np.asarray(logp, np.float64), count, "logp"),
        confidence=None if confidence is None else _confidences(confidence, count),
        start=start,
        block=max(1, (count - start) // BLOCKS),
    )
    given = (("user", users), ("album", albums), ("time", times))
    missing = [name for name, column in given if column is None]
    return _explanation(done, answers is not None, start, classes, missing)


class StreamPart(NamedTuple):
    """Some rows of a stream. Labels and predictions are class numbers; -1: no prediction."""

    labels: Codes
    predictions: Codes | None
    groups: GroupColumns
    logp: Floats | None = None
    confidence: Floats | None = None


def explain_parts(
    parts: Iterable[StreamPart], count: int, seen: NDArray[np.bool_], known: Regular
) -> Explanation:
    """:func:`explain` for a stream of ``count`` samples that is read in parts. ``seen``: which
    classes are among the labels."""
    classes, start = int(seen.sum()), int(count * WARM_UP)
    numbers = np.append(np.where(seen, np.cumsum(seen) - 1, -1), -2).astype(np.int32)
    run, answered, names = None, False, tuple[str, ...]()
    for labels, predictions, groups, logp, confidence in parts:
        if run is None:
            answered, names = predictions is not None, groups.names
            block = max(1, (count - start) // BLOCKS)
            layout: dict[str, Any] = {"names": names, "last": groups.last}
            run = FamilyRun(classes, known, count, **layout, start=start, block=block)
        answers = None if predictions is None else numbers[predictions]
        own: dict[str, Any] = {"logp": logp, "confidence": confidence}
        run.feed(numbers[labels], groups.values, answers=answers, **own)
    assert run is not None
    missing = [n for n in ("user", "album") if n not in names]
    missing += [] if "hour" in names else ["time"]
    return _explanation(run.result(), answered, start, classes, missing)


def _compact(labels: ArrayLike) -> tuple[Codes, int, np.ndarray[Any, Any] | None]:
    """Class numbers without gaps, their number, and the labels of the classes in sorted order (None
    if the labels are those numbers)."""
    values = np.asarray(labels)
    codes, classes = encode(values)
    if values.dtype.kind in "iub":
        seen = np.bincount(codes, minlength=classes) > 0
        if seen.all() and int(values.max(initial=0)) + 1 == classes:
            return codes, classes, None
        names = np.unique(values)
        return (np.cumsum(seen) - 1).astype(np.int32)[codes], int(seen.sum()), names
    return codes, classes, np.unique(values if values.dtype.kind in "US" else values.astype(str))


def _answers(predictions: ArrayLike, names: np.ndarray[Any, Any] | None, classes: int) -> Codes:
    """Class numbers of the answers; -1 for answers that no label has, -2 where there is none."""
    values = np.asarray(predictions)
    if values.dtype.kind in "iub" and names is None:
        codes = np.where(values < classes, values, -1).astype(np.int32)
        codes[values < 0] = -2
        return codes
    if values.dtype.kind in "iubf":
        numbered = names is None or names.dtype.kind in "iub"  # such labels are never below 0
        missing = np.isnan(values) | ((values < 0) & numbered)
    else:
        missing = np.array([v is None or v != v for v in values.tolist()], np.bool_)
    if names is None:
        names = np.arange(classes)
    filled = np.where(missing, names[0], values)
    try:
        filled = filled.astype(str if names.dtype.kind in "US" else np.float64)
    except ValueError:
        raise StreamgaugeError(
            "predictions are text but labels are numbers: give both in the same form"
        ) from None
    at = np.minimum(np.searchsorted(names, filled), names.size - 1)
    return np.where(missing, -2, np.where(names[at] == filled, at, -1)).astype(np.int32)


def _checked(values: Any, count: int, name: str) -> Any:
    if values.shape != (count,):
        raise StreamgaugeError(
            f"{name} has {values.size} entries for {count} labels: give one per sample"
        )
    return values


def _confidences(confidence: ArrayLike, count: int) -> Floats:
    values: Floats = _checked(np.asarray(confidence, np.float64), count, "confidence")
    if np.any((values < 0) | (values > 1)):
        raise StreamgaugeError("confidences must be between 0 and 1: give probabilities")
    return values


def figure(sums: Floats, tries: Floats, resolution: float = 0.0) -> BitEstimate:
    """A mean with its 95 % interval, from sums over short blocks of the stream.

    The interval reaches at least ``resolution`` bits of the whole stream to each side.
    """
    if tries.sum() == 0:
        return UNKNOWN
    value = float(sums.sum() / tries.sum())
    run = correlated_blocks(sums, tries)
    error, blocks = ratio_error(sums, tries, run)
    half = error * t_quantile(0.975, blocks - 1) if blocks >= 2 else math.nan
    half = max(half, resolution / float(tries.sum())) if half == half else half
    return BitEstimate(value, value - half, value + half, float(int(blocks)), int(tries.sum()))


def _per_sample(sums: Floats, samples: Floats) -> Floats:
    """Means; NaN where there are no samples."""
    return np.divide(sums, samples, out=np.full_like(sums, np.nan), where=samples > 0)


def _explanation(
    done: Forecasts, answered: bool, start: int, classes: int, missing: list[str]
) -> Explanation:
    tries = done.tries.astype(np.float64)
    base, mixed, added, placebo = done.bits.T
    curves = {"base": base, "history": base - mixed, "remaining": mixed}
    curves |= {"added": added, "placebo": placebo}
    per_part = -(-tries.size // PARTS) if tries.size else 1
    first = np.arange(0, tries.size, per_part)
    block = int(done.tries[0]) if tries.size else 1
    samples = np.add.reduceat(tries, first) if tries.size else tries
    over_time: dict[str, list[float]] = {
        "position": [float(start + f * block) for f in first],
        "samples": samples.tolist(),
    }
    for name, sums in curves.items():
        unknown = not answered and name in ("added", "placebo")
        part = _per_sample(np.add.reduceat(sums, first), samples) if tries.size else sums
        over_time[name] = [math.nan] * first.size if unknown else part.tolist()
    weights = done.weights
    if tries.size:
        weights = _per_sample(np.add.reduceat(weights, first, axis=0), samples[:, None])
    mean = done.weights.sum(axis=0) / max(1.0, tries.sum())
    experts = [
        Expert(done.names[e], float(mean[e]), [float(w[e]) for w in weights])
        for e in np.argsort(-mean, kind="stable")
    ]
    return Explanation(
        base=figure(base, tries),
        history=figure(base - mixed, tries),
        remaining=figure(mixed, tries),
        added=figure(added, tries, RESOLUTION) if answered else UNKNOWN,
        placebo=figure(placebo, tries, RESOLUTION) if answered else UNKNOWN,
        experts=experts,
        over_time=over_time,
        scored=int(tries.sum()),
        warm_up=start,
        classes=classes,
        missing=missing,
    )
