"""Facts of the papers that suites and presets rest on, each with its source."""

from __future__ import annotations

import numpy as np
import pytest

from streamgauge import catalogue, metrics
from streamgauge.record import Run
from streamgauge.suites import drawing, load, published
from streamgauge.suites.running import plan_rows


def test_cloc_supervised_reference() -> None:
    """Cai et al. 2021, section 5.1: initial rate 0.025, weight decay 1e-4, cosine; online 0.05."""
    for preset in ("cloc", "cloc-5epochs"):
        given = catalogue.presets()["offline"][preset]
        assert (given["lr"], given["weight_decay"], given["schedule"]) == (0.025, 1e-4, "cosine")
    assert catalogue.learner("er@cloc").config.lr == 0.05
    assert published.table("cloc").table == "section 4"


def test_cloc_memories_have_the_cosine_schedule() -> None:
    """Cai et al. 2021, section 5.3: the cosine schedule in the analysis of memories."""
    rows = {row.name: row for row in load("cloc").rows if row.part == "memory"}
    for name, policy in (
        ("40 thousand", "fifo"),
        ("reservoir", "reservoir"),
        ("ring a class", "ring"),
    ):
        recipe = plan_rows([rows[name]], [0])[0].recipe
        assert (recipe.where, recipe.config.policy) == ("er_cosine", policy)


def test_blind_is_answered_photo_by_photo_in_both_suites() -> None:
    """Cai et al. 2021, section 5.5: the last 10 photos; Hammoud et al. 2023, section 3.2."""
    for suite, column in (("cloc", "online"), ("near-future", "CLOC online")):
        rows = [row for row in load(suite).rows if row.name == "blind"]
        assert ("label_accuracy@10",) in [row.columns.get(column) for row in rows]


@pytest.mark.parametrize("suite", ["realtime-cifar10", "realtime-cifar100", "realtime-cloc"])
def test_rwalk_is_run_as_published(suite: str) -> None:
    """Ghunaim et al. 2023: the numbers are of their code. On a delayed stream, its counter moves by
    the distance of two trained batches."""
    for row in load(suite).rows:
        if row.method.startswith("rwalk") and not row.defined and row.part != "two steps":
            planned = plan_rows([row], [0])[0]
            assert planned.recipe.config.as_published
            assert planned.recipe.config.stride == int(planned.protocol.cost)


def test_the_surveys_figures_are_drawn_as_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Soutif-Cormerais et al. 2023. Figure 3, left: cumulative forgetting against the first
    accuracy, below 0 where accuracy rose. Figure 2: accuracy times the share of tasks seen, rolling
    mean of 10."""
    b = np.array([[0.5, np.nan], [0.7, 0.4]])
    assert metrics.cumulative_forgetting(b, "first")[1] == pytest.approx(-0.2)
    shown = {}

    class Part(drawing.PartRuns):
        def figure(self, title, caption, curve, *axes, dotted=None, **more):  # type: ignore[no-untyped-def]
            shown[title] = (curve, dotted)

    part = Part("", [])
    list(drawing.forgetting(part))
    list(drawing.continual(part))
    monkeypatch.setattr(drawing, "_by_task", lambda run, value: value(b, b))
    assert shown["Forgetting"][1](None)[1] == pytest.approx(-0.2)
    accuracy = np.linspace(0, 1, 30)[:, None] * np.ones((1, 4))
    task = np.repeat([0, 1, 2], 10)
    monkeypatch.setattr(drawing, "_continual", lambda run: (accuracy, task, np.arange(30)))
    run = type("Stored", (Run,), {"__init__": lambda self: None, "stream": {"tasks": 4}})()
    x, y = shown["Continual accuracy, as the survey's Figure 2"][0](run)
    slow = [np.mean([accuracy[i, 0] * (task[i] + 1) / 4 for i in range(n - 9, n + 1)])
            for n in range(9, 30)]  # fmt: skip
    assert (x[0], x[-1]) == (9, 29)
    assert y == pytest.approx(slow)
