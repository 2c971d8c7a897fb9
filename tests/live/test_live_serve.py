"""Streams from outside: what is taken, what is refused, what survives, and what is bounded."""

from __future__ import annotations

import base64
import http.client
import io
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import streamgauge as sg
from helpers import Spy
from streamgauge.live import serve, summarise, summary_text
from streamgauge.live.access import require_local_host
from streamgauge.live.dispatcher import Dispatcher, Lost, TrainingRequest, Update
from streamgauge.live.http_server import JsonLinesServer
from streamgauge.live.journal import Journal
from streamgauge.live.service import Limits, Refused, Service
from streamgauge.live.snapshots import Snapshots
from streamgauge.live.spool import NONE, Spool, SpoolGate, SpoolSource
from streamgauge.live.trainer import LocalTrainer, Setup, pack, unpack
from streamgauge.record import Run
from streamgauge.streams import Spec

CPU = torch.device("cpu")
SPEC = Spec((3,), 4)
NO_ADDRESSES = np.empty(0, np.int64)


class HandTrainer:
    """Finishes a job when a test says so."""

    def __init__(self) -> None:
        self.jobs: list[TrainingRequest] = []
        self.outcome: Update | Lost | Exception | None = None
        self.learnt = 0

    def begin(self, job: TrainingRequest) -> None:
        self.jobs.append(job)

    def finish(self, held: Any = NO_ADDRESSES) -> None:
        self.learnt += 1
        self.outcome = Update({"learnt": self.learnt}, {}, 0.1, 0.0, np.asarray(held, np.int64))

    def collect(self) -> Update | Lost | None:
        outcome, self.outcome = self.outcome, None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


class Bare:
    """A service with nothing real around it."""

    def __init__(self, folder: Path, slots: int = 50, **options: Any) -> None:
        shifts = options.pop("shifts", ())
        self.time = 0.0
        self.trainer = HandTrainer()
        self.journal = Journal(None, frozenset({"task", "user"}), every=1e9)
        self.spool = Spool(folder / "spool", SPEC, "float32", slots, len(shifts))
        self.said: list[str] = []
        make = lambda: Spy(SPEC, None, 0, CPU)  # noqa: E731
        self.service = Service(
            SPEC, make(), make, Dispatcher(self.trainer), self.journal, self.spool, CPU,
            batch=options.pop("batch", 2), snapshots=Snapshots(shifts, options.pop("keep", 4)),
            limits=options.pop("limits", Limits()), now=lambda: self.time, today=lambda: 1e9,
            log=self.said.append, **options,
        )  # fmt: skip
        self.time = 0.0

    def sample(self, value: float = 0.5, **fields: Any) -> int:
        return int(self.service.sample({"x": [value, 1, 2], **fields})["sample"])

    def label(self, sample: int, label: int = 1) -> None:
        self.service.label({"sample": sample, "label": label})

    def column(self, name: str, shift: int = 0) -> list[Any]:
        rows = self.journal.rows["predictions"]
        return list(rows.peek(name)[rows.peek("shift") == shift])


@pytest.fixture
def bare(tmp_path: Path) -> Bare:
    return Bare(tmp_path)


def refused(act: Any, *arguments: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        act(*arguments)
    return caught.value


# What is taken.


def test_a_sample_is_answered_and_its_label_makes_the_row(bare: Bare) -> None:
    reply = bare.service.sample({"x": [0.5, 1, 2]})
    assert reply == {"sample": 0, "prediction": 0, "confidence": pytest.approx(0.4754, abs=1e-3),
                     "version": 0}  # fmt: skip
    assert bare.column("sample") == [], "no row before the label"
    assert bare.service.label({"sample": 0, "label": 3}) == {"sample": 0, "label": 3, "labels": 1}
    assert bare.column("sample") == [0]
    assert bare.column("label") == [3]
    assert bare.column("prediction") == [0]
    assert bare.column("time") == [1e9]


def test_steps_are_labels_in_the_order_of_their_coming(bare: Bare) -> None:
    for _ in range(5):
        bare.sample()
    for sample in (3, 0, 4, 2):
        bare.label(sample)
    assert bare.column("sample") == [3, 0, 4, 2]
    assert bare.column("step") == [0, 0, 1, 1]
    assert bare.trainer.jobs[0].step == 0
    assert bare.trainer.jobs[0].index.tolist() == [3, 0]
    assert bare.service.dispatcher.waiting is not None
    assert bare.service.dispatcher.waiting.index.tolist() == [4, 2]


def test_the_version_that_answered_is_in_the_row_however_late_the_label(bare: Bare) -> None:
    for _ in range(4):
        bare.sample()
    bare.label(0), bare.label(1)
    bare.trainer.finish()
    assert bare.service.sample({"x": [1, 1, 1]})["version"] == 1
    bare.label(2), bare.label(4)
    assert bare.column("version") == [0, 0, 0, 1]
    assert bare.column("prediction") == [0, 0, 0, 1]


def test_a_busy_trainer_gets_the_newest_batch_when_it_is_free(bare: Bare) -> None:
    for number in range(8):
        bare.label(bare.sample())
        assert len(bare.trainer.jobs) == (number > 0)
    bare.trainer.finish()
    bare.service.advance()
    assert [job.step for job in bare.trainer.jobs] == [0, 3]
    assert bare.service.dispatcher.skipped == 2
    status = bare.service.status()
    assert (status["updates"], status["batches_skipped"]) == (1, 2)


def test_a_learner_that_fails_to_train_is_served_on(bare: Bare) -> None:
    for _ in range(2):
        bare.label(bare.sample())
    bare.trainer.outcome = sg.StreamgaugeError("The learner failed.")
    bare.service.advance()
    for _ in range(4):
        bare.label(bare.sample())
    assert len(bare.trainer.jobs) == 1
    assert bare.said == ["The learner failed. Answers go on, training ends."]


def test_inputs_may_come_as_base64_and_samples_by_a_name_of_their_own(bare: Bare) -> None:
    text = base64.b64encode(np.array([0.5, -1, 7], "<f4").tobytes()).decode()
    sample = bare.service.sample({"x": text, "id": "photo-7"})["sample"]
    slot = bare.spool.slot_of[sample]
    assert bare.spool.inputs[slot].tolist() == [0.5, -1, 7]
    assert bare.service.label({"id": "photo-7", "label": 2})["sample"] == sample


def test_class_names_are_spoken(tmp_path: Path) -> None:
    bare = Bare(tmp_path, class_names=["cat", "dog", "emu", "fox"])
    assert bare.service.sample({"x": [0, 0, 0]})["class"] == "cat"
    assert bare.service.label({"sample": 0, "label": "emu"})["label"] == 2
    bare.sample()
    assert "did you mean 'dog'" in str(refused(bare.service.label, {"sample": 1, "label": "dgo"}))


def test_the_version_of_the_past_answers_blocks_when_there_is_time(tmp_path: Path) -> None:
    bare = Bare(tmp_path, shifts=(4,), keep=2)
    for number in range(10):
        sample = bare.sample()
        if number % 2 == 0:
            bare.service.advance()  # this one is answered by the past before its label comes,
        bare.label(sample)  # and the other one after
        if bare.service.dispatcher.training is not None and number % 4 == 3:
            bare.trainer.finish()
    while bare.service.delayed:
        bare.service.advance()
    order = np.argsort(bare.column("sample", 4))
    assert np.array(bare.column("sample", 4))[order].tolist() == [4, 5, 6, 7, 8, 9]
    # Who answers sample n had answered the block four samples before it.
    online = dict(zip(bare.column("sample"), bare.column("version"), strict=True))
    for sample, version in zip(bare.column("sample", 4), bare.column("version", 4), strict=True):
        assert version == online[sample // 2 * 2 - 4]
    steps = dict(zip(bare.column("sample"), bare.column("step"), strict=True))
    for sample, step in zip(bare.column("sample", 4), bare.column("step", 4), strict=True):
        assert step == steps[sample]


# What is refused.


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (7, "JSON object"),
        ([1, 2], "JSON object"),
        ({}, "no 'x'"),
        ({"x": [1, 2, 3], "y": 1}, "no field 'y'"),
        ({"x": [1, 2]}, "shape"),
        ({"x": [[1, 2, 3]]}, "shape"),
        ({"x": 5}, "shape"),
        ({"x": [[1, 2], [3]]}, "unequal length"),
        ({"x": [1, "a", 3]}, "numbers"),
        ({"x": [1, None, 3]}, "numbers"),
        ({"x": [True, False, True]}, "numbers"),
        ({"x": [1, float("nan"), 3]}, "NaN"),
        ({"x": [1, 1e300, 3]}, "too large"),
        ({"x": "no base64!"}, "not base64"),
        ({"x": base64.b64encode(b"1234").decode()}, "4 bytes"),
        ({"x": base64.b64encode(np.full(3, np.inf, "<f4").tobytes()).decode()}, "infinity"),
        ({"x": [1, 2, 3], "id": 1.5}, "id is"),
        ({"x": [1, 2, 3], "id": ""}, "1 to 64 bytes"),
        ({"x": [1, 2, 3], "id": "n" * 65}, "1 to 64 bytes"),
        ({"x": [1, 2, 3], "user": []}, "user is"),
        ({"x": [1, 2, 3], "id": "\ud800"}, "UTF-8"),  # half a pair, which JSON can hold
        ({"x": [1, 2, 3], "user": "\ud800"}, "UTF-8"),
    ],
)
def test_a_malformed_sample_is_refused_with_a_reason_and_counted(
    bare: Bare, message: Any, sentence: str
) -> None:
    found = refused(bare.service.sample, message)
    assert found.reason == "malformed"
    assert sentence in str(found)
    assert bare.service.refused == {"malformed": 1}
    assert bare.sample() == 0, "it left no trace"


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"sample": 0}, "malformed"),
        ({"label": 1}, "malformed"),
        ({"sample": 0, "id": "a", "label": 1}, "malformed"),
        ({"sample": "0", "label": 1}, "malformed"),
        ({"sample": True, "label": 1}, "malformed"),
        ({"sample": 0, "label": 4}, "malformed"),
        ({"sample": 0, "label": -1}, "malformed"),
        ({"sample": 0, "label": 1.0}, "malformed"),
        ({"sample": 0, "label": "cat"}, "malformed"),
        ({"sample": 0, "label": 1, "extra": 1}, "malformed"),
        ({"sample": 1, "label": 1}, "unknown"),
        ({"sample": -1, "label": 1}, "unknown"),
        ({"id": "b", "label": 1}, "unknown"),
    ],
)
def test_a_label_that_cannot_be_taken_is_refused(bare: Bare, message: Any, reason: str) -> None:
    bare.sample()
    assert refused(bare.service.label, message).reason == reason
    assert bare.service.refused == {reason: 1}
    bare.label(0)
    assert bare.column("sample") == [0]


def test_a_second_label_and_a_second_sample_of_one_name_are_duplicates(bare: Bare) -> None:
    bare.sample(id="a")
    assert refused(bare.service.sample, {"x": [1, 2, 3], "id": "a"}).reason == "duplicate"
    bare.label(0, 2)
    again = refused(bare.service.label, {"sample": 0, "label": 3})
    assert again.reason == "duplicate"
    assert "has its label already" in str(again)
    assert bare.column("label") == [2]
    assert bare.service.status()["refused"] == {"duplicate": 2}


def test_bytes_are_bytes(tmp_path: Path) -> None:
    bare = Bare(tmp_path)
    bare.spool.dtype = np.dtype("uint8")
    for bad in ([0, 256, 1], [-1, 0, 0], [0.5, 0, 0]):
        assert "0 to 255" in str(refused(bare.service.sample, {"x": bad}))


def test_who_must_name_a_user_is_told_so(tmp_path: Path) -> None:
    bare = Bare(tmp_path, users=True)
    bare.journal.rows = Journal(None, frozenset({"task"}), 1e9).rows
    assert "no 'user'" in str(refused(bare.service.sample, {"x": [1, 2, 3]}))
    for user in ("ann", "bob", "ann", 7):
        bare.label(bare.sample(user=user))
    users = bare.column("user")
    assert users[0] == users[2] != users[1]
    assert users[3] == 7


def test_a_learner_without_an_answer_is_no_reason_to_stop(bare: Bare) -> None:
    bare.service.learner.predict = lambda x: torch.full((1, 4), float("nan"))  # type: ignore[method-assign]
    assert refused(bare.service.sample, {"x": [1, 2, 3]}).reason == "failed"
    del bare.service.learner.predict
    assert bare.sample() == 0


def test_a_version_of_the_past_without_an_answer_is_no_reason_to_stop(tmp_path: Path) -> None:
    bare = Bare(tmp_path, shifts=(2,), keep=2)
    past = Spy(SPEC, None, 0, CPU)
    past.predict = lambda x: torch.full((1, 4), float("nan"))  # type: ignore[method-assign]
    bare.service._build = lambda: past
    for _ in range(4):
        bare.label(bare.sample())
    bare.service.advance()
    bare.service.stop()
    assert bare.service.near_future_left_out == 2
    assert bare.column("sample") == []  # all four are in the log
    assert bare.journal.committed == 4


def test_an_answer_that_failed_does_not_cost_the_answers_of_the_past(tmp_path: Path) -> None:
    bare = Bare(tmp_path, shifts=(2,), keep=2)
    for _ in range(2):
        bare.label(bare.sample())
    bare.service.learner.predict = lambda x: torch.full((1, 4), float("nan"))  # type: ignore[method-assign]
    assert refused(bare.service.sample, {"x": [1, 2, 3]}).reason == "failed"
    del bare.service.learner.predict
    for _ in range(2):
        bare.label(bare.sample())
    while bare.service.delayed:
        bare.service.advance()
    assert sorted(bare.column("sample", 2)) == [2, 3]


# What is bounded.


def test_samples_that_wait_too_long_are_given_up(tmp_path: Path) -> None:
    bare = Bare(tmp_path, limits=Limits(waiting=3))
    for _ in range(5):
        bare.sample(id=str(bare.service.arrivals))
    assert bare.service.expired == 2
    assert len(bare.spool) == 3
    gone = refused(bare.service.label, {"sample": 1, "label": 0})
    assert gone.reason == "gone"
    assert "waited too long" in str(gone)
    assert refused(bare.service.label, {"id": "1", "label": 0}).reason == "unknown"
    bare.label(2)
    assert bare.sample(id="1") == 5, "its name is free again"


def test_the_spool_never_grows_and_keeps_what_something_refers_to(tmp_path: Path) -> None:
    bare = Bare(tmp_path, slots=12, limits=Limits(waiting=4, uncommitted=2))
    files = [bare.spool.folder / name for name in ("inputs.bin", "facts.bin")]
    size = [file.stat().st_size for file in files]
    assert size == [12 * 12, 12 * bare.spool.facts.itemsize]
    source = SpoolSource(bare.spool)
    held: list[int] = []
    for number in range(200):
        sample = bare.sample(number / 7)
        bare.label(sample, number % 4)
        bare.journal.wait_until_written()
        assert len(bare.spool) <= 12
        if bare.service.dispatcher.training is not None:
            job = bare.trainer.jobs[-1]
            assert job.slots is not None
            source.add_slots(job.index, job.slots)
            # The learner keeps the first sample of some batches, three at a time.
            if job.step % 5 == 0 and job.index[0] not in held:
                held = [*held, int(job.index[0])][-3:]
            read = source.read(np.concatenate([job.index, held]).astype(np.int64))
            wanted = np.concatenate([job.index, held]) / 7
            np.testing.assert_allclose(read[:, 0], wanted, rtol=1e-6)
            assert source.label[np.array(held)].tolist() == [h % 4 for h in held]
            bare.trainer.finish(held)
        bare.service.advance()
    assert [file.stat().st_size for file in files] == size
    assert bare.service.labels == 200
    assert bare.service.refused == {}


def test_a_full_spool_refuses_until_there_is_room(tmp_path: Path) -> None:
    bare = Bare(tmp_path, slots=6, limits=Limits(waiting=100, uncommitted=100))
    samples = [bare.sample() for _ in range(6)]
    found = refused(bare.service.sample, {"x": [1, 2, 3]})
    assert found.reason == "full"
    assert "6 slots" in str(found)
    for sample in samples[:4]:  # two batches: one in training, one waits
        bare.label(sample)
    assert refused(bare.service.sample, {"x": [1, 2, 3]}).reason == "full"
    bare.journal.wait_until_written()  # the log has them now; but the trainer needs them
    assert refused(bare.service.sample, {"x": [1, 2, 3]}).reason == "full"
    bare.trainer.finish()
    bare.service.advance()
    assert bare.sample() == 6
    assert bare.sample() == 7
    assert refused(bare.service.sample, {"x": [1, 2, 3]}).reason == "full"


def test_a_dropped_sample_cannot_be_read(tmp_path: Path) -> None:
    spool = Spool(tmp_path, SPEC, "float32", 4)
    spool.put(0, np.array([1.0, 2.0, 3.0]))
    source = SpoolSource(spool)
    gate = SpoolGate(source, CPU)
    assert gate.read(np.array([0])).tolist() == [[1.0, 2.0, 3.0]]
    with pytest.raises(sg.StreamgaugeError, match="has not arrived yet"):
        gate.label(np.array([0]))
    with pytest.raises(sg.StreamgaugeError, match="not in the spool"):
        gate.read(np.array([1]))
    spool.set_label(0, 3, 0)
    assert gate.label(np.array([0])).tolist() == [3]
    spool.drop(0)
    spool.put(5, np.zeros(3))  # takes the same place
    with pytest.raises(sg.StreamgaugeError, match="not in the spool"):
        gate.read(np.array([0]))


def test_a_source_that_follows_knows_what_came_later(tmp_path: Path) -> None:
    """A learner whose state names samples reads them when it is loaded, where it is served too."""
    spool = Spool(tmp_path, SPEC, "float32", 4)
    follows, stays = SpoolSource(spool, follow=True), SpoolSource(spool)
    spool.put(3, np.array([1.0, 2.0, 3.0]))
    assert follows.read(np.array([3])).tolist() == [[1.0, 2.0, 3.0]]
    with pytest.raises(sg.StreamgaugeError, match="not in the spool"):
        stays.read(np.array([3]))


def test_a_spool_of_other_settings_is_not_taken_up(tmp_path: Path) -> None:
    Spool(tmp_path, SPEC, "float32", 4)
    with pytest.raises(sg.StreamgaugeError, match="give the same settings"):
        Spool(tmp_path, SPEC, "float32", 5)


def test_inputs_without_entries_need_no_room(tmp_path: Path) -> None:
    spool = Spool(tmp_path, Spec((0,), 2), "float32", 4)
    spool.put(0, np.empty(0, np.float32))
    assert SpoolSource(spool).read(np.array([0])).shape == (1, 0)


# What survives.


def test_a_sudden_end_loses_no_label_and_nothing_that_waits(tmp_path: Path) -> None:
    """The log knows 5 labels; 2 more, and one sample that waits, are only in the spool."""
    bare = Bare(tmp_path)
    for _ in range(8):
        bare.sample(id=f"n{bare.service.arrivals}")
    for sample in (1, 0, 2, 3, 5, 6, 4):
        bare.label(sample, sample % 4)
    rows = bare.journal.rows["predictions"]
    logged = {name: rows.peek(name).copy() for name in rows.columns}

    again = Bare(tmp_path)
    again.trainer.learnt = 0
    state = {"learner": {"learnt": 0}, "version": 0, "arrivals": 3, "expired": 0,
             "trained_step": -1, "offered": 2, "finished": 0, "lost": 0,
             "refused": {"malformed": 2}}  # fmt: skip
    again.service.restore(state, committed=5, right=1)
    for name, values in logged.items():
        np.testing.assert_array_equal(again.column(name), values[5:], err_msg=name)
    assert again.service.labels == 7
    assert again.service.arrivals == 8
    assert again.service.right == 1 + int((logged["label"] == logged["prediction"])[5:].sum())
    assert again.service.refused == {"malformed": 2}
    # The newest full batch waits to be trained, and the next label completes the one after it.
    again.service.advance()
    assert again.trainer.jobs[0].index.tolist() == [5, 6]
    assert refused(again.service.label, {"id": "n4", "label": 0}).reason == "duplicate"
    again.service.label({"id": "n7", "label": 0})
    assert again.service.dispatcher.waiting is not None
    assert again.service.dispatcher.waiting.index.tolist() == [4, 7]


def test_a_batch_in_the_log_that_was_not_trained_waits_again(tmp_path: Path) -> None:
    bare = Bare(tmp_path)
    for _ in range(5):
        bare.label(bare.sample())
    for trained, wanted in ((-1, [2, 3]), (0, [2, 3]), (1, None)):
        again = Bare(tmp_path)
        state = {"learner": {"learnt": 0}, "version": 0, "arrivals": 5, "expired": 0,
                 "trained_step": trained, "offered": 2, "finished": trained + 1, "lost": 0,
                 "refused": {}}  # fmt: skip
        again.service.restore(state, committed=5, right=0)
        waiting = again.service.dispatcher.waiting
        assert (None if waiting is None else waiting.index.tolist()) == wanted
        assert again.service._gathering == [4]


# By JSON lines.


class Slowly(io.BytesIO):
    """Lines that come one after the other, and not all at once: who trains beside has time to."""

    def readline(self, *size: Any) -> bytes:
        time.sleep(0.005)
        return super().readline(*size)


def lines_run(
    out: Path, messages: list[Any], lines: type[io.BytesIO] = io.BytesIO, **options: Any
) -> tuple[Run, list[Any]]:
    text = b"".join(m if isinstance(m, bytes) else json.dumps(m).encode() + b"\n" for m in messages)
    answers = io.BytesIO()
    said: list[str] = []
    arguments: dict[str, Any] = {"trainer": "thread", "out": out, "log": said.append, **options}
    run = serve(SPEC, "ncm", lines=lines(text), answers=answers, **arguments)
    return run, [json.loads(line) for line in answers.getvalue().splitlines()]


def test_json_lines_are_answered_in_order_refusals_too(tmp_path: Path) -> None:
    messages = [
        {"x": [0, 0, 0]},
        {"sample": 0, "label": 1},
        b"not json\n",
        b"\n",
        {"x": [1, 2]},
        {"sample": 0, "label": 1},
        {"sample": 9, "label": 1},
        b'{"x": "' + b"A" * 9000 + b'"}\n',
        b"[" * 4000 + b"\n",
        {"x": [3, 3, 3]},
        {"sample": 1, "label": 2},
    ]
    run, replies = lines_run(tmp_path, messages, batch=2)
    assert [reply.get("reason", "taken") for reply in replies] == [
        "taken", "taken", "malformed", "malformed", "duplicate", "unknown", "too_large",
        "malformed", "taken", "taken",
    ]  # fmt: skip
    assert run.done
    assert run.predictions["sample"].tolist() == [0, 1]
    assert run.stream["samples"] == 2
    assert run.stream["steps"] == 1
    found = summarise(run)
    assert found.refused == {"malformed": 3, "duplicate": 1, "unknown": 1, "too_large": 1}
    assert "3 malformed" in summary_text(run)


def test_no_message_ends_the_lines(tmp_path: Path) -> None:
    odd = b'{"x": [1, 1, 1], "id": "\\ud800"}\n'
    _, replies = lines_run(tmp_path, [odd, {"x": [0, 0, 0]}])
    assert [reply.get("reason", "taken") for reply in replies] == ["malformed", "taken"]


def test_a_mistake_of_ours_is_not_taken_for_the_end_of_the_input() -> None:
    class Mistaken:
        def handle(self, message: Any) -> Any:
            raise ValueError("a mistake")

    lines = JsonLinesServer(Mistaken(), io.BytesIO(b"{}\n{}\n"), io.BytesIO(), 100)  # type: ignore[arg-type]
    lines.run()
    assert str(lines.error) == "a mistake"
    closed = io.BytesIO()
    closed.close()
    for lines in (
        JsonLinesServer(Mistaken(), closed, io.BytesIO(), 100),  # type: ignore[arg-type]
        JsonLinesServer(
            type("Says", (), {"handle": lambda *_: {}})(), io.BytesIO(b"{}\n"), closed, 100
        ),
    ):
        lines.run()
        assert lines.error is None
        assert lines.ended.is_set()


def test_a_service_that_nobody_asked_says_so_in_words(tmp_path: Path) -> None:
    run, _ = lines_run(tmp_path / "none", [])
    assert "nothing came" in summary_text(run)
    unlabelled, _ = lines_run(tmp_path / "some", [{"x": [0, 0, 0]}])
    assert "unknown: no label came" in summary_text(unlabelled)
    assert "no batch was full" in summary_text(unlabelled)
    assert "nan" not in summary_text(run) + summary_text(unlabelled)


def test_a_damaged_summary_file_is_one_sentence(tmp_path: Path) -> None:
    run, _ = lines_run(tmp_path, [{"x": [0, 0, 0]}])
    for text in ("[" * 100_000, "[]", "{}", '{"offered": "many"}', "\xff"):
        (run.path / "live.json").write_text(text)
        with pytest.raises(sg.StreamgaugeError, match=r"live.json is damaged"):
            summarise(run)


def test_a_run_is_taken_up_again_and_has_learnt(tmp_path: Path) -> None:
    """Three classes that are easy to tell apart, in two sittings; the second knows the first."""
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    points = (10 * np.eye(3)[labels] + rng.normal(size=(60, 3))).round(3)

    def talk(first: int, last: int) -> list[Any]:
        messages: list[Any] = []
        for n in range(first, last):
            messages.append({"x": points[n].tolist()})
            messages.append({"sample": n, "label": int(labels[n])})
        return messages

    first, replies = lines_run(tmp_path, talk(0, 30), Slowly, batch=3, checkpoint=0.01)
    assert all("error" not in reply for reply in replies)
    trained = summarise(first).updates
    assert trained > 0
    second, replies = lines_run(tmp_path, talk(30, 60), Slowly, batch=3, checkpoint=0.01)
    assert second.path == first.path
    assert replies[0]["version"] >= trained
    assert all(r["prediction"] == labels[r["sample"]] for r in replies if "prediction" in r)
    assert second.predictions["sample"].tolist() == list(range(60))
    assert second.predictions["step"].tolist() == [n // 3 for n in range(60)]
    assert (np.diff(second.predictions["version"]) >= 0).all()
    assert sg.score(second)["online_accuracy"] > 0.5
    assert summarise(second).arrivals == 60


def test_a_run_of_a_process_reads_the_spool(tmp_path: Path) -> None:
    """ER recalls samples of the spool by arrival number, in another process."""
    spec = Spec((3, 8, 8), 2)
    rng = np.random.default_rng(0)
    messages: list[Any] = []
    for n in range(40):
        x = np.clip(60 + 120 * (n % 2) + rng.integers(-20, 20, (3, 8, 8)), 0, 255)
        messages.append({"x": base64.b64encode(x.astype(np.uint8).tobytes()).decode()})
        messages.append({"sample": n, "label": n % 2})

    class Slowly(io.RawIOBase):
        """A client that leaves time to learn."""

        def __init__(self) -> None:
            self.rest = [json.dumps(m).encode() + b"\n" for m in messages]

        def readline(self, size: Any = -1) -> bytes:  # type: ignore[override]
            time.sleep(0.01)
            return self.rest.pop(0) if self.rest else b""

    answers = io.BytesIO()
    run = serve(
        spec, sg.learner("er", memory=8, recall=4), lines=Slowly(), answers=answers,  # type: ignore[arg-type]
        inputs="uint8", batch=4, waiting=2, spool=80, shifts=(8,), out=tmp_path,
        log=lambda line: None,
    )  # fmt: skip
    assert summarise(run).updates >= 3
    assert run.jobs["recalled"].max() == 4
    near = run.predictions["shift"] == 8
    assert near.any()
    assert (run.path / "spool" / "inputs.bin").stat().st_size == 80 * 192
    assert not any(b"error" in line for line in answers.getvalue().splitlines())


def test_samples_that_gss_may_still_store_stay_in_the_spool(tmp_path: Path) -> None:
    """Whether a batch replaces anything is decided when the next one comes, so until then nothing
    of it may be dropped. With few places, whatever is dropped is soon written over."""
    rng = np.random.default_rng(0)
    classes = rng.normal(0, 3, (4, 3))
    spool = Spool(tmp_path, SPEC, "float32", 18)
    settings = {"model": "linear", "memory": 10, "subset": 1, "subsets": 3, "recall": 4}
    trainer = LocalTrainer(sg.learner("gss", **settings), Setup(SPEC, SpoolSource(spool), batch=4))
    replaced = 0.0
    for step in range(40):
        index, label = 4 * step + np.arange(4), int(rng.integers(0, 4))  # a batch of one class
        for sample in index:
            spool.put(int(sample), classes[label] + rng.normal(size=3))
            spool.set_label(int(sample), label, int(sample))
        places = np.array([spool.slot_of[int(sample)] for sample in index])
        update = trainer.train(TrainingRequest(step, index, None, slots=places))
        assert len(update.addresses) <= 10 + 4
        spool.drop_unreferenced(4 * (step + 1), [update.addresses])
        replaced += update.scalars["replaced"]
    assert replaced > 4


@pytest.mark.parametrize(
    ("learner", "options", "match"),
    [
        ("er_cosine", {}, "needs horizon"),
        (sg.learner("er", policy="everything"), {}, "keeps every sample"),
        ("er", {"spool": 100}, "too small"),
        ("blind", {"batch": 0}, "batch must be"),
        ("blind", {"class_names": ["a"]}, "1 names"),
        ("blind", {"host": "0.0.0.0", "port": 0}, "other machines"),
        ("blind", {"host": "example.org", "port": 0}, "other machines"),
    ],
)
def test_what_cannot_be_served_is_said(
    learner: Any, options: dict[str, Any], match: str, tmp_path: Path
) -> None:
    spec = Spec((3, 8, 8), 4)
    with pytest.raises(sg.StreamgaugeError, match=match):
        serve(spec, learner, lines=io.BytesIO(), out=tmp_path, trainer="thread", log=str,
              **options)  # fmt: skip


def test_only_this_machine_is_served_unless_allowed() -> None:
    for host in ("127.0.0.1", "localhost", "::1", "127.3.2.1"):
        require_local_host(host, anywhere=False)
    require_local_host("0.0.0.0", anywhere=True)
    with pytest.raises(sg.StreamgaugeError, match="--anywhere"):
        require_local_host("192.168.1.5", anywhere=False)


# By HTTP.


class Client:
    def __init__(self, port: int) -> None:
        self.port = port
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)

    def send(
        self, path: str, message: Any, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.connection.request("POST", path, body, headers or {})
        reply = self.connection.getresponse()
        return reply.status, json.loads(reply.read())

    def status(self) -> Any:
        self.connection.request("GET", "/status")
        return json.loads(self.connection.getresponse().read())


class Server:
    def __init__(self, out: Path, **options: Any) -> None:
        self.stop, self.ports = threading.Event(), []
        self.run: list[Run] = []
        ready = threading.Event()
        arguments: dict[str, Any] = {"trainer": "thread", "batch": 2, "log": str, **options}

        def tell(port: int) -> None:
            self.ports.append(port)
            ready.set()

        def work() -> None:
            self.run.append(
                serve(SPEC, "ncm", port=0, out=out, stop=self.stop, ready=tell, **arguments)
            )

        self.thread = threading.Thread(target=work)
        self.thread.start()
        assert ready.wait(120)  # a busy machine takes its time to import torch

    def end(self) -> Run:
        self.stop.set()
        self.thread.join(30)
        return self.run[0]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    started = Server(tmp_path, connections=4)
    yield started
    started.stop.set()
    started.thread.join(30)


def test_http_answers_samples_takes_labels_and_refuses(server: Server) -> None:
    client = Client(server.ports[0])
    assert client.send("/predict", {"x": [0, 0, 9]})[0] == 200
    assert client.send("/predict", {"x": [9, 0, 0], "id": "b"})[1]["sample"] == 1
    assert client.send("/label", {"sample": 0, "label": 2})[0] == 200
    assert client.send("/label", {"id": "b", "label": 0})[0] == 200
    for path, message, status, reason in [
        ("/predict", {"x": [1, 2]}, 400, "malformed"),
        ("/predict", b"{", 400, "malformed"),
        ("/predict", {"x": [0, 0, 0], "id": "b"}, 409, "duplicate"),
        ("/label", {"sample": 1, "label": 0}, 409, "duplicate"),
        ("/label", {"sample": 7, "label": 0}, 404, "unknown"),
        ("/label", {"sample": 0, "label": 99}, 400, "malformed"),
        ("/elsewhere", {"x": [0, 0, 0]}, 400, "malformed"),
        ("/predict", b" " * 10_000, 413, "too_large"),
    ]:
        found = client.send(path, message)
        assert (found[0], found[1]["reason"]) == (status, reason), (path, message)
        assert found[1]["error"].endswith((".", "?"))
    page = {"Origin": "https://example.org"}
    assert client.send("/predict", {"x": [0, 0, 0]}, page)[0] == 400
    until = time.monotonic() + 10
    while client.status()["updates"] < 1 and time.monotonic() < until:
        time.sleep(0.01)
    assert client.send("/predict", {"x": [0, 0, 8]})[1]["prediction"] == 2
    status = client.status()
    assert status["samples"] == 3
    assert status["labels"] == 2
    assert status["waiting"] == 1
    assert status["refused"] == {"malformed": 5, "duplicate": 2, "unknown": 1, "too_large": 1}
    run = server.end()
    assert run.done
    assert summarise(run).refused == status["refused"]
    assert summarise(run).latency_p99 > 0


def test_too_many_connections_are_told_to_come_back(server: Server) -> None:
    clients = [Client(server.ports[0]) for _ in range(4)]
    for client in clients:
        assert client.send("/predict", {"x": [0, 0, 0]})[0] == 200
    status, reply = Client(server.ports[0]).send("/predict", {"x": [0, 0, 0]})
    assert (status, reply["reason"]) == (503, "busy")
    assert clients[0].status()["refused"] == {"busy": 1}
    clients[1].connection.close()
    until = time.monotonic() + 10
    while time.monotonic() < until:
        if Client(server.ports[0]).send("/predict", {"x": [0, 0, 0]})[0] == 200:
            break
        time.sleep(0.02)
    else:
        pytest.fail("the place of a connection that ended was not free again")


def test_a_client_that_hangs_up_or_talks_nonsense_hurts_nobody(server: Server) -> None:
    for data in (b"", b"POST /predict HTTP/1.1\r\n", b"\x00\xff nonsense\r\n\r\n",
                 b"POST /predict HTTP/1.1\r\nContent-Length: 50\r\n\r\n{"):  # fmt: skip
        with socket.create_connection(("127.0.0.1", server.ports[0])) as raw:
            raw.sendall(data)
    client = Client(server.ports[0])
    assert client.send("/predict", {"x": [0, 0, 0]})[0] == 200


def test_a_taken_port_is_said(server: Server, tmp_path: Path) -> None:
    with pytest.raises(sg.StreamgaugeError, match="choose another port"):
        serve(SPEC, "blind", port=server.ports[0], out=tmp_path / "other", trainer="thread",
              log=str)  # fmt: skip


def test_a_trainer_that_comes_back_finds_its_memory_in_the_spool(tmp_path: Path) -> None:
    spool = Spool(tmp_path, Spec((3, 8, 8), 2), "uint8", 30)
    recipe = sg.learner("er", memory=10, recall=5)

    def job(step: int) -> TrainingRequest:
        index = np.arange(5 * step, 5 * step + 5)
        for n in index.tolist():
            spool.put(n, np.full((3, 8, 8), 100 + 50 * (n % 2), np.uint8))
            spool.set_label(n, n % 2, n)
        return TrainingRequest(
            step, index, slots=np.array([spool.slot_of[n] for n in index.tolist()])
        )

    trainer = LocalTrainer(recipe, Setup(spool.spec, SpoolSource(spool), 5))
    trainer.train(job(0))
    update = trainer.train(job(1))
    assert len(update.addresses) == 10
    sent = pickle.loads(pickle.dumps(SpoolSource(spool)))
    other = LocalTrainer(recipe, Setup(spool.spec, sent, 5), unpack(pack(update.state)))
    third = job(2)
    one, two = trainer.train(third), other.train(third)
    assert one.scalars == two.scalars
    assert one.addresses.tolist() == two.addresses.tolist()


# The end.

SCRIPT = """
import sys, streamgauge as sg
from streamgauge.live import serve
from streamgauge.streams import Spec
serve(Spec((3,), 4), "ncm", port={port}, batch=3, checkpoint=1e9, out={out!r}, trainer="thread",
      ready=lambda port: print(port, flush=True))
"""


def started(out: Path, port: str = "0") -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(out=str(out), port=port)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def test_neither_sigterm_nor_sigkill_loses_what_was_acknowledged(tmp_path: Path) -> None:
    """Clients that send all the time, and a server that is ended in the middle: killed first, then
    asked to end. Every label that was acknowledged is in the log, once; every sample that was
    answered still takes its label after the restart."""
    taken: dict[int, int] = {}
    unlabelled: list[int] = []

    def talk(port: int, first: bool) -> None:
        client = Client(port)
        try:
            if not first:
                for sample in list(unlabelled):
                    status, reply = client.send("/label", {"sample": sample, "label": 3})
                    assert status == 200, reply
                    unlabelled.remove(sample)
                    taken[sample] = 3
            while True:
                status, reply = client.send("/predict", {"x": [1, 2, 3]})
                if status != 200:
                    return
                sample = reply["sample"]
                if sample % 5 == 0:
                    unlabelled.append(sample)
                    continue
                if client.send("/label", {"sample": sample, "label": sample % 4})[0] != 200:
                    return
                taken[sample] = sample % 4
        except (OSError, http.client.HTTPException):
            return

    for number, end in enumerate((signal.SIGKILL, signal.SIGTERM)):
        process, port = started(tmp_path)
        thread = threading.Thread(target=talk, args=(port, number == 0))
        thread.start()
        time.sleep(0.7)
        process.send_signal(end)
        thread.join(30)
        errors = process.communicate(timeout=30)[1]
        if end == signal.SIGTERM:
            assert process.returncode == 0, errors
            assert "all acknowledged messages are kept" in errors
            assert "goes on" in errors
    (run,) = sg.find_runs([tmp_path])
    assert run.done
    logged = dict(zip(run.predictions["sample"].tolist(), run.predictions["label"].tolist(),
                      strict=True))  # fmt: skip
    assert len(taken) > 20
    assert len(logged) == run.predictions.rows, "a label is in the log twice"
    assert {s: logged.get(s) for s in taken} == taken
    # Of the rest, at most the one whose reply was cut off at each end.
    assert len(logged) - len(taken) <= 2
    assert run.predictions["step"].tolist() == [n // 3 for n in range(len(logged))]
    assert NONE not in logged.values()


def test_sigterm_ends_a_service_of_lines_that_waits_for_input(tmp_path: Path) -> None:
    code = SCRIPT.replace("port={port}", "port=None").format(out=str(tmp_path))
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    for message in ({"x": [1, 2, 3]}, {"sample": 0, "label": 2}):
        process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()
        assert "error" not in json.loads(process.stdout.readline())
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 0, process.stderr and process.stderr.read()
    (run,) = sg.find_runs([tmp_path])
    assert run.predictions["label"].tolist() == [2]
