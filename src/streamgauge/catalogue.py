"""Streams and learners by name: built in, or from a user's file.

There is no registry: a name is that of a file in a folder of `streams/` or `learners/`, or of a
table in `splits.toml`; a user's learner is `FILE.py:Class`, a user's stream `FILE.py` or the path
of the data; a learner of another library is `LIBRARY:MODULE.CLASS` (`bridges/named.py`).
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from streamgauge.bridges import named
from streamgauge.bridges.foreign import ForeignLearner
from streamgauge.errors import StreamgaugeError, nearest
from streamgauge.learners import behaviour, user_code
from streamgauge.learners.adapter import class_sees_input, declared_needs, required_settings
from streamgauge.learners.mistakes import refuse_no_learner
from streamgauge.record.renamed import current_settings, given_settings
from streamgauge.settings import as_plain, configure, setting_types
from streamgauge.streams import Stream
from streamgauge.streams.named.splits import split_module, splits
from streamgauge.tables.columns import announce
from streamgauge.tables.read import table_format

if TYPE_CHECKING:
    import torch

    from streamgauge.learners.base import Learner
    from streamgauge.streams import Gate, Spec

_ROOMS = Path(__file__).parent
# Every file in these folders is a learner, or a stream if it has a function `build`.
_FOLDERS = {
    "streams": ("named", "own", "pack"),
    "learners": ("replay", "adaptive", "gradient_free"),
}


@dataclass(frozen=True)
class Recipe:
    """How to make a learner: its class, its settings, and the name it was requested by."""

    name: str
    where: str  # a built-in name or FILE.py:Class, for resuming a run
    kind: type
    config: Any = None
    code: str = ""  # hash of its behaviour or of a user's file: see `learners/behaviour.py`
    unknown: str = ""  # why that hash does not cover all of a user's code; "": it does

    def build(
        self,
        spec: Spec,
        source: Gate,
        seed: int,
        device: torch.device,
        share: Callable[[Learner], Learner] | None = None,
    ) -> Learner:
        """A new learner, on standardised inputs where the source asks for it. `share` distributes
        its work over processes."""
        concrete = self.for_inputs(spec.input_shape).config
        config = () if concrete is None else (concrete,)

        def make(gate: Gate) -> Learner:
            learner: Learner = self.kind(spec, gate, seed, device, *config)
            return learner if share is None else share(learner)

        from streamgauge.learners.scaled import build_scaled  # imports torch

        return build_scaled(make, source)

    def for_inputs(self, shape: Sequence[int]) -> Recipe:
        """The same learner with the network that `model` auto stands for."""
        if getattr(self.config, "model", "") != "auto":
            return self
        from streamgauge.models.build import model_name  # imports torch

        config = dataclasses.replace(self.config, model=model_name("auto", shape))
        code, _ = behaviour.code_of(self.kind, as_plain(config))
        return dataclasses.replace(self, config=config, code=code)

    @property
    def built_in(self) -> bool:
        return self.kind.__module__.startswith("streamgauge.")

    @property
    def library(self) -> str:
        """The library of the model with its version; "" for learners of ours and of the user's."""
        return self.kind.library if issubclass(self.kind, ForeignLearner) else ""

    @property
    def needs(self) -> list[str]:
        return declared_needs(self.kind)

    @property
    def known_settings(self) -> dict[str, Any]:
        """The types of all settings that its class has, by name."""
        config_type = config_type_of(self.kind)
        return {} if config_type is None else setting_types(config_type)

    def describe(self, stream: Stream | None = None) -> dict[str, Any]:
        """What a run stores. A folder of weights has a file per stream."""
        if stream is not None:
            self = self.for_inputs(stream.spec.input_shape)
        return {
            "name": self.name,
            "where": self.where,
            "settings": as_plain(self.config),
            "needs": self.needs,
            "sees_input": class_sees_input(self.kind),
            "code": self.code,
            "weights": _weights_hash(self.config, stream),
            **({"library": self.library} if self.library else {}),
        }


def learner(what: Any, **settings: Any) -> Recipe:
    """A learner by name (`er`, or `er@PRESET` for the settings of a paper), by `FILE.py:Class`, by
    `LIBRARY:MODULE.CLASS`, by its class, or around a model of river or scikit-learn, with settings;
    a name may begin with `ALIAS=`.

    >>> learner("blind", window=5).config
    Config(window=5)
    """
    name, where = _split_alias(what) if isinstance(what, str) else ("", what)
    foreign = named.find(where, settings)
    if foreign is not None:
        kind, default, where, settings = foreign
        name = name or default
    elif isinstance(what, str):
        at, preset = "", ""
        if ".py" not in where:  # the name of a folder may contain an @
            where, at, preset = where.partition("@")
        kind, default = _find_class(where)
        if at:
            settings = {**_preset(where, preset), **settings}
            default = f"{default}@{preset}"
        settings = given_settings(where, settings)
        name = name or default
        file, colon, class_name = where.rpartition(":")
        if file.endswith(".py"):  # absolute, for a resume from another folder
            where = f"{Path(file).resolve()}{colon}{class_name}"
    else:
        refuse_no_learner(what)
        kind, where, name = what, f"{what.__module__}:{what.__qualname__}", what.__name__
    if re.search(r"[/\\.\x00-\x1f]", name):  # used in folder names and in dotted settings
        raise StreamgaugeError(
            f"A learner's name must not contain a dot or a slash, as '{name}' does."
        )
    config_type = config_type_of(kind)
    if config_type is None and settings:
        raise StreamgaugeError(
            f"The learner {name} has no settings, so no '{next(iter(settings))}'."
        )
    config = None if config_type is None else configure(config_type, settings, name)
    if config is not None and (weights := _weights_of(config)):
        config = dataclasses.replace(config, weights=absolute_if_file(weights))
    if foreign is not None:
        return Recipe(name, where, kind, config, foreign.kind.code, foreign.kind.unknown)
    return Recipe(name, where, kind, config, *behaviour.code_of(kind, as_plain(config) or {}))


def code_of_learner(text: str) -> str:
    """The file or module that making this learner would execute; "" for a built-in one and for one
    of an installed library.

    >>> [code_of_learner(text) for text in ("er", "a=er@cloc", "x=mine.py:Mine", "mine:Mine")]
    ['', '', 'mine.py', 'mine']
    """
    where = _split_alias(text)[1]
    if named.prefix_of(where) or where.partition("@")[0] in names("learners"):
        return ""
    file, _, _ = where.rpartition(":")
    return file or where


def code_of_stream(where: str) -> str:
    """The file that making this stream would execute; "" for built-in streams and data."""
    return where if where.endswith(".py") else ""


def untrusted(codes: Iterable[str], trust: bool | Sequence[str]) -> list[str]:
    """The files and modules among `codes` that may not be executed: `trust` is True for all, or
    lists those that the user named."""
    if trust is True:
        return []
    given = {str(Path(name).resolve()) for name in trust or ()}
    return [code for code in codes if code and str(Path(code).resolve()) not in given]


def _split_alias(text: str) -> tuple[str, str]:
    """
    >>> _split_alias("small=er"), _split_alias("er"), _split_alias("x=/a=b/mine.py:Mine")
    (('small', 'er'), ('', 'er'), ('x', '/a=b/mine.py:Mine'))
    """
    before, slash, path = text.partition("/")  # the name of a folder may contain an =
    name, _, first = before.rpartition("=")
    return name, f"{first}{slash}{path}"


@cache  # a suite needs hundreds
def presets() -> dict[str, dict[str, dict[str, Any]]]:
    """Settings of papers, learner -> preset -> settings; one file per paper."""
    known: dict[str, dict[str, dict[str, Any]]] = {}
    for file in sorted((_ROOMS / "learners" / "presets").glob("*.toml")):
        for name, sets in tomllib.loads(file.read_text()).items():
            known.setdefault(name, {}).update(sets)
    return known


def _preset(name: str, preset: str) -> dict[str, Any]:
    known = presets().get(name, {})
    if preset not in known:
        hint = nearest(preset, known) if known else f"{name} has no presets."
        raise StreamgaugeError(f"There is no preset '{name}@{preset}'; {hint}")
    return known[preset]


def config_type_of(kind: type) -> type | None:
    """The dataclass that annotates the parameter `config`, or None without that parameter. A class
    that inherits `__init__` may have a `Config` in its own file, or in that of a base class."""
    if issubclass(kind, ForeignLearner):
        return kind.Config
    if "config" not in inspect.signature(kind.__init__).parameters:
        return None
    maker = next(part for part in kind.__mro__ if "__init__" in vars(part))
    for part in kind.__mro__[: kind.__mro__.index(maker)]:
        own = getattr(sys.modules.get(part.__module__), "Config", None)
        if isinstance(own, type):
            return own
    annotation = maker.__init__.__annotations__.get("config")  # type: ignore[misc]
    if isinstance(annotation, str):
        # Only this annotation: others may use types that are imported for type checking only.
        annotation = eval(annotation, vars(sys.modules[maker.__module__]))
    if not dataclasses.is_dataclass(annotation) or not isinstance(annotation, type):
        raise StreamgaugeError(
            f"The parameter 'config' of {kind.__name__} must be annotated with a dataclass."
        )
    return annotation


def own_data(where: str) -> tuple[str, dict[str, Any]]:
    """A stream's name and the settings that follow from it. The path of a table, of a folder or of
    arrays stands for the stream that reads it; other names stand for themselves.

    >>> own_data("albums")
    ('albums', {})
    """
    if where in names("streams") or where.endswith(".py"):
        return where, {}
    if number := re.fullmatch(r"openml:(\d+)", where):
        return "openml", {"dataset": int(number[1])}
    path = Path(where).expanduser()
    if not path.exists():
        if re.fullmatch(r"[\w-]+/[\w.-]+", where) and table_format(path) is None:
            raise StreamgaugeError(
                f"There is no file or folder '{where}'. If it is a data set on the Hugging Face"
                f" hub: --stream huggingface --stream.path {where}"
            )
        if "://" in where:
            raise StreamgaugeError(
                f"'{where}' is an address, not a file: download the file and give its path."
            )
        if "/" in where or path.suffix:
            hint = nearest(path.name, [file.name for file in path.parent.glob("*")])
            hint = f"; {hint}" if hint.startswith("did") else "."
            raise StreamgaugeError(f"There is no file or folder '{where}' to stream{hint}")
        return where, {}
    from streamgauge.streams.own.guess import stream_for

    name = stream_for(path)
    announce(f"'{where}' is read as the stream '{name}' (settings: streamgauge list {name}).")
    return name, {"path": str(path.resolve())}


def stream_settings(where: str) -> dict[str, Any]:
    return setting_types(_stream_module(own_data(where)[0]).Config)


def full_stream_settings(where: str, settings: dict[str, Any]) -> dict[str, Any]:
    """All settings of a stream, with defaults filled in, without building it."""
    where, path = own_data(where)
    given = path | {name: value for name, value in settings.items() if name != "features"}
    module = _stream_module(where)
    config = configure(module.Config, given, "stream")
    if hasattr(module, "complete"):  # fills in settings that are stored with the data
        config = module.complete(config)
    if not settings.get("features"):
        return as_plain(config)
    from streamgauge.models.features import Config

    features = configure(Config, settings["features"], "features")
    return {**as_plain(config), "features": as_plain(features)}


def stream(where: str, features: dict[str, Any] | None = None, **settings: Any) -> Stream:
    """A stream by name, of the data at a path, or from a FILE.py with `Config` and
    `build(config)`; with `features` (model, weights, ...), the inputs are replaced by features of a
    frozen network."""
    where, path = own_data(where)
    settings = path | settings
    module = _stream_module(where)
    built = module.build(configure(module.Config, settings, "stream"))
    if not isinstance(built, Stream):
        raise StreamgaugeError(f"`build` of {where} must return a Stream, as `arrange` makes one.")
    if where.endswith(".py") and built.name == "arrays":  # a file that sets no name
        built = dataclasses.replace(built, name=Path(where).stem)
    if features:
        from streamgauge.models.features import Config, with_features

        chosen = vars(configure(Config, features, "features"))
        chosen["weights"] = absolute_if_file(chosen["weights"])
        return with_features(built, **chosen)
    return built


def _stream_module(where: str) -> ModuleType:
    if where.endswith(".py"):
        module = load_file(Path(where))
        for member in ("Config", "build"):
            if not hasattr(module, member):
                raise StreamgaugeError(f"{where} needs a '{member}' to be a stream; it has none.")
        if not dataclasses.is_dataclass(module.Config):
            raise StreamgaugeError(f"`Config` of {where} must be a dataclass.")
        return module
    _check_name(where, names("streams"), "stream")
    return split_module(where) if where in splits() else _built_in("streams", where)


@cache
def _files(room: str) -> dict[str, Path]:
    """The file of every built-in stream or learner, by name."""
    files = [f for folder in _FOLDERS[room] for f in (_ROOMS / room / folder).glob("[a-z]*.py")]
    if room == "streams":
        files = [f for f in files if "\ndef build(" in f.read_text()]
    return {file.stem: file for file in files}


def _built_in(room: str, name: str) -> ModuleType:
    inside = _files(room)[name].relative_to(_ROOMS).with_suffix("")
    return importlib.import_module(".".join(("streamgauge", *inside.parts)))


def names(room: str) -> list[str]:
    """The names of all built-in streams or learners."""
    if room == "protocol":
        return ["protocol"]
    return sorted([*_files(room), *(splits() if room == "streams" else ())])


def summary(room: str, name: str) -> dict[str, Any]:
    """First line of the docstring, and the declared settings with the comments next to them, read
    without importing the file."""
    if room == "protocol":
        what = "What is measured, and when; settings are given as --protocol.X"
        file, kind = _ROOMS / "running" / "protocol.py", "Protocol"
    elif room == "streams" and name in splits():
        what = splits()[name]["what"]
        file, kind = _ROOMS / "streams" / "stream.py", "Arrangement"
    else:
        file, kind = _files(room)[name], "Config"
        what = (ast.get_docstring(ast.parse(file.read_text())) or "").split("\n")[0]
    declared = _static_settings(file, kind)
    defaults = {setting: value.default for setting, value in declared.items()}
    if room == "streams" and name in splits():
        defaults |= {field: repr(value) for field, value in splits()[name]["settings"].items()}
    notes = {setting: value.note for setting, value in declared.items() if value.note}
    if room == "streams":  # of settings that all streams have
        common = _static_settings(_ROOMS / "streams" / "stream.py", "Arrangement")
        notes = {name: common[name].note for name in defaults if name in common} | notes
    choices = {setting: value.choices for setting, value in declared.items() if value.choices}
    facts: dict[str, Any] = {"name": name, "what": what, "settings": defaults, "notes": notes}
    facts["choices"] = choices
    tree = ast.parse(file.read_text())
    if room == "learners":
        facts["presets"] = sorted(presets().get(name, {}))
        facts |= about(name) or {"source": "-", "cost": "-"}
        facts["needs"] = sorted(
            constant.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            and any(isinstance(t, ast.Name) and t.id == "needs" for t in node.targets)
            for constant in ast.walk(node.value)
            if isinstance(constant, ast.Constant) and isinstance(constant.value, str)
        )
    return facts


def foreign_summary(where: str) -> dict[str, Any]:
    """What `summary` says, of a learner of another library: its settings with their defaults."""
    recipe = learner(where)
    text = inspect.getdoc(recipe.kind) or ""
    what = text.partition("\n\n")[0]
    required = required_settings(recipe.kind)
    settings = as_plain(recipe.config)
    return {
        "name": recipe.name,
        "what": " ".join(what.split()),
        "settings": {n: "(required)" if n in required else repr(v) for n, v in settings.items()},
        "notes": {name: _documented(text, name) for name in settings},
        "choices": {},
        "library": recipe.library,
        "needs": recipe.needs,
    }


def _documented(text: str, name: str) -> str:
    """The first sentence about a parameter in a docstring of NumPy's form; "" if there is none."""
    entry = re.search(rf"^{name}\b[^\n]*\n((?:    [^\n]*\n|\n)+)", text, re.MULTILINE)
    sentence = " ".join(entry[1].split()) if entry else ""
    return re.split(r"(?<=[a-z)`])\. |\.?<br/>", sentence)[0].strip()


def about(learner: str) -> dict[str, str]:
    """Source and cost of a built-in learner; empty for a user's learner."""
    known: dict[str, dict[str, str]] = tomllib.loads(
        (_ROOMS / "learners" / "about.toml").read_text()
    )
    return known.get(learner, {})


class Setting(NamedTuple):
    default: str  # as it is written
    note: str = ""  # the comment next to it
    choices: tuple[str, ...] = ()


def _static_settings(file: Path, name: str = "Config") -> dict[str, Setting]:
    """The fields of a dataclass, read from the source text; first those of its base: `Arrangement`
    of a stream, or the `Config` of another file."""
    settings: dict[str, Setting] = {}
    text = file.read_text()
    lines = text.splitlines()
    for part in ast.parse(text).body:
        if isinstance(part, ast.ClassDef) and part.name == name:
            for base in reversed([ast.unparse(base) for base in part.bases]):
                module, _, above = base.rpartition(".")
                module = "stream" if base == "Arrangement" else module.replace("_own", "_common")
                for path in _ROOMS.rglob(f"{module}.py") if module else [file]:
                    settings |= _static_settings(path, above)
            for node in part.body:
                if isinstance(node, ast.AnnAssign) and node.value:
                    setting, default = ast.unparse(node.target), ast.unparse(node.value)
                    end = node.value  # a comment may stand inside of parentheses
                    note = lines[(end.end_lineno or 1) - 1][end.end_col_offset or 0 :]
                    note = note.partition("#")[2].strip() or _comment_above(lines, node.lineno - 1)
                    base_class = settings.get(setting, Setting(""))
                    choices = _choices(node.annotation)
                    settings[setting] = Setting(default, note or base_class.note, choices)
    return settings


def _choices(annotation: ast.expr) -> tuple[str, ...]:
    """The words that a setting can be, where its type lists them."""
    if "Literal[" not in ast.unparse(annotation):
        return ()
    constants = [node for node in ast.walk(annotation) if isinstance(node, ast.Constant)]
    return tuple(node.value for node in constants if isinstance(node.value, str))


def _comment_above(lines: Sequence[str], at: int) -> str:
    """The comment on whole lines directly above a line."""
    comment: list[str] = []
    while at > 0 and lines[at - 1].strip().startswith("#"):
        at -= 1
        comment.insert(0, lines[at].strip().lstrip("# "))
    return " ".join(comment)


def _find_class(where: str) -> tuple[type, str]:
    file, _, class_name = where.rpartition(":")
    if not file:
        if where.endswith(".py"):
            module, name = load_file(Path(where)), Path(where).stem
        else:
            if Path(where).suffix:
                raise StreamgaugeError(
                    f"'{where}' is no learner: give a name (`streamgauge list learners`), or"
                    " FILE.py:CLASS."
                )
            _check_name(where, names("learners"), "learner")
            module, name = _built_in("learners", where), where
        return _only_learner(module, where), name
    module = load_file(Path(file)) if file.endswith(".py") else _import(file)
    if not hasattr(module, class_name):
        classes = [n for n, v in vars(module).items() if isinstance(v, type)]
        hint = nearest(class_name, classes)
        raise StreamgaugeError(f"There is no class '{class_name}' in {file}; {hint}")
    kind = getattr(module, class_name)
    refuse_no_learner(kind)
    return kind, class_name


def _only_learner(module: ModuleType, where: str) -> type:
    own = [
        kind
        for kind in vars(module).values()
        if isinstance(kind, type)
        and kind.__module__ == module.__name__
        and hasattr(kind, "learn")
        and hasattr(kind, "predict")
    ]
    if len(own) != 1:
        raise StreamgaugeError(
            f"{where} defines {len(own)} learners; name one as {where}:CLASS."
            if own
            else f"{where} defines no class with both 'learn' and 'predict'."
        )
    refuse_no_learner(own[0])
    return own[0]


def _check_name(name: str, known: list[str], what: str) -> None:
    if name not in known:
        raise StreamgaugeError(f"There is no {what} '{name}'; {nearest(name, known)}")


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise StreamgaugeError(f"The module {name} cannot be imported ({error}).") from error


def load_file(path: Path) -> ModuleType:
    """Import a user's file under a unique module name, so that its classes can be pickled. Its
    folder is importable while it is loaded."""
    if not path.is_file():
        raise StreamgaugeError(f"There is no file {path}.")
    importlib.invalidate_caches()
    folder = path.resolve().parent
    imports = user_code.Imports(folder).of(path)
    # The name depends on the texts, too: a file edited in a notebook session is another module.
    text = str(path.resolve()).encode() + path.read_bytes() + "".join(imports.texts()).encode()
    name = f"{user_code.LOADED}{hashlib.blake2b(text).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    for stale in imports.stale():
        file = getattr(sys.modules[stale], "__file__", None)
        if stale not in sys.stdlib_module_names and (file is None or user_code.is_users(file)):
            del sys.modules[stale]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    no_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.path.insert(0, str(folder))
    try:
        spec.loader.exec_module(module)
        imports.stale()  # remembers the texts that were loaded
    except Exception as error:
        del sys.modules[name]
        raise StreamgaugeError(
            f"{path} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    finally:
        sys.path.remove(str(folder))
        sys.dont_write_bytecode = no_bytecode
    return module


def current_code(stored: Mapping[str, Any]) -> str:
    """The code hash that a stored learner would have if it were run now."""
    return learner(
        stored["where"], **current_settings(stored["where"], stored["settings"] or {})
    ).code


def _weights_of(config: Any) -> str:
    """The setting `weights` if it is text: a file, a folder, or a name on the hub."""
    weights = getattr(config, "weights", "")
    return weights if isinstance(weights, str) else ""


def absolute_if_file(file: str) -> str:
    """The absolute path of an existing file, for a resume from another folder; else unchanged."""
    return str(Path(file).resolve()) if file and Path(file).exists() else file


def _weights_hash(config: Any, stream: Stream | None) -> str | None:
    """A hash of the contents: replaced weights differ, moved weights do not."""
    path = Path(_weights_of(config))
    if not _weights_of(config) or not path.exists():
        return None
    if path.is_dir() and stream is not None and hasattr(config, "model"):
        import torch

        from streamgauge.models.features import weights_file
        from streamgauge.streams import Gate

        gate = Gate(stream.source, stream.preparation, torch.device("cpu"))
        path = weights_file(path, config.model, gate)
    names = sorted(path.iterdir()) if path.is_dir() else [path]
    digest = hashlib.blake2b(digest_size=8)
    for name in names:  # file names of `pretrain` contain a hash of their content
        digest.update(name.name.encode() if path.is_dir() else name.read_bytes())
    return digest.hexdigest()
