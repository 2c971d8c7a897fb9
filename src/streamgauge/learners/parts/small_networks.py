"""ER's passes over a batch where the network is so small that calling torch costs more than what
is computed: gradients in closed form (`models/closed.py`), and plain SGD where the weights lie.

Only where nothing else was asked for. A method that changes how a pass is made, momentum, weight
decay, a rate in a tensor, random views, bytes as inputs, a GPU, a step that is recorded or
counted: all these go through torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from streamgauge import models
from streamgauge.learners.adapter import has_methods_of
from streamgauge.learners.parts.sgd import forget_gradients

if TYPE_CHECKING:
    from torch import Tensor

    from streamgauge.learners.parts.replay_batch import Sizes
    from streamgauge.learners.replay.er import ER

PASS = ("choose", "loss", "update", "view", "normalise", "scores")  # methods that make a pass


def small_passes(
    learner: ER, like: type[ER], x: Tensor, y: Tensor, old_x: Tensor, old_y: Tensor, sizes: Sizes
) -> dict[str, Any] | None:
    """What `like.train` does and returns, if all of it can be done here; else None, and nothing was
    done."""
    if not x.is_cpu or x.dtype != torch.float32 or not has_methods_of(learner, like, PASS):
        return None
    if x.ndim == 4 and learner.config.augment != "none":
        return None
    (group, *others) = learner.optimizer.param_groups
    if others or group["momentum"] or group["weight_decay"] or group["fused"]:
        return None
    weights = models.closed_form(learner.model, len(x) + max(of_pass[0] for of_pass in sizes))
    if weights is None:
        return None
    forget_gradients(learner.optimizer)  # none is kept, and an old one would mislead
    head, rate = learner.model.head, -group["lr"]
    seen, new_y = head.seen.numpy(), y.numpy()
    seen[new_y] = True
    unseen = ~seen if head.masked else None
    new_x, all_x, all_y = x.flatten(1).numpy(), old_x.flatten(1).numpy(), old_y.numpy()
    place = 0
    for of_pass in sizes:
        recalled = slice(place, place + of_pass[0])
        place += sum(of_pass)
        loss, slopes = models.slopes(
            np.concatenate([new_x, all_x[recalled]]),
            np.concatenate([new_y, all_y[recalled]]),
            unseen,
            weights,
            scale=rate,
        )
        for weight, slope in zip(weights, slopes, strict=True):
            weight += slope
    return {"loss": loss, "recalled": of_pass[0]}
