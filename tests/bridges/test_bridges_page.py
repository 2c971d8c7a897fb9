"""The code and the commands of `docs/bridges.md` run as they stand there: every section from an
empty folder with a table `mine.csv`. `test_environments.py` runs the sections of Avalanche, CapyMOA
and Lightning in environments that have these libraries."""

from __future__ import annotations

import importlib
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamgauge as sg
from streamgauge import cli

PAGE = (Path(__file__).parents[2] / "docs" / "bridges.md").read_text()
# Section -> the library that it needs.
SECTIONS = {
    "river": "river",
    "scikit-learn": "sklearn",
    "a loop of my own": "sklearn",
    "Avalanche": "avalanche",
    "CapyMOA": "capymoa",
    "a PyTorch loop": "torch",
    "Lightning": "lightning",
}
BLOCK = re.compile(r"```(python)?\n(.*?)```", re.DOTALL)


def write_table(path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [f"{a:.3f},{b:.3f},{'ab'[int(a > b)]}" for a, b in rng.normal(size=(120, 2))]
    path.write_text("\n".join(["u,v,label", *rows]))


def command(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code in (0, None), words


def test_every_section_is_walked() -> None:
    assert re.findall("^## Coming from (.*)$", PAGE, re.MULTILINE) == list(SECTIONS)


@pytest.mark.parametrize("section", SECTIONS, ids=list(SECTIONS.values()))
def test_a_section_from_an_empty_folder(
    section: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if SECTIONS[section] == "capymoa":
        importlib.import_module("streamgauge.bridges.capymoa")  # finds Java
    pytest.importorskip(SECTIONS[section])
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "mine.csv")
    names: dict[str, Any] = {}
    text = PAGE.split(f"## Coming from {section}\n")[1].split("\n## ")[0]
    for language, code in BLOCK.findall(text):
        if language:
            exec(compile(code, section, "exec"), names)
            continue
        for line in code.splitlines():
            if line.startswith("streamgauge "):
                command(shlex.split(line), monkeypatch)
    if section == "river":
        printed = re.findall(r"^(0\.\d+) (0\.\d+)$", capsys.readouterr().out, re.MULTILINE)
        theirs, ours = map(float, printed[0])
        assert theirs == pytest.approx(ours)
    accuracies = [sg.score(run)["online_accuracy"] for run in sg.find_runs("runs")]
    recorded = set(re.findall(r'"runs/[\w-]+"', text))
    assert len(accuracies) == len(recorded) + text.count("sg.run(") + text.count("--learner ")
    assert min(accuracies) > 0.5
