"""Make the run folders that later versions must still read: `python tests/corpus/make.py v0.1`.

A folder is made once, by the version that it is named after, and never again.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import streamgauge as sg

HERE = Path(__file__).parent
TABLES = ("predictions", "evaluations", "answers", "jobs", "training")
ALBUMS = ["albums", "--stream.length", "600", "--stream.size", "8"]
BLOBS = ["blobs", "--stream.per_class", "40"]
ER = ["er", "--er.memory", "50", "--er.augment", "flip"]
DERPP = ["derpp", "--derpp.memory", "50"]
LINEAR = ["--learner.model", "linear"]  # a small checkpoint
COMMANDS = {
    "finished/er": ["run", "--stream", *ALBUMS, "--protocol.shifts", "40", "--learner", *ER,
                    *LINEAR, "--er.momentum", "0.9"],
    "finished/derpp": ["run", "--stream", *BLOBS, "--protocol.evaluate", "9", "--learner", *DERPP,
                       *LINEAR],
    "finished/blind": ["run", "--stream", *ALBUMS, "--learner", "blind", "--blind.window", "1"],
    "finished/mir": ["run", "--stream", *ALBUMS, "--learner", "mir", "--mir.as_published", "true",
                     "--mir.memory", "60", *LINEAR],
    "finished/suite": ["suite", "run", "demo", "--generated", "--only", "majority"],
    "finished/live": ["live", "--stream", *ALBUMS, "--learner", "er", "--er.model", "linear",
                      "--rate", "500", "--trainer", "thread"],
    "interrupted/er": ["run", "--stream", *ALBUMS, "--learner", *ER],
    "interrupted/derpp": ["run", "--stream", *BLOBS, "--learner", *DERPP],
}  # fmt: skip


def command(words: list[str], out: Path, *more: str) -> None:
    whole = [sys.executable, "-m", "streamgauge.cli", *words, "--out", str(out), *more]
    subprocess.run(whole, check=True, stdout=subprocess.DEVNULL)


def interrupted(whole: sg.Run, out: Path) -> sg.Run:
    """The same run once more, stopped halfway, right after a checkpoint."""
    config = whole.header["config"]
    learner = config["learner"]
    halfway = whole.step // 2

    def stop(loop: Any) -> None:
        if loop.step == halfway:
            time.sleep(5)  # so that a checkpoint is due
        if loop.step > halfway + 1:
            raise KeyboardInterrupt

    origin = config["stream"]["origin"]
    with suppress(KeyboardInterrupt):
        sg.run(
            sg.stream(origin, **config["stream"]["settings"]),
            sg.learner(learner["where"], **learner["settings"]),
            protocol=sg.Protocol(**config["protocol"]),
            seed=config["seed"], out=out, device="cpu", origin=origin, checkpoint=5, progress=stop,
        )  # fmt: skip
    (run,) = sg.find_runs([out])
    assert not run.done, run.path
    assert 0 < run.step < whole.step
    assert run.id == whole.id
    return run


def log_hash(run: sg.Run) -> dict[str, str]:
    """What the log says, table by table, without the times that steps took."""
    hashes = {}
    for name in TABLES:
        table = run.table(name)
        digest = hashlib.blake2b(digest_size=8)
        for column in sorted(table):
            values = table[column]
            # Logits and losses differ in their last digits from CPU to CPU.
            exact = values.dtype.kind not in "f"
            digest.update(column.encode())
            digest.update(json.dumps(values.tolist()).encode() if exact else b"")
        hashes[name] = f"{table.rows} rows, {digest.hexdigest()}"
    return hashes


def mean_values(run: sg.Run) -> dict[str, float]:
    """Means of confidences and of logged scalars."""
    training = run.training
    means = {"confidence": float(run.predictions["confidence"].mean())}
    for name in sorted(set(training["name"].tolist())):
        means[name] = float(training["value"][training["name"] == name].mean())
    return means


def neutral(run: sg.Run) -> None:
    """Leave out what the machine was: no identity depends on it."""
    file = run.path / "run.json"
    header = json.loads(file.read_text())
    header["environment"] |= {"platform": "Linux", "cores": 2, "git": None}
    file.write_text(json.dumps(header, indent=1))
    assert "/home/" not in file.read_text()
    assert "/tmp/" not in file.read_text()


def main(version: str) -> None:
    target = HERE / version
    expected: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, words in COMMANDS.items():
            out = Path(folder) / name.replace("/", "-")
            on_cpu = ["--device", "cpu"]
            command(words, out, *on_cpu)
            (whole,) = sg.find_runs([out])
            kept = interrupted(whole, out / "stopped") if name.startswith("interrupted") else whole
            entry: dict[str, Any] = {"log": log_hash(whole), "means": mean_values(whole)}
            entry["score"] = {k: v for k, v in sg.score(kept).items() if not math.isnan(v)}
            neutral(kept)
            kind = name.partition("/")[0]
            path = target / kind / kept.path.name
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(kept.path, path, ignore=shutil.ignore_patterns("lock"))
            expected[f"{kind}/{path.name}"] = entry
            print(name, path.name, flush=True)
    (target / "expected.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
