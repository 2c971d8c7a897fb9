"""Mutations of valid inputs: of bytes, of tokens, and of structure (JSON trees, archives, tables).

An input is a set of files by name. A mutation changes one of them and is determined by the random
generator, so that any input can be made again from its seed and number.
"""

from __future__ import annotations

import copy
import gzip
import io
import json
import random
import re
import struct
import tarfile
import warnings
import zipfile
import zlib
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import feather, parquet

Files = dict[str, bytes]

NUMBERS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF,
           0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF)  # fmt: skip
WORDS = (
    "", "0", "-1", "1e309", "-1e309", "nan", "inf", "NA", "null", "true", "1" * 400, "9" * 20,
    "1" * 5000, "0x10", "1_000", "1,5", "-0.0", "1e-320", "2024-01-31", "2024-13-45", "20240131",
    "99999-01-01", "0001-01-01 00:00:00", "1969-12-31T23:59:60Z", "\x00", "\x1b[2J", "\u202e",
    "\ufeff", "é", "日本", "\ud7ff", '"', "'", '""', "\\", "\t", "\n", "\r", "\r\n", ",", ";", "|",
    "{", "}", "[", "]", "[" * 3000, '{"a":' * 2000, "%", "@data", "@attribute", "?", "none",
    "label", "time", "user", "prediction", "a" * 70_000, "../../x", "/etc/passwd",
    "C:\\x", "~", "$HOME",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63), 10**30, 0.5, -0.0, 1e308,
    float("nan"), float("inf"), "", "x", "\x1b[31m", "\u202e", "a" * 5000, "../x", [], {}, [[]],
    [None], {"": None}, [0] * 1000, {"a": {"b": {"c": 1}}},
)  # fmt: skip


def mutate(files: Files, rng: random.Random, words: tuple[str, ...] = ()) -> Files:
    """One to four mutations, most often one."""
    changed = dict(files)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        name = rng.choice(sorted(changed))
        roll = rng.random()
        if len(changed) > 1 and roll < 0.02:
            del changed[name]
        elif len(changed) > 1 and roll < 0.04:
            changed[name] = changed[rng.choice(sorted(changed))]
        else:
            changed[name] = mutate_file(name, changed[name], rng, (*words, *WORDS))
    return changed


def mutate_file(name: str, data: bytes, rng: random.Random, words: tuple[str, ...]) -> bytes:
    kinds = [mutate_bytes]
    if is_text(data):
        kinds = [mutate_bytes, mutate_tokens, mutate_tokens, mutate_tokens]
    structure = _structure_of(name, data)
    if structure is not None:
        kinds += [structure] * len(kinds)
    return rng.choice(kinds)(data, rng, words)


def is_text(data: bytes) -> bool:
    head = data[:512]
    return bool(head) and b"\x00" not in head and sum(b < 128 for b in head) > 0.9 * len(head)


def mutate_bytes(data: bytes, rng: random.Random, words: tuple[str, ...] = ()) -> bytes:
    """Flip, set, insert, delete, repeat, copy, cut off, or write a number of 1 to 8 bytes."""
    out = bytearray(data)
    if not out:
        return rng.randbytes(rng.randint(0, 40))
    # Heads and tails hold what readers trust most.
    where = rng.choice((rng.randrange(len(out)), rng.randrange(min(len(out), 64)),
                        len(out) - 1 - rng.randrange(min(len(out), 64))))  # fmt: skip
    size = rng.choice((1, 1, 2, 4, 8, 16, rng.randint(1, len(out))))
    match rng.randrange(9):
        case 0:
            out[where] ^= 1 << rng.randrange(8)
        case 1:
            out[where] = rng.randrange(256)
        case 2:
            out[where:where] = rng.randbytes(size % 4096)
        case 3:
            del out[where : where + size]
        case 4:
            out[where:where] = out[where : where + size % 65536]
        case 5:
            other = rng.randrange(len(out))
            out[where : where + size] = out[other : other + size]
        case 6:
            del out[where:]
        case 7:
            width, order = rng.choice((1, 2, 4, 8)), rng.choice("<>")
            number = rng.choice(NUMBERS) & ((1 << 8 * width) - 1)
            out[where : where + width] = struct.pack(order + " BH I   Q"[width], number)
        case _:
            for _ in range(rng.randint(2, 30)):
                out[rng.randrange(len(out))] = rng.randrange(256)
    return bytes(out)


_TOKEN = re.compile(rb"[A-Za-z_]+|[+-]?\d+(?:\.\d+)?|\s+|.", re.DOTALL)


def mutate_tokens(data: bytes, rng: random.Random, words: tuple[str, ...] = WORDS) -> bytes:
    """Replace, insert, remove, repeat or exchange words, numbers and marks."""
    tokens = _TOKEN.findall(data[:100_000])
    if not tokens:
        return rng.choice(words).encode("utf-8", "surrogatepass")
    at = rng.randrange(len(tokens))
    word = rng.choice(words).encode("utf-8", "surrogatepass")
    match rng.randrange(6):
        case 0:
            tokens[at] = word
        case 1:
            tokens.insert(at, word)
        case 2:
            del tokens[at : at + rng.choice((1, 1, 3, 10))]
        case 3:
            tokens[at:at] = tokens[at : at + rng.choice((1, 5, 40))] * rng.choice((1, 2, 50))
        case 4:
            other = rng.randrange(len(tokens))
            tokens[at], tokens[other] = tokens[other], tokens[at]
        case _:
            lines = data.splitlines(keepends=True)
            rng.shuffle(lines)
            return b"".join(lines)
    return b"".join(tokens)


def _structure_of(name: str, data: bytes) -> Any:
    if name.endswith(".json"):
        return mutate_json
    if data[:2] == b"\x1f\x8b":
        return _mutate_gzip
    if data[:4] == b"PK\x03\x04":
        return _mutate_zip
    if data[257:262] == b"ustar":
        return _mutate_tar
    if data[:4] == b"PAR1" or name.endswith((".arrow", ".feather")):
        return _mutate_table
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        return _mutate_png
    return None


def mutate_json(data: bytes, rng: random.Random, words: tuple[str, ...] = ()) -> bytes:
    """Replace, remove, rename or nest a node of the tree; a tree that is too deep, as an earlier
    mutation may make it, is only bytes."""
    try:
        return _mutate_tree(json.loads(data), rng, words)
    except (ValueError, RecursionError):
        return mutate_bytes(data, rng)


def _mutate_tree(tree: Any, rng: random.Random, words: tuple[str, ...]) -> bytes:
    spots: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key in list(node) if isinstance(node, dict) else range(len(node)):
            spots.append((node, key))
            if isinstance(node[key], dict | list):
                walk(node[key])

    root = [tree]
    walk(root)
    node, key = rng.choice(spots)
    match rng.randrange(6):
        case 0 | 1:
            node[key] = rng.choice(VALUES)
        case 2:
            del node[key]
        case 3:
            node[key] = [node[key]]
        case 4:
            other, place = rng.choice(spots)
            node[key] = copy.deepcopy(other[place])
        case _:
            if isinstance(node, dict):
                node[str(rng.choice(words or WORDS))] = node.pop(key)
            else:
                node.append(rng.choice(VALUES))
    text = json.dumps(root[0] if root else None, indent=rng.choice((None, 1)))
    if rng.random() < 0.02:
        text = "[" * 5000 + text + "]" * 5000
    return text.encode()


def _mutate_gzip(data: bytes, rng: random.Random, words: tuple[str, ...]) -> bytes:
    try:
        inner = gzip.decompress(data)
    except (OSError, EOFError, zlib.error):
        return mutate_bytes(data, rng)
    return gzip.compress(mutate_file("", inner, rng, words), 1)


def _mutate_zip(data: bytes, rng: random.Random, words: tuple[str, ...]) -> bytes:
    """Change a member, and write its size and checksum anew."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [(entry.filename, archive.read(entry)) for entry in archive.infolist()]
    except Exception:
        return mutate_bytes(data, rng)
    if not members:
        return mutate_bytes(data, rng)
    at = rng.randrange(len(members))
    name, content = members[at]
    match rng.randrange(8):
        case 0:
            del members[at]
        case 1:
            members.append(members[at])
        case 2:
            renamed = rng.choice((*words, name + "x"))[:200]
            members[at] = (renamed.replace("\x00", "_") or "x", content)
        case _:
            members[at] = (name, mutate_file(name, content, rng, words))
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w") as archive:
        warnings.simplefilter("ignore")
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content, rng.choice((0, 0, 8)))
    return out.getvalue()


def _mutate_tar(data: bytes, rng: random.Random, words: tuple[str, ...]) -> bytes:
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            members = [(m, archive.extractfile(m).read()) for m in archive if m.isfile()]  # type: ignore[union-attr]
    except Exception:
        return mutate_bytes(data, rng)
    if not members:
        return mutate_bytes(data, rng)
    at = rng.randrange(len(members))
    member, content = members[at]
    match rng.randrange(9):
        case 0:
            del members[at]
        case 1:
            members.append(members[at])
        case 2:
            member.name = rng.choice((*words, member.name + "x"))[:90].replace("\x00", "_") or "x"
        case 3:
            member.type = rng.choice((tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE,
                                      tarfile.DIRTYPE, tarfile.GNUTYPE_SPARSE))  # fmt: skip
            member.linkname = "/etc/passwd"
            members[at] = (member, b"")
        case _:
            members[at] = (member, mutate_file(member.name, content, rng, words))
    out = io.BytesIO()
    try:
        with tarfile.open(fileobj=out, mode="w") as archive:
            for member, content in members:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    except Exception:
        return mutate_bytes(data, rng)
    return out.getvalue()


def _mutate_png(data: bytes, rng: random.Random, words: tuple[str, ...]) -> bytes:
    """Change a chunk, and write its length and checksum anew."""
    chunks, at = [], 8
    while at + 12 <= len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + size]))
        at += 12 + size
    if not chunks:
        return mutate_bytes(data, rng)
    at = rng.randrange(len(chunks))
    chunks[at] = (chunks[at][0], mutate_bytes(chunks[at][1], rng))
    parts = [
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    ]
    return data[:8] + b"".join(parts)


def _column(kind: int, rows: int, rng: random.Random) -> Any:
    """A column of a random type, with odd values."""
    numbers = [rng.choice((0, 1, 2, 3, -1, 2**31, 2**62, None)) for _ in range(rows)]
    floats = [rng.choice((0.5, -1.0, 3.0, 1e300, float("nan"), float("inf"), None))
              for _ in range(rows)]  # fmt: skip
    texts = [rng.choice(("a", "b", "", " 3 ", "NA", "1e400", "2024-01-31", "\x1b", "é" * 9, None))
             for _ in range(rows)]  # fmt: skip
    match kind:
        case 0:
            return pa.array(numbers, pa.int64())
        case 1:
            return pa.array(floats, pa.float64())
        case 2:
            return pa.array(texts)
        case 3:
            return pa.array(texts, pa.large_string())
        case 4:
            return pa.array(texts).dictionary_encode()
        case 5:
            return pa.array([rng.random() < 0.5 for _ in range(rows)])
        case 6:
            return pa.array(numbers, pa.int64()).cast(pa.timestamp(rng.choice(("s", "ms", "us"))))
        case 7:
            return pa.array([None if t is None else t.encode() for t in texts], pa.binary())
        case 8:
            return pa.array([[1.0, 2.0]] * rows, pa.list_(pa.float32()))
        case 9:
            return pa.array([{"bytes": b"x", "path": None}] * rows)
        case 10:
            return pa.nulls(rows)
        case 11:
            return pa.array([None if n is None else n % 1000 for n in numbers]).cast(
                pa.decimal128(20, 2)
            )
        case 12:
            return pa.array(np.array([abs(n or 0) * 3 for n in numbers], np.uint64))
        case 13:
            return pa.array([rng.random() for _ in range(rows)], pa.float32()).cast(pa.float16())
        case 14:
            return pa.array([n or 0 for n in numbers], pa.int64()).cast(pa.duration("s"))
        case 15:
            return pa.array([None if n is None else n % 86_400 for n in numbers]).cast(
                pa.int32()).cast(pa.time32("s"))  # fmt: skip
        case 16:
            return pa.array([[("k", 1)]] * rows, pa.map_(pa.string(), pa.int32()))
        case _:
            return pa.array([None if t is None else t[:2] for t in texts], pa.string_view())


KINDS = 18


def random_table(table: pa.Table, rng: random.Random, words: tuple[str, ...]) -> pa.Table:
    """Change a type, a name, an order, or the number of rows."""
    at = rng.randrange(table.num_columns) if table.num_columns else 0
    names = list(table.column_names)
    match rng.randrange(6):
        case 0 | 1 | 2:
            column = _column(rng.randrange(KINDS), len(table), rng)
            return table.set_column(at, names[at], column) if names else table
        case 3:
            names[at] = rng.choice((*words, *names))
            return table.rename_columns(names)
        case 4:
            return table.slice(0, rng.choice((0, 1, 2)))
        case _:
            column = _column(rng.randrange(KINDS), len(table), rng)
            return table.append_column(rng.choice((*words, *names)), column)


def _mutate_table(data: bytes, rng: random.Random, words: tuple[str, ...]) -> bytes:
    out = io.BytesIO()
    try:
        if data[:4] == b"PAR1":
            table = parquet.read_table(io.BytesIO(data))
            table.validate(full=True)
            changed = random_table(table, rng, words)
            parquet.write_table(changed, out)
        else:
            table = feather.read_table(io.BytesIO(data))
            table.validate(full=True)  # else pyarrow ends the process
            changed = random_table(table, rng, words)
            feather.write_feather(changed, out, compression="uncompressed")
    except Exception:
        return mutate_bytes(data, rng)
    return out.getvalue()
