"""Audits of logs: blind classifiers, shifts and intervals for a reported accuracy.

from streamgauge.audit import audit, blind_accuracy, select_shift

print("\\n".join(audit("log.csv").words))
"""

from __future__ import annotations

from streamgauge.audit.auditor import Audit, audit
from streamgauge.audit.blind import ReferenceLevels, blind_accuracy, reference_levels
from streamgauge.audit.command import audit_log, run_audit
from streamgauge.audit.gate import holds
from streamgauge.audit.repeats import (
    blind_without_album,
    blind_without_user,
    neighbour_accuracy,
)
from streamgauge.audit.shift import select_shift
from streamgauge.audit.verdict import ShiftChoice
from streamgauge.history.bits import Explanation, explain

__all__ = [
    "Audit",
    "Explanation",
    "ReferenceLevels",
    "ShiftChoice",
    "audit",
    "audit_log",
    "blind_accuracy",
    "blind_without_album",
    "blind_without_user",
    "explain",
    "holds",
    "neighbour_accuracy",
    "reference_levels",
    "run_audit",
    "select_shift",
]
