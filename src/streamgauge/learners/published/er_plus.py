"""ER++ and ER-- in the real-time paper's code (Ghunaim et al. 2023)."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from streamgauge.errors import StreamgaugeError
from streamgauge.learners.replay.er_plus import ERPlus

if TYPE_CHECKING:
    from streamgauge.streams import Spec

PATTERNS = {Fraction(4, 3): (2, 1, 1), Fraction(5, 2): (2, 3)}


class PublishedERPlus(ERPlus):
    """4/3 is 2, 1, 1 steps in turn, 5/2 is 2, 3; other fractions are not in that code."""

    def set_up(self, spec: Spec) -> None:
        super().set_up(spec)
        if self.pace.denominator > 1 and self.pace not in PATTERNS:
            known = " and ".join(map(str, PATTERNS))
            raise StreamgaugeError(
                f"The published code takes whole numbers of steps, {known}, not {self.pace}."
            )

    def steps_of(self, i: int) -> int:
        pattern = PATTERNS.get(self.pace, (int(self.pace),))
        return pattern[i % len(pattern)]
