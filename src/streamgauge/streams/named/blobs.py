"""Small image classes, easy to tell apart, for class- and domain-incremental streams.

Each class is one smooth colour pattern; a sample is the pattern plus triangular noise per pixel
from −31 to 31. With `domains` above 1 there is a column `domain`, and each domain has a colour cast
of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.named import _generate as generate
from streamgauge.streams.named._generate import Bytes
from streamgauge.streams.source import Array, ArraySource, IntArray, pieces
from streamgauge.streams.stream import Arrangement, Stream, arrange

_SCENES, _NOISE, _CASTS = range(300, 303)  # which draws a generator is for


@dataclass(frozen=True)
class Config(Arrangement):
    """Settings of the small image classes."""

    order: Literal["given", "time", "iid", "classes", "blurry", "domains"] = "classes"
    tasks: int = 5
    held_out: float = 0.1
    held_out_by: Literal["time", "task", "random"] = "task"
    classes: int = 10  # number of classes
    per_class: int = 200  # samples of each class
    size: int = 8  # pixels per side
    domains: int = 1  # colour casts that samples come in, in equal parts


def build(config: Config) -> Stream:
    """The stream of a configuration. As the source has them, classes take turns."""
    _check(config)
    count = config.classes * config.per_class
    turn, label = np.divmod(np.arange(count), config.classes)
    domain = turn % config.domains
    cast = _casts(config)[domain]
    scene = prototypes(config)
    bits = generate.words(config.seed, _NOISE)
    x = np.empty((count, 3, config.size, config.size), np.uint8)
    for part in pieces(count, 4096):
        grain = generate.noise(bits, part.stop - part.start, config.size)
        x[part] = scene[label[part]] + cast[part, :, None, None] + grain  # modulo 256
    columns: dict[str, Array] = {}
    if config.domains > 1:
        columns["domain"] = domain.astype(np.int32)
    label = label.astype(generate.smallest_type(config.classes))
    source = ArraySource(x, label, classes=config.classes, class_names=None, **columns)
    return arrange(source, config, name="blobs", settings=vars(config))


def prototypes(config: Config) -> Bytes:
    """The pattern of each class, `[classes, 3, size, size]`."""
    return generate.scenes(generate.words(config.seed, _SCENES), config.classes, config.size)


def nearest_prototype(config: Config, x: Bytes) -> IntArray:
    """The class whose pattern is nearest, colour casts set aside: each channel's mean is removed.

    >>> stream = build(Config())
    >>> index = stream.index(0)
    >>> bool((nearest_prototype(Config(), stream.source.read(index))
    ...       == stream.source.label[index]).all())
    True
    """
    flat, scene = (
        part.reshape(len(part), 3, -1).astype(np.float64) for part in (x, prototypes(config))
    )
    flat = (flat - flat.mean(axis=-1, keepdims=True)).reshape(len(flat), -1)
    scene = (scene - scene.mean(axis=-1, keepdims=True)).reshape(len(scene), -1)
    return np.asarray((np.sum(scene**2, axis=1) - 2 * flat @ scene.T).argmin(axis=1))


def _casts(config: Config) -> Bytes:
    """A different cast for each domain, modulo 256; none where there is only one domain."""
    if config.domains == 1:
        return np.zeros((1, 3), np.uint8)
    every = np.stack(np.meshgrid(*[generate.CASTS] * 3), axis=-1).reshape(-1, 3).astype(np.uint8)
    shuffled = np.argsort(generate.words(config.seed, _CASTS).random_raw(len(every)), kind="stable")
    return every[shuffled[: config.domains]]


def _check(config: Config) -> None:
    if config.classes < 1 or config.per_class < 1:
        raise StreamgaugeError(
            f"The stream is empty: {config.classes} classes of {config.per_class} samples."
        )
    if config.size < 1:
        raise StreamgaugeError(f"Images have one pixel per side or more, not {config.size}.")
    if not 1 <= config.domains <= 27:
        raise StreamgaugeError(f"There are from 1 to 27 domains, not {config.domains}.")
