"""Decodes encoded images, and a source over them.

`decode` converts an encoded image to uint8 [3, H, W] by documented rules, or raises `BadImage` with
the reason. `ImageSource` is a source over any object that returns the bytes of an image by number:
files of a folder, a column of a table, members of tar files, shards.
"""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError, packages_for
from streamgauge.settings import check_choices, coerce
from streamgauge.streams.source import Array, IntArray, Spec, as_labels, as_named_column, hash_array

if TYPE_CHECKING:
    from PIL import Image as Pillow

Bytes = NDArray[np.uint8]
Size = int | tuple[int, int]  # pixels per side, or height and width
How = Literal["crop", "stretch"]
Alpha = Literal["white", "black", "drop", "refuse"]
Colour = Literal["convert", "refuse"]
Claim = Literal["refuse", "ignore"]
OnBad = Literal["fatal", "skip"]

# A photo of 8,000 x 8,000; Pillow itself warns from 89 million on. A file of some kilobytes can
# claim far more, and would fill the memory.
MAX_PIXELS = 64_000_000
# The formats that are tried, and no others: some of Pillow's start programs.
_SUFFIXES_OF = {"JPEG": ".jpg .jpeg .jpe", "PNG": ".png", "WEBP": ".webp", "GIF": ".gif",
                "BMP": ".bmp", "TIFF": ".tif .tiff", "PPM": ".ppm .pgm .pnm"}  # fmt: skip
FORMATS = tuple(_SUFFIXES_OF)
SUFFIXES = {s: kind for kind, suffixes in _SUFFIXES_OF.items() for s in suffixes.split()}
_ORIENTATION = 0x0112  # the EXIF tag; its values are positions in `_TURNS`, from 2 on
_TURNS = ("", "", "FLIP_LEFT_RIGHT", "ROTATE_180", "FLIP_TOP_BOTTOM", "TRANSPOSE", "ROTATE_270",
          "TRANSVERSE", "ROTATE_90")  # fmt: skip
# What Pillow can turn to RGB, and what the turn is: see `decode`.
_PLAIN = ("RGB", "L", "1", "P", "CMYK", "YCbCr", "RGBX")
_WITH_ALPHA = ("RGBA", "LA", "PA", "La", "RGBa")


class BadImage(StreamgaugeError):
    """An image that cannot be decoded; `reason` is a sentence, `kind` a short label for counts."""

    def __init__(self, reason: str, kind: str = "damaged") -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind = kind


class Items(Protocol):
    """Encoded images by number. An optional `name(i)` is shown in errors, and its suffix is
    compared with the content; an optional `fingerprint` is used instead of a hash of the
    content."""

    def __len__(self) -> int: ...
    def __getitem__(self, number: int, /) -> bytes: ...


@dataclass(frozen=True)
class Decoding:
    """How an encoded image becomes pixels; `decode` explains each setting."""

    how: How = "crop"
    alpha: Alpha = "white"
    colour: Colour = "convert"
    claim: Claim = "refuse"
    max_pixels: int = MAX_PIXELS
    draft: bool = True

    def __post_init__(self) -> None:
        check_choices(self)

    def decode(
        self, data: bytes, size: Size, name: str | None = None, out: Bytes | None = None
    ) -> Bytes:
        """The pixels of an image; see the function `decode`."""
        high, wide = _sides(size)
        pixels = np.asarray(self._image(data, high, wide, name)).transpose(2, 0, 1)
        if out is None:
            return np.ascontiguousarray(pixels)
        out[...] = pixels
        return out

    def _image(self, data: bytes, high: int, wide: int, name: str | None) -> Pillow.Image:
        pillow = import_pillow()
        if len(data) == 0:
            raise BadImage("It is empty: the file has zero bytes.", "empty")
        try:
            image = pillow.open(io.BytesIO(data), formats=FORMATS)
        except pillow.DecompressionBombError:
            raise _bomb(self.max_pixels) from None
        except pillow.UnidentifiedImageError:
            raise _unknown(data) from None
        except MemoryError:
            raise
        except Exception as error:  # a decoder raises anything when the bytes are broken
            raise _damaged(error) from None
        kind = "JPEG" if image.format == "MPO" else image.format  # MPO: several JPEGs in one
        if self.claim == "refuse":
            _refuse_claim(name, kind)
        if image.width * image.height > self.max_pixels:
            raise _bomb(self.max_pixels, image.size)
        try:
            return self._pixels(image, kind, high, wide)
        except (BadImage, MemoryError):
            raise
        except Exception as error:
            raise _damaged(error) from None

    def _pixels(self, image: Pillow.Image, kind: str | None, high: int, wide: int) -> Pillow.Image:
        pillow = import_pillow()
        if kind != "JPEG":
            image.load()  # first: the orientation may be stored after the pixels
        turn = _orientation(image)
        across = (high, wide) if turn >= 5 else (wide, high)
        if kind == "JPEG":
            if self.draft:
                image.draft("RGB", _least(image.size, across, self.how))
            image.load()
        image = _as_rgb(image, self.alpha, self.colour)
        box = _box(image.size, across, self.how)
        if image.size != across or box != (0, 0, *across):
            image = image.resize(across, pillow.Resampling.BILINEAR, box=box, reducing_gap=3.0)
        return image.transpose(pillow.Transpose[_TURNS[turn]]) if turn > 1 else image


def decode(
    data: bytes,
    size: Size,
    how: How = "crop",
    *,
    name: str | None = None,
    out: Bytes | None = None,
    **settings: Any,
) -> Bytes:
    """Decode an image to uint8 [3, H, W]; `size` is H = W, or (H, W); `settings` are those of
    `Decoding`.

    `how` = "crop": the largest centred crop of the target's aspect ratio, scaled to `size` (shorter
    side to `size`, then centre crop); "stretch": the whole image, without its aspect ratio. Scaling
    up and down uses a triangle filter. An image that already has the size is not changed.

    Rules: the first frame of an animation; rotated by its EXIF orientation. Grey becomes three
    equal channels, 16-bit grey its upper 8 bits, a palette its colours; CMYK is converted without a
    colour profile. Transparent parts are drawn on `alpha` ("white", "black"), or shown as stored
    ("drop"), or the image is refused. `colour` = "refuse" accepts RGB only.

    The suffix of `name` must fit the format of the bytes, unless `claim` is "ignore". More than
    `max_pixels` are refused before decoding. With `draft`, a JPEG much larger than `size` is
    decoded at 1/2, 1/4 or 1/8 of its size, which is several times faster; pixels differ slightly.

    `out` is an optional array [3, H, W] for the result. Any defect of the bytes raises `BadImage`.

    >>> tiny = b"P6 2 1 255 " + bytes([10, 20, 30, 40, 50, 60])
    >>> decode(tiny, (1, 2)).tolist()
    [[[10, 40]], [[20, 50]], [[30, 60]]]
    >>> decode(b"P6 2 1 255 " + bytes(3), 8)
    Traceback (most recent call last):
    streamgauge.streams.images.image_source.BadImage: It is damaged or truncated, ...
    """
    return Decoding(how, **settings).decode(data, size, name, out)


def _sides(size: Size) -> tuple[int, int]:
    high, wide = (size, size) if isinstance(size, int) else size
    if high < 1 or wide < 1:
        raise StreamgaugeError(f"Images have one pixel per side or more, not {size}.")
    return int(high), int(wide)


def _box(
    size: tuple[int, int], across: tuple[int, int], how: How
) -> tuple[float, float, float, float]:
    """The crop of an image: centred, so that rotating and cropping commute."""
    width, height = size
    if how == "stretch":
        return 0, 0, width, height
    part = min(width / across[0], height / across[1])
    left, top = (width - part * across[0]) / 2, (height - part * across[1]) / 2
    return max(left, 0), max(top, 0), min(width - left, width), min(height - top, height)


def _least(size: tuple[int, int], across: tuple[int, int], how: How) -> tuple[int, int]:
    """The smallest size of the whole image at which the crop need not be scaled up."""
    if how == "stretch":
        return across
    scale = max(across[0] / size[0], across[1] / size[1])
    return max(1, math.ceil(size[0] * scale)), max(1, math.ceil(size[1] * scale))


def _orientation(image: Pillow.Image) -> int:
    if image.format == "JPEG" and not any("exif" in k or "xmp" in k for k in map(str, image.info)):
        return 1  # nothing to look through: a twentieth of the time that decoding takes
    try:
        turn = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # damaged metadata, good pixels: leave it upright, as every viewer does
        return 1
    return turn if isinstance(turn, int) and 1 <= turn <= 8 else 1


def _as_rgb(image: Pillow.Image, alpha: Alpha, colour: Colour) -> Pillow.Image:
    mode = image.mode
    if mode == "RGB" and "transparency" not in image.info:
        return image
    if colour == "refuse" and mode != "RGB":
        raise BadImage(f"It is not RGB but of the kind '{mode}'.", "not RGB")
    if mode in _WITH_ALPHA or "transparency" in image.info:
        return _on_background(image, alpha)
    if mode.startswith("I;16"):  # Pillow's own conversion would cut values off at 255
        upper = (np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8)
        return cast("Pillow.Image", import_pillow().fromarray(upper).convert("RGB"))
    if mode not in _PLAIN:
        raise BadImage(
            f"Its pixels are of the kind '{mode}', for which there is no rule to make RGB of.",
            "unknown channels",
        )
    return image.convert("RGB")


def _on_background(image: Pillow.Image, alpha: Alpha) -> Pillow.Image:
    if alpha == "refuse":
        raise BadImage("It has transparent parts, and these are refused.", "transparent")
    if alpha == "drop" and image.mode in ("RGB", "RGBA", "L", "LA", "P"):
        return image.convert("RGBA").convert("RGB")
    layered = image.convert("RGBA")
    ground = import_pillow().new("RGBA", layered.size, "black" if alpha == "black" else "white")
    ground.alpha_composite(layered)
    return cast("Pillow.Image", ground.convert("RGB"))


def _refuse_claim(name: str | None, kind: str | None) -> None:
    suffix = name[name.rfind(".") :].lower() if name and "." in name else ""
    if SUFFIXES.get(suffix, kind) != kind:
        raise BadImage(f"Its name says {SUFFIXES[suffix]} but it is a {kind} file.", "misnamed")


def _bomb(limit: int, size: tuple[int, int] | None = None) -> BadImage:
    claimed = f"{size[0]} x {size[1]}" if size else "far too many"
    return BadImage(
        f"It claims {claimed} pixels, more than the {limit:,} that are allowed.", "too many pixels"
    )


def _unknown(data: bytes) -> BadImage:
    if data[:3] == b"\xff\xd8\xff" or data[:8] == b"\x89PNG\r\n\x1a\n" or data[:4] == b"RIFF":
        return BadImage("It begins as an image but is damaged or cut off at its head.")
    return BadImage(f"It is not an image of a known kind ({', '.join(FORMATS)}).", "not an image")


def _damaged(error: Exception) -> BadImage:
    why = (str(error).splitlines() or [""])[0].strip().rstrip(".") or type(error).__name__
    return BadImage(f"It is damaged or truncated, and decoding it ends with: {why}.")


def import_pillow(purpose: str = "images") -> Any:
    with packages_for(f"Reading {purpose}"):
        from PIL import Image
    return Image


class EncodedImages:
    """Reading for sources of encoded images, which are decoded when they are read."""

    spec: Spec
    decoding: Decoding
    remedy = "Repair or remove it, or set on_bad to 'skip' to leave such images out and count them."

    def encoded(self, index: int) -> bytes:
        """The stored bytes of a sample."""
        raise NotImplementedError

    def _image_name(self, index: int) -> str | None:
        """The name of a sample's image, where images have names."""
        return None

    def decoded(self, index: int, out: Bytes | None = None) -> Bytes:
        """The pixels [3, H, W] of one sample; raises `BadImage`."""
        _, high, wide = self.spec.input_shape
        return self.decoding.decode(self.encoded(index), (high, wide), self._image_name(index), out)

    def read(self, index: IntArray) -> Array:
        out = np.empty((len(index), *self.spec.input_shape), np.uint8)
        self.read_into(index, out)
        return out

    def read_into(self, index: IntArray, out: Array) -> None:
        """Decode samples into the first rows of an array, each sample once."""
        rows: dict[int, int] = {}  # padding repeats samples
        for row, sample in enumerate(np.asarray(index).tolist()):
            if sample in rows:
                out[row] = out[rows[sample]]
                continue
            rows[sample] = row
            try:
                self.decoded(sample, out[row])
            except BadImage as error:
                name = self._image_name(sample)
                which = f"of sample {sample}" if name is None else f"'{name}' (sample {sample})"
                raise StreamgaugeError(
                    f"The image {which} cannot be used. {error.reason} {self.remedy}"
                ) from None


class ImageSource(EncodedImages):
    """A source over encoded images, decoded when they are read.

    `items[i]` are the bytes of image i (see `Items`); labels and columns are arrays, memory-mapped
    or not, as for `ArraySource`, and are not copied. `read` returns uint8 [n, 3, H, W].

    `on_bad` = "fatal": the first bad image that is read raises an error that names it; "skip":
    every image is decoded once at construction, bad ones are left out, and `left_out` counts them
    by kind (`bad` lists number and reason). Packing does this once for all runs. Further settings
    are those of `decode`: `how`, `alpha`, `colour`, `claim`, `max_pixels`, `draft`.

    The fingerprint is a hash of labels, columns and settings, and of `items.fingerprint` if there
    is one (see `items`: paths and sizes, for example), else of all bytes of all images. It is
    computed at first use. A source can be pickled if its items can.

    >>> images = [b"P6 1 1 255 " + bytes([i, i, i]) for i in range(4)]
    >>> source = ImageSource(images, np.array([0, 1, 1, 2]), size=1)
    >>> source.spec, source.read(np.array([3, 1]))[:, 0, 0, 0].tolist()
    (Spec(input_shape=(3, 1, 1), classes=3), [3, 1])
    """

    def __init__(
        self,
        items: Items | Sequence[bytes],
        label: Array,
        *,
        size: Size,
        classes: int | None = None,
        class_names: Sequence[str] | None = None,
        how: How = "crop",
        alpha: Alpha = "white",
        colour: Colour = "convert",
        claim: Claim = "refuse",
        max_pixels: int = MAX_PIXELS,
        draft: bool = True,
        on_bad: OnBad = "fatal",
        progress: Callable[[int, int], None] | None = None,
        **columns: Array,
    ) -> None:
        self.decoding = Decoding(how, alpha, colour, claim, max_pixels, draft)
        self.settings: dict[str, Any] = dict(vars(self.decoding))
        coerce(on_bad, OnBad, "on_bad")
        import_pillow()  # a missing Pillow is reported now, not during a run
        self.items = items
        if len(items) != len(label):
            raise StreamgaugeError(f"There are {len(items)} images but {len(label)} labels.")
        self.label, self.class_names, classes = as_labels(label, classes, class_names)
        self.spec = Spec((3, *_sides(size)), classes)
        self.columns: Mapping[str, Array] = {
            name: as_named_column(name, column, len(items)) for name, column in columns.items()
        }
        self.bad: list[tuple[int, BadImage]] = []
        self._kept: IntArray | None = None
        if on_bad == "skip":
            self._leave_out_bad(progress)

    def __len__(self) -> int:
        return len(self.label)

    @property
    def left_out(self) -> dict[str, int]:
        """Number of images left out, by kind of reason."""
        counts: dict[str, int] = {}
        for _, error in self.bad:
            counts[error.kind] = counts.get(error.kind, 0) + 1
        return counts

    def number(self, index: int) -> int:
        """The number in `items` of a sample: its index, unless bad images were left out."""
        return int(index) if self._kept is None else int(self._kept[index])

    def name(self, index: int) -> str | None:
        """The name that the items have for this sample, where they have names."""
        name = getattr(self.items, "name", None)
        return str(name(self.number(index))) if callable(name) else None

    _image_name = name

    def encoded(self, index: int) -> bytes:
        return self.items[self.number(index)]

    @cached_property
    def fingerprint(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        digest.update(repr((self.spec, self.class_names, sorted(self.settings.items()))).encode())
        of_items = getattr(self.items, "fingerprint", None)
        if of_items is not None:
            digest.update(str(of_items).encode())
        else:
            for number in range(len(self.items)):
                image = self.items[number]
                digest.update(len(image).to_bytes(8, "little"))
                digest.update(image)
        parts = {"y": self.label, **dict(sorted(self.columns.items()))}
        if self._kept is not None:
            parts["kept"] = self._kept
        for name, part in parts.items():
            hash_array(digest, name, part)
        return digest.hexdigest()

    def _leave_out_bad(self, progress: Callable[[int, int], None] | None) -> None:
        good = np.ones(len(self.items), bool)
        for number in range(len(self.items)):
            try:
                self.decoded(number)
            except BadImage as error:
                self.bad.append((number, error))
                good[number] = False
            if progress is not None:
                progress(number + 1, len(self.items))
        if not good.any():
            raise StreamgaugeError(
                f"None of the {len(good)} images can be used; of the first: {self.bad[0][1].reason}"
            )
        if self.bad:
            self._kept = np.flatnonzero(good)
            self.label = self.label[self._kept]
            self.columns = {name: column[self._kept] for name, column in self.columns.items()}
