"""Files from strangers: nothing in them is executed, and none takes more than its share."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import pickle
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import streamgauge as sg
from streamgauge import files
from streamgauge.errors import StreamgaugeError
from streamgauge.record.writer import read_checkpoint
from streamgauge.streams.datasets import data_set
from streamgauge.streams.datasets.archive import Files
from streamgauge.tables.base import open_bytes, read_lines
from streamgauge.tables.typed import load_arrays


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a bomb of a few megabytes is one."""
    monkeypatch.setattr(files, "UNPACKED_BYTES", 1 << 20)


class Harm:
    """Unpickled by an unguarded reader, it makes a file."""

    def __reduce__(self) -> Any:
        return open, ("harmed", "w")


@pytest.fixture
def nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    monkeypatch.chdir(tmp_path)
    pickle.loads(pickle.dumps(Harm())).close()
    (tmp_path / "harmed").unlink()  # it is armed

    def check() -> None:
        assert not (tmp_path / "harmed").exists()

    return check


def test_checkpoints_and_arrays_with_code(tmp_path: Path, nothing_runs: Any) -> None:
    torch.save({"learner": Harm()}, tmp_path / "checkpoint-1.pt")
    with pytest.raises(StreamgaugeError, match="damaged"):
        read_checkpoint(tmp_path / "checkpoint-1.pt")
    (tmp_path / "checkpoint-2.pt").write_bytes(pickle.dumps(Harm(), protocol=2))
    with pytest.raises(StreamgaugeError, match="damaged"):
        read_checkpoint(tmp_path / "checkpoint-2.pt")
    np.savez(tmp_path / "a.npz", x=np.array([Harm()], object), y=np.zeros(1))
    np.save(tmp_path / "b.npy", np.array([Harm()], object), allow_pickle=True)
    (tmp_path / "c.npy").write_bytes(pickle.dumps(Harm()))
    for name in ("a.npz", "b.npy", "c.npy"):
        with pytest.raises(StreamgaugeError, match=r"objects|cannot be read"):
            sg.stream("arrays", path=str(tmp_path / name), label=str(tmp_path / name))
    nothing_runs()


def test_a_packed_stream_with_code(tmp_path: Path, nothing_runs: Any) -> None:
    """Every file of a pack, one after the other, is replaced by a pickle."""
    from streamgauge.streams.pack.packing import pack

    x = np.arange(60, dtype=np.uint8).reshape(5, 3, 2, 2)
    stream = sg.stream(x, np.arange(5) % 2)
    pack(stream, tmp_path / "packed")
    replaced = 0
    for file in sorted((tmp_path / "packed").rglob("*")):
        if not file.is_file() or file.name == "lock":
            continue
        content = file.read_bytes()
        file.write_bytes(pickle.dumps(Harm()))
        with contextlib.suppress(Exception):
            again = sg.stream("packed", path=str(tmp_path / "packed"))
            again.source.read(np.arange(5))
        file.write_bytes(content)
        replaced += 1
    assert replaced >= 2
    nothing_runs()


def archive(path: Path, make: Callable[[tarfile.TarFile], None], mode: str = "w:gz") -> Files:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        make(tar)
    return Files(path)


def member(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info


def test_a_sparse_tar_is_refused(tmp_path: Path) -> None:
    """4 kB that would become 6 GB; both forms, that of GNU and that of POSIX."""
    info = member("big", 0)
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0",
                        "GNU.sparse.name": "big", "GNU.sparse.realsize": str(6 << 30)}  # fmt: skip
    info.size = 512
    body = b"1\n0\n1\n".ljust(512, b"\0")
    bad = archive(tmp_path / "a.tar", lambda tar: tar.addfile(info, io.BytesIO(body)), "w")
    with pytest.raises(StreamgaugeError, match="'big' in it is a sparse file"):
        _ = bad.names
    old = member("old", 0, tarfile.GNUTYPE_SPARSE)
    old_bytes = bytearray(old.tobuf(tarfile.GNU_FORMAT))
    old_bytes[386:398] = b"%011o\0" % (6 << 30 >> 3)
    (tmp_path / "b.tar").write_bytes(bytes(old_bytes) + bytes(1024))
    with pytest.raises(StreamgaugeError, match=r"refused|cannot be read|nothing"):
        _ = Files(tmp_path / "b.tar").read(["old"])


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_plain_tars_are_read(tmp_path: Path, mode: str) -> None:
    data = os.urandom(5 << 18)  # more than the limit of a header
    good = archive(
        tmp_path / "a.tar",
        lambda tar: tar.addfile(member("d/x", len(data)), io.BytesIO(data)),
        mode,
    )
    assert good.kind == "tar"
    assert good.names == ("d/x",)
    assert good.read(["d/x"])["d/x"] == data


def test_what_becomes_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    size = 30 << 20

    def add(kind: bytes) -> Callable[[tarfile.TarFile], None]:
        return lambda tar: tar.addfile(member("x", size, kind), io.BytesIO(b"a" * size))

    archive(tmp_path / "a.tgz", add(tarfile.REGTYPE))
    archive(tmp_path / "b.tgz", add(tarfile.XHDTYPE))  # a header of 30 MB
    (tmp_path / "c.gz").write_bytes(gzip.compress(b"a" * size))
    with zipfile.ZipFile(tmp_path / "d.zip", "w", zipfile.ZIP_DEFLATED) as held:
        held.writestr("x", b"a" * size)
    tracemalloc.start()
    for name, inside in (("a.tgz", "x"), ("b.tgz", "x"), ("c.gz", "c.gz"), ("d.zip", "x")):
        bomb = Files(tmp_path / name)
        with pytest.raises(StreamgaugeError, match="is refused"):
            bomb.read([inside])
    with pytest.raises(StreamgaugeError, match="is refused"):
        Files(tmp_path / "d.zip").unpack(["x"], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()


def test_arrays_and_lines_that_become_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(4 << 20), y=np.zeros(3))
    with pytest.raises(StreamgaugeError, match=r"refused.*unpack it yourself"):
        load_arrays(tmp_path / "a.npz")
    monkeypatch.setattr("streamgauge.tables.base.LONGEST_LINE", 2 << 20)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b"[" * (8 << 20)))
    with pytest.raises(StreamgaugeError, match="a line of the table has more than 2 MB"):
        list(read_lines(open_bytes(tmp_path / "b.jsonl.gz")))


@pytest.mark.parametrize(
    "info",
    [
        member("../out"),
        member("/etc/out"),
        member("a/../../out"),
        member("link", kind=tarfile.SYMTYPE),
        member("hard", kind=tarfile.LNKTYPE),
        member("pipe", kind=tarfile.FIFOTYPE),
        member("device", kind=tarfile.CHRTYPE),
    ],
)
def test_archives_stay_in_their_folder(tmp_path: Path, info: tarfile.TarInfo) -> None:
    with pytest.raises(StreamgaugeError, match="is refused"):
        _ = archive(tmp_path / "a.tar", lambda tar: tar.addfile(info), "w").names
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as held:
        held.writestr("..\\out" if info.isfile() else "../out", b"")
    with pytest.raises(StreamgaugeError, match="leaves its folder"):
        _ = Files(tmp_path / "a.zip").names


def test_an_encrypted_zip_gets_a_sentence(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as held:
        held.writestr("x", b"data")
    raw = bytearray((tmp_path / "a.zip").read_bytes())
    raw[6] |= 1
    raw[raw.index(b"PK\1\2") + 8] |= 1
    (tmp_path / "a.zip").write_bytes(bytes(raw))
    with pytest.raises(StreamgaugeError, match="cannot be read"):
        Files(tmp_path / "a.zip").read(["x"])


def test_a_download_has_at_most_its_known_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def fake(*arguments: Any) -> None:
        asked.append(arguments[-1])
        raise StreamgaugeError("stopped.")

    monkeypatch.setattr(data_set, "download", fake)
    data = data_set.find("mnist")
    with pytest.raises(StreamgaugeError, match="stopped"):
        data_set.fetch(data, tmp_path)
    assert asked[0] == (data.remotes[0].megabytes + 1) * 1_100_000


def test_a_pack_with_impossible_numbers_is_refused_at_once(tmp_path: Path) -> None:
    """With the checksums that belong to them, as someone with bad intent would write them."""
    from streamgauge.streams.pack.packed import info, verify
    from streamgauge.streams.pack.packing import Packing, pack

    def claim(**entries: Any) -> None:
        request = files.read_sealed(path / "pack.json", dict, "")
        files.write_sealed(path / "pack.json", {**request, **entries})

    path = tmp_path / "packed"
    x = np.arange(720, dtype=np.uint8).reshape(60, 3, 2, 2)
    pack(sg.stream(x, np.arange(60) % 2), path, Packing(shard=8), workers=0)
    claim(shards=10**15)
    for act in (info, verify, lambda path: sg.stream("packed", path=str(path))):
        with pytest.raises(StreamgaugeError, match=r"about\.json is damaged"):
            act(path)
    (path / "about.json").unlink()
    assert info(path)["shards"].startswith("8 of")
    assert verify(path) == []
    claim(items=10**12, shard=10**12, shards=1)
    with pytest.raises(StreamgaugeError, match="more samples than its columns"):
        sg.stream("packed", path=str(path), partial=True)
    claim(items=60, shard=8, shards=8)
    assert len(sg.stream("packed", path=str(path), partial=True).source) == 60


def test_a_pack_of_images_without_pixels_is_refused(tmp_path: Path) -> None:
    from PIL import Image

    from streamgauge.streams.pack.packing import pack

    for number in range(4):
        folder = tmp_path / "photos" / f"class{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (number, 0, 0)).save(folder / f"{number}.png")
    path = tmp_path / "packed"
    pack(sg.stream("folder", path=str(tmp_path / "photos"), size=8), path, workers=0)
    for shape in ([3, 0, 8], [0, 8, 8], [1, 8, 8]):
        request = files.read_sealed(path / "pack.json", dict, "")
        files.write_sealed(path / "pack.json", {**request, "input_shape": shape})
        with pytest.raises(StreamgaugeError, match="do not belong to each other"):
            sg.stream("packed", path=str(path))
