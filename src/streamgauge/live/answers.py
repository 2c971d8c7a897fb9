"""Asking a learner, as the loop does, and what is written down of its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamgauge.engine.eager import as_table, ask, confidence
from streamgauge.errors import StreamgaugeError
from streamgauge.learners.adapter import LearnerAdapter
from streamgauge.running.jobs import blank
from streamgauge.streams.gate import fetch

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from streamgauge.learners.base import Learner
    from streamgauge.streams import Source


class Answers(NamedTuple):
    scores: NDArray[Any]
    prediction: NDArray[Any]
    confidence: NDArray[Any]


def answer(learner: Learner, x: Tensor, asked: Any) -> Answers:
    """The learner's answers to a batch; `asked` has the spec that says how many classes fit."""
    table = as_table(ask(learner, x, asked.spec.classes))
    prediction = table.argmax(axis=1)  # the first among equals
    sure = confidence(table, prediction)
    if np.isnan(sure).any():
        raise StreamgaugeError(
            "The learner's scores hold a NaN: its training has diverged; try a lower learning rate."
        )
    return Answers(table, prediction, sure)


def inputs(source: Source, index: NDArray[Any], learner: Learner, device: torch.device) -> Tensor:
    """Inputs by address, as this learner is shown them."""
    if LearnerAdapter(learner).sees_input:
        return fetch(source, index, device)
    return blank(len(index), device)
