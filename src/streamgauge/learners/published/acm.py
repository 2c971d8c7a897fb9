"""ACM in its authors' code (Prabhu et al. 2023)."""

from __future__ import annotations

from streamgauge.learners.gradient_free.acm import ACM


class PublishedACM(ACM):
    """A tie goes to the smallest class number, not to the nearest neighbour."""

    smallest_wins = True
