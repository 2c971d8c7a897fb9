"""What history says on real streams, and what answers add: a table for `docs/real_streams.md`.

    python benchmarks/real_streams.py FOLDER --answers   # river's forest answers; needs river only
    python benchmarks/real_streams.py FOLDER             # prints the table

FOLDER has the files named in SOURCES, as published in the repositories named there; each file is
compared with its checksum. Nothing of the data is part of Streamgauge.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# stream: repository, files, how they are read, rows used at most
DRIFT, RIVER = "vlosing/driftDatasets", "online-ml/river"
SOURCES: dict[str, tuple[str, tuple[str, ...], str]] = {
    "Elec2": (DRIFT, ("elec2_data.dat", "elec2_label.dat"), "columns"),
    "Keystroke": (DRIFT, ("keystroke.data", "keystroke.labels"), "columns"),
    "Rialto": (DRIFT, ("rialto.labels",), "labels"),
    "Poker": (DRIFT, ("poker.labels",), "labels"),
    "Outdoor": (DRIFT, ("outdoorStream.data", "outdoorStream.labels"), "columns"),
    "NE weather": (DRIFT, ("NEweather_data.csv", "NEweather_class.csv"), "columns"),
    "EEG eye state": ("datasets/eeg-eye-state", ("eeg-eye-state.csv",), "table"),
    "KDD99, first 50,000": ("Kapetis/ST2", ("kddcup.data_10_percent.gz",), "table"),
    "Bananas": (RIVER, ("banana.zip",), "libsvm"),
    "Shuttle": (RIVER, ("shuttle.csv.gz",), "table"),
    "Seattle weather": ("vega/vega-datasets", ("seattle-weather.csv",), "table"),
}
MOST = 50_000


def text_of(path: Path) -> str:
    if path.suffix == ".gz":
        return gzip.decompress(path.read_bytes()).decode()
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            return archive.read(archive.namelist()[0]).decode()
    return path.read_text()


def number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def read(folder: Path, name: str) -> tuple[list[list[float | str]], list[str]]:
    """Inputs (empty where the file has none) and labels."""
    _, files, kind = SOURCES[name]
    texts = [text_of(folder / file) for file in files]
    if kind == "labels":
        return [], texts[0].split()
    if kind == "columns":
        rows = [line.replace(",", " ").split() for line in texts[0].splitlines() if line]
        return [[float(value) for value in row] for row in rows], texts[1].split()
    if kind == "libsvm":
        rows = [line.split() for line in texts[0].splitlines() if line]
        inputs = [[number(part.split(":")[-1]) for part in row[1:]] for row in rows]
        return inputs, [row[0] for row in rows]
    rows = list(csv.reader(io.StringIO(texts[0])))
    if not any(isinstance(number(value), float) for value in rows[0]):
        rows = rows[1:]
    first = 1 if len({row[0] for row in rows}) == len(rows) else 0  # a date is no input
    return [[number(value) for value in row[first:-1]] for row in rows], [row[-1] for row in rows]


def forest_answers(inputs: list[list[Any]], labels: list[str]) -> list[str]:
    """Adaptive random forest of ten trees: each sample is answered, then learnt."""
    from river.forest import ARFClassifier

    model = ARFClassifier(seed=0)
    answers = []
    for row, label in zip(inputs, labels, strict=True):
        sample = {str(i): value for i, value in enumerate(row)}
        answers.append(str(model.predict_one(sample)))
        model.learn_one(sample, label)
    return answers


def blind_answers(labels: NDArray[Any]) -> Iterator[tuple[str, NDArray[Any]]]:
    """Answers that never saw an input."""
    classes, codes = np.unique(labels, return_inverse=True)
    counts, majority = np.zeros(len(classes)), np.zeros(len(codes), np.int64)
    for i, code in enumerate(codes):
        majority[i] = counts.argmax()
        counts[code] += 1
    yield "copy", np.concatenate([labels[:1], labels[:-1]])
    yield "majority", classes[majority]
    yield "constant", np.full(len(labels), labels[0])


def bits(figure: Any) -> str:
    """Value and half the width of its interval."""
    return f"{figure.value:.3f} ± {(figure.high - figure.low) / 2:.3f}"


def row_of(folder: Path, name: str) -> list[str]:
    from streamgauge.history.bits import explain

    labels = np.array(read(folder, name)[1][:MOST])
    codes = np.unique(labels, return_inverse=True)[1]
    last = f"{100 * (codes[1:] == codes[:-1]).mean():.1f}"
    alone = explain(labels)
    heavy = sorted(alone.experts, key=lambda one: -one.weight)[:2]
    carried = ", ".join(f"{one.name} ({100 * one.weight:.0f} %)" for one in heavy)
    row = [name, f"{len(labels):,}", str(codes.max() + 1), last]
    row += [f"{alone.base.value:.2f}", bits(alone.history), carried]
    row += [bits(explain(labels, answers).added) for _, answers in blind_answers(labels)]
    stored = folder / "answers" / f"{name}.txt"
    if not stored.exists():
        return [*row, ""]
    answers = np.array(stored.read_text().split("\n"))
    right = 100 * (answers == labels).mean()
    return [*row, f"{right:.1f} %: {bits(explain(labels, answers).added)}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--answers", action="store_true", help="make the forest's answers")
    chosen = parser.parse_args()
    folder = chosen.folder
    if chosen.answers:
        (folder / "answers").mkdir(exist_ok=True)
        for name in SOURCES:
            inputs, labels = read(folder, name)
            path = folder / "answers" / f"{name}.txt"
            if inputs and not path.exists():
                path.write_text("\n".join(forest_answers(inputs[:MOST], labels[:MOST])))
        return
    head = ["stream", "labels", "classes", "last label right, %", "base", "history"]
    head += ["carried by", "added by a copy", "by the majority", "by a constant", "by a forest"]
    rows = [head, ["---"] * len(head), *[row_of(folder, name) for name in SOURCES]]
    print("\n".join("| " + " | ".join(row) + " |" for row in rows))
    print("\n| file | repository | SHA-256 |\n| --- | --- | --- |")
    for repository, files, _ in SOURCES.values():
        for file in files:
            digest = hashlib.sha256((folder / file).read_bytes()).hexdigest()
            print(f"| {file} | {repository} | {digest[:16]} |")


if __name__ == "__main__":
    main()
