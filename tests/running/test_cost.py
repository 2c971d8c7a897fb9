from __future__ import annotations

import itertools
import json
import math
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from streamgauge import catalogue, cli
from streamgauge.cost import energy
from streamgauge.running import job_cost as cost

# Passes as the real-time paper's fact sheet counts them: forward 1, backward 2, on 2B samples.
EXPECTED = {"er": 1, "ace": 1, "lwf": 4 / 3, "rwalk": 2, "polrs": 3, "mir": 8 / 3, "gss": 6.5}


@pytest.mark.parametrize("name", EXPECTED)
def test_relative_flops_are_within_three_per_cent(name: str) -> None:
    asked = {"model": "slim_resnet18", "memory": 100, "recall": 10, "warmup": 0, "candidates": 50}
    known = catalogue.learner(name).config
    settings = {k: v for k, v in asked.items() if hasattr(known, k)}
    # Small images keep it quick; the ratio of passes is that of the network, not of its input.
    (found,) = cost.measure(
        [catalogue.learner(name, **settings)], input_shape=(3, 8, 8), jobs=1, timed=False
    )
    assert found.relative_flops == pytest.approx(EXPECTED[name], rel=0.03)


# With two gradient steps on a batch. MIR chooses what it recalls once for both (16 units and 6
# more, to ER's 6), and GSS compares gradients once, when it stores.
TWO_STEPS = {
    "er": 2, "ace": 2, "lwf": 8 / 3, "rwalk": 4, "polrs": 6, "mir": 11 / 3, "gss": 7.5
}  # fmt: skip


@pytest.mark.parametrize("name", TWO_STEPS)
def test_relative_flops_of_two_gradient_steps(name: str) -> None:
    asked = {"model": "slim_resnet18", "memory": 100, "recall": 10, "warmup": 0, "candidates": 50,
             "passes": 2, "select": "batch"}  # fmt: skip
    known = catalogue.learner(name).config
    settings = {k: v for k, v in asked.items() if hasattr(known, k)}
    (found,) = cost.measure(
        [catalogue.learner(name, **settings)], input_shape=(3, 8, 8), jobs=1, timed=False
    )
    assert found.relative_flops == pytest.approx(TWO_STEPS[name], rel=0.03)


def test_whole_cycles_are_measured() -> None:
    def relative(name: str, **settings: object) -> float:
        recipe = catalogue.learner(name, model="cnn4", memory=20, recall=10, **settings)
        (found,) = cost.measure([recipe], input_shape=(3, 8, 8), jobs=1, timed=False)
        return found.relative_flops

    assert relative("er_plus", steps="4/3") == pytest.approx(4 / 3)
    assert relative("er_batch", train_batch=15) == pytest.approx(5 / 6, rel=0.01)  # 25 for 2 x 15
    # SCR's class means, in every job, every second, every third one
    one, two, three = (relative("scr", refresh=refresh) for refresh in (1, 2, 3))
    assert (one - three) / (one - two) == pytest.approx((1 - 1 / 3) / (1 - 1 / 2))
    assert 2 * (one - two) == pytest.approx(1 / 3, rel=0.1)  # 20 forward of ER's 20 there and back


class Counter:
    """A joule for every tick of the clock when idle, ten when busy; starts over at 1000."""

    def __init__(self) -> None:
        self.time, self.used, self.read_at = 0.0, 990.0, 0.0

    def joules(self) -> float:
        return self.used % 1000

    def sleep(self, seconds: float) -> None:
        self.time, self.used = self.time + seconds, self.used + seconds

    def job(self) -> None:
        self.time, self.used = self.time + 0.5, self.used + 5


def test_energy_is_that_of_a_window_and_above_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = Counter()
    one = energy.Counter("RAPL", counter.joules, wraps=1000.0)
    monkeypatch.setattr(energy, "counters", lambda device: ([one], ["the GPU's is asleep"]))
    found = energy.of_job(
        counter.job, torch.device("cpu"), now=lambda: counter.time, sleep=counter.sleep
    )
    assert found.joules == pytest.approx(5)
    assert found.above_idle == pytest.approx(4.5)
    assert found.source == "RAPL; the GPU's is asleep"
    monkeypatch.setattr(energy, "counters", lambda device: ([], ["a", "b"]))
    assert energy.of_job(counter.job, torch.device("cpu")) == (None, None, "a; b")


def test_rapl_is_read_for_every_package(tmp_path: Path) -> None:
    for number, value in enumerate((1_000_000, 2_500_000)):
        folder = tmp_path / f"intel-rapl:{number}"
        folder.mkdir()
        (folder / "energy_uj").write_text(f"{value}\n")
        (folder / "max_energy_range_uj").write_text("262143328850\n")
    (tmp_path / "intel-rapl:0:0").mkdir()  # a part of the first one
    found = energy._rapl(tmp_path)
    assert [one.joules() for one in found] == [1.0, 2.5]
    assert found[0].wraps == pytest.approx(262143.32885)
    with pytest.raises(FileNotFoundError):
        energy._rapl(tmp_path / "none")


def test_nvml_is_asked_for_the_device_that_torch_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def handle(name: str) -> str:
        asked.append(name)
        return "handle"

    nvml = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=handle,
        nvmlDeviceGetTotalEnergyConsumption=lambda handle: 12_345,
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    about = SimpleNamespace(uuid="01-23")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: about)
    found, _ = energy.counters(torch.device("cuda:0"))
    assert found[0].name == "NVML"
    assert found[0].joules() == 12.345
    assert asked == ["GPU-01-23"]
    monkeypatch.setitem(sys.modules, "pynvml", None)
    _, missing = energy.counters(torch.device("cuda:0"))
    assert "pip install 'streamgauge[energy]'" in missing[0]


def test_head_only_training_costs_about_a_third_of_training_all() -> None:
    recipes = [
        catalogue.learner(f"{train}=replay_only", model="slim_resnet18", recall=10, train=train)
        for train in ("head", "all")
    ]
    head, whole = cost.measure(recipes, input_shape=(3, 16, 16), jobs=1, timed=False)
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


def test_a_preset_is_measured_with_what_it_recalls(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A-GEM in the survey: 10 new samples and 200 recalled ones, three times."""
    words = ["streamgauge", "cost", "agem@survey-cifar100", "er", "--model", "cnn4", "--jobs", "1",
             "--memory", "250", "--json"]  # fmt: skip
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit):
        cli.main()
    agem, er = json.loads(capsys.readouterr().out)["costs"]
    assert agem["flops"] / er["flops"] == pytest.approx(3 * 210 / 20)


def test_times_are_those_of_turns_and_unknown_flops_are_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a machine whose speed changes by 16 from one job to the next, er is 1 of er."""
    load = itertools.cycle([1.0, 16.0, 3.0, 9.0, 2.0])
    pair: list[float] = []

    def seconds(self: cost.JobBenchmark) -> float:
        if not pair:
            pair[:] = [next(load)] * 2
        return pair.pop() * (2.0 if hasattr(self.learner, "sums") else 1.0)

    monkeypatch.setattr(cost.JobBenchmark, "time_job", seconds)
    monkeypatch.setattr(cost.JobBenchmark, "repeat_job", lambda self: None)
    sound = catalogue.learner(
        f"{Path(__file__).parents[1] / 'checks' / 'broken_learners.py'}:Sound"
    )
    recipes = [catalogue.learner("er", model="mlp", memory=20, recall=10), sound]
    er, twice = cost.measure(recipes, input_shape=(3, 8, 8), jobs=1)
    assert (er.relative_seconds, er.relative_seconds_low, er.relative_seconds_high) == (1, 1, 1)
    assert (twice.relative_seconds, twice.seconds) == (2, 2)
    assert er.busy
    assert er.reference_seconds == (1, 16)
    assert math.isnan(twice.flops)
    text = cost.cost_text([er, twice])
    assert re.search(r"Sound +unknown +2\.00x +2\.00 to 2\.00 +unknown", text)
    assert "too busy to tell the time of er, Sound: a job of er took 1e+03 to 1.6e+04 ms" in text
