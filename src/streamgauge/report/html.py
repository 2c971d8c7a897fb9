"""One HTML file that holds all it needs: it opens from disk, without a network."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from streamgauge.errors import StreamgaugeError
from streamgauge.record import Run
from streamgauge.report.figures import Figures, figures
from streamgauge.report.leaderboard import NOTE, Board, leaderboard, percent
from streamgauge.report.ties import NEAR_FUTURE
from streamgauge.versions import VERSION


def plot(runs: Run | Iterable[Run], path: str | Path | None = None) -> Path:
    """Write the report of a run, or of several, and return where it is: by default in the run's
    folder, or beside the first run's."""
    several = [runs] if isinstance(runs, Run) else list(runs)
    if path is None and several:
        folder = several[0].path if isinstance(runs, Run) else several[0].path.parent
        path = folder / "report.html"
    return write_report(several, path or "report.html")


def write_report(
    runs: Iterable[Run], path: str | Path, boards: Sequence[Board] | None = None
) -> Path:
    """Leaderboard, curves, configuration and environment of all these runs; `boards` are theirs,
    where someone has made them already."""
    runs = list(runs)
    if not runs:
        raise StreamgaugeError("There is no run to report on.")
    return write_page(render(runs, boards), path)


def write_page(text: str, path: str | Path) -> Path:
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StreamgaugeError(f"Cannot write {path}: {error.strerror or error}.") from error
    return path


def render(runs: list[Run], boards: Sequence[Board] | None = None) -> str:
    """The page. Whatever comes from a run is escaped: names and settings may hold anything."""
    drawn = [(board, figures(board)) for board in boards or leaderboard(runs)]
    return page(
        "body.html",
        " · ".join(dict.fromkeys(board.title for board, _ in drawn)),
        boards=[(board, found, summary(board, found)) for board, found in drawn],
        runs=[(run, _facts(run)) for run in runs],
        note=NOTE,
    )


def page(template: str, title: str, **content: Any) -> str:
    """A page that holds all it needs, from a template of this room; `number(figure)` there puts a
    figure into it."""
    from plotly.offline import get_plotlyjs

    drawn: list[dict[str, Any]] = []

    def number(figure: Any) -> int:
        drawn.append({"data": figure.data, "layout": figure.layout})
        return len(drawn) - 1

    environment = Environment(
        loader=PackageLoader("streamgauge", "report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    body = environment.get_template(template).render(
        title=title, number=number, percent=percent, version=VERSION, **content
    )
    room = files("streamgauge.report")
    return environment.get_template("page.html").render(
        title=title,
        body=Markup(body),
        style=Markup((room / "style.css").read_text(encoding="utf-8")),
        plotly=Markup(get_plotlyjs()),
        draw=Markup((room / "draw.js").read_text(encoding="utf-8")),
        # Inside a script element nothing may look like its end.
        figures=Markup(json.dumps(drawn, allow_nan=False).replace("<", "\\u003c")),
    )


def summary(board: Board, found: Figures) -> str:
    """What the board says, in a few sentences that hold whatever the figures are."""
    stream = board.stream
    learners = f"{len(board.rows)} learner{'s' if len(board.rows) > 1 else ''}"
    text = [
        f"{learners} on the stream {stream['name']}: {stream['samples']:,} samples of "
        f"{stream['classes']} classes in {stream['steps']:,} steps of up to "
        f"{stream['step_size']}."
    ]
    online = _means(board, "online_accuracy")
    if online:
        best = max(online, key=lambda name: online[name])
        text.append(f"Online, {best} is right most often, {_share(online[best])} of the time.")
    if online and found.blind is not None:
        level = float(found.blind.accuracy[0])
        seeing = [online[r.learner] for r in board.rows if r.sees_input and r.learner in online]
        above = sum(mean > level for mean in seeing)
        text.append(
            f"Repeating recent labels without a look at any input is worth {_share(level)} "
            f"({found.blind.name})"
            + (f"; above that: {above} of the {len(seeing)} that look." if seeing else ".")
        )
    shifts = [c for c in board.columns if c.score.startswith(NEAR_FUTURE)]
    ahead = _means(board, shifts[-1].score) if shifts else {}
    if ahead and found.blind is not None:
        best = max(ahead, key=lambda name: ahead[name])
        text.append(
            f"Asked {shifts[-1].score.removeprefix(NEAR_FUTURE)} samples ahead, where recent "
            f"labels are worth {_share(float(found.blind.accuracy[-1]))}, {best} is right most "
            f"often, {_share(ahead[best])} of the time."
        )
    return " ".join(text)


def _means(board: Board, name: str) -> dict[str, float]:
    means = {row.learner: row.scores[name].mean for row in board.rows if name in row.scores}
    return {learner: mean for learner, mean in means.items() if mean == mean}


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _facts(run: Run) -> dict[str, list[tuple[str, str]]]:
    """Configuration, stream and environment of a run as pairs of name and value."""
    header = run.header
    stream = {name: value for name, value in run.stream.items() if name != "settings"}
    again = {f"at step {one['step']}": one["environment"] for one in header.get("resumed_in", ())}
    parts = {
        "Configuration": header["config"],
        "Stream": stream,
        "Environment": header["environment"],
        "Resumed elsewhere": again,
    }
    return {title: list(_pairs(part)) for title, part in parts.items() if part}


def _pairs(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _pairs(item, f"{name}.{key}" if name else str(key))
    else:
        yield name, value if isinstance(value, str) else json.dumps(value)
