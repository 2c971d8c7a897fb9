"""Tables of unusual forms that were once read wrongly or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

import streamgauge as sg
from streamgauge.audit.log import PredictionLog
from streamgauge.audit.tally import join
from streamgauge.errors import StreamgaugeError
from streamgauge.tables.read import open_table
from streamgauge.tables.roles import code_labels
from streamgauge.tables.rows import Rows


def write(folder: Path, text: str) -> str:
    path = folder / "t.csv"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("index", [pa.int8(), pa.uint32(), pa.int64()])
@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_categories_with_any_index(tmp_path: Path, index: pa.DataType, ending: str) -> None:
    names = pa.array(["wren", "robin", None, "wren"]).dictionary_encode()
    label = pa.DictionaryArray.from_arrays(pa.array([0, 1, 1, 0], index), names.dictionary)
    guess = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0], index), [" wren", "robin"])
    table = pa.table({"x": [1.0, 2.0, 3.0, 4.0], "label": label, "prediction": guess})
    path = tmp_path / f"t.{ending}"
    pq.write_table(table, path) if ending == "parquet" else feather.write_feather(table, path)
    source = sg.stream("tabular", path=str(path), drop=("prediction",)).source
    assert (source.label.tolist(), source.class_names) == ([0, 1, 1, 0], ["wren", "robin"])
    rows = join(list(PredictionLog(path).pieces()))
    assert rows.label.tolist() == [0, 1, 1, 0]
    assert rows.prediction is not None
    assert rows.prediction.tolist() == [0, 1, -1, 0]


def test_labels_below_0_with_known_names_are_bad_rows() -> None:
    column = pa.chunked_array([[0, -1, -2, -3, -7, 5, 1]])
    rows = Rows(7, "t", on_bad="skip")
    code_labels(column, rows, known=["a", "b"])
    assert rows.good.tolist() == [True] + [False] * 5 + [True]
    assert rows.left_out == {"missing label": 4, "unknown label": 1}
    with pytest.raises(StreamgaugeError, match=r"Row 2 .* has the label '-1': labels are whole"):
        code_labels(column, Rows(7, "t"), known=["a", "b"])


@pytest.mark.parametrize("first", ["sep=;", "\ufeffsep=;", '"sep=;"', "SEP=;\r", "sep=; "])
@pytest.mark.parametrize("header", [True, False])
def test_the_separator_that_excel_reads_in_the_first_line(
    tmp_path: Path, first: str, header: bool
) -> None:
    rows = ["a,1;2,5;cat", "b;3,5;dog", "c;4;cat"]  # a comma within text, and decimal commas
    path = write(tmp_path, "\n".join([first, *["note;x;label"] * header, *rows]) + "\n")
    reader = open_table(path)
    without = ["column_1", "column_2", "column_3"]
    assert reader.names == (["note", "x", "label"] if header else without)
    table = reader.read()
    assert table[reader.names[0]].to_pylist() == ["a,1", "b", "c"]
    assert table[reader.names[1]].to_pylist() == [2.5, 3.5, 4.0]
    assert reader.row_name(1) == f"Line {header + 3}"


def test_a_declared_separator_may_be_any_mark(tmp_path: Path) -> None:
    path = write(tmp_path, "sep=^\nx^label\n1,2^cat\n3^dog\n")
    assert open_table(path).names == ["x", "label"]
    with pytest.raises(StreamgaugeError, match="is empty"):
        open_table(write(tmp_path, "sep=;\n"))


@pytest.mark.parametrize(
    ("rows", "footer"),
    [
        ("wren,1,2\nrobin,2,3\nwren,3,4\nTotal,,\n", "Total"),
        ("wren,1,a\nrobin,2,b\nwren,3,b\nTotal,6,\n", "Total"),
        ("0,1,2\n1,2,3\n0,3,4\n2,,\n", "2"),
        ("wren,1,2\nrobin,2,3\nwren,3,4\nowl,7,9\n", ""),  # a class that is new
        ("wren,1,2\nrobin,2,3\nwren,3,4\nwren,,\n", ""),
        ("wren,1,2\nrobin,2,\nwren,,\nowl,1,\n", ""),
    ],
)
def test_a_footer_that_becomes_a_class_is_announced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: str, footer: str
) -> None:
    stream = sg.stream("tabular", path=write(tmp_path, "bird,a,b\n" + rows), label="bird")
    assert len(stream.source) == 4
    said = capsys.readouterr().err
    assert ("if it is a footer" in said) == bool(footer)
    assert not footer or f"The last row alone has the class '{footer}'" in said


@pytest.mark.parametrize("header", [True, False])
def test_a_first_line_of_any_length(tmp_path: Path, header: bool) -> None:
    names = [f"a long name of column {n}" for n in range(6000)]
    rows = [",".join([*("1.25" for _ in names), label]) for label in ("a", "b", "a")]
    path = write(tmp_path, "\n".join([",".join([*names, "label"])] * header + rows) + "\n")
    reader = open_table(path)
    assert reader.names[-2:] == ([names[-1], "label"] if header else ["column_6000", "column_6001"])
    label = "label" if header else "column_6001"
    assert reader.read([label])[label].to_pylist() == ["a", "b", "a"]


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("label,prediction,0,1\ncat,dog,0.2,0.8\n", True),
        ("label,0,1\na,0.5,0.6\n", True),
        ("label,0\na,1\n", True),
        ("species,2019,2020\na,5,6\n", True),
        ("country,2019,2020\nDE,5,6\n", True),
        ("DE,2019,2020\nFR,2018,2021\n", False),
        ("DE,5,6\nFR,5,7\n", False),
        ("1.5,2.5,cell\n1.0,2.0,tissue\n3.0,2.0,cell\n", False),
        ("1,1,class\n2,3,order\n", False),
        ("NA,1.5,a\n2.5,1.5,b\n", False),
        ("5.1,3.5,setosa\n4.9,3.0,virginica\n", False),
    ],
)
def test_first_lines_with_numbers(text: str, header: bool) -> None:
    first = text.splitlines()[0].split(",")
    expected = first if header else [f"column_{n + 1}" for n in range(len(first))]
    assert open_table(text.encode()).names == expected


def test_decimal_commas_without_a_header() -> None:
    for text in ("1,5;2,5;a\n2,5;3,5;b\n", "1,5\t2,5\ta\n2,5\t3,5\tb\n", "1,5|2,5|a\n2,5|3,5|b"):
        table = open_table(text.encode()).read()
        assert list(table.to_pydict().values()) == [[1.5, 2.5], [2.5, 3.5], ["a", "b"]]
    assert len(open_table(b"1,2,a;b\n3,4,c;d\n").names) == 3
    assert len(open_table(b"1,2,3;4\n3,4,5;6\n").names) == 3


def test_names_of_two_words_are_one_column(tmp_path: Path) -> None:
    for text in ("file name\nbig dog\nold cat\n", "image name\nimage 1\nimage 2\n"):
        assert open_table(write(tmp_path, text)).names == [text.splitlines()[0]]
    assert open_table(write(tmp_path, "a b label\n1 2 x\n3 4 y\n")).names == ["a", "b", "label"]
    (tmp_path / "t.txt").write_text("file label\na.png dog\nb.png cat\n")
    assert open_table(tmp_path / "t.txt").names == ["file", "label"]


def test_names_that_look_like_numbers(tmp_path: Path) -> None:
    def classes(*labels: str) -> tuple[list[int], list[str] | None]:
        text = "x,label\n" + "".join(f"{n}.5,{label}\n" for n, label in enumerate(labels))
        path = write(tmp_path, text)
        codes = join(list(PredictionLog(path).pieces())).label
        source = sg.stream("tabular", path=path).source
        same = [[a == b for b in codes] for a in codes]
        assert same == [[a == b for b in source.label] for a in source.label]
        names = source.class_names
        return source.label.tolist(), None if names is None else list(names)

    assert classes("1e3", "4e2", "a3f", "400") == ([0, 1, 2, 3], ["1e3", "4e2", "a3f", "400"])
    assert classes("3.10", "3.1", "pypy") == ([0, 1, 2], ["3.10", "3.1", "pypy"])
    assert classes("1.000e+00", "0.000e+00", "2") == ([1, 0, 2], None)
    assert classes("1e1", "10", "2") == ([0, 0, 1], ["10", "2"])
    for labels in (("3.10", "3"), ("0.5", "0.25"), ("1e-3", "1")):
        with pytest.raises(StreamgaugeError, match=labels[0]):
            classes(*labels)


def test_scores_for_predictions_of_names_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "label,prediction\ncat,0.75\ndog,0.5\n")
    with pytest.raises(StreamgaugeError, match=r"'prediction' holds floating-point .* 0\.75"):
        list(PredictionLog(path).pieces())


def test_many_categories_of_numbers() -> None:
    values = pa.DictionaryArray.from_arrays(pa.array(range(128), pa.uint8()), pa.array(range(128)))
    small = pa.DictionaryArray.from_arrays(values.indices.cast(pa.int8()), values.dictionary)
    rows = join(list(PredictionLog(pa.table({"label": small})).pieces()))
    assert rows.label.tolist() == list(range(128))


def test_two_columns_with_names_of_labels_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "x,y,class\n1,2,0\n2,3,1\n")
    with pytest.raises(StreamgaugeError, match=r"may be 'y' or 'class': set label"):
        sg.stream("tabular", path=path)
    source = sg.stream("tabular", path=path, label="class").source
    assert (source.label.tolist(), source.read(np.arange(2)).shape) == ([0, 1], (2, 2))
    assert sg.stream("tabular", path=path, drop=("y",)).source.label.tolist() == [0, 1]


def test_one_column_of_times_and_one_of_users_are_no_inputs(tmp_path: Path) -> None:
    names = ["owner", "uid", "account", "account_id", "date", "ts", "created", "created_at"]
    rows = [[*range(n, n + len(names)), n] for n in range(3)]
    lines = [",".join(map(str, row)) for row in rows]
    path = write(tmp_path, "\n".join([",".join([*names, "label"]), *lines]) + "\n")
    source = sg.stream("tabular", path=path).source
    assert source.read(np.arange(3)).shape == (3, 6)
    found = {role: values.tolist() for role, values in source.columns.items()}
    assert found == {"time": [5, 6, 7], "user": [1, 2, 3]}
    source = sg.stream("tabular", path=path, order="time", step="album").source
    assert {role: values.tolist() for role, values in source.columns.items()} == found
    source = sg.stream("tabular", path=path, user="owner", time="none").source
    assert (source.read(np.arange(3)).shape, set(source.columns)) == ((3, 7), {"user"})
