"""What is fuzzed: for each kind of input, valid seeds and what Streamgauge does with such a file.

A target writes nothing outside its folder and starts nothing that outlives it. `StreamgaugeError`
is the right answer to a bad file; any other exception is a finding.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import pickle
import random
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import mutate
import numpy as np
import pyarrow as pa
from mutate import Files
from pyarrow import feather, parquet

CORPUS = Path(__file__).parents[1] / "corpus"
HDF5_PATIENCE = 12.0  # seconds; the reader itself waits for a minute


@dataclass(frozen=True)
class Target:
    """`seeds` are sets of files; `run` gets a folder with the files of one input."""

    name: str
    seeds: Callable[[], list[Files]]
    run: Callable[[Path], None]
    weight: float  # share of the inputs of a long run
    words: tuple[str, ...] = ()
    change: Callable[..., Files] = mutate.mutate
    forks: bool = True  # False if it starts threads, so that each worker begins it anew


# Seeds.


@cache
def _log_table(rows: int = 40) -> pa.Table:
    rng = random.Random(1)
    label = [rng.randrange(4) for _ in range(rows)]
    return pa.table(
        {
            "time": [1_700_000_000 + 60 * n for n in range(rows)],
            "user": [f"u{n // 5}" for n in range(rows)],
            "confidence": [round(rng.random(), 3) for _ in range(rows)],
            "f1": [round(rng.random(), 3) for _ in range(rows)],
            "prediction": [y if rng.random() < 0.6 else 0 for y in label],
            "label": label,
        }
    )


def _bytes_of(write: Callable[[Any], Any]) -> bytes:
    out = io.BytesIO()
    write(out)
    return out.getvalue()


def _csv(table: pa.Table, separator: str = ",") -> bytes:
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    lines = [separator.join(table.column_names)]
    lines += [separator.join(str(cell) for cell in row) for row in rows]
    return "\n".join(lines).encode() + b"\n"


def _arff(table: pa.Table) -> bytes:
    lines = ["@relation log"]
    for name in table.column_names:
        text = pa.types.is_string(table[name].type)
        lines.append(f"@attribute {name} {'string' if text else 'numeric'}")
    lines += ["@attribute class {a,b,'c d'}", "@attribute day date 'yyyy-MM-dd'", "@data", "% rows"]
    for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
        lines.append(",".join(map(str, row)) + ",'c d',2024-01-31")
    last = table.num_columns
    lines.append(f"{{0 1800000000, {last - 1} 2, {last} b, {last + 1} 2024-02-01}}")
    return "\n".join(lines).encode() + b"\n"


def _npz(**arrays: Any) -> bytes:
    return _bytes_of(lambda out: np.savez(out, **arrays))


@cache
def text_tables(rows: int = 40) -> list[Files]:
    table = _log_table(rows)
    numbers = table.drop_columns(["user"])
    csv = _csv(table)
    lines = "".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()
    seeds = {
        "t.csv": csv, "t.tsv": _csv(table, "\t"), "t.dat": _csv(numbers, " "),
        "s.csv": _csv(table, ";").replace(b".", b","), "t.arff": _arff(table), "t.jsonl": lines,
        "q.csv": csv.replace(b"u1", b'"u ""1""\nx"'), "t.csv.gz": gzip.compress(csv, 1),
        "t.jsonl.gz": gzip.compress(lines, 1), "t.csv.zip": _zip({"t.csv": csv}),
        "t.txt": _csv(numbers, "|"), "h.csv": csv.split(b"\n", 1)[1],
    }  # fmt: skip
    return [{name: data} for name, data in seeds.items()]


def _zip(members: Files) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


def _tar(members: Files, mode: str = "w") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in members.items():
            about = tarfile.TarInfo(name)
            about.size = len(data)
            archive.addfile(about, io.BytesIO(data))
    return out.getvalue()


def _arrow(table: pa.Table, stream: bool = False) -> bytes:
    if not stream:
        return _bytes_of(lambda out: feather.write_feather(table, out, compression="uncompressed"))
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


@cache
def typed_tables(rows: int = 40) -> list[Files]:
    table = _log_table(rows)
    arrays = {name: np.asarray(table[name].to_numpy(zero_copy_only=False)) for name in
              table.column_names if name != "user"}  # fmt: skip
    coded = table.set_column(1, "user", table["user"].dictionary_encode())
    return [
        {"t.parquet": _bytes_of(lambda out: parquet.write_table(table, out))},
        {"u.parquet": _bytes_of(lambda out: parquet.write_table(
            coded, out, compression="none", use_dictionary=False, row_group_size=16))},
        {"t.arrow": _arrow(table)},
        {"c.arrow": _arrow(coded, stream=True)},
        {"t.feather": _arrow(coded)},
        {"t.npz": _npz(**arrays)},
        {"z.npz": _bytes_of(lambda out: np.savez_compressed(out, **arrays))},
    ]  # fmt: skip


def _entry(folder: Path) -> Path:
    return min(folder.iterdir(), default=folder / "missing")


# Tables.


def run_table(folder: Path) -> None:
    from streamgauge.tables.read import open_table

    reader = open_table(_entry(folder))
    text = reader.names[:3]
    whole = reader.read(text=text)
    for piece in reader.pieces(reader.names, text):
        assert piece.num_columns == whole.num_columns
    reader.row_name(3)


def run_roles(folder: Path) -> None:
    from streamgauge.tables.read import open_table
    from streamgauge.tables.roles import code_labels, read_columns
    from streamgauge.tables.rows import Rows

    reader = open_table(_entry(folder))
    table = reader.read(text=reader.names[1:3])
    names = table.column_names
    rows = Rows(len(table), reader.name, reader.row_name, "skip")
    chosen = dict(zip(("time", "user", "label"), names, strict=False))
    read_columns(table, {k: v for k, v in chosen.items() if k != "label"}, rows)
    code_labels(table[names[-1]], rows)


def run_audit(folder: Path) -> None:
    from streamgauge.audit.auditor import audit

    result = audit(_entry(folder))
    json.dumps(result.to_dict())


# Streams of one's own data.


@cache
def _pictures() -> dict[str, bytes]:
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 255, (12, 10, 3), np.uint8)
    image = Image.fromarray(pixels)
    exif = Image.Exif()
    exif[0x0112] = 6
    kinds = {"jpg": ("JPEG", {"exif": exif}), "png": ("PNG", {}), "gif": ("GIF", {}),
             "bmp": ("BMP", {}), "webp": ("WEBP", {}), "tif": ("TIFF", {}), "ppm": ("PPM", {}),
             "tiff": ("TIFF", {"compression": "tiff_lzw"})}  # fmt: skip
    made = {}
    for suffix, (kind, options) in kinds.items():
        made[suffix] = _bytes_of(lambda out, k=kind, o=options: image.save(out, k, **o))
    made["PNG"] = _bytes_of(lambda out: image.convert("P").save(out, "PNG", transparency=0))
    return made


def image_seeds() -> list[Files]:
    return [{f"i.{suffix}": data} for suffix, data in _pictures().items()]


def run_image(folder: Path) -> None:
    from streamgauge.streams.images.image_source import decode

    path = _entry(folder)
    decode(path.read_bytes(), 8, name=path.name)


@cache
def own_seeds() -> list[Files]:
    pictures = _pictures()
    jpg, png = pictures["jpg"], pictures["png"]
    labels = [n % 3 for n in range(24)]
    rng = np.random.default_rng(0)
    x = rng.normal(size=(24, 3)).astype(np.float32)
    table = pa.table({"a": x[:, 0], "b": x[:, 1], "colour": ["red", "blue"] * 12,
                      "time": np.arange(24) + 1_700_000_000, "label": labels})  # fmt: skip
    bytes_table = pa.table({"image": [jpg] * 12, "label": labels[:12]})
    lists = pa.table({"x": [row.tolist() for row in x], "label": labels})
    hugging = {
        "state.json": json.dumps({"_data_files": [{"filename": "data.arrow"}],
                                  "_fingerprint": "1"}).encode(),
        "dataset_info.json": json.dumps({"features": {"label": {
            "names": ["x", "y", "z"], "_type": "ClassLabel"}}}).encode(),
    }  # fmt: skip
    shard = {}
    for n in range(8):
        shard[f"{n:03d}.jpg"] = jpg
        shard[f"{n:03d}.json"] = json.dumps({"label": n % 3, "time": 100 + n}).encode()
        shard[f"{n:03d}.cls"] = str(n % 3).encode()
    seeds: list[Files] = [
        {"t.csv": _csv(table)},
        {"t.arff": _arff(table)},
        {"t.parquet": _bytes_of(lambda out: parquet.write_table(table, out))},
        {"t.jsonl": b"".join(json.dumps(r).encode() + b"\n" for r in table.to_pylist())},
        {"b.parquet": _bytes_of(lambda out: parquet.write_table(bytes_table, out))},
        {"l.parquet": _bytes_of(lambda out: parquet.write_table(lists, out))},
        {"t.arrow": _arrow(table)},
        {"data.arrow": _arrow(bytes_table), **hugging},
        {"data.arrow": _arrow(lists, stream=True), **hugging},
        {"a.npz": _npz(x=x, y=np.array(labels), time=np.arange(24))},
        {"i.npz": _npz(x=rng.integers(0, 255, (24, 6, 6, 3), np.uint8), y=np.array(labels))},
        {"x.npy": _bytes_of(lambda out: np.save(out, x)),
         "y.npy": _bytes_of(lambda out: np.save(out, np.array(labels)))},
        {"shard.tar": _tar(shard)},
        {"m.csv": b"path,label\n1.jpg,0\n2.png,1\n3.jpg,1\n", "1.jpg": jpg, "2.png": png,
         "3.jpg": jpg},
        {"cat/1.jpg": jpg, "cat/2.jpg": jpg, "dog/1.png": png},
    ]  # fmt: skip
    return seeds


def run_own(folder: Path) -> None:
    import streamgauge.catalogue as catalogue

    entries = sorted(folder.iterdir())
    tables = [path for path in entries if path.name == "m.csv"]
    where = tables[0] if tables else entries[0] if len(entries) == 1 else folder
    if not entries:
        return
    stream = catalogue.stream(str(where))
    _read_stream(stream)


def _read_stream(stream: Any) -> None:
    source = stream.source
    str(source.fingerprint)
    for start in range(0, len(source), 8):
        source.read(np.arange(start, min(start + 8, len(source))))


@cache
def packed_seeds() -> list[Files]:
    import tempfile

    import streamgauge.catalogue as catalogue
    from streamgauge.streams.pack.packing import pack

    made = []
    for seed in (own_seeds()[0], own_seeds()[13]):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_files(folder / "in", seed)
            where = folder / "in" / min(seed, key=lambda n: not n.endswith("csv"))
            pack(catalogue.stream(str(where)), folder / "out", workers=0)
            made.append(read_files(folder / "out"))
    return made


def run_pack(folder: Path) -> None:
    import streamgauge.catalogue as catalogue
    from streamgauge.streams.pack.packed import info, verify

    info(folder)
    verify(folder)
    _read_stream(catalogue.stream("packed", path=str(folder)))


# Archives of published data sets.


@cache
def archive_seeds() -> list[Files]:
    def idx(values: Any) -> bytes:
        head = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes()
        return head + values.astype(np.uint8).tobytes()

    images, labels = np.zeros((6, 4, 4), np.uint8), np.arange(6, dtype=np.uint8)
    parts = {
        "train-images-idx3-ubyte": idx(images), "train-labels-idx1-ubyte": idx(labels),
        "t10k-images-idx3-ubyte": idx(images[:2]), "t10k-labels-idx1-ubyte": idx(labels[:2]),
    }  # fmt: skip
    zipped = {f"{name}.gz": gzip.compress(data, 1) for name, data in parts.items()}
    batch = {b"data": np.zeros((3, 3072), np.uint8), b"labels": [1, 2, 3]}
    names = [f"data_batch_{n}" for n in range(1, 6)] + ["test_batch"]
    python = {f"cifar-10-batches-py/{n}": pickle.dumps(batch, 2) for n in names}
    binary = {f"{n}.bin": bytes(3073) for n in names}
    return [
        zipped, parts, {"a.zip": _zip(parts)}, {"a.tar": _tar(zipped)},
        {"a.tar.gz": _tar(parts, "w:gz")}, {"c.tar": _tar(python)}, {"c.zip": _zip(python)},
        {"c.tgz": _tar(binary, "w:gz")}, dict(python),
    ]  # fmt: skip


def run_add(folder: Path) -> None:
    from streamgauge.streams.datasets import data_set, published

    cifar = any("cifar" in str(p) or p.name.startswith(("c.", "data")) for p in folder.rglob("*"))
    data = getattr(published, "cifar10" if cifar else "mnist").DATA
    target = folder.with_name(folder.name + "-store")
    entries = list(folder.iterdir())
    where = entries[0] if len(entries) == 1 and entries[0].is_file() else folder
    try:
        stored = data_set.add(data, where, target, other_contents=True)
        assert len(stored) >= 0
    finally:
        shutil.rmtree(target, ignore_errors=True)


# Weights.


@cache
def _model() -> Any:
    from streamgauge.models import build

    return build("mlp", (4,), 3, seed=0, hidden=[4])


@cache
def weight_seeds() -> list[Files]:
    import torch
    from safetensors.torch import save

    state = {name: value.clone().contiguous() for name, value in _model().state_dict().items()}
    plain = {name: value for name, value in state.items() if value.is_floating_point()}
    weights = np.arange(8, dtype="<f4").tobytes()
    js = {
        "modelTopology": {"model_config": {"config": {"layers": [
            {"config": {"name": "bn_conv1", "epsilon": 0.001}},
            {"config": {"name": "res3a_branch2a", "strides": [2, 2]}}]}}},
        "weightsManifest": [{"paths": ["group1.bin"], "weights": [
            {"name": "bn_conv1/moving_variance", "shape": [4], "dtype": "float32"},
            {"name": "bn_conv1/gamma", "shape": [4], "dtype": "float32"}]}],
    }  # fmt: skip
    return [
        {"w.safetensors": save(plain)},
        {"w.pth": _bytes_of(lambda out: torch.save(state, out))},
        {"w.pt": _bytes_of(lambda out: torch.save({"state_dict": state}, out))},
        {"w.bin": _bytes_of(
            lambda out: torch.save(plain, out, _use_new_zipfile_serialization=False))},
        {"model.json": json.dumps(js).encode(), "group1.bin": weights},
    ]  # fmt: skip


def _hdf5() -> bytes:
    import h5py

    out = io.BytesIO()
    with h5py.File(out, "w") as file:
        file.attrs["layer_names"] = [b"bn_conv1", b"fc1000"]
        for layer, names in (("bn_conv1", ("gamma", "moving_variance")), ("fc1000", ("kernel",))):
            group = file.create_group(layer)
            group.attrs["weight_names"] = [f"{layer}/{name}:0".encode() for name in names]
            for name in names:
                shape = (4, 2) if name == "kernel" else (4,)
                group.create_dataset(f"{layer}/{name}:0", data=np.ones(shape, np.float32))
    return out.getvalue()


def run_weights(folder: Path) -> None:
    from streamgauge.models.weights import load_weights

    files = sorted(folder.iterdir())
    chosen = [path for path in files if path.name != "group1.bin"]
    load_weights(_model(), chosen[0] if chosen else folder / "missing.pth")


def run_hdf5(folder: Path) -> None:
    """As `run_weights`; the program that reads the file is forked, so that it imports nothing."""
    import os
    from unittest import mock

    from streamgauge.models import hdf5, layouts

    def forked(command: list[str], timeout: float, **_: Any) -> Any:
        said = folder.with_name("said")
        child = os.fork()
        if child == 0:
            code, text = 1, ""
            try:
                hdf5.main(*command[-2:])
                code = 0
            except Exception as error:
                text = f"{type(error).__name__}: {error}"
            finally:
                said.write_text(text, errors="replace")
                os._exit(code)
        end = time.monotonic() + min(timeout, HDF5_PATIENCE)
        while not (ended := os.waitpid(child, os.WNOHANG))[0]:
            if time.monotonic() > end:  # as the reader does later
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                raise subprocess.TimeoutExpired(command, timeout)
            time.sleep(0.001)
        code = os.waitstatus_to_exitcode(ended[1])
        stderr = said.read_bytes() if said.exists() else b""
        return subprocess.CompletedProcess(command, code, b"", stderr)

    with mock.patch.object(layouts.subprocess, "run", forked):
        run_weights(folder)


# Settings and command lines.


def toml_seeds() -> list[Files]:
    text = (
        'stream = "albums"\nlearners = ["er", "ncm"]\nseeds = 2\nspeed = "1/2"\nbudget = 1.5\n'
        'out = "runs"\nbaselines = true\n\n[er]\nlr = 0.1\nmemory = 100\n\n'
        '[stream]\nname = "albums"\nbatch = 10\nclasses = 5\n\n[ncm]\n'
    )
    other = text.replace('stream = "albums"\n', "", 1)
    return [{"e.toml": other.encode()}, {"e.toml": text.split("[stream]")[0].encode()}]


def run_toml(folder: Path) -> None:
    """Everything that `run` does with an experiment file before it builds the stream."""
    from streamgauge import catalogue
    from streamgauge.cli.runs import _read_toml
    from streamgauge.settings import configure
    from streamgauge.streams.named.albums import Config

    given = _read_toml(_entry(folder))
    settings = given["settings"]

    def of(owner: str) -> dict[str, Any]:
        start = owner + "."
        return {k.removeprefix(start): v for k, v in settings.items() if k.startswith(start)}

    configure(Config, of("stream"), "stream")
    for name in given.get("learners", []):
        if "/" not in name and ":" not in name and ".py" not in name:
            catalogue.learner(name, **of(name))


COMMANDS = (
    "audit t.csv", "audit t.csv --json --label label --prediction prediction --time none",
    "audit t.csv --fail-if accuracy<0.5 --features f1", "score RUN", "score RUN --json",
    "report RUN --out r.html", "diff RUN RUN", "list", "list er --json", "list streams",
    "--version", "audit RUN --label-delay 3d", "data list", "data info nothing", "data info RUN",
    "cost nothing", "export RUN out --to csv", "score m.csv --classes 5,5", "drift t.csv",
    "resume RUN",
    "run --stream nothing --learner er --seeds 1", "tune --stream albums --learner nothing",
    "run nothing.toml", "check nothing.py:Class", "data pack nothing out", "suite nothing",
)  # fmt: skip
COMMAND_WORDS = (
    "--", "--json", "--help", "-h", "--label", "--stream", "--seeds", "--stream.batch", "--er.lr",
    "--out", "--device", "--fail-if", "accuracy", "t.csv", "RUN", "m.csv", "missing.csv", "=", ".",
    "cuda:9", "1/0", "10000000000000000000000", "-5", "--threads", "--version", "3d", "--placebo",
)  # fmt: skip


def command_seeds() -> list[Files]:
    return [{"argv": "\n".join(command.split()).encode()} for command in COMMANDS]


def change_command(files: Files, rng: random.Random, words: tuple[str, ...]) -> Files:
    """Whole words are exchanged more often than bytes within one."""
    argv = files["argv"].decode().split("\n")
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(argv) + 1)
        match rng.randrange(5):
            case 0:
                argv.insert(at, rng.choice(words))
            case 1:
                argv[at : at + 1] = [rng.choice(words)] if at else argv[:1]
            case 2:
                argv[at:at] = rng.choice(COMMANDS).split()[1:]
            case 3 if at:
                del argv[at : at + 1]
            case _:
                text = mutate.mutate_tokens("\n".join(argv[1:]).encode(), rng)
                argv[1:] = text.decode("utf-8", "replace").split("\n")
    return {"argv": "\n".join(argv[:30])[:5000].encode()}


# Commands that train, serve or download when their arguments happen to be right.
_ACTS = {"demo", "run", "tune", "realtime", "pretrain", "live", "suite", "resume", "check"}


def run_command(folder: Path) -> None:
    """The whole command line in this process; exit codes other than 0, 1, 2 are findings."""
    import os

    from streamgauge import cli

    argv = (folder / "argv").read_text(errors="replace").replace("\x00", "").split("\n")
    if argv[0] in _ACTS and not {"nothing", "nothing.toml", "nothing.py:Class", "RUN"} & {*argv}:
        argv.append("nothing")
    if argv[0] == "data" and "fetch" in argv:
        return
    write_files(folder, {"t.csv": _csv(_log_table()), "m.csv": b"50,0\n40,60\n"})
    run = CORPUS / "v0.1" / "finished" / "albums-er-s0-dd0dadf2"
    shutil.copytree(run, folder / "RUN")
    before, here = sys.argv, Path.cwd()
    out, err = io.StringIO(), io.StringIO()
    os.chdir(folder)
    try:
        sys.argv = ["streamgauge", *argv]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            cli.main()
    except SystemExit as end:
        if end.code not in (0, 1, 2) or "Traceback" in err.getvalue():
            tail = " / ".join(err.getvalue().strip().splitlines()[-3:])
            raise RuntimeError(f"exit {end.code}: {tail[-300:]}") from None
    finally:
        sys.argv = before
        os.chdir(here)


# Run folders.


@cache
def run_seeds() -> list[Files]:
    folders = [CORPUS / "v0.1" / "finished" / "albums-er-s0-dd0dadf2",
               CORPUS / "log2" / "finished" / "clicks-mine-s0-22222222",
               CORPUS / "recorder" / "finished" / "clicks-mine"]  # fmt: skip
    return [read_files(folder) for folder in folders]


def change_header(files: Files, rng: random.Random, words: tuple[str, ...]) -> Files:
    """Mutate run.json, progress.json or the journal; segments are the flips of another driver."""
    small = {name: data for name, data in files.items() if "/" not in name}
    return {**files, **mutate.mutate(small, rng, words)}


def run_run(folder: Path) -> None:
    from streamgauge.metrics.summary import score
    from streamgauge.record import find_runs

    for run in find_runs([folder]):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            score(run)
            for table in ("predictions", "labels", "training"):
                run.table(table).to_arrow()


@cache
def sealed_run_seeds() -> list[Files]:
    """Folders of this version, whose JSON files have checksums: complete, and interrupted."""
    import tempfile

    import streamgauge as sg
    from helpers import Spy, small_stream

    protocol = sg.Protocol(evaluate=5, shifts=(7,), cost="4/3")

    def stop(loop: Any) -> None:
        if loop.step == 4:
            raise KeyboardInterrupt

    made = []
    for progress in (False, stop):
        with tempfile.TemporaryDirectory() as name:
            with contextlib.suppress(KeyboardInterrupt):
                sg.run(small_stream(6, held_out=0.1), Spy, protocol=protocol, out=Path(name),
                       checkpoint=0, progress=progress, log=str)  # fmt: skip
            made.append(read_files(next(Path(name).iterdir())))
    return made


def change_sealed(files: Files, rng: random.Random, words: tuple[str, ...]) -> Files:
    """Mutate entries of JSON files and seal them again, as someone with bad intent would."""
    from streamgauge.files import sealed

    changed = dict(files)
    names = sorted(name for name in files if name.endswith(".json"))
    for name in rng.choices(names, k=rng.choice((1, 1, 2, 3))):
        data = mutate.mutate_json(changed[name], rng, words)
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(data)
            if isinstance(value, dict):
                data = json.dumps(sealed(value)).encode()
        changed[name] = data
    return changed


def run_sealed_run(folder: Path) -> None:
    """All that reads a run folder, and its writer, which must touch nothing outside of it."""
    from streamgauge.errors import StreamgaugeError
    from streamgauge.record import RunWriter, find_runs
    from streamgauge.record.diff import differences
    from streamgauge.record.verify import verify

    outside = folder.parent / "x" / "00099.parquet"
    write_files(outside.parent, {outside.name: b"of somebody else"})
    with contextlib.suppress(StreamgaugeError):
        run_run(folder)
    with contextlib.suppress(StreamgaugeError):
        list(verify(folder))
    for run in find_runs(folder):
        assert run.made + repr(run) + run.id + run.failure
        run._repr_html_()
        assert differences(run, run)["same"]
        RunWriter(folder, run.header, frozenset()).close()
    assert outside.is_file(), "a file outside of the run folder was removed"


# The service.


class _Bare:
    """A service with a trainer that never trains."""

    def __init__(self, folder: Path) -> None:
        import torch

        from helpers import Spy
        from streamgauge.live.dispatcher import Dispatcher
        from streamgauge.live.journal import Journal
        from streamgauge.live.service import Limits, Service
        from streamgauge.live.snapshots import Snapshots
        from streamgauge.live.spool import Spool
        from streamgauge.streams import Spec

        spec, cpu = Spec((3,), 4), torch.device("cpu")

        class Idle:
            def begin(self, job: Any) -> None: ...
            def collect(self) -> None: ...

        def make() -> Any:
            return Spy(spec, None, 0, cpu)

        journal = Journal(None, frozenset({"task", "user"}), every=1e9)
        spool = Spool(folder / "spool", spec, "float32", 50, 0)
        self.service = Service(
            spec, make(), make, Dispatcher(Idle()), journal, spool, cpu, batch=2,
            snapshots=Snapshots((), 4), limits=Limits(), now=lambda: 0.0, today=lambda: 1e9,
            log=lambda line: None,
        )  # fmt: skip


def line_seeds() -> list[Files]:
    lines = (b'{"x": [0.5, 1, 2], "id": "a", "user": 7}\n{"id": "a", "label": 1}\n'
             b'{"x": "AACAPwAAgD8AAIA/"}\n{"sample": 1, "label": 3}\n')  # fmt: skip
    return [{"lines": lines}, {"lines": b'{"x": [1, 2, 3]}\n{"sample": 0, "label": 2}\n'}]


def run_lines(folder: Path) -> None:
    from streamgauge.live.http_server import JsonLinesServer

    data = (folder / "lines").read_bytes()
    out = io.BytesIO()
    transport = JsonLinesServer(_Bare(folder).service, io.BytesIO(data), out, 4192)
    transport.run()
    if transport.error is not None:
        raise transport.error
    for line in out.getvalue().splitlines():
        json.loads(line)


def http_seeds() -> list[Files]:
    body = b'{"x": [0.5, 1, 2], "id": "a"}'
    label = b'{"id": "a", "label": 1}'
    host = b"Host: 127.0.0.1\r\n"

    def post(path: bytes, data: bytes) -> bytes:
        head = b"POST " + path + b" HTTP/1.1\r\n" + host + b"Content-Type: application/json\r\n"
        return head + b"Content-Length: %d\r\n\r\n" % len(data) + data

    return [
        {"http": post(b"/predict", body) + post(b"/label", label)},
        {"http": b"GET /status HTTP/1.1\r\n" + host + b"\r\n"},
        {"http": post(b"/predict", body).replace(b"Content-Length", b"Transfer-Encoding: chunked")},
    ]


@cache
def _server() -> Any:
    import tempfile

    from streamgauge.live.http_server import HttpServer

    folder = Path(tempfile.mkdtemp(prefix="fuzz-live-"))
    server = HttpServer(_Bare(folder).service, "127.0.0.1", 0, 64, 4192)
    threading.Thread(target=server.run, daemon=True).start()
    return server


def run_http(folder: Path) -> None:
    """The client sends all, says that it has ended, and reads what comes back."""
    server = _server()
    data = (folder / "http").read_bytes()
    address = ("127.0.0.1", server.port)
    with socket.create_connection(address, 5) as client, contextlib.suppress(ConnectionError):
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        while client.recv(65536):
            pass
    if server.error is not None:
        error, server.error = server.error, None
        server.ended.clear()
        raise error


# All of them.

TARGETS = {
    target.name: target
    for target in (
        Target("text tables", text_tables, run_table, 0.27),
        Target("typed tables", typed_tables, run_table, 0.19),
        Target("roles", lambda: [*text_tables(), *typed_tables()], run_roles, 0.10),
        Target("audit", lambda: [*text_tables(260), *typed_tables(260)], run_audit, 0.03),
        Target("images", image_seeds, run_image, 0.12),
        Target("own streams", own_seeds, run_own, 0.06),
        Target("packs", packed_seeds, run_pack, 0.03),
        Target("archives", archive_seeds, run_add, 0.03),
        Target("weights", weight_seeds, run_weights, 0.05),
        Target("HDF5", lambda: [{"w.h5": _hdf5()}], run_hdf5, 0.01),
        Target("settings", toml_seeds, run_toml, 0.04, ("er", "lr", "1/2", "[er.x]", "[[er]]")),
        Target("commands", command_seeds, run_command, 0.01, COMMAND_WORDS, change_command),
        Target("run folders", run_seeds, run_run, 0.03, (), change_header),
        Target("sealed runs", sealed_run_seeds, run_sealed_run, 0.02, (), change_sealed),
        Target("sealed packs", packed_seeds, run_pack, 0.02, (), change_sealed),
        Target("JSON lines", line_seeds, run_lines, 0.03),
        Target(
            "HTTP",
            http_seeds,
            run_http,
            0.01,
            ("Content-Length", "chunked", "HTTP/1.1"),
            forks=False,
        ),
    )
}


def write_files(folder: Path, files: Files) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def read_files(folder: Path) -> Files:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


def make_input(target: Target, seed: int, number: int) -> Files:
    """The input with a number: always the same for a target and a seed."""
    rng = random.Random(f"{target.name} {seed} {number}")
    seeds = target.seeds()
    return target.change(seeds[number % len(seeds)], rng, target.words)


@contextlib.contextmanager
def in_folder(base: Path, files: Files) -> Iterator[Path]:
    folder = base / "input"
    shutil.rmtree(folder, ignore_errors=True)
    write_files(folder, files)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
