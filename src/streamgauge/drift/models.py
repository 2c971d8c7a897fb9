"""Small models with a closed-form solution: deterministic, trained in seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
InputReader = Callable[[Ints], NDArray[Any]]

MAX_FEATURES = 1024  # more features than this are projected
PROJECTIONS = 512  # and number of random Fourier features
RIDGE = 0.01
CHUNK = 2048


class FeatureScaling:
    """Features of inputs of any shape, the same for all models.

    Bytes are divided by 255; more than 1,024 features are projected onto 512 random directions;
    features are standardised. 512 random Fourier features of a Gaussian kernel (width: the median
    distance; Rahimi and Recht 2007) are appended, so that a linear model can fit non-linear
    functions. Labels are not used.
    """

    def __init__(self, read: InputReader, sample: Ints, seed: int) -> None:
        self.read = read
        rng = np.random.default_rng([seed, 11])
        width = self._flat(sample[:1]).shape[1]
        self.project: NDArray[np.float32] | None = None
        if width > MAX_FEATURES:
            directions = rng.standard_normal((width, PROJECTIONS), np.float32)
            self.project = directions / np.float32(np.sqrt(PROJECTIONS))
        raw = np.concatenate([self._projected(chunk) for chunk in _chunks(sample)])
        self.mean, self.scale = raw.mean(axis=0), raw.std(axis=0)
        self.scale[self.scale < 1e-12] = 1
        subset = raw[rng.choice(len(raw), min(500, len(raw)), replace=False)]
        subset = (subset - self.mean) / self.scale
        square = (subset**2).sum(axis=1)
        distances = np.sqrt((square[:, None] + square - 2 * subset @ subset.T).clip(0))
        distances = distances[np.triu_indices(len(subset), 1)]
        median_distance = (
            float(np.median(distances[distances > 1e-6])) if (distances > 1e-6).any() else 1.0
        )
        self.frequencies = rng.standard_normal((len(self.mean), PROJECTIONS)) / median_distance
        self.phase = rng.uniform(0, 2 * np.pi, PROJECTIONS)

    def _flat(self, index: Ints) -> NDArray[np.float32]:
        x = np.asarray(self.read(index))
        flat = x.reshape(len(x), -1)
        return flat.astype(np.float32) / np.float32(255 if x.dtype == np.uint8 else 1)

    def _projected(self, index: Ints) -> Floats:
        flat = self._flat(index)
        return (flat if self.project is None else flat @ self.project).astype(np.float64)

    def __call__(self, index: Ints) -> Floats:
        standardised = (self._projected(index) - self.mean) / self.scale
        fourier = np.sqrt(2 / PROJECTIONS) * np.cos(standardised @ self.frequencies + self.phase)
        return np.concatenate([standardised, fourier], axis=1)


class RidgeRegression:
    """Ridge regression onto one column per class; predicts the class with the largest score.

    W = (X'X + .01 t I)^-1 X'Y with centred X and Y and t the mean diagonal entry of X'X; Y is 1 for
    the sample's class and 0 for others. Classes without training samples are never predicted.
    """

    def __init__(self, inputs: FeatureScaling, index: Ints, label: Ints) -> None:
        x = np.concatenate([inputs(chunk) for chunk in _chunks(index)])
        self.mean = x.mean(axis=0)
        x -= self.mean
        self.present, code, count = np.unique(label, return_inverse=True, return_counts=True)
        starts = np.concatenate([[0], np.cumsum(count)[:-1]])
        sums = np.add.reduceat(x[np.argsort(code, kind="stable")], starts, axis=0)  # Y'X
        gram = x.T @ x
        gram[np.diag_indices_from(gram)] += RIDGE * max(float(np.trace(gram)) / len(gram), 1e-12)
        self.weight = np.linalg.solve(gram, sums.T)
        self.bias = count / len(label)

    def scores(self, x: Floats) -> Floats:
        scores: Floats = (x - self.mean) @ self.weight + self.bias
        return scores

    def predict(self, x: Floats) -> Ints:
        predictions: Ints = self.present[self.scores(x).argmax(axis=1)]
        return predictions


def _chunks(index: Ints) -> list[Ints]:
    return [index[start : start + CHUNK] for start in range(0, len(index), CHUNK)]


def scores_blind(label: Ints, train: list[Ints], test: Ints, classes: int) -> NDArray[np.float32]:
    """Probability that a guess by each model's class frequencies is correct, `[models, tests]`."""
    shares = [np.bincount(label[index], minlength=classes) / len(index) for index in train]
    return np.stack([share[label[test]] for share in shares]).astype(np.float32)


def scores_with_inputs(
    label: Ints, train: list[Ints], test: Ints, read: InputReader, seed: int
) -> NDArray[np.float32]:
    """Whether each model is correct, `[models, tests]`; the last training set scales the inputs."""
    inputs = FeatureScaling(read, train[-1], seed)
    models = [RidgeRegression(inputs, index, label[index]) for index in train]
    correct = np.empty((len(models), len(test)), np.float32)
    for start in range(0, len(test), CHUNK):
        chunk = test[start : start + CHUNK]
        x = inputs(chunk)
        for row, model in enumerate(models):
            correct[row, start : start + len(chunk)] = model.predict(x) == label[chunk]
    return correct
