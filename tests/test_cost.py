from __future__ import annotations

import json
import sys

import pytest

from streamgauge import catalogue, cli, cost

# Passes as the real-time paper's fact sheet counts them: forward 1, backward 2, on 2B samples.
EXPECTED = {"er": 1, "ace": 1, "lwf": 4 / 3, "rwalk": 2, "polrs": 3, "mir": 8 / 3, "gss": 6.5}


@pytest.mark.parametrize("name", EXPECTED)
def test_relative_flops_are_within_three_per_cent(name: str) -> None:
    asked = {"model": "slim_resnet18", "memory": 100, "recall": 10, "warmup": 0, "candidates": 50}
    known = catalogue.learner(name).config
    settings = {k: v for k, v in asked.items() if hasattr(known, k)}
    # Small images keep it quick; the ratio of passes is that of the network, not of its input.
    (found,) = cost.measure([catalogue.learner(name, **settings)], input_shape=(3, 16, 16), jobs=1)
    assert found.relative_flops == pytest.approx(EXPECTED[name], rel=0.03)


def test_head_only_training_costs_about_a_third_of_training_all() -> None:
    recipes = [
        catalogue.learner(f"{train}=replay_only", model="slim_resnet18", recall=10, train=train)
        for train in ("head", "all")
    ]
    head, whole = cost.measure(recipes, input_shape=(3, 16, 16), jobs=1)
    assert 0.32 < head.flops / whole.flops < 0.35


def test_the_command_prints_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["streamgauge", "cost", "er_lwf", "--model", "cnn4", "--jobs", "1", "--json"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 0
    (found,) = json.loads(capsys.readouterr().out)["costs"]
    assert found["relative_flops"] == pytest.approx(4 / 3, rel=0.03)
    assert found["sample_bytes"] == 100 * 3 * 32 * 32
