"""Suites: TOML files in this folder with learners, their stream, their protocol, and the published
tables to compare with.

    [stream] [protocol] [learner]   settings of every run; learners ignore `learner` settings that
                                    they do not have
    [[row]]   name, method ([ALIAS=]LEARNER[@PRESET]) and settings of one learner
    [[part]]  a published table or a column of one: its settings, and names of rows, its own rows
              or `same_rows` of another part; `by_row` has settings of single rows
    [generated]   stream and settings that replace those of the real data with `--generated`
    blocks        of a stream that is the same in all seeds: parts to estimate its chance from
    [pretrain]    how `pretrain` makes the first weights of the preparation part; without it, and
                  without `--generated`, they are files that the user gives

Later settings override earlier ones: suite, part, row, then `generated` of each in the same order.
Only a generated stream takes no setting of the real stream.

A part with a `speed` has its rows at that stream speed, and ER++ and ER-- for each of them. There,
`batches` are settings as multiples of the batch size, and `shares` are settings as shares of the
samples that a method trains on.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from streamgauge import catalogue
from streamgauge.errors import StreamgaugeError, nearest
from streamgauge.running.costs import as_speed, published
from streamgauge.running.plan import Experiment, origin, plan
from streamgauge.settings import as_plain

ROOM = Path(__file__).parent
GENERATED = (
    "The methods of this suite on small generated data in place of its own: they run in minutes "
    "and show that everything works. No number can be compared with a published one, and what the "
    "suite's name says of data sets, tasks and classes does not hold here."
)
GROUPS = ("stream", "protocol", "learner")
_LAYER = {*GROUPS, "seeds"}
_SUITE = {
    *_LAYER, "title", "what", "columns", "size", "figures", "row", "part", "generated", "notes",
    "weights", "batches", "pretrain", "blocks",
}  # fmt: skip
_PART = {
    *_LAYER, "name", "table", "rows", "row", "same_rows", "by_row", "columns", "size", "generated",
    "difference", "weights", "on", "speed",
}  # fmt: skip
_ROW = {
    *_LAYER, "name", "method", "published", "weights", "definition", "columns", "generated", "note",
    "batches", "shares",
}  # fmt: skip
# A row that is run as its paper defines it, where the published code did something else.
DEFINED = "as defined"


@dataclass(frozen=True)
class Row:
    """One learner in one part of a suite: one line of a table, over all seeds."""

    suite: str
    part: str
    name: str
    method: str  # a learner, with its preset
    stream: str
    settings: Mapping[str, Any]  # dotted names, as on the command line
    seeds: int
    columns: Mapping[str, tuple[str, ...]]  # column of the table -> scores; the first logged counts
    table: str = ""  # file of published numbers
    published: str = ""  # the row of that table
    weights: str = ""  # name of the pretrained backbone
    on: str = "stream"  # or "preparation": the part for tuning, which other runs never score
    defined: bool = False  # as the paper defines the method, where the published code differs
    generated: bool = False
    pretrain: Mapping[str, Any] = field(default_factory=dict)  # of a backbone that the suite makes
    size: Mapping[str, Any] = field(default_factory=dict)  # of a stream without local data
    note: str = ""
    blocks: int = 0  # consecutive parts of the stream whose values are recorded apart; 0: none
    joint: Experiment | None = None  # of all rows of the part, if they are planned together

    @property
    def key(self) -> tuple[str, str]:
        return self.part, self.name

    @property
    def title(self) -> str:
        return f"{self.part}: {self.name}" if self.part else self.name

    @property
    def own_weights(self) -> bool:
        """Whether the suite makes first weights, for each seed its own: no file is given."""
        return self.generated or bool(self.pretrain)

    def experiment(self, seeds: int | None = None, weights: str = "") -> Experiment:
        if self.joint is not None:
            return replace(self.joint, seeds=seeds or self.seeds)
        settings = dict(self.settings)
        if weights:
            settings["learner.weights"] = weights
        return Experiment(self.stream, (self.method,), seeds or self.seeds, settings)


@dataclass(frozen=True)
class Difference:
    """A published number that is the difference of two rows, taken seed by seed."""

    part: str
    name: str
    of: str
    minus: str
    column: str
    table: str


@dataclass(frozen=True)
class Suite:
    name: str
    title: str
    what: str
    rows: tuple[Row, ...]
    differences: tuple[Difference, ...]
    figures: tuple[str, ...]
    notes: tuple[str, ...]
    generated: bool

    def __repr__(self) -> str:
        return f"Suite({self.name!r}: {len(self.rows)} rows)"

    @property
    def parts(self) -> list[str]:
        return list(dict.fromkeys(row.part for row in self.rows))

    def of_part(self, part: str) -> list[Row]:
        return [row for row in self.rows if row.part == part]

    def choose(self, only: Sequence[str] = (), both: bool = False) -> list[Row]:
        """The rows to run, in the order of the file: all, or those named by row, part or PART: ROW.
        Rows as defined come last, and only with `both` or by name."""
        known: dict[str, list[Row]] = {}
        for row in self.rows:
            for name in {row.title, row.name, row.part} - {""}:
                known.setdefault(name.lower(), []).append(row)
        chosen: list[Row] = []
        for name in only:
            if name.lower() not in known:
                raise StreamgaugeError(
                    f"The suite {self.name} has no row or part '{name}'; "
                    f"{nearest(name.lower(), known)}"
                )
            chosen += known[name.lower()]
        named = {name.lower() for name in only}
        rows = [row for row in self.rows if not only or row in chosen]
        as_defined = [
            row
            for row in rows
            if row.defined and (both or {row.name.lower(), row.title.lower()} & named)
        ]
        return [row for row in rows if not row.defined] + as_defined


def names() -> list[str]:
    """The names of all suites, which are those of their files."""
    return sorted(file.stem for file in ROOM.glob("*.toml"))


def load(name: str, generated: bool = False) -> Suite:
    """A suite with every setting checked.

    >>> load("demo").title
    'Why online accuracy alone misleads'
    """
    if name not in names():
        raise StreamgaugeError(f"There is no suite '{name}'; {nearest(name, names())}")
    return build(name, read(name), generated)


def read(name: str) -> dict[str, Any]:
    """The content of a suite's file."""
    return tomllib.loads((ROOM / f"{name}.toml").read_text(encoding="utf-8"))


def build(
    name: str,
    given: Mapping[str, Any],
    generated: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> Suite:
    """A suite from the content of its file; `settings` by dotted name override those of parts that
    have a speed."""
    _check(given, _SUITE, name)
    parts = given.get("part") or [{"name": ""}]
    rows: list[Row] = []
    differences = []
    for part in parts:
        _check(part, _PART, f"{name}, part {part.get('name', '?')}")
        if "speed" in part:
            rows += _timed_rows(name, given, part, generated, settings or {})
        else:
            rows += _rows(name, given, part, generated)
        for pairing in part.get("difference", ()):
            table = {"table": part.get("table", "")}
            differences.append(Difference(part["name"], **table | pairing))
    # What a file says of its data is not true of the generated ones, unless it has no others.
    own = {row.stream for row in build(name, given).rows} if generated else set()
    on_other_data = generated and {row.stream for row in rows} != own
    return Suite(
        name=name,
        title=given["title"],
        what=GENERATED if on_other_data else given["what"],
        rows=tuple(rows),
        differences=tuple(differences),
        figures=tuple(given.get("figures", ())),
        notes=() if on_other_data else tuple(given.get("notes", ())),
        generated=generated,
    )


def _rows(
    name: str, suite: Mapping[str, Any], part: Mapping[str, Any], generated: bool
) -> Iterator[Row]:
    shared = {row["name"]: row for row in suite.get("row", ())}
    if "same_rows" in part:
        other = next((p for p in suite["part"] if p["name"] == part["same_rows"]), None)
        if other is None:
            raise StreamgaugeError(f"The suite {name} has no part '{part['same_rows']}'.")
        shared |= {row["name"]: row for row in other["row"]}
    wanted = part.get("rows", [] if "row" in part else list(shared))
    for row_name in wanted:
        if row_name not in shared:
            hint = nearest(row_name, shared)
            raise StreamgaugeError(f"The suite {name} has no row '{row_name}'; {hint}")
    for row in [*(shared[row_name] for row_name in wanted), *part.get("row", ())]:
        _check(row, _ROW, f"{name}, row {row.get('name', '?')}")
        yield _row(name, suite, part, row, generated)
        if "definition" in row:
            _check(row["definition"], _LAYER, f"{name}, definition of {row['name']}")
            defined = {**row, "name": f"{row['name']}, {DEFINED}"}
            yield _row(name, suite, part, defined, generated, row["definition"])


def _timed_rows(
    name: str,
    suite: Mapping[str, Any],
    part: Mapping[str, Any],
    generated: bool,
    overrides: Mapping[str, Any],
) -> Iterator[Row]:
    """The rows of a part at a speed of the stream, then their ER++ and ER--. All are planned as one
    experiment, since ER++ and ER-- take their settings from ER and their steps from the others."""
    layers = [suite, part, suite["generated"]] if generated else [suite, part]
    source = {**(suite["generated"] if generated else suite)["stream"]}
    name_of_stream = str(source.pop("name"))
    learners = {catalogue.learner(row["method"]).name: row for row in suite["row"]}
    settings = {
        f"{group}.{setting}": value
        for layer in [*layers, {"stream": source}]
        for group in GROUPS
        for setting, value in layer.get(group, {}).items()
        if group != "stream" or layer["stream"] is source
    }
    for learner, row in learners.items():
        _check(row, _ROW, f"{name}, row {row.get('name', '?')}")
        settings |= {f"{learner}.{k}": v for k, v in row.get("learner", {}).items()}
    of_stream = {
        dotted.removeprefix("stream."): value
        for dotted, value in {**settings, **overrides}.items()
        if dotted.startswith("stream.")
    }
    stream = catalogue.stream(name_of_stream, **{"seed": 0, **of_stream})
    for owner, layer in [("learner", suite), *learners.items()]:
        for setting, count in layer.get("batches", {}).items():
            settings[f"{owner}.{setting}"] = count * stream.size
        for setting, share in layer.get("shares", {}).items():
            trained = stream.samples / _job_steps(layer["method"], part["speed"])
            settings[f"{owner}.{setting}"] = max(1, round(trained * Fraction(share)))
    methods = tuple(row["method"] for row in learners.values())
    seeds = next((layer["seeds"] for layer in reversed(layers) if "seeds" in layer), 1)
    name_of_stream, settings = origin(name_of_stream), {**settings, **overrides}
    experiment = Experiment(name_of_stream, methods, seeds, settings, part["speed"], baselines=True)
    columns = {column: (score,) for column, score in suite["columns"].items()}
    for planned in plan(replace(experiment, seeds=1)):
        recipe = planned.recipe
        yield Row(
            suite=name,
            part=part["name"],
            name=recipe.name,
            method=recipe.where,
            stream=experiment.stream,
            settings={f"learner.{k}": v for k, v in as_plain(recipe.config).items()},
            seeds=seeds,
            columns=columns,
            generated=generated,
            joint=experiment,
        )


def _job_steps(method: str, speed: str) -> Fraction:
    """Stream steps that a training job of a method lasts."""
    factor = as_speed(speed)
    cost = published(catalogue.learner(method))
    return Fraction(1) if factor is None else max(Fraction(1), factor * cost)


def _row(
    name: str,
    suite: Mapping[str, Any],
    part: Mapping[str, Any],
    row: Mapping[str, Any],
    generated: bool,
    definition: Mapping[str, Any] | None = None,
) -> Row:
    differs = part.get("by_row", {}).get(row["name"].removesuffix(f", {DEFINED}"), {})
    layers = [suite, part, row, differs, definition or {}]
    stand_ins = [layer.get("generated", {}) for layer in (suite, part, row)] if generated else []
    known = catalogue.learner(row["method"]).known_settings
    merged: dict[str, dict[str, Any]] = {group: {} for group in GROUPS}
    for layer in [*layers, *stand_ins]:
        own = layer is row or layer is differs or layer is definition
        for group in GROUPS:
            if group == "stream" and generated and layer not in stand_ins:
                continue
            for setting, value in layer.get(group, {}).items():
                if group != "learner" or own or setting in known:
                    merged[group][setting] = value
    stream = str(merged["stream"].pop("name"))
    settings = {f"{group}.{k}": v for group, values in merged.items() for k, v in values.items()}
    seeds = [layer["seeds"] for layer in [*layers, *stand_ins] if "seeds" in layer]
    columns = row.get("columns", part.get("columns", suite.get("columns", {})))
    return Row(
        suite=name,
        part=part.get("name", ""),
        name=row["name"],
        method=row["method"],
        stream=stream,
        settings=settings,
        seeds=seeds[-1] if seeds else 1,
        columns={c: (s,) if isinstance(s, str) else tuple(s) for c, s in columns.items()},
        table="" if generated else part.get("table", ""),
        published=row.get("published", row["name"].removesuffix(f", {DEFINED}")),
        weights=_backbone(row, part, suite),
        on=part.get("on", "stream"),
        defined=definition is not None,
        generated=generated,
        pretrain=(suite.get("generated", {}) if generated else suite).get("pretrain", {}),
        size={**suite.get("size", {}), **part.get("size", {})},
        note=row.get("note", ""),
        blocks=0 if generated else suite.get("blocks", 0),
    )


def _backbone(*layers: Mapping[str, Any]) -> str:
    """The backbone of the first layer that names one; empty for `none`."""
    name = next((str(layer["weights"]) for layer in layers if "weights" in layer), "none")
    return "" if name == "none" else name


def _check(given: Mapping[str, Any], known: set[str], where: str) -> None:
    for entry in given:
        if entry not in known:
            raise StreamgaugeError(
                f"The suite {where} has an unknown entry '{entry}'; {nearest(entry, known)}"
            )
