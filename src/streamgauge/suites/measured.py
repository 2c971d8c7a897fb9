"""What was measured for the rows of a suite: from run folders, or as recorded in `results/`."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from streamgauge.audit import blind_accuracy
from streamgauge.errors import StreamgaugeError
from streamgauge.learners.behaviour import stored_code, table, variant_of
from streamgauge.metrics import score
from streamgauge.record import Run
from streamgauge.settings import as_plain
from streamgauge.suites.finding import find, of_current_code, plan_rows, seeds_text
from streamgauge.suites.spec import Row, Suite, load

RESULTS = Path(__file__).parent / "results"
# Blind accuracy of so many labels, photo by photo: computed from a run's labels, not its answers.
LABELS = "label_accuracy@"
SEEDS = "--seeds"
OTHER_CODE = "run with another version of the learner's code than the one here"
GENERATED = ("albums", "blobs", "markov")  # each seed has data of its own


@dataclass(frozen=True)
class Measured:
    """One row: a value a seed in each column, in %, and where they came from."""

    part: str
    row: str
    seeds: tuple[int, ...]
    values: Mapping[str, tuple[float, ...]]  # NaN where a run does not have it
    command: str
    runs: tuple[str, ...] = ()
    device: str = ""
    versions: str = ""
    earlier: str = ""  # why these do not count as a check, although they were measured
    remarks: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        return self.part, self.row


def from_runs(
    suite: Suite, runs: Iterable[Run], seeds: Sequence[int] | None = None
) -> list[Measured]:
    """The rows that have complete runs among these."""
    # A run with a seed beyond those that the suite asks for counts as well.
    runs = list(runs)
    most = max([row.seeds for row in suite.rows], default=1)
    known = sorted({run.seed for run in runs} | set(range(most)))
    found = find(plan_rows(suite.rows, seeds or known), runs)
    return [_measured(suite, row, found.of(row)) for row in suite.rows if found.of(row)]


def command(suite: Suite, rows: Sequence[Row], seeds: Sequence[int] | None = None) -> str:
    """What makes these rows with these seeds; None is what the suite asks for."""
    words = ["streamgauge", "suite", "run", suite.name]
    words += [word for row in rows for word in ("--only", _quoted(row.title))]
    words += ["--generated"] if suite.generated else []
    asked = [range(row.seeds) for row in rows]
    if seeds is not None and any(list(seeds) != list(one) for one in asked):
        words += [SEEDS, seeds_text(seeds)]
    return " ".join(words)


def _quoted(text: str) -> str:
    return f'"{text}"' if set(text) & set(" ,:+/") else text


def _measured(suite: Suite, row: Row, runs: Sequence[Run]) -> Measured:
    scores = [run_scores(run) for run in runs]
    values = {
        column: tuple(
            100 * _value(run, found, names) for run, found in zip(runs, scores, strict=True)
        )
        for column, names in row.columns.items()
    }
    return Measured(
        part=row.part,
        row=row.name,
        seeds=tuple(run.seed for run in runs),
        values=values,
        command=command(suite, [row], [run.seed for run in runs]),
        runs=tuple(run.id[:8] for run in runs),
        device=_one_or_more(run.header["environment"]["device"] for run in runs),
        versions=_one_or_more(_versions(run) for run in runs),
        remarks=tuple(_remarks(row, runs)),
    )


def _remarks(row: Row, runs: Sequence[Run]) -> Iterable[str]:
    """What a mean over these runs hides: that they are not all of one kind, or not of today's."""
    if len({stored_code(run.header["config"]["learner"]) for run in runs}) > 1:
        yield "seeds were run with different versions of the learner's code"
    elif not all(map(of_current_code, runs)):
        yield OTHER_CODE
    if len({run.header["config"]["device"] for run in runs}) > 1:
        yield "seeds were run on different kinds of device"
    if len({str(run.header["config"].get("engine")) for run in runs}) > 1:
        yield "seeds were run by different engines"
    if len({run.header["config"]["learner"].get("weights") for run in runs}) > 1 and (
        not row.generated
    ):
        yield "seeds began from different first weights"
    data = {run.stream["data_hash"] for run in runs}
    if len(data) > 1 and row.stream not in GENERATED:
        yield "seeds were run on different data"


def run_scores(run: Run) -> dict[str, float]:
    """Every score of a run; kept, since a table is asked for more often than runs change."""
    return json.loads(_scores(str(run.path), run.step))  # type: ignore[no-any-return]


@lru_cache(maxsize=1024)
def _scores(path: str, step: int) -> str:
    return json.dumps(score(Run(path)))


def _value(run: Run, scores: Mapping[str, float], names: Sequence[str]) -> float:
    for name in names:
        if name.startswith(LABELS):
            return _label_accuracy(run, int(name.removeprefix(LABELS)))
        if name in scores:
            return float(scores[name])
    return float("nan")


def _label_accuracy(run: Run, window: int) -> float:
    table = run.predictions
    live = np.flatnonzero(table["shift"] == 0)
    live = live[np.argsort(table["step"][live], kind="stable")]
    return float(blind_accuracy(table["label"][live], [window], [0])[0, 0])


def _versions(run: Run) -> str:
    found = run.header["environment"]
    git = found.get("git_streamgauge") or {}
    commit = f" ({git['commit'][:10]})" if git.get("commit") else ""
    return f"streamgauge {found['streamgauge']}{commit}, torch {found['torch']}"


def _one_or_more(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(texts))


def recorded(suite: str, folder: Path = RESULTS) -> list[Measured]:
    """What `results/SUITE.toml` holds; nothing where there is no such file."""
    file = folder / f"{suite}.toml"
    if not file.exists():
        return []
    try:
        given = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise StreamgaugeError(f"{file} is not valid TOML: {error}.") from None
    rows = [
        Measured(
            part=one.get("part", ""),
            row=one["row"],
            seeds=tuple(one["seeds"]),
            values={column: tuple(map(float, v)) for column, v in one["values"].items()},
            command=one.get("command", ""),
            runs=tuple(one.get("runs", ())),
            device=one.get("device", ""),
            versions=one.get("versions", ""),
            earlier=one.get("earlier", ""),
            remarks=tuple(one.get("remarks", ())),
        )
        for one in given.get("result", ())
    ]
    return [_remarked(suite, row) for row in rows]


def _remarked(suite: str, measured: Measured) -> Measured:
    """With the remark on other code by behaviour: whether what its commits did is what the code
    here does. Of commits that are not in `results/behaviour.toml` the remark stays as recorded."""
    known = tomllib.loads((RESULTS / "behaviour.toml").read_text(encoding="utf-8"))
    commits = re.findall(r"\(([0-9a-f]{7,})\)", measured.versions)
    if not commits or not known.keys() >= set(commits):
        return measured
    row = next((row for row in load(suite).rows if row.key == measured.key), None)
    if row is None:
        return measured
    recipe = plan_rows([row], [0])[0].recipe
    variant = variant_of(as_plain(recipe.config))
    now = table()["methods"][recipe.where][variant]
    same = all(known[commit].get(f"{recipe.where}/{variant}") == now for commit in commits)
    rest = tuple(remark for remark in measured.remarks if remark != OTHER_CODE)
    return replace(measured, remarks=rest if same else (*rest, OTHER_CODE))


def together(first: Iterable[Measured], second: Iterable[Measured]) -> list[Measured]:
    """Seed by seed, what the second has is taken from there and the rest from the first. What does
    not count as a check is not mixed with what does: there, the second is taken alone."""
    found = {one.key: one for one in first}
    for one in second:
        before = found.get(one.key)
        alone = before is None or before.earlier or set(before.seeds) <= set(one.seeds)
        found[one.key] = one if alone or before is None else _joined(before, one)
    return list(found.values())


def _joined(before: Measured, one: Measured) -> Measured:
    """More seeds of the same row: those that `before` alone has are kept."""
    nan = float("nan")
    old = {seed: place for place, seed in enumerate(before.seeds) if seed not in one.seeds}
    new = {seed: place for place, seed in enumerate(one.seeds)}
    seeds = sorted({*old, *new})

    def pick(older: Sequence[Any], newer: Sequence[Any], absent: Any) -> tuple[Any, ...]:
        picked = [(newer, new[s]) if s in new else (older, old[s]) for s in seeds]
        return tuple(values[at] if at < len(values) else absent for values, at in picked)

    columns = dict.fromkeys([*one.values, *before.values])
    recorded_ones = ", ".join(map(str, sorted(old)))
    by = f" by {before.versions}" if before.versions != one.versions else ""
    on = f" on {before.device}" if before.device != one.device else ""
    return replace(
        one,
        seeds=tuple(seeds),
        values={c: pick(before.values.get(c, ()), one.values.get(c, ()), nan) for c in columns},
        command=f"{one.command.partition(f' {SEEDS} ')[0]} {SEEDS} {seeds_text(seeds)}",
        runs=tuple(name for name in pick(before.runs, one.runs, "") if name),
        device=_one_or_more(filter(None, (before.device, one.device))),
        versions=_one_or_more(filter(None, (before.versions, one.versions))),
        remarks=tuple(
            dict.fromkeys(
                (*before.remarks, *one.remarks, f"seeds {recorded_ones} as recorded{by}{on}")
            )
        ),
    )


def write(suite: str, found: Iterable[Measured], file: Path) -> Path:
    """Record results as data, so that the ledger needs no run folders."""
    lines = [
        f"# What was measured for the suite {suite}, in %, one value a seed. Written by",
        f"# `streamgauge suite record {suite}`.",
    ]
    for one in found:
        lines += ["", "[[result]]"]
        if one.part:
            lines.append(f"part = {json.dumps(one.part, ensure_ascii=False)}")
        lines += [f"row = {json.dumps(one.row, ensure_ascii=False)}", f"seeds = {list(one.seeds)}"]
        for name in ("command", "device", "versions", "earlier"):
            if getattr(one, name):
                lines.append(f"{name} = {json.dumps(getattr(one, name), ensure_ascii=False)}")
        for name in ("runs", "remarks"):
            if getattr(one, name):
                lines.append(f"{name} = {json.dumps(list(getattr(one, name)), ensure_ascii=False)}")
        lines += ["", "[result.values]"]
        for column, values in one.values.items():
            shown = ", ".join("nan" if v != v else str(round(float(v), 4)) for v in values)
            lines.append(f"{json.dumps(column, ensure_ascii=False)} = [{shown}]")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        raise StreamgaugeError(f"Cannot write {file}: {error.strerror}.") from None
    return file
