"""The audit as one HTML file that opens from disk, without a network."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from streamgauge.audit.auditor import Audit
from streamgauge.audit.terminal import columns_line, level_rows
from streamgauge.errors import StreamgaugeError

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Audit of {{ found.name }}</title>
<style>
:root { color-scheme: light dark; --ink: #1c1c1e; --soft: #62626a; --line: #d9d9de; --back: #fff; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #ececf0; --soft: #a0a0aa; --line: #3a3a40; --back: #17171a; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back);
       max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
p.soft, .note { color: var(--soft); }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child { text-align: left; }
td { font-variant-numeric: tabular-nums; }
.figure { height: 380px; }
.fails { color: #c0392b; font-weight: 600; }
</style>
</head>
<body>
<h1>Audit of {{ found.name }}</h1>
<p class="soft">{{ columns }}</p>
{% for gate, failed in gates %}
<p{% if failed %} class="fails"{% endif %}>Condition “{{ gate }}”: {{
  "it holds, so the gate fails" if failed else "it does not hold" }}.</p>
{% endfor %}
{% for sentence in found.words %}<p>{{ sentence }}</p>
{% endfor %}
{% for note in found.notes %}<p class="note">Note: {{ note }}</p>
{% endfor %}
<h2>Levels</h2>
<table>
<tr><th>level</th><th>value</th><th>95 % interval</th></tr>
{% for name, value, limits in rows %}<tr><td>{{ name }}</td><td>{{ value }}</td>
<td>{{ limits }}</td></tr>
{% endfor %}
</table>
{% for title, says in figures %}
<h2>{{ title }}</h2>
<p class="soft">{{ says }}</p>
<div class="figure" id="figure{{ loop.index0 }}"></div>
{% endfor %}
<h2>Blind accuracy in %, by window and shift</h2>
<table>
<tr><th>last labels</th>{% for s in found.shown_shifts %}<th>{{ "{:,}".format(s) }}</th>{% endfor
%}</tr>
{% for name, cells in table %}<tr><td>{{ name }}</td>{% for c in cells %}<td>{{ c }}</td>{% endfor
%}</tr>
{% endfor %}
</table>
<script>{{ plotly }}</script>
<script>
const figures = {{ data }};
const dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
figures.forEach((figure, i) => {
  const base = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: dark ? "#ececf0" : "#1c1c1e" }, margin: { t: 10, r: 10 },
    legend: { orientation: "h", y: -0.2 }, hovermode: "x unified",
  };
  const line = { gridcolor: dark ? "#3a3a40" : "#e3e3e8", zeroline: false };
  const layout = Object.assign(base, figure.layout);
  layout.xaxis = Object.assign({}, line, layout.xaxis);
  layout.yaxis = Object.assign({ tickformat: ".0%", rangemode: "tozero" }, line, layout.yaxis);
  Plotly.newPlot("figure" + i, figure.data, layout, { responsive: true, displaylogo: false });
});
</script>
</body>
</html>
"""


def render(found: Audit, gates: Sequence[tuple[str, bool]] = ()) -> str:
    """The page. Everything that comes from the log is escaped: names may hold anything."""
    from jinja2 import Environment
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    drawn = figures(found)
    environment = Environment(autoescape=True)
    return environment.from_string(PAGE).render(
        found=found,
        gates=gates,
        columns=columns_line(found),
        rows=level_rows(found),
        table=[
            (
                "all" if math.isinf(window) else f"{window:,.0f}",
                ["–" if math.isnan(v) else f"{100 * v:.1f}" for v in row],
            )
            for window, row in zip(found.windows, found.table, strict=True)
        ],
        figures=[(title, says) for title, says, _ in drawn],
        plotly=Markup(get_plotlyjs()),
        # Inside a script element nothing may look like its end.
        data=Markup(json.dumps([figure for *_, figure in drawn]).replace("<", "\\u003c")),
    )


def write(found: Audit, path: str | Path, gates: Sequence[tuple[str, bool]] = ()) -> Path:
    """Write the page aside and put it in place whole."""
    page = render(found, gates)
    target = Path(path)
    aside = target.with_name(target.name + ".aside")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(page, encoding="utf-8")
        aside.replace(target)
    except OSError as error:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        raise StreamgaugeError(
            f"the report cannot be written to {target}: {error.strerror or error}"
        ) from None
    return target


def _plain(values: Any) -> list[float | None]:
    return [None if not math.isfinite(v) else float(v) for v in values]


def _line(name: str, x: Any, y: Any, **more: Any) -> dict[str, Any]:
    mode = {"type": "scatter", "mode": "lines", "name": name, "hovertemplate": "%{y:.1%}"}
    return {**mode, "x": list(x), "y": _plain(y), **more}


def figures(found: Audit) -> list[tuple[str, str, dict[str, Any]]]:
    """Title, what it shows, and data for plotly."""
    drawn = [_curve(found)]
    if len(found.over_time.get("position", [])) > 1:
        drawn.append(_course(found))
    if len(found.choice.spans) > 1:
        drawn.append(_spans(found))
    return drawn


def _curve(found: Audit) -> tuple[str, str, dict[str, Any]]:
    choice = found.choice
    # A logarithmic axis has no 0; the next sample is drawn one place left of shift 1.
    seconds = choice.unit == "seconds"
    x = [float(s) if s > 0 else 0.5 for s in choice.shifts]
    lines = [
        _line("best blind classifier", x, choice.accuracy, line={"width": 3}),
        _line("all labels so far", x, choice.unlimited, line={"dash": "dash"}),
        _line(
            "allowed margin",
            x,
            [u + m for u, m in zip(choice.unlimited, choice.margins, strict=True)],
            line={"width": 0},
            fill="tonexty",
            fillcolor="rgba(128,128,128,.2)",
            hoverinfo="skip",
        ),
    ]
    if found.futures and not seconds:
        at = [float(f.shift) if f.shift > 0 else 0.5 for f in found.futures]
        values = [f.accuracy.value for f in found.futures]
        if found.online.samples and at[0] > 0.5:
            at, values = [0.5, *at], [found.online_scored, *values]
        lines.append(_line("the model", at, values, mode="lines+markers"))
    shapes = []
    if choice.shift is not None and choice.shift > 0:
        shapes.append(
            {"type": "line", "x0": choice.shift, "x1": choice.shift, "y0": 0, "y1": 1,
             "yref": "paper", "line": {"dash": "dot", "color": "#888"}}
        )  # fmt: skip
    unit = "seconds" if seconds else "samples; 0.5 stands for 0, the next sample"
    layout = {"xaxis": {"type": "log", "title": {"text": f"shift ({unit})"}}, "shapes": shapes}
    return (
        "Accuracy by shift",
        "Recent labels help as long as the solid line is above the grey band over the dashed one.",
        {"data": lines, "layout": layout},
    )


def _course(found: Audit) -> tuple[str, str, dict[str, Any]]:
    course = found.over_time
    names = {
        "online": "the model",
        "blind": "best blind classifier",
        "majority": "all labels so far",
    }
    lines = [_line(names[n], course["position"], course[n]) for n in names if n in course]
    layout = {"xaxis": {"title": {"text": "samples"}}}
    return (
        "Accuracy over the stream",
        "Each point is one hundredth of the scored part, for the next sample.",
        {"data": lines, "layout": layout},
    )


def _spans(found: Audit) -> tuple[str, str, dict[str, Any]]:
    spans = found.choice.spans
    line = {
        "type": "bar",
        "x": [(s.start + s.stop) / 2 for s in spans],
        "y": [None if s.shift is None else float(s.shift) for s in spans],
        "width": [0.9 * (s.stop - s.start) for s in spans],
        "name": "shift",
        "hovertemplate": "%{y:,.0f}",
    }
    layout = {
        "xaxis": {"title": {"text": "samples"}},
        "yaxis": {"tickformat": ",", "title": {"text": found.choice.unit}},
        "showlegend": False,
    }
    return (
        "Shift at which the correlation is gone, by part of the stream",
        "A missing bar: in that part it is not gone at any shift looked at. Short parts see less.",
        {"data": [line], "layout": layout},
    )
