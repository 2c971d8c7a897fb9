"""Accuracy curves over held-out samples distributed along the stream: past, future, or all.

All curves read the table ``answers`` (predictions of held-out samples at a few evaluations). Their
axis is ``position``, the number of stream samples before a held-out sample; times are included if
the log has them. A held-out sample is in the past of a model that was trained on the first P
samples of the stream if its position is below P.

The direction of the axis follows the papers. Curves of CLOC begin at the position of the model and
go into the past (``backward_transfer_curve``) or into the future (``forward_transfer_curve``);
those of EvalOCL begin at the start of the stream (``retention_curve``). So the retention curve and
the backward transfer curve of the final model have the same last value, the accuracy over all
held-out samples, but begin at opposite ends of the stream.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamgauge.metrics._arrays import Anything, Floats, Integers, UndefinedMetric, choice, share
from streamgauge.metrics.log import RunLog, choose_split, columns, table_of

THIRDS = (1 / 3, 2 / 3, 1.0)


class TransferCurve(NamedTuple):
    """Cumulative accuracy by distance from the model's position, one point per held-out sample."""

    fraction: float  # of the stream, as requested
    step: int  # training steps of the model, -1 if there is no evaluation near that fraction
    position: int  # stream samples that the model had been shown
    accuracy: Floats  # over the held-out samples up to this distance
    lag: Integers  # distance, in stream samples, between the model and the held-out sample
    time: Floats  # time of the held-out sample, NaN where the log has no times


class RetentionCurve(NamedTuple):
    """Accuracy on held-out samples from the start of the stream, oldest first."""

    kind: str
    direction: str
    position: Integers  # on the stream's axis, in samples
    time: Floats  # NaN where the log has no times
    accuracy: Floats


class _AnswerColumns(NamedTuple):
    evaluation: Anything
    step: Integers
    position: Integers
    time: Floats
    correct: NDArray[np.bool_]

    def curve(
        self, mask: NDArray[np.bool_], newest_first: bool = False
    ) -> tuple[Integers, Floats, Floats]:
        """Positions, times and cumulative accuracy of some answers, in order of position."""
        keep = np.flatnonzero(mask)
        keep = keep[np.argsort(self.position[keep], kind="stable")][:: -1 if newest_first else 1]
        accuracy = np.cumsum(self.correct[keep]) / np.arange(1, len(keep) + 1)
        return self.position[keep], self.time[keep], accuracy


def _answers(log: RunLog, split: str | None) -> _AnswerColumns:
    chosen = choose_split(log.answers, split, "answers")
    splits, *logged = columns(
        log, "answers", "split", "evaluation", "step", "position", "label", "prediction"
    )
    keep = np.flatnonzero(splits == chosen)
    evaluation, step, position, label, prediction = (values[keep] for values in logged)
    time = np.asarray(log.answers.get("time", np.full(len(splits), np.nan)))[keep]
    return _AnswerColumns(
        evaluation,
        step.astype(np.int64),
        position.astype(np.int64),
        time.astype(np.float64),
        correct=np.asarray(label == prediction),
    )


def _horizon(log: RunLog) -> int:
    """The number of steps of the run."""
    numbers = [np.asarray(table_of(log, "predictions").get("step", ())) + 1]
    numbers += [
        np.asarray(table_of(log, name).get("step", ())) for name in ("evaluations", "answers")
    ]
    return max(int(steps.max(initial=0)) for steps in numbers)


def _shown(log: RunLog, steps: Sequence[int], held_out: Integers) -> list[int]:
    """The number of stream samples shown after each number of steps.

    Counted in the online predictions. Without predictions, steps are assumed to be of equal size,
    and the stream to end with the last held-out sample.
    """
    table = table_of(log, "predictions")
    if "step" in table and len(table["step"]):
        online = np.asarray(table["step"])
        if "shift" in table:
            online = online[np.asarray(table["shift"]) == 0]
        online = np.sort(online)
        return [int(np.searchsorted(online, step, side="left")) for step in steps]
    horizon = max(_horizon(log), 1)
    # One more than the last position: at the end of the stream all held-out samples are past.
    length = int(held_out.max(initial=-1)) + 1
    return [round(step / horizon * length) for step in steps]


def _at_fractions(log: RunLog, answers: _AnswerColumns, at: Sequence[float]) -> list[int | None]:
    """Per fraction of the run, the step of the nearest evaluation, None if none is near."""
    horizon = _horizon(log)
    steps = np.unique(answers.step)
    chosen: list[int | None] = []
    for fraction in at:
        nearest_step = int(steps[np.abs(steps - fraction * horizon).argmin()])
        near = abs(nearest_step - fraction * horizon) <= max(1.0, horizon / 20)
        chosen.append(nearest_step if near else None)
    return chosen


def _curves(
    log: RunLog, at: Sequence[float], split: str | None, past: bool
) -> tuple[TransferCurve, ...]:
    answers = _answers(log, split)
    steps = _at_fractions(log, answers, at)
    shown_counts = _shown(log, [-1 if step is None else step for step in steps], answers.position)
    curves = []
    for fraction, step, shown in zip(at, steps, shown_counts, strict=True):
        if step is None:
            warnings.warn(
                f"no evaluation of held-out samples was logged near {fraction:.3g} of the stream.",
                UndefinedMetric,
                stacklevel=3,
            )
            empty = np.empty(0)
            curves.append(TransferCurve(fraction, -1, -1, empty, empty.astype(np.int64), empty))
            continue
        # Of several evaluations at the same step, use the last.
        latest = answers.evaluation[answers.step == step].max()
        side = (answers.position < shown) if past else (answers.position >= shown)
        position, time, accuracy = answers.curve((answers.evaluation == latest) & side, past)
        lag = shown - position if past else position - shown
        curves.append(TransferCurve(float(fraction), step, shown, accuracy, lag, time))
    return tuple(curves)


def backward_transfer_curve(
    log: RunLog, at: Sequence[float] = THIRDS, split: str | None = None
) -> tuple[TransferCurve, ...]:
    """Accuracy on the past of the models at H/3, 2H/3 and H, most recent first.

    acc_B@T(t_B) = mean over held-out samples at most t_B before T of [the model of time T is
    correct], as a function of t_B. One curve per fraction in ``at``, from the nearest evaluation
    (within a twentieth of the stream; otherwise an empty curve and a warning).

    Source: Cai et al. 2021 (CLOC), equation 2.

    >>> from streamgauge.metrics._example import LOG
    >>> (curve,) = backward_transfer_curve(LOG, at=[1.0])
    >>> curve.lag, curve.accuracy.round(3)
    (array([1, 2, 4]), array([1.   , 0.5  , 0.667]))
    """
    return _curves(log, at, split, past=True)


def forward_transfer_curve(
    log: RunLog, at: Sequence[float] = THIRDS, split: str | None = None
) -> tuple[TransferCurve, ...]:
    """Accuracy on the future of the models at H/3, 2H/3 and H, nearest first.

    acc_F@T(t_F) = mean over held-out samples at most t_F after T of [the model of time T is
    correct]. At T = H the curve is empty, or contains the few held-out samples after the last
    sample of the stream.

    Source: Cai et al. 2021 (CLOC), equation 3.

    >>> from streamgauge.metrics._example import LOG
    >>> (curve,) = forward_transfer_curve(LOG, at=[1 / 3])
    >>> curve.lag, curve.accuracy
    (array([1, 2]), array([0. , 0.5]))
    """
    return _curves(log, at, split, past=False)


def retention_curve(log: RunLog, kind: str = "final", split: str | None = None) -> RetentionCurve:
    """Accuracy on the held-out samples of the stream, oldest first.

    kind="final": the last model, point n over the first n held-out samples; the last point is the
    accuracy on all held-out samples. kind="each": one point per evaluation, the model at that
    evaluation on all held-out samples in its past. Both go from the start of the stream to its
    end, opposite to :func:`backward_transfer_curve`.

    Source: Hammoud et al. 2023 (EvalOCL), section 3.1.

    >>> from streamgauge.metrics._example import LOG
    >>> retention_curve(LOG).accuracy.round(3)
    array([1.   , 0.5  , 0.667])
    """
    choice("kind", kind, ("final", "each"))
    answers = _answers(log, split)
    latest = np.lexsort((answers.evaluation, answers.step))[-1]
    if kind == "final":
        last_model = answers.evaluation == answers.evaluation[latest]
        position, time, accuracy = answers.curve(last_model)
    else:
        evaluations, first = np.unique(answers.evaluation, return_index=True)
        time_order = np.lexsort((evaluations, answers.step[first]))
        evaluations, steps = evaluations[time_order], answers.step[first][time_order]
        shown_counts = _shown(log, [int(step) for step in steps], answers.position)
        values, times = [], []
        for evaluation, shown in zip(evaluations, shown_counts, strict=True):
            past = (answers.evaluation == evaluation) & (answers.position < shown)
            values.append(share(np.count_nonzero(answers.correct[past]), np.count_nonzero(past)))
            times.append(answers.time[past].max() if past.any() else np.nan)
        position, time, accuracy = np.asarray(shown_counts), np.asarray(times), np.asarray(values)
    return RetentionCurve(kind, "oldest to newest", position, time, accuracy)
