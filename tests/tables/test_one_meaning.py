"""The same small table has one meaning for every reader; docs/decisions/0010 has the answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import csv, parquet

import streamgauge as sg
from streamgauge.audit import audit
from streamgauge.audit.log import PredictionLog
from streamgauge.audit.tally import join
from streamgauge.errors import StreamgaugeError
from streamgauge.places.points import Points

# Private to its room, but the only way to the table of a set of photos without storing it.
from streamgauge.streams.datasets.archive import Files
from streamgauge.streams.datasets.photos import from_csv

Meaning = dict[str, list[Any]]


def spelled(label: Any, names: Any) -> list[str]:
    return [str(code) if names is None else str(names[code]) for code in label.tolist()]


def of_stream(stream: sg.streams.Stream) -> Meaning:
    source = stream.source
    meaning = {"label": spelled(source.label, source.class_names)}
    for role, values in source.columns.items():
        meaning[role] = np.floor(values).tolist() if role == "time" else values.tolist()
    return meaning


def by_tabular(path: Path, encoding: str = "utf-8") -> Meaning:
    """With the settings that need times and users, without which such numbers are inputs."""
    head = path.read_text(encoding).splitlines()[0].lower()
    timed = any(word in head for word in ("time", "taken", "ts", "created_at"))
    needs = {"order": "time"} if timed else {}
    needs |= {"step": "album"} if "user" in head else {}
    drop = ("path",) if "path" in head else ()
    return of_stream(sg.stream("tabular", path=str(path), drop=drop, **needs))


def by_manifest(path: Path) -> Meaning:
    return of_stream(sg.stream("manifest", path=str(path), size=4, image="path"))


def by_audit(path: Path) -> Meaning:
    log = PredictionLog(path)
    rows = join(list(log.pieces()))
    meaning = {"label": spelled(rows.label, list(log.classes.numbers))}
    if rows.time is not None:
        meaning["time"] = rows.time.tolist()
    if rows.user is not None:
        meaning["user"] = [list(log.groups["user"].numbers)[code] for code in rows.user]
    return meaning


def by_places(path: Path) -> Meaning:
    points = Points(path)
    tables = [table for _, table in points.tables("latitude", "longitude")]
    latitude = np.concatenate([points.coordinates(table)[0] for table in tables])
    times = points.times()
    meaning: Meaning = {"latitude": latitude.tolist()}
    return meaning if times is None else {**meaning, "time": times.tolist()}


def by_photos(path: Path) -> Meaning:
    files = Files(path)
    photos = from_csv(files, files.names[0])
    columns = {role: values.tolist() for role, values in photos.columns.items()}
    return {"label": spelled(photos.label, photos.class_names), **columns}


READERS = {"tabular": by_tabular, "manifest": by_manifest, "audit": by_audit, "places": by_places,
           "photos": by_photos}  # fmt: skip
DAY = 1_706_659_200  # 2024-01-31
TEN = DAY + 36_000


def table(head: str, *rows: str, separator: str = ",", decimal: str = ".") -> str:
    """Two rows with a path, an input and coordinates before the columns in question."""
    lines = [separator.join(["path", "x", "lat", "lon", head])]
    for number, row in enumerate(rows):
        cells = [
            f"img/{number}.png",
            f"{number + 1}.5",
            f"{10 * number + 1}.25",
            f"{number}.5",
            row,
        ]
        lines.append(separator.join(cell.replace(".", decimal) if 0 < at < 4 else cell
                                    for at, cell in enumerate(cells)))  # fmt: skip
    return "\n".join(lines) + "\n"


def times(*cells: str) -> str:
    return table("label,time", *(f"{number},{cell}" for number, cell in enumerate(cells)))


def labels(*cells: str) -> str:
    return table("label,time", *(f"{cell},{number}" for number, cell in enumerate(cells)))


# Text of the table -> what a reader that knows the role finds, or the sentence that refuses it.
SAME: dict[str, tuple[str, Meaning]] = {
    "labels below 0": (labels("-1", "1"), {"label": ["-1", "1"]}),
    "zip codes": (labels("94103", "10001"), {"label": ["94103", "10001"]}),
    "seconds": (times("7", "9"), {"label": ["0", "1"], "time": [7, 9]}),
    "fractions of seconds": (times("7.5", "9.5"), {"time": [7, 9]}),
    "milliseconds": (times("1706659200000", "1706659201500"), {"time": [DAY, DAY + 1]}),
    "microseconds": (times("1706659200000000", "1706659201000000"), {"time": [DAY, DAY + 1]}),
    "nanoseconds": (times("1706659200000000000", "1706659201000000000"), {"time": [DAY, DAY + 1]}),
    "milliseconds with fractions": (times("1706659200000.5", "1706659201000"),
                                    {"time": [DAY, DAY + 1]}),
    "days as numbers": (times("20240131", "20240201"), {"time": [DAY, DAY + 86_400]}),
    "numbers that are no days": (times("20240131", "20240199"), {"time": [20240131, 20240199]}),
    "days": (times("2024-01-31", "2024-02-01"), {"time": [DAY, DAY + 86_400]}),
    "ISO": (times("2024-01-31T10:00:00", "2024-01-31T10:00:01.5"), {"time": [TEN, TEN + 1]}),
    "ISO with a zone": (times("2024-01-31T10:00:00+02:00", "2024-01-31T10:00:00Z"),
                        {"time": [TEN - 7200, TEN]}),
    "a zone in some cells": (times("2024-01-31 10:00:00Z", "2024-01-31 10:00:05"),
                             {"time": [TEN, TEN + 5]}),
    "UTC as a word": (times("2024-01-31 10:00:00 UTC", "2024-01-31 10:00:05 UTC"),
                      {"time": [TEN, TEN + 5]}),
    "nanoseconds of a second": (times("2024-01-31 10:00:00.123456789", "2024-01-31 10:00:05"),
                                {"time": [TEN, TEN + 5]}),
    "as cameras write": (times("2024:01:31 10:00:00", "2024:01:31 10:00:05"),
                         {"time": [TEN, TEN + 5]}),
    "with slashes": (times("2024/01/31", "2024/02/01"), {"time": [DAY, DAY + 86_400]}),
    "semicolons": (table("label;time", "0;7", "1;9", separator=";"), {"time": [7, 9]}),
    "tabs": (table("label\ttime", "0\t7", "1\t9", separator="\t"), {"time": [7, 9]}),
    "bars": (table("label|time", "0|7", "1|9", separator="|"), {"label": ["0", "1"]}),
    "spaces": (table("label   time", "0 7", "1   9", separator="  "), {"time": [7, 9]}),
    "decimal commas": (table("label;time", "0;7", "1;9", separator=";", decimal=","),
                       {"latitude": [1.25, 11.25], "time": [7, 9]}),
    "a byte order mark": ("\ufeff" + times("7", "9"), {"label": ["0", "1"], "time": [7, 9]}),
    "CRLF": (times("7", "9").replace("\n", "\r\n"), {"label": ["0", "1"], "time": [7, 9]}),
    "blank lines": (times("7", "9").replace("\n", "\n\n"), {"label": ["0", "1"], "time": [7, 9]}),
    "quoted cells": (table("label,time", '"a,b",7', '"c ""d""",9'), {"label": ["a,b", 'c "d"']}),
    "names with blanks": (table(" label , time ", "0,7", "1,9"), {"label": ["0", "1"]}),
    "species and taken": (table("species,taken", "wren,7", "robin,9"),
                          {"label": ["wren", "robin"], "time": [7, 9]}),
    "truth and ts": (table("truth,ts", "0,7", "1,9"), {"label": ["0", "1"], "time": [7, 9]}),
    "created_at": (table("target,created_at", "0,7", "1,9"), {"time": [7, 9]}),
    "GPSLatitude": (times("7", "9").replace("lat,lon", "GPSLatitude,GPSLongitude"),
                    {"latitude": [1.25, 11.25]}),
    "the likelier of two times": (table("label,timestamp,date", "0,7,5", "1,9,6"),
                                  {"time": [7, 9]}),
    "the likelier of two users": (table("label,user_id,author", "0,7,5", "1,9,6"),
                                  {"user": [7, 9]}),
    "whole numbers": (labels("3", "5"), {"label": ["3", "5"]}),
    "1.0 and 1": (labels("1.0", "1"), {"label": ["1", "1"]}),
    "booleans": (labels("True", "false"), {"label": ["1", "0"]}),
    "blanks around": (labels(" UP", "UP  "), {"label": ["UP", "UP"]}),
    "leading zeros": (labels("007", "7"), {"label": ["007", "7"]}),
    "ids far apart": (labels("94103", "10001"), {"label": ["94103", "10001"]}),
    "NA among names": (labels("DE", "NA"), {"label": ["DE", "NA"]}),
    "an index of pandas": ("," + times("7", "9").replace("\nimg", "\n0,img"),
                           {"label": ["0", "1"], "time": [7, 9]}),
    "row names of R": (times("7", "9").replace("\nimg", "\n0,img"),
                       {"label": ["0", "1"], "time": [7, 9]}),
    "users as numbers": (table("label,user", "0,7", "1,9"), {"user": [7, 9]}),
}  # fmt: skip
REFUSED = {
    "day and month in either order": (times("3/4/2020", "4/4/2020"), "such as '3/4/2020'"),
    "thousands": (times('"1,000"', '"2,000"'), "such as '1,000'"),
    "words for times": (times("noon", "dusk"), "has times that cannot be read, such as 'noon'"),
    "an empty time": (times("7", ""), r"(?i)line 3 .*no time"),
    "a column twice": (table("label,label", "0,1", "1,1"), "'label' comes twice"),
    "two labels of a kind": (table("class,species", "0,1", "1,1"), "'class' or 'species'"),
    "fractions for labels": (labels("0.5", "1"), r"0\.5"),
    "an empty label": (labels("a", ""), r"(?i)line 3 .*no label"),
    "null for a label": (labels("a", "null"), r"(?i)line 3 .*no label"),
    "NA among numbers": (labels("1", "NA"), r"(?i)line 3 .*no label"),
    "no header": (times("7", "9").split("\n", 1)[1], "column_1, column_2"),
}  # fmt: skip


def write(folder: Path, text: str) -> Path:
    for number in range(2):
        image = folder / "img" / f"{number}.png"
        image.parent.mkdir(exist_ok=True)
        Image.new("RGB", (4, 4), (number, 0, 0)).save(image)
    path = folder / "table.csv"
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("case", SAME)
def test_every_reader_finds_the_same(tmp_path: Path, reader: str, case: str) -> None:
    text, expected = SAME[case]
    read: Callable[[Path], Meaning] = READERS[reader]
    found = read(write(tmp_path, text))
    known = {"places": {"time", "latitude"}, "audit": {"label", "time", "user"},
             "tabular": {"label", "time", "user"}}.get(reader, set(expected))  # fmt: skip
    assert {role: found.get(role) for role in expected if role in known} == {
        role: values for role, values in expected.items() if role in known
    }


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("case", REFUSED)
def test_every_reader_refuses_the_same(tmp_path: Path, reader: str, case: str) -> None:
    text, sentence = REFUSED[case]
    if reader == "places" and ("label" in case or case == "NA among numbers"):
        pytest.skip("points have no labels")
    if reader in ("photos", "audit", "tabular") and case in (
        "an empty label", "null for a label", "NA among numbers"
    ):  # fmt: skip
        assert len(READERS[reader](write(tmp_path, text))["label"]) == 1  # left out, and counted
        return
    with pytest.raises(StreamgaugeError, match=sentence):
        READERS[reader](write(tmp_path, text))


ARFF = {
    "ranges": "@attribute a REAL [0,5]\n@attribute b real[0,1]\n{}\n@data\n1,2,{}\n3,4,{}",
    "integers with a point": "@attribute a integer\n{}\n@data\n1.0,{}\n2,{}",
    "spaces": "@attribute a numeric\n{}\n@data\n1 {}\n2   {}",
    "tabs": "@attribute\ta\tnumeric\n{}\n@data\n1\t{}\n2\t{}",
    "weights": "@attribute a numeric\n{}\n@data\n1,{},{{2}}\n2,{},{{0.5}}",
    "a comma at the end": "@attribute a numeric\n{}\n@DATA\n1,{},\n2,{},",
    "quoted names": "@attribute 'a b' {{'v 1','v,2'}}\n{}\n@data\n'v 1',{}\n'v,2',{}",
    "CRLF and comments": "% of\r\n@attribute a numeric\r\n{}\r\n@data\r\n% no\r\n1,{}\r\n2,{}\r\n",
}


@pytest.mark.parametrize("named", ["class", "delayed"])
@pytest.mark.parametrize("case", ARFF)
def test_any_arff_has_one_meaning(tmp_path: Path, case: str, named: str) -> None:
    """Where no name tells, the label is the last attribute, as Weka has it."""
    path = tmp_path / "table.arff"
    text = ARFF[case].format(f"@attribute {named} {{café, 7}}", "café", "7")
    for encoding in ("utf-8", "latin-1"):
        path.write_bytes(("@relation r\n" + text).encode(encoding))
        assert by_audit(path)["label"] == ["café", "7"]
        if case != "quoted names":  # inputs are numbers
            assert by_tabular(path, encoding)["label"] == ["café", "7"]


def test_labels_in_another_file(tmp_path: Path) -> None:
    data = tmp_path / "weather.data"
    data.write_text(" 1.5  14 14\n 2.5 13  12 \n3.5 11 10\n")
    (tmp_path / "weather.labels").write_text("1\n2\n1\n")
    assert by_audit(data)["label"] == by_tabular(data)["label"] == ["1", "2", "1"]
    other = tmp_path / "other.txt"
    other.write_text("rain\nsun\nrain\n")
    stream = sg.stream("tabular", path=str(data), label=str(other))
    assert of_stream(stream)["label"] == ["rain", "sun", "rain"]
    assert stream.spec.input_shape == (3,)
    assert stream.settings["label"] == str(other)
    log = PredictionLog(data, label=str(other))
    assert spelled(join(list(log.pieces())).label, list(log.classes.numbers)) == [
        "rain", "sun", "rain"
    ]  # fmt: skip
    other.write_text("class\nrain\nsun\n")
    for read in (
        lambda: sg.stream("tabular", path=str(data), label=str(other)),
        lambda: list(PredictionLog(data, label=str(other)).pieces()),
    ):
        with pytest.raises(StreamgaugeError, match=r"3 rows, but .*other.txt' has 2 labels"):
            read()


@pytest.mark.parametrize(
    "text",
    ["0,14,tcp,14,normal\n1,13,udp,14,normal\n2,9,udp,1,attack\n",
     "p,x,s,n,t,p\ne,x,s,y,t,a\np,b,s,n,t,p\n"],
)  # fmt: skip
@pytest.mark.parametrize("reader", [by_audit, by_tabular])
def test_no_header_is_not_taken_for_names_that_come_twice(
    tmp_path: Path, text: str, reader: Callable[[Path], Meaning]
) -> None:
    (tmp_path / "table.csv").write_text(text)
    with pytest.raises(StreamgaugeError, match="the columns are column_1, column_2"):
        reader(tmp_path / "table.csv")


NAMES = np.array(["UP", "DOWN"])
SPELLED: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "1.0 and 1": (lambda y: y, lambda y: np.where(np.arange(len(y)) == 7, np.nan, y)),
    "True and 1": (lambda y: y, lambda y: y == 1),
    "true as text and 1": (lambda y: y, lambda y: np.array(["false", "true"])[y]),
    "0 and False": (lambda y: y == 1, lambda y: y),
    "blanks around a name": (lambda y: NAMES[y], lambda y: np.char.add(" ", NAMES[y])),
    "decimals and numbers": (lambda y: y, lambda y: [Decimal(int(v)) for v in y]),
    "-1 and -1.0": (lambda y: 2 * y - 1, lambda y: 2.0 * y - 1),
}


@pytest.mark.parametrize("case", SPELLED)
def test_predictions_match_labels_however_both_are_written(tmp_path: Path, case: str) -> None:
    """The same frame as CSV, Parquet, JSON lines and in memory gives the same accuracy."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 300)
    answer = np.where(rng.random(300) < 0.8, label, 1 - label)
    of_label, of_answer = SPELLED[case]
    frame = pa.table({"label": pa.array(of_label(label), from_pandas=True),
                      "prediction": pa.array(of_answer(answer), from_pandas=True)})  # fmt: skip
    csv.write_csv(frame, tmp_path / "log.csv")
    parquet.write_table(frame, tmp_path / "log.parquet")
    lines = [json.dumps(row, default=float) for row in frame.to_pylist()]
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    scored = np.arange(300) != 7 if case == "1.0 and 1" else np.ones(300, bool)
    expected = np.mean(label[scored] == answer[scored])
    for log in (frame, *(tmp_path / f"log.{kind}" for kind in ("csv", "parquet", "jsonl"))):
        assert audit(log).values["online"] == pytest.approx(expected)


def test_arrays_in_memory_follow_the_rule_of_times() -> None:
    x, y = np.zeros((2, 3)), np.array([0, 1])
    for given, seconds in (
        ([7, 9], [7, 9]),
        ([DAY * 1000, DAY * 1000 + 1000], [DAY, DAY + 1]),
        ([20240131, 20240201], [DAY, DAY + 86_400]),
    ):
        stream = sg.stream(x, y, time=np.array(given))
        assert stream.source.columns["time"].tolist() == seconds
        rows = join(list(PredictionLog({"label": y, "time": np.array(given)}).pieces()))
        assert rows.time is not None
        assert rows.time.tolist() == seconds
