"""A model of another library as a learner: settings by their own names, and states as pickles.

A pickle can execute any code when it is read. So `load_state_dict` reads only what this process
wrote itself, or anything within `trust_pickles()`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from importlib import import_module
from importlib.metadata import version
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError, first_line, packages_for

if TYPE_CHECKING:
    import torch

    from streamgauge.learners.base import Batch
    from streamgauge.streams import Gate, Spec

T = TypeVar("T")
Floats = NDArray[np.float32]
_written: set[bytes] = set()  # digests of the pickles of this process
_trusted: ContextVar[bool] = ContextVar("trusted", default=False)


def load(package: str, purpose: str) -> ModuleType:
    """Import a library, or say in one sentence how to install it."""
    with packages_for(purpose):
        try:
            return import_module(package)
        except RuntimeError as error:  # CapyMOA without Java
            raise StreamgaugeError(f"{package} cannot be imported: {error}") from error


def library_version(distribution: str) -> str:
    """
    >>> library_version("numpy").startswith("numpy ")
    True
    """
    return f"{distribution} {version(distribution)}"


def class_of(model: Any) -> type:
    """The class of a model that is given as an object or as a class."""
    return model if isinstance(model, type) else type(model)


class ForeignLearner:
    """Base of the learners around models of other libraries.

    `bridges.named` makes one subclass per model class, or per model object, and sets the class
    attributes below. A bridge overrides `new_model`, `predict` and `learn`.
    """

    unbounded = True  # nobody can know of a model of another library
    model_type: ClassVar[type]
    template: ClassVar[Any] = None  # an untrained model that each run copies; None: made by class
    library: ClassVar[str] = ""  # with its version, as tables show it
    Config: ClassVar[type]  # one field per setting of the model
    required: ClassVar[frozenset[str]] = frozenset()  # settings without a default
    code: ClassVar[str] = ""  # what counts of the model in a run's identity, besides settings
    unknown: ClassVar[str] = ""  # why that does not cover all of it

    def __init__(
        self, spec: Spec, source: Gate, seed: int, device: torch.device, config: Any
    ) -> None:
        self.spec, self.device = spec, device
        self.model: Any = self.new_model(self._settings(config), seed)

    def _settings(self, config: Any) -> dict[str, Any]:
        """The settings that are not the model's defaults, by name; a template has its own."""
        if self.template is not None:
            return {}
        fields = dataclasses.fields(config)
        given = {f.name: getattr(config, f.name) for f in fields}
        missing = [name for name in sorted(self.required) if given[name] is None]
        if missing:
            name = self.model_type.__name__
            raise StreamgaugeError(
                f"{name} needs the setting '{missing[0]}': give --{name}.{missing[0]}, or make the"
                f" model in Python and give it to sg.learner."
            )
        return {f.name: given[f.name] for f in fields if given[f.name] != f.default}

    def new_model(self, settings: Mapping[str, Any], seed: int) -> Any:
        """An untrained model: `model_type(**settings)`, or a copy of `template`."""
        raise NotImplementedError

    def predict(self, x: torch.Tensor) -> Floats | torch.Tensor:
        """Scores [B, C]: logarithms of probabilities where the model has probabilities."""
        raise NotImplementedError

    def learn(self, batch: Batch, predicted: Any) -> dict[str, Any] | None:
        raise NotImplementedError

    # States.

    def state_dict(self) -> dict[str, Any]:
        """The model as a pickle; without one, the reason why the model cannot be pickled."""
        try:
            content = pickle.dumps(self.saved(), protocol=5)
        except Exception as error:  # whatever the pickling of a foreign object raises
            return {"pickle": None, "unsaved": f"{type(error).__name__}: {error}"}
        _written.add(_digest(content))
        return {"pickle": content}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        reason = refusal(state)
        if reason:
            raise StreamgaugeError(f"The state of {type(self).__name__} is not loaded: {reason}.")
        self.restore(pickle.loads(state["pickle"]))

    def saved(self) -> Any:
        """What is pickled."""
        return self.model

    def restore(self, saved: Any) -> None:
        self.model = saved


@contextmanager
def trust_pickles(trust: bool = True) -> Iterator[None]:
    """Within it, states that other processes pickled are loaded."""
    token = _trusted.set(trust)
    try:
        yield
    finally:
        _trusted.reset(token)


def load_own_state(learner: Any, state: dict[str, Any]) -> None:
    """Load a state that was checked before, or that another process of ours made."""
    with trust_pickles():
        learner.load_state_dict(state)


def refusal(state: Mapping[str, Any]) -> str:
    """Why the state of a foreign learner is not loaded; "" where it may be."""
    if state.get("unsaved"):
        return f"the model could not be pickled ({state['unsaved']})"
    if _trusted.get() or _digest(state["pickle"]) in _written:
        return ""
    return (
        "it is a pickle of another process, and reading a pickle can execute any code; give"
        " --trust-pickle (in Python trust_pickle=True) if you trust the folder"
    )


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def explained(method: Callable[..., T]) -> Callable[..., T]:
    """A method of a learner whose errors name the model and its library."""

    @wraps(method)
    def call(self: ForeignLearner, *inputs: Any) -> T:
        try:
            return method(self, *inputs)
        except StreamgaugeError:
            raise
        except Exception as error:
            name, verb = f"{type(self).__name__} of {self.library}", method.__name__
            raise StreamgaugeError(
                f"{name} cannot {verb.replace('_', ' ')}: {first_line(error)}"
            ) from error

    return call


# Scores.


def uniform(count: int, classes: int) -> Floats:
    """The scores of a model that has learnt nothing."""
    return np.zeros((count, classes), np.float32)


def log_scores(probability: NDArray[Any], answer: NDArray[Any] | None = None) -> Floats:
    """Logarithms of probabilities [B, C], so that their softmax is these probabilities again. A row
    without any is uniform. `answer` is what the model itself answers: see `let_win`."""
    with np.errstate(divide="ignore"):
        scores: Floats = np.log(probability).astype(np.float32)
    scores[scores.max(axis=1) == -np.inf] = 0.0
    return scores if answer is None else let_win(scores, answer)


def let_win(scores: Floats, answer: NDArray[Any]) -> Floats:
    """Let the model's own answers have the highest scores. Where an answer ties with other classes,
    or wins although its probability is lower, its score becomes the highest by the smallest step.

    >>> let_win(np.log(np.float32([[0.5, 0.5], [0.9, 0.1]])), np.array([1, 0])).argmax(1).tolist()
    [1, 0]
    """
    rows = np.flatnonzero(scores.argmax(axis=1) != answer)
    if len(rows):
        highest = scores[rows].max(axis=1)
        scores[rows, answer[rows]] = np.nextafter(highest, np.float32(np.inf))
    return scores


def rows_of(x: torch.Tensor) -> NDArray[Any]:
    """Inputs as a table on the host: one row per sample; images are flattened."""
    table: NDArray[Any] = x.numpy() if x.is_cpu else x.cpu().numpy()
    return table if table.ndim == 2 else table.reshape(len(table), -1)
