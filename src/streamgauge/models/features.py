"""Frozen features: a network that never changes, and a stream whose inputs are its features.

A backbone is in evaluation mode, so a sample's features depend on that sample alone and can be
computed once: `with_features` returns the same stream with features from disk as inputs.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from streamgauge import models
from streamgauge.errors import StreamgaugeError
from streamgauge.files import locked, replace_synced, write_text
from streamgauge.settings import as_plain
from streamgauge.streams import Gate, Source, Spec, Stream
from streamgauge.streams.order import mapped
from streamgauge.streams.prefetch import PrefetchSource, workers_for
from streamgauge.streams.source import Array, IntArray

SHARD_BYTES = 64 << 20  # of features in one file
BATCH = 256  # samples in one forward pass

Progress = Callable[[int, int], None]  # called with the number of items done, and of all


@dataclass(frozen=True)
class Config:
    """Which frozen network makes the features; settings of every learner that has one."""

    model: str = "linear"  # "linear" is the input itself; else a network, frozen in eval mode
    weights: str = ""  # its weights: a file, or a folder of `pretrain`'s; none: as initialised
    embedding: int = 0  # size of the embedding that `pretrain` stored in that file; 0: without it
    mean: tuple[float, ...] = (0.5,)  # of pixels in 0..1, one for all channels or one each
    std: tuple[float, ...] = (0.25,)  # of pixels in 0..1, as `mean`


class Backbone:
    """A frozen network: inputs [B, ...] to features [B, size]. `source` is needed if the weights
    are a folder.

    >>> backbone = Backbone(Spec((3, 8, 8), classes=4), Config(model="cnn4"), seed=0)
    >>> backbone.size, backbone(torch.zeros(5, 3, 8, 8, dtype=torch.uint8)).shape
    (128, torch.Size([5, 128]))
    """

    def __init__(
        self,
        spec: Spec,
        config: Config,
        seed: int = 0,
        device: torch.device | None = None,
        source: Gate | None = None,
    ) -> None:
        if config.embedding and not config.weights:
            raise StreamgaugeError(
                "An embedding is learnt and needs a file: give `weights`, which `streamgauge "
                "pretrain` makes, or set `embedding` to 0."
            )
        models.refuse_unused_normalisation(config, spec.input_shape)
        model = models.build(config.model, spec.input_shape, 1, seed)
        if config.embedding:
            add_embedding(model, config.embedding, seed)
        if config.weights:
            file = weights_file(config.weights, config.model, source)
            models.load_weights(model, file, mean=config.mean, std=config.std)
        self.config = config
        self.device = device or torch.device("cpu")
        self.model = model.to(self.device).eval().requires_grad_(False)
        self.mean, self.std = (torch.tensor(v, device=device) for v in (config.mean, config.std))
        self.changed = models.changed_normalisation(config)
        self.size = config.embedding or model.feature_size

    def __call__(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """The generator is not used: features that are computed once have no random views."""
        with torch.no_grad():
            models.refuse_float_images(x, self.changed)
            return embed(self.model, models.to_float(x, self.mean, self.std))

    @property
    def fingerprint(self) -> str:
        """A hash of everything that the features depend on, except the inputs."""
        config = self.config
        digest = hashlib.blake2b(digest_size=16)
        digest.update(repr((config.model, config.embedding, config.mean, config.std)).encode())
        for name, array in self.model.state_dict().items():
            if not name.startswith("fc."):
                digest.update(f"{name}{array.dtype}{tuple(array.shape)}".encode())
                digest.update(np.ascontiguousarray(array.cpu().numpy()).data)
        return digest.hexdigest()


def weights_file(weights: str | Path, model: str, source: Gate | None) -> Path:
    """A file, unchanged; in a folder, the one file that `pretrain` made of this network for this
    stream, found by a hash of the preparation samples. So one setting serves all seeds of a stream,
    each with its own backbone."""
    path = Path(weights)
    if source is None or not path.is_dir():
        return path
    fitting = sorted(path.glob(f"*-{model}-{preparation_hash(source)}-*.pt"))
    if len(fitting) != 1:
        there = f"{len(fitting)} backbones" if fitting else "no backbone"
        raise StreamgaugeError(
            f"There is {there} of the model '{model}' for this stream in '{path}': "
            + ("name the file." if fitting else "make it with `streamgauge pretrain`.")
        )
    return fitting[0]


def preparation_hash(source: Gate) -> str:
    """A hash of the inputs and labels of the preparation samples, in their order."""
    source = getattr(source, "unscaled", source)
    digest = hashlib.blake2b(f"{source.spec}".encode(), digest_size=4)
    for start in range(0, len(source.preparation), 4096):
        index = source.preparation[start : start + 4096]
        for part in (source.read(index), source.label(index)):
            digest.update(np.ascontiguousarray(part.cpu().numpy()).data)
    return digest.hexdigest()


def add_embedding(model: models.Model, size: int, seed: int) -> None:
    """Add linear, batch norm and ReLU on top, as in the near-future paper's code for ACM."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        linear = nn.Linear(model.feature_size, size)
        model.embedding = nn.Sequential(linear, nn.BatchNorm1d(size), nn.ReLU())


def embed(model: models.Model, x: Tensor) -> Tensor:
    """Features of normalised floats, through the embedding where the network has one."""
    features = model.features(x)
    layer = getattr(model, "embedding", None)
    return features if layer is None else layer(features)


class FeatureSource:
    """A source whose inputs are features in a folder of `.npy` files, mapped into memory; labels,
    columns and names are those of the source they were computed from."""

    def __init__(self, source: Source, folder: Path, size: int, fingerprint: str) -> None:
        self.spec = Spec((size,), source.spec.classes)
        self.label, self.columns = source.label, source.columns
        self.class_names, self.fingerprint = source.class_names, fingerprint
        self.rows = rows_in_a_shard(size)
        self._shard = cache(lambda number: mapped(shard_file(folder, number)))

    def __len__(self) -> int:
        return len(self.label)

    def read(self, index: IntArray) -> Array:
        shard, row = np.divmod(np.asarray(index, np.int64), self.rows)
        features = np.empty((len(row), *self.spec.input_shape), np.float32)
        for number in np.unique(shard).tolist():
            here = shard == number
            features[here] = self._shard(number)[row[here]]
        return features


def with_features(
    stream: Stream,
    model: str = "cnn4",
    weights: str | Path = "",
    *,
    embedding: int = 0,
    mean: tuple[float, ...] = (0.5,),
    std: tuple[float, ...] = (0.25,),
    seed: int = 0,
    out: str | Path = "features",
    device: str = "auto",
    progress: Progress | None = None,
    workers: int | None = None,
) -> Stream:
    """The same stream, with the features of a frozen network for inputs. Features of all samples of
    the source are computed once and stored in `out`, in a folder named by a hash of the data and
    the network. A computation that was killed goes on at its last block of samples. `seed` matters
    only without weights. `progress` is called with the number of samples done and of all samples.
    `workers` processes decode encoded images in advance."""
    config = Config(model, str(weights), embedding, mean, std)
    gate = Gate(stream.source, stream.preparation, torch.device("cpu"))
    backbone = Backbone(stream.spec, config, seed, device_named(device), gate)
    print_of = hashlib.blake2b(
        f"features 1 {stream.source.fingerprint} {backbone.fingerprint}".encode(), digest_size=16
    ).hexdigest()
    folder = Path(out) / print_of
    progress = progress or (lambda done, count: None)
    _compute(stream.source, backbone, folder, progress, workers)
    source = FeatureSource(stream.source, folder, backbone.size, print_of)
    return replace(
        stream,
        name=f"{stream.name}-features",
        source=source,
        settings={**stream.settings, "features": as_plain(config)},
    )


def _compute(
    source: Source, backbone: Backbone, folder: Path, progress: Progress, workers: int | None
) -> None:
    """Compute every shard that is missing; a shard gets its name only when it is complete."""
    count, rows, size = len(source), rows_in_a_shard(backbone.size), backbone.size
    shards = [(start, min(start + rows, count)) for start in range(0, count, rows)]
    missing = [
        (number, shard)
        for number, shard in enumerate(shards)
        if not _is_whole(shard_file(folder, number), (shard[1] - shard[0], size))
    ]
    if not missing:
        progress(count, count)
        return
    folder.mkdir(parents=True, exist_ok=True)
    about = {"samples": count, "size": size, "model": backbone.config.model}
    write_text(folder / "about.json", json.dumps(about, indent=1))
    busy = f"Another process is computing the features in '{folder}': wait for it, or stop it."
    with locked(folder, busy), _ahead(source, workers) as reader:
        for number, shard in missing:
            _write_shard(reader, backbone, shard_file(folder, number), shard, progress)


def _write_shard(
    source: Source, backbone: Backbone, file: Path, shard: tuple[int, int], progress: Progress
) -> None:
    """One file, written block by block under a temporary name, so that only a block is in memory
    and a computation that was killed continues after the last complete block."""
    (start, end), size = shard, backbone.size
    unfinished = file.with_name(f"{file.name}.begun")
    text = io.BytesIO()
    about = {"descr": "<f4", "fortran_order": False, "shape": (end - start, size)}
    np.lib.format.write_array_header_1_0(text, about)
    header = text.getvalue()
    done = blocks_done(unfinished, header, size) * BATCH
    with unfinished.open("r+b" if done else "wb") as opened:
        opened.truncate(len(header) + 4 * size * done)
        opened.seek(0)
        opened.write(header)
        opened.seek(0, os.SEEK_END)
        blocks = [
            np.arange(first, min(first + BATCH, end)) for first in range(start + done, end, BATCH)
        ]
        announced = 0
        for number, index in enumerate(blocks):
            while (
                isinstance(source, PrefetchSource) and source.needs_more and announced < len(blocks)
            ):
                if announced >= number:
                    source.announce(blocks[announced])
                announced += 1
            features = (
                backbone(torch.from_numpy(source.read(index)).to(backbone.device)).cpu().numpy()
            )
            if not np.isfinite(features).all():
                bad = int(index[0]) + int(np.flatnonzero(~np.isfinite(features).all(axis=1))[0])
                raise StreamgaugeError(
                    f"The features of sample {bad} hold a NaN or an infinity: check the weights, "
                    f"mean and std."
                )
            opened.write(np.ascontiguousarray(features, np.float32).data)
            opened.flush()
            if number + 1 < len(blocks):
                progress(int(index[-1]) + 1, len(source))
    replace_synced(unfinished, file)
    progress(end, len(source))


def _ahead(source: Source, workers: int | None) -> AbstractContextManager[Source]:
    """The source, read in advance by worker processes if there are any."""
    count = workers_for(source, workers)
    return closing(PrefetchSource(source, count)) if count else nullcontext(source)


def blocks_done(unfinished: Path, header: bytes, size: int) -> int:
    """Complete blocks in an unfinished file, without the last: it may not be on the disk yet."""
    try:
        with unfinished.open("rb") as opened:
            same = opened.read(len(header)) == header
        written = unfinished.stat().st_size - len(header)
    except OSError:
        return 0
    return max(0, written // (4 * size * BATCH) - 1) if same else 0


def _is_whole(file: Path, shape: tuple[int, int]) -> bool:
    try:
        return bool(np.load(file, mmap_mode="r").shape == shape)
    except (OSError, ValueError, EOFError):
        return False


def rows_in_a_shard(size: int) -> int:
    return max(1, SHARD_BYTES // (4 * size))


def shard_file(folder: Path, number: int) -> Path:
    return folder / f"{number:05d}.npy"


def device_named(device: str) -> torch.device:
    """`auto` is the GPU where there is one."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise StreamgaugeError(f"There is no device '{device}'; use auto, cpu or cuda.") from None
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise StreamgaugeError("This machine has no CUDA device; use --device cpu.")
    return chosen
