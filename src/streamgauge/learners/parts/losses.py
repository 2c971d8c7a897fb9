"""Losses that several methods share: restricted softmax, distillation, supervised contrast.

All are safe where a softmax is: a batch of one class, a single sample, no sample at all.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from streamgauge.models import UNSEEN


def present(y: Tensor, classes: int) -> Tensor:
    """Which classes occur in a batch, as flags [C]; nothing waits for the device.

    >>> present(torch.tensor([2, 0, 2]), 4).tolist()
    [True, False, True, False]
    """
    return torch.zeros(classes, dtype=torch.bool, device=y.device).index_fill_(0, y, True)


def ace_mask(y: Tensor, seen: Tensor) -> Tensor:
    """The classes whose logits get a gradient from the incoming batch in ER-ACE (Caccia et al.
    2022): those in the batch and those never seen, not old classes that are absent from it.

    >>> ace_mask(torch.tensor([1]), seen=torch.tensor([True, True, False])).tolist()
    [False, True, True]
    """
    return present(y, len(seen)) | ~seen


def restricted_cross_entropy(logits: Tensor, y: Tensor, allowed: Tensor) -> Tensor:
    """Mean cross-entropy of a softmax over some classes only; 0 for an empty batch.

    `allowed` has one flag per class, or one per sample and class. No gradient reaches the logits of
    other classes. Where a label is the only class allowed, its term is 0.

    >>> logits = torch.tensor([[1.0, 5.0, 1.0]])
    >>> allowed = torch.tensor([True, False, True])
    >>> round(restricted_cross_entropy(logits, torch.tensor([0]), allowed).item(), 4)  # log 2
    0.6931
    """
    total = F.cross_entropy(logits.masked_fill(~allowed, UNSEEN), y, reduction="sum")
    return total / max(len(y), 1)


def distillation(
    student: Tensor, teacher: Tensor, temperature: float, classes: Tensor, scaled: bool = True
) -> Tensor:
    """KL(softmax(teacher / T) || softmax(student / T)) over some classes, mean over samples. The
    factor T² keeps the size of its gradient when T changes (Hinton et al. 2015, LwF);
    `scaled=False` leaves it out. Both arguments are logits, `classes` are flags [C]; with none set
    the divergence is 0."""
    student_logp, teacher_logp = (
        F.log_softmax((x / temperature).masked_fill(~classes, UNSEEN), 1)
        for x in (student, teacher)
    )
    divergence = F.kl_div(student_logp, teacher_logp, reduction="sum", log_target=True)
    factor = temperature**2 if scaled else 1.0
    return divergence / max(len(student), 1) * factor


def supervised_contrastive(z: Tensor, y: Tensor, temperature: float) -> Tensor:
    """Khosla et al. 2020, equation 2: each sample should be near all others of its class.

        mean over i of  -1/|P(i)| sum over p in P(i) of
            log( exp(z_i z_p / tau) / sum over a != i of exp(z_i z_a / tau) )

    with P(i) the others of the class of i. `z` has one row per view and `y` its label, so two views
    of a sample are two rows. The mean is over rows that have another of their class.
    """
    self_mask = torch.eye(len(y), dtype=torch.bool, device=y.device)
    similarity = (z @ z.T / temperature).masked_fill(self_mask, torch.finfo(z.dtype).min)
    log_prob = (similarity - similarity.logsumexp(1, keepdim=True)).masked_fill(self_mask, 0)
    positives = (y[:, None] == y) & ~self_mask
    count = positives.sum(1)
    per_anchor = (log_prob * positives).sum(1) / count.clamp(min=1)
    return -per_anchor.sum() / (count > 0).sum().clamp(min=1)
