"""Classifiers of scikit-learn in our loop: the same answers as in a loop of one's own."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamgauge as sg
from helpers import clouds

pytest.importorskip("sklearn")
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import Perceptron, SGDClassifier, SGDRegressor
from sklearn.naive_bayes import BernoulliNB, GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    Normalizer,
    QuantileTransformer,
    StandardScaler,
)


def run(stream: Any, model: Any, out: Path, **options: Any) -> sg.Run:
    return sg.run(stream, model, out=out, progress=False, log=lambda _: None, **options)


def own_loop(stream: Any, model: Any, classes: int) -> list[int]:
    """What the model answers in a plain loop: class 0 before the first batch."""
    answers: list[int] = []
    for step in range(len(stream)):
        rows = stream.index(step)
        x, y = stream.source.read(rows), stream.source.label[rows]
        answers += model.predict(x).tolist() if step else [0] * len(rows)
        model.partial_fit(x, y, classes=np.arange(classes))
    return answers


MODELS: dict[str, Callable[[], Any]] = {
    "hinge": lambda: SGDClassifier(random_state=3),
    "probabilities": lambda: SGDClassifier(loss="log_loss", random_state=3),
    "perceptron": lambda: Perceptron(random_state=3),
    "naive Bayes": GaussianNB,
    "binary features": BernoulliNB,
    "network": lambda: MLPClassifier((5,), random_state=3),
}


@pytest.mark.parametrize("batch", [1, 20])
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("name", MODELS)
def test_answers_are_those_of_a_loop_of_ones_own(
    name: str, classes: int, batch: int, tmp_path: Path
) -> None:
    x, y = clouds(100, classes)
    stream = sg.stream(30 * x, y, batch=batch)  # large inputs: many probabilities are exactly 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = run(stream, MODELS[name](), tmp_path)
        expected = own_loop(stream, MODELS[name](), classes)
    assert ours.predictions["prediction"].tolist() == expected


def test_confidence_is_the_probability_or_the_softmax_of_decision_values(tmp_path: Path) -> None:
    stream = sg.stream(*clouds(80, 3), batch=8)
    for model, scores in (
        (SGDClassifier(loss="log_loss", random_state=1), "predict_proba"),
        (SGDClassifier(random_state=1), "decision_function"),
    ):
        ours = run(stream, model, tmp_path).predictions["confidence"]
        expected = [1 / 3] * 8
        for step in range(len(stream)):
            rows = stream.index(step)
            x, y = stream.source.read(rows), stream.source.label[rows]
            if step:
                values = getattr(model, scores)(x)
                if scores == "decision_function":
                    values = np.exp(values - values.max(axis=1)[:, None])
                    values /= values.sum(axis=1)[:, None]
                expected += values.max(axis=1).tolist()
            model.partial_fit(x, y, classes=np.arange(3))
        assert ours == pytest.approx(expected, rel=1e-4)


def test_a_model_with_answers_only_is_certain(tmp_path: Path) -> None:
    class Last(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
        """Answers the last label that it has seen."""

        def partial_fit(self, x: Any, y: Any, classes: Any = None) -> Any:
            self.last_ = y[-1]
            return self

        def predict(self, x: Any) -> Any:
            return np.full(len(x), self.last_)

    stream = sg.stream(*clouds(20, 3), batch=1)
    ours = run(stream, Last(), tmp_path).predictions
    assert ours["prediction"][1:].tolist() == ours["label"][:-1].tolist()
    assert ours["confidence"][1:].tolist() == [1.0] * 19


def test_probabilities_that_are_nan_are_said_once(tmp_path: Path) -> None:
    stream = sg.stream(*clouds(20, 3), batch=1)
    with pytest.warns(UserWarning, match="gave probabilities that are NaN") as caught:
        ours = run(stream, GaussianNB(), tmp_path)
    assert len([w for w in caught if "NaN" in str(w.message)]) == 1
    assert ours.predictions["confidence"][1] == pytest.approx(1 / 3)


def test_a_pipeline_is_fitted_step_by_step(tmp_path: Path) -> None:
    x, y = clouds(120, 3)
    x = x * 100 + 50
    stream = sg.stream(x, y, batch=10)
    pipeline = make_pipeline(
        StandardScaler(),
        FunctionTransformer(np.tanh),
        "passthrough",
        Normalizer(),
        SGDClassifier(random_state=0),
    )
    ours = run(stream, pipeline, tmp_path)
    scaler, model, expected = StandardScaler(), SGDClassifier(random_state=0), [0] * 10
    for step in range(len(stream)):
        rows = stream.index(step)
        if step:
            z = Normalizer().transform(np.tanh(scaler.transform(stream.source.read(rows))))
            expected += model.predict(z).tolist()
        scaler.partial_fit(stream.source.read(rows))
        z = Normalizer().transform(np.tanh(scaler.transform(stream.source.read(rows))))
        model.partial_fit(z, stream.source.label[rows], classes=np.arange(3))
    assert ours.predictions["prediction"].tolist() == expected
    assert ours.learner == "StandardScaler-FunctionTransformer-Normalizer-SGDClassifier"


def test_what_cannot_learn_from_a_stream_is_refused() -> None:
    x, y = clouds(30, 3)
    for model, words in (
        (
            make_pipeline(QuantileTransformer(), SGDClassifier()),
            "step QuantileTransformer .* has no",
        ),
        (make_pipeline(StandardScaler(), SGDRegressor()), "SGDRegressor .* is not a classifier"),
        (SGDClassifier().fit(x, y), "SGDClassifier is fitted already"),
        (
            make_pipeline(StandardScaler().fit(x), SGDClassifier()),
            "StandardScaler is fitted already",
        ),
    ):
        with pytest.raises(sg.StreamgaugeError, match=words):
            sg.learner(model)


def test_a_setting_that_the_library_refuses_is_its_own_sentence(tmp_path: Path) -> None:
    words = r"SGDClassifier of scikit-learn [\d.]+ cannot learn: The 'loss' parameter"
    with pytest.raises(sg.StreamgaugeError, match=words):
        run(sg.stream(*clouds(30, 3)), sg.learner("sklearn:SGDClassifier", loss="hnge"), tmp_path)
    with pytest.raises(sg.StreamgaugeError, match="SGDClassifier of sklearn is refused: Invalid"):
        sg.learner(SGDClassifier(), losss="hinge")


def test_images_are_flattened(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 255, (40, 3, 4, 4), dtype=np.uint8)
    ours = run(sg.stream(x, np.arange(40) % 2, batch=5), SGDClassifier(), tmp_path)
    assert ours.done
