"""Files as people have them: comments, lists of objects, no header; and what is said of others."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamgauge as sg
from streamgauge.errors import StreamgaugeError
from streamgauge.tables.read import open_table

ROWS = [(0.5 * i, i % 7, i % 3) for i in range(60)]


def write(folder: Path, text: str, name: str = "t.csv") -> Path:
    (folder / name).write_text(text)
    return folder / name


def lines(separator: str = ",") -> str:
    return "".join(separator.join(map(str, row)) + "\n" for row in ROWS)


@pytest.mark.parametrize(
    ("head", "names", "separator"),
    [
        (
            "# made by a sensor\n# on 3 May, at noon, in 2 runs\na,b,label\n",
            "a b label",
            ",",
        ),
        ("\n# sensor\n\na,b,label\n", "a b label", ","),
        ("#a,b,label\n", "#a b label", ","),
        ("# note\n#,b,label\n", "# b label", ","),
        ("# a b label\n", "a b label", " "),
        ("# note\n", "column_1 column_2 column_3", ","),
    ],
)
def test_comments_before_a_table(head: str, names: str, separator: str, tmp_path: Path) -> None:
    path = write(tmp_path, head + lines(separator), "t.csv" if separator == "," else "t.txt")
    table = open_table(path)
    assert table.names == names.split()
    read = table.read()
    assert read[table.names[0]].to_pylist() == [row[0] for row in ROWS]
    assert table.row_name(2) == f"Line {head.count(chr(10)) + 3}"


@pytest.mark.parametrize("header", [None, False])
def test_rows_that_begin_with_a_hash_are_no_comments(header: bool | None, tmp_path: Path) -> None:
    path = write(tmp_path, "# posts by hand\n#fun,1\n#sad,0\n#dull,1\nplain,0\n", "t.csv")
    table = open_table(path, header=header)
    assert table.read().to_pydict() == {
        "column_1": ["#fun", "#sad", "#dull", "plain"], "column_2": [1, 0, 1, 0],
    }  # fmt: skip
    assert table.row_name(1) == "Line 3"


def test_cells_of_one_line_are_not_searched_for_rows(tmp_path: Path) -> None:
    rows = "".join(f'"{row} {"x" * 50}",{row % 2}\n' for row in range(20_000))
    table = open_table(write(tmp_path, f"text,label\n{rows}", "t.csv"))
    tracemalloc.start()
    table.read()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 500_000  # bytes of Python's objects; 20,000 texts have 2 MB


def test_what_numpy_writes_is_read(tmp_path: Path) -> None:
    values = np.array(ROWS, float)
    np.savetxt(tmp_path / "t.dat", values, header="made by NumPy\na b label")
    read = open_table(tmp_path / "t.dat").read()
    assert read.column_names == ["a", "b", "label"]
    assert np.allclose(np.array([read[name].to_pylist() for name in read.column_names]).T, values)


def test_a_line_before_the_header_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "60,3,1,2\na,b,label\n" + lines())
    with pytest.raises(StreamgaugeError, match=r"first line of .* has 4 cells and the next .* 3:"):
        sg.stream(path)


def test_a_list_of_objects_is_a_table(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"a": a, "b": b, "label": c} for a, b, c in ROWS]
    del rows[0]["b"]
    objects = open_table(write(tmp_path, " " + json.dumps(rows, indent=1), "t.json")).read()
    one_per_line = "\n".join(map(json.dumps, rows))
    assert objects == open_table(write(tmp_path, one_per_line, "t.jsonl")).read(
        objects.column_names
    )
    for text, sentence in (
        ('{"a": {"0": 1}, "b": {"0": 2}}', "one object of columns: write one object per row"),
        ("[1, 2]", "is a list, but not one of objects"),
        ("[]", "is a list, but not one of objects"),
        ('[{"a": 1}, {"a": ', "may be damaged or cut off"),
    ):
        with pytest.raises(StreamgaugeError, match=sentence):
            open_table(write(tmp_path, text, "bad.json")).read()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (lines(), r"Perhaps it is 'column_3', which has 3 values in the first 60 rows: 0, 1, 2\.$"),
        ("kind,x\n" + "".join(f"{b},{a}\n" for a, b, _ in ROWS), "Perhaps it is 'kind', .* 7 val"),
        ("x,z\n" + "".join(f"{a},{a}\n" for a, _, _ in ROWS), r"the columns are x, z\.$"),
        (lines().replace(",", ",1:"), "'1:0' are of the format LIBSVM"),
        (",".join(f"c{i}" for i in range(30)) + "\n" + ",".join("1" * 30) + "\n",
         r"c18, c19 and 10 more\.$"),
    ],
)  # fmt: skip
def test_a_table_without_a_label_says_which_column_may_be_it(
    text: str, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(StreamgaugeError, match=sentence):
        sg.stream(write(tmp_path, text))


def test_a_table_whose_columns_are_all_dropped_has_no_label(tmp_path: Path) -> None:
    with pytest.raises(StreamgaugeError, match=r"looks like the label: .* columns are none"):
        sg.stream(write(tmp_path, "a,b\n1,2\n"), drop=("a", "b"))


def test_an_empty_column_is_no_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "a,b,label,\n" + lines().replace("\n", ",\n"))
    for on_bad in ("fill", "skip", "refuse"):
        stream = sg.stream(path, on_bad=on_bad)
        assert stream.spec.input_shape == (2,)
        assert len(stream.source) == 60
    assert "Columns left out: 'column_4' (no value in any row)." in capsys.readouterr().err
