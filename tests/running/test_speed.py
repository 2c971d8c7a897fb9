"""Costs by name, stream speeds, budgets, and the ER beside each method."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import sys
from fractions import Fraction
from itertools import pairwise
from math import floor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge import catalogue, cli
from streamgauge.errors import StreamgaugeError
from streamgauge.record import Run, find_runs
from streamgauge.report import leaderboard
from streamgauge.running import costs as speed
from streamgauge.running import job_cost as cost
from streamgauge.running import runner
from streamgauge.running.plan import Experiment, PlannedRun, plan
from streamgauge.running.runner import resume, run_all
from streamgauge.suites import realtime
from streamgauge.suites.running import configured, plan_rows

SMALL = {"stream.length": 250, "stream.size": 8, "stream.classes": 5, "protocol.evaluate": "never"}
ONE_STEP = {"er": "1", "ace": "1", "lwf": "4/3", "rwalk": "2", "polrs": "3", "mir": "5/2",
            "gss": "6"}  # fmt: skip
# Table 4 of the appendix of Ghunaim et al. 2023, rounded down there (LwF, MIR, GSS).
TWO_STEPS = {"er": "2", "ace": "2", "lwf": "5/2", "rwalk": "4", "polrs": "6", "mir": "7/2",
             "gss": "7"}  # fmt: skip

MINE = '''
import torch

class Counts:
    """Counts labels: quick, and without a published cost."""
    def __init__(self, spec, source, seed, device):
        self.counts = torch.zeros(spec.classes, device=device)
    def predict(self, x):
        return self.counts.expand(len(x), -1)
    def learn(self, batch, predicted):
        self.counts = self.counts.index_add(0, batch.y, torch.ones(len(batch.y)))
    def state_dict(self):
        return {"counts": self.counts}
    def load_state_dict(self, state):
        self.counts = state["counts"]
'''
KINDS = '''
from streamgauge.learners.replay import er
from streamgauge.learners.replay.er import Config

class Sometimes(er.ER):
    """ER that trains twice on every second batch, and says so."""
    def job_kind(self):
        return "double" if self.progress.batches % 2 else "single"
    def learn(self, batch, predicted):
        if self.job_kind() == "double":
            self.update(self.loss(batch, self.recall(batch)))
        return super().learn(batch, predicted)
'''


def quiet(_: str) -> None:
    pass


def experiment(*learners: str, seeds: int = 1, **asked: Any) -> Experiment:
    settings = {**SMALL, **asked.pop("settings", {})}
    return Experiment("albums", learners, seeds, settings, **asked)


def costs(planned: list[PlannedRun]) -> dict[str, str]:
    return {one.recipe.name: one.protocol.cost for one in planned}


def trained(run: Run) -> list[int]:
    return run.jobs["step"][run.jobs["kind"] == "learn"].tolist()


def versions(run: Run) -> list[int]:
    step, version = run.predictions["step"], run.predictions["version"]
    return [int(version[step == t][0]) for t in range(run.stream["steps"])]


def by_ticks(job: Fraction, steps: int) -> tuple[list[int], list[int]]:
    """Batches whose training is done by the end, and the version at each step: time goes by in
    ticks so small that everything happens on one, and the learner takes the newest batch."""
    ticks = job.denominator
    left, at_work, newest = 0, None, None
    done: list[int] = []
    seen = []
    for now in range(steps * ticks + 1):
        if at_work is not None and left == 0:
            done.append(at_work)
            at_work = None
        if now == steps * ticks:
            break
        if now % ticks == 0:
            newest = now // ticks
            seen.append(len(done))
        if at_work is None and newest is not None:
            at_work, newest, left = newest, None, job.numerator
        left -= 1
    return done, seen


# What a learner costs.


def test_every_learner_of_the_paper_gets_its_own_published_cost() -> None:
    planned = plan(experiment(*ONE_STEP, speed="fast"))
    assert costs(planned) == ONE_STEP
    planned = plan(experiment(*ONE_STEP, settings={"protocol.cost": "paper"}))
    assert costs(planned) == ONE_STEP


def test_two_gradient_steps_have_their_published_costs() -> None:
    planned = plan(experiment(*TWO_STEPS, gradient_steps=2))
    assert costs(planned) == TWO_STEPS
    assert all(one.recipe.config.passes == 2 for one in planned)
    (mir,) = [one.recipe.config for one in planned if one.recipe.name == "mir"]
    assert mir.select == "batch"  # 7/2 is with one selection per batch


@pytest.mark.parametrize(("name", "counted"), [("mir", "11/3"), ("gss", "15/2"), ("lwf", "8/3")])
def test_the_costs_of_two_steps_as_counted_are_rounded_down_in_the_paper(
    name: str, counted: str
) -> None:
    settings = {"protocol.cost": "measured", "learner.memory": 100}
    (one,) = plan(experiment(name, gradient_steps=2, settings=settings))
    assert one.relative is not None
    assert float(one.relative.cost) == pytest.approx(float(Fraction(counted)), rel=0.05)
    assert math.floor(2 * Fraction(counted)) == 2 * Fraction(TWO_STEPS[name]) + (name == "gss")
    assert one.protocol.cost == str(one.relative.cost)


def test_a_number_is_what_a_job_lasts_as_ever() -> None:
    planned = plan(experiment("er", "blind", settings={"protocol.cost": "7/3"}))
    assert costs(planned) == {"er": "7/3", "blind": "7/3"}
    planned = plan(experiment("er", "mir"))
    assert costs(planned) == {"er": "1", "mir": "1"}
    kinds = {"protocol.costs": ("filling=1", "steady=3")}
    (one,) = plan(experiment("er", settings=kinds))
    assert one.protocol.costs == ("filling=1", "steady=3")


def test_a_learners_own_cost_goes_before_everybodys() -> None:
    own = {"protocol.cost": "paper", "finetune.cost": "1/2", "slow.cost": 4}
    planned = plan(experiment("er", "finetune", "slow=mir", "blind", settings=own))
    assert costs(planned) == {"er": "1", "finetune": "1/2", "slow": "4", "blind": "1"}


def test_unpublished_and_wrong_costs_get_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    for learner in ("finetune", f"{tmp_path / 'mine.py'}:Counts"):
        with pytest.raises(StreamgaugeError, match=r"no published cost; measure it \(--\w+.cost"):
            plan(experiment(learner, speed="fast"))
        plan(experiment(learner, speed="slow"))  # where nobody asks for its cost
    with pytest.raises(StreamgaugeError, match="published costs are for 1 or 2"):
        plan(experiment("er", gradient_steps=3))
    with pytest.raises(StreamgaugeError, match="one selection per batch"):
        plan(experiment("mir", speed="fast", settings={"mir.passes": 2}))
    for wrong in ("papr", "0", True):
        with pytest.raises(StreamgaugeError, match="paper or measured"):
            plan(experiment("er", settings={"protocol.cost": wrong}))
    with pytest.raises(StreamgaugeError, match="did you mean 'fast'"):
        plan(experiment("er", speed="fats"))


def test_er_with_other_steps_costs_its_steps() -> None:
    planned = plan(experiment("er_minus", speed="fast", settings={"er_minus.steps": "7/2"}))
    assert costs(planned) == {"er_minus": "7/2"}


def test_a_measured_cost_is_that_of_the_runs_own_network_and_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = experiment("mir", settings={"protocol.cost": "measured", "mir.memory": 60})
    (first,) = run_all(asked, out=tmp_path, log=quiet)
    recipe = catalogue.learner("mir", memory=60)
    (counted,) = cost.measure([recipe], input_shape=(3, 8, 8), classes=5, batch=10)
    stored = first.header["config"]
    assert float(Fraction(stored["protocol"]["cost"])) == pytest.approx(
        counted.relative_flops, 1e-3
    )
    assert stored["measured_cost"]["relative"] == stored["protocol"]["cost"]

    def never(*_: Any) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(speed, "measured", never)
    said: list[str] = []
    (again,) = run_all(asked, out=tmp_path, log=said.append)
    assert again.path == first.path
    assert "complete already" in said[0]
    # An interrupted run has its cost in its configuration.
    monkeypatch.undo()
    elsewhere = dataclasses.replace(asked, settings={**asked.settings, "mir.seed": 7})

    def stop(*_: Any) -> Any:
        def progress(loop: Any) -> None:
            if loop.step == 9:
                loop.save()
                raise KeyboardInterrupt

        return progress

    with pytest.raises(KeyboardInterrupt):
        list(run_all(elsewhere, out=tmp_path / "b", watch=stop, log=quiet))
    monkeypatch.setattr(speed, "measured", never)
    (finished,) = resume(tmp_path / "b", log=quiet)
    assert finished.done
    assert finished.header["config"]["measured_cost"] == stored["measured_cost"]
    assert trained(finished) == trained(first)
    # Another network is another measurement.
    with pytest.raises(AssertionError, match="again"):
        plan(dataclasses.replace(asked, settings={**asked.settings, "mir.recall": 3}), tmp_path)


def test_the_measured_cost_of_large_memories_and_warm_ups(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    measure = cost.measure

    def spy(recipes: list[Any], **how: Any) -> Any:
        given.extend(recipes)
        return measure(recipes, **how)

    monkeypatch.setattr(cost, "measure", spy)
    asked = {"protocol.cost": "measured", "lwf.memory": 50_000, "lwf.warmup": 9_999}
    (one,) = plan(experiment("lwf", settings=asked))
    assert (given[0].config.memory, given[0].config.warmup) == (10 * speed.FILLED, 0)
    assert (one.recipe.config.memory, one.recipe.config.warmup) == (50_000, 9_999)
    assert float(Fraction(one.protocol.cost)) == pytest.approx(4 / 3, rel=0.03)


def test_what_recalls_nothing_is_measured_beside_an_er_that_does() -> None:
    planned = plan(experiment("finetune", "er", settings={"protocol.cost": "measured"}))
    assert costs(planned) == {"finetune": "1/2", "er": "1"}


def test_a_cost_in_flops_that_cannot_be_counted_is_refused_and_of_no_training_is_0() -> None:
    settings = {"protocol.cost": "measured"}
    with pytest.raises(StreamgaugeError, match=r"FLOPs of Sound are unknown.*--Sound\.cost"):
        plan(experiment(f"{Path(__file__).parents[1] / 'checks' / 'broken_learners.py'}:Sound",
                        settings=settings))  # fmt: skip
    (one,) = plan(experiment("blind", settings=settings))
    assert one.relative is not None
    assert one.relative.cost == 0


def test_kinds_of_jobs_are_measured_and_stored_by_kind(tmp_path: Path) -> None:
    (tmp_path / "kinds.py").write_text(KINDS)
    asked = experiment(f"{tmp_path / 'kinds.py'}:Sometimes", speed="faster",
                       settings={"protocol.cost": "measured"})  # fmt: skip
    (one,) = plan(asked)
    assert set(one.protocol.costs) == {"single=2", "double=4"}
    (run,) = run_all(asked, out=tmp_path, log=quiet)
    assert run.header["config"]["measured_cost"]["by_kind"] == {"single": "1", "double": "2"}
    starts = np.cumsum([0] + [2, 4] * 20)
    assert trained(run) == [s for s, e in pairwise(starts) if e <= 24]
    with pytest.raises(StreamgaugeError, match="differently by kind"):
        plan(dataclasses.replace(asked, baselines=True))


# Speeds.


@pytest.mark.parametrize(
    ("asked", "own", "job"),
    [
        ("fast", "4/3", "4/3"),
        ("fast", "5/2", "5/2"),
        ("fast", "1/3", "1/3"),
        ("slow", "5/2", "1"),
        ("faster", "4/3", "8/3"),
        ("2", "7/3", "14/3"),
        ("1/2", "3", "3/2"),
        ("1.5x", "2", "3"),
    ],
)
def test_speeds_give_the_sequences_of_an_event_simulation(
    tmp_path: Path, asked: str, own: str, job: str
) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    made = experiment(f"mine={tmp_path / 'mine.py'}:Counts", speed=asked,
                      settings={"mine.cost": own})  # fmt: skip
    (run,) = run_all(made, out=tmp_path, log=quiet)
    done, seen = by_ticks(Fraction(job), run.stream["steps"])
    assert (trained(run), versions(run)) == (done, seen)


def test_several_learners_in_one_command_each_have_their_clock(tmp_path: Path) -> None:
    for run in run_all(experiment("er", "lwf", "mir", speed="fast"), out=tmp_path, log=quiet):
        done, seen = by_ticks(Fraction(ONE_STEP[run.learner]), run.stream["steps"])
        assert (trained(run), versions(run)) == (done, seen)


def test_what_costs_nothing_is_never_late() -> None:
    planned = plan(experiment("blind", "er", speed=3))
    assert costs(planned) == {"blind": "1", "er": "3"}
    charged = {"protocol.predict_cost": "1/2"}
    planned = plan(experiment("blind", speed=3, settings=charged))
    assert costs(planned) == {"blind": "1/1000"}


# Budgets.


@pytest.mark.parametrize("budget", [6, 10, "7"])
def test_a_budget_buys_whole_updates(budget: Any) -> None:
    planned = plan(experiment(*ONE_STEP, budget=budget))
    for one in planned:
        own, passes = Fraction(ONE_STEP[one.recipe.name]), one.recipe.config.passes
        assert passes * own <= Fraction(budget) < (passes + 1) * own
        assert one.protocol.cost == "1"


def test_budgets_that_cannot_be_met_get_a_sentence() -> None:
    with pytest.raises(StreamgaugeError, match="too small for gss: one of its updates costs 6"):
        plan(experiment("er", "gss", budget=5))
    with pytest.raises(StreamgaugeError, match="ER's updates per batch, such as 1, 5 or 10"):
        plan(experiment("er", budget="all"))
    with pytest.raises(StreamgaugeError, match="no setting 'passes'"):
        plan(experiment("ncm", budget=5, settings={"ncm.cost": 1}))
    with pytest.raises(StreamgaugeError, match="leave one of them out"):
        plan(experiment("er", budget=5, settings={"er.passes": 2}))
    with pytest.raises(StreamgaugeError, match="cannot both be given"):
        plan(experiment("er", budget=5, speed="fast"))
    with pytest.raises(StreamgaugeError, match=r"from er_plus\.steps"):
        plan(experiment("er_plus", gradient_steps=2))
    (one,) = plan(experiment("blind", budget=5))
    assert one.protocol.cost == "1"


def test_updates_within_a_budget_are_made(tmp_path: Path) -> None:
    """ER with a budget of 3 is ER++ of 3 steps, answer for answer."""
    (er,) = run_all(experiment("er", budget=3), out=tmp_path, log=quiet)
    plus = experiment("er_plus", settings={"er_plus.steps": "3"})
    (three,) = run_all(plus, out=tmp_path, log=quiet)
    assert (er.predictions["prediction"] == three.predictions["prediction"]).all()
    assert er.predictions["confidence"].tolist() == three.predictions["confidence"].tolist()


# Baselines.


def steps_in_log(run: Run) -> list[int]:
    table = run.training
    return [int(v) for v in table["value"][table["name"] == "steps"]]


@pytest.mark.parametrize("asked", ["fast", "faster"])
def test_baselines_take_the_methods_steps_at_its_times(tmp_path: Path, asked: str) -> None:
    made = experiment("er", "lwf", "mir", speed=asked, baselines=True)
    runs = {run.learner: run for run in run_all(made, out=tmp_path, log=quiet)}
    plain = {"er++(er)"} if asked == "faster" else set()  # there ER is late, and this is not
    beside = {"er++(lwf)", "er--(lwf)", "er++(mir)", "er--(mir)"}
    assert set(runs) == {"er", "lwf", "mir"} | beside | plain
    steps = runs["er"].stream["steps"]
    for method in ("lwf", "mir"):
        c = Fraction(ONE_STEP[method])
        plus, minus = runs[f"er++({method})"], runs[f"er--({method})"]
        assert trained(plus) == list(range(steps))
        assert versions(plus) == list(range(steps))
        assert trained(minus) == trained(runs[method])
        assert versions(minus) == versions(runs[method])
        for run in (plus, minus):
            count = len(trained(run))
            assert steps_in_log(run) == [floor((i + 1) * c) - floor(i * c)
                                             for i in range(count)]  # fmt: skip
            assert sum(steps_in_log(run)) == floor(count * c)


def test_undelayed_methods_have_one_baseline_and_equal_ones_are_run_once(tmp_path: Path) -> None:
    made = experiment("er", "ace", "rwalk", "twin=rwalk", "blind", speed="slow", baselines=True)
    planned = plan(made)
    names = [one.recipe.name for one in planned]
    assert names == ["er", "ace", "rwalk", "twin", "blind", "er++(rwalk,twin)"]
    assert planned[-1].baseline_of == ("rwalk", "twin")
    planned = plan(dataclasses.replace(made, speed="fast"))
    assert [one.recipe.name for one in planned][5:] == ["er++(rwalk,twin)", "er--(rwalk,twin)"]
    # Without ER in the experiment, a method that costs as much brings it.
    planned = plan(experiment("ace", speed="fast", baselines=True))
    assert [one.recipe.name for one in planned] == ["ace", "er++(ace)"]
    (_, plus) = run_all(experiment("ace", baselines=True), out=tmp_path, log=quiet)
    (er,) = run_all(experiment("er"), out=tmp_path, log=quiet)
    assert (er.predictions["prediction"] == plus.predictions["prediction"]).all()


def test_baselines_have_the_settings_of_the_experiments_er() -> None:
    own = {"er.lr": 0.3, "learner.memory": 70, "mir.lr": 0.01, "er.seed": 5}
    planned = plan(experiment("mir", "er", speed="fast", baselines=True, settings=own))
    for one in planned[2:]:
        config = one.recipe.config
        assert (config.lr, config.memory, config.steps, one.learner_seed) == (0.3, 70, "5/2", 5)
    alone = {"gss.lr": 0.2, "gss.memory": 40, "gss.momentum": 0.5}
    planned = plan(experiment("gss", speed="fast", baselines=True, settings=alone))
    config = planned[1].recipe.config
    assert (config.lr, config.memory, config.momentum, config.policy) == (0.2, 40, 0.5, "reservoir")
    planned = plan(experiment("mir@realtime-cifar100", speed="fast", baselines=True))
    preset = catalogue.presets()["er"]["realtime-cifar100"]
    assert planned[1].recipe.config.lr == preset["lr"] != planned[0].recipe.config.lr


def test_baselines_go_by_the_papers_code_where_the_clock_does(tmp_path: Path) -> None:
    made = experiment("lwf", speed="fast", baselines=True, settings={"protocol.as_published": True})
    runs = {run.learner: run for run in run_all(made, out=tmp_path, log=quiet)}
    steps = runs["lwf"].stream["steps"]
    # RealtimeOCL: of every four batches the first three are trained; 2, 1 and 1 steps on them.
    assert (
        trained(runs["er--(lwf)"])
        == [t for t in range(steps) if t % 4 < 3][: len(trained(runs["lwf"]))]
    )
    assert versions(runs["er--(lwf)"]) == versions(runs["lwf"])
    assert steps_in_log(runs["er--(lwf)"])[:6] == [2, 1, 1, 2, 1, 1]
    assert steps_in_log(runs["er++(lwf)"])[:6] == [2, 1, 1, 2, 1, 1]


def test_baselines_of_measured_costs_and_budgets() -> None:
    planned = plan(experiment("lwf", baselines=True, settings={"protocol.cost": "measured"}))
    measured = planned[0].protocol.cost
    assert [one.recipe.config.steps for one in planned[1:]] == [measured, measured]
    planned = plan(experiment("er", "lwf", "mir", budget=5, baselines=True))
    assert [one.recipe.name for one in planned] == ["er", "lwf", "mir"]  # ER spends it all: it is
    planned = plan(experiment("lwf", "mir", budget=5, baselines=True))
    assert [one.recipe.name for one in planned][2:] == ["er++(lwf,mir)"]
    assert planned[2].recipe.config.steps == "5"


def test_methods_and_baselines_stand_on_one_board_with_their_costs(tmp_path: Path) -> None:
    made = experiment("er", "mir", speed="fast", baselines=True)
    (board,) = leaderboard(run_all(made, out=tmp_path, log=quiet))
    assert {row.learner for row in board.rows} == {"er", "mir", "er++(mir)", "er--(mir)"}
    for told in ("mir 5/2", "er 1", "er++(mir) 1", "er--(mir) 5/2"):
        assert told in board.timing
    (both,) = leaderboard(
        [*run_all(dataclasses.replace(made, speed="slow"), out=tmp_path, log=quiet),
         *run_all(made, out=tmp_path, log=quiet)]
    )  # fmt: skip
    named = {row.learner for row in both.rows if row.learner.startswith("mir")}
    assert named == {"mir (protocol.cost=1)", "mir (protocol.cost=5/2)"}


# The command, and TOML.


def call(monkeypatch: pytest.MonkeyPatch, capsys: Any, *words: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["streamgauge", *words])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    printed = capsys.readouterr()
    return int(stop.value.code or 0), printed.out, printed.err


def test_options_and_toml_say_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.toml").write_text(
        'learners = ["er", "lwf"]\nspeed = 2\nbaselines = true\n'
        '[stream]\nname = "albums"\nlength = 60\nsize = 8\n[er]\nmemory = 30\n'
    )
    code, out, _ = call(monkeypatch, capsys, "run", "a.toml", "--json")
    assert code == 0
    by_file = {one["id"] for one in json.loads(out)["runs"]}
    words = ["run", "--stream", "albums", "--learner", "er", "--learner", "lwf", "--speed"]
    words += ["faster", "--baselines", "--stream.length", "60", "--stream.size", "8"]
    code, out, _ = call(monkeypatch, capsys, *words, "--er.memory", "30", "--json")
    assert {one["id"] for one in json.loads(out)["runs"]} == by_file
    assert len(by_file) == 5
    for entry, sentence in (
        ("speed = true", "'speed' in b.toml must be a number or text"),
        ('baselines = "yes"', "'baselines' in b.toml must be true or false"),
        ("gradient_steps = 1.5", "'gradient_steps' in b.toml must be a number"),
        ("bugdet = 5", "did you mean 'budget'"),
    ):
        Path("b.toml").write_text(f'stream = "albums"\nlearners = ["er"]\n{entry}\n')
        code, _, err = call(monkeypatch, capsys, "run", "b.toml")
        assert (code, sentence in err) == (2, True), err


# The pictures.


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=8))
def test_rank_correlation_against_counting(pairs: list[tuple[int, int]]) -> None:
    def ranks(values: list[int]) -> list[float]:
        return [sum(o < v for o in values) + (1 + sum(o == v for o in values)) / 2 for v in values]

    x, y = (ranks([pair[side] for pair in pairs]) for side in (0, 1))
    n, mean = len(pairs), (len(pairs) + 1) / 2
    cov = sum((a - mean) * (b - mean) for a, b in zip(x, y, strict=True)) / n
    var = [sum((a - mean) ** 2 for a in side) / n for side in (x, y)]
    found = realtime.rank_correlation([p[0] for p in pairs], [p[1] for p in pairs])
    if var[0] == 0 or var[1] == 0:
        assert found != found
    else:
        assert found == pytest.approx(cov / (var[0] * var[1]) ** 0.5)


def accuracy(made: Any, name: str) -> float:
    logs = [run.predictions for planned, run in made if planned.recipe.name == name]
    return float(np.mean([(log["prediction"] == log["label"]).mean() for log in logs]))


def test_all_methods_of_the_paper_are_planned_with_its_shares_of_the_stream() -> None:
    settings = {"stream.length": 200}
    suite = realtime.realtime_suite(settings=settings)
    fast, slow = (suite.of_part(name)[0].experiment(1) for name in ("fast", "slow"))
    assert costs(plan(slow)[:7]) == dict.fromkeys(ONE_STEP, "1")
    assert costs(plan(fast)[:7]) == ONE_STEP
    beside = {f"{kind}({m})" for m in ("lwf", "rwalk", "mir", "polrs", "gss")
              for kind in ("er++", "er--")}  # fmt: skip
    assert {one.recipe.name for one in plan(fast)} == set(ONE_STEP) | beside
    assert {row.name for row in suite.of_part("fast")} == set(ONE_STEP) | beside
    assert slow.settings["learner.recall"] == fast.settings["gss.subset"] == 10
    assert slow.settings["mir.candidates"] == 50
    assert (slow.settings["er.policy"], slow.settings["rwalk.strength"]) == ("fifo", 2)
    samples = 190  # 5 % of 200 are held out
    assert slow.settings["lwf.warmup"] == round(samples / 20)
    assert fast.settings["rwalk.warmup"] == round(samples / 20 / 2)
    assert slow.settings["polrs.rate_interval"] == round(samples * 5 / 90)
    assert fast.settings["polrs.rate_interval"] == round(samples * 5 / 90 / 3)


def test_the_pictures_of_the_paper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"stream.length": 150, "stream.size": 8, "stream.classes": 5}
    methods = ("er", "ace", "mir")
    words = [word for k, v in settings.items() for word in (f"--{k}", str(v))]
    command = ["realtime", "--seeds", "1", "--out", str(tmp_path), "--methods", ",".join(methods)]
    code, out, _ = call(monkeypatch, capsys, *command, *words)
    assert code == 0
    page = (tmp_path / "realtime.html").read_text()
    assert "Fast stream" in page
    assert "<script src" not in page
    figures = json.loads(re.search(r'id="figures">(.*?)</script>', page)[1])  # type: ignore[index]
    assert len({str(figure["layout"]["yaxis"]["range"]) for figure in figures}) == 1
    runs = sorted(tmp_path.glob("*/run.json"))
    # MIR is late on the fast stream only, and has ER++ and ER-- there; the rest is shared.
    assert len(runs) == 3 + 1 + 2
    pictures = {}
    suite = realtime.realtime_suite(methods=methods, settings=settings)
    for name, made in realtime.runs_by_part(suite, find_runs([tmp_path]), [0]).items():
        pictures[name] = realtime.picture(name, made)
        lines = {line.method: line for line in pictures[name].lines}
        assert tuple(lines) == methods  # by cost
        ahead = []
        for method, line in lines.items():
            assert str(line.cost) == ONE_STEP[method]
            assert line.job == (ONE_STEP[method] if name == "fast" else "1")
            assert line.accuracy.mean == pytest.approx(accuracy(made, method))
            if method == "er":
                assert line.plus is line.minus is None
                continue
            plus = "er" if method == "ace" else f"er++({method})"
            minus = f"er--({method})" if name == "fast" and method != "ace" else plus
            assert line.plus is not None
            assert line.minus is not None
            assert line.plus.mean == pytest.approx(accuracy(made, plus))
            assert line.minus.mean == pytest.approx(accuracy(made, minus))
            if line.accuracy.mean >= line.plus.mean:
                ahead.append(method)
        (about,) = [s for s in pictures[name].sentences if s.startswith("ER++ ")]
        _, _, exceptions = about.partition("Exceptions:")
        assert [m for m in lines if f" {m} is " in exceptions] == ahead
        assert f"{pictures[name].correlation:+.2f}" in out
    code, out, _ = call(monkeypatch, capsys, *command, *words, "--speeds", "slow", "--json")
    (plain,) = json.loads(out)["pictures"]
    assert [line["method"] for line in plain["lines"]] == list(methods)
    assert plain["lines"][1]["accuracy"]["mean"] == pictures["slow"].lines[1].accuracy.mean
    assert sorted(tmp_path.glob("*/run.json")) == runs


def test_a_picture_pairs_runs_by_seed_and_knows_a_late_er(tmp_path: Path) -> None:
    asked = experiment("er", "ace", speed=3, baselines=True, seeds=2)
    made = list(runner.execute(asked, out=tmp_path, log=quiet))
    (er, ace) = realtime.picture("3", made).lines
    assert (er.job, ace.job) == ("3", "3")
    assert er.minus is None  # it is itself
    assert er.plus == ace.plus
    assert er.plus is not None
    assert er.plus.mean == pytest.approx(accuracy(made, "er++(er,ace)"))
    assert ace.minus == er.accuracy
    again = realtime.picture("3", made[::-1])  # as they may end side by side
    assert {line.method: line for line in again.lines} == {"er": er, "ace": ace}


def test_every_exception_is_stated() -> None:
    from streamgauge.metrics import compare, spread

    def line(method: str, own: list[list[int]], plus: list[list[int]]) -> realtime.SpeedRow:
        level = spread([float(np.mean(one)) for one in own])
        gap = compare(own, plus, blocks=2)
        return realtime.SpeedRow(method, Fraction(2), "1", level, level, level, gap, gap, None)

    good, bad = [[1, 1, 1, 1]] * 3, [[0, 0, 1, 0]] * 3
    said = realtime._sentences([line("a", good, bad), line("b", bad, good)], -1.0, delayed=False)
    assert "wins against 1 of the 2" in said[1]
    assert "a is ahead by 75.0 points (95 % interval" in said[1]
    assert " b is" not in said[1]
    assert said[0] == "Fewer than 3 methods have no rank correlation of accuracy and cost."
    alone = realtime._sentences([line("b", bad, good)], -1.0, delayed=False)
    assert alone[1].startswith("ER++ wins against the one method compared with it, by ")
    alone = realtime._sentences([line("a", good, bad)], -1.0, delayed=False)
    assert alone[1].startswith("ER++ does not win against the one method compared with it.")
    same = realtime._sentences([line("a", good, good)], float("nan"), delayed=False)
    assert "undefined" in same[0]
    assert "a is level with it" in same[1]


def test_realtime_finds_its_runs_whatever_seed_or_features_they_have(tmp_path: Path) -> None:
    settings = {"stream.per_class": 20, "er.seed": 7, "er.model": "linear", "features.model": "mlp"}
    suite = realtime.realtime_suite(
        stream="blobs", speeds=("fast",), methods=("er",), settings=settings
    )
    (planned,) = [row for row in plan_rows(suite.rows, [0]) if row.recipe.name == "er"]
    config = configured(planned)
    assert config["seed"] == 7
    assert config["stream"]["settings"]["features"]["embedding"] == 0  # filled in
