"""What to write in place of an object that is not a learner, in one sentence each."""

from __future__ import annotations

from inspect import isroutine, signature
from typing import Any

from streamgauge.errors import StreamgaugeError

METHODS = ("predict", "learn", "state_dict", "load_state_dict")
_CLASS = (
    "a class with __init__(self, spec, source, seed, device), predict, learn, state_dict and"
    " load_state_dict"
)


# What the loop gives to the methods of a learner, after `self`.
_PARAMETERS = {
    "__init__": ("spec", "source", "seed", "device"),
    "predict": ("x",),
    "learn": ("batch", "predicted"),
    "state_dict": (),
    "load_state_dict": ("state",),
}


def refuse_no_learner(what: Any) -> None:
    """Nothing for a class with the four methods of a learner; else an error that says what to
    write."""
    if not isinstance(what, type):
        raise StreamgaugeError(_of_instance(what))
    missing = [method for method in METHODS if not hasattr(what, method)]
    if missing:
        raise StreamgaugeError(_of_class(what, missing))
    for method, parameters in _PARAMETERS.items():
        _refuse_parameters(what, method, parameters)


def _refuse_parameters(kind: type, method: str, given: tuple[str, ...]) -> None:
    """An error if a method cannot be called with what the loop gives it."""
    function = getattr(kind, method)
    if not isroutine(function):
        return
    try:
        known = signature(function)
    except (TypeError, ValueError):  # of a compiled method
        return
    if method == "__init__" and "config" in known.parameters:
        given = (*given, "config")
    bound = isinstance(vars(kind).get(method), staticmethod | classmethod)
    words = given if bound else ("self", *given)
    try:
        known.bind(*words)
    except TypeError:
        settings = " Settings are fields of a parameter `config` (docs/learners.md)."
        raise StreamgaugeError(
            f"{method} of the learner {kind.__name__} is called with ({', '.join(given)}), but its"
            f" parameters are {known}: write def {method}({', '.join(('self', *given))})."
            + settings
            * (method == "__init__")
        ) from None


def _of_instance(what: Any) -> str:
    kind = type(what)
    name = kind.__name__
    if all(hasattr(kind, method) for method in METHODS):
        return f"Give the class, not an instance of it: sg.run(stream, {name})."
    if hasattr(what, "source") and hasattr(what, "order"):
        return "A stream is not a learner: the order is sg.run(stream, learner)."
    if isinstance(what, list | tuple):
        return "Give one learner per run: [sg.run(stream, learner) for learner in learners]."
    if isroutine(what):
        function = getattr(what, "__name__", name)
        return (
            f"The function {function} is not a learner: a learner is {_CLASS} (docs/learners.md)."
        )
    return _of_model(kind) or (
        f"A {name} is not a learner: give a name such as 'er', FILE.py:CLASS, a model of river or"
        f" scikit-learn, or {_CLASS} (docs/learners.md)."
    )


def _of_class(kind: type, missing: list[str]) -> str:
    listed = " and ".join(filter(None, [", ".join(missing[:-1]), missing[-1]]))
    return _of_model(kind) or (
        f"The class {kind.__name__} is not a learner: it has no {listed} (docs/learners.md)."
    )


def _of_model(kind: type) -> str:
    """The sentence for a torch module, or for a model like those of river and scikit-learn that is
    of neither; "" for another class."""
    name = kind.__name__
    if any(base.__module__ == "torch.nn.modules.module" for base in kind.__mro__):
        return (
            f"The torch module {name} is a network, not a learner: write {_CLASS}, where learn"
            " takes the gradient step; docs/learners.md has an example around a module."
        )
    for base, learn, predict in (
        ("river.base.Classifier", "learn_one", "predict_one"),
        ("sklearn.base.ClassifierMixin and BaseEstimator", "partial_fit", "predict"),
        ("sklearn.base.ClassifierMixin and BaseEstimator", "fit", "predict"),
    ):
        if hasattr(kind, learn) and hasattr(kind, predict):
            never = ", which learns once and not from a stream" if learn == "fit" else ""
            return (
                f"{name} is a model with {learn} and {predict}{never}, not a learner: let it extend"
                f" {base}, or write {_CLASS}, where learn calls"
                f" {'partial_fit' if learn == 'fit' else learn} (docs/bridges.md)."
            )
    return ""
