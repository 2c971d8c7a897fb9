"""Data sets from files the tests make, in every published form; and files that mean harm."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import os
import pickle
import shutil
import sys
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from hypothesis.extra import numpy as arrays
from PIL import Image

from streamgauge import catalogue, cli
from streamgauge.errors import StreamgaugeError
from streamgauge.streams import ArraySource, arrange
from streamgauge.streams.datasets import archive as _files
from streamgauge.streams.datasets import data_set as _data
from streamgauge.streams.datasets import photos as _photos
from streamgauge.streams.datasets import published as _idx
from streamgauge.streams.datasets import tinyimagenet
from streamgauge.streams.datasets.observations import SLOTS
from streamgauge.streams.datasets.published import cifar10, cifar100, fashion_mnist, mnist
from streamgauge.streams.datasets.safe_pickle import read_pickle
from streamgauge.streams.named import cglm, clear, cloc, elec2, inaturalist, melbourne
from streamgauge.streams.named.splits import split_module

Table = dict[str, Any]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder of the test's own."""
    monkeypatch.setenv("STREAMGAUGE_DATA", str(tmp_path / "store"))
    return tmp_path / "store"


def md5(raw: bytes) -> str:
    return hashlib.md5(raw).hexdigest()


# CIFAR


def photos(count: int, seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 256, (count, 3, 32, 32), np.uint8)


TRAIN, TEST = photos(40, 0), photos(20, 1)
FINE, FINE_TEST = np.arange(40) % 100, np.arange(20) + 80
COARSE, COARSE_TEST = np.arange(40) % 20, np.arange(20)


def records(x: np.ndarray[Any, Any], *labels: np.ndarray[Any, Any]) -> bytes:
    """The binary form, one image after the other, slow and obvious."""
    out = b""
    for at in range(len(x)):
        out += bytes(int(label[at]) for label in labels)
        for channel in range(3):
            for row in range(32):
                out += x[at, channel, row].tobytes()
    return out


BINARY = {
    "train.bin": records(TRAIN, COARSE, FINE),
    "test.bin": records(TEST, COARSE_TEST, FINE_TEST),
}
DATA100 = replace(cifar100.DATA, checksums={name: md5(raw) for name, raw in BINARY.items()})


def as_python_2(table: dict[str, Any]) -> bytes:
    """A pickle as Python 2 wrote CIFAR's: protocol 2, text as bytes, arrays by old names."""

    def text(value: bytes) -> bytes:
        return b"T" + len(value).to_bytes(4, "little") + value

    def number(value: int) -> bytes:
        return b"J" + value.to_bytes(4, "little", signed=True)

    def item(value: Any) -> bytes:
        if isinstance(value, np.ndarray):
            made = b"cnumpy.core.multiarray\n_reconstruct\n"
            made += b"(cnumpy\nndarray\n" + number(0) + b"\x85" + text(b"b") + b"tR"
            kind = b"cnumpy\ndtype\n(" + text(b"u1") + number(0) + number(1) + b"tR"
            kind += b"(" + number(3) + text(b"|") + b"NNN" + number(-1) + number(-1) + number(0)
            kind += b"tb"
            shape = b"(" + b"".join(number(n) for n in value.shape) + b"t"
            return made + b"(" + number(1) + shape + kind + b"\x89" + text(value.tobytes()) + b"tb"
        if isinstance(value, list):
            return b"](" + b"".join(number(int(v)) for v in value) + b"e"
        return text(value)

    pairs = b"".join(text(key.encode()) + item(value) for key, value in table.items())
    return b"\x80\x02}(" + pairs + b"u."


PYTHON = {
    name: as_python_2(
        {
            "filenames": b"as it was",
            "data": x.reshape(len(x), -1),
            "fine_labels": fine.tolist(),
            "coarse_labels": coarse.tolist(),
        }
    )
    for name, x, fine, coarse in (
        ("train", TRAIN, FINE, COARSE),
        ("test", TEST, FINE_TEST, COARSE_TEST),
    )
}


def put(folder: Path, contents: dict[str, bytes], form: str) -> Path:
    """Files in a folder, or in a tar or zip in it; the path to add."""
    folder.mkdir(parents=True, exist_ok=True)
    if form == "folder":
        for name, raw in contents.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(raw)
        return folder
    archive = folder / f"some.{form}"
    if form == "zip":
        with zipfile.ZipFile(archive, "w") as out:
            for name, raw in contents.items():
                out.writestr(name, raw)
    else:
        with tarfile.open(archive, "w:gz" if form.endswith("gz") else "w") as out_tar:
            for name, raw in contents.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(raw)
                out_tar.addfile(entry, io.BytesIO(raw))
    return archive


def picture(pixels: np.ndarray[Any, Any], kind: str) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, kind, lossless=True)
    return out.getvalue()


def mosaic(x: np.ndarray[Any, Any], across: int) -> np.ndarray[Any, Any]:
    """Tiles row by row, slow and obvious."""
    made = np.zeros((len(x) // across * 32, across * 32, 3), np.uint8)
    for at, image in enumerate(x):
        top, left = at // across * 32, at % across * 32
        made[top : top + 32, left : left + 32] = image.transpose(1, 2, 0)
    return made


def saved(values: np.ndarray[Any, Any]) -> bytes:
    out = io.BytesIO()
    np.save(out, values.astype(np.uint8))
    return out.getvalue()


MOSAICS = {
    "train_0.webp": picture(mosaic(TRAIN[:20], 5), "WEBP"),
    "train_1.webp": picture(mosaic(TRAIN[20:], 5), "WEBP"),
    "test_0.webp": picture(mosaic(TEST, 5), "WEBP"),
    "train_labels_u8.npy": saved(FINE),
    "test_labels_u8.npy": saved(FINE_TEST),
    "train_coarse_u8.npy": saved(COARSE),
    "test_coarse_u8.npy": saved(COARSE_TEST),
}


@pytest.mark.parametrize(
    ("contents", "form", "words"),
    [
        ({f"cifar-100-binary/{k}": v for k, v in BINARY.items()}, "tar.gz", "binary"),
        (BINARY, "folder", "binary"),
        ({f"cifar-100-python/{k}": v for k, v in PYTHON.items()}, "tar.gz", "python"),
        ({f"a/b/{k}": v for k, v in PYTHON.items()}, "folder", "python"),
        (MOSAICS, "folder", "mosaics"),
        (MOSAICS, "zip", "mosaics"),
        ({k.replace("webp", "png"): v if k.endswith("y") else picture(
            np.asarray(Image.open(io.BytesIO(v))), "PNG") for k, v in MOSAICS.items()},
         "tar", "mosaics"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name_the_folder", [False, True])
def test_every_form_of_cifar_gives_the_same_arrays(
    contents: dict[str, bytes], form: str, words: str, name_the_folder: bool, tmp_path: Path
) -> None:
    path = put(tmp_path / "have", contents, form)
    stored = _data.add(DATA100, tmp_path / "have" if name_the_folder else path)
    assert words in stored.about["form"]
    assert stored.about["verified"] == "yes, by the md5 of test.bin, train.bin"
    assert np.array_equal(stored.arrays["x"], np.concatenate([TRAIN, TEST]))
    assert np.array_equal(stored.arrays["label"], np.append(FINE, FINE_TEST))
    assert np.array_equal(stored.arrays["coarse"], np.append(COARSE, COARSE_TEST))
    assert stored.test.tolist() == list(range(40, 60))
    source = stored.source()
    assert isinstance(stored.arrays["x"], np.memmap)
    assert source.class_names is not None
    assert source.class_names[0] == "apple"
    same = ArraySource(source.read(np.arange(60)), source.label, classes=100,
                       class_names=source.class_names, coarse=stored.arrays["coarse"])  # fmt: skip
    same.x_hash = md5(np.concatenate([TRAIN, TEST]).tobytes())
    assert source.fingerprint == same.fingerprint  # whatever form it came in


def test_cifar10_of_five_files_and_an_image_a_row_of_pixels(tmp_path: Path) -> None:
    label, label_test = np.arange(40) % 10, np.arange(20) % 10
    parts = {
        f"data_batch_{i + 1}.bin": records(TRAIN[8 * i : 8 * i + 8], label[8 * i : 8 * i + 8])
        for i in range(5)
    } | {"test_batch.bin": records(TEST, label_test)}
    data = replace(cifar10.DATA, checksums={name: md5(raw) for name, raw in parts.items()})
    rows = {
        f"data_batch_{i + 1}.png": picture(
            TRAIN[8 * i : 8 * i + 8].transpose(0, 2, 3, 1).reshape(8, 1024, 3), "PNG"
        )
        for i in range(5)
    }
    rows["test_batch.png"] = picture(TEST.transpose(0, 2, 3, 1).reshape(20, 1024, 3), "PNG")
    rows["train_lables.json"] = json.dumps(label.tolist()).encode()
    rows["test_lables.json"] = json.dumps(label_test.tolist()).encode()
    for at, contents in enumerate((parts, rows)):
        stored = _data.add(data, put(tmp_path / str(at), contents, "folder"))
        assert stored.about["verified"].startswith("yes")
        assert np.array_equal(stored.arrays["x"], np.concatenate([TRAIN, TEST]))
        assert np.array_equal(stored.arrays["label"], np.append(label, label_test))


def test_other_contents_are_refused_or_taken_and_recorded(tmp_path: Path, folder: Path) -> None:
    path = put(tmp_path / "have", BINARY, "folder")
    with pytest.raises(StreamgaugeError, match=r"train\.bin has md5 .* where .* is expected"):
        _data.add(cifar100.DATA, path)
    assert not (folder / "cifar100").exists()
    stored = _data.add(cifar100.DATA, path, other_contents=True)
    assert stored.about["verified"].startswith("no, train.bin has md5")
    assert list(folder.iterdir()) == [folder / "cifar100"]  # nothing half-made is left


@pytest.mark.parametrize(
    ("contents", "sentence"),
    [
        ({"train.bin": BINARY["train.bin"][:-1], "test.bin": BINARY["test.bin"]}, "cut off"),
        ({**BINARY, "train.bin": b""}, "cut off"),
        ({"readme.txt": b"hello"}, "contains no CIFAR-100 in a known form"),
        ({k: v for k, v in MOSAICS.items() if k != "train_labels_u8.npy"}, "train_labels_u8"),
        ({**MOSAICS, "train_labels_u8.npy": saved(FINE[:-1])}, r"40 images and labels of shape"),
        ({**MOSAICS, "train_1.webp": b"RIFF----WEBP"}, "cannot be read as a picture"),
        ({"train": as_python_2({"data": TRAIN}), "test": PYTHON["test"]}, "no 'coarse_labels'"),
        ({"train": PYTHON["train"][:-30], "test": PYTHON["test"]}, "refused: as a pickle"),
    ],
)
def test_what_is_wrong_with_cifar_files_is_one_sentence(
    contents: dict[str, bytes], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(StreamgaugeError, match=sentence):
        _data.add(DATA100, put(tmp_path / "have", contents, "folder"))


def test_a_cut_archive_is_one_sentence(tmp_path: Path) -> None:
    path = put(tmp_path / "have", BINARY, "tar.gz")
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(StreamgaugeError, match="cannot be read"):
        _data.add(DATA100, path)


# Files that mean harm


class Harm:
    """Unpickled by an unguarded reader, it writes a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.file}",)


def test_a_pickle_that_would_run_a_command_runs_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "harmed"
    bad = pickle.dumps({b"data": Harm(mark)}, protocol=2)
    pickle.loads(bad)
    assert mark.exists()  # it is armed
    mark.unlink()
    path = put(tmp_path / "have", {"train": bad, "test": PYTHON["test"]}, "folder")
    with pytest.raises(StreamgaugeError, match=r"refused.*system"):
        _data.add(DATA100, path)
    assert not mark.exists()


@pytest.mark.parametrize(
    "bad",
    [
        b"c__builtin__\neval\n(S'1'\ntR.",
        b"cnumpy\nload\n(S'x'\ntR.",
        pickle.dumps(np.array([1, "a"], object)),
        pickle.dumps(np.ma.array([1])),
        pickle.dumps(np.dtype("u1")),
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.",
        b"",
        b"(lp0\n.",
        b"S'x'\np0\nQ.",
    ],
)
def test_the_reader_refuses_other_names_and_broken_bytes(bad: bytes) -> None:
    if bad == b"(lp0\n.":  # an empty list is fine
        assert read_pickle(bad, "this") == []
        return
    with pytest.raises(StreamgaugeError, match="this is refused"):
        read_pickle(bad, "this")


@given(
    arrays.arrays(
        some.sampled_from([np.uint8, np.int64, np.float32, ">i4"]),
        arrays.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4),
    ),
    some.sampled_from([2, 3, 4]),
)
def test_arrays_come_out_of_the_restricted_reader_as_they_went_in(
    array: np.ndarray[Any, Any], protocol: int
) -> None:
    read = read_pickle(pickle.dumps({"a": array, "b": [array, 3]}, protocol), "this")
    for found in (read["a"], read["b"][0]):
        assert found.dtype == array.dtype
        assert np.array_equal(found, array, equal_nan=array.dtype.kind == "f")


@pytest.mark.parametrize(
    "name", ["../train.bin", "/train.bin", "a/../../train.bin", "C:/train.bin"]
)
@pytest.mark.parametrize("form", ["zip", "tar.gz"])
def test_an_archive_with_a_path_that_leaves_is_refused(
    name: str, form: str, tmp_path: Path
) -> None:
    path = put(tmp_path / "have", {**BINARY, name: b"x"}, form)
    with pytest.raises(StreamgaugeError, match="leaves its folder"):
        _data.add(DATA100, path)


def test_a_link_in_an_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "links.tar"
    with tarfile.open(path, "w") as out:
        entry = tarfile.TarInfo("train.bin")
        entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
        out.addfile(entry)
    with pytest.raises(StreamgaugeError, match="is a link or a device"):
        _data.add(DATA100, path)


def test_a_link_that_leads_out_of_the_images_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret.jpg").write_bytes(b"x")
    root = tmp_path / "images"
    root.mkdir()
    (root / "link.jpg").symlink_to(tmp_path / "secret.jpg")
    (root / "in.jpg").write_bytes(b"x")
    assert _files.inside(root, "in.jpg") == root / "in.jpg"
    with pytest.raises(StreamgaugeError, match="leads out of"):
        _files.inside(root, "link.jpg")
    with pytest.raises(StreamgaugeError, match="leaves its folder"):
        _files.inside(root, "../secret.jpg")


# What is stored


def test_a_stored_array_that_changed_is_noticed_and_a_copy_is_not(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _data.add(DATA100, put(tmp_path / "have", BINARY, "folder"))
    shutil.copytree(folder, tmp_path / "copy", copy_function=shutil.copyfile)
    copied = _data.Stored(DATA100, tmp_path / "copy")
    assert np.array_equal(copied.arrays["x"][:40], TRAIN)
    hashed: list[Path] = []
    monkeypatch.setattr(_data, "array_md5", lambda file: hashed.append(file) or "")
    _data.Stored(DATA100, tmp_path / "copy")
    assert hashed == []  # not hashed again, once it is known to be the same
    monkeypatch.undo()
    with (folder / "cifar100" / "x.npy").open("r+b") as file:
        file.seek(5000)
        file.write(b"other")
    with pytest.raises(StreamgaugeError, match=r"x\.npy is not what was stored"):
        _data.Stored(DATA100, folder)
    assert "not what was stored" in _data.describe(DATA100, folder)["problem"]
    (folder / "cifar100" / "x.npy").unlink()
    with pytest.raises(StreamgaugeError, match=r"x\.npy is missing"):
        _data.Stored(DATA100, folder)


def test_a_description_of_a_data_set_is_checked(tmp_path: Path, folder: Path) -> None:
    stored = _data.add(DATA100, put(tmp_path / "have", BINARY, "folder"))
    file = stored.folder / "about.json"
    about = json.loads(file.read_text())
    file.write_text(file.read_text().replace('"streamed": 40', '"streamed": 41'))
    with pytest.raises(StreamgaugeError, match=r"about.json is damaged \(its checksum"):
        _data.Stored(DATA100, folder)
    # As earlier versions wrote the file, and as somebody else may: without a checksum.
    old = {key: value for key, value in about.items() if key != "own_checksum"} | {"format": 1}
    file.write_text(json.dumps(old))
    assert len(_data.Stored(DATA100, folder)) == 60
    (tmp_path / "outside.npy").write_bytes((stored.folder / "label.npy").read_bytes())
    label = old["arrays"]["label"]
    for wrong in (
        {"streamed": -(10**12)},
        {"streamed": 61},
        {"arrays": {}},
        {"arrays": {"label": 3}},
        {"arrays": {"label": label, "../../outside": label}},
        {"class_names": 7},
    ):
        file.write_text(json.dumps(old | wrong))
        with pytest.raises(StreamgaugeError, match="is damaged"):
            _data.Stored(DATA100, folder)
        assert "damaged" in _data.describe(DATA100, folder)["problem"]
    for text in ("[" * 100_000, "[]", "{}", ""):
        file.write_text(text)
        with pytest.raises(StreamgaugeError, match=r"about\.json is damaged"):
            _data.Stored(DATA100, folder)


def test_what_a_killed_process_left_is_removed_and_the_store_itself_is_not_added(
    tmp_path: Path, folder: Path
) -> None:
    (folder / ".cifar100.99999999").mkdir(parents=True)
    (folder / f".cifar100.{os.getppid()}").mkdir()  # of one that runs
    stored = _data.add(DATA100, put(tmp_path / "have", BINARY, "folder"))
    left = sorted(path.name for path in folder.iterdir())
    assert left == [f".cifar100.{os.getppid()}", "cifar100"]
    with pytest.raises(StreamgaugeError, match="is the stored data set itself"):
        _data.add(DATA100, stored.folder)
    assert len(_data.Stored(DATA100)) == 60


def test_a_missing_data_set_is_one_sentence_with_the_command() -> None:
    with pytest.raises(StreamgaugeError, match="streamgauge data fetch cifar100, or with files"):
        catalogue.stream("split_cifar100")
    with pytest.raises(StreamgaugeError, match="streamgauge data add cloc PATH"):
        catalogue.stream("cloc")
    with pytest.raises(StreamgaugeError, match="did you mean 'cifar100'"):
        _data.find("cifar-100")


def test_the_data_folder_is_the_option_then_the_variable_then_the_users(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert _data.data_folder(tmp_path / "mine") == tmp_path / "mine"
    assert _data.data_folder() == tmp_path / "store"
    monkeypatch.delenv("STREAMGAUGE_DATA")
    monkeypatch.setenv("XDG_DATA_HOME", "/some/where")
    if sys.platform == "linux":
        assert _data.data_folder() == Path("/some/where/streamgauge")


def test_every_data_set_says_what_it_is() -> None:
    assert set(_data.names()) == {
        "cifar10", "cifar100", "tinyimagenet", "mnist", "fashion_mnist", "cloc", "cglm", "clear",
        "elec2", "inaturalist", "melbourne",
    }  # fmt: skip
    for name in _data.names():
        data = _data.find(name)
        assert data.name == name
        for fact in ("title", "revision", "licence", "citation", "home", "forms", "how_to_get"):
            assert getattr(data, fact)
        assert data.remotes or data.by_hand
        assert all(r.md5 or data.checksums for r in data.remotes)  # nothing is fetched on trust


# Orders of the papers


def _labels_alone(classes: int, train: int, test: int) -> tuple[ArraySource, Any]:
    """The labels of a balanced data set, without images."""
    label = np.append(np.arange(train) % classes, np.arange(test) % classes)
    source = ArraySource(np.empty((train + test, 0), np.uint8), label, classes=classes)
    return source, np.arange(train, train + test)


def test_the_surveys_cifar100_has_4760_steps_with_a_remainder_of_five_each() -> None:
    source, test = _labels_alone(100, 50_000, 10_000)
    stream = arrange(source, split_module("split_cifar100").Config(seed=2), test=test)
    assert (len(stream), stream.tasks) == (4760, 20)
    sizes = np.diff(stream.starts)
    for task in range(20):
        steps = np.flatnonzero(stream.task == task)
        assert sizes[steps].tolist() == [10] * 237 + [5]
        assert [stream.is_remainder(int(s)) for s in steps] == [False] * 237 + [True]
        assert (stream.splits["held_out"].task == task).sum() == 125
        assert (stream.splits["test"].task == task).sum() == 500
    torch.manual_seed(2)
    order = torch.randperm(100)
    assert order[:10].tolist() == [48, 97, 1, 81, 90, 49, 10, 8, 7, 20]  # as the survey's code
    for task in range(20):
        mine = np.unique(source.label[stream.order[np.repeat(stream.task, sizes) == task]])
        assert set(mine) == set(order[5 * task : 5 * task + 5].tolist())


def test_tiny_imagenet_of_the_survey_and_of_the_metrics_paper() -> None:
    source, test = _labels_alone(200, 100_000, 10_000)
    assert len(arrange(source, split_module("split_cifar100").Config(), test=test)) == 9500
    hundred = arrange(source, split_module("split_cifar100").Config(tasks=100), test=test)
    assert hundred.tasks == 100
    assert np.bincount(hundred.class_task).tolist() == [2] * 100


def test_the_real_time_papers_cifar_is_49000_shuffled_in_steps_of_ten() -> None:
    source, test = _labels_alone(10, 50_000, 10_000)
    stream = arrange(source, split_module("realtime_cifar10").Config(), test=test)
    assert (len(stream), stream.samples, stream.tasks) == (4900, 49_000, 0)
    assert len(stream.splits["held_out"]) == 1000
    first = source.label[stream.order[:4900]]
    assert np.bincount(first).min() > 400  # every class from the start


def test_streams_by_name_over_stored_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar100, "DATA", DATA100)
    _data.add(DATA100, put(tmp_path / "have", BINARY, "folder"))
    stream = catalogue.stream("split_cifar100", tasks="10", held_out="0")
    assert stream.tasks == 10
    assert stream.samples == 40
    assert len(stream.splits["test"]) == 20
    first = stream.index(0)
    assert np.array_equal(stream.source.read(first), TRAIN[first])
    blurred = catalogue.stream("blurry_cifar100", held_out="0", overlap="1")
    assert blurred.samples == 40
    assert catalogue.stream("realtime_cifar100", held_out="0").tasks == 0
    assert catalogue.summary("streams", "split_cifar100")["settings"]["tasks"] == "20"
    assert catalogue.summary("streams", "split_cifar10")["settings"]["tasks"] == "5"
    again = catalogue.stream("split_cifar100", tasks="10", held_out="0")
    assert again.describe() == stream.describe()


# MNIST and Fashion-MNIST


def idx(values: np.ndarray[Any, Any]) -> bytes:
    head = bytes([0, 0, 8, values.ndim])
    return head + b"".join(n.to_bytes(4, "big") for n in values.shape) + values.tobytes()


DIGITS = np.random.default_rng(3).integers(0, 256, (25, 28, 28), np.uint8)
IDX = {
    _idx.TRAIN: idx(DIGITS[:15]),
    _idx.TRAIN_LABELS: idx(np.arange(15, dtype=np.uint8) % 10),
    _idx.TEST: idx(DIGITS[15:]),
    _idx.TEST_LABELS: idx(np.arange(10, dtype=np.uint8)),
}


@pytest.mark.parametrize("data", [mnist.DATA, fashion_mnist.DATA])
@pytest.mark.parametrize(
    ("rename", "form"),
    [
        (lambda n: n, "folder"),
        (lambda n: f"raw/{n}.gz", "folder"),
        (lambda n: f"{n}.gz", "zip"),
        (lambda n: n.replace("-idx", ".idx"), "tar.gz"),
    ],
)
def test_idx_files_packed_or_not(
    data: _data.DataSet, rename: Any, form: str, tmp_path: Path
) -> None:
    data = replace(data, checksums={part: md5(raw) for part, raw in IDX.items()})
    contents = {
        rename(n): gzip.compress(raw) if rename(n).endswith("gz") else raw for n, raw in IDX.items()
    }
    stored = _data.add(data, put(tmp_path / "have", contents, form))
    assert np.array_equal(stored.arrays["x"][:, 0], DIGITS)
    assert stored.arrays["label"][15:].tolist() == list(range(10))
    assert stored.source().spec == ((1, 28, 28), 10)
    assert stored.about["verified"].startswith("yes")


def test_broken_archives_of_other_things_are_passed_over(tmp_path: Path) -> None:
    have = put(tmp_path / "have", IDX, "folder")
    data = replace(mnist.DATA, checksums={part: md5(raw) for part, raw in IDX.items()})
    packed = put(tmp_path / "packed", IDX, "zip")
    whole = put(tmp_path / "whole", {"a": bytes(40_000)}, "tar.gz").read_bytes()
    (have / "another.tar").write_bytes(gzip.decompress(whole)[:20_000])
    assert len(_data.add(data, have)) == 25
    for name in IDX:
        (have / name).unlink()
    with pytest.raises(StreamgaugeError, match=r"another\.tar cannot be read"):
        _data.add(data, have)  # where nothing else fits, the broken one may be what was meant
    shutil.copy(packed, have / "digits.zip")  # what is wanted lies in an archive beside it
    assert len(_data.add(data, have)) == 25


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"", "its head is another"),
        (b"\0\0\x08\x03\0\0", "its head is another"),
        (b"\0\0\x0d" + IDX[_idx.TRAIN][3:], "its head is another"),
        (IDX[_idx.TRAIN][:-1], "cut off"),
        (IDX[_idx.TRAIN] + b"0", "cut off, or something else"),
        (idx(DIGITS[:14]), "do not belong together"),
    ],
)
def test_broken_idx_files_are_one_sentence(raw: bytes, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(StreamgaugeError, match=sentence):
        _data.add(mnist.DATA, put(tmp_path / "have", {**IDX, _idx.TRAIN: raw}, "folder"))


def test_mnist_streams_digit_by_digit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = replace(mnist.DATA, checksums={})
    monkeypatch.setattr(mnist, "DATA", data)
    _data.add(data, put(tmp_path / "have", IDX, "folder"))
    stream = catalogue.stream("mnist", held_out="0")
    assert (stream.tasks, stream.samples, len(stream.splits["test"])) == (5, 15, 10)


# Tiny ImageNet


def jpeg(colour: tuple[int, int, int] | int, side: int = 64) -> bytes:
    out = io.BytesIO()
    mode = "L" if isinstance(colour, int) else "RGB"
    Image.new(mode, (side, side), colour).save(out, "JPEG", quality=95)
    return out.getvalue()


def tiny() -> dict[str, bytes]:
    """Three classes, in the order n3, n1, n2; two images each to train on, one to test."""
    contents = {"wnids.txt": b"n3\nn1\nn2\n", "words.txt": b"n1\tcat\n"}
    for wnid in ("n1", "n2", "n3"):
        shade = 80 * int(wnid[1])
        contents[f"train/{wnid}/images/{wnid}_0.JPEG"] = jpeg((shade, 0, 0))
        contents[f"train/{wnid}/images/{wnid}_1.JPEG"] = jpeg(shade)  # grey, as some are
        contents[f"train/{wnid}/{wnid}_boxes.txt"] = b"boxes"
        contents[f"val/images/val_{wnid}.JPEG"] = jpeg((0, shade, 0))
    rows = [f"val_n{k}.JPEG\tn{k}\t0\t0\t63\t63\n" for k in (2, 3, 1)]
    contents["val/val_annotations.txt"] = "".join(rows).encode()
    contents["test/images/test_0.JPEG"] = jpeg(0)  # its labels are not published
    return {f"tiny-imagenet-200/{name}": raw for name, raw in contents.items()}


@pytest.mark.parametrize("form", ["zip", "folder"])
def test_tiny_imagenet_as_zip_and_as_folder(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(tmp_path / "have", tiny(), form)
    lines = [f"train/n{n}/images/n{n}_{k}.JPEG n{n} " for n in (1, 2, 3) for k in (0, 1)]
    lines += [f"val/images/val_n{n}.JPEG n{n} " for n in (1, 2, 3)]
    hashes = [md5(tiny()[f"tiny-imagenet-200/{line.split()[0]}"]) for line in lines]
    listed = [f"{line}{value}" for line, value in zip(lines, hashes, strict=True)]
    of_images = md5("\n".join(listed).encode())
    key = "tiny-imagenet-200.zip" if form == "zip" else "the list of image hashes"
    known = {key: md5(path.read_bytes()) if form == "zip" else of_images}
    monkeypatch.setattr(tinyimagenet, "DATA", replace(tinyimagenet.DATA, checksums=known))
    stored = _data.add(tinyimagenet.DATA, path)
    assert stored.about["verified"] == f"yes, by the md5 of {key}"
    if form == "zip":
        assert stored.about["more"]["images_md5"] == of_images
    assert stored.arrays["label"].tolist() == [1, 1, 2, 2, 0, 0, 2, 0, 1]  # wnids.txt numbers
    assert stored.test.tolist() == [6, 7, 8]
    x = stored.arrays["x"]
    assert x.shape == (9, 3, 64, 64)
    middle = x[:, :, 32, 32].astype(int)
    expected = [[80, 0, 0], [80] * 3, [160, 0, 0], [160] * 3, [240, 0, 0], [240] * 3]
    expected += [[0, 160, 0], [0, 240, 0], [0, 80, 0]]
    assert np.abs(middle - expected).max() <= 4  # JPEG is lossy
    stream = catalogue.stream("split_tinyimagenet", tasks="3", held_out="0")
    assert (stream.tasks, stream.samples) == (3, 6)


def test_another_zip_and_a_broken_image_of_tiny_imagenet_are_refused(tmp_path: Path) -> None:
    path = put(tmp_path / "zip", tiny(), "zip")
    with pytest.raises(StreamgaugeError, match=r"tiny-imagenet-200\.zip has md5"):
        _data.add(tinyimagenet.DATA, path)
    with pytest.raises(StreamgaugeError, match="the list of image hashes has md5"):
        _data.add(tinyimagenet.DATA, put(tmp_path / "other", tiny(), "folder"))
    broken = tiny()
    name = "tiny-imagenet-200/train/n1/images/n1_0.JPEG"
    broken[name] = broken[name][:100]
    with pytest.raises(StreamgaugeError, match=r"n1_0\.JPEG"):
        _data.add(tinyimagenet.DATA, put(tmp_path / "broken", broken, "folder"))
    without = {k: v for k, v in tiny().items() if "train/" not in k}
    with pytest.raises(StreamgaugeError, match="0 training images"):
        _data.add(tinyimagenet.DATA, put(tmp_path / "without", without, "folder"))


# CLOC


def kept(value: Any, **how: Any) -> bytes:
    out = io.BytesIO()
    torch.save(value, out, **how)
    return out.getvalue()


def release() -> tuple[dict[str, bytes], Table]:
    """Twenty photos as CLOC was released: 2 to prepare on, 16 to stream, 2 held out."""
    time = np.arange(20) * 100 + 1_100_000_000
    part = np.ones(20, int)
    part[:2], part[[7, 15]] = 0, 2
    table = {
        "labels": np.arange(20) % 4,
        "time": time,
        "user": np.arange(20) // 3 + 10,
        "path": np.array([f"images/{i % 3}/{i}.jpg" for i in range(20)]),
        "part": part,
    }
    contents = {}
    for split, number in (("cross_val", 0), ("train", 1)):
        chosen = part == number
        old = {"_use_new_zipfile_serialization": split == "train"}  # both formats of torch.save
        contents[f"{split}_labels.torchSave"] = kept(table["labels"][chosen].tolist(), **old)
        contents[f"{split}_time.torchSave"] = kept(time[chosen].tolist(), **old)
        contents[f"{split}_userID.torchSave"] = kept(table["user"][chosen].tolist(), **old)
        paths = [f"{path}\n" for path in table["path"][chosen]]
        contents[f"{split}_store_loc.torchSave"] = kept(paths, **old)
    rows = [
        f"{table['labels'][i]},0,{time[i]},{table['user'][i]},{table['path'][i]}\n"
        for i in np.flatnonzero(part == 2)
    ]
    contents["yfcc100m_metadata_2004To2014_compact_val.csv"] = "".join(rows).encode()
    return {f"release/{name}": raw for name, raw in contents.items()}, table


@pytest.mark.parametrize("form", ["folder", "tar.gz"])
def test_clocs_released_arrays_become_its_stream(form: str, tmp_path: Path) -> None:
    contents, table = release()
    path = put(tmp_path / "have", contents, form)
    photos = {f"{name}": jpeg((10 * i, 0, 0), 40) for i, name in enumerate(table["path"])}
    put(tmp_path / "photos", photos, "folder")
    stored = _data.add(cloc.DATA, path, images=tmp_path / "photos")
    assert len(stored) == 20
    assert "64" not in stored.about["more"]["looked_for"]
    stream = catalogue.stream("cloc", size="32", batch="4")
    source = stream.source
    assert (
        source.columns["time"][stream.order].tolist() == table["time"][table["part"] == 1].tolist()
    )
    assert source.label[stream.order].tolist() == table["labels"][table["part"] == 1].tolist()
    assert source.columns["time"][stream.preparation].tolist() == table["time"][:2].tolist()
    held = stream.splits["held_out"]
    assert source.columns["time"][held.index].tolist() == table["time"][[7, 15]].tolist()
    assert held.position.tolist() == [5, 12]  # stream photos before photo 7 and photo 15
    assert not held.at_boundaries
    first = source.read(stream.order[:1])
    assert first.shape == (1, 3, 32, 32)
    assert abs(int(first[0, 0, 16, 16]) - 20) < 6  # photo 2 is the first of the stream
    albums = catalogue.stream("cloc", size="0", step="album", batch="8")
    user = table["user"][table["part"] == 1]
    assert len(albums) == 1 + int((user[1:] != user[:-1]).sum())
    shares = catalogue.stream("cloc", size="0", parts="shares", held_out="0.2")
    assert len(shares.preparation) == 1
    assert len(shares.splits["held_out"]) == 4
    assert shares.samples == 15


def test_a_torch_file_that_would_run_a_command_runs_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "harmed"
    contents, _ = release()
    contents["release/train_labels.torchSave"] = kept([Harm(mark)])
    with pytest.raises(StreamgaugeError, match=r"train_labels.* is refused"):
        _data.add(cloc.DATA, put(tmp_path / "have", contents, "folder"))
    assert not mark.exists()


def test_cloc_without_its_images_streams_labels_and_says_so(tmp_path: Path) -> None:
    contents, _ = release()
    _data.add(cloc.DATA, put(tmp_path / "have", contents, "folder"))
    assert catalogue.stream("cloc", size="0").spec.input_shape == (0,)
    with pytest.raises(StreamgaugeError, match=r"--images FOLDER, or set --stream\.size 0"):
        catalogue.stream("cloc")
    with pytest.raises(StreamgaugeError, match="None of 20 images that were looked for"):
        _data.add(cloc.DATA, tmp_path / "have", images=tmp_path)


def order_files(prefix: str = "") -> dict[str, bytes]:
    contents = {}
    for split, numbers in (
        ("pretrain", range(4)),
        ("train", range(4, 14)),
        ("test", range(14, 16)),
    ):
        for kind, values in (
            ("image_paths", [f"{prefix}{i}.jpg".encode() for i in numbers]),
            ("labels", np.array([i % 3 for i in numbers])),
        ):
            out = io.BytesIO()
            with h5py.File(out, "w") as file:
                file["store_list"] = values
            contents[f"order_files/{split}_{kind}.hdf5"] = out.getvalue()
    return contents


@pytest.mark.parametrize("name", ["cloc", "cglm"])
def test_hdf5_order_files_say_order_and_parts(name: str, tmp_path: Path) -> None:
    photos = {f"data/{i}.jpg": jpeg((15 * i, 0, 0), 16) for i in range(16)}
    path = put(tmp_path / "have", {**order_files("train/"), **photos}, "folder")
    stored = _data.add(_data.find(name), path)  # the list says train/, the folder does not
    assert stored.about["more"]["looked_for"] == "16 of 16 images found"
    stream = catalogue.stream(name, size="16", batch="3")
    assert stream.samples == 10
    assert stream.source.label[stream.order].tolist() == [i % 3 for i in range(4, 14)]
    assert stream.source.label[stream.preparation].tolist() == [0, 1, 2, 0]
    assert stream.splits["held_out"].position.tolist() == [0, 5]
    read = stream.source.read(stream.order)[:, 0, 8, 8].astype(int)
    assert np.abs(read - 15 * np.arange(4, 14)).max() < 6


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([["label", "path"], ["0", "../a.jpg"]], "leaves its folder"),
        ([["label", "path"], ["0", "/a.jpg"]], "leaves its folder"),
        ([["label", "what"], ["0", "a.jpg"]], "looks like the path: .*columns are label, what"),
        (
            [["label", "path", "time"], ["0", "a.jpg", "x"]],
            "'time' has times .* such as 'x'",
        ),
        ([["label", "path", "user"], ["0", "a", "u"], ["1", "b", ""]], None),
        ([["label", "path", "time"], ["0", "a", "1"], ["1", "b", ""]], "Line 3 of .* has no time"),
        ([["label", "path", "split"], ["0", "a", "elsewhere"]], "The split 'elsewhere'"),
        ([["label", "path"]], "has no rows"),
        (
            [["label", "path", "time"], ["", "a", ""], ["", "b", "1"], ["0", "c", ""]],
            "Line 4 of .* has no time",
        ),
        ([["label", "path"], ["", "a"]], "lists no image"),
        ([["class", "category", "path"], ["0", "1", "a"]], "'class' or 'category': rename"),
    ],
)
def test_a_csv_with_something_wrong_is_one_sentence(
    rows: list[list[str]], sentence: str | None, tmp_path: Path
) -> None:
    with (tmp_path / "list.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    if sentence is None:  # a user without a name is a user
        assert len(_data.add(cloc.DATA, tmp_path / "list.csv")) == 2
        return
    with pytest.raises(StreamgaugeError, match=sentence):
        _data.add(cloc.DATA, tmp_path / "list.csv")


def test_a_csv_is_ordered_by_time_and_keeps_users_and_places(tmp_path: Path) -> None:
    lines = ["Label;Path;TIMESTAMP;user_id;lat;lon"]
    lines += [f"{i % 5};{i}.jpg;{1000 - i};u{i // 2};{i / 10};{-i}" for i in range(100)]
    (tmp_path / "list.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    stored = _data.add(cloc.DATA, tmp_path / "list.csv.gz")
    assert "time from 'TIMESTAMP'" in stored.about["form"]
    stream = catalogue.stream("cloc", size="0", batch="10")
    assert len(stream.preparation) == 5
    assert len(stream.splits["held_out"]) == 1
    times = stream.source.columns["time"]
    assert times[stream.preparation].tolist() == [901, 902, 903, 904, 905]
    assert bool(np.all(np.diff(times[stream.order]) > 0))
    assert np.allclose(stream.source.columns["latitude"], np.arange(100)[::-1] / 10)
    assert len(np.unique(stream.source.columns["user"])) == 50


def test_cglm_from_its_metadata(tmp_path: Path) -> None:
    rows = [["id", "landmark_id", "upload_date", "clean"]]
    for i in range(60):  # landmark 7 has 30 images, 900 has 26, 5 has four
        landmark = 7 if i < 30 else 900 if i < 56 else 5
        rows.append([f"{i:016x}"[::-1], str(landmark), str(5000 - i), "True"])
    with (tmp_path / "cglm_labels_timestamps_clean.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    first = rows[1][0]
    photo = tmp_path / "train" / first[0] / first[1] / first[2] / f"{first}.jpg"
    photo.parent.mkdir(parents=True)
    photo.write_bytes(jpeg((200, 0, 0), 20))
    stored = _data.add(cglm.DATA, tmp_path)
    assert len(stored) == 56
    assert stored.about["class_names"] == ["7", "900"]
    assert stored.about["more"]["looked_for"] == "1 of 56 images found"
    stream = catalogue.stream("cglm", size="20")
    assert len(stream.preparation) == round(56 * 0.2)
    times = stream.source.columns["time"]
    assert bool(np.all(np.diff(times[stream.order]) > 0))
    assert stream.source.label[stream.preparation].tolist() == [1] * 11  # the oldest come first
    assert abs(int(stream.source.read(np.array([55]))[0, 0, 10, 10]) - 200) < 6  # the newest
    with pytest.raises(StreamgaugeError, match=r"cannot be used.*cannot be read.*--images"):
        stream.source.read(np.array([1]))
    left = catalogue.stream("cglm", size="20", on_bad="skip", preparation="0", held_out="0")
    assert left.samples == 1


# CLEAR


def periods(root: str, count: int, shade: int) -> dict[str, bytes]:
    return {
        f"{root}/labeled_images/{period}/{kind}/{i}.jpg": jpeg((shade, 20 * period, 0), 16)
        for period in (1, 2, 10)
        for kind in ("camera", "bus")
        for i in range(count)
    }


def test_clear_comes_period_by_period_from_folders_and_zips(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = {
        "clear10-train-image-only.zip": periods("train_image_only", 4, 200),
        "clear10-test.zip": periods("test", 2, 100),
    }
    folders = put(
        tmp_path / "folders", {k: v for p in parts.values() for k, v in p.items()}, "folder"
    )
    zips = tmp_path / "zips"
    for name, contents in parts.items():
        put(zips, contents, "zip").rename(zips / name)
    with pytest.raises(StreamgaugeError, match=r"clear10-.*zip has md5"):
        _data.add(clear.DATA, zips)
    checksums = {name: md5((zips / name).read_bytes()) for name in parts}
    data = replace(clear.DATA, checksums=checksums)
    seen = []
    for path, words in (
        (folders, "by its counts only"),
        (zips, "yes, by the md5 of clear10-test.zip"),
    ):
        stored = _data.add(data, path)
        assert stored.about["verified"].startswith(words)
        shutil.rmtree(zips, ignore_errors=path == folders) if path == zips else None
        stream = catalogue.stream("clear", size="16", held_out="0", batch="4")
        assert stream.tasks == 3
        assert stream.samples == 24
        assert stream.source.class_names == ["bus", "camera"]
        domain = stream.source.columns["domain"][stream.order]
        assert domain.tolist() == [1] * 8 + [2] * 8 + [10] * 8  # by number, not by letters
        test = stream.splits["test"]
        assert test.task is not None
        assert np.bincount(test.task).tolist() == [4, 4, 4]
        read = stream.source.read(np.append(stream.order[-1:], test.index[:1]))
        assert np.abs(read[0, :, 8, 8].astype(int) - [200, 200, 0]).max() < 10
        assert np.abs(read[1, 0, 8, 8].astype(int) - 100) < 10
        seen.append(stream.order_hash)
    assert seen[0] == seen[1]


# Tables


ROWS = [(0.0, 0.056443, 0.439155, 0.003467, 0.422915, 0.414912, "UP"),
        (0.021277, 0.051699, 0.415055, 0.003467, 0.422915, 0.414912, "DOWN"),
        (1.0, 0.050679, 0.288753, 0.003542, 0.355256, 0.23114, "UP")]  # fmt: skip


def test_elec2_as_csv_and_arff_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = [",".join([*elec2.FEATURES, "class"])]
    plain += [",".join([repr(v + 1e-17) for v in row[:-1]] + [str(int(row[-1] == "UP"))])
              for row in ROWS]  # fmt: skip
    arff = ["@relation elec", "% a comment", "@attribute date numeric"]
    arff += [f"@attribute {name} numeric" for name in elec2.FEATURES]
    arff += ["@attribute class {UP,DOWN}", "", "@data"]
    arff += [",".join(["0.5", *map(str, row)]) for row in ROWS]
    seen = []
    data = replace(elec2.DATA, checksums={})
    monkeypatch.setattr(elec2, "DATA", data)
    for name, lines in (("elec2.csv", plain), ("electricity-normalized.arff", arff)):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
        stored = _data.add(data, tmp_path / name)
        seen.append(stored.about["checksums"])
        stream = catalogue.stream("elec2", batch="2")
        assert np.array_equal(stream.source.read(stream.order), np.float32([r[:-1] for r in ROWS]))
        assert stream.source.label.tolist() == [1, 0, 1]
        assert stream.source.class_names == ["down", "up"]
    assert seen[0] == seen[1]
    with pytest.raises(StreamgaugeError, match="not Elec2 as published"):
        _data.add(replace(data, checksums={"labels": "0"}), tmp_path / "elec2.csv")


def test_observations_are_in_order_and_know_nothing_of_later_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inputs by hand: the calendar, and users by order of appearance; fewer rows give the same."""
    data = replace(melbourne.DATA, checksums={})
    monkeypatch.setattr(melbourne, "DATA", data)
    rows = [
        (7, "ann", 200, 30),
        (8, "bob", 86_400 // 4, 40),
        (9, "ann", 100, 40),
        (10, "cy", 99_999, 7),
    ]
    head, seen = "photoID;userID;dateTaken;poiID;poiTheme", []
    for count in (4, 3):
        lines = [head, *(f"{a};{b};{c};{d};x" for a, b, c, d in rows[:count])]
        (tmp_path / "visits.csv").write_text("\n".join(lines) + "\n")
        _data.add(data, tmp_path / "visits.csv")
        stream = catalogue.stream("melbourne", preparation=0, held_out=0)
        seen.append(stream.source.read(stream.order))
    source = catalogue.stream("melbourne", preparation=0, held_out=0).source
    assert np.array_equal(seen[0][:3], seen[1])
    assert [source.class_names[label] for label in source.label] == ["40", "30", "40"]
    assert source.columns["time"].tolist() == [100, 200, 21_600]
    slots = seen[1][:, -SLOTS:]
    assert [int(row.argmax()) for row in slots] == [0, 0, 1]
    assert slots.sum() == 3
    assert seen[1][2, :2].tolist() == pytest.approx([1.0, 0.0], abs=1e-6)  # a quarter of the day
    with pytest.raises(StreamgaugeError, match="not Melbourne, photos of 85 places as published"):
        _data.add(replace(data, checksums={"label": "0"}), tmp_path / "visits.csv")


def test_plants_have_a_location_that_is_standardised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inaturalist, "DATA", replace(inaturalist.DATA, checksums={}))
    head = "created_at,observed_on,user_id,scientific_name,latitude,longitude\n"
    one = "2020-05-02 10:00:00 UTC,2020-04-01,5,Rosa nutkana,50.1,-125.5\n"
    two = "2020-05-01 10:00:00 UTC,2019-04-01,6,Lamium purpureum,49.0,-124.5\n"
    (tmp_path / "observations.csv").write_text(head + one + two)
    _data.add(inaturalist.DATA, tmp_path)
    stream = catalogue.stream("inaturalist", preparation=0, held_out=0)
    x = stream.source.read(stream.order)
    assert stream.source.scaled == 2
    assert x[:, :2].tolist() == np.float32([[49.0, -124.5], [50.1, -125.5]]).tolist()
    assert x.shape == (2, 2 + 2 + SLOTS)  # location, season, user
    assert stream.source.class_names == ["Lamium purpureum", "Rosa nutkana"]


def test_a_table_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text("a,b,when,Class\n1,2.5,30,x\n3,4,10,y\n5,6,20,x\n")
    path = str(tmp_path / "t.csv")
    stream = catalogue.stream("tabular", path=path, time="when", order="time")
    assert "label = 'Class', time = 'when' (as set); inputs: a, b;" in capsys.readouterr().err
    assert stream.source.read(stream.order).tolist() == [[3, 4], [5, 6], [1, 2.5]]
    assert stream.source.class_names == ["x", "y"]
    for settings, sentence in (
        ({}, "which table"),
        ({"path": str(tmp_path / "no.csv")}, "There is no file"),
        ({"path": path, "label": "klass"}, "no column 'klass' for the label"),
        ({"path": path, "drop": "c"}, "no column 'c'"),
        ({"path": path, "time": "when"}, "go backwards at 1 row, first at line 3,"),
    ):
        with pytest.raises(StreamgaugeError, match=sentence):
            catalogue.stream("tabular", **settings)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a,label\n1,0\n2,\n3,1\n", "Line 3 of 't.csv' has no label"),
        ("a,label\n1,x\n2,\n3,y\n", "Line 3 of 't.csv' has no label"),
        ("a,label\n\n1,x\n,y\n", "Line 4 of 't.csv' has no value in column 'a'"),
        ("a,a,label\n1,2,0\n", "'a' comes twice"),
        ("a,label\n", "has no rows"),
    ],
)
def test_what_is_wrong_with_a_table_of_numbers_is_said_by_its_line(
    text: str, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(StreamgaugeError, match=sentence):
        catalogue.stream("tabular", path=str(tmp_path / "t.csv"), scale="none", on_bad="refuse")


def test_rows_without_a_label_are_no_class_and_are_counted(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("label,path\nwren,a\n,b\nrobin,c\n")
    stored = _data.add(cloc.DATA, tmp_path / "list.csv")
    assert stored.about["class_names"] == ["robin", "wren"]
    assert len(stored) == 2
    assert stored.about["form"].endswith("; 1 rows without a label left out")


def test_a_broken_table_of_something_else_does_not_keep_elec2_out(tmp_path: Path) -> None:
    from streamgauge.streams.named import elec2

    (tmp_path / "a.csv").write_text("x,x\n1,2\n")
    with pytest.raises(StreamgaugeError, match="'x' comes twice"):
        _data.add(elec2.DATA, tmp_path)
    names = [*elec2.FEATURES, "class"]
    (tmp_path / "b.csv").write_text(",".join(names) + "\n0,1,0,1,0,1,UP\n1,0,1,0,1,0,DOWN\n")
    assert len(_data.add(elec2.DATA, tmp_path, other_contents=True)) == 2


# The command


def test_the_commands_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["streamgauge", "data", *words])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        printed = capsys.readouterr()
        return int(stop.value.code or 0), printed.out, printed.err

    monkeypatch.setattr(mnist, "DATA", replace(
        mnist.DATA, checksums={part: md5(raw) for part, raw in IDX.items()}))  # fmt: skip
    path = put(tmp_path / "have", IDX, "folder")
    code, out, _ = call("list", "--json")
    assert code == 0
    assert not any(entry["here"] for entry in json.loads(out)["sets"])
    code, _, err = call("add", "mnist", str(tmp_path / "nothing"))
    assert (code, err) == (2, f"streamgauge: There is nothing at {tmp_path / 'nothing'}.\n")
    code, out, _ = call("add", "mnist", str(path))
    assert code == 0
    assert out.startswith(
        "MNIST: 15 samples and 10 to test on, 10 classes.\nFound as idx files in "
    )
    code, out, _ = call("info", "mnist")
    assert "25 samples, 10 classes, of which 10 are the official test set" in out
    assert "LeCun" in out
    assert "licence" in out
    code, out, _ = call("list")
    assert "here: 25 samples" in out
    assert "not here: streamgauge data fetch cifar100" in out
    code, out, _ = call("info", "mnist", "--json", "--data-folder", str(tmp_path / "empty"))
    assert json.loads(out)["here"] is False
    contents, _ = release()
    code, out, _ = call("add", "cloc", str(put(tmp_path / "cloc", contents, "folder")))
    assert "Images were not found: add it again with --images FOLDER" in out
    code, _, err = call("fetch", "cloc")
    assert code == 2
    assert "cannot be downloaded by a program" in err


def test_paths_are_kept_as_they_are(tmp_path: Path) -> None:
    import pyarrow as pa

    names = ["a.jpg", "", "ü/ö.jpg", "x" * 300]
    ends, letters = _photos._letters(pa.array(["skipped", *names])[1:])
    np.save(tmp_path / "paths.npy", letters)
    np.save(tmp_path / "path_ends.npy", ends[1:])
    items = _photos.PathItems(tmp_path, "", "", "", "")
    for one in (items, pickle.loads(pickle.dumps(items))):
        assert [one.name(i) for i in range(len(one))] == names
    assert len(pickle.dumps(items)) < 1000  # names are not sent to workers


def test_an_idx_file_without_values_is_one_sentence() -> None:
    """NumPy cannot make an empty array whose other axes are too long."""
    raw = bytes([0, 0, 8, 3]) + np.array([0, 2**32 - 1, 2**32 - 1], ">u4").tobytes()
    with pytest.raises(StreamgaugeError, match="has no values"):
        _idx.read_idx(raw, "train-images")
