"""Geographic classes as the command line calls them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streamgauge.errors import StreamgaugeError
from streamgauge.metrics.geo import THRESHOLDS_KM
from streamgauge.pages import Page, PageTable
from streamgauge.places.cells import LEVELS, GeoClasses, load_classes
from streamgauge.places.map import cell_map, cell_text
from streamgauge.places.points import Labelling, Points, classes_of, label_points


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
    threads: int | None = None,
    **columns: str | None,
) -> dict[str, Any]:
    """Build classes from a table (or `use` those of a file), label its points, say what came out.

    Returns the facts, and under ``words`` the sentences.
    """
    points = Points(data, keep=keep, **columns)
    time = points.times()
    if use is not None:
        classes = load_classes(use)
    else:
        classes = classes_of(
            points,
            preparation=preparation,
            split_above=split_above,
            keep_from=keep_from,
            max_level=max_level,
            time=time,
        )
    # Only once all of the table has been read is anything written for others to find.
    found = label_points(points, classes, labels, threads=threads, time=time, when=calendar)
    if use is None:
        classes.save(out)
    words = _words(points, classes, found, use is not None, preparation, time is not None)
    if report is not None:
        written = _page(points, classes, found, words).write(report)
        words.append(f"Map: {written}")
    if use is None:
        words.append(f"Classes: {out}")
    if labels is not None:
        words.append(f"Labels: {labels}")
    return {
        "columns": points.roles,
        "guessed": points.guessed,
        "classes": len(classes),
        "built_from": classes.points,
        "built_from_dropped": classes.dropped,
        "levels": [int(classes.level.min()), int(classes.level.max())],
        "points": found.rows,
        "labelled": found.labelled,
        "without_coordinates": found.without_place,
        "in_no_class": found.outside,
        "within_km": dict(zip(map(str, THRESHOLDS_KM), found.within.tolist(), strict=True)),
        "file": str(use or out),
        "labels": None if labels is None else str(labels),
        "report": None if report is None else str(report),
        "words": words,
    }


def _words(
    points: Points,
    classes: GeoClasses,
    found: Labelling,
    given: bool,
    preparation: float,
    timed: bool,
) -> list[str]:
    level = classes.level
    said = [points.columns_line()]
    if given:
        said.append(f"{_classes(len(classes))} as given.")
    else:
        order = "in time" if timed else "in the order of the file, which has no column of times"
        said.append(
            f"{_classes(len(classes))} from the {classes.points:,} points with coordinates among "
            f"the first {100 * preparation:.3g} % {order}; {classes.dropped:,} of these lie in "
            f"cells of fewer than {classes.keep_from} points, which are no classes. Cells of level "
            f"{level.min()} to {level.max()}."
        )
        stuck = int(((classes.count > classes.split_above) & (level == classes.max_level)).sum())
        if stuck:
            said.append(
                f"{stuck} of the cells hold more than {classes.split_above:,} points but are at "
                f"the deepest level, {classes.max_level}."
            )
    if len(classes) == 1:
        said.append(
            "One class is nothing to learn: lower --split-above, or build from a larger share "
            "(--preparation)."
        )
    lost = found.rows - found.labelled
    said.append(
        f"Of {found.rows:,} points {found.labelled:,} ({found.labelled / found.rows:.1%}) lie in a "
        f"class; {lost:,} dropped: {found.without_place:,} without coordinates, "
        f"{found.outside:,} in no class."
    )
    if found.labelled:
        near = ", ".join(
            f"{share:.1%} within {limit:g} km"
            for share, limit in zip(found.within, THRESHOLDS_KM, strict=True)
        )
        said.append(f"From the centre of their class: {near}.")
    return said


def _classes(count: int) -> str:
    return f"{count:,} classes" if count > 1 else "1 class"


def _page(points: Points, classes: GeoClasses, found: Labelling, words: Sequence[str]) -> Page:
    cells = [int(cell) for cell in classes.cell]
    if not cells:
        raise StreamgaugeError("There is no class to draw.")
    counts = list(zip(classes.count, found.count, strict=True))
    texts = [
        cell_text(cell, f"class {number}", f"built from {built:,} points", f"{now:,} points in it")
        for number, (cell, (built, now)) in enumerate(zip(cells, counts, strict=True))
    ]
    rows = [
        [f"{number}", token, f"{level}", f"{lat:.4f}", f"{lng:.4f}", f"{built:,}", f"{now:,}"]
        for number, (token, level, (lat, lng), (built, now)) in enumerate(
            zip(classes.tokens, classes.level, classes.centre, counts, strict=True)
        )
    ]
    head = ["class", "cell", "level", "latitude", "longitude", "built from", "points"]
    return Page(
        "Streamgauge: geographic classes",
        f"Geographic classes of {Path(points.name).name}",
        [
            *words,
            cell_map(
                "The classes on a map",
                "Each outline is an S2 cell; the dot is its centre, the location that a predicted "
                "class stands for. Small cells are where many points are.",
                cells,
                texts,
            ),
            PageTable(head, rows, "All classes", text_columns=[1]),
        ],
    )
