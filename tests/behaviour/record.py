"""Record what every built-in method answers and logs in 50 steps with a fixed seed on a CPU.

    python tests/behaviour/record.py                    compare all entries with the recorded ones
    python tests/behaviour/record.py --update er mir    record these entries anew

`recorded/METHOD.json` holds the numbers, `src/streamgauge/learners/behaviour.toml` their hashes,
which are part of a run's identity. Recording an entry anew says that the method now behaves in
another way: runs made before are other runs from then on.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
RECORDED = HERE / "recorded"
TABLE = HERE.parents[1] / "src" / "streamgauge" / "learners" / "behaviour.toml"

# Floating-point sums differ in their last digits from CPU to CPU, and a close decision may fall
# the other way: so much may differ. Values of the second half, after such a decision, may differ by
# more. The instructions of other CPUs on one machine: ATEN_CPU_CAPABILITY=default|avx2|avx512 with
# ONEDNN_MAX_CPU_ISA=SSE41|AVX2|AVX512_CORE and MKL_ENABLE_INSTRUCTIONS=SSE4_2|AVX2|AVX512.
RELATIVE, ABSOLUTE = 2e-3, 1e-4
LATE_RELATIVE = 0.05
WRONG_ANSWERS = 0.02  # share of predicted classes
WRONG_VALUES = 0.05  # share of logged values
# Fifty layers with batch norm over few samples magnify the last digits from the first step on.
LOOSE = {"model:resnet50": 0.3, "model:resnet50_v1": 0.3}

# Small memories fill, and rare events happen within 50 steps; each where a method has the setting.
SMALL: dict[str, Any] = {
    "lr": 0.01, "memory": 30, "recall": 10, "candidates": 20, "warmup": 100, "refresh": 7,
    "size_interval": 100, "rate_interval": 100, "largest": 60, "subset": 5, "subsets": 4,
    "epochs": 2, "path_steps": 4,
    "steps": "4/3", "measure": 10, "beam": 16,
}  # fmt: skip
# Runs of one entry beside the plain one: settings that take another path through the method.
MORE: dict[str, list[dict[str, Any]]] = {
    "acm/default": [{"k": 3}],
    "er/default": [{"passes": 2, "wait": True}],
    "er_batch/default": [{"train_batch": 15}],
    "gdumb/default": [{"drop_last": True}],
    "mir/as_published": [{"code": "realtime"}],
    "mir/default": [{"passes": 2}, {"passes": 2, "select": "batch"}],
    "ncm/default": [{"distance": "cosine"}],
    "polrs/default": [{"judge": "answers"}],
    "replay_only/as_published": [{"train": "head"}],
    "replay_only/default": [
        {"sampler": "mixed", "loss": "ace"}, {"sampler": "fifo", "train": "head"},
    ],
    "rwalk/as_published": [{"stride": 2}],
}  # fmt: skip
# Shared parts, each in ER; large networks for a few steps.
PARTS: dict[str, dict[str, dict[str, Any]]] = {
    "model": {
        **{name: {"model": name} for name in ("linear", "mlp", "cnn4")},
        "slim_resnet18": {"model": "slim_resnet18", "steps": 10, "lr": 0.002},
        **{
            name: {"model": name, "steps": 5, "lr": 0.00001}
            for name in ("resnet18", "resnet50", "resnet50_v1", "efficientnet_lite0")
        },
    },
    "policy": {
        **{name: {"policy": name} for name in ("reservoir", "class_balanced", "fifo")},
        "ring": {"policy": "ring", "memory": 3},
        **{name: {"policy": name} for name in ("everything", "mixed")},
    },
    "augment": {
        name: {"augment": name}
        for name in ("none", "flip", "flip_batch", "crop_flip", "resized_crop_flip")
    },
    "head": {name: {"head": name} for name in ("linear", "cosine")},
    "optimiser": {"sgd": {"momentum": 0.9, "weight_decay": 0.001, "lr": 0.002}},
}


@functools.cache
def learners() -> dict[str, Mapping[str, str]]:
    """The built-in learners and their settings, as the command lists them."""
    command = [sys.executable, "-m", "streamgauge.cli", "list", "--json"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {learner["name"]: learner["settings"] for learner in json.loads(listed)["learners"]}


def entries() -> dict[str, list[tuple[str, dict[str, Any]]]]:
    """Each entry of the table and its runs, as learner and settings."""
    found = {}
    for name, known in learners().items():
        small = {k: v for k, v in SMALL.items() if k in known}
        for variant in ("default", "as_published") if "as_published" in known else ("default",):
            chosen = {**small, **({"as_published": True} if variant == "as_published" else {})}
            more = MORE.get(f"{name}/{variant}", [])
            found[f"{name}/{variant}"] = [(name, {**chosen, **one}) for one in ({}, *more)]
    for kind, parts in PARTS.items():
        for part, settings in parts.items():
            small = {"lr": 0.01, "memory": 30, "recall": 10}
            found[f"{kind}:{part}"] = [("er", {**small, **settings})]
    return found


@functools.cache
def stream(steps: int) -> Any:
    """Ten noisy classes in five tasks, batches of 10, and a tenth as much to evaluate on."""
    import streamgauge as sg

    rng = np.random.default_rng(7)
    size = 8 if steps == 50 else 32
    count = steps * 11
    label = np.arange(count) % 10
    pattern = rng.integers(70, 186, (10, 3, size // 4, size // 4))[label]
    if size > 8:  # batch norm deep in a network needs samples that differ in more than noise
        pattern = pattern // 2 + rng.integers(0, 100, pattern.shape)
    noise = rng.integers(-60, 61, (count, 3, size, size))
    x = (pattern.repeat(4, 2).repeat(4, 3) + noise).clip(0, 255).astype(np.uint8)
    return sg.stream(
        x, label, order="classes", tasks=5, batch=10, held_out=1 / 11, held_out_by="task", seed=3
    )


def record_run(learner: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """One run through the loop, and what its log says."""
    import torch

    import streamgauge as sg

    torch.set_num_threads(1)
    given = dict(settings)
    steps = 50
    if isinstance(given.get("steps"), int):  # of the stream; ER++'s setting of this name is text
        steps = given.pop("steps")
    with tempfile.TemporaryDirectory() as folder:
        recipe = sg.learner(learner, **given)
        run = sg.run(stream(steps), recipe, seed=5, out=folder, device="cpu", log=lambda _: None)
        live, asked, training = run.predictions, run.answers, run.training
        last = asked["evaluation"] == asked["evaluation"].max(initial=0)
        step = live["step"]
        confidence = np.bincount(step, live["confidence"]) / np.bincount(step)
        return {
            "answers": _digits(live["prediction"]),
            "held_out": _digits(asked["prediction"][last]),
            "confidence": _rounded(confidence),
            **{
                name: _rounded(training["value"][training["name"] == name])
                for name in sorted(set(training["name"].tolist()))
            },
        }


def record(entry: str) -> list[dict[str, Any]]:
    return [record_run(learner, settings) for learner, settings in entries()[entry]]


def _digits(classes: Iterable[int]) -> str:
    return "".join(map(str, classes))


def _rounded(values: Iterable[float]) -> list[float]:
    return [float(f"{float(value):.4g}") for value in values]


def behaviour_hash(recorded: list[dict[str, Any]]) -> str:
    text = json.dumps(recorded, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def differences(entry: str, now: list[dict[str, Any]]) -> list[str]:
    """What differs from the recorded numbers by more than CPUs do; nothing where all is equal."""
    loose = LOOSE.get(entry, 0.0)
    expected = recorded(entry)
    if len(expected) != len(now):
        return [f"{len(now)} runs instead of {len(expected)}"]
    found = []
    for number, (before, after) in enumerate(zip(expected, now, strict=True)):
        if list(before) != list(after):
            found.append(f"run {number} logs {', '.join(after)} instead of {', '.join(before)}")
            continue
        for name in before:
            share = _share_of_differences(before[name], after[name], max(loose, RELATIVE))
            limit = max(loose, WRONG_ANSWERS) if isinstance(before[name], str) else WRONG_VALUES
            if share > limit:
                found.append(f"run {number}: {share:.0%} of {name} differ")
    return found


def _share_of_differences(
    before: str | list[float], after: str | list[float], relative: float
) -> float:
    if len(before) != len(after):
        return 1.0
    if isinstance(before, str) or isinstance(after, str):
        return sum(a != b for a, b in zip(before, after, strict=True)) / max(len(before), 1)
    tolerance = np.full(len(before), relative)
    tolerance[len(before) // 2 :] = max(relative, LATE_RELATIVE)
    close = np.isclose(after, before, rtol=tolerance, atol=ABSOLUTE, equal_nan=True)
    return float(1 - close.mean()) if len(before) else 0.0


def file_of(entry: str) -> Path:
    """A method's variants are in one file, and so are the parts of one kind."""
    name = entry.partition("/")[0] if "/" in entry else f"_{entry.partition(':')[0]}"
    return RECORDED / f"{name}.json"


def recorded(entry: str) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = json.loads(file_of(entry).read_text())[entry]
    return runs


def recorded_entries() -> list[str]:
    return [
        entry for file in sorted(RECORDED.glob("*.json")) for entry in json.loads(file.read_text())
    ]


def write(entry: str, runs: list[dict[str, Any]]) -> None:
    file = file_of(entry)
    stored = json.loads(file.read_text()) if file.exists() else {}
    stored[entry] = runs
    file.parent.mkdir(exist_ok=True)
    lines = [
        f'"{name}": [\n' + ",\n".join(_lines(runs)) + "]" for name, runs in sorted(stored.items())
    ]
    file.write_text("{" + ",\n".join(lines) + "}\n")


def _lines(runs: list[dict[str, Any]]) -> list[str]:
    """A line per column: a readable difference in version control."""
    return [
        "{"
        + ",\n ".join(f'"{k}": {json.dumps(v, separators=(",", ":"))}' for k, v in run.items())
        + "}"
        for run in runs
    ]


def write_table(sources: Mapping[str, list[str]] | None = None) -> None:
    """The hashes of all recorded numbers; the table of old source hashes stays as it is."""
    if sources is None:
        sources = tomllib.loads(TABLE.read_text()).get("sources", {}) if TABLE.exists() else {}
    methods: dict[str, dict[str, str]] = {}
    parts: dict[str, dict[str, str]] = {}
    for entry in recorded_entries():
        name, _, variant = entry.partition("/")
        kind, _, part = entry.partition(":")
        group, key = (methods, variant) if variant else (parts, part)
        group.setdefault(name if variant else kind, {})[key] = behaviour_hash(recorded(entry))
    lines = [
        "# Behaviour hashes of built-in methods, by variant, and of the parts that they share: of",
        "# the answers and losses of 50 steps. Written by",
        "# `python tests/behaviour/record.py --update NAME`. [sources]: hashes of source code that",
        "# version 0.1.0 stored instead, and the methods and variants that this code was.",
    ]
    for title, groups in (("methods", methods), ("parts", parts)):
        for name, hashes in sorted(groups.items()):
            lines += ["", f"[{title}.{name}]"]
            lines += [f'{key} = "{value}"' for key, value in sorted(hashes.items())]
    lines += ["", "[sources]"]
    lines += [f'"{code}" = {json.dumps(same)}' for code, same in sorted(sources.items())]
    TABLE.write_text("\n".join(lines) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--update", nargs="*", metavar="NAME", help="record these; none: all")
    chosen = parser.parse_args()
    names = chosen.update or []
    failed = 0
    for entry in entries():
        if names and entry not in names and entry.partition("/")[0] not in names:
            continue
        now = record(entry)
        if chosen.update is not None:
            known = entry in recorded_entries()
            write(entry, now)
            print(f"{entry}: recorded {'anew' if known else 'for the first time'}", flush=True)
            continue
        found = differences(entry, now)
        failed += bool(found)
        print(f"{entry}: {'; '.join(found) or 'as recorded'}", flush=True)
    if chosen.update is not None:
        write_table()
        print("The hashes changed: runs of these methods made before now count as other runs.")
    return 1 if failed else 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
