"""How runs are carried out: device, engine, checkpoints, processes, machines. None of it says what
is run or measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict, cast, get_args

import torch

from streamgauge import engine as engines
from streamgauge.errors import StreamgaugeError, nearest
from streamgauge.models.features import device_named
from streamgauge.running.executors.cluster import Cluster, check_executor
from streamgauge.running.profile import Profile
from streamgauge.settings import CHECKPOINT
from streamgauge.versions import take_renamed

Logger = Callable[[str], None]  # gets one sentence


class ExecutionKeywords(TypedDict, total=False):
    """Keywords that functions of the Python API take in place of an `Execution`."""

    device: str
    checkpoint: float
    workers: int | None
    engine: engines.Name
    precision: engines.Precision
    deterministic: bool
    side_by_side: int | None
    threads: int | None
    steps: int | None
    profile: Profile | None
    log: Logger
    force: bool
    trust_pickle: bool
    trust: bool | Sequence[str]
    on: str  # "local" or "ray"
    cluster: Cluster | None
    said: Logger  # old name of `log`


@dataclass(frozen=True)
class Execution:
    """How runs are carried out. Neither workers, side_by_side, checkpoint nor log change a log."""

    device: str = "auto"  # auto, cpu, cuda or cuda:N
    checkpoint: float = CHECKPOINT  # seconds between checkpoints
    workers: int | None = None  # processes that decode images ahead; None: one per core if needed
    engine: engines.Name = "auto"
    precision: engines.Precision = "fp16"  # of evaluation on a GPU
    deterministic: bool = False  # refuse operations without a deterministic algorithm
    side_by_side: int | None = None  # runs at once on a GPU; None: as many as fit
    threads: int | None = None  # CPU threads; None: chosen per network
    steps: int | None = None  # end a run after so many steps of its stream; it can be resumed
    profile: Profile | None = None  # measures where the time goes
    log: Logger = print
    force: bool = False  # run again what is stored, and keep the stored runs in `replaced/`
    trust_pickle: bool = False  # resume models of other libraries, whose states are pickles
    trust: bool | Sequence[str] = False  # code that a run folder may name: all, or these files
    cluster: Cluster | None = None  # None: this machine

    def __post_init__(self) -> None:
        if self.engine not in get_args(engines.Name):
            raise StreamgaugeError(
                f"There is no engine '{self.engine}': take auto, eager or graph."
            )
        if self.precision not in get_args(engines.Precision):
            known = ", ".join(get_args(engines.Precision))
            raise StreamgaugeError(
                f"There is no precision '{self.precision}': take one of {known}."
            )
        for name, least in (
            ("checkpoint", 0),
            ("threads", 1),
            ("steps", 1),
            ("side_by_side", 1),
            ("workers", 0),
        ):
            value = getattr(self, name)
            if value is not None and not value >= least:
                option = name.replace("_", "-")
                raise StreamgaugeError(f"--{option} must be at least {least}, not {value}.")
        if self.cluster is not None and self.profile is not None:
            raise StreamgaugeError("--profile looks at this process: leave it out with --on ray.")
        if self.cluster is not None and self.force:
            raise StreamgaugeError("--force is for this machine: with --on ray, set another --out.")

    @property
    def torch_device(self) -> torch.device:
        return device_named(self.device)

    def interleaves(self, device: torch.device) -> bool:
        """Whether several runs take turns on the device, so that their work overlaps there."""
        return (
            records_steps(device)
            and self.engine != "eager"
            and self.side_by_side != 1
            and self.profile is None
        )


def records_steps(device: torch.device) -> bool:
    """Whether steps are recorded and replayed on this device without waiting for it."""
    return device.type == "cuda"


def execution_of(execution: Execution | None, options: ExecutionKeywords) -> Execution:
    """An `Execution` with some fields replaced by keywords of the Python API."""
    fields = dict(options)
    take_renamed(fields, "said", "log", 4)
    if "on" in fields:
        on = cast(str, fields.pop("on"))
        check_executor(on)
        given = fields.get("cluster") or (None if execution is None else execution.cluster)
        fields["cluster"] = (given or Cluster()) if on == "ray" else None
    known = [field for field in Execution.__dataclass_fields__ if field != "cluster"]
    known += ["on", "out", "progress", "protocol", "seed"]
    for name in fields:
        if name not in Execution.__dataclass_fields__:
            raise StreamgaugeError(
                f"There is no keyword '{name}' here; {nearest(name, known)}"
                f" A setting of a learner: sg.learner(NAME, {name}=...)."
            )
    return replace(execution or Execution(), **fields)  # type: ignore[arg-type]
