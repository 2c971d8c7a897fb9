"""The values of an audit by name: what conditions of `--fail-if` and sentences read.

NaN is unknown. A value with a 95 % interval has its ends as `NAME_low` and `NAME_high`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from streamgauge.audit.auditor import Audit

LEAST_BLOCKS = 20
UNKNOWN = (math.nan, math.nan, math.nan)


def values_of(audit: Audit) -> dict[str, float]:
    """Every value of an audit."""
    choice = audit.choice
    shift = math.nan if choice.shift is None else float(choice.shift)
    helpful = np.flatnonzero(np.asarray(choice.excess) >= choice.tolerance)
    values = {
        "samples": float(audit.samples),
        "classes": float(audit.classes),
        "predictions": float(audit.predictions),
        "unlabelled": float(audit.unlabelled),
        "late_labels": audit.late_labels,
        "early_labels": audit.early_labels,
        "answer_shift": audit.answer_shift,
        "online_scored": audit.online_scored,
        "blind_shifted": audit.blind_shifted,
        "near_future_shift": audit.near_future_shift,
        "last_label": audit.last_label,
        "majority": audit.levels.majority,
        "constant": audit.levels.constant,
        "uniform": audit.levels.uniform,
        "squared": audit.levels.squared,
        "kappa": audit.kappa,
        "kappa_t": audit.kappa_t,
        "kappa_m": audit.kappa_m,
        "kappa_combined": audit.kappa_combined,
        "tolerance": choice.tolerance,
        "shift": shift,
        "shift_samples": shift if choice.unit == "samples" else math.nan,
        "shift_seconds": math.nan if choice.duration is None else choice.duration,
        "shift_largest": choice.largest,
        "shift_estimate": choice.estimate,
        "shift_low": choice.low,
        "shift_high": choice.high,
        "excess": float(choice.excess[-1]) if len(choice.shifts) else math.nan,
        "last_excess": float(choice.excess[helpful[-1]]) if helpful.size else math.nan,
        "last_excess_shift": float(choice.shifts[helpful[-1]]) if helpful.size else math.nan,
        "excess_high": choice.not_excluded,
        "more_labels": choice.more,
        "periods": float(len(choice.periods)),
        "long_periods": float(len(choice.long_periods)),
        "tolerance_bits": audit.tolerance_bits,
        "blocks": math.nan if audit.bits is None else float(audit.bits.blocks),
    }
    without = audit.without
    levels = {
        "online": audit.online,
        "blind": audit.blind,
        "near_future": audit.near_future,
        "share": audit.share,
        "where_blind_fails": audit.where_blind_fails,
        "where_blind_fails_constant": audit.where_blind_fails_constant,
        "online_first": without.online_first,
        "blind_other_user": without.blind_user,
        "blind_other_album": without.blind_album,
    }
    figures: dict[str, Any] = {f"{n}_bits": getattr(audit.bits, n, None) for n in
                               ("base", "history", "remaining", "added", "placebo")}  # fmt: skip
    figures["permuted_bits"] = getattr(audit.permuted, "added", None)
    for name, figure in {**levels, **figures}.items():
        ends = UNKNOWN if figure is None else (figure.value, figure.low, figure.high)
        values[name], values[f"{name}_low"], values[f"{name}_high"] = map(float, ends)
    values["more_rows"] = more_rows(values)
    return values


def more_rows(values: dict[str, float]) -> float:
    """Rows, in addition to those of the log, after which the added bits would be decided.

    Blocks grow with the rows, and half-widths of intervals fall with their square root.
    """
    samples, blocks = values["samples"], values["blocks"]
    if blocks < LEAST_BLOCKS:
        return float(round(samples * (LEAST_BLOCKS / max(blocks, 1) - 1)))
    added, low = values["added_bits"], values["added_bits_low"]
    half, distance = added - low, abs(added - values["tolerance_bits"])
    if low > values["tolerance_bits"]:  # decided but for the placebo
        half += values["placebo_bits_high"] - values["placebo_bits"]
        distance = added - values["placebo_bits"]
    if math.isnan(half) or math.isnan(distance):
        return math.nan
    if distance < 1e-9:
        return math.inf
    return float(round(max(0.0, samples * ((half / distance) ** 2 - 1))))
