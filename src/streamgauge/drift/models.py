"""Light models with a closed form: the same data give the same model, in seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Read = Callable[[Ints], NDArray[Any]]

WIDE = 1024  # features beyond which they are projected
KEPT = 512  # projections, and waves
RIDGE = 0.01
PIECE = 2048


def frequencies(label: Ints, classes: int) -> Floats:
    """Share of each class: all that a model without inputs can know."""
    return np.bincount(label, minlength=classes) / len(label)


class Inputs:
    """Inputs of any shape as a moderate number of features, the same for all models.

    Bytes are divided by 255, more than 1,024 features are projected onto 512 random directions, and
    they are standardised. Beside them stand 512 random waves (random Fourier features of a Gaussian
    kernel as wide as the median distance, Rahimi and Recht 2007), so that a linear model can follow
    what is not linear. Nothing here looks at a label.
    """

    def __init__(self, read: Read, sample: Ints, seed: int) -> None:
        self.read = read
        rng = np.random.default_rng([seed, 11])
        width = self._flat(sample[:1]).shape[1]
        self.project: NDArray[np.float32] | None = None
        if width > WIDE:
            drawn = rng.standard_normal((width, KEPT), np.float32)
            self.project = drawn / np.float32(np.sqrt(KEPT))
        raw = np.concatenate([self._plain(part) for part in _pieces(sample)])
        self.mean, self.scale = raw.mean(axis=0), raw.std(axis=0)
        self.scale[self.scale < 1e-12] = 1
        few = raw[rng.choice(len(raw), min(500, len(raw)), replace=False)]
        few = (few - self.mean) / self.scale
        square = (few**2).sum(axis=1)
        away = np.sqrt((square[:, None] + square - 2 * few @ few.T).clip(0))
        away = away[np.triu_indices(len(few), 1)]
        middle = float(np.median(away[away > 1e-6])) if (away > 1e-6).any() else 1.0
        self.waves = rng.standard_normal((len(self.mean), KEPT)) / middle
        self.phase = rng.uniform(0, 2 * np.pi, KEPT)

    def _flat(self, index: Ints) -> NDArray[np.float32]:
        x = np.asarray(self.read(index))
        flat = x.reshape(len(x), -1)
        return flat.astype(np.float32) / np.float32(255 if x.dtype == np.uint8 else 1)

    def _plain(self, index: Ints) -> Floats:
        flat = self._flat(index)
        return (flat if self.project is None else flat @ self.project).astype(np.float64)

    def __call__(self, index: Ints) -> Floats:
        plain = (self._plain(index) - self.mean) / self.scale
        waves = np.sqrt(2 / KEPT) * np.cos(plain @ self.waves + self.phase)
        return np.concatenate([plain, waves], axis=1)


class Linear:
    """Least squares onto one column a class, with a ridge; answers with the largest.

    W = (X'X + .01 t I)^-1 X'Y with centred X and Y and t the mean diagonal entry of X'X; Y is 1 for
    the sample's class and 0 for others. Rare classes win only where they are sure, and classes that
    were not there to learn never.
    """

    def __init__(self, inputs: Inputs, index: Ints, label: Ints) -> None:
        x = np.concatenate([inputs(part) for part in _pieces(index)])
        self.mean = x.mean(axis=0)
        x -= self.mean
        self.present, place, count = np.unique(label, return_inverse=True, return_counts=True)
        begin = np.concatenate([[0], np.cumsum(count)[:-1]])
        sums = np.add.reduceat(x[np.argsort(place, kind="stable")], begin, axis=0)  # Y'X
        gram = x.T @ x
        gram[np.diag_indices_from(gram)] += RIDGE * max(float(np.trace(gram)) / len(gram), 1e-12)
        self.weight = np.linalg.solve(gram, sums.T)
        self.bias = count / len(label)

    def scores(self, x: Floats) -> Floats:
        found: Floats = (x - self.mean) @ self.weight + self.bias
        return found

    def predict(self, x: Floats) -> Ints:
        answer: Ints = self.present[self.scores(x).argmax(axis=1)]
        return answer


def _pieces(index: Ints) -> list[Ints]:
    return [index[start : start + PIECE] for start in range(0, len(index), PIECE)]


def scores_blind(label: Ints, train: list[Ints], test: Ints, classes: int) -> NDArray[np.float32]:
    """Chance that a guess drawn from each model's class frequencies is right, `[models, tests]`."""
    return np.stack([frequencies(label[index], classes)[label[test]] for index in train]).astype(
        np.float32
    )


def scores_seeing(
    label: Ints, train: list[Ints], test: Ints, read: Read, seed: int
) -> NDArray[np.float32]:
    """Whether each model is right, `[models, tests]`; the last model's samples scale the inputs."""
    inputs = Inputs(read, train[-1], seed)
    models = [Linear(inputs, index, label[index]) for index in train]
    right = np.empty((len(models), len(test)), np.float32)
    for start in range(0, len(test), PIECE):
        part = test[start : start + PIECE]
        x = inputs(part)
        for number, model in enumerate(models):
            right[number, start : start + len(part)] = model.predict(x) == label[part]
    return right
