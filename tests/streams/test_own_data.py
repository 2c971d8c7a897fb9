"""One's own data by name: folders, tables, arrays, Hugging Face folders, tar shards."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import re
import sys
import tarfile
import types
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import streamgauge as sg
from streamgauge import catalogue
from streamgauge.errors import StreamgaugeError, as_keywords
from streamgauge.streams.images.items import ArrowItems, FileItems, ParquetItems, TarItems
from streamgauge.tables.columns import announce, choose


@pytest.fixture(autouse=True)
def _say_again() -> None:
    announce.cache_clear()


def pixels(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, (6, 6, 3)).astype(np.uint8)


def png(number: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels(number)).save(file, "PNG")
    return file.getvalue()


def put(path: Path, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(png(number))


def shows(stream: sg.streams.Stream, sample: int, number: int) -> bool:
    found = stream.source.read(np.array([sample]))[0]
    return bool((found == pixels(number).transpose(2, 0, 1)).all())


# Folders


def test_folder_by_class(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, name in enumerate(["b/1.png", "a/2.png", "a/deep/3.png", "c/4.png"]):
        put(tmp_path / name, number)
    (tmp_path / "readme.txt").write_text("hello")
    (tmp_path / "a" / ".hidden.png").write_text("hello")
    stream = sg.stream("folder", path=str(tmp_path), size=6, order="given")
    assert stream.source.class_names == ["a", "b", "c"]
    assert stream.source.label.tolist() == [0, 0, 1, 2]  # by path: a/2, a/deep/3, b/1, c/4
    assert [shows(stream, i, n) for i, n in enumerate([1, 2, 0, 3])] == [True] * 4
    said = capsys.readouterr().err
    assert "3 classes, 4 images brought to 6 x 6" in said
    assert "1 other files" in said
    assert stream.notes["other_files"] == 1
    again = sg.stream("folder", path=str(tmp_path), size=6, order="given")
    assert again.source.fingerprint == stream.source.fingerprint
    (tmp_path / "a" / "2.png").write_bytes(png(1) + b"more")
    changed = sg.stream("folder", path=str(tmp_path), size=6, order="given")
    assert changed.source.fingerprint != stream.source.fingerprint


def test_folder_with_official_splits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, name in enumerate(
        ["train/a/1.png", "train/b/1.png", "test/a/9.png", "val/b/5.png"]
    ):
        put(tmp_path / name, number)
    stream = sg.stream("folder", path=str(tmp_path), size=6)
    assert stream.samples == 2
    assert len(stream.splits["test"]) == 1
    assert shows(stream, int(stream.splits["test"].index[0]), 2)
    assert "train is streamed, test is evaluated on, 'val' is not used" in capsys.readouterr().err
    both = sg.stream("folder", path=str(tmp_path), size=6, test="test,val")
    assert len(both.splits["test"]) == 2
    put(tmp_path / "cat" / "1.png", 0)
    with pytest.raises(StreamgaugeError, match="may be a split or a class"):
        sg.stream("folder", path=str(tmp_path), size=6)
    assert sg.stream("folder", path=str(tmp_path), size=6, layout="class").spec.classes == 4


def test_folder_by_domain(tmp_path: Path) -> None:
    for number, name in enumerate(["2004/a/1.png", "2005/a/1.png", "2004/b/1.png"]):
        put(tmp_path / name, number)
    stream = sg.stream(
        "folder", path=str(tmp_path), size=6, layout="domain/class", order="domains", batch=1
    )
    assert stream.tasks == 2
    assert stream.source.columns["domain"].tolist() == [0, 0, 1]


def test_folder_errors(tmp_path: Path) -> None:
    with pytest.raises(StreamgaugeError, match="The stream folder needs its data: path PATH"):
        sg.stream("folder")
    with pytest.raises(StreamgaugeError, match="There is nothing at"):
        sg.stream("folder", path=str(tmp_path / "no"))
    with pytest.raises(StreamgaugeError, match="There is no image below"):
        sg.stream("folder", path=str(tmp_path))
    put(tmp_path / "1.png", 0)
    with pytest.raises(StreamgaugeError, match="nothing says their classes"):
        sg.stream("folder", path=str(tmp_path))
    put(tmp_path / "a" / "1.png", 0)
    with pytest.raises(StreamgaugeError, match=r"'1\.png' is in no class folder"):
        sg.stream("folder", path=str(tmp_path))
    stream = sg.stream("folder", path=str(tmp_path), on_bad="skip")
    assert stream.notes["left_out"] == {"file in no class": 1}
    with pytest.raises(StreamgaugeError, match="is a file, not a folder"):
        sg.stream("folder", path=str(tmp_path / "1.png"))


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "secret.png", 0)
    put(tmp_path / "data" / "a" / "1.png", 1)
    put(tmp_path / "data" / "b" / "1.png", 2)
    (tmp_path / "data" / "a" / "in.png").symlink_to(tmp_path / "data" / "b" / "1.png")
    assert len(sg.stream("folder", path=str(tmp_path / "data"), size=6).source) == 3
    (tmp_path / "data" / "a" / "out.png").symlink_to(tmp_path / "secret.png")
    with pytest.raises(StreamgaugeError, match=r"'a/out\.png', which leaves the folder"):
        sg.stream("folder", path=str(tmp_path / "data"), size=6)
    stream = sg.stream("folder", path=str(tmp_path / "data"), size=6, on_bad="skip")
    assert stream.notes["left_out"] == {"path outside the folder": 1}


def test_a_link_to_a_folder_is_not_passed_over_in_silence(tmp_path: Path) -> None:
    put(tmp_path / "data" / "a" / "1.png", 1)
    put(tmp_path / "else" / "1.png", 2)
    (tmp_path / "data" / "b").symlink_to(tmp_path / "else")
    with pytest.raises(StreamgaugeError, match=r"'b' below .* is a link to a folder"):
        sg.stream("folder", path=str(tmp_path / "data"))
    stream = sg.stream("folder", path=str(tmp_path / "data"), on_bad="skip")
    assert stream.notes["linked_folders"] == 1
    assert stream.spec.classes == 1


# Tables


def csv(folder: Path, text: str, name: str = "photos.csv") -> str:
    for number in range(5):
        put(folder / "img" / f"{number}.png", number)
    (folder / name).write_text(text)
    return str(folder / name)


TABLE = """file_name,species,observed_on,observer,lat,lon,weather
img/0.png,wren,2020-01-01T10:00:00,ann,10.5,20.5,dry
img/1.png,robin,2020-01-01T10:00:30,bob,,,wet
img/2.png,wren,2020-01-02T00:00:00,ann,-3,4,wet
"""


def test_csv_columns_are_guessed_and_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = sg.stream("manifest", path=csv(tmp_path, TABLE), size=6)
    source = stream.source
    assert source.class_names == ["wren", "robin"]
    assert source.label.tolist() == [0, 1, 0]
    start = np.datetime64("2020-01-01T10:00:00").astype("datetime64[s]").astype(int)
    assert source.columns["time"].tolist() == [start, start + 30, start + 14 * 3600]
    assert source.columns["user"].tolist() == [0, 1, 0]
    assert np.isnan(source.columns["latitude"][1])
    assert source.columns["longitude"][2] == 4
    assert shows(stream, 2, 2)
    said = capsys.readouterr().err
    assert "label = 'species', time = 'observed_on', user = 'observer', latitude = 'lat'" in said
    assert "not used: weather; say image='COLUMN', and so on, to change it." in said
    assert stream.notes["columns"]["label"] == "species"
    assert stream.describe()["notes"] == stream.notes


def test_tables_with_semicolons_tabs_and_gzip(tmp_path: Path) -> None:
    for mark, name in ((";", "a.csv"), ("\t", "a.tsv")):
        stream = sg.stream("manifest", path=csv(tmp_path, TABLE.replace(",", mark), name), size=6)
        assert stream.source.class_names == ["wren", "robin"]
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(TABLE.encode()))
    stream = sg.stream("manifest", path=str(tmp_path / "a.csv.gz"), size=6)
    assert shows(stream, 1, 1)
    (tmp_path / "bad.csv").write_bytes(b"path,label\n\xff\xfe.png,1\n")
    with pytest.raises(StreamgaugeError, match="cannot be read"):
        sg.stream("manifest", path=str(tmp_path / "bad.csv"))


def test_a_column_can_be_named_or_left_out(tmp_path: Path) -> None:
    path = csv(tmp_path, TABLE)
    stream = sg.stream("manifest", path=path, label="weather", time="none", user="none")
    assert stream.source.class_names == ["dry", "wet"]
    assert set(stream.source.columns) == {"latitude", "longitude"}
    with pytest.raises(StreamgaugeError, match=r"no column 'specie'.*did you mean 'species'"):
        sg.stream("manifest", path=path, label="specie")
    both = csv(tmp_path, TABLE.replace("weather", "class"))
    with pytest.raises(StreamgaugeError, match=r"It may be 'species' or 'class': set label"):
        sg.stream("manifest", path=both)
    none = csv(tmp_path, TABLE.replace("species", "what"))
    with pytest.raises(StreamgaugeError, match=r"No column of 'photos.csv' looks like the label"):
        sg.stream("manifest", path=none)
    with pytest.raises(StreamgaugeError, match="looks like the path of an image"):
        sg.stream("manifest", path=csv(tmp_path, TABLE.replace("file_name", "what")))


@pytest.mark.parametrize(
    ("bad", "kind", "sentence"),
    [
        ("../secret.png,wren", "path outside the folder", "leaves the folder"),
        ("img/../../secret.png,wren", "path outside the folder", "leaves the folder"),
        ("/etc/passwd,wren", "path outside the folder", "leaves the folder"),
        ("C:/x.png,wren", "path outside the folder", "leaves the folder"),
        (",wren", "missing path", "has no path"),
        ("img/77.png,wren", "missing file", "which is not in"),
        ("img,wren", "missing file", "which is not in"),
        ("img/0.png,robin", "repeated path", "of an earlier one"),
        ("img/./0.png,robin", "repeated path", "of an earlier one"),
        ("img/1.png,", "missing label", "has no label"),
    ],
)
def test_bad_rows_are_fatal_or_counted(
    tmp_path: Path, bad: str, kind: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path / "secret.png", 9)
    path = csv(tmp_path / "in", f"path,label\nimg/0.png,wren\n{bad}\nimg/2.png,robin\n")
    with pytest.raises(StreamgaugeError, match=sentence) as caught:
        sg.stream("manifest", path=path)
    assert "Line 3 of 'photos.csv'" in str(caught.value)
    assert "on_bad skip" in str(caught.value)
    stream = sg.stream("manifest", path=path, on_bad="skip", size=6)
    assert stream.notes["left_out"] == {kind: 1}
    assert stream.source.label.tolist() == [0, 1]
    assert [shows(stream, 0, 0), shows(stream, 1, 2)] == [True, True]
    assert f"1 of 3 left out: 1 {kind}." in capsys.readouterr().err


def test_bad_images_of_a_table_are_counted_with_the_rows(tmp_path: Path) -> None:
    path = csv(
        tmp_path,
        "path,label,split\nimg/0.png,a,train\nimg/1.png,b,test\nimg/2.png,,train\nimg/3.png,b,train\n"
        "img/4.png,a,test\n",
    )
    (tmp_path / "img" / "1.png").write_bytes(png(1)[:70])
    stream = sg.stream("manifest", path=path, size=6, on_bad="skip")
    assert stream.notes["left_out"] == {"missing label": 1, "bad image (damaged)": 1}
    assert stream.samples == 2
    assert stream.splits["test"].index.tolist() == [2]
    assert shows(stream, 2, 4)


def test_absolute_paths_inside_the_folder_are_fine(tmp_path: Path) -> None:
    path = csv(tmp_path, f"path,label\n{tmp_path / 'img' / '1.png'},a\nimg/0.png,b\n")
    assert shows(sg.stream("manifest", path=path, size=6), 0, 1)
    other = tmp_path / "else" / "table.csv"
    other.parent.mkdir()
    other.write_text("path,label\n1.png,a\n0.png,b\n")
    stream = sg.stream("manifest", path=str(other), root=str(tmp_path / "img"), size=6)
    assert shows(stream, 0, 1)


def test_labels_as_numbers_and_names(tmp_path: Path) -> None:
    def labels(values: list[object], **settings: object) -> sg.streams.Source:
        rows = "".join(f"img/{i}.png,{v}\n" for i, v in enumerate(values))
        return sg.stream("manifest", path=csv(tmp_path, "path,label\n" + rows), **settings).source

    assert labels([2, 0, 1]).label.tolist() == [2, 0, 1]  # exactly 0..C-1: as they are
    assert labels([2, 0, 1]).class_names is None
    assert labels([2, 0, 1], labels="names").class_names == ["0", "1", "2"]
    assert labels([0, 3, 3], labels="numbers").label.tolist() == [0, 3, 3]
    assert labels([0, 3, 3], labels="numbers").spec.classes == 4
    far = labels([47219, 12, 47219])  # ids, not class numbers
    assert far.label.tolist() == [0, 1, 0]
    assert far.class_names == ["47219", "12"]
    assert labels([1, -1, 1]).class_names == ["1", "-1"]
    assert labels([47219, 12, 47219], labels="numbers").spec.classes == 47220
    assert labels([0, 3, 3], labels="names").class_names == ["0", "3"]
    listed = tmp_path / "ids.txt"  # ids that a file lists, in its order
    listed.write_text("47219\n12\n")
    assert labels([47219, 12], labels="names", names=str(listed)).label.tolist() == [0, 1]
    with pytest.raises(StreamgaugeError, match="unknown label '13'"):
        labels([47219, 13], labels="names", names=str(listed))
    assert labels(["true", "false"]).label.tolist() == [1, 0]
    assert labels(["NA", "DE", "b"]).class_names == ["NA", "DE", "b"]  # Namibia, among names
    for nothing in ("", "null", "nan", "None"):
        with pytest.raises(StreamgaugeError, match=r"Line 3 .* has no label"):
            labels(["a", nothing, "b"])
    assert labels(["1.0", "0.0", ""], on_bad="skip").label.tolist() == [1, 0]
    with pytest.raises(StreamgaugeError, match=r"0\.5, but labels are whole numbers or names"):
        labels([0.5, 1.0])
    with pytest.raises(StreamgaugeError, match="has the label '-1': labels are whole numbers"):
        labels([0, -1], labels="numbers")
    names = tmp_path / "names.txt"
    names.write_text("wren\nrobin\n")
    assert labels(["robin", "wren"], names=str(names)).label.tolist() == [1, 0]
    for below in (-1, -2, -3, -7):
        with pytest.raises(StreamgaugeError, match=rf"Line 3 .* has the label '{below}': labels"):
            labels([0, below, 1], names=str(names))
        assert labels([0, below, 1], names=str(names), on_bad="skip").label.tolist() == [0, 1]
    with pytest.raises(StreamgaugeError, match="unknown label 'crow'"):
        labels(["robin", "crow"], names=str(names))
    with pytest.raises(StreamgaugeError, match="unknown label '2'"):
        labels([0, 2], names=str(names))
    kept = labels(["crow", "wren"], names=str(names), on_bad="skip")
    assert kept.label.tolist() == [0]
    assert kept.spec.classes == 2


def test_times_in_many_forms_and_backwards(tmp_path: Path) -> None:
    def times(*values: str, **settings: object) -> sg.streams.Stream:
        rows = "".join(f'img/{i}.png,{i},"{v}"\n' for i, v in enumerate(values))
        return sg.stream("manifest", path=csv(tmp_path, "path,label,time\n" + rows), **settings)

    def found(*values: str) -> list[float]:
        return times(*values).source.columns["time"].tolist()

    assert found("1970-01-01", "1970-01-02") == [0, 86400]
    assert found("1970-01-01 00:00:01", "1970-01-01 00:00:02") == [1, 2]
    assert found("1970-01-01T01:00:00+01:00", "1970-01-01T00:00:05Z") == [0, 5]
    assert found("1970:01:01 00:00:01", "1970:01:01 00:01:00") == [1, 60]  # as cameras write
    assert found("7", "9") == [7, 9]
    assert found("1.5", "2.5") == [1.5, 2.5]
    with pytest.raises(StreamgaugeError, match="such as '3/4/2020'"):
        times("3/4/2020", "4/4/2020")
    with pytest.raises(StreamgaugeError, match="has no time"):
        times("1", "", "3")
    with pytest.raises(StreamgaugeError, match="go backwards at 1 row, first at line 4,"):
        times("1", "5", "3", "4")
    stream = times("1", "5", "3", "4", order="time")
    assert stream.order.tolist() == [0, 2, 3, 1]
    assert "time" not in times("1", "5", "3", time="none").source.columns
    assert times("1", "5", "3", order="iid").samples == 3


def test_repeated_ids_and_places_off_the_globe(tmp_path: Path) -> None:
    path = csv(tmp_path, "path,label,id,lat\nimg/0.png,0,7,1\nimg/1.png,1,8,2\nimg/2.png,1,7,3\n")
    with pytest.raises(StreamgaugeError, match=r"Line 4 .* has the id '7' of an earlier one"):
        sg.stream("manifest", path=path)
    assert sg.stream("manifest", path=path, id="none").samples == 3
    stream = sg.stream("manifest", path=path, on_bad="skip")
    assert stream.notes["left_out"] == {"repeated id": 1}
    path = csv(tmp_path, "path,label,latitude\nimg/0.png,0,91\nimg/1.png,1,8\n")
    with pytest.raises(StreamgaugeError, match=r"has the latitude 91\.0"):
        sg.stream("manifest", path=path)


def test_split_column(tmp_path: Path) -> None:
    text = "path,label,subset\n" + "".join(
        f"img/{i}.png,{i % 2},{s}\n" for i, s in enumerate(["Train", "val", "Train", "odd", "val"])
    )
    stream = sg.stream("manifest", path=csv(tmp_path, text))
    assert stream.samples == 2
    assert len(stream.splits["test"]) == 2  # no test, so the validation part
    assert "test" not in sg.stream("manifest", path=csv(tmp_path, text), test="none").splits
    chosen = sg.stream("manifest", path=csv(tmp_path, text), train="odd,val", test="Train")
    assert chosen.samples == 3
    with pytest.raises(StreamgaugeError, match="no split 'x'"):
        sg.stream("manifest", path=csv(tmp_path, text), train="x")
    with pytest.raises(StreamgaugeError, match="say which are streamed"):
        sg.stream("manifest", path=csv(tmp_path, text.replace("Train", "one")))
    with pytest.raises(StreamgaugeError, match="both streamed and tested"):
        sg.stream("manifest", path=csv(tmp_path, text), train="val", test="val")


def test_parquet_with_paths_or_bytes(tmp_path: Path) -> None:
    for number in range(6):
        put(tmp_path / f"{number}.png", number)
    label, time = [0, 1, 2, 0, 1, 2], pa.array(range(6), pa.timestamp("s"))
    paths = pa.table({"path": [f"{i}.png" for i in range(6)], "y": label, "taken_at": time})
    pq.write_table(paths, tmp_path / "p.parquet")
    stream = sg.stream("manifest", path=str(tmp_path / "p.parquet"), size=6)
    assert shows(stream, 4, 4)
    assert stream.source.columns["time"].tolist() == [0, 1, 2, 3, 4, 5]
    table = pa.table({"jpg": [png(i) for i in range(6)], "y": label, "taken_at": time})
    pq.write_table(table, tmp_path / "b.parquet", row_group_size=2)
    stream = sg.stream("manifest", path=str(tmp_path / "b.parquet"), size=6)
    assert all(shows(stream, i, i) for i in (5, 0, 3, 2, 5, 1, 4))
    assert isinstance(stream.source.items, ParquetItems)
    copy = pickle.loads(pickle.dumps(stream.source))
    assert (copy.read(np.arange(6)) == stream.source.read(np.arange(6))).all()
    assert copy.fingerprint == stream.source.fingerprint
    whole = (tmp_path / "b.parquet").read_bytes()
    (tmp_path / "b.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StreamgaugeError, match=r"Parquet file .* damaged or cut off"):
        sg.stream("manifest", path=str(tmp_path / "b.parquet"))


def test_a_folder_of_parquet_files_is_one_table(tmp_path: Path) -> None:
    for part in range(2):
        rows = range(part * 3, part * 3 + 3)
        table = pa.table({"image": [png(i) for i in rows], "label": list(rows)})
        pq.write_table(table, tmp_path / f"{part}.parquet", row_group_size=2)
    stream = sg.stream("manifest", path=str(tmp_path), size=6)
    assert all(shows(stream, i, i) for i in range(6))


def test_tables_that_cannot_be_read(tmp_path: Path) -> None:
    for text, sentence in [
        ("path,label\na,b,c,d\n", "has 2 cells and the next lines have 4"),
        ("path,label\n", "has no rows"),
        ("path,label,label\na,1,2\n", "comes twice"),
    ]:
        with pytest.raises(StreamgaugeError, match=sentence):
            sg.stream("manifest", path=csv(tmp_path, text))
    (tmp_path / "x.xlsx").write_text("")
    with pytest.raises(StreamgaugeError, match="not a table that can be read"):
        sg.stream("manifest", path=str(tmp_path / "x.xlsx"))


# Arrays


def test_npz_and_npy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, y = np.random.default_rng(0).random((8, 5)).astype(np.float32), np.arange(8) % 3
    np.savez(tmp_path / "a.npz", features=x, labels=y, time=np.arange(8))
    stream = sg.stream("arrays", path=str(tmp_path / "a.npz"), batch=2)
    assert (stream.source.read(np.arange(8)) == x).all()
    assert stream.source.columns["time"].tolist() == list(range(8))
    assert "x = 'features', label = 'labels', time = 'time'" in capsys.readouterr().err
    np.save(tmp_path / "in.npy", x)
    np.save(tmp_path / "out.npy", y)
    stream = sg.stream("arrays", path=str(tmp_path / "in.npy"), label="out.npy")
    assert (stream.source.label == y).all()
    folder = tmp_path / "folder"
    folder.mkdir()
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)
    np.save(folder / "split.npy", np.array(["train"] * 6 + ["test"] * 2))
    stream = sg.stream("arrays", path=str(folder))
    assert stream.splits["test"].index.tolist() == [6, 7]


def test_arrays_in_the_form_of_keras(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.random.default_rng(0).integers(0, 256, (9, 6, 6, 3)).astype(np.uint8)
    y = (np.arange(9) % 3)[:, None]
    np.savez(tmp_path / "c.npz", x_train=x[:6], y_train=y[:6], x_test=x[6:], y_test=y[6:])
    stream = sg.stream("arrays", path=str(tmp_path / "c.npz"), batch=2)
    assert stream.spec == ((3, 6, 6), 3)
    assert (stream.source.read(np.array([7]))[0] == x[7].transpose(2, 0, 1)).all()
    assert stream.splits["test"].index.tolist() == [6, 7, 8]
    assert "have channels last" in capsys.readouterr().err
    np.savez(tmp_path / "g.npz", x=x[..., 0], y=y[:, 0])
    assert sg.stream("arrays", path=str(tmp_path / "g.npz")).spec.input_shape == (1, 6, 6)
    np.savez(tmp_path / "u.npz", x=x[:, :3], y=y[:, 0])
    with pytest.raises(StreamgaugeError, match=r"set channels to first or last"):
        sg.stream("arrays", path=str(tmp_path / "u.npz"))


def test_arrays_that_cannot_be_used(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((3, 2)), label=np.arange(3), time=np.array([3, 1, 2]))
    with pytest.raises(StreamgaugeError, match="go backwards"):
        sg.stream("arrays", path=str(tmp_path / "a.npz"))
    np.savez(tmp_path / "o.npz", x=np.array([{}, []], object), label=np.arange(2))
    with pytest.raises(StreamgaugeError, match="holds Python objects"):
        sg.stream("arrays", path=str(tmp_path / "o.npz"))
    (tmp_path / "bad.npz").write_bytes(b"PK no")
    with pytest.raises(StreamgaugeError, match="cannot be read"):
        sg.stream("arrays", path=str(tmp_path / "bad.npz"))
    np.savez(tmp_path / "b.npz", x=np.zeros((3, 2)), what=np.arange(3))
    with pytest.raises(StreamgaugeError, match=r"looks like the label: .*columns are x, what"):
        sg.stream("arrays", path=str(tmp_path / "b.npz"))
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    with pytest.raises(StreamgaugeError, match="holds the inputs alone"):
        sg.stream("arrays", path=str(tmp_path / "x.npy"))


# Hugging Face


def saved(folder: Path, numbers: list[int], labels: list[int], files: int = 2) -> None:
    """A folder as `Dataset.save_to_disk` writes it."""
    folder.mkdir(parents=True)
    names = [f"data-{i:05d}-of-{files:05d}.arrow" for i in range(files)]
    for name, part in zip(names, np.array_split(np.arange(len(numbers)), files), strict=True):
        images = [{"bytes": png(numbers[i]), "path": f"{numbers[i]}.png"} for i in part]
        table = pa.table(
            {
                "image": pa.array(images, pa.struct({"bytes": pa.binary(), "path": pa.string()})),
                "label": pa.array([labels[i] for i in part], pa.int64()),
            }
        )
        with (
            pa.OSFile(str(folder / name), "wb") as file,
            pa.ipc.new_stream(file, table.schema) as writer,
        ):
            for batch in table.to_batches(max_chunksize=2):
                writer.write_batch(batch)
    (folder / "state.json").write_text(
        json.dumps({"_data_files": [{"filename": n} for n in names], "_split": None})
    )
    features = {
        "image": {"_type": "Image"},
        "label": {"names": ["x", "y", "z"], "_type": "ClassLabel"},
    }
    (folder / "dataset_info.json").write_text(json.dumps({"features": features}))


def test_huggingface_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved(tmp_path / "one", [3, 1, 4, 1, 5], [0, 1, 0, 1, 0])
    stream = sg.stream("huggingface", path=str(tmp_path / "one"), size=6)
    assert stream.source.class_names == ["x", "y", "z"]
    assert stream.spec.classes == 3
    assert [shows(stream, i, n) for i, n in enumerate([3, 1, 4, 1, 5])] == [True] * 5
    assert isinstance(stream.source.items, ArrowItems)
    assert stream.source.name(2) == "4.png"
    copy = pickle.loads(pickle.dumps(stream.source))
    assert (copy.read(np.arange(5)) == stream.source.read(np.arange(5))).all()
    saved(tmp_path / "two" / "train", [0, 1, 2], [0, 1, 2])
    saved(tmp_path / "two" / "test", [7, 8], [0, 1], files=1)
    (tmp_path / "two" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    stream = sg.stream("huggingface", path=str(tmp_path / "two"), size=6)
    assert stream.samples == 3
    test = stream.splits["test"].index.tolist()
    assert [shows(stream, i, n) for i, n in zip(test, (7, 8), strict=True)] == [True, True]
    assert "train is streamed, test is evaluated on" in capsys.readouterr().err


def test_huggingface_parquet_and_vectors(tmp_path: Path) -> None:
    info = {"info": {"features": {"label": {"names": ["x", "y"], "_type": "ClassLabel"}}}}
    for split, numbers in (("train", [0, 1, 2]), ("test", [3])):
        table = pa.table(
            {
                "image": [{"bytes": png(n), "path": None} for n in numbers],
                "label": [n % 2 for n in numbers],
            }
        ).replace_schema_metadata({"huggingface": json.dumps(info)})
        (tmp_path / "data").mkdir(exist_ok=True)
        pq.write_table(table, tmp_path / "data" / f"{split}-00000-of-00001.parquet")
    stream = sg.stream("huggingface", path=str(tmp_path), size=6)
    assert stream.source.class_names == ["x", "y"]
    assert stream.samples == 3
    assert shows(stream, int(stream.splits["test"].index[0]), 3)
    vectors = pa.table({"embedding": [[1.0, 2.0], [3.0, 4.0], [5.0]], "label": [0, 1, 1]})
    pq.write_table(vectors, tmp_path / "v.parquet")
    with pytest.raises(
        StreamgaugeError, match=r"Row 3 \(the first is 1\) .* has 1 numbers in '\w+', not 2"
    ):
        sg.stream("huggingface", path=str(tmp_path / "v.parquet"))
    stream = sg.stream("huggingface", path=str(tmp_path / "v.parquet"), on_bad="skip")
    assert stream.source.read(np.array([1])).tolist() == [[3.0, 4.0]]


def test_huggingface_errors(tmp_path: Path) -> None:
    saved(tmp_path / "one", [3, 1, 4], [0, 1, 0], files=1)
    state = tmp_path / "one" / "state.json"
    state.write_text('{"_data_files": [{"filename": "../../secret.arrow"}]}')
    with pytest.raises(StreamgaugeError, match="leaves its folder"):
        sg.stream("huggingface", path=str(tmp_path / "one"))
    state.write_text('{"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}')
    arrow = tmp_path / "one" / "data-00000-of-00001.arrow"
    arrow.write_bytes(arrow.read_bytes()[:400])
    with pytest.raises(StreamgaugeError, match="damaged or cut off"):
        sg.stream("huggingface", path=str(tmp_path / "one"))
    arrow.unlink()
    with pytest.raises(StreamgaugeError, match="lacks its file"):
        sg.stream("huggingface", path=str(tmp_path / "one"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(StreamgaugeError, match="is no Hugging Face data set"):
        sg.stream("huggingface", path=str(tmp_path / "empty"))


def test_hub_name_without_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(StreamgaugeError, match=r"pip install 'streamgauge\[hub\]'"):
        sg.stream("huggingface", path="someone/photos", cache=str(tmp_path))
    with pytest.raises(StreamgaugeError, match="no name of a data set"):
        sg.stream("huggingface", path="some where/no:where", cache=str(tmp_path))


def test_hub_name_is_fetched_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []

    class Loaded:
        def save_to_disk(self, folder: str) -> None:
            saved(Path(folder), [5, 6], [0, 1], files=1)

    def load_dataset(name: str, subset: str | None, revision: str | None) -> Loaded:
        asked.append((name, subset, revision))
        if name == "no/where":
            raise ConnectionError("no route to the hub")
        return Loaded()

    module = types.ModuleType("datasets")
    module.load_dataset = load_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)
    for _ in range(2):
        stream = sg.stream(
            "huggingface", path="me/birds", cache=str(tmp_path), size=6, revision="v1"
        )
        assert shows(stream, 1, 6)
    assert asked == [("me/birds", None, "v1")]
    with pytest.raises(StreamgaugeError, match="cannot be fetched from the hub: no route"):
        sg.stream("huggingface", path="no/where", cache=str(tmp_path))


# Tar shards


def tar(path: Path, members: list[tuple[str, bytes]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as file:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))


def sample(number: int, label: int | str) -> list[tuple[str, bytes]]:
    return [(f"a/{number:04d}.png", png(number)), (f"a/{number:04d}.cls", str(label).encode())]


def test_tar_shards_with_cls(tmp_path: Path) -> None:
    tar(tmp_path / "s-0.tar", sample(0, 2) + sample(1, 0))
    tar(tmp_path / "s-1.tar", [*sample(2, 1), ("a/0002.txt", b"words"), *sample(3, 0)])
    stream = sg.stream("webdataset", path=str(tmp_path), size=6)
    assert stream.source.label.tolist() == [2, 0, 1, 0]
    assert all(shows(stream, i, i) for i in (3, 0, 2, 1))
    assert stream.source.name(3) == "s-1.tar/a/0003.png"
    assert isinstance(stream.source.items, TarItems)
    assert (tmp_path / "s-0.tar.index").is_file()
    copy = pickle.loads(pickle.dumps(stream.source))
    assert (copy.read(np.arange(4)) == stream.source.read(np.arange(4))).all()
    again = sg.stream("webdataset", path=str(tmp_path), size=6)
    assert again.source.fingerprint == stream.source.fingerprint
    tar(tmp_path / "s-1.tar", sample(7, 1))  # the index is of another file now
    stream = sg.stream("webdataset", path=str(tmp_path), size=6)
    assert stream.samples == 3
    assert shows(stream, 2, 7)


def test_tar_shards_with_json_and_splits(tmp_path: Path) -> None:
    def described(number: int) -> list[tuple[str, bytes]]:
        about = {"label": ["cat", "dog"][number % 2], "time": number, "user": f"u{number % 3}"}
        return [
            (f"{number}.json", json.dumps(about, indent=2).encode()),
            (f"{number}.png", png(number)),
        ]

    tar(tmp_path / "train-000.tar", described(0) + described(1))
    tar(tmp_path / "train-001.tar", described(2))
    tar(tmp_path / "test-000.tar", described(3))
    stream = sg.stream("webdataset", path=str(tmp_path), size=6)
    assert stream.source.class_names == ["dog", "cat"]
    assert stream.samples == 3
    test = int(stream.splits["test"].index[0])
    assert shows(stream, test, 3)
    assert stream.source.columns["time"][test] == 3
    assert stream.source.columns["user"].tolist() == [0, 0, 1, 2]


def test_bad_tars(tmp_path: Path) -> None:
    whole = tmp_path / "whole" / "s.tar"
    tar(whole, sample(0, 0) + sample(1, 1) + sample(2, 0))
    data = whole.read_bytes()
    starts = [i for i in range(0, len(data), 512) if data[i : i + 2] == b"a/"]
    for name, end in (
        ("in_image", starts[2] + 530),
        ("between", starts[4]),
        ("header", starts[4] + 99),
    ):
        cut = tmp_path / name / "s.tar"
        cut.parent.mkdir()
        cut.write_bytes(data[:end])
        with pytest.raises(StreamgaugeError, match="is cut off"):
            sg.stream("webdataset", path=str(cut.parent), size=6)
        stream = sg.stream("webdataset", path=str(cut.parent), size=6, on_bad="skip")
        assert stream.samples == (1 if name == "in_image" else 2), name
        assert stream.notes["cut_off_shards"] == 1
    (tmp_path / "no.tar").write_bytes(b"hello" * 1000)
    with pytest.raises(StreamgaugeError, match=r"is not a plain .tar file"):
        sg.stream("webdataset", path=str(tmp_path / "no.tar"))


def test_bad_members_of_tars(tmp_path: Path) -> None:
    members = [
        *sample(0, 0),
        ("../../evil.png", png(1)),
        ("../../evil.cls", b"1"),
        *sample(2, 1),
        *sample(0, 1),  # a key comes again
        ("x.png", png(3)),  # no label
        ("y.png", png(4)),
        ("y.jpg", png(4)),
        ("y.cls", b"1"),
    ]
    tar(tmp_path / "s.tar", members)
    with tarfile.open(tmp_path / "t.tar", "w") as file:
        link = tarfile.TarInfo("link.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        file.addfile(link)
        info = tarfile.TarInfo("link.cls")
        info.size = 1
        file.addfile(info, io.BytesIO(b"1"))
    with pytest.raises(StreamgaugeError, match="is bad: path that leaves the folder"):
        sg.stream("webdataset", path=str(tmp_path))
    stream = sg.stream("webdataset", path=str(tmp_path), size=6, on_bad="skip")
    assert stream.notes["left_out"] == {
        "path that leaves the folder": 1,
        "two images of one key": 1,
        "link or device": 1,
        "repeated key": 1,
        "missing label": 1,
    }
    assert stream.samples == 2


# All of them


def test_file_items_are_cheap_to_tell_apart(tmp_path: Path) -> None:
    for number in range(3):
        put(tmp_path / f"{number}.png", number)
    names = ["0.png", "1.png", "2.png"]
    items = FileItems(tmp_path, names)
    assert items[1] == png(1)
    assert items.fingerprint == FileItems(tmp_path, names, items.sizes).fingerprint
    assert items.fingerprint != FileItems(tmp_path, names[::-1]).fingerprint
    part = FileItems(tmp_path, items.names.slice(1))
    assert part.fingerprint == FileItems(tmp_path, names[1:]).fingerprint
    (tmp_path / "1.png").unlink()
    with pytest.raises(StreamgaugeError, match="cannot be read"):
        items[1]


def test_a_run_over_own_images_and_what_it_stores(tmp_path: Path) -> None:
    for number in range(40):
        put(tmp_path / "d" / "ab"[number % 2] / f"{number}.png", number)
    (tmp_path / "d" / "a" / "x.png").write_bytes(b"no image")
    stream = sg.stream("folder", path=str(tmp_path / "d"), size=8, on_bad="skip", held_out=0.1)
    run = sg.run(stream, sg.learner("er", model="mlp"), out=tmp_path / "runs", log=str)
    assert run.header["stream"]["notes"]["left_out"] == {"bad image (not an image)": 1}
    assert len(run.predictions["step"]) == stream.samples


def test_guess_prefers_the_role_itself() -> None:
    found = choose(["class", "Label", "lat"], ["label", "latitude"], {}, "t")
    assert found == {"label": "Label", "latitude": "lat"}


def test_the_page_runs_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "your_data.md").read_text()
    monkeypatch.chdir(tmp_path)
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(code, "your_data.md", "exec"), {"__name__": "page"})
    out = capsys.readouterr()
    (shown,) = re.findall(r"```\n('photos.csv'.*?)\n```", page, re.DOTALL)
    assert as_keywords(shown) in out.err  # the page shows what the command prints
    assert "Stream('manifest': 108 samples" in out.out
    assert "online_accuracy" in out.out
    paths = re.findall(r"^streamgauge run --stream (photos\S*|own\.npz)", page, re.M)
    assert len(paths) >= 3
    for path in paths:
        assert sg.stream(path).samples > 100


def test_stored_settings_open_the_same_stream_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    csv(tmp_path, TABLE)
    monkeypatch.chdir(tmp_path)
    Path("names.txt").write_text("wren\nrobin\n")
    stream = sg.stream(
        "manifest", path="photos.csv", size=6, user="none", root=".", names="names.txt"
    )
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "else")
    again = sg.stream("manifest", **json.loads(json.dumps(stream.settings)))
    assert again.describe() == stream.describe()


# What a second reading found


def test_labels_of_every_whole_number_type(tmp_path: Path) -> None:
    def read(column: pa.Array, **settings: Any) -> Any:
        for number in range(len(column)):
            put(tmp_path / f"img/{number}.png", number)
        paths = [f"img/{number}.png" for number in range(len(column))]
        pq.write_table(pa.table({"path": paths, "label": column}), tmp_path / "m.parquet")
        path = str(tmp_path / "m.parquet")
        return sg.stream("manifest", path=path, size=6, **settings).source

    for kind in (pa.uint8(), pa.uint16(), pa.uint64(), pa.int8(), pa.int32()):
        assert read(pa.array([0, 1, 2], kind)).label.tolist() == [0, 1, 2]
        kept = read(pa.array([0, None, 2], kind), on_bad="skip")
        assert [kept.class_names[code] for code in kept.label] == ["0", "2"]
    far = read(pa.array([2**63 + 5, 2**63 + 1, 2**63 + 5], pa.uint64()))
    assert far.label.tolist() == [0, 1, 0]
    assert far.class_names == [str(2**63 + 5), str(2**63 + 1)]
    with pytest.raises(StreamgaugeError, match=r"Row 2 \(the first is 1\) .* has the label inf"):
        read(pa.array([0.0, np.inf, 1.0]))
    with pytest.raises(StreamgaugeError, match=r"Nothing in .* can be used: 2 missing label"):
        read(pa.array([-1, -1]), labels="numbers", on_bad="skip")


def test_a_row_is_called_by_the_line_it_begins_at(tmp_path: Path) -> None:
    from streamgauge.tables.read import open_table

    text = 'a;b\r\n1;"x\r\n\r\ny"\r\n\r\n2;z\r\n3;z\r\n'
    names = [open_table(text.encode()).row_name(row) for row in range(3)]
    assert names == ["Line 2", "Line 6", "Line 7"]
    packed = tmp_path / "t.csv.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert open_table(packed).row_name(1) == "Line 6"
    assert open_table({"a": [1, 2]}).row_name(1) == "Row 2 (the first is 1)"


def test_a_folder_of_classes_without_a_test_split(tmp_path: Path) -> None:
    for number in range(4):
        put(tmp_path / f"{'ab'[number % 2]}/{number}.png", number)
    stream = sg.stream("folder", path=str(tmp_path), size=6, test="none")
    assert stream.source.class_names == ["a", "b"]


def test_a_name_that_is_not_utf8_is_bad_and_no_traceback(tmp_path: Path) -> None:
    for number in range(4):
        put(tmp_path / f"{'ab'[number % 2]}/{number}.png", number)
    try:
        (tmp_path / "a/0.png").rename(os.fsdecode(os.fsencode(tmp_path) + b"/a/\xff.png"))
    except OSError:
        pytest.skip("this file system has no such names")
    with pytest.raises(StreamgaugeError, match="is not UTF-8: rename it"):
        sg.stream("folder", path=str(tmp_path), size=6)
    stream = sg.stream("folder", path=str(tmp_path), size=6, on_bad="skip")
    assert (stream.samples, stream.notes["left_out"]) == (3, {"name that is not UTF-8": 1})


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"split": np.array(["train", "test", "train"])}, r"'split' .* has 3 entries, and 'x'"),
        ({"split": np.array(["train", "other"])}, r"'split' .* has 2 entries"),
        ({"y": np.array(3)}, "'y' .* has one value"),
        ({"y": np.arange(4)}, "'y' .* has 4 entries"),
        ({"time": np.arange(5)}, "'time' .* has 5 entries"),
    ],
)
def test_arrays_of_unequal_length_are_refused(
    arrays: dict[str, np.ndarray], sentence: str, tmp_path: Path
) -> None:
    np.savez(tmp_path / "own.npz", **{"x": np.zeros((6, 2)), "y": np.arange(6), **arrays})
    with pytest.raises(StreamgaugeError, match=sentence):
        sg.stream("arrays", path=str(tmp_path / "own.npz"))


def test_arrays_do_as_they_are_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.random.default_rng(0).random((6, 4, 5, 3))
    np.savez(tmp_path / "own.npz", x=x, y=np.arange(6))
    path = str(tmp_path / "own.npz")
    assert sg.stream("arrays", path=path).spec.input_shape == (4, 5, 3)
    source = sg.stream("arrays", path=path, channels="last").source
    assert np.array_equal(source.read(np.arange(6)), x.astype(np.float32).transpose(0, 3, 1, 2))
    (tmp_path / "labels").mkdir()
    np.save(tmp_path / "d.npy", x.reshape(6, -1))
    np.save(tmp_path / "labels/d.npy", np.arange(6))  # of the same name in another folder
    stream = sg.stream("arrays", path=str(tmp_path / "d.npy"), label="labels/d.npy")
    assert (stream.spec.input_shape, stream.source.label.tolist()) == ((60,), [*range(6)])
    capsys.readouterr()
    both = {f"{what}_{part}": array for part in ("train", "test")
            for what, array in (("x", x), ("y", np.arange(6)))}  # fmt: skip
    np.savez(tmp_path / "pairs.npz", **both, time_train=np.arange(6))
    sg.stream("arrays", path=str(tmp_path / "pairs.npz"))
    assert "not used: time_train" in capsys.readouterr().err


def test_announcements_name_keywords_in_python_and_options_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = "x,label,timestamp\n" + "".join(f"{n % 7},{n % 2},{n}\n" for n in range(40))
    (tmp_path / "a.csv").write_text(columns)
    (tmp_path / "b.csv").write_text(columns)
    sg.stream(str(tmp_path / "a.csv"), tasks=3)
    said = capsys.readouterr().err
    assert "--" not in said
    assert "say label='COLUMN', and so on" in said
    assert "(scale='none': as they are)" in said
    catalogue.stream("tabular", path=str(tmp_path / "b.csv"))
    said = capsys.readouterr().err
    assert "say --stream.label COLUMN, and so on" in said
    assert "(--stream.scale none:" in said
