"""Learners of other libraries by name, around classes and around objects."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamgauge as sg
from helpers import clouds
from streamgauge.bridges import named
from streamgauge.catalogue import foreign_summary

river = pytest.importorskip("river")
sklearn = pytest.importorskip("sklearn")
from river import compose, ensemble, forest, linear_model, preprocessing, tree  # noqa: E402
from sklearn.linear_model import SGDClassifier  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402


def identical(a: Any, b: Any) -> bool:
    """Whether two recipes are one learner for a run's identity."""
    keys = ("settings", "needs", "code")
    return bool([a.describe()[k] for k in keys] == [b.describe()[k] for k in keys])


def test_a_name_a_class_and_an_object_are_one_learner() -> None:
    by_name = sg.learner("river:forest.ARFClassifier", n_models=5)
    assert (by_name.name, by_name.where) == ("ARFClassifier", "river:forest.ARFClassifier")
    assert by_name.library == f"river {river.__version__}"
    assert by_name.describe()["library"] == by_name.library
    for other in (
        sg.learner("river:ARFClassifier", n_models="5"),
        sg.learner(forest.ARFClassifier, n_models=5),
        sg.learner(forest.ARFClassifier(n_models=5)),
        sg.learner(forest.ARFClassifier(), n_models=5),
    ):
        assert identical(other, by_name)
        assert other.where == by_name.where
    assert not identical(sg.learner("river:forest.ARFClassifier"), by_name)
    assert identical(
        sg.learner(SGDClassifier(alpha=0.1)), sg.learner("sklearn:SGDClassifier", alpha="0.1")
    )
    assert sg.learner("mine=river:ARFClassifier").name == "mine"


def test_settings_on_a_command_line_become_what_the_library_declares() -> None:
    config = sg.learner(
        "river:forest.ARFClassifier", max_features="3", max_depth="none", binary_split="true"
    ).config
    assert (config.max_features, config.max_depth, config.binary_split) == (3, None, True)
    layers = sg.learner("sklearn:neural_network.MLPClassifier", hidden_layer_sizes="20,10").config
    assert layers.hidden_layer_sizes == (20, 10)
    assert sg.learner("sklearn:SGDClassifier", alpha="1").config.alpha == 1.0
    with pytest.raises(sg.StreamgaugeError, match=r"n_models must be a whole number, not 'ten'"):
        sg.learner("river:forest.ARFClassifier", n_models="ten")
    with pytest.raises(sg.StreamgaugeError, match=r"did you mean 'ARFClassifier\.n_models'"):
        sg.learner("river:forest.ARFClassifier", n_model=3)


def test_a_part_of_a_model_is_given_by_name_too() -> None:
    by_name = sg.learner("river:BaggingClassifier", model="river:tree.HoeffdingTreeClassifier")
    made = by_name.kind.new_model(  # type: ignore[attr-defined]
        object.__new__(by_name.kind), {"model": by_name.config.model}, 0
    )
    assert isinstance(made.model, tree.HoeffdingTreeClassifier)
    stream = sg.stream(np.zeros((9, 2)), np.arange(9) % 2)
    with pytest.raises(sg.StreamgaugeError, match="BaggingClassifier needs the setting 'model'"):
        sg.run(stream, "river:ensemble.BaggingClassifier", progress=False)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("river:forest.ARFClasifier", "in river.forest; did you mean 'ARFClassifier'"),
        ("river:forrest.ARFClassifier", "river has no module 'forrest'; did you mean 'forest'"),
        ("sklearn:SGDClasifier", "in sklearn; did you mean 'SGDClassifier'"),
        ("river:forest.ARFRegressor", "ARFRegressor of river is not a classifier"),
        ("river:cluster.KMeans", "KMeans of river is not a classifier"),
        ("river:active.EntropySampler", "chooses which labels it asks for"),
        ("sklearn:linear_model.SGDRegressor", "SGDRegressor of scikit-learn is not a classifier"),
        ("sklearn:cluster.MiniBatchKMeans", "MiniBatchKMeans of scikit-learn is not a classifier"),
        ("sklearn:ensemble.RandomForestClassifier", "has no partial_fit"),
        ("river:object", "made in Python: call sg.run with the same stream and model"),
    ],
)
def test_what_cannot_be_a_learner_is_answered_by_a_sentence(name: str, words: str) -> None:
    with pytest.raises(sg.StreamgaugeError, match=words):
        sg.learner(name)


def test_a_class_name_that_two_modules_have_must_be_written_in_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Twin(tree.HoeffdingTreeClassifier):  # type: ignore[misc]
        pass

    monkeypatch.setattr(river.forest, "HoeffdingTreeClassifier", Twin, raising=False)
    named._full_path.cache_clear()
    with pytest.raises(sg.StreamgaugeError, match=r"write river:forest\.Hoeffding.* or river:tree"):
        sg.learner("river:HoeffdingTreeClassifier")
    named._full_path.cache_clear()


def test_a_library_that_is_missing_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "river", None)
    words = r"river:forest\.ARFClassifier needs river: pip install 'streamgauge\[river\]'"
    with pytest.raises(sg.StreamgaugeError, match=words):
        sg.learner("river:forest.ARFClassifier")


def test_a_pipeline_is_described_by_its_parts() -> None:
    pipeline = preprocessing.StandardScaler() | linear_model.LogisticRegression(l2=0.1)
    recipe = sg.learner(pipeline)
    assert recipe.name == "StandardScaler-LogisticRegression"
    settings = recipe.describe()["settings"]
    assert settings["LogisticRegression__l2"] == 0.1
    assert settings["LogisticRegression__optimizer__lr__learning_rate"] == 0.01
    assert identical(recipe, sg.learner(pipeline.clone()))
    other = preprocessing.StandardScaler() | linear_model.LogisticRegression(l2=0.2)
    assert not identical(recipe, sg.learner(other))
    steps = sg.learner(make_pipeline(StandardScaler(), SGDClassifier(alpha=0.5)))
    assert steps.describe()["settings"]["sgdclassifier__alpha"] == 0.5
    changed = sg.learner(make_pipeline(StandardScaler(), SGDClassifier()), sgdclassifier__alpha=0.5)
    assert identical(changed, steps)
    bagged = sg.learner(ensemble.BaggingClassifier(tree.HoeffdingTreeClassifier()))
    boosted = sg.learner(ensemble.ADWINBaggingClassifier(tree.HoeffdingTreeClassifier()))
    assert bagged.describe()["settings"]["model_class"].endswith("BaggingClassifier")
    assert not identical(bagged, boosted)


def test_functions_and_classes_of_the_user_count_in_the_identity() -> None:
    def around(function: Any) -> Any:
        return sg.learner(compose.FuncTransformer(function) | linear_model.LogisticRegression())

    def double(x: dict[str, float]) -> dict[str, float]:
        return {name: 2 * value for name, value in x.items()}

    def triple(x: dict[str, float]) -> dict[str, float]:
        return {name: 3 * value for name, value in x.items()}

    assert around(double).code != around(triple).code
    assert not around(double).unknown

    class Own(tree.HoeffdingTreeClassifier):  # type: ignore[misc]
        """A model of the user's that extends one of river."""

    assert sg.learner(Own()).code != sg.learner(tree.HoeffdingTreeClassifier()).code
    assert sg.learner(Own()).name == "Own"


def test_the_version_of_the_library_counts_in_the_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    now = sg.learner("river:forest.ARFClassifier").code
    monkeypatch.setattr(named, "library_version", lambda name: f"{name} 0.1")
    named._by_class.cache_clear()
    assert sg.learner("river:forest.ARFClassifier").code != now
    named._by_class.cache_clear()


def test_list_shows_the_settings_with_their_defaults(call: Any) -> None:
    facts = foreign_summary("river:forest.ARFClassifier")
    assert facts["settings"]["n_models"] == "10"
    assert "trees" in facts["notes"]["n_models"]
    code, text, _ = call("list", "river:forest.ARFClassifier")
    assert code == 0
    assert "--ARFClassifier.n_models 10" in text
    assert f"of river {river.__version__}; cost in seconds: FLOPs are unknown" in text


def test_a_command_runs_them_and_the_table_shows_the_library(tmp_path: Path, call: Any) -> None:
    x, y = clouds(200, 3)
    np.savez(tmp_path / "mine.npz", x=x, y=y)
    command = f"run --stream {tmp_path}/mine.npz --learner river:HoeffdingTreeClassifier"
    command += " --HoeffdingTreeClassifier.grace_period 50 --learner sklearn:SGDClassifier"
    code, text, _ = call(*command.split(), "--out", str(tmp_path))
    assert code == 0
    text = " ".join(text.split())
    assert f"river {river.__version__}" in text
    assert f"scikit-learn {sklearn.__version__}" in text
    runs = {run.learner: run for run in sg.find_runs(tmp_path)}
    stored = runs["HoeffdingTreeClassifier"].header["config"]["learner"]
    assert stored["settings"]["grace_period"] == 50
    assert stored["library"] == f"river {river.__version__}"
    assert runs["SGDClassifier"].header["config"]["learner"]["needs"] == ["class_count"]
    assert call("report", str(tmp_path), "--out", str(tmp_path / "r.html"))[0] == 0
    assert f"river {river.__version__}" in (tmp_path / "r.html").read_text()
    scores = sg.score(runs["SGDClassifier"])
    assert np.isnan(scores.get("training_flops", np.nan))
