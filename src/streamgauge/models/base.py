"""The interface of all networks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _get_current_dispatch_mode

from streamgauge.models.heads import Head

if TYPE_CHECKING:
    from streamgauge.models.wide import Wide


class Model(nn.Module):
    """Features, and a head on them. The head is named `fc`, as in published weights.

    A network sets `feature_size`, defines `body`, and gets its head from `build`. With `precision`
    set to bfloat16 the body's products are computed in bfloat16; weights, batch norm's statistics,
    features and the head stay float32. `wide` computes the body faster in that precision.
    """

    feature_size: int
    fc: Head
    precision: torch.dtype = torch.float32
    wide: Wide | None = None

    def body(self, x: Tensor) -> Tensor:
        """[B, ...] of normalised floats -> [B, feature_size]."""
        raise NotImplementedError

    def features(self, x: Tensor) -> Tensor:
        """[B, ...] of normalised floats -> [B, feature_size], in float32."""
        if self.precision == torch.float32:
            return self.body(x)
        # A dispatch mode, such as a FLOP counter, must see the network without padding.
        plain = self.wide is None or not self.training or _get_current_dispatch_mode() is not None
        with torch.autocast(x.device.type, self.precision):
            return (self.body(x) if plain else self.wide(x)).float()  # type: ignore[misc]

    @property
    def head(self) -> Head:
        return self.fc

    def forward(self, x: Tensor) -> Tensor:
        """Logits [B, C]."""
        logits: Tensor = self.fc(self.features(x))
        return logits
