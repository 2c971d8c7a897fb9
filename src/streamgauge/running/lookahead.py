"""Near-future evaluation: which steps the version in force answers ahead of their time.

A shift S counts samples. Step t is answered by the version in force at the latest step that began
at least S samples before it, so a shift is rounded up to whole steps. Each shift costs one more
forward pass per step; on a long stream every n-th step is enough. The answered steps are the same
for all shifts, so that shifts are compared on the same samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError
from streamgauge.streams import Stream

LONG = 1_000_000  # samples of a stream above which it is thinned to about as many


class LookAhead:
    """Shifts in samples, and the stride between the steps that are answered (1: all)."""

    def __init__(self, stream: Stream, shifts: Sequence[int], thin: str, exact: bool) -> None:
        self.stream = stream
        self._answering = {s: answering_step(stream, s) for s in sorted(set(shifts))}
        self.exact = exact  # answers are cheap: no step is left out
        self.every = 1 if self.exact or not shifts else stride(thin, stream)
        if self.every > 1 and self.every >= len(stream):
            raise StreamgaugeError(
                f"protocol.thin asks every {nth(self.every)} step, but the stream has {len(stream)}"
                " steps: take a smaller number."
            )

    def due(self, step: int) -> Iterator[tuple[int, int]]:
        """(shift, step) of all steps that the version in force at this step answers ahead."""
        for shift, answering in self._answering.items():
            first, last = np.searchsorted(answering, [step, step + 1]).tolist()
            # The multiples of the stride among them.
            for target in range(-(-first // self.every) * self.every, last, self.every):
                yield shift, target

    def extra(self) -> float:
        """Answers given ahead per ordinary answer, over the whole stream."""
        length = np.diff(self.stream.starts)
        asked = 0
        for answering in self._answering.values():
            targets = np.arange(0, len(answering), self.every)
            asked += int(length[targets[answering[targets] >= 0]].sum())
        return asked / self.stream.samples

    def sentences(self) -> list[str]:
        """Sentences for the start of a run: how shifts are rounded, and what they cost."""
        size = self.stream.size
        sentences = []
        rounded = [s for s in self._answering if s % size]
        if self._answering and self.stream.albums:
            sentences.append(
                "A shift counts samples and is rounded up to whole steps, which are albums of up to"
                f" {size}."
            )
        elif rounded:
            steps = ", ".join(f"{s} is {-(-s // size) * size}" for s in rounded)
            sentences.append(
                f"A shift counts samples and is rounded up to whole steps of {size}: {steps}."
            )
        beyond = [s for s in self._answering if not (self._answering[s] >= 0).any()]
        if beyond:
            sentences.append(
                f"The stream has {self.stream.samples:,} samples, so nothing is scored "
                f"{', '.join(f'{s:,}' for s in beyond)} ahead."
            )
        if self._answering and self.every > 1:
            sentences.append(
                f"Near future: every {nth(self.every)} step is asked, {100 * self.extra():.0f} % "
                f"more answers in all; protocol.thin=1 asks every step."
            )
        return sentences


def answering_step(stream: Stream, shift: int) -> NDArray[np.int64]:
    """For each step, the step whose version answers it: the latest that began at least `shift`
    samples before it; -1 for the first steps, for which no version is old enough."""
    if shift < 1:
        raise StreamgaugeError(f"A shift is a number of samples above 0, not {shift}.")
    begin = stream.starts[:-1].astype(np.int64)  # a shift may be longer than any stream
    return np.searchsorted(begin, begin - shift, side="right").astype(np.int64) - 1


def stride(thin: str, stream: Stream) -> int:
    """The stride for `thin`: `auto`, a number of steps, or "N samples" to answer."""
    number, wanted = parse(thin)
    if number == "auto":
        wanted = LONG
    if wanted is None:
        return int(number)
    return max(1, -(-stream.samples // wanted)) if stream.samples > wanted else 1


def parse(thin: str) -> tuple[str, int | None]:
    """A setting as a stride, or as a number of samples to answer.

    >>> parse("auto"), parse("7"), parse("50000 samples")
    (('auto', None), ('7', None), ('', 50000))
    """
    text, _, unit = thin.strip().partition(" ")
    if text == "auto" and not unit:
        return "auto", None
    if not text.isdecimal() or int(text) < 1 or unit.strip() not in ("", "samples"):
        raise StreamgaugeError(
            f"protocol.thin is 'auto', every how many steps one is asked (such as 10), or how many "
            f"samples are asked (such as '50000 samples'), not '{thin}'."
        )
    return ("", int(text)) if unit else (str(int(text)), None)


def nth(number: int) -> str:
    last = "th" if 10 < number % 100 < 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{last}"
