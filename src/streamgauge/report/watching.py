"""The progress of runs: live on a terminal, one plain line every 30 seconds elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from streamgauge.pages.console import SafeConsole
from streamgauge.pages.units import duration
from streamgauge.record import Run

if TYPE_CHECKING:
    from streamgauge.running.loop import Loop
    from streamgauge.running.plan import PlannedRun
    from streamgauge.streams import Stream

# Seconds per step that drawing progress may take, unless nothing was drawn for a second.
STEP_COST = 4e-6
EVERY = 30.0  # seconds between lines where there is no terminal
PARTS = 16  # of a stream, one block of a sparkline each
BLOCKS = "▁▂▃▄▅▆▇█"
MOST_SAMPLES = 5_000_000  # of a stream; the blind accuracy of longer ones is not computed
REST_OF_LINE = 59  # characters of a learner's line behind its name
MOST_LINES = 20  # learners shown on a terminal; the newest are kept


class BlindProgress(NamedTuple):
    """Of a classifier that repeats the newest known label, up to each step."""

    hits: NDArray[np.int64]
    samples: NDArray[np.int64]


@dataclass
class _RunProgress:
    """One run, as far as it got."""

    learner: str
    seed: int
    blind: BlindProgress | None = None
    began: float = 0.0
    first: int = -1  # step that it began at: a resumed run does not begin at 0
    first_took: float = 0.0  # seconds of its first step, in which much is made ready
    step: int = 0
    steps: int = 0
    right: int = 0
    asked: int = 0
    done: bool = False
    seconds: float = 0.0
    parts: list[tuple[int, int]] = field(default_factory=list)  # asked and right at ends of parts

    @property
    def per_step(self) -> float:
        """Seconds, without the first step; 0 before there is another."""
        steps = self.step - max(self.first, 0) - 1
        return (self.seconds - self.first_took) / steps if steps > 0 else 0.0

    def online(self) -> str:
        return f"online {100 * self.right / self.asked:.1f} %" if self.asked else ""

    @property
    def above_blind(self) -> float | None:
        """Online minus blind accuracy in points; None where they are not of the same samples (as in
        a resumed run, which counts its answers from where it went on)."""
        if self.blind is None or not self.asked or self.asked != self.blind.samples[self.step]:
            return None
        return 100 * (self.right - int(self.blind.hits[self.step])) / self.asked

    def against_blind(self) -> str:
        return "" if self.above_blind is None else f"{self.above_blind:+.1f} against last label"

    def sparkline(self) -> str:
        accuracies = [
            (right - right_before) / (asked - asked_before)
            for (asked_before, right_before), (asked, right) in zip(
                [(0, 0), *self.parts], self.parts, strict=False
            )
            if asked > asked_before
        ]
        return sparkline(accuracies)


def sparkline(shares: Sequence[float]) -> str:
    """Shares from 0 to 1 as blocks of that height.

    >>> sparkline([0, 0.5, 1])
    '▁▅█'
    """
    return "".join(BLOCKS[min(len(BLOCKS) - 1, int(share * len(BLOCKS)))] for share in shares)


def blind_hits(stream: Stream, label_delay: int) -> BlindProgress | None:
    """How many samples up to each step have the label that was known last before their step; None
    for a stream too long to count in passing."""
    if not 0 < len(stream.order) <= MOST_SAMPLES:
        return None
    label = np.asarray(stream.source.label)[stream.order].astype(np.int64)  # -1 must fit
    starts = np.asarray(stream.starts, np.int64)
    steps = np.arange(len(starts) - 1)
    newest = starts[np.maximum(steps - label_delay, 0)] - 1  # -1: none is known yet
    answer = np.where(newest < 0, -1, label[newest])
    hits = label == np.repeat(answer, np.diff(starts))
    hits &= np.repeat(newest >= 0, np.diff(starts))
    return BlindProgress(np.concatenate([[0], np.cumsum(hits)])[starts], starts)


class Watcher:
    """Shows the progress of runs. On a terminal: the current run and the time for all of them, and
    one line per learner; elsewhere one line every 30 seconds. And one line per finished run."""

    def __init__(self, quiet: bool = False, console: Console | None = None) -> None:
        self.console = console or SafeConsole(quiet=quiet, highlight=False, soft_wrap=True)
        self._expected: list[str] = []  # learners of all runs, in order
        self._runs: list[_RunProgress] = []
        self._blind: tuple[object, BlindProgress | None] = (None, None)
        self._printed = time.perf_counter()
        self._shows = not quiet and self.console.is_terminal
        self._quiet = quiet
        self._live = Live(
            console=self.console,
            auto_refresh=False,  # its thread would compete with the run for the interpreter
            transient=True,
        )

    def __enter__(self) -> Watcher:
        if self._shows:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._shows:
            self._live.stop()

    def say(self, text: str) -> None:
        self.console.print(Text(text))

    def expect(self, planned: Sequence[PlannedRun]) -> None:
        """All runs that will be watched, or are complete already."""
        self._expected = [run.recipe.name for run in planned]

    def watch(self, planned: PlannedRun, stream: Stream) -> Callable[[Loop], None]:
        key = (id(stream), planned.protocol.label_delay)
        if self._quiet:
            blind = None
        else:
            if self._blind[0] != key:
                self._blind = (key, blind_hits(stream, planned.protocol.label_delay))
            blind = self._blind[1]
        return self._watch(_RunProgress(planned.recipe.name, planned.learner_seed, blind))

    def watch_run(self, run: Run) -> Callable[[Loop], None]:
        return self._watch(_RunProgress(run.learner, run.seed))

    def _watch(self, run: _RunProgress) -> Callable[[Loop], None]:
        """A callback for every step. It draws at most a few times per second, and less often on a
        slow terminal or where steps are slow."""
        self._runs.append(run)
        run.began = shown = time.perf_counter()
        shown_at = -1
        cost = 0.0
        part = 0

        def progress(loop: Loop) -> None:
            nonlocal shown, shown_at, cost, part
            now = time.perf_counter()
            step, steps = loop.step, loop.end
            if shown_at < 0:
                run.first = shown_at = step - 1
                run.steps, run.first_took = steps, now - run.began
            if (reached := step * PARTS // steps) != part:
                part = reached
                run.parts.append((loop.asked, loop.right))
            since = now - shown
            if step < steps and (
                since < 0.1 or (since < 1.0 and (step - shown_at) * STEP_COST < cost)
            ):
                return
            run.step, run.right, run.asked = step, loop.right, loop.asked
            run.seconds = now - run.began
            if step == steps:
                run.done = True
                self._say_end(run)
            if self._shows:
                self._live.update(self._view(run, (step - shown_at) / max(since, 1e-9)))
                self._live.refresh()
            elif now - self._printed >= EVERY and not run.done:
                self._printed = now
                self.say(self._line(run))
            shown, shown_at = time.perf_counter(), step
            cost = shown - now

        return progress

    def _say_end(self, run: _RunProgress) -> None:
        now_taken = f"{run.steps - run.first:,} of them now, " if run.first > 0 else ""
        taken = f"{run.steps} steps ({now_taken}{run.seconds:.1f} s)"
        parts = [text for text in (run.online(), taken, run.against_blind()) if text]
        shape = f"  {run.sparkline()}" if run.above_blind is not None else ""
        self.say(f"{run.learner}, seed {run.seed}: {', '.join(parts)}{shape}")
        self._printed = time.perf_counter()

    def _position(self, run: _RunProgress) -> str:
        number = next(n for n, other in enumerate(self._runs, 1) if other is run)
        return f"run {number} of {len(self._expected)}: " if len(self._expected) > 1 else ""

    def _line(self, run: _RunProgress) -> str:
        """Where a run is, and the time for all."""
        at = f"step {run.step:,} of {run.steps:,}"
        parts = [at, run.online(), run.against_blind(), self._left()]
        text = ", ".join(part for part in parts if part)
        return f"{self._position(run)}{run.learner}, seed {run.seed}: {text}"

    def _view(self, run: _RunProgress, rate: float) -> Group:
        head = Table.grid(padding=(0, 1), expand=True)
        head.add_column(no_wrap=True)
        head.add_column(ratio=1)
        head.add_column(no_wrap=True, justify="right")
        online = f"{run.online()}, " if run.asked else ""
        head.add_row(
            Text(f"{self._position(run)}{run.learner}, seed {run.seed}"),
            ProgressBar(total=max(run.steps, 1), completed=run.step),
            Text(f"{run.step}/{run.steps}  {online}{rate:.0f} steps/s"),
        )
        learners = self._learners()[-MOST_LINES:]
        widest = max(map(len, learners), default=0)
        wide = max(8, min(30, widest, self.console.width - REST_OF_LINE))
        lines = [self._learner_line(name, wide) for name in learners]
        left = [Text(self._left())] if self._left() else []
        return Group(head, *left, *map(Text, lines))

    def _learners(self) -> list[str]:
        return list(dict.fromkeys(run.learner for run in self._runs if run.asked))

    def _learner_line(self, learner: str, wide: int) -> str:
        """A learner, its name in so many characters: the means of its finished runs, and the shape
        of the newest."""
        runs = [run for run in self._runs if run.learner == learner and run.asked]
        done = [run for run in runs if run.done] or runs[-1:]
        online = 100 * sum(run.right / run.asked for run in done) / len(done)
        name = learner if len(learner) <= wide else f"{learner[: wide - 3]}..."
        words = [f"{name:{wide}}", f"online {online:5.1f} %"]
        blind = [run.above_blind for run in done if run.above_blind is not None]
        if len(blind) == len(done):
            words.append(f"{sum(blind) / len(blind):+6.1f} against last label")
        return "  ".join([*words, runs[-1].sparkline()])

    def _left(self) -> str:
        """The time for all runs, from the seconds per step of each learner so far."""
        active = [run for run in self._runs if run.step and not run.done]
        timed = [run for run in self._runs if run.per_step > 0]
        if not timed or len(self._expected) < 2:
            return ""
        per_step = {run.learner: run.per_step for run in timed}  # the newest of each learner
        usual = sum(per_step.values()) / len(per_step)
        steps = timed[-1].steps
        ahead = self._expected[len(self._runs) :]
        seconds = sum((run.steps - run.step) * per_step.get(run.learner, usual) for run in active)
        seconds += sum(steps * per_step.get(name, usual) for name in ahead)
        # Runs that go on at the same time share the machine.
        return f"{duration(seconds / max(1, len(active)))} left for all"
