"""ER's passes over a batch for networks so small that calling torch costs more than computing:
gradients in closed form (`models/closed.py`), and plain SGD in place.

Everything else goes through torch: a method that overrides how a pass is made, momentum, weight
decay, a rate in a tensor, random views, bytes as inputs, a GPU, a step that is recorded or counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from streamgauge import models
from streamgauge.learners.adapter import has_methods_of
from streamgauge.learners.parts.sgd import forget_gradients

if TYPE_CHECKING:
    from streamgauge.learners.parts.replay_batch import Sizes
    from streamgauge.learners.replay.er import ER


PASS = ("choose", "loss", "update", "view", "normalise", "scores")  # methods that make a pass


def small_passes(
    learner: ER, like: type[ER], x: Tensor, y: Tensor, old_x: Tensor, old_y: Tensor, sizes: Sizes
) -> dict[str, Any] | None:
    """What `like.train` does and returns, if a closed form can do it; else None, and nothing was
    changed."""
    if not x.is_cpu or x.dtype != torch.float32 or not has_methods_of(learner, like, PASS):
        return None
    if x.ndim == 4 and learner.config.augment != "none":
        return None
    (group, *others) = learner.optimizer.param_groups
    if others or group["momentum"] or group["weight_decay"] or group["fused"]:
        return None
    weights = models.closed_form(learner.model, len(x) + max(parts[0] for parts in sizes))
    if weights is None:
        return None
    forget_gradients(learner.optimizer)  # none is computed, and an old one would be wrong
    head, rate = learner.model.head, -group["lr"]
    seen, new_y = head.seen.numpy(), y.numpy()
    seen[new_y] = True
    unseen = ~seen if head.masked else None
    new_x, all_x, all_y = x.flatten(1).numpy(), old_x.flatten(1).numpy(), old_y.numpy()
    start = 0
    for pass_sizes in sizes:
        recalled = slice(start, start + pass_sizes[0])
        start += sum(pass_sizes)
        loss, slopes = models.slopes(
            np.concatenate([new_x, all_x[recalled]]),
            np.concatenate([new_y, all_y[recalled]]),
            unseen,
            weights,
            scale=rate,
        )
        for weight, slope in zip(weights, slopes, strict=True):
            weight += slope
    return {"loss": loss, "recalled": pass_sizes[0]}
