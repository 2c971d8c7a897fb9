"""Colours of every page, for light and for dark screens."""

from __future__ import annotations

from typing import Any

# `colours` are those of curves, bars and maps, by number; the others are CSS variables.
THEMES: dict[str, dict[str, Any]] = {
    "light": {
        "paper": "#ffffff", "ink": "#1d2328", "soft": "#5b6670", "line": "#dfe3e7",
        "tint": "#f4f6f8", "accent": "#0b6aa8", "warn": "#8a4b00", "fail": "#b3303c",
        "colours": ["#0b6aa8", "#c8510a", "#0a8460", "#a8488a",
                    "#9a7400", "#5b5bd6", "#b3303c", "#4f6f1c"],
    },
    "dark": {
        "paper": "#14181c", "ink": "#e4e8eb", "soft": "#9aa6b0", "line": "#2e363d",
        "tint": "#1c2227", "accent": "#6bbcf2", "warn": "#f0b267", "fail": "#ff8a92",
        "colours": ["#5cb5ee", "#ff9557", "#3fcb9c", "#e796c9",
                    "#e3bf4f", "#a5a5ff", "#ff8a92", "#b2d27a"],
    },
}  # fmt: skip
COLOURS = len(THEMES["light"]["colours"])  # higher numbers are the same colours again, dotted
