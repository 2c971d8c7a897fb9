"""Draws docs/readme.svg: accuracy over how far ahead is asked, of a learner and of the last label.

    python docs/draw_readme.py

Two runs on a generated stream whose labels come in runs of 20; a minute on a laptop.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import streamgauge as sg

SHIFTS = (2, 5, 10, 20, 50, 100, 200)
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 300, 58, 150, 48, 46


def accuracies() -> dict[str, list[float]]:
    """Per learner: online accuracy, then the near-future accuracy at each shift."""
    rng = np.random.default_rng(0)
    label = np.repeat(rng.integers(0, 5, 200), 20)
    inputs = (2 * np.eye(5)[label] + rng.normal(size=(4000, 5))).astype("float32")
    stream = sg.stream(inputs, label, batch=1)
    protocol = sg.Protocol(shifts=SHIFTS)
    learners = {"er (replay)": "er", "last label": sg.learner("blind", window=1)}
    found = {}
    with tempfile.TemporaryDirectory() as out:
        for name, learner in learners.items():
            scores = sg.score(sg.run(stream, learner, protocol=protocol, out=out))
            ahead = [scores[f"near_future_accuracy@{shift}"] for shift in SHIFTS]
            found[name] = [scores["online_accuracy"], *ahead]
    return found


def draw(found: dict[str, list[float]]) -> str:
    count = len(SHIFTS) + 1
    plot_width, plot_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(at: int) -> float:
        return LEFT + plot_width * at / (count - 1)

    def y(accuracy: float) -> float:
        return TOP + plot_height * (1 - accuracy)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        ' font-family="sans-serif" font-size="13" role="img">',
        "<title>Accuracy over how many samples ahead is asked</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="26" font-size="15" font-weight="bold" fill="#222222">'
        "Repeating the last label wins online, and knows nothing ahead</text>",
    ]
    for percent in (0, 20, 50, 100):
        at = y(percent / 100)
        dash = ' stroke-dasharray="3 4"' if percent == 20 else ""
        note = "chance " if percent == 20 else ""
        lines.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"'
            f' stroke="#cccccc"{dash}/>'
            f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end" fill="#555555">'
            f"{percent} %</text>"
        )
        if note:
            lines.append(
                f'<text x="{LEFT + 6}" y="{at - 5:.1f}" fill="#777777" font-size="12">chance</text>'
            )
    for at, name in enumerate(["next", *map(str, SHIFTS)]):
        lines.append(
            f'<text x="{x(at):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle"'
            f' fill="#555555">{name}</text>'
        )
    lines.append(
        f'<text x="{LEFT + plot_width / 2:.1f}" y="{HEIGHT - 8}" text-anchor="middle"'
        ' fill="#555555">samples ahead</text>'
    )
    looks = [("#0b5cad", "", "circle"), ("#b34700", ' stroke-dasharray="7 4"', "square")]
    for (name, values), (colour, dash, marker) in zip(found.items(), looks, strict=True):
        points = [(x(at), y(value)) for at, value in enumerate(values)]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        lines.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"{dash}/>'
        )
        for px, py in points:
            shape = (
                f'<circle cx="{px:.1f}" cy="{py:.1f}" r="4"'
                if marker == "circle"
                else f'<rect x="{px - 4:.1f}" y="{py - 4:.1f}" width="8" height="8"'
            )
            lines.append(f'{shape} fill="{colour}"/>')
        lines.append(
            f'<text x="{points[-1][0] + 12:.1f}" y="{points[-1][1] + 4:.1f}" fill="{colour}"'
            f' font-weight="bold">{name} {100 * values[-1]:.0f} %</text>'
        )
    return "\n".join([*lines, "</svg>", ""])


def check(found: dict[str, list[float]]) -> None:
    """The headline has to be true of the numbers."""
    er, last = found.values()
    if not (last[0] > er[0] and last[-1] < 0.25 < 0.6 < er[-1]):
        raise SystemExit(f"The headline of the picture does not hold: {found}")


if __name__ == "__main__":
    measured = accuracies()
    check(measured)
    (Path(__file__).parent / "readme.svg").write_text(draw(measured), encoding="utf-8")
