"""The tab of studies: every trial of `streamgauge tune`, as far as its run folder says."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from streamgauge.pages import Block, Cell, Figure, Page, PageTable, Section, Text
from streamgauge.pages.figures import Trace, figure, front, line
from streamgauge.view.follow import Followed, RunFollower, progress_text
from streamgauge.view.query import number, text

# What `tune --objective` calls scores; others are scores by name.
SCORES = {"held_out": "retained_accuracy", "online": "online_accuracy"}
WIDE = 30  # settings further apart than this many times are drawn on a logarithmic axis
FEWEST = 2  # trials with a value that are drawn


def studies_page(follower: RunFollower, runs: Sequence[Followed]) -> Page:
    """A section per study: the choice, the trials as a table, and their values."""
    blocks: list[Block] = []
    for folder, study in follower.studies.items():
        trials = [run for run in runs if run.study == folder and run.header]
        trials.sort(key=lambda run: _trial(run).get("number", 0))
        blocks.append(Section(folder.name, _study(folder, study, trials, follower)))
    if not blocks:
        blocks = ["There is no study here. `streamgauge tune` makes one in studies/."]
    return Page("Streamgauge view", "Studies", blocks)


def _study(
    folder: Path, study: Mapping[str, Any], trials: Sequence[Followed], follower: RunFollower
) -> list[Block]:
    score = str(study.get("objective") or "")
    score = SCORES.get(score, score) or "online_accuracy"
    searched = [str(name) for name in study.get("search") or _differing(trials)]
    settings = [run.learner.get("settings") or {} for run in trials]
    values = [(run.scores or {}).get(score, math.nan) for run in trials]
    numbers = [int(_trial(run).get("number", n)) for n, run in enumerate(trials)]
    now = follower.now()
    rows: list[list[str | Cell]] = []
    for run, at, value, of in zip(trials, numbers, values, settings, strict=True):
        alive = run.alive(now)
        so_far = run.tally.accuracy(0)
        rows.append([
            Cell(str(at), value=float(at)),
            *(_setting(of.get(name)) for name in searched),
            _share(value),
            _share(so_far),
            progress_text(alive),
            # For how long there was no heartbeat is in the list, which is newer than this table.
            "no heartbeat" if alive["status"] == "stalled" else alive["reason"] or "–",
        ])  # fmt: skip
    head = ["trial", *searched, score.replace("_", " "), "online", "status", "reason"]
    texts = [len(head) - 2, len(head) - 1]
    figures = [_over_trials(numbers, values, score)] + [
        _over_setting(name, [of.get(name) for of in settings], values, score) for name in searched
    ]
    return [
        _sentence(study, trials),
        *(Text(str(end), "warning") for end in study.get("ends") or ()),
        *(drawn for drawn in figures if drawn is not None),
        *([PageTable(head, rows, text_columns=texts, sortable=True)] if rows else []),
        Text(f"Folder: {folder}"),
    ]


def _trial(run: Followed) -> Mapping[str, Any]:
    trial = run.header["config"].get("trial")
    return trial if isinstance(trial, dict) else {}


def _differing(trials: Sequence[Followed]) -> list[str]:
    """The settings of the learner in which the trials differ, while nothing else is known."""
    settings = [run.learner.get("settings") or {} for run in trials]
    names = dict.fromkeys(name for of in settings for name in of)
    return [name for name in names if len({text(of.get(name)) for of in settings}) > 1]


def _setting(value: Any) -> Cell:
    as_number = number(value)
    shown = f"{as_number:.4g}" if isinstance(value, float) else text(value) or "–"
    return Cell(shown, value=None if math.isnan(as_number) else as_number)


def _share(value: float) -> Cell:
    return Cell("–", value=-1.0) if math.isnan(value) else Cell(f"{100 * value:.1f}", value=value)


def _sentence(study: Mapping[str, Any], trials: Sequence[Followed]) -> str:
    if not study:
        return f"{len(trials)} trials; none has ended."
    asked = study.get("asked")
    beginning = (
        f"{study.get('trials', len(trials))} of {asked} trials of {study.get('name')} on"
        f" {study.get('prefix')} of {study.get('stream')} have ended."
    )
    choice, value = study.get("choice"), study.get("value")
    if not isinstance(choice, dict) or not isinstance(value, float):
        return beginning
    chosen = ", ".join(f"{name} = {_setting(v).text}" for name, v in choice.items())
    error, within = study.get("error"), study.get("within")
    noise = ""
    if isinstance(error, float) and within:
        noise = (
            f" Its standard error is at least {100 * error:.1f} points; other trials within it:"
            f" {within}, and which of them is best is chance."
        )
    return (
        f"{beginning} Best is trial {study.get('trial')}: {chosen}, with {study.get('objective')}"
        f" accuracy {100 * value:.1f} %.{noise}"
    )


def _over_trials(numbers: Sequence[int], values: Sequence[float], score: str) -> Figure | None:
    known = [(n, v) for n, v in zip(numbers, values, strict=True) if not math.isnan(v)]
    if len(known) < FEWEST:
        return None
    x, y = zip(*known, strict=True)
    best = [max(y[: at + 1]) for at in range(len(y))]
    traces = [_markers(x, y), front("best so far", x, best)]
    return figure(
        f"{score.replace('_', ' ').capitalize()} of each trial",
        "In the order in which they began; the line is the best so far. The best of many is"
        " flattered by chance.",
        traces, "trial", from_zero=False, showlegend=False, hovermode="closest",
    )  # fmt: skip


def _markers(x: Sequence[float], y: Sequence[float]) -> Trace:
    return line("trials", x, y) | {"mode": "markers", "showlegend": False}


def _over_setting(
    name: str, settings: Sequence[Any], values: Sequence[float], score: str
) -> Figure | None:
    pairs = [(number(s), v) for s, v in zip(settings, values, strict=True)]
    known = [(s, v) for s, v in pairs if not math.isnan(s) and not math.isnan(v)]
    if len({s for s, _ in known}) < FEWEST:
        return None
    x, y = zip(*known, strict=True)
    log = min(x) > 0 and max(x) / min(x) > WIDE
    return figure(
        f"{score.replace('_', ' ').capitalize()} over {name}",
        "One marker per trial.",
        [_markers(x, y)],
        name, from_zero=False, showlegend=False, hovermode="closest",
        x_axis={"type": "log"} if log else None,
    )  # fmt: skip
