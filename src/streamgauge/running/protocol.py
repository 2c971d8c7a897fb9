"""The protocol of a run: what is measured, what training costs, and when labels arrive."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from streamgauge.cost.clock import as_cost
from streamgauge.errors import StreamgaugeError
from streamgauge.running.lookahead import parse
from streamgauge.settings import coerce, setting_types


@dataclass(frozen=True)
class Protocol:
    """What is measured, and when."""

    predict: bool = True  # answer every sample before learning it
    shifts: tuple[int, ...] = ()  # also answer samples this many samples ahead (near future)
    # Steps that are answered for shifts: all up to 1,000,000 samples, every n-th, or "N samples".
    thin: int | str = "auto"
    evaluate: int | Literal["boundaries", "end", "never"] = "boundaries"  # or every n steps
    unseen: bool = False  # also evaluate tasks (or times) that have not been streamed yet
    remainder: Literal["train", "store", "drop"] = "train"  # what to do with a short last batch
    cost: str = "1"  # of one training job, in stream steps; any fraction
    costs: tuple[str, ...] = ()  # by kind of job, such as "filling=1", where kinds differ
    predict_cost: str = "0"  # share of every step that prediction takes from training
    busy: Literal["drop", "store", "queue"] = "drop"  # a batch that arrives during training
    preempt: bool = False  # cancel a job that is still running when the next batch arrives
    label_delay: int = 0  # steps after which labels become known
    # The real-time paper's own patterns at the costs 4/3 and 5/2; dropped batches are shown to a
    # learner that has `skipped`.
    as_published: bool = False
    # Shares of the stream after which the answer to every held-out sample is recorded. None = at
    # the end and, where a stream has no tasks, after each third too (transfer curves).
    milestones: tuple[float, ...] | None = None
    # A linear probe of the learner's features: at boundaries, at the end, or as the device allows.
    probe: Literal["never", "auto", "end", "boundaries"] = "never"
    probe_copies: int = 1  # random views of each sample that the probe is trained on (survey: 3)

    def __post_init__(self) -> None:
        """Check all values and normalise them, so that equal protocols compare equal."""
        for name, kind in setting_types(type(self)).items():
            object.__setattr__(self, name, coerce(getattr(self, name), kind, f"protocol.{name}"))
        object.__setattr__(self, "cost", str(as_cost(self.cost)))
        object.__setattr__(self, "shifts", tuple(sorted(set(self.shifts))))
        object.__setattr__(self, "thin", str(self.thin))
        parse(str(self.thin))
        object.__setattr__(self, "predict_cost", str(as_cost(self.predict_cost, zero=True)))
        if self.label_delay < 0 or self.probe_copies < 1:
            raise StreamgaugeError(
                "protocol.label_delay must be at least 0 and protocol.probe_copies at least 1."
            )
        job_costs(self)


def job_costs(protocol: Protocol) -> dict[str, Fraction]:
    """Cost by kind of job; kinds that are not listed cost `protocol.cost`."""
    costs = {"learn": as_cost(protocol.cost)}
    for text in protocol.costs:
        kind, equals, cost = text.partition("=")
        if not equals:
            raise StreamgaugeError(f"protocol.costs takes KIND=COST, not '{text}'.")
        costs[kind] = as_cost(cost)
    return costs
