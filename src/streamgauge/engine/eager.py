"""The plain engine: every operation is called."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from streamgauge.errors import StreamgaugeError
from streamgauge.learners.adapter import LearnerAdapter, rate_advice
from streamgauge.learners.base import Learner


def not_finite(learner: Any) -> StreamgaugeError:
    """The error for scores without a number. It advises what the learner has."""
    rate = rate_advice(learner)
    advice = f"If its training has diverged: {rate}, or standardise" if rate else "Standardise"
    return StreamgaugeError(
        "The learner's scores hold a NaN, or for some sample no finite value at all."
        f" {advice} inputs that are not (--stream.scale online for tables and arrays)."
    )


class Answers(NamedTuple):
    """The answers to some samples. Prediction and confidence may still be on the device."""

    scores: Any  # a tensor, or None where they are no longer needed
    prediction: Any
    confidence: Any


class Eager:
    """Also the base of the other engine."""

    name = "eager"
    precision: str | None = None  # of evaluation, where it differs from the learner's
    say: Callable[[str], None] = staticmethod(print)  # gets messages for the user
    reason = ""  # why a learner is not recorded although recording was requested

    def scope(self) -> AbstractContextManager[Any]:
        """A context that all work of a run happens in."""
        return nullcontext()

    def adopt(self, adapter: LearnerAdapter, classes: int) -> None:
        self.learner, self.classes = adapter.learner, classes

    def answer(self, x: Tensor, y: Tensor | None = None) -> Answers:
        """Predict samples. Labels are for counting right answers, where the engine counts."""
        return self.judge(ask(self.learner, x, self.classes))

    def judge(self, scores: Tensor) -> Answers:
        """Predictions and confidences; scores with a NaN are refused."""
        table = as_table(scores)
        prediction = table.argmax(axis=1)  # the first of equal ones
        confidences = confidence(table, prediction)
        if np.isnan(confidences).any():
            raise not_finite(self.learner)
        return Answers(scores, prediction, confidences)

    def scores(self, x: Tensor) -> Tensor:
        """Scores of held-out samples, which nothing is ever learnt from."""
        with torch.inference_mode():
            return ask(self.learner, x, self.classes)

    def counts(self, heldout: Any, asked: int) -> Any:
        """Right answers per task among the first held-out samples; None: the caller must count."""
        return None

    def exact(self, x: Tensor) -> Tensor | None:
        """Scores in fp32, where `scores` are not."""
        return None

    def drain(self) -> tuple[int, int]:
        """Right answers and samples asked since the last call, as far as the engine counted."""
        return 0, 0


def ask(learner: Learner, x: Tensor, classes: int) -> Tensor:
    """The learner's scores, as a tensor also where they come as a NumPy array; refused unless there
    is one for each class that may come."""
    scores = learner.predict(x)
    wanted = (len(x), classes)
    if isinstance(scores, np.ndarray):
        if scores.dtype.kind not in "fiub":
            raise StreamgaugeError(
                f"predict must return numbers, a score per class in an array of shape {wanted}, not"
                f" an array of type {scores.dtype}."
            )
        scores = torch.from_numpy(scores)
        scores = scores if x.is_cpu else scores.to(x.device)
    if not hasattr(scores, "shape"):
        raise StreamgaugeError(
            f"predict must return a tensor or array of scores of shape {wanted}, one column per"
            f" class, not {scores if scores is None else 'a ' + type(scores).__name__}."
        )
    if tuple(scores.shape) != wanted:
        one_hot = f" Class numbers become scores by torch.eye({classes})[numbers]."
        raise StreamgaugeError(
            f"predict must return scores of shape {wanted}, not {tuple(scores.shape)}."
            + one_hot * (tuple(scores.shape) == wanted[:1])
        )
    if isinstance(scores, Tensor) and scores.is_complex():
        raise StreamgaugeError("predict must return real numbers as scores, not complex ones.")
    return scores


def as_table(scores: Tensor) -> NDArray[Any]:
    """Scores on the host. NumPy takes a few microseconds where a small tensor operation takes
    tens, and one transfer is all that a device needs to wait for."""
    if not hasattr(scores, "detach"):
        return np.asarray(scores)
    if scores.is_cpu and scores.dtype is torch.float32:
        return scores.detach().numpy()
    return scores.detach().float().cpu().numpy()


def confidence(table: NDArray[Any], prediction: NDArray[Any]) -> NDArray[Any]:
    """Softmax of the chosen score, which is the highest: 1 / sum exp(score - chosen)."""
    chosen = table[np.arange(len(table)), prediction]
    share: NDArray[Any] = 1.0 / np.exp(table - chosen[:, None]).sum(axis=1)
    return share
