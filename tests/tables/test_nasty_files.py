"""Files that were read wrongly in silence: each is refused, mended or announced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import streamgauge as sg
from streamgauge.errors import StreamgaugeError
from streamgauge.tables.columns import announce

ROWS = [f"{n % 7}.5,{n % 5}.25,{n % 2}" for n in range(60)]
HEADER = "a,b,label"


def read(tmp_path: Path, lines: list[str], name: str = "t.csv") -> Any:
    (tmp_path / name).write_text("\n".join(lines) + "\n")
    announce.cache_clear()
    return sg.stream("tabular", path=str(tmp_path / name)).source


def inputs(source: Any) -> Any:
    return source.read(np.arange(len(source)))


@pytest.mark.parametrize("places", [(30,), (30, 45)])
def test_a_quotation_mark_that_is_not_closed_swallows_no_rows(
    places: tuple[int, ...], tmp_path: Path
) -> None:
    lines = [HEADER, *ROWS]
    for place in places:
        lines[place] = '1.5,2.5,"1'
    with pytest.raises(StreamgaugeError, match=r"'label' in .* holds rows of the table"):
        read(tmp_path, lines)


def test_text_with_line_breaks_is_read(tmp_path: Path) -> None:
    lines = [f'"See\n{row[0]}, or, so",{row}' for row in ROWS]
    assert len(read(tmp_path, [f"note,{HEADER}", *lines])) == 60


def test_files_that_were_joined_with_their_headers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StreamgaugeError, match=r"The header of .* comes again among its rows"):
        read(tmp_path, [HEADER, *ROWS, HEADER, *ROWS])
    rng = np.random.default_rng(0)
    log = [f"{'ab'[n]},{'ab'[n]}" for n in rng.integers(0, 2, 300)]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(["label,prediction", *log, "label,prediction", *log]))
    with pytest.raises(StreamgaugeError, match="comes again"):
        sg.audit_log(path)


def test_units_below_the_header_are_no_sample(tmp_path: Path) -> None:
    lines = [HEADER, "kg,m,-", *ROWS]
    with pytest.raises(StreamgaugeError, match=r"Line 2 .* text in every column of numbers"):
        read(tmp_path, lines)
    source = sg.stream("tabular", path=str(tmp_path / "t.csv"), on_bad="skip").source
    assert (len(source), source.spec.classes) == (60, 2)


def test_a_separator_at_the_end_of_each_row_shifts_no_column(tmp_path: Path) -> None:
    source = read(tmp_path, [HEADER, *(f"{row}," for row in ROWS)])
    assert source.label.tolist() == [n % 2 for n in range(60)]
    assert inputs(source)[:3, 0].tolist() == [0.5, 1.5, 2.5]


def test_commas_within_cells_of_a_tsv_do_not_separate(tmp_path: Path) -> None:
    lines = ["name, first\tlabel", *(f"s{n % 5}, {n % 3}\t{n % 2}" for n in range(60))]
    assert read(tmp_path, lines, "t.tsv").label.tolist() == [n % 2 for n in range(60)]


def test_quotation_marks_after_a_backslash_are_refused(tmp_path: Path) -> None:
    lines = [f'"he said \\"hi\\", ok",{row}' for row in ROWS]
    with pytest.raises(StreamgaugeError, match="write them twice"):
        read(tmp_path, [f"note,{HEADER}", *lines])


@pytest.mark.parametrize("name", ["", "index", "PassengerId", "Loan_ID", "sample id"])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_shuffled_index_is_no_input(name: str, ending: str, tmp_path: Path) -> None:
    """Of rows that were sorted by their labels, the index gives the label away."""
    frame = pd.DataFrame({"a": np.arange(60) % 7 + 0.5, "label": np.arange(60) // 30})
    frame = frame.sample(frac=1, random_state=0).rename_axis(name or None)
    path = tmp_path / f"t.{ending}"
    frame.to_csv(path) if ending == "csv" else frame.to_parquet(path)
    source = sg.stream("tabular", path=str(path)).source
    assert source.spec.input_shape == (1,)
    kept = sg.stream("tabular", path=str(path), id="none").source
    assert kept.spec.input_shape == (2,)


def test_numbers_of_rows_that_repeat_are_inputs(tmp_path: Path) -> None:
    lines = [f"{n % 6},{row}" for n, row in enumerate(ROWS)]
    assert read(tmp_path, [f"index,{HEADER}", *lines]).spec.input_shape == (3,)


def test_axes_of_a_sensor_are_no_labels(tmp_path: Path) -> None:
    lines = [f"{n % 7},{n % 5},{n % 3},{n % 2}" for n in range(60)]
    assert read(tmp_path, ["x,y,z,class", *lines]).spec.classes == 2
    with pytest.raises(StreamgaugeError, match="Perhaps it is 'activity'"):
        read(tmp_path, ["x,y,z,activity", *lines])
    assert read(tmp_path, ["x,y", "0.5,1", "0.5,0"]).label.tolist() == [1, 0]


@pytest.mark.parametrize("step", [1, 30])
def test_times_in_seconds_keep_their_digits(step: int, tmp_path: Path) -> None:
    """As 32-bit numbers, times that are 64 seconds apart were the same."""
    lines = [f"{1_700_000_000 + step * (n % 9)},{row}" for n, row in enumerate(ROWS)]
    column = inputs(read(tmp_path, [f"stamp,{HEADER}", *lines]))[:, 0]
    assert column.tolist() == [float(step * (n % 9)) for n in range(60)]


def test_whole_numbers_of_64_bits_are_inputs(tmp_path: Path) -> None:
    lines = [f"{10**18 + 10**6 * (n % 9) + n},{row}" for n, row in enumerate(ROWS)]
    assert len(set(inputs(read(tmp_path, [f"big,{HEADER}", *lines]))[:, 0].tolist())) >= 9


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (["yes", "no", "Yes"], "'yes' and 'Yes' differ in spelling alone"),
        (["caf\u00e9", "no", "cafe\u0301"], "differ in spelling alone"),
        (["1", "0", "01"], "'1' and '01' differ in spelling alone"),
        (["yes", "no", "?"], "'?' is a class: leave the cell empty"),
        ([str(10_000 + 37 * n) for n in range(60)], "Most rows have a label of their own (60"),
    ],
)
def test_labels_that_may_be_mistaken_are_announced(
    labels: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"{n % 7}.5,{labels[n % len(labels)]}" for n in range(60)]
    read(tmp_path, ["a,label", *lines])
    assert sentence in capsys.readouterr().err
    read(tmp_path, [HEADER, *ROWS])
    assert "differ" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("mark", "cell", "sentence"),
    [
        (";", "{:,}", "commas are decimal: 1,000 is 1.000"),
        (",", '"{:,}"', "'a' (numbers in a form that is not read, such as '1,000')"),
        (",", "${}.50", "'a' (numbers in a form that is not read, such as '$1000.50')"),
        (",", "{} %", "such as '1000 %'"),
        (",", "\u2212{}", "such as '\u22121000'"),
    ],
)
def test_numbers_as_people_write_them_are_announced(
    mark: str, cell: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [mark.join((cell.format(1000 + 7 * n), str(n % 5), str(n % 2))) for n in range(150)]
    read(tmp_path, [HEADER.replace(",", mark), *lines])
    assert sentence in capsys.readouterr().err
