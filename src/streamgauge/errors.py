"""The exception whose message is written for users."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class StreamgaugeError(Exception):
    """A problem that the user can fix, in one sentence. The command line exits with code 2."""


class Damaged(StreamgaugeError):
    """A file is not what was written, or is missing."""


class Busy(StreamgaugeError):
    """Another process has the lock of a folder."""


class MissingPackage(StreamgaugeError, ModuleNotFoundError):
    """An optional package is not installed; tools that expect an ImportError get one."""


# Module of an optional package: the name of the package, and what `pip install` is given.
PACKAGES = {
    "torch": ("torch", "streamgauge[torch]"),
    "PIL": ("Pillow", "streamgauge[images]"),
    "s2geometry": ("s2geometry", "streamgauge[geo]"),
    "h5py": ("h5py", "streamgauge[hdf5]"),
    "optuna": ("Optuna", "streamgauge[tune]"),
    "ray": ("Ray", "streamgauge[ray]"),
    "fsspec": ("fsspec", "streamgauge[ray]"),
    "pynvml": ("nvidia-ml-py", "streamgauge[energy]"),
    "safetensors": ("safetensors", "streamgauge[weights]"),
    "faiss": ("faiss", "streamgauge[knn]"),
    "datasets": ("datasets", "streamgauge[hub]"),
    "huggingface_hub": ("huggingface_hub", "streamgauge[hub]"),
    "river": ("river", "streamgauge[river]"),
    "sklearn": ("scikit-learn", "streamgauge[sklearn]"),
    "tensorboard": ("TensorBoard", "streamgauge[tensorboard]"),
    "mlflow": ("MLflow", "streamgauge[mlflow]"),
    "sqlalchemy": ("SQLAlchemy", "streamgauge[mlflow]"),
    "alembic": ("Alembic", "streamgauge[mlflow]"),
    "wandb": ("wandb", "streamgauge[wandb]"),
    "starlette": ("Starlette", "streamgauge[view]"),
    "uvicorn": ("Uvicorn", "streamgauge[view]"),
    "pandas": ("pandas", "pandas"),
    "polars": ("polars", "polars"),
    "duckdb": ("DuckDB", "duckdb"),
    "avalanche": ("Avalanche", "avalanche-lib"),
    "capymoa": ("CapyMOA", "capymoa"),
    "lightning": ("Lightning", "lightning"),
}


@contextmanager
def packages_for(purpose: str) -> Iterator[None]:
    """A block that imports optional packages; if one is missing, the sentence says how to get it.

    >>> with packages_for("Reading maps"):
    ...     raise ModuleNotFoundError(name="PIL")
    Traceback (most recent call last):
    streamgauge.errors.MissingPackage: Reading maps needs Pillow: pip install 'streamgauge[images]'.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in PACKAGES:
            raise
        package, install = PACKAGES[module]
        raise MissingPackage(f"{purpose} needs {package}: pip install '{install}'.") from None


class RunsFailed(StreamgaugeError):
    """Several runs were made, and some failed. `names` are the names of their folders;
    `exit_code` is 3 where code failed, and not an input."""

    def __init__(self, sentence: str, names: Sequence[str], exit_code: int) -> None:
        super().__init__(sentence)
        self.names, self.exit_code = list(names), exit_code


NAMED = 3  # runs that failed alike and are named


class Failures:
    """Collects the errors of several runs, so that one does not keep the others from running; at
    the end of the block they are raised as one.

    >>> with Failures() as failures:
    ...     for name in ("er", "ncm"):
    ...         with failures.of(name):
    ...             raise StreamgaugeError("It failed.")
    Traceback (most recent call last):
    streamgauge.errors.RunsFailed: er, ncm: It failed.
    """

    def __init__(self) -> None:
        self._failed: list[tuple[str, Exception]] = []
        self._names: set[str] = set()  # of all blocks

    def __enter__(self) -> Failures:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None and self._failed:
            if len(self._names) == len(self._failed) == 1:
                raise self._failed[0][1]
            # Sentences that differ only in the name of the run's folder are one.
            alike: dict[str, tuple[str, list[str]]] = {}
            for name, error in self._failed:
                sentence = sentence_of(error)
                key = sentence.replace(name, "") if name else sentence
                alike.setdefault(key, (sentence, []))[1].extend([name] if name else [])
            raise RunsFailed(
                " ".join(
                    f"{_listed(names)}: {sentence}" if names else sentence
                    for sentence, names in alike.values()
                ),
                [name for name, _ in self._failed if name],
                max(_exit_code(error) for _, error in self._failed),
            )

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """A block whose error is kept for later; `name` begins its sentence if there are others.
        A run may have many blocks, such as one per step; a name may be empty."""
        self._names.add(name)
        try:
            yield
        except Busy:  # it may be tried again
            self._names.discard(name)
            raise
        except Exception as error:
            _free_variables(error)
            self._failed.append((name, error))


def _listed(names: Sequence[str]) -> str:
    """The names, or where there are many their number and the first.

    >>> _listed(["a", "b", "c", "d"])
    '4 runs, the first a'
    """
    names = list(dict.fromkeys(names))
    return ", ".join(names) if len(names) <= NAMED else f"{len(names)} runs, the first {names[0]}"


def _free_variables(error: BaseException | None) -> None:
    """Of the calls that an error ended: kept with the error, they would keep the network of a run
    that failed, and its memory of a GPU, from the runs that go on."""
    known = set[int]()
    waiting = [error]
    while waiting:
        error = waiting.pop()
        if error is not None and id(error) not in known:
            known.add(id(error))
            traceback.clear_frames(error.__traceback__)
            waiting += [error.__cause__, error.__context__]


def _exit_code(error: Exception) -> int:
    return getattr(error, "exit_code", 2) if isinstance(error, StreamgaugeError) else 3


def sentence_of(error: Exception) -> str:
    """A sentence for any error: that of ours, or the type, the message and the line of a user's
    code.

    >>> sentence_of(ValueError("no"))
    'ValueError: no.'
    """
    if isinstance(error, StreamgaugeError):
        return str(error)
    line = users_line(error)
    at = "" if line is None else f"{line.filename}, line {line.lineno}, in {line.name}: "
    return f"{at}{type(error).__name__}: {first_line(error).rstrip('.')}."


class CodeEnded(StreamgaugeError):
    """A user's code that a run calls ended the program."""

    exit_code = 3


@contextmanager
def explain_exit() -> Iterator[None]:
    """A block that calls a user's learner: `sys.exit()` there is an error with file and line, not
    the end of the program without a word. A signal handler may end the program."""
    try:
        yield
    except SystemExit as stop:
        line = users_line(stop)
        if line is None or _is_of_handler(stop):
            raise
        code = "" if stop.code is None else f": {stop.code}"
        raise CodeEnded(
            f"{line.filename}, line {line.lineno}, in {line.name}: SystemExit{code}. Code that a"
            " run calls must not end the program: raise an error there."
        ) from stop


def _is_of_handler(stop: SystemExit) -> bool:
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    codes = {getattr(handler, "__code__", None) for handler in handlers}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(stop.__traceback__))


def users_line(error: BaseException) -> traceback.FrameSummary | None:
    """The line of a user's code in which an error was raised, below a call from this package; None
    if there is none."""
    package = str(Path(__file__).parent)
    frames = traceback.extract_tb(error.__traceback__)
    ours = [at for at, frame in enumerate(frames) if frame.filename.startswith(package)]
    installed = (package, sys.prefix, sys.base_prefix, "<")
    called = [f for f in frames[ours[0] :] if not f.filename.startswith(installed)] if ours else []
    return called[-1] if called else None


def first_line(error: Exception) -> str:
    """The first line of an error's message; the name of its type if there is no message."""
    return (str(error).splitlines() or [type(error).__name__])[0]


_FLAGS = {"force", "sort", "profile", "deterministic", "trust_pickle"}
_VALUES = "none|online|cpu|cuda|after|task|first|percent|share|COLUMN"
_OPTION = re.compile(
    r"(?<![\w./-])--(?!stream |learner )"  # not within the name of a file
    rf"(?:[A-Za-z_]+\.)?([a-z][a-z_-]*)(?: ({_VALUES}))?\b"
)
# Names that other libraries have for our settings.
ALSO_CALLED = {
    "backbone": "model",
    "batch_size": "batch",
    "buffer": "memory",
    "buffer_size": "memory",
    "epochs": "passes",
    "eta": "lr",
    "learning_rate": "lr",
    "memory_size": "memory",
    "network": "model",
    "step_size": "lr",
}


_in_python = ContextVar("in_python", default=False)  # whether a function of Python is called


def with_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """A function of the Python interface, or `__init__` of a class: its errors and what it
    announces name keywords, not options, and arguments that it cannot take are a sentence."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> R:
        try:
            signature.bind(*args, **named)
        except TypeError as error:
            name = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
            raise StreamgaugeError(_wrong_call(name, signature, error)) from None
        before = _in_python.set(True)
        try:
            return function(*args, **named)
        except StreamgaugeError as error:
            error.args = (as_keywords(str(error)),)
            raise
        finally:
            _in_python.reset(before)

    return call


def in_python() -> bool:
    """Whether a function of the Python interface was called, not a command."""
    return _in_python.get()


def for_caller(sentence: str) -> str:
    """A sentence with keywords where a function of the Python interface was called."""
    return as_keywords(sentence) if _in_python.get() else sentence


def _wrong_call(name: str, signature: inspect.Signature, error: TypeError) -> str:
    """What to write where the arguments of a call do not fit a function or a class."""
    parameters = [p for p in signature.parameters.values() if p.name != "self"]
    positional = [
        parameter.name
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    positional += [
        f"{parameter.name}=..."
        for parameter in parameters
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
    ]
    arrays = " Arrays become a stream by sg.stream(x, y)." if "stream" in positional else ""
    return f"{first_line(error).capitalize()}: write sg.{name}({', '.join(positional)}).{arrays}"


def as_keywords(sentence: str) -> str:
    """A sentence with options of the command line as keywords of Python.

    >>> as_keywords("name it with --label-time, pass --sort, or keep --stream.time none")
    "name it with label_time, pass sort=True, or keep time='none'"
    """

    def keyword(option: re.Match[str]) -> str:
        name = option[1].replace("-", "_")
        value = "=True" if name in _FLAGS else f"={option[2]!r}" if option[2] else ""
        return f"{name}{value}"

    return _OPTION.sub(keyword, sentence)


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint: the closest of the known names, or a list of all.

    >>> nearest("lerning_rate", ["learning_rate", "memory"])
    "did you mean 'learning_rate'?"
    """
    known = sorted(known)
    owner, _, word = name.rpartition(".")
    # Of er.lrr only what belongs to er counts, and only by what comes after the dot.
    words = {k.rpartition(".")[2]: k for k in known if k.rpartition(".")[0] == owner}
    also = ALSO_CALLED.get(word)
    if also in words:
        return f"did you mean '{words[also]}'?"
    wanted, among = (word, list(words)) if words else (name, known)
    small = {other.lower(): other for other in among}  # ER is er
    close = difflib.get_close_matches(wanted.lower(), small, 1, 0.5)
    if close:
        closest = small[close[0]]
        return f"did you mean '{words.get(closest, closest)}'?"
    return "there is " + (", ".join(known) if known else "no other") + "."
