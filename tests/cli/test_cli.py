from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from streamgauge.record import find_runs

MINE = '''
"""A learner of one's own, as CONTRIBUTING.md shows."""
from dataclasses import dataclass
import torch

@dataclass(frozen=True)
class Config:
    decay: float = 0.9

class Fading:
    def __init__(self, spec, source, seed, device, config: Config):
        self.decay = config.decay
        self.counts = torch.zeros(spec.classes, device=device)
    def predict(self, x):
        return torch.log(self.counts + 1e-3).expand(len(x), -1)
    def learn(self, batch, predicted):
        self.counts = self.decay * self.counts
        self.counts.index_add_(0, batch.y, torch.ones_like(batch.y, dtype=self.counts.dtype))
        return {"total": self.counts.sum()}
    def state_dict(self):
        return {"counts": self.counts.clone()}
    def load_state_dict(self, state):
        self.counts = state["counts"].to(self.counts.device)
'''


SMALL = ("--stream", "albums", "--stream.length", "400")


def test_run_score_report_diff_resume(call: Any, tmp_path: Path) -> None:
    run = ("run", *SMALL, "--learner", "er", "--learner", "blind", "--seeds", "2", "--out", "runs/")
    code, out, _ = call(*run)
    assert code == 0
    assert "er" in out
    assert "±" in out
    folders = sorted(p.name for p in (tmp_path / "runs").iterdir())
    assert len(folders) == 4
    code, again, _ = call(*run)
    assert again.count("is complete already (made 20") == 4

    code, out, _ = call("score", "runs", "--json")
    scored = json.loads(out)["runs"]
    assert {(r["learner"], r["seed"]) for r in scored} == {(n, s) for n in ("er", "blind")
                                                             for s in (0, 1)}  # fmt: skip
    assert all(0 <= r["scores"]["online_accuracy"] <= 1 for r in scored)
    seeds = {(r["learner"], r["seed"]): json.loads((Path(r["path"]) / "run.json").read_text())
             for r in scored}  # fmt: skip
    for seed in (0, 1):  # all learners of one seed see the same stream, and each seed another
        assert (seeds["er", seed]["stream"]["order_hash"]
                == seeds["blind", seed]["stream"]["order_hash"])  # fmt: skip
    assert seeds["er", 0]["stream"]["data_hash"] != seeds["er", 1]["stream"]["data_hash"]

    code, out, _ = call("report", "runs", "--out", "page.html")
    assert code == 0
    assert (tmp_path / "page.html").stat().st_size > 100_000
    first, second = (f"runs/{name}" for name in folders[:2])
    assert call("diff", first, first)[0] == 0
    code, out, _ = call("diff", first, second, "--json")
    assert code == 1
    assert json.loads(out)["first_step"] == 0
    assert call("resume", "runs")[0] == 0
    assert call("score", first)[0] == 0


@contextmanager
def interrupted_at_step_12() -> Iterator[None]:
    from streamgauge.running.schedule import Schedule

    play_step = Schedule.play_step

    def until_interrupted(schedule: Schedule) -> Any:
        if schedule.step == 12:
            raise KeyboardInterrupt
        return play_step(schedule)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Schedule, "play_step", until_interrupted)
        yield


def test_an_interrupted_command_says_how_to_go_on(call: Any) -> None:
    words = ("run", *SMALL, "--learner", "finetune", "--checkpoint", "0")
    with interrupted_at_step_12():
        code, _, err = call(*words)
    assert code == 130
    assert err.endswith("What was checkpointed is safe: run the same command to go on.\n")
    code, out, _ = call(*words)
    assert code == 0
    assert "goes on from step 12" in out


def test_resume_says_who_makes_the_runs_that_were_not_begun(call: Any) -> None:
    words = ("run", *SMALL, "--learner", "blind", "--seeds", "3", "--checkpoint", "0", "--json")
    with interrupted_at_step_12():
        assert call(*words)[0] == 130
    begun = len(find_runs("runs"))
    assert begun < 3
    code, out, _ = call("resume", "runs")
    assert code == 0
    assert out.endswith(
        "Runs that were not begun have no folder: repeat their command to make them.\n"
    )
    assert len(find_runs("runs")) == begun
    assert "not begun" not in call("resume", str(find_runs("runs")[0].path))[1]
    assert len(json.loads(call(*words)[1])["runs"]) == len(find_runs("runs")) == 3


@pytest.mark.parametrize(
    "where", ["self.decay = config.decay", "return torch.log", 'return {"total"']
)
def test_deterministic_refuses_what_is_not(call: Any, tmp_path: Path, where: str) -> None:
    """When the learner is made, when it answers and when it learns; and in that run only."""
    put = "torch.zeros(3).put_(torch.tensor([0]), torch.ones(1))\n        "
    (tmp_path / "wild.py").write_text(MINE.replace(where, put + where))
    words = ("run", *SMALL, "--learner", "wild.py:Fading")
    code, _, err = call(*words, "--deterministic")
    assert code == 2
    assert err.startswith("streamgauge: put_")
    assert "--deterministic refuses it" in err
    assert err.count("\n") == 1
    assert call("run", *SMALL, "--learner", "er", "--deterministic")[0] == 0
    assert torch.are_deterministic_algorithms_enabled()
    assert call(*words)[0] == 0
    assert not torch.are_deterministic_algorithms_enabled()


def test_an_interrupted_command_promises_only_what_it_keeps(
    call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streamgauge import catalogue

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(catalogue, "names", interrupted)
    code, _, err = call("list", "learners")
    assert (code, err) == (130, "streamgauge: Interrupted.\n")


def test_a_file_that_ends_early_is_no_interruption(
    call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streamgauge import catalogue

    def ended(*_: Any) -> None:
        raise EOFError("marshal data too short")

    monkeypatch.setattr(catalogue, "names", ended)
    code, _, err = call("list", "learners")
    assert code == 3
    assert "EOFError: marshal data too short" in err
    assert "Interrupted" not in err


def test_the_same_from_a_toml_file_with_overrides(call: Any, tmp_path: Path) -> None:
    (tmp_path / "experiment.toml").write_text(
        'learners = ["er", "big=er"]\nseeds = 3\nout = "from_toml"\n'
        '[stream]\nname = "albums"\nlength = 400\n[big]\nmemory = 50\nlr = 0.5\n'
        "[protocol]\nshifts = [20, 40]\n"
    )
    code, out, _ = call("run", "experiment.toml", "--seeds", "1", "--learner.lr", "0.125", "--json")
    assert code == 0
    runs = {r["learner"]: r for r in json.loads(out)["runs"]}
    assert set(runs) == {"er", "big"}
    header = {n: json.loads((Path(r["path"]) / "run.json").read_text()) for n, r in runs.items()}
    learner = {name: h["config"]["learner"]["settings"] for name, h in header.items()}
    assert learner["er"]["lr"] == 0.125
    assert learner["big"]["lr"] == 0.5  # what names one learner goes before what names all
    assert learner["big"]["memory"] == 50
    assert header["er"]["config"]["protocol"]["shifts"] == [20, 40]
    assert "near_future_accuracy@40" in runs["er"]["scores"]


def test_seeds_can_be_set_apart(call: Any) -> None:
    words = ("run", *SMALL, "--learner", "er", "--seeds", "2", "--stream.seed", "5", "--json")
    runs = json.loads(call(*words)[1])["runs"]
    headers = [json.loads((Path(r["path"]) / "run.json").read_text()) for r in runs]
    assert [h["config"]["seed"] for h in headers] == [0, 1]
    assert len({h["stream"]["data_hash"] for h in headers}) == 1
    words = ("run", *SMALL, "--learner", "er", "--seeds", "2", "--er.seed", "5", "--json")
    runs = json.loads(call(*words)[1])["runs"]
    headers = [json.loads((Path(r["path"]) / "run.json").read_text()) for r in runs]
    assert [h["config"]["seed"] for h in headers] == [5, 5]
    assert len({h["stream"]["data_hash"] for h in headers}) == 2


def test_a_learner_and_a_stream_from_files(call: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "flow.py").write_text(
        "from dataclasses import dataclass\nimport numpy as np\n"
        "from streamgauge.streams import ArraySource, Arrangement, arrange\n"
        "@dataclass(frozen=True)\nclass Config(Arrangement):\n    length: int = 60\n"
        "def build(config):\n    y = np.arange(config.length) // 7 % 3\n"
        "    return arrange(ArraySource(np.zeros((len(y), 2), 'f4'), y), config, name='flow',\n"
        "                   settings=vars(config))\n"
    )
    words = ("--learner", "mine.py:Fading", "--Fading.decay", "0.5", "--stream", "flow.py")
    code, out, _ = call("run", *words, "--stream.length", "90", "--json")
    assert code == 0
    (run,) = json.loads(out)["runs"]
    assert run["learner"] == "Fading"
    assert call("check", "mine.py:Fading")[0] == 0
    assert call("resume", run["path"])[0] == 0


def test_check_says_why_and_exits_with_one(call: Any) -> None:
    broken = Path(__file__).parents[1] / "checks" / "broken_learners.py"
    code, out, _ = call("check", f"{broken}:NeedsTwo")
    assert code == 1
    assert "FAIL  a batch of one: a batch of one sample fails: ValueError" in out
    code, out, _ = call("check", f"{broken}:NeedsTwo", "--json")
    assert code == 1
    assert json.loads(out)["passed"] is False


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("run", "--stream", "albumz", "--learner", "er"), "did you mean 'albums'?"),
        (("run", *SMALL, "--learner", "err"), "did you mean 'er'?"),
        (("run", *SMALL, "--learner", "er", "--er.lrr", "1"), "did you mean 'er.lr'?"),
        (("run", *SMALL, "--learner", "er", "--strem.length", "1"), "did you mean 'stream.length'"),
        (("run", *SMALL, "--learner", "er", "--er.lr", "fast"), "er.lr must be a number"),
        (("run", *SMALL, "--learner", "er", "--er.lr"), "--er.lr needs a value"),
        (("run", *SMALL, "--learner", "er", "--stream.batch", "0"), "at least one sample"),
        (("run", *SMALL, "--learner", "er", "--stream.held_out", "1.5"), "held_out is a share"),
        (("run", *SMALL, "--learner", "er", "--protocol.cost", "-2"), "cost must be above 0"),
        (("run", *SMALL, "--learner", "er", "--protocol.shifts", "0"), "shift is a number"),
        (("run", *SMALL, "--learner", "er", "--learner", "er"), "two learners named 'er'"),
        (("run", *SMALL), "Name at least one learner"),
        (("run", "--learner", "er"), "Name a stream"),
        (("run", *SMALL, "--learner", "er", "--seeds", "0"), "seeds must be at least 1"),
        (("run", *SMALL, "--learner", "er", "--device", "tpu9"), "device"),
        (("run", *SMALL, "--learner", "no.py:X"), "There is no file no.py"),
        (("run", *SMALL, "--learner", "er@none"), "There is no preset 'er@none'"),
        (("run", *SMALL, "--learner", "er", "--er.lr", "-1"), "er cannot be made"),
        (("run", *SMALL, "--learner", "er", "--er.passes", "0"), "passes must be at least 1"),
        (("run", *SMALL, "--learner", "er", "--er.seed", "abc"), "er.seed must be a whole number"),
        (("run", *SMALL, "--learner", "er", "--er.seed", "-1"), "er.seed must lie between"),
        (("run", *SMALL, "--learner", "er", "--stream.seed", "x"), "stream.seed must be a whole"),
        (("run", *SMALL, "--learner", "a.b=er"), "must not contain a dot or a slash"),
        (("run", *SMALL, "--learner", "stream=er"), "cannot be named 'stream'"),
        (("run", *SMALL, "--learner", "blind", "--protocol.probe", "end"), "nothing to probe"),
        (("check", "er", "--device", "foo"), "There is no device 'foo'"),
        (("run", "missing.toml"), "missing.toml cannot be read"),
        (("run", "--stream", "markov", "--learner", "er", "--er.model", "cnn4"), "takes images"),
        (("score", "nowhere"), "There is no folder nowhere"),
        (("score", "."), "There is no run in this folder"),
        (("diff", ".", "."), "is not a run folder"),
        (("list", "cats"), "There is no list of 'cats'"),
        (("score", ".", "--er.lr", "1"), "has no meaning here"),
        (("data", "list", "--er.lr", "1"), "has no meaning here"),
        (("suite", "list", "--er.lr", "1"), "settings are what it reproduces"),
        (("demo", "--er.lr", "1"), "settings belong to `run`"),
        (("check", "er", "--mir.lr", "1"), "--mir.lr has no meaning here"),
        (("cost", "er", "--mir.lr", "1"), "--mir.lr has no meaning here"),
        (("cost", "er", "--batch", "0"), "batch must be at least 1"),
        (("cost", "er", "--jobs", "0"), "jobs must be at least 1"),
        (("cost", "er", "--device", "tpu9"), "There is no device 'tpu9'"),
        (("live", "--learner", "er", "--lines", "--port", "0"), "either over HTTP"),
        (("live", "--learner", "er", "--port", "0", "--stream", "albums"), "or serve one"),
        (("nonsense",), "No such command"),
        (("run", "--nonsense"), "There is no option --nonsense. The options are"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(
    call: Any, words: tuple[str, ...], sentence: str
) -> None:
    code, out, err = call(*words)
    assert code == 2
    assert sentence in err
    assert err.count("\n") == 1
    assert out == ""


def test_bad_toml_is_one_line(call: Any, tmp_path: Path) -> None:
    for text, sentence in (
        ("stream = ", "not valid TOML"),
        ("learners = [1]", "'learners' in bad.toml must be a list of names"),
        ("seeds = true", "'seeds' in bad.toml must be a number"),
        ('strean = "albums"', "did you mean 'stream'?"),
        ("seeds = 'x'", "'seeds' in bad.toml must be a number"),
    ):
        (tmp_path / "bad.toml").write_text(text)
        code, _, err = call("run", "bad.toml")
        assert code == 2
        assert sentence in err


def test_a_learner_file_with_a_mistake_says_where(call: Any, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("import nothing_like_this\n")
    code, _, err = call("run", *SMALL, "--learner", "bad.py:X")
    assert code == 2
    assert "bad.py cannot be loaded: ModuleNotFoundError" in err
    (tmp_path / "half.py").write_text("class X:\n    def learn(self): pass\n")
    code, _, err = call("check", "half.py:X")
    assert code == 2
    assert "it has no predict, state_dict and load_state_dict" in err


def test_help_teaches_by_example_for_every_command(call: Any) -> None:
    code, out, _ = call("--help")
    assert code == 0
    for name in (
        "demo",
        "run",
        "resume",
        "score",
        "report",
        "diff",
        "list",
        "check",
        "audit",
        "cost",
        "pretrain",
        "live",
        "realtime",
    ):
        assert name in out
        code, text, _ = call(name, "--help")
        assert code == 0
        assert f"streamgauge {name}" in text
    assert call("--version")[1].startswith("streamgauge ")


def test_list_names_settings(call: Any) -> None:
    found = json.loads(call("list", "--json")[1])
    learners = {entry["name"]: entry for entry in found["learners"]}
    assert {"er", "finetune", "blind", "majority", "ncm"} <= set(learners)
    assert learners["er"]["settings"]["memory"] == "2000"
    assert all(entry["source"] and entry["cost"] != "-" for entry in learners.values())
    assert found["protocol"][0]["settings"]["cost"] == "'1'"
    assert {"albums", "markov", "blobs"} <= {entry["name"] for entry in found["streams"]}


HEAVY = ("torch", "numpy", "pyarrow", "numba", "rich", "jinja2")


@pytest.mark.parametrize(
    ("words", "never"),
    [(None, HEAVY), (["run", "--help"], HEAVY), (["list"], ("torch", "numba"))],
)
def test_a_start_loads_no_heavy_library(words: list[str] | None, never: tuple[str, ...]) -> None:
    code = "import sys, streamgauge\n"
    if words is not None:
        code += f"sys.argv = ['streamgauge', *{words}]\nimport streamgauge.cli\n"
        code += "try: streamgauge.cli.main()\nexcept SystemExit: pass\n"
    code += f"print('LOADED', *[name for name in {never} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "LOADED"


def test_audit_with_a_placebo_run(call: Any, tmp_path: Path) -> None:
    small = ("--stream", "blobs", "--stream.per_class", "60", "--stream.order", "iid")
    assert call("run", *small, "--learner", "ncm", "--out", "runs")[0] == 0
    (folder,) = (tmp_path / "runs").iterdir()
    code, out, _ = call("audit", str(folder), "--placebo", "--json")
    assert code == 0
    values = json.loads(out)["values"]
    assert values["added_bits"] > 0.5 > 0.1 > values["permuted_bits"]
    assert len(list((tmp_path / "runs").iterdir())) == 2
    (tmp_path / "log.csv").write_text("label\n" + "0\n1\n" * 200)
    code, _, error = call("audit", "log.csv", "--placebo")
    assert code == 2
    assert "needs a run folder" in error
