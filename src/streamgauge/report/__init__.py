"""Leaderboards as text and as one HTML file that opens from disk without a network."""

from __future__ import annotations

from streamgauge.report.leaderboard import Board, Column, Row, leaderboard
from streamgauge.report.page import plot, write_report
from streamgauge.report.planning import Plan, power
from streamgauge.report.scores import RunComparison, Scores, ScoreTable, compare, score

__all__ = [
    "Board",
    "Column",
    "Plan",
    "Row",
    "RunComparison",
    "ScoreTable",
    "Scores",
    "compare",
    "leaderboard",
    "plot",
    "power",
    "score",
    "write_report",
]
