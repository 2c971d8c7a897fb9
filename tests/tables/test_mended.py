"""Tables of unusual forms that were once read wrongly or not at all."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

import streamgauge as sg
from streamgauge.audit.log import PredictionLog
from streamgauge.audit.tally import join
from streamgauge.errors import StreamgaugeError
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
    assert (source.label.tolist(), source.class_names) == ([1, 0, 0, 1], ["robin", "wren"])
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
