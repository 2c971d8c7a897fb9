"""The linear probe against plain NumPy: gradient, solution, and what it must be able to tell."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from streamgauge import metrics as m
from streamgauge.errors import StreamgaugeError


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def blobs(seed, n=240, width=6, classes=4, noise=1.0):
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(classes, width))
    label = rng.integers(0, classes, n)
    scale = np.array([100.0, 1, 0.01, 5, 1, 1])[:width]
    return (centres[label] + noise * rng.normal(size=(n, width))) * scale + 3.0, label


def objective(W, b, x, y, C):
    """C * sum of losses + |W|^2 / 2, as logistic regression is often written, and its gradient."""
    z = x @ W.T + b
    z = z - z.max(axis=1, keepdims=True)
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    rows = np.arange(len(y))
    loss = -C * np.log(p[rows, y]).sum() + 0.5 * (W**2).sum()
    p[rows, y] -= 1
    return loss, C * p.T @ x + W, C * p.sum(axis=0)


def slow_probe(x, y, C=1.0, steps=20_000):
    """Standardise, then plain gradient descent until nothing moves."""
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    W, b = np.zeros((y.max() + 1, x.shape[1])), np.zeros(y.max() + 1)
    rate = 1.0 / (C * np.linalg.norm(np.hstack([x, np.ones((len(x), 1))]), 2) ** 2 / 2 + 1)
    for _ in range(steps):
        _, dW, db = objective(W, b, x, y, C)
        W, b = W - rate * dW, b - rate * db
        if max(abs(dW).max(), abs(db).max()) < 1e-9:
            break
    return W, b


@pytest.mark.parametrize("C", [1.0, 0.05])
def test_same_solution_as_gradient_descent(C):
    x, y = blobs(0)
    W, b = slow_probe(x, y, C)
    probe = m.linear_probe(x, y, inverse_penalty=C, tolerance=1e-8, device="cpu")
    assert probe.converged
    assert probe.iterations <= 200
    np.testing.assert_allclose(probe.weight, W, atol=1e-5)
    np.testing.assert_allclose(probe.bias - probe.bias.mean(), b - b.mean(), atol=1e-5)
    standard = (x - x.mean(axis=0)) / x.std(axis=0)
    loss, dW, db = objective(probe.weight, probe.bias, standard, y, C)
    assert max(abs(dW).max(), abs(db).max()) < 1.1e-8 * C * len(x)
    assert probe.loss == pytest.approx(loss / (C * len(x)))


def test_accuracy_is_that_of_the_slow_probe_in_both_precisions():
    x, y = blobs(1)
    test_x, test_y = blobs(2)
    W, b = slow_probe(x, y)
    standard = (test_x - x.mean(axis=0)) / x.std(axis=0)
    expected = np.mean((standard @ W.T + b).argmax(axis=1) == test_y)
    assert 0.4 < expected < 0.95
    for kind in (np.float64, np.float32):
        found = m.probed_accuracy(x.astype(kind), y, test_x.astype(kind), test_y, device="cpu")
        assert found == pytest.approx(expected, abs=1.01 / len(test_y))


def test_repeats_exactly_and_takes_tensors():
    x, y = blobs(3)
    first = m.linear_probe(x, y, device="cpu")
    again = m.linear_probe(torch.as_tensor(x), torch.as_tensor(y))
    np.testing.assert_array_equal(first.weight, again.weight)


def test_the_number_of_iterations_is_a_limit():
    x, y = blobs(4)
    short = m.linear_probe(x, y, iterations=3, device="cpu")
    full = m.linear_probe(x, y, device="cpu")
    assert short.iterations == 3
    assert not short.converged
    assert short.loss > full.loss


def test_separable_unlearnable_and_odd_labels():
    x, y = blobs(5, noise=0.01)
    names = np.array(["owl", "cat", "dog", "ant"])[y]
    assert m.probed_accuracy(x, names, x, names, device="cpu") == 1
    rng = np.random.default_rng(0)
    nothing = np.zeros((len(x), 3))  # constant features: the most frequent class, no NaN
    labels = np.where(rng.random(len(x)) < 0.7, 9, 2)
    assert m.probed_accuracy(nothing, labels, nothing, labels, device="cpu") == np.mean(labels == 9)
    # A class never trained on counts as wrong; a single class is always predicted.
    assert m.probed_accuracy(x, np.full(len(x), 3), x[:4], [3, 3, 8, 8], device="cpu") == 0.5
    assert math.isnan(m.probed_accuracy(x, y, x[:0], y[:0], device="cpu"))


def test_bad_input_gets_a_sentence():
    x, y = blobs(6)
    with pytest.raises(StreamgaugeError, match=r"features \[samples, width\]"):
        m.linear_probe(x, y[:-1], device="cpu")
    x[3, 1] = np.nan
    with pytest.raises(StreamgaugeError, match="NaN or infinite"):
        m.linear_probe(x, y, device="cpu")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_same_on_the_gpu():
    x, y = blobs(7)
    cpu, gpu = m.linear_probe(x, y, device="cpu"), m.linear_probe(x, y, device="cuda")
    np.testing.assert_allclose(gpu.weight, cpu.weight, atol=1e-3)
