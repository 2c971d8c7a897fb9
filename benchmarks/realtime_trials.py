"""What could explain the numbers of the real-time paper's small tables that ours do not meet.

    python benchmarks/realtime_trials.py crop --data cifar100 --seeds 3 --device cuda
    python benchmarks/realtime_trials.py as-drawn --data cifar10 --row "fast: ER" --device cuda

One trial changes one thing in the rows it concerns (or in those of --row) and prints published,
ours as recorded, and the trial's, in %. A repeated command runs only what is missing.

    nothing      the rows as they are
    crop         the default transforms of that code's data files: random crop of 32, padding of 4
    one-recall   ER++ recalls one batch for all its steps
    rwalk-0.1, rwalk-1      RWalk's penalty has that strength
    rwalk-100    RWalk consolidates every 100 batches
    tf32, fp32   matrix products and convolutions on a GPU in TF32, or neither; torch's default,
                 with which ours were made, is TF32 in convolutions alone
    as-drawn     seed 123 and those after it as that code draws: the weights first, then the split,
                 four loaders (realtime_plain.py, which says in what it differs)
    late-mir     MIR answers after its probe (realtime_plain.py)
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import realtime_plain
import torch

from streamgauge import catalogue
from streamgauge.learners.replay.er_plus import ERPlus
from streamgauge.streams.datasets.data_set import data_folder
from streamgauge.suites import load, published
from streamgauge.suites.measured import from_runs, recorded
from streamgauge.suites.running import plan_rows, run
from streamgauge.suites.spec import Row, Suite

ROWS = {
    "cifar100": ["slow: RWalk", "slow: ER++ 6"],
    "cifar10": ["fast: ER", "slow: ER++ 2", "slow: ER++ 6"],
}
OWN_ROWS = {
    "one-recall": ["slow: ER++ 2", "slow: ER++ 6"],
    "rwalk-0.1": ["slow: RWalk"],
    "rwalk-1": ["slow: RWalk"],
    "rwalk-100": ["slow: RWalk"],
    "late-mir": ["slow: MIR"],
}
SETTINGS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "crop": {"learner.augment": "crop_flip", "learner.padding": 4},
    "one-recall": {},
    "rwalk-0.1": {"learner.strength": 0.1},
    "rwalk-1": {"learner.strength": 1.0},
    "rwalk-100": {"learner.refresh": 100},
    "tf32": {},
    "fp32": {},
}
PLAIN = ("as-drawn", "late-mir")
Results = Iterator[tuple[Row, list[float]]]


class OneRecall(ERPlus):
    """Recalls once per batch, for all steps on it."""

    def draw_passes(self, batch: Any) -> list[Any]:
        return [self.draw(batch)] * self.passes_of_batch()


def changed(row: Row, trial: str) -> Row:
    """A row with what the trial changes."""
    settings = {**row.settings, **SETTINGS[trial]}
    if trial != "one-recall":
        return replace(row, settings=settings)
    learner, _, preset = row.method.partition("@")
    own = {f"learner.{k}": v for k, v in catalogue.presets()[learner][preset].items()}
    return replace(row, method=f"{Path(__file__).resolve()}:OneRecall", settings=own | settings)


def by_suite(suite: Suite, args: argparse.Namespace) -> Results:
    torch.backends.cudnn.allow_tf32 = args.trial != "fp32"
    torch.backends.cuda.matmul.allow_tf32 = args.trial == "tf32"
    suite = replace(suite, rows=tuple(changed(row, args.trial) for row in suite.rows))
    seeds = list(range(args.seeds))
    runs = list(run(suite, seeds=seeds, out=args.out / args.trial, device=args.device, log=print))
    rows = {row.key: row for row in suite.rows}
    for measured in from_runs(suite, runs, seeds):
        yield rows[measured.key], list(next(iter(measured.values.values())))


def by_plain_code(suite: Suite, args: argparse.Namespace) -> Results:
    for row in suite.rows:
        planned, learner = plan_rows([row], [0])[0], row.method.partition("@")[0]
        config = planned.recipe.config
        words = ["er" if learner == "er_plus" else learner, "--data", args.data]
        words += ["--folder", str(data_folder()), "--lr", str(config.lr), "--device", args.device]
        words += ["--cost", str(planned.protocol.cost), "--to", str(args.to)]
        words += ["--steps", config.steps] if learner == "er_plus" else []
        words += ["--as-drawn"] if args.trial == "as-drawn" else []
        first, values = 123 if args.trial == "as-drawn" else 0, []
        for seed in range(first, first + args.seeds):
            name = f"{args.data} {row.title} {seed} {args.to}".replace(":", "").replace("/", "-")
            file = args.out / args.trial / f"{name.replace(' ', '_')}.json"
            if not file.exists():
                print(f"{row.title}, seed {seed}", flush=True)
                given = realtime_plain.parser().parse_args([*words, "--seed", str(seed)])
                accuracy = realtime_plain.online_accuracy(given)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(json.dumps(accuracy))
            values.append(json.loads(file.read_text()))
        yield row, values


def shown(values: list[float]) -> str:
    deviation = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{deviation} ({len(values)})" if values else "–"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("trial", choices=[*SETTINGS, *PLAIN])
    parser.add_argument("--data", choices=ROWS, default="cifar100")
    parser.add_argument("--row", action="append", help="such as 'slow: RWalk' [those it concerns]")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("runs/realtime-trials"))
    parser.add_argument("--to", type=int, default=realtime_plain.STEPS, help="of PLAIN: batches")
    parser.add_argument("--generated", action="store_true", help="small generated data, not PLAIN")
    args = parser.parse_args()
    plain = args.trial in PLAIN
    suite = load(f"realtime-{args.data}", args.generated and not plain)
    rows = args.row or OWN_ROWS.get(args.trial, ROWS[args.data])
    suite = replace(suite, rows=tuple(suite.choose(rows)), differences=())
    before = {} if suite.generated else {row.key: row for row in recorded(suite.name)}
    print(f"{args.trial}, {args.data}: published | ours as recorded | this trial", flush=True)
    for row, values in (by_plain_code if plain else by_suite)(suite, args):
        column = next(iter(row.columns))
        number = published.number(row.table, row.published, column) if row.table else None
        known = before.get(row.key)
        ours = shown(list(known.values[column]) if known else [])
        print(f"{row.title}: {number.text if number else '–'} | {ours} | {shown(values)}")


if __name__ == "__main__":
    main()
