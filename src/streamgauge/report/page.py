"""The report: leaderboards, curves, settings and environments of runs on one page."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from streamgauge.errors import StreamgaugeError
from streamgauge.pages import Block, Cell, Page, PageTable, Section, Text, shaded_table
from streamgauge.record import Run
from streamgauge.report.blind import PARTS, BlindLevel
from streamgauge.report.figures import BANDS, Figures, figures
from streamgauge.report.leaderboard import NEAR_FUTURE, NOTE, Board, leaderboard, percent, share

TITLES = 3  # boards that the title names; more are counted


def plot(runs: Run | Iterable[Run], path: str | Path | None = None) -> Path:
    """Write the report of one or more runs and return its path: by default `report.html` in the
    folder of the run, or in the folder that holds the first of several."""
    several = [runs] if isinstance(runs, Run) else list(runs)
    if path is None and several:
        folder = several[0].path if isinstance(runs, Run) else several[0].path.parent
        path = folder / "report.html"
    return write_report(several, path or "report.html")


def write_report(
    runs: Iterable[Run], path: str | Path, boards: Sequence[Board] | None = None
) -> Path:
    """Write the report of these runs; `boards` are their leaderboards if these exist already."""
    return report_page(list(runs), boards).write(path)


def report_page(runs: list[Run], boards: Sequence[Board] | None = None) -> Page:
    """The page: a section for each leaderboard, and one with all runs."""
    if not runs:
        raise StreamgaugeError("There is no run to report on.")
    boards = list(boards or leaderboard(runs))
    titles = list(dict.fromkeys(board.title for board in boards))
    alone = len(boards) == 1
    return Page(
        "Streamgauge report",
        " · ".join(titles) if len(titles) <= TITLES else f"{len(boards)} leaderboards",
        [
            *(Section("" if alone else board.title, _board_blocks(board)) for board in boards),
            Section("Runs", [_run_section(run) for run in runs]),
        ],
        f"the logs of {len(runs)} run{'s' if len(runs) > 1 else ''}",
    )


def _board_blocks(board: Board) -> list[Block]:
    drawn = figures(board)
    order = f" Ordered by: {board.ordered_by}." if board.ordered_by else ""
    blocks: list[Block] = [
        summary(board, drawn),
        _board_table(board),
        Text(f"{NOTE}{order} “Needs” lists what a learner must be told beyond the samples."),
        *(Text(sentence) for sentence in (board.ties.sentence, board.timing) if sentence),
        *(Text(sentence, "warning") for sentence in board.left_out),
        *drawn.accuracy,
    ]
    if drawn.accuracy:
        blocks.append(Text(_how_to_read(drawn.blind)))
    if drawn.class_map is not None:
        drawn_map = drawn.class_map
        blocks.append(Text(drawn_map, "warning") if isinstance(drawn_map, str) else drawn_map)
    if drawn.matrices:
        tables = [
            shaded_table(
                learner,
                ["after task", *(f"on {n + 1}" for n in range(len(matrix)))],
                [str(n + 1) for n in range(len(matrix))],
                matrix.tolist(),
            )
            for learner, matrix in drawn.matrices
        ]
        blocks.append(Section("Accuracy on each task after each task, %", tables, folded=True))
    if drawn.training:
        names = ", ".join(figure.title for figure in drawn.training)
        blocks.append(Section(f"Training: {names}", drawn.training, folded=True))
    return blocks


def _board_table(board: Board) -> PageTable:
    def name(learner: str) -> Cell:
        tied = learner in board.ties.names
        return Cell(learner, "=" if tied else "", "cannot be told apart from the best")

    library = any(row.library for row in board.rows)
    head = ["learner", *(column.title for column in board.columns), "seeds", "needs"]
    head += ["library"] if library else []
    rows: list[list[str | Cell]] = [
        [
            name(row.learner),
            *(percent(row.scores.get(column.score)) for column in board.columns),
            row.seeds,
            ", ".join(row.needs) or "–",
            *([row.library or "–"] if library else []),
        ]
        for row in board.rows
    ]
    return PageTable(head, rows, text_columns=list(range(head.index("needs"), len(head))))


def _how_to_read(blind: BlindLevel | None) -> str:
    """What the dashed level and the bands of the figures are."""
    level = "There is no blind level: these runs did not predict, so their logs hold no labels."
    if blind is not None:
        level = (
            "Dashed: forecasters that never look at an input. Before each of "
            f"{PARTS} parts of the stream, the one with the most hits so far is chosen: among the "
            "most frequent label of short and long pasts, what follows the last one to three "
            "labels, the last label, the least recently seen class and the label a period back. "
            f"Chosen most often: {blind.forecaster}. Like the learners, they do not know the "
            "labels of the current step. On held-out samples the dashed level is the most frequent "
            "label of the stream so far."
        )
    return f"{level} {BANDS}"


def summary(board: Board, drawn: Figures) -> str:
    """The results of a board in a few sentences, each of which follows from its numbers."""
    learners = f"{len(board.rows)} learner{'s' if len(board.rows) > 1 else ''}"
    text = [f"{learners} on {stream_text(board.stream)}."]
    online = _means(board, "online_accuracy")
    if online:
        best = max(online, key=lambda name: online[name])
        text.append(f"Online, {best} is right most often, {share(online[best])} of the time.")
    if online and drawn.blind is not None:
        level = float(drawn.blind.accuracy[0])
        seeing = [online[r.learner] for r in board.rows if r.sees_input and r.learner in online]
        above = sum(mean > level for mean in seeing)
        text.append(
            f"Past labels alone, without a look at any input, are worth {share(level)} "
            f"({drawn.blind.name})"
            + (f"; above that: {above} of the {len(seeing)} that look." if seeing else ".")
        )
    shifts = [c for c in board.columns if c.score.startswith(NEAR_FUTURE)]
    ahead = _means(board, shifts[-1].score) if shifts else {}
    if ahead and drawn.blind is not None:
        best = max(ahead, key=lambda name: ahead[name])
        text.append(
            f"Asked {shifts[-1].score.removeprefix(NEAR_FUTURE)} samples ahead, where past "
            f"labels are worth {share(float(drawn.blind.accuracy[-1]))}, {best} is right most "
            f"often, {share(ahead[best])} of the time."
        )
    return " ".join(text)


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


def _run_section(run: Run) -> Section:
    """Settings, stream and environment of a run."""
    header = run.header
    resumed = {f"at step {r['step']}": r["environment"] for r in header.get("resumed_in", ())}
    parts = {
        "Configuration": header["config"],
        "Stream": {name: value for name, value in run.stream.items() if name != "settings"},
        "Environment": header["environment"],
        "Resumed elsewhere": resumed,
    }
    tables: list[Block] = [
        Section(title, [PageTable((), list(_pairs(part)), kind="facts", text_columns=[1])])
        for title, part in parts.items()
        if part
    ]
    title = f"{run.learner}, seed {run.seed}{'' if run.done else ' (incomplete)'}"
    return Section(title, tables, folded=True, code=run.path.name)


def _pairs(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _pairs(item, f"{name}.{key}" if name else str(key))
    else:
        yield name, value if isinstance(value, str) else json.dumps(value)
