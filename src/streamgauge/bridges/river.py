"""River: its classifiers as learners, its loops recorded, and our streams as (dict, label)."""

from __future__ import annotations

import inspect
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf, log, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamgauge.bridges.foreign import (
    Floats,
    ForeignLearner,
    explained,
    let_win,
    library_version,
    log_scores,
    rows_of,
    uniform,
)
from streamgauge.bridges.named import made
from streamgauge.errors import StreamgaugeError, packages_for
from streamgauge.record.recorder import Recorder

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
        self._label: Callable[[int], Any] = int
        self._batched: bool | None = None  # None: nothing is trained yet
        self._ask = _asking(self.model)
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
        rows = rows_of(x)
        if self._batched:
            return self._predict_many(rows)
        answers = _Answering(self._ask, self.spec.classes)
        for row in self._inputs(rows):
            answers.add(row)
        return answers.scores()

    def _inputs(self, rows: Any) -> Iterator[dict[str, Any]]:
        names = self._names
        return (dict(zip(names, row, strict=True)) for row in rows.tolist())

    @explained
    def learn(self, batch: Batch, predicted: Any) -> None:
        rows, labels = rows_of(batch.x), batch.labels()
        if self._batched is None:  # one way for the whole run: labels may be text in a data frame
            self._batched = len(rows) > 1 and _takes_batches(self.model)
        if self._batched:
            self.model.learn_many(*_frame(self._names, rows, list(map(self._label, labels))))
            return
        learn, label = self.model.learn_one, self._label
        for x, y in zip(self._inputs(rows), labels.tolist(), strict=True):
            learn(x, label(y))

    @explained
    def answer_and_learn(self, x: Any, labels: Any) -> tuple[Floats, float]:
        learn, label, clock, learning = self.model.learn_one, self._label, time.perf_counter, 0.0
        answers = _Answering(self._ask, self.spec.classes)
        for row, y in zip(self._inputs(x.reshape(len(x), -1)), labels.tolist(), strict=True):
            answers.add(row)
            began = clock()
            learn(row, label(y))
            learning += clock() - began
        return answers.scores(), learning

    def saved(self) -> Any:
        return self.model, self._batched

    def restore(self, saved: Any) -> None:
        self.model, self._batched = saved
        self._ask = _asking(self.model)

    def _predict_many(self, rows: Any) -> Floats:
        frame, _ = _frame(self._names, rows, [])
        table = self.model.predict_proba_many(frame)
        columns = {str(name): np.asarray(table[name], float) for name in table}
        if not columns:
            return uniform(len(rows), self.spec.classes)
        probability = np.zeros((len(rows), self.spec.classes))
        for label in range(self.spec.classes):
            name = str(self._label(label))
            if name in columns:
                probability[:, label] = columns[name]
        first = [int(n) if n.isdigit() else int(n == "True") for n in columns]
        answer = np.array(first)[np.array(list(columns.values())).argmax(axis=0)]
        return log_scores(probability, answer)


class _Answering:
    """Asks a model for one input after the other. What it answers is used at once: a model may
    change the dictionary that it gave."""

    def __init__(self, ask: Any, classes: int) -> None:
        self._ask, self._blank = ask, [-inf] * classes
        self._scores: list[list[float]] = []
        self._answers: list[int] = []

    def add(self, x: dict[str, Any]) -> None:
        probability, answer = self._ask(x)
        score = self._blank.copy()
        for label, p in probability.items():
            score[label] = log(p) if p > 0 else -inf if p == p else nan
        if answer is None or max(score) == -inf:
            score = [0.0] * len(score)  # it abstains
        self._scores.append(score)
        self._answers.append(int(answer or 0))

    def scores(self) -> Floats:
        return let_win(np.array(self._scores, np.float32), np.array(self._answers))


def feature_names(width: int) -> list[str]:
    """The keys of an input: x0, x1, ..."""
    return [f"x{column}" for column in range(width)]


def _asking(model: Any) -> Callable[[dict[str, Any]], tuple[Mapping[Any, float], Any]]:
    """A function from an input to the probabilities and the answer; the answer is None where the
    model abstains, as most models do before the first label."""
    from river import base

    last = _last(model)
    probabilities = model.predict_proba_one
    if type(last).predict_proba_one is base.Classifier.predict_proba_one:

        def answers(x: dict[str, Any]) -> tuple[Mapping[Any, float], Any]:
            answer = model.predict_one(x)
            return ({} if answer is None else {answer: 1.0}), answer

        return answers
    if type(last).predict_one is not base.Classifier.predict_one:
        return lambda x: (probabilities(x), model.predict_one(x))

    def both(x: dict[str, Any]) -> tuple[Mapping[Any, float], Any]:
        p = probabilities(x)
        return p, max(p, key=p.get) if p else None  # as river's predict_one

    return both


def _last(model: Any) -> Any:
    """The classifier at the end of a pipeline."""
    steps = getattr(model, "steps", None)
    return _last(list(steps.values())[-1]) if isinstance(steps, dict) else model


def _takes_batches(model: Any) -> bool:
    """Whether every part of a model can learn from a data frame of dense columns."""
    from river import base, naive_bayes

    steps = getattr(model, "steps", None)
    if isinstance(steps, dict):
        *transformers, last = steps.values()
        return _takes_batches(last) and all(map(_transforms_batches, transformers))
    counts = (naive_bayes.MultinomialNB, naive_bayes.ComplementNB)  # sparse columns only
    return isinstance(model, base.MiniBatchClassifier) and not isinstance(model, counts)


def _transforms_batches(transformer: Any) -> bool:
    from river import base

    parts = getattr(transformer, "transformers", None)
    if isinstance(parts, dict):
        return all(map(_transforms_batches, parts.values()))
    return isinstance(transformer, base.MiniBatchTransformer)


def _frame(names: list[str], rows: Any, labels: list[Any]) -> tuple[Any, Any]:
    """A batch as river takes it."""
    with packages_for("Batches for a river model"):
        import pandas
    return pandas.DataFrame(rows, columns=names), pandas.Series(labels)


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

    kind = model if isinstance(model, type) else type(_last(model))
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
    classes: Sequence[Any] | None = None,
    **options: Any,
) -> Any:
    """A model that answers and learns as the given one, and records every answer and label in a run
    folder (`sg.Recorder`, which `options` go to). Use it in place of the model in any loop of
    river, also in `evaluate.progressive_val_score`; close it, or use it in a `with` block.

    With `classes`, the labels in a fixed order, probabilities are recorded too. A model that
    abstains is not recorded with an answer; the scalar `abstained` counts this. Of `predict_one`
    and `predict_proba_one` the one that is called first is recorded."""
    from river import base

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
    answers = _Answers(recorder, classes, f"{time.time_ns()}-" if begun else "")

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


class _Answers:
    """Joins the labels of `learn_one` to the answers given before, by the content of the inputs:
    river copies inputs while their labels are delayed."""

    def __init__(self, recorder: Recorder, classes: Sequence[Any] | None, prefix: str) -> None:
        self.recorder = recorder
        self._column = {name: column for column, name in enumerate(classes or ())}
        self._prefix, self._count = prefix, 0
        self._method = ""
        self._waiting: dict[Any, deque[str | None]] = {}  # ids; None where the model abstained

    def add(self, method: str, x: Mapping[Any, Any], answer: Any, given: Mapping[Any, Any]) -> None:
        self._method = self._method or method
        if method != self._method:
            return
        name = None if answer is None else f"{self._prefix}{self._count}"
        self._waiting.setdefault(_key(x), deque()).append(name)
        self._count += 1
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
        waiting = self._waiting.get(_key(x))
        if not waiting:
            return  # trained without being asked
        name = waiting.popleft()
        if not waiting:
            del self._waiting[_key(x)]
        if name is not None:
            self.recorder.label(name, y)


def _key(x: Mapping[Any, Any]) -> Any:
    try:
        return hash(frozenset(x.items()))
    except TypeError:  # a value that cannot be hashed
        return repr(sorted(x.items(), key=str))
