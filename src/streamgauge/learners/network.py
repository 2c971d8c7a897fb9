"""What every learner with a network and a memory has: model, optimiser, memory, random views,
FLOP bookkeeping, checkpoints.

Nothing here is a method; a method says how these parts change (see `replay/er.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from streamgauge import memory, models
from streamgauge.cost.flops import part
from streamgauge.errors import StreamgaugeError
from streamgauge.learners.base import Batch, StepExecutor
from streamgauge.learners.parts.checkpoint import Checkpointed
from streamgauge.learners.parts.replay_batch import ReplayDraw, Sizes
from streamgauge.learners.published import HasPublishedVariant
from streamgauge.models.augment import augment
from streamgauge.models.features import weights_file
from streamgauge.streams import Gate, Spec
from streamgauge.streams.gate import to_device

if TYPE_CHECKING:
    from streamgauge.learners.replay import er


class TrainingCounts(Checkpointed):
    """Counts of the batches and samples that a learner was trained on, for warm-ups and intervals.
    Batches that were skipped because the learner was busy are not counted."""

    checkpointed = "batches samples begun"

    def __init__(self) -> None:
        self.batches = 0
        self.samples = 0
        self.begun = False  # whether `due` has been true once

    def count(self, samples: int) -> None:
        self.batches += 1
        self.samples += samples

    def warm(self, warmup: int) -> bool:
        """Whether the next batch comes after the warm-up."""
        return self.begun or self.samples >= max(warmup, 1)

    def due(self, warmup: int, every: int) -> bool:
        """Called before a batch: whether a copy of the model (a teacher, an anchor) is due.

        First once `warmup` samples have been learnt, and never before anything was; from then on
        whenever the number of batches is a multiple of `every`.

        >>> progress = TrainingCounts()
        >>> due = []
        >>> for _ in range(7):
        ...     due.append(progress.due(warmup=20, every=3))
        ...     progress.count(10)
        >>> due
        [False, False, True, True, False, False, True]
        """
        first = not self.begun and self.warm(warmup)
        again = self.begun and self.batches % every == 0
        self.begun = self.begun or first
        return first or again

    def passed(self, interval: int, samples: int) -> bool:
        """Called after a batch of so many samples: whether it reached a multiple of `interval`."""
        return self.samples // interval > (self.samples - samples) // interval


class Network(Checkpointed, HasPublishedVariant):
    """A model, its optimiser, a memory of addresses and a random generator of its own. The heavy
    parts of a step run through `executor` (see `base.py`); engines replace it."""

    checkpointed = "model optimizer memory generator progress"
    stores_first = False  # whether a batch is stored before it is trained on
    eager = ""  # why steps cannot be recorded; empty: they can
    trained_labels: Tensor | None = None  # of the batch that was trained on last

    def __init__(
        self, spec: Spec, source: Gate, seed: int, device: torch.device, config: er.Config
    ) -> None:
        if config.passes < 1 or config.recall < 0:
            raise StreamgaugeError(
                f"passes must be at least 1 and recall at least 0, not {config.passes} and "
                f"{config.recall}."
            )
        models.refuse_unused_normalisation(config, spec.input_shape)
        self.config, self.source, self.seed, self.device = config, source, seed, device
        self.model = self.build_model(spec, seed).to(device)
        models.suit(self.model, device, config.precision)
        self.optimizer = torch.optim.SGD(
            [p for p in self.model.parameters() if p.requires_grad],
            lr=config.lr,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
        )
        self.memory = self.build_memory(seed)
        self.unbounded = not self.memory.bounded
        self.answers_cheaply = config.model == "linear" or getattr(config, "train", "") == "head"
        self.generator = torch.Generator(device).manual_seed(seed)
        self.mean, self.std = (torch.tensor(v, device=device) for v in (config.mean, config.std))
        self.changed = models.changed_normalisation(config)
        self.no_slots = torch.empty(0, dtype=torch.int64, device=device)
        self.progress = TrainingCounts()
        self.executor = StepExecutor()
        self.scalars: dict[str, Any] = {}
        self.set_up(spec)

    def set_up(self, spec: Spec) -> None:
        """Override it to make what a method has besides; `checkpointed` names what is stored."""

    def execute(self, function: Callable[..., Any], *inputs: Any) -> Any:
        """Run a heavy part of a step (see `StepExecutor.run`)."""
        return self.executor.run(function, *inputs)

    def execute_extra(self, function: Callable[..., Any], *inputs: Any) -> Any:
        """As `execute`, for work that only some jobs do: its FLOPs are counted apart."""
        with part(function.__name__, *[tuple(x.shape) for x in inputs]):
            return self.execute(function, *inputs)

    def inference(self) -> AbstractContextManager[Any]:
        """Within it the model only answers, so an engine may use a faster one instead."""
        return self.executor.inference()

    def build_model(self, spec: Spec, seed: int) -> models.Model:
        config = self.config
        model = models.build(config.model, spec.input_shape, spec.classes, seed, head=config.head)
        if config.weights:
            name = models.model_name(config.model, spec.input_shape)
            file = weights_file(config.weights, name, self.source)
            models.load_weights(model, file, mean=config.mean, std=config.std)
        return model

    def build_memory(self, seed: int) -> memory.Memory:
        return memory.make(self.config.policy, self.config.memory, seed)

    def predict(self, x: Tensor) -> Tensor:
        self.model.eval()
        with torch.no_grad():
            return self.scores(self.normalise(x))

    def read(self, index: Any) -> Batch:
        """Samples by address, from the source."""
        return Batch(*self.source.samples(index), index)

    def read_draws(self, draws: list[ReplayDraw]) -> tuple[Tensor, Tensor, Tensor, Sizes]:
        """The samples that all passes drew, read at once: inputs, labels, slots, and the sizes by
        which `split_passes` separates them."""
        index = addresses(draws)
        slots = [draw.slots for draw in draws if len(draw.slots)]
        sizes = tuple(tuple(len(part) for part in draw.parts) for draw in draws)
        x, y, _, _ = self.read(index)
        on_device = to_device(np.concatenate(slots), self.device) if slots else self.no_slots
        return x, y, on_device, sizes

    def view(self, x: Tensor) -> Tensor:
        """A new random view, normalised: what the network trains on."""
        config = self.config
        models.refuse_float_images(x, self.changed)
        return self.normalise(augment(x, config.augment, self.generator, config.padding))

    def normalise(self, x: Tensor) -> Tensor:
        """Floats are not changed: an engine stores held-out images normalised."""
        return models.to_float(x, self.mean, self.std)

    def scores(self, x: Tensor) -> Tensor:
        scores: Tensor = self.model(x)
        return scores

    def features(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """What a linear probe sees: the layer below the head, of x or of a random view of it."""
        if generator is not None:
            x = augment(x, self.config.augment, generator, self.config.padding)
        self.model.eval()
        with torch.no_grad():
            return self.model.features(self.normalise(x))

    def draw_passes(self, batch: Batch) -> list[ReplayDraw]:
        """What all passes over a batch take from the memory."""
        raise NotImplementedError

    def upcoming_reads(self, batch: Batch) -> list[Any]:
        """What `learn` will read: the same draws, on a copy with its own memory. A class that
        overrides `learn`, `recall` or `store` has to override this too, or its samples are not
        prefetched."""
        if self.stores_first:
            self.memory.add(batch.index, batch.labels())
        draws = self.draw_passes(batch)
        if not self.stores_first:
            self.memory.add(batch.index, batch.labels())
        return [addresses(draws)]

    def foresee(self, batch: Batch) -> list[Any]:
        """Old name of `upcoming_reads`, for overrides that call it; removed in version 0.4."""
        return self.upcoming_reads(batch)

    def variant(self) -> tuple[Any, ...]:
        """What decides, besides tensor shapes, which operations the next step takes."""
        return ()

    def passes_of_batch(self) -> int:
        """Gradient steps on the next batch."""
        return self.config.passes

    def largest_draw(self) -> int:
        """The most samples that a pass takes from the memory at once."""
        return self.config.recall

    def job_kind(self) -> str:
        return "filling" if len(self.memory) < self.config.recall else "steady"

    def work(self) -> tuple[Any, ...]:
        """What the FLOPs of the next job depend on follows from what a method declares above."""
        drawn = min(len(self.memory), self.largest_draw())
        return (drawn, self.passes_of_batch(), *self.variant())

    def memory_bytes(self) -> int:
        return self.memory.nbytes()


def addresses(draws: list[ReplayDraw]) -> Any:
    """The addresses of all draws, in one array."""
    return np.concatenate([part for draw in draws for part in draw.parts])
