"""Error rates of the ledger's criterion by simulation: the table of docs/suites.md.

    python benchmarks/criterion_rates.py            # 1,000 tables per line, some minutes
    python benchmarks/criterion_rates.py --joint --lines 1 2 8 --trials 12000
    python benchmarks/criterion_rates.py --claims --trials 4000
    python benchmarks/criterion_rates.py --rows --lines 1 8 10 11 12 --trials 4000

Each line is one kind of published table, whose true numbers are known; both sides are drawn. Rates
in %: tables with a false "differs" (5 at most), cells whose 95 % interval misses the true one (5 at
most), joint statements with p of 5 % or less (5), by χ² and by the mean difference, and cells
called equivalent where the true difference is the margin (2.5 at most). Then the power of χ²: where
all cells are off by one of their deviations, and where every fourth one is off by two. With --joint
only the false alarms of the joint statements, of other tables. With --rows only cells whose
interval misses, all of them and those of the row that varies most in its column. With --claims a
table of claims that are false by a hair in one pair and clearly true in the others.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

import numpy as np

from streamgauge.suites import published
from streamgauge.suites.claims import Claim, evaluate
from streamgauge.suites.criterion import (
    LEVEL,
    MARGIN,
    Agreement,
    Joint,
    Side,
    compare_column,
    joint,
    judged,
)
from streamgauge.suites.measured import Measured

SAME_SEEDS = "the same, published runs have our seeds"
Column = list[tuple[float, float]]  # mean and deviation of each row


def side(values: np.ndarray) -> Side:
    return Side(float(values.mean()), float(values.std(ddof=1)), len(values))


def printed(name: str) -> list[Column]:
    """A published table with its printed deviations as the true ones."""
    columns: dict[str, Column] = {}
    for (_, column), number in published.table(name).numbers.items():
        deviation = 0.8 if number.misprint or number.deviation is None else number.deviation
        columns.setdefault(column, []).append((number.value, deviation))
    return list(columns.values())


def weights(columns: list[Column], common: str, share: float) -> np.ndarray:
    """Cells by common causes: how a seed moves the cells, with this share of their variance: all
    alike (`all`), in turn up and down (`signs`), or all of a column alike (`column`)."""
    of_column = np.repeat(np.arange(len(columns)), [len(column) for column in columns])
    cells = len(of_column)
    patterns = {
        "": np.zeros((cells, 1)),
        "all": np.ones((cells, 1)),
        "signs": np.where(np.arange(cells) % 2, 1.0, -1.0)[:, None],
        "column": (of_column[:, None] == np.arange(len(columns))).astype(float),
    }
    return math.sqrt(share) * patterns[common]


@dataclass
class Drawn:
    """One table, drawn on both sides."""

    columns: list[Column]
    published: list[Side]
    runs: np.ndarray  # cells by seeds
    units: list[float]

    def tests(self) -> list[Agreement]:
        made: list[Agreement] = []
        for column in self.columns:
            cells = slice(len(made), len(made) + len(column))
            ours = [side(row) for row in self.runs[cells]]
            made += compare_column(self.published[cells], ours, self.units[cells])
        return judged(made)

    def joint(self) -> Joint:
        return joint(self.published, [dict(enumerate(row)) for row in self.runs], self.units)


def draw(
    rng: np.random.Generator,
    columns: list[Column],
    theirs: int,
    seeds: int,
    cause: np.ndarray,
    off: np.ndarray,
    same_seeds: bool,
) -> Drawn:
    """Ours are higher by `off`, per cell. Published runs of a table have seeds in common too; with
    `same_seeds`, they are our seeds."""
    mean, s = np.array([cell for column in columns for cell in column]).T[:, :, None]
    own = np.sqrt(1 - (cause**2).sum(axis=1))[:, None]
    by_seed = cause @ rng.normal(size=(cause.shape[1], max(seeds, theirs)))

    def noise(n: int, common: np.ndarray) -> np.ndarray:
        return np.asarray(s * (common[:, :n] + own * rng.normal(size=(len(own), n))))

    there = by_seed if same_seeds else cause @ rng.normal(size=(cause.shape[1], theirs))
    ours, there = mean + off[:, None] + noise(seeds, by_seed), mean + noise(theirs, there)
    sides = [Side(round(float(row[0]), 2), math.nan, 1) for row in there]
    if theirs > 1:
        given = map(side, there)
        sides = [Side(round(g.mean, 1), round(g.deviation, 1), theirs, 0.03) for g in given]
    return Drawn(columns, sides, ours, [0.01 if theirs == 1 else 0.1] * len(sides))


def rates(
    columns: list[Column],
    theirs: int,
    seeds: int,
    cause: np.ndarray,
    same_seeds: bool,
    trials: int,
) -> list[float]:
    rng, count = np.random.default_rng(0), len(cause)
    deviations = np.array([s for column in columns for _, s in column])
    every_fourth = 2 * deviations * (np.arange(count) % 4 == 0)
    events = np.zeros(7)
    for _ in range(trials):
        same, margin, higher, some = (
            draw(rng, columns, theirs, seeds, cause, off, same_seeds)
            for off in (np.zeros(count), np.full(count, MARGIN), deviations, every_fourth)
        )
        tests, both = same.tests(), same.joint()
        events += (
            any(test.adjusted <= LEVEL for test in tests),
            np.mean([test.p <= LEVEL for test in tests]),
            both.p <= LEVEL,
            both.offset_p <= LEVEL,
            np.mean([test.equivalent for test in margin.tests()]),
            higher.joint().p <= LEVEL,
            some.joint().p <= LEVEL,
        )
    return list(100 * events / trials)


def joint_rates(
    columns: list[Column],
    theirs: int,
    seeds: int,
    cause: np.ndarray,
    same_seeds: bool,
    trials: int,
) -> list[float]:
    """Of false alarms, by χ² and by the mean difference."""
    rng, alarms, no_shift = np.random.default_rng(12345), np.zeros(2), np.zeros(len(cause))
    for _ in range(trials):
        both = draw(rng, columns, theirs, seeds, cause, no_shift, same_seeds).joint()
        alarms += both.p <= LEVEL, both.offset_p <= LEVEL
    return list(100 * alarms / trials)


def row_rates(
    columns: list[Column],
    theirs: int,
    seeds: int,
    cause: np.ndarray,
    same_seeds: bool,
    trials: int,
) -> list[float]:
    """Of intervals that miss the true difference: of all cells, and of the row with the largest
    deviation of its column, mean over columns."""
    rng, missed = np.random.default_rng(54321), np.zeros(len(cause))
    for _ in range(trials):
        made = draw(rng, columns, theirs, seeds, cause, np.zeros(len(cause)), same_seeds)
        missed += [test.p <= LEVEL for test in made.tests()]
    ends = np.cumsum([0, *map(len, columns)])
    largest = [
        begin + int(np.argmax([s for _, s in column]))
        for begin, column in zip(ends[:-1], columns, strict=True)
    ]
    return [100 * missed.mean() / trials, 100 * missed[largest].mean() / trials]


# Pairs of a claim, seeds, deviations of A and of each B; the first pair is the false one.
CLAIMS = (
    (1, 3, (1.0, 1.0)),
    (2, 3, (1.0, 1.0, 1.0)),
    (2, 3, (0.3, 1.0, 0.3)),
    (2, 3, (0.1, 3.0, 0.1)),
    (2, 3, (0.1, 0.1, 3.0)),
    (2, 5, (0.3, 1.0, 0.3)),
    (5, 3, (0.5, 1.5, 0.5, 0.5, 0.5, 0.5)),
    (7, 5, (0.5, 1.5) + (0.5,) * 6),
    (7, 5, (1.0,) + (0.5,) * 7),
)


def false_claims(pairs: int, seeds: int, deviations: tuple[float, ...], trials: int) -> float:
    """Rate in % of p of 5 % or less, where A is as high as the first B and far above the others: no
    other claim of these pairs is false and harder to tell from a true one."""
    names = [f"B{n}" for n in range(pairs)]
    claim = Claim("", "", "", "", "Acc", tuple(("A", name) for name in names), "more")
    rng, count = np.random.default_rng(0), 0
    for _ in range(trials):
        common = rng.normal(0, 2, seeds)  # a seed moves all rows
        made = common + np.array(deviations)[:, None] * rng.normal(size=(pairs + 1, seeds))
        made[2:] -= 50
        rows = [
            Measured("", name, tuple(range(seeds)), {"Acc": tuple(values)}, "")
            for name, values in zip(["A", *names], made, strict=True)
        ]
        count += evaluate(claim, rows).p_for <= LEVEL
    return 100 * count / trials


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--joint", action="store_true", help="joint statements alone")
    parser.add_argument("--rows", action="store_true", help="intervals that miss alone")
    parser.add_argument("--claims", action="store_true", help="claims alone")
    parser.add_argument("--lines", type=int, nargs="+", help="of the table, from 1; default: all")
    args = parser.parse_args()
    if args.claims:
        print("| pairs | seeds | deviations | false claims, % |\n|---|---|---|---|")
        for pairs, seeds, deviations in CLAIMS:
            rate = false_claims(pairs, seeds, deviations, args.trials)
            shown = ", ".join(map(str, deviations))
            print(f"| {pairs} | {seeds} | {shown} | {rate:.1f} |", flush=True)
        return
    survey = printed("survey-table3")
    fast = [[(0.0, s) for s in (0.65, 0.47, 0.82, 1.29, 0.40, 2.19, 0.38)]]
    small = [[(0.0, 0.2)] * 8, [(0.0, 0.1)] * 4 + [(0.0, 0.4)] * 4]
    tenfold = [[(0.0, s) for s in (0.3,) * 6 + (3.0,)]]
    lines = [
        ("survey, Table 3", survey, 5, 5, "", 0.0),
        ("the same", survey, 5, 5, "all", 0.6),
        ("the same", survey, 5, 5, "signs", 0.6),
        ("the same", survey, 5, 5, "column", 0.8),
        (SAME_SEEDS, survey, 5, 5, "all", 0.6),
        ("the same, 3 seeds", survey, 5, 3, "all", 0.6),
        ("small deviations", small, 5, 5, "all", 0.3),
        ("fast CIFAR10, one published run", fast, 1, 3, "all", 0.1),
        ("the same", fast, 1, 3, "signs", 0.6),
        ("the same, 10 seeds", fast, 1, 10, "all", 0.1),
        ("one row varies tenfold", tenfold, 1, 3, "", 0.0),
        ("the same, 10 seeds", tenfold, 1, 10, "", 0.0),
    ]
    head = ["table", "published runs", "our seeds", "seeds explain"]
    if args.joint:
        measure, shown = joint_rates, ["joint χ²", "mean difference"]
    elif args.rows:
        measure, shown = row_rates, ["interval misses", "of the row that varies most"]
    else:
        measure, shown = rates, ["false differs", "interval misses", "joint χ²", "mean difference"]
        shown += ["equivalent", "power: all + 1", "every fourth + 2"]
    head += shown
    print(f"| {' | '.join(head)} |")
    print("|---" * len(head) + "|")
    lines = [lines[number - 1] for number in args.lines] if args.lines else lines
    for name, columns, theirs, seeds, common, share in lines:
        cause, same = weights(columns, common, share), name == SAME_SEEDS
        made = measure(columns, theirs, seeds, cause, same, args.trials)
        text = " | ".join(f"{rate:.1f}" for rate in made)
        explained = f"{100 * share:.0f} %, {common}" if common else "nothing"
        print(f"| {name} | {theirs} | {seeds} | {explained} | {text} |", flush=True)


if __name__ == "__main__":
    main()
