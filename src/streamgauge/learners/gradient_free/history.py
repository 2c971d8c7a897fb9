"""The blind family: forecasts the next label from past labels, never sees an input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from streamgauge.history.forecasters import Forecaster

if TYPE_CHECKING:
    from torch import Tensor

    from streamgauge.learners.base import Batch
    from streamgauge.streams import Gate, Spec


class History:
    """What label correlation of any known form is worth: frequencies that forget, transitions,
    repeats, the least recently seen class and periods, mixed by their past likelihoods. Row n of a
    batch is forecast n samples ahead, as far as steps are long; further rows get the answer of the
    first."""

    answers_cheaply = True
    sees_input = False
    unbounded = True  # counts per context grow with the stream, up to about 70 MB

    def __init__(self, spec: Spec, source: Gate, seed: int, device: torch.device) -> None:
        self.classes, self.device = spec.classes, device
        self.forecaster = Forecaster(spec.classes)
        self.step = 0  # samples in the step learnt last

    def predict(self, x: Tensor) -> Tensor:
        # Only periods tell the samples of one step apart.
        periodic = self.forecaster.state.periods.any()
        ahead = range(max(1, min(len(x), self.step)) if periodic else 1)
        scores = np.stack([self._scores(n) for n in ahead])
        rows = np.arange(len(x))
        rows[rows >= len(scores)] = 0
        return torch.from_numpy(scores[rows]).float().to(self.device)

    def _scores(self, ahead: int) -> NDArray[np.float64]:
        share = self.forecaster.probabilities(ahead=ahead)[: self.classes]
        scores = np.log(np.maximum(share, 1e-12))
        top = max(0, self.forecaster.top(ahead=ahead))  # class 0 before the first label
        scores[top] = scores.max() + 1e-3  # settles ties and no more
        return scores

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any]:
        if not self.step:  # nothing was learnt before
            self.forecaster = Forecaster(self.classes, delayed=len(batch.labels()) > 1)
        self.step = len(batch.labels())
        self.forecaster.learn(batch.labels())
        return {}

    def memory_bytes(self) -> int:
        return sum(array.nbytes for array in self.forecaster.state)

    def state_dict(self) -> dict[str, Any]:
        return {"forecaster": self.forecaster.save(), "step": self.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.forecaster.load(state["forecaster"])
        self.step = int(state["step"])
