"""What methods on frozen features share: sums by class, and nearest neighbours by cosine."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from streamgauge.cost.flops import part
from streamgauge.errors import StreamgaugeError, packages_for
from streamgauge.learners.parts.checkpoint import Checkpointed
from streamgauge.learners.published import HasPublishedVariant
from streamgauge.models import features
from streamgauge.streams import Gate, Spec

PRODUCTS = 1 << 24  # similarities in memory at once


class ClassSums(Checkpointed, HasPublishedVariant):
    """Sums and counts by class of the features of a frozen network, or of the inputs as they are;
    no gradient and no memory of samples."""

    config: Any
    answers_cheaply = True
    checkpointed = "sums counts"

    def __init__(
        self, spec: Spec, source: Gate, seed: int, device: torch.device, config: Any
    ) -> None:
        self.config = config
        self.features = features.Backbone(spec, config, seed, device, source)
        self.counts = torch.zeros(spec.classes, dtype=torch.float64, device=device)
        self.sums = self.counts.new_zeros(spec.classes, self.features.size)

    def add(self, x: Tensor, y: Tensor) -> None:
        """Features in float64, and their labels."""
        self.sums.index_add_(0, y, x)
        self.counts.index_add_(0, y, torch.ones_like(y, dtype=torch.float64))

    def rescale(self, factor: Tensor, offset: Tensor) -> None:
        """Inputs are standardised in another way from now on: x becomes factor x + offset."""
        if self.config.model == "linear":  # the features are the inputs
            self.sums = self.sums * factor + self.counts[:, None] * offset

    def means(self) -> Tensor:
        """[C, D]; 0 for a class without samples."""
        return self.sums / self.counts.clamp(min=1)[:, None]

    def memory_bytes(self) -> int:
        return self.sums.nbytes + self.counts.nbytes


class Exact:
    """Vectors of length 1 and their labels, on one device, in arrays that double when full."""

    def __init__(self, size: int, device: torch.device) -> None:
        self.vectors = torch.empty(0, size, device=device)
        self.labels = torch.empty(0, dtype=torch.int64, device=device)
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def nbytes(self) -> int:
        return self.count * (self.vectors.shape[1] * 4 + 8)

    def add(self, vectors: Tensor, labels: Tensor) -> None:
        end = self.count + len(labels)
        if end > len(self.labels):
            self._grow(max(end, 2 * len(self.labels), 1024))
        self.vectors[self.count : end] = F.normalize(vectors)
        self.labels[self.count : end] = labels
        self.count = end

    def _grow(self, room: int) -> None:
        try:
            vectors = self.vectors.new_zeros(room, self.vectors.shape[1])
        except torch.OutOfMemoryError:
            raise StreamgaugeError(
                f"{self.count} samples are all that fits on this device; run on the CPU, "
                f"with --device cpu."
            ) from None
        vectors[: self.count] = self.vectors[: self.count]
        labels = self.labels.new_zeros(room)
        labels[: self.count] = self.labels[: self.count]
        self.vectors, self.labels = vectors, labels

    def search(self, queries: Tensor, k: int) -> Tensor:
        """Row numbers [B, k] of the nearest, nearest first; fewer columns if fewer were added."""
        return self.exact(queries, k)

    def exact(self, queries: Tensor, k: int) -> Tensor:
        """In blocks, so that similarities to everything never lie in memory at once."""
        queries = F.normalize(queries)
        best = queries.new_empty(len(queries), 0)
        rows = torch.empty(len(queries), 0, dtype=torch.int64, device=queries.device)
        size = max(1024, PRODUCTS // max(1, len(queries)))
        for start in range(0, self.count, size):
            block = self.vectors[start : min(start + size, self.count)]
            near, row = (queries @ block.T).topk(min(k, len(block)), dim=1)
            near, row = torch.cat([best, near], 1), torch.cat([rows, row + start], 1)
            best, order = near.topk(min(k, near.shape[1]), dim=1)
            rows = row.gather(1, order)
        return rows

    def state_dict(self) -> dict[str, Any]:
        return {
            "vectors": self.vectors[: self.count].clone(),
            "labels": self.labels[: self.count].clone(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.vectors = state["vectors"].to(self.vectors.device)
        self.labels = state["labels"].to(self.labels.device)
        self.count = len(self.labels)


class NeighbourGraph(Exact):
    """A navigable small-world graph (HNSW, by faiss) of the vectors: search time grows with the
    logarithm of their number, and some neighbours are missed; `recall` says how many. Vectors enter
    on one thread in the batches they came in, so the graph is the same every time, and a state
    holds those batches instead of it."""

    def __init__(
        self, size: int, device: torch.device, links: int = 25, build: int = 500, beam: int = 64
    ) -> None:
        super().__init__(size, device)
        with packages_for("search='hnsw'"):
            import faiss
        self.faiss, self.options = faiss, (links, build, beam)
        self.ends: list[int] = []
        self.index = self._empty()

    def _empty(self) -> Any:
        links, build, beam = self.options
        size = self.vectors.shape[1]
        index = self.faiss.IndexHNSWFlat(size, links, self.faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction, index.hnsw.efSearch = build, beam
        return index

    def add(self, vectors: Tensor, labels: Tensor) -> None:
        start = self.count
        super().add(vectors, labels)
        self._link(start, self.count)
        self.ends.append(self.count)

    def _link(self, start: int, end: int) -> None:
        threads = self.faiss.omp_get_max_threads()
        self.faiss.omp_set_num_threads(1)
        self.index.add(self.vectors[start:end].cpu().numpy())
        self.faiss.omp_set_num_threads(threads)

    def search(self, queries: Tensor, k: int) -> Tensor:
        if not self.count:
            return self.exact(queries, k)
        wanted = F.normalize(queries).cpu().numpy()
        rows = self.index.search(wanted, min(k, self.count))[1]
        rows = np.where(rows < 0, rows[:, :1], rows)  # the graph search gave fewer than k
        return torch.from_numpy(rows).to(self.vectors.device)

    def recall(self, queries: Tensor, k: int) -> Tensor:
        """Share of the true k nearest that a search finds."""
        with part("exact", len(queries), self.count):
            approximate, true = self.search(queries, k), self.exact(queries, k)
        return (true[:, :, None] == approximate[:, None, :]).any(2).float().mean()

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "ends": np.array(self.ends, np.int64)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.ends, self.index = state["ends"].tolist(), self._empty()
        for start, end in zip([0, *self.ends], self.ends, strict=False):
            self._link(start, end)


def vote(labels: Tensor, classes: int) -> Tensor:
    """Scores [B, C] from neighbours' labels [B, k], nearest first: logarithms of their shares.

    The commonest label wins; of equally common ones the one with the nearest neighbour.

    >>> vote(torch.tensor([[2, 1], [0, 0]]), classes=3).argmax(1)
    tensor([2, 0])
    """
    batch, k = labels.shape
    votes = torch.zeros(batch, classes, device=labels.device)
    if k:
        nearness = torch.arange(k, 0, -1, device=labels.device) / (10.0 * k)  # below one vote
        first = torch.zeros_like(votes).scatter_reduce_(1, labels, nearness.expand(batch, -1),
                                                        "amax")  # fmt: skip
        votes.scatter_add_(1, labels, torch.ones_like(labels, dtype=votes.dtype))
        votes = votes + first
    votes = votes + 1e-3
    return (votes / votes.sum(1, keepdim=True)).log()
