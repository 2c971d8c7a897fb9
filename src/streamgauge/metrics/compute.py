"""What an accuracy took: FLOPs of training, and who is worth them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamgauge.metrics._arrays import same_length
from streamgauge.metrics.log import Log, table_of


def training_flops(log: Log) -> float:
    """The FLOPs of all jobs of a run: training, storing, and preparing for evaluations.

    Sum of ``jobs.flops``. Answers and evaluations are not in it, as in the real-time paper
    (Ghunaim et al. 2023). NaN where the FLOPs of a job, or all jobs, are unknown.

    >>> from types import SimpleNamespace
    >>> training_flops(SimpleNamespace(jobs={"flops": np.array([5.0, 7.0])}))
    12.0
    """
    # Whole numbers would wrap around: a day of a GPU is some 10^19 of them.
    flops = table_of(log, "jobs").get("flops")
    return (
        float("nan") if flops is None or not len(flops) else float(np.sum(flops, dtype=np.float64))
    )


def pareto_front(cost: ArrayLike, value: ArrayLike) -> NDArray[np.bool_]:
    """Which of several are worth their cost: nothing else costs no more and is worth no less, one
    of the two strictly. Equal ones are all in it; a NaN never is.

    >>> pareto_front([1, 2, 2, 3], [0.5, 0.4, 0.7, 0.7])
    array([ True, False,  True, False])
    """
    costs, values = same_length(cost=cost, value=value)
    costs, values = costs.astype(np.float64), values.astype(np.float64)
    front = ~(np.isnan(costs) | np.isnan(values))
    order = np.lexsort((-values, costs))
    order = order[front[order]]
    if len(order):
        # Sorted by cost, dearer ones must be worth more than everything before them.
        best = np.maximum.accumulate(values[order])
        before = np.concatenate([[-np.inf], best[:-1]])
        first = np.concatenate([[0], np.flatnonzero(np.diff(costs[order])) + 1])
        group = np.repeat(first, np.diff([*first, len(order)]))
        front[order] = (values[order] > before[group]) & (values[order] == values[order][group])
    return front
