"""ER with LwF in the survey's code (Soutif-Cormerais et al. 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from streamgauge.learners.parts.losses import present
from streamgauge.learners.replay.er_lwf import ERLwF

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


class PublishedERLwF(ERLwF):
    """The teacher stays in training mode, there is no factor T², a task's classes are unmasked when
    it begins, and the classes distilled are those of the second task up to the current one: never
    the first task's, and always the ones that have just begun."""

    scaled = False

    def tell(self, boundary: int, classes: NDArray[Any]) -> None:
        head = self.model.head
        coming = torch.from_numpy(classes).long().to(self.device)
        head.see(coming)
        known = torch.zeros_like(head.seen) if self.teacher is None else self.known
        if boundary > 0:
            self.keep_teacher(known | present(coming, len(head.seen)))

    def keep_teacher(self, known: Tensor) -> None:
        super().keep_teacher(known)
        assert self.teacher is not None
        self.teacher.train()
