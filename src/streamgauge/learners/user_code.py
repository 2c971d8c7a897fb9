"""What a learner of the user's own depends on: the modules that its file imports, and the functions
and values that a class of a notebook uses. Installed packages do not count."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import dis
import functools
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path, PurePath
from re import Pattern
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from streamgauge.errors import StreamgaugeError
from streamgauge.files import checksum

_OURS = Path(__file__).parents[1]
_STDLIB = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))
_BY_TEXT = frozenset({"eval", "exec", "globals", "__import__"})  # what they use is in a value
_IMPORTS = frozenset({"import_module", "spec_from_file_location", "run_path", "run_module"})
_NO_CODE = frozenset(
    {"__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__annotations__",
     "__abstractmethods__", "_abc_impl", "__firstlineno__", "__static_attributes__",
     "__dataclass_fields__", "__dataclass_params__"}
)  # fmt: skip
# Names of functions that read files, and of the environment: what they give is no code.
_READS = frozenset(
    {"open", "read_text", "read_bytes", "load", "safe_open", "load_file", "loadtxt", "genfromtxt",
     "fromfile", "memmap", "read_csv", "read_parquet", "read_table", "read_json", "environ",
     "getenv"}
)  # fmt: skip
LOADED = "streamgauge_user_"  # begins the names of modules that were loaded from FILE.py
_SEEN: dict[str, tuple[Any, str]] = {}  # module -> its spec, and its text when it was first hashed


def is_users(file: str | Path | None) -> bool:
    """Whether a file is the user's code: of no installed package, of neither Python nor this one.

    >>> is_users(__file__), is_users(ast.__file__), is_users("mine.py"), is_users(None)
    (False, False, True, False)
    """
    if file is None or Path(file).suffix not in (".py", ".so", ".pyd"):
        return False
    path = Path(file).resolve()
    if {"site-packages", "dist-packages"} & set(path.parts) or path.is_relative_to(_OURS):
        return False
    return not any(path.is_relative_to(folder) for folder in _STDLIB)


def module_file(name: str) -> Path | None:
    """The file of a loaded module of the user's; None for a prompt, a notebook or a package."""
    file = getattr(sys.modules.get(name), "__file__", None)
    return Path(file) if file is not None and is_users(file) and Path(file).is_file() else None


class Imports:
    """The modules of the user's that a file imports, directly or not, by name. With a `root`, the
    file was loaded from there, so its neighbours come before modules of the same name."""

    def __init__(self, root: Path | None = None) -> None:
        self.files: dict[str, Path] = {}
        self.unknown = ""
        self._root = root

    def of(self, file: Path, package: str = "") -> Imports:
        """Add what a file imports; `package` is what its relative imports begin at."""
        if file.suffix != ".py":
            return self
        for name, line in _names(file.read_bytes(), package):
            if name is None:
                self.unknown = self.unknown or f"'{file.name}' loads code by name in line {line}"
            else:
                self.add(name)
        return self

    def add(self, name: str) -> None:
        """Add a module with the packages that it is in."""
        parts = name.split(".")
        search: Any = None
        for end in range(1, len(parts) + 1):
            part = ".".join(parts[:end])
            spec = self._find(part, search)
            if spec is None or parts[0] == "torch":
                return
            search = list(spec.submodule_search_locations or ())
            if part in self.files:
                continue
            if spec.origin is not None and is_users(spec.origin) and Path(spec.origin).is_file():
                self.files[part] = Path(spec.origin).resolve()
                self.of(self.files[part], part if search else part.rpartition(".")[0])
            elif spec.loader is None and search:  # a folder without __init__.py
                self.files[part] = Path(search[0]).resolve()

    def _find(self, name: str, search: Any) -> ModuleSpec | None:
        """A module's spec, without importing it."""
        if self._root is not None:
            neighbour = PathFinder.find_spec(name, search or [str(self._root)])
            # A folder without __init__.py comes after every module of its name.
            if neighbour is not None and (search or neighbour.loader is not None):
                return neighbour
            if neighbour is not None:
                regular = PathFinder.find_spec(name)
                return neighbour if regular is None or regular.loader is None else regular
        loaded = getattr(sys.modules.get(name), "__spec__", None)
        return loaded or PathFinder.find_spec(name, None if "." not in name else search)

    def texts(self) -> list[str]:
        """Name and content of every module, in the order of names."""
        files = sorted((name, file) for name, file in self.files.items() if file.is_file())
        return [f"{name} {_content(file)}" for name, file in files]

    def stale(self) -> list[str]:
        """Modules that are loaded and are no longer what their files say."""
        return [name for name, file in self.files.items() if _is_stale(name, file)]


def _content(file: Path) -> str:
    return checksum(file.read_bytes())


def _is_stale(name: str, file: Path) -> bool:
    module = sys.modules.get(name)
    if module is None:
        return False
    if file.is_dir():
        return str(file) not in getattr(module, "__path__", ())
    text = _content(file)
    loaded_from = getattr(module, "__file__", None)
    if loaded_from is not None and Path(loaded_from).resolve() != file.resolve():
        return True
    spec, before = _SEEN.get(name, (None, ""))
    if spec is None or spec is not module.__spec__:  # a reloaded module has a new one
        _SEEN[name] = (module.__spec__, text)
        return _compiled_otherwise(module, file)
    return text != before


def _compiled_otherwise(module: ModuleType, file: Path) -> bool:
    """Whether a function of a loaded module is not in its file any more."""
    if type(getattr(module.__spec__, "loader", None)) is not SourceFileLoader:
        return False  # as that of pytest, which changes what it compiles
    try:
        whole = compile(file.read_bytes(), str(module.__file__), "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return True
    codes = set(_nested(whole))
    own = [value.__code__ for value in vars(module).values() if isinstance(value, FunctionType)]
    return any(code not in codes for code in own if code.co_filename == module.__file__)


def used_by(kind: type) -> tuple[list[str], str]:
    """Hashes of what a class of the user's depends on besides the files of itself and its bases,
    and a reason where that cannot be known."""
    closure, own, loaded = _uses(kind)
    _require_fresh(own | closure.imports.files)
    texts = [text for imports in loaded.values() for text in imports.texts()]
    texts += [*closure.parts, *closure.imports.texts()]
    unknown = [
        *(imports.unknown for imports in loaded.values()),
        closure.unknown,
        closure.imports.unknown,
    ]
    return texts, next(filter(None, unknown), "")


def _uses(kind: type) -> tuple[Closure, dict[str, Path], dict[Path, Imports]]:
    """What a class of the user's uses: from cells and functions; its modules and those of its
    bases, by name; files that were loaded from FILE.py, with what they import."""
    closure, own, loaded = Closure(), dict[str, Path](), dict[Path, Imports]()
    for part in kind.__mro__:
        name, file = part.__module__, module_file(part.__module__)
        if not _walkable(name):
            continue
        if file is None or name == "__main__" or "<locals>" in part.__qualname__:
            closure.value(part.__name__, part)
        elif name.startswith(LOADED):  # its neighbours were loaded with it
            loaded[file] = Imports(file.parent).of(file)
        else:
            own[name] = file
            closure.imports.of(file, getattr(sys.modules[name], "__package__", None) or "")
    return closure, own, loaded


def reads_of(kind: type) -> str:
    """Where the code of a class of the user's reads a file or the environment, which no hash of
    code covers: the first such line or function; "" if none is seen."""
    closure, own, loaded = _uses(kind)
    for function, code in closure.codes:
        if used := _READS.intersection(code.co_names):
            return f"{min(used)} in '{function}'"
    files = [*own.values(), *loaded, *closure.imports.files.values()]
    files += [file for imports in loaded.values() for file in imports.files.values()]
    for file in files:
        if file.suffix == ".py" and (first := _first_read(file.read_bytes())):
            return f"{first[0]} in line {first[1]} of '{file.name}'"
    return ""


def _first_read(text: bytes) -> tuple[str, int] | None:
    """The first use of one of `_READS` in a file, and its line."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError):
        return None
    used = [(n.lineno, getattr(n, "id", getattr(n, "attr", ""))) for n in nodes
            if isinstance(n, (ast.Name, ast.Attribute))]  # fmt: skip
    return next(((name, line) for line, name in sorted(used) if name in _READS), None)


def _require_fresh(files: dict[str, Path]) -> None:
    """Refuse modules that were edited after they were imported: what runs is not what is hashed."""
    for name, file in files.items():
        if _is_stale(name, file):
            raise StreamgaugeError(
                f"'{file}' was changed after Python imported it: restart Python, or reload the"
                f" module '{name}' and what uses it."
            )


@functools.lru_cache(4096)
def _names(text: bytes, package: str) -> list[tuple[str | None, int]]:
    """The modules that a file may import, anywhere in it, with lines; None where that cannot be
    known."""
    try:
        return [name for node in ast.walk(ast.parse(text)) for name in _imported(node, package)]
    except (SyntaxError, ValueError):
        return []  # the import of it fails, too


def _imported(node: ast.AST, package: str) -> Iterator[tuple[str | None, int]]:
    if isinstance(node, ast.Import):
        yield from ((alias.name, node.lineno) for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and (package or not node.level):
        above = package.split(".")[: len(package.split(".")) - node.level + 1]
        base = ".".join([*(above if node.level else ()), *filter(None, [node.module])])
        yield base, node.lineno
        yield from ((f"{base}.{alias.name}", node.lineno) for alias in node.names)
    elif isinstance(node, ast.Call):
        called = node.func
        by_name = isinstance(called, ast.Name) and called.id in _BY_TEXT | _IMPORTS
        if by_name or (isinstance(called, ast.Attribute) and called.attr in _IMPORTS):
            text = getattr(node.args[0], "value", None) if node.args else None
            name = ast.unparse(called).rpartition(".")[2]
            if isinstance(text, str) and name in ("eval", "exec"):
                yield from _names(text.encode(), package)
            else:
                known = isinstance(text, str) and name in ("import_module", "__import__")
                yield text if known else None, node.lineno


class Closure:
    """What a class of a notebook or of a function uses: its code and that of the functions it
    calls, and the values of the names in them."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.unknown = ""
        self.imports = Imports()
        self.codes: list[tuple[str, CodeType]] = []  # with the name of the function
        self._met: dict[int, tuple[int, Any]] = {}

    def _class(self, kind: type) -> None:
        for base in kind.__mro__[1:]:
            self.value(base.__name__, base)
        # A dataclass and a named tuple compile methods from their fields.
        compiles = dataclasses.is_dataclass(kind) or hasattr(kind, "_fields")
        for name, member in vars(kind).items():
            text = getattr(getattr(member, "__code__", None), "co_filename", "") == "<string>"
            if name not in _NO_CODE and not (compiles and text and name.startswith("_")):
                self.parts.append(name)
                self.value(f"{kind.__name__}.{name}", member)
        for field in dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ():
            self.parts.append(field.name)
            if field.default_factory is not dataclasses.MISSING:
                self.value(field.name, field.default_factory)

    def value(self, name: str, value: Any) -> None:
        """Add a value that is called `name` in a sentence."""
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes, PurePath)):
            self.parts.append(repr(value))
            return
        if id(value) in self._met:
            self.parts.append(f"again {self._met[id(value)][0]}")
            return
        self._met[id(value)] = (len(self._met), value)
        self.parts.append(type(value).__qualname__)
        if isinstance(value, (list, tuple)):
            for item in value:
                self.value(name, item)
        elif isinstance(value, dict):
            for key, item in value.items():
                self.value(name, key)
                self.value(name, item)
        elif isinstance(value, (set, frozenset)):
            self.parts += sorted(map(repr, value))
        elif isinstance(value, np.ndarray) and value.dtype != object:
            self._bytes(value)
        elif isinstance(value, ModuleType):
            self.imports.add(value.__name__)
            self.parts.append(value.__name__)
        elif isinstance(value, FunctionType):
            self._function(value)
        elif isinstance(value, type):
            self._type(value)
        else:
            self._object(name, value)

    def _bytes(self, array: Any) -> None:
        digest = checksum(np.ascontiguousarray(array).tobytes())
        self.parts.append(f"{array.dtype} {array.shape} {digest}")

    def _type(self, kind: type) -> None:
        self.parts.append(f"{kind.__module__}.{kind.__qualname__}")
        if not self._in_file(kind) and _walkable(kind.__module__):
            self._class(kind)

    def _in_file(self, value: Any) -> bool:
        """Whether the file of a module has all of it; then the text of the file is added."""
        if value.__module__ == "__main__" or module_file(value.__module__) is None:
            return False
        self.imports.add(value.__module__)
        return "<locals>" not in value.__qualname__

    def _function(self, function: FunctionType) -> None:
        name = function.__name__
        file = Path(function.__code__.co_filename)
        if file.is_file() and not is_users(file):  # made by an installed package
            self.parts.append(function.__code__.co_qualname)
            wrapped = getattr(function, "__wrapped__", None)
            if wrapped is not None:
                self.value(name, wrapped)
            elif function.__closure__:
                self.value(name, [cell.cell_contents for cell in function.__closure__])
            return
        if self._in_file(function):
            self.parts.append(f"{function.__module__}.{function.__qualname__}")
            return
        self.value(name, function.__defaults__)
        self.value(name, function.__kwdefaults__)
        cells = function.__closure__ or ()
        for free, cell in zip(function.__code__.co_freevars, cells, strict=True):
            with suppress(ValueError):  # not assigned yet
                self.value(free, cell.cell_contents)
        for code in _nested(function.__code__):
            self.parts.append(_fingerprint(code))
            self.codes.append((name, code))
            self._globals(code, function)

    def _globals(self, code: CodeType, function: FunctionType) -> None:
        known = function.__globals__
        for used in dis.get_instructions(code):
            name = str(used.argval)
            if used.opname == "IMPORT_NAME":
                self.imports.add(name)
            elif used.opname in ("LOAD_GLOBAL", "LOAD_NAME") and name in known:
                self.value(name, known[name])
            elif used.opname in ("LOAD_GLOBAL", "LOAD_NAME") and not hasattr(builtins, name):
                self.parts.append(f"undefined {name}")
            if name in _IMPORTS or (used.opname == "LOAD_GLOBAL" and name in _BY_TEXT):
                self._cannot_know(f"'{function.__name__}' uses {name}")

    def _object(self, name: str, value: Any) -> None:
        wrapped = getattr(value, "__wrapped__", None)  # of functools.cache and the like
        if isinstance(value, (staticmethod, classmethod)):
            self.value(name, value.__func__)
        elif isinstance(value, property):
            self.value(name, (value.fget, value.fset, value.fdel))
        elif isinstance(value, functools.partial):
            self.value(name, (value.func, value.args, value.keywords))
        elif isinstance(value, functools.cached_property):
            self.value(name, value.func)
        elif isinstance(value, MethodType):
            self.value(name, (value.__func__, value.__self__))
        elif isinstance(wrapped, FunctionType):
            self.value(name, wrapped)
        elif isinstance(value, (BuiltinFunctionType, np.ufunc)):
            self.parts.append(value.__name__)
        elif type(value).__module__ in ("builtins", "_collections") and hasattr(value, "__get__"):
            pass  # a slot, or a field of a named tuple
        elif isinstance(value, (Enum, Pattern, range, slice, np.generic, np.dtype)):
            self.parts.append(repr(value))
        elif type(value).__module__.partition(".")[0] == "torch" and self._of_torch(value):
            return
        elif _walkable(type(value).__module__) and hasattr(value, "__dict__"):
            self.value(name, type(value))
            self.value(name, vars(value))
        else:
            self._cannot_know(f"'{name}' is an object of {type(value).__name__}")

    def _of_torch(self, value: Any) -> bool:
        import torch

        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            self._bytes(value.detach().cpu().contiguous().view(torch.uint8).numpy()
                        if value.ndim else np.array(value.item()))  # fmt: skip
            self.parts.append(f"{value.dtype} {tuple(value.shape)}")
            return True
        self.parts.append(repr(value))
        return isinstance(value, (torch.dtype, torch.device))

    def _cannot_know(self, why: str) -> None:
        self.unknown = self.unknown or why


def _walkable(module: str) -> bool:
    """Whether a module is a prompt, a notebook or a file of the user's."""
    loaded = sys.modules.get(module)
    return module == "__main__" or loaded is None or is_users(getattr(loaded, "__file__", None))


def _nested(code: CodeType) -> Iterator[CodeType]:
    """A code object and those of the functions, lambdas and comprehensions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _fingerprint(code: CodeType) -> str:
    """What a code object does, without its lines and addresses."""
    constants = [
        sorted(map(repr, constant)) if isinstance(constant, frozenset) else repr(constant)
        for constant in code.co_consts
        if not isinstance(constant, CodeType)
    ]
    return repr((code.co_code, constants, code.co_names, code.co_varnames, code.co_flags))
