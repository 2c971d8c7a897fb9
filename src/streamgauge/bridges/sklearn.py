"""scikit-learn: classifiers with `partial_fit` as learners, and pipelines of such parts.

`partial_fit` must be told all classes first, so these learners declare that they need the class
count. A pipeline has no `partial_fit` in scikit-learn; here its steps are fitted one after the
other: `partial_fit`, then `transform`, then the classifier.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamgauge.bridges.foreign import (
    Floats,
    ForeignLearner,
    class_of,
    explained,
    log_scores,
    rows_of,
    uniform,
)
from streamgauge.bridges.named import made
from streamgauge.errors import StreamgaugeError

if TYPE_CHECKING:
    import torch

    from streamgauge.learners.base import Batch

PACKAGE, DISTRIBUTION = "sklearn", "scikit-learn"


_UNDEFINED = (
    "{} of scikit-learn gave probabilities that are NaN, as GaussianNB does after a single sample:"
    " its own answers count, with the confidence of a guess."
)


class Learner(ForeignLearner):
    """A classifier with `partial_fit`, or a pipeline that ends with one."""

    needs = frozenset({"class_count"})
    _fitted = _warned = False

    def tell(self, **facts: Any) -> None:
        """The classes are 0..C-1 of the stream's description; there is nothing to store."""

    def new_model(self, settings: Mapping[str, Any], seed: int) -> Any:
        from sklearn.base import clone

        if self.template is None:
            model = self.model_type(**{name: made(value) for name, value in settings.items()})
        else:
            model = clone(self.template)
        own = model.get_params(deep=True)
        unset = [n for n, v in own.items() if n.split("__")[-1] == "random_state" and v is None]
        return model.set_params(**dict.fromkeys(unset, seed % 2**32)) if unset else model

    @explained
    def predict(self, x: torch.Tensor) -> Floats:
        if not self._fitted:
            return uniform(len(x), self.spec.classes)
        rows = rows_of(x)
        *transformers, last = _parts(self.model)
        for transformer in transformers:
            rows = transformer.transform(rows)
        with np.errstate(divide="ignore", invalid="ignore"):  # as of a class without a sample yet
            return self._scores(last, rows)

    def _scores(self, model: Any, rows: NDArray[Any]) -> Floats:
        """Log-probabilities; of a model without probabilities the decision values, and of a model
        without these its answers, as certain."""
        if hasattr(model, "predict_proba"):
            return self._of_probabilities(model, rows)
        if hasattr(model, "decision_function"):
            decision = np.asarray(model.decision_function(rows), np.float32)
            if decision.ndim == 1:  # of two classes: the softmax is then the sigmoid of it
                decision = np.stack([np.zeros_like(decision), decision], axis=1)
            return decision
        return log_scores(np.eye(self.spec.classes)[model.predict(rows)])

    def _of_probabilities(self, model: Any, rows: NDArray[Any]) -> Floats:
        probability = model.predict_proba(rows)
        answer = probability.argmax(axis=1)
        undefined = np.isnan(probability).any(axis=1)
        if undefined.any():
            probability[undefined] = 0.0
            if not self._warned:
                warnings.warn(_UNDEFINED.format(type(model).__name__), stacklevel=2)
            self._warned = True
        # Probabilities that are rounded to 1 tie; the model's own answer does not.
        tied = (probability == probability.max(axis=1)[:, None]).sum(axis=1) > 1
        if tied.any():
            answer[tied] = model.predict(rows[tied])
        return log_scores(probability, answer)

    @explained
    def learn(self, batch: Batch, predicted: Any) -> None:
        rows, labels = rows_of(batch.x), batch.labels()
        *transformers, last = _parts(self.model)
        for transformer in transformers:
            if hasattr(transformer, "partial_fit"):
                transformer.partial_fit(rows)
            rows = transformer.transform(rows)
        if self._fitted:
            last.partial_fit(rows, labels)
        else:
            last.partial_fit(rows, labels, classes=np.arange(self.spec.classes))
            self._fitted = True

    def saved(self) -> Any:
        return self.model, self._fitted

    def restore(self, saved: Any) -> None:
        self.model, self._fitted = saved


def _parts(model: Any) -> list[Any]:
    """The steps of a pipeline, the classifier last; of another model, itself."""
    if not hasattr(model, "steps"):
        return [model]
    steps = [step for _, step in model.steps if step is not None and step != "passthrough"]
    return [part for step in steps for part in _parts(step)]


# What `bridges.named` asks.


def is_model(value: Any) -> bool:
    from sklearn.base import BaseEstimator

    return isinstance(value, BaseEstimator)


def refuse(model: Any) -> None:
    from sklearn.base import BaseEstimator, ClassifierMixin, is_classifier

    last = _parts(model)[-1]
    kind = class_of(last)
    name = kind.__name__
    classifies = issubclass(kind, ClassifierMixin) if last is kind else is_classifier(last)
    if not issubclass(kind, BaseEstimator) or not classifies:
        raise StreamgaugeError(
            f"{name} of scikit-learn is not a classifier: streamgauge measures classifiers."
        )
    if not hasattr(last, "partial_fit"):
        raise StreamgaugeError(
            f"{name} of scikit-learn has no partial_fit, so it cannot learn from a stream;"
            " SGDClassifier, MLPClassifier, GaussianNB and others have it (docs/bridges.md)."
        )
    if not isinstance(model, type):
        for part in _parts(model)[:-1]:
            _refuse_transformer(part)
        _refuse_fitted(model)


def _refuse_transformer(part: Any) -> None:
    if not hasattr(part, "partial_fit") and _requires_fit(part):
        raise StreamgaugeError(
            f"The pipeline's step {type(part).__name__} of scikit-learn has no partial_fit, so it"
            " would have to see the whole stream first: take a step that has it, such as"
            " StandardScaler."
        )


def _requires_fit(part: Any) -> bool:
    from sklearn.utils import get_tags

    return bool(get_tags(part).requires_fit)


def _refuse_fitted(model: Any) -> None:
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    for part in _parts(model):
        try:
            check_is_fitted(part)
        except (NotFittedError, TypeError):
            continue
        if _requires_fit(part):
            raise StreamgaugeError(
                f"This {type(part).__name__} is fitted already, and a run begins with an untrained"
                " model: give sklearn.base.clone(model)."
            )


def parameters(model: Any) -> dict[str, Any]:
    """The settings of a model, or the steps of a pipeline, by name."""
    if hasattr(model, "steps"):
        return dict(model.steps)
    settings: dict[str, Any] = model.get_params(deep=False)
    return settings


def copy(model: Any, settings: Mapping[str, Any]) -> Any:
    from sklearn.base import clone

    return clone(model).set_params(**settings)


def title(model: Any) -> str:
    return "-".join(type(part).__name__ for part in _parts(model))
