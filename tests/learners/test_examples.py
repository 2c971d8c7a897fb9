"""The learners that `docs/learners.md` shows around models of other libraries."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import streamgauge as sg
from helpers import small_stream
from streamgauge import catalogue
from streamgauge.checks.conformance import check_learner

PAGE = (Path(__file__).parents[2] / "docs" / "learners.md").read_text()


def shown(heading: str) -> str:
    """The code below a heading of the page."""
    (code,) = re.findall(rf"## {heading}\n\n[^#]*?```python\n(.*?)```", PAGE, re.DOTALL)
    return str(code)


@pytest.mark.long
def test_the_example_around_a_torch_module_passes_the_check(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(shown("Around a torch module"))
    for result in check_learner(catalogue.learner(f"{tmp_path / 'mine.py'}:MyNetwork")):
        assert result.passed is not False, f"{result.name}: {result.why}"


@pytest.mark.parametrize(
    ("library", "heading", "learner"),
    [
        ("torch", "Around a torch module", "MyNetwork"),
        ("sklearn", "Around a model of scikit-learn or river", "MySGD"),
    ],
)
def test_the_examples_learn_and_repeat(
    tmp_path: Path, library: str, heading: str, learner: str
) -> None:
    pytest.importorskip(library)
    (tmp_path / "mine.py").write_text(shown(heading))
    runs: list[Any] = [
        sg.run(small_stream(), f"{tmp_path / 'mine.py'}:{learner}", out=tmp_path / name)
        for name in "ab"
    ]
    assert sg.score(runs[0])["online_accuracy"] > 0.3
    assert runs[0].predictions["prediction"].tolist() == runs[1].predictions["prediction"].tolist()
