"""PoLRS with ADRep in CLOC's code (Cai et al. 2021)."""

from __future__ import annotations

from streamgauge.learners.adaptive.polrs_adrep import PoLRSADRep
from streamgauge.learners.published.adrep import PublishedADRep
from streamgauge.learners.published.polrs import TiesToHighestRate


class PublishedPoLRSADRep(PoLRSADRep, TiesToHighestRate, PublishedADRep):
    """The new size was never handed to the data set: it is logged as `memory_size`, while replay
    stays within the first size. Ties go to the highest rate, and the accuracy on new samples is
    that of the scored answers."""

    def resize(self) -> None:
        """The size is not used."""
