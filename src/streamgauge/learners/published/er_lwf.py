"""ER with LwF in the survey's code (Soutif-Cormerais et al. 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from streamgauge.learners.parts.losses import present
from streamgauge.learners.replay.er_lwf import ERLwF

if TYPE_CHECKING:
    from numpy.typing import NDArray


class PublishedERLwF(ERLwF):
    """The teacher stays in training mode, there is no factor T², a task's classes are unmasked when
    it begins, and the classes distilled are those of the second task up to the current one: never
    the first task's, and always the ones that have just begun."""

    scaled = False
    teacher_trains = True

    def tell(self, boundary: int, classes: NDArray[Any]) -> None:
        head = self.model.head
        coming = torch.from_numpy(classes).long().to(self.device)
        head.see(coming)
        if boundary > 0:
            self.keep_teacher(self.known | present(coming, len(head.seen)))
