from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import streamgauge as sg
from helpers import Spy, small_stream
from streamgauge.cost.clock import schedule
from streamgauge.errors import StreamgaugeError
from streamgauge.streams import Leak


def run(stream: Any, tmp_path: Path, learner: Any = Spy, **protocol: Any) -> sg.Run:
    return sg.run(stream, learner, protocol=sg.Protocol(**protocol), out=tmp_path)


def test_every_batch_is_answered_before_it_is_learnt(tmp_path: Path) -> None:
    stream = small_stream(6)
    found = run(stream, tmp_path, evaluate="never")
    verbs = [call[0] for call in Spy.calls]
    assert verbs == ["predict", "learn"] * 6
    learnt = [call for call in Spy.calls if call[0] == "learn"]
    for step, (_, index, labels, predicted) in enumerate(learnt):
        assert index == stream.index(step).tolist()
        assert labels == stream.source.label[stream.index(step)].tolist()
        assert predicted.argmax(1).tolist() == [step % 4] * 5  # what it said then, not now
    rows = found.predictions
    assert rows["version"].tolist() == np.repeat(np.arange(6), 5).tolist()
    assert rows["prediction"].tolist() == (np.repeat(np.arange(6), 5) % 4).tolist()
    assert rows["sample"].tolist() == stream.order.tolist()
    assert rows["label"].tolist() == stream.source.label[stream.order].tolist()
    assert rows["user"].tolist() == stream.source.columns["user"].tolist()
    assert "task" not in rows
    assert np.allclose(rows["confidence"], np.e / (np.e + 3))
    assert found.training["value"].tolist() == [1, 2, 3, 4, 5, 6]
    assert found.jobs["recalled"].tolist() == [3] * 6


@pytest.mark.parametrize("cost", ["1", "4/3", "5/2", "3", "1/2"])
def test_versions_follow_the_clock(tmp_path: Path, cost: str) -> None:
    found = run(small_stream(20), tmp_path, evaluate="never", cost=cost)
    expected = schedule(cost, 20)
    assert found.predictions["version"][::5].tolist() == expected.version.tolist()
    trained = found.jobs["step"].tolist()
    finished = [t for t in np.flatnonzero(expected.trained) if _end(t, cost, trained) <= 20]
    assert trained == finished


@pytest.mark.parametrize("cost", ["4/3", "5/2", "3"])
def test_versions_follow_the_published_pattern_if_asked(tmp_path: Path, cost: str) -> None:
    found = run(small_stream(20), tmp_path, evaluate="never", cost=cost, as_published=True)
    expected = schedule(cost, 20, as_published=True)
    assert found.predictions["version"][::5].tolist() == expected.version.tolist()
    trained = np.flatnonzero(expected.trained).tolist()
    assert found.jobs["step"].tolist() == trained[: found.jobs.rows]
    with pytest.raises(StreamgaugeError, match="exact clock"):
        run(small_stream(5), tmp_path, cost="7/3", as_published=True)


def _end(step: int, cost: str, trained: list[int]) -> Fraction:
    free = Fraction(0)
    for t in [t for t in range(step + 1) if schedule(cost, step + 1).trained[t]]:
        free = max(free, Fraction(t)) + Fraction(cost)
    return free


def test_a_busy_learner_gets_what_it_said_when_the_batch_came(tmp_path: Path) -> None:
    run(small_stream(9), tmp_path, evaluate="never", cost="3")
    learnt = [call for call in Spy.calls if call[0] == "learn"]
    assert [call[1][0] for call in learnt] == [0, 15, 30]
    assert [call[3].argmax(1)[0].item() for call in learnt] == [0, 1, 2]


@pytest.mark.parametrize("shift", [1, 5, 12])
def test_near_future_rows_come_from_the_version_in_force_then(tmp_path: Path, shift: int) -> None:
    stream = small_stream(12)
    found = run(stream, tmp_path, evaluate="never", shifts=(shift,))
    rows = {c: found.predictions[c] for c in found.predictions}
    late = rows["shift"] == shift
    steps = -(-shift // 5)  # rounded up to whole steps
    assert set(rows["step"][late]) == set(range(steps, 12))  # the first samples are not scored
    assert (rows["version"][late] == rows["step"][late] - steps).all()
    assert (rows["label"][late] == stream.source.label[rows["sample"][late]]).all()


def test_near_future_of_albums_is_at_least_the_shift(tmp_path: Path) -> None:
    stream = small_stream(30, step="album")
    found = run(stream, tmp_path, evaluate="never", shifts=(7,))
    rows = {c: found.predictions[c] for c in found.predictions}
    late = rows["shift"] == 7
    begin = stream.starts[:-1]
    gap = begin[rows["step"][late]] - begin[rows["version"][late]]
    assert (gap >= 7).all()
    assert gap.max() < 7 + 3 + 3  # no further back than a step needs
    assert len(set(rows["step"][late])) == (begin >= 7).sum()  # every step that can be is scored


@pytest.mark.parametrize("what", ["train", "store", "drop"])
def test_remainder(tmp_path: Path, what: str) -> None:
    stream = small_stream(5, preparation=0.08)  # 23 samples: four batches and three left over
    assert [len(stream.index(t)) for t in range(5)] == [5, 5, 5, 5, 3]
    found = run(stream, tmp_path, evaluate="never", remainder=what)
    verbs = [call[0] for call in Spy.calls]
    last = {"train": ["learn"], "store": ["store"], "drop": []}[what]
    assert verbs == ["predict", "learn"] * 4 + ["predict", *last]
    assert len(found.predictions["label"]) == 23  # answered in any case
    assert found.jobs["kind"].tolist() == ["learn"] * 4 + last


def test_predict_can_be_off(tmp_path: Path) -> None:
    found = run(small_stream(4), tmp_path, evaluate="never", predict=False)
    assert [call[0] for call in Spy.calls] == ["learn"] * 4
    assert all(call[3] is None for call in Spy.calls)
    assert found.predictions.rows == 0


def test_evaluation_every_n_steps_of_what_was_seen(tmp_path: Path) -> None:
    stream = small_stream(40, held_out=0.25)
    found = run(stream, tmp_path, evaluate=4, milestones=(1.0,))
    rows = found.evaluations
    assert rows["step"].tolist() == [*range(4, 30, 4), 30]
    split = stream.splits["held_out"]
    expected = [int((split.position <= stream.starts[s]).sum()) for s in rows["step"]]
    assert rows["count"].tolist() == expected
    assert expected[-1] == 50
    for step, correct in zip(rows["step"], rows["correct"], strict=True):
        seen = split.index[split.position <= stream.starts[step]]
        assert correct == (stream.source.label[seen] == step % 4).sum()
    answers = found.answers
    assert len(answers["label"]) == 50
    assert answers["position"].tolist() == sorted(split.position.tolist())
    assert (answers["prediction"] == 30 % 4).all()


def test_evaluation_at_boundaries_by_task(tmp_path: Path) -> None:
    stream = sg.stream("blobs", classes=6, tasks=3, per_class=30)
    found = run(stream, tmp_path)
    rows = {c: found.evaluations[c] for c in found.evaluations}
    plain = rows["within"] == -1
    assert rows["current"][plain].tolist() == [0, 1, 1, 2, 2, 2]
    assert rows["task"][plain].tolist() == [0, 0, 1, 0, 1, 2]
    within = ~plain
    pairs = list(zip(rows["current"][within], rows["within"][within], rows["task"][within],
                     strict=True))  # fmt: skip
    assert pairs == [(t, k, j) for t in range(3) for k in range(t + 1) for j in range(k + 1)]
    everything = run(stream, tmp_path / "all", unseen=True)
    assert (everything.evaluations["task"][everything.evaluations["within"] == -1]).tolist() == [
        *[0, 1, 2] * 3
    ]


class Table(Spy):
    """Scores that are known for each input, to check evaluation by hand."""

    def predict(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.float().flatten(1).mean(1, keepdim=True)
        return torch.sin(mean * torch.arange(1, self.classes + 1))


def test_cumulative_rows_are_accuracy_among_the_classes_so_far(tmp_path: Path) -> None:
    stream = sg.stream("blobs", classes=6, tasks=3, per_class=30)
    found = run(stream, tmp_path, learner=Table)
    split, source = stream.splits["held_out"], stream.source
    assert stream.class_task is not None
    assert split.task is not None
    scores = Table.predict(Table(stream.spec, None, 0, torch.device("cpu")),
                           torch.from_numpy(source.read(split.index))).numpy()  # fmt: skip
    rows = found.evaluations
    for i in range(rows.rows):
        inside = split.task == rows["task"][i]
        allowed = np.arange(6)
        if rows["within"][i] >= 0:
            allowed = np.flatnonzero(stream.class_task <= rows["within"][i])
        chosen = allowed[scores[inside][:, allowed].argmax(1)]
        assert rows["correct"][i] == (chosen == source.label[split.index[inside]]).sum()
        assert rows["count"][i] == inside.sum()


class Nosy(Spy):
    needs = frozenset({"boundaries", "horizon", "class_count"})

    def tell(self, **facts: Any) -> None:
        self.calls.append(("tell", {k: np.asarray(v).tolist() for k, v in facts.items()}))


def test_a_learner_is_told_what_it_needs_and_no_more(tmp_path: Path) -> None:
    stream = sg.stream("blobs", classes=4, tasks=2, per_class=20)
    run(stream, tmp_path, learner=Nosy, evaluate="never")
    told = [call[1] for call in Nosy.calls if call[0] == "tell"]
    assert stream.class_task is not None
    classes = [np.flatnonzero(stream.class_task == t).tolist() for t in (0, 1)]
    assert told == [
        {"horizon": len(stream), "class_count": 4},
        {"boundary": 0, "classes": classes[0]},
        {"boundary": 1, "classes": classes[1]},
    ]
    second = next(i for i, c in enumerate(Nosy.calls) if c[0] == "tell" and c[1].get("boundary"))
    assert Nosy.calls[second + 1][0] == "predict"  # told before the first batch of the task


class Ahead(Spy):
    what = "input"

    def learn(self, batch: sg.Batch, predicted: torch.Tensor | None) -> dict[str, Any]:
        if self.what == "input":
            self.source.read(batch.index + 5)
        return super().learn(batch, predicted)

    def predict(self, x: torch.Tensor) -> torch.Tensor:
        if self.what == "label":
            self.source.label(np.arange(self.learnt * 5, self.learnt * 5 + 5))
        return super().predict(x)


@pytest.mark.parametrize("what", ["input", "label"])
def test_looking_ahead_is_an_error(tmp_path: Path, what: str) -> None:
    Ahead.what = what
    with pytest.raises(Leak, match=what):
        run(small_stream(5), tmp_path, learner=Ahead, evaluate="never")


def test_wrong_scores_get_a_sentence(tmp_path: Path) -> None:
    class Narrow(Spy):
        def predict(self, x: torch.Tensor) -> torch.Tensor:
            return torch.zeros(len(x), 2)

    class Poison(Spy):
        def predict(self, x: torch.Tensor) -> torch.Tensor:
            return torch.full((len(x), 4), float("nan"))

    with pytest.raises(StreamgaugeError, match=r"shape \(5, 4\), not \(5, 2\)"):
        run(small_stream(3), tmp_path, learner=Narrow)
    with pytest.raises(StreamgaugeError, match="NaN"):
        run(small_stream(3), tmp_path, learner=Poison)


def test_the_preparation_part_is_readable_and_never_scored(tmp_path: Path) -> None:
    class Prepared(Spy):
        def __init__(self, spec: Any, source: Any, seed: int, device: torch.device) -> None:
            super().__init__(spec, source, seed, device)
            self.calls.append(("prepared", source.label(source.preparation).tolist()))

    stream = small_stream(10, preparation=0.2)
    found = run(stream, tmp_path, learner=Prepared, evaluate="never")
    assert Prepared.calls[0] == ("prepared", stream.source.label[:10].tolist())
    assert found.predictions["sample"].min() == 10


def test_probe_rows_are_a_linear_classifier_on_features_and_change_nothing(tmp_path: Path) -> None:
    stream = sg.stream("blobs", classes=6, tasks=3, per_class=30)
    learner = sg.learner("er", augment="flip")
    plain = run(stream, tmp_path, learner=learner)
    probed = run(stream, tmp_path, learner=learner, probe="boundaries", probe_copies=2)
    rows = probed.evaluations
    mine = rows["split"] == "probe"
    assert rows["current"][mine].tolist() == [0, 1, 1, 2, 2, 2]
    assert rows["task"][mine].tolist() == [0, 0, 1, 0, 1, 2]
    accuracy = rows["correct"][mine].sum() / rows["count"][mine].sum()
    assert accuracy > 0.5  # six classes: chance is a third in the first task, less later
    assert (plain.predictions["confidence"] == probed.predictions["confidence"]).all()
    assert sg.score(probed)["probed_accuracy"] == pytest.approx(
        (rows["correct"][mine] / rows["count"][mine])[-3:].mean()
    )
    last = run(stream, tmp_path, learner=learner, probe="auto")
    assert set(last.evaluations["current"][last.evaluations["split"] == "probe"]) == {2}
    with pytest.raises(StreamgaugeError, match="nothing to probe"):
        run(stream, tmp_path, learner="blind", probe="end")


def by_hand(
    cost: Fraction, steps: int, busy: str, delay: int, preempt: bool
) -> tuple[list[tuple[str, int]], list[int]]:
    """What is done to which batch in which order, and the version that answers each step, by
    walking through time in ticks."""
    done: list[tuple[str, int]] = []
    versions: list[int] = []
    running: tuple[Fraction, int] | None = None  # (ends, batch)
    queue: list[int] = []
    newest: int | None = None  # labelled, and never trained, stored or dropped
    later: list[int] = []  # to be stored behind the job that is running
    version = 0

    def finish(now: Fraction) -> None:
        nonlocal running, version
        if running is not None and running[0] <= now:
            done.append(("learn", running[1]))
            done.extend(("store", b) for b in later)
            later.clear()
            version, running = version + 1, None

    ticks = cost.denominator
    for tick in range(steps * ticks):
        now = Fraction(tick, ticks)
        finish(now)
        if now.denominator == 1:
            versions.append(version)
            newest = None
            if now >= delay:
                newest = int(now) - delay
                if preempt:
                    running = None
                if busy == "queue":
                    queue.append(newest)
        if running is None:
            if busy == "queue":
                if queue:
                    running = (now + cost, queue.pop(0))
            elif newest is not None:
                running, newest = (now + cost, newest), None
        last_tick = (tick + 1) % ticks == 0
        if busy == "store" and last_tick and newest is not None:
            free = running is None or running[0] < int(now) + 1
            if not free:
                later.append(newest)
    finish(Fraction(steps))
    return done, versions


@pytest.mark.parametrize("busy", ["drop", "store", "queue"])
@pytest.mark.parametrize("delay", [0, 2])
@pytest.mark.parametrize("cost", ["1", "4/3", "5/2", "3", "1/2"])
def test_policies_of_a_busy_learner_and_label_delay(
    tmp_path: Path, busy: str, delay: int, cost: str
) -> None:
    stream = small_stream(24, data_seed=2)
    found = run(stream, tmp_path, evaluate="never", busy=busy, label_delay=delay, cost=cost)
    done, versions = by_hand(Fraction(cost), 24, busy, delay, preempt=False)
    assert found.predictions["version"][::5].tolist() == versions
    happened = [(call[0], call[1][0] // 5) for call in Spy.calls if call[0] in ("learn", "store")]
    assert happened == done


def test_preemption_gives_up_a_running_job(tmp_path: Path) -> None:
    found = run(small_stream(10), tmp_path, evaluate="never", cost="2", preempt=True)
    assert found.jobs.rows == 0  # a new batch comes every step, so no job of two steps ends
    found = run(small_stream(10), tmp_path, evaluate="never", cost="1", preempt=True)
    assert found.jobs.rows == 10


def test_labels_are_not_readable_before_their_delay_is_over(tmp_path: Path) -> None:
    class Early(Spy):
        def learn(self, batch: sg.Batch, predicted: torch.Tensor | None) -> dict[str, Any]:
            self.source.read(batch.index + 5)  # the input of the next step is known by now
            self.source.label(batch.index + 5)
            return {}

    with pytest.raises(Leak, match="label"):
        run(small_stream(8), tmp_path, learner=Early, evaluate="never", label_delay=1)


class Filling(Spy):
    def job_kind(self) -> str:
        return "filling" if self.learnt < 3 else "steady"


def test_cost_by_kind_of_job_is_known_at_its_start(tmp_path: Path) -> None:
    found = run(small_stream(14), tmp_path, learner=Filling, evaluate="never", cost="9",
                costs=("filling=1", "steady=3"))  # fmt: skip
    # Three jobs of one step, then one every three steps: known although it starts as one ends.
    assert found.jobs["step"].tolist() == [0, 1, 2, 3, 6, 9]
    assert found.predictions["version"][::5].tolist() == [0, 1, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 6]
    said: list[str] = []
    asked = sg.Protocol(evaluate="never", cost="2", costs=("steady=3", "prepare=1"))
    for learner in (Filling, Spy):
        sg.run(small_stream(3), learner, protocol=asked, out=tmp_path, log=said.append)
    assert len(said) == 1
    assert "steady, but this learner's jobs have no kinds: each costs 2" in said[0]
    with pytest.raises(StreamgaugeError, match="KIND=COST"):
        run(small_stream(3), tmp_path, costs=("filling",))


@pytest.mark.parametrize("policy", [{"busy": "queue"}, {"busy": "store"}, {"label_delay": 3}])
def test_every_policy_resumes_exactly(tmp_path: Path, policy: dict[str, Any]) -> None:
    from streamgauge.checks.conformance import _Drive, _predictions, _through_disk

    cpu, stream = torch.device("cpu"), small_stream(20)
    protocol = sg.Protocol(evaluate="never", cost="5/2", **policy)
    recipe = sg.learner("er")
    whole = _predictions(_Drive(recipe, cpu, stream, protocol).end())
    for stop in (1, 7, 13):
        begun = _Drive(recipe, cpu, stream, protocol).to(stop)
        rest = _Drive(recipe, cpu, stream, protocol)
        rest.loop.load_state_dict(_through_disk(begun.loop.state_dict(), cpu))
        log = _predictions(rest.end())
        late = whole["step"] >= stop
        assert (log["confidence"] == whole["confidence"][late]).all()


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ({"evaluate": "sometimes"}, "protocol.evaluate"),
        ({"remainder": "keep"}, "protocol.remainder cannot be 'keep'"),
        ({"predict": "no"}, "protocol.predict must be true or false"),
        ({"cost": "free"}, "A cost is a positive number"),
        ({"label_delay": -1}, "label_delay must be at least 0"),
        ({"probe_copies": 0}, "probe_copies at least 1"),
    ],
)
def test_a_protocol_is_checked_however_it_is_made(setting: dict[str, Any], sentence: str) -> None:
    with pytest.raises(StreamgaugeError, match=sentence):
        sg.Protocol(**setting)


def test_equal_protocols_are_equal() -> None:
    assert sg.Protocol(cost=1) == sg.Protocol(cost="1.0") == sg.Protocol()  # type: ignore[arg-type]
    assert sg.Protocol(cost=Fraction(4, 3)) == sg.Protocol(cost="4/3")  # type: ignore[arg-type]
    assert sg.Protocol(shifts=np.int64(200)).shifts == (200,)  # type: ignore[arg-type]
    assert sg.Protocol(shifts=(200, 100, 200)) == sg.Protocol(shifts=(100, 200))


def test_bad_answers_in_evaluation_and_bad_scalars_get_a_sentence(tmp_path: Path) -> None:
    class Poison(Spy):
        def predict(self, x: torch.Tensor) -> torch.Tensor:
            return torch.full((len(x), 4), float("nan"))

    class Talks(Spy):
        def learn(self, batch: sg.Batch, predicted: torch.Tensor | None) -> dict[str, Any]:
            return {"loss": "low"}

    stream = small_stream(6, held_out=0.2)
    with pytest.raises(StreamgaugeError, match="NaN"):
        run(stream, tmp_path, learner=Poison, predict=False)
    with pytest.raises(StreamgaugeError, match="loss = 'low', which is no number"):
        run(stream, tmp_path, learner=Talks)


def test_scores_may_come_in_other_types(tmp_path: Path) -> None:
    class Half(Spy):
        def predict(self, x: torch.Tensor) -> torch.Tensor:
            return super().predict(x).bfloat16()

    assert run(small_stream(4), tmp_path, learner=Half).done


@pytest.mark.parametrize("every", [1, 3])
def test_a_run_evaluated_now_and_then_says_how_sure_it_is(tmp_path: Path, every: int) -> None:
    said: list[str] = []
    stream = sg.stream("blobs", classes=4, tasks=2, per_class=40, held_out=0.2)
    found = sg.run(
        stream, "ncm", protocol=sg.Protocol(evaluate=every), out=tmp_path, log=said.append
    )
    sentences = [one for one in said if "Evaluated after every 3rd step" in one]
    scores = sg.score(found)
    assert len(sentences) == (every > 1)
    assert ("anytime_accuracy_error" in scores) == (every > 1)
    if sentences:
        assert f"{100 * scores['anytime_accuracy']:.2f} %" in sentences[0]
        assert f"of {100 * scores['anytime_accuracy_error']:.2f} for" in sentences[0]
