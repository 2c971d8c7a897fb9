"""PyTorch: a plain training loop recorded, and our streams as data sets.

The answers to a batch are taken before the training step on this batch, in evaluation mode, and
every module is in its former mode afterwards.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from streamgauge.bridges.hook import Hook
from streamgauge.errors import StreamgaugeError

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.utils.data import DataLoader, IterableDataset

    from streamgauge.streams import Stream


def recording(
    model: torch.nn.Module,
    path: str | Path,
    *,
    stream: str,
    learner: str | None = None,
    classes: Any = None,
    optimizer: torch.optim.Optimizer | None = None,
    forward: Callable[[Any], Any] | None = None,
    **facts: Any,
) -> Recording:
    """Record a training loop of one's own.

        with recording(model, "runs/mine", stream="clicks", optimizer=optimizer) as rec:
            for x, y in loader:
                rec.answer(x, y)  # before the training step
                loss = F.cross_entropy(model(x), y)
                ...

    With `optimizer`, each of its steps counts as one version of the model; without it, call
    `rec.trained()` after training on a batch. `forward(x)` gives the scores of a batch, by default
    `model(x)`. Other arguments are those of `sg.Recorder`.
    """
    name = learner or type(model).__name__
    hook = Hook(path, stream=stream, learner=name, classes=classes, **facts)
    return Recording(model, hook, optimizer, forward or model)


class Recording:
    """A training loop that is recorded; made by `recording`."""

    def __init__(
        self,
        model: torch.nn.Module,
        hook: Hook,
        optimizer: torch.optim.Optimizer | None,
        forward: Callable[[Any], Any],
    ) -> None:
        self.model = model
        self._hook, self._forward = hook, forward
        self._handle: Any = None
        if optimizer is not None:
            self._handle = optimizer.register_step_post_hook(lambda *_: hook.trained())

    def answer(self, x: Any, y: Any = None, *, ids: Any = None, **columns: Any) -> Tensor:
        """Answer a batch in evaluation mode and record the answers, and the labels `y` if they are
        known. Call it before the training step on this batch. `ids` are by default 0, 1, 2, ...;
        `columns` are those of `Recorder.predict` (time, user, task). Returns the scores."""
        scores = ask(self.model, x, self._forward)
        self._hook.answer(scores, y, ids, **columns)
        return scores

    def label(self, ids: Any, y: Any, **columns: Any) -> None:
        """Record labels that arrive later."""
        self._hook.recorder.label(ids, y, **columns)

    def trained(self) -> None:
        """A training job ended; not needed where `recording` has the optimizer."""
        self._hook.trained()

    @property
    def recorder(self) -> Any:
        """The `sg.Recorder` underneath, for evaluations and scalars."""
        return self._hook.recorder

    def close(self) -> None:
        if self._handle is not None:
            self._handle.remove()
        self._hook.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def ask(model: torch.nn.Module, x: Any, forward: Callable[[Any], Any] | None = None) -> Tensor:
    """Scores [B, C] of a batch, in evaluation mode and without gradients."""
    import torch

    with evaluation_mode(model), torch.no_grad():
        out = (forward or model)(x)
    scores = getattr(out, "logits", out)
    if not isinstance(scores, torch.Tensor) or scores.ndim != 2:
        kind = f"shape {list(scores.shape)}" if hasattr(scores, "shape") else type(out).__name__
        raise StreamgaugeError(
            f"The model answers a batch with {kind}, and one row of class scores per sample is"
            " needed: give forward=, a function from a batch to such scores."
        )
    return scores


@contextmanager
def evaluation_mode(model: torch.nn.Module) -> Iterator[None]:
    """Within it all modules are in evaluation mode; after it each is in its former mode, also where
    a part of a network in training was in evaluation mode, as frozen layers are."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


class RandomState:
    """The global random numbers of Python, NumPy and torch, as one learner sees them. Within it
    they continue where this learner left them; outside they are unchanged. Can be pickled."""

    def __init__(self, seed: int) -> None:
        self._state: Any = None
        self._seed = seed % 2**32
        self._outside: Any = None

    def __enter__(self) -> None:
        import torch

        self._outside = _random_state()
        if self._state is not None:
            _set_random_state(self._state)
            return
        random.seed(self._seed)
        np.random.seed(self._seed)  # noqa: NPY002  # for code that uses the global generator
        torch.manual_seed(self._seed)

    def __exit__(self, *error: object) -> None:
        self._state = _random_state()
        _set_random_state(self._outside)
        self._outside = None


def _random_state() -> Any:
    import torch

    used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    cuda = torch.cuda.get_rng_state_all() if used else []
    return random.getstate(), np.random.get_state(), torch.get_rng_state(), cuda  # noqa: NPY002


def _set_random_state(state: Any) -> None:
    import torch

    random.setstate(state[0])
    np.random.set_state(state[1])  # noqa: NPY002
    torch.set_rng_state(state[2])
    if state[3]:
        torch.cuda.set_rng_state_all(state[3])


# Our streams for torch.


def loader(stream: Stream, *, ids: bool = False, **options: Any) -> DataLoader[Any]:
    """A `DataLoader` of the steps of a stream, in stream order with any number of workers. Options
    are those of `DataLoader`, such as `num_workers`."""
    from torch.utils.data import DataLoader

    refused = [
        name for name in ("batch_size", "shuffle", "sampler", "drop_last") if name in options
    ]
    if refused:
        raise StreamgaugeError(
            f"A stream fixes order and steps, so loader takes no '{refused[0]}': set batch= when"
            " you make the stream."
        )
    return DataLoader(dataset(stream, ids=ids), batch_size=None, **options)


def dataset(stream: Stream, *, ids: bool = False) -> IterableDataset[Any]:
    """A stream as a torch `IterableDataset`. An item is one step: (inputs, labels), with `ids` also
    the addresses of the samples. Give it to `DataLoader` with `batch_size=None`; worker processes
    take turns, so that every step comes once and in order. Inputs are the source's values (images
    as bytes), without the online standardisation that our loop applies with `scale="online"`."""
    made: IterableDataset[Any] = _dataset_class()(stream, ids)
    return made


@cache
def _dataset_class() -> Any:
    import torch
    from torch.utils.data import IterableDataset, get_worker_info

    class StreamDataset(IterableDataset):  # type: ignore[type-arg]
        def __init__(self, stream: Stream, ids: bool) -> None:
            self.stream, self.ids = stream, ids

        def __len__(self) -> int:
            return len(self.stream)

        def __reduce__(self) -> Any:  # the class is local, and workers may be spawned
            return _make_dataset, (self.stream, self.ids)

        def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
            _refuse_processes()
            worker = get_worker_info()
            first, every = (0, 1) if worker is None else (worker.id, worker.num_workers)
            source = self.stream.source
            for step in range(first, len(self.stream), every):
                index = self.stream.index(step)
                x = torch.from_numpy(np.asarray(source.read(index)))
                y = torch.from_numpy(source.label[index].astype(np.int64))
                number = torch.from_numpy(index.astype(np.int64))
                yield (x, y, number) if self.ids else (x, y)

    return StreamDataset


def _make_dataset(stream: Stream, ids: bool) -> Any:
    return dataset(stream, ids=ids)


def _refuse_processes() -> None:
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        raise StreamgaugeError(
            "A stream is read in order by one process; with several, each would get all samples."
        )
