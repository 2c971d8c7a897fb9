"""Near-future evaluation: which steps are asked, by brute force, and how sure the result is."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import streamgauge as sg
from helpers import Spy, small_stream
from streamgauge import metrics
from streamgauge.errors import StreamgaugeError
from streamgauge.learners.adapter import LearnerAdapter
from streamgauge.record import Run
from streamgauge.running import lookahead
from streamgauge.running.lookahead import LookAhead, nth, stride


class Frozen(Spy):
    answers_cheaply = True


def run(out: Path, learner: Any = Spy, steps: int = 23, **protocol: Any) -> tuple[Run, list[str]]:
    said: list[str] = []
    asked = sg.Protocol(evaluate="never", **protocol)
    # Tasks make steps of different lengths.
    stream = small_stream(steps, order="classes", tasks=2)
    return sg.run(stream, learner, protocol=asked, out=out, log=said.append), said


def rows(found: Run, shift: int) -> dict[tuple[int, int], tuple[int, int]]:
    """(step, sample) -> (prediction, version)"""
    table = found.predictions
    mine = np.flatnonzero(table["shift"] == shift)
    names = ("step", "sample", "prediction", "version")
    step, sample, prediction, version = (table[name][mine].tolist() for name in names)
    return dict(zip(zip(step, sample, strict=True), zip(prediction, version, strict=True),
                    strict=True))  # fmt: skip


@pytest.mark.parametrize("cost", ["1", "5/2"])
def test_thinned_answers_are_some_of_all(tmp_path: Path, cost: str) -> None:
    shifts = (3, 12, 40)
    whole, _ = run(tmp_path, shifts=shifts, cost=cost)
    thin, _ = run(tmp_path, shifts=shifts, cost=cost, thin=4)
    assert rows(thin, 0) == rows(whole, 0)  # online accuracy comes from the full log
    stream = small_stream(23, order="classes", tasks=2)
    begin = stream.starts[:-1]
    for shift in shifts:
        # By hand: the latest step that began at least so many samples before.
        answering = [max((t for t in range(s) if begin[s] - begin[t] >= shift), default=-1)
                     for s in range(len(stream))]  # fmt: skip
        online = {step: version for (step, _), (_, version) in rows(whole, 0).items()}
        wanted = {key: answer for key, answer in rows(whole, shift).items() if key[0] % 4 == 0}
        assert rows(thin, shift) == wanted
        assert {step for step, _ in rows(whole, shift)} == {
            s for s, t in enumerate(answering) if t >= 0
        }
        for (step, _), (_, version) in rows(whole, shift).items():
            assert version == online[answering[step]]


def test_shifts_are_compared_on_the_samples_they_share(tmp_path: Path) -> None:
    shifts = (0, 3, 40)
    thin, _ = run(tmp_path, shifts=shifts[1:], thin=3)
    label = dict(zip(thin.predictions["sample"].tolist(), thin.predictions["label"].tolist(),
                     strict=True))  # fmt: skip
    shared = set.intersection(*(set(rows(thin, s)) for s in shifts))
    assert shared
    assert {step % 3 for step, _ in shared} == {0}
    found = metrics.near_future_accuracy(thin, shifts, common=True)
    for s, value in zip(shifts, found, strict=True):
        right = [rows(thin, s)[key][0] == label[key[1]] for key in shared]
        assert value == pytest.approx(np.mean(right))
    # Without it, shift 0 is online accuracy bit for bit.
    table = thin.predictions
    live = table["shift"] == 0
    online = metrics.online_accuracy(table["label"][live], table["prediction"][live])
    assert metrics.near_future_accuracy(thin, [0])[0] == online


def test_cheap_learners_are_asked_about_every_step(tmp_path: Path) -> None:
    thin, said = run(tmp_path, Frozen, shifts=(10,), thin=4)
    whole, _ = run(tmp_path, shifts=(10,), thin=1)
    assert rows(thin, 10) == rows(whole, 10)
    assert said == []


@pytest.mark.parametrize(
    ("name", "extra", "cheap"),
    [
        ("er", {}, False), ("er", {"model": "linear"}, True), ("fc_only", {}, True),
        ("replay_only", {}, False), ("ncm", {"model": "cnn4"}, True), ("acm", {}, True),
        ("slda", {}, True), ("blind", {}, True),
    ],
)  # fmt: skip
def test_who_answers_cheaply(name: str, extra: dict[str, Any], cheap: bool) -> None:
    from helpers import build

    learner, _ = build(small_stream(3), name, **extra)
    exact = LearnerAdapter(learner).answers_cheaply
    assert exact == cheap
    assert LookAhead(small_stream(30), (5,), "3", exact).every == (1 if cheap else 3)


def test_rounding_cost_and_error_are_said(tmp_path: Path) -> None:
    found, said = run(tmp_path, shifts=(12, 25), thin=4)
    assert said[0] == ("A shift counts samples and is rounded up to whole steps of 5: 12 is 15.")
    extra = sum(len(rows(found, s)) for s in (12, 25)) / len(rows(found, 0))
    assert said[1].startswith(f"Near future: every 4th step is asked, {100 * extra:.0f} % more")
    error = metrics.near_future_error(found, [12])[0]
    assert f"(standard error {100 * error:.2f})" in said[2]
    assert f"{100 * extra:.0f} % more forward passes" in said[2]
    assert len(said) == 3
    _, said = run(tmp_path, shifts=(10,))
    assert said == []
    _, said = run(tmp_path, shifts=(10, 5000))
    assert said == ["The stream has 115 samples, so nothing is scored 5,000 ahead."]
    with pytest.raises(StreamgaugeError, match="asks every 50th step, but the stream has"):
        run(tmp_path, shifts=(10,), thin=50)


def test_only_long_streams_are_thinned_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = small_stream(40)
    assert stride("auto", stream) == 1
    assert stride("7", stream) == 7
    assert stride("50 samples", stream) == 4
    assert stride("200 samples", stream) == 1
    monkeypatch.setattr(lookahead, "LONG", 60)
    assert stride("auto", stream) == 4
    assert lookahead.LONG == 60
    assert [nth(n) for n in (2, 3, 11, 21, 112)] == ["2nd", "3rd", "11th", "21st", "112th"]
    for bad in ("0", "-3", "often", "5 steps", "1.5"):
        with pytest.raises(StreamgaugeError, match=r"protocol\.thin is"):
            sg.Protocol(thin=bad)
    assert sg.Protocol(thin=7) == sg.Protocol(thin="7")


def test_a_thinned_run_resumes_exactly(tmp_path: Path) -> None:
    from streamgauge.checks.conformance import _Drive, _through_disk

    cpu, stream = torch.device("cpu"), small_stream(20)
    protocol = sg.Protocol(evaluate="never", shifts=(12,), thin=3)
    recipe = sg.learner("ncm", model="cnn4")
    whole = _Drive(recipe, cpu, stream, protocol).end()["predictions"]
    begun = _Drive(recipe, cpu, stream, protocol).to(7)
    rest = _Drive(recipe, cpu, stream, protocol)
    rest.loop.load_state_dict(_through_disk(begun.loop.state_dict(), cpu))
    both = [np.concatenate([begun.memo.log()["predictions"][c], rest.end()["predictions"][c]])
            for c in ("step", "shift", "confidence")]  # fmt: skip
    for column, values in zip(("step", "shift", "confidence"), both, strict=True):
        np.testing.assert_array_equal(values, whole[column])


# The standard error.


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=4), min_size=2, max_size=12))
def test_the_error_by_its_formula(steps: list[list[bool]]) -> None:
    right = [r for one in steps for r in one]
    when = [10 * i for i, one in enumerate(steps) for _ in one]
    blocks = min(5, len(steps))
    cut = [[r for i, one in enumerate(steps) if i * blocks // len(steps) == b for r in one]
           for b in range(blocks)]  # fmt: skip
    mean = sum(right) / len(right)
    e = [len(part) / len(right) * (sum(part) / len(part) - mean) for part in cut]
    beside = 2 * sum(a * b for a, b in pairwise(e))
    wanted = blocks / (blocks - 1) * (sum(a * a for a in e) + max(0, beside))
    assert metrics.accuracy_error(right, when, 5) == pytest.approx(np.sqrt(wanted), abs=1e-12)


@pytest.mark.parametrize("every", [1, 5])
def test_the_error_is_honest_where_samples_hang_together(every: int) -> None:
    """Right answers come in bursts of 200 samples on average: 400 repetitions tell how much an
    accuracy really varies, whether all steps are asked or every fifth."""
    rng = np.random.default_rng(0)
    samples, batch, stay = 40_000, 10, 0.995
    means, errors, naive = [], [], []
    step = np.arange(samples) // batch
    keep = step % every == 0
    for _ in range(400):
        redraw = rng.random(samples) > stay
        redraw[0] = True
        fresh = rng.random(samples) < 0.6
        right = fresh[np.maximum.accumulate(np.where(redraw, np.arange(samples), 0))][keep]
        means.append(right.mean())
        errors.append(metrics.accuracy_error(right, step[keep]))
        naive.append(np.sqrt(right.mean() * (1 - right.mean()) / len(right)))
    true = np.std(means)
    assert 0.88 < np.sqrt(np.mean(np.square(errors))) / true < 1.12
    assert np.mean(naive) < 0.25 * true  # what counting samples as independent would have said
    inside = np.abs(np.array(means) - 0.6) < 2.09 * np.array(errors)  # t of 19 degrees, 95 %
    assert inside.mean() > 0.91


def test_too_few_steps_have_no_error() -> None:
    assert np.isnan(metrics.accuracy_error([True, False], [3, 3]))
    rows = {name: np.zeros(0, np.int64) for name in ("step", "shift", "label", "prediction")}
    log: Any = SimpleNamespace(predictions=rows)
    assert np.isnan(metrics.near_future_error(log, [5])).all()


def test_of_albums_no_round_number_is_claimed_and_a_shift_may_be_of_any_size() -> None:
    stream = sg.stream("albums", length=300, size=0, step="album")
    said = LookAhead(stream, (25, 1 << 40), "1", exact=False).sentences()
    assert said[0].endswith("rounded up to whole steps, which are albums of up to 10.")
    assert "nothing is scored 1,099,511,627,776 ahead" in said[1]
