"""Online standardisation of vector inputs, with statistics of trained samples only.

Location and spread of each column come from a reservoir of trained rows: the median, and the width
of a range of quantiles, which outliers do not change. The reservoir is drawn by a hash of the row
count, so equal streams give equal statistics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import packages_for

if TYPE_CHECKING:
    from torch import Tensor

ROWS = 1000  # of the reservoir
MOST_VALUES = 1 << 22  # of the reservoir: very wide inputs get fewer rows
CLIP = 10.0  # standardised values beyond this are cut
GROWTH = 1.05  # statistics are computed again when the count has grown by this factor
# Ranges of quantiles, and their width for a normal distribution of spread 1. The first range that
# is not empty gives the spread of a column.
RANGES = ((0.25, 0.75, 1.349), (0.05, 0.95, 3.290), (0.01, 0.99, 4.653), (0.0, 1.0, 6.0))

Floats = NDArray[np.float32]


class OnlineScaler:
    """Standardises the first `scaled` of `width` columns; the others stay as they are.

    NaN is a missing value and becomes the column's median, which is 0 after scaling. Before the
    first `update` values are only clipped.

    >>> scaler = OnlineScaler(width=2, scaled=1)
    >>> changes = scaler.update(np.array([[100.0, 1.0], [300.0, 0.0], [200.0, 0.0]]))
    >>> scaler(np.array([[200.0, 1.0], [np.nan, 0.0], [1e30, 1.0]])).tolist()
    [[0.0, 1.0], [0.0, 0.0], [10.0, 1.0]]
    """

    def __init__(self, width: int, scaled: int) -> None:
        self.scaled, self.count, self._due = scaled, 0, 1
        capacity = max(1, min(ROWS, MOST_VALUES // max(1, scaled)))
        self._rows = np.empty((capacity, scaled), np.float32)
        self._location, self._factor = np.zeros(width, np.float32), np.ones(width, np.float32)
        with packages_for("Scaling inputs online"):
            import torch

        # The statistics at fixed addresses on a device, as recorded steps need them; on the CPU
        # they are these arrays.
        self._tensors = (torch.from_numpy(self._location), torch.from_numpy(self._factor))

    def update(self, x: Any) -> tuple[Floats, Floats] | None:
        """Take in the rows of a batch that is about to be trained, as an array or a tensor.

        Where that changes the statistics: the factor and the offset per column that make
        values standardised before into values standardised from now on, but for clipping."""
        number = np.arange(self.count, self.count + len(x), dtype=np.uint64)
        slot = np.where(number < len(self._rows), number, _hash(number) % (number + np.uint64(1)))
        enter = np.flatnonzero(slot < len(self._rows))
        self.count += len(x)
        if len(enter):
            # Only rows that enter the reservoir are fetched from a device.
            rows = x[:, : self.scaled]
            rows = rows[enter.tolist()].cpu().numpy() if hasattr(x, "cpu") else rows[enter]
            # Of two rows for one slot the last one stays, as if they came one by one.
            self._rows[slot[enter].astype(np.int64)] = rows
        return self._compute() if self.count >= self._due else None

    def _compute(self) -> tuple[Floats, Floats]:
        before, factor = self._location.copy(), self._factor.copy()
        self._due = max(self.count + 1, int(self.count * GROWTH))
        location, spread = location_and_spread(self._rows[: min(self.count, len(self._rows))])
        self._location[: self.scaled] = location
        self._factor[: self.scaled] = 1 / spread
        self._send()
        return self._factor / factor, (before - self._location) * self._factor

    def __call__(self, x: NDArray[Any]) -> Floats:
        """Standardised copies of some rows."""
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = (x - self._location) * self._factor
        scaled = np.clip(scaled, -CLIP, CLIP)
        missing = np.isnan(scaled)
        if missing.any():
            scaled[missing] = 0.0
        values: Floats = scaled.astype(np.float32, copy=False)
        return values

    def in_turns(self, x: NDArray[Any], ends: NDArray[Any]) -> tuple[Floats, Floats]:
        """Standardised rows as they are answered and as they are learnt, where the rows of each
        step are answered, taken in and learnt before those of the next. A step ends before each of
        the rows `ends`."""
        answered, learnt = np.empty(x.shape, np.float32), dict[int, Floats]()
        begin, step = 0, 0
        while begin < len(x):  # up to the step that changes the statistics
            step = min(step + int(np.searchsorted(ends[step:], begin + self._due - self.count)),
                       len(ends) - 1)  # fmt: skip
            end = int(ends[step])
            answered[begin:end] = self(x[begin:end])
            if self.update(x[begin:end]) is not None:
                first = int(ends[step - 1]) if step else 0
                learnt[first] = self(x[first:end])
            begin, step = end, step + 1
        if not learnt:
            return answered, answered
        as_learnt = answered.copy()
        for first, rows in learnt.items():
            as_learnt[first : first + len(rows)] = rows
        return answered, as_learnt

    def on_tensor(self, x: Tensor) -> Tensor:
        """The same, of a tensor on any device."""
        if self._tensors[0].device != x.device:
            self._tensors = tuple(values.to(x.device) for values in self._tensors)  # type: ignore[assignment]
        location, factor = self._tensors
        return ((x - location) * factor).clamp(-CLIP, CLIP).nan_to_num(0.0)

    def _send(self) -> None:
        import torch

        for tensor, values in zip(self._tensors, (self._location, self._factor), strict=True):
            if not tensor.is_cpu:
                tensor.copy_(torch.from_numpy(values))

    def state_dict(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "due": self._due,
            "rows": self._rows[: min(self.count, len(self._rows))].copy(),
            "location": self._location.copy(),
            "factor": self._factor.copy(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count, self._due = int(state["count"]), int(state["due"])
        rows = np.asarray(state["rows"])
        self._rows[: len(rows)] = rows
        self._location[:] = np.asarray(state["location"])
        self._factor[:] = np.asarray(state["factor"])
        self._send()


def location_and_spread(rows: Floats) -> tuple[Floats, Floats]:
    """Per column the median and the spread of finite values; 0 and 1 where there are none, and a
    spread of 1 where all values are equal."""
    finite = np.isfinite(rows)
    ordered = np.sort(np.where(finite, rows, np.inf), axis=0).astype(np.float64)
    count = finite.sum(axis=0)
    column = np.arange(rows.shape[1])

    def quantile(share: float) -> NDArray[np.float64]:
        at = share * np.maximum(count - 1, 0)
        low = np.floor(at).astype(np.int64)
        high = np.minimum(low + 1, np.maximum(count - 1, 0))
        below, above = ordered[low, column], ordered[high, column]
        value: NDArray[np.float64] = np.where(count > 0, below + (above - below) * (at - low), 0.0)
        return value

    with np.errstate(invalid="ignore"):
        location, spread = quantile(0.5), np.zeros(rows.shape[1])
        for low, high, width in RANGES:
            if (spread > 0).all():
                break
            spread = np.where(spread > 0, spread, (quantile(high) - quantile(low)) / width)
    smallest = np.finfo(np.float32).tiny
    spread = np.where(spread > smallest, spread, 1.0)
    return location.astype(np.float32), spread.astype(np.float32)


def _hash(number: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64: a fixed sequence of numbers that look random."""
    with np.errstate(over="ignore"):
        z = (number + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
