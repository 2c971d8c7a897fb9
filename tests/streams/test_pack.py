"""Packing: what comes out, whoever packs it and however often it is stopped."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamgauge as sg
from streamgauge import catalogue, cli
from streamgauge.errors import StreamgaugeError
from streamgauge.streams import order as kept
from streamgauge.streams.images.image_source import ImageSource, decode
from streamgauge.streams.pack import packing
from streamgauge.streams.pack.packed import PackedSource, info, read_shard, verify
from streamgauge.streams.pack.packing import Packing, pack
from streamgauge.streams.source import ArraySource
from streamgauge.streams.stream import Arrangement, arrange

Image = pytest.importorskip("PIL.Image")
COUNT = 200
BAD = (10, 133)


class Photos:
    """Files in memory, with names."""

    fingerprint = "photos of this test"

    def __init__(self, pause: float = 0.0) -> None:
        rng = np.random.default_rng(0)
        self.pause = pause
        self.files = []
        for number in range(COUNT):
            file = io.BytesIO()
            size = (int(rng.integers(9, 30)), int(rng.integers(9, 30)), 3)
            image = Image.fromarray(rng.integers(0, 256, size, dtype=np.uint8))
            image.save(file, "JPEG" if number % 3 else "PNG")
            self.files.append(file.getvalue())
        self.files[BAD[0]] = self.files[BAD[0]][:60]
        self.files[BAD[1]] = b"this is no image"

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, number: int) -> bytes:
        time.sleep(self.pause)
        return self.files[number]

    def name(self, number: int) -> str:
        return f"{number}.{'jpg' if number % 3 else 'png'}"


def photos(pause: float = 0.0) -> ImageSource:
    rng = np.random.default_rng(1)
    return ImageSource(
        Photos(pause),
        rng.integers(0, 5, COUNT),
        size=8,
        time=np.sort(rng.integers(0, 1000, COUNT)),
        user=rng.integers(0, 9, COUNT).astype(np.int32),
    )


GOOD = np.setdiff1d(np.arange(COUNT), BAD)


@pytest.mark.parametrize("form", ["kept", "jpeg", "array"])
def test_any_number_of_workers_packs_the_same_bytes(form: Any, tmp_path: Path) -> None:
    source = photos()
    how = Packing(form=form, size=6, shard=32)
    test = np.array([199, 3, 10])
    contents = []
    for workers in (0, 1, 3):
        folder = tmp_path / str(workers)
        pack(source, folder, how, on_bad="skip", workers=workers, test=test)
        contents.append(
            {
                str(file.relative_to(folder)): file.read_bytes()
                for file in sorted(folder.rglob("*"))
                if file.is_file()
            }
        )
    assert contents[0] == contents[1] == contents[2]

    packed = PackedSource(tmp_path / "3")
    assert len(packed) == len(GOOD)
    np.testing.assert_array_equal(packed.label, source.label[GOOD])
    for name, column in source.columns.items():
        np.testing.assert_array_equal(packed.columns[name], column[GOOD])
        assert packed.columns[name].dtype == column.dtype
    np.testing.assert_array_equal(packed.test, [3, 197])  # 10 could not be used
    index = np.random.default_rng(2).integers(0, len(GOOD), 90)
    wanted = np.stack([decode(source.items[GOOD[i]], 6) for i in index])
    if form == "jpeg":
        wanted = np.stack([decode(packing._as_jpeg(x, 90), 6) for x in wanted])
    np.testing.assert_array_equal(packed.read(index), wanted)
    assert packed.in_time_order
    assert verify(tmp_path / "3") == []


def test_kept_images_are_the_files_and_are_decoded_to_any_size(tmp_path: Path) -> None:
    source = photos()
    pack(source, tmp_path / "p", on_bad="skip", name="photos")
    packed = PackedSource(tmp_path / "p", size=5)
    assert packed.encoded(132) == source.items[134]
    assert packed.spec.input_shape == (3, 5, 5)
    np.testing.assert_array_equal(packed.read(np.array([3, 3]))[1], decode(source.items[3], 5))
    prints = {
        PackedSource(tmp_path / "p", size, first).fingerprint
        for size, first in ((0, 0), (5, 0), (0, 50), (5, 50))
    }
    assert len(prints) == 4
    few = sg.stream("packed", path=str(tmp_path / "p"), first=50, order="time")
    assert (few.name, few.samples, len(few.source)) == ("photos", 50, 50)
    twin = pickle.loads(pickle.dumps(packed))
    np.testing.assert_array_equal(twin.read(np.arange(9)), packed.read(np.arange(9)))


def test_arrays_of_any_kind_are_packed(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(70, 2, 3)).astype(np.float32)
    source = ArraySource(x, np.arange(70) % 4, class_names=list("abcd"), latitude=rng.random(70))
    packed = pack(source, tmp_path / "floats", Packing(shard=16), workers=2)
    index = np.concatenate([np.arange(10, 40), [3, 69, 0], np.arange(60, 70)])
    np.testing.assert_array_equal(packed.read(index), x[index])
    assert packed.read(index).dtype == np.float32
    assert list(packed.class_names or ()) == list("abcd")
    again = pack(packed, tmp_path / "again", Packing(shard=16))  # a packed source is a source
    np.testing.assert_array_equal(again.read(index), x[index])
    nothing = ArraySource(np.empty((30, 0), np.uint8), np.arange(30) % 3, user=np.arange(30))
    labels = pack(nothing, tmp_path / "labels")
    assert labels.read(np.arange(7)).shape == (7, 0)
    np.testing.assert_array_equal(labels.label, nothing.label)
    images = ArraySource(rng.integers(0, 256, (9, 3, 8, 8), dtype=np.uint8), np.zeros(9, int))
    assert pack(images, tmp_path / "small", Packing(size=4)).read(np.arange(9)).shape[2:] == (4, 4)
    packed_kept = pack(photos(), tmp_path / "kept", on_bad="skip")
    smaller = pack(packed_kept, tmp_path / "smaller", Packing(form="array", size=4))
    np.testing.assert_array_equal(smaller.label, packed_kept.label)


def test_the_same_stream_from_a_packed_source(tmp_path: Path) -> None:
    """Labels, order and log are those of the source it was packed from."""
    stream = sg.stream("albums", length=600, size=4)
    pack(stream.source, tmp_path / "p", name="albums")
    names = list(Arrangement.__dataclass_fields__)
    how = {name: stream.settings[name] for name in names}
    packed = sg.stream("packed", path=str(tmp_path / "p"), **how)
    assert packed.order_hash == stream.order_hash
    first = sg.run(stream, "er", out=tmp_path / "a", device="cpu")
    second = sg.run(packed, "er", out=tmp_path / "b", device="cpu")
    for column in first.predictions:
        np.testing.assert_array_equal(
            np.asarray(first.predictions[column]), np.asarray(second.predictions[column])
        )
    moved = tmp_path / "elsewhere"
    (tmp_path / "p").rename(moved)
    third = sg.run(sg.stream("packed", path=str(moved), **how), "er", out=tmp_path / "b")
    assert third.id == second.id  # where it lies is no part of it


ARRANGED: list[tuple[str, dict[str, Any]]] = [
    ("albums", {"length": 600, "size": 4, "preparation": 0.1, "step": "album"}),
    ("blobs", {"per_class": 20, "tasks": 2, "held_out": 0.2, "split_seed": 5}),
    ("blobs", {"per_class": 20, "seed": 3}),
    ("markov", {"length": 300, "order": "iid", "batch": 7, "held_out_by": "random"}),
]


@pytest.mark.parametrize(("name", "settings"), ARRANGED)
def test_a_packed_stream_is_the_stream(name: str, settings: Any, tmp_path: Path) -> None:
    """Without a setting: the same samples, order, steps, tasks, and parts set apart."""
    stream = sg.stream(name, **settings)
    pack(stream, tmp_path / "p")
    packed = sg.stream("packed", path=str(tmp_path / "p"))
    assert packed.name == name
    for part, values in stream.parts().items():
        np.testing.assert_array_equal(packed.parts()[part], values)
    assert packed.order_hash == stream.order_hash
    for one, other in ((stream.order, packed.order), (stream.preparation, packed.preparation)):
        np.testing.assert_array_equal(stream.source.read(one), packed.source.read(other))
        np.testing.assert_array_equal(stream.source.label[one], packed.source.label[other])
    again = sg.stream("packed", **{k: v for k, v in packed.settings.items() if k != "features"})
    assert again.describe() == packed.describe()  # as `resume` opens it
    # As a run opens it with its seed: one that was chosen for the packing stays.
    seeded = sg.stream("packed", path=str(tmp_path / "p"), seed=8)
    how = {name: stream.settings[name] for name in Arrangement.__dataclass_fields__}
    how["seed"] = settings.get("seed", 8)
    assert seeded.order_hash == arrange(stream.source, Arrangement(**how)).order_hash
    changed = sg.stream("packed", path=str(tmp_path / "p"), batch=3, held_out=0)
    assert (changed.size, dict(changed.splits)) == (3, {})
    assert changed.settings["order"] == stream.settings["order"]


def test_an_official_test_set_is_packed_with_the_arrangement(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    source = ArraySource(rng.random((90, 2)).astype(np.float32), np.arange(90) % 6)
    how = Arrangement(order="classes", tasks=3, held_out=0.2, held_out_by="task")
    stream = arrange(source, how, test=np.arange(60, 90), name="mine")
    pack(stream, tmp_path / "p", Packing(shard=7))
    packed = sg.stream("packed", path=str(tmp_path / "p"))
    assert {name: len(split) for name, split in packed.splits.items()} == {
        "held_out": 12,
        "test": 30,
    }
    assert packed.order_hash == stream.order_hash
    run = sg.run(packed, "ncm", out=tmp_path / "runs", device="cpu")
    assert set(np.unique(run.evaluations["split"]).tolist()) >= {"held_out", "test"}


def test_a_pack_of_before_takes_the_arrangement_on(tmp_path: Path) -> None:
    """What was packed by samples alone opens as ever, and the command adds what it did not keep."""
    stream = sg.stream("blobs", per_class=20, held_out=0.1)
    folder = tmp_path / "p"
    before = pack(stream.source, folder, name="blobs").fingerprint
    request = json.loads((folder / "pack.json").read_text())
    del request["arrangement"], request["format"], request["own_checksum"]
    (folder / "pack.json").write_text(json.dumps(request))
    old = sg.stream("packed", path=str(folder))
    assert (old.samples, old.size, dict(old.splits)) == (200, 10, {})
    assert pack(stream, folder).fingerprint == before
    assert sg.stream("packed", path=str(folder)).order_hash == stream.order_hash
    with pytest.raises(StreamgaugeError, match=r"'stream.held_out' was 0.1 and is 0.5"):
        pack(sg.stream("blobs", per_class=20, held_out=0.5), folder)


def test_bad_images_are_listed_or_fatal(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    with pytest.raises(StreamgaugeError, match=r"'10.jpg' \(sample 10\).*--on-bad skip") as caught:
        pack(photos(), folder, Packing(shard=32), workers=2)
    assert "\n" not in str(caught.value)
    packed = pack(photos(), folder, Packing(shard=32), on_bad="skip")  # goes on from there
    assert len(packed) == COUNT - 2
    with (folder / "bad.csv").open(newline="") as file:
        listed = list(csv.DictReader(file))
    assert [(entry["item"], entry["name"]) for entry in listed] == [
        ("10", "10.jpg"),
        ("133", "133.jpg"),
    ]
    assert all(entry["reason"].endswith(".") for entry in listed)
    assert sum(info(folder)["bad"].values()) == 2


CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, {here!r})
from test_pack import photos
from streamgauge.streams.packing import Packing, pack
pack(photos(pause=0.004), sys.argv[1], Packing(shard=16), on_bad="skip", workers=int(sys.argv[2]))
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_killed_and_resumed_it_comes_out_the_same(workers: int, tmp_path: Path) -> None:
    """SIGKILL, for real, wherever it hits: each time some shards more are there."""
    folder = tmp_path / "killed"
    code = CHILD.format(here=str(Path(__file__).parents[1]))
    kills = 0
    for _ in range(20):
        command = [sys.executable, "-c", code, str(folder), str(workers)]
        child = subprocess.Popen(command)
        before = len(list(folder.glob("shards/*.json")))
        while child.poll() is None and len(list(folder.glob("shards/*.json"))) < before + 4:
            time.sleep(0.005)
        child.send_signal(signal.SIGKILL)
        if child.wait() == 0:
            break
        kills += 1
        if (folder / "pack.json").exists() and list(folder.glob("shards/*.json")):
            with pytest.raises(StreamgaugeError, match="not packed to its end"):
                PackedSource(folder)
            if read_shard(folder, 0) is None:  # another one was quicker
                continue
            part = PackedSource(folder, partial=True)
            np.testing.assert_array_equal(
                part.read(np.arange(len(part))), _read(photos(), GOOD[: len(part)])
            )
            np.testing.assert_array_equal(part.label, photos().label[GOOD[: len(part)]])
    assert kills >= 2
    packed = pack(photos(), folder, Packing(shard=16), on_bad="skip")
    whole = pack(photos(), tmp_path / "whole", Packing(shard=16), on_bad="skip")
    assert packed.fingerprint == whole.fingerprint
    assert verify(folder) == []
    assert not list(folder.rglob("*.part"))


def _read(source: ImageSource, index: Any) -> Any:
    return np.stack([source.decoded(int(i)) for i in index])


def test_a_full_disk_stops_with_a_sentence_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, real = tmp_path / "p", os.replace

    def full(source: Path, target: Path) -> None:
        if target.name == "000005.bin":
            raise OSError(errno.ENOSPC, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StreamgaugeError, match=r"disk is full: 80 of 200 .* go on") as caught:
        pack(photos(), folder, Packing(shard=16), on_bad="skip", workers=1)
    assert "\n" not in str(caught.value)
    part = sg.stream("packed", path=str(folder), partial=True).source
    assert len(part) == 79
    np.testing.assert_array_equal(part.read(np.arange(79)), _read(photos(), GOOD[:79]))
    monkeypatch.setattr(os, "replace", real)
    assert len(pack(photos(), folder, Packing(shard=16), on_bad="skip")) == len(GOOD)
    assert verify(folder) == []


def test_changed_bytes_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    first = pack(photos(), folder, Packing(shard=64, form="array"), on_bad="skip")
    shard = folder / "shards" / "000001.bin"
    data = bytearray(shard.read_bytes())
    data[100] ^= 1
    shard.write_bytes(data)
    label = np.load(folder / "kept" / "label.npy")
    np.save(folder / "kept" / "label.npy", label[::-1])
    found = verify(folder)
    assert len(found) == 2
    assert "Shard 1" in found[0]
    assert "label.npy" in found[1]
    with pytest.raises(StreamgaugeError, match=r"label.npy is damaged"):
        PackedSource(folder)
    np.save(folder / "kept" / "label.npy", label)
    opened = PackedSource(folder)
    with pytest.raises(StreamgaugeError, match=r"000001.bin is damaged \(sample"):
        opened.read(np.arange(len(opened)))
    shard.write_bytes(data[:50])
    with pytest.raises(StreamgaugeError, match="shorter than it was packed"):
        PackedSource(folder).read(np.arange(64, 90))
    again = pack(photos(), folder, Packing(shard=64, form="array"), on_bad="skip")  # mends it
    assert verify(folder) == []
    assert again.fingerprint == first.fingerprint


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda d: pack(photos(), d, Packing(form="photo")), "form cannot be 'photo'"),  # type: ignore[arg-type]
        (lambda d: pack(photos(), d, on_bad="ignore"), "on_bad cannot be"),
        (lambda d: pack(photos(), d, Packing(quality=0)), "quality between"),
        (lambda d: pack(sg.stream("blobs").source, d, Packing(form="kept")), "no image files"),
        (lambda d: pack(sg.stream("markov").source, d, Packing(size=8)), "Only images"),
        (lambda d: PackedSource(d), "not a packed folder"),
        (lambda d: sg.stream("packed"), "path"),
        (lambda d: (d.mkdir(), (d / "x").touch(), pack(photos(), d)), "not empty"),
        (
            lambda d: (d.parent.mkdir(exist_ok=True), d.touch(), pack(photos(), d)),
            "cannot be packed into",
        ),
    ],
)
def test_what_cannot_be_packed_gets_a_sentence(make: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(StreamgaugeError, match=sentence) as caught:
        make(tmp_path / "p")
    assert "\n" not in str(caught.value)


def test_another_request_or_another_packer_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    pack(photos(), folder, on_bad="skip")
    with pytest.raises(StreamgaugeError, match="'input_shape' was"):
        pack(photos(), folder, Packing(size=4), on_bad="skip")
    with pytest.raises(StreamgaugeError, match=r"stream\.first"):
        PackedSource(folder, first=500)

    def meanwhile(done: int, total: int) -> None:
        pack(photos(), tmp_path / "q", on_bad="skip")

    with pytest.raises(StreamgaugeError, match="Another process is packing"):
        pack(photos(), tmp_path / "q", on_bad="skip", progress=meanwhile)


def test_the_command_packs_and_verifies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["streamgauge", *words])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        said = capsys.readouterr()
        return int(stop.value.code or 0), said.out, said.err

    out = str(tmp_path / "p")
    words = ["data", "pack", "--stream", "blobs", "--stream.per_class", "5", "--out", out, "--json"]
    code, said, _ = call(*words)
    assert code == 0
    assert json.loads(said)["samples"] == 50
    assert call("data", "info", out, "--verify")[:1] == (0,)
    (tmp_path / "p" / "shards" / "000000.bin").write_bytes(b"")
    code, said, _ = call("data", "info", out, "--verify")
    assert code == 1
    assert "Shard 0" in said
    code, _, said = call("data", "pack", "--stream", "blobs", "--out", out, "--er.lr", "1")
    assert code == 2
    assert "--er.lr has no meaning" in said


# Orders that are kept beside the data


def test_a_kept_order_is_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "LONG", 100)
    monkeypatch.setattr("streamgauge.streams.source.PIECE", 64)  # runs cross many pieces
    rng = np.random.default_rng(0)
    source = ArraySource(
        np.empty((900, 0), np.uint8),
        rng.integers(0, 6, 900),
        time=rng.integers(0, 500, 900),
        user=np.repeat(rng.integers(0, 4, 300), rng.multinomial(900, np.ones(300) / 300)),
    )
    test = np.arange(5, 25)
    for how in (
        Arrangement(order="time", step="album", batch=3, held_out=0.1, preparation=0.1),
        Arrangement(order="classes", tasks=3, held_out=0.1, held_out_by="task"),
        Arrangement(order="blurry", tasks=2, step="album", batch=200),
        Arrangement(batch=1),
    ):
        plain = arrange(source, how, test=test)
        made = arrange(source, how, test=test, cache=tmp_path)
        found = arrange(source, how, test=test, cache=tmp_path)
        assert found.known is not None
        assert made.known is None
        for name, part in plain.parts().items():
            for other in (made, found):
                np.testing.assert_array_equal(other.parts()[name], part)
        assert plain.describe() == made.describe() == found.describe()
        changed = replace(found, order=found.order[::-1])
        assert changed.order_hash == replace(plain, order=plain.order[::-1]).order_hash
        assert changed.order_hash != plain.order_hash
        with pytest.raises(StreamgaugeError, match="outside its source"):
            replace(found, order=found.order + 900)
    assert len(list(tmp_path.iterdir())) == 4
    for folder in tmp_path.iterdir():  # what is damaged is made again
        next(folder.glob("*.npy")).write_bytes(b"")
    assert arrange(source, how, test=test, cache=tmp_path).order_hash == plain.order_hash
    assert arrange(source, how, test=test, cache=tmp_path).known is not None


def test_steps_by_the_slow_and_obvious_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamgauge.streams.source.PIECE", 7)
    rng = np.random.default_rng(3)
    for _ in range(30):
        count, batch = int(rng.integers(1, 80)), int(rng.integers(1, 12))
        user = np.repeat(rng.integers(0, 3, count), rng.integers(1, 9, count))[:count]
        source = ArraySource(np.empty((count, 0), np.uint8), np.zeros(count, int), user=user)
        stream = arrange(source, Arrangement(step="album", batch=batch))
        starts, run = [0], 1
        for place in range(1, count):
            run = run + 1 if user[place] == user[place - 1] else 1
            if run == 1 or (run - 1) % batch == 0:
                starts.append(place)
        assert stream.starts.tolist() == [*starts, count]


def test_a_folder_that_cannot_be_written_is_no_reason_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "LONG", 10)
    (tmp_path / "file").touch()
    source = ArraySource(np.empty((90, 0), np.uint8), np.zeros(90, int))
    stream = arrange(source, cache=tmp_path / "file" / "orders")
    assert stream.samples == 90


def test_a_packed_stream_is_found_again_from_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pack(sg.stream("blobs", per_class=2).source, "small")
    assert sg.stream("packed", path="small").settings["path"] == str(tmp_path / "small")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert len(sg.stream("packed", path="~/small").source) == 20


@pytest.mark.parametrize("name", ["pack.json", "about.json"])
def test_a_damaged_description_is_one_sentence(name: str, tmp_path: Path) -> None:
    pack(sg.stream("blobs", per_class=2).source, tmp_path / "small")
    (tmp_path / "small" / name).write_text("{")
    for act in (lambda: sg.stream("packed", path=str(tmp_path / "small")),
                lambda: info(tmp_path / "small")):  # fmt: skip
        with pytest.raises(StreamgaugeError, match=f"{name} is damaged"):
            act()


OWN_PARTS = """
import dataclasses
from streamgauge.streams.named import blobs

Config = blobs.Config

def build(config):
    stream = blobs.build(config)
    return dataclasses.replace(stream, order=stream.order[::-1].copy())
"""


def test_parts_that_no_setting_gives_are_said(call: Any) -> None:
    words = ("data", "pack", "--stream", "blobs", "--stream.per_class", "20", "--out", "small")
    code, _, err = call(*words, "--workers", "-1")
    assert (code, "--workers is 0 or more" in err) == (2, True)
    code, out, _ = call(*words, "--stream.preparation", "0.1", "--workers", "0")
    assert (code, "not kept apart" in out) == (0, False)
    assert "arranged  order classes" in out
    assert "preparation 0.1" in out
    code, _, err = call(*words, "--stream.held_out", "0", "--workers", "0")
    assert (code, "'stream.held_out' was 0.1" in err) == (2, True)
    Path("own.py").write_text(OWN_PARTS)
    code, out, _ = call("data", "pack", "--stream", "own.py", "--out", "own", "--workers", "0")
    assert code == 0
    assert "held out) are not kept apart" in " ".join(out.split())


def test_a_suite_finds_the_runs_of_a_packed_stream(tmp_path: Path) -> None:
    pack(sg.stream("blobs", per_class=3, tasks=2), tmp_path / "p")
    given = {"path": str(tmp_path / "p"), "batch": 5}
    packed = sg.stream("packed", **given)
    assert catalogue.full_stream_settings("packed", given) == packed.settings
    assert packed.settings["tasks"] == 2
