"""The recorder that loops of other libraries share."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import streamgauge as sg
from streamgauge.bridges import avalanche
from streamgauge.bridges.hook import Hook


@pytest.mark.parametrize("goes_on", ["answer", "evaluate"])
def test_an_evaluation_that_an_error_ended_leaves_nothing_to_the_next(
    goes_on: str, tmp_path: Path
) -> None:
    hook = Hook(tmp_path / "run", stream="s", learner="mine", classes=2)
    hook.answer([0, 1], [0, 1])
    hook.count([0, 0, 0], [1, 1, 1])  # here an error ends the evaluation
    if goes_on == "answer":
        hook.answer([0, 1], [0, 1])
    else:
        with pytest.raises(sg.StreamgaugeError):
            hook.evaluated(-2)  # no task
    hook.count([1, 1], [1, 0])
    hook.evaluated(0)
    hook.close()
    evaluations = sg.Run(tmp_path / "run").table("evaluations")
    assert (evaluations["correct"].tolist(), evaluations["count"].tolist()) == ([1], [2])


def test_avalanches_evaluation_begins_at_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plugin is called as Avalanche's loop does; the package need not be installed."""
    monkeypatch.setattr(avalanche, "library_version", lambda _: "avalanche-lib 0")
    plugin = avalanche.Recorder(tmp_path / "run", stream="s", classes=2)
    strategy = SimpleNamespace(
        mb_output=np.eye(2), mb_y=np.array([0, 0]), experience=SimpleNamespace(current_experience=0)
    )
    for ended in (False, True):
        plugin.before_eval_exp(strategy)
        plugin.after_eval_iteration(strategy)
        if ended:
            plugin.after_eval_exp(strategy)
    plugin.close()
    assert sg.Run(tmp_path / "run").table("evaluations")["count"].tolist() == [2]
