"""Our learners beside river's models on real tables: online, and 100 samples ahead.

    git clone https://github.com/vlosing/driftDatasets
    python benchmarks/versus_river.py --drift driftDatasets --out versus_river
    python benchmarks/versus_river.py --out versus_river --table        # what is there, as a table

Needs river and scikit-learn, whose packages hold six of the streams. Without --drift only those are
measured. Every stream is written as a CSV file, which ours read with default settings, as
`streamgauge run --stream tabular` does; river's models get the same rows, with a StandardScaler
before logistic regression and nearest neighbours. Files are checked by their SHA-256. Results are
stored one by one, so that an interrupted call goes on.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

SHIFT = 100  # samples between the version that answers and the sample
OURS = {
    "er": {"model": "mlp"},
    "finetune": {"model": "mlp"},
    "ncm": {},
    "slda": {},
}
RIVER = ("naive Bayes", "logistic regression", "KNN", "Hoeffding tree", "ARF")
Rows = tuple[list[list[float]], list[str]]


@dataclass(frozen=True)
class Table:
    """A real stream: where its files are, their SHA-256, and how they are read."""

    where: str  # river, sklearn or drift
    file: str
    sha256: str
    read: Callable[[bytes, bytes], Rows]
    labels: str = ""  # file of the labels, where it is another one
    shuffled: bool = False  # the file is sorted by class, so that its order is no stream


def _table(text: str, label: int = -1, skip: int = 1) -> Rows:
    rows = [row for row in csv.reader(io.StringIO(text)) if row][skip:]
    labels = [row.pop(label) for row in rows]
    return [[float(cell) for cell in row] for row in rows], labels


def _gzipped(data: bytes, _: bytes) -> Rows:
    return _table(gzip.decompress(data).decode())


def _gzipped_bare(data: bytes, _: bytes) -> Rows:
    return _table(gzip.decompress(data).decode(), skip=0)


def _zipped(data: bytes, _: bytes) -> Rows:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return _table(archive.read(archive.namelist()[0]).decode())


def _plain(data: bytes, _: bytes) -> Rows:
    return _table(data.decode())


def _two_files(data: bytes, labels: bytes) -> Rows:
    rows = [line.replace(",", " ").split() for line in data.decode().splitlines() if line.strip()]
    return [[float(cell) for cell in row] for row in rows], labels.decode().split()


TABLES = {
    "elec2": Table(
        "drift",
        "realWorld/Elec2/elec2_data.dat",
        "f96f3b096a5318c1dab465f9c64b50824f751d651a13b864137cfefac6a6bef2",
        _two_files,
        labels="realWorld/Elec2/elec2_label.dat",
    ),
    "weather": Table(
        "drift",
        "realWorld/weather/NEweather_data.csv",
        "e38ef95890ec0df3daee0493e92e59c38ae1c27cd01c4805367f189d52dfeed9",
        _two_files,
        labels="realWorld/weather/NEweather_class.csv",
    ),
    "outdoor": Table(
        "drift",
        "realWorld/outdoor/outdoorStream.data",
        "53f9d793056bf60f832ded0122a9f7286ea35e42fa019d2f4b2158bf6ef4ec1b",
        _two_files,
        labels="realWorld/outdoor/outdoorStream.labels",
    ),
    "keystroke": Table(
        "drift",
        "artificial/souza/keystroke.data",
        "046982809cd741280c6009494e39864f4854a49509d081d81bc8cdf57208fd9a",
        _two_files,
        labels="artificial/souza/keystroke.labels",
    ),
    "phishing": Table(
        "river",
        "phishing.csv.gz",
        "d8a6d44bd9672e852b8a53ad2c64229f81972158a77d981073a98b17c27af7a9",
        _gzipped,
    ),
    "segments": Table(
        "river",
        "segment.csv.zip",
        "91e4402efcb6f6a4087e4bcfcd074976dd8e48819d290f45bae6bd652bd16d75",
        _zipped,
    ),
    "shuttle": Table(
        "river",
        "shuttle.csv.gz",
        "1ed4bfa77233d95bff2c8ab2482725d2d800410daedf5919ad80ec6faf60ff59",
        _gzipped,
    ),
    "digits": Table(
        "sklearn",
        "digits.csv.gz",
        "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22",
        _gzipped_bare,
    ),
    "breast cancer": Table(
        "sklearn",
        "breast_cancer.csv",
        "fed3eb72d0575ef6192293f5093c6e801b1476b577d0386bf4455504522172ed",
        _plain,
    ),
    "wine": Table(
        "sklearn",
        "wine_data.csv",
        "10e8a802908b34f86e5da8ce962f3c806694bc98450a18f61851af59f324bede",
        _plain,
        shuffled=True,
    ),
}
PACKAGES = {"river": "river.datasets", "sklearn": "sklearn.datasets.data"}
REPOSITORY = "https://github.com/vlosing/driftDatasets"


def load(name: str, drift: Path | None, most: int) -> Rows | None:
    """The first rows of a stream; None where its files are not there."""
    table = TABLES[name]
    if table.where == "drift" and drift is None:
        return None
    folder: Any = drift if table.where == "drift" else files(PACKAGES[table.where])
    data = folder.joinpath(table.file).read_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    if sha256 != table.sha256:
        raise SystemExit(f"{table.file} has the SHA-256 {sha256}, not {table.sha256}.")
    rows, labels = table.read(
        data, folder.joinpath(table.labels).read_bytes() if table.labels else b""
    )
    order = np.arange(len(rows))
    if table.shuffled:
        order = np.random.default_rng(0).permutation(len(rows))
    order = order[:most]
    return [rows[i] for i in order], [labels[i] for i in order]


def ours(learner: str, file: Path, out: Path, seed: int) -> tuple[float, float]:
    """Accuracy online and ahead, of one of our learners on a CSV file with default settings."""
    import streamgauge as sg

    stream = sg.stream("tabular", path=str(file))
    recipe = sg.learner(learner, **OURS[learner])
    protocol = sg.Protocol(shifts=(SHIFT,))
    run = sg.run(stream, recipe, protocol=protocol, seed=seed, out=out, device="cpu", threads=1)
    table = run.predictions
    right = table["label"] == table["prediction"]
    return tuple(float(right[table["shift"] == shift].mean()) for shift in (0, SHIFT))  # type: ignore[return-value]


def river_model(name: str, classes: int, seed: int) -> Any:
    from river import forest, linear_model, naive_bayes, neighbors, preprocessing, tree

    if name == "logistic regression":
        kind = linear_model.LogisticRegression if classes == 2 else linear_model.SoftmaxRegression
        return preprocessing.StandardScaler() | kind()
    if name == "KNN":
        return preprocessing.StandardScaler() | neighbors.KNNClassifier()
    if name == "ARF":
        return forest.ARFClassifier(seed=seed)
    return {
        "naive Bayes": naive_bayes.GaussianNB,
        "Hoeffding tree": tree.HoeffdingTreeClassifier,
    }[name]()


def rivers(name: str, rows: Rows, seed: int) -> tuple[float, float]:
    """The same of one of river's models: each version answers its sample and the one SHIFT later,
    then it learns its sample."""
    x = [{f"f{i}": value for i, value in enumerate(row)} for row in rows[0]]
    y: list[Any] = rows[1]
    if len(set(y)) == 2:
        first = y[0]
        y = [label == first for label in y]
    model = river_model(name, len(set(y)), seed)
    online = ahead = 0
    for t, sample in enumerate(x):
        online += model.predict_one(sample) == y[t]
        if t + SHIFT < len(x):
            ahead += model.predict_one(x[t + SHIFT]) == y[t + SHIFT]
        model.learn_one(sample, y[t])
    return online / len(x), ahead / max(1, len(x) - SHIFT)


def measure(drift: Path | None, out: Path, most: int, seed: int, only: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name in TABLES:
        rows = load(name, drift, most)
        if rows is None:
            continue
        file = out / f"{name.replace(' ', '_')}.csv"
        with file.open("w", newline="") as target:
            writer = csv.writer(target)
            writer.writerow([*(f"f{i}" for i in range(len(rows[0][0]))), "label"])
            writer.writerows([*row, label] for row, label in zip(*rows, strict=True))
        for model in (*OURS, *RIVER):
            side = "ours" if model in OURS else "river"
            result = out / f"{file.stem}-{model.replace(' ', '_')}.json"
            if result.exists() or only not in ("", side):
                continue
            if side == "ours":
                found = ours(model, file, out / "runs", seed)
            else:
                found = rivers(model, rows, seed)
            figures = dict(zip(("online", "ahead"), found, strict=True))
            about = {"stream": name, "model": model, "rows": len(rows[0]), **figures}
            result.write_text(json.dumps(about))
            print(about, flush=True)


def table_text(out: Path) -> Iterator[str]:
    """Markdown: per stream one row for each question, ours and river's; the best is bold."""
    results: dict[str, dict[str, Any]] = {}
    for file in sorted(out.glob("*-*.json")):
        one = json.loads(file.read_text())
        results.setdefault(one["stream"], {})[one["model"]] = one
    heads = [*OURS, "best of ours", *RIVER, "best of river"]
    for question, title in (("online", "Online"), ("ahead", f"{SHIFT} samples ahead")):
        yield f"| {title} | rows | {' | '.join(heads)} | difference |"
        yield "|---" * (len(heads) + 3) + "|"
        for name in TABLES:
            found = results.get(name, {})
            if len(found) < len(OURS) + len(RIVER):
                continue
            cells = {model: 100 * one[question] for model, one in found.items()}
            for side, models in (("ours", OURS), ("river", RIVER)):
                cells[f"best of {side}"] = max(cells[model] for model in models)
            shown = [f"{cells[head]:.1f}" for head in heads]
            difference = cells["best of ours"] - cells["best of river"]
            rows = next(iter(found.values()))["rows"]
            yield f"| {name} | {rows:,} | {' | '.join(shown)} | {difference:+.1f} |"
        yield ""
    yield "| stream | from | file | SHA-256 |"
    yield "|---|---|---|---|"
    for name, table in TABLES.items():
        origin = REPOSITORY if table.where == "drift" else f"the package {table.where}"
        yield f"| {name} | {origin} | `{table.file}` | `{table.sha256[:16]}…` |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--drift", type=Path, help="a clone of driftDatasets")
    parser.add_argument("--out", type=Path, default=Path("versus_river"))
    parser.add_argument("--rows", type=int, default=2000, help="of each stream, the first ones")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", choices=["", "ours", "river"])
    parser.add_argument("--table", action="store_true", help="print the results that are there")
    given = parser.parse_args()
    if given.table:
        print("\n".join(table_text(given.out)))
    else:
        measure(given.drift, given.out, given.rows, given.seed, given.only)


if __name__ == "__main__":
    main()
