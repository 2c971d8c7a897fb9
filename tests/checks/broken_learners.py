"""Learners that each break one promise, of which `streamgauge check` must say which, and learners
of arrays, pickles and modules that keep all."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import torch


class Sound:
    """Keeps every promise: the mean input of each class, on a generator of its own."""

    def __init__(self, spec: Any, source: Any, seed: int, device: torch.device) -> None:
        self.source, self.device = source, device
        width = int(np.prod(spec.input_shape))
        self.sums = torch.zeros(spec.classes, width, device=device)
        self.counts = torch.zeros(spec.classes, device=device)
        self.generator = torch.Generator(device).manual_seed(seed)

    def predict(self, x: torch.Tensor) -> torch.Tensor:
        means = self.sums / self.counts.clamp(min=1)[:, None]
        scores = -torch.cdist(x.flatten(1).float(), means)
        return scores.masked_fill(self.counts == 0, -1e6)

    def learn(self, batch: Any, predicted: Any) -> None:
        noise = torch.rand(batch.x.shape, generator=self.generator, device=self.device)
        self.sums.index_add_(0, batch.y, (batch.x.float() + noise).flatten(1))
        self.counts.index_add_(0, batch.y, torch.ones_like(batch.y, dtype=torch.float32))

    def state_dict(self) -> dict[str, Any]:
        return {"sums": self.sums.clone(), "counts": self.counts.clone(),
                "generator": self.generator.get_state()}  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.sums, self.counts = state["sums"].to(self.device), state["counts"].to(self.device)
        self.generator.set_state(state["generator"].cpu())


class PredictLearns(Sound):
    """Adapts while it predicts, as batch norm left in training mode does."""

    def predict(self, x: torch.Tensor) -> torch.Tensor:
        self.sums += x.float().mean(0).flatten()
        return super().predict(x)


class GlobalRandom(Sound):
    """Draws from the global generator."""

    def learn(self, batch: Any, predicted: Any) -> None:
        self.sums += 200 * torch.rand(self.sums.shape)
        super().learn(batch, predicted)


class ForgetsGenerator(Sound):
    """Leaves its generator out of its state, so a resumed run draws other numbers."""

    def state_dict(self) -> dict[str, Any]:
        return {k: v for k, v in super().state_dict().items() if k != "generator"}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict({**state, "generator": self.generator.get_state()})


class KeepsEverything(Sound):
    """Remembers every label and does not say so."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.labels: list[int] = []

    def learn(self, batch: Any, predicted: Any) -> None:
        self.labels += batch.y.tolist()
        super().learn(batch, predicted)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "labels": list(self.labels)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.labels = list(state["labels"])


class NeedsTwo(Sound):
    """Divides by the sample deviation of the batch: fails on a batch of one."""

    def learn(self, batch: Any, predicted: Any) -> None:
        if len(batch.y) < 2:
            raise ValueError("expected more than 1 value per channel")
        super().learn(batch, predicted)


class SeenOnly(Sound):
    """Returns a column for each class seen, not for each that may come."""

    def predict(self, x: torch.Tensor) -> torch.Tensor:
        return super().predict(x)[:, : max(1, int((self.counts > 0).sum()))]


class UnseenWins(Sound):
    """Leaves classes it has never seen at a score of 0, above all distances."""

    def predict(self, x: torch.Tensor) -> torch.Tensor:
        scores = super().predict(x)
        return scores.masked_fill(self.counts == 0, 0.0)


class Peeks(Sound):
    """Reaches around the gate for the labels of the step it is asked about."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.asked = 0

    def predict(self, x: torch.Tensor) -> torch.Tensor:
        scores = super().predict(x)
        truth = self.source._source.label
        place = int(self.counts.sum()) + 8  # as far as held-out samples may push it
        labels = torch.from_numpy(np.resize(truth[place : place + len(x)], len(x)).astype(int))
        return scores.scatter(1, labels[:, None], 1e6)


class AsksAhead(Sound):
    """Asks its source for the sample after the newest."""

    def learn(self, batch: Any, predicted: Any) -> None:
        self.source.read(batch.index.max(keepdims=True) + 4)
        super().learn(batch, predicted)


class KnowsLength(Sound):
    """Lets its step size fall with the share of the stream that is over, undeclared."""

    def learn(self, batch: Any, predicted: Any) -> None:
        weight = 1 - self.counts.sum() / len(self.source._state)
        self.sums.index_add_(0, batch.y, weight * batch.x.flatten(1).float())
        self.counts.index_add_(0, batch.y, torch.ones_like(batch.y, dtype=torch.float32))


class KeepsObject(Sound):
    """Has an object in its state that a checkpoint cannot hold."""

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "object": self.source}


class Perceptron:
    """NumPy weights and NumPy scores."""

    def __init__(self, spec: Any, source: Any, seed: int, device: torch.device) -> None:
        self.weights = np.zeros((int(np.prod(spec.input_shape)), spec.classes))

    def predict(self, x: torch.Tensor) -> Any:
        return x.flatten(1).double().numpy() @ self.weights

    def learn(self, batch: Any, predicted: Any) -> None:
        for x, y in zip(batch.x.flatten(1).double().numpy(), batch.y.tolist(), strict=True):
            wrong = int(np.argmax(x @ self.weights))
            self.weights[:, y] += x
            self.weights[:, wrong] -= x

    def state_dict(self) -> dict[str, Any]:
        return {"weights": self.weights.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.weights = state["weights"]


class _Node:
    """A tree that splits in the middle of its first input and counts how often it was asked."""

    def __init__(self, classes: int, depth: int = 0) -> None:
        self.counts, self.depth, self.asked = np.ones(classes), depth, 0
        self.sum = 0.0
        self.children: list[_Node] = []

    def leaf(self, x: Any) -> _Node:
        self.asked += 1
        if not self.children:
            return self
        at = self.sum / (self.counts.sum() - len(self.counts))
        return self.children[int(x[self.depth] > at)].leaf(x)

    def learn(self, x: Any, y: int) -> None:
        leaf = self.leaf(x)
        leaf.counts[y] += 1
        leaf.sum += float(x[leaf.depth])
        if leaf.counts.sum() > 40 and leaf.depth < 3:
            leaf.children = [_Node(len(leaf.counts), leaf.depth + 1) for _ in range(2)]


class CountingTree:
    """Its pickle changes with every answer, and its answers do not."""

    def __init__(self, spec: Any, source: Any, seed: int, device: torch.device) -> None:
        self.root = _Node(spec.classes)

    def predict(self, x: torch.Tensor) -> Any:
        return np.log([self.root.leaf(row).counts for row in x.flatten(1).numpy()])

    def learn(self, batch: Any, predicted: Any) -> None:
        for x, y in zip(batch.x.flatten(1).numpy(), batch.y.tolist(), strict=True):
            self.root.learn(x, y)

    def state_dict(self) -> dict[str, Any]:
        return {"root": pickle.dumps(self.root)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.root = pickle.loads(state["root"])


class Module:
    """A torch module with its optimiser."""

    def __init__(self, spec: Any, source: Any, seed: int, device: torch.device) -> None:
        torch.manual_seed(seed)
        self.model = torch.nn.Linear(int(np.prod(spec.input_shape)), spec.classes).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)

    def predict(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return self.model(self.inputs(x))

    def learn(self, batch: Any, predicted: Any) -> None:
        self.optimizer.zero_grad()
        scores = self.model(self.inputs(batch.x))
        torch.nn.functional.cross_entropy(scores, batch.y).backward()
        self.optimizer.step()

    def inputs(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1).float()

    def state_dict(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])


class Rows(Module):
    """Takes vectors only."""

    def inputs(self, x: torch.Tensor) -> torch.Tensor:
        return x.float()
