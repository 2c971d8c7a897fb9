"""`sg.stream` of objects: data frames, columns, data sets of other libraries, iterators."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import streamgauge as sg
from streamgauge.errors import StreamgaugeError

X = np.random.default_rng(0).random((60, 3)).astype(np.float32)
Y = np.arange(60) % 3
NAMES = np.array(["ant", "bee", "cat"])
COLUMNS = {
    "width": X[:, 0],
    "height": X[:, 1],
    "t": np.arange(60) + 1_700_000_000.0,
    "u": np.arange(60) // 4,
    "y": NAMES[Y],
}


def labels(stream: Any) -> list[str]:
    """The labels of all samples, by name."""
    names = stream.source.class_names
    return [str(code) if names is None else names[code] for code in stream.source.label]


@pytest.mark.parametrize("kind", ["dictionary", "arrow", "pandas", "polars"])
def test_a_data_frame_is_a_stream(kind: str) -> None:
    data: Any = COLUMNS
    if kind == "arrow":
        data = pa.table(COLUMNS)
    elif kind != "dictionary":
        data = pytest.importorskip(kind).DataFrame(COLUMNS)
    stream = sg.stream(data, label="y", time="t", user="u", batch=6)
    assert len(stream) == 10
    assert labels(stream) == NAMES[Y].tolist()
    assert stream.spec.input_shape == (2,)
    assert stream.source.scaled == 2  # standardised online, as tables are
    np.testing.assert_array_equal(stream.source.read(np.arange(60)), X[:, :2])
    np.testing.assert_array_equal(stream.source.columns["time"], COLUMNS["t"])
    assert len(np.unique(stream.source.columns["user"])) == 15
    same = sg.stream(COLUMNS, label="y", time="t", user="u", batch=6)
    assert same.source.fingerprint == stream.source.fingerprint


def test_a_frame_with_labels_and_columns_apart() -> None:
    frame = pa.table({"width": X[:, 0], "height": X[:, 1]})
    stream = sg.stream(frame, NAMES[Y], user=np.arange(60) // 4)
    assert labels(stream) == NAMES[Y].tolist()
    assert stream.spec.input_shape == (2,)
    assert len(np.unique(stream.source.columns["user"])) == 15
    with pytest.raises(StreamgaugeError, match=r"shape \(59,\), where \(60,\)"):
        sg.stream(frame, Y[1:])


def test_a_named_index_of_pandas_is_a_column() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(COLUMNS).set_index("t")
    stream = sg.stream(frame, label="y", time="t", user="u")
    np.testing.assert_array_equal(stream.source.columns["time"], COLUMNS["t"])


def test_an_error_names_keywords_not_options() -> None:
    both = {**COLUMNS, "label": Y, "class": Y}
    with pytest.raises(StreamgaugeError, match="set label to one of them"):
        sg.stream(both)
    with pytest.raises(StreamgaugeError, match="did you mean 'label'"):
        sg.stream(COLUMNS, labell="y")


def test_a_bunch_is_a_stream_with_its_names() -> None:
    bunch = {"data": X, "target": Y, "target_names": NAMES, "feature_names": ["a", "b", "c"]}
    stream = sg.stream(bunch, batch=4)
    assert labels(stream) == NAMES[Y].tolist()
    np.testing.assert_array_equal(stream.source.read(np.arange(60)), X)
    assert stream.source.scaled == 3
    with pytest.raises(StreamgaugeError, match="regression is not supported"):
        sg.stream({"data": X, "target": Y.astype(float)})
    with pytest.raises(StreamgaugeError, match=r"data of this Bunch are a list"):
        sg.stream({"data": ["some", "text"], "target": [0, 1]})


def test_bunches_of_scikit_learn() -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    iris = datasets.load_iris()
    stream = sg.stream(iris)
    assert labels(stream) == [iris.target_names[code] for code in iris.target]
    assert sg.stream(datasets.load_wine()).spec == ((13,), 3)
    x, y = datasets.load_iris(return_X_y=True)
    assert sg.stream(x, y).spec.input_shape == (4,)
    with pytest.raises(StreamgaugeError, match="regression is not supported"):
        sg.stream(datasets.load_diabetes())


def test_a_tensor_data_set() -> None:
    stream = sg.stream(TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)), batch=5)
    assert stream.source.label.tolist() == Y.tolist()
    np.testing.assert_array_equal(stream.source.read(np.arange(60)), X)
    three = TensorDataset(*(torch.from_numpy(X) for _ in range(3)))
    with pytest.raises(StreamgaugeError, match="has 3 tensors"):
        sg.stream(three)


class Lazy(Dataset[Any]):
    """Images that are made when they are read."""

    def __init__(self, count: int = 40, random: bool = False) -> None:
        self.count, self.random, self.reads = count, random, 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        if not 0 <= number < self.count:
            raise IndexError(number)
        self.reads += 1
        x = torch.full((1, 4, 4), number / self.count)
        return x + torch.rand(1) if self.random else x, number % 4


def test_a_lazy_data_set_is_read_when_needed(tmp_path: Path) -> None:
    data = Lazy()
    stream = sg.stream(data, batch=5, user=np.arange(40) // 5)
    assert stream.spec == ((1, 4, 4), 4)
    assert stream.source.label.tolist() == [i % 4 for i in range(40)]
    before = data.reads
    assert stream.source.read(np.array([7, 3]))[:, 0, 0, 0].tolist() == pytest.approx(
        [7 / 40, 3 / 40]
    )
    assert data.reads == before + 2
    assert sg.stream(Lazy()).source.fingerprint != sg.stream(Lazy(39)).source.fingerprint
    run = sg.run(stream, "ncm", out=tmp_path, log=lambda _: None)
    assert run.done
    assert run.predictions["label"].tolist() == stream.source.label.tolist()


def test_a_lazy_data_set_that_states_its_targets_is_not_passed_over() -> None:
    data = Lazy()
    data.targets, data.fingerprint = [i % 4 for i in range(40)], "lazy 1"  # type: ignore[attr-defined]
    stream = sg.stream(data)
    assert data.reads < 10
    assert stream.source.label.tolist() == [i % 4 for i in range(40)]


def test_a_data_set_with_random_transforms_is_refused() -> None:
    with pytest.raises(StreamgaugeError, match="leave out random transforms"):
        sg.stream(Lazy(random=True))


def river_like() -> Iterator[tuple[dict[str, Any], bool]]:
    for i in range(50):
        x: dict[str, Any] = {"size": float(i), "kind": "ab"[i % 2]}
        if i >= 10:
            x["late"] = 1.0 * i  # a feature that is not there from the start
        yield x, i % 3 == 0


def test_an_iterator_of_dictionaries(capsys: pytest.CaptureFixture[str]) -> None:
    stream = sg.stream(river_like())
    assert stream.samples == 50
    assert "50 samples are kept in memory" in capsys.readouterr().err
    x = stream.source.read(np.arange(50))
    assert x[:, 0].tolist() == list(range(50))
    assert math.isnan(x[0, 1])
    assert x[10, 1] == 10
    expected = [str(i % 3 == 0).lower() for i in range(50)]
    codes = dict(zip(expected, stream.source.label, strict=True))
    assert [codes[name] for name in expected] == stream.source.label.tolist()
    assert len(codes) == 2


def test_an_iterator_is_cut_at_a_limit_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert sg.stream(river_like(), limit=20).samples == 20
    assert "only the first 20 samples are used; limit=N" in capsys.readouterr().err
    assert sg.stream(river_like(), limit=50).samples == 50
    assert "only the first" not in capsys.readouterr().err


def test_a_river_data_set() -> None:
    datasets = pytest.importorskip("river.datasets")
    data = datasets.Phishing()
    stream = sg.stream(data)
    rows = list(data)
    assert stream.samples == len(rows) == 1250
    first = stream.source.label[0]
    assert [code == first for code in stream.source.label] == [y == rows[0][1] for _, y in rows]
    with pytest.raises(StreamgaugeError, match="regression is not supported"):
        sg.stream(datasets.ChickWeights())
    sea = datasets.synth.SEA(seed=1)
    assert sg.stream(sea, limit=100).samples == 100


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        number = 0
        while True:
            yield torch.full((3,), float(number)), number % 2
            number += 1


def test_an_iterable_data_set_of_tensors() -> None:
    stream = sg.stream(Endless(), limit=30)
    assert stream.spec == ((3,), 2)
    assert stream.source.read(np.array([7])).tolist() == [[7.0, 7.0, 7.0]]


def test_a_hugging_face_data_set(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"width": datasets.Value("float32"), "label": datasets.ClassLabel(names=NAMES.tolist())}
    )
    table = datasets.Dataset.from_dict({"width": X[:, 0], "label": Y}, features=features)
    stream = sg.stream(table)
    assert labels(stream) == NAMES[Y].tolist()
    np.testing.assert_array_equal(stream.source.read(np.arange(60))[:, 0], X[:, 0])
    chosen = table.select(range(10, 30))
    assert labels(sg.stream(chosen)) == NAMES[Y][10:30].tolist()
    vectors = datasets.Dataset.from_dict({"embedding": X.tolist(), "label": Y})
    np.testing.assert_allclose(sg.stream(vectors).source.read(np.arange(60)), X)
    with pytest.raises(StreamgaugeError, match="has the splits train, test: give one"):
        sg.stream(datasets.DatasetDict({"train": table, "test": table}))


def test_images_of_a_hugging_face_data_set() -> None:
    datasets, images = pytest.importorskip("datasets"), pytest.importorskip("PIL.Image")

    def png(number: int) -> dict[str, Any]:
        file = io.BytesIO()
        images.new("RGB", (8, 8), (10 * number, 0, 0)).save(file, "PNG")
        return {"bytes": file.getvalue(), "path": None}

    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])}
    )
    data = datasets.Dataset.from_dict(
        {"image": [png(i) for i in range(12)], "label": [i % 2 for i in range(12)]}, features
    )
    stream = sg.stream(data, size=8)
    assert stream.spec == ((3, 8, 8), 2)
    assert stream.source.read(np.array([3]))[0, :, 0, 0].tolist() == [30, 0, 0]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ((X, Y), r"apart, not in a tuple: sg\.stream\(x, y\)"),
        ([X, Y], r"apart, not in a list: sg\.stream\(x, y\)"),
        (X, r"needs labels: sg\.stream\(x, y\)"),
        (torch.from_numpy(X), r"needs labels: sg\.stream\(x, y\)"),
        ({"x": X, "y": Y}, r"sg\.stream\(data\['x'\], data\[LABEL\]\)"),
        (DataLoader(Lazy()), r"sg\.stream\(loader\.dataset, batch=10\)"),
        (sg.stream(X, Y), "a stream already"),
        ([1, 2, 3], r"must be pairs \(input, label\), not int"),
        (3, "A int is no data for a stream"),
    ],
)
def test_what_is_no_data_is_answered_by_a_sentence(data: Any, words: str) -> None:
    with pytest.raises(StreamgaugeError, match=words):
        sg.stream(data)


class WithoutLength(Dataset[Any]):
    """As many lazy data sets are: `__getitem__` alone."""

    def __init__(self, count: int) -> None:
        self.count, self.reads = count, 0

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        if number >= self.count:
            raise IndexError(number)
        self.reads += 1
        return torch.from_numpy(X[number % 60]), int(Y[number % 60])


@pytest.mark.parametrize("count", [1, 2, 37, 60])
def test_a_data_set_with_getitem_alone(count: int, capsys: pytest.CaptureFixture[str]) -> None:
    stream = sg.stream(WithoutLength(count), batch=5, classes=3)
    assert len(stream.source) == count
    assert stream.source.label.tolist() == Y[:count].tolist()
    assert (
        f"The WithoutLength has no length: its first {count:,} samples" in capsys.readouterr().err
    )


def test_a_data_set_with_getitem_alone_is_cut_at_a_limit() -> None:
    assert len(sg.stream(WithoutLength(10**12), limit=41).source) == 41


def test_a_lazy_data_set_runs(tmp_path: Path) -> None:
    """Also with a learner that asks for no sample at all in some step."""
    stream = sg.stream(WithoutLength(60), batch=10)
    assert stream.source.read(np.arange(0)).shape == (0, 3)
    run = sg.run(stream, "er", out=tmp_path, device="cpu", log=lambda _: None)
    assert run.done


def test_numbered_columns_of_a_river_generator() -> None:
    """River's generators name columns 0, 1, 2: no value may be lost."""
    rows = [({0: float(a), 1: float(b)}, int(y)) for (a, b, _), y in zip(X, Y, strict=True)]
    stream = sg.stream(iter(rows))
    np.testing.assert_array_equal(stream.source.read(np.arange(60)), X[:, :2])


class HuggingFace:
    """What a data set of the package `datasets` offers."""

    def __init__(self, **columns: Any) -> None:
        self.table, self.features = pa.table(columns), dict[str, Any]()

    def __len__(self) -> int:
        return len(self.table)

    def with_format(self, kind: str) -> Any:
        return self

    def __getitem__(self, rows: slice) -> pa.Table:
        return self.table


HuggingFace.__module__ = "datasets.arrow_dataset"


@pytest.mark.parametrize("settings", [{}, {"image": "grid"}])
@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (
            [[1, 2], [3, 4]],
            r"'grid' of the Hugging\w+ holds lists of lists.*np\.array\(data\['grid'",
        ),
        (
            ["a", "b"],
            r"'grid' of the HuggingFace holds list<.*string>, and an input is an",
        ),
    ],
)
def test_a_column_of_lists_that_are_no_vectors_is_a_sentence(
    settings: dict[str, str], cells: Any, words: str
) -> None:
    data = HuggingFace(grid=[cells] * 6, label=[0, 1] * 3)
    with pytest.raises(StreamgaugeError, match=words):
        sg.stream(data, **settings)
    # What the sentence says works.
    if settings and isinstance(cells[0], list):
        x = np.array(data.table["grid"].to_pylist())
        assert len(sg.stream(x, np.array(data.table["label"].to_pylist())).source) == 6


def test_lists_of_lists_beside_a_vector_are_left_out() -> None:
    data = HuggingFace(grid=[[[1, 2]]] * 6, vector=[[1.0, 2.0]] * 6, label=[0, 1] * 3)
    assert sg.stream(data).spec.input_shape == (2,)
