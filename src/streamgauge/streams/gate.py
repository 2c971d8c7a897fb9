"""What a learner may see of a source: only what was revealed, only labels that are due.

A learner is handed this view and nothing else, so that looking ahead is an error and not a good
score.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.resident import Resident
from streamgauge.streams.source import IntArray, Source, Spec

if TYPE_CHECKING:
    import torch
    from torch import Tensor

REVEALED, LABELLED = 1, 2  # state of a sample; 0 is hidden


class Leak(StreamgaugeError):
    """A learner asked for something that has not happened yet."""


class Gate:
    """A source seen through the clock of the stream."""

    def __init__(self, source: Source, preparation: IntArray, device: torch.device) -> None:
        self._source = source
        self._device = device
        self._state = np.zeros(len(source), np.uint8)  # one byte a sample: 39 MB for CLOC
        self._state[preparation] = LABELLED
        self.spec: Spec = source.spec
        self.preparation = preparation

    def reveal(self, index: IntArray) -> None:
        """The loop says: these inputs are known now. A sample that comes again stays labelled."""
        before = self._state[index]
        if np.count_nonzero(before):  # rarely, and the rest is quicker without
            self._state[index] = np.maximum(before, REVEALED)
        else:
            self._state[index] = REVEALED

    def label_due(self, index: IntArray) -> None:
        """The loop says: these labels are known now."""
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
        """Inputs and labels by address: a device is told the addresses once for both."""
        if np.count_nonzero(self._state[index] < LABELLED):  # then one of these says which
            self._refuse(index, REVEALED, "the input", "revealed")
            self._refuse(index, LABELLED, "the label", "due")
        return fetch_samples(self._source, index, self._device)

    def _refuse(self, index: IntArray, least: int, what: str, when: str) -> None:
        early = self._state[index] < least
        if np.count_nonzero(early):  # quicker than `any`
            address = int(np.atleast_1d(index)[np.atleast_1d(early)][0])
            raise Leak(
                f"The learner asked for {what} of sample {address}, which is not {when} yet."
            )


def fetch(source: Source, index: IntArray, device: torch.device) -> Tensor:
    """Inputs as a tensor; for the loop itself, which stands above the gate."""
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
        there = to_device(index, device)
        return source.fetch(there), source.fetch_labels(there)
    return fetch(source, index, device), fetch_labels(source, index, device)


def to_device(values: NDArray[Any], device: torch.device) -> Tensor:
    """An array as a tensor; to a GPU by way of pinned memory, so that nothing waits for it."""
    import torch

    tensor = torch.from_numpy(values)
    if device.type == "cpu":
        return tensor
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
