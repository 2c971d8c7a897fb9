"""GSS in its published code (Aljundi et al. 2019), which the real-time paper uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamgauge.learners.replay.gss import GSS

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


class PublishedGSS(GSS):
    """Candidates are drawn by scores from 0 to 1, and gradients are those of augmented images."""

    def above_lowest(self, score: NDArray[Any]) -> NDArray[Any]:
        lowest: NDArray[Any] = score - score.min()
        return lowest

    def look(self, x: Tensor) -> Tensor:
        return self.view(x)
