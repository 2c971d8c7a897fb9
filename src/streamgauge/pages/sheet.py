"""A small page: sentences, tables and figures in one HTML file that opens without a network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamgauge.errors import StreamgaugeError

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
:root { color-scheme: light dark; --ink: #1d2328; --soft: #5b6670; --line: #dfe3e7; --back: #fff; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8eb; --soft: #9aa6b0; --line: #2e363d; --back: #14181c; }
}
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--back);
       max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; overflow-wrap: anywhere; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
p { max-width: 46rem; } .soft { color: var(--soft); }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child { text-align: left; }
td { font-variant-numeric: tabular-nums; }
.figure { height: 440px; } .figure.tall { height: 620px; }
details { margin-top: 1.5rem; } summary { cursor: pointer; }
</style>
</head>
<body>
<h1>{{ title }}</h1>
{% for sentence in words %}<p>{{ sentence }}</p>
{% endfor %}
{% for note in notes %}<p class="soft">{{ note }}</p>
{% endfor %}
{% for figure in figures %}
<h2>{{ figure.title }}</h2>
<p class="soft">{{ figure.says }}</p>
<div class="figure{{ ' tall' if figure.tall }}" role="img" aria-label="{{ figure.title }}"
 id="figure{{ loop.index0 }}"></div>
{% endfor %}
{% for table in tables %}
{% if table.rows|length > 30 %}<details><summary>{{ table.title }} ({{ table.rows|length }} rows)
</summary>{% else %}<h2>{{ table.title }}</h2>{% endif %}
<table>
<tr>{% for name in table.head %}<th>{{ name }}</th>{% endfor %}</tr>
{% for row in table.rows %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}
</table>
{% if table.rows|length > 30 %}</details>{% endif %}
{% endfor %}
<script>{{ plotly }}</script>
<script>
const figures = {{ data }};
const media = window.matchMedia("(prefers-color-scheme: dark)");
function draw() {
  const dark = media.matches;
  const ink = dark ? "#e4e8eb" : "#1d2328";
  const colours = dark ? ["#5cb5ee", "#ff9557"] : ["#0b6aa8", "#c8510a"];
  figures.forEach((figure, i) => {
    const line = { gridcolor: dark ? "#2a3238" : "#e3e7ea", zeroline: false, automargin: true };
    const layout = Object.assign({
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: ink },
      margin: { t: 10, r: 10 }, legend: { orientation: "h", y: -0.2 }, hovermode: "x unified",
      colorway: colours, modebar: { bgcolor: "rgba(0,0,0,0)", color: ink, activecolor: ink },
    }, figure.layout);
    layout.xaxis = Object.assign({}, line, layout.xaxis);
    layout.yaxis = Object.assign({}, line, layout.yaxis);
    const data = figure.data.map((trace) => {
      const colour = colours[(trace.meta && trace.meta.colour) || 0];
      const own = Object.assign({}, trace, { line: Object.assign({ color: colour }, trace.line),
        marker: Object.assign({ color: colour }, trace.marker) });
      if (trace.fill) own.fillcolor = colour + "2e";
      return own;
    });
    Plotly.react("figure" + i, data, layout, 
      { responsive: true, displaylogo: false, displayModeBar: "hover" });
  });
}
draw();
media.addEventListener("change", draw);
</script>
</body>
</html>
"""


@dataclass(frozen=True)
class Drawing:
    """A figure for plotly: data and layout without colours, which follow the reader's theme.
    `meta.colour` of a trace is 0 or 1."""

    title: str
    says: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    tall: bool = False


@dataclass(frozen=True)
class Table:
    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Sheet:
    title: str
    words: Sequence[str]
    notes: Sequence[str] = ()
    figures: Sequence[Drawing] = ()
    tables: Sequence[Table] = field(default=())

    def render(self) -> str:
        """The page. Everything is escaped: names from a file may hold anything."""
        from jinja2 import Environment
        from markupsafe import Markup
        from plotly.offline import get_plotlyjs

        drawn = [{"data": one.data, "layout": one.layout} for one in self.figures]
        return (
            Environment(autoescape=True)
            .from_string(PAGE)
            .render(
                **{name: getattr(self, name) for name in self.__dataclass_fields__},
                plotly=Markup(get_plotlyjs()),
                # Inside a script element nothing may look like its end.
                data=Markup(json.dumps(drawn, allow_nan=False).replace("<", "\\u003c")),
            )
        )

    def write(self, path: str | Path) -> Path:
        """Write the page aside and put it in place whole."""
        target = Path(path)
        aside = target.with_name(target.name + ".aside")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            aside.write_text(self.render(), encoding="utf-8")
            aside.replace(target)
        except OSError as error:
            with suppress(OSError):
                aside.unlink(missing_ok=True)
            raise StreamgaugeError(
                f"The page cannot be written to {target}: {error.strerror or error}."
            ) from None
        return target
