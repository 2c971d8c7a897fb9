"""A source with a copy of its inputs and labels on a device, where batches are gathered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streamgauge.streams.source import Source, SourceView, pieces

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
