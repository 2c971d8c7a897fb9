"""Is a reported number believable? Blind classifiers, shifts, intervals, and audits of any log."""

from __future__ import annotations

from streamgauge.audit.blind import ReferenceLevels, blind_accuracy, reference_levels
from streamgauge.audit.shift import select_shift
from streamgauge.audit.verdict import ShiftChoice

__all__ = ["ReferenceLevels", "ShiftChoice", "blind_accuracy", "reference_levels", "select_shift"]
