"""Draws `docs/architecture.svg` from the imports in `src/`: one box per room, and a line from a
room to each room that it imports, unless a longer chain of lines leads there already. Lines within
the lowest layer are left out.

    python docs/draw_architecture.py            # writes the picture
    python docs/draw_architecture.py --check    # exit code 1 if the committed picture is outdated
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "streamgauge"
PICTURE = ROOT / "docs" / "architecture.svg"
WIDTH, ROW, BOX_WIDTH, BOX_HEIGHT, TOP = 920, 66, 104, 36, 20
IDEAS = {  # a caption per layer, found by any room in it
    "cli": "commands",
    "view": "runs in a browser while they go on",
    "suites": "what is done with runs",
    "report": "leaderboards and reports from logs",
    "running": "the loop and its executors",
    "engine": "how a step executes; names to objects",
    "bridges": "other libraries",
    "learners": "methods",
    "models": "networks; analyses of streams",
    "streams": "streams in, logs out",
    "tables": "tables, pages, label history",
    "settings": "what every room uses",
}


def layers() -> list[list[str]]:
    """The rooms of each layer, highest first, as `pyproject.toml` enforces them."""
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    rows = contract["contracts"][0]["layers"]
    # Rooms with a bar between them do not import each other, those with a colon may.
    return [
        [name.strip().removeprefix("streamgauge.") for name in re.split(r"[|:]", row)]
        for row in rows
    ]


def imported_modules(file: Path) -> Iterator[str]:
    """Dotted names of what a file imports from the package, type-only imports included."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imports_between_rooms(rooms: set[str]) -> set[tuple[str, str]]:
    """Pairs (importing room, imported room)."""
    pairs = set()
    for file in PACKAGE.rglob("*.py"):
        room = file.relative_to(PACKAGE).with_suffix("").parts[0]
        for name in imported_modules(file):
            target = (*name.split("."), "", "")[:2]
            if target[0] == "streamgauge" and target[1] in rooms and target[1] != room in rooms:
                pairs.add((room, target[1]))
    return pairs


def without_shortcuts(pairs: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """The transitive reduction of an acyclic graph.

    >>> sorted(without_shortcuts({("a", "b"), ("b", "c"), ("a", "c")}))
    [('a', 'b'), ('b', 'c')]
    """

    def reachable(start: str) -> set[str]:
        below = {lower for upper, lower in pairs if upper == start}
        return below.union(*(reachable(room) for room in below))

    return {
        (upper, lower)
        for upper, lower in pairs
        if not any(lower in reachable(m) for u, m in pairs if u == upper and m != lower)
    }


def draw() -> str:
    rows = layers()
    center = {}
    for level, row in enumerate(rows):
        for number, room in enumerate(row):
            x = 230 + (number + 0.5) * (WIDTH - 230) / len(row)
            center[room] = (x, TOP + level * ROW + BOX_HEIGHT / 2)
    height = TOP + len(rows) * ROW
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="14">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for upper, lower in sorted(without_shortcuts(imports_between_rooms(set(center)))):
        (x1, y1), (x2, y2) = center[upper], center[lower]
        if y1 == y2:
            continue
        start, end = y1 + BOX_HEIGHT / 2, y2 - BOX_HEIGHT / 2
        bend = (start + end) / 2
        parts.append(
            f'<path d="M{x1:.0f} {start:.0f} C{x1:.0f} {bend:.0f} {x2:.0f} {bend:.0f} '
            f'{x2:.0f} {end:.0f}" fill="none" stroke="#4269a8" stroke-opacity="0.7"/>'
        )
    for level, row in enumerate(rows):
        y = TOP + level * ROW
        idea = next(IDEAS[room] for room in row if room in IDEAS)
        parts.append(f'<text x="10" y="{y + 23}" fill="#555555" font-size="12">{idea}</text>')
        for room in row:
            x = center[room][0] - BOX_WIDTH / 2
            parts.append(
                f'<rect x="{x:.0f}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="5" '
                f'fill="#eef3fb" stroke="#4269a8"/><text x="{center[room][0]:.0f}" y="{y + 23}" '
                f'text-anchor="middle">{room}</text>'
            )
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(PICTURE.read_text() != draw())
    PICTURE.write_text(draw())
