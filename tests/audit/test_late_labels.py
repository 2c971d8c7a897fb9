"""Rows without a label, labels that arrive late, probabilities: what the log says was known."""

from __future__ import annotations

import numpy as np
import pytest

from streamgauge.audit import audit
from streamgauge.audit.log import PredictionLog
from streamgauge.audit.tally import join, scan
from streamgauge.errors import StreamgaugeError
from streamgauge.tables import base

N = 600
DAY = 86_400


def columns(seed=0):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 3, N)
    answer = np.where(rng.random(N) < 0.6, label, rng.integers(0, 3, N))
    return {"label": label.astype(object), "prediction": answer, "time": np.arange(N) * 60}


def read(log, **given):
    opened = PredictionLog(log, **given)
    return opened, join(list(opened.pieces()))


@pytest.mark.parametrize("gaps", [[], [5, 17, 300]], ids=["at the end", "also elsewhere"])
def test_rows_without_a_label_are_counted_and_left_out(monkeypatch, gaps):
    """Also in pieces so small that some have no label at all."""
    monkeypatch.setattr(base, "PIECE_ROWS", 100)
    given = columns()
    missing = np.arange(N) >= 450
    missing[gaps] = True
    log = given | {"label": np.where(missing, None, given["label"])}
    found = scan(PredictionLog(log))
    assert (found.unlabelled, found.newest) == (150 + len(gaps), 150)
    assert found.length == N - found.unlabelled
    with_label = {name: values[~missing] for name, values in given.items()}
    result, expected = audit(log), audit(with_label)
    assert result.unlabelled == found.unlabelled
    assert result.values["online"] == expected.values["online"]
    assert result.values["blind"] == expected.values["blind"]
    assert f"{found.unlabelled} rows have no label, 150 of them at the end" in result.notes[0]


def test_a_log_in_pieces_may_lack_its_newest_labels():
    def serial_map(function, tasks):
        return [function(*task) for task in tasks]

    given = columns()
    ends = {"hold": 100, "spread": serial_map, "rows": 200}
    late = given | {"label": np.where(np.arange(N) >= 350, None, given["label"])}
    expected = audit({name: values[:350] for name, values in given.items()}, hold=100)
    found = audit(late, **ends)
    assert found.unlabelled == 250
    assert found.values["online"] == expected.values["online"]
    assert found.values["blind"] == expected.values["blind"]
    late["label"][3] = None
    with pytest.raises(StreamgaugeError, match="without a label between others"):
        audit(late, **ends)


def test_the_row_where_times_go_back_is_named_by_its_place_in_the_file():
    given = columns()
    given["label"][[3, 10]] = None
    given["time"][20] = 0
    with pytest.raises(StreamgaugeError, match="go back at row 21 "):
        audit(given)


def test_times_of_labels_are_read_in_any_spelling():
    given = columns()
    known = given["time"] + 3 * DAY
    iso = np.array([str(np.datetime64(int(t), "s")) for t in known])
    in_ms = (known + 1_700_000_000) * 1000
    for name, values in (("label_time", known), ("labelled_at", iso), ("Label timestamp", known)):
        log, rows = read(given | {name: values})
        assert log.roles["label_time"] == name
        np.testing.assert_array_equal(rows.label_time, known)
    _, rows = read(given | {"label_time": in_ms})
    np.testing.assert_array_equal(rows.label_time, known + 1_700_000_000)


def test_a_time_is_needed_only_where_there_is_a_label(monkeypatch):
    """The first piece has no label time at all: it must not decide the unit of the others."""
    monkeypatch.setattr(base, "PIECE_ROWS", 100)
    given = columns()
    known = (given["time"] + 1_700_000_000.0) * 1000
    known[:150] = np.nan
    given["label"][:150] = None
    _, rows = read(given | {"label_time": known})
    np.testing.assert_array_equal(rows.label_time, given["time"][150:] + 1_700_000_000)


def test_a_delay_stands_for_times_of_labels():
    given = columns()
    log = PredictionLog(given)
    log.delay_labels("3d")
    np.testing.assert_array_equal(join(list(log.pieces())).label_time, given["time"] + 3 * DAY)
    log = PredictionLog({"label": given["label"]})
    log.delay_labels("25")
    assert log.delay == 25
    log.delay_labels("1h", every=7.0)
    assert log.delay == 515  # 3600 / 7, rounded up


@pytest.mark.parametrize(
    ("more", "options", "sentence"),
    [
        ({}, {"label_delay": "soon"}, "not a duration"),
        ({}, {"label_delay": -3}, "below 0"),
        ({"time": None}, {"label_delay": "1h"}, "needs times"),
        ({"label_time": np.arange(N) * 60}, {"label_delay": 5}, "contradict"),
        ({"time": None, "known": np.arange(N)}, {"label_time": "known"}, "times of the answers"),
    ],
)
def test_delays_that_mean_nothing_get_a_sentence(more, options, sentence):
    with pytest.raises(StreamgaugeError, match=sentence):
        audit(columns() | more, **options)


def test_labels_older_than_their_answers_are_said():
    given = columns()
    known = given["time"] + np.where(np.arange(N) % 3 == 0, -60, 60)
    assert any(f"{N // 3} labels were known before" in note
               for note in audit(given | {"label_time": known}).notes)  # fmt: skip
    unused = audit({"label": given["label"], "label_time": known}).notes
    assert unused == ["Column 'label_time' is not used: the log has no times of answers."]


def test_probabilities():
    given = columns()
    logp = -np.random.default_rng(1).exponential(size=N)
    logp[3], logp[4] = np.nan, -np.inf
    confidence = np.random.default_rng(2).random(N)
    confidence[9] = 1 + 1e-7
    for names in (("logp", "confidence"), ("log_prob", "probability"), ("logProbability", "score")):
        log, rows = read(given | dict(zip(names, (logp, confidence), strict=True)))
        assert (log.roles["logp"], log.roles["confidence"]) == names
        np.testing.assert_array_equal(rows.logp, logp.astype(np.float32))
        np.testing.assert_array_equal(rows.confidence, np.minimum(confidence, 1).astype(np.float32))
    log, rows = read(given | {"score": 9 * confidence}, confidence="none")
    assert rows.confidence is None
    with pytest.raises(
        StreamgaugeError, match=r"between 0 and 1: name another .*--confidence none"
    ):
        read(given | {"score": 9 * confidence})


def test_negative_labels_are_classes():
    label = np.resize([-1, 1, 1], N)
    assert audit({"label": label, "prediction": np.ones(N)}).values["online"] == 2 / 3
    assert audit({"label": label}).classes == 2
    (note,) = audit({"label": np.resize([-1, 0, 1], N)}).notes
    assert "-1 is counted as a class" in note


def test_a_class_that_is_only_predicted_is_no_error():
    label = np.resize([0, 1], N)
    assert audit({"label": label, "prediction": np.resize([0, 7], N)}).values["online"] == 0.5


def test_labels_known_before_their_answers_leave_the_question_open() -> None:
    rng = np.random.default_rng(0)
    label, time = rng.integers(0, 5, 4_000), np.arange(4_000) * 60
    log = {"label": label, "prediction": label, "time": time, "label_time": time - 3_600}
    found = audit(log)
    assert found.early_labels == 1
    assert found.answer == "cannot tell"
    assert "known before their own sample was answered" in found.words[0]
