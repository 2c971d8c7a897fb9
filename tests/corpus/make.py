"""Make the run folders that later versions must still read: `python tests/corpus/make.py v0.1`.

A folder is made once, by the version that it is named after, and never again. `log2` is the log of
a loop that is not ours, in log version 2: labels that come late, twice, or never, and
log-probabilities. `recorder` is such a log as `sg.Recorder` leaves it when it is killed: committed
segments, and a journal. `format2` and `recorder2` are the first with checksums (0.2).
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
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import streamgauge as sg
from streamgauge.files import write_sealed
from streamgauge.record import RunWriter

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
    for name in (*TABLES, *(["labels"] if run.table("labels").rows else [])):
        table = run.table(name)
        digest = hashlib.blake2b(digest_size=8)
        for column in sorted(table):
            values = table[column]
            # Logits and losses differ in their last digits from CPU to CPU.
            exact = values.dtype.kind not in "fO"
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
    write_sealed(file, header)
    assert "/home/" not in file.read_text()
    assert "/tmp/" not in file.read_text()


SAMPLES, CLASSES, BATCH = 600, 3, 10


def recorded_header() -> dict[str, Any]:
    """What a recorder knows of a loop that is not ours."""
    stream = {"name": "clicks", "settings": {}, "samples": SAMPLES, "steps": SAMPLES // BATCH,
              "step_size": BATCH, "albums": False, "tasks": 0, "input_shape": None,
              "classes": CLASSES, "class_names": ["buy", "look", "leave"], "class_task": None,
              "held_out": {}, "preparation": 0, "data_hash": "0" * 32, "order_hash": "0" * 32,
              "notes": {}}  # fmt: skip
    learner = {"name": "mine", "where": "mine", "settings": {}, "needs": [], "sees_input": True,
               "code": "", "weights": None}  # fmt: skip
    config = {"stream": {"origin": "clicks", "name": "clicks", "settings": {}}, "learner": learner,
              "protocol": asdict(sg.Protocol(evaluate="never")), "seed": 0,
              "device": "cpu"}  # fmt: skip
    environment = {"streamgauge": sg.__version__, "platform": "Linux", "device": "cpu"}
    return {"id": "2" * 32, "config": config, "stream": stream, "environment": environment}


def recorded_rows(complete: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Columns of the tables `predictions` (with the true label) and `labels`."""
    rng = np.random.default_rng(0)
    stay = rng.random(SAMPLES) < 0.8
    drawn = rng.integers(0, CLASSES, SAMPLES)
    label = drawn[np.maximum.accumulate(np.where(stay, 0, np.arange(SAMPLES)))]
    scores = rng.normal(size=(SAMPLES, CLASSES)) + 2.0 * np.eye(CLASSES)[label]
    logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    sample = np.arange(SAMPLES)
    time = 1.7e9 + 30.0 * sample
    predictions = {
        "step": sample // BATCH, "sample": sample, "label": label,
        "prediction": logs.argmax(axis=1), "confidence": np.exp(logs.max(axis=1)),
        "version": sample // BATCH, "shift": 0, "user": rng.integers(0, 40, SAMPLES),
        "time": time, "logp": logs[sample, label], "id": [f"request-{n:05d}" for n in sample],
    }  # fmt: skip
    arrived = time + 300.0 + rng.exponential(300.0, SAMPLES)
    known = complete | (rng.random(SAMPLES) < 0.97) & (arrived < time[-1])  # some never come
    twice = np.flatnonzero(known)[::50]  # first wrong, then corrected
    labels = {
        "sample": np.concatenate([twice, sample[known]]),
        "label": np.concatenate([(label[twice] + 1) % CLASSES, label[known]]),
        "label_time": np.concatenate([arrived[twice] - 1.0, arrived[known]]),
    }
    order = np.argsort(labels["label_time"], kind="stable")
    return predictions, {name: values[order] for name, values in labels.items()}


def write_recorded(path: Path, late: bool = True, complete: bool = False) -> sg.Run:
    """A recorded run; without `late` the same in log version 1, which has every label at once."""
    predictions, labels = recorded_rows(complete)
    added = frozenset({"labels", "logp", "id"}) if late else frozenset[str]()
    writer = RunWriter(path, recorded_header(), frozenset({"task", "label"}), added)
    writer.rows["predictions"].append(SAMPLES, **predictions)
    if late:
        writer.rows["labels"].append(len(labels["sample"]), **labels)
    writer.checkpoint(SAMPLES // BATCH, None, done=True)
    writer.close()
    return sg.Run(path)


def recorded() -> None:
    """The corpus of log version 2."""
    path = HERE / "log2" / "finished" / "clicks-mine-s0-22222222"
    write_expected(write_recorded(path))


def killed_recorder(version: str) -> None:
    """The corpus of recorders."""
    path = HERE / version / "finished" / "clicks-mine"
    answers, labels = recorded_rows(False)
    scores = np.random.default_rng(1).dirichlet(np.ones(CLASSES), SAMPLES)
    rec = sg.Recorder(path, stream="clicks", learner="mine", classes=["buy", "look", "leave"])
    for start in range(0, SAMPLES, BATCH):
        rows, time = slice(start, start + BATCH), answers["time"][start]
        arrived = (labels["label_time"] > time - 30.0 * BATCH) & (labels["label_time"] <= time)
        rec.predict(answers["id"][rows], scores[rows], time=answers["time"][rows],
                    user=answers["user"][rows])  # fmt: skip
        ids = [answers["id"][sample] for sample in labels["sample"][arrived]]
        rec.label(ids, labels["label"][arrived], time=labels["label_time"][arrived])
        rec.trained(ids, seconds=0.5)
        if start == SAMPLES // 2:
            rec.flush()
            rec._commit_journal()
    neutral(sg.Run(path))
    write_expected(sg.Run(path))


def write_expected(run: sg.Run) -> None:
    (run.path / "lock").unlink()
    scores = {k: v for k, v in sg.score(run).items() if not math.isnan(v)}
    entry = {"log": log_hash(run), "means": mean_values(run), "score": scores}
    expected = {f"finished/{run.path.name}": entry}
    text = json.dumps(expected, indent=1, sort_keys=True)
    (run.path.parents[1] / "expected.json").write_text(text + "\n")


def main(version: str) -> None:
    if version == "log2":
        recorded()
        return
    if version.startswith("recorder"):
        killed_recorder(version)
        return
    target, commands = HERE / version, COMMANDS
    if version == "format2":
        finished, stopped = COMMANDS["finished/er"], COMMANDS["interrupted/er"]
        commands = {"finished/er": finished, "interrupted/er": [*stopped, *LINEAR]}
    expected: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, words in commands.items():
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
