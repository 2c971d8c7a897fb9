"""Plot functions of every page: traces and layouts for plotly.js.

They hold no colours, which follow the reader's light or dark theme. `meta` of a trace tells draw.js
how to style it: `role` is line, band, bar, level, front, point, outlines, dots or heat; `key` is
the name whose colour it has, the same on the whole page. Names may hold anything and are escaped
here, since plotly reads HTML tags in texts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape, unescape
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

POINTS = 250  # of a curve
BINS = 256  # of a curve over a moving window
FEWEST = 3  # points that a line is drawn through; fewer are markers
AXES = ("xaxis", "yaxis")
ALT_TRACES = 12
_WITH_VALUES = ("line", "level", "point", "bar")
Floats = NDArray[np.float64]
Trace = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """A plot with its title and a caption that says what it shows. A figure with `moving` is drawn
    by the page's script, over a window that the reader chooses."""

    block = "figure"
    title: str
    caption: str
    data: list[Trace]
    layout: dict[str, Any]
    moving: dict[str, Any] | None = None

    @property
    def alt(self) -> str:
        """What the figure shows, in words for those who do not see it."""
        shown = [t for t in self.data if "name" in t and t["meta"]["role"] in _WITH_VALUES]
        parts = [text for text in map(_alt, shown[:ALT_TRACES]) if text]
        if len(shown) > ALT_TRACES:
            parts.append(f"and {len(shown) - ALT_TRACES} more")
        axes = [unescape(self.layout.get(a, {}).get("title", {}).get("text", "")) for a in AXES]
        over = f" ({axes[1] or 'value'} over {axes[0]})" if axes[0] else ""
        return f"{self.title}{over}: {'; '.join(parts)}." if parts else f"{self.title}{over}."


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
    numbers = [v for trace in traces for v in _ends(trace, "x")]
    if numbers and not any(trace["type"] == "bar" for trace in traces):
        low, high = min(numbers), max(numbers)
        points = any(trace["meta"]["role"] == "point" for trace in traces)
        margin = (high - low or 1) / (25 if points else 100)  # plotly's own margin is wider
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
    *,
    key: str = "",
    scale: float = 100.0,
    deviation: ArrayLike | None = None,
    markers: bool = False,
    second: bool = False,
    **style: Any,
) -> Trace:
    """A curve in the colour of `key`, by default its name; dotted if it is the second of that
    colour. `y` is multiplied by `scale`: accuracies are drawn in percent. Fewer than three points
    are not joined."""
    values = scale * np.asarray(y, np.float64)
    trace = _trace(name, "line", key or name, x, values)
    if second:
        trace["meta"]["second"] = True
    trace["mode"] = "lines+markers" if markers else "lines"
    if np.isfinite(values).sum() < FEWEST:
        trace["mode"] = "markers"
        if deviation is not None:
            error = scale * np.asarray(deviation, np.float64)
            trace["error_y"] = {"array": rounded(error), "thickness": 1.5}
    trace["hovertemplate"] = "%{y:.1f}" if scale == 100 else "%{y:.4g}"
    if deviation is not None:
        trace["customdata"] = rounded(scale * np.asarray(deviation, np.float64))
        trace["hovertemplate"] += " ± %{customdata:.2g}"
    return trace | ({"line": style} if style else {})


def band(
    x: ArrayLike, low: ArrayLike, high: ArrayLike, group: str, *, key: str = "",
    scale: float = 100.0, legend: bool = False,
) -> Trace:  # fmt: skip
    """The area between two curves, hidden and shown together with the curve named `group`. Bounds
    of accuracies are cut to 0 and 100 %."""
    lower, upper = (scale * np.asarray(values, np.float64) for values in (low, high))
    if scale == 100:
        lower, upper = np.maximum(lower, 0), np.minimum(upper, 100)
    both = [*rounded(x), *reversed(rounded(x))]
    trace = _trace(group, "band", key or group, both, np.concatenate([upper, lower[::-1]]))
    if not legend:
        del trace["name"]
    return trace | {"showlegend": legend}


def level(name: str, x: ArrayLike, y: ArrayLike) -> Trace:
    """A dashed grey line to compare curves with."""
    trace = line(name, x, y)
    return trace | {"mode": "lines", "meta": {"role": "level", "key": escape(name)}}


def front(name: str, x: ArrayLike, y: ArrayLike) -> Trace:
    """Grey steps that join points."""
    return line(name, x, y) | {
        "mode": "lines",
        "meta": {"role": "front", "key": escape(name)},
        "hoverinfo": "skip",
    }


def point(
    name: str, x: float, y: float, *, errors: tuple[float, float], hollow: bool, hover: str,
    near: bool = False,
) -> Trace:  # fmt: skip
    """A marker with its name, with ≈ behind it if it is `near`, and error bars; `errors` of x and
    of y are NaN where unknown."""
    trace = _trace(name, "point", name, [x], [y])
    trace["meta"] |= {"hollow": hollow, "near": near}
    trace |= {"mode": "markers", "hovertemplate": f"{escape(name)}: {hover}"}
    for axis, error in zip("xy", errors, strict=True):
        if error > 0:
            trace[f"error_{axis}"] = {"array": [error], "thickness": 1.5}
    return trace


def markers(name: str, x: ArrayLike, y: ArrayLike, errors: ArrayLike) -> Trace:
    """Markers with error bars in y."""
    trace = _trace(name, "line", name, x, y) | {"mode": "markers", "hovertemplate": "%{y:.1f}"}
    return trace | {"error_y": {"array": rounded(errors), "thickness": 1.5, "width": 4}}


def part_of_bar(name: str, row: str, value: float, low: float, high: float, unit: str) -> Trace:
    """A horizontal bar that says what it is, with the interval of its length; bars of one row are
    stacked."""
    trace = _trace(name, "bar", name, [value], [0]) | {"type": "bar", "orientation": "h"}
    trace["y"] = [escape(row)]
    hover = f"{escape(name)}: {value:.3f} {escape(unit)}"
    if not math.isnan(low):
        ends = {"array": [high - value], "arrayminus": [value - low], "symmetric": False}
        trace["error_x"] = ends | {"thickness": 1.5}
        hover += f" [{low:.3f}, {high:.3f}]"
    return trace | {"hovertemplate": f"{hover}<extra></extra>"}


def layer(name: str, x: ArrayLike, y: ArrayLike) -> Trace:
    """One layer of shares that are stacked to 100 %."""
    return line(name, x, y, width=0.5) | {"stackgroup": "shares"}


def heat(name: str, x: ArrayLike, y: Sequence[str], values: Floats, most: float) -> Trace:
    """Cells shaded by their values from 0 to `most`; NaN is an empty cell."""
    trace = _trace(name, "heat", "", x, []) | {"type": "heatmap", "y": list(y), "zmax": most}
    cells = [rounded(row) for row in values]
    return trace | {"z": cells, "hovertemplate": "%{y}: %{z:.1f}<extra></extra>"}


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
    title: str,
    caption: str,
    borders: Sequence[Floats],
    centres: Floats,
    texts: Sequence[str],
    *,
    level: Sequence[int] = (),
    levels: Sequence[str] = (),
) -> Figure:
    """Closed borders and one dot with a hover text for each of `centres`, from latitudes and
    longitudes (columns) alone: no map is fetched, so there are no coasts and countries. A bar gives
    the scale in kilometres. `texts` may hold HTML tags, so escape the names in them. Borders are
    shaded by their `level`, the stronger the higher; `levels` are the names of these; a level below
    0 is not shaded."""
    numbers = list(level) or [0] * len(borders)
    traces = []
    for number in sorted(set(numbers)):
        lines = [border for border, of in zip(borders, numbers, strict=True) if of == number]
        name = (levels[number] if number >= 0 else "not known") if levels else "borders"
        trace = _trace(name, "outlines", "", [], []) | _joined(lines) | {"mode": "lines"}
        share = (number + 1) / max(1, len(levels)) if levels else 0.25
        trace["meta"]["share"] = max(0.0, share)
        traces.append(trace)
    dots = _trace("centres", "dots", "", [], []) | {
        "x": centres[:, 1].round(5).tolist(),
        "y": centres[:, 0].round(5).tolist(),
        "text": list(texts),
        "mode": "markers",
        "hovertemplate": "%{text}<extra></extra>",
        "showlegend": False,
    }
    x, y = ([v for trace in traces for v in trace[axis]] for axis in "xy")
    layout = _map_layout(x, y) | {"showlegend": bool(levels)}
    return Figure(title, caption, [*traces, dots], layout)


def _joined(lines: Sequence[Floats]) -> dict[str, list[float | None]]:
    """Closed lines one after another, with gaps between them."""
    x: list[float | None] = []
    y: list[float | None] = []
    for line in lines:
        gap = [None] if x else []
        y += [*gap, *line[:, 0].round(5).tolist()]
        x += [*gap, *line[:, 1].round(5).tolist()]
    return {"x": x, "y": y}


KM_PER_DEGREE = 111.195  # of latitude, on a sphere with the Earth's mean radius


def scale_bar(width: float, latitude: float) -> tuple[float, str]:
    """A length of 1, 2 or 5 times a power of ten kilometres, up to a quarter of a map that is so
    many degrees of longitude wide: in degrees at this latitude, and as a text.

    >>> degrees, text = scale_bar(1.0, 60.0)
    >>> round(degrees, 3), text
    (0.18, '10 km')
    """
    degree = KM_PER_DEGREE * math.cos(math.radians(latitude))
    most = width * degree / 4
    power = 10 ** math.floor(math.log10(most))
    length = max(n * power for n in (1, 2, 5) if n * power <= most * (1 + 1e-9))
    unit = f"{length:,.0f} km" if length >= 1 else f"{1000 * length:,.0f} m"
    return length / degree, unit


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
    axes = {
        "xaxis": axis("longitude", longitude, 180),
        "yaxis": axis("latitude", latitude, 90, scaleanchor="x", scaleratio=ratio),
    }
    (left, right), (bottom, top) = (axes[name]["range"] for name in ("xaxis", "yaxis"))
    # In the corner at the bottom left, at the latitude of the middle.
    at = math.degrees(middle) if abs(math.degrees(middle)) < 75 else math.copysign(75, middle)
    length, text = scale_bar(right - left, at)
    if top - bottom > 10:
        text += f" at {abs(at):.0f}° {'N' if at >= 0 else 'S'}"
    x0, y0 = left + 0.03 * (right - left), bottom + 0.04 * (top - bottom)
    bar = {"type": "line", "name": "scale", "x0": x0, "x1": x0 + length, "y0": y0, "y1": y0}
    label = {"x": x0, "y": y0, "text": text, "showarrow": False, "xanchor": "left",
             "yanchor": "bottom", "font": {"size": 12}}  # fmt: skip
    return {**axes, "hovermode": "closest", "shapes": [bar], "annotations": [label]}


def ticks(positions: ArrayLike, texts: Sequence[str]) -> dict[str, Any]:
    """Texts at positions of an axis instead of numbers."""
    return {"tickvals": np.asarray(positions).tolist(), "ticktext": list(texts)}


def shift_axis(
    shifts: Iterable[float], first: Iterable[float] = ()
) -> tuple[Floats, dict[str, Any]]:
    """Positions of shifts on a logarithmic axis that has a true 0, log2(1 + shift), and the axis
    with a text at `first` and at those of the others that fit.

    >>> shift_axis([0, 1, 3])[0]
    array([0., 1., 2.])
    """
    values = np.asarray(list(shifts), np.float64)
    positions = np.log2(1 + values)
    least = float(positions.max(initial=0)) / 12
    shown = list(dict.fromkeys(float(value) for value in first))
    for value in values.tolist():
        if all(abs(math.log2((1 + value) / (1 + other))) >= least for other in shown):
            shown.append(value)
    shown.sort()
    texts = [f"{value:g}" for value in shown]
    return positions, ticks(np.log2(1 + np.array(shown)), texts)


def thin(x: NDArray[Any], y: Floats, most: int = POINTS) -> tuple[Floats, Floats]:
    """A few hundred points of a curve: the first, the last, and the lowest and the highest of equal
    stretches, so that no peak is lost.

    >>> float(thin(np.arange(1000), np.eye(1000)[500])[1].max())
    1.0
    """
    if len(x) <= most:
        return x.astype(np.float64), y
    edges = np.linspace(0, len(x), most // 2).round().astype(np.int64)
    kept = {0, len(x) - 1}
    for first, end in pairwise(edges.tolist()):
        stretch = y[first:end]
        if np.isfinite(stretch).any():
            kept |= {first + int(np.nanargmin(stretch)), first + int(np.nanargmax(stretch))}
    chosen = np.array(sorted(kept))
    return x[chosen].astype(np.float64), y[chosen]


@dataclass(frozen=True)
class Counted:
    """Right answers of one run in consecutive bins of samples; `pair` is the same for runs on the
    same stream with the same seed."""

    name: str
    pair: str
    end: Sequence[int]  # position of the last sample of each bin
    hits: Sequence[int]
    counts: Sequence[int]
    level: bool = False  # a dashed grey level to compare with
    alone: str = ""  # the name of a run that goes on: drawn by itself, and in no mean
    whole: int = 0  # bins of the whole stream, where a run may have a part of them


def moving_figure(
    title: str, caption: str, runs: Sequence[Counted], x_title: str, *,
    marks: Sequence[tuple[float, str, str, str]] = (), classes: dict[str, Any] | None = None,
    difference: bool = False, until: int = 0,
) -> Figure:  # fmt: skip
    """Accuracy in a moving window along x, whose width the reader chooses; below it, on request,
    the difference from the chosen baseline, paired over seeds, and the share of each class. `marks`
    are positions, texts, kinds ("task", "labels", "accuracy", or "reported" by a learner) and the
    learners that reported them. `data` has the accuracy of each run over all its samples. The axis
    ends at `until` or with the runs."""
    tables: dict[str, list[list[int]]] = {"end": [], "counts": []}

    def number(of: str, values: Sequence[int]) -> int:
        given = [int(value) for value in values]
        if given not in tables[of]:
            tables[of].append(given)
        return tables[of].index(given)

    series = [
        {"key": escape(run.name), "pair": run.pair, "level": run.level,
         "hits": [int(h) for h in run.hits], "end": number("end", run.end),
         "counts": number("counts", run.counts),
         **({"alone": escape(run.alone)} if run.alone else {}),
         **({"whole": run.whole} if run.whole else {})}
        for run in runs
    ]  # fmt: skip
    whole = []
    for name in dict.fromkeys(run.name for run in runs if not run.alone):
        of = [r for r in runs if r.name == name and not r.alone]
        each = [sum(r.hits) / max(1, sum(r.counts)) for r in of]
        draw = level if any(r.level for r in runs if r.name == name) else line
        whole.append(draw(name, [max(r.end[-1] for r in runs)], [float(np.mean(each))]))
    drawn = figure(title, caption, whole, x_title, "accuracy in the window, %")
    moving = {
        "series": series, **tables, "marks": [[float(x), *map(escape, of)] for x, *of in marks],
        "classes": classes, "difference": difference, **({"until": until} if until else {}),
    }  # fmt: skip
    return replace(drawn, moving=moving)


def counted(
    name: str, pair: str, hits: ArrayLike, position: ArrayLike | None = None, *, bins: int = BINS
) -> Counted:
    """The bins of a run, from whether each sample was answered right and where it is in the
    stream."""
    right = np.asarray(hits, np.float64)
    size = max(1, -(-len(right) // bins))
    begin = np.arange(0, len(right), size)
    last = np.minimum(begin + size, len(right)) - 1
    where = np.arange(1, len(right) + 1) if position is None else np.asarray(position)
    sums = np.add.reduceat(right, begin).round().astype(np.int64) if len(right) else begin
    return Counted(name, pair, where[last].tolist(), sums.tolist(), (last - begin + 1).tolist())


def share_axes(figures: Iterable[Figure]) -> None:
    """Figures of one kind get one y axis, so that they can be compared: of several parts, and of
    several positions in the stream."""
    groups: dict[tuple[str, str], list[Figure]] = {}
    for figure in figures:
        if figure.moving is None:
            kind = figure.title.split(" at ")[0].removeprefix("Backward ").removeprefix("Forward ")
            groups.setdefault((kind, str(figure.layout["yaxis"].get("title"))), []).append(figure)
    for group in groups.values():
        traces = [trace for figure in group for trace in figure.data]
        values = [v for trace in traces for v in _ends(trace, "y")]
        if len(group) < 2 or not values:
            continue
        from_zero = group[0].layout["yaxis"].get("rangemode") == "tozero"
        low, high = min(values), max(values)
        low = min(low, 0.0) if from_zero else low
        margin = 0.06 * (high - low or 1.0)
        for figure in group:
            bottom = low - margin if low < 0 or not from_zero else 0.0
            figure.layout["yaxis"]["range"] = [bottom, high + margin]


def _ends(trace: Trace, axis: str) -> Iterator[float]:
    """The values of a trace, and the ends of its error bars."""
    bars = trace.get(f"error_{axis}", {})
    above = bars.get("array") or [0] * len(trace[axis])
    below = bars.get("arrayminus", above)
    for value, less, more in zip(trace[axis], below, above, strict=True):
        if isinstance(value, int | float):
            yield from (value - (less or 0), value + (more or 0))


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


def _alt(trace: Trace) -> str:
    """The first and the last value of a trace, and its extremes where they lie further out."""
    name = unescape(trace["name"])
    values = trace["x"] if trace["meta"]["role"] == "bar" else trace["y"]
    values = [v for v in values if isinstance(v, int | float)]
    if not values:
        return ""
    first, last = values[0], values[-1]
    if len(values) == 1:
        return f"{name} {first:.3g}"
    text = f"{name} from {first:.3g} to {last:.3g}"
    if min(values) < min(first, last) or max(values) > max(first, last):
        text += f" (lowest {min(values):.3g}, highest {max(values):.3g})"
    return text


def _trace(name: str, role: str, key: str, x: ArrayLike, y: ArrayLike) -> Trace:
    return {
        "type": "scatter",
        "name": escape(name),
        "legendgroup": escape(name),
        "meta": {"role": role, "key": escape(key)},
        "x": rounded(x),
        "y": rounded(y),
    }
