"""Measured values of the rows of a suite, from run folders or as recorded in `results/`."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamgauge import metrics
from streamgauge.audit import blind_accuracy
from streamgauge.errors import StreamgaugeError
from streamgauge.files import write_result
from streamgauge.learners.behaviour import method_code, stored_code, table, variant_of
from streamgauge.metrics import score
from streamgauge.record import Run
from streamgauge.report.figures import online_answers
from streamgauge.settings import as_plain
from streamgauge.suites.running import find, of_current_code, plan_rows, seeds_text
from streamgauge.suites.spec import Row, Suite, load

RESULTS = Path(__file__).parent / "results"
# Followed by a window: blind accuracy, sample by sample, from a run's labels, not its answers.
LABELS = "label_accuracy@"
NEAR_FUTURE = "near_future_accuracy@"  # followed by a shift
# Followed by a score of each task: the slope of a line through its values over the tasks, per task.
SLOPE = "slope:"
SEEDS = "--seeds"
OTHER_CODE = "run with another version of the learner's code than the one here"
UNKNOWN_CODE = "the behaviour of the code that ran it is not recorded"
SEVERAL_CODES = "seeds were run with different versions of the learner's code"
NOT_CURRENT = (OTHER_CODE, UNKNOWN_CODE, SEVERAL_CODES)  # such values do not count for a verdict
# Fields of `Measured` in a results file, where they are not empty; the values follow.
WRITTEN = (
    "part", "row", "seeds", "command", "device", "versions", "code", "earlier", "runs", "remarks",
)  # fmt: skip
GENERATED = ("albums", "blobs", "markov")  # the data differ between seeds


@dataclass(frozen=True)
class Measured:
    """One row: a value per seed in each column, in %, and how they were measured."""

    part: str
    row: str
    seeds: tuple[int, ...]
    values: Mapping[str, tuple[float, ...]]  # NaN where a run lacks it
    command: str
    runs: tuple[str, ...] = ()
    device: str = ""
    versions: str = ""
    earlier: str = ""  # why these values do not count for a verdict
    remarks: tuple[str, ...] = ()
    code: tuple[str, ...] = ()  # hashes of the learner's behaviour that the runs stored
    # Means over seeds in each of `Row.blocks` consecutive parts of the stream; empty: none asked.
    blocks: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

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
    stored = find(plan_rows(suite.rows, seeds or known), runs)
    return [_measured(suite, row, stored.of(row)) for row in suite.rows if stored.of(row)]


def command(suite: Suite, rows: Sequence[Row], seeds: Sequence[int] | None = None) -> str:
    """The command that runs these rows with these seeds; None: the seeds of the suite."""
    words = ["streamgauge", "suite", "run", suite.name]
    words += [word for row in rows for word in ("--only", _quoted(row.title))]
    words += ["--generated"] if suite.generated else []
    asked = [range(row.seeds) for row in rows]
    if seeds is not None and any(list(seeds) != list(own) for own in asked):
        words += [SEEDS, seeds_text(seeds)]
    return " ".join(words)


def _quoted(text: str) -> str:
    return f'"{text}"' if set(text) & set(" ,:+/") else text


def _measured(suite: Suite, row: Row, runs: Sequence[Run]) -> Measured:
    columns = row.columns.items()
    return Measured(
        part=row.part,
        row=row.name,
        seeds=tuple(run.seed for run in runs),
        values={c: tuple(100 * first_score(run, names) for run in runs) for c, names in columns},
        command=command(suite, [row], [run.seed for run in runs]),
        runs=tuple(run.id[:8] for run in runs),
        device=_joined_texts(run.header["environment"]["device"] for run in runs),
        versions=_joined_texts(_versions(run) for run in runs),
        code=tuple(dict.fromkeys(stored_code(run.header["config"]["learner"]) for run in runs)),
        remarks=tuple(_remarks(row, runs)),
        blocks={c: by_blocks(runs, names, row.blocks) for c, names in columns if row.blocks},
    )


def _remarks(row: Row, runs: Sequence[Run]) -> Iterable[str]:
    """Differences between these runs, or from the current code, that a mean hides."""
    if len({stored_code(run.header["config"]["learner"]) for run in runs}) > 1:
        yield SEVERAL_CODES
    elif not all(map(of_current_code, runs)):
        yield OTHER_CODE
    if len({run.header["config"]["device"] for run in runs}) > 1:
        yield "seeds were run on different kinds of device"
    if len({str(run.header["config"].get("engine")) for run in runs}) > 1:
        yield "seeds were run by different engines"
    if len({run.header["config"]["learner"].get("weights") for run in runs}) > 1 and (
        not row.own_weights
    ):
        yield "seeds began from different first weights"
    data = {run.stream["data_hash"] for run in runs}
    if len(data) > 1 and row.stream not in GENERATED:
        yield "seeds were run on different data"


def run_scores(run: Run) -> dict[str, float]:
    """Every score of a run, cached."""
    return json.loads(_scores(str(run.path), run.step))  # type: ignore[no-any-return]


@lru_cache(maxsize=1024)
def _scores(path: str, step: int) -> str:
    return json.dumps(score(Run(path)))


def first_score(run: Run, names: Sequence[str]) -> float:
    """The first of these scores that a run has; NaN if it has none of them."""
    scores = run_scores(run)
    for name in names:
        if name.startswith(LABELS):
            window = int(name.removeprefix(LABELS))
            return float(blind_accuracy(online_answers(run)[0], [window], [0])[0, 0])
        if name.startswith(SLOPE):
            return slope(run, name.removeprefix(SLOPE))
        if name in scores:
            return float(scores[name])
    return float("nan")


def by_blocks(runs: Sequence[Run], names: Sequence[str], count: int) -> tuple[float, ...]:
    """An accuracy, in %, in each of `count` consecutive parts of the stream, mean over runs."""
    values = [[_accuracy(part) for part in _parts(run, names, count)] for run in runs]
    return tuple(float(value) for value in 100 * np.mean(values, axis=0))


def _accuracy(right: NDArray[Any]) -> float:
    return float(np.mean(right)) if len(right) else float("nan")


def _parts(run: Run, names: Sequence[str], count: int) -> list[NDArray[Any]]:
    """Whether each answer is right, oldest first, in parts: of the first of these accuracies that a
    run has."""
    scores = run_scores(run)
    name = next((n for n in names if n.startswith(LABELS) or n in scores), names[0])
    if name.startswith(LABELS):
        window, label = [int(name.removeprefix(LABELS))], online_answers(run)[0]
        return [blind_accuracy(y, window, [0])[0] for y in np.array_split(label, count)]
    if name == "retained_accuracy":
        mean = metrics.retention_curve(run).accuracy  # over the first n held-out samples
        right = np.diff(mean * np.arange(1, len(mean) + 1), prepend=0.0)
    elif name == "online_accuracy" or name.startswith(NEAR_FUTURE):
        shift = int(name.removeprefix(NEAR_FUTURE)) if name.startswith(NEAR_FUTURE) else 0
        table = run.predictions
        rows = np.flatnonzero(table["shift"] == shift)
        rows = rows[np.argsort(table["step"][rows], kind="stable")]
        right = (table["label"][rows] == table["prediction"][rows]).astype(np.float64)
    else:
        raise StreamgaugeError(f"The score '{name}' is no mean over samples: it has no blocks.")
    return np.array_split(right, count)


def slope(run: Run, name: str) -> float:
    """Of the least-squares line through an average or rescaled score after each task."""
    a, classes = metrics.accuracy_matrix(run), metrics.classes_seen(run)
    rescaled = name.startswith("rescaled")
    values = getattr(metrics, name)(a, classes) if rescaled else getattr(metrics, name)(a)
    task = np.flatnonzero(~np.isnan(values))
    return float(np.polyfit(task, values[task], 1)[0]) if len(task) > 1 else float("nan")


def _versions(run: Run) -> str:
    environment = run.header["environment"]
    git = environment.get("git_streamgauge") or {}
    commit = f" ({git['commit'][:10]})" if git.get("commit") else ""
    return f"streamgauge {environment['streamgauge']}{commit}, torch {environment['torch']}"


def _joined_texts(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(texts))


def recorded(suite: str, folder: Path = RESULTS) -> list[Measured]:
    """Values in `results/SUITE.toml`; none without that file."""
    file = folder / f"{suite}.toml"
    if not file.exists():
        return []
    try:
        given = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise StreamgaugeError(f"{file} is not valid TOML: {error}.") from None
    rows = [
        Measured(
            **{"part": "", "command": ""}
            | {name: tuple(v) if isinstance(v, list) else v for name, v in result.items()}
            | {
                table: {name: tuple(map(float, v)) for name, v in result.get(table, {}).items()}
                for table in ("values", "blocks")
            }
        )
        for result in given.get("result", ())
    ]
    return [_remarked(suite, row) for row in rows]


def _remarked(suite: str, measured: Measured) -> Measured:
    """The same values, with a remark if the learner behaves differently today, or nobody knows: by
    the hash that the runs stored, else by the commits that `results/behaviour.toml` lists."""
    row = next((row for row in load(suite).rows if row.key == measured.key), None)
    if row is None or measured.earlier:
        return measured
    recipe = plan_rows([row], [0])[0].recipe
    settings = as_plain(recipe.config)
    if measured.code:
        same = set(measured.code) == {method_code(recipe.where, settings)}
        remark = "" if same else OTHER_CODE
    else:
        known = tomllib.loads((RESULTS / "behaviour.toml").read_text(encoding="utf-8"))
        variant = variant_of(settings)
        then = {
            known.get(commit, {}).get(f"{recipe.where}/{variant}")
            for commit in re.findall(r"\(([0-9a-f]{7,})\)", measured.versions)
        }
        now = table()["methods"][recipe.where].get(variant)
        remark = UNKNOWN_CODE if not then or None in then else "" if then == {now} else OTHER_CODE
    rest = [text for text in measured.remarks if text not in NOT_CURRENT]
    return replace(measured, remarks=(*rest, remark) if remark else tuple(rest))


def together(first: Iterable[Measured], second: Iterable[Measured]) -> list[Measured]:
    """Merge by row and seed; the second wins. Values that do not count for a verdict (`earlier`)
    are not mixed with ones that do: such rows are replaced."""
    merged = {row.key: row for row in first}
    for newer in second:
        older = merged.get(newer.key)
        alone = older is None or older.earlier or set(older.seeds) <= set(newer.seeds)
        merged[newer.key] = newer if alone or older is None else _joined(older, newer)
    return list(merged.values())


def _joined(older: Measured, newer: Measured) -> Measured:
    """More seeds of the same row: seeds that only `older` has are kept. Blocks are those of the
    newer seeds."""
    nan = float("nan")
    old = {seed: position for position, seed in enumerate(older.seeds) if seed not in newer.seeds}
    new = {seed: position for position, seed in enumerate(newer.seeds)}
    seeds = sorted({*old, *new})

    def pick(old_values: Sequence[Any], new_values: Sequence[Any], absent: Any) -> tuple[Any, ...]:
        picked = [(new_values, new[s]) if s in new else (old_values, old[s]) for s in seeds]
        return tuple(values[at] if at < len(values) else absent for values, at in picked)

    columns = dict.fromkeys([*newer.values, *older.values])
    kept_seeds = ", ".join(map(str, sorted(old)))
    by = f" by {older.versions}" if older.versions != newer.versions else ""
    on = f" on {older.device}" if older.device != newer.device else ""
    return replace(
        newer,
        seeds=tuple(seeds),
        values={c: pick(older.values.get(c, ()), newer.values.get(c, ()), nan) for c in columns},
        command=f"{newer.command.partition(f' {SEEDS} ')[0]} {SEEDS} {seeds_text(seeds)}",
        runs=tuple(name for name in pick(older.runs, newer.runs, "") if name),
        device=_joined_texts(filter(None, (older.device, newer.device))),
        versions=_joined_texts(filter(None, (older.versions, newer.versions))),
        code=_joined_codes(older, newer),
        remarks=tuple(
            dict.fromkeys(
                (*older.remarks, *newer.remarks, f"seeds {kept_seeds} as recorded{by}{on}")
            )
        ),
    )


def _joined_codes(older: Measured, newer: Measured) -> tuple[str, ...]:
    """Hashes of both. Where the older runs have none, their commits were compared with today's code
    (`_remarked`): if they behave alike, the newer hash is theirs too; else nobody knows."""
    if older.code and newer.code:
        return tuple(dict.fromkeys((*older.code, *newer.code)))
    return () if set(older.remarks) & set(NOT_CURRENT) else newer.code


def write(suite: str, rows: Iterable[Measured], file: Path) -> Path:
    """Record results as data, so that the ledger needs no run folders."""
    lines = [
        f"# What was measured for the suite {suite}, in %, one value per seed. Written by",
        f"# `streamgauge suite record {suite}`.",
    ]
    for row in rows:
        lines += ["", "[[result]]"]
        for name in WRITTEN:
            if getattr(row, name):
                lines.append(f"{name} = {json.dumps(getattr(row, name), ensure_ascii=False)}")
        for kind, columns in (("values", row.values), ("blocks", row.blocks)):
            lines += ["", f"[result.{kind}]"] if columns else []
            for column, values in columns.items():
                shown = ", ".join("nan" if v != v else str(round(float(v), 4)) for v in values)
                lines.append(f"{json.dumps(column, ensure_ascii=False)} = [{shown}]")
    return write_result(file, "\n".join(lines) + "\n")
