"""Calibration of the audit on streams of known truth; writes `docs/calibration.md`.

    python benchmarks/calibration.py            # runs what is missing, then writes the page
    python benchmarks/calibration.py --page     # writes the page from the stored results
    python benchmarks/calibration.py --minutes 20   # stops after that time; run again to go on
    python benchmarks/calibration.py --part bits    # the bits alone, or --part shift
    python benchmarks/calibration.py --quick    # a few short streams; prints, stores nothing

The figures of every stream are appended to files in `build/calibration`, so a stopped run goes on
where it was. The names of these files are made from the audit's figures on three small streams of
the family: after a change of the audit that changes figures, all streams run again. What the page
needs is stored in `docs/calibration.json`.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import multiprocessing
import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from calibration_streams import (
    Family,
    Floats,
    Ints,
    Stream,
    accuracy_for,
    entropy,
    families,
    honest,
    information,
)

DOCS = Path(__file__).parents[1] / "docs"
BUILD = Path(__file__).parents[1] / "build" / "calibration"
STREAMS = {1_000: 1_000, 3_000: 1_000, 10_000: 200}  # length: number of streams
SHIFT_STREAMS = {1_000: 200, 3_000: 100, 10_000: 60}
PAIRED = 60  # streams of a length on which the truth is computed sample by sample
INPUTS = ("honest", "weak", "half")
TOLERANCE_BITS, TOLERANCE = 0.02, 0.02
HONEST, WEAK_BITS, LEAST_BITS = 0.7, 0.06, 0.05
FIELDS = ("value", "low", "high", "placebo", "remaining", "answer", "truth", "entropy")
ANSWERS = ("yes", "no", "cannot tell")
PARTS = ("bits", "shift")
ROUNDS = 20


def seed(*parts: object) -> np.random.Generator:
    return np.random.default_rng([zlib.crc32(str(part).encode()) for part in parts])


@functools.cache
def weak_accuracy(name: str) -> float:
    """The accuracy at which an honest model adds about .06 bits on this family."""
    stream = families()[name].draw(seed(name, "weak"), 5_000)
    return accuracy_for(stream.predictive[500:], WEAK_BITS)


def models_of(family: Family, index: int) -> list[str]:
    """The models tried on a stream: exploiters take turns, and so do those with an input."""
    exploiters = [*family.inside, *family.outside]
    return [exploiters[index % len(exploiters)], INPUTS[index % len(INPUTS)]]


def fallback_of(family: Family, stream: Stream) -> Ints:
    return next(iter((family.inside | family.outside).values()))(stream)


def answers_of(family: Family, model: str, stream: Stream, rng: np.random.Generator) -> Ints:
    """The answers of a model to a stream."""
    rules = family.inside | family.outside
    if model in rules:
        return rules[model](stream)
    if model == "weak":
        return honest(stream, rng, weak_accuracy(family.name))
    right = honest(stream, rng, HONEST)
    seen = rng.random(len(right)) < (0.5 if model == "half" else 1.0)
    return np.where(seen, right, fallback_of(family, stream))


def truth_of(family: Family, model: str, stream: Stream, start: int) -> float:
    """I(label; answer | what was known) of a model, mean over the samples from ``start`` on."""
    known = stream.predictive[start:]
    if model == "honest":
        return float(information(known, HONEST).mean())
    if model == "weak":
        return float(information(known, weak_accuracy(family.name)).mean())
    if model == "half":
        return float(information(known, HONEST, 0.5, fallback_of(family, stream)[start:]).mean())
    return 0.0


def answer_of(explanation: Any) -> int:
    """The index in ANSWERS of what the audit's first sentence says."""
    if explanation.remaining.value < 2 * TOLERANCE_BITS or explanation.blocks < 20:
        return 2
    if explanation.added.low > max(TOLERANCE_BITS, explanation.placebo.high):
        return 0
    return 1 if explanation.added.high < TOLERANCE_BITS else 2


def bits_of(family: Family, length: int, indices: Iterable[int]) -> dict[str, Floats]:
    """One row of FIELDS per stream and model."""
    from streamgauge.history.bits import explain

    rows: dict[str, list[list[float]]] = {}
    start = length // 10
    for index in indices:
        rng = seed(family.name, length, index)
        stream = family.draw(rng, length)
        paired = index < PAIRED
        rate = float(entropy(stream.predictive[start:]).mean()) if paired else math.nan
        for model in models_of(family, index):
            answers = answers_of(family, model, stream, rng)
            explanation = explain(stream.labels, answers, **stream.columns)
            truth = truth_of(family, model, stream, start) if paired else math.nan
            added = explanation.added
            figures = [added.value, added.low, added.high, explanation.placebo.value]
            row = [*figures, explanation.remaining.value, answer_of(explanation), truth, rate]
            rows.setdefault(model, []).append([float(figure) for figure in row])
    return {name: np.array(row) for name, row in rows.items()}


def covered(rows: Floats) -> int:
    """How many intervals hold the mean of all other streams."""
    value = rows[:, 0]
    mean = (value.sum() - value) / (len(value) - 1)
    return int(((rows[:, 1] <= mean) & (mean <= rows[:, 2])).sum())


def summary(rows: Floats) -> dict[str, Any]:
    """What the page needs of one family, length and model."""
    paired = rows[np.isfinite(rows[:, 6])]
    gap, regret = paired[:, 0] - paired[:, 6], paired[:, 4] - paired[:, 7]
    spread = math.sqrt(len(paired)) if len(paired) else 1.0
    answers = np.bincount(rows[:, 5].astype(int), minlength=3)
    return {
        "streams": len(rows),
        "covered": covered(rows),
        "mean": round(float(rows[:, 0].mean()), 5),
        "deviation": round(float(rows[:, 0].std(ddof=1)), 5),
        "half_width": round(float((rows[:, 2] - rows[:, 1]).mean() / 2), 5),
        "placebo": round(float(rows[:, 3].mean()), 5),
        "truth": round(float(paired[:, 6].mean()), 5),
        "bias": round(float(gap.mean()), 5),
        "bias_error": round(float(gap.std(ddof=1) / spread), 5),
        "regret": round(float(regret.mean()), 5),
        **dict(zip(ANSWERS, map(int, answers), strict=True)),
    }


def wilson(hits: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """95 % interval of a share.

    >>> [round(bound, 3) for bound in wilson(95, 100)]
    [0.888, 0.978]
    """
    if not count:
        return 0.0, 1.0
    share, extra = hits / count, z * z / count
    middle = (share + extra / 2) / (1 + extra)
    half = z * math.sqrt(share * (1 - share) / count + extra / (4 * count)) / (1 + extra)
    return max(0.0, middle - half), min(1.0, middle + half)


# The shift.


def shifts_of(family: Family, length: int, indices: Iterable[int]) -> list[dict[str, Any]]:
    """Per stream: the named shift, the interval of the estimate, and the excess at every shift."""
    from streamgauge.audit import select_shift

    rows = []
    for index in indices:
        stream = family.draw(seed(family.name, length, index), length)
        choice = select_shift(stream.labels, tolerance=TOLERANCE)
        curve = {str(int(s)): float(e) for s, e in zip(choice.shifts, choice.excess, strict=True)}
        named = {"shift": choice.shift, "low": float(choice.low), "high": float(choice.high)}
        rows.append({**named, "curve": curve})
    return rows


def first_below(curve: Mapping[int, float]) -> float:
    """The smallest shift from which on the excess is below the tolerance; infinity without one."""
    above = [shift for shift, excess in curve.items() if excess >= TOLERANCE]
    later = [shift for shift in curve if not above or shift > max(above)]
    return float(min(later)) if later else math.inf


def true_curve(family: Family, results: list[dict[str, Any]]) -> dict[int, float]:
    """Excess at every shift: exact where there is a closed form, else the mean over streams, at
    shifts that most streams examine."""
    curves: dict[int, list[float]] = {}
    for one in results:
        for shift, excess in one["curve"].items():
            curves.setdefault(int(shift), []).append(excess)
    if family.excess is not None:
        return {shift: family.excess(shift) for shift in range(max(curves, default=0) + 1)}
    return {s: float(np.mean(c)) for s, c in curves.items() if 2 * len(c) > len(results)}


def shift_summary(family: Family, results: list[dict[str, Any]]) -> dict[str, Any]:
    """Each half of the streams is judged by the truth, or by the mean curve of the other half."""
    hits = early = named = given = 0
    truth = math.inf
    for part, other in ((results[::2], results[1::2]), (results[1::2], results[::2])):
        curve = true_curve(family, other)
        truth, most = first_below(curve), max(curve, default=0)
        for one in part:
            given += not math.isnan(one["low"])
            hits += one["low"] <= truth <= (math.inf if one["high"] > most else one["high"])
            named += one["shift"] is not None
            early += one["shift"] is not None and one["shift"] < truth
    return {
        "streams": len(results),
        "truth": None if math.isinf(truth) else truth,
        "given": given,
        "covered": hits,
        "named": named,
        "early": early,
    }


# Running: tasks are (part, family, length, first stream, last stream + 1).

Task = tuple[str, str, int, int, int]


def work(task: Task) -> tuple[Task, Any]:
    part, name, length, start, stop = task
    family = families()[name]
    if part == "shift":
        return task, shifts_of(family, length, range(start, stop))
    made = bits_of(family, length, range(start, stop))
    return task, {model: rows.tolist() for model, rows in made.items()}


def tasks_of(part: str, names: Sequence[str], streams: Mapping[int, int]) -> list[Task]:
    """Tasks in rounds, so that a stopped run has about as many streams of every family."""
    return [
        (part, name, length, count * r // ROUNDS, count * (r + 1) // ROUNDS)
        for r in range(ROUNDS)
        for name in names
        for length, count in streams.items()
        if count * r // ROUNDS < count * (r + 1) // ROUNDS
        if part == "bits" or families()[name].shifts
    ]


def summaries(done: Iterable[tuple[Task, Any]]) -> dict[str, Any]:
    """By family, part and length: what the page needs."""
    bits: dict[tuple[str, int], dict[str, list[Any]]] = {}
    shifts: dict[tuple[str, int], list[Any]] = {}
    for (part, name, length, *_), made in sorted(done, key=lambda one: one[0]):
        if part == "shift":
            shifts.setdefault((name, length), []).extend(made)
        else:
            for model, rows in made.items():
                bits.setdefault((name, length), {}).setdefault(model, []).extend(rows)
    stored: dict[str, Any] = {name: {"bits": {}, "shift": {}} for name in families()}
    for (name, length), models in bits.items():
        family = families()[name]
        order = [m for m in [*family.inside, *family.outside, *INPUTS] if m in models]
        made = {model: summary(np.array(models[model])) for model in order}
        stored[name]["bits"][str(length)] = made
    for (name, length), results in shifts.items():
        stored[name]["shift"][str(length)] = shift_summary(families()[name], results)
    return {name: parts for name, parts in stored.items() if parts["bits"]}


def cache_of(part: str, name: str) -> Path:
    """The file of a family's figures; its name changes when the audit's figures change."""
    made = json.dumps(work((part, name, 300, 0, 3))[1])
    return BUILD / f"{part}-{name.replace(' ', '_')}-{zlib.crc32(made.encode()):08x}.jsonl"


def run(parts: Sequence[str], minutes: float, processes: int) -> dict[str, Any]:
    """Run what is missing, for so many minutes; summaries of all that is done."""
    BUILD.mkdir(parents=True, exist_ok=True)
    stop, done = time.monotonic() + 60 * minutes, {}
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for part in PARTS:
            if part not in parts and not list(BUILD.glob(f"{part}-*")):
                continue
            streams = STREAMS if part == "bits" else SHIFT_STREAMS
            tasks = tasks_of(part, list(families()), streams)
            caches = {name: cache_of(part, name) for name in {task[1] for task in tasks}}
            for path in caches.values():
                if path.exists():
                    lines = [json.loads(line) for line in path.read_text().splitlines()]
                    done |= {tuple(task): made for task, made in lines}
            missing = [task for task in tasks if task not in done and part in parts]
            for task, made in pool.imap_unordered(work, missing):
                done[task] = made
                with caches[task[1]].open("a") as file:
                    file.write(json.dumps([task, made]) + "\n")
                if time.monotonic() > stop:
                    break
    return summaries(done.items())


# The page.


def rated(hits: int, count: int, aim: float, least: bool) -> str:
    """A share with its Wilson interval, marked where the interval excludes the aim."""
    if not count:
        return ""
    low, high = wilson(hits, count)
    text = f"{100 * hits / count:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
    if high < aim if least else low > aim:
        return f"**{text} missed**"
    return f"{text} wide" if least and 0 < aim < low else text


def kind_of(family: Family, model: str) -> str:
    if model in family.outside:
        return "outside"
    return "inside" if model in family.inside else "input"


def table(head: list[str], rows: Iterable[list[str]]) -> list[str]:
    bar = ["---"] * len(head)
    return ["| " + " | ".join(row) + " |" for row in [head, bar, *rows]] + [""]


def cells(stored: dict[str, Any]) -> Iterator[tuple[Family, str, dict[int, dict[str, Any]]]]:
    """Family, model and its summaries by length, in the order of the page."""
    for name, family in families().items():
        if name in stored:
            lengths = {int(length): by for length, by in stored[name]["bits"].items()}
            for model in [*family.inside, *family.outside, *INPUTS]:
                yield family, model, {n: by[model] for n, by in lengths.items()}


def pooled(stored: dict[str, Any], length: int) -> dict[str, tuple[int, int]]:
    """Counts of the aims over all families."""
    total: dict[str, list[int]] = {}

    def add(name: str, hits: int, count: int) -> None:
        entry = total.setdefault(name, [0, 0])
        entry[0] += hits
        entry[1] += count

    for family, model, by in cells(stored):
        one, kind = by[length], kind_of(family, model)
        add("coverage", one["covered"], one["streams"])
        if kind != "input":
            add(f"yes {kind}", one["yes"], one["streams"])
        elif one["truth"] >= LEAST_BITS:
            add("no honest", one["no"], one["streams"])
            add("yes honest", one["yes"], one["streams"])
        if kind == "input":
            add("cannot tell", one["cannot tell"], one["streams"])
    for name in stored:
        if str(length) in stored[name].get("shift", {}):
            one = stored[name]["shift"][str(length)]
            add("shift covered", one["covered"], one["given"])
            add("shift early", one["early"], one["streams"])
            add("shift named", one["named"], one["streams"])
    return {name: (hits, count) for name, (hits, count) in total.items()}


AIMS = {  # name: words, aim, whether the share is to be at least the aim
    "coverage": ("95 % interval of `added` covers the estimator's mean", 0.95, True),
    "yes inside": ('wrong "yes": an exploiter inside the family', 0.01, False),
    "no honest": ('wrong "no": an input adds at least .05 bits', 0.01, False),
    "shift covered": ("`low` to `high` of the shift covers the truth", 0.95, True),
    "shift early": ("a shift is named too early", 0.05, False),
    "yes outside": ('"yes" of an exploiter outside the family (no aim: see below)', 1.0, False),
    "yes honest": ('right "yes": an input adds at least .05 bits', 0.0, True),
    "cannot tell": ('"cannot tell" of a model with an input', 1.0, False),
    "shift named": ("a shift is named", 0.0, True),
}


def page(stored: dict[str, Any]) -> str:
    lengths = sorted({int(n) for one in stored.values() for n in one["bits"]})
    heads = [f"{n:,} labels" for n in lengths]
    totals = {n: pooled(stored, n) for n in lengths}

    def model_rows(cell: Callable[[Family, str, dict[str, Any]], str]) -> list[list[str]]:
        return [
            [
                family.name,
                model,
                kind_of(family, model),
                *[cell(family, model, by[n]) for n in lengths],
            ]
            for family, model, by in cells(stored)
        ]

    lines = [INTRODUCTION, "## Aims", ""]
    rows = []
    for name, (words, aim, least) in AIMS.items():
        if all(name in totals[n] for n in lengths):
            shares = [rated(*totals[n][name], aim, least) for n in lengths]
            rows.append([words, f"{100 * aim:g} %" if 0 < aim < 1 else "", *shares])
    lines += table(["over all families, %", "aim", *heads], rows)
    lines += ["## Families", ""]
    lines += table(
        ["family", "streams", *[f"run at {n:,} labels" for n in lengths]],
        [
            [name, one.words, *[streams_run(stored[name]["bits"].get(str(n), {})) for n in lengths]]
            for name, one in families().items()
            if name in stored
        ],
    )
    lines += [COVERAGE]
    lines += table(
        ["family", "model", "kind", *heads],
        model_rows(lambda _f, _m, by: rated(by["covered"], by["streams"], 0.95, True)),
    )
    lines += [BIAS]
    lines += table(
        ["family", "model", "truth", *heads, "history's regret"],
        [
            [
                family.name,
                model,
                f"{by[lengths[-1]]['truth']:.3f}" if family.exact else "",
                *[
                    f"{by[n]['mean']:.3f}" + (f" ({by[n]['bias']:+.3f})" if family.exact else "")
                    for n in lengths
                ],
                f"{by[lengths[-1]]['regret']:+.3f}" if family.exact else "",
            ]
            for family, model, by in cells(stored)
        ],
    )
    lines += [FIRST_SENTENCE]
    lines += table(
        ["family", "model", "kind", *heads],
        model_rows(answer_shares),
    )
    lines += [SHIFTS]
    rows = []
    for name, one in stored.items():
        for n in lengths:
            if str(n) in one.get("shift", {}):
                by = one["shift"][str(n)]
                count = by["streams"]
                rows.append(
                    [
                        name,
                        f"{n:,}",
                        "beyond" if by["truth"] is None else f"{by['truth']:,.0f}",
                        f"{by['given']} of {count}",
                        rated(by["covered"], by["given"], 0.95, True),
                        f"{100 * by['named'] / count:.0f}",
                        rated(by["early"], count, 0.05, False),
                    ]
                )
    head = ["family", "labels", "true shift", "streams with an interval", "it covers the truth, %"]
    head += ["named, %", "too early, %"]
    lines += table(head, rows)
    return "\n".join(lines).rstrip() + "\n"


def streams_run(models: dict[str, Any]) -> str:
    """Streams of a family and length: each was answered by one model with an input."""
    return f"{sum(models[name]['streams'] for name in INPUTS if name in models):,}"


def answer_shares(family: Family, model: str, by: dict[str, Any]) -> str:
    """Shares of yes / no / cannot tell; bold where a wrong answer misses its aim."""
    text = " / ".join(f"{100 * by[name] / by['streams']:.1f}" for name in ANSWERS)
    kind = kind_of(family, model)
    wrong = {"inside": "yes", "input": "no"}.get(kind)
    if wrong is None or (kind == "input" and by["truth"] < LEAST_BITS):
        return text
    return f"**{text} missed**" if wilson(by[wrong], by["streams"])[0] > 0.01 else text


INTRODUCTION = """# Calibration of the audit

Every figure on this page was measured on streams whose truth is known from their generator.
`python benchmarks/calibration.py` runs what is missing in `docs/calibration.json` and writes this
page; `--page` writes it from the stored results.

Three kinds of models answer on each stream:

- **inside**: answers that never saw an input, by a rule that the audit's forecasters contain (the
  last label, the successor, the label one period back, ...). A "yes" is wrong.
- **outside**: answers that never saw an input, by a rule that the forecasters do not contain. A
  "yes" is to be expected: the audit's sentence says "beyond these forecasters". *ideal* is the most
  probable label, by someone who knows the generator.
- **input**: answers that saw the true label through noise. *honest* is right with probability .7,
  else any other class; *weak* is right as often as adds .06 bits; *half* is *honest* for a random
  half of the samples and the first exploiter for the rest. A "no" is wrong where they add at least
  .05 bits.

A full run has 1,000 streams per family at 1,000 and 3,000 labels and 200 at 10,000; the table of
families says how many are in this page. Shares are in %, with 95 % Wilson intervals. **missed**
marks an aim that the Wilson interval excludes; *wide* marks a coverage above its aim, where
intervals are longer than they need to be. Of many intervals a few exclude the truth by chance: of
the cells whose true coverage is exactly 95 % about one in forty is marked "missed" and one in forty
"wide".
"""

COVERAGE = """## Coverage of the interval of `added`

How often the 95 % interval covers the estimator's own mean over streams of the family. The mean
comes from other streams than the interval: each is judged by the mean of all others. The models
take turns: a stream is answered by one exploiter and one model with an input. Aim: 95 %.
"""

BIAS = """## Bias of `added`

Mean of `added` in bits per sample, and in brackets its distance from the conditional mutual
information I(label; answer | known labels and columns) of the generator, whose parameters are taken
as known. It is exact for every sample (forward algorithm) and is averaged over the first 60
streams. An input-free answer adds 0. A positive bias says that the forecasters know less than the
generator: what they miss is credited to the answers. *history's regret* is that gap itself at the
greatest length: remaining bits minus the entropy of the labels given the past.
"""

FIRST_SENTENCE = """## What the first sentence says

Shares of "yes" / "no" / "cannot tell" in %. Aims: fewer than 1 % "yes" of answers inside the
family, fewer than 1 % "no" of models with an input that add at least .05 bits.
"""

SHIFTS = """## The shift

`select_shift` with a tolerance of 2 points. The true shift is the smallest from which on the excess
of the blind family over the best constant is below the tolerance; "beyond" is larger than any shift
that can be examined. It is exact for independent and sticky labels and for periods. For the other
families it is where the mean curve of the other half of the streams crosses the tolerance: on a
chain of 50 classes, for example, somebody who knows the chain has 2 points left at a shift of 16,
but nobody can learn that from 10,000 labels. "Too early" is a named shift below the true one. A
stream whose labels are correlated over too long a time to examine any shift gets no interval. Aims:
95 % coverage, fewer than 5 % too early.
"""


def compact(stored: dict[str, Any]) -> str:
    """JSON with one line per family and length."""
    blocks = []
    for name, parts in stored.items():
        made = []
        for part, lengths in parts.items():
            rows = ",\n".join(
                f"   {json.dumps(n)}: {json.dumps(one)}" for n, one in lengths.items()
            )
            made.append(f"  {json.dumps(part)}: {{\n{rows}\n  }}")
        blocks.append(f" {json.dumps(name)}: {{\n" + ",\n".join(made) + "\n }")
    return "{\n" + ",\n".join(blocks) + "\n}\n"


def quick(
    names: Sequence[str] = ("iid", "sticky 0.9", "chain"),
    count: int = 30,
    parts: Sequence[str] = PARTS,
) -> dict[str, Any]:
    """A few short streams in this process."""
    counts = {"bits": {1_000: count}, "shift": {1_000: count // 5}}
    tasks = [task for part in parts for task in tasks_of(part, names, counts[part])]
    return summaries(map(work, tasks))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--processes", type=int, default=2)
    chosen = parser.parse_args(arguments)
    path = DOCS / "calibration.json"
    if chosen.quick:
        print(page(quick()))
        return
    if not chosen.page:
        path.write_text(compact(run(chosen.part or PARTS, chosen.minutes, chosen.processes)))
    (DOCS / "calibration.md").write_text(page(json.loads(path.read_text())))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
