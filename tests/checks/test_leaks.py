"""The leak prover on loops whose leaks are known."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import loops
import numpy as np
import pytest
import torch

import streamgauge as sg
from streamgauge import cli
from streamgauge.checks import LoopStream
from streamgauge.checks.base import Broken, vectors
from streamgauge.checks.leaks import MOST, Prover
from streamgauge.checks.loops import answers_of, loop_stream
from streamgauge.errors import StreamgaugeError

ROOT = Path(__file__).parents[2]
LOOPS = Path(loops.__file__)


def check(loop: Any, **options: Any) -> Any:
    """With time enough: the number of pairs does not depend on how busy the machine is."""
    return sg.check_loop(loop, **{"samples": 120, "seconds": 1000, **options})


@pytest.mark.parametrize("loop", loops.HONEST, ids=lambda loop: loop.__name__)
def test_an_honest_loop_passes(loop: Any) -> None:
    report = check(loop)
    assert report.passed, str(report)
    assert len(report) == 8


@pytest.mark.parametrize("loop", loops.LEAKY, ids=lambda loop: loop.__name__)
def test_a_leaky_loop_fails_for_its_own_reason(loop: Any) -> None:
    options = {"answers": "log-probabilities"} if loop is loops.mixture_that_sums_to_more else {}
    loops.KEPT.clear()
    report = check(loop, samples=240 if "213" in loop.__name__ else 120, **options)
    name, why = loops.LEAKY[loop]
    assert [result.name for result in report if result.passed is False] == [name], str(report)
    assert why in str(report)


@pytest.mark.parametrize(
    "loop",
    [loops.trains_first, loops.standardises_by_all, loops.counts_batch_labels, loops.two_epochs],
    ids=lambda loop: loop.__name__,
)
def test_a_leak_is_found_in_classes_alone(loop: Any) -> None:
    report = check(lambda stream: np.concatenate(list(loop(stream))).reshape(
        len(stream.y), -1).argmax(1))  # fmt: skip
    assert not report.passed


def test_a_copy_in_the_given_stream_shows_a_table_of_all_labels() -> None:
    """Where inputs repeat, as in many tables, the label of the later copy matters."""
    x = np.random.default_rng(0).integers(0, 3, (120, 2)).astype(float)
    report = check(loops.looks_up_all_labels, stream=sg.stream(x, x[:, 0] > x[:, 1], batch=10))
    assert [result.name for result in report if result.passed is False] == [loops.LATER]
    assert "its label is looked up by its input" in str(report)


def test_inputs_of_a_batch_may_be_used_unless_samples_come_one_by_one() -> None:
    def by_ten(stream: Any) -> Any:
        return loops.normalises_longer_batches(stream, 10)

    assert check(by_ten).passed
    assert "inputs are read 9 samples ahead" in str(check(by_ten, batch=1))


def test_one_leak_does_not_hide_another() -> None:
    def both(stream: Any) -> Any:
        x = loops.flat(stream.x)
        return loops.knows_classes(
            LoopStream((x - x.mean(0)) / x.std(0), stream.y, stream.classes, stream.batch)
        )

    failed = [result.name for result in check(both) if result.passed is False]
    assert failed == [loops.LATER, loops.INPUTS]


def test_an_unknown_option_gets_a_sentence() -> None:
    with pytest.raises(StreamgaugeError, match=r"no option 'sample'; did you mean 'samples'\?"):
        sg.check_loop(loops.batches, sample=60)


def test_a_declared_length_is_no_leak() -> None:
    assert check(loops.cosine_schedule, length_known=True).passed


def test_a_declared_model_of_other_data_is_no_leak() -> None:
    prototypes = np.stack([vectors().x[vectors().label == c].mean(0) for c in range(4)])

    def frozen(stream: Any) -> Any:
        return ((stream.x[:, None] - prototypes) ** 2).sum(2).argmin(1)

    assert [r.name for r in check(frozen) if r.passed is False] == [loops.ELSEWHERE]
    assert check(frozen, pretrained=True).passed


def test_a_loop_that_never_learns_is_told_that_it_may_agree_by_luck() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    x = 2 * rng.normal(size=(2, 6))[y] + rng.normal(size=(200, 6))
    failures = []
    for seed in range(12):
        weights = np.random.default_rng(seed).normal(size=(6, 2))
        made = Prover(lambda stream, w=weights: stream.x @ w, LoopStream(x, y, 2, 10))
        made.base = made.answer()
        try:
            made.replaced_labels()
        except Broken as error:
            failures.append(str(error))
    assert 0 < len(failures) < 12
    assert all("by luck" in failure for failure in failures)


def test_old_labels_in_answers_of_honest_loops_are_chance() -> None:
    """Also where classes alternate, and of a loop that only repeats the last label."""

    def last(stream: Any) -> Any:
        return np.append(0, stream.y[:-1])

    for seed in range(20):
        rng = np.random.default_rng(seed)
        for y in (rng.integers(0, 2, 60), np.arange(60) % 2, np.repeat(rng.integers(0, 3, 10), 6)):
            x = 6 * rng.normal(size=(3, 4))[y] + rng.normal(size=(60, 4))
            for loop in (loops.batches, loops.means_by_class, last):
                made = Prover(loop, LoopStream(x, y, 3, 10), seed=seed)
                made.base = made.answer()
                made.kind = "scores" if made.base.ndim > 1 else "classes"
                assert made.replaced_labels() == "6 streams"


def test_the_probability_of_missing_a_rare_leak() -> None:
    """A loop that reads the label of one sample in fifty."""
    tried, tries = [], 60
    stream = loop_stream(vectors(), 300, 10)
    for seed in range(tries):
        shown = np.random.default_rng([seed, 1]).random(300) < 0.02
        made = Prover(lambda stream, at=shown: np.where(at, stream.y, 0), stream, seed=seed,
                      seconds=1000)  # fmt: skip
        made.base = made.answer()
        made.kind = "classes"
        with suppress(StreamgaugeError):
            made.batch_labels()
            tried.append(made.tried["batch"])
    assert set(tried) == {MOST}
    expected = 0.98**MOST
    assert abs(len(tried) / tries - expected) < 3 * np.sqrt(expected * (1 - expected) / tries)


@pytest.mark.parametrize(
    ("name", "batch"),
    [("blind", 10), ("er", 10)]
    + [("river:tree.HoeffdingTreeClassifier", batch) for batch in (1, 10)],
)
def test_learners_in_our_loop_pass(name: str, batch: int) -> None:
    if ":" in name:
        pytest.importorskip(name.partition(":")[0])
    report = sg.check_loop(name, samples=60, batch=batch, seconds=0.1)
    assert report.passed, str(report)


def test_a_learner_that_reads_ahead_fails() -> None:
    broken = ROOT / "tests" / "checks" / "broken_learners.py"
    report = sg.check_loop(f"{broken}:Peeks", samples=60, seconds=0.1)
    assert "the label of sample" in str(report)
    assert not report.passed


def sgd(stream: Any) -> Any:
    from sklearn.linear_model import SGDClassifier

    model, answers = SGDClassifier(), []
    for x, y, _ in stream:
        known = hasattr(model, "classes_")
        answers.append(model.predict(x) if known else np.zeros(len(x), int))
        model.partial_fit(x, y, classes=np.arange(stream.classes))
    return answers


def tree(stream: Any) -> Any:
    from river.tree import HoeffdingTreeClassifier

    model, answers = HoeffdingTreeClassifier(grace_period=20), []
    for values, label in zip(stream.x.tolist(), stream.y.tolist(), strict=True):
        x = dict(enumerate(values))
        answers.append(model.predict_one(x) or 0)
        model.learn_one(x, label)
    return answers


@pytest.mark.parametrize(("library", "loop"), [("sklearn", sgd), ("river", tree)])
def test_loops_around_other_libraries_pass(library: str, loop: Any) -> None:
    pytest.importorskip(library)
    report = check(loop, samples=80, seconds=2)
    assert report.passed, str(report)


def test_a_torch_loop_needs_no_seed_of_its_own_and_images_work() -> None:
    def network(stream: Any) -> Any:
        model = torch.nn.Linear(3 * 8 * 8, stream.classes)
        rows = []
        for batch in stream:
            rows.append(model(torch.from_numpy(batch.x).flatten(1) / 255).log_softmax(1))
            model.zero_grad()
            torch.nn.functional.nll_loss(rows[-1], torch.from_numpy(batch.y)).backward()
            with torch.no_grad():
                model.weight -= 0.1 * model.weight.grad
        return torch.cat(rows)

    states = random.getstate(), torch.get_rng_state()
    report = check(network, stream="images", samples=80)
    assert report.passed, str(report)
    assert "log-probabilities" in report[0].why
    assert random.getstate() == states[0]
    assert torch.equal(torch.get_rng_state(), states[1])


FORMS: list[Callable[[Any], Any]] = [
    lambda stream: stream.y * 0,
    lambda stream: [0] * len(stream.y),
    lambda stream: [np.zeros(len(batch.y), int) for batch in stream],
    lambda stream: (torch.zeros(len(batch.y)) for batch in stream),
    lambda stream: np.zeros((len(stream.y), 1)),
    lambda stream: np.zeros((len(stream.y), stream.classes)),
    lambda stream: [np.zeros(stream.classes) for _ in stream.y],
]


@pytest.mark.parametrize("form", range(len(FORMS)))
def test_answers_come_in_any_usual_form(form: int) -> None:
    stream = LoopStream(np.ones((25, 2)), np.arange(25) % 3, 3, 10)
    assert [len(batch.y) for batch in stream] == [10, 10, 5]
    assert len(stream) == 3
    rows = answers_of(FORMS[form], stream)
    assert rows.shape == ((25, 3) if form > 4 else (25,))


def test_a_loop_may_write_into_its_arrays() -> None:
    def spoils(stream: Any) -> Any:
        answers = loops.means_by_class(stream)
        stream.x[:], stream.y[:] = 0, 0
        return answers

    assert check(spoils).passed


def hard_coded(stream: Any) -> Any:
    """Has a list of the classes of the first stream that it was run on."""
    return [[0, 1, 2, 3].index(label) * 0 for label in stream.y]


def raises(stream: Any) -> Any:
    raise ValueError("no such layer\nmore")


MISTAKES: list[tuple[Callable[[Any], Any], dict[str, Any], str]] = [
    (raises, {}, "raised ValueError: no such layer, at line"),
    (hard_coded, {}, "It ran on the stream as it is, and not on one with other labels"),
    (lambda stream: stream.y[1:], {}, "shape .119,. and type int64 for 120 samples"),
    (lambda stream: None, {}, "return one answer for each of the 120 samples"),
    (lambda stream: np.zeros((120, 4)), {}, "4 columns for 6 classes"),
    (lambda stream: stream.y, {"answers": "scores"}, "shape .N.: no scores"),
    (lambda stream: stream.y, {"answers": "logits"}, "not 'logits'"),
    (lambda stream: stream.y, {"samples": 30}, "needs 4 batches at least"),
]


@pytest.mark.parametrize(("loop", "options", "sentence"), MISTAKES)
def test_a_mistake_gets_a_sentence(loop: Any, options: Any, sentence: str) -> None:
    with pytest.raises(StreamgaugeError, match=sentence):
        check(loop, **options)


def test_answers_that_are_no_answers_fail() -> None:
    def nan(stream: Any) -> Any:
        rows = np.zeros((len(stream.y), stream.classes))
        rows[7, 1] = np.nan
        return rows

    assert "the answer to sample 7 is nan" in str(check(nan))
    assert "a class from 0 to 5" in str(check(lambda stream: stream.y * 0 + 6))


def command(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["streamgauge", "check", *words])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return int(str(stop.value.code))


def test_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table = tmp_path / "mine.csv"
    rng = np.random.default_rng(0)
    rows = [f"{a:.3f},{b:.3f},{'ab'[int(a > b)]}" for a, b in rng.normal(size=(120, 2))]
    table.write_text("\n".join(["u,v,label", *rows]))
    given = ["--stream", str(table), "--samples", "60", "--seconds", "1"]
    assert command(monkeypatch, "--loop", f"{LOOPS}:batches", *given) == 0
    assert "No leak found in" in capsys.readouterr().out
    assert command(monkeypatch, "--loop", f"{LOOPS}:trains_first", *given, "--json") == 1
    facts = json.loads(capsys.readouterr().out)
    assert not facts["passed"]
    assert facts["runs"] > 10
    assert command(monkeypatch, "--loop", f"{LOOPS}:shifted_label", "--samples", "60") == 1
    assert "FAIL  no label of a later batch" in capsys.readouterr().out
    for words, sentence in (
        (["--loop", f"{LOOPS}:trains_frist"], "did you mean 'trains_first'?"),
        (["--loop", str(LOOPS)], "Name the function"),
        ([], "Name a learner, or a loop"),
        (["er", "--loop", "er"], "Name a learner, or a loop"),
        (["er", "--samples", "50"], "--samples has a meaning with --loop only"),
        (["--loop", "er", "--answers", "classes"], "for a function only"),
        (["--loop", f"{LOOPS}:batches", "--device", "cpu"], "for a learner only"),
    ):
        assert command(monkeypatch, *words) == 2
        assert sentence in capsys.readouterr().err


def test_the_example_of_the_documentation(tmp_path: Path) -> None:
    """Both blocks of docs/check.md as they are, in a folder without anything else."""
    pytest.importorskip("sklearn")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "check.md").read_text(), re.DOTALL)
    function, use = blocks
    assert len(function.split("\n\n\n")[1].splitlines()) <= 10
    (tmp_path / "mine.py").write_text(function + use)
    done = subprocess.run(
        [sys.executable, "mine.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("pass  ") == 8
