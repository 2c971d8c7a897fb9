"""Error rates of the ledger's criterion by simulation: the table of docs/suites.md.

    python benchmarks/criterion_rates.py            # 1,000 tables per line, some minutes

Each line is one kind of published table, whose true numbers are known; both sides are drawn. Rates
in %: tables with a false "differs" (5 at most), cells whose 95 % interval misses the true difference
(5 at most), joint statements with p of 5 % or less (5 at most), and cells called equivalent where
the true difference is the margin (2.5 at most).
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from streamgauge.suites import published
from streamgauge.suites.criterion import (
    MARGIN,
    Agreement,
    Side,
    compare_column,
    joint,
    judged,
)

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


def draw(
    rng: np.random.Generator,
    columns: list[Column],
    theirs: int,
    seeds: int,
    common: float,
    off: float,
) -> tuple[list[Agreement], list[dict[int, float]]]:
    """The tests of one table, ours higher by `off`. A share `common` of the variance is that of the
    seed, the same in all cells; with one published run, all cells of it have one seed."""
    tests, runs = [], []
    seed, their_seed = rng.normal(size=seeds), rng.normal(size=theirs)
    for column in columns:
        published_side, ours = [], []
        for mean, s in column:
            noise = math.sqrt(common) * seed + math.sqrt(1 - common) * rng.normal(size=seeds)
            other = math.sqrt(common) * their_seed + math.sqrt(1 - common) * rng.normal(size=theirs)
            values, there = mean + off + s * noise, mean + s * other
            if theirs == 1:
                published_side.append(Side(round(float(there[0]), 2), math.nan, 1))
            else:
                given = side(there)
                published_side.append(
                    Side(round(given.mean, 1), round(given.deviation, 1), theirs, 0.03)
                )
            ours.append(side(values))
            runs.append(dict(enumerate(values)))
        unit = 0.01 if theirs == 1 else 0.1
        tests += compare_column(published_side, ours, [unit] * len(column))
    return judged(tests), runs


def rates(
    columns: list[Column], theirs: int, seeds: int, common: float, trials: int
) -> list[float]:
    rng = np.random.default_rng(0)
    tables = missed = cells = joints = equivalent = 0
    for _ in range(trials):
        tests, runs = draw(rng, columns, theirs, seeds, common, 0.0)
        tables += any(test.adjusted <= 0.05 for test in tests)
        missed += sum(test.p <= 0.05 for test in tests)
        cells += len(tests)
        both = joint(tests, runs, shared_seed=theirs == 1)
        joints += both.p <= 0.05
        apart, _ = draw(rng, columns, theirs, seeds, common, MARGIN)
        equivalent += sum(test.equivalent for test in apart)
    return [100 * n for n in (tables / trials, missed / cells, joints / trials, equivalent / cells)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    trials = parser.parse_args().trials
    fast = [[(0.0, s) for s in (0.65, 0.47, 0.82, 1.29, 0.40, 2.19, 0.38)]]
    small = [[(0.0, 0.2)] * 8, [(0.0, 0.1)] * 4 + [(0.0, 0.4)] * 4]
    tenfold = [[(0.0, s) for s in (0.3,) * 6 + (3.0,)]]
    lines = [
        ("survey, Table 3", printed("survey-table3"), 5, 5, 0.0),
        ("survey, Table 3, seeds in common", printed("survey-table3"), 5, 5, 0.6),
        ("small deviations", small, 5, 5, 0.3),
        ("fast CIFAR10, one published run", fast, 1, 3, 0.1),
        ("the same, 10 seeds", fast, 1, 10, 0.1),
        ("one row varies tenfold", tenfold, 1, 3, 0.0),
        ("the same, 10 seeds", tenfold, 1, 10, 0.0),
    ]
    head = ["table", "published runs", "our seeds"]
    head += ["false differs", "interval misses", "joint", "equivalent"]
    print(f"| {' | '.join(head)} |")
    print("|---|---|---|---|---|---|---|")
    for name, columns, theirs, seeds, common in lines:
        shown = " | ".join(f"{rate:.1f}" for rate in rates(columns, theirs, seeds, common, trials))
        print(f"| {name} | {theirs} | {seeds} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
