"""A small log for the examples of metrics: four samples, two tasks, three held-out samples."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np


def _table(names: str, *rows: tuple[object, ...]) -> dict[str, np.ndarray]:
    return {
        name: np.array(column)
        for name, column in zip(names.split(), zip(*rows, strict=True), strict=True)
    }


LOG = SimpleNamespace(
    predictions=_table(
        "step sample label prediction shift",
        (0, 5, 0, 1, 0),
        (1, 6, 0, 0, 0),
        (2, 7, 1, 1, 0),
        (2, 8, 1, 1, 0),
        (1, 6, 0, 0, 1),
        (2, 7, 1, 0, 1),
    ),
    evaluations=_table(
        "evaluation step split task current within correct count",
        (0, 1, "test", 0, 0, -1, 8, 10),
        (1, 3, "test", 0, 1, -1, 4, 10),
        (1, 3, "test", 1, 1, -1, 9, 10),
    ),
    answers=_table(
        "evaluation step split label prediction position",
        (0, 1, "test", 0, 0, 0),
        (0, 1, "test", 1, 0, 2),
        (0, 1, "test", 1, 1, 3),
        (1, 3, "test", 0, 0, 0),
        (1, 3, "test", 1, 0, 2),
        (1, 3, "test", 1, 1, 3),
    ),
    jobs={"flops": np.array([5.0, 7.0])},
)
