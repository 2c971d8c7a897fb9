# ruff: noqa: E402
"""The bridge to CapyMOA, against the library; `test_environments.py` runs it in its own
environment."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from streamgauge.bridges import capymoa as bridge  # finds Java

capymoa = pytest.importorskip("capymoa")

from capymoa.classifier import Finetune, HoeffdingTree, NaiveBayes, PassiveAggressiveClassifier
from capymoa.core.torch.ann import Perceptron
from capymoa.evaluation import prequential_evaluation
from capymoa.ocl.evaluation import ocl_train_eval_loop
from capymoa.ocl.events import Dispatcher
from torch.utils.data import DataLoader, TensorDataset

import streamgauge as sg
from streamgauge.errors import StreamgaugeError
from streamgauge.streams.gate import Gate

CLASSES, WIDTH = 4, 6


def data(samples: int = 200, seed: int = 0) -> tuple[Any, Any]:
    x = np.random.default_rng(seed).normal(size=(samples, WIDTH)).astype(np.float32)
    return x, (x @ np.random.default_rng(9).normal(size=(WIDTH, CLASSES))).argmax(1)


def stream(samples: int = 200, **settings: Any) -> Any:
    return sg.stream(*data(samples), **{"batch": 1, **settings})


def finetune(schema: Any) -> Any:
    return Finetune(schema, Perceptron, partial(torch.optim.SGD, lr=0.1))


def column(run: Any, name: str) -> list[Any]:
    values: list[Any] = run.table("predictions")[name].tolist()
    return values


# Classifiers in our loop.


@pytest.mark.parametrize("kind", [HoeffdingTree, NaiveBayes, PassiveAggressiveClassifier])
def test_a_classifier_in_our_loop_answers_as_in_prequential_evaluation(
    kind: Any, tmp_path: Path
) -> None:
    made = stream()
    run = sg.run(made, sg.learner(f"capymoa:classifier.{kind.__name__}"), out=tmp_path, seed=0)
    theirs = bridge.stream(made)
    named = {"random_seed": 0} if "random_seed" in bridge.declared(kind) else {}
    result = prequential_evaluation(
        theirs, kind(schema=theirs.get_schema(), **named), store_predictions=True
    )
    predictions = [0 if p is None else int(p) for p in result.predictions()]
    assert column(run, "prediction") == predictions
    # An answer that is missing is class 0, there and here.
    accuracy = result.cumulative.accuracy() / 100
    assert sg.score(run)["online_accuracy"] == pytest.approx(accuracy)
    described = run.header["config"]["learner"]
    assert described["library"] == f"capymoa {capymoa.__version__}"


def test_settings_by_their_own_names_and_around_an_object(tmp_path: Path) -> None:
    made = stream()
    by_name = sg.learner("capymoa:classifier.HoeffdingTree", grace_period=20)
    schema = bridge.stream(made).get_schema()
    around = sg.learner(HoeffdingTree(schema, grace_period=20))
    assert around.describe() == by_name.describe()
    with pytest.raises(StreamgaugeError, match="grace_period"):
        sg.learner("capymoa:classifier.HoeffdingTree", grace=20)
    with pytest.raises(StreamgaugeError, match="is not a classifier"):
        sg.learner("capymoa:regressor.KNNRegressor")


def learner_of(made: Any, recipe: Any, seed: int = 0) -> Any:
    gate = Gate(made.source, made.preparation, torch.device("cpu"))
    return recipe.build(made.spec, gate, seed, torch.device("cpu"))


def steps_of(made: Any) -> list[Any]:
    steps = []
    for step in range(len(made)):
        index = made.index(step)
        x, y = torch.from_numpy(made.source.read(index)), torch.from_numpy(made.source.label[index])
        steps.append(sg.Batch(x, y, index))
    return steps


def test_a_batch_classifier_is_asked_and_trained_in_batches() -> None:
    made = stream(batch=10)
    schema = bridge.stream(made).get_schema()
    torch.manual_seed(0)
    learner = learner_of(made, sg.learner(finetune(schema)))
    torch.manual_seed(0)
    by_hand = finetune(schema)
    for batch in steps_of(made):
        expected = by_hand.batch_predict_proba(batch.x)
        assert torch.allclose(
            torch.as_tensor(learner.predict(batch.x)).softmax(1), expected, atol=1e-6
        )
        learner.learn(batch, None)
        by_hand.batch_train(batch.x, batch.y)


def test_a_state_has_the_java_parts() -> None:
    made = stream()
    recipe = sg.learner("capymoa:classifier.AdaptiveRandomForestClassifier", ensemble_size=3)
    learner, steps = learner_of(made, recipe), steps_of(made)
    for batch in steps[:100]:
        learner.learn(batch, None)
    again = learner_of(made, recipe, seed=5)
    again.load_state_dict(learner.state_dict())
    x = torch.cat([batch.x for batch in steps])
    for _ in range(2):  # answering changes nothing
        np.testing.assert_array_equal(learner.predict(x), again.predict(x))


def test_classes_that_have_not_come_are_known_from_the_start() -> None:
    x, y = data()
    made = sg.stream(x[y < 2], y[y < 2], batch=1, classes=CLASSES)
    assert bridge.stream(made).get_schema().get_num_classes() == CLASSES
    learner = learner_of(made, sg.learner("capymoa:classifier.NaiveBayes"))
    assert np.asarray(learner.predict(torch.zeros(2, WIDTH))).tolist() == [[0.0] * CLASSES] * 2
    for batch in steps_of(made)[:20]:
        learner.learn(batch, None)
    scores = np.asarray(learner.predict(torch.from_numpy(x)))
    assert scores.shape == (len(x), CLASSES)
    assert np.exp(scores).sum(1) == pytest.approx(1.0, abs=1e-5)


def test_an_object_with_another_schema_is_refused() -> None:
    made = stream()
    other = bridge.schema(WIDTH + 1, ["a", "b"])
    with pytest.raises(StreamgaugeError, match="7 attributes and 2 classes"):
        learner_of(made, sg.learner(finetune(other)))


# Their loops, recorded.


def tasks() -> list[Any]:
    x, y = data(160)
    parts = [y < 2, y >= 2]
    return [
        DataLoader(TensorDataset(torch.from_numpy(x[p]), torch.from_numpy(y[p])), batch_size=8)
        for p in parts
    ]


@pytest.mark.parametrize("kind", [HoeffdingTree, finetune])
def test_a_subscribed_loop_has_capymoas_own_accuracies(kind: Any, tmp_path: Path) -> None:
    schema = bridge.schema(WIDTH, [str(n) for n in range(CLASSES)])
    dispatcher = Dispatcher()
    recording = bridge.subscribe(
        dispatcher, tmp_path / "run", stream="two tasks", learner="mine", classes=CLASSES
    )
    metrics = ocl_train_eval_loop(kind(schema), tasks(), tasks(), dispatcher=dispatcher)
    recording.close()
    run = sg.Run(tmp_path / "run")
    theirs = metrics.ttt.cumulative.accuracy() / 100
    assert sg.score(run)["online_accuracy"] == pytest.approx(theirs)
    evaluations = run.table("evaluations")
    matrix = (evaluations["correct"] / evaluations["count"]).reshape(2, 2)
    np.testing.assert_allclose(matrix, metrics.accuracy_matrix, atol=1e-6)
    assert evaluations["task"].tolist() == [0, 1, 0, 1]


def test_only_the_first_epoch_is_recorded(tmp_path: Path) -> None:
    schema = bridge.schema(WIDTH, [str(n) for n in range(CLASSES)])
    dispatcher = Dispatcher()
    recording = bridge.subscribe(
        dispatcher, tmp_path / "run", stream="two tasks", learner="mine", classes=CLASSES
    )
    with pytest.warns(UserWarning, match="more than one epoch"):
        ocl_train_eval_loop(finetune(schema), tasks(), tasks(), epochs=2, dispatcher=dispatcher)
    recording.close()
    assert len(column(sg.Run(tmp_path / "run"), "prediction")) == 160


def test_a_recorded_classifier_in_prequential_evaluation(tmp_path: Path) -> None:
    made = stream(class_names=["a", "b", "c", "d"])
    theirs = bridge.stream(made)
    schema = theirs.get_schema()
    plain = prequential_evaluation(theirs, HoeffdingTree(schema), store_predictions=True)
    recorded = bridge.recording(HoeffdingTree(schema), tmp_path / "run", stream="mine")
    result = prequential_evaluation(theirs, recorded, store_predictions=True)
    recorded.close()
    assert result.predictions().tolist() == plain.predictions().tolist()
    run = sg.Run(tmp_path / "run")
    own = [0 if p is None else p for p in result.predictions()]
    assert column(run, "prediction") == own
    accuracy = result.cumulative.accuracy() / 100
    assert sg.score(run)["online_accuracy"] == pytest.approx(accuracy)
    assert run.header["stream"]["class_names"] == ["a", "b", "c", "d"]
    assert column(run, "version") == list(range(200))


# Our streams.


def test_a_stream_has_all_samples_in_order_and_begins_again() -> None:
    made = stream(103, batch=10, order="iid")
    theirs = bridge.stream(made)
    assert len(theirs) == 103
    for _ in range(2):
        instances = list(theirs)
        np.testing.assert_array_equal(
            np.stack([instance.x for instance in instances]), made.source.read(made.order)
        )
        labels = [instance.y_index for instance in instances]
        assert labels == made.source.label[made.order].tolist()
        assert not theirs.has_more_instances()
        theirs.restart()
