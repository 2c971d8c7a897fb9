"""What every network offers a learner."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from streamgauge.models.heads import Head


class Model(nn.Module):
    """Features, and a head on them. The head is named `fc`, as in published weights.

    A network sets `feature_size`, defines `body`, and gets its head from `build`. With `precision`
    set to bfloat16 the body's products are taken in bfloat16; weights, batch norm's statistics,
    features and the head stay float32.
    """

    feature_size: int
    fc: Head
    precision: torch.dtype = torch.float32

    def body(self, x: Tensor) -> Tensor:
        """[B, ...] of normalised floats -> [B, feature_size]."""
        raise NotImplementedError

    def features(self, x: Tensor) -> Tensor:
        """[B, ...] of normalised floats -> [B, feature_size], in float32."""
        if self.precision == torch.float32:
            return self.body(x)
        with torch.autocast(x.device.type, self.precision):
            return self.body(x).float()

    @property
    def head(self) -> Head:
        return self.fc

    def forward(self, x: Tensor) -> Tensor:
        """Logits [B, C]."""
        logits: Tensor = self.fc(self.features(x))
        return logits
