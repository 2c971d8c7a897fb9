"""LwF in the real-time paper's code (Ghunaim et al. 2023)."""

from __future__ import annotations

from streamgauge.learners.replay.lwf import LwF


class PublishedLwF(LwF):
    """The teacher stays in training mode, and the distillation has no factor T^2."""

    scaled = False
    teacher_trains = True
