"""What every network offers a learner."""

from __future__ import annotations

from torch import Tensor, nn

from streamgauge.models.heads import Head


class Model(nn.Module):
    """Features, and a head on them. The head is named `fc`, as in published weights.

    A network sets `feature_size`, defines `features`, and gets its head from `build`.
    """

    feature_size: int
    fc: Head

    def features(self, x: Tensor) -> Tensor:
        """[B, ...] of normalised floats -> [B, feature_size]."""
        raise NotImplementedError

    @property
    def head(self) -> Head:
        return self.fc

    def forward(self, x: Tensor) -> Tensor:
        """Logits [B, C]."""
        logits: Tensor = self.fc(self.features(x))
        return logits
