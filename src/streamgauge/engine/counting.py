"""Right answers counted per task, in tensor operations only, so that nothing waits for a device.

Counts are sums of zeros and ones in fp32, which are exact up to 16 million samples per task.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class HeldOutLabels(NamedTuple):
    """Labels and tasks of some held-out samples, on one device."""

    label: Tensor  # [samples]
    task: Tensor  # [samples]
    tasks: Tensor  # those that occur, in order

    def sums(self, values: Tensor) -> Tensor:
        """Sums of values [samples, ...] over the samples of each task."""
        return (self.task == self.tasks[:, None]).float() @ values.float()


def right(prediction: Tensor, marks: HeldOutLabels) -> Tensor:
    """Right answers of each task.

    >>> import torch
    >>> label, task = torch.tensor([3, 3, 5]), torch.tensor([0, 0, 1])
    >>> marks = HeldOutLabels(label, task, tasks=torch.tensor([0, 1]))
    >>> right(torch.tensor([3, 4, 5]), marks)
    tensor([1., 1.])
    """
    return marks.sums(prediction == marks.label)


def right_within(scores: Tensor, marks: HeldOutLabels, classes: Tensor) -> Tensor:
    """Right answers of each task [tasks, limits] where only classes of tasks up to a limit may be
    answered, among samples of tasks up to that limit; for cumulative accuracy. Among equal scores
    the earlier task's class wins, and within a task the first. `classes` is what `classes_of`
    returns, already on the device."""
    nothing = scores.new_full((len(scores), 1), -torch.inf)
    offered = torch.cat([scores, nothing], 1)[:, classes.flatten()].view(-1, *classes.shape)
    best, column = offered.max(2)
    best_class = classes.expand(len(scores), -1, -1).gather(2, column[:, :, None])[:, :, 0]
    limit = torch.arange(len(classes), device=scores.device)
    before = torch.cat([nothing, best.cummax(1).values[:, :-1]], 1)
    last = torch.where(best > before, limit, -1).cummax(1).values  # the task whose class wins
    choice = torch.where(last < 0, -1, best_class.gather(1, last.clamp(min=0)))
    correct = (choice == marks.label[:, None]) & (marks.task[:, None] <= limit)
    return marks.sums(correct)


def classes_of(class_task: NDArray[Any], limits: int) -> NDArray[np.int64]:
    """The classes of each task [limits, n], as many columns as the largest has; the others' rest is
    a class that does not exist, one past the last.

    >>> classes_of(np.array([1, 0, 0]), 2)
    array([[1, 2],
           [0, 3]])
    """
    groups = [np.flatnonzero(class_task == number) for number in range(limits)]
    table = np.full((limits, max(1, *map(len, groups))), len(class_task))
    for row, group in zip(table, groups, strict=True):
        row[: len(group)] = group
    return table
