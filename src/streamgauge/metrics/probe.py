"""Linear probe: the quality of features, independent of the model's own head."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError, packages_for
from streamgauge.metrics._arrays import Anything, Floats


class LinearProbe(NamedTuple):
    """A fitted multinomial logistic regression on standardised features."""

    classes: Anything  # [C], the labels of the training set, sorted
    mean: Floats  # [D]
    scale: Floats  # [D]
    weight: Floats  # [C, D], on standardised features
    bias: Floats  # [C]
    loss: float  # mean cross-entropy plus penalty / samples, at the end
    iterations: int  # L-BFGS iterations made
    converged: bool  # whether the largest entry of the gradient is below the tolerance

    def predict(self, features: Any) -> Anything:
        """The most probable label of each row."""
        rows = (_numpy(features).astype(np.float64) - self.mean) / self.scale
        return np.asarray(self.classes[(rows @ self.weight.T + self.bias).argmax(axis=1)])


def linear_probe(
    features: Any,
    labels: Any,
    *,
    inverse_penalty: float = 1.0,
    iterations: int = 200,
    tolerance: float = 1e-6,
    device: str | None = None,
) -> LinearProbe:
    """Fit a linear classifier on frozen features.

    Features are standardised (mean 0, population deviation 1; a constant one is only centred), then
    multinomial logistic regression with an L2 penalty on the weights, not on the biases:

        minimise  1/N * sum over n of -log softmax(W x_n + b)[y_n]  +  |W|^2 / (2 C N),

    C = ``inverse_penalty``, from W = 0, b = 0, by at most ``iterations`` of L-BFGS with
    strong-Wolfe line search. Deterministic. ``features`` is ``[N, D]``, an array or a tensor;
    float64 is computed in float64, all else in float32. ``device`` is by default the device of a
    tensor, otherwise the GPU if there is one.

    Source: Soutif-Cormerais et al. 2023, representation quality, as their probe is set up
    (standardised features, C = 1, 200 iterations).
    """
    with packages_for("A linear probe"):
        import torch
        from torch.nn.functional import cross_entropy

    if device is not None:
        target_device = torch.device(device)
    elif isinstance(features, torch.Tensor):
        target_device = features.device
    else:
        target_device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    x = torch.as_tensor(features).detach()
    x = x.to(target_device, torch.float64 if x.dtype == torch.float64 else torch.float32)
    classes, target = np.unique(_numpy(labels), return_inverse=True)
    if x.ndim != 2 or len(x) != len(target) or not len(x):
        raise StreamgaugeError(
            "a linear probe needs features [samples, width] and one label per sample, but got "
            f"features {tuple(x.shape)} and {len(target)} labels."
        )
    if not bool(torch.isfinite(x).all()):
        raise StreamgaugeError("the features of a linear probe contain NaN or infinite values.")
    y = torch.as_tensor(target, dtype=torch.int64, device=target_device)

    mean = x.mean(dim=0)
    scale = x.std(dim=0, correction=0)
    # A deviation that is only rounding error must not be scaled to 1.
    floor = 10 * torch.finfo(x.dtype).eps * x.abs().amax(dim=0)
    scale = torch.where(scale > floor, scale, torch.ones_like(scale))
    x = (x - mean) / scale

    weight = torch.zeros(
        len(classes), x.shape[1], dtype=x.dtype, device=target_device, requires_grad=True
    )
    bias = torch.zeros(len(classes), dtype=x.dtype, device=target_device, requires_grad=True)
    penalty = 0.5 / (inverse_penalty * len(x))
    solver = torch.optim.LBFGS(
        [weight, bias],
        max_iter=iterations,
        max_eval=20 * iterations,
        tolerance_grad=tolerance,
        tolerance_change=0.0,
        history_size=10,
        line_search_fn="strong_wolfe",
    )

    def objective() -> Any:
        solver.zero_grad()
        loss = cross_entropy(x @ weight.T + bias, y) + penalty * weight.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    solver.step(objective)  # type: ignore[no-untyped-call]
    final_loss = objective()
    largest_gradient = max(float(p.grad.abs().max()) for p in (weight, bias) if p.grad is not None)
    state = solver.state[solver.param_groups[0]["params"][0]]
    return LinearProbe(
        classes=classes,
        mean=_numpy(mean).astype(np.float64),
        scale=_numpy(scale).astype(np.float64),
        weight=_numpy(weight).astype(np.float64),
        bias=_numpy(bias).astype(np.float64),
        loss=float(final_loss.detach()),
        iterations=int(state.get("n_iter", 0)),
        converged=largest_gradient <= tolerance,
    )


def probed_accuracy(
    train_features: Any,
    train_labels: Any,
    test_features: Any,
    test_labels: Any,
    **options: Any,
) -> float:
    """Accuracy on held-out data of a linear classifier fitted on the frozen features.

    Fit :func:`linear_probe` (``options``) on the features of all data seen so far, and score it on
    the held-out data of the same tasks; a held-out label that was never trained on counts as wrong.
    NaN if there is no held-out sample. The difference to the model's own accuracy is due to the
    model's head.

    Source: Soutif-Cormerais et al. 2023, probed accuracy at task boundaries.

    >>> features = np.array([[0.0], [0.2], [1.0], [1.2]])
    >>> probed_accuracy(features, [0, 0, 1, 1], [[0.1], [1.1], [1.3]], [0, 1, 0], device="cpu")
    0.6666666666666666
    """
    probe = linear_probe(train_features, train_labels, **options)
    labels = _numpy(test_labels)
    if not len(labels):
        return float("nan")
    return float(np.mean(probe.predict(test_features) == labels))


def _numpy(values: Any) -> NDArray[Any]:
    """A NumPy array of an array, a list, or a tensor on any device."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    return np.asarray(values)
