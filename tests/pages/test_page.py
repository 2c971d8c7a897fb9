"""One page for everything: hostile names are harmless in every block, and nothing is fetched."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamgauge.audit import run_audit
from streamgauge.errors import StreamgaugeError
from streamgauge.pages import Block, Cell, Page, PageTable, Section, Text, shaded_table
from streamgauge.pages import figures as plots
from streamgauge.pages.page import THEMES
from streamgauge.report import write_report

EVIL = "</script><img src=x onerror=alert(1)>{{ 7*7 }}"
PAGES = Path(plots.__file__).parent


def every_plot(name: str) -> list[plots.Figure]:
    """One figure with each kind of trace, and a map."""
    x, y = [0, 1, 2], [0.1, 0.2, 0.3]
    traces = [
        plots.band(x, y, y, name),
        plots.band(x, y, y, name, key=name, legend=True),
        plots.line(name, x, y, deviation=y),
        plots.level(name, x, y),
        plots.front(name, x, y),
        plots.point(name, 1, 20, errors=(np.nan, 3.0), hollow=True, hover="%{y}", near=True),
        plots.markers(name, x, [10, 20, 30], [1, 2, 3]),
        plots.layer(name, x, y),
    ]
    bars = [plots.part_of_bar(name, name, 2.0, 1.0, 3.0, name)]
    bars.append(plots.part_of_bar(name, name, 1.0, np.nan, np.nan, name))
    shapes = [plots.vertical(1), plots.horizontal(1), plots.shaded(0, 1)]
    square = np.array([[0.0, 0], [0, 1], [1, 1], [0, 0]])
    return [
        plots.figure(name, name, traces, name, name, x_axis=plots.ticks(x, "abc"), shapes=shapes),
        plots.figure(name, name, bars, name, name, barmode="relative"),
        plots.map_figure(name, name, [square], square[:1], ["a"]),
        plots.figure(name, name, [plots.heat(name, x, [escape(name)], np.eye(1, 3), 1)], name),
        moving(name),
    ]


def moving(name: str, other: str = "other") -> plots.Figure:
    """Two runs of two seeds, a level, marks and classes."""
    rng = np.random.default_rng(0)
    pairs = [(of, pair) for of in (name, other) for pair in "ab"]
    runs = [plots.counted(*of, rng.random(1000) < 0.5) for of in pairs]
    level = dataclasses.replace(plots.counted("level", "a", np.ones(1000)), level=True)
    classes = {"x": [250, 750], "names": [escape(name), "b"], "shares": [[0, 1], [1, 0]]}
    marks = [
        (500.0, name, "task", ""),
        (600.0, name, "labels", ""),
        (700.0, name, "reported", name),
    ]
    return plots.moving_figure(
        name, name, [*runs, level], name, marks=marks, classes=classes, difference=True
    )


def page(name: str) -> Page:
    cell = Cell(name, note=name, value=1.0, key=name, interval=(0.1, 0.2, 0.3, 0.4), spark=[0, 1])
    row = [cell, Cell(name, name, name), Cell(name, share=0.5)]
    blocks: list[Block] = [
        name,
        Text(name, "warning"),
        PageTable([name] * 3, [row] * 31, name, text_columns=[1]),
        PageTable([name] * 3, [row], name, sortable=True),
        shaded_table(name, [name, name], [name], [[0.25]]),
        Section(name, [name, *every_plot(name)]),
        Section(name, [Section(name, [name])], folded=True, code=name),
    ]
    return Page(name, name, blocks, name, learners=[name, "other"])


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


def test_hostile_names_are_text_in_every_block() -> None:
    text = page(EVIL).render()
    parsed = Tags(text)
    assert "img" not in parsed.tags
    assert parsed.tags.count("script") == 3  # figures, plotly, the script of the page
    assert not [name for name, _ in parsed.attributes if name.startswith("on")]
    assert {value for name, value in parsed.attributes if name in ("src", "href")} == {"data:,"}
    assert "{{ 7*7 }}" in text
    found = re.search(r'id="figures">(.*)</script>', text)
    assert found is not None
    figures = json.loads(found[1])
    assert len(figures) == parsed.tags.count("figure") == 5
    for figure in figures:
        del figure["title"]  # of the file that an export writes
    assert "<img" not in json.dumps(figures)  # plotly reads tags in its texts
    assert parsed.tags.count("details") == 3  # the menu, the long table and the folded section


def test_both_themes_have_the_same_colours_and_draw_js_knows_every_role() -> None:
    assert THEMES["light"].keys() == THEMES["dark"].keys()
    assert len(THEMES["dark"]["colours"]) == len(THEMES["light"]["colours"])
    script = (PAGES / "draw.js").read_text() + (PAGES / "view.js").read_text()
    roles = {t["meta"]["role"] for figure in every_plot("a") for t in figure.data} - {"line"}
    # Draw.js makes these from the marks of a moving figure.
    assert set(re.findall(r'case "(\w+)"', script)) == roles | {"reported"}
    style = (PAGES / "style.css").read_text() + script
    own = set(re.findall(r"--(\w+):", style))
    assert set(re.findall(r"var\(--(\w+)\)", style)) <= THEMES["light"].keys() | own
    assert set(re.findall(r"colours\.([a-z]\w+)", script)) <= {*THEMES["light"], "length"}
    assert not re.search(r"#[0-9a-f]{6}", style)  # colours are in the palette alone


def test_numbers_that_json_lacks_are_left_out() -> None:
    trace = plots.line("a", [0, 1, 2], [0.5, np.nan, np.inf])
    assert trace["y"] == [50.0, None, None]
    wide = plots.band([0, 1], [-0.2, 0.5], [0.5, 1.2], "a")
    assert wide["y"] == [50.0, 100.0, 50.0, 0.0]


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    file = page("a").write(tmp_path / "new" / "page.html")
    assert [found.name for found in file.parent.iterdir()] == ["page.html"]
    with pytest.raises(StreamgaugeError, match="Cannot write"):
        page("a").write(file / "page.html")


# What a viewer without green cones sees of linear RGB (Machado et al. 2009).
DEUTERANOPIA = np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                         [-0.011820, 0.042940, 0.968881]])  # fmt: skip
XYZ = np.array([[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750],
                [0.0193339, 0.1191920, 0.9503041]])  # fmt: skip


def lab(colours: list[str], seen: Any = None) -> np.ndarray[Any, Any]:
    """CIE L*a*b* of colours, as seen through a matrix of linear RGB."""
    rgb = np.array([[int(c[at : at + 2], 16) / 255 for at in (1, 3, 5)] for c in colours])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    if seen is not None:
        linear = np.clip(linear @ seen.T, 0, 1)
    x, y, z = ((linear @ XYZ.T) / XYZ.sum(axis=1)).T
    f = [np.where(v > 0.008856, np.cbrt(v), 7.787 * v + 16 / 116) for v in (x, y, z)]
    return np.stack([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])], axis=1)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_differ_in_grey_and_for_colour_blind_readers(theme: str) -> None:
    colours = THEMES[theme]["colours"]
    first, second = np.triu_indices(len(colours), 1)
    full, blind = lab(colours), lab(colours, DEUTERANOPIA)
    assert np.abs(full[first, 0] - full[second, 0]).min() > 4  # luminance
    assert np.linalg.norm(blind[first] - blind[second], axis=1).min() > 25
    assert np.linalg.norm(full[first] - full[second], axis=1).min() > 30


def test_thinned_curves_keep_their_extremes() -> None:
    rng = np.random.default_rng(0)
    y = rng.random(5000)
    y[1234], y[4321] = 9.0, -9.0
    x, kept = plots.thin(np.arange(5000), y)
    assert len(x) <= plots.POINTS
    assert (kept.max(), kept.min()) == (9.0, -9.0)
    assert (x[0], x[-1]) == (0, 4999)
    assert y[x.astype(int)].tolist() == kept.tolist()


def test_fewer_than_three_points_are_not_joined() -> None:
    assert plots.line("a", [0, 40], [0.5, 0.4])["mode"] == "markers"
    assert plots.line("a", [0, 1, 2], [0.5, np.nan, 0.4])["mode"] == "markers"
    assert plots.line("a", [0, 1, 2], [0.5, 0.5, 0.4])["mode"] == "lines"


def test_zero_has_its_own_position_on_the_axis_of_shifts() -> None:
    position, axis = plots.shift_axis([0, 1, 1023], first=[1000])
    assert position.tolist() == [0, 1, 10]
    assert axis["ticktext"] == ["0", "1", "1000"]  # 1023 would touch it


@pytest.mark.parametrize("ending", ["pdf", "tex", "PNG", "svg"])
def test_names_of_other_formats_are_refused_before_the_work(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"x.{ending}"
    writers: list[Callable[[Path], Any]] = [
        Page("A", "page", ["text"]).write,
        lambda path: write_report([], path),  # that there is no run would come next
        lambda path: run_audit(tmp_path / "no.csv", report=path),  # no file: the same
    ]
    for write in writers:
        with pytest.raises(StreamgaugeError, match=r"HTML file.*\.html; .*SVG or PNG .* LaTeX"):
            write(file)
    assert not list(tmp_path.iterdir())
    for name in ("x.html", "x.HTM", "x"):
        assert Page("A", "page", ["text"]).write(tmp_path / name).is_file()
