"""NCM in the near-future paper's code (Hammoud et al. 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamgauge.learners.gradient_free.ncm import NCM

if TYPE_CHECKING:
    from torch import Tensor


class PublishedNCM(NCM):
    """A class not seen yet has the mean 0, and may win."""

    def predict(self, x: Tensor) -> Tensor:
        return self.scores(x)
