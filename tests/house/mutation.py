"""Mutation testing: small changes of pure functions, each of which a test must notice.

    python tests/house/mutation.py --per-module 20 metrics.online cost.clock

Every mutant is one changed operator, comparison or constant in one function. A forked process
replaces the code of that function and runs the tests of its room; the mutant survives if they pass.
Not mutated: text, docstrings, annotations, code compiled by Numba, which has its own slow versions.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import inspect
import io
import os
import random
import signal
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Modules of pure functions, and the tests that must notice, besides the module's own doctests.
MODULES = {
    **{f"metrics.{name}": f"tests/metrics/test_metrics_{name}.py"
       for name in ("online", "continual", "transfer", "agreement", "compare", "tasks", "probe")},
    "metrics.summary": "tests/metrics/test_metrics_score.py",
    "history.student": "tests/metrics/test_metrics_compare.py",
    "cost.clock": "tests/cost/test_clock.py",
    "cost.turns": "tests/cost/test_turns.py",
    "cost.flops": "tests/cost/test_flops.py",
    "audit.gate": "tests/audit/test_audit_pieces.py tests/audit/test_words.py",
    "audit.words": "tests/audit/test_words.py",
    "audit.verdict": "tests/audit/test_words.py tests/audit/test_audit_shift.py",
    "record.diff": "tests/record/test_record.py",
    "record.values": "tests/record/test_recorder.py",
    "record.tables": "tests/record/test_record.py",
    "record.verify": "tests/record/test_hostile_folder.py tests/record/test_record.py",
    "tables.commit": "tests/record/test_hostile_folder.py tests/record/test_record.py",
}  # fmt: skip
_COMPARE = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
            ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In,
            ast.Is: ast.IsNot, ast.IsNot: ast.Is}  # fmt: skip
_BINARY = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
           ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult,
           ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd}  # fmt: skip
_LIMIT = 120  # seconds per mutant; one that takes longer is noticed


def spots(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, str]]:
    """The nodes of a function that can be changed, and what is changed."""
    skipped = {id(function.returns)}
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            skipped.add(id(node.annotation))
        if isinstance(node, ast.AnnAssign):
            skipped.add(id(node.annotation))
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert):  # sentences, not numbers
            skipped |= {id(part) for part in ast.walk(node)}
    inside = {
        id(part) for node in ast.walk(function) if id(node) in skipped for part in ast.walk(node)
    }
    for node in ast.walk(function):
        if id(node) in inside:
            continue
        if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARE:
            yield node, f"{type(node.ops[0]).__name__} -> {_COMPARE[type(node.ops[0])].__name__}"
        elif isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            yield node, f"{type(node.op).__name__} -> {_BINARY[type(node.op)].__name__}"
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
            yield node, f"{node.value} -> {node.value + 1}"
        elif isinstance(node, ast.BoolOp):
            yield node, "and <-> or"
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
            yield node, f"without {type(node.op).__name__}"


def change(node: Any) -> None:
    if isinstance(node, ast.Compare):
        node.ops[0] = _COMPARE[type(node.ops[0])]()
    elif isinstance(node, ast.BinOp):
        node.op = _BINARY[type(node.op)]()
    elif isinstance(node, ast.Constant):
        node.value = node.value + 1
    elif isinstance(node, ast.BoolOp):
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif isinstance(node, ast.UnaryOp):
        node.op = ast.UAdd() if isinstance(node.op, ast.USub) else ast.Not()
        if isinstance(node.op, ast.Not):
            node.operand = ast.UnaryOp(ast.Not(), node.operand)


def functions(module: types.ModuleType) -> dict[str, Any]:
    """The plain functions of a module, and the methods of its classes, by qualified name."""
    found = {}
    for name, value in vars(module).items():
        if inspect.isfunction(value) and value.__module__ == module.__name__:
            found[name] = value
        elif inspect.isclass(value) and value.__module__ == module.__name__:
            for inner, method in vars(value).items():
                if inspect.isfunction(method) and method.__module__ == module.__name__:
                    found[f"{name}.{inner}"] = method
    return {name: f for name, f in found.items() if not hasattr(f, "__wrapped__")}


def mutants(module: types.ModuleType) -> list[tuple[str, int, int, str]]:
    """Function, number of the spot in it, line, and what is changed."""
    tree = ast.parse(inspect.getsource(module))
    found = []
    for name, node in _definitions(tree, functions(module)):
        for number, (spot, what) in enumerate(spots(node)):
            found.append((name, number, getattr(spot, "lineno", 0), what))
    return found


def _definitions(tree: ast.Module, known: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name in known:
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef) and f"{node.name}.{inner.name}" in known:
                    yield f"{node.name}.{inner.name}", inner


def apply(module: types.ModuleType, name: str, number: int) -> None:
    """Replace the code of a function by its mutant; every reference to the function has it."""
    tree = ast.parse(inspect.getsource(module))
    node = dict(_definitions(tree, functions(module)))[name]
    change(list(spots(node))[number][0])
    code = compile(ast.fix_missing_locations(tree), str(module.__file__), "exec")
    for part in name.split("."):
        inner = [c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == part]
        code = inner[0]
    functions(module)[name].__code__ = code


def killed(module: types.ModuleType, mutant: Any, tests: list[str]) -> bool:
    """Whether the tests fail with the mutant, in a process of its own."""
    child = os.fork()
    if child == 0:
        signal.alarm(_LIMIT)
        code = 1
        with contextlib.suppress(BaseException), open(os.devnull, "w") as silent:
            os.dup2(silent.fileno(), 1)
            os.dup2(silent.fileno(), 2)
            apply(module, *mutant[:2])
            options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
            code = int(pytest.main([*options, "-m", "not long and not ray", *tests]))
        os._exit(code)
    _, status = os.waitpid(child, 0)
    return status != 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", default=list(MODULES), help="such as metrics.online")
    parser.add_argument("--per-module", type=int, default=10**9, help="mutants per module")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.chdir(ROOT)
    end = time.monotonic() + options.seconds
    tried = alive = 0
    for name in options.modules:
        room, _, file = name.partition(".")
        tests = [*MODULES[name].split(), f"src/streamgauge/{room}/{file}.py"]
        with contextlib.redirect_stdout(io.StringIO()):  # imports once, before the forks
            pytest.main(["-q", "--collect-only", "-p", "no:cacheprovider", *tests])
        module = importlib.import_module(f"streamgauge.{name}")
        chosen = mutants(module)
        random.Random(options.seed).shuffle(chosen)
        done = survived = 0
        for mutant in chosen[: options.per_module]:
            if time.monotonic() > end:
                break
            done += 1
            if not killed(module, mutant, tests):
                survived += 1
                print(f"  survived: {name}:{mutant[2]} {mutant[0]}: {mutant[3]}", flush=True)
        print(f"{name}: {done} of {len(chosen)} mutants, {survived} survived", flush=True)
        tried, alive = tried + done, alive + survived
    print(f"{tried} mutants, {tried - alive} killed, {alive} survived")


if __name__ == "__main__":
    main()
