"""The command `data classes`: build geographic classes and label points."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streamgauge.metrics.geo import THRESHOLDS_KM
from streamgauge.pages import Page, PageTable
from streamgauge.places.cells import LEVELS, GeoClasses, load_classes
from streamgauge.places.map import cell_map, cell_text
from streamgauge.places.points import (
    Labelling,
    Points,
    classes_of,
    label_points,
    rows_of_years,
)


def run_classes(
    data: str | Path,
    *,
    out: str | Path = "classes.json",
    use: str | Path | None = None,
    labels: str | Path | None = None,
    report: str | Path | None = None,
    preparation: float = 0.05,
    split_above: int = 10_000,
    keep_from: int = 50,
    max_level: int = LEVELS,
    keep: Sequence[str] = (),
    calendar: bool = False,
    years: str | None = None,
    threads: int | None = None,
    **columns: str | None,
) -> dict[str, Any]:
    """Build classes from a table (or `use` a file of classes) and label the points of the table.
    Returns the results by name, and under ``words`` the sentences to print."""
    points = Points(data, keep=keep, **columns)
    times = points.times()
    among = None if years is None else rows_of_years(times, years)
    if use is not None:
        classes = load_classes(use)
    else:
        limits = {"split_above": split_above, "keep_from": keep_from, "max_level": max_level}
        classes = classes_of(points, preparation=preparation, time=times, among=among, **limits)
    # Files are written only after the whole table has been read without an error.
    labelling = label_points(
        points, classes, labels, threads=threads, time=times, when=calendar, among=among
    )
    if use is None:
        classes.save(out)
    sentences = _sentences(
        points, classes, labelling, use is not None, preparation, times is not None
    )
    if report is not None:
        page = _page(points, classes, labelling, sentences).write(report)
        sentences.append(f"Map: {page}")
    if use is None:
        sentences.append(f"Classes: {out}")
    if labels is not None:
        sentences.append(f"Labels: {labels}")
    return {
        "columns": points.roles,
        "guessed": points.guessed,
        "classes": len(classes),
        "built_from": classes.points,
        "built_from_dropped": classes.dropped,
        "levels": [int(classes.level.min()), int(classes.level.max())],
        "points": labelling.rows,
        "labelled": labelling.labelled,
        "without_coordinates": labelling.without_place,
        "in_no_class": labelling.outside,
        "in_other_years": labelling.other_years,
        "within_km": dict(zip(map(str, THRESHOLDS_KM), labelling.within.tolist(), strict=True)),
        "file": str(use or out),
        "labels": None if labels is None else str(labels),
        "report": None if report is None else str(report),
        "words": sentences,
    }


def _sentences(
    points: Points,
    classes: GeoClasses,
    labelling: Labelling,
    from_file: bool,
    preparation: float,
    has_times: bool,
) -> list[str]:
    levels = classes.level
    sentences = [points.columns_line()]
    if from_file:
        sentences.append(f"{_classes(len(classes))} from the given file.")
    else:
        order = "by time" if has_times else "in file order, as there is no time column"
        sentences.append(
            f"{_classes(len(classes))} from the {classes.points:,} points with coordinates among "
            f"the first {100 * preparation:.3g} % {order}; {classes.dropped:,} of these points are "
            f"in dropped cells of fewer than {classes.keep_from} points. Levels of the cells: "
            f"{levels.min()} to {levels.max()}."
        )
        undivided = int(
            ((classes.count > classes.split_above) & (levels == classes.max_level)).sum()
        )
        if undivided:
            sentences.append(
                f"{undivided} cells contain more than {classes.split_above:,} points but are at "
                f"the deepest level, {classes.max_level}."
            )
    if len(classes) == 1:
        sentences.append(
            "A single class cannot be learnt: lower --split-above, or build from a larger share of "
            "the points (--preparation)."
        )
    dropped = labelling.rows - labelling.labelled
    years = f", {labelling.other_years:,} of other years" if labelling.other_years else ""
    sentences.append(
        f"Of {labelling.rows:,} points {labelling.labelled:,} "
        f"({labelling.labelled / labelling.rows:.1%}) are in a class; {dropped:,} are dropped: "
        f"{labelling.without_place:,} without coordinates, "
        f"{labelling.outside:,} in no class{years}."
    )
    if labelling.labelled:
        near = ", ".join(
            f"{share:.1%} within {limit:g} km"
            for share, limit in zip(labelling.within, THRESHOLDS_KM, strict=True)
        )
        sentences.append(f"Distance to the centre of their class: {near}.")
    return sentences


def _classes(count: int) -> str:
    return f"{count:,} classes" if count > 1 else "1 class"


def _page(
    points: Points, classes: GeoClasses, labelling: Labelling, sentences: Sequence[str]
) -> Page:
    cells, texts, rows = [int(cell) for cell in classes.cell], [], []
    for index, (cell, token, level, (latitude, longitude), built_from, labelled) in enumerate(
        zip(cells, classes.tokens, classes.level, classes.centre, classes.count, labelling.count,
            strict=True)
    ):  # fmt: skip
        counts = f"{built_from:,}", f"{labelled:,}"
        built = f"built from {counts[0]} points"
        texts.append(cell_text(cell, f"class {index}", built, f"{counts[1]} points in it"))
        rows.append([f"{index}", token, f"{level}", f"{latitude:.4f}", f"{longitude:.4f}", *counts])
    decades = np.floor(np.log10(np.maximum(labelling.count, 0.1))).astype(int)  # -1: no points
    sizes = [f"{10**n:,} to {10 ** (n + 1) - 1:,}" for n in range(int(decades.max()) + 1)]
    if (decades < 0).any():
        decades, sizes = decades + 1, ["0", *sizes]
    header = ["class", "cell", "level", "latitude", "longitude", "built from", "points"]
    return Page(
        "Streamgauge: geographic classes",
        f"Geographic classes of {Path(points.name).name}",
        [
            *sentences,
            cell_map(
                "The classes on a map",
                "Each outline is an S2 cell; the dot is its centre, the location that a predicted "
                "class stands for. There are no coasts and borders: the plotting library has none "
                "that work without a network. Cells are small where there are many points; the "
                "stronger the colour, the more points are in them.",
                cells,
                texts,
                decades.tolist(),
                sizes,
            ),
            PageTable(header, rows, "All classes", text_columns=[1]),
        ],
    )
