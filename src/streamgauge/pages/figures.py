"""Plot functions of every page: traces and layouts for plotly.js.

They hold no colours, which follow the reader's light or dark theme. `meta` of a trace tells draw.js
how to style it: `role` is line, band, bar, level, front, point, outlines or dots; `colour` is a
number of the palette. Names may hold anything and are escaped here, since plotly reads HTML tags in
texts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

POINTS = 250  # of a curve
Floats = NDArray[np.float64]
Trace = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """A plot with its title and a caption that says what it shows."""

    block = "figure"
    title: str
    caption: str
    data: list[Trace]
    layout: dict[str, Any]


def figure(
    title: str,
    caption: str,
    traces: list[Trace],
    x_title: str,
    y_title: str = "accuracy, %",
    *,
    from_zero: bool = True,
    whole: bool = False,
    x_axis: dict[str, Any] | None = None,
    y_axis: dict[str, Any] | None = None,
    **layout: Any,
) -> Figure:
    """A figure with titled axes. `whole` labels the x axis with whole numbers from 1."""
    x: dict[str, Any] = {"title": {"text": escape(x_title)}}
    numbers = [v for t in traces for v in t["x"] if isinstance(v, int | float)]
    if numbers and not any(trace["type"] == "bar" for trace in traces):
        low, high = min(numbers), max(numbers)
        margin = (high - low or 1) / 100  # for markers; plotly's own margin is wider
        x["range"] = [low - margin, high + margin]
        if whole:
            x |= {"tick0": 1, "dtick": max(1, round(high / 10))}
    if x_axis and x_axis.get("type") == "log":
        x.pop("range", None)
    y: dict[str, Any] = {"title": {"text": escape(y_title)}} if y_title else {}
    if from_zero:
        y["rangemode"] = "tozero"
    axes = {"xaxis": x | (x_axis or {}), "yaxis": y | (y_axis or {})}
    return Figure(title, caption, traces, axes | layout)


def line(
    name: str,
    x: ArrayLike,
    y: ArrayLike,
    colour: int = 0,
    *,
    scale: float = 100.0,
    deviation: ArrayLike | None = None,
    markers: bool = False,
    **style: Any,
) -> Trace:
    """A curve. `y` is multiplied by `scale`: accuracies are drawn in percent."""
    values = scale * np.asarray(y, np.float64)
    trace = _trace(name, "line", colour, x, values)
    trace["mode"] = "lines+markers" if markers or len(values) == 1 else "lines"
    trace["hovertemplate"] = "%{y:.1f}" if scale == 100 else "%{y:.4g}"
    if deviation is not None:
        trace["customdata"] = rounded(scale * np.asarray(deviation, np.float64))
        trace["hovertemplate"] += " ± %{customdata:.2g}"
    return trace | ({"line": style} if style else {})


def band(
    x: ArrayLike, low: ArrayLike, high: ArrayLike, group: str, colour: int | None, *,
    scale: float = 100.0, legend: bool = False,
) -> Trace:  # fmt: skip
    """The area between two curves, hidden and shown together with the curve named `group`. It is
    grey without a colour. Bounds of accuracies are cut to 0 and 100 %."""
    lower, upper = (scale * np.asarray(values, np.float64) for values in (low, high))
    if scale == 100:
        lower, upper = np.maximum(lower, 0), np.minimum(upper, 100)
    both = [*rounded(x), *reversed(rounded(x))]
    trace = _trace(group, "band", colour, both, np.concatenate([upper, lower[::-1]]))
    if not legend:
        del trace["name"]
    return trace | {"showlegend": legend}


def level(name: str, x: ArrayLike, y: ArrayLike) -> Trace:
    """A dashed grey line to compare curves with; its name stands at its end."""
    trace = line(name, x, y)
    texts = [*[""] * (len(trace["x"]) - 1), f"\u00a0{escape(name)}"]
    return trace | {"mode": "lines+text", "meta": {"role": "level"}, "text": texts}


def front(name: str, x: ArrayLike, y: ArrayLike) -> Trace:
    """Grey steps that join points."""
    return line(name, x, y) | {"meta": {"role": "front"}, "hoverinfo": "skip"}


def point(
    name: str, x: float, y: float, colour: int, *, errors: tuple[float, float], hollow: bool,
    hover: str,
) -> Trace:  # fmt: skip
    """A marker with its name and error bars; `errors` of x and of y are NaN where unknown."""
    trace = _trace(name, "point", colour, [x], [y])
    trace["meta"]["hollow"] = hollow
    trace |= {"mode": "markers+text", "text": [f"\u00a0\u00a0{escape(name)}"]}
    trace |= {"textposition": "middle right", "hovertemplate": f"{escape(name)}: {hover}"}
    for axis, error in zip("xy", errors, strict=True):
        if error > 0:
            trace[f"error_{axis}"] = {"array": [error], "thickness": 1.5}
    return trace


def markers(name: str, x: ArrayLike, y: ArrayLike, errors: ArrayLike, colour: int) -> Trace:
    """Markers with error bars in y."""
    trace = _trace(name, "line", colour, x, y) | {"mode": "markers", "hovertemplate": "%{y:.1f}"}
    return trace | {"error_y": {"array": rounded(errors), "thickness": 1.5, "width": 4}}


def part_of_bar(
    name: str, row: str, value: float, low: float, high: float, colour: int, unit: str
) -> Trace:
    """A horizontal bar with the interval of its length; bars of one row are stacked."""
    trace = _trace(name, "bar", colour, [value], [0]) | {"type": "bar", "orientation": "h"}
    trace["y"] = [escape(row)]
    hover = f"{escape(name)}: {value:.3f} {escape(unit)}"
    if not math.isnan(low):
        ends = {"array": [high - value], "arrayminus": [value - low], "symmetric": False}
        trace["error_x"] = ends | {"thickness": 1.5}
        hover += f" [{low:.3f}, {high:.3f}]"
    return trace | {"hovertemplate": f"{hover}<extra></extra>"}


def layer(name: str, x: ArrayLike, y: ArrayLike, colour: int) -> Trace:
    """One layer of shares that are stacked to 100 %."""
    return line(name, x, y, colour, width=0.5) | {"stackgroup": "shares"}


def horizontal(y: float) -> dict[str, Any]:
    """A dotted horizontal line, for `shapes` of a layout."""
    return {"type": "line", "x0": 0, "x1": 1, "xref": "paper", "y0": y, "y1": y}


def vertical(x: Any) -> dict[str, Any]:
    """A dotted vertical line, for `shapes` of a layout."""
    return {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper"}


def shaded(first: Any, last: Any) -> dict[str, Any]:
    """A grey stretch of the x axis, for `shapes` of a layout."""
    return {**vertical(first), "type": "rect", "x1": last, "layer": "below"}


def map_figure(
    title: str, caption: str, borders: Iterable[Floats], centres: Floats, texts: Sequence[str]
) -> Figure:
    """Closed borders and one dot with a hover text in each, from latitudes and longitudes (columns)
    alone: no map is fetched. `texts` may hold HTML tags, so escape the names in them."""
    x: list[float | None] = []
    y: list[float | None] = []
    for border in borders:
        gap = [None] if x else []
        y += [*gap, *border[:, 0].round(5).tolist()]
        x += [*gap, *border[:, 1].round(5).tolist()]
    outlines = _trace("borders", "outlines", 0, [], []) | {"x": x, "y": y, "mode": "lines"}
    dots = _trace("centres", "dots", 0, [], []) | {
        "x": centres[:, 1].round(5).tolist(),
        "y": centres[:, 0].round(5).tolist(),
        "text": list(texts),
        "mode": "markers",
        "hovertemplate": "%{text}<extra></extra>",
    }
    return Figure(title, caption, [outlines, dots], _map_layout(x, y))


def _map_layout(x: Iterable[float | None], y: Iterable[float | None]) -> dict[str, Any]:
    """Axes that show all borders, a degree of longitude as wide as it is in the middle of them."""
    longitude = np.array([value for value in x if value is not None]).clip(-180, 180)
    latitude = np.array([value for value in y if value is not None])
    margin = 0.03 * max(float(np.ptp(longitude)), float(np.ptp(latitude)), 1e-4)

    def axis(title: str, values: Floats, most: float, **more: Any) -> dict[str, Any]:
        low, high = float(values.min()) - margin, float(values.max()) + margin
        limits = [max(-most, low), min(most, high)]
        return {"title": {"text": title}, "range": limits, "constrain": "domain", **more}

    middle = math.radians(float(latitude.min() + latitude.max()) / 2)
    # Far from the equator a whole globe cannot be shown true to size anyway.
    ratio = 1 / max(0.2, math.cos(middle)) if np.ptp(longitude) < 90 else 1.0
    return {
        "xaxis": axis("longitude", longitude, 180),
        "yaxis": axis("latitude", latitude, 90, scaleanchor="x", scaleratio=ratio),
        "hovermode": "closest",
        "showlegend": False,
    }


def ticks(positions: ArrayLike, texts: Sequence[str]) -> dict[str, Any]:
    """Texts at positions of an axis instead of numbers."""
    return {"tickvals": np.asarray(positions).tolist(), "ticktext": list(texts)}


def thin(x: NDArray[Any], y: Floats) -> tuple[Floats, Floats]:
    """A few hundred points of a curve, the first and the last among them."""
    chosen = np.unique(np.linspace(0, len(x) - 1, min(POINTS, len(x))).round().astype(np.int64))
    return x[chosen].astype(np.float64), y[chosen]


def rounded(values: ArrayLike) -> list[Any]:
    """Short numbers for the page, None for NaN and infinity, which JSON lacks; texts as they are.

    >>> rounded([1 / 3, np.nan]), rounded(["2024-01-31"])
    ([0.33333, None], ['2024-01-31'])
    """
    array = np.asarray(values)
    if array.dtype.kind in "UO":
        return list(array.tolist())
    numbers = array.astype(np.float64).tolist()
    return [float(f"{v:.5g}") if math.isfinite(v) else None for v in numbers]


def _trace(name: str, role: str, colour: int | None, x: ArrayLike, y: ArrayLike) -> Trace:
    return {
        "type": "scatter",
        "name": escape(name),
        "legendgroup": escape(name),
        "meta": {"role": role, "colour": colour},
        "x": rounded(x),
        "y": rounded(y),
    }
