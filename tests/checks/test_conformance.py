from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamgauge import catalogue, cli
from streamgauge.checks.conformance import check_learner, samples_of

BROKEN = Path(__file__).with_name("broken_learners.py")

REASONS = {
    "PredictLearns": ("predict changes nothing", "answers the same inputs differently"),
    "GlobalRandom": ("same seed, same result", "from a generator made from the seed"),
    "ForgetsGenerator": ("a resumed run is identical", "is not in its state"),
    "KeepsEverything": ("memory is bounded, or declared not to be", "still grows"),
    "NeedsTwo": ("a batch of one", "a batch of one sample fails: ValueError"),
    "SeenOnly": ("runs from end to end", "predict must return scores of shape"),
    "UnseenWins": ("a class never seen", "never seen wins"),
    "Peeks": (
        "no sample or label used before it is due",
        "the answer to sample 0 changes when the label of sample 8 changes",
    ),
    "AsksAhead": ("runs from end to end", "asked for the input of sample"),
    "KnowsLength": ("nothing used that `needs` does not declare", "how long the stream is"),
}


# Where the default network takes more than ten seconds, CI checks the method on a small one.
SLOW = (
    "agem",
    "derpp",
    "er_minus",
    "er_plus",
    "finetune",
    "gdumb",
    "gss",
    "polrs",
    "polrs_adrep",
    "rar",
)
SMALL = {name: {"model": "mlp"} for name in SLOW} | {
    "gss": {"model": "mlp", "subsets": 2, "subset": 3}
}


# Checked by the long tests alone; CI checks one method of each kind.
LONG = {
    "ace",
    "adrep",
    "adrep_cosine",
    "agem",
    "cosine_fc",
    "er_ace",
    "er_batch",
    "er_cosine",
    "er_lwf",
    "er_minus",
    "gdumb",
    "gss",
    "lwf",
    "mir",
    "overadapt",
    "polrs",
    "rar",
    "rwalk",
    "scr",
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] if name in LONG else [])
        for name in catalogue.names("learners")
    ],
)
def test_every_learner_here_keeps_the_contract(name: str) -> None:
    check(name, SMALL.get(name, {}))


@pytest.mark.long
@pytest.mark.parametrize("name", SMALL)
def test_slow_learners_keep_the_contract_on_their_default_network(name: str) -> None:
    check(name, {})


def check(name: str, settings: dict[str, Any]) -> None:
    for result in check_learner(catalogue.learner(name, **settings)):
        assert result.passed is not False, f"{name}: {result.name}: {result.why}"


def test_a_sound_learner_passes() -> None:
    results = list(check_learner(catalogue.learner(f"{BROKEN}:Sound")))
    assert [r for r in results if r.passed is False] == []
    assert len(results) == 11


@pytest.mark.parametrize("name", REASONS)
def test_a_broken_learner_fails_for_the_right_reason(name: str) -> None:
    results = list(check_learner(catalogue.learner(f"{BROKEN}:{name}")))
    check, why = REASONS[name]
    (result,) = [r for r in results if r.name == check]
    assert result.passed is False
    assert why in result.why


def test_declaring_it_makes_it_pass() -> None:
    recipe = catalogue.learner(f"{BROKEN}:KeepsEverything")
    honest = type("Honest", (recipe.kind,), {"unbounded": True})  # type: ignore[arg-type]
    results = check_learner(catalogue.learner(honest))
    assert all(r.passed is not False for r in results)


# Learners that are right, whatever they are made of.
PLAIN = ("Perceptron", "CountingTree", "Module", "Rows")


@pytest.mark.parametrize("name", PLAIN)
def test_a_learner_of_arrays_trees_or_modules_passes(name: str) -> None:
    """NumPy scores were refused, and a state that is pickled differently after predict."""
    results = list(check_learner(catalogue.learner(f"{BROKEN}:{name}")))
    assert [(r.name, r.why) for r in results if r.passed is False] == []
    assert len(results) == 11
    if name == "Rows":
        assert results[0].why.startswith("on vectors; on images it raised RuntimeError")
        assert "at line" in results[0].why


@pytest.mark.parametrize(("library", "name"), [("sklearn", "sgd"), ("river", "tree")])
def test_models_of_other_libraries_pass(library: str, name: str, tmp_path: Path) -> None:
    pytest.importorskip(library)
    (tmp_path / "wrapped.py").write_text(WRAPPED[name])
    results = list(check_learner(catalogue.learner(f"{tmp_path / 'wrapped.py'}:Wrapped")))
    assert [(r.name, r.why) for r in results if r.passed is False] == []


WRAPPED = {
    "sgd": """
import pickle
import numpy as np
from sklearn.linear_model import SGDClassifier

class Wrapped:
    def __init__(self, spec, source, seed, device):
        self.model = SGDClassifier(random_state=seed)
        self.seen = np.zeros(spec.classes, bool)

    def predict(self, x):
        if not self.seen.any():
            return np.zeros((len(x), len(self.seen)))
        return np.where(self.seen, self.model.decision_function(x.flatten(1).numpy()), -1e6)

    def learn(self, batch, predicted):
        y = batch.y.numpy()
        self.model.partial_fit(batch.x.flatten(1).numpy(), y, np.arange(len(self.seen)))
        self.seen[y] = True

    def state_dict(self):
        return {"model": pickle.dumps((self.model, self.seen))}

    def load_state_dict(self, state):
        self.model, self.seen = pickle.loads(state["model"])
""",
    "tree": """
import pickle
import numpy as np
from river.tree import HoeffdingTreeClassifier

class Wrapped:
    def __init__(self, spec, source, seed, device):
        self.model, self.classes = HoeffdingTreeClassifier(grace_period=50), spec.classes

    def predict(self, x):
        scores = np.full((len(x), self.classes), -1e6)
        for row, values in zip(scores, x.flatten(1).tolist()):
            for label, share in self.model.predict_proba_one(dict(enumerate(values))).items():
                row[label] = np.log(share + 1e-9)
        return scores

    def learn(self, batch, predicted):
        for values, label in zip(batch.x.flatten(1).tolist(), batch.y.tolist()):
            self.model.learn_one(dict(enumerate(values)), label)

    def state_dict(self):
        return {"model": pickle.dumps(self.model)}

    def load_state_dict(self, state):
        self.model = pickle.loads(state["model"])
""",
}


def test_results_come_one_by_one_and_a_stream_can_be_given() -> None:
    stream = catalogue.stream("blobs")
    results = check_learner(catalogue.learner(f"{BROKEN}:KeepsObject"), samples=samples_of(stream))
    assert next(results).passed  # before any other check is made
    failed = {r.name: r.why for r in results if r.passed is False}
    assert "pickle.dumps" in failed["state survives a round trip"]


def test_the_command_takes_a_stream(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table = tmp_path / "mine.csv"
    rng = np.random.default_rng(0)
    rows = [f"{a:.3f},{b:.3f},{'ab'[int(a > b)]}" for a, b in rng.normal(size=(120, 2))]
    table.write_text("\n".join(["u,v,label", *rows]))
    words = ["streamgauge", "check", f"{BROKEN}:Perceptron", "--stream", str(table)]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 0
    assert capsys.readouterr().out.count("pass  ") >= 9
