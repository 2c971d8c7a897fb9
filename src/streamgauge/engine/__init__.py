"""How steps execute: called one by one, or recorded once and replayed.

Both engines run the same learner code and write the same log, to floating-point tolerance.
"""

from __future__ import annotations

from typing import Literal

from streamgauge.errors import StreamgaugeError, packages_for

with packages_for("Running a learner"):
    import torch

from streamgauge.engine.eager import Answers, Eager

Name = Literal["auto", "eager", "graph"]
Precision = Literal["fp32", "tf32", "fp16", "bf16"]

__all__ = ["Answers", "Eager", "Name", "Precision", "make"]


def make(name: Name, device: torch.device, precision: Precision = "fp16") -> Eager:
    """`auto` records where there is a GPU. On a CPU `graph` is a stand-in that records nothing, but
    refuses whatever could not be recorded: for tests of a learner."""
    if name not in ("auto", "eager", "graph"):
        raise StreamgaugeError(f"There is no engine '{name}': take auto, eager or graph.")
    if name == "eager" or (name == "auto" and device.type != "cuda"):
        return Eager()
    from streamgauge.engine.graph import Graph

    return Graph(device, precision)
