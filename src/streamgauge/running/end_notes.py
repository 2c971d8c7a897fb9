"""Sentences at the end of a run whose metrics were computed on some of its steps only."""

from __future__ import annotations

from collections.abc import Iterator

from streamgauge.metrics import (
    anytime_accuracy,
    anytime_error,
    continual_accuracy,
    near_future_accuracy,
    near_future_error,
)
from streamgauge.record import Run
from streamgauge.running.lookahead import LookAhead, nth
from streamgauge.running.loop import Loop
from streamgauge.running.protocol import Protocol
from streamgauge.streams import Stream


def end_notes(run: Run, loop: Loop) -> Iterator[str]:
    """One sentence per metric that was computed on some steps: its value and its error."""
    if loop.lookahead.every > 1:
        yield near_future_text(run, loop.lookahead)
    if _evaluates_some_steps(loop.stream, loop.protocol):
        yield continual_text(run)


def near_future_text(run: Run, lookahead: LookAhead) -> str:
    """Near-future accuracies of thinned shifts, with their standard errors and compute."""
    shifts = sorted(set(run.header["config"]["protocol"]["shifts"]))
    accuracies = near_future_accuracy(run, shifts)
    errors = near_future_error(run, shifts)
    by_shift = ", ".join(
        f"{shift} ahead {100 * accuracy:.2f} % (standard error {100 * error:.2f})"
        for shift, accuracy, error in zip(shifts, accuracies, errors, strict=True)
    )
    return (
        f"Near future on every {nth(lookahead.every)} step: {by_shift}; "
        f"{100 * lookahead.extra():.0f} % more forward passes."
    )


def _evaluates_some_steps(stream: Stream, protocol: Protocol) -> bool:
    """Whether tasks are evaluated during training, but not after every step."""
    every = protocol.evaluate
    return stream.task is not None and bool(stream.splits) and isinstance(every, int) and every > 1


def continual_text(run: Run) -> str:
    """Anytime accuracy from evaluations after some of the steps, with its standard error."""
    acc, task, step = continual_accuracy(run)
    accuracy, error = float(anytime_accuracy(acc, task)[-1]), anytime_error(acc, task, step)
    every = nth(run.header["config"]["protocol"]["evaluate"])
    return (
        f"Evaluated after every {every} step: anytime accuracy {100 * accuracy:.2f} %, with a"
        f" standard error of {100 * error:.2f} for the steps between; a worst case is the worst of"
        " these."
    )
