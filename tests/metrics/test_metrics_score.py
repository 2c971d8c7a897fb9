"""From a log to arrays and to the whole list of scores."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from streamgauge import metrics as m
from streamgauge.errors import StreamgaugeError
from streamgauge.history.known import Known

NAN = float("nan")


class Evaluations:
    """Collects evaluation rows as a run would log them."""

    def __init__(self):
        self.rows = []
        self.number = -1

    def add(self, step, current, split, results, same=False):
        """results: {(task, within): (correct, count)}"""
        self.number += not same
        for (task, within), (correct, count) in results.items():
            self.rows.append((self.number, step, split, task, current, within, correct, count))

    def table(self, shuffle=None):
        rows = list(self.rows)
        if shuffle is not None:
            np.random.default_rng(shuffle).shuffle(rows)
        names = ("evaluation", "step", "split", "task", "current", "within", "correct", "count")
        table = {name: np.array([row[i] for row in rows]) for i, name in enumerate(names)}
        for name in names:
            if name != "split":
                table[name] = table[name].astype(int)
        table["split"] = table["split"].astype(object)
        table["version"] = table["step"]
        return table


def class_incremental(seed=0, tasks=3, per_task=4, unseen=False, ids=None, shuffle=None):
    """Continual evaluation on `valid`, boundaries on `test`, cumulative rows, untrained model."""
    rng = np.random.default_rng(seed)
    ids = list(range(tasks)) if ids is None else ids
    log, step = Evaluations(), 0
    truth = {"a": np.full((tasks, tasks), NAN), "b": np.full((tasks, tasks), NAN)}
    acc, current = [], []

    def draw(size):
        return int(rng.integers(0, size + 1)), size

    if unseen:
        first = {(ids[j], -1): draw(50) for j in range(tasks)}
        log.add(0, -1, "test", first)
        truth["untrained"] = [first[ids[j], -1][0] / 50 for j in range(tasks)]
    for k in range(tasks):
        for _ in range(per_task):
            step += 5
            results = {(ids[j], -1): draw(20) for j in range(k + 1)}
            log.add(step, ids[k], "valid", results)
            acc.append([results[ids[j], -1][0] / 20 if j <= k else NAN for j in range(tasks)])
            current.append(k)
        seen = range(tasks if unseen else k + 1)
        results = {(ids[j], -1): draw(50) for j in seen}
        for j in seen:
            truth["a"][k, j] = results[ids[j], -1][0] / 50
        truth["b"][k, k] = np.mean([truth["a"][k, j] for j in range(k + 1)])
        for w in range(k):
            narrow = {(ids[j], ids[w]): draw(50) for j in range(w + 1)}
            results |= narrow
            truth["b"][k, w] = sum(c for c, _ in narrow.values()) / (50 * (w + 1))
        log.add(step, ids[k], "test", results)
    truth["acc"], truth["task"] = np.array(acc), np.array(current)
    log_object = SimpleNamespace(evaluations=log.table(shuffle), predictions={}, answers={})
    return log_object, truth


@pytest.mark.parametrize("unseen", [False, True])
@pytest.mark.parametrize("shuffle", [None, 3])
@pytest.mark.parametrize("ids", [[0, 1, 2], [2, 0, 1]])
def test_arrays_from_a_log(unseen, shuffle, ids):
    """Row order does not matter, and tasks are counted in the order of their training."""
    log, truth = class_incremental(unseen=unseen, shuffle=shuffle, ids=ids)
    np.testing.assert_allclose(m.accuracy_matrix(log), truth["a"])
    np.testing.assert_allclose(m.cumulative_matrix(log), truth["b"])
    acc, task, step = m.continual_accuracy(log)
    np.testing.assert_allclose(acc, truth["acc"])
    assert task.tolist() == truth["task"].tolist()
    assert step.tolist() == [5 * (i + 1) for i in range(12)]
    # The other split by name: the boundaries alone.
    by_name = m.continual_accuracy(log, "test")
    assert by_name.task.tolist() == [-1] * unseen + [0, 1, 2]
    boundary = m.accuracy_matrix(log, "valid")
    np.testing.assert_allclose(boundary, truth["acc"][[3, 7, 11]])
    assert m.retained_accuracy(log) == pytest.approx(truth["a"][2].mean())


def test_the_last_evaluation_of_a_task_is_the_boundary_and_gaps_belong_to_the_task_before():
    log = Evaluations()
    log.add(5, 0, "test", {(0, -1): (1, 10)})
    log.add(9, 0, "test", {(0, -1): (2, 10)})
    log.add(9, -1, "test", {(0, -1): (3, 10)})  # between tasks
    log.add(12, 1, "test", {(0, -1): (4, 10), (1, -1): (5, 10)})
    log.add(15, 0, "test", {(0, -1): (6, 10), (1, -1): (7, 10)})  # task 0 comes back
    run = SimpleNamespace(evaluations=log.table())
    np.testing.assert_allclose(m.accuracy_matrix(run), [[0.3, NAN], [0.6, 0.7]])
    assert m.continual_accuracy(run).task.tolist() == [0, 0, 0, 1, 0]


def test_parts_of_one_evaluation_are_added_and_nothing_counted_is_nan():
    log = Evaluations()
    log.add(5, 0, "test", {(0, -1): (1, 10)})
    log.add(5, 0, "test", {(0, -1): (6, 10)}, same=True)
    log.add(9, 1, "test", {(0, -1): (4, 10), (1, -1): (0, 0)})
    run = SimpleNamespace(evaluations=log.table())
    np.testing.assert_allclose(m.accuracy_matrix(run), [[0.35, NAN], [0.4, NAN]])


def test_missing_columns_and_splits_are_named():
    log, _ = class_incremental()
    with pytest.raises(StreamgaugeError, match="did you mean 'valid'"):
        m.accuracy_matrix(log, "val")
    del log.evaluations["current"]
    with pytest.raises(StreamgaugeError, match="evaluations has no column 'current'"):
        m.accuracy_matrix(log)
    with pytest.raises(StreamgaugeError, match="no column"):
        m.accuracy_matrix(SimpleNamespace(evaluations={}))


# --- score -----------------------------------------------------------------------------------


def test_score_of_a_class_incremental_run():
    log, truth = class_incremental(unseen=True)
    classes = [5, 10, 15]
    found = m.score(log, classes=classes)
    a, b, acc, task = truth["a"], truth["b"], truth["acc"], truth["task"]
    worst = m.worst_case_accuracy(acc, task)
    gap = m.stability_gap(acc, task)
    expected = {
        "retained_accuracy": a[2].mean(),
        "average_accuracy": m.average_accuracy(a)[2],
        "average_forgetting": m.average_forgetting(a)[2],
        "average_forgetting_first": m.average_forgetting(a, "first", "all")[2],
        "average_accuracy_continuum": m.average_accuracy(a, "continuum")[2],
        "backward_transfer": m.backward_transfer(a)[2],
        "backward_transfer_capymoa": m.backward_transfer(a, "capymoa")[2],
        "forward_transfer_capymoa": m.forward_transfer(a, None, "capymoa")[2],
        "forward_transfer_continuum": m.forward_transfer(a, None, "continuum")[2],
        "forward_transfer": m.forward_transfer(a, truth["untrained"])[2],
        "rescaled_accuracy": m.rescaled_accuracy(a, classes)[2],
        "rescaled_forgetting": m.rescaled_forgetting(a, classes)[2],
        "cumulative_forgetting": m.cumulative_forgetting(b)[2],
        "cumulative_forgetting_first": m.cumulative_forgetting(b, "first")[2],
        "anytime_accuracy": m.anytime_accuracy(acc, task)[-1],
        "anytime_accuracy_error": m.anytime_error(acc, task, m.continual_accuracy(log)[2]),
        "minimum_accuracy": m.minimum_accuracy(acc, task)[-1],
        "worst_case_accuracy": worst[-1],
        "worst_case_smoothed": m.worst_case_accuracy(acc, task, 4)[-1],
        "worst_case_window": 4,
        "worst_case_interval": 5,
        "worst_case_set_size": 20,
        "stability_gap_depth": gap.depth.mean(),
        "stability_gap_recovered": np.mean(~np.isnan(gap.recovery)),
    }
    if not np.isnan(gap.recovery).all():
        expected["stability_gap_recovery"] = np.nanmean(gap.recovery)
    assert found == pytest.approx(expected)
    assert all(type(value) is float for value in found.values())


def test_score_leaves_out_what_the_log_cannot_give():
    log, _ = class_incremental()
    found = m.score(log)
    assert "rescaled_accuracy" not in found  # number of classes unknown
    assert "forward_transfer" not in found  # unseen tasks were not evaluated
    assert "average_forgetting" in found
    single, _ = class_incremental(tasks=1)
    found = m.score(single)
    assert "worst_case_accuracy" not in found
    assert "worst_case_interval" not in found
    assert "average_forgetting" not in found
    assert "anytime_accuracy" in found
    assert m.score(SimpleNamespace(predictions={}, evaluations={}, answers={})) == {}
    assert m.score(SimpleNamespace()) == {}


def test_a_run_cut_short_is_scored_up_to_where_it_came():
    log, truth = class_incremental(unseen=True)
    e = log.evaluations
    log.evaluations = {name: values[e["current"] < 2] for name, values in e.items()}
    found = m.score(log, classes=[5, 10, 15])
    assert found["average_accuracy"] == pytest.approx(truth["a"][1, :2].mean())
    assert found["rescaled_accuracy"] == pytest.approx(truth["a"][1, :2].mean() * 10 / 15)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
@pytest.mark.parametrize("predicted", [True, False])
def test_one_evaluation_after_the_last_task_is_over_all_tasks(order, predicted):
    """As GDumb is evaluated: nothing says on the way which task is being trained."""
    found = Evaluations()
    found.add(30, order[-1], "test", {(0, -1): (2, 10), (1, -1): (5, 10), (2, -1): (9, 10)})
    log = SimpleNamespace(evaluations=found.table(), predictions={}, answers={})
    if predicted:
        task = np.repeat(order, 10)
        log.predictions = {
            "step": np.arange(30), "task": task, "label": task, "prediction": task,
            "shift": np.zeros(30, dtype=int),
        }  # fmt: skip
    elif order[-1] != 2:
        return  # nothing in the log tells the order
    scores = m.score(log)
    assert scores["average_accuracy"] == scores["retained_accuracy"] == pytest.approx(16 / 30)
    assert m.accuracy_matrix(log)[2].tolist() == [(2, 5, 9)[j] / 10 for j in order]
    assert np.isnan(m.accuracy_matrix(log)[:2]).all()
    assert "average_forgetting" not in scores
    assert "anytime_accuracy" not in scores  # one moment is no average over time


def test_classes_are_counted_from_labels_with_tasks():
    log, _ = class_incremental(ids=[2, 0, 1])
    task = np.array([2, 2, 2, 0, 0, 1, 1, 1])
    label = np.array([7, 8, 7, 1, 7, 2, 3, 4])  # 7 is met again in a later task
    log.predictions = {"task": task, "label": label}
    assert m.classes_seen(log).tolist() == [2, 3, 6]
    assert "rescaled_accuracy" in m.score(log)
    log.predictions = {"task": task[:5], "label": label[:5]}
    assert m.classes_seen(log) is None  # one task's labels are not there
    log.classes = [5, 10, 15]
    assert m.classes_seen(log).tolist() == [5, 10, 15]


def photo_stream(seed=0, n=1200, batch=10):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 5, n)
    index = np.arange(n)
    parts = []
    for shift in (0, 20, 100):
        keep = index[shift:]
        parts.append((keep // batch, keep + 7, label[keep], rng.integers(0, 5, len(keep)), shift))
    predictions = {
        "step": np.concatenate([p[0] for p in parts]),
        "sample": np.concatenate([p[1] for p in parts]),
        "label": np.concatenate([p[2] for p in parts]),
        "prediction": np.concatenate([p[3] for p in parts]),
        "shift": np.concatenate([np.full(len(p[0]), p[4]) for p in parts]),
    }
    rows = len(predictions["step"])
    predictions["confidence"] = rng.random(rows)
    predictions["user"] = predictions["sample"] // 4
    at, held_out = (40, 80, 120), 60
    place = rng.integers(0, n, held_out)
    answers = {
        "evaluation": np.repeat([0, 1, 2], held_out),
        "step": np.repeat(at, held_out),
        "split": np.array(["heldout"] * 3 * held_out, dtype=object),
        "label": np.tile(rng.integers(0, 5, held_out), 3),
        "prediction": rng.integers(0, 5, 3 * held_out),
        "position": np.tile(place, 3),
    }
    right = (answers["label"] == answers["prediction"]).reshape(3, held_out).sum(axis=1)
    evaluations = {
        "evaluation": np.array([0, 1, 2, 3]),
        "step": np.array([40, 80, 120, 120]),
        "split": np.array(["heldout"] * 3 + ["probe"], dtype=object),
        "task": np.full(4, -1),
        "current": np.full(4, -1),
        "within": np.full(4, -1),
        "correct": np.append(right, 30),
        "count": np.full(4, held_out),
    }
    return SimpleNamespace(predictions=predictions, evaluations=evaluations, answers=answers)


def test_score_of_a_photo_stream():
    log = photo_stream()
    found = m.score(log)
    p = log.predictions
    live = p["shift"] == 0
    label, prediction = p["label"][live], p["prediction"][live]
    known = Known(None, np.arange(len(label)) // 10 * 10)  # labels before the step
    common = m.near_future_accuracy(log, [0, 20, 100], common=True)
    backward, forward = m.backward_transfer_curve(log), m.forward_transfer_curve(log)
    expected = {
        "online_accuracy": m.online_accuracy(label, prediction),
        "near_future_accuracy@20": m.near_future_accuracy(log, 20)[0],
        "near_future_accuracy@100": m.near_future_accuracy(log, 100)[0],
        "near_future_error@20": m.near_future_error(log, 20)[0],
        "near_future_error@100": m.near_future_error(log, 100)[0],
        "near_future_common@0": common[0],
        "near_future_common@20": common[1],
        "near_future_common@100": common[2],
        "macro_accuracy": m.macro_accuracy(label, prediction),
        "balanced_accuracy": m.macro_accuracy(label, prediction),
        "macro_f1": m.macro_f1(label, prediction),
        "kappa": m.kappa(label, prediction),
        "kappa_t": m.kappa_t(label, prediction, known),
        "kappa_m": m.kappa_m(label, prediction, known),
        "kappa_combined": m.kappa_combined(label, prediction, known),
        "calibration_error": m.calibration_error(label, prediction, p["confidence"][live]),
        "album_accuracy": m.album_accuracy(label, prediction, p["user"][live], p["step"][live]),
        "worst_window@1000": m.worst_window(label == prediction, 1000).accuracy,
        "retained_accuracy": m.retention_curve(log).accuracy[-1],
        "probed_accuracy": 0.5,
        "backward_transfer_curve@H/3": backward[0].accuracy[-1],
        "backward_transfer_curve@2H/3": backward[1].accuracy[-1],
        "backward_transfer_curve@H": backward[2].accuracy[-1],
        "forward_transfer_curve@H/3": forward[0].accuracy[-1],
        "forward_transfer_curve@2H/3": forward[1].accuracy[-1],
    }
    assert found == pytest.approx(expected)
    assert found["near_future_common@0"] != found["online_accuracy"]
    # The order of the rows in the table does not matter, as long as it is kept within a step.
    order = np.lexsort((np.arange(len(p["step"])), p["step"] % 7))
    log.predictions = {name: values[order] for name, values in p.items()}
    assert m.score(log) == pytest.approx(expected)
    # Scores that are no probabilities cannot be calibrated.
    log.predictions["confidence"] = 9 * log.predictions["confidence"]
    assert "calibration_error" not in m.score(log)


def test_import_is_light():
    code = "import sys, streamgauge.metrics; print({'torch', 'numba'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "set()"


def test_everything_exported_exists():
    assert sorted(m.__all__) == m.__all__
    for name in m.__all__:
        assert getattr(m, name).__doc__


def test_a_task_that_no_evaluation_knows_yet():
    """Cut short within task 2; the last evaluation was made after task 1."""
    log = Evaluations()
    log.add(5, 0, "test", {(0, -1): (8, 10)})
    log.add(10, 1, "test", {(0, -1): (4, 10), (1, -1): (9, 10)})
    rows = {
        "step": np.arange(12),
        "sample": np.arange(12),
        "label": np.repeat([0, 1, 2], [5, 5, 2]),
        "prediction": np.zeros(12, int),
        "shift": np.zeros(12, int),
        "task": np.repeat([0, 1, 2], [5, 5, 2]),
    }
    run = SimpleNamespace(evaluations=log.table(), predictions=rows, answers={})
    np.testing.assert_array_equal(m.classes_seen(run), [1, 2])
    assert m.score(run)["average_accuracy"] == pytest.approx(0.65)
    # Nor do labels that are large numbers take an entry each.
    large = SimpleNamespace(
        evaluations=log.table(), predictions=rows | {"label": rows["label"] * 10**14}
    )
    np.testing.assert_array_equal(m.classes_seen(large), [1, 2])


def test_a_softmax_that_rounds_above_one_is_still_a_probability():
    rows = {
        "step": np.arange(2),
        "label": np.array([0, 1]),
        "prediction": np.array([0, 0]),
        "shift": np.zeros(2, int),
        "confidence": np.array([1.0000001, 0.5], np.float32),
    }
    assert m.score(SimpleNamespace(predictions=rows))["calibration_error"] == pytest.approx(0.25)


def test_flops_are_added_as_floats():
    """Four times 2^62 is 0 in 64-bit integers."""
    run = SimpleNamespace(jobs={"flops": np.full(4, 2**62)})
    assert m.training_flops(run) == 2.0**64


# --- the page --------------------------------------------------------------------------------


def explained_names() -> set[str]:
    """The names in the first column of the tables of docs/metrics.md."""
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    first = re.findall(r"^\| (`[^|]*`) \|", page, re.MULTILINE)
    return {name for cell in first for name in re.findall(r"`([^`]+)`", cell)}


def test_the_page_explains_every_score_and_nothing_else():
    photos, (tasks, _) = photo_stream(), class_incremental(unseen=True)
    online = np.flatnonzero(photos.predictions["shift"] == 0)
    photos.predictions["logp"] = -photos.predictions["confidence"]
    photos.answers["position"][-1] = len(online)  # after the last sample of the stream
    photos.jobs = {"flops": np.ones(1)}
    recovering, _ = class_incremental(seed=1)
    whole, truth = class_incremental(unseen=True)  # all tasks at every evaluation
    kept = np.asarray(whole.evaluations["split"]) == "test"
    whole.evaluations = {k: np.asarray(v)[kept] for k, v in whole.evaluations.items()}
    over_all = np.mean(truth["a"])
    assert m.score(whole)["anytime_accuracy_capymoa"] == pytest.approx(over_all)
    half = np.full(4, 0.5)
    two = {"step": np.arange(4), "label": np.arange(4) % 2, "prediction": np.zeros(4, int),
           "shift": np.zeros(4, int), "confidence": half, "logp": np.log(half)}  # fmt: skip
    two_classes = SimpleNamespace(predictions=two, evaluations={}, answers={})
    scored = [m.score(log, classes=c) for log, c in (
        (photos, None), (tasks, [5, 10, 15]), (recovering, [5, 10, 15]), (whole, None),
        (two_classes, None))]  # fmt: skip
    printed = {re.sub(r"(near_future_\w+)@\d+", r"\1@S", name) for s in scored for name in s}
    assert printed == explained_names()


def test_the_list_of_metrics_is_that_of_the_page():
    plain = {name.partition("@")[0] for name in explained_names()}
    assert set(m.summary.names()) == plain


def test_list_explains_every_score(call):
    for name in explained_names():
        code, out, _ = call("list", name)
        assert (code, out.startswith(f"{name} (metric)\n")) == (0, True), name
        assert len(out.split("\n")[1].strip()) > 30
