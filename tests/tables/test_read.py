"""Every format gives the same columns, whole and in pieces."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamgauge as sg
from streamgauge.audit import audit
from streamgauge.errors import StreamgaugeError
from streamgauge.places.points import Points
from streamgauge.tables import base
from streamgauge.tables.read import open_table
from streamgauge.tables.roles import code_groups, code_labels
from streamgauge.tables.rows import Rows
from streamgauge.tables.times import TimeParser
from streamgauge.tables.typed import ArrowTable
from streamgauge.tables.values import MISSING, MISSING_NUMBERS, Vocabulary, clean_text

COLUMNS = {
    "label": ["wren", "robin", "it's, a wren"] * 20,
    "x": [0.5, 1.5, -2.0] * 20,
    "count": list(range(60)),
}


def text_of(columns: dict[str, list[Any]], separator: str = ",") -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, delimiter=separator)
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return buffer.getvalue()


ARFF = """% of birds
@RELATION birds
@attribute label {wren, robin, 'it\\'s, a wren'}
@attribute 'x' REAL
@attribute count integer

@DATA
% the rows
"""


def write(folder: Path, ending: str) -> Path:
    path = folder / f"table.{ending}"
    text = text_of(COLUMNS)
    rows = list(zip(*COLUMNS.values(), strict=True))
    if ending == "csv.zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("inside.csv", text)
    elif ending == "csv.bz2":
        path.write_bytes(bz2.compress(text.encode()))
    elif ending == "csv.zst":
        with pa.CompressedOutputStream(str(path), "zstd") as file:
            file.write(text.encode())
    elif ending == "arff.gz":
        quoted = ["'" + label.replace("'", "\\'") + "'" for label, *_ in rows]
        lines = [f"{label}, {x},{n}" for label, (_, x, n) in zip(quoted, rows, strict=True)]
        path.write_bytes(gzip.compress((ARFF + "\n".join(lines) + "\n").encode()))
    elif ending == "parquet":
        pq.write_table(pa.table(COLUMNS), path, row_group_size=7)
    elif ending == "feather":
        feather.write_feather(pa.table(COLUMNS), path)
    elif ending == "arrow":
        with pa.ipc.new_stream(str(path), pa.table(COLUMNS).schema) as stream:
            stream.write_table(pa.table(COLUMNS))
    elif ending == "npz":
        np.savez(path, **{name: np.array(values) for name, values in COLUMNS.items()})
    elif ending == "jsonl":
        records = (dict(zip(COLUMNS, row, strict=True)) for row in rows)
        path.write_text("\n".join(map(json.dumps, records)))
    else:
        packed = gzip.compress if ending.endswith("gz") else bytes
        mark = {"tsv": "\t", "txt": "|"}.get(ending, ",")
        path.write_bytes(packed(text_of(COLUMNS, mark).encode()))
    return path


ENDINGS = ("csv", "tsv", "txt", "csv.gz", "csv.zip", "csv.bz2", "csv.zst", "arff.gz", "parquet",
           "feather", "arrow", "npz", "jsonl")  # fmt: skip


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_format_gives_the_same_columns(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "PIECE_ROWS", 16)
    monkeypatch.setattr(base, "PIECE_BYTES", 600)
    reader = open_table(write(tmp_path, ending))
    assert reader.names == list(COLUMNS)
    assert reader.read(text=["label"]).to_pydict() == COLUMNS
    pieces = list(reader.pieces(["count", "label"], text=["label"]))
    assert len(pieces) > 1
    assert [n for piece in pieces for n in piece["count"].to_pylist()] == COLUMNS["count"]
    assert [n for piece in pieces for n in piece["label"].to_pylist()] == COLUMNS["label"]


def frames() -> dict[str, Any]:
    """The columns as every kind of data frame that is installed, and as arrays by name."""
    kinds: dict[str, Any] = {"dictionary": COLUMNS, "arrow": pa.table(COLUMNS)}
    for library in ("pandas", "polars"):
        try:
            kinds[library] = __import__(library).DataFrame(COLUMNS)
        except ImportError:
            kinds[library] = None
    return kinds


@pytest.mark.parametrize("kind", ["dictionary", "arrow", "narwhals", "pandas", "polars"])
def test_data_frames_are_tables(kind: str) -> None:
    import narwhals

    data = frames()["arrow" if kind == "narwhals" else kind]
    if data is None:
        pytest.skip(f"{kind} is not installed")
    data = narwhals.from_native(data) if kind == "narwhals" else data
    assert open_table(data).read(text=["label"]).to_pydict() == COLUMNS
    long = {"label": [0, 1, 1] * 200, "prediction": [0, 1, 0] * 200}
    if kind == "pandas":
        import pandas

        assert audit(pandas.DataFrame(long)).online.value == pytest.approx(2 / 3)
    assert audit(pa.table(long)).online.value == pytest.approx(2 / 3)
    assert Points(pa.table({"lat": [1.0], "lon": [2.0]})).roles == {
        "latitude": "lat", "longitude": "lon",
    }  # fmt: skip


def test_what_is_no_table_is_said() -> None:
    with pytest.raises(StreamgaugeError, match=r"A int is no table: give a path.*data frame"):
        open_table(3)


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=6)


@given(
    rows=st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=8),
    separator=st.sampled_from(",;\t|"),
    end=st.sampled_from(["\n", "\r\n"]),
)
@settings(max_examples=150, deadline=None)
def test_cells_are_those_of_the_csv_module(
    rows: list[tuple[str, str]], separator: str, end: str
) -> None:
    buffer = io.StringIO()
    writer = csv.writer(buffer, delimiter=separator, lineterminator=end, quoting=csv.QUOTE_ALL)
    writer.writerows([("a name", "b"), *rows])
    reader = open_table(buffer.getvalue().encode(), header=True)
    assert reader.names == ["a name", "b"]
    table = reader.read(["a name"], text=["a name"])
    expected = [cell.strip() for cell, _ in rows]
    for cell, text in zip(table["a name"].to_pylist(), expected, strict=True):
        assert cell == text or (cell is None and text in MISSING | MISSING_NUMBERS)


def test_headers() -> None:
    def names(text: str) -> list[str]:
        return open_table(text.encode()).names

    iris = "5.1,3.5,1.4,0.2,Iris-setosa\n4.9,3.0,1.4,0.2,Iris-setosa\n"
    assert names(iris) == [f"column_{n}" for n in range(1, 6)]
    assert len(open_table(iris.encode()).read()) == 2
    assert open_table(iris.encode()).row_name(1) == "Line 2"
    assert names("a,b\nx,y\n") == ["a", "b"]
    assert names(",0,1,2,label\n0,5,6,7,a\n1,5,6,8,b\n") == ["row_name", "0", "1", "2", "label"]
    assert names("country,2019,2020,2021\nDE,1,2,3\n") == ["country", "2019", "2020", "2021"]
    assert names("\n\nlabel\n0\n1\n") == ["label"]
    assert names('"a, b";c\n1;2\n') == ["a, b", "c"]
    assert names("3 2 1\n4 5 7\n") == ["column_1", "column_2", "column_3"]
    assert names("scientific name,n\nErithacus rubecula,3\n") == ["scientific name", "n"]


def test_arff_of_every_type_dense_and_sparse(tmp_path: Path) -> None:
    path = tmp_path / "t.arff"
    path.write_text(
        "@relation r\n@attribute 'the class' {no, 'ye s'}\n@attribute n numeric\n"
        "@attribute i INTEGER\n@attribute s string\n@attribute t date 'dd/MM/yyyy HH:mm'\n"
        "@attribute u date\n@data\n"
        "no, 1.5, ?, \"it's\", '31/01/2024 10:00', 2024-01-31T10:00:00\n"
        "% nothing\n\n"
        "{1 2.5, 3 b, 4 '01/02/2024 00:00', 5 ?}\n"
        "'ye s',?,7,?,?,?\n"
    )
    table = open_table(path).read(text=["the class"])
    assert table["the class"].to_pylist() == ["no", "no", "ye s"]
    assert table["n"].to_pylist() == [1.5, 2.5, None]
    assert table["i"].to_pylist() == [None, 0, 7]
    assert table["s"].to_pylist() == ["it's", "b", None]
    seconds = TimeParser("t").seconds(table["t"])
    np.testing.assert_array_equal(seconds, [1_706_695_200, 1_706_745_600, np.nan])
    seconds = TimeParser("u").seconds(table["u"])
    np.testing.assert_array_equal(seconds, [1_706_695_200, np.nan, np.nan])
    path.write_text("@relation r\n@attribute a relational\n@data\n")
    with pytest.raises(StreamgaugeError, match="of type relational, which is not read"):
        open_table(path)
    path.write_text("@relation r\n@attribute a real\n")
    with pytest.raises(StreamgaugeError, match="has no line @data"):
        open_table(path)


@pytest.mark.parametrize("ending", ["arff.gz", "csv.zip", "jsonl", "feather"])
def test_a_stream_of_any_format(tmp_path: Path, ending: str) -> None:
    stream = sg.stream("tabular", path=str(write(tmp_path, ending)), label="label")
    assert stream.source.class_names == list(dict.fromkeys(COLUMNS["label"]))
    assert stream.source.read(np.arange(2)).tolist() == [[0.5, 0], [1.5, 1]]


def test_predictions_and_labels_meet(tmp_path: Path) -> None:
    """As pandas writes whole numbers next to a missing one, booleans, and blanks."""
    for label, prediction in (("1", "1.0"), ("1", "True"), ("UP", " UP "), ("0", "false")):
        path = tmp_path / "log.csv"
        other = "DOWN" if label == "UP" else "2"
        rows = [f"{label},{prediction}", f"{other},{other}", f"{other},"] * 100
        path.write_text("label,prediction\n" + "\n".join(rows) + "\n")
        result = audit(path)
        assert result.online.value == 1
        assert result.online.samples == 200


def test_first_rows_decide_for_a_whole_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """A column of names has a name NA, also in a piece without other names."""
    monkeypatch.setattr(base, "PIECE_ROWS", 2)
    table = ArrowTable(pa.table({"label": ["DE", "FR", "NA", "1", "3", "NA"]}), "t")
    words = Vocabulary()
    codes = [words.encode(piece["label"]) for piece in table.pieces(["label"], ["label"])]
    assert np.concatenate(codes).tolist() == [0, 1, 2, 3, 4, 2]
    table = ArrowTable(pa.table({"label": ["1", "2", "NA", "FR"]}), "t")
    words = Vocabulary()
    codes = [words.encode(piece["label"]) for piece in table.pieces(["label"], ["label"])]
    assert np.concatenate(codes).tolist() == [0, 1, -1, 2]
    parser = TimeParser("time")
    assert parser.seconds(pa.chunked_array([[1_700_000_000_000]])).tolist() == [1.7e9]
    assert parser.seconds(pa.chunked_array([[5_000]])).tolist() == [5.0]


def test_users_and_labels_by_a_slow_version() -> None:
    rng = np.random.default_rng(0)
    for texts in (["b", "a", "", "c"], ["3", "10", "2"], ["3", "x", "10"]):
        cells = [texts[n] for n in rng.integers(0, len(texts), 40)]
        column = clean_text(pa.chunked_array([cells[:15], cells[15:]]))[0]
        groups = code_groups(column, "user")
        for at, other in ((a, b) for a in range(40) for b in range(40)):
            assert (groups.code[at] == groups.code[other]) == (cells[at] == cells[other])
        label, names = code_labels(column, Rows(40, "t", on_bad="skip"), "names")
        assert names is not None
        spelled = [names[code] if code >= 0 else "" for code in label]
        assert spelled == cells


def test_numbers_are_times_where_they_never_decrease(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for times in ((5, 3, 4), (3, 4, 5)):
        path.write_text("time,a,label\n" + "".join(f"{t},{n},0\n" for n, t in enumerate(times)))
        for setting in ("", "none"):
            stream = sg.stream("tabular", path=str(path), time=setting)
            if setting == "" and times == (3, 4, 5):
                assert stream.source.columns["time"].tolist() == [3, 4, 5]
                assert stream.spec.input_shape == (1,)
            else:
                assert "time" not in stream.source.columns
                assert stream.source.read(np.arange(3))[:, 0].tolist() == list(times)
    path.write_text("time,a,label\n5,1,0\n3,2,1\n4,3,1\n")
    with pytest.raises(StreamgaugeError, match="go backwards"):
        sg.stream("tabular", path=str(path), time="time")
    stream = sg.stream("tabular", path=str(path), order="time")
    assert stream.source.read(stream.order).tolist() == [[2], [3], [1]]
    path.write_text("date,a,label\n2024-01-31,1,0\n2024-02-01,2,1\n")
    stream = sg.stream("tabular", path=str(path))
    assert stream.source.columns["time"].tolist() == [1_706_659_200, 1_706_745_600]
    assert stream.source.read(np.arange(2)).tolist() == [[1], [2]]
