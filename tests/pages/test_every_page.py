"""Pages as commands write them (report, audit, suite), each in a browser: what holds for all."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser import Browser, needs_browser, rgb
from made_runs import finished
from streamgauge.audit import audit
from streamgauge.audit.page import audit_page
from streamgauge.pages.page import THEMES
from streamgauge.record import find_runs
from streamgauge.report import write_report
from streamgauge.suites import load, running
from streamgauge.suites.drawing import write_figures

pytestmark = [pytest.mark.browser, needs_browser]
EVIL = '<img src=x onerror="window.hit=1">"quoted" \'it\' {{ 7*7 }}'
PLOTS = "[...document.querySelectorAll('.plot')]"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    made = Browser()
    yield made
    made.close()


def report_file(folder: Path) -> Path:
    for seed in range(3):
        for name, share in ((EVIL, 0.7), ("er", 0.65), ("blind", 0.4)):
            sees = name != "blind"
            finished(folder / "runs", learner=name, seed=seed, share=share, sees_input=sees)
    return write_report(find_runs(folder / "runs"), folder / "report.html")


def audit_file(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    labels = np.repeat(rng.integers(0, 5, 800), 5)
    answers = np.where(rng.random(4000) < 0.7, labels, rng.integers(0, 5, 4000))
    found = audit({EVIL: labels, "prediction": answers}, label=EVIL)
    return audit_page(found).write(folder / "audit.html")


def suite_file(folder: Path) -> Path:
    suite = load("demo", generated=True)
    only = ["blind", "majority", "NCM"]
    runs = running.run(
        suite, only=only, seeds=[0, 1], out=folder / "suite", device="cpu", log=lambda _: None
    )
    rows = [dataclasses.replace(row, name=EVIL) if row.name == "NCM" else row for row in suite.rows]
    named = dataclasses.replace(suite, rows=tuple(rows))
    return write_figures(named, list(runs), folder / "suite.html")


MAKERS: dict[str, Callable[[Path], Path]] = {
    "report": report_file,
    "audit": audit_file,
    "suite": suite_file,
}


@pytest.fixture(scope="module", params=MAKERS)
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return MAKERS[request.param](tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_is_drawn_nothing_is_fetched_and_names_are_harmless(
    browser: Browser, page: Path, scheme: str
) -> None:
    browser.theme(scheme)
    browser.open(page)
    assert browser.errors == []
    fetched = [url for url in browser.requests if not url.startswith("data:")]
    assert fetched == [page.resolve().as_uri()]
    shown = f"{PLOTS}.filter((p) => !p.closest('details:not([open])'))"
    assert browser.run(f"{shown}.length") > 2
    empty = f"{shown}.filter((p) => !p.querySelector('.main-svg') || !p.data.length)"
    assert browser.run(f"{empty}.map((p) => p.ariaLabel)") == []
    assert browser.run("window.hit === undefined && document.querySelectorAll('img').length === 0")
    assert browser.run("document.body.innerText.includes('<img src=x')")
    colour = browser.run("getComputedStyle(document.body).backgroundColor")
    assert colour == rgb(THEMES[scheme]["paper"])
    browser.theme("light")


def test_ticks_and_sorting_stand_in_the_address(browser: Browser, page: Path) -> None:
    browser.open(page)
    one = page.name == "audit.html"  # it is about one model: there is nothing to tick
    assert browser.run("document.querySelectorAll('.bar').length") == (not one)
    shown = (
        f"[...new Set({PLOTS}.filter((p) => p.data).flatMap((p) => p.data.map((t) => t.meta.key)"
        ".filter((key) => names.learners.includes(key))))]"
    )
    if not one:
        everyone = browser.run("names.learners")
        assert sorted(browser.run(shown)) == sorted(
            key for key in everyone if key not in ("newest", "ER")
        )
        browser.run("document.querySelector('input[value=blind]').click()")
        browser.wait(f"(drawEverything(), !{shown}.includes('blind'))")  # also those out of view
    order = "[...document.querySelectorAll('.sortable tbody tr')].map((r) => r.innerText)"
    sortable = browser.run("document.querySelectorAll('.sortable').length")
    if page.name != "demo.html" and page.name != "suite.html":
        assert sortable
    if sortable:
        before = browser.run(order)
        browser.run("document.querySelector('.sortable thead th:nth-child(2) button').click()")
        browser.run("document.querySelector('.sortable thead th:nth-child(2) button').click()")
        assert browser.run(order) != before
    after, fragment = browser.run(order), browser.run("location.hash")
    # The address works in another window, from disk.
    browser.open(page, fragment)
    if not one:
        assert browser.run("document.querySelector('input[value=blind]').checked") is False
        assert "blind" not in browser.run(shown)
    assert browser.run(order) == after
    assert browser.errors == []


def test_every_figure_is_exported_on_white_and_has_a_table(browser: Browser, page: Path) -> None:
    browser.theme("dark")
    browser.open(page)
    browser.run("window.saved = []; HTMLAnchorElement.prototype.click = function () {"
                "saved.push(decodeURIComponent(this.href)); }")  # fmt: skip
    tools = "[...document.querySelectorAll('[data-export]')].filter((t) => t.offsetHeight)"
    count = browser.run(f"{tools}.length")
    browser.run(f"{tools}.forEach((t) => t.querySelector('button').click())")
    browser.wait(f"saved.length === {count}")
    white, dark = "rgb(255, 255, 255)", rgb(THEMES["dark"]["paper"])
    assert browser.run(f"saved.filter((s) => !s.includes('{white}')).length") == 0
    assert browser.run(f"saved.filter((s) => s.includes('{dark}')).length") == 0
    browser.run(f"saved.length = 0; {tools}[0].querySelectorAll('button')[1].click()")
    browser.wait("saved.length === 1")
    assert browser.run("saved[0].startsWith('data:image/png')")
    browser.run(f"{tools}.forEach((t) => t.querySelectorAll('button')[2].click())")
    tables = browser.run(
        "[...document.querySelectorAll('.numbers')].map((box) => ["
        " box.querySelectorAll('tbody td').length,"
        " [...box.querySelectorAll('td')].some((c) => /\\d/.test(c.textContent)),"
        " box.querySelectorAll('th:not([scope])').length])"
    )
    assert len(tables) == count
    assert all(cells and numbers and not bare for cells, numbers, bare in tables)
    assert browser.errors == []
    browser.theme("light")


def test_a_phone_has_no_sideways_scrolling_and_wide_plots(browser: Browser, page: Path) -> None:
    browser.resize(390, 844)
    try:
        browser.open(page)
        browser.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        browser.run("drawEverything()")
        assert browser.run("document.documentElement.scrollWidth") <= 390
        # A figure with names on its vertical axis has less room.
        widths = browser.run(
            f"{PLOTS}.filter((p) => p.data).map((p) => [p._fullLayout._size.w,"
            " Boolean(p.layout.yaxis.ticktext || p.data.some((t) => t.type === 'bar'))])"
        )
        assert min(wide for wide, named in widths if not named) > 240
        assert min(wide for wide, _ in widths) > 165
        # A table that is wider scrolls by itself.
        outside = browser.run(
            "[...document.querySelectorAll('table')].filter((t) => t.offsetWidth > 390"
            " && !t.closest('.scroll')).length"
        )
        assert outside == 0
    finally:
        browser.resize(1200, 900)


def test_paper_has_every_figure_in_light_and_no_buttons(browser: Browser, page: Path) -> None:
    browser.theme("dark")
    browser.open(page, whole=False)
    assert len(re.findall(rb"/Type ?/Page\b", browser.pdf())) >= 2
    shown = f"{PLOTS}.filter((p) => !p.closest('details:not([open])'))"
    assert browser.run(f"{shown}.every((p) => p.data)")
    browser.theme("light", "print")
    browser.resize(720, 1000)
    browser.run("dispatchEvent(new Event('beforeprint'))")
    # What is drawn stays in its place, and no table makes the page small.
    outside = (
        f"{shown}.filter((p) => p.querySelector('.main-svg').getBoundingClientRect().bottom"
        " > p.getBoundingClientRect().bottom + 1).length"
    )
    assert browser.run(outside) == 0
    assert browser.run("document.documentElement.scrollWidth") <= 720
    browser.resize(1200, 900)
    for hidden in (".bar", ".tools"):
        found = browser.run(
            f"[...document.querySelectorAll('{hidden}')].filter((e) =>"
            " getComputedStyle(e).display !== 'none').length"
        )
        assert found == 0
    browser.theme("light")


def test_keys_reach_everything_and_readers_hear_names(browser: Browser, page: Path) -> None:
    browser.open(page)
    wanted = browser.run(
        "[...document.querySelectorAll('button, input, select, summary, .scroll')].filter((e) =>"
        " e.offsetHeight && !e.closest('details:not([open]) > :not(summary)')).length"
    )
    browser.run(
        "window.reached = new Set(); document.addEventListener('focusin', (e) =>"
        " reached.add(e.target))"
    )
    for _ in range(wanted):
        browser.press("Tab", windowsVirtualKeyCode=9)
    assert browser.run("reached.size") == wanted
    unnamed = browser.run(
        "[...document.querySelectorAll('button, input, select, [role=img], [role=region]')].filter("
        "(e) => !(e.textContent.trim() || e.ariaLabel || e.labels && e.labels.length))"
        ".map((e) => e.outerHTML)"
    )
    assert unnamed == []
    assert browser.run("document.querySelectorAll('th:not([scope])').length") == 0
    levels = browser.run("[...document.querySelectorAll('h1,h2,h3,h4')].map((h) => +h.tagName[1])")
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels))


def test_bars_show_their_whiskers_and_empty_cells_are_not_zero(
    browser: Browser, tmp_path: Path
) -> None:
    """The whiskers of bars are ink on half the colour; a cell of 0 is darker than the paper."""
    from streamgauge.pages import Page
    from streamgauge.pages import figures as plots

    nothing = float("nan")
    figures = [
        plots.figure("Bars", "", [plots.part_of_bar("a", "one", 2.0, 1.5, 2.25, "bits")], "bits"),
        plots.figure("Heat", "", [plots.heat("h", [5, 15], ["cat"], np.array([[0.0, nothing]]), 1)],
                     "samples"),
    ]  # fmt: skip
    browser.open(Page("k", "t", figures).write(tmp_path / "bars.html"))
    bar = browser.run(
        f"(({{marker, error_x}}) => [marker.color, error_x.color])({PLOTS}[0].data[0])"
    )
    assert bar == [THEMES["light"]["colours"][0] + "80", THEMES["light"]["ink"]]
    lowest = browser.run(f"{PLOTS}[1].data[0].colorscale[0][1]")
    assert lowest not in (THEMES["light"]["paper"], THEMES["light"]["tint"])


def test_lines_that_eyes_cannot_tell_apart_are_both_seen(browser: Browser, tmp_path: Path) -> None:
    from streamgauge.pages import Page
    from streamgauge.pages import figures as plots

    y = np.array([0.1, 0.5, 0.9])
    lines = [plots.line("a", [0, 1, 2], y), plots.line("b", [0, 1, 2], y + 1e-5),
             plots.line("c", [0, 1, 2], y + 0.05)]  # fmt: skip
    many = [plots.line(f"l{n}", [0, 1, 2], y + n / 50, markers=True) for n in range(12)]
    figures = [plots.figure("A", "", lines, "x"), plots.figure("B", "", many, "x")]
    browser.open(Page("k", "t", figures).write(tmp_path / "near.html"))
    dashes = browser.run(f"{PLOTS}[0].data.map((t) => t.line.dash)")
    assert dashes == ["solid", "10px,10px", "solid"]
    # Where colours come again, symbols do not.
    styles = browser.run(f"{PLOTS}[1].data.map((t) => [t.line.color, t.marker.symbol])")
    assert len({json.dumps(style) for style in styles}) == len(styles)


def test_axes_hold_the_whiskers() -> None:
    from streamgauge.pages import figures as plots

    def limits(errors: tuple[float, float]) -> Any:
        points = [plots.point("a", x, 50, errors=errors, hollow=False, hover="") for x in (10, 20)]
        return plots.figure("F", "", points, "x").layout["xaxis"]["range"]

    assert limits((5.0, float("nan"))) == pytest.approx([5 - 0.8, 25 + 0.8])
    assert limits((float("nan"),) * 2) == pytest.approx([10 - 0.4, 20 + 0.4])
