"""How long all metrics of one large run take: 5 seeds, 4,760 evaluations of up to 20 tasks each.

    python benchmarks/metrics.py [--json] [--probe]

Makes logs of the size of the survey's Split-CIFAR100 runs (47,500 samples in steps of 10, evaluated
after every step on the 125 held-out images of each task seen so far, test sets and cumulative rows
at the 20 boundaries, two shifts, answers on 10,000 held-out samples at three moments), then scores
every seed, computes the curves, and compares two learners over seeds. Exits with 1 above 2 s.

``--probe`` instead times the linear probe at all 20 boundaries on features of the survey's size
(three augmented copies of 2,375 images a task, 160 wide), on the GPU if there is one; the limit
there is 60 s.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from types import SimpleNamespace
from typing import Any

import numpy as np

from streamgauge import metrics

TASKS, EVALUATIONS_A_TASK, SEEDS = 20, 238, 5
SAMPLES, STEP, HELD_OUT = 47_500, 10, 10_000
LIMIT_S, PROBE_LIMIT_S = 2.0, 60.0


def evaluations(rng: np.random.Generator) -> dict[str, Any]:
    """Per step on `valid`, per task on `test`, there also among the classes of earlier tasks."""
    rows: list[
        tuple[int, int, str, int, int, int]
    ] = []  # number, step, split, task, current, within
    number = 0
    for current in range(TASKS):
        for i in range(EVALUATIONS_A_TASK):
            step = min(current * 237 + i + 1, (current + 1) * 237)
            rows.extend((number, step, "valid", task, current, -1) for task in range(current + 1))
            number += 1
        step = (current + 1) * 237
        rows.extend((number, step, "test", task, current, -1) for task in range(current + 1))
        for within in range(current):
            rows.extend((number, step, "test", t, current, within) for t in range(within + 1))
        number += 1
    names = ("evaluation", "step", "split", "task", "current", "within")
    table: dict[str, Any] = {
        name: np.array([row[i] for row in rows], dtype=object if name == "split" else np.int64)
        for i, name in enumerate(names)
    }
    table["count"] = np.where(table["split"] == "test", 500, 125)
    table["correct"] = rng.binomial(table["count"], 0.3)
    return table


def predictions(rng: np.random.Generator) -> dict[str, Any]:
    index = np.arange(SAMPLES)
    label = index // (SAMPLES // TASKS) * 5 + rng.integers(0, 5, SAMPLES)
    parts = [(index[shift:], np.full(SAMPLES - shift, shift)) for shift in (0, 100, 1000)]
    sample = np.concatenate([part[0] for part in parts])
    right = rng.random(len(sample)) < 0.3
    return {
        "step": sample // STEP,
        "sample": sample,
        "label": label[sample],
        "prediction": np.where(right, label[sample], rng.integers(0, 100, len(sample))),
        "confidence": rng.random(len(sample)),
        "shift": np.concatenate([part[1] for part in parts]),
        "task": sample // (SAMPLES // TASKS),
        "user": sample // 3,
    }


def answers(rng: np.random.Generator) -> dict[str, Any]:
    steps = (1583, 3167, 4750)
    label = np.tile(rng.integers(0, 100, HELD_OUT), 3)
    return {
        "evaluation": np.repeat(np.arange(3), HELD_OUT),
        "step": np.repeat(steps, HELD_OUT),
        "split": np.full(3 * HELD_OUT, "test", dtype=object),
        "sample": np.tile(np.arange(HELD_OUT), 3),
        "label": label,
        "prediction": np.where(rng.random(3 * HELD_OUT) < 0.3, label, 0),
        "task": label // 5,
        "position": np.tile(rng.integers(0, SAMPLES, HELD_OUT), 3),
    }


def make_log(seed: int) -> Any:
    rng = np.random.default_rng(seed)
    return SimpleNamespace(
        predictions=predictions(rng), evaluations=evaluations(rng), answers=answers(rng)
    )


def everything(logs: list[Any]) -> dict[str, float]:
    """All metrics of the log: scalars, curves, spreads over seeds, and a comparison."""
    scores = [metrics.score(log) for log in logs]
    for log in logs:
        live = log.predictions["shift"] == 0
        label, prediction = log.predictions["label"][live], log.predictions["prediction"][live]
        metrics.running_accuracy(label, prediction)
        metrics.running_accuracy(label, prediction, window=1000)
        metrics.per_class_accuracy(label, prediction)
        metrics.retention_curve(log)
        metrics.retention_curve(log, kind="each")
        acc, task, _ = metrics.continual_accuracy(log)
        metrics.worst_case_accuracy(acc, task, window=10)
        a, classes = metrics.accuracy_matrix(log), metrics.classes_seen(log)
        assert classes is not None
        metrics.unnormalised_rescaled_accuracy(a, classes)
        metrics.unnormalised_rescaled_forgetting(a, classes)
    right = [
        (log.predictions["label"] == log.predictions["prediction"])[log.predictions["shift"] == 0]
        for log in logs
    ]
    metrics.leaderboard({"this": right, "mirrored": [run[::-1] for run in right]})
    return {name: metrics.spread([score[name] for score in scores]).mean for name in scores[0]}


def time_metrics() -> dict[str, Any]:
    logs = [make_log(seed) for seed in range(SEEDS)]
    taken = []
    for _ in range(3):
        start = time.perf_counter()
        scalars = everything(logs)
        taken.append(time.perf_counter() - start)
    return {
        "seconds": round(min(taken), 3),
        "limit_s": LIMIT_S,
        "evaluations": TASKS * EVALUATIONS_A_TASK,
        "evaluation_rows": len(logs[0].evaluations["step"]),
        "seeds": SEEDS,
        "scalars": len(scalars),
    }


def time_probe() -> dict[str, Any]:
    import torch

    rng = np.random.default_rng(0)
    per_task, width = 3 * 2375, 160
    centres = rng.normal(size=(5 * TASKS, width)).astype(np.float32)
    label = np.repeat(np.arange(5 * TASKS), per_task // 5)
    noise = rng.normal(size=(len(label), width)).astype(np.float32)
    features = centres[label] * 0.35 + noise
    test_label = np.repeat(np.arange(5 * TASKS), 100)
    test_noise = rng.normal(size=(len(test_label), width)).astype(np.float32)
    test = centres[test_label] * 0.35 + test_noise
    device = "cuda" if torch.cuda.is_available() else "cpu"
    metrics.probed_accuracy(features[:2000], label[:2000], test[:500], test_label[:500])  # warm up
    start = time.perf_counter()
    accuracies = []
    # A CPU takes minutes for all 20, and by default only the last is probed there.
    boundaries = range(TASKS) if device == "cuda" else [TASKS - 1]
    for task in boundaries:
        seen, tested = label < 5 * (task + 1), test_label < 5 * (task + 1)
        accuracies.append(
            metrics.probed_accuracy(features[seen], label[seen], test[tested], test_label[tested])
        )
    return {
        "seconds": round(time.perf_counter() - start, 3),
        "limit_s": PROBE_LIMIT_S,
        "boundaries": len(boundaries),
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "features": list(features.shape),
        "last_accuracy": round(accuracies[-1], 4),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--probe", action="store_true", help="time the linear probe instead")
    chosen = parser.parse_args()
    result = time_probe() if chosen.probe else time_metrics()
    if chosen.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:16} {value}")
    return 0 if result["seconds"] <= result["limit_s"] else 1


if __name__ == "__main__":
    sys.exit(main())
