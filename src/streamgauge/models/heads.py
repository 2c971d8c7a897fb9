"""Classifiers on top of features, which cannot predict classes not seen yet."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from streamgauge.models.inputs import at_hand

UNSEEN = -1000.0
"""Logit of a class that was not seen yet: never predicted, and no gradient reaches its weights."""


class Head(nn.Module):
    """Base of all heads: `seen`, one flag per class, and the mask made from it.

    The number of outputs is fixed, and logits of classes not seen yet are replaced by -1000. The
    result equals that of a growing head (Soutif-Cormerais et al. 2023), with constant shapes. With
    `masked=False` all outputs count from the start (the fixed head of DER++); `seen` is still set.
    """

    seen: Tensor

    def __init__(self, features: int, classes: int, masked: bool = True) -> None:
        super().__init__()
        self.in_features, self.out_features, self.masked = features, classes, masked
        self.register_buffer("seen", torch.zeros(classes, dtype=torch.bool))

    def see(self, y: Tensor, mask: Tensor | None = None) -> None:
        """Mark classes as seen; with a mask, only labels where it is true.

        Tensor operations of fixed shape only, so nothing waits for the device.
        """
        if mask is None and at_hand(y):
            self.seen.numpy()[y.numpy()] = True  # a tenth of the time of torch
        elif mask is None:
            self.seen.index_fill_(0, y, True)
        else:
            counts = torch.zeros_like(self.seen, dtype=torch.float32)
            counts.index_add_(0, torch.where(mask, y, 0), mask.to(torch.float32))
            self.seen.logical_or_(counts > 0)

    def scores(self, features: Tensor) -> Tensor:
        """Logits [B, C] of all classes, seen or not."""
        raise NotImplementedError

    def forward(self, features: Tensor) -> Tensor:
        logits = self.scores(features)
        return logits.masked_fill(~self.seen, UNSEEN) if self.masked else logits

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, masked={self.masked}"


class LinearHead(Head):
    """logits = W f + b, initialised as `torch.nn.Linear` is.

    >>> head = LinearHead(4, 3)
    >>> head.see(torch.tensor([2, 2]))
    >>> head(torch.ones(1, 4))[0, :2].tolist()
    [-1000.0, -1000.0]
    """

    def __init__(self, features: int, classes: int, masked: bool = True) -> None:
        super().__init__(features, classes, masked)
        linear = nn.Linear(features, classes)
        self.weight, self.bias = linear.weight, linear.bias

    def scores(self, features: Tensor) -> Tensor:
        return F.linear(features, self.weight, self.bias)


class CosineHead(Head):
    """logits = sigma * cos(W, f), with a learnt scale sigma and no bias.

    The cosine classifier of the near-future paper (CosineFC, Hammoud et al. 2023): sigma starts at
    1 and W from U(-1/sqrt(d), 1/sqrt(d)). With many classes that is a very flat softmax at first.
    """

    def __init__(
        self, features: int, classes: int, masked: bool = True, sigma: float = 1.0
    ) -> None:
        super().__init__(features, classes, masked)
        bound = features**-0.5
        self.weight = nn.Parameter(torch.empty(classes, features).uniform_(-bound, bound))
        self.sigma = nn.Parameter(torch.tensor(float(sigma)))

    def scores(self, features: Tensor) -> Tensor:
        return self.sigma * F.linear(F.normalize(features), F.normalize(self.weight))
