"""ER with a cosine rate in CLOC's code (Cai et al. 2021)."""

from __future__ import annotations

from math import floor

from streamgauge.learners.adaptive.er_cosine import ERCosine

SLICES = 90


class PublishedERCosine(ERCosine):
    """The stream has 90 equal slices, and the rate changes at the beginning of each."""

    def done(self, t: int) -> float:
        return floor(super().done(t) * SLICES) / SLICES
