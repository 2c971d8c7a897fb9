"""Geographic classes against s2geometry itself, a slow recursive version, and brute force."""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from streamgauge.cli import app
from streamgauge.errors import StreamgaugeError
from streamgauge.metrics import geolocation_error
from streamgauge.places import (
    build_classes,
    class_centres,
    label_points,
    leaf_cells,
    load_classes,
)
from streamgauge.places.cells import cell_of, children, level_of
from streamgauge.places.command import run_classes
from streamgauge.places.map import borders, cell_map, cells_named, outline
from streamgauge.places.points import Points, classes_of, first_rows
from streamgauge.record import find_runs
from streamgauge.report import write_report

s2 = pytest.importorskip("s2geometry")

latitudes = st.floats(-90, 90)
longitudes = st.floats(-360, 360)


def theirs(latitude: float, longitude: float) -> int:
    return int(s2.S2CellId(s2.S2LatLng.FromDegrees(latitude, longitude)).id())


def cities(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A few dense places, and points anywhere, also at both poles and the date line."""
    rng = np.random.default_rng(seed)
    north, east = rng.uniform(-60, 75, 12), rng.uniform(-180, 180, 12)
    which = rng.choice(12, count, p=(w := 1 / np.arange(1, 13)) / w.sum())
    latitude = north[which] + rng.normal(0, 0.3, count)
    longitude = east[which] + rng.normal(0, 0.3, count)
    anywhere = rng.random(count) < 0.2
    latitude[anywhere] = np.degrees(np.arcsin(rng.uniform(-1, 1, anywhere.sum())))
    longitude[anywhere] = rng.uniform(-180, 180, anywhere.sum())
    return latitude, longitude


# Leaf ids, bit for bit.


@given(latitudes, longitudes)
@example(0.0, 0.0)
@example(-0.0, -0.0)
@example(90.0, 77.0)
@example(-90.0, -180.0)
@example(0.0, 180.0)
@example(45.0, 45.0)
@example(math.degrees(math.atan(1 / math.sqrt(2))), 45.0)  # a corner of the cube
@example(5e-324, -5e-324)
@settings(max_examples=300, deadline=None)
def test_leaf_ids_are_those_of_s2geometry(latitude: float, longitude: float) -> None:
    assert int(leaf_cells([latitude], [longitude])[0]) == theirs(latitude, longitude)


def test_leaf_ids_of_many_random_points() -> None:
    rng = np.random.default_rng(1)
    latitude, longitude = rng.uniform(-90, 90, 20_000), rng.uniform(-180, 180, 20_000)
    wanted = [theirs(a, b) for a, b in zip(latitude.tolist(), longitude.tolist(), strict=True)]
    assert leaf_cells(latitude, longitude).tolist() == wanted


def test_leaf_ids_on_corners_of_cells_of_every_level() -> None:
    """There a coordinate is a whole number of steps, up to rounding: the place to round wrongly."""
    rng = np.random.default_rng(2)
    latitude, longitude = [], []
    for level in range(31):
        for _ in range(150):
            start = s2.S2LatLng.FromDegrees(rng.uniform(-90, 90), rng.uniform(-180, 180))
            cell = s2.S2Cell(s2.S2CellId(start).parent(level))
            corner = s2.S2LatLng(cell.GetVertex(int(rng.integers(4))))
            latitude.append(corner.lat().degrees())
            longitude.append(corner.lng().degrees())
    wanted = [theirs(a, b) for a, b in zip(latitude, longitude, strict=True)]
    assert leaf_cells(latitude, longitude).tolist() == wanted


def test_leaf_ids_do_not_depend_on_threads_or_type() -> None:
    latitude, longitude = cities(600_000)
    one = leaf_cells(latitude, longitude, threads=1)
    assert np.array_equal(one, leaf_cells(latitude, longitude, threads=4))
    small = latitude.astype(np.float32), longitude.astype(np.float32)
    assert leaf_cells(*small)[7] == theirs(float(small[0][7]), float(small[1][7]))


@given(latitudes, longitudes, st.integers(0, 30))
@settings(max_examples=100, deadline=None)
def test_tokens_levels_and_children(latitude: float, longitude: float, level: int) -> None:
    cell = s2.S2CellId(s2.S2LatLng.FromDegrees(latitude, longitude)).parent(level)
    assert cell_of(cell.ToToken()) == cell.id()
    assert level_of(cell.id()) == level
    if level < 30:
        assert children(cell.id()) == [cell.child(k).id() for k in range(4)]


@pytest.mark.parametrize("token", ["", "zz", "0", "2", "47e66", "f", "e", "47e66c0000000000000", 5])
def test_what_is_no_token_is_refused(token: str) -> None:
    with pytest.raises(ValueError, match="not an S2 token"):
        cell_of(token)


# The rule for splitting.


def slow_classes(points, split_above, keep_from, max_level):
    """By the book: hold all points of a cell in a list, ask s2geometry for its children."""

    def visit(cell, inside):
        if len(inside) > split_above and cell.level() < max_level:
            found = []
            for number in range(4):
                child = cell.child(number)
                found += visit(child, [p for p in inside if child.contains(p)])
            return found
        return [(cell.ToToken(), len(inside))] if len(inside) >= keep_from else []

    leaves = [s2.S2CellId(s2.S2LatLng.FromDegrees(a, b)) for a, b in points]
    found = []
    for face in range(6):
        cell = s2.S2CellId.FromFacePosLevel(face, 0, 0)
        found += visit(cell, [p for p in leaves if cell.contains(p)])
    return found


@given(
    st.integers(0, 5), st.integers(1, 60), st.integers(1, 20), st.sampled_from([0, 1, 4, 9, 14, 30])
)
@settings(max_examples=40, deadline=None)
def test_splitting_is_that_of_a_slow_recursive_version(
    seed: int, split_above: int, keep_from: int, max_level: int
) -> None:
    latitude, longitude = cities(400, seed)
    latitude[:70], longitude[:70] = latitude[0], longitude[0]  # more in one spot than may be
    wanted = slow_classes(
        list(zip(latitude.tolist(), longitude.tolist(), strict=True)),
        split_above, keep_from, max_level,
    )  # fmt: skip
    how = {"split_above": split_above, "keep_from": keep_from, "max_level": max_level}
    if not wanted:
        with pytest.raises(StreamgaugeError, match="lower --keep-from"):
            build_classes(latitude, longitude, **how)
        return
    classes = build_classes(latitude, longitude, **how)
    assert list(zip(classes.tokens, classes.count.tolist(), strict=True)) == wanted
    assert classes.dropped == 400 - sum(count for _, count in wanted)


def test_centres_are_those_of_the_cells() -> None:
    classes = build_classes(*cities(3000), split_above=100, keep_from=5)
    for token, centre in zip(classes.tokens, classes.centre, strict=True):
        place = s2.S2CellId.FromToken(token).ToLatLng()
        assert (place.lat().degrees(), place.lng().degrees()) == tuple(centre)
    label = classes.label(*classes.centre.T)
    assert label.tolist() == list(range(len(classes)))  # a centre lies in its own cell


def test_points_without_coordinates_do_not_count() -> None:
    latitude, longitude = cities(500)
    latitude[3], longitude[9] = np.nan, np.nan
    classes = build_classes(latitude, longitude, split_above=50, keep_from=1)
    assert classes.points == 498
    assert classes.dropped == 0
    assert classes.label(latitude, longitude)[[3, 9]].tolist() == [-1, -1]


# Labels.


def test_labels_are_those_of_brute_force_containment() -> None:
    classes = build_classes(*cities(4000), split_above=150, keep_from=30)
    latitude, longitude = cities(1500, seed=9)
    cells = [s2.S2CellId.FromToken(token) for token in classes.tokens]
    wanted = []
    for a, b in zip(latitude.tolist(), longitude.tolist(), strict=True):
        leaf = s2.S2CellId(s2.S2LatLng.FromDegrees(a, b))
        wanted.append(next((n for n, cell in enumerate(cells) if cell.contains(leaf)), -1))
    found = classes.label(latitude, longitude)
    assert found.tolist() == wanted
    assert 0 < sum(n < 0 for n in wanted) < 750  # both kinds were tried


@given(st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_labels_of_the_points_built_from_count_as_the_classes_do(seed: int) -> None:
    latitude, longitude = cities(800, seed)
    classes = build_classes(latitude, longitude, split_above=60, keep_from=7)
    label = classes.label(latitude, longitude)
    assert np.bincount(label[label >= 0], minlength=len(classes)).tolist() == classes.count.tolist()
    assert int((label < 0).sum()) == classes.dropped


# Files.


def test_saved_classes_come_back(tmp_path: Path) -> None:
    classes = build_classes(*cities(900), split_above=60, keep_from=7, max_level=12)
    again = load_classes(classes.save(tmp_path / "deep" / "classes.json"))
    for name in ("cell", "count", "centre"):
        assert np.array_equal(getattr(classes, name), getattr(again, name))
    assert (again.split_above, again.keep_from, again.max_level) == (60, 7, 12)
    first = json.loads((tmp_path / "deep" / "classes.json").read_text())["cells"][0]
    assert set(first) == {"class", "token", "level", "latitude", "longitude", "count"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d.update(format="other"), "another format"),
        (lambda d: d.update(version=2), "version 2"),
        (lambda d: d["cells"][0].update(token="zz"), "not an S2 token"),
        (lambda d: d["cells"][0].pop("latitude"), "'latitude' is missing"),
        (lambda d: d["cells"].reverse(), "not in order"),
        (lambda d: d.update(cells=[]), "no cells"),
    ],
)
def test_a_damaged_file_of_classes_is_refused(tmp_path: Path, change, says: str) -> None:
    path = build_classes(*cities(900), split_above=60, keep_from=7).save(tmp_path / "c.json")
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(StreamgaugeError, match=says):
        load_classes(path)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.floats(0.01, 1), st.booleans())
def test_the_earliest_share_is_that_of_a_stable_sort(times, share: float, ordered: bool) -> None:
    time = np.array(sorted(times) if ordered else times)
    wanted = np.zeros(len(time), bool)
    wanted[np.argsort(time, kind="stable")[: max(1, round(len(time) * share))]] = True
    assert np.array_equal(first_rows(time, len(time), share), wanted)


def write(kind: str, folder: Path, columns: dict[str, np.ndarray]) -> Path:
    path = folder / f"points.{kind}"
    if kind == "csv":
        pcsv.write_csv(pa.table(columns), path)
    elif kind == "parquet":
        pq.write_table(pa.table(columns), path)
    elif kind == "npz":
        np.savez(path, **columns)
    elif kind == "npy":
        numbers = [columns[name] for name in ("latitude", "longitude", "time")]
        np.save(path, np.stack(numbers, axis=1))
    else:
        path = folder / "arrays"
        path.mkdir()
        for name, values in columns.items():
            np.save(path / f"{name}.npy", values)
    return path


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz", "npy", "folder"])
def test_every_form_gives_the_same_classes_and_labels(tmp_path: Path, kind: str) -> None:
    latitude, longitude = cities(1000)
    time = np.random.default_rng(4).permutation(1000)
    user = np.random.default_rng(5).integers(0, 9, 1000)
    columns = {"latitude": latitude, "longitude": longitude, "time": time, "user": user}
    points = Points(write(kind, tmp_path, columns))
    classes = classes_of(points, preparation=0.5, split_above=30, keep_from=5)
    early = time < 500
    wanted = build_classes(latitude[early], longitude[early], split_above=30, keep_from=5)
    assert classes.tokens == wanted.tokens
    found = label_points(points, classes, tmp_path / "out.npy")
    label = classes.label(latitude, longitude)
    assert np.load(tmp_path / "out.npy").tolist() == label.tolist()
    assert (found.rows, found.labelled, found.outside) == (
        1000, int((label >= 0).sum()), int((label < 0).sum()),
    )  # fmt: skip
    has = label >= 0
    places = np.stack([latitude, longitude], axis=1)[has]
    within = geolocation_error(places, classes.centre[label[has]]).within
    np.testing.assert_allclose(found.within, within, rtol=1e-12)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
@pytest.mark.parametrize("in_order", [True, False])
def test_a_labelled_table_is_in_order_of_time_without_lost_points(
    tmp_path: Path, ending: str, in_order: bool
) -> None:
    latitude, longitude = cities(600)
    latitude[5] = np.nan
    time = np.arange(600) // 3
    if not in_order:
        time = np.random.default_rng(3).permutation(time)
    user = np.array([f"user {n % 7}" for n in range(600)])
    table = pa.table(
        {"id": np.arange(600), "lat": latitude, "lng": longitude, "time": time, "user": user}
    )
    pq.write_table(table, tmp_path / "points.parquet", row_group_size=100)
    points = Points(tmp_path / "points.parquet", keep=["id"])
    assert points.roles["latitude"] == "lat"
    classes = classes_of(points, preparation=0.3, split_above=20, keep_from=5)
    found = label_points(points, classes, out := tmp_path / f"labelled.{ending}", when=True)
    rows = pq.read_table(out) if ending == "parquet" else pcsv.read_csv(out)
    label = classes.label(latitude, longitude)
    order = np.argsort(time, kind="stable")
    order = order[label[order] >= 0]
    assert rows["row"].to_pylist() == order.tolist() == rows["id"].to_pylist()
    assert rows["label"].to_pylist() == label[order].tolist()
    assert rows["cell"].to_pylist() == [classes.names[n] for n in label[order]]
    assert rows["user"].to_pylist() == user[order].tolist()
    assert rows["time"].to_pylist() == time[order].tolist()
    hour = np.arctan2(rows["day_sin"].to_numpy(), rows["day_cos"].to_numpy())
    np.testing.assert_allclose(hour % (2 * np.pi) * 86_400 / (2 * np.pi), time[order], atol=1e-6)
    assert found.without_place == 1
    assert found.labelled + found.outside + 1 == 600
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize(
    ("columns", "options", "says"),
    [
        ({"lat": [1.0], "x": [2.0]}, {}, "looks like the longitude"),
        ({"lat": [1.0], "lon": [2.0]}, {"latitude": "latt"}, "did you mean 'lat'"),
        ({"lat": [100.0], "lon": [2.0]}, {}, "outside -90..90"),
        ({"lat": [1.0], "lon": [1e6]}, {}, "outside -360..360"),
        ({"lat": ["a"], "lon": [2.0]}, {}, "holds no numbers"),
        ({"lat": [np.nan], "lon": [2.0]}, {}, "has coordinates"),
    ],
)
def test_bad_tables_are_refused_in_a_sentence(columns, options, says: str) -> None:
    arrays = {name: np.array(values) for name, values in columns.items()}
    with pytest.raises(StreamgaugeError, match=says):
        classes_of(Points(arrays, **options), preparation=1, keep_from=1)


@pytest.mark.parametrize("bad", [{"split_above": 0}, {"keep_from": 0}, {"max_level": 31}])
def test_impossible_rules_are_refused(bad: dict[str, int]) -> None:
    option = next(iter(bad)).replace("_", "-")
    with pytest.raises(StreamgaugeError, match=f"--{option} must be a whole number"):
        build_classes([1.0], [2.0], **bad)


def test_a_failed_labelling_leaves_nothing_behind(tmp_path: Path) -> None:
    classes = build_classes(*cities(500), split_above=60, keep_from=7)
    table = pa.table({"lat": [1.0] * 10 + [99.0], "lon": [2.0] * 11})
    pq.write_table(table, tmp_path / "p.parquet", row_group_size=5)
    with pytest.raises(StreamgaugeError, match="outside"):
        label_points(tmp_path / "p.parquet", classes, tmp_path / "out.parquet")
    assert [p.name for p in tmp_path.iterdir()] == ["p.parquet"]


# The map.


def test_outlines_go_through_the_corners_and_close() -> None:
    cell = s2.S2CellId.FromToken("6ad64")
    border = outline(cell.id(), parts=5)
    assert border.shape == (21, 2)
    assert np.allclose(border[0], border[-1])
    for number in range(4):
        corner = s2.S2LatLng(s2.S2Cell(cell).GetVertex(number))
        wanted = [corner.lat().degrees(), corner.lng().degrees()]
        assert np.allclose(border[5 * number], wanted)


def inside(polygons: list[np.ndarray], latitude: float, longitude: float) -> bool:
    """Even-odd rule in the plane of the map, over all closed lines together."""
    odd = False
    for line in polygons:
        y, x = line[:, 0], line[:, 1]
        for a in range(len(line) - 1):
            if (y[a] > latitude) != (y[a + 1] > latitude):
                cut = x[a] + (latitude - y[a]) / (y[a + 1] - y[a]) * (x[a + 1] - x[a])
                odd ^= longitude < cut
    return odd


@pytest.mark.parametrize("token", ["1", "3", "5", "7", "9", "b", "54", "5c", "b4", "bc", "7c"])
def test_flat_borders_hold_the_points_of_their_cell_and_no_others(token: str) -> None:
    """Faces at the poles and across the date line, and smaller cells."""
    cell = s2.S2CellId.FromToken(token)
    lines = borders(outline(cell.id(), parts=64))
    rng = np.random.default_rng(0)
    edge = outline(cell.id(), parts=64)
    seen = set()
    for latitude, longitude in zip(
        rng.uniform(-90, 90, 400).tolist(), rng.uniform(-180, 180, 400).tolist(), strict=True
    ):
        # Straight lines between points of a curved edge differ from it by a little.
        here = np.tile([latitude, longitude], (len(edge), 1))
        if geolocation_error(here, edge).distance.min() < 100:
            continue
        truth = cell.contains(s2.S2CellId(s2.S2LatLng.FromDegrees(latitude, longitude)))
        assert inside(lines, latitude, longitude) == truth, (latitude, longitude)
        seen.add(truth)
    assert seen == {True, False}


def test_a_corner_at_a_pole_becomes_an_edge_of_the_map() -> None:
    north = next(
        cell
        for cell in (s2.S2CellId.FromToken("5").child(k) for k in range(4))
        if max(s2.S2LatLng(s2.S2Cell(cell).GetVertex(k)).lat().degrees() for k in range(4)) > 89.9
    )
    (line, *_) = borders(outline(north.id()))
    at_pole = line[line[:, 0] > 89.9999]
    assert np.ptp(at_pole[:, 1]) == pytest.approx(90)  # a quarter of the way around


def test_a_map_has_every_cell_and_needs_no_network() -> None:
    classes = build_classes(*cities(2000), split_above=100, keep_from=5)
    assert cells_named(classes.names) == [int(c) for c in classes.cell]
    drawn = cell_map("title", "", [int(c) for c in classes.cell], ["text"] * len(classes))
    traces = drawn.data
    assert {trace["type"] for trace in traces} == {"scatter"}  # no kind that fetches tiles
    assert len(traces[1]["x"]) == len(classes)
    assert traces[0]["x"].count(None) >= len(classes) - 1
    low, high = drawn.layout["xaxis"]["range"]
    assert -180 <= low < high <= 180


def test_a_map_is_shaded_by_levels_and_has_a_scale_in_kilometres() -> None:
    classes = build_classes(*cities(2000), split_above=100, keep_from=5)
    cells = [int(c) for c in classes.cell]
    level = [-1, *(n % 2 for n in range(1, len(cells)))]
    drawn = cell_map("t", "", cells, ["text"] * len(cells), level, ["few", "many"])
    outlines = [trace for trace in drawn.data if trace["meta"]["role"] == "outlines"]
    assert [(t["name"], t["meta"]["share"]) for t in outlines] == [
        ("not known", 0), ("few", 0.5), ("many", 1)]  # fmt: skip
    rings = [sum(len(borders(outline(c))) for c, of in zip(cells, level, strict=True) if of == k)
             for k in (-1, 0, 1)]  # fmt: skip
    assert [t["x"].count(None) + 1 for t in outlines] == rings
    (bar,) = drawn.layout["shapes"]
    (label,) = drawn.layout["annotations"]
    number = re.match(r"([\d,]+) km", label["text"])
    assert number is not None
    south, north = drawn.layout["yaxis"]["range"]
    ends = [s2.S2LatLng.FromDegrees((south + north) / 2, bar[x]) for x in ("x0", "x1")]
    km = ends[0].GetDistance(ends[1]).radians() * 6371.01
    assert km == pytest.approx(int(number[1].replace(",", "")), rel=0.02)


# The command.


def test_the_command_builds_labels_draws_and_says_so(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    latitude, longitude = cities(2000)
    longitude[0] = np.nan
    pcsv.write_csv(
        pa.table({"lat": latitude, "lon": longitude, "time": np.arange(2000)}), "points.csv"
    )
    words = "data classes points.csv --preparation 0.5 --split-above 50 --keep-from 10"
    words = [*words.split(), "--labels", "labelled.parquet", "--report", "map.html"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0
    assert "latitude = lat (guessed)" in done.output
    assert "1 without coordinates" in done.output
    page = Path("map.html").read_text()
    assert "The classes on a map" in page
    assert "<script src" not in page
    later = [
        "data",
        "classes",
        "points.csv",
        "--use",
        "classes.json",
        "--labels",
        "a.npy",
        "--json",
    ]
    again = json.loads(CliRunner().invoke(app, later, catch_exceptions=False).output)
    assert again["labelled"] == pq.read_metadata("labelled.parquet").num_rows
    assert int((np.load("a.npy") >= 0).sum()) == again["labelled"]
    assert again["without_coordinates"] == 1


def test_classes_without_points_are_named_as_such_on_the_map(tmp_path: Path) -> None:
    latitude, longitude = cities(2000)
    classes = build_classes(latitude, longitude, split_above=50, keep_from=10)
    points = {"latitude": latitude[:20], "longitude": longitude[:20]}
    pcsv.write_csv(pa.table(points), tmp_path / "few.csv")
    done = run_classes(
        tmp_path / "few.csv",
        use=classes.save(tmp_path / "classes.json"),
        report=tmp_path / "map.html",
    )
    assert 0 < done["labelled"] <= 20 < len(classes)
    page = (tmp_path / "map.html").read_text()
    assert '"name":"0"' in page.replace(": ", ":")
    assert '"1 to 9"' in page
    assert "not known" not in page


def test_a_labelled_table_runs_in_albums_and_its_report_has_a_map(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    latitude, longitude = cities(1500)
    user = np.repeat(np.arange(500), 3)[:1500] % 40
    time = 1_300_000_000 + 5000 * np.arange(1500)
    table = {"latitude": latitude, "longitude": longitude, "time": time, "user": user}
    pcsv.write_csv(pa.table(table), "points.csv")
    build = "data classes points.csv --preparation 0.5 --split-above 100 --keep-from 20 --calendar"
    run = CliRunner()
    done = run.invoke(app, [*build.split(), "--labels", "cells.csv"], catch_exceptions=False)
    assert done.exit_code == 0
    stream = {"path": "cells.csv", "label": "cell", "time": "time", "user": "user"}
    stream |= {"drop": "row,latitude,longitude,label", "step": "album", "preparation": "0.5"}
    words = "run --stream tabular --learner majority --learner ncm --out runs --json"
    settings_given = {f"stream.{name}": value for name, value in stream.items()}
    done = run.invoke(app, words.split(), obj=settings_given, catch_exceptions=False)
    assert done.exit_code == 0
    runs = find_runs([Path("runs")])
    classes = load_classes("classes.json")
    names = runs[0].stream["class_names"]  # in order of first appearance
    assert sorted(names) == sorted(classes.names)
    centre = dict(zip(classes.names, classes.centre.tolist(), strict=True))
    assert class_centres(names).tolist() == [centre[name] for name in names]
    page = write_report(runs, "report.html").read_text()
    assert re.search(r"Where \w+ is right", page)
    assert "no coasts and borders" in page
    assert page.count("majority: ") > 3  # what the pointer shows
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "s2geometry", None)
        page = write_report(runs, "report.html").read_text()
    assert "Where the classes are" not in page
    assert "streamgauge[geo]" in page


def test_names_that_are_no_cells_have_no_centres() -> None:
    with pytest.raises(StreamgaugeError, match="no places"):
        class_centres(["cat", "dog"])
