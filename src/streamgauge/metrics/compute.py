"""Cost of training in FLOPs, and the Pareto front of cost and accuracy."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamgauge.metrics._arrays import same_length
from streamgauge.metrics.log import RunLog, table_of


def training_flops(log: RunLog) -> float:
    """The FLOPs of all jobs of a run: training, storing, and preparing for evaluations.

    Sum of ``jobs.flops``. Predictions and evaluations are not included, as in Ghunaim et al. 2023.
    NaN if the FLOPs of one job are unknown, if no jobs were logged, or if nothing was counted in
    any of them: a learner that does not train with torch has unknown FLOPs, not 0.

    >>> from streamgauge.metrics._example import LOG
    >>> training_flops(LOG)
    12.0
    """
    # float64, since int64 would overflow: a GPU makes about 10^19 FLOPs per day.
    flops = table_of(log, "jobs").get("flops")
    total = 0.0 if flops is None else float(np.sum(flops, dtype=np.float64))
    return total or float("nan")


def pareto_front(cost: ArrayLike, value: ArrayLike) -> NDArray[np.bool_]:
    """Which entries are on the Pareto front: no other entry has a cost that is lower or equal and a
    value that is higher or equal, with one of them strictly better. Duplicates of an entry on the
    front are on the front; an entry with a NaN never is.

    >>> pareto_front([1, 2, 2, 3], [0.5, 0.4, 0.7, 0.7])
    array([ True, False,  True, False])
    """
    costs, values = same_length(cost=cost, value=value)
    costs, values = costs.astype(np.float64), values.astype(np.float64)
    front = ~(np.isnan(costs) | np.isnan(values))
    order = np.lexsort((-values, costs))
    order = order[front[order]]
    if len(order):
        # In order of cost, an entry must have a higher value than all cheaper entries.
        best = np.maximum.accumulate(values[order])
        before = np.concatenate([[-np.inf], best[:-1]])
        first = np.concatenate([[0], np.flatnonzero(np.diff(costs[order])) + 1])
        group = np.repeat(first, np.diff([*first, len(order)]))
        front[order] = (values[order] > before[group]) & (values[order] == values[order][group])
    return front
