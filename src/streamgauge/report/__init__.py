"""Leaderboards as text and as one HTML file that opens from disk without a network."""

from __future__ import annotations

from streamgauge.report.leaderboard import Board, Column, Row, leaderboard
from streamgauge.report.page import plot, write_report

__all__ = ["Board", "Column", "Row", "leaderboard", "plot", "write_report"]
