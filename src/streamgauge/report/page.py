"""The report: leaderboards, curves, settings and environments of runs on one page."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streamgauge.errors import StreamgaugeError
from streamgauge.pages import Block, Cell, Figure, Page, PageTable, Section, Text, shaded_table
from streamgauge.pages.page import html_path
from streamgauge.pages.units import flop, scaled
from streamgauge.record import Run, find_runs
from streamgauge.report.bits import MOST, sentence, two_places
from streamgauge.report.blind import PARTS, BlindLevel
from streamgauge.report.compute import FLOPS, learning_seconds
from streamgauge.report.failures import ByClass
from streamgauge.report.figures import Figures, Floats, blind_of, figures, half_interval
from streamgauge.report.leaderboard import (
    NEAR_FUTURE,
    NOTE,
    Board,
    Column,
    Row,
    leaderboard,
    learner_key,
    percent,
    share,
)
from streamgauge.report.marks import SOURCES, Mark

TITLES = 3  # boards that the title names; more are counted


def plot(
    runs: Run | str | Path | Iterable[Run | str | Path], path: str | Path | None = None
) -> Path:
    """Write the report of one or more runs, or folders of runs, and return its path: by default
    `report.html` in the folder of the run, or in the folder that holds the first of several."""
    several = find_runs(runs)
    if path is None and several:
        named = runs.path if isinstance(runs, Run) else runs
        one = isinstance(named, str | Path) and (Path(named) / "run.json").exists()
        path = (several[0].path if one else several[0].path.parent) / "report.html"
    return write_report(several, path or "report.html")


def write_report(
    runs: Iterable[Run], path: str | Path, boards: Sequence[Board] | None = None
) -> Path:
    """Write the report of these runs; `boards` are their leaderboards if these exist already."""
    file = html_path(path)  # before the work
    return report_page(list(runs), boards).write(file)


def report_page(runs: list[Run], boards: Sequence[Board] | None = None) -> Page:
    """The page: a section for each leaderboard, and one with all runs."""
    if not runs:
        raise StreamgaugeError("There is no run to report on.")
    boards = list(boards or leaderboard(runs))
    titles = list(dict.fromkeys(board.title for board in boards))
    sections: list[Block] = [
        Section(board.title, _board_blocks(board), board=True) for board in boards[1:] and boards
    ]
    rows = [row for board in boards for row in board.rows]
    return Page(
        "Streamgauge report",
        " · ".join(titles) if len(titles) <= TITLES else f"{len(boards)} leaderboards",
        [
            *(sections or _board_blocks(boards[0])),
            Section("Runs", run_blocks(runs)),
        ],
        f"the logs of {len(runs)} run{'s' if len(runs) > 1 else ''}",
        learners=list(dict.fromkeys(row.learner for row in rows)),
        grey={row.learner for row in rows if not row.sees_input},
    )


def _board_blocks(board: Board) -> list[Block]:
    """Sections in the order of their value to a reader."""
    drawn = figures(board)
    sections: dict[str, list[Block | None]] = {
        "Verdict": [summary(board, drawn), drawn.verdict],
        "Leaderboard": _leaderboard_blocks(board, drawn),
        "Along the stream": [
            drawn.stream,
            _marks(drawn.marks),
            _how_to_read(board, drawn.blind),
        ],
        "How far ahead": [drawn.ahead],
        "What stays": [*drawn.stays, _matrices(drawn.matrices)],
        "What it costs": [*drawn.cost, _costs(board)],
        "Where it fails": _failures(drawn),
        "Training": [
            Section(", ".join(f.title for f in drawn.training), drawn.training, folded=True)
            if drawn.training
            else None
        ],
    }
    blocks: list[Block] = []
    for title, content in sections.items():
        known = [block for block in content if block is not None]
        if known and (title == "Along the stream" or any(not isinstance(b, Text) for b in known)):
            blocks.append(Section(title, known))
    return blocks


def _leaderboard_blocks(board: Board, drawn: Figures) -> list[Block | None]:
    order = f" Ordered by: {board.ordered_by}." if board.ordered_by else ""
    note = (
        f"{NOTE} In brackets and shaded: 95 % intervals of the mean over seeds (Student's t, "
        f"cut at 0 and 100), which one seed does not have. Dotted: the blind level.{order} The "
        "small curve is accuracy along the stream, from 0 to 100 %."
    )
    if any(row.needs for row in board.rows):
        note += " “Needs” lists what a learner must be told beyond the samples."
    if drawn.bits:
        part = (
            "" if all(each.whole for each in drawn.bits.values()) else f", first {MOST:,} samples"
        )
        note += (
            " “Adds” is what the answers save, in bits per sample, beyond what past labels "
            f"predict, as the audit computes it (first seed{part}; 95 % intervals from stretches "
            "of the stream); – where it is not known."
        )
    return [
        board_table(board, drawn),
        Text(note),
        *(Text(sentence) for sentence in (board.ties.sentence, board.timing) if sentence),
        *(Text(sentence, "warning") for sentence in board.left_out),
        differing_settings(board),
    ]


def board_table(board: Board, drawn: Figures) -> PageTable:
    """One row per learner, as far as its runs are complete."""

    def name(learner: str) -> Cell:
        mark = board.ties.mark(learner)
        return Cell(learner, mark, board.ties.meaning(mark) if mark else "", key=learner)

    def score(row: Row, column: Column) -> Cell:
        value = row.scores.get(column.score)
        if value is None or value.mean != value.mean:
            return Cell(percent(value), value=-1.0)
        half, level = half_interval(value), blind_of(drawn.blind, column.score)
        least = -1.0 if "forgetting" in column.score else 0.0
        low, high = (min(1.0, max(least, v)) for v in (value.mean - half, value.mean + half))
        known = half == half
        note = f"[{100 * low:.1f}, {100 * high:.1f}]" if known else ""
        strip = (low if known else half, value.mean, high if known else half, level)
        inside = least == 0 <= value.mean <= 1
        return Cell(percent(value), note=note, value=value.mean, interval=strip if inside else None)

    def cost(row: Row) -> Cell:
        flops = row.scores[FLOPS].mean if FLOPS in row.scores else math.nan
        seconds = learning_seconds(row.runs).mean if row.runs else math.nan
        text = "" if flops != flops else flop(flops)
        time = "" if seconds != seconds else f"{seconds:.3g} s"
        return Cell(text or time or "–", note=time if text else "", value=flops if text else 0.0)

    def adds(row: Row) -> Cell:
        of = drawn.bits.get(row.learner)
        if of is None:
            return Cell("–", value=-1e9)
        text, low, high = map(two_places, of[:3])
        return Cell(text, note=f"[{low}, {high}]", value=of.added)

    sparks = any(drawn.sparks.values())
    library = any(row.library for row in board.rows)
    head = ["learner", *(column.title for column in board.columns)]
    head += ["adds, bits"] if drawn.bits else []
    texts = [len(head)] if sparks else []
    needs = any(row.needs for row in board.rows)
    head += [*(["along the stream"] if sparks else []), "cost", "seeds"]
    texts += range(len(head), len(head) + needs + library)
    head += [*(["needs"] if needs else []), *(["library"] if library else [])]
    rows: list[list[str | Cell]] = [
        [
            name(row.learner),
            *(score(row, column) for column in board.columns),
            *([adds(row)] if drawn.bits else []),
            *([Cell("", spark=drawn.sparks.get(row.learner, ()))] if sparks else []),
            cost(row),
            Cell(str(len(row.runs)), note=row.seeds.removeprefix(f"{len(row.runs)} ")
                 if row.incomplete else "", value=float(len(row.runs))),
            *([", ".join(row.needs) or "–"] if needs else []),
            *([row.library or "–"] if library else []),
        ]
        for row in board.rows
    ]  # fmt: skip
    return PageTable(head, rows, text_columns=texts, sortable=True)


def _marks(marks: Sequence[Mark]) -> Section | None:
    """Every mark of the curves along the stream, and where it comes from."""
    if not marks:
        return None
    rows: list[list[str | Cell]] = [
        [
            Cell(f"{mark.position:,}", value=float(mark.position)),
            Cell(mark.key, key=mark.key) if mark.key else "–",
            mark.text,
            mark.detail or "–",
            SOURCES[mark.kind],
        ]
        for mark in marks
    ]
    head = ["samples seen", "learner", "what", "how much", "source"]
    table = PageTable(head, rows, text_columns=range(1, 5), sortable=True)
    title = f"{len(rows)} marks: tasks, changes of labels, falls of accuracy, reported drift"
    return Section(title, [table], folded=True)


def differing_settings(board: Board) -> Section | None:
    """The settings in which the learners differ, to be opened."""
    keys = {r.learner: learner_key((*r.runs, *r.incomplete)[0]) for r in board.rows}
    names = dict.fromkeys(name for key in keys.values() for name in key if name != "name")
    differing = [
        name for name in names if len({str(key.get(name, "–")) for key in keys.values()}) > 1
    ]
    if len(keys) < 2 or not differing:
        return None
    rows: list[list[str | Cell]] = [
        [Cell(learner, key=learner), *(str(key.get(name, "–")) for name in differing)]
        for learner, key in keys.items()
    ]
    table = PageTable(["learner", *differing], rows, text_columns=range(1, len(differing) + 1))
    return Section("Settings that differ between the learners", [table], folded=True)


def _matrices(matrices: Sequence[tuple[str, Floats]]) -> Section | None:
    """One small table per learner, all shaded on one scale."""
    if not matrices:
        return None
    tables: list[Block] = [
        shaded_table(
            learner,
            ["after task", *(f"on {n + 1}" for n in range(len(matrix)))],
            [str(n + 1) for n in range(len(matrix))],
            matrix.tolist(),
            limits=(0.0, 1.0),
        )
        for learner, matrix in matrices
    ]
    title = "Accuracy on each task after each task, %"
    return Section(title, [Text("Shaded from 0 to 100 % in all tables."), *tables], tiled=True)


def _costs(board: Board) -> PageTable | None:
    """Trained and skipped batches, FLOPs and seconds of each learner."""
    rows: list[list[str | Cell]] = []
    for row in board.rows:
        if not row.runs:
            continue
        trained = [len(np.unique(Run(run.path).jobs["version"])) for run in row.runs]
        steps = [run.stream["steps"] for run in row.runs]
        recorded = any(trained)
        skipped = [max(0, s - t) for s, t in zip(steps, trained, strict=True)]
        seconds = learning_seconds(row.runs).mean
        flops = row.scores[FLOPS].mean if FLOPS in row.scores else math.nan
        rows.append(
            [
                Cell(row.learner, key=row.learner),
                f"{np.mean(trained):,.0f}" if recorded else "–",
                f"{np.mean(skipped):,.0f}" if recorded else "–",
                Cell(scaled(flops), value=flops if flops == flops else -1.0),
                Cell("unknown" if seconds != seconds else f"{seconds:.3g}", value=seconds
                     if seconds == seconds else -1.0),
            ]
        )  # fmt: skip
    if all(str(cell) in ("–", "unknown") for _, *cells in rows for cell in cells):
        return None
    head = ["learner", "training jobs", "steps without one", "FLOPs", "seconds of learning"]
    return PageTable(head, rows, "Training per run, mean over seeds", sortable=True)


def _failures(drawn: Figures) -> list[Block | None]:
    failures = drawn.fails
    first, *others = [(each.learner, _by_class(each)) for each in failures.learners] or [("", [])]
    more: list[Block] = [Section(name, blocks, folded=True) for name, blocks in others]
    if failures.left_out:
        more.append(Text(f"{failures.left_out} further learners are not shown here."))
    map_block: Block | None = drawn.class_map if isinstance(drawn.class_map, Figure) else None
    if isinstance(drawn.class_map, str):
        map_block = Text(drawn.class_map, "warning")
    return [*first[1], *more, failures.reliability, map_block]


def _by_class(each: ByClass) -> list[Block]:
    """Accuracy of each class over time, and the most frequent confusions, of one learner."""
    blocks: list[Block] = [each.classes]
    if each.confusions:
        head = ["label", "answer", "times", "% of the label"]
        title = f"What {each.learner} mistakes most often for what (online, all seeds)"
        blocks.append(PageTable(head, each.confusions, title, text_columns=[1], sortable=True))
    return blocks


def _how_to_read(board: Board, blind: BlindLevel | None) -> Text:
    """What the dashed level is."""
    if blind is None:
        return Text(
            "There is no blind level: these runs did not predict, so their logs hold no labels."
        )
    text = (
        "Blind level: forecasters that never look at an input. Before each of "
        f"{PARTS} parts of the stream, the one with the most hits so far is chosen: among the "
        "most frequent label of short and long pasts, what follows the last one to three "
        "labels, the last label, the least recently seen class and the label a period back. "
        f"Chosen most often: {blind.forecaster}. Like the learners, they do not know the "
        "labels of the current step. On held-out samples the blind level is the most frequent "
        "label of the stream so far."
    )
    for row in board.rows:
        learner = (*row.runs, *row.incomplete)[0].header["config"]["learner"]
        if learner["where"] == "blind":
            window = learner["settings"].get("window", "?")
            rule = f"the most frequent of its last {window} labels"
            text += (
                f" The learner {row.learner} is something else: "
                f"{'the last label' if window == 1 else rule}, at all times."
            )
    return Text(text)


def summary(board: Board, drawn: Figures) -> str:
    """The results of a board in a few sentences, each of which follows from its numbers."""
    learners = f"{len(board.rows)} learner{'s' if len(board.rows) > 1 else ''}"
    text = [f"{learners} on {stream_text(board.stream)}."]
    online = _means(board, "online_accuracy")
    if online:
        best = max(online, key=lambda name: online[name])
        text.append(f"Online, {best} is right {_most(online)}{share(online[best])} of the time.")
    if online and drawn.blind is not None:
        level = drawn.blind.at(0)
        seeing = [r.learner for r in board.rows if r.sees_input and r.learner in online]
        above = [name for name in seeing if online[name] > level]
        text.append(
            f"Past labels alone, without a look at any input, are worth {share(level)} "
            f"(mostly {drawn.blind.forecaster}){_above(above, seeing)}."
        )
    shifts = [c for c in board.columns if c.score.startswith(NEAR_FUTURE)]
    ahead = _means(board, shifts[-1].score) if shifts else {}
    if ahead and drawn.blind is not None:
        best = max(ahead, key=lambda name: ahead[name])
        text.append(
            f"Asked {shifts[-1].score.removeprefix(NEAR_FUTURE)} samples ahead, where past "
            f"labels are worth {share(blind_of(drawn.blind, shifts[-1].score))}, {best} is right "
            f"{_most(ahead)}{share(ahead[best])} of the time."
        )
    seeing_names = [row.learner for row in board.rows if row.sees_input]
    text.append(sentence(drawn.bits, seeing_names))
    return " ".join(part for part in text if part)


def _most(learners: Mapping[str, float]) -> str:
    """The superlative, where there is another learner."""
    return "most often, " if len(learners) > 1 else ""


def _above(above: Sequence[str], seeing: Sequence[str]) -> str:
    """How many of the learners that use their inputs are above the blind level."""
    if not seeing:
        return ""
    if len(seeing) == 1:
        return f"; {seeing[0]} is {'' if above else 'not '}above that"
    verb = "is" if len(above) == 1 else "are"
    return f"; {len(above)} of the {len(seeing)} learners that use their inputs {verb} above that"


def stream_text(stream: Mapping[str, Any]) -> str:
    """The name and the size of a stream, and its classes where they are few."""
    names = stream.get("class_names") or ()
    listed = f" ({', '.join(names)})" if 0 < len(names) <= 10 else ""
    return (
        f"the stream {stream['name']}: {stream['samples']:,} samples of {stream['classes']} "
        f"classes{listed} in {stream['steps']:,} steps of up to {stream['step_size']}"
    )


def _means(board: Board, name: str) -> dict[str, float]:
    means = {row.learner: row.scores[name].mean for row in board.rows if name in row.scores}
    return {learner: mean for learner, mean in means.items() if mean == mean}


def run_blocks(runs: Sequence[Run]) -> list[Block]:
    """One table of all runs: what they share stands once, what differs stands per run."""
    facts = [dict(_facts(run)) for run in runs]
    every = dict.fromkeys(name for fact in facts for name in fact)
    shared = {n: facts[0][n] for n in every if len({fact.get(n) for fact in facts}) == 1}
    # Without those that repeat the learner or the seed, which have columns of their own.
    differing = [
        name
        for name in every
        if name not in shared
        and any(
            fact.get(name) not in (run.learner, str(run.seed))
            for run, fact in zip(runs, facts, strict=True)
        )
    ]
    head = ["run", "learner", "seed", "state", *differing]
    rows: list[list[str | Cell]] = [
        [
            run.path.name,
            Cell(run.learner, key=run.learner),
            Cell(str(run.seed), value=float(run.seed)),
            "complete" if run.done else f"incomplete, step {run.step}",
            *(fact.get(name, "–") for name in differing),
        ]
        for run, fact in sorted(zip(runs, facts, strict=True), key=lambda pair: natural(pair[0]))
    ]
    texts = [n for n in range(1, len(head)) if n != 2]
    blocks: list[Block] = []
    if len(runs) > 1:
        blocks.append(PageTable(head, rows, text_columns=texts, sortable=True))
    what = "What all runs share" if len(runs) > 1 else "What the run is"
    title = f"{what}: {len(shared)} settings and facts"
    table = PageTable((), list(shared.items()), kind="facts", text_columns=[1])
    return [*blocks, Section(title, [table], folded=True)]


def natural(run: Run) -> tuple[Any, ...]:
    """Numbers in names count as numbers: 2 comes before 10."""
    parts = re.split(r"(\d+)", run.learner)
    return [(int(part) if part.isdigit() else -1, part) for part in parts], run.seed


def _facts(run: Run) -> Iterator[tuple[str, str]]:
    """Settings, stream and environment of a run."""
    header = run.header
    yield from _pairs(header["config"])
    stream = {name: value for name, value in run.stream.items() if name != "settings"}
    yield from _pairs(stream, "stream")
    yield from _pairs(header["environment"], "environment")
    for again in header.get("resumed_in", ()):
        yield from _pairs(again["environment"], f"resumed at step {again['step']}")


def _pairs(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _pairs(item, f"{name}.{key}" if name else str(key))
    else:
        yield name, value if isinstance(value, str) else json.dumps(value)
