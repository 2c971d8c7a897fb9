"""The folders of `src/streamgauge`: few files each, no private imports across rooms, and maps in
the documentation that match the tree. Public and old names: `test_public_names.py`."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "streamgauge"
MODULES = sorted(PACKAGE.rglob("*.py"))
MOST_FILES_AT_THE_TOP = 8
MOST_FILES_IN_A_FOLDER = 25


def files_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.is_file() and path.suffix != ".pyc"]


def test_the_top_folder_has_few_files() -> None:
    assert len(files_in(PACKAGE)) <= MOST_FILES_AT_THE_TOP, sorted(files_in(PACKAGE))


def test_no_folder_has_many_files() -> None:
    folders = [path for path in PACKAGE.rglob("*") if path.is_dir() and path.name != "__pycache__"]
    crowded = {
        str(folder.relative_to(PACKAGE)): len(files_in(folder))
        for folder in folders
        if len(files_in(folder)) > MOST_FILES_IN_A_FOLDER
    }
    assert not crowded


def test_tests_lie_as_the_rooms_lie() -> None:
    """A folder per room; the others are about all rooms. Files at the top serve several folders."""
    tests = ROOT / "tests"
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    folders = {path.name for path in tests.iterdir() if any(path.glob("**/*.py"))}
    assert folders == rooms | {"behaviour", "corpus", "faults", "fuzz", "house"}
    for name in set(files_in(tests)) - {"conftest.py"}:
        uses = re.compile(rf"^\s*(from|import) {name.removesuffix('.py')}\b", re.MULTILINE)
        users = [path for path in tests.glob("*/**/*.py") if uses.search(path.read_text("utf-8"))]
        assert len({path.relative_to(tests).parts[0] for path in users}) > 1, name


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def is_module(dotted: str) -> bool:
    path = ROOT / "src" / dotted.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").is_file()


def imported_names(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Absolute dotted names below `streamgauge` that a module imports, and their local names; those
    in functions and for type checking too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname and alias.name.startswith("streamgauge."):
                    yield alias.name, alias.asname
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("streamgauge"):
            assert node.level == 0
            for alias in node.names:
                yield f"{node.module}.{alias.name}", alias.asname or alias.name


def private_names_of_other_rooms(code: str, room: str) -> list[str]:
    """Private modules and names of other rooms that this code imports, or uses as attributes of an
    imported module."""
    tree = ast.parse(code)
    private, modules = [], {}
    for dotted, local in imported_names(tree):
        parts = dotted.split(".")[1:]
        if parts[0] == room:
            continue
        if any(is_private(part) for part in parts):
            private.append(dotted)
        elif is_module(dotted):
            modules[local] = dotted
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id)
            if module is not None and is_private(node.attr):
                private.append(f"{module}.{node.attr}")
    return private


def room_of(module: Path) -> str:
    return module.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("room", sorted({room_of(module) for module in MODULES}))
def test_a_room_imports_nothing_private_of_another_room(room: str) -> None:
    found = {
        str(module.relative_to(PACKAGE)): names
        for module in MODULES
        if room_of(module) == room
        and (names := private_names_of_other_rooms(module.read_text(encoding="utf-8"), room))
    }
    assert not found


def test_private_imports_are_recognised() -> None:
    code = """
from streamgauge.audit._old import jit
from streamgauge.metrics import _arrays, score
def later():
    from streamgauge.metrics import online
    online._targets, online.macro_accuracy, online.__name__, score._name
    import streamgauge.record._x as y
"""
    assert sorted(private_names_of_other_rooms(code, "report")) == [
        "streamgauge.audit._old.jit",
        "streamgauge.metrics._arrays",
        "streamgauge.metrics.online._targets",
        "streamgauge.record._x",
    ]
    assert private_names_of_other_rooms(code, "metrics") == [
        "streamgauge.audit._old.jit",
        "streamgauge.record._x",
    ]


def paths_in(text: str) -> list[str]:
    """Relative link targets, and words in backticks that look like a path. Paths in parentheses
    after a folder, as in `learners/` (`replay/`, `published/`), are below that folder."""
    text = re.sub(
        r"`([\w/]+/)` \(([^)]*)\)",
        lambda match: f"`{match[1]}` " + match[2].replace(" `", f" `{match[1]}"),
        text.replace("(`", "( `"),
    )
    words = [word for code in re.findall(r"`([^`\n]+)`", text) for word in code.split()]
    paths = [word for word in words if re.fullmatch(r"[\w*./-]+(/|\.(py|md|toml|svg))", word)]
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    return sorted({*paths, *links})


def missing_paths(page: Path, text: str) -> list[str]:
    """Paths in a text that exist neither beside the page, nor below the root or the package."""
    bases = (page.parent, ROOT, PACKAGE)
    return [
        path
        for path in paths_in(text)
        if not any(next(base.glob(path.rstrip("/")), None) for base in bases)
    ]


def test_missing_paths_are_recognised() -> None:
    text = (
        "`streams/nowhere.py`, [a page](nothing.md), `audit/` (`verdict.py`, `gone/`), `files.py`"
    )
    assert missing_paths(ROOT / "docs" / "page.md", text) == [
        "audit/gone/",
        "nothing.md",
        "streams/nowhere.py",
    ]


def test_paths_in_the_map_of_the_readme_exist() -> None:
    page = ROOT / "README.md"
    _, _, where = page.read_text(encoding="utf-8").partition("## Where things are")
    assert len(paths_in(where)) >= 5
    assert set(missing_paths(page, where)) == set()


def test_paths_in_the_architecture_exist() -> None:
    page = ROOT / "docs" / "architecture.md"
    text = page.read_text(encoding="utf-8")
    assert len(paths_in(text)) >= 20
    assert set(missing_paths(page, text)) == set()


@pytest.mark.parametrize("page", ["README.md", "docs/architecture.md"])
def test_a_map_names_every_room(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    assert {room for room in rooms if f"`{room}/" not in text} == set()


def test_the_picture_of_the_architecture_is_up_to_date() -> None:
    script = ROOT / "docs" / "draw_architecture.py"
    done = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
