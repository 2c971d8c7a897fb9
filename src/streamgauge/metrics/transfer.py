"""Curves over held-out data that lies all along the stream: the past, the future, all of it.

All of them read ``answers``, what the model said to held-out samples at a few evaluations, and use
``position``, the number of stream samples before a held-out one, as the axis; times are given along
with it where the log has them. A held-out sample lies in the past of a model that has been shown P
samples of the stream if its position is below P.

Directions differ between the papers, and are stated: the curves of CLOC start at the model's moment
and go outwards (``backward_transfer_curve`` into the past, ``forward_transfer_curve`` into the
future), those of EvalOCL start at the beginning of the stream and come forward
(``retention_curve``). So the retention curve of the final model and its backward transfer curve end
at the same value, the accuracy over all held-out data, and begin at opposite ends of time.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamgauge.metrics._arrays import Anything, Floats, Integers, UndefinedMetric, choice, share
from streamgauge.metrics.log import Log, choose_split, column, table_of

THIRDS = (1 / 3, 2 / 3, 1.0)


class TransferCurve(NamedTuple):
    """Cumulative accuracy going away from the moment of the model, one point a held-out sample."""

    fraction: float  # of the stream, as asked for
    step: int  # steps the model had made, -1 where there is no evaluation near that fraction
    position: int  # stream samples it had been shown
    accuracy: Floats  # over the held-out samples up to this distance
    lag: Integers  # distance, in stream samples, between the model's moment and the held-out sample
    time: Floats  # time of the held-out sample, NaN where the log has no times


class RetentionCurve(NamedTuple):
    """Accuracy on held-out data from the beginning of the stream on, oldest first."""

    kind: str
    direction: str
    position: Integers  # on the stream's axis, in samples
    time: Floats  # NaN where the log has no times
    accuracy: Floats


class _Answers(NamedTuple):
    evaluation: Anything
    step: Integers
    position: Integers
    time: Floats
    correct: NDArray[np.bool_]


def _answers(log: Log, split: str | None) -> _Answers:
    table = log.answers
    chosen = choose_split(table, split, "answers")
    keep = np.flatnonzero(column(table, "split", "answers") == chosen)
    position = column(table, "position", "answers")[keep].astype(np.int64)
    time = np.asarray(table["time"])[keep] if "time" in table else np.full(len(keep), np.nan)
    label, prediction = column(table, "label", "answers"), column(table, "prediction", "answers")
    return _Answers(
        evaluation=column(table, "evaluation", "answers")[keep],
        step=column(table, "step", "answers")[keep].astype(np.int64),
        position=position,
        time=time.astype(np.float64),
        correct=np.asarray(label[keep] == prediction[keep]),
    )


def _horizon(log: Log) -> int:
    """How many steps the run made."""
    made = [0]
    steps = table_of(log, "predictions").get("step")
    if steps is not None and len(steps):
        made.append(int(np.max(steps)) + 1)
    for name in ("evaluations", "answers"):
        steps = table_of(log, name).get("step")
        if steps is not None and len(steps):
            made.append(int(np.max(steps)))
    return max(made)


def _shown(log: Log, steps: Sequence[int], held_out: Integers) -> list[int]:
    """How many stream samples had been shown after so many steps.

    Counted from the online predictions. A run that did not predict has none: then steps are taken
    to be equally large, and the stream to end with the last held-out sample.
    """
    table = table_of(log, "predictions")
    if "step" in table and len(table["step"]):
        online = np.asarray(table["step"])
        if "shift" in table:
            online = online[np.asarray(table["shift"]) == 0]
        online = np.sort(online)
        return [int(np.searchsorted(online, step, side="left")) for step in steps]
    horizon = max(_horizon(log), 1)
    # One beyond the last held-out sample: at the end of the stream all of them are past.
    length = int(held_out.max(initial=-1)) + 1
    return [round(step / horizon * length) for step in steps]


def _at_fractions(log: Log, answers: _Answers, at: Sequence[float]) -> list[int | None]:
    """The step of the evaluation nearest to each fraction of the run, None if none is near."""
    horizon = _horizon(log)
    steps = np.unique(answers.step)
    found: list[int | None] = []
    for fraction in at:
        nearest_step = int(steps[np.abs(steps - fraction * horizon).argmin()])
        near = abs(nearest_step - fraction * horizon) <= max(1.0, horizon / 20)
        found.append(nearest_step if near else None)
    return found


def _curves(
    log: Log, at: Sequence[float], split: str | None, past: bool
) -> tuple[TransferCurve, ...]:
    answers = _answers(log, split)
    steps = _at_fractions(log, answers, at)
    moments = _shown(log, [-1 if step is None else step for step in steps], answers.position)
    curves = []
    for fraction, step, moment in zip(at, steps, moments, strict=True):
        if step is None:
            warnings.warn(
                f"there is no evaluation with held-out answers near {fraction:.3g} of the stream.",
                UndefinedMetric,
                stacklevel=3,
            )
            none = np.empty(0)
            curves.append(TransferCurve(fraction, -1, -1, none, none.astype(np.int64), none))
            continue
        # Of several evaluations at one step the last is meant.
        latest = answers.evaluation[answers.step == step].max()
        side = (answers.position < moment) if past else (answers.position >= moment)
        keep = np.flatnonzero((answers.evaluation == latest) & side)
        keep = keep[np.argsort(answers.position[keep], kind="stable")]
        if past:
            keep = keep[::-1]
        position = answers.position[keep]
        curves.append(
            TransferCurve(
                fraction=float(fraction),
                step=step,
                position=moment,
                accuracy=np.cumsum(answers.correct[keep]) / np.arange(1, len(keep) + 1),
                lag=moment - position if past else position - moment,
                time=answers.time[keep],
            )
        )
    return tuple(curves)


def backward_transfer_curve(
    log: Log, at: Sequence[float] = THIRDS, split: str | None = None
) -> tuple[TransferCurve, ...]:
    """How well the model as it was at H/3, 2H/3 and H knows the past, newest past first.

    acc_B@T(t_B) = mean over held-out samples that lie at most t_B before T of [the model of time T
    is right], as a function of t_B. One curve for each fraction in ``at``, from the evaluation
    nearest to it (within a twentieth of the stream; otherwise an empty curve and a warning).

    Source: Cai et al. 2021 (CLOC), equation 2.

    >>> from types import SimpleNamespace
    >>> log = SimpleNamespace(answers={
    ...     "evaluation": np.zeros(3, int), "step": np.full(3, 3), "split": np.array(["test"] * 3),
    ...     "label": np.array([0, 1, 1]), "prediction": np.array([0, 0, 1]),
    ...     "position": np.array([1, 2, 3])},
    ...     predictions={"step": np.array([0, 1, 2, 2]), "shift": np.zeros(4, int)})
    >>> (curve,) = backward_transfer_curve(log, at=[1.0])
    >>> curve.lag, curve.accuracy.round(3)
    (array([1, 2, 3]), array([1.   , 0.5  , 0.667]))
    """
    return _curves(log, at, split, past=True)


def forward_transfer_curve(
    log: Log, at: Sequence[float] = THIRDS, split: str | None = None
) -> tuple[TransferCurve, ...]:
    """How well the model as it was at H/3, 2H/3 and H does on what comes later, nearest first.

    acc_F@T(t_F) = mean over held-out samples that lie at most t_F after T of [the model of time T
    is right]. At T = H there is no later and the curve is empty, or holds the few held-out samples
    behind the stream's last one.

    Source: Cai et al. 2021 (CLOC), equation 3.

    >>> from types import SimpleNamespace
    >>> log = SimpleNamespace(answers={
    ...     "evaluation": np.zeros(3, int), "step": np.full(3, 1), "split": np.array(["test"] * 3),
    ...     "label": np.array([0, 1, 1]), "prediction": np.array([0, 0, 1]),
    ...     "position": np.array([0, 2, 3])},
    ...     predictions={"step": np.array([0, 1, 2]), "shift": np.zeros(3, int)})
    >>> (curve,) = forward_transfer_curve(log, at=[1 / 3])
    >>> curve.lag, curve.accuracy
    (array([1, 2]), array([0. , 0.5]))
    """
    return _curves(log, at, split, past=False)


def retention_curve(log: Log, kind: str = "final", split: str | None = None) -> RetentionCurve:
    """How much of the stream's held-out data the model still gets right, oldest first.

    kind="final": the last model on a growing set, from the first held-out sample to each later one;
    the last point is plain held-out accuracy. kind="each": one point an evaluation, the model of
    that moment on all held-out samples that lie before it. Both run from the beginning of the
    stream to its end, opposite to :func:`backward_transfer_curve`.

    Source: Hammoud et al. 2023 (EvalOCL), section 3.1.

    >>> from types import SimpleNamespace
    >>> log = SimpleNamespace(predictions={}, evaluations={}, answers={
    ...     "evaluation": np.zeros(3, int), "step": np.full(3, 3), "split": np.array(["test"] * 3),
    ...     "label": np.array([0, 1, 1]), "prediction": np.array([0, 0, 1]),
    ...     "position": np.array([1, 2, 3])})
    >>> retention_curve(log).accuracy.round(3)
    array([1.   , 0.5  , 0.667])
    """
    choice("kind", kind, ("final", "each"))
    answers = _answers(log, split)
    latest = np.lexsort((answers.evaluation, answers.step))[-1]
    if kind == "final":
        keep = np.flatnonzero(answers.evaluation == answers.evaluation[latest])
        keep = keep[np.argsort(answers.position[keep], kind="stable")]
        accuracy = np.cumsum(answers.correct[keep]) / np.arange(1, len(keep) + 1)
        place, when = answers.position[keep], answers.time[keep]
    else:
        numbers, first = np.unique(answers.evaluation, return_index=True)
        in_time = np.lexsort((numbers, answers.step[first]))
        numbers, steps = numbers[in_time], answers.step[first][in_time]
        moments = _shown(log, [int(step) for step in steps], answers.position)
        values, times = [], []
        for number, moment in zip(numbers, moments, strict=True):
            mine = (answers.evaluation == number) & (answers.position < moment)
            values.append(share(np.count_nonzero(answers.correct[mine]), np.count_nonzero(mine)))
            times.append(answers.time[mine].max() if mine.any() else np.nan)
        place, when, accuracy = np.asarray(moments), np.asarray(times), np.asarray(values)
    return RetentionCurve(kind, "oldest to newest", place, when, accuracy)
