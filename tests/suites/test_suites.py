"""Suites: every file resolves, published numbers have sources, and the table's arithmetic."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import shlex
import shutil
import statistics
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from streamgauge import catalogue, metrics
from streamgauge.cli import app
from streamgauge.errors import StreamgaugeError
from streamgauge.files import write_sealed
from streamgauge.learners.behaviour import method_code
from streamgauge.pages import Figure
from streamgauge.pages.figures import figure as plot_figure
from streamgauge.pages.figures import line as plot_line
from streamgauge.pages.figures import markers as plot_markers
from streamgauge.pages.figures import share_axes
from streamgauge.record import Run
from streamgauge.report.figures import mean_lines
from streamgauge.running.execution import Execution
from streamgauge.running.executors.dispatch import execute
from streamgauge.settings import as_plain
from streamgauge.suites import drawing, load, names, published, running
from streamgauge.suites import text as suite_text
from streamgauge.suites.claims import claims
from streamgauge.suites.comparing import LedgerCell, statements, table
from streamgauge.suites.criterion import WIDEST
from streamgauge.suites.drawing import FIGURES, _by_seed, write_figures
from streamgauge.suites.dumbbells import published_section
from streamgauge.suites.measured import (
    NOT_CURRENT,
    UNKNOWN_CODE,
    Measured,
    _remarks,
    by_blocks,
    command,
    first_score,
    from_runs,
    recorded,
    together,
    write,
)
from streamgauge.suites.planning import Pace, _price, estimate
from streamgauge.suites.running import (
    PlannedRow,
    check_weights,
    find,
    gather,
    parse_seeds,
    plan_rows,
    run,
)
from streamgauge.suites.spec import DEFINED, GENERATED
from streamgauge.suites.text import ledger_page, plan_text, statement_text, table_text

ROOT = Path(__file__).parents[2]
SUITES = names()


def test_the_suites_are_those_of_the_papers() -> None:
    assert SUITES == [
        "cloc", "demo", "near-future", "near-future-natural", "realtime", "realtime-cifar10",
        "realtime-cifar100", "realtime-cloc", "rescaled", "survey-cifar100", "survey-memory",
        "survey-tinyimagenet",
    ]  # fmt: skip


@pytest.mark.parametrize("generated", [False, True])
@pytest.mark.parametrize("name", SUITES)
def test_every_row_of_every_suite_resolves(name: str, generated: bool) -> None:
    """Streams, learners, presets and settings are all known, and rows differ from each other."""
    suite = load(name, generated)
    seen: dict[str, str] = {}
    for row in suite.rows:
        (planned,) = plan_rows([row], [0])
        text = repr((row.part, planned.stream_key, planned.recipe.config, planned.protocol,
                     row.method))  # fmt: skip
        assert text not in seen, f"{row.title} is the same as {seen.get(text)}"
        seen[text] = row.title
        assert row.columns, row.title
    assert len({row.key for row in suite.rows}) == len(suite.rows)
    assert set(suite.figures) <= set(FIGURES)
    if generated:
        assert {row.stream for row in suite.rows} <= {"albums", "blobs"}


@pytest.mark.parametrize("name", SUITES)
def test_rows_as_defined_differ_from_the_published_ones_in_as_published(name: str) -> None:
    suite = load(name)
    rows = {row.key: row for row in suite.rows}
    for row in suite.rows:
        if not row.defined:
            continue
        other = rows[row.part, row.name.removesuffix(f", {DEFINED}")]
        mine, theirs = plan_rows([row, other], [0])
        for config in (mine.recipe.config, mine.protocol):
            assert not getattr(config, "as_published", False), row.title
        flags = [getattr(theirs.recipe.config, "as_published", False),
                 theirs.protocol.as_published]  # fmt: skip
        assert any(flags), row.title


def test_every_published_number_is_reached_by_a_row_or_said_to_be_no_result() -> None:
    reached = set()
    for name in SUITES:
        suite = load(name)
        for cell in table(suite, []):
            if cell.published is not None:
                reached.add((cell.published.table, cell.published.row, cell.published.column,
                             cell.published.paper))  # fmt: skip
    for one in published.tables().values():
        assert one.paper
        assert one.table
        assert one.about
        for number in one.numbers.values():
            assert number.source == (
                f"{one.paper}, {one.table}, row {number.row}, column {number.column}"
            )
            if not one.given and not one.closed_form:
                assert (number.table, number.row, number.column, number.paper) in reached, number
        for drawn in one.plotted:
            assert bool(drawn.suite) != bool(drawn.not_drawn), drawn
            assert not drawn.suite or drawn.figure in load(drawn.suite).figures, drawn


def test_published_numbers_know_how_they_were_printed() -> None:
    number = published.number("realtime-table2", "GSS", "40000")
    assert number is not None
    assert (number.value, number.deviation, number.seeds, number.digits) == (9.10, None, 1, 2)
    assert number.text == "9.10"
    assert number.shared_seed
    misprint = published.number("survey-table3", "MIR", "WC-Acc")
    assert misprint is not None
    assert misprint.text == "9.3 ± 7.7 (misprint)"
    assert published.number("survey-table3", "GDumb", "AAA") is None


def test_the_random_classifier_of_the_metrics_paper_in_closed_form() -> None:
    """Tables 1 and 2 of Michel et al. 2023, computed by our metrics."""
    seen = np.arange(2, 12, 2)
    a = np.array([[1 / seen[k] if j <= k else np.nan for j in range(5)] for k in range(5)])
    inner = metrics.forgetting_matrix(a)
    for name, matrix, average in (
        ("rescaled-table1", a, metrics.average_accuracy(a)),
        ("rescaled-table2", inner, metrics.average_forgetting(a)),
    ):
        for (row, column), number in published.table(name).numbers.items():
            k = int(row) - 1
            ours = matrix[k, int(column[1:]) - 1] if column[0] == "T" else average[k]
            # Printed digits are rounded or cut.
            assert abs(100 * ours - number.value) < 10.0**-number.digits, (name, row, column)


def _measured(row: str, values: dict[str, tuple[float, ...]], **more: Any) -> Measured:
    count = len(next(iter(values.values())))
    return Measured(more.pop("part", ""), row, tuple(range(count)), values, "command", **more)


def test_a_cell_that_differs_taken_alone_says_so() -> None:
    """The verdict is by Holm, and p beside it is not."""
    rows = {
        "ER": (32.0, 33.0, 34.0, 35.0, 33.5),
        "SCR": (28.0, 28.5, 28.4, 29.0, 27.8),
        "MIR": (29.0, 28.5, 30.4, 29.0, 28.8),
    }
    found = [_measured(row, {"Acc": values}) for row, values in rows.items()]
    cells = {c.row: c for c in table(load("survey-cifar100"), found) if c.column == "Acc"}
    test = cells["ER"].test
    assert test is not None
    assert (cells["ER"].verdict, cells["ER"].why) == ("differs", "")
    assert cells["SCR"].why == ""
    many = found + [
        _measured(row, {"Acc": (value - 0.3, value, value + 0.2, value, value + 0.1)})
        for row, value in (("ER-ACE", 29.9), ("DER++", 29.3), ("RAR", 28.2), ("GDumb", 18.5))
    ]
    many[0] = _measured("ER", {"Acc": (30.2, 29.8, 30.0, 30.4, 29.9)})
    cells = {c.row: c for c in table(load("survey-cifar100"), many) if c.column == "Acc"}
    test = cells["ER"].test
    assert test is not None
    assert test.p <= 0.05 < test.adjusted
    assert cells["ER"].verdict != "differs"
    assert cells["ER"].why == "p ≤ 5 % before Holm"


def test_the_table_shows_what_is_missing_and_both_ways_of_a_method(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "160")  # narrower, names are broken
    suite = load("survey-cifar100")
    found = [
        _measured("ER", {"Acc": (28.0, 29.0, 30.0), "AAA": (50.0, 50.0, 50.0)}, runs=("a", "b")),
        _measured(f"ER-ACE, {DEFINED}", {"Acc": (1.0, 2.0, 3.0)}),
        _measured("SCR", {"Acc": (28.0, 28.5, 28.4)}, earlier="no runs were kept"),
    ]
    cells = {(cell.row, cell.column): cell for cell in table(suite, found)}
    er = cells["ER", "Acc"]
    assert er.verdict in ("consistent", "uninformative")
    assert er.ours is not None
    assert er.ours.mean == pytest.approx(29.0)
    assert er.ours.deviation == pytest.approx(1.0)
    assert er.test is not None
    # One row with three seeds beside one with five: nothing to pool, so Welch's by hand.
    assert er.test.error == pytest.approx(math.sqrt(1.2**2 / 5 + 1 / 3 + 0.01 / 12))
    assert er.test.adjusted == er.test.p  # the larger of two
    aaa = cells["ER", "AAA"]
    assert aaa.test is not None
    assert aaa.test.difference == pytest.approx(50 - 36.6)
    assert aaa.test.adjusted == pytest.approx(2 * aaa.test.p)
    (statement,) = statements(cells.values())
    assert (statement.joint.cells, statement.published) == (2, 35)
    assert statement.ratio == pytest.approx(1.0 / 1.2)  # AAA does not vary here
    assert "2 of 35 cells by 3 seeds" in statement_text(statement)
    assert "0.83 × the published ones" in statement_text(statement)
    assert (er.command, er.runs) == ("command", ("a", "b"))
    assert aaa.verdict == "differs"
    assert (cells["ER", "WC-Acc"].verdict, cells["SCR", "AAA"].verdict) == ("not run", "not run")
    assert cells["ER-ACE", "Acc"].ours is None
    defined = cells[f"ER-ACE, {DEFINED}", "Acc"]
    assert (defined.verdict, defined.why) == ("", "as defined")
    assert defined.test is not None
    # The least p of three; those of the two cells that count are as without it.
    assert defined.test.adjusted == pytest.approx(3 * defined.test.p)
    assert defined.published == cells["ER-ACE", "Acc"].published
    assert (cells["SCR", "Acc"].verdict, cells["SCR", "Acc"].why) == (
        "not counted", "runs not kept"
    )  # fmt: skip
    assert ("GDumb", "AAA") not in cells  # neither published nor measured
    published_cells = [cell for cell in cells.values() if cell.published and not cell.defined]
    assert len(published_cells) == 35
    shown = table_text(suite, list(cells.values()))
    assert re.search(rf"ER-ACE, {DEFINED}\n +Acc", shown)
    words = " ".join(shown.split())  # lines end where the terminal ends
    assert f"Not run: DER++, {DEFINED}; ER + LwF, {DEFINED}; " in words
    assert "`streamgauge suite run survey-cifar100 --both` runs them." in words
    assert words.count(f"DER++, {DEFINED}") == 1


@pytest.mark.parametrize("name", sorted(names()))
def test_tables_fit_80_columns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    suite = load(name)
    cells = table(suite, recorded(name))
    text = table_text(suite, cells)
    # A command is one line, to be copied.
    assert not [
        line
        for line in text.splitlines()
        if len(line) > 80 and ": streamgauge suite run " not in line
    ]
    assert "…" not in text  # nothing is cut


def test_a_difference_is_taken_seed_by_seed() -> None:
    suite = load("realtime-cloc")
    first = Measured("slow", "ER++ 6", (0, 1, 3), {"1 step": (30.0, 31.0, 90.0)}, "")
    second = Measured("slow", "GSS", (1, 0, 2), {"1 step": (15.0, 12.0, 90.0)}, "")
    cells = [c for c in table(suite, [first, second]) if c.row == "ER++ - GSS"]
    slow = next(cell for cell in cells if cell.column == "1 step")
    assert slow.ours is not None
    assert slow.ours.seeds == 2
    assert slow.ours.mean == pytest.approx((18.0 + 16.0) / 2)
    assert slow.published is not None
    assert slow.published.value == 17


def test_seeds_are_written_as_people_write_them() -> None:
    assert parse_seeds(None) is None
    for text in ("", "x", "0", "-1", "3-1"):
        with pytest.raises(StreamgaugeError, match="names no seeds"):
            parse_seeds(text)


def test_rows_are_chosen_by_name_and_part() -> None:
    suite = load("survey-memory")
    assert [row.title for row in suite.choose(["ER"])] == [
        "memory 500: ER", "memory 2000: ER", "memory 8000: ER"
    ]  # fmt: skip
    assert [row.part for row in suite.choose(["memory 2000"])] == ["memory 2000"] * 3
    assert [row.title for row in suite.choose(["memory 500: er-ace"])] == ["memory 500: ER-ACE"]
    assert [row.name for row in suite.choose(["memory 500: ER-ACE, as defined"])] == [
        "ER-ACE, as defined"
    ]
    assert not any(row.defined for row in suite.choose())
    both = suite.choose(both=True)
    assert len(both) == len(suite.rows)
    assert [row.defined for row in both] == sorted(row.defined for row in both)
    with pytest.raises(StreamgaugeError, match="no row or part 'ER-ACEE'"):
        suite.choose(["ER-ACEE"])
    with pytest.raises(StreamgaugeError, match="no suite 'survey'"):
        load("survey")


def test_a_backbone_that_is_wanted_and_not_given_is_named() -> None:
    rows = load("near-future").choose(["OverAdapt, CGLM: OverAdapt"])
    with pytest.raises(StreamgaugeError, match="instagram1b=FILE"):
        check_weights(rows, {})
    with pytest.raises(StreamgaugeError, match="There is no file"):
        check_weights(rows, {"instagram1b": "nowhere.pt"})
    with pytest.raises(StreamgaugeError, match="No row here begins from 'imagenet'"):
        check_weights(rows, {"imagenet": "x.pt"})


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The smallest suite, whole, on generated data: its rows without a network, two seeds."""
    out = tmp_path_factory.mktemp("demo")
    suite = load("demo", generated=True)
    only = ["blind", "majority", "NCM"]
    made = list(run(suite, only=only, seeds=[0, 1], out=out, device="cpu", log=lambda _: None))
    assert [(one.seed, one.done) for one in made] == [(0, True), (1, True)] * 3
    return out


def test_a_suite_runs_only_what_is_missing(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = load("demo", generated=True)
    ids = {one.id for one in gather([demo])}
    said: list[str] = []
    again = list(run(suite, only=["blind", "NCM"], seeds=[0, 1], out=demo, log=said.append))
    assert {one.id for one in again} <= ids
    assert said == []
    monkeypatch.setattr(
        "streamgauge.running.active_run.ActiveRun.__init__",
        lambda *_, **__: pytest.fail("it ran again"),
    )
    list(run(suite, only=["majority"], seeds=[1], out=demo / "elsewhere", runs=[demo]))


def test_parts_from_two_machines_add_up(demo: Path, tmp_path: Path) -> None:
    """Found by what they were configured as: folder, name and kind of device do not count."""
    for one in gather([demo]):
        place = tmp_path / f"machine-{one.seed}" / "deep" / one.id
        shutil.copytree(one.path, place)
        if one.seed == 1:  # as if it had run on a GPU
            header = json.loads((place / "run.json").read_text())
            header["config"]["device"] = "cuda"
            header["config"]["learner"]["name"] = "another-name"
            write_sealed(place / "run.json", header)
    suite = load("demo", generated=True)
    alone = from_runs(suite, gather([tmp_path / "machine-0"]))
    assert {one.row: one.seeds for one in alone} == dict.fromkeys(
        ("blind", "majority", "NCM"), (0,)
    )
    both = from_runs(suite, gather([tmp_path / "machine-0", tmp_path / "machine-1"]))
    assert all(one.seeds == (0, 1) for one in both)
    assert all("different kinds of device" in one.remarks[0] for one in both)
    whole = {one.row: one.values for one in from_runs(suite, gather([demo]))}
    assert {one.row: one.values for one in both} == whole


def fits(run: Run, planned: PlannedRow) -> bool:
    stored = find([planned], [run])
    return bool(stored.complete or stored.begun)


def test_a_run_with_another_setting_is_not_taken_for_a_row(demo: Path) -> None:
    suite = load("demo", generated=True)
    rows = {row.name: row for row in suite.rows}
    one = next(r for r in gather([demo]) if r.learner == "ncm" and r.seed == 0)
    assert fits(one, plan_rows([rows["NCM"]], [0])[0])
    assert not fits(one, plan_rows([rows["NCM"]], [1])[0])
    assert not fits(one, plan_rows([rows["ER"]], [0])[0])
    full = {row.name: row for row in load("demo").rows}  # a longer stream
    assert not fits(one, plan_rows([full["NCM"]], [0])[0])
    trained = dataclasses.replace(rows["NCM"], weights="embedding")  # from weights, not from none
    assert not fits(one, plan_rows([trained], [0])[0])


def test_a_setting_that_came_after_a_run_has_its_default(demo: Path, tmp_path: Path) -> None:
    row = next(row for row in load("demo", generated=True).rows if row.name == "NCM")
    one = next(r for r in gather([demo]) if r.learner == "ncm" and r.seed == 0)
    cases = [("learner", "distance", True), ("protocol", "label_delay", True)]
    for part, name, has_it in [*cases, ("protocol", "shifts", False)]:
        place = tmp_path / f"{part}-{name}"
        shutil.copytree(one.path, place)
        header = json.loads((place / "run.json").read_text())
        config = header["config"][part]
        del config.get("settings", config)[name]
        write_sealed(place / "run.json", header)
        assert fits(Run(place), plan_rows([row], [0])[0]) == has_it, name


def test_the_table_of_a_suite_is_the_mean_over_its_runs(demo: Path) -> None:
    suite = load("demo", generated=True)
    for row in suite.choose(["blind", "NCM"]):
        found = find(plan_rows([row], [0, 1]), gather([demo]))
        right = []
        for one in found.of(row):
            table_ = Run(one.path).predictions
            live = table_["shift"] == 0
            right.append(100 * float(np.mean((table_["label"] == table_["prediction"])[live])))
        (cell,) = [
            c
            for c in table(suite, from_runs(suite, gather([demo])))
            if (c.row, c.column) == (row.name, "online")
        ]
        assert cell.ours is not None
        assert cell.ours.mean == pytest.approx(statistics.mean(right))
        assert cell.ours.deviation == pytest.approx(statistics.stdev(right))
        assert len(cell.runs) == 2
        assert "--generated" in cell.command


def test_an_interrupted_run_is_begun_and_not_complete(demo: Path, tmp_path: Path) -> None:
    one = next(r for r in gather([demo]) if r.learner == "ncm" and r.seed == 0)
    shutil.copytree(one.path, tmp_path / "run")
    file = next(f for f in (tmp_path / "run").glob("*.json") if "done" in json.loads(f.read_text()))
    write_sealed(file, {**json.loads(file.read_text()), "done": False})
    suite = load("demo", generated=True)
    rows = suite.choose(["NCM"])
    found = find(plan_rows(rows, [0, 1]), gather([tmp_path]))
    assert (len(found.complete), list(found.begun[rows[0].key])) == (0, [0])
    (planned,) = estimate(plan_rows(rows, [0, 1]), found, "cpu", measure=False)
    assert (planned.complete, planned.begun, planned.missing) == (0, 1, 2)


def test_the_plan_counts_what_a_run_does(demo: Path) -> None:
    """Steps, answers and evaluated samples against the log of the run itself; FLOPs by hand."""
    suite = load("demo", generated=True)
    rows = suite.choose(["NCM", "ER"])
    found = find(plan_rows(rows, [0, 1]), gather([demo]))
    er, ncm = sorted(estimate(plan_rows(rows, [0, 1]), found, "cpu"), key=lambda one: one.row.name)
    assert (ncm.complete, ncm.missing, er.complete, er.missing) == (2, 0, 0, 2)
    log = found.of(ncm.row)[0]
    assert ncm.work.steps == log.step
    # Samples at the end of the stream have nobody 40 samples later to be asked about.
    asked = len(log.predictions["label"])
    assert asked <= ncm.work.answered <= asked + 40
    assert ncm.work.evaluated >= int(np.sum(log.evaluations["count"]))
    assert ncm.work.evaluated == len(log.answers["label"])
    assert er.price is not None
    # Training is about three times an answer for each of the 20 samples of a job.
    assert 2.5 < er.price.job[0] / (20 * er.price.answer[0]) < 3.1
    assert er.flops == pytest.approx(
        er.work.jobs * er.price.job[0] + (er.work.answered + er.work.evaluated) * er.price.answer[0]
    )
    assert er.seconds > 0


def test_a_small_memory_gives_a_job_all_the_candidates_it_would_draw_of_a_full_one() -> None:
    """MIR draws 128 candidates a pass and asks about them twice; training on a sample takes two to
    three times an answer."""
    settings = {"memory": 2000, "candidates": 128, "recall": 4, "passes": 3, "as_published": True}
    found = _price(
        catalogue.learner("mir", **settings), (3, 8, 8), 100, 10, Pace(torch.device("cpu"))
    )
    assert not isinstance(found, str)
    answers = found.job[0] / found.answer[0] / 3
    assert 2 * (10 + 4) + 2 * 128 < answers < 3 * (10 + 4) + 2 * 128


def test_a_small_memory_gives_gss_all_the_parts_it_would_draw_of_a_full_one() -> None:
    """It trains on 20, and takes gradients of 20 parts and of the batch; and of each sample of the
    batch before, where that was unlike."""
    found = _price(
        catalogue.learner("gss", memory=2000, subsets=20),
        (3, 8, 8),
        100,
        10,
        Pace(torch.device("cpu")),
    )
    assert not isinstance(found, str)
    answers = found.job[0] / found.answer[0]
    assert 2 * (20 + 200 + 10) < answers < 3 * (20 + 200 + 10 + 10)


def test_the_figures_of_a_suite_are_drawn_from_what_there_is(demo: Path, tmp_path: Path) -> None:
    suite = load("demo", generated=True)
    page = write_figures(suite, gather([demo]), tmp_path / "page.html").read_text()
    drawn = json.loads(re.search(r'id="figures">(.*?)</script>', page, re.DOTALL).group(1))  # type: ignore[union-attr]
    titles = re.findall(r"<strong>(.*?)</strong>", page)
    assert len(drawn) == len(titles)
    assert titles[:2] == ["Online accuracy", "Near-future accuracy"]
    assert any("blind classifier" in title for title in titles)
    names_ = {trace["name"] for trace in drawn[0]["data"] if "name" in trace}
    assert names_ == {"blind", "majority", "NCM"}
    assert "not drawn: newest; ER." in page
    last = next(t for t in drawn[0]["data"] if t.get("name") == "NCM")["y"][-1]
    cells = table(suite, from_runs(suite, gather([demo])))
    (cell,) = [c for c in cells if (c.row, c.column) == ("NCM", "online")]
    assert cell.ours is not None
    assert last == pytest.approx(cell.ours.mean, abs=1e-2)
    with pytest.raises(StreamgaugeError, match="no complete runs"):
        write_figures(suite, [], tmp_path / "none.html")


def test_results_are_written_and_read_as_they_were(tmp_path: Path) -> None:
    found = [
        Measured("fast", 'a "quoted" row', (0, 2), {"A": (1.25, 3.0), "B": (math.nan, 100.0)},
                 "c", ("r1", "r2"), "cpu", "v", "", ("said",)),
        Measured("", "no row", (0,), {"A": (0.1234,)}, "", code=("abc",)),
    ]  # fmt: skip
    write("demo", found, tmp_path / "demo.toml")
    again = recorded("demo", tmp_path)
    assert repr(again) == repr(found)
    assert recorded("cloc", tmp_path) == []


def test_the_ledger_page_is_what_the_committed_results_give() -> None:
    page = (ROOT / "docs" / "ledger.md").read_text(encoding="utf-8")
    assert page == ledger_page(), "run: streamgauge suite ledger --to docs/ledger.md"


@pytest.mark.long
def test_the_ledger_page_does_not_depend_on_the_last_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines differ in them: every value is moved by some 1e-12 of itself."""
    page, rng = ledger_page(), np.random.default_rng(0)

    def moved(columns: Any, by: float) -> dict[str, tuple[float, ...]]:
        return {c: tuple(v * (1 + by * rng.normal()) for v in each) for c, each in columns.items()}

    def read(by: float) -> Any:
        return lambda *given: [
            dataclasses.replace(row, values=moved(row.values, by), blocks=moved(row.blocks, by))
            for row in recorded(*given)
        ]

    monkeypatch.setattr(suite_text, "recorded", read(1e-12))
    assert ledger_page() == page
    monkeypatch.setattr(suite_text, "recorded", read(1e-2))
    assert ledger_page() != page


def test_what_is_left_to_run_is_what_the_ledger_lacks() -> None:
    """Suites of papers with rows that were not run are in the list of minutes, and no others; the
    sum is that of its lines."""
    section = (ROOT / "docs" / "suites.md").read_text(encoding="utf-8")
    section = section.partition("### What is left to run\n")[2].partition("\n## ")[0]
    lines = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| ")][1:]
    listed = " ".join(what for what, _ in lines)
    for name in set(SUITES) - {"demo", "realtime"}:  # no paper's
        run_rows = {row.key for row in recorded(name)}
        rows = [row for row in load(name).rows if not row.defined and row.key not in run_rows]
        # Rows with 2000 samples are run in survey-cifar100.
        missing = [row.name for row in rows if (name, row.part) != ("survey-memory", "memory 2000")]
        assert (f"`{name}`" in listed) == bool(missing), name
        if name in ("survey-memory", "realtime-cifar10", "realtime-cifar100"):
            assert all(row in listed for row in missing), name
    assert f"{sum(int(count) for _, count in lines if count.strip().isdigit())} minutes" in section


def test_the_ledger_follows_its_results(tmp_path: Path) -> None:
    values = {"Acc": (28.0, 28.5, 27.9)}
    write(
        "survey-cifar100",
        [_measured("ER", values, runs=("abc",))],
        tmp_path / "survey-cifar100.toml",
    )
    page = ledger_page(tmp_path)
    assert "the behaviour of the code that ran it is not recorded" in page
    assert "| survey-cifar100 | 35 | 0 | 0 | 0 | 0 | 1 | 34 |" in page
    row = next(row for row in load("survey-cifar100").rows if row.name == "ER")
    code = method_code("er", as_plain(plan_rows([row], [0])[0].recipe.config))
    for stored, verdict in ((code, "consistent"), ("of last year", "not counted")):
        write(
            "survey-cifar100",
            [_measured("ER", values, runs=("abc",), code=(stored,))],
            tmp_path / "survey-cifar100.toml",
        )
        page = ledger_page(tmp_path)
        assert re.search(r"\| ER \| Acc \| 28.2 ± 1.2 \| 28.13 ± 0.32 \| 3 \|.*" + verdict, page)
        assert "runs abc" in page
        assert "| SCR | Acc | 28.3 ± 0.8 | – |  |  |  |  |  |  | not run |" in page


def test_the_first_screen_says_what_differs_and_what_is_not_known(tmp_path: Path) -> None:
    suite = load("survey-cifar100")
    code = {
        row.name: method_code(recipe.where, as_plain(recipe.config))
        for row in suite.rows
        for recipe in [plan_rows([row], [0])[0].recipe]
    }
    found = [
        _measured(row, {"Acc": values}, code=(code[row] if row != "MIR" else "other",))
        for row, values in (
            ("ER", (38.0, 38.5, 37.9)), ("ER-ACE", (29.8, 30.0, 30.1)),
            ("DER++", (20.0, 30.0, 37.0)), ("MIR", (29.0, 29.1, 29.3)),
            (f"ER-ACE, {DEFINED}", (1.0, 2.0, 3.0)),
        )
    ]  # fmt: skip
    write("survey-cifar100", found, tmp_path / "survey-cifar100.toml")
    first = ledger_page(tmp_path).partition("\n## ")[0]
    assert "261 published numbers, 3 were run and judged" in first
    assert "**Compatible: 1 of 3.** 0 are equivalent" in first
    assert "survey-cifar100 1 of 3." in first
    assert "**Differs: 1 of 3** (ER on Acc +9.93 ± " in first
    assert '**Not judged: 1 numbers of rows "as defined"**' in first
    assert "1 would differ (ER-ACE, as defined on Acc -27.90 ± " in first
    assert "1 were run and are uninformative" in first
    assert "1 were run by code that behaves differently today" in first
    assert "257 were not run" in first
    assert "**Not known: 259 of 261.**" in first
    assert f"{len(claims())} cannot be decided" not in first  # two are by construction
    assert f"{len(claims()) - 2} cannot be decided" in first


def test_every_recorded_row_has_a_known_behaviour() -> None:
    """By the hash that its runs stored, or by its commit in results/behaviour.toml."""
    for name in SUITES:
        for measured in recorded(name):
            assert UNKNOWN_CODE not in measured.remarks, (name, measured.row, measured.versions)


def test_seeds_of_a_suite_suffice_for_a_verdict() -> None:
    """Also where one run is published: the rows of a table give its deviations together. Where runs
    vary by .3, at most every fifth verdict says nothing; with two seeds it would be every third."""
    for name in SUITES:
        suite, uninformative = load(name), []
        for draw in range(6):
            rng = np.random.default_rng(draw)
            measured = [
                Measured(
                    row.part,
                    row.name,
                    tuple(range(row.seeds)),
                    {column: tuple(rng.normal(10, 0.3, row.seeds)) for column in row.columns},
                    "",
                )
                for row in suite.rows
            ]
            for cell in table(suite, measured):
                if cell.published and not cell.defined:
                    assert cell.test is not None
                    assert not math.isnan(cell.test.p), (name, cell.title)
                    if cell.published.seeds == 1:
                        uninformative.append(cell.test.half > WIDEST)
        assert not uninformative or np.mean(uninformative) < 0.2, name


def test_the_commands(demo: Path, tmp_path: Path) -> None:
    def call(*words: str) -> str:
        done = CliRunner().invoke(app, ["suite", *words], obj={})
        assert done.exception is None, done.exception
        return str(done.output)

    assert "survey-cifar100" in call("list")
    shown = call("table", "demo", "--generated", "--out", str(demo))
    assert re.search(r"NCM\n +online +\d+\.\d\d±\d+\.\d\d +2", shown)
    cells = json.loads(call("table", "demo", "--generated", "--out", str(demo), "--json"))
    assert {cell["row"] for cell in cells} == {"blind", "majority", "NCM"}
    assert all(cell["seeds"] == 2 and cell["verdict"] == "" for cell in cells)
    shown = call("plan", "demo", "--generated", "--out", str(demo), "--no-measure", "--seeds", "2")
    assert "To run: 4 runs" in shown
    shown = call("run", "demo", "--generated", "--out", str(demo), "--only", "NCM", "--seeds", "2")
    assert "streamgauge suite figures demo --generated" in shown
    shown = call("table", "survey-cifar100", "--out", str(tmp_path))
    assert "35 published numbers" in shown
    first_table = shown.split("35 published")[0]
    assert max(map(len, first_table.splitlines())) <= 80
    call("ledger", "--to", str(tmp_path / "ledger.md"))
    assert (tmp_path / "ledger.md").read_text() == ledger_page()


def test_a_suite_can_refuse_what_may_differ_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streamgauge.learners.gradient_free.ncm import NCM

    learn = NCM.learn

    def wild(self: NCM, *inputs: Any) -> Any:
        torch.zeros(3).put_(torch.tensor([0]), torch.ones(1))
        return learn(self, *inputs)

    monkeypatch.setattr(NCM, "learn", wild)
    words = ["suite", "run", "demo", "--generated", "--only", "NCM", "--seeds", "1"]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path), "--deterministic"], obj={})
    assert str(done.exception).startswith("put_ has no algorithm in torch")
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path)], obj={})
    assert done.exception is None


def test_any_number_can_be_written_and_read_again(tmp_path: Path) -> None:
    values = {"Acc": (31.0, 30.99999999, 0.00001, 100.0, 12.3456, float("nan"))}
    write("demo", [_measured("ER", values)], tmp_path / "demo.toml")
    (again,) = recorded("demo", tmp_path)
    assert again.values["Acc"] == pytest.approx(
        (31.0, 31.0, 0.0, 100.0, 12.3456, float("nan")), nan_ok=True
    )


# What a hard look found: seeds that went missing, and numbers said to be of something else.


@pytest.mark.parametrize("generated", [False, True])
def test_the_command_beside_a_row_makes_that_row_with_those_seeds(generated: bool) -> None:
    for name in names():
        suite = load(name, generated)
        for row in suite.rows:
            for seeds in ([0], [0, 1, 2, 3, 4], [3], [3, 4], [0, 2], list(range(row.seeds))):
                words = shlex.split(command(suite, [row], seeds))
                assert words[:4] == ["streamgauge", "suite", "run", name]
                assert ("--generated" in words) == generated
                assert suite.choose([words[words.index("--only") + 1]]) == [row]
                given = words[words.index("--seeds") + 1] if "--seeds" in words else None
                assert (parse_seeds(given) or list(range(row.seeds))) == seeds
        for cell in table(suite, []):
            assert ("--generated" in cell.command) == generated


def test_recorded_seeds_stay_when_fewer_are_run_here() -> None:
    line = "streamgauge suite run x --only ER"
    before = Measured("", "ER", (0, 1, 2, 3), {"Acc": (1.0, 2.0, 3.0, 4.0), "Old": (5.0,) * 4},
                      line, ("a", "b", "c", "d"), "cuda: H", "v1")  # fmt: skip
    here = Measured("", "ER", (1, 7), {"Acc": (20.0, 70.0), "New": (8.0, 9.0)},
                    f"{line} --seeds 1,7", ("B", "H"), "cpu", "v2")  # fmt: skip
    (found,) = together([before], [here])
    assert found.seeds == (0, 1, 2, 3, 7)
    assert found.values["Acc"] == (1.0, 20.0, 3.0, 4.0, 70.0)
    assert found.values["Old"] == pytest.approx((5.0, math.nan, 5.0, 5.0, math.nan), nan_ok=True)
    assert found.values["New"] == pytest.approx((math.nan, 8.0, *[math.nan] * 2, 9.0), nan_ok=True)
    assert found.runs == ("a", "B", "c", "d", "H")
    assert found.command == "streamgauge suite run x --only ER --seeds 0,1,2,3,7"
    assert found.remarks == ("seeds 0, 2, 3 as recorded by v1 on cuda: H",)
    assert (found.device, found.versions) == ("cuda: H; cpu", "v1; v2")
    # All of it was run again here, or what was recorded is no check: then what is here stands.
    assert together([dataclasses.replace(before, seeds=(1,))], [here]) == [here]
    assert together([dataclasses.replace(before, earlier="not kept")], [here]) == [here]
    assert together([before], []) == [before]


def test_new_seeds_count_together_with_recorded_ones(tmp_path: Path) -> None:
    """Recorded runs of early commits have no hash of their behaviour, new ones do: as both behave
    like today's code, a row of both is counted. Run with other code, neither is."""
    row = next(r for r in load("realtime-cifar100").rows if r.title == "fast: ER")
    recipe = plan_rows([row], [0])[0].recipe
    (before,) = (m for m in recorded("realtime-cifar100") if m.key == row.key)
    assert before.code == before.remarks == ()
    assert before.seeds == (0, 1, 2)
    code = method_code(recipe.where, as_plain(recipe.config))
    new = dataclasses.replace(
        before, seeds=(3, 4), values={"CIFAR100": (13.0, 14.0)}, runs=("x", "y"),
        versions="streamgauge 0.2.0 (0123456789), torch 2.11.0", code=(code,),
    )  # fmt: skip
    for newer, counted in ((new, True), (dataclasses.replace(new, code=("other",)), False)):
        write("realtime-cifar100", together([before], [newer]), tmp_path / "realtime-cifar100.toml")
        (joined,) = recorded("realtime-cifar100", tmp_path)
        assert joined.seeds == (0, 1, 2, 3, 4)
        assert bool(set(joined.remarks) & set(NOT_CURRENT)) is not counted


def test_a_difference_of_rows_that_are_no_check_is_none_either() -> None:
    suite = load("realtime-cloc")
    seeds = (0, 1, 2)
    first = Measured("slow", "ER++ 6", seeds, {"1 step": (30.0, 31.0, 32.0)}, "")
    second = Measured("slow", "GSS", seeds, {"1 step": (13.0, 14.0, 15.0)}, "")

    def cell(*found: Measured) -> LedgerCell:
        (one,) = [c for c in table(suite, found)
                  if (c.row, c.column, c.part) == ("ER++ - GSS", "1 step", "slow")]  # fmt: skip
        return one

    both = cell(first, second)
    assert both.test is not None
    assert both.test.difference == pytest.approx(0.0)
    earlier = cell(first, dataclasses.replace(second, earlier="not kept", remarks=("hm",)))
    assert (earlier.verdict, earlier.why) == ("not counted", "runs not kept")
    assert earlier.remarks == ("hm",)


def test_runs_of_another_code_or_of_other_data_are_said_to_be(demo: Path, tmp_path: Path) -> None:
    suite = load("demo", generated=True)
    assert all(one.remarks == () for one in from_runs(suite, gather([demo])))
    for one in gather([demo]):
        if one.learner == "ncm":
            shutil.copytree(one.path, tmp_path / one.id)
            header = json.loads((tmp_path / one.id / "run.json").read_text())
            header["config"]["learner"]["code"] = "of last year"
            write_sealed(tmp_path / one.id / "run.json", header)
    (found,) = from_runs(suite, gather([tmp_path]))
    assert found.remarks == ("run with another version of the learner's code than the one here",)
    # Each seed of a generated stream has data of its own, also where a row runs on a part of it.
    rows = {row.name: row for row in suite.rows}
    runs = [one for one in gather([demo]) if one.learner == "ncm"]
    for one in runs:
        one.header["stream"]["name"] = "albums-preparation"
    assert list(_remarks(rows["NCM"], runs)) == []
    real = dataclasses.replace(rows["NCM"], stream="cloc")
    assert list(_remarks(real, runs)) == ["seeds were run on different data"]


def test_figures_over_rows_leave_no_seed_out() -> None:
    each = [[1.0, 2.0], [3.0, 4.0]]
    assert [y.tolist() for _, y in _by_seed(np.arange(2), each)] == [[1.0, 3.0], [2.0, 4.0]]
    uneven = [[1.0, 2.0, 6.0], [3.0]]  # three seeds here, one there
    ((x, y),) = _by_seed(np.array([0, 2]), uneven)
    assert (x.tolist(), y.tolist()) == ([0.0, 2.0], [3.0, 3.0])
    assert _by_seed(np.arange(0), []) == []


def test_first_weights_are_named_the_same_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their path is part of what a run is: a run begun here must go on from elsewhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(running, "pretrain", lambda *_, out, **__: out / "weights.pt")
    row = next(row for row in load("near-future", generated=True).rows if row.weights)
    (planned,) = plan_rows([row], [0])
    made = tmp_path / "runs" / "backbones" / "weights.pt"
    assert planned.prepared(Path("runs")).recipe.config.weights == str(made)
    real = next(row for row in load("near-future").rows if row.weights)
    (planned,) = plan_rows([real], [0], {real.weights: "net.pt"})
    assert planned.prepared(Path("runs")).recipe.config.weights == str(tmp_path / "net.pt")


def test_a_curve_of_one_point_is_seen_and_bands_of_accuracies_stay_within_100() -> None:
    one = mean_lines([("GDumb", [(np.array([60.0]), np.array([0.2]))])])
    assert one[0]["mode"] == "markers"
    run = SimpleNamespace(path="")
    with pytest.MonkeyPatch.context() as patch:
        matrices = iter([np.array([[1.0, np.nan], [1.0, 1.0]]),
                         np.array([[0.2, np.nan], [0.8, 0.9]])] * 4)  # fmt: skip
        patch.setattr(drawing, "_by_task", lambda run, value, scale: (
            np.array([1.0, 2.0]), scale * value(next(matrices), None)))  # fmt: skip
        patch.setattr(drawing, "Run", lambda path: run)
        patch.setattr(drawing, "classes_seen", lambda run: np.array([2, 4]))
        row = load("rescaled", generated=True).rows[0]
        accuracy, forgetting = drawing.rescaled(drawing.PartRuns("", [(row, [run, run])]))  # type: ignore[list-item]
    assert accuracy is not None
    assert forgetting is not None
    heights = [y for trace in accuracy.data for y in trace["y"]]
    assert min(heights) >= 0
    assert 50 < max(heights) <= 100
    (plain, dotted) = (trace for trace in accuracy.data if "name" in trace)
    assert plain["y"] == [60.0, 92.5]
    assert dotted["y"] == [30.0, 92.5]


def test_a_run_that_two_rows_ask_for_is_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made twice at the same time, the second would find its folder locked."""
    suite = load("cloc", generated=True)
    only = ["schedules: cosine", "memory: 40 thousand", "memory: reservoir"]
    executed: list[Any] = []
    monkeypatch.setattr(running, "execute", lambda planned, *_: executed.extend(planned) or ())
    list(run(suite, only=only, seeds=[0, 0], out=tmp_path, device="cpu", log=lambda _: None))
    assert [one.row.title for one in executed] == ["schedules: cosine", "memory: reservoir"]


def test_seeds_from_different_first_weights_are_said_to_be(demo: Path) -> None:
    rows = {row.name: row for row in load("demo", generated=True).rows}
    runs = [one for one in gather([demo]) if one.learner == "ncm"]
    for one in runs:
        one.header["config"]["learner"]["weights"] = f"hash of file {one.seed}"
    real = dataclasses.replace(rows["NCM"], generated=False)
    assert list(_remarks(real, runs)) == ["seeds began from different first weights"]
    assert list(_remarks(rows["NCM"], runs)) == []  # generated: each seed's own


def test_a_row_on_the_preparation_part_reaches_no_later_sample(tmp_path: Path) -> None:
    suite = load("realtime-cloc", generated=True)
    (row,) = suite.choose(["rate 0.01: ER"])
    (planned,) = plan_rows([row], [0])
    whole = catalogue.stream(planned.stream, **planned.stream_settings)
    part = planned.build_stream()
    assert part.name == f"{whole.name}-preparation"
    assert len(part.source) == part.samples == len(whole.preparation) < len(whole.source)
    read = part.source.read(part.order)
    assert np.array_equal(read, whole.source.read(whole.preparation))
    short = dataclasses.replace(row, settings={**row.settings, "stream.length": 60})
    (planned,) = plan_rows([short], [0])
    execution = Execution(device="cpu", log=lambda _: None)
    ((_, made),) = execute([planned], execution, tmp_path)
    assert fits(made, planned)  # and its run is found again


def test_the_plan_counts_a_run_of_two_rows_once() -> None:
    suite = load("cloc", generated=True)
    rows = suite.choose(["schedules: cosine", "memory: 40 thousand", "memory: reservoir"])
    found = estimate(plan_rows(rows, [0, 1]), find([], []), "cpu", measure=False)
    by = {one.row.title: (one.missing, one.to_run) for one in found}
    assert by == {
        "schedules: cosine": (2, 2), "memory: 40 thousand": (2, 0), "memory: reservoir": (2, 2)
    }  # fmt: skip
    shown = plan_text(suite, found, "cpu")
    assert "To run: 4 runs" in shown
    assert "2 more are the same as one of another row" in shown


def test_a_number_of_two_suites_is_in_the_ledger_once() -> None:
    """Table 2's numbers with 2000 samples, which survey-memory has as well; a row as defined does
    not stand for the row as published."""
    page = (ROOT / "docs" / "ledger.md").read_text()  # as a test above checks
    assert page.count("| GDumb | Acc | 18.5 ± 0.5 |") == 1
    assert re.search(r"\| RWalk \| CIFAR10 \| 43\.90 .* uninformative \|", page)
    assert re.search(r"\| RWalk, as defined \| CIFAR10 \| 43\.90 .* as defined \|", page)


def test_a_suite_without_published_numbers_shows_its_own() -> None:
    page = (ROOT / "docs" / "ledger.md").read_text()
    for suite, row in (("near-future-natural", "OverAdapt"), ("rescaled", "finetune")):
        section = page.partition(f"## {suite}\n")[2].partition("\n## ")[0]
        (measured,) = [r for r in recorded(suite) if r.row == row][:1]
        column, values = next(iter(measured.values.items()))
        assert f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}" in section, column
        assert measured.runs[0] in section
    assert "Not run: TinyImageNet: finetune" in page


def test_parts_of_a_stream_are_averaged_over_seeds(demo: Path) -> None:
    """Each column of the natural suite, on the demo's runs: parts have the mean of the whole."""
    runs = [one for one in gather([demo]) if one.learner == "ncm"]
    for name in ("online_accuracy", "retained_accuracy", "label_accuracy@1"):
        parts = by_blocks(runs, [name], 10)
        whole = 100 * np.mean([first_score(one, [name]) for one in runs])
        assert len(parts) == 10
        assert np.mean(parts) == pytest.approx(whole, abs=2.0 if "label" in name else 0.5)
        assert np.std(parts) > 0
    with pytest.raises(StreamgaugeError, match="no mean over samples"):
        by_blocks(runs, ["flops"], 10)


def test_published_numbers_and_ours_are_drawn_as_pairs() -> None:
    suite = load("survey-cifar100")
    measured = []
    for row in (row for row in suite.rows if not row.defined):
        numbers = {c: published.number(row.table, row.published, c) for c in row.columns}
        values = {c: (n.value - 1, n.value + 2) for c, n in numbers.items() if n is not None}
        measured.append(
            Measured(row.part, row.name, (0, 1), values, "c", ("r1", "r2"), "cpu", "v", "", ())
        )
    cells = table(suite, measured)
    section = published_section(cells)
    assert section is not None
    figures = [block for block in section.blocks if isinstance(block, Figure)]
    assert [figure.title for figure in figures] == list(dict.fromkeys(c.column for c in cells))
    for figure in figures:
        theirs, ours = figure.data
        assert (theirs["name"], ours["name"]) == ("published", "ours")
        assert ours["x"] == pytest.approx(np.add(theirs["x"], 0.5), abs=1e-3)
        low, high = figure.layout["xaxis"]["range"]  # with the whiskers
        for side in (theirs, ours):
            assert low < np.subtract(side["x"], side["error_x"]["array"]).min()
            assert high > np.add(side["x"], side["error_x"]["array"]).max()
        assert not any("(as defined)" in name for name in figure.layout["yaxis"]["ticktext"])
        assert [(s["x0"], s["x1"]) for s in figure.layout["shapes"]] == [
            pytest.approx(pair, abs=1e-3) for pair in zip(theirs["x"], ours["x"], strict=True)
        ]
    assert published_section([c for c in cells if c.ours is None]) is None


def test_a_suite_on_generated_data_claims_nothing_of_its_own_data(
    demo: Path, tmp_path: Path
) -> None:
    """It said "20 tasks of 5 classes" of other data."""
    for name in SUITES:
        generated, own = load(name, generated=True), load(name)
        if {row.stream for row in generated.rows} != {row.stream for row in own.rows}:
            assert generated.what == GENERATED
            assert generated.notes == ()
            assert own.what not in plan_text(generated, [], "cpu")
    assert "tasks of 5" not in load("survey-cifar100", generated=True).what
    page = write_figures(load("demo", True), gather([demo]), tmp_path / "p.html").read_text()
    assert "On generated data: the stream albums: 1,350 samples of 10 classes" in page


def test_figures_that_are_compared_share_their_axis() -> None:
    low = plot_figure(
        "Backward transfer at H/3", "", [plot_line("a", [0, 1, 2], [0.1, 0.2, 0.3])], "x"
    )
    high = plot_figure(
        "Forward transfer at H/3", "", [plot_line("a", [0, 1, 2], [0.5, 0.6, 0.9])], "x"
    )
    other = plot_figure("Retention", "", [plot_line("a", [0, 1, 2], [0.5, 0.6, 0.9])], "x")
    share_axes([low, high, other])
    assert low.layout["yaxis"]["range"] == high.layout["yaxis"]["range"]
    bottom, top = low.layout["yaxis"]["range"]
    assert bottom == 0
    assert top > 90
    assert "range" not in other.layout["yaxis"]
    # Error bars are inside.
    wide = plot_figure("A", "", [plot_markers("a", [0, 1], [50.0, 60.0], [5.0, 30.0])], "x")
    narrow = plot_figure("A", "", [plot_markers("a", [0, 1], [50.0, 51.0], [0.0, 0.0])], "x")
    share_axes([wide, narrow])
    assert wide.layout["yaxis"]["range"] == narrow.layout["yaxis"]["range"]
    assert narrow.layout["yaxis"]["range"][1] > 90
