"""Facts of the papers that suites and presets rest on, each with its source."""

from __future__ import annotations

import tomllib
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from streamgauge import catalogue, learners, metrics
from streamgauge.errors import StreamgaugeError
from streamgauge.places.points import Points, classes_of, label_points, rows_of_years
from streamgauge.record import Run
from streamgauge.suites import drawing, load, published
from streamgauge.suites.running import plan_rows

DOCS = Path(__file__).parents[2] / "docs"


def test_cloc_supervised_reference() -> None:
    """Cai et al. 2021, section 5.1: initial rate 0.025, weight decay 1e-4, cosine; online 0.05."""
    for preset in ("cloc", "cloc-5epochs"):
        given = catalogue.presets()["offline"][preset]
        assert (given["lr"], given["weight_decay"], given["schedule"]) == (0.025, 1e-4, "cosine")
    assert catalogue.learner("er@cloc").config.lr == 0.05
    assert published.table("cloc").table == "section 4"
    assert "an initial rate of .025" in (DOCS / "methods" / "offline.md").read_text()


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
    assert plan_rows([rows["ADRep"]], [0])[0].recipe.where == "adrep_cosine"


def test_cloc_batch_sizes_are_studied_with_and_without_replay() -> None:
    """Cai et al. 2021, section 5.4: a memory of 4 million; "whether we use a replay buffer or not".
    The rate is B / 256 of that at 256."""
    for part, recalled in (("batch size", None), ("batch size, no replay", 0)):
        rows = [row for row in load("cloc").rows if row.part == part and not row.defined]
        assert [row.name for row in rows] == ["64", "128", "256"]
        for row in rows:
            config, size = plan_rows([row], [0])[0].recipe.config, int(row.name)
            assert config.lr == 0.05 * size / 256
            assert config.recall == (size if recalled is None else recalled)
            assert config.memory == 4_000_000


def test_cloc_keeps_the_years_2004_to_2014() -> None:
    """Cai et al. 2021, section 4: earlier times are often the default of a camera."""
    time = np.array([1_072_915_199, 1_072_915_200, 1_420_070_399, 1_420_070_400])
    assert rows_of_years(time, "2004-2014").tolist() == [False, True, True, False]
    where = {"latitude": [10.0, 50.0, 50.1, 10.0], "longitude": [8.0, 8.1, 8.2, 8.0], "time": time}
    points = Points(where)
    among = rows_of_years(points.times(), "2004-2014")
    classes = classes_of(points, preparation=1.0, among=among, split_above=9, keep_from=1)
    labelled = label_points(points, classes, among=among)
    assert (classes.points, labelled.labelled, labelled.other_years) == (2, 2, 2)
    assert labelled.outside == labelled.without_place == 0
    with pytest.raises(StreamgaugeError, match="as 2004-2014"):
        rows_of_years(time, "2014-2004")
    with pytest.raises(StreamgaugeError, match="column of times"):
        rows_of_years(None, "2004")


def test_realtime_costs_of_two_steps() -> None:
    """Ghunaim et al. 2023, appendix, Table 4: LwF 5/2, RWalk 4, PoLRS 6, MIR 7/2, GSS 7."""
    printed = {"LwF": 2.5, "RWalk": 4, "PoLRS": 6, "MIR": 3.5, "GSS": 7}
    given = tomllib.loads((Path(learners.__file__).parent / "about.toml").read_text())
    for row, cost in printed.items():
        number = published.number("realtime-table1", row, "two steps")
        assert number is not None
        assert number.value == cost
        assert Fraction(given[row.lower()]["paper_two_steps"]) == cost
    assert "2, 2, 5/2, 4, 7/2, 6, 7 (Table 4" in (DOCS / "time.md").read_text()


def test_realtime_delays() -> None:
    """Ghunaim et al. 2023, Table 1 and appendix, Table 3: a cost less 1, but LwF 3/2 for 5/3."""
    costs = published.table("realtime-table1").numbers
    printed = {"ER": 1, "ACE": 1, "LwF": 4 / 3, "RWalk": 2, "PoLRS": 3, "MIR": 5 / 2, "GSS": 6}
    for row, cost in printed.items():
        assert costs[row, "fast"].value == pytest.approx(cost, abs=5e-4)
        assert costs[row, "twice as fast"].value == pytest.approx(2 * cost, abs=5e-4)
    for row in ("ER", "ACE", "LwF", "RWalk", "PoLRS", "MIR", "GSS"):
        for column in ("fast", "twice as fast"):
            late = costs[row, f"delay, {column}"].value
            rounded = row == "LwF" and column == "twice as fast"
            assert late == (1.5 if rounded else pytest.approx(costs[row, column].value - 1))


@pytest.mark.parametrize(
    ("name", "where", "values", "deviations"),
    [
        ("survey-table2-cifar100", "Table 2, left half",
         (260.6, 275.6, 105.8, 362.9), (9.8, 15.8, 6.1, 6.4)),
        ("survey-table2-tinyimagenet", "Table 2, right half",
         (186.5, 234.3, 105.5, 278.0), (6.2, 16.2, 4.3, 5.5)),
        ("survey-table3", "Table 3", (155.2, 218.6, 66.6, 309.6), (10.5, 15.1, 12.0, 9.4)),
        ("survey-table4", "Table 4", (379.7, 351.4, 152.7, 453.9), (13.3, 15.7, 7.6, 8.8)),
        ("realtime-table2", "Table 2", (98.87, 104.29, 109.03), None),
        ("realtime-table5", "appendix, Table 5", (59.0, 73.0, 64.7, 27.1), None),
        ("realtime-small-table1", "appendix, Table 1", (316.67, 73.86), None),
        ("realtime-small-table2", "appendix, Table 2", (548.32, 160.34), None),
        ("near-future-text", "text of sections 3.2 and 3.4", (244, 82, 54, 20), None),
    ],
)  # fmt: skip
def test_tables_are_as_printed(
    name: str, where: str, values: tuple[float, ...], deviations: tuple[float, ...] | None
) -> None:
    """Soutif-Cormerais et al. 2023, Ghunaim et al. 2023 and Hammoud et al. 2023: sums of columns,
    added up from the papers."""
    table = published.table(name)
    assert table.table == where
    columns = [[n for n in table.numbers.values() if n.column == c] for c in table.columns]
    assert [sum(n.value for n in column) for column in columns] == pytest.approx(values)
    printed = [sum(n.deviation or 0 for n in column) for column in columns]
    assert printed == pytest.approx(deviations or [0] * len(columns))


def test_numbers_of_the_texts_are_in_the_ledger() -> None:
    """Ghunaim et al. 2023, section 4.1 (3.5) and appendix A (20 and 35 %), D (1.5, 0.7, 0.4, 0.5)
    and F (14 and 10). Cai et al. 2021, section 4: 5, 30 and 80 % within 1, 25 and 200 km."""
    for name, numbers in (
        ("realtime-given", [3.5, 20, 35]),
        ("realtime-transfer-text", [1.5, 0.4, 0.7, 0.5]),
        ("cloc", [5, 30, 80]),
    ):
        assert [n.value for n in published.table(name).numbers.values()] == numbers
    text = published.table("realtime-text").numbers.values()
    assert [n.value for n in text if n.column == "2 steps"] == [14, 10]


def test_near_future_margins_are_in_the_ledger() -> None:
    """Hammoud et al. 2023. Section 3.2: chance is 0.01 and 2 %. Section 3.3: more than 30 ahead of
    ACM on CGLM, 10 to 35 ahead of all others on CLOC, 80 %; caption of Figure 3: 10 to 40. Section
    3.5: FIFO loses about 70, and 20 to 40. Section 4.2: 38, 16, 77; 29, 21; 27, 13."""
    margins = published.table("near-future-given").numbers.values()
    assert [n.value for n in margins if n.column == "CGLM"] == [10788, 0.01, 70, 10, 40, 30, 80]
    assert [n.value for n in margins if n.column == "CLOC"] == [718, 2, 20, 40, 10, 40, 10, 35]
    budgets = published.table("near-future-budgets").numbers.values()
    assert sorted(n.value for n in budgets) == [13, 13, 16, 21, 27, 29, 38, 77]


def test_realtime_gaps_are_in_the_ledger() -> None:
    """Ghunaim et al. 2023. Section 4.1: 11 at the end of the stream, ER-- ahead by up to 3.5.
    Section 4.2: ER++ ahead of GSS, MIR and PoLRS by 17, 11 and 9.5, which adds 15 and 7."""
    text = published.table("realtime-text").numbers
    assert text["ER - GSS", "40000"].value == 11
    assert published.number("realtime-given", "ER-- minus a method, up to", "40000").value == 3.5  # type: ignore[union-attr]
    slow = {row: number.value for (row, column), number in text.items() if column == "1 step"}
    assert slow == {
        "ER++ - GSS": 17, "ER++ - MIR": 11, "ER++ - PoLRS": 9.5,
        "ER++ 6 - ER": 15, "ER++ 5/2 - ER": 7,
    }  # fmt: skip


def test_facts_of_cloc_are_in_the_ledger() -> None:
    """Cai et al. 2021, section 4: 39 million photos, 2 million to prepare, 392 thousand held out,
    712 classes of 50 to 10,000; section 5.1: 1.157 per album, 34 million; section 5.5: 1/712."""
    facts = [number.value for number in published.table("cloc-data").numbers.values()]
    assert facts == [39, 2, 0.392, 712, 50, 10_000, 1.157, 34, 0.14]
    assert round(39 / 1.157) == 34
    assert round(100 / 712, 2) == 0.14


def test_plateaus_of_rescaled_accuracy_are_in_the_ledger() -> None:
    """Michel et al. 2023, section 5.3: task 25 for GDumb and 65 for ER, on Tiny ImageNet."""
    plateaus = published.table("rescaled-given").numbers
    assert {row: number.value for (row, _), number in plateaus.items()} == {"GDumb": 25, "ER": 65}


def test_what_is_only_drawn_is_listed() -> None:
    """Cai et al. 2021, Figures 1, 2 and 7; Hammoud et al. 2023, Figures 1 and 3; Michel et al.
    2023, Figure 2."""
    drawn = {(p.paper, p.where) for t in published.tables().values() for p in t.plotted}
    for where in ("Figure 1, a", "Figure 1, b and c", "Figure 1, d", "Figure 2", "Figure 7"):
        assert ("Cai et al. 2021", where) in drawn
    for where in ("Figure 1", "Figure 3"):
        assert ("Hammoud et al. 2023", where) in drawn
    # Figure 3's rivals are "the three top performing OCL methods on CLOC" of Ghunaim et al. 2023.
    best = sorted(
        (n for n in published.table("realtime-table2").numbers.values() if n.column == "40000"),
        key=lambda n: -n.value,
    )
    rivals = [n.row for n in best[:3]]
    assert rivals == ["ER", "ACE", "LwF"]
    (text,) = (p.what for t in published.tables().values() for p in t.plotted
               if (p.paper, p.where) == ("Hammoud et al. 2023", "Figure 3"))  # fmt: skip
    assert "ER, ACE and LwF of realtime-cloc" in text
    assert set(rivals) <= {row.name for row in load("realtime-cloc").rows}
    assert ("Michel et al. 2023", "Figure 2") in drawn


def test_blind_is_answered_photo_by_photo_in_both_suites() -> None:
    """Cai et al. 2021, section 5.5: the last 10 photos; Hammoud et al. 2023, section 3.2: 10 on
    CLOC, 1 on CGLM."""
    given = (
        ("cloc", "online", 10),
        ("near-future", "CLOC online", 10),
        ("near-future", "CGLM online", 1),
    )
    for suite, column, window in given:
        rows = [row for row in load(suite).rows if row.name == "blind"]
        assert (f"label_accuracy@{window}",) in [row.columns.get(column) for row in rows]


@pytest.mark.parametrize("suite", ["realtime-cifar10", "realtime-cifar100", "realtime-cloc"])
def test_rwalk_is_run_as_published(suite: str) -> None:
    """Ghunaim et al. 2023: the numbers are of their code. On a delayed stream, its counter moves by
    the distance of two trained batches."""
    for row in load(suite).rows:
        if row.method.startswith("rwalk") and not row.defined and row.part != "two steps":
            planned = plan_rows([row], [0])[0]
            assert planned.recipe.config.as_published
            assert planned.recipe.config.stride == int(planned.protocol.cost)


@pytest.mark.parametrize("suite", ["survey-cifar100", "survey-memory", "survey-tinyimagenet"])
def test_the_surveys_derpp_is_that_of_its_code(suite: str) -> None:
    """Soutif-Cormerais et al. 2023: the numbers are of their code; by default DER++ is as in its
    paper (Buzzega et al. 2020)."""
    for row in (row for row in load(suite).rows if row.name.startswith("DER++")):
        assert plan_rows([row], [0])[0].recipe.config.as_published is not row.defined
    assert not catalogue.learner("derpp").config.as_published


def test_the_plain_version_has_every_method_of_the_table() -> None:
    """Ghunaim et al. 2023, Table 1, and their code as released: its first public commit has no MIR
    that can be built, so that it did not make the tables."""
    text = (DOCS.parent / "benchmarks" / "realtime_plain.py").read_text()
    names = {row for row, _ in published.table("realtime-table1").numbers}
    for name in names - {"ER"}:
        assert f"class {name}(ER):" in text
        assert f'"{name.lower()}": {name}' in text
    assert "what the code does as\nreleased" in text
    assert "The first public commit of that code cannot build MIR" in text


def test_the_surveys_figures_are_drawn_as_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Soutif-Cormerais et al. 2023. Figure 3, left: forgetting of all tasks so far and cumulative
    forgetting, both against the first accuracy, so below 0 where accuracy rose. Figure 2: accuracy
    times the share of tasks seen, rolling mean of 10."""
    b = np.array([[0.5, np.nan], [0.7, 0.4]])
    a = np.array([[0.5, np.nan, np.nan], [0.7, 0.4, np.nan], [0.4, 0.6, 0.2]])
    assert metrics.cumulative_forgetting(b, "first")[1] == pytest.approx(-0.2)
    shown = {}

    class Part(drawing.PartRuns):
        def figure(self, title, caption, curve, *axes, dotted=None, **more):  # type: ignore[no-untyped-def]
            shown[title] = (curve, dotted)

    part = Part("", [])
    list(drawing.forgetting(part))
    list(drawing.continual(part))
    monkeypatch.setattr(drawing, "_by_task", lambda run, value: value(a, b))
    assert shown["Forgetting"][1](None)[1] == pytest.approx(-0.2)
    # Of three tasks, that of the last one is 0; against the largest, the first would have lost 0.3.
    assert shown["Forgetting"][0](None)[2] == pytest.approx(((0.5 - 0.4) + (0.4 - 0.6) + 0) / 3)
    accuracy = np.linspace(0, 1, 30)[:, None] * np.ones((1, 4))
    task = np.repeat([0, 1, 2], 10)
    monkeypatch.setattr(drawing, "_continual", lambda run: (accuracy, task, np.arange(30)))
    run = type("Stored", (Run,), {"__init__": lambda self: None, "stream": {"tasks": 4}})()
    x, y = shown["Continual accuracy, as the survey's Figure 2"][0](run)
    slow = [np.mean([accuracy[i, 0] * (task[i] + 1) / 4 for i in range(n - 9, n + 1)])
            for n in range(9, 30)]  # fmt: skip
    assert (x[0], x[-1]) == (9, 29)
    assert y == pytest.approx(slow)
