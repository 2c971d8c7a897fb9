"""ADRep with a cosine learning rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from streamgauge.learners.adaptive import adrep, er_cosine


@dataclass(frozen=True)
class Config(er_cosine.Config, adrep.Config):
    policy: Literal["fifo"] = "fifo"
    as_published: bool = False  # as CLOC's code (Cai et al. 2021)


class ADRepCosine(er_cosine.ERCosine, adrep.ADRep):
    """CLOC (Cai et al. 2021), section 5.3: ADRep under the cosine schedule of the memories that it
    is compared with."""

    config: Config
    published = "cloc.PublishedADRepCosine"
