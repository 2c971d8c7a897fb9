"""Networks, heads and their weights. Importing this package loads torch."""

from __future__ import annotations

from streamgauge.errors import packages_for

with packages_for("Building a network"):
    import torch  # noqa: F401

from streamgauge.models.base import (
    UNSEEN,
    CosineHead,
    Head,
    LinearHead,
    Model,
    changed_normalisation,
    refuse_float_images,
    refuse_unused_normalisation,
    to_float,
)
from streamgauge.models.build import BACKBONES, HEADS, build, has_bfloat16, model_name, suit
from streamgauge.models.small import closed_form, slopes
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
    "changed_normalisation",
    "closed_form",
    "has_bfloat16",
    "load_weights",
    "model_name",
    "refuse_float_images",
    "refuse_unused_normalisation",
    "slopes",
    "suit",
    "to_float",
]
