"""ACM: nearest neighbours by cosine among the frozen features of everything seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from streamgauge.errors import StreamgaugeError
from streamgauge.learners.base import Batch
from streamgauge.learners.parts.gradient_free import Exact, NeighbourGraph, vote
from streamgauge.models import features
from streamgauge.streams import Gate, Spec


@dataclass(frozen=True)
class Config(features.Config):
    k: int = 2  # neighbours
    search: Literal["exact", "hnsw"] = "exact"  # of nearest neighbours
    links: int = 25  # of each vector in the graph; this and the rest for `hnsw` only
    build: int = 500  # candidates looked at when a vector enters the graph
    beam: int = 64  # candidates looked at in a search
    measure: int = 100  # steps between two comparisons with the exact search


class ACM:
    """Adaptive continual memory (Prabhu et al. 2023): the commonest label among the k nearest, or
    else the nearest one's. With k = 2 that is always the nearest one's."""

    answers_cheaply = True
    unbounded = True

    def __init__(
        self, spec: Spec, source: Gate, seed: int, device: torch.device, config: Config
    ) -> None:
        if config.k < 1 or config.measure < 1:
            raise StreamgaugeError("acm.k and acm.measure must be 1 or more.")
        self.config, self.classes, self.steps = config, spec.classes, 0
        self.features = features.Backbone(spec, config, seed, device, source)
        size, graph = self.features.size, (config.links, config.build, config.beam)
        self.seen = (
            Exact(size, device)
            if config.search == "exact"
            else NeighbourGraph(size, device, *graph)
        )

    def predict(self, x: Tensor) -> Tensor:
        nearest = self.seen.search(self.features(x), self.config.k)
        return vote(self.seen.labels[nearest], self.classes)

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        vectors = self.features(batch.x)
        scalars: dict[str, Any] = {}
        if (
            isinstance(self.seen, NeighbourGraph)
            and self.steps % self.config.measure == 0
            and self.seen
        ):
            scalars["neighbour_recall"] = self.seen.recall(vectors, self.config.k)
        self.seen.add(vectors, batch.y)
        self.steps += 1
        return {**scalars, "memory": len(self.seen)}

    def memory_bytes(self) -> int:
        return self.seen.nbytes()

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, **self.seen.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]
        self.seen.load_state_dict(state)
