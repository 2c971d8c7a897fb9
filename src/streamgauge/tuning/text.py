"""A study in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamgauge.report.compute import scaled
from streamgauge.tuning.space import short


def summary_text(found: Mapping[str, Any]) -> str:
    """The choice, how sure it is, what it took, and what to do with it."""
    took = [f"{found['seconds']:.3g} s"] if found["seconds"] is not None else []
    if found["flops"] is not None:
        took.insert(0, f"{scaled(found['flops'])}FLOP of training")
    counts = [f"{found['trials']} trials"]
    if found["trials"] < found["asked"]:
        counts[0] = f"{found['trials']} of {found['asked']} trials"
    if found["pruned"]:
        counts.append(f"{found['pruned']} of them given up early")
    if found["failed"]:
        counts.append(f"{found['failed']} without a value")
    seen = f"{found['samples']} samples, {found['prefix']} of {found['stream']}"
    if found["prefix"] == "preparation":
        seen = f"the {found['samples']} samples that prepare {found['stream']}"
    lines = [
        f"{', '.join(counts)}; each saw {seen}.",
        f"They took {' and '.join(took)}." if took else "",
    ]
    if found["choice"] is None:
        why = f" The first said: {found['why']}" if found["why"] else ""
        return "\n".join([*filter(None, lines), f"None gave a value.{why}"])
    choice = ", ".join(f"{name} = {short(value)}" for name, value in found["choice"].items())
    lines.append(
        f"Best is trial {found['trial']}: {choice}, with {found['objective']} accuracy"
        f" {100 * found['value']:.2f} %."
    )
    if found["error"] is not None:
        others = {0: "No other trial lies", 1: "One other trial lies"}.get(
            found["within"], f"{found['within']} other trials lie"
        )
        lines.append(
            f"Its standard error is at least {100 * found['error']:.2f} points"
            f" ({found['count']:.0f} answers). {others} within it"
            + (": which of them is best is chance." if found["within"] else ".")
        )
        if found["trials"] > 1:
            lines.append(
                "The best of many is flattered by chance: report what the run gives, not this."
            )
    lines += found["ends"]
    lines.append(f"\nTo run the whole stream with it: streamgauge run --tuned {found['folder']}")
    return "\n".join(filter(None, lines))
