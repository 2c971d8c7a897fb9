"""Text about a study for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamgauge.report.compute import scaled
from streamgauge.tuning.space import short


def summary_text(summary: Mapping[str, Any]) -> str:
    """The choice, its standard error, the compute of the search, and the next command."""
    took = [f"{summary['seconds']:.3g} s"] if summary["seconds"] is not None else []
    if summary["flops"] is not None:
        took.insert(0, f"{scaled(summary['flops'])}FLOP of training")
    counts = [f"{summary['trials']} trials"]
    if summary["trials"] < summary["asked"]:
        counts[0] = f"{summary['trials']} of {summary['asked']} trials"
    if summary["pruned"]:
        counts.append(f"{summary['pruned']} of them given up early")
    if summary["failed"]:
        counts.append(f"{summary['failed']} without a value")
    seen = f"{summary['samples']} samples, {summary['prefix']} of {summary['stream']}"
    if summary["prefix"] == "preparation":
        seen = f"the {summary['samples']} samples that prepare {summary['stream']}"
    lines = [
        f"{', '.join(counts)}; each saw {seen}.",
        f"They took {' and '.join(took)}." if took else "",
    ]
    if summary["choice"] is None:
        why = f" The first problem: {summary['why']}" if summary["why"] else ""
        return "\n".join([*filter(None, lines), f"None gave a value.{why}"])
    choice = ", ".join(f"{name} = {short(value)}" for name, value in summary["choice"].items())
    lines.append(
        f"Best is trial {summary['trial']}: {choice}, with {summary['objective']} accuracy"
        f" {100 * summary['value']:.2f} %."
    )
    if summary["error"] is not None:
        others = {0: "No other trial lies", 1: "One other trial lies"}.get(
            summary["within"], f"{summary['within']} other trials lie"
        )
        lines.append(
            f"Its standard error is at least {100 * summary['error']:.2f} points"
            f" ({summary['count']:.0f} answers). {others} within it"
            + (": which of them is best is chance." if summary["within"] else ".")
        )
        if summary["trials"] > 1:
            lines.append(
                "The best of many is flattered by chance: report what the run gives, not this."
            )
    lines += summary["ends"]
    lines.append(f"\nTo run the whole stream with it: streamgauge run --tuned {summary['folder']}")
    return "\n".join(filter(None, lines))
