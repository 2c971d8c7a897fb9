"""Our learners and river's models on real tables: online, and 100 samples ahead.

    git clone https://github.com/vlosing/driftDatasets      # at commit 01d08de
    python benchmarks/versus_river.py --drift driftDatasets --out versus_river
    python benchmarks/versus_river.py --out versus_river --table        # what is there, as a table
    python benchmarks/versus_river.py --drift driftDatasets --settings  # other settings

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
    """A real stream: where its file is, its SHA-256 (of inputs and labels one after the other,
    where these are two files), and how it is read."""

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
        "54937f8c570bb84bb502681d8052536f41856a7d4a0a672ecb65d0ba99653339",
        _two_files,
        labels="realWorld/Elec2/elec2_label.dat",
    ),
    "weather": Table(
        "drift",
        "realWorld/weather/NEweather_data.csv",
        "23208358c5003e0f579fa73b217460d106a42304663bb795aa97804c4b5d504a",
        _two_files,
        labels="realWorld/weather/NEweather_class.csv",
    ),
    "outdoor": Table(
        "drift",
        "realWorld/outdoor/outdoorStream.data",
        "9d19bd36aff89cf74a9b4f0d893eabde979c871f84175afbe9cdfa9c6256bbaa",
        _two_files,
        labels="realWorld/outdoor/outdoorStream.labels",
    ),
    "keystroke": Table(
        "drift",
        "artificial/souza/keystroke.data",
        "131935df2e50746ca81965770a3f4d88b2ffb8449f7f6d79eaa9b33b7dcd55c3",
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
# Tables on which default settings are compared: none of them is shown above.
OTHERS = {
    "chess": Table(
        "drift",
        "artificial/chess/transientChessboard.data",
        "ed9cb16ec82ee6ee77a889342ca522af287ef843dd235d76f79fe0f15146ee1f",
        _two_files,
        labels="artificial/chess/transientChessboard.labels",
    ),
    "squares": Table(
        "drift",
        "artificial/movingSquares/movingSquares.data",
        "9126395618c2cea3129f6b9c0ffc73b0747d79635edc7ba1f186eaf45208badf",
        _two_files,
        labels="artificial/movingSquares/movingSquares.labels",
    ),
    "rbf": Table(
        "drift",
        "artificial/rbf/interchangingRBF.data",
        "f84a1fede7c03ed7d8042016c8a690a3ef4ec2f5dfe868337fa932ad78c1e742",
        _two_files,
        labels="artificial/rbf/interchangingRBF.labels",
    ),
    "sea": Table(
        "drift",
        "artificial/sea/SEA_training_data.csv",
        "912ad65fd005bc8bc598340a4ac3190de46a1f98ce696dd2c5b1b334de5fc25c",
        _two_files,
        labels="artificial/sea/SEA_training_class.csv",
    ),
    "2cdt": Table(
        "drift",
        "artificial/souza/2CDT.data",
        "a7a488f75b65b0244ee1825da0cb65a636adbacd6ea0a16cb86949712aed727c",
        _two_files,
        labels="artificial/souza/2CDT.labels",
    ),
    "2cht": Table(
        "drift",
        "artificial/souza/2CHT.data",
        "8c44ae2da048020b4a555b1c894c0cf9ee800a709bfe3a5c7df54fc13324d039",
        _two_files,
        labels="artificial/souza/2CHT.labels",
    ),
    "iris": Table(
        "sklearn",
        "iris.csv",
        "f13ffa8fdd56fd8e6c8d16d4081a3fbd3114bcd0aae4256c43205169cd9d1449",
        _plain,
        shuffled=True,
    ),
}
SETTINGS = [{"lr": lr} for lr in (0.02, 0.05, 0.1, 0.2)] + [{"memory": size} for size in (100, 500)]
PACKAGES = {"river": "river.datasets", "sklearn": "sklearn.datasets.data"}
REPOSITORY = "https://github.com/vlosing/driftDatasets"
ORIGINS = {
    "drift": REPOSITORY,
    "river": "https://github.com/online-ml/river (in its package)",
    "sklearn": "https://github.com/scikit-learn/scikit-learn (in its package)",
}


def load(name: str, drift: Path | None, most: int) -> Rows | None:
    """The first rows of a stream; None where its files are not there."""
    table = (TABLES | OTHERS)[name]
    if table.where == "drift" and drift is None:
        return None
    folder: Any = drift if table.where == "drift" else files(PACKAGES[table.where])
    data = folder.joinpath(table.file).read_bytes()
    labelled = folder.joinpath(table.labels).read_bytes() if table.labels else b""
    sha256 = hashlib.sha256(data + labelled).hexdigest()
    if sha256 != table.sha256:
        raise SystemExit(f"{table.file} has the SHA-256 {sha256}, not {table.sha256}.")
    rows, labels = table.read(data, labelled)
    order = np.arange(len(rows))
    if table.shuffled:
        order = np.random.default_rng(0).permutation(len(rows))
    order = order[:most]
    return [rows[i] for i in order], [labels[i] for i in order]


def ours(
    learner: str, file: Path, out: Path, seed: int, settings: dict[str, float] | None = None
) -> tuple[float, float]:
    """Accuracy online and ahead, of one of our learners on a CSV file with default settings."""
    import streamgauge as sg

    stream = sg.stream("tabular", path=str(file))
    recipe = sg.learner(learner, **OURS[learner], **(settings or {}))
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
        # Its default search is random without a seed: accuracies differ by up to 1.6 points.
        search = neighbors.SWINN(seed=seed)
        return preprocessing.StandardScaler() | neighbors.KNNClassifier(engine=search)
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


def write_csv(name: str, rows: Rows, out: Path) -> Path:
    file = out / f"{name.replace(' ', '_')}.csv"
    with file.open("w", newline="") as target:
        writer = csv.writer(target)
        writer.writerow([*(f"f{i}" for i in range(len(rows[0][0]))), "label"])
        writer.writerows([*row, label] for row, label in zip(*rows, strict=True))
    return file


def compare_settings(drift: Path | None, out: Path, most: int, seed: int) -> Iterator[str]:
    """Markdown: mean accuracy of `er` and `finetune` with other settings than the defaults."""
    out.mkdir(parents=True, exist_ok=True)
    loaded = {name: load(name, drift, most) for name in OTHERS}
    files = {n: write_csv(n, rows, out) for n, rows in loaded.items() if rows is not None}
    yield f"| setting | er, {len(files)} tables | finetune, {len(files)} tables |"
    yield "|---|---|---|"
    for settings in SETTINGS:
        cells = []
        for learner in ("er", "finetune"):
            if learner == "finetune" and "memory" in settings:
                cells.append("-")
                continue
            pairs = [ours(learner, file, out / "runs", seed, settings) for file in files.values()]
            means = 100 * np.mean(pairs, axis=0)
            cells.append(f"{means[0]:.1f}, {means[1]:.1f}")
        ((name, value),) = settings.items()
        yield f"| {name} {value} | {' | '.join(cells)} |"


def measure(drift: Path | None, out: Path, most: int, seed: int, only: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name in TABLES:
        rows = load(name, drift, most)
        if rows is None:
            continue
        file = write_csv(name, rows, out)
        for model in (*OURS, *RIVER):
            side = "ours" if model in OURS else "river"
            result = out / f"{file.stem}-{model.replace(' ', '_')}.json"
            if result.exists() or only not in ("", side):
                continue
            if side == "ours":
                shares = ours(model, file, out / "runs", seed)
            else:
                shares = rivers(model, rows, seed)
            figures = dict(zip(("online", "ahead"), shares, strict=True))
            about = {"stream": name, "model": model, "rows": len(rows[0]), **figures}
            result.write_text(json.dumps(about))
            print(about, flush=True)


def _last_label(out: Path, name: str, back: int) -> float:
    """Accuracy of the label that came so many samples before: what needs no input."""
    with (out / f"{name.replace(' ', '_')}.csv").open() as file:
        label = [row[-1] for row in csv.reader(file)][1:]
    answered = len(label) - back + 1  # the first of these has no label before it
    return sum(a == b for a, b in zip(label[back:], label, strict=False)) / answered


def table_text(out: Path) -> Iterator[str]:
    """Markdown: per stream one row for each question, ours and river's; the best is bold."""
    results: dict[str, dict[str, Any]] = {}
    for file in sorted(out.glob("*-*.json")):
        one = json.loads(file.read_text())
        results.setdefault(one["stream"], {})[one["model"]] = one
    heads = ["last label", *OURS, "best of ours", *RIVER, "best of river"]
    for question, title in (("online", "Online"), ("ahead", f"{SHIFT} samples ahead")):
        yield f"| {title} | rows | {' | '.join(heads)} | difference |"
        yield "|---" * (len(heads) + 3) + "|"
        for name in TABLES:
            measured = results.get(name, {})
            if len(measured) < len(OURS) + len(RIVER):
                continue
            cells = {model: 100 * one[question] for model, one in measured.items()}
            back = 1 if question == "online" else SHIFT + 1
            cells["last label"] = 100 * _last_label(out, name, back)
            for side, models in (("ours", OURS), ("river", RIVER)):
                cells[f"best of {side}"] = max(cells[model] for model in models)
            shown = [f"{cells[head]:.1f}" for head in heads]
            difference = cells["best of ours"] - cells["best of river"]
            rows = next(iter(measured.values()))["rows"]
            yield f"| {name} | {rows:,} | {' | '.join(shown)} | {difference:+.1f} |"
        yield ""
    yield "| stream | from | file | SHA-256 |"
    yield "|---|---|---|---|"
    for name, table in TABLES.items():
        yield f"| {name} | {ORIGINS[table.where]} | `{table.file}` | `{table.sha256}` |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--drift", type=Path, help="a clone of driftDatasets")
    parser.add_argument("--out", type=Path, default=Path("versus_river"))
    parser.add_argument("--rows", type=int, default=2000, help="of each stream, the first ones")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", choices=["", "ours", "river"])
    parser.add_argument("--table", action="store_true", help="print the results that are there")
    parser.add_argument("--settings", action="store_true", help="compare settings, on other tables")
    given = parser.parse_args()
    if given.settings:
        for line in compare_settings(given.drift, given.out, given.rows, given.seed):
            print(line, flush=True)
    elif given.table:
        print("\n".join(table_text(given.out)))
    else:
        measure(given.drift, given.out, given.rows, given.seed, given.only)


if __name__ == "__main__":
    main()
