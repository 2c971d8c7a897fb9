"""What the documentation shows must work as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import streamgauge as sg
from streamgauge import catalogue
from streamgauge.checks.conformance import check_learner
from streamgauge.versions import VERSION

ROOT = Path(__file__).parents[2]


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def test_the_five_lines_of_the_readme_run(tmp_path: Path) -> None:
    (code,) = blocks("README.md")
    assert len([line for line in code.splitlines() if line and "import" not in line]) <= 6
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "near_future_accuracy@200" in done.stdout
    assert (tmp_path / "report.html").exists()


def test_the_table_of_the_page_on_reports_is_latex(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("jinja2")
    monkeypatch.chdir(tmp_path)
    x, y = np.zeros((200, 2), np.float32), np.arange(200) % 2
    for seed in (0, 1):
        sg.run(sg.stream(x, y, held_out=0.2), "majority", seed=seed, progress=False)
    (code,) = [block for block in blocks("docs/report.md") if "to_latex" in block]
    exec(code, {})
    table = capsys.readouterr().out
    assert table.startswith("\\begin{tabular}")
    assert re.search(r"majority & \d+\.\d & \d+\.\d & \d+\.\d & \d+\.\d", table)


def test_the_learner_of_contributing_is_short_and_passes_the_check(tmp_path: Path) -> None:
    (code,) = blocks("CONTRIBUTING.md")
    assert len(code.splitlines()) < 60
    (tmp_path / "fading.py").write_text(code)
    for result in check_learner(catalogue.learner(f"{tmp_path / 'fading.py'}:FadingMeans")):
        assert result.passed is not False, f"{result.name}: {result.why}"


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/**/*.md")))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_pages_for_citing_and_for_programs_are_up_to_date() -> None:
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {VERSION}\n" in citation
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+), (\d{4}-\d\d-\d\d)$", changes, re.MULTILINE)
    assert newest is not None, "the newest version of the changelog has no date"
    assert newest[1] == VERSION
    assert f"\ndate-released: {newest[2]}\n" in citation
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / "llms.txt").read_text())
    assert len(links) > 10
    assert [target for target in links if not (ROOT / target).exists()] == []


def test_the_glossary_has_each_word_once() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    entries = [line for line in text.splitlines() if line.startswith("| **")]
    words = [word for line in entries for word in re.findall(r"\*\*([^*]+)\*\*", line)]
    assert len(words) > 40
    assert sorted(words) == sorted(set(words))
