"""The gate: a learner's view of a source, with revealed inputs and known labels only.

A learner gets this view instead of the source, so that reading the future raises an error. Samples
are fetched as tensors, from a copy of the source on the device where there is one (`Resident`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.source import IntArray, Source, SourceView, Spec, pieces

if TYPE_CHECKING:
    import torch
    from torch import Tensor

BLOCK = 8192  # samples per copy
SHARE = 0.25  # of the free device memory that a source may take


class Resident(SourceView):
    """A source, and a copy of its inputs and labels on a device; all values are equal."""

    def __init__(self, source: Source, device: torch.device) -> None:
        import torch

        super().__init__(source)
        self.device = device
        count = len(source)
        first = source.read(np.arange(1))
        kind = torch.from_numpy(first).dtype
        self._x = torch.empty((count, *first.shape[1:]), dtype=kind, device=device)
        for part in pieces(count, BLOCK):
            index = np.arange(part.start, part.stop)
            self._x[part] = torch.from_numpy(source.read(index)).to(device)
        label = np.ascontiguousarray(source.label, np.int64)
        self._label = torch.from_numpy(label).to(device)
        if device.type == "cuda":
            torch.cuda.synchronize(device)  # other CUDA streams read it

    def fetch(self, index: Tensor) -> Tensor:
        return self._x.index_select(0, index)

    def fetch_labels(self, index: Tensor) -> Tensor:
        return self._label.index_select(0, index)


def fits(source: Source, device: torch.device) -> bool:
    """Whether a source is in memory and small compared with the free memory of a GPU."""
    import torch

    if device.type != "cuda" or not getattr(source, "in_memory", False):
        return False
    free, _ = torch.cuda.mem_get_info(device)
    return len(source) * source.read(np.arange(1)).nbytes < SHARE * free


REVEALED, LABELLED = 1, 2  # state of a sample; 0 is hidden


class Leak(StreamgaugeError):
    """A learner read an input or a label of the future."""


class Gate:
    """A view of a source that gives only what is known at the current step."""

    def __init__(self, source: Source, preparation: IntArray, device: torch.device) -> None:
        self._source = source
        self._device = device
        self._state = np.zeros(len(source), np.uint8)  # one byte per sample: 39 MB for CLOC
        self._state[preparation] = LABELLED
        self.spec: Spec = source.spec
        self.scaled = scaled_columns(source)
        self.preparation = preparation

    def reveal(self, index: IntArray) -> None:
        """Make inputs readable; called by the loop. A repeated sample stays labelled."""
        before = self._state[index]
        if np.count_nonzero(before):  # rare; the other branch is faster
            self._state[index] = np.maximum(before, REVEALED)
        else:
            self._state[index] = REVEALED

    def label_due(self, index: IntArray) -> None:
        """Make labels readable; called by the loop."""
        self._state[index] = LABELLED

    def read(self, index: IntArray) -> Tensor:
        """Inputs by address, on the learner's device."""
        self._refuse(index, REVEALED, "the input", "revealed")
        return fetch(self._source, index, self._device)

    def label(self, index: IntArray) -> Tensor:
        """Labels by address, on the learner's device."""
        self._refuse(index, LABELLED, "the label", "due")
        return fetch_labels(self._source, index, self._device)

    def samples(self, index: IntArray) -> tuple[Tensor, Tensor]:
        """Inputs and labels by address; the addresses are sent to the device once."""
        if np.count_nonzero(self._state[index] < LABELLED):  # one of the calls raises
            self._refuse(index, REVEALED, "the input", "revealed")
            self._refuse(index, LABELLED, "the label", "due")
        return fetch_samples(self._source, index, self._device)

    def _refuse(self, index: IntArray, least: int, what: str, when: str) -> None:
        early = self._state[index] < least
        if np.count_nonzero(early):  # faster than `any`
            address = int(np.atleast_1d(index)[np.atleast_1d(early)][0])
            raise Leak(
                f"The learner asked for {what} of sample {address}, which is not {when} yet."
            )


def scaled_columns(source: Source) -> int:
    """How many columns of the inputs, the first ones, are standardised online."""
    return int(getattr(source, "scaled", 0))


def fetch(source: Source, index: IntArray, device: torch.device) -> Tensor:
    """Inputs as a tensor, without the gate; for the loop."""
    if isinstance(source, Resident) and source.device == device:
        return source.fetch(to_device(index, device))
    return to_device(source.read(index), device)


def fetch_labels(source: Source, index: IntArray, device: torch.device) -> Tensor:
    if isinstance(source, Resident) and source.device == device:
        return source.fetch_labels(to_device(index, device))
    return to_device(source.label[index].astype(np.int64, copy=False), device)


def fetch_samples(source: Source, index: IntArray, device: torch.device) -> tuple[Tensor, Tensor]:
    """Inputs and labels."""
    if isinstance(source, Resident) and source.device == device:
        on_device = to_device(index, device)
        return source.fetch(on_device), source.fetch_labels(on_device)
    return fetch(source, index, device), fetch_labels(source, index, device)


def to_device(values: NDArray[Any], device: torch.device) -> Tensor:
    """An array as a tensor on a device; copied to a GPU asynchronously from pinned memory."""
    import torch

    tensor = torch.from_numpy(values)
    if device.type == "cpu":
        return tensor
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
