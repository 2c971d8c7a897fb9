"""The spool: samples that came from outside, on disk, as few as anything still refers to.

    spool/inputs.bin   the inputs, a slot each
    spool/facts.bin    of each slot: arrival number, answer, label, and in which place it came
    spool/spool.json   shape, type and number of slots

Both files have their full size from the beginning and never grow. They are mapped into memory and
shared by whoever serves and whoever trains; what has been written survives the end of a process,
however sudden, though not of the machine. The arrival number is written last when a sample comes,
and the place of the label last when a label comes, so that what is there is whole.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError
from streamgauge.files import write_json
from streamgauge.live.desk import Ints
from streamgauge.streams.gate import fetch, fetch_labels
from streamgauge.streams.source import Array, IntArray, Spec

if TYPE_CHECKING:
    import torch
    from torch import Tensor

NONE = -1  # no sample in the slot; no label yet; no answer of a snapshot
NAME_BYTES = 64  # of a client's own name for a sample


def facts_type(shifts: int) -> np.dtype[Any]:
    """What is known of a sample; `near` are the answers of snapshots."""
    near = np.dtype([("age", "i4"), ("prediction", "i4"), ("confidence", "f4"), ("version", "i4")])
    return np.dtype(
        [
            ("sample", "i8"),
            ("place", "i8"),  # in the order of labels
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
    """Slots on disk. Only the process that serves has one; trainers read a `SpoolSource`."""

    def __init__(self, folder: Path, spec: Spec, dtype: str, slots: int, shifts: int = 0) -> None:
        self.folder, self.spec, self.dtype, self.slots = folder, spec, np.dtype(dtype), slots
        self._kind = facts_type(shifts)
        about = {"input_shape": list(spec.input_shape), "dtype": dtype, "slots": slots,
                 "shifts": shifts}  # fmt: skip
        self._lay_out(about)
        self.inputs = _map(folder / "inputs.bin", self.dtype, (slots, *spec.input_shape), "r+")
        self.facts = _map(folder / "facts.bin", self._kind, (slots,), "r+")
        used = self.facts["sample"] != NONE
        self.place_of: dict[int, int] = {
            int(self.facts["sample"][slot]): int(slot) for slot in np.flatnonzero(used)
        }
        self.names: dict[bytes, int] = {  # clients' own names for samples
            bytes(self.facts["name"][slot]): sample
            for sample, slot in self.place_of.items()
            if self.facts["name"][slot]
        }
        self._free = np.flatnonzero(~used)[::-1].tolist()

    def _lay_out(self, about: dict[str, Any]) -> None:
        """Make the files at their full size, unless they are there."""
        known = self.folder / "spool.json"
        if known.exists():
            stored = json.loads(known.read_text())
            if stored != about:
                raise StreamgaugeError(
                    f"The spool in {self.folder} was made for {stored}, not for {about}: give the "
                    f"same settings, or another --out."
                )
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        row = int(np.prod(self.spec.input_shape, dtype=np.int64)) * self.dtype.itemsize
        for name, size in (("inputs.bin", row), ("facts.bin", self._kind.itemsize)):
            with open(self.folder / name, "wb") as file:
                file.truncate(max(1, size * self.slots))
        facts = _map(self.folder / "facts.bin", self._kind, (self.slots,), "r+")
        for column in ("sample", "place", "label"):
            facts[column] = NONE
        _flush(facts)
        write_json(known, about)  # last: a spool that has it is whole

    @property
    def nbytes(self) -> int:
        """What it takes on disk at the most."""
        row = int(np.prod(self.spec.input_shape, dtype=np.int64)) * self.dtype.itemsize
        return self.slots * (row + self._kind.itemsize)

    @property
    def free(self) -> int:
        return len(self._free)

    def __len__(self) -> int:
        return len(self.place_of)

    def put(self, sample: int, x: Array, **facts: Any) -> int:
        """Store a sample in a free slot, which there must be."""
        slot = int(self._free.pop())
        self.inputs[slot] = x
        row = self.facts[slot : slot + 1]
        row["place"], row["label"] = NONE, NONE
        row["near"]["version"] = NONE
        for name, value in facts.items():
            row[name] = value
        row["sample"] = sample
        self.place_of[sample] = slot
        if facts.get("name"):
            self.names[facts["name"]] = sample
        return slot

    def set_label(self, sample: int, label: int, place: int) -> None:
        row = self.facts[self.place_of[sample]]
        row["label"] = label
        row["place"] = place

    def drop(self, sample: int) -> None:
        slot = self.place_of.pop(sample)
        self.names.pop(bytes(self.facts["name"][slot]), None)
        self.facts["sample"][slot] = NONE
        self._free.append(slot)

    def drop_but(self, committed: int, referred: Sequence[Ints]) -> int:
        """Drop what nothing refers to: samples whose label is in the log (its first `committed`
        places) and that nobody names. Returns how many."""
        facts = self.facts
        done = (facts["sample"] != NONE) & (facts["place"] != NONE) & (facts["place"] < committed)
        for index in referred:
            done &= ~np.isin(facts["sample"], index)
        gone = facts["sample"][done].tolist()
        for sample in gone:
            self.drop(sample)
        return len(gone)

    def flush(self) -> None:
        _flush(self.inputs)
        _flush(self.facts)


class SpoolSource:
    """The spool as a source: addresses are arrival numbers. It can be sent to another process.

    It knows what was in the spool when it was made, and what it is told of by `place`; with
    `follow` it knows whatever the spool in this process knows.
    """

    class_names: Sequence[str] | None = None
    columns: dict[str, Array] = {}  # noqa: RUF012
    fingerprint = "live"
    _place: dict[int, int]

    def __init__(self, spool: Spool, follow: bool = False) -> None:
        self.spec, self.dtype = spool.spec, spool.dtype
        self._folder, self._slots, self._kind = spool.folder, spool.slots, spool.facts.dtype
        self._open()
        if follow:
            self._place = spool.place_of

    def _open(self) -> None:
        shape = (self._slots, *self.spec.input_shape)
        self._inputs = _map(self._folder / "inputs.bin", self.dtype, shape, "r")
        self._facts = _map(self._folder / "facts.bin", self._kind, (self._slots,), "r")
        used = np.flatnonzero(self._facts["sample"] != NONE)
        samples = self._facts["sample"][used].tolist()
        self._place = dict(zip(samples, used.tolist(), strict=True))

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k not in ("_inputs", "_facts", "_place")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._open()

    def __len__(self) -> int:
        return max(self._place, default=-1) + 1

    def place(self, index: Ints, places: Ints) -> None:
        """Where new samples lie."""
        self._place.update(zip(index.tolist(), places.tolist(), strict=True))

    def forget_but(self, held: Ints) -> None:
        """Only these will be asked for again; done now and then, since it takes a moment."""
        if len(self._place) > 2 * len(held) + 1000:
            self._place = {sample: self._place[sample] for sample in held.tolist()}

    def _where(self, index: IntArray) -> Ints:
        found = [self._place.get(int(sample), NONE) for sample in np.atleast_1d(index)]
        slots = np.array(found, np.int64)
        gone = (slots == NONE) | (self._facts["sample"][slots] != np.atleast_1d(index))
        if gone.any():
            sample = int(np.atleast_1d(index)[gone][0])
            raise StreamgaugeError(
                f"Sample {sample} is not in the spool: it has not arrived, or was dropped when "
                f"nothing referred to it; a learner that keeps addresses says which by `held()`."
            )
        return slots

    def read(self, index: IntArray) -> Array:
        values: Array = np.asarray(self._inputs[self._where(index)])
        return values

    @property
    def label(self) -> Any:
        return _Labels(self)


class _Labels:
    """`labels[index]`, by arrival number."""

    def __init__(self, source: SpoolSource) -> None:
        self._source = source

    def __getitem__(self, index: IntArray) -> NDArray[Any]:
        source = self._source
        return np.asarray(source._facts["label"][source._where(index)])


class SpoolGate:
    """What a learner sees of the spool: inputs that are there, labels that have come."""

    preparation: Ints = np.empty(0, np.int64)

    def __init__(self, source: SpoolSource, device: torch.device) -> None:
        self._source, self._device = source, device
        self.spec = source.spec

    def reveal(self, index: IntArray) -> None:
        """Nothing to do: what has not arrived is not there."""

    def label_due(self, index: IntArray) -> None:
        """Nothing to do: a label is there once it has come."""

    def read(self, index: IntArray) -> Tensor:
        return fetch(self._source, index, self._device)

    def label(self, index: IntArray) -> Tensor:
        labels = fetch_labels(self._source, index, self._device)
        if bool((labels < 0).any()):
            raise StreamgaugeError("The learner asked for a label that has not come yet.")
        return labels

    def samples(self, index: IntArray) -> tuple[Tensor, Tensor]:
        return self.read(index), self.label(index)


def _map(file: Path, dtype: np.dtype[Any], shape: tuple[int, ...], mode: Any) -> Array:
    if 0 in shape:  # inputs without entries cannot be mapped
        return np.empty(shape, dtype)
    return np.memmap(file, dtype, mode, shape=shape)


def _flush(array: Array) -> None:
    if isinstance(array, np.memmap):
        array.flush()
