from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamgauge import catalogue
from streamgauge.running.conformance import check_learner

BROKEN = Path(__file__).parents[1] / "broken_learners.py"

REASONS = {
    "PredictLearns": ("predict changes nothing", "answers the same inputs differently"),
    "GlobalRandom": ("same seed, same result", "from a generator made from the seed"),
    "ForgetsGenerator": ("a resumed run is identical", "is not in its state"),
    "KeepsEverything": ("memory is bounded, or declared not to be", "still grows"),
    "NeedsTwo": ("a batch of one", "a batch of one sample fails: ValueError"),
    "SeenOnly": ("runs from end to end", "predict must return scores of shape"),
    "UnseenWins": ("a class never seen", "never seen wins"),
    "Peeks": ("no sample or label used before it is due", "come later"),
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


@pytest.mark.parametrize("name", catalogue.names("learners"))
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
    results = check_learner(catalogue.learner(f"{BROKEN}:Sound"))
    assert [r for r in results if r.passed is False] == []
    assert len(results) == 11


@pytest.mark.parametrize("name", REASONS)
def test_a_broken_learner_fails_for_the_right_reason(name: str) -> None:
    results = check_learner(catalogue.learner(f"{BROKEN}:{name}"))
    check, why = REASONS[name]
    (result,) = [r for r in results if r.name == check]
    assert result.passed is False
    assert why in result.why


def test_declaring_it_makes_it_pass() -> None:
    recipe = catalogue.learner(f"{BROKEN}:KeepsEverything")
    honest = type("Honest", (recipe.kind,), {"unbounded": True})  # type: ignore[arg-type]
    results = check_learner(catalogue.learner(honest))
    assert all(r.passed is not False for r in results)
