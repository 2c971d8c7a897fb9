"""LwF in the real-time paper's code (Ghunaim et al. 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamgauge.learners.replay.lwf import Config, LwF

if TYPE_CHECKING:
    import torch

    from streamgauge.streams import Gate, Spec


class PublishedLwF(LwF):
    """The teacher stays in training mode, and the distillation has no factor T^2."""

    scaled = False

    def __init__(
        self, spec: Spec, source: Gate, seed: int, device: torch.device, config: Config
    ) -> None:
        super().__init__(spec, source, seed, device, config)
        self.teacher.train()
