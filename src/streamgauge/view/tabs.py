"""The tabs of the page: blocks of the report, made of the counts of followed runs."""

from __future__ import annotations

import json
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from streamgauge.errors import StreamgaugeError
from streamgauge.pages import Block, Cell, Figure, Page, PageTable, Section, Text
from streamgauge.pages.figures import Counted, moving_figure
from streamgauge.record import Run
from streamgauge.report.blind import BlindLevel, blind_level, pair_of, pair_text
from streamgauge.report.failures import FailureFigures
from streamgauge.report.figures import BANDS, Figures, mean_curve, verdict_figure
from streamgauge.report.leaderboard import (
    NEAR_FUTURE,
    NOTE,
    Board,
    Row,
    columns_of,
    leaderboard,
    stored,
    stream_key,
)
from streamgauge.report.page import board_table, differing_settings, stream_text, summary
from streamgauge.report.scores import compare
from streamgauge.view.follow import Followed, RunFollower

MOST_CURVES = 200  # runs drawn at a time
MOST_COMPARED = 50  # learners of a board that are compared pair by pair
KEPT = 4  # lists of boards
MOST_BLIND = 2_000_000  # samples of a stream whose blind level is computed in passing
MOST_REASONS = 20  # sentences on runs that are left out
KIND = "Streamgauge view"
NOTHING = "No run matches the filter."
NO_RUN = "There is no run yet."


class BlindLevels:
    """Blind levels of streams, computed once each by a thread; `ready` is called after each."""

    def __init__(self, ready: Callable[[], None]) -> None:
        self._ready, self._lock = ready, threading.Lock()
        self._known: dict[Any, BlindLevel | str] = {}  # or why there is none
        self._asked: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        # A daemon: the command need not wait for what nobody will see.
        threading.Thread(target=self._work, name="streamgauge-blind", daemon=True).start()

    def of(self, runs: Sequence[Run], shifts: Sequence[int], wait: bool) -> BlindLevel | str | None:
        """The level on the streams of these complete runs of a board, or why there is none
        (yet)."""
        distinct = {pair_text(run): run for run in runs}
        if not distinct:
            return None
        if any(run.stream["samples"] > MOST_BLIND for run in runs):
            return (
                f"The blind level of streams of more than {MOST_BLIND:,} samples is in the report:"
                " streamgauge report."
            )
        # Of one stream, the protocol says which labels are known when.
        protocol = json.dumps(stream_key(runs[0]), sort_keys=True, default=str)
        key = tuple(sorted(distinct)), tuple(shifts), protocol
        with self._lock:
            new = key not in self._known
            if new:
                self._known[key] = "The blind level is being computed."
        if new and wait:
            self._compute(key, list(distinct.values()), shifts)
        elif new:
            self._asked.put(partial(self._compute, key, list(distinct.values()), shifts))
        return self._known[key]

    def _work(self) -> None:
        while (compute := self._asked.get()) is not None:
            compute()

    def _compute(self, key: Any, runs: list[Run], shifts: Sequence[int]) -> None:
        try:
            level = blind_level(runs, shifts)
            self._known[key] = level or "There is no blind level: these runs did not predict."
        except (StreamgaugeError, OSError, ValueError) as error:
            self._known[key] = f"There is no blind level. {error}"
        except Exception as error:  # the thread goes on with other streams
            self._known[key] = f"There is no blind level: an error of ours ({error!r})."
        self._ready()

    def close(self) -> None:
        self._asked.put(None)


class Tabs:
    """Makes the pages of the tabs. `wait` for the blind levels, as files are written once."""

    def __init__(self, follower: RunFollower, wait: bool = False) -> None:
        self.follower, self._wait = follower, wait
        self._boards: dict[Any, list[Board]] = {}
        self._lock = threading.Lock()
        self._blind = BlindLevels(lambda: follower.note("log"))

    def close(self) -> None:
        self._blind.close()

    # What the tabs share.

    def boards(self, runs: Iterable[Followed]) -> list[Board]:
        """The boards of these runs; the last few are kept, as the tabs have them in common."""
        chosen = [run for run in runs if not run.problem and run.header and not run.study]
        changed = self.follower.changed
        about = tuple(changed[kind] for kind in ("facts", "status", "log"))
        key = about, tuple(run.number for run in chosen)
        boards = self._boards.get(key)
        if boards is None:
            readable = [run.run() for run in chosen]
            boards = list(leaderboard(readable, MOST_COMPARED)) if readable else []
            with self._lock:
                self._boards[key] = boards
                while len(self._boards) > KEPT:
                    self._boards.pop(next(iter(self._boards)))
        return boards

    def _nothing(self) -> str:
        return NOTHING if self.follower.runs else NO_RUN

    def _going_on(self, board: Board) -> dict[str, list[Followed]]:
        """Runs of a board that are not complete and live, by learner."""
        now = self.follower.now()
        by_folder = self.follower.runs
        going: dict[str, list[Followed]] = {}
        for row in board.rows:
            for run in row.incomplete:
                followed = by_folder.get(run.path)
                if followed is not None and followed.status(now)[0] == "running":
                    going.setdefault(row.learner, []).append(followed)
        return going

    # Leaderboard.

    def board_page(self, runs: Sequence[Followed]) -> Page:
        boards = self.boards(runs)
        blocks: list[Block] = [
            Section(board.title, self._board_blocks(board), board=True) for board in boards
        ]
        problems = [Text(run.problem, "failure") for run in runs if run.problem]
        blocks += problems[:MOST_REASONS]
        return _page("Leaderboard", blocks or [self._nothing()], boards)

    def _board_blocks(self, board: Board) -> list[Block]:
        going = self._going_on(board)
        so_far = {name: [run.so_far() for run in of] for name, of in going.items()}
        if not board.columns:  # nothing is complete yet
            scores = {name for of in so_far.values() for each in of for name in each}
            board = replace(board, columns=columns_of(scores))
        blind = self._level(board)
        level = blind if isinstance(blind, BlindLevel) else None
        sparks = {row.learner: _spark(row, self.follower) for row in board.rows}
        drawn = Figures(
            blind=level, verdict=None, stream=None, ahead=None, stays=[], matrices=[], cost=[],
            fails=FailureFigures(), training=[], sparks=sparks,
        )  # fmt: skip
        order = f" Ordered by: {board.ordered_by}." if board.ordered_by else ""
        rings = " Rings are runs that go on, so far; they are in no mean." if going else ""
        reasons = [Text(sentence, "warning") for sentence in self._left_out(board, going)]
        more = len(reasons) - MOST_REASONS
        return [
            summary(board, drawn) if any(row.runs for row in board.rows)
            else f"{stream_text(board.stream).capitalize()}. No run is complete yet.",
            *_some(verdict_figure(board, level, so_far)),
            _with_going_on(board_table(board, drawn), board, going),
            Text(
                f"{NOTE}{order} In brackets and shaded: 95 % intervals of the mean over seeds"
                f" (Student's t), which one seed does not have.{rings}"
            ),
            *(Text(s) for s in (board.ties.sentence, board.timing) if s),
            *([Text(blind)] if isinstance(blind, str) else []),
            *reasons[:MOST_REASONS],
            *([Text(f"{more} more runs are left out.", "warning")] if more > 0 else []),
            *_some(differing_settings(board)),
        ]  # fmt: skip

    def _left_out(self, board: Board, going: Mapping[str, Sequence[Followed]]) -> list[str]:
        """A sentence for every run that is not in the means, or not with all its answers."""
        live = {run.folder for of in going.values() for run in of}
        unread, rows = [], []
        for row in board.rows:
            read = []
            for run, scores in zip(row.runs, row.each, strict=False):
                if scores or not self._has_more(run):
                    read.append((run, scores))
                else:
                    unread.append(f"{row.learner}, seed {run.seed}, is still being read.")
            runs, each = tuple(run for run, _ in read), tuple(scores for _, scores in read)
            incomplete = tuple(run for run in row.incomplete if run.path not in live)
            rows.append(replace(row, runs=runs, each=each, incomplete=incomplete))
        return replace(board, rows=tuple(rows)).left_out + unread

    def _has_more(self, run: Run) -> bool:
        """Whether a complete run without scores on a board has some, or may have once read."""
        followed = self.follower.runs.get(run.path)
        return followed is not None and followed.scores != {}

    def _level(self, board: Board) -> BlindLevel | str | None:
        shifts = [int(c.score.removeprefix(NEAR_FUTURE)) for c in board.columns
                  if c.score.startswith(NEAR_FUTURE)]  # fmt: skip
        done = [run for row in board.rows for run in row.runs if not run.recorded]
        if any("live" in run.header["config"] for run in done):
            return None
        return self._blind.of(done, [0, *shifts], self._wait)

    # Curves.

    def stream_page(self, runs: Sequence[Followed]) -> Page:
        boards, room = self.boards(runs), MOST_CURVES
        blocks: list[Block] = []
        total = sum(len(row.runs) + len(row.incomplete) for board in boards for row in board.rows)
        for board in boards:
            figure, taken = self._curves(board, room)
            room = max(0, room - taken)
            if figure is not None:
                figure = replace(figure, caption="" if blocks else figure.caption)
                blocks.append(Section(board.title, [figure], board=True))
        if total > MOST_CURVES:
            blocks.insert(0, Text(
                f"These are at most {MOST_CURVES} of {total:,} runs, the first of every learner; a"
                " filter chooses others.", "warning"))  # fmt: skip
        nothing = "No answer is committed yet." if boards else self._nothing()
        return _page("Along the stream", blocks or [nothing], boards)

    def _curves(self, board: Board, room: int) -> tuple[Figure | None, int]:
        """The figure of a board with at most `room` runs, and how many these are."""
        series: list[Counted] = []
        each = max(1, room // max(1, len(board.rows)))
        for row in board.rows[:room]:
            for run in (*row.runs, *row.incomplete)[:each]:
                followed = self.follower.runs.get(run.path)
                counted = followed and self._series(row.learner, run, followed)
                if counted:
                    series.append(counted)
        if not series:
            return None, 0
        blind = self._level(board)
        along = blind.along if isinstance(blind, BlindLevel) else ()
        drawn = moving_figure(
            "Accuracy along the stream",
            "Share of the newest samples that were answered right before their labels were known, "
            "as far as checkpoints have them; the width of this window is chosen above. Below: each"
            " learner minus the baseline, paired over seeds. Dotted, with a hollow end: runs that "
            f"are not complete, which are in no mean. {BANDS}",
            [*series, *along],
            "samples seen",
            difference=len([s for s in series if not s.alone]) > 1,
            until=int(board.stream["samples"]),
        )
        return drawn, len(series)

    def _series(self, learner: str, run: Run, followed: Followed) -> Counted | None:
        counted = followed.tally.counted(learner, pair_of(run))
        if counted is None or run.done:
            return counted
        return replace(counted, alone=f"{learner}, seed {run.seed}, so far")

    # Compare two.

    def compare_page(self, runs: Sequence[Followed], a: str, b: str) -> tuple[Page, list[str]]:
        """The page, and everything that can be compared."""
        choices = self.choices(runs)
        names = list(choices)
        first = a if a in choices else next(iter(names), "")
        second = b if b in choices else next((n for n in names if n != first), first)
        blocks: list[Block] = [self._nothing()]
        boards: list[Board] = []
        if first and first != second:
            blocks, boards = self._compared(choices[first], choices[second], first, second)
        elif first:
            blocks = ["A comparison needs two different runs or learners."]
        asked = [name for name in (a, b) if name and name not in choices]
        blocks[:0] = [Text(f"There is no run or learner {name!r} here.", "warning")
                      for name in asked]  # fmt: skip
        title = f"{first} and {second}" if first != second else "Compare"
        page = _page(title, blocks, boards)
        return replace(page, learners=[first, second] if first != second else [], grey=()), names

    def choices(self, runs: Sequence[Followed]) -> dict[str, list[Followed]]:
        """Learners with all their seeds, and single runs, by what they are called."""
        choices: dict[str, list[Followed]] = {}
        boards = self.boards(runs)
        for board in boards:
            for row in board.rows:
                of = [self.follower.runs[r.path] for r in (*row.runs, *row.incomplete)
                      if r.path in self.follower.runs]  # fmt: skip
                where = f" on {board.title}" if len(boards) > 1 else ""
                if len(of) > 1:
                    choices[f"{row.learner}{where}"] = of
        readable = [run for run in runs if run.header and not run.problem]
        count = Counter(run.name for run in readable)
        # Runs of one name are told apart by their folders.
        single = {run.name if count[run.name] == 1 else str(run.folder): [run] for run in readable}
        return choices | {name: of for name, of in single.items() if name not in choices}

    def _compared(
        self, a: Sequence[Followed], b: Sequence[Followed], name_a: str, name_b: str
    ) -> tuple[list[Block], list[Board]]:
        boards = self.boards([*a, *b])
        blocks: list[Block] = []
        done_a, done_b = ([run.run() for run in of if run.done] for of in (a, b))
        if done_a and done_b:
            try:
                comparison = compare(done_a, done_b)
            except StreamgaugeError as error:
                blocks.append(Text(str(error), "warning"))
            else:
                blocks.append(comparison.sentence)
                if comparison.plan is not None and comparison.plan.sentence:
                    blocks.append(Text(comparison.plan.sentence))
        else:
            waits = [n for n, of in ((name_a, done_a), (name_b, done_b)) if not of]
            blocks.append(
                f"Nothing is decided: no run of {' and '.join(waits)} is complete. Below are the"
                " counts so far."
            )
        blocks.append(_side_by_side(a, b, name_a, name_b))
        series = []
        for name, of in ((name_a, a), (name_b, b)):
            complete = any(followed.done for followed in of)
            for followed in of[: MOST_CURVES // 2]:
                run = followed.run()
                whole = followed.tally.counted(name, pair_of(run))
                counted = self._series(name, run, followed) if complete else whole
                series += [counted] if counted is not None else []
        if series:
            blocks.append(moving_figure(
                "Both along the stream, and their difference",
                "As far as checkpoints have the answers. Below: the second minus the first at "
                "the same position of the same stream, paired over seeds. Dotted, with a hollow "
                f"end: runs that are not complete, in no mean unless none is. {BANDS}",
                series, "samples seen", difference=len({s.name for s in series}) > 1,
                until=max((int(board.stream["samples"]) for board in boards), default=0),
            ))  # fmt: skip
        blocks += _some(_settings(a[0], b[0], name_a, name_b))
        return blocks, boards


def _page(title: str, blocks: Sequence[Block], boards: Sequence[Board]) -> Page:
    rows = [row for board in boards for row in board.rows]
    return Page(
        KIND,
        title,
        blocks,
        learners=list(dict.fromkeys(row.learner for row in rows)),
        grey={row.learner for row in rows if not row.sees_input},
    )


def _some(block: Any) -> list[Block]:
    return [] if block is None else [block]


def _spark(row: Row, follower: RunFollower) -> list[float]:
    """Mean accuracy in forty stretches, over complete runs."""
    curves = []
    for run in row.runs:
        followed = follower.runs.get(run.path)
        counted = followed and followed.tally.counted(row.learner, "", 40)
        if counted:
            pairs = zip(counted.hits, counted.counts, strict=True)
            curves.append([h / max(1, c) for h, c in pairs])
    return mean_curve(curves)


def _with_going_on(
    table: PageTable, board: Board, going: Mapping[str, Sequence[Followed]]
) -> PageTable:
    """The table with a row for each run that goes on, below its learner."""
    rows: list[Sequence[str | Cell]] = []
    width = len(table.head)
    for row, cells in zip(board.rows, table.rows, strict=True):
        if row.runs or row.learner not in going:
            rows.append(cells)
        for run in going.get(row.learner, ()):
            scores = run.so_far()
            values = [
                Cell(f"{100 * scores[c.score]:.1f}", note="so far", value=scores[c.score])
                if c.score in scores else Cell("–", value=-1.0)
                for c in board.columns
            ]  # fmt: skip
            steps = run.header["stream"]["steps"]
            step = run.progress.get("step", 0)
            note = f"seed {run.header['config']['seed']}, running, {stored(step, steps)}"
            first = Cell(row.learner, note=note, key=row.learner, hollow=True)
            rest = [""] * (width - 1 - len(values))
            rows.append([first, *values, *rest])
    return replace(table, rows=rows)


def _side_by_side(
    a: Sequence[Followed], b: Sequence[Followed], name_a: str, name_b: str
) -> PageTable:
    """Every score that both have; of runs that are not complete, so far."""

    def values(runs: Sequence[Followed]) -> dict[str, list[float]]:
        by_name: dict[str, list[float]] = {}
        chosen = [run for run in runs if run.scores is not None] or list(runs)
        for run in chosen:
            for name, value in (run.scores or run.so_far()).items():
                by_name.setdefault(name, []).append(value)
        return by_name

    left, right = values(a), values(b)
    rows: list[list[str | Cell]] = []
    for name in [n for n in left if n in right and "accuracy" in n]:
        means = [sum(of[name]) / len(of[name]) for of in (left, right)]
        rows.append([
            name.replace("_", " "),
            *(Cell(f"{100 * mean:.1f}", value=mean) for mean in means),
            Cell(f"{100 * (means[0] - means[1]):+.1f}", value=means[0] - means[1]),
        ])  # fmt: skip
    complete = [sum(run.scores is not None for run in of) for of in (a, b)]
    parts = [f"{n} run{'s' * (n > 1)}" if n else "so far" for n in complete]
    head = ["accuracy, %", f"{name_a} ({parts[0]})", f"{name_b} ({parts[1]})", "first − second"]
    return PageTable(head, rows, sortable=True)


def _settings(a: Followed, b: Followed, name_a: str, name_b: str) -> Section | None:
    left, right = a.facts(), b.facts()
    rows: list[list[str | Cell]] = [
        [name, str(left.get(name, "–")), str(right.get(name, "–"))]
        for name in dict.fromkeys([*left, *right])
        if left.get(name) != right.get(name) and name not in ("run",)
    ]
    if not rows:
        return None
    table = PageTable(["setting", name_a, name_b], rows, text_columns=[1, 2])
    return Section(f"Settings that differ: {len(rows)}", [table], folded=True)
