"""What a learner is. There is nothing to inherit from: any class with the four methods of `Learner`
is a learner, and nothing else is required.

A learner is made as `Learner(spec, source, seed, device, config)`; `config` is left out where the
class has no such parameter.

The other protocols below list the optional members, by what they are for. A learner may have any
of them, each on its own. `adapter.py` looks them up once and has a default for what is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from streamgauge.versions import renamed

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import Tensor

__getattr__ = renamed(
    __name__,
    {
        "Cost": "JobKinds",
        "Execution": "StepRecording",
        "Executor": "StepExecutor",
        "Turns": "ManySteps",
    },
)
NEEDS = frozenset({"boundaries", "horizon", "class_count"})


class Batch(NamedTuple):
    """The samples of one step, without padding, on the learner's device."""

    x: Tensor
    y: Tensor
    index: NDArray[np.int64]  # type: ignore[assignment]  # addresses in the source
    label: NDArray[np.int64] | None = None  # y on the host, where it is known there

    def labels(self) -> NDArray[np.int64]:
        """The labels on the host; where they are known there, nothing waits for the device."""
        return self.y.cpu().numpy() if self.label is None else self.label


class Learner(Protocol):
    """The contract; `streamgauge check FILE.py:Class` tests it."""

    def predict(self, x: Tensor) -> Tensor:
        """Scores [B, C] whose softmax is the confidence; changes nothing."""

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any] | None:
        """Learn from a batch; `predicted` is what `predict` answered for it when it was revealed.
        Returns scalars to log."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Facts(Protocol):
    """Optional: facts about the stream that the learner asks to be told."""

    needs: frozenset[str]  # of "boundaries", "horizon", "class_count"; default: none

    def tell(self, **facts: Any) -> None:
        """Only the facts that `needs` names: `horizon=steps` and `class_count=n` before the first
        step, `boundary=task, classes=array` before the first batch of each task."""


class Inputs(Protocol):
    """Optional: what the learner gets to see."""

    sees_input: bool  # default True; with False it gets inputs of width 0

    def rescale(self, factor: Tensor, offset: Tensor) -> None:
        """Called before `learn` when inputs that are standardised online have new statistics: an
        input that was x is factor x + offset from now on. For learners that store inputs."""


class Storage(Protocol):
    """Optional: what the learner stores besides its weights."""

    unbounded: bool  # default False; True: what it stores may grow with the stream

    def store(self, batch: Batch) -> None:
        """Store a batch without training on it."""

    def skipped(self, batch: Batch) -> None:
        """Under `protocol.as_published` only: a batch that is dropped because the learner is busy.
        The learner may compare its answers with the labels; it may not train on the batch."""

    def memory_bytes(self) -> int:
        """Bytes stored besides the weights; logged with every job."""

    def stored_addresses(self) -> NDArray[np.int64]:
        """Addresses that it may still read and that are in no memory of its own, so that a live
        service keeps these samples. Default: the addresses in its memories and batches."""


class JobKinds(Protocol):
    """Optional: which of its training jobs cost the same."""

    def job_kind(self) -> str:
        """The kind of the next training job, such as "filling" or "steady", for `protocol.costs`,
        which can give each kind its own cost. Default: all jobs are "learn"."""

    def work(self) -> tuple[int, ...]:
        """What the FLOPs of the next job depend on besides its kind and batch size, such as the
        number of samples it will recall. A number that differs in nearly every job may be marked
        `Affine(number)` (see `cost/flops.py`). Default: nothing."""

    def cycle(self, batch: int) -> int:
        """Jobs after which the cost pattern repeats, for this batch size; `streamgauge cost`
        measures whole cycles. Default: 1."""


class ManySteps(Protocol):
    """Many steps in one call, for our bridges to models that take one sample per call, where the
    loop would cost more than the model. Of other learners it is ignored: the labels come together
    with the samples."""

    def answer_and_learn(
        self,
        x: NDArray[Any],
        labels: NDArray[np.int64],
        ends: NDArray[Any],
        learnt: NDArray[Any] | None = None,
    ) -> tuple[NDArray[np.float32], float]:
        """Answer the samples of a step, then learn them, then those of the next step: as `predict`
        and `learn` in turn. Step i ends before sample `ends[i]`. `learnt` has the rows as they are
        learnt, where that is not as they are answered. Returns the scores [B, C] and the seconds of
        learning. The learner logs no scalars."""


class StepRecording(Protocol):
    """Optional, for networks (`network.py`): how an engine may run the learner's steps."""

    eager: str  # "" if steps can be recorded, else the reason why not; without it: not recordable
    model: Any  # `models.Model`
    generator: torch.Generator  # the only one that recorded steps draw from
    executor: StepExecutor  # engines replace it

    def variant(self) -> tuple[Any, ...]:
        """What decides, besides tensor shapes, which operations the next step takes."""


class StepExecutor:
    """Runs the heavy parts of a learner's step. This one calls them; an engine gives the learner
    another executor, which records functions and replays them."""

    def run(self, function: Callable[..., Any], *inputs: Any) -> Any:
        """Call a function of tensors and of plain values that decide which operations it takes."""
        return function(*inputs)

    def inference(self) -> AbstractContextManager[Any]:
        """Within it the learner's model only answers, so an engine may put a faster one there."""
        return nullcontext()


class Evaluation(Protocol):
    """Optional: what the learner does for evaluations."""

    answers_cheaply: bool  # default False; True: features are frozen, near-future answers all made

    def prepare(self) -> None:
        """Work before every evaluation, such as training on the memory."""

    def prepare_test(self) -> None:
        """Called before splits that are evaluated at boundaries only, such as a test set, and
        after the splits that may be evaluated at any step."""

    def features(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """What a linear probe is trained on; of a random view of x if a generator is given."""


class Prefetching(Protocol):
    """Optional: which samples the learner is going to read, so that they are decoded in advance."""

    def upcoming_reads(self, batch: Batch) -> list[NDArray[np.int64]]:
        """Called on a copy with its own `memory`, with labels and addresses only: apply what
        learning this batch does to the memory, and return the addresses of each read."""
