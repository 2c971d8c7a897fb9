"""The code of `docs/bridges.md` runs as it stands there, in one session from an empty folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "bridges.md").read_text()
SECTIONS = ("Coming from river", "Coming from scikit-learn", "Coming from a loop of my own")


def test_the_code_runs_from_an_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("river")
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for section in SECTIONS:
        text = PAGE.split(f"## {section}\n")[1].split("\n## ")[0]
        for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
            exec(compile(code, section, "exec"), names)
    river, own = re.findall(r"^(0\.\d+) (0\.\d+)$", capsys.readouterr().out, re.MULTILINE)[0]
    assert float(river) == pytest.approx(float(own))
