"""River: its classifiers as learners, its loops recorded, and our streams as (dict, label)."""

from __future__ import annotations

import inspect
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, pairwise, repeat
from math import inf, log
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamgauge.bridges.foreign import (
    Floats,
    ForeignLearner,
    class_of,
    explained,
    library_version,
    log_scores,
    rows_of,
    uniform,
)
from streamgauge.bridges.named import made
from streamgauge.errors import StreamgaugeError, packages_for
from streamgauge.record.recorder import Recorder
from streamgauge.tables.columns import announce

if TYPE_CHECKING:
    import torch

    from streamgauge.learners.base import Batch
    from streamgauge.streams import Gate, Spec, Stream

PACKAGE, DISTRIBUTION = "river", "river"


class Learner(ForeignLearner):
    """A river classifier. One sample per call, or a batch per call where the model can."""

    def __init__(
        self, spec: Spec, source: Gate, seed: int, device: torch.device, config: Any
    ) -> None:
        super().__init__(spec, source, seed, device, config)
        self._names = feature_names(int(np.prod(spec.input_shape)))
        self._columns: Any = None  # the names as pandas takes them fastest
        self._label: Callable[[int], Any] = int
        self._batched: bool | None = None  # None: nothing is trained yet
        self._newest: tuple[Any, Any] = None, None  # a batch that was answered, as river takes it
        if not self.model._multiclass:
            _refuse_classes(self.model, spec.classes)
            self._label = bool

    def new_model(self, settings: Mapping[str, Any], seed: int) -> Any:
        model = self.template
        if model is None:
            model = self.model_type(**{name: made(value) for name, value in settings.items()})
        own = model._get_params()
        return model.clone(own) if _seed(own, seed % 2**32) else model.clone()

    @explained
    def predict(self, x: torch.Tensor) -> Floats:
        inputs = self._inputs(rows_of(x))
        self._newest = x, inputs
        if self._batched:
            return self._predict_many(inputs)
        answers = _OneByOneAnswers(self.model, self.spec.classes)
        for row in inputs:
            answers.add(row)
        return answers.scores()

    @explained
    def learn(self, batch: Batch, predicted: Any) -> None:
        labels, (asked, inputs) = batch.labels(), self._newest
        self._newest = None, None
        if self._batched is None:  # one way for the whole run: labels may be text in a data frame
            self._batched = len(labels) > 1 and _takes_batches(self.model)
            asked = None if self._batched else asked
        if asked is not batch.x:  # as after a delay, or standardised anew
            inputs = self._inputs(rows_of(batch.x))
        if self._batched:
            self._learn_many(inputs, labels)
            return
        learn, label = self.model.learn_one, self._label
        for x, y in zip(inputs, labels.tolist(), strict=True):
            learn(x, label(y))

    @explained
    def answer_and_learn(
        self, x: Any, labels: Any, ends: Any, learnt: Any = None
    ) -> tuple[Floats, float]:
        same, clock, learning = learnt is None or learnt is x, time.perf_counter, 0.0
        if self._batched:
            scores = []
            for begin, end in pairwise([0, *ends.tolist()]):
                inputs = self._inputs(x[begin:end])
                scores.append(self._predict_many(inputs))
                began = clock()
                given = inputs if same else self._inputs(learnt[begin:end])
                self._learn_many(given, labels[begin:end])
                learning += clock() - began
            return np.concatenate(scores), learning
        answers, learn = _OneByOneAnswers(self.model, self.spec.classes), self.model.learn_one
        inputs = self._inputs(x)
        given = inputs if same else self._inputs(learnt)
        asked, pairs = iter(inputs), zip(given, map(self._label, labels.tolist()), strict=True)
        for size in np.diff(ends, prepend=0).tolist():
            for row in islice(asked, size):
                answers.add(row)
            began = clock()
            for row, y in islice(pairs, size):
                learn(row, y)
            learning += clock() - began
        return answers.scores(), learning

    def _inputs(self, rows: Any) -> Any:
        """Inputs as river takes them: a data frame, or a dictionary per sample."""
        rows = rows.reshape(len(rows), len(self._names))
        if self._batched:
            self._columns = _pandas().Index(self._names) if self._columns is None else self._columns
            return _pandas().DataFrame(rows, columns=self._columns)
        return list(map(dict, map(zip, repeat(self._names), rows.tolist())))

    def _learn_many(self, frame: Any, labels: Any) -> None:
        self.model.learn_many(frame, _pandas().Series(labels.astype(self._label)))

    def saved(self) -> Any:
        return self.model, self._batched

    def restore(self, saved: Any) -> None:
        self.model, self._batched = saved

    def _predict_many(self, frame: Any) -> Floats:
        table = self.model.predict_proba_many(frame)
        names = list(map(str, table.columns))
        if not names:
            return uniform(len(frame), self.spec.classes)
        values = table.to_numpy(float)
        label = np.array([int(name) if name.isdigit() else int(name == "True") for name in names])
        probability = np.zeros((len(frame), self.spec.classes))
        probability[:, label] = values
        return log_scores(probability, label[values.argmax(axis=1)])


class _OneByOneAnswers:
    """What a model answers to one input after the other, as scores. It is copied at once: a model
    may change the dictionary that it gave. As in river, a model without probabilities is certain of
    its answer, and one without an answer of its own takes the most probable class, of equal ones
    the first of its dictionary."""

    def __init__(self, model: Any, classes: int) -> None:
        from river import base

        own, default = type(_last(model)), base.Classifier
        certain = own.predict_proba_one is default.predict_proba_one
        derived = not certain and own.predict_one is default.predict_one
        self._ask = None if certain else model.predict_proba_one
        self._answer = None if derived else model.predict_one
        self._classes, self._absent = range(classes), repeat(0.0)
        self._probabilities: list[float] = []  # of all classes, one sample after the other
        self._named: list[list[Any]] = []  # by sample, the classes of the dictionary in its order
        self._answers: list[Any] = []  # by sample, where the model has answers of its own

    def add(self, x: dict[str, Any]) -> None:
        given = {} if self._ask is None else self._ask(x)
        if self._answer is not None:
            answer = self._answer(x)
            self._answers.append(answer)
            if self._ask is None and answer is not None:
                given = {answer: 1.0}
        self._probabilities += map(given.get, self._classes, self._absent)
        self._named.append(list(given))

    def scores(self) -> Floats:
        table = np.array(self._probabilities).reshape(len(self._named), len(self._classes))
        np.maximum(table, 0.0, out=table)
        if self._answers:
            table[[answer is None for answer in self._answers]] = 0.0  # it abstains
            return log_scores(table, np.array([int(answer or 0) for answer in self._answers]))
        answers = table.argmax(axis=1)
        last = len(self._classes) - 1 - table[:, ::-1].argmax(axis=1)
        for row in np.flatnonzero(answers != last).tolist():  # classes tie
            tied = set(np.flatnonzero(table[row] == table[row].max()).tolist())
            answers[row] = int(next((c for c in self._named[row] if c in tied), 0))
        return log_scores(table, answers)


def feature_names(width: int) -> list[str]:
    """The keys of an input: x0, x1, ..."""
    return [f"x{column}" for column in range(width)]


def _last(model: Any) -> Any:
    """The classifier at the end of a pipeline."""
    steps = getattr(model, "steps", None)
    return _last(list(steps.values())[-1]) if isinstance(steps, dict) else model


def _takes_batches(model: Any) -> bool:
    """Whether every part of a model can learn from a data frame of dense columns, and does not take
    longer that way. GaussianNB does, and gives the same answers one by one."""
    from river import base, naive_bayes

    steps = getattr(model, "steps", None)
    if isinstance(steps, dict):
        *transformers, last = steps.values()
        return _takes_batches(last) and all(map(_transforms_batches, transformers))
    sparse = (naive_bayes.MultinomialNB, naive_bayes.ComplementNB)
    one_by_one = (*sparse, naive_bayes.GaussianNB)
    return isinstance(model, base.MiniBatchClassifier) and not isinstance(model, one_by_one)


def _transforms_batches(transformer: Any) -> bool:
    from river import base

    parts = getattr(transformer, "transformers", None)
    if isinstance(parts, dict):
        return all(map(_transforms_batches, parts.values()))
    return isinstance(transformer, base.MiniBatchTransformer)


def _pandas() -> Any:
    with packages_for("Batches for a river model"):
        import pandas
    return pandas


def _seed(settings: dict[str, Any], seed: int) -> bool:
    """Set every seed that was not given, also of parts; returns whether there is one."""
    unset = "seed" in settings and settings["seed"] is None
    if unset:
        settings["seed"] = seed
    for value in settings.values():
        part = value[1] if isinstance(value, tuple) and len(value) == 2 else value
        if isinstance(part, dict):
            unset = _seed(part, seed) or unset
    return unset


def _refuse_classes(model: Any, classes: int) -> None:
    if classes > 2:
        name = type(_last(model)).__name__
        raise StreamgaugeError(
            f"{name} of river tells two classes apart, and this stream has {classes}: wrap it in"
            f" Python, sg.learner(river.multiclass.OneVsRestClassifier({name}()))."
        )


# What `bridges.named` asks.


def is_model(value: Any) -> bool:
    from river import base

    return isinstance(value, base.Base)


def refuse(model: Any) -> None:
    from river import active, base

    kind = class_of(_last(model))
    if issubclass(kind, active.base.ActiveLearningClassifier):
        raise StreamgaugeError(
            f"{kind.__name__} of river chooses which labels it asks for, and in our loop all labels"
            " come: give the classifier inside it."
        )
    if not issubclass(kind, base.Classifier):
        raise StreamgaugeError(
            f"{kind.__name__} of river is not a classifier: streamgauge measures classifiers, which"
            " have learn_one(x, y) and predict_one or predict_proba_one."
        )


def parameters(model: Any) -> dict[str, Any]:
    """The settings of a model, or the parts of a pipeline, by name."""
    parts = getattr(model, "steps", None) or getattr(model, "transformers", None)
    if isinstance(parts, dict):
        return dict(parts)
    names = inspect.signature(type(model)).parameters
    return {name: getattr(model, name) for name in names if hasattr(model, name)}


def copy(model: Any, settings: Mapping[str, Any]) -> Any:
    return model.clone(dict(settings))


def title(model: Any) -> str:
    steps = getattr(model, "steps", None)
    return "-".join(map(str, steps)) if isinstance(steps, dict) else type(model).__name__


# Our streams for river.


def iterate(stream: Stream) -> Iterator[tuple[dict[str, float], int]]:
    """(input, label) of every sample in stream order, for `river.evaluate` and loops of your own.

    Inputs are dictionaries x0, x1, ... of the source's values, without the online standardisation
    that our loop applies with `scale="online"`; labels are class numbers."""
    names = feature_names(int(np.prod(stream.spec.input_shape)))
    for step in range(len(stream)):
        index = stream.index(step)
        rows = np.asarray(stream.source.read(index)).reshape(len(index), -1).tolist()
        for row, label in zip(rows, stream.source.label[index].tolist(), strict=True):
            yield dict(zip(names, row, strict=True)), label


# River's own loops, recorded.


def recording(
    model: Any,
    path: str | Path,
    *,
    stream: str,
    learner: str = "",
    classes: Sequence[Any] | int | None = None,
    waiting: int = 1_000_000,
    **options: Any,
) -> Any:
    """A model that answers and learns as the given one, and records every answer and label in a run
    folder (`sg.Recorder`, which `options` go to). Use it in place of the model in any loop of
    river, also in `evaluate.progressive_val_score`; close it, or use it in a `with` block.

    With `classes`, the labels in a fixed order (a number: 0, 1, ...), probabilities are recorded
    too. A model that abstains is not recorded with an answer; the scalar `abstained` counts this.
    Of `predict_one` and `predict_proba_one` the one that is called first is recorded.

    At most `waiting` answers wait for their labels in memory. Of more, the oldest stay without
    labels; the scalar `labels_given_up` counts them."""
    from river import base

    if not isinstance(waiting, int) or waiting < 1:
        raise StreamgaugeError(f"waiting is a number of answers from 1, not {waiting!r}.")

    refuse(model)
    begun = (Path(path) / "run.json").exists()
    recorder = Recorder(
        path,
        stream=stream,
        learner=learner or title(model),
        classes=classes,
        library=library_version(DISTRIBUTION),
        **options,
    )
    labels = range(classes) if isinstance(classes, int | np.integer) else classes
    answers = _LabelJoin(recorder, labels, f"{time.time_ns()}-" if begun else "", waiting)

    class Recording(base.Wrapper, base.Classifier):  # type: ignore[misc, type-arg, unused-ignore]
        """A classifier that records its answers and labels."""

        recorder = answers.recorder

        @property
        def _wrapped_model(self) -> Any:
            return model

        def predict_one(self, x: dict[Any, Any], **more: Any) -> Any:
            answer = model.predict_one(x, **more)
            answers.add("predict_one", x, answer, {})
            return answer

        def predict_proba_one(self, x: dict[Any, Any], **more: Any) -> Any:
            probability = model.predict_proba_one(x, **more)
            answer = max(probability, key=probability.get) if probability else None
            answers.add("predict_proba_one", x, answer, probability)
            return probability

        def learn_one(self, x: dict[Any, Any], y: Any, **more: Any) -> None:
            answers.label(x, y)
            began = time.perf_counter()
            model.learn_one(x, y, **more)
            recorder.trained(seconds=time.perf_counter() - began)

        def close(self) -> None:
            recorder.close()

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *error: object) -> None:
            recorder.close()

    return Recording()


class _LabelJoin:
    """Joins the labels of `learn_one` to the answers given before, by the content of the inputs:
    river copies inputs while their labels are delayed. At most `most` answers wait."""

    def __init__(
        self, recorder: Recorder, classes: Sequence[Any] | None, prefix: str, most: int
    ) -> None:
        self.recorder = recorder
        self._most = most
        self._column = {name: column for column, name in enumerate(classes or ())}
        self._prefix, self._count = prefix, 0
        self._method = ""
        self._waiting: dict[Any, list[int]] = {}  # numbers of answers by input
        # Input and id by number, oldest first; no id where the model abstained.
        self._oldest: OrderedDict[int, tuple[Any, str | None]] = OrderedDict()

    def add(self, method: str, x: Mapping[Any, Any], answer: Any, given: Mapping[Any, Any]) -> None:
        self._method = self._method or method
        if method != self._method:
            return
        name = None if answer is None else f"{self._prefix}{self._count}"
        key = _key(x)
        self._waiting.setdefault(key, []).append(self._count)
        self._oldest[self._count] = key, name
        self._count += 1
        if len(self._oldest) > self._most:
            self._give_up()
        if name is None:
            self.recorder.scalar("abstained", 1.0)
        elif given and self._column:
            self.recorder.predict(name, self._scores(given, answer), kind="logits")
        else:
            self.recorder.predict(name, answer)

    def _scores(self, given: Mapping[Any, float], answer: Any) -> list[float]:
        scores = [-inf] * len(self._column)
        for label, p in given.items():
            if label not in self._column:
                raise StreamgaugeError(f"The model answers {label!r}, which is not in `classes`.")
            scores[self._column[label]] = log(p) if p > 0 else -inf
        highest = max(scores)
        # The first of equal classes is river's answer; a recorder takes the first column.
        scores[self._column[answer]] = 0.0 if highest == -inf else highest + 1e-6
        return scores

    def label(self, x: Mapping[Any, Any], y: Any) -> None:
        key = _key(x)
        if key not in self._waiting:
            return  # trained without being asked
        _, name = self._oldest.pop(self._next_of(key))
        if name is not None:
            self.recorder.label(name, y)

    def _next_of(self, key: Any) -> int:
        """The number of the oldest answer to an input, which waits no longer."""
        numbers = self._waiting[key]
        number = numbers.pop(0)
        if not numbers:
            del self._waiting[key]
        return number

    def _give_up(self) -> None:
        """Wait no longer for the label of the oldest answer."""
        _, (key, _) = self._oldest.popitem(last=False)
        self._next_of(key)
        announce(
            f"{self.recorder.path}: more than {self._most:,} answers wait for their labels. The"
            " oldest stay without labels (scalar labels_given_up); recording(..., waiting=) sets"
            " the number."
        )
        self.recorder.scalar("labels_given_up", 1.0)


def _key(x: Mapping[Any, Any]) -> Any:
    try:
        return hash(frozenset(x.items()))
    except TypeError:  # a value that cannot be hashed
        return repr(sorted(x.items(), key=str))
