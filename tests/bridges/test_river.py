"""River's classifiers in our loop: the same answers as in river's own evaluation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamgauge as sg
from helpers import clouds
from streamgauge.bridges.river import Learner, iterate, recording

pytest.importorskip("river")
from river import (
    dummy,
    ensemble,
    evaluate,
    forest,
    linear_model,
    metrics,
    multiclass,
    naive_bayes,
    neighbors,
    preprocessing,
    tree,
)


def run(stream: Any, model: Any, out: Path, **options: Any) -> sg.Run:
    return sg.run(stream, model, out=out, progress=False, log=lambda _: None, **options)


def their_answers(stream: Any, model: Any) -> list[Any]:
    """What the model answers in river's own loop; None where it abstains."""
    steps = evaluate.iter_progressive_val_score(
        iterate(stream), model, metrics.Accuracy(), step=1, yield_predictions=True
    )
    return [step["Prediction"] for step in steps]


MODELS: dict[str, Callable[[], Any]] = {
    "tree": tree.HoeffdingTreeClassifier,
    "naive Bayes": naive_bayes.GaussianNB,
    "nearest neighbours": lambda: neighbors.KNNClassifier(n_neighbors=3),
    "last label": dummy.NoChangeClassifier,
    "forest": lambda: forest.ARFClassifier(n_models=2, seed=1),
    "softmax": lambda: preprocessing.StandardScaler() | linear_model.SoftmaxRegression(),
    "one against the rest": lambda: multiclass.OneVsRestClassifier(
        linear_model.LogisticRegression()
    ),
    "no probabilities": lambda: ensemble.VotingClassifier(
        [naive_bayes.GaussianNB(), tree.HoeffdingTreeClassifier()]
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_answers_and_accuracy_are_those_of_progressive_validation(
    name: str, tmp_path: Path
) -> None:
    stream = sg.stream(*clouds(250, 3), batch=1)
    ours = run(stream, MODELS[name](), tmp_path)
    theirs = their_answers(stream, MODELS[name]())
    answered = [i for i, answer in enumerate(theirs) if answer is not None]
    predictions = ours.predictions["prediction"]
    assert [int(predictions[i]) for i in answered] == [theirs[i] for i in answered]
    # River leaves abstentions out; we count them as answers, of class 0.
    assert not predictions[[i for i in range(250) if i not in answered]].any()
    right = (ours.predictions["label"] == predictions)[answered]
    theirs_score = evaluate.progressive_val_score(
        iterate(stream), MODELS[name](), metrics.Accuracy()
    )
    assert right.mean() == pytest.approx(theirs_score.get(), abs=1e-12)
    assert len(answered) >= 249


def test_two_classes_are_answered_by_models_that_tell_two_apart(tmp_path: Path) -> None:
    stream = sg.stream(*clouds(200, 2), batch=1)
    model = linear_model.LogisticRegression()
    ours = run(stream, model, tmp_path)
    assert [bool(p) for p in ours.predictions["prediction"]] == their_answers(stream, model.clone())
    with pytest.raises(sg.StreamgaugeError, match=r"two classes apart, and this stream has 3"):
        run(sg.stream(*clouds(30, 3)), model, tmp_path)


def test_the_confidence_is_the_probability_of_the_answer(tmp_path: Path) -> None:
    stream = sg.stream(*clouds(150, 3), batch=1)
    confidence = run(stream, naive_bayes.GaussianNB(), tmp_path).predictions["confidence"]
    model = naive_bayes.GaussianNB()
    expected = []
    for x, y in iterate(stream):
        probability = model.predict_proba_one(x)
        expected.append(max(probability.values()) if probability else 1 / 3)
        model.learn_one(x, y)
    assert confidence == pytest.approx(expected, rel=1e-5)


def test_a_model_that_has_seen_no_label_answers_with_equal_scores(tmp_path: Path) -> None:
    first = run(sg.stream(*clouds(20, 4), batch=5), tree.HoeffdingTreeClassifier(), tmp_path)
    assert first.predictions["confidence"][:5].tolist() == [0.25] * 5
    assert (first.predictions["confidence"][5:] > 0.25).all()


def test_batches_go_through_the_models_own_methods_for_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pandas = pytest.importorskip("pandas")
    calls: list[int] = []
    learn_many = linear_model.LogisticRegression.learn_many
    monkeypatch.setattr(
        linear_model.LogisticRegression,
        "learn_many",
        lambda self, X, y: (calls.append(len(X)), learn_many(self, X, y))[1],
    )
    x, y = clouds(100, 2)
    stream = sg.stream(x, y, batch=20)
    model = preprocessing.StandardScaler() | linear_model.LogisticRegression()
    ours = run(stream, model, tmp_path)
    assert calls == [20] * 5
    own, expected = model.clone(), []
    names = [f"x{i}" for i in range(4)]
    for start in range(0, 100, 20):
        rows = stream.order[start : start + 20]
        frame = pandas.DataFrame(x[rows], columns=names)
        expected += own.predict_many(frame).tolist()
        own.learn_many(frame, pandas.Series(y[rows].astype(bool)))
    assert [bool(p) for p in ours.predictions["prediction"]] == expected


@pytest.mark.parametrize("kind", [naive_bayes.GaussianNB, naive_bayes.BernoulliNB])
def test_batches_of_more_than_two_classes(kind: Any, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    x, y = clouds(121, 4)  # the last batch has one sample
    stream = sg.stream(x, y, batch=30)
    ours = run(stream, kind(), tmp_path)
    own, expected = kind(), [0] * 30
    for start in range(0, 121, 30):
        rows = stream.order[start : start + 30]
        frame = pandas.DataFrame(x[rows], columns=[f"x{i}" for i in range(4)])
        if start:
            expected += map(int, own.predict_many(frame))
        own.learn_many(frame, pandas.Series(y[rows].tolist()))
    assert ours.predictions["prediction"].tolist() == expected


def test_the_seed_of_a_run_is_the_seed_of_a_model_without_one(tmp_path: Path) -> None:
    stream = sg.stream(*clouds(150, 3), batch=1)

    def confidences(model: Any, seed: int, out: str) -> list[float]:
        run_ = run(stream, model, tmp_path / out, seed=seed)
        return [float(c) for c in run_.predictions["confidence"]]

    plain = forest.ARFClassifier(n_models=2)
    assert confidences(plain, 3, "a") == confidences(
        forest.ARFClassifier(n_models=2, seed=3), 9, "b"
    )
    assert confidences(plain, 3, "a") == confidences(plain, 3, "c")
    assert confidences(plain, 3, "a") != confidences(plain, 4, "d")
    bagged = ensemble.BaggingClassifier(forest.ARFClassifier(n_models=1), n_models=2)
    assert confidences(bagged, 1, "e") == confidences(bagged, 1, "f")


def test_a_model_object_is_copied_and_stays_as_it_is(tmp_path: Path) -> None:
    model = naive_bayes.GaussianNB()
    stream = sg.stream(*clouds(60, 3), batch=1)
    first = run(stream, model, tmp_path / "a")
    assert not model.class_counts
    second = run(stream, model, tmp_path / "b")
    assert first.predictions["prediction"].tolist() == second.predictions["prediction"].tolist()


def test_asking_nearest_neighbours_changes_no_answer(tmp_path: Path) -> None:
    """Its pickle may change when it is asked, so that only answers can be compared."""
    plain = sg.stream(*clouds(120, 3), batch=1)
    once = run(plain, neighbors.KNNClassifier(), tmp_path / "a")
    ahead = sg.Protocol(shifts=(5,))
    often = run(plain, neighbors.KNNClassifier(), tmp_path / "b", protocol=ahead)
    rows = often.predictions["shift"] == 0
    assert often.predictions["prediction"][rows].tolist() == once.predictions["prediction"].tolist()


def test_inputs_are_scaled_as_the_stream_says(tmp_path: Path) -> None:
    x, y = clouds(200, 3)
    x = x * 1000 + 5000
    seen: list[float] = []

    class Looking(naive_bayes.GaussianNB):  # type: ignore[misc]
        def learn_one(self, x: dict[str, float], y: int) -> None:
            seen.append(max(map(abs, x.values())))
            super().learn_one(x, y)

    run(sg.stream(x, y, batch=1), Looking(), tmp_path)
    assert min(seen) > 1000
    seen.clear()
    np.savez(tmp_path / "mine.npz", x=x, y=y)
    run(sg.stream(tmp_path / "mine.npz", batch=1, scale="online"), Looking(), tmp_path)
    assert max(seen) <= 10


def test_errors_of_the_model_name_it(tmp_path: Path) -> None:
    class Broken(naive_bayes.GaussianNB):  # type: ignore[misc]
        def learn_one(self, x: dict[str, float], y: int) -> None:
            raise ValueError("no such feature")

    words = r"Broken of river [\d.]+ cannot learn: no such feature"
    with pytest.raises(sg.StreamgaugeError, match=words):
        run(sg.stream(*clouds(30, 3), batch=1), Broken(), tmp_path)


def test_flops_are_unknown_and_seconds_known(tmp_path: Path) -> None:
    ours = run(sg.stream(*clouds(60, 3), batch=10), tree.HoeffdingTreeClassifier(), tmp_path)
    assert np.isnan(ours.table("jobs")["flops"]).all()
    timing = ours.table("timing")
    assert timing["seconds"][timing["part"] == "learn"].sum() > 0


# River's loops, recorded.


@pytest.mark.parametrize("name", ["tree", "last label", "one against the rest", "no probabilities"])
def test_a_recorded_loop_has_the_accuracy_that_river_reports(name: str, tmp_path: Path) -> None:
    stream = sg.stream(*clouds(120, 3), batch=1)
    with recording(MODELS[name](), tmp_path / "mine", stream="clouds") as model:
        score = evaluate.progressive_val_score(iterate(stream), model, metrics.Accuracy())
    run_ = sg.Run(tmp_path / "mine")
    assert sg.score(run_)["online_accuracy"] == pytest.approx(score.get(), abs=1e-12)
    theirs = [a for a in their_answers(stream, MODELS[name]()) if a is not None]
    assert len(run_.predictions["prediction"]) == len(theirs)
    assert run_.header["config"]["learner"]["library"].startswith("river ")


def test_a_recorded_loop_with_delayed_labels_and_probabilities(tmp_path: Path) -> None:
    stream = sg.stream(*clouds(120, 2), batch=1)
    model = preprocessing.StandardScaler() | linear_model.LogisticRegression()
    options: dict[str, Any] = {"classes": [False, True], "stream": "clouds", "learner": "mine"}
    data = [(x, bool(y)) for x, y in iterate(stream)]
    with recording(model.clone(), tmp_path / "mine", **options) as recorded:
        delayed = evaluate.progressive_val_score(data, recorded, metrics.LogLoss(), delay=7)
    run_ = sg.Run(tmp_path / "mine")
    assert len(run_.predictions["label"]) == 120
    own = model.clone()
    expected: list[dict[Any, float]] = []
    for step, (x, _) in enumerate(data):
        if step >= 7:
            own.learn_one(*data[step - 7])
        expected.append(own.predict_proba_one(x))
    assert run_.predictions["confidence"] == pytest.approx(
        [max(p.values()) for p in expected], rel=1e-4
    )
    loss = -np.log([p[y] for p, (_, y) in zip(expected, data, strict=True)]).mean()
    assert delayed.get() == pytest.approx(loss)
    with recording(model.clone(), tmp_path / "mine", **options) as recorded:  # after a restart
        evaluate.progressive_val_score(data[:10], recorded, metrics.LogLoss())
    assert len(sg.Run(tmp_path / "mine").predictions["label"]) == 130


def test_a_number_of_classes_stands_for_their_numbers(tmp_path: Path) -> None:
    with recording(naive_bayes.GaussianNB(), tmp_path / "mine", stream="s", classes=2) as model:
        for number in range(6):
            model.predict_proba_one({"a": float(number)})
            model.learn_one({"a": float(number)}, number % 2)
    run_ = sg.Run(tmp_path / "mine")
    assert run_.predictions.rows == 5
    assert np.isfinite(run_.predictions["logp"][1:]).all()  # class 1 is new to the first answer


def test_a_model_that_abstains_is_recorded_as_such(tmp_path: Path) -> None:
    with recording(naive_bayes.GaussianNB(), tmp_path / "mine", stream="two") as model:
        assert model.predict_one({"a": 1.0}) is None
        model.learn_one({"a": 1.0}, "yes")
        assert model.predict_one({"a": 1.0}) == "yes"
        model.learn_one({"a": 1.0}, "no")
    run_ = sg.Run(tmp_path / "mine")
    assert run_.table("training")["name"].tolist() == ["abstained"]
    assert sg.score(run_)["online_accuracy"] == 0.0


def test_answers_that_are_never_learnt_wait_up_to_a_number_and_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = dummy.PriorClassifier()
    model.learn_one({}, "yes")
    options: dict[str, Any] = {"stream": "mostly unlabelled", "waiting": 5}
    with recording(model, tmp_path / "mine", **options) as recorded:
        for number in range(20):
            recorded.predict_one({"a": number // 2})  # each input comes twice
        for number in range(10):
            recorded.learn_one({"a": number}, "yes")
    run_ = sg.Run(tmp_path / "mine")
    assert run_.table("training")["name"].tolist() == ["labels_given_up"] * 15
    assert run_.table("predictions").rows == 20
    # The last five answers waited: the second to input 7, both to 8 and to 9.
    assert run_.predictions["id"].tolist() == ["15", "16", "18"]
    assert capsys.readouterr().err.count("more than 5 answers wait for their labels") == 1
    with pytest.raises(sg.StreamgaugeError, match="waiting is a number of answers from 1, not 0"):
        recording(model, tmp_path / "other", stream="s", waiting=0)


FOREST = forest.ARFClassifier(n_models=2, seed=1)
CASES: dict[str, tuple[Any, dict[str, Any], dict[str, Any], bool]] = {
    # the model, settings of the protocol and of the stream, whether there are turns
    "plain": (FOREST, {}, {}, True),
    "tasks": (FOREST, {"evaluate": 40}, {"order": "classes", "tasks": 3, "held_out": 0.1}, True),
    "standardised": (FOREST, {}, {"scale": "online"}, True),
    "batches": (FOREST, {}, {"batch": 4}, True),
    "standardised batches": (FOREST, {}, {"batch": 4, "scale": "online"}, True),
    "frames": (linear_model.LogisticRegression(), {}, {"batch": 4}, True),
    "standardised frames": (
        linear_model.LogisticRegression(),
        {},
        {"batch": 4, "scale": "online"},
        True,
    ),
    "answers only": (MODELS["no probabilities"](), {}, {}, True),
    "shifts": (FOREST, {"shifts": (5,)}, {}, False),
    "late labels": (FOREST, {"label_delay": 3}, {}, False),
    "slow training": (FOREST, {"cost": "2", "busy": "queue"}, {}, False),
}


@pytest.mark.parametrize("name", CASES)
def test_many_steps_in_one_call_give_the_same_log(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A callback that wants every step has the loop call `predict` and `learn` in turn."""
    model, protocol, settings, turns = CASES[name]
    given: dict[str, Any] = {"log": lambda _: None, "protocol": sg.Protocol(**protocol)}
    x, y = clouds(150, 3)
    stream = sg.stream(x, y > 0 if "frames" in name else y, **({"batch": 1} | settings))
    steps = list[int]()
    single = sg.run(
        stream, model, out=tmp_path / "a", progress=lambda loop: steps.append(loop.step), **given
    )
    assert steps == list(range(1, len(stream) + 1))
    calls: list[int] = []
    taken = Learner.answer_and_learn

    def counted(self: Any, x: Any, *more: Any) -> Any:
        calls.append(len(x))
        return taken(self, x, *more)

    monkeypatch.setattr(Learner, "answer_and_learn", counted)
    for part in (len(stream) // 2, None):  # also in two parts
        many = sg.run(stream, model, out=tmp_path / "b", progress=False, steps=part,
                      trust_pickle=True, **given)  # fmt: skip
    assert (sum(calls) > 100) is turns
    for table in ("predictions", "jobs", "evaluations", "training"):
        ours, theirs = single.table(table), many.table(table)
        for column in ours:
            np.testing.assert_array_equal(ours[column], theirs[column])
    assert set(single.table("timing")["part"]) == set(many.table("timing")["part"])
