"""Avalanche: its strategies as learners, its loops recorded, and our streams as benchmarks.

A strategy answers through its own `forward` in evaluation mode, before anything of it has seen the
labels of the batch: also before Avalanche adapts the network to the classes of the batch.
"""

from __future__ import annotations

import copy as copies
import gc
import hashlib
import inspect
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamgauge.bridges.foreign import ForeignLearner, class_of, library_version, load
from streamgauge.bridges.hook import Hook
from streamgauge.bridges.torch import RandomState, evaluation_mode
from streamgauge.errors import StreamgaugeError, nearest
from streamgauge.record.values import as_array

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from streamgauge.learners.base import Batch
    from streamgauge.streams import Split, Stream
    from streamgauge.streams.source import Source

PACKAGE, DISTRIBUTION = "avalanche", "avalanche-lib"

# Settings of the network and the optimizer, for strategies that are given by name.
_OWN = {"model": "default", "optimizer": "SGD", "lr": 0.1, "momentum": 0.0, "weight_decay": 0.0}
_ENDLESS = 1 << 40  # the length of a data set that grows
# Arguments of strategies that are not settings here.
_NOT_SETTINGS = ("device", "plugins", "evaluator", "eval_every", "peval_mode", "criterion")


class Learner(ForeignLearner):
    """An Avalanche strategy. Each step of the stream is one experience."""

    def new_model(self, settings: Mapping[str, Any], seed: int) -> Any:
        self._random = RandomState(seed)
        self._samples = Samples()
        self._met: set[int] = set()
        self._number = 0
        with self._random:
            made = copies.deepcopy(self.template) if self.template else self._made(settings, seed)
        made.device = self.device
        made.model.to(self.device)
        return made

    def _made(self, settings: Mapping[str, Any], seed: int) -> Any:
        import torch

        from streamgauge.models.build import build

        own = {name: settings.get(name, default) for name, default in _OWN.items()}
        name = "auto" if own["model"] == "default" else own["model"]
        network = build(name, self.spec.input_shape, self.spec.classes, seed, masked=False)
        known = [name for name in vars(torch.optim) if name[0].isupper()]
        if own["optimizer"] not in known:
            hint = nearest(str(own["optimizer"]), known)
            raise StreamgaugeError(f"torch.optim has no optimizer '{own['optimizer']}'; {hint}")
        kind = getattr(torch.optim, own["optimizer"])
        taken = inspect.signature(kind).parameters
        options = {n: own[n] for n in ("lr", "momentum", "weight_decay") if n in taken}
        given = {name: value for name, value in settings.items() if name not in _OWN}
        given |= {"optimizer": kind(network.parameters(), **options), "evaluator": _no_evaluator()}
        if "criterion" in inspect.signature(self.model_type).parameters:
            given["criterion"] = torch.nn.CrossEntropyLoss()
        return self.model_type(model=network, **given)

    def predict(self, x: Tensor) -> Tensor:
        import torch

        with self._random:
            scores = answers(self.model, x)
        missing = self.spec.classes - scores.shape[1]
        if missing > 0:  # a network that grows with the classes
            scores = torch.nn.functional.pad(scores, (0, missing), value=-torch.inf)
        return scores[:, : self.spec.classes]

    def learn(self, batch: Batch, predicted: Any) -> None:
        labels = batch.labels().tolist()
        step = experience(self._samples.add(batch.x, labels), labels, self._met)
        step.current_experience = self._number
        with self._random, _quiet():
            self.model.train(step, eval_streams=[])
        self._number += 1
        self._met |= set(labels)

    def memory_bytes(self) -> int:
        return self._samples.bytes()

    def saved(self) -> Any:
        return self.model, self._samples, self._random, self._met, self._number

    def restore(self, saved: Any) -> None:
        self.model, self._samples, self._random, self._met, self._number = saved


def answers(strategy: Any, x: Tensor) -> Tensor:
    """Scores [B, C] of a strategy, in evaluation mode; the strategy is not changed."""
    import torch

    names = ("mbatch", "mb_output", "experience", "is_training")
    before = {name: getattr(strategy, name) for name in names}
    x = _floats(x).to(strategy.device)
    nothing = torch.zeros(len(x), dtype=torch.int64, device=strategy.device)
    strategy.mbatch, strategy.is_training = [x, nothing, nothing], False
    strategy.experience = _Unlabelled()
    try:
        with evaluation_mode(strategy.model), torch.no_grad():
            scores: Tensor = strategy.forward()
    finally:
        for name, value in before.items():
            setattr(strategy, name, value)
    return scores.float()


class _Unlabelled:
    """What `forward` of a strategy may ask of an experience."""

    task_labels = (0,)


def _floats(x: Tensor) -> Tensor:
    """Images of bytes as numbers from 0 to 1, as torchvision's ToTensor makes them."""
    import torch

    return x.float().div_(255) if x.dtype == torch.uint8 else x


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Avalanche's deprecation warnings about itself, of which each step has several."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        if not issubclass(warning.category, DeprecationWarning):
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )


def experience(data: Any, labels: list[int], met: set[int], **facts: Any) -> Any:
    """An `OnlineCLExperience` of one batch. `met` are the classes of earlier batches; `facts` are
    the arguments of `OnlineCLExperience` about the task that the batch is part of."""
    from avalanche.benchmarks.scenarios.online import OnlineCLExperience

    made = OnlineCLExperience(dataset=data, **{"origin_experience": None, **facts})
    return _with_classes(made, set(labels), met)


class Samples:
    """The samples that a strategy may still read, as one data set. Avalanche's buffers are subsets
    of it: a buffer of many small data sets takes a time that grows with their number. Samples to
    which no subset refers any more are dropped."""

    def __init__(self) -> None:
        self._x: dict[int, Tensor] = {}
        self._label: dict[int, int] = {}
        self._next, self._limit = 0, 1000
        self._all = _dataset(self, _LabelList(self._label, _ENDLESS), _ENDLESS)

    def __len__(self) -> int:
        return _ENDLESS

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        return self._x[number], self._label[number]

    def add(self, x: Tensor, labels: list[int]) -> Any:
        """The data set of a batch."""
        if len(self._x) > self._limit:
            self._drop()
        numbers = range(self._next, self._next + len(labels))
        self._next = numbers.stop
        self._x.update((n, row.clone()) for n, row in zip(numbers, _floats(x.cpu()), strict=True))
        self._label.update(zip(numbers, labels, strict=True))
        return self._all.subset(list(numbers))

    def bytes(self) -> int:
        return sum(x.nbytes for x in self._x.values())

    def _drop(self) -> None:
        from avalanche.benchmarks.utils.flat_data import FlatData

        used: set[int] = set()
        for value in gc.get_objects():
            subset = issubclass(type(value), FlatData) and value._indices is not None
            if subset and any(part is self for part in value._datasets):
                used.update(map(int, value._indices))
        self._x = {number: self._x[number] for number in sorted(used & set(self._x))}
        for number in set(self._label) - set(self._x):
            del self._label[number]
        self._limit = 2 * len(self._x) + 1000


class _LabelList:
    """Labels by number, as a data set of Avalanche's."""

    def __init__(self, values: Any, length: int) -> None:
        self._values, self._length = values, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, number: int) -> int:
        return 0 if self._values is None else int(self._values[number])


def _dataset(pairs: Any, labels: _LabelList, length: int) -> Any:
    """A data set of Avalanche's; the task label of every sample is 0."""
    from avalanche.benchmarks.utils.classification_dataset import (
        TaskAwareSupervisedClassificationDataset,
    )
    from avalanche.benchmarks.utils.data_attribute import DataAttribute

    columns = [
        DataAttribute(labels, "targets"),
        DataAttribute(_LabelList(None, length), "targets_task_labels", use_in_getitem=True),
    ]
    return TaskAwareSupervisedClassificationDataset([pairs], data_attributes=columns)


def _with_classes(made: Any, classes: set[int], met: set[int]) -> Any:
    made.classes_in_this_experience = sorted(classes)
    made.previous_classes = sorted(met)
    made.classes_seen_so_far = sorted(met | classes)
    made.task_labels, made.task_label = [0], 0
    return made


# What `bridges.named` asks.


def declared(kind: type) -> dict[str, inspect.Parameter]:
    """The settings of a strategy class, and those of its network and its optimizer."""
    own = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value)
        for name, value in _OWN.items()
    ]
    named = [
        parameter
        for parameter in inspect.signature(kind).parameters.values()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        and parameter.name not in (*_OWN, *_NOT_SETTINGS)
    ]
    return {parameter.name: parameter for parameter in (*own, *named)}


def is_model(value: Any) -> bool:
    import torch
    from avalanche.core import BasePlugin
    from avalanche.training.templates.base import BaseTemplate

    own_network = isinstance(value, torch.nn.Module) and not _is_of(type(value), "torch")
    return own_network or isinstance(value, (BaseTemplate, BasePlugin))


def refuse(model: Any) -> None:
    from avalanche.training.supervised import JointTraining
    from avalanche.training.templates import BaseSGDTemplate

    kind = class_of(model)
    if not issubclass(kind, BaseSGDTemplate):
        raise StreamgaugeError(
            f"{kind.__name__} of Avalanche is not a strategy that trains a classifier: give one of"
            " avalanche.training, such as avalanche:training.supervised.Replay."
        )
    if issubclass(kind, JointTraining):
        raise StreamgaugeError(
            "JointTraining of Avalanche trains once, on the whole stream; it cannot learn online."
        )


def parameters(model: Any) -> dict[str, Any]:
    """What tells two strategies, networks or plugins apart, in plain values and parts."""
    import torch

    if isinstance(model, torch.nn.Module):
        return {"layers": str(model), "weights": _digest(model)}
    plain = {
        name: value
        for name, value in vars(model).items()
        if isinstance(value, (bool, int, float, str)) and not name.startswith("_")
    }
    if not hasattr(model, "optimizer"):
        return plain
    own = is_model(model.model)
    options = {n: v for n, v in model.optimizer.defaults.items() if v}
    no_settings = (Recorder, type(model.evaluator), type(model.clock))
    return {
        **{name: plain[name] for name in sorted(plain) if name != "is_training"},
        "optimizer": f"{type(model.optimizer).__name__} {options}",
        "criterion": str(model._criterion),
        **({"model": model.model} if own else parameters(model.model)),
        "plugins": [part for part in model.plugins if not isinstance(part, no_settings)],
    }


def _digest(network: torch.nn.Module) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for name, value in network.state_dict().items():
        digest.update(name.encode() + as_array(value).tobytes())
    return digest.hexdigest()


def copy(model: Any, settings: Mapping[str, Any]) -> Any:
    """A copy without evaluator and recorders: our log takes their part."""
    if settings:
        raise StreamgaugeError(
            f"A strategy that was made in Python has its settings: '{next(iter(settings))}' cannot"
            " be changed here; make the strategy with it."
        )
    if model.clock.train_iterations:
        raise StreamgaugeError(
            "This strategy has been trained already; a run begins with an untrained one."
        )
    made = copies.deepcopy(model, {id(model.evaluator): _no_evaluator()})
    made.plugins = [part for part in made.plugins if not isinstance(part, Recorder)]
    return made


def _no_evaluator() -> Any:
    from avalanche.training.plugins import EvaluationPlugin

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns that it has no loggers
        return EvaluationPlugin()


def title(model: Any) -> str:
    return type(model).__name__


def _is_of(kind: type, package: str) -> bool:
    return kind.__module__.partition(".")[0] == package


# Avalanche's loop, recorded.


class Recorder:
    """A plugin that records the answers of a strategy to every training experience.

        strategy = Replay(..., plugins=[Recorder("runs/mine", stream="clicks", classes=10)])

    An experience is answered in evaluation mode before the strategy adapts its network to the
    classes of the experience, and before replayed samples are mixed in. `classes` is needed where
    the network grows with the classes. `strategy.eval` is recorded too: experience i as task i.
    Other arguments are those of `sg.Recorder`.
    """

    supports_distributed = False

    def __init__(self, path: str | Path, *, stream: str, learner: str | None = None, **facts: Any):
        self.hook = Hook(path, stream=stream, learner=learner, **facts)
        self._answered: int | None = None

    def before_train_dataset_adaptation(self, strategy: Any, **options: Any) -> None:
        self._answer(strategy)

    def before_training_exp(self, strategy: Any, **options: Any) -> None:
        if self._answered != id(strategy.experience):  # a template without dataset adaptation
            self._answer(strategy)

    def after_training_exp(self, strategy: Any, **options: Any) -> None:
        self._answered = None
        self.hook.trained()

    def before_eval_exp(self, strategy: Any, **options: Any) -> None:
        self.hook.begin_evaluation()

    def after_eval_iteration(self, strategy: Any, **options: Any) -> None:
        self.hook.count(strategy.mb_output.argmax(1), strategy.mb_y)

    def after_eval_exp(self, strategy: Any, **options: Any) -> None:
        self._default(strategy)
        self.hook.evaluated(int(strategy.experience.current_experience))

    def close(self) -> None:
        """Commit all rows. Rows of a loop that ends without it are read all the same."""
        self.hook.close()

    def _default(self, strategy: Any) -> None:
        name = type(strategy).__name__
        self.hook.default(learner=name, library=library_version(DISTRIBUTION))

    def _answer(self, strategy: Any) -> None:
        from torch.utils.data import DataLoader

        self._default(strategy)
        self._answered = id(strategy.experience)
        data = strategy.experience.dataset.eval()
        collate = getattr(data, "collate_fn", None)
        for batch in DataLoader(data, batch_size=strategy.eval_mb_size, collate_fn=collate):
            self.hook.answer(answers(strategy, batch[0]), batch[1])


# Our streams for Avalanche.


def benchmark(stream: Stream, *, boundaries: bool = False) -> Any:
    """A stream as an Avalanche benchmark: `train_stream` has one `OnlineCLExperience` per step, and
    each held-out split is a stream of one experience per task.

    With `boundaries` strategies are told where a task begins and ends, and its classes from its
    first step on. Without, only loggers are told. All task labels are 0."""
    load(PACKAGE, "An Avalanche benchmark")
    from avalanche.benchmarks.scenarios.generic_scenario import CLScenario, EagerCLStream

    source = stream.source
    data = _dataset(_Addressed(source), _LabelList(source.label, len(source)), len(source))
    streams = [_steps(stream, data, boundaries)]
    for name, split in stream.splits.items():
        parts = _parts(split, stream.tasks)
        streams.append(EagerCLStream(name, [_whole(stream, data, index) for index in parts]))
    return CLScenario(streams)


class _Addressed:
    """(input, label) of a source by address, read when they are used."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, address: int) -> tuple[Tensor, int]:
        import torch

        index = np.array([address])
        x = torch.from_numpy(np.asarray(self._source.read(index)))
        return _floats(x)[0], int(self._source.label[address])


def _parts(split: Split, tasks: int) -> list[Any]:
    if split.task is None:
        return [split.index]
    return [split.index[split.task == task] for task in range(max(tasks, 1))]


def _whole(stream: Stream, data: Any, index: Any) -> Any:
    """An experience of many samples."""
    from avalanche.benchmarks.scenarios.dataset_scenario import DatasetExperience

    made = DatasetExperience(dataset=data.subset(index.tolist()))
    return _with_classes(made, set(stream.source.label[index].tolist()), set())


def _steps(stream: Stream, data: Any, boundaries: bool) -> Any:
    """The steps of a stream as experiences, which are made when they are read."""
    from avalanche.benchmarks.scenarios.generic_scenario import SequenceCLStream

    task = np.zeros(len(stream), int) if stream.task is None else np.asarray(stream.task)
    edges = np.append(np.flatnonzero(np.diff(task, prepend=-1)), len(task))
    classes, first_met = np.unique(stream.source.label[stream.order], return_index=True)

    @cache
    def origin(number: int) -> Any:
        begin, end = stream.starts[edges[number]], stream.starts[edges[number + 1]]
        made = _whole(stream, data, stream.order[begin:end])
        made.current_experience = number
        return made

    class Steps(SequenceCLStream):  # type: ignore[misc]
        def _full_length(self) -> int:
            return len(stream)

        def _make_experience(self, step: int) -> Any:
            number = int(np.searchsorted(edges, step, side="right")) - 1
            index = stream.index(step)
            return experience(
                data.subset(index.tolist()),
                stream.source.label[index].tolist(),
                set(classes[first_met < stream.starts[step]].tolist()),
                origin_experience=origin(number),
                is_first_subexp=step == edges[number],
                is_last_subexp=step == edges[number + 1] - 1,
                sub_stream_length=int(edges[number + 1] - edges[number]),
                access_task_boundaries=boundaries,
            )

    return Steps("train", None, set_stream_info=True)
