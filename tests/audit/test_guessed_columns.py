"""Columns that an audit takes by their names: a person's age is no model's, and what is not used
is named."""

from __future__ import annotations

import numpy as np
import pytest

import streamgauge as sg
from streamgauge.audit import Audit, audit
from streamgauge.errors import StreamgaugeError

LABELS = np.random.default_rng(0).integers(0, 3, 2_000)


def audited(**columns: object) -> Audit:
    result = sg.audit_log({"label": LABELS, "prediction": LABELS, **columns}, shifts=[0])
    assert isinstance(result, Audit)
    return result


def test_the_age_of_persons_is_not_taken_for_that_of_the_model() -> None:
    persons = np.random.default_rng(1).integers(18, 90, len(LABELS))
    result = audited(age=persons)
    assert "age" not in result.columns
    assert any("Column 'age' is not used" in note and "--age age" in note for note in result.notes)
    assert result.columns_not_used == ["age"]


def test_the_age_of_persons_may_be_missing() -> None:
    rng = np.random.default_rng(1)
    persons = np.where(rng.random(len(LABELS)) < 0.45, np.nan, rng.integers(18, 90, len(LABELS)))
    assert audited(age=persons).columns_not_used == ["age"]


@pytest.mark.parametrize("log", ["log.csv", {"label": LABELS}, LABELS[:, None]])
def test_predictions_go_with_an_array_of_labels(log: object) -> None:
    with pytest.raises(StreamgaugeError, match=r"name the column: prediction='NAME'"):
        sg.audit_log(log, LABELS)


def test_an_age_that_is_named_is_used() -> None:
    ages = np.random.default_rng(1).integers(18, 90, len(LABELS))
    result = sg.audit_log(
        {"label": LABELS, "prediction": LABELS, "age": ages}, age="age", shifts=[0]
    )
    assert result.columns["age"] == "age"


@pytest.mark.parametrize(
    "ages",
    [
        np.arange(2_000) % 50,  # trained every 50 samples, from the first one on
        40 + np.arange(2_000) % 50,  # the log begins in the middle of a stream
        (40 + np.arange(20_000) % 500)[::10],  # every tenth row of such a log
        np.full(2_000, 64),  # a model that is always as far behind
        np.minimum(np.random.default_rng(2).integers(0, 100, 2_000), np.arange(2_000)),
    ],
)
def test_the_age_of_a_model_is_guessed(ages: np.ndarray) -> None:
    assert audited(age=ages).columns["age"] == "age"


def test_columns_without_a_role_are_named() -> None:
    result = audited(customer=np.arange(2_000) % 7)
    assert "not used: 'customer'" in str(result)
    assert "not used" not in str(audited())
    many = audited(**{f"c{number}": LABELS for number in range(30)})
    assert "'c9' and 20 more" in str(many)


@pytest.mark.parametrize("roles", [("label", "prediction"), ("user", "album"), ("time", "step")])
def test_one_column_has_one_role(roles: tuple[str, str]) -> None:
    one, other = roles
    log = {"label": np.arange(400) % 3, "prediction": np.arange(400) % 3, "x": np.arange(400)}
    column = "label" if one == "label" else "x"
    sentence = f"'{column}' cannot be both the {one} and the {other}: .* --{one} or --{other}"
    with pytest.raises(StreamgaugeError, match=sentence):
        audit(log, **{one: column, other: column})


def test_the_role_that_takes_the_label_is_named() -> None:
    log = {"when": np.arange(400), "label": np.arange(400) % 3, "prediction": np.arange(400) % 3}
    sentence = "looks like the label but 'label', which --user takes: name it with --label"
    with pytest.raises(StreamgaugeError, match=sentence):
        audit(log, user="label")
    with pytest.raises(StreamgaugeError, match="looks like the label: name it with --label"):
        audit({"when": np.arange(400), "who": np.arange(400)}, user="who")
