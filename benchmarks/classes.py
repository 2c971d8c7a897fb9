"""How fast geographic classes are: ``python benchmarks/classes.py [NAME...]``, names as printed.

39,000,000 points are made on the spot: 3,000 cities with Zipf frequencies, each some kilometres
wide, and a tenth of the points anywhere on the sphere. Every case runs in a process of its own, so
that its peak memory is its own; machine code is compiled, or loaded from its cache, before the
clock starts. The one comparison is within one run: s2geometry, a call a point, against ours.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streamgauge.places import build_classes, label_points, leaf_cells
from streamgauge.places.points import Points, classes_of

CLOC = 39_000_000
Floats = NDArray[np.float64]


def places(count: int, seed: int = 0) -> tuple[Floats, Floats]:
    """Latitude and longitude, made in pieces to keep memory small."""
    rng = np.random.default_rng(seed)
    north = np.degrees(np.arcsin(rng.uniform(-0.7, 0.9, 3000)))
    east = rng.uniform(-180, 180, 3000)
    width = rng.gamma(2, 0.05, 3000)
    edges = np.cumsum(1 / np.arange(1, 3001))
    latitude, longitude = np.empty(count), np.empty(count)
    for start in range(0, count, 1 << 21):
        part = slice(start, min(start + (1 << 21), count))
        size = part.stop - start
        city = np.searchsorted(edges, rng.random(size) * edges[-1]).clip(0, 2999)
        latitude[part] = north[city] + width[city] * rng.standard_normal(size)
        longitude[part] = east[city] + width[city] * rng.standard_normal(size)
        anywhere = rng.random(size) < 0.1
        latitude[part][anywhere] = np.degrees(np.arcsin(rng.uniform(-1, 1, anywhere.sum())))
        longitude[part][anywhere] = rng.uniform(-180, 180, anywhere.sum())
    return latitude.clip(-90, 90), longitude


def make(folder: Path, parquet: bool) -> None:
    latitude, longitude = places(CLOC)
    taken = np.sort(np.random.default_rng(1).integers(1_072_915_200, 1_420_070_400, CLOC))
    if not parquet:
        np.save(folder / "latitude.npy", latitude)
        np.save(folder / "longitude.npy", longitude)
        np.save(folder / "time.npy", taken)
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    user = np.random.default_rng(2).integers(0, 100_000, CLOC)
    table = pa.table({"time": taken, "user": user, "latitude": latitude, "longitude": longitude})
    pq.write_table(table, folder / "points.parquet", row_group_size=1 << 20)


def whole(parquet: bool) -> str:
    """From a file on disk to classes and to a file of labels."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kind = "parquet" if parquet else "npy"
        # Made by a process of its own, so that its memory does not count here.
        subprocess.run([sys.executable, __file__, "--make", name, kind], check=True)
        start = time.perf_counter()
        points = Points(folder / "points.parquet" if parquet else folder)
        when = points.times()
        classes = classes_of(points, time=when)
        built = time.perf_counter() - start
        out = folder / ("labels.parquet" if parquet else "out.npy")
        result = label_points(points, classes, out, time=when)
        total = time.perf_counter() - start
    return (
        f"{total:8.1f} s ({built:.1f} s to build {len(classes)} classes; "
        f"{result.labelled / result.rows:.1%} of the points lie in one)"
    )


def in_memory() -> str:
    latitude, longitude = places(CLOC)
    classes = build_classes(latitude[: CLOC // 20], longitude[: CLOC // 20])
    start = time.perf_counter()
    classes.label(latitude, longitude)
    return f"{time.perf_counter() - start:8.1f} s"


def against_swig() -> str:
    """Leaf ids of a million points on one thread, by s2geometry a call a point, and by ours."""
    import s2geometry as s2

    latitude, longitude = places(1_000_000)
    start = time.perf_counter()
    theirs = [
        s2.S2CellId(s2.S2LatLng.FromDegrees(a, b)).id()
        for a, b in zip(latitude.tolist(), longitude.tolist(), strict=True)
    ]
    middle = time.perf_counter()
    ours = leaf_cells(latitude, longitude, threads=1)
    end = time.perf_counter()
    assert np.array_equal(ours, np.array(theirs, np.uint64))
    return (
        f"{middle - start:.2f} s and {end - middle:.3f} s: "
        f"{(middle - start) / (end - middle):.0f} times, the same ids"
    )


CASES: dict[str, tuple[str, Callable[[], str]]] = {
    "label": ("labels of 39 M points in memory", in_memory),
    "npy": ("39 M points in .npy files: classes, labels, .npy", lambda: whole(False)),
    "parquet": ("39 M points in Parquet: classes, labels, Parquet", lambda: whole(True)),
    "swig": ("leaf ids of 1 M points, s2geometry and ours", against_swig),
}


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        build_classes(*places(1000), split_above=100, keep_from=1).label(*places(1000))
        took = CASES[sys.argv[2]][1]()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(f"{took}   peak {peak / 2**20:5.2f} GB")
        return
    if sys.argv[1:2] == ["--make"]:
        make(Path(sys.argv[2]), sys.argv[3] == "parquet")
        return
    unknown = [n for n in sys.argv[1:] if n not in CASES]
    if unknown:
        sys.exit(f"there is no case {unknown[0]}: choose from {', '.join(CASES)}")
    for name in sys.argv[1:] or CASES:
        print(f"{name:9s} {CASES[name][0]:52s}", end="", flush=True)
        command = [sys.executable, __file__, "--one", name]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        print(done.stdout.strip(), flush=True)


if __name__ == "__main__":
    main()
