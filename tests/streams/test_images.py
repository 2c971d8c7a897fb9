"""Decoding images by stated rules, and a source over encoded images."""

from __future__ import annotations

import io
import pickle
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.images.image_source import BadImage, ImageSource, decode


def encode(pixels: np.ndarray, format: str = "PNG", mode: str | None = None, **options) -> bytes:
    file = io.BytesIO()
    image = Image.fromarray(pixels)
    if mode:
        image = image.convert(mode)
    image.save(file, format, **options)
    return file.getvalue()


def noise(high: int, wide: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (high, wide, 3)).astype(np.uint8)


def smooth(high: int, wide: int) -> np.ndarray:
    y, x = np.mgrid[0:high, 0:wide]
    channels = [x * 255 / wide, y * 255 / high, (x + y) * 255 / (high + wide)]
    return np.stack(channels, -1).astype(np.uint8)


def triangle_resize(pixels: np.ndarray, box: tuple[float, ...], high: int, wide: int) -> np.ndarray:
    """Slow and obvious: every new pixel is the mean of old ones, weighted by a triangle as wide as
    the scale, along each axis."""

    def along(values: np.ndarray, start: float, stop: float, count: int) -> np.ndarray:
        scale = (stop - start) / count
        width = max(scale, 1.0)
        out = []
        for i in range(count):
            centre = start + (i + 0.5) * scale
            place = np.arange(len(values)) + 0.5
            weight = np.maximum(0, 1 - np.abs(place - centre) / width)
            out.append(np.tensordot(weight / weight.sum(), values, 1))
        return np.array(out)

    left, top, right, bottom = box
    rows = along(pixels.astype(float), top, bottom, high)
    return along(rows.swapaxes(0, 1), left, right, wide).swapaxes(0, 1)


def test_an_image_of_the_right_size_is_not_touched() -> None:
    pixels = noise(7, 9)
    for format in ("PNG", "BMP", "TIFF", "PPM"):
        assert (decode(encode(pixels, format), (7, 9)) == pixels.transpose(2, 0, 1)).all()
    lossless = decode(encode(pixels, "WEBP", lossless=True), (7, 9))
    assert (lossless == pixels.transpose(2, 0, 1)).all()


@pytest.mark.parametrize(("high", "wide"), [(30, 20), (20, 31), (9, 9), (40, 13)])
def test_crop_and_stretch_follow_the_slow_version(high: int, wide: int) -> None:
    pixels = smooth(high, wide)
    data = encode(pixels)
    for size in (6, (5, 8), (12, 7)):
        h, w = (size, size) if isinstance(size, int) else size
        part = min(wide / w, high / h)
        left, top = (wide - part * w) / 2, (high - part * h) / 2
        want = triangle_resize(pixels, (left, top, wide - left, high - top), h, w)
        # Pillow rounds after each axis, and first averages whole blocks of much larger images.
        assert np.abs(decode(data, size).transpose(1, 2, 0) - want).max() <= 2
        want = triangle_resize(pixels, (0, 0, wide, high), h, w)
        assert np.abs(decode(data, size, "stretch").transpose(1, 2, 0) - want).max() <= 2


def test_crop_keeps_the_centre() -> None:
    pixels = np.zeros((10, 30, 3), np.uint8)
    pixels[:, 10:20] = 200
    assert (decode(encode(pixels), 10) == 200).all()
    assert (decode(encode(pixels.transpose(1, 0, 2)), 10) == 200).all()
    assert decode(encode(pixels), 10, "stretch").min() == 0


@pytest.mark.parametrize("turn", range(1, 9))
@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_exif_orientation(turn: int, format: str) -> None:
    upright = smooth(24, 40)
    # What a camera stores so that turning it gives the upright picture.
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.swapaxes(0, 1),
        6: upright.swapaxes(0, 1)[::-1],
        7: upright.swapaxes(0, 1)[::-1, ::-1],
        8: upright.swapaxes(0, 1)[:, ::-1],
    }[turn]
    exif = Image.Exif()
    exif[0x0112] = turn
    data = encode(np.ascontiguousarray(stored), format, exif=exif.tobytes())
    found = decode(data, (24, 40)).transpose(1, 2, 0).astype(int)
    assert np.abs(found - upright).max() < (1 if format in ("PNG", "TIFF") else 24)
    small = decode(data, (6, 10)).astype(int)
    plain = decode(encode(upright, format), (6, 10)).astype(int)
    assert np.abs(small - plain).max() < 24


def test_colours_become_rgb_by_rule() -> None:
    pixels = noise(5, 6)
    grey = np.asarray(Image.fromarray(pixels).convert("L"))
    found = decode(encode(grey), (5, 6))
    assert (found == grey).all()
    assert (decode(encode(pixels, mode="P"), (5, 6)).std(axis=0) > 0).any()
    deep = np.arange(30, dtype=np.uint16).reshape(5, 6) * 2000
    assert (decode(encode(deep), (5, 6)) == deep >> 8).all()
    bits = decode(encode(grey, mode="1"), (5, 6))
    assert set(np.unique(bits)) <= {0, 255}
    cmyk = Image.fromarray(pixels).convert("CMYK")
    file = io.BytesIO()
    cmyk.save(file, "TIFF")
    assert (decode(file.getvalue(), (5, 6)) == pixels.transpose(2, 0, 1)).all()
    for data in (encode(grey), encode(deep), file.getvalue()):
        with pytest.raises(BadImage, match="not RGB") as caught:
            decode(data, 4, colour="refuse")
        assert caught.value.kind == "not RGB"


def test_transparent_parts() -> None:
    layered = np.zeros((4, 4, 4), np.uint8)
    layered[..., 0], layered[..., 3] = 100, 255
    layered[:2, :, 3] = 0
    layered[2, :, 3] = 128
    data = encode(layered)
    for alpha, ground in (("white", 255), ("black", 0)):
        found = decode(data, 4, alpha=alpha)
        assert (found[:, :2] == ground).all()
        assert (found[0, 3] == 100).all()
        mixed = (100 * 128 + ground * 127) / 255
        assert abs(int(found[0, 2, 0]) - mixed) <= 1
    assert (decode(data, 4, alpha="drop")[0] == 100).all()
    with pytest.raises(BadImage, match="transparent"):
        decode(data, 4, alpha="refuse")
    palette = Image.fromarray(noise(4, 4)).convert("P")
    file = io.BytesIO()
    palette.save(file, "PNG", transparency=bytes([0] * 256))
    assert (decode(file.getvalue(), 4) == 255).all()


def test_draft_is_close_to_the_whole_jpeg() -> None:
    data = encode(smooth(512, 700), "JPEG", quality=95)
    for how in ("crop", "stretch"):
        quick = decode(data, 48, how).astype(int)
        whole = decode(data, 48, how, draft=False).astype(int)
        assert np.abs(quick - whole).max() <= 4
    tall = decode(encode(smooth(1600, 90), "JPEG"), 64)  # must not be drafted below 64 across
    assert np.abs(tall.astype(int) - decode(encode(smooth(1600, 90)), 64)).max() < 8


def bomb(side: int) -> bytes:
    """A PNG of some hundred bytes that claims side x side pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    rows = zlib.compress(bytes(100_000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("side", [8_100, 12_000, 60_000])
def test_a_bomb_is_refused_before_it_is_unpacked(side: int) -> None:
    with pytest.raises(BadImage, match="pixels") as caught:
        decode(bomb(side), 32)
    assert caught.value.kind == "too many pixels"
    with pytest.raises(BadImage, match="8 x 9 pixels"):
        decode(encode(noise(9, 8)), 4, max_pixels=71)
    assert decode(encode(noise(9, 8)), 4, max_pixels=72).shape == (3, 4, 4)


def test_a_png_that_claims_to_be_a_jpeg() -> None:
    data = encode(noise(4, 4))
    with pytest.raises(BadImage, match="name says JPEG but it is a PNG") as caught:
        decode(data, 4, name="a/b.JPG")
    assert caught.value.kind == "misnamed"
    for name, claim in (
        ("b.jpg", "ignore"),
        ("b.png", "refuse"),
        ("b", "refuse"),
        ("b.x", "refuse"),
    ):
        assert decode(data, 4, name=name, claim=claim).shape == (3, 4, 4)


def test_what_is_no_image() -> None:
    with pytest.raises(BadImage, match="zero bytes"):
        decode(b"", 4)
    with pytest.raises(BadImage, match="not an image of a known kind"):
        decode(b"<html>not found</html>", 4)
    with pytest.raises(BadImage, match="begins as an image"):
        decode(b"\x89PNG\r\n\x1a\n", 4)
    with pytest.raises(BadImage, match="not an image"):  # a kind that would start a program
        decode(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", 4)
    file = io.BytesIO()
    Image.fromarray(np.ones((4, 4), np.float32)).save(file, "TIFF")
    with pytest.raises(BadImage, match="kind 'F'") as caught:
        decode(file.getvalue(), 4)
    assert caught.value.kind == "unknown channels"
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.reason, again.kind) == (caught.value.reason, caught.value.kind)


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"])
def test_truncated_images_are_refused(format: str) -> None:
    data = encode(noise(64, 64), format)
    for share in (0.1, 0.5, 0.9):
        with pytest.raises(BadImage):
            decode(data[: int(len(data) * share)], 16)


@pytest.mark.filterwarnings("ignore")  # Pillow's own remarks on broken files
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_the_bytes_only_bad_image_is_raised(data: st.DataObject) -> None:
    format = data.draw(st.sampled_from(["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM"]))
    image = bytearray(encode(noise(9, 11), format))
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(image) - 1))
        image[place] = data.draw(st.integers(0, 255))
    try:
        found = decode(bytes(image), 8, max_pixels=10_000)
    except BadImage:
        return
    assert found.shape == (3, 8, 8)


def images(count: int) -> list[bytes]:
    return [encode(noise(8, 8, seed)) for seed in range(count)]


class Named(list):
    fingerprint = "made up"

    def name(self, number: int) -> str:
        return f"photo{number}.png"


def test_source_reads_by_address() -> None:
    items = images(5)
    label = np.array([2, 0, 1, 0, 2], np.int16)
    source = ImageSource(items, label, size=8, time=np.arange(5.0), user=np.array(list("abcab")))
    assert source.spec == ((3, 8, 8), 3)
    assert source.label is label or source.label.base is label or source.label.dtype == np.int16
    assert source.encoded(3) == items[3]
    found = source.read(np.array([4, 1, 4, 0]))
    for row, sample in zip(found, (4, 1, 4, 0), strict=True):
        assert (row == noise(8, 8, sample).transpose(2, 0, 1)).all()
    assert source.columns["user"].tolist() == [0, 1, 2, 0, 1]
    copy = pickle.loads(pickle.dumps(source))
    assert (copy.read(np.array([2])) == source.read(np.array([2]))).all()
    assert copy.fingerprint == source.fingerprint


def test_fingerprint_changes_with_anything_that_matters() -> None:
    items, label = images(3), np.array([0, 1, 0])
    base = ImageSource(items, label, size=8)
    assert base.fingerprint == ImageSource(list(items), label.copy(), size=8).fingerprint
    others = [
        ImageSource([*items[:2], images(4)[3]], label, size=8),
        ImageSource(items, label[::-1].copy() * 0 + 1, size=8),
        ImageSource(items, label, size=7),
        ImageSource(items, label, size=8, how="stretch"),
        ImageSource(items, label, size=8, classes=3),
        ImageSource(items, label, size=8, class_names=["a", "b"]),
        ImageSource(items, label, size=8, time=np.arange(3)),
        ImageSource(Named(items), label, size=8),
    ]
    assert len({s.fingerprint for s in [base, *others]}) == len(others) + 1


def test_a_bad_image_is_fatal_and_named_or_left_out_and_counted() -> None:
    items = Named(images(6))
    items[1] = items[1][:60]
    items[2] = b""
    items[4] = encode(noise(8, 8), "JPEG")
    source = ImageSource(items, np.arange(6), size=8)
    with pytest.raises(StreamgaugeError, match=r"'photo1.png' \(sample 1\) cannot be used"):
        source.read(np.array([0, 1]))
    assert source.read(np.array([0, 3])).shape == (2, 3, 8, 8)
    source = ImageSource(items, np.arange(6), size=8, on_bad="skip", time=np.arange(6) * 10)
    assert source.left_out == {"damaged": 1, "empty": 1, "misnamed": 1}
    assert [number for number, _ in source.bad] == [1, 2, 4]
    assert source.label.tolist() == [0, 3, 5]
    assert source.columns["time"].tolist() == [0, 30, 50]
    assert source.spec.classes == 6  # labels are never renumbered
    assert source.name(1) == "photo3.png"
    assert (source.read(np.array([1]))[0] == noise(8, 8, 3).transpose(2, 0, 1)).all()
    loose = ImageSource(items, np.arange(6), size=8, on_bad="skip", claim="ignore")
    assert len(loose) == 4
    with pytest.raises(StreamgaugeError, match="None of the 2 images"):
        ImageSource([b"", b"x"], np.arange(2), size=8, on_bad="skip")


def test_settings_of_a_source_are_checked() -> None:
    with pytest.raises(StreamgaugeError, match="3 images but 2 labels"):
        ImageSource(images(3), np.arange(2), size=8)
    with pytest.raises(StreamgaugeError, match="did you mean 'stretch'"):
        ImageSource(images(1), np.arange(1), size=8, how="strech")
    with pytest.raises(StreamgaugeError, match="one pixel per side"):
        ImageSource(images(1), np.arange(1), size=0)
    with pytest.raises(StreamgaugeError, match="one pixel per side"):
        decode(images(1)[0], (4, 0))
