"""A page in a browser: drawn, ticked, sorted, exported, printed, in both themes and on a phone."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from test_page import EVIL
from test_page import page as every_block

from browser import Browser, needs_browser, rgb
from streamgauge.pages import Block, Cell, Page, PageTable, Section
from streamgauge.pages import figures as plots
from streamgauge.pages.page import THEMES

COLOURS = len(THEMES["light"]["colours"])
pytestmark = [pytest.mark.browser, needs_browser]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    made = Browser()
    yield made
    made.close()


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Three learners with a table, a moving figure and one of two equal lines."""
    names = ("er, 10", "ncm", "blind")
    rng = np.random.default_rng(0)
    runs = [
        plots.counted(name, pair, rng.random(2000) < share)
        for name, share in zip(names, (0.8, 0.6, 0.3), strict=True)
        for pair in "abc"
    ]
    x, y = [0, 1, 2, 3], [0.1, 0.2, 0.3, 0.4]
    lines = [plots.line(name, x, np.add(y, 0.3 * (name == "blind"))) for name in names]
    rows = [
        [Cell("er, 10", key="er, 10"), Cell("80.0 ± 1.0", value=0.8), "a & b_1"],
        [Cell("ncm", key="ncm"), Cell("9.0", value=0.09), "c | d"],
        [Cell("blind", key="blind"), Cell("30.0", value=0.3), 'say "e"'],
    ]
    blocks: list[Block] = [
        PageTable(["learner", "score", "note"], rows, text_columns=[2], sortable=True),
        plots.moving_figure("Along", "", runs, "samples", difference=True),
        plots.figure("Lines", "", lines, "x"),
        Section("Folded", [plots.figure("Later", "", lines, "x")], folded=True),
    ]
    file = tmp_path / "page.html"
    return Page("kind", "A page", blocks, learners=names, grey=["blind"]).write(file)


def drawn(browser: Browser) -> list[str]:
    """The names of the lines of each figure that is drawn."""
    found = browser.run(
        "JSON.stringify([...document.querySelectorAll('.plot')].map((p) => p.data ? p.data.filter("
        "(t) => t.name && t.meta.role !== 'band' && !t.yaxis).map((t) => t.name) : null))"
    )
    return list(json.loads(found))


def click(browser: Browser, selector: str) -> None:
    browser.run(f"document.querySelector({json.dumps(selector)}).click()")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_kind_of_plot_is_drawn_and_hostile_names_are_harmless(
    browser: Browser, tmp_path: Path, scheme: str
) -> None:
    browser.theme(scheme)
    file = every_block(EVIL).write(tmp_path / "page.html")
    browser.open(file)
    assert browser.errors == []
    fetched = [url for url in browser.requests if not url.startswith("data:")]
    assert fetched == [file.resolve().as_uri()]
    counts = browser.run("[...document.querySelectorAll('.plot')].map((p) => p.data.length)")
    assert counts[:3] == [8, 2, 2]
    assert browser.run("document.querySelectorAll('.plot .main-svg').length") >= 2 * len(counts)
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert browser.run("getComputedStyle(document.body).backgroundColor") == rgb(
        THEMES[scheme]["paper"]
    )
    line = browser.run("document.querySelector('.plot').data[2].line.color")
    assert line == THEMES[scheme]["colours"][0]
    browser.theme("light")


def test_ticks_hide_a_learner_everywhere_and_the_address_keeps_it(
    browser: Browser, small: Path
) -> None:
    browser.open(small)
    assert drawn(browser) == [["er, 10", "ncm", "blind"], ["er, 10", "ncm", "blind"], None]
    click(browser, "input[value=ncm]")
    browser.wait("document.querySelectorAll('.plot')[1].data.length === 2")
    assert drawn(browser)[:2] == [["er, 10", "blind"], ["er, 10", "blind"]]
    assert browser.run("document.querySelector('tr[data-learner=ncm]').hidden") is True
    assert browser.run("document.querySelector('[name=count]').value") == "2 of 3"
    fragment = browser.run("location.hash")
    assert "show=" in fragment
    # The same address later, also of a name with a comma.
    browser.open(small, fragment)
    assert drawn(browser)[:2] == [["er, 10", "blind"], ["er, 10", "blind"]]
    # An address that was cut in the middle of a sign.
    browser.open(small, "#show=ncm,er%252")
    assert browser.errors == []
    assert drawn(browser)[0] == ["ncm"]
    # A search narrows what "none" unticks.
    browser.open(small)
    browser.run(
        "(() => { const s = document.querySelector('[name=search]'); s.value = 'nc';"
        "s.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )
    assert browser.run("document.querySelectorAll('.menu li:not([hidden])').length") == 1
    click(browser, "[name=none]")
    browser.wait("document.querySelectorAll('.plot')[1].data.length === 2")
    assert drawn(browser)[0] == ["er, 10", "blind"]


def test_window_seeds_and_baseline_are_what_is_drawn(browser: Browser, small: Path) -> None:
    browser.open(small, "#window=10")
    plot = "document.querySelector('.plot')"
    figure = json.loads(re.search(r'id="figures">(.*?)</script>', small.read_text())[1])[0]  # type: ignore[index]
    moved = figure["moving"]
    series = [run for run in moved["series"] if run["key"] == "ncm"]
    bins = len(series[0]["hits"])
    width = round(bins / 10)
    expected = [
        np.convolve(run["hits"], np.ones(width), "valid")
        / np.convolve(moved["counts"][run["counts"]], np.ones(width), "valid")
        for run in series
    ]
    found = browser.run(f"{plot}.data.find((t) => t.name === 'ncm').y")
    assert found == pytest.approx(100 * np.mean(expected, axis=0), abs=1e-3)
    # Paired differences from the baseline, with Student's interval over three seeds.
    base = [run for run in moved["series"] if run["key"] == "er, 10"]
    first = [
        100 * (sum(a["hits"][:width]) - sum(b["hits"][:width])) / (width * moved["counts"][0][0])
        for a, b in zip(series, base, strict=True)
    ]
    gap = browser.run(f"{plot}.data.find((t) => t.name === 'ncm − er, 10')")
    assert gap["y"][0] == pytest.approx(np.mean(first), abs=1e-2)
    half = 4.303 * np.std(first, ddof=1) / np.sqrt(3)
    assert gap["customdata"][0] == pytest.approx(half, abs=2e-2)
    browser.open(small, "#base=blind&seeds=1")
    names = browser.run(f"{plot}.data.map((t) => t.name)")
    assert names.count("ncm") == 3
    assert "ncm − blind" in names
    text = browser.run(f"{plot}.layout.yaxis.title.text")
    assert re.fullmatch(r"accuracy in the last \d+, %", text)


def test_a_table_sorts_by_numbers_and_is_copied(browser: Browser, small: Path) -> None:
    browser.open(small)
    order = "[...document.querySelectorAll('tbody tr')].map((r) => r.dataset.learner)"
    click(browser, "thead th:nth-child(2) button")
    assert browser.run(order) == ["er, 10", "blind", "ncm"]
    assert browser.run("document.querySelectorAll('th')[1].ariaSort") == "descending"
    click(browser, "thead th:nth-child(2) button")
    assert browser.run(order) == ["ncm", "blind", "er, 10"]
    browser.open(small, browser.run("location.hash"))
    assert browser.run(order) == ["ncm", "blind", "er, 10"]
    copies = {}
    for number, name in enumerate(("CSV", "LaTeX", "Markdown"), 1):
        click(browser, f"[data-copy] button:nth-of-type({number})")
        copies[name] = browser.run("document.querySelector('textarea').value")
    assert copies["CSV"].splitlines() == [
        "learner,score,note", "ncm,9.0,c | d", 'blind,30.0,"say ""e"""',
        '"er, 10",80.0 ± 1.0,a & b_1']  # fmt: skip
    assert "er, 10 & 80.0 $\\pm$ 1.0 & a \\& b\\_1 \\\\" in copies["LaTeX"]
    assert "| ncm | 9.0 | c \\| d |" in copies["Markdown"]


def test_a_figure_is_exported_on_white_and_has_a_table(browser: Browser, small: Path) -> None:
    browser.theme("dark")
    browser.open(small)
    browser.run("window.saved = {}; HTMLAnchorElement.prototype.click = function () {"
                "saved[this.download] = decodeURIComponent(this.href); }")  # fmt: skip
    tools = "figure:nth-of-type(2) .tools"
    click(browser, f"{tools} button:nth-of-type(1)")
    browser.wait("'lines.svg' in saved")
    svg = browser.run("saved['lines.svg']")
    assert svg.startswith("data:image/svg+xml")
    white, dark = "rgb(255, 255, 255)", rgb(THEMES["dark"]["paper"])
    assert white in svg
    assert dark not in svg
    click(browser, f"{tools} button:nth-of-type(2)")
    browser.wait("'lines.png' in saved")
    corner = browser.run(
        "createImageBitmap(new Blob([Uint8Array.from(atob(saved['lines.png'].split(',')[1]),"
        " (c) => c.charCodeAt(0))])).then((image) => { const c = new OffscreenCanvas(1, 1)"
        ".getContext('2d'); c.drawImage(image, 0, 0);"
        " return [...c.getImageData(0, 0, 1, 1).data] })"
    )
    assert corner == [255, 255, 255, 255]
    click(browser, f"{tools} button:nth-of-type(3)")
    cells = browser.run(
        "[...document.querySelectorAll('.numbers tr')].map((r) =>"
        " [...r.cells].map((c) => c.textContent))"
    )
    assert cells[0] == ["x", "er, 10", "ncm", "blind"]
    assert cells[1] == ["0", "10", "10", "40"]
    assert browser.run("document.querySelectorAll('.numbers th:not([scope])').length") == 0
    browser.theme("light")


def test_a_line_under_another_is_seen_and_colours_keep_their_meaning(
    browser: Browser, small: Path
) -> None:
    browser.open(small)
    lines = browser.run(
        "[...document.querySelectorAll('.plot')].slice(0, 2).map((p) => p.data.filter((t) =>"
        " t.meta.role === 'line' && !t.yaxis).map((t) => [t.name, t.line.color, t.line.dash]))"
    )
    for figure in lines:
        found = {name: colour for name, colour, _ in figure}
        assert found["er, 10"] == THEMES["light"]["colours"][0]
        assert found["ncm"] == THEMES["light"]["colours"][1]
        assert found["blind"] == THEMES["light"]["soft"]
    assert {n: d for n, _, d in lines[1]}["ncm"] == "10px,10px"  # on that of er
    labels = browser.run("document.querySelectorAll('.plot')[1].layout.annotations")
    heights = sorted(label["y"] for label in labels)
    assert min(b - a for a, b in itertools.pairwise(heights)) > 1.5


def test_the_table_of_every_kind_of_figure_has_its_numbers_and_intervals(
    browser: Browser, tmp_path: Path
) -> None:
    nothing = float("nan")
    scale = plots.line("er", [80.0, 70.0], [0.2, 1.2], scale=1) | {"mode": "markers"}
    scale["error_x"] = {"array": [2.0, 3.0]}
    x, y = [0, 1, 2], [0.5, 0.6, 0.7]
    low, high = np.subtract(y, 0.1), np.add(y, 0.2)
    bands = [plots.band(x, low, high, "er"), plots.line("er", x, y),
             plots.band(x, y, high, "upper", legend=True)]  # fmt: skip
    runs = [plots.counted("er", "a", np.arange(64) % 2 == 0, bins=4)]
    classes = {"x": [16, 48], "names": ["cat", "dog"], "shares": [[0.25, 1], [0.75, 0]]}
    figures = [
        plots.figure("Rows", "", [scale], "accuracy", y_axis=plots.ticks([0, 1], ["on", "off"])),
        plots.figure("Bars", "", [plots.part_of_bar("a", "one", 2.0, 1.5, 2.25, "bits"),
                                  plots.part_of_bar("b", "two", 1.0, nothing, nothing, "bits")],
                     "bits"),
        plots.figure("Points", "", [
            plots.point("er", 3, 50, errors=(0.5, nothing), hollow=False, hover=""),
            plots.markers("ER++", [1, 2], [60, 70], [5, 0])], "cost", "accuracy"),
        plots.figure("Bands", "", bands, "x"),
        plots.figure("Heat", "", [plots.heat("h", [5, 15], ["cat"], np.array([[1.0, nothing]]), 1)],
                     "samples"),
        plots.moving_figure("Along", "", runs, "samples", classes=classes, difference=True),
    ]  # fmt: skip
    names = ["er", "ncm"]
    file = Page("k", "t", figures, learners=names).write(tmp_path / "tables.html")
    browser.open(file, "#window=25")
    tables = browser.run(
        "[...document.querySelectorAll('figure')].map((f) => {"
        " f.querySelectorAll('[data-export] button')[2].click();"
        " return [...f.querySelectorAll('.numbers tr')].map((r) =>"
        " [...r.cells].map((c) => c.textContent)); })"
    )
    rows, bars, points, curves, heat, along = tables
    assert rows == [["accuracy", "er"], ["on", "80 ± 2"], ["off", "70 ± 3"]]
    assert bars == [["bits", "a", "b"], ["one", "2 [1.5, 2.25]", ""], ["two", "", "1"]]
    assert points == [["", "cost", "accuracy"], ["er", "3 ± 0.5", "50"], ["ER++", "1", "60 ± 5"],
                      ["ER++", "2", "70"]]  # fmt: skip
    assert curves[:2] == [["x", "er", "upper"], ["0", "50 [40, 70]", "70"]]
    assert heat == [["samples", "5", "15"], ["cat", "1", ""]]
    assert along[0] == ["samples", "er", "share of label cat", "share of label dog"]
    assert along[1:] == [["16", "50", "0.25", "0.75"], ["32", "50", "0.25", "0.75"],
                         ["48", "50", "1", "0"], ["64", "50", "1", "0"]]  # fmt: skip


def test_one_cursor_shows_all_curves_and_the_blind_level(browser: Browser, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    runs = [plots.counted(name, "a", rng.random(1000) < 0.5) for name in ("er", "ncm")]
    level = dataclasses.replace(plots.counted("blind level", "a", np.ones(1000)), level=True)
    classes = {"x": [250, 750], "names": ["a", "b"], "shares": [[0, 1], [1, 0]]}
    figure = plots.moving_figure(
        "F", "", [*runs, level], "samples", classes=classes, difference=True
    )
    file = Page("k", "t", [figure], learners=["er", "ncm"]).write(tmp_path / "cursor.html")
    browser.open(file)
    left, top = browser.run(
        "(() => { const b = document.querySelector('.plot').getBoundingClientRect();"
        " return [b.left, b.top]; })()"
    )
    for move in (400, 420):
        browser.send("Input.dispatchMouseEvent", type="mouseMoved", x=left + move, y=top + 100)
    browser.wait("document.querySelectorAll('.hoverlayer .legendtext').length >= 4")
    shown = browser.run(
        "[...document.querySelectorAll('.hoverlayer .legendtext')].map((t) => t.textContent)"
    )
    assert {text.partition(" :")[0] for text in shown} == {"er", "ncm", "ncm − er", "blind level"}
    # Its line goes from the top to the labels at the bottom.
    heights = browser.run(
        "[...document.querySelectorAll('.hoverlayer .spikeline')].map((l) =>"
        " l.getBoundingClientRect().height)"
    )
    assert max(heights) > 450


def test_names_at_the_ends_of_lines_do_not_overlap_at_the_top(
    browser: Browser, tmp_path: Path
) -> None:
    lines = [plots.line(f"l{n}", [0, 1, 2], [0.1, 0.9, 0.99 + n / 1000]) for n in range(8)]
    file = Page("k", "t", [plots.figure("F", "", lines, "x")]).write(tmp_path / "top.html")
    browser.open(file)
    boxes = browser.run(
        "[...document.querySelectorAll('.annotation')].map((a) => a.getBoundingClientRect())"
        ".map((b) => [b.top, b.bottom])"
    )
    boxes.sort()
    assert len(boxes) == 8
    assert all(below >= above - 4 for (_, above), (below, _) in itertools.pairwise(boxes))


def test_a_phone_has_names_of_points_in_a_legend(browser: Browser, tmp_path: Path) -> None:
    """There is no room for names next to them."""
    points = [
        plots.point(name, x, 50, errors=(np.nan, np.nan), hollow=False, hover="%{y}")
        for x, name in enumerate(("er", "ncm"))
    ]
    file = Page("k", "t", [plots.figure("F", "", points, "x")]).write(tmp_path / "points.html")
    browser.resize(390, 800)
    browser.open(file)
    names = browser.run("[...document.querySelectorAll('.legendtext')].map((t) => t.textContent)")
    assert names == ["er", "ncm"]
    browser.resize(1200, 900)
    browser.open(file)
    names = browser.run("[...document.querySelectorAll('.annotation')].map((t) => t.textContent)")
    assert sorted(names) == ["er", "ncm"]


def test_a_phone_keeps_the_height_of_a_plot_with_a_long_legend(
    browser: Browser, tmp_path: Path
) -> None:
    lines = [
        plots.line(f"a forecaster with a long name, {n}", [0, 1, 2], [0.1, 0.2, n / 10])
        for n in range(7)
    ]
    file = Page("k", "t", [plots.figure("F", "", lines, "x")]).write(tmp_path / "legend.html")
    browser.resize(390, 800)
    browser.open(file)
    assert browser.run("document.querySelector('.plot')._fullLayout._size.h") > 140
    inside = "document.querySelector('.plot .main-svg').getBoundingClientRect().bottom"
    tools = browser.run("document.querySelector('.tools').getBoundingClientRect().top")
    assert browser.run(inside) <= tools
    browser.resize(1200, 900)
    browser.wait("document.querySelector('.plot').clientHeight === 400")


def test_rows_have_short_names_and_points_side_by_side_stay_where_they_are(
    browser: Browser, tmp_path: Path
) -> None:
    """On a phone, names of rows are wrapped; names of points move only where they would meet."""
    nothing = float("nan")
    texts = ["online", "near future, 400 ahead"]
    rows = plots.figure("Rows", "", [plots.line("er", [10, 20], [0, 1], scale=1)], "accuracy",
                        y_axis=plots.ticks([0, 1], texts))  # fmt: skip
    points = [
        plots.point(name, x, y, errors=(nothing, nothing), hollow=False, hover="%{y}")
        for name, x, y in (("er", 1, 50.0), ("ncm", 9, 50.2), ("mir", 9, 50.1))
    ]
    runs = [plots.counted("er", "a", np.arange(1000) % 3 > 0)]
    figures = [
        rows,
        plots.figure("Points", "", points, "x"),
        plots.moving_figure("M", "", runs, "s"),
    ]
    file = Page("k", "t", figures, learners=["er", "ncm"]).write(tmp_path / "names.html")
    browser.open(file)
    heights = browser.run(
        "Object.fromEntries(document.querySelectorAll('.plot')[1].layout.annotations.map((a) =>"
        " [a.text, a.y]))"
    )
    assert heights["er"] == 50
    assert heights["ncm"] - heights["mir"] > 1
    # A few markers on a long curve, for eyes that cannot tell its colour.
    line = browser.run("document.querySelectorAll('.plot')[2].data.find((t) => t.name === 'er')")
    assert line["mode"] == "lines+markers"
    assert 0 < line["marker"]["maxdisplayed"] < 20 < len(line["x"])
    browser.resize(390, 800)
    browser.open(file)
    ticks = browser.run("document.querySelector('.plot').layout.yaxis.ticktext")
    assert ticks == ["online", "near future,<br>400 ahead"]
    browser.resize(1200, 900)


def test_beyond_eight_names_the_ticked_stand_out(browser: Browser, tmp_path: Path) -> None:
    names = [f"l{n}" for n in range(COLOURS + 4)]
    lines = [plots.line(name, [0, 1, 2], np.full(3, n / 20)) for n, name in enumerate(names)]
    file = Page("k", "t", [plots.figure("F", "", lines, "x")], learners=names).write(
        tmp_path / "many.html"
    )
    browser.open(file)
    colours = "document.querySelector('.plot').data.map((t) => t.line.color)"
    found = browser.run(colours)
    assert len(set(found[:COLOURS])) == COLOURS
    assert set(found[COLOURS:]) == {THEMES["light"]["soft"]}
    browser.open(file, f"#show=l0,l{COLOURS + 1}")
    found = browser.run(colours)
    assert found == [THEMES["light"]["colours"][0], THEMES["light"]["colours"][1]]


def test_a_phone_shows_all_of_it(browser: Browser, small: Path) -> None:
    browser.resize(390, 800)
    browser.open(small)
    assert browser.run("document.documentElement.scrollWidth") <= 390
    widths = browser.run(
        "[...document.querySelectorAll('.plot')].filter((p) => p.data).map((p) =>"
        " p._fullLayout._size.w)"
    )
    assert min(widths) > 280  # of the lines themselves
    assert browser.run("document.querySelector('.scroll').scrollWidth") >= 1
    browser.resize(1200, 900)


def test_keys_alone_suffice(browser: Browser, small: Path) -> None:
    browser.open(small)
    tab = {"windowsVirtualKeyCode": 9}
    reached = []
    for _ in range(18):
        browser.press("Tab", **tab)
        at = "document.activeElement"
        reached.append(browser.run(f"{at}.tagName + '.' + ({at}.name || {at}.innerText)"))
    assert "SELECT.baseline" in reached
    assert "INPUT.window" in reached
    assert any(name.startswith("SUMMARY.Learners") for name in reached)
    assert any(name.startswith("BUTTON.score") for name in reached)
    assert "BUTTON.SVG" in reached
    browser.run("document.querySelector('thead th:nth-child(2) button').focus()")
    browser.press("Enter", windowsVirtualKeyCode=13, text="\r")
    assert browser.run("document.querySelectorAll('th')[1].ariaSort") == "descending"
    browser.run("document.querySelector('.menu').open = true;"
                "document.querySelector('[name=search]').focus()")  # fmt: skip
    browser.press("Escape", windowsVirtualKeyCode=27)
    assert browser.run("document.querySelector('.menu').open") is False


def test_headings_scope_and_alt_text(browser: Browser, small: Path) -> None:
    browser.open(small)
    levels = browser.run("[...document.querySelectorAll('h1,h2,h3,h4')].map((h) => +h.tagName[1])")
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels))
    assert browser.run("document.querySelectorAll('th:not([scope])').length") == 0
    alts = browser.run("[...document.querySelectorAll('[role=img]')].map((p) => p.ariaLabel)")
    assert "er, 10 from 10 to 40" in alts[1]
    assert alts[0].startswith("Along (accuracy in the window, % over samples): er, 10 ")


def test_paper_has_light_plots_and_no_buttons(browser: Browser, small: Path) -> None:
    browser.theme("dark")
    browser.open(small)
    pdf = browser.pdf()
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 10_000
    browser.theme("light", "print")
    assert browser.run("getComputedStyle(document.querySelector('.bar')).display") == "none"
    assert browser.run("getComputedStyle(document.querySelector('.tools')).display") == "none"
    browser.theme("light")


def test_a_large_report_is_small_and_quick(browser: Browser, tmp_path: Path) -> None:
    """20 learners, 5 seeds, 5,000 points each."""
    rng = np.random.default_rng(0)
    names = [f"learner {n}" for n in range(20)]
    runs = [
        plots.counted(name, str(seed), rng.random(5000) < 0.5)
        for name in names
        for seed in range(5)
    ]
    x = np.arange(5000)
    lines = [plots.line(n, *plots.thin(x, rng.random(5000).cumsum() / 5000)) for n in names]
    blocks: list[Block] = [
        plots.moving_figure("Stream", "", runs, "samples", difference=True),
        plots.moving_figure("Retained", "", runs, "samples"),
        plots.figure("Loss", "", lines, "step", "loss"),
    ]
    file = Page("k", "t", blocks, learners=names).write(tmp_path / "large.html")
    assert file.stat().st_size < 2_500_000
    # Seconds of the processor: other work on the machine does not count.
    browser.send("Performance.enable", timeDomain="threadTicks")
    browser.open(file, whole=False)
    first = _seconds(browser)
    browser.run("drawEverything()")
    every = _seconds(browser)
    browser.send("Performance.disable")
    assert 0.05 < first <= every
    assert first < 1.5
    assert every < 2.5
    assert [len(shown) for shown in drawn(browser)] == [20, 20, 20]


def _seconds(browser: Browser) -> float:
    found = {m["name"]: m["value"] for m in browser.send("Performance.getMetrics")["metrics"]}
    return float(found["TaskDuration"])


def test_figures_are_drawn_when_they_come_near_the_view(browser: Browser, tmp_path: Path) -> None:
    lines = [plots.line(name, [0, 1, 2], [0.1, 0.2, 0.3]) for name in ("a", "b")]
    blocks = [plots.figure(f"F{n}", "", lines, "x") for n in range(12)]
    file = Page("k", "t", blocks, learners=["a", "b"]).write(tmp_path / "long.html")
    browser.open(file, whole=False)
    count = "[...document.querySelectorAll('.plot')].filter((p) => p.data).length"
    assert 2 <= browser.run(count) < 6
    # The last one is drawn when a reader comes to it, as the reader now wants it.
    click(browser, "input[value=b]")
    browser.run("scrollTo(0, document.documentElement.scrollHeight)")
    browser.wait("document.querySelectorAll('.plot')[11].data?.length === 1")
    browser.run("scrollTo(0, 0)")
    browser.wait("document.querySelectorAll('.plot')[0].data.length === 1")
    # On paper there are all of them.
    browser.open(file, whole=False)
    browser.pdf()
    assert browser.run(count) == 12


def test_no_band_around_lines_that_do_not_stand_out(browser: Browser, tmp_path: Path) -> None:
    """More names than colours: bands of all would hide everything."""
    names = [f"l{n}" for n in range(COLOURS + 2)]
    traces = [
        trace
        for name in names
        for trace in (plots.band([0, 1, 2], [0.1] * 3, [0.3] * 3, name),
                      plots.line(name, [0, 1, 2], [0.2] * 3))
    ]  # fmt: skip
    file = Page("k", "t", [plots.figure("F", "", traces, "x")], learners=names).write(
        tmp_path / "bands.html"
    )
    bands = "document.querySelector('.plot').data.filter((t) => t.meta.role === 'band').length"
    browser.open(file)
    assert browser.run(bands) == COLOURS
    browser.open(file, f"#show=l0,l{COLOURS + 1}")
    assert browser.run(bands) == 2


def test_runs_of_different_lengths_and_windows_without_a_label(
    browser: Browser, tmp_path: Path
) -> None:
    """The gap to a shorter run ends with it; where nothing was asked there is nothing, not 0."""
    rng = np.random.default_rng(0)
    runs = [
        dataclasses.replace(plots.counted(name, pair, rng.random(length) < 0.5), whole=256)
        for name, length in (("er", 1024), ("mir", 2048))
        for pair in "abc"
    ]
    bins = plots.counted("ncm", "a", rng.random(100) < 0.5, bins=10)
    late = dataclasses.replace(bins, counts=[0, 0, 0, *bins.counts[3:]], hits=[0] * 3 + [5] * 7)
    figures = [
        plots.moving_figure("Gap", "", runs, "samples", difference=True),
        plots.moving_figure("Late", "", [late], "samples"),
    ]
    file = Page("k", "t", figures, learners=["er", "mir"]).write(tmp_path / "lengths.html")
    browser.open(file, "#window=10")
    gap, band = browser.run(
        "(() => { const data = document.querySelector('.plot').data.filter((t) => t.yaxis);"
        " return ['line', 'band'].map((role) => data.find((t) => t.meta.role === role))"
        ".map(({x, y}) => ({x, y})); })()"
    )
    assert len(gap["y"]) == len(gap["x"]) > 100
    assert len(band["y"]) == len(band["x"]) == 2 * len(gap["x"])
    assert all(isinstance(value, int | float) for value in [*gap["y"], *band["y"]])
    late_y = browser.run("document.querySelectorAll('.plot')[1].data.find((t) => t.name).y")
    assert late_y[:3] == [None] * 3
    assert late_y[4] == 50
