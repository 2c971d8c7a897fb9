"""Decoding and augmenting 224-pixel JPEGs on two cores, compared with a bare Pillow loop on one.

python benchmarks/decode.py [SECONDS]

Both read the same files and make the same kind of view: `crop_flip` (padded by 4, cut at a random
place, mirrored in half of the cases) and `resized_crop_flip` (a random part, stretched). The bare
loop is Pillow on one core: open, decode, cut, mirror, to an array. Ours packs the files, decodes
them ahead of time in two worker processes, hands them over as batches of 20 and augments the batch.
Figures are samples a second and core, measured in turns. On a machine that is busy with other
things a loop of one process and three processes on two cores get unequal shares of it; the ratio by
processor seconds, ours and the workers', does not suffer from that and is printed as well.
"""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from streamgauge.models.augment import augment
from streamgauge.streams.images.image_source import ImageSource
from streamgauge.streams.pack.packing import pack
from streamgauge.streams.prefetch import PrefetchSource

FILES, SIDE, BATCH, CORES, ROUNDS = 400, 224, 20, 2, 25


def make_files(folder: Path) -> list[Path]:
    """Photo-like files: smooth patterns with some grain, about 20 kB each."""
    rng = np.random.default_rng(0)
    files = []
    for number in range(FILES):
        coarse = Image.fromarray(rng.integers(0, 256, (28, 28, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize((SIDE, SIDE), Image.Resampling.BICUBIC), np.int16)
        pixels = (smooth + rng.integers(-20, 21, smooth.shape)).clip(0, 255).astype(np.uint8)
        files.append(folder / f"{number:04d}.jpg")
        Image.fromarray(pixels).save(files[-1], quality=85)
    return files


class Files:
    def __init__(self, files: list[Path]) -> None:
        self.files = files
        self.fingerprint = "made here"

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, number: int) -> bytes:
        return self.files[number].read_bytes()


def bare(files: list[Path], how: str) -> Iterator[int]:
    rng = np.random.default_rng(1)
    for file in itertools.cycle(files):
        image = Image.open(file).convert("RGB")
        if how == "crop_flip":
            ground = Image.new("RGB", (SIDE + 8, SIDE + 8))
            ground.paste(image, (4, 4))
            top, left = rng.integers(0, 9, 2).tolist()
            image = ground.crop((left, top, left + SIDE, top + SIDE))
        else:
            share = rng.uniform(0.08, 1) ** 0.5
            side = int(SIDE * share)
            top, left = rng.integers(0, SIDE - side + 1, 2).tolist()
            box = (left, top, left + side, top + side)
            image = image.resize((SIDE, SIDE), Image.Resampling.BILINEAR, box=box)
        if rng.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        np.asarray(image)
        yield 1


def ours(source: PrefetchSource, how: Any) -> Iterator[int]:
    rng = np.random.default_rng(2)
    generator = torch.Generator().manual_seed(3)
    coming: list[np.ndarray[Any, Any]] = []
    while True:
        while source.needs_more or not coming:
            coming.append(rng.permutation(FILES)[:BATCH])
            source.announce(coming[-1])
        augment(torch.from_numpy(source.read(coming.pop(0))), how, generator)
        yield BATCH


def rate(work: Iterator[int], seconds: float, workers: Sequence[int] = ()) -> tuple[float, float]:
    """Samples a second, and samples a processor second."""
    start, used, done = time.perf_counter(), processor(workers), 0
    while time.perf_counter() - start < seconds:
        done += next(work)
    return done / (time.perf_counter() - start), done / (processor(workers) - used)


def processor(workers: Sequence[int]) -> float:
    """Processor seconds of this process and its workers."""
    used = time.process_time()
    for worker in workers:
        fields = Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()
        used += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return used


def main(seconds: float) -> None:
    torch.set_num_threads(1)
    here = os.sched_getaffinity(0)
    two = set(sorted(here)[:CORES])
    one = set(sorted(here)[:1])
    print(
        f"{'view':18s} {'bare Pillow':>12s} {'ours, a core':>13s} {'ratio':>6s} "
        f"{'by processor':>13s}   load"
    )
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "files").mkdir()
        files = make_files(Path(folder) / "files")
        labels = np.zeros(FILES, np.int64)
        packed = pack(ImageSource(Files(files), labels, size=SIDE), Path(folder) / "packed")
        for how in ("crop_flip", "resized_crop_flip"):
            os.sched_setaffinity(0, two)
            source = PrefetchSource(packed, CORES)  # its workers stay on the two cores
            workers = [process.pid for process in source._workers.processes]
            theirs, mine = bare(files, how), ours(source, how)
            rate(theirs, seconds / 4), rate(mine, seconds / 4)
            times = []
            for _ in range(ROUNDS):
                os.sched_setaffinity(0, one)
                slow = rate(theirs, seconds)
                os.sched_setaffinity(0, two)
                fast = rate(mine, seconds, workers)
                times.append((slow[0], fast[0] / len(two), fast[1] / slow[1]))
            source.close()
            os.sched_setaffinity(0, here)
            middle = sorted(times, key=lambda pair: pair[1] / pair[0])[ROUNDS // 2]
            by_processor = sorted(each[2] for each in times)[ROUNDS // 2]
            print(
                f"{how:18s} {middle[0]:12.0f} {middle[1]:13.0f} {middle[1] / middle[0]:6.2f} "
                f"{by_processor:13.2f}   {os.getloadavg()[0]:.1f}"
            )


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 0.8)
