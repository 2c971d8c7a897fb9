"""Run folders of earlier versions are scored, reported and resumed: see `tests/corpus/make.py`."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import streamgauge as sg
from streamgauge.record.verify import verify

sys.path.insert(0, str(Path(__file__).parents[1] / "corpus"))
import make

CORPUS = make.HERE

FOLDERS: dict[Path, dict[str, Any]] = {
    version.parent / folder: entry
    for version in sorted(CORPUS.glob("*/expected.json"))
    for folder, entry in json.loads(version.read_text()).items()
}
INTERRUPTED = [path for path in FOLDERS if path.parent.name == "interrupted"]


def short(path: Path) -> str:
    return path.relative_to(CORPUS).as_posix()


@pytest.mark.parametrize("path", FOLDERS, ids=short)
def test_an_old_run_has_the_scores_that_it_had(path: Path) -> None:
    found = {name: value for name, value in sg.score(sg.Run(path)).items() if not math.isnan(value)}
    expected = dict(FOLDERS[path]["score"])
    if expected.get("training_flops") == 0:  # nothing was counted: unknown since 0.2, decision 0014
        assert "training_flops" not in found
        del expected["training_flops"]
    assert {name: found.get(name) for name in expected} == pytest.approx(expected)


@pytest.mark.parametrize("path", [path for path in FOLDERS if path not in INTERRUPTED], ids=short)
def test_an_old_log_is_read_as_it_was(path: Path) -> None:
    run = sg.Run(path)
    assert make.log_hash(run) == FOLDERS[path]["log"]
    assert make.mean_values(run) == pytest.approx(FOLDERS[path]["means"])


def test_folders_with_checksums_are_as_they_were_made() -> None:
    found = list(verify([path for path in FOLDERS if path.parts[-3] in ("format2", "recorder2")]))
    assert len(found) == 3
    assert not any(one.problems or one.unchecked for one in found)


def test_old_runs_are_reported(tmp_path: Path) -> None:
    finished = [path for path in FOLDERS if path not in INTERRUPTED]
    page = sg.plot(map(sg.Run, finished), tmp_path / "report.html")
    assert "derpp" in Path(page).read_text()


@pytest.mark.parametrize(
    "path", [path for path in INTERRUPTED if "derpp" not in path.name], ids=short
)
def test_an_old_interrupted_run_is_resumed_to_the_same_log(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / path.name
    shutil.copytree(path, folder)
    before = sg.Run(folder)
    command = [sys.executable, "-m", "streamgauge.cli", "resume", str(folder), "--device", "cpu"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert f"goes on from step {before.step}" in ended.stdout + ended.stderr
    run = sg.Run(folder)
    assert run.done
    assert make.log_hash(run) == FOLDERS[path]["log"]
    assert make.mean_values(run) == pytest.approx(FOLDERS[path]["means"], rel=1e-3)


def test_an_old_interrupted_run_of_a_method_that_changed_is_refused(tmp_path: Path) -> None:
    """DER++ stores other logits since 0.2."""
    (path,) = (path for path in INTERRUPTED if "derpp" in path.name)
    shutil.copytree(path, tmp_path / path.name)
    with pytest.raises(sg.StreamgaugeError, match="the code of the learner derpp changed"):
        sg.resume(tmp_path / path.name, device="cpu", log=lambda _: None)
