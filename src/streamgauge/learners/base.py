"""What a learner is. There is nothing to inherit from: any class with these members is a learner.

It is made as `Learner(spec, source, seed, device, config)`; `config` is left out where the class
has no such parameter. Optional members, each used only where present:

- `needs`: of "boundaries", "horizon", "class_count": what it must be told (by `tell`), nothing else
- `unbounded = True`: what it keeps may grow with the stream, and it says so
- `sees_input = False`: it is handed inputs of width 0
- `tell(**facts)`: `horizon=steps`, `class_count=n` before the first step; `boundary=task,
  classes=array` before the first batch of each task; only the facts that `needs` names
- `store(batch)`: keep a batch without training on it
- `skipped(batch)`: under `protocol.as_published` only, a batch that is dropped, while the learner
  is what answers it: to be judged by, not to be learnt
- `prepare()`: work that belongs before an evaluation
- `conclude()`: what changes between the splits that may be asked after any step and those that are
  asked at boundaries only, such as a test set
- `work()`: what the FLOPs of its next job depend on beside the kind of job and the size of the
  batch, such as how many samples it will recall; a number that is another one in nearly every job
  may be marked, `Affine(number)` (see `flops.py`)
- `cycle(batch)`: jobs after which its work repeats, where it takes turns; `streamgauge cost`
  measures whole cycles
- `answers_cheaply = True`: features are frozen, so near-future answers are never thinned
- `memory_bytes()`: what it holds beside its weights
- `held()`: addresses it keeps outside a memory, so that a served stream does not drop them
- `foresee(batch)`: asked of a double that has a copy of its `memory`: the addresses that learning
  this batch (labels and addresses only) will read; for reading ahead only
- `features(x, generator)`: what a linear probe is trained on; of a random view of x where a
  generator is given
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

NEEDS = frozenset({"boundaries", "horizon", "class_count"})


class Batch(NamedTuple):
    """What a learner is given of one step: real rows only, on its own device."""

    x: Tensor
    y: Tensor
    index: NDArray[np.int64]  # type: ignore[assignment]  # addresses in the source
    label: NDArray[np.int64] | None = None  # y on the host, where it is known there

    def labels(self) -> NDArray[np.int64]:
        """The labels for what is decided on the host; where they are known, nothing waits."""
        return self.y.cpu().numpy() if self.label is None else self.label


class Learner(Protocol):
    """The contract; `streamgauge check FILE.py:Class` tests it."""

    def predict(self, x: Tensor) -> Tensor:
        """Scores [B, C] whose softmax is the confidence; changes nothing."""

    def learn(self, batch: Batch, predicted: Tensor | None) -> dict[str, Any] | None:
        """Learn from a batch; `predicted` is what `predict` answered for it when it was revealed.
        Returns scalars worth logging."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...
