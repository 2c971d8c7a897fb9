"""One page for everything: hostile names are harmless in every block, and nothing is fetched."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from streamgauge.errors import StreamgaugeError
from streamgauge.pages import Block, Cell, Page, PageTable, Section, Text, shaded_table
from streamgauge.pages import figures as plots
from streamgauge.pages.page import COLOURS, THEMES

EVIL = "</script><img src=x onerror=alert(1)>{{ 7*7 }}"
PAGES = Path(plots.__file__).parent


def every_plot(name: str) -> list[plots.Figure]:
    """One figure with each kind of trace, and a map."""
    x, y = [0, 1, 2], [0.1, 0.2, 0.3]
    traces = [
        plots.band(x, y, y, name, 0),
        plots.band(x, y, y, name, None, legend=True),
        plots.line(name, x, y, COLOURS + 1, deviation=y),
        plots.level(name, x, y),
        plots.front(name, x, y),
        plots.point(name, 1, 20, 2, errors=(np.nan, 3.0), hollow=True, hover="%{y}"),
        plots.markers(name, x, [10, 20, 30], [1, 2, 3], 3),
        plots.layer(name, x, y, 4),
    ]
    bars = [plots.part_of_bar(name, name, 2.0, 1.0, 3.0, 0, name)]
    bars.append(plots.part_of_bar(name, name, 1.0, np.nan, np.nan, 1, name))
    shapes = [plots.vertical(1), plots.horizontal(1), plots.shaded(0, 1)]
    square = np.array([[0.0, 0], [0, 1], [1, 1], [0, 0]])
    return [
        plots.figure(name, name, traces, name, name, x_axis=plots.ticks(x, "abc"), shapes=shapes),
        plots.figure(name, name, bars, name, name, barmode="relative"),
        plots.map_figure(name, name, [square], square[:1], ["a"]),
    ]


def page(name: str) -> Page:
    row = [name, Cell(name, name, name), Cell(name, share=0.5)]
    blocks: list[Block] = [
        name,
        Text(name, "warning"),
        PageTable([name] * 3, [row] * 31, name, text_columns=[1]),
        PageTable([name] * 3, [row], name),
        shaded_table(name, [name, name], [name], [[0.25]]),
        Section(name, [name, *every_plot(name)]),
        Section(name, [Section(name, [name])], folded=True, code=name),
    ]
    return Page(name, name, blocks, name)


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
    assert parsed.tags.count("script") == 3
    assert not [name for name, _ in parsed.attributes if name.startswith("on")]
    assert {value for name, value in parsed.attributes if name in ("src", "href")} == {"data:,"}
    assert "{{ 7*7 }}" in text
    found = re.search(r'id="figures">(.*)</script>', text)
    assert found is not None
    figures = json.loads(found[1])
    assert len(figures) == parsed.tags.count("figure") == 3
    assert "<img" not in json.dumps(figures)  # plotly reads tags in its texts
    assert parsed.tags.count("details") == 2  # the long table and the folded section


def test_both_themes_have_the_same_colours_and_draw_js_knows_every_role() -> None:
    assert THEMES["light"].keys() == THEMES["dark"].keys()
    assert len(THEMES["dark"]["colours"]) == COLOURS
    script = (PAGES / "draw.js").read_text()
    roles = {t["meta"]["role"] for figure in every_plot("a") for t in figure.data} - {"line"}
    assert set(re.findall(r'case "(\w+)"', script)) == roles
    style = (PAGES / "style.css").read_text() + script
    assert set(re.findall(r"var\(--(\w+)\)", style)) <= THEMES["light"].keys()
    assert set(re.findall(r"theme\.(\w+)", script)) <= THEMES["light"].keys()
    assert not re.search(r"#[0-9a-f]{6}", style)  # colours are in the palette alone


def test_numbers_that_json_lacks_are_left_out() -> None:
    trace = plots.line("a", [0, 1, 2], [0.5, np.nan, np.inf])
    assert trace["y"] == [50.0, None, None]
    wide = plots.band([0, 1], [-0.2, 0.5], [0.5, 1.2], "a", 0)
    assert wide["y"] == [50.0, 100.0, 50.0, 0.0]


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    file = page("a").write(tmp_path / "new" / "page.html")
    assert [found.name for found in file.parent.iterdir()] == ["page.html"]
    with pytest.raises(StreamgaugeError, match="Cannot write"):
        page("a").write(file / "page.html")


CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_kind_of_plot_is_drawn(tmp_path: Path, scheme: str) -> None:
    file = page(EVIL).write(tmp_path / "page.html")
    command = (
        f"{CHROMIUM} --headless --no-sandbox --disable-gpu --no-first-run --disable-sync "
        "--disable-background-networking --disable-component-update --enable-logging=stderr "
        f"--user-data-dir={tmp_path / 'profile'} --virtual-time-budget=8000 --v=0 "
        f"--blink-settings=preferredColorScheme={int(scheme == 'light')} "
        f"--dump-dom {file.resolve().as_uri()}"
    )
    done = subprocess.run(command.split(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "CONSOLE" not in done.stderr
    plots_drawn = done.stdout.split("<figure>")[1:]
    assert all("main-svg" in part for part in plots_drawn)
    assert plots_drawn[0].count('class="trace scatter') == 8
    assert plots_drawn[1].count('class="trace bars"') == 2
    colour = THEMES[scheme]["colours"][1].removeprefix("#")
    red, green, blue = (int(colour[place : place + 2], 16) for place in (0, 2, 4))
    assert f"stroke: rgb({red}, {green}, {blue})" in plots_drawn[0]
    assert "<img src" not in done.stdout
