"""The spool: samples that clients sent, on disk, as long as anything still refers to them.

    spool/inputs.bin   the inputs, one slot per sample
    spool/facts.bin    per slot: arrival number, answer, label, and the label's position
    spool/spool.json   shape, type and number of slots

Both binary files have their full size from the beginning. They are memory-mapped and shared by the
process that answers and the one that trains; their content survives a crash of the process, but
not of the machine. The arrival number is written last when a sample arrives, and the label's
position last when a label arrives, so that an entry is either complete or not there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError
from streamgauge.files import readable, write_json
from streamgauge.live.dispatcher import Ints
from streamgauge.streams.gate import fetch, fetch_labels, scaled_columns
from streamgauge.streams.source import Array, IntArray, Spec

if TYPE_CHECKING:
    import torch
    from torch import Tensor

NONE = -1  # no sample in the slot; no label yet; no answer of a snapshot
NAME_BYTES = 64  # of a client's own id for a sample


def facts_type(shifts: int) -> np.dtype[Any]:
    """The record of one sample; `near` are the answers of snapshots."""
    near = np.dtype([("age", "i4"), ("prediction", "i4"), ("confidence", "f4"), ("version", "i4")])
    return np.dtype(
        [
            ("sample", "i8"),
            ("label_position", "i8"),  # the label's number in the order of arrival
            ("label", "i4"),
            ("prediction", "i4"),
            ("confidence", "f4"),
            ("version", "i4"),
            ("time", "f8"),
            ("user", "i8"),
            ("name", f"S{NAME_BYTES}"),
            ("near", near, (max(1, shifts),)),
        ]
    )


class Spool:
    """Slots on disk, for the process that answers; trainers read a `SpoolSource`."""

    def __init__(
        self,
        folder: Path,
        spec: Spec,
        dtype: str,
        slots: int,
        shifts: int = 0,
        scaled: int = 0,
    ) -> None:
        self.scaled = scaled  # columns that are standardised online
        self.folder, self.spec, self.dtype, self.slots = folder, spec, np.dtype(dtype), slots
        self._kind = facts_type(shifts)
        layout = {"input_shape": list(spec.input_shape), "dtype": dtype, "slots": slots,
                  "shifts": shifts}  # fmt: skip
        self._create_files(layout)
        self.inputs = _map(folder / "inputs.bin", self.dtype, (slots, *spec.input_shape), "r+")
        self.facts = _map(folder / "facts.bin", self._kind, (slots,), "r+")
        self.slot_of = _used_slots(self.facts)
        self.names: dict[bytes, int] = {  # clients' own ids -> arrival numbers
            bytes(self.facts["name"][slot]): sample
            for sample, slot in self.slot_of.items()
            if self.facts["name"][slot]
        }
        self._free = np.flatnonzero(self.facts["sample"] == NONE)[::-1].tolist()

    def _create_files(self, layout: dict[str, Any]) -> None:
        """Create the files at their full size, unless they exist."""
        known = self.folder / "spool.json"
        row = int(np.prod(self.spec.input_shape, dtype=np.int64)) * self.dtype.itemsize
        sizes = {"inputs.bin": row, "facts.bin": self._kind.itemsize}
        sizes = {name: max(1, size * self.slots) for name, size in sizes.items()}
        if known.exists():
            with readable(f"{known}", "remove the folder of the spool, or give another --out"):
                stored = json.loads(known.read_text())
            if stored != layout:
                raise StreamgaugeError(
                    f"The spool in {self.folder} was made for {stored}, not for {layout}: give the "
                    f"same settings, or another --out."
                )
            for name, size in sizes.items():
                file = self.folder / name
                if not file.is_file() or file.stat().st_size != size:
                    raise StreamgaugeError(
                        f"{file} is missing or has another size than when it was made: restore it"
                        " from a copy, or give another --out."
                    )
            _allocate(self.folder, sizes)  # versions before 0.2 left holes
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in sizes:
            (self.folder / name).unlink(missing_ok=True)
        _allocate(self.folder, sizes)
        facts = _map(self.folder / "facts.bin", self._kind, (self.slots,), "r+")
        for column in ("sample", "label_position", "label"):
            facts[column] = NONE
        _flush(facts)
        write_json(known, layout)  # last: a spool that has it is complete

    @property
    def nbytes(self) -> int:
        """Size of the files in bytes."""
        return self.inputs.nbytes + self.facts.nbytes

    @property
    def free(self) -> int:
        return len(self._free)

    def __len__(self) -> int:
        return len(self.slot_of)

    def put(self, sample: int, x: Array, **facts: Any) -> None:
        """Store a sample in a free slot; there must be one."""
        slot = int(self._free.pop())
        self.inputs[slot] = x
        row = self.facts[slot : slot + 1]
        row["label_position"], row["label"] = NONE, NONE
        row["near"]["version"] = NONE
        for name, value in facts.items():
            row[name] = value
        row["sample"] = sample
        self.slot_of[sample] = slot
        if facts.get("name"):
            self.names[facts["name"]] = sample

    def set_label(self, sample: int, label: int, position: int) -> None:
        row = self.facts[self.slot_of[sample]]
        row["label"] = label
        row["label_position"] = position

    def drop(self, sample: int) -> None:
        slot = self.slot_of.pop(sample)
        self.names.pop(bytes(self.facts["name"][slot]), None)
        self.facts["sample"][slot] = NONE
        self._free.append(slot)

    def drop_unreferenced(self, committed: int, referenced: Sequence[Ints]) -> None:
        """Drop samples whose label is among the `committed` ones, unless `referenced`."""
        facts = self.facts
        done = (
            (facts["sample"] != NONE)
            & (facts["label_position"] != NONE)
            & (facts["label_position"] < committed)
        )
        for index in referenced:
            done &= ~np.isin(facts["sample"], index)
        for sample in facts["sample"][done].tolist():
            self.drop(sample)

    def flush(self) -> None:
        _flush(self.inputs)
        _flush(self.facts)


class SpoolSource:
    """The spool as a source: addresses are arrival numbers. It can be sent to another process. It
    can read samples that were in the spool when it was made, and those added by `add_slots`; with
    `follow`, all that are in the spool of this process."""

    class_names: Sequence[str] | None = None
    columns: dict[str, Array] = {}  # noqa: RUF012
    fingerprint = "live"

    def __init__(self, spool: Spool, follow: bool = False) -> None:
        self.spec, self.dtype, self.scaled = spool.spec, spool.dtype, spool.scaled
        self._folder, self._slots, self._kind = spool.folder, spool.slots, spool.facts.dtype
        self._open()
        if follow:
            self._slot_of = spool.slot_of

    def _open(self) -> None:
        shape = (self._slots, *self.spec.input_shape)
        self._inputs = _map(self._folder / "inputs.bin", self.dtype, shape, "r")
        self._facts = _map(self._folder / "facts.bin", self._kind, (self._slots,), "r")
        self._slot_of = _used_slots(self._facts)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k not in ("_inputs", "_facts", "_slot_of")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._open()

    def __len__(self) -> int:
        return max(self._slot_of, default=-1) + 1

    def add_slots(self, index: Ints, slots: Ints) -> None:
        """Add new samples and their slots."""
        self._slot_of.update(zip(index.tolist(), slots.tolist(), strict=True))

    def keep_only(self, addresses: Ints) -> None:
        """Forget the slots of all other samples; done only now and then, since it takes time."""
        if len(self._slot_of) > 2 * len(addresses) + 1000:
            self._slot_of = {sample: self._slot_of[sample] for sample in addresses.tolist()}

    def _find_slots(self, index: IntArray) -> Ints:
        known = [self._slot_of.get(int(sample), NONE) for sample in np.atleast_1d(index)]
        slots = np.array(known, np.int64)
        gone = (slots == NONE) | (self._facts["sample"][slots] != np.atleast_1d(index))
        if gone.any():
            sample = int(np.atleast_1d(index)[gone][0])
            raise StreamgaugeError(
                f"Sample {sample} is not in the spool: it has not arrived, or was dropped when "
                "nothing referred to it; a learner that keeps addresses returns them from"
                " `stored_addresses()`."
            )
        return slots

    def read(self, index: IntArray) -> Array:
        return np.asarray(self._inputs[self._find_slots(index)])

    @property
    def label(self) -> Any:
        return _SpoolLabels(self)


class _SpoolLabels:
    """`labels[index]`, by arrival number."""

    def __init__(self, source: SpoolSource) -> None:
        self._source = source

    def __getitem__(self, index: IntArray) -> NDArray[Any]:
        source = self._source
        return np.asarray(source._facts["label"][source._find_slots(index)])


class SpoolGate:
    """What a learner may read of the spool: inputs and labels that have arrived."""

    preparation: Ints = np.empty(0, np.int64)

    def __init__(self, source: SpoolSource, device: torch.device) -> None:
        self._source, self._device = source, device
        self.spec, self.scaled = source.spec, scaled_columns(source)

    def reveal(self, index: IntArray) -> None:
        """Nothing to do: a sample that has not arrived is not in the spool."""

    def label_due(self, index: IntArray) -> None:
        """Nothing to do: a label is in the spool once it has arrived."""

    def read(self, index: IntArray) -> Tensor:
        return fetch(self._source, index, self._device)

    def label(self, index: IntArray) -> Tensor:
        labels = fetch_labels(self._source, index, self._device)
        if bool((labels < 0).any()):
            raise StreamgaugeError("The learner asked for a label that has not arrived yet.")
        return labels

    def samples(self, index: IntArray) -> tuple[Tensor, Tensor]:
        return self.read(index), self.label(index)


def _used_slots(facts: Array) -> dict[int, int]:
    """Arrival number -> slot."""
    used = np.flatnonzero(facts["sample"] != NONE)
    return dict(zip(facts["sample"][used].tolist(), used.tolist(), strict=True))


def _allocate(folder: Path, sizes: dict[str, int]) -> None:
    """Give the files their full size on disk: writing to a mapped file without space would kill the
    process."""
    try:
        for name, size in sizes.items():
            with open(folder / name, "ab") as file:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, size)
                    continue
                while (missing := size - file.tell()) > 0:
                    file.write(bytes(min(missing, 1 << 20)))
    except OSError as error:
        reason = error.strerror or error
        if not (folder / "spool.json").exists():
            for name in sizes:
                (folder / name).unlink(missing_ok=True)
        raise StreamgaugeError(
            f"The spool in {folder} needs {sum(sizes.values()) / 1e6:,.0f} MB on disk: {reason}. "
            f"Make room, or give another --out or a smaller memory."
        ) from None


def _map(file: Path, dtype: np.dtype[Any], shape: tuple[int, ...], mode: Any) -> Array:
    if 0 in shape:  # inputs without entries cannot be mapped
        return np.empty(shape, dtype)
    return np.memmap(file, dtype, mode, shape=shape)


def _flush(array: Array) -> None:
    if isinstance(array, np.memmap):
        array.flush()
