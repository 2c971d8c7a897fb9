"""Public names: none is hidden by a submodule, and old names work with a warning."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import streamgauge as sg
from streamgauge import cost
from streamgauge.streams.named.splits import split_module
from streamgauge.versions import MOVED

USE_ALL = """
import importlib, pkgutil, types
import streamgauge as sg
for module in pkgutil.walk_packages(sg.__path__, "streamgauge."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
for _ in range(2):
    for name in sg.__all__:
        assert not isinstance(getattr(sg, name), types.ModuleType), name
"""


def test_no_public_name_becomes_a_module_once_all_submodules_are_imported() -> None:
    done = subprocess.run([sys.executable, "-c", USE_ALL], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_no_package_has_the_name_of_a_public_function() -> None:
    assert not {module.name for module in pkgutil.iter_modules(sg.__path__)} & set(sg.__all__)


@pytest.mark.parametrize(
    ("module", "old", "new_module", "new"),
    [
        ("metrics", "Log", "metrics", "RunLog"),
        ("record", "Recorder", "record", "RunWriter"),
        ("record", "Table", "record", "LogTable"),
        ("cost", "measure", "running.job_cost", "measure"),
        ("cost", "Cost", "running.job_cost", "JobCost"),
        *(("cost", name, "running.job_cost", name) for name in cost._OLD),  # all that are promised
        ("checks", "Result", "checks", "CheckResult"),
        ("checks.conformance", "Samples", "checks.conformance", "CheckSamples"),
        ("learners.base", "Execution", "learners.base", "StepRecording"),
        ("streams.images", "decode", "streams.images.image_source", "decode"),
        ("streams.images", "ImageSource", "streams", "ImageSource"),
    ],
)
def test_an_old_name_gives_the_new_object_and_names_it(
    module: str, old: str, new_module: str, new: str
) -> None:
    with pytest.warns(DeprecationWarning, match=rf"{old} is now streamgauge\..*{new}"):
        value = getattr(importlib.import_module(f"streamgauge.{module}"), old)
    assert value is getattr(importlib.import_module(f"streamgauge.{new_module}"), new)


def test_a_name_that_never_was_is_an_error_without_a_warning() -> None:
    with pytest.raises(AttributeError, match=r"'streamgauge\.cost' has no attribute 'clocks'"):
        _ = importlib.import_module("streamgauge.cost").clocks


@pytest.mark.parametrize("old", sorted(MOVED))
def test_every_old_module_path_can_be_imported(old: str) -> None:
    sys.modules.pop(f"streamgauge.{old}", None)
    with pytest.warns(DeprecationWarning, match=rf"streamgauge\.{old} is now streamgauge\."):
        module = importlib.import_module(f"streamgauge.{old}")
    path, _, attribute = MOVED[old].partition(":")
    successor = importlib.import_module(f"streamgauge.{path}")
    assert module is (getattr(successor, attribute) if attribute else successor)


def test_a_split_has_what_its_module_had() -> None:
    old = split_module("split_cifar10")
    assert old.Config(seed=3) == pickle.loads(pickle.dumps(old.Config(seed=3)))
    assert old.Config().tasks == 5
    assert old.DATA.name == "cifar10"


def test_a_log_is_audited_from_python_as_on_the_command_line(tmp_path: Path) -> None:
    label = np.repeat(np.arange(10), 30)
    by_columns = sg.audit_log({"label": label, "prediction": label})
    np.savez(tmp_path / "log.npz", label=label, prediction=label)
    assert sg.audit_log(tmp_path / "log.npz").values == by_columns.values
    run = sg.run(sg.stream(np.eye(10)[label], label), "blind", out=tmp_path / "runs")
    whole = sg.audit_log(run.path).values
    assert whole == sg.audit_log(run.path / "log" / "predictions").values


def test_an_old_module_path_runs_as_a_command() -> None:
    words = [sys.executable, "-m", "streamgauge.reference", "--help"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Usage:" in done.stdout
