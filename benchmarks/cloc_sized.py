"""A generated stream of CLOC's size, from coordinates to trained learners, on two cores.

python benchmarks/cloc_sized.py                      # all parts, one after the other
python benchmarks/cloc_sized.py generate albums      # some parts, by name
python benchmarks/cloc_sized.py --folder DIR --samples 1000000 --images 2000

39,000,000 photos with time, user and coordinates; 713 places with Zipf frequencies; albums of 1.157
photos on average (Cai et al. 2021); small images for the first million, JPEG files for 20,000.
Every part runs in a process of its own, so that its peak memory is its own (with that of its
worker processes, each counted by itself: the largest is given). Beside the seconds stand processor
seconds, which tell what it costs where the machine is busy with other things.
"""

from __future__ import annotations

import argparse
import io
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CLASSES = 713
CHUNK = 1 << 20
EPOCH = 1_072_915_200  # 2004
ALBUM = 1.157  # photos, on average
SMALL = 8  # pixels a side of the first million's images
LARGE = 96  # of the JPEG files


class Folder:
    """Where everything lies, and how much of it there is."""

    def __init__(self, path: Path, samples: int, images: int, first: int) -> None:
        self.path, self.samples = path, samples
        self.images, self.first = min(images, samples), min(first, samples)
        path.mkdir(parents=True, exist_ok=True)

    def array(self, name: str) -> NDArray[Any]:
        return np.asarray(np.load(self.path / f"{name}.npy", mmap_mode="r"))

    def new(self, name: str, kind: Any, shape: tuple[int, ...]) -> Any:
        return np.lib.format.open_memmap(self.path / f"{name}.npy", "w+", kind, shape)


def generate(folder: Folder) -> str:
    """Labels, users, times, coordinates, chunk by chunk: only a chunk is ever in memory."""
    n = folder.samples
    of_centres = np.random.default_rng(0)
    latitude = of_centres.uniform(-60, 70, CLASSES)
    centre = np.stack([latitude, of_centres.uniform(-180, 180, CLASSES)])
    popular = np.cumsum(1 / np.arange(1, CLASSES + 1))
    kinds = {"label": np.int16, "user": np.int32, "time": np.int64,
             "latitude": np.float32, "longitude": np.float32}  # fmt: skip
    out = {name: folder.new(name, kind, (n,)) for name, kind in kinds.items()}
    now, user, label = EPOCH, 0, 0
    for number, start in enumerate(range(0, n, CHUNK)):
        rng = np.random.default_rng([1, number])
        size = min(CHUNK, n - start)
        fresh = rng.random(size) < 1 / ALBUM
        album = np.cumsum(fresh)
        count = int(album[-1])
        users = np.append(user, (600_000 * rng.random(count) ** 3).astype(np.int32))
        labels = np.append(label, np.searchsorted(popular, rng.random(count) * popular[-1]))
        labels = np.minimum(labels, CLASSES - 1)
        part = slice(start, start + size)
        out["user"][part] = users[album]
        out["label"][part] = labels[album]
        out["time"][part] = now + np.cumsum(rng.integers(0, 17, size))
        for axis, name in enumerate(("latitude", "longitude")):
            away = rng.normal(0, 0.5, size)
            out[name][part] = np.clip(centre[axis][labels[album]] + away, -179.9, 179.9)
        user, label, now = int(users[-1]), int(labels[-1]), int(out["time"][start + size - 1])
        for array in out.values():
            array.flush()
    return f"{n:,} samples"


def pack(folder: Folder) -> str:
    """Everything but images into a packed folder: columns that are mapped when it is opened."""
    from streamgauge.streams.pack.packing import pack as write

    write(Columns(folder), folder.path / "packed", name="cloc_sized")
    return "columns packed"


class Columns:
    """The generated arrays as a source without inputs; nothing is read before it is asked for."""

    def __init__(self, folder: Folder, label: NDArray[Any] | None = None) -> None:
        from streamgauge.streams import Spec

        self.label = folder.array("label") if label is None else label
        names = ("user", "time", "latitude", "longitude")
        self.columns = {name: folder.array(name) for name in names}
        self.spec = Spec((0,), int(self.label.max()) + 1)
        self.class_names = None
        self.fingerprint = f"generated {folder.samples}"

    def __len__(self) -> int:
        return len(self.label)

    def read(self, index: NDArray[Any]) -> NDArray[np.uint8]:
        return np.empty((len(index), 0), np.uint8)


def classes(folder: Folder) -> str:
    """Geographic classes: cells grown on the first 5 %, then the class of every point."""
    try:
        from streamgauge.places import build_classes
    except ImportError:
        return "left out: this version has no geographic classes"
    prepared = folder.samples // 20
    latitude, longitude = folder.array("latitude"), folder.array("longitude")
    start = time.perf_counter()
    # CLOC's thresholds are for 2 million photos; they shrink with the sample.
    share = min(1.0, folder.samples / 39_000_000)
    made = build_classes(
        latitude[:prepared],
        longitude[:prepared],
        split_above=max(50, int(10_000 * share)),
        keep_from=max(2, int(50 * share)),
    )
    built = time.perf_counter() - start
    label = made.label(latitude, longitude)
    np.save(folder.path / "cell.npy", label)
    took = time.perf_counter() - start - built
    return f"{len(made)} classes in {built:.1f} s, all points labelled in {took:.1f} s"


STREAM = {"order": "time", "held_out": 0.01, "preparation": 0.05, "batch": 256}


def open_stream(folder: Folder, **more: Any) -> Any:
    import streamgauge as sg

    return sg.stream("packed", path=str(folder.path / "packed"), **{**STREAM, **more})


def splits(folder: Folder) -> str:
    """CLOC's: 5 % to prepare on, 1 % held out uniformly over time; steps of 256."""
    return repr(open_stream(folder)).removeprefix("Stream")


def albums(folder: Folder) -> str:
    """The same, in steps of one album each."""
    stream = open_stream(folder, step="album")
    return f"{len(stream):,} albums, {stream.samples / len(stream):.3f} photos each"


def again(folder: Folder) -> str:
    """Open the album stream once more, its order and its hashes included."""
    start = time.perf_counter()
    stream = open_stream(folder, step="album")
    stream.describe()
    return f"{stream.samples:,} samples opened in {time.perf_counter() - start:.2f} s"


def audit(folder: Folder) -> str:
    """How far label correlation reaches, and what repeating labels is worth."""
    from streamgauge.audit import blind_accuracy, select_shift

    stream = open_stream(folder)
    label = stream.source.label[stream.order]
    choice = select_shift(label)
    blind = blind_accuracy(label, [1, 10, 100], [0, 1, 256])
    return f"{choice!s:.60} | last label {blind.ravel()[0]:.3f}"


def images(folder: Folder) -> str:
    """Small images of the first million, packed as arrays; JPEG files for some, packed as they
    are by two processes."""
    from streamgauge.streams import ArraySource
    from streamgauge.streams.images.image_source import ImageSource
    from streamgauge.streams.pack.packing import pack as write

    n = folder.first
    rng = np.random.default_rng(5)
    pattern = rng.integers(40, 216, (CLASSES, 3, SMALL, SMALL)).astype(np.int16)
    label = folder.array("label")
    x = folder.new("small", np.uint8, (n, 3, SMALL, SMALL))
    for start in range(0, n, 1 << 16):
        chosen = label[start : min(start + (1 << 16), n)]
        x[start : start + len(chosen)] = pattern[chosen] + rng.integers(
            -40, 40, (len(chosen), 3, SMALL, SMALL)
        )
    columns = {name: folder.array(name)[:n] for name in ("user", "time")}
    source = ArraySource(folder.array("small"), label[:n], classes=CLASSES, **columns)
    write(source, folder.path / "small_packed", name="cloc_first_million")

    files = Photos(folder)
    few = {name: folder.array(name)[: folder.images] for name in ("user", "time")}
    photos = ImageSource(files, label[: folder.images], size=32, classes=CLASSES, **few)
    packed = write(photos, folder.path / "photos_packed", name="cloc_photos")
    return f"{n:,} small images, {len(packed):,} JPEG files"


class Photos:
    """JPEG files that are drawn when they are asked for: a smooth pattern a place, and noise."""

    fingerprint = "generated photos"

    def __init__(self, folder: Folder) -> None:
        self.count, self.label = folder.images, folder.array("label")
        self.coarse = np.random.default_rng(6).integers(0, 256, (CLASSES, 6, 6, 3), dtype=np.uint8)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> bytes:
        from PIL import Image

        scene = Image.fromarray(self.coarse[self.label[number]])
        scene = scene.resize((LARGE, LARGE), Image.Resampling.BICUBIC)
        rng = np.random.default_rng([7, number])
        pixels = np.asarray(scene, np.int16) + rng.integers(-25, 26, (LARGE, LARGE, 3))
        file = io.BytesIO()
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=85)
        return file.getvalue()


def features(folder: Folder) -> str:
    """Frozen features of the first million, by a small network, sharded on the disk."""
    over = feature_stream(folder)
    return f"{len(over.source):,} x {over.spec.input_shape[0]} features"


def feature_stream(folder: Folder) -> Any:
    import streamgauge as sg
    from streamgauge.models.features import with_features

    settings = {"order": "time", "batch": 64, "held_out": 0.01, "preparation": 0.05}
    stream = sg.stream("packed", path=str(folder.path / "small_packed"), **settings)
    return with_features(stream, "cnn4", out=folder.path / "features", device="cpu")


def head(folder: Folder) -> str:
    """A linear head with replay on the cached features of the first million, in steps of 64."""
    import streamgauge as sg

    learner = sg.learner("er", model="linear", lr=0.05, memory=40_000, policy="fifo", recall=64)
    run = sg.run(
        feature_stream(folder),
        learner,
        out=folder.path / "runs" / str(time.time_ns()),
        protocol=sg.Protocol(evaluate="end"),
        device="cpu",
    )
    return f"online accuracy {online(run):.3f}"


def resnet(folder: Folder) -> str:
    """A slim ResNet18 with replay over the photos at 32 pixels, decoded ahead by two processes."""
    import streamgauge as sg

    settings = {"order": "time", "batch": 10, "held_out": 0.01, "preparation": 0.05}
    stream = sg.stream("packed", path=str(folder.path / "photos_packed"), **settings)
    learner = sg.learner("er", model="slim_resnet18", lr=0.05, memory=5_000)
    run = sg.run(
        stream,
        learner,
        out=folder.path / "runs" / str(time.time_ns()),
        protocol=sg.Protocol(evaluate="end"),
        device="cpu",
    )
    return f"online accuracy {online(run):.3f}"


def online(run: Any) -> float:
    table = run.predictions
    return float(np.mean(np.asarray(table["label"]) == np.asarray(table["prediction"])))


PARTS: dict[str, Callable[[Folder], str]] = {
    part.__name__: part
    for part in (
        generate, pack, classes, splits, albums, again, audit, images, features, head, resnet,
    )
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--folder", type=Path, default=Path("cloc_sized"))
    parser.add_argument("--samples", type=int, default=39_000_000)
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=1_000_000)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    unknown = [part for part in asked.parts if part not in PARTS]
    if unknown:
        sys.exit(f"there is no part {unknown[0]}: choose from {', '.join(PARTS)}")
    if asked.one:
        one(Folder(asked.folder, asked.samples, asked.images, asked.first), asked.parts[0])
        return
    sizes = ["--samples", asked.samples, "--images", asked.images, "--first", asked.first]
    print(f"{'part':10s} {'seconds':>8s} {'processor':>9s} {'peak MB':>8s}  what")
    for part in asked.parts or PARTS:
        command = [sys.executable, __file__, part, "--one", "--folder", asked.folder, *sizes]
        done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(f"{part} failed")
        figures = json.loads(done.stdout.strip().splitlines()[-1])
        print(
            f"{part:10s} {figures['seconds']:8.1f} {figures['processor']:9.1f} "
            f"{figures['peak']:8.0f}  {figures['text']}",
            flush=True,
        )


def one(folder: Folder, part: str) -> None:
    start = time.perf_counter()
    text = PARTS[part](folder)
    seconds = time.perf_counter() - start
    peak = max(
        resource.getrusage(who).ru_maxrss / 1024
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    uses = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    processor = sum(use.ru_utime + use.ru_stime for use in uses)
    figures = {"seconds": seconds, "processor": processor, "peak": peak, "text": text}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
