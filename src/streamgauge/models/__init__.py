"""Networks, heads and their weights. Importing this package loads torch."""

from __future__ import annotations

from streamgauge.models.base import Model
from streamgauge.models.build import BACKBONES, HEADS, build
from streamgauge.models.closed import closed_form, slopes
from streamgauge.models.heads import UNSEEN, CosineHead, Head, LinearHead
from streamgauge.models.inputs import to_float
from streamgauge.models.placement import has_bfloat16, suit
from streamgauge.models.weights import Loaded, load_weights

__all__ = [
    "BACKBONES",
    "HEADS",
    "UNSEEN",
    "CosineHead",
    "Head",
    "LinearHead",
    "Loaded",
    "Model",
    "build",
    "closed_form",
    "has_bfloat16",
    "load_weights",
    "slopes",
    "suit",
    "to_float",
]
