"""ER−−: ER slowed down like the method it is compared with, with gradient steps to match."""

from __future__ import annotations

from dataclasses import dataclass

from streamgauge.learners.replay import er_plus


@dataclass(frozen=True)
class Config(er_plus.Config):
    pass


class ERMinus(er_plus.ERPlus):
    """Ghunaim et al. 2023: the learner of ER++ on another clock. Which batches are trained and
    which version answers is decided by `protocol.cost`; give the same number as `steps`, so that
    there is one gradient step a stream step, as in ER, on fewer samples."""
