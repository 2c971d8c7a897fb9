"""Accuracy matrices of other tools: every format gives the same matrix, every metric is that of a
slow independent version and of our own runs, and what is not certain is asked for."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamgauge as sg
from streamgauge import metrics
from streamgauge.exchange import read_matrices
from streamgauge.exchange.formats import matrix_of

A = np.array([[0.9, 0.12, 0.1], [0.6, 0.85, 0.2], [0.5, 0.7, 0.95]])
LOWER = np.where(np.tril(np.ones((3, 3), bool)), A, np.nan)


def slow_scores(a: list[list[float]], classes: list[int], baseline: list[float]) -> dict[str, Any]:
    """All metrics at the last task, from their formulas, with Python lists only."""
    last = len(a) - 1

    def mean(values: list[float]) -> float:
        return sum(values) / len(values)

    def forgetting(k: int) -> float:
        drops = [max(a[i][j] for i in range(j, k)) - a[k][j] for j in range(k)]
        return mean(drops)

    def chance_forgetting(k: int) -> float:
        seen = [sum(classes[: i + 1]) for i in range(k + 1)]
        return mean([1 / seen[j] - 1 / seen[k] for j in range(k)])

    average = [mean(a[k][: k + 1]) for k in range(last + 1)]
    total = sum(classes)
    # The largest multiple of a random classifier's forgetting that any classifier can have.
    smallest = min(chance_forgetting(k) for k in range(1, last + 1))
    lowest = [min(a[k][j] for k in range(j + 1, last + 1)) for j in range(last)]
    return {
        "average_accuracy": average[last],
        "average_accuracy_continuum": mean([x for k in range(last + 1) for x in a[k][: k + 1]]),
        "backward_transfer_capymoa": mean(
            [a[i][j] - a[j][j] for i in range(last + 1) for j in range(i)]
        ),
        "forward_transfer_capymoa": mean(
            [a[i][j] for j in range(last + 1) for i in range(j)]
        ),
        "forward_transfer_continuum": mean([a[j - 1][j] for j in range(1, last + 1)]),
        "anytime_accuracy_capymoa": mean([mean(row) for row in a]),
        "average_forgetting": forgetting(last),
        "average_forgetting_first": sum(a[j][j] - a[last][j] for j in range(last)) / (last + 1),
        "backward_transfer": mean([a[last][j] - a[j][j] for j in range(last)]),
        "forward_transfer": mean([a[j - 1][j] - baseline[j] for j in range(1, last + 1)]),
        "rescaled_accuracy": average[last] * total / total,
        "rescaled_forgetting": forgetting(last) / chance_forgetting(last) * smallest,
        "unnormalised_rescaled_accuracy": average[last] * total,
        "unnormalised_rescaled_forgetting": forgetting(last) / chance_forgetting(last),
        "anytime_accuracy": mean(average),
        "minimum_accuracy": mean(lowest),
        "worst_case_accuracy": a[last][last] / (last + 1)
        + (1 - 1 / (last + 1)) * mean(lowest),
    }  # fmt: skip


@given(st.integers(2, 7), st.integers(0, 2**32 - 1))
def test_every_metric_is_that_of_a_slow_version(tasks: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, baseline = rng.random((tasks, tasks)), rng.random(tasks)
    classes = rng.integers(1, 6, tasks)
    scores = sg.score_matrix(a, classes=classes, baseline=baseline, rows="after", unit="share")
    slow = slow_scores(a.tolist(), classes.tolist(), baseline.tolist())
    assert {name: scores[name] for name in slow} == pytest.approx(slow)
    # Slow versions of these are in tests/metrics.
    assert {name.rpartition("_")[2] for name in set(scores) - set(slow)} <= {"capymoa", "continuum"}
    # The same matrix in percent, and turned: the same scores.
    turned = sg.score_matrix(
        100 * a.T, classes=classes, baseline=baseline, rows="task", unit="percent"
    )
    assert turned == pytest.approx(scores)


def test_scores_of_the_matrix_of_a_run_are_those_of_the_run(task_run: sg.Run) -> None:
    of_log = sg.score(task_run)
    per_task = np.bincount(task_run.stream["class_task"])
    scores = sg.score_matrix(metrics.accuracy_matrix(task_run), classes=per_task)
    shared = set(scores) & set(of_log)
    assert len(shared) >= 9
    assert scores["average_forgetting"] > 0.05
    assert {name: scores[name] for name in shared} == pytest.approx(
        {name: of_log[name] for name in shared}, abs=1e-12
    )


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def rows_of(a: Any, separator: str = ",", missing: str = "") -> str:
    return "\n".join(
        separator.join(missing if value != value else f"{value:g}" for value in row) for row in a
    )


MAMMOTH = (
    "{'dataset': 'seq-cifar10', 'seed': 4, 'eval_epochs': None, 'device': device(type='cuda'),"
    " 'accmean_task1': np.float64(90.0), %s, 'forgetting': None}\n"
)


def mammoth_line(rows: list[list[float]]) -> str:
    cells = [
        f"'accuracy_{j + 1}_task{k + 1}': {value!r}"
        for k, row in enumerate(rows)
        for j, value in enumerate(row)
    ]
    return MAMMOTH % ", ".join(cells)


LOWER_ROWS = [[90.0], [60.0, 85.0], [50.0, 70.0, 95.0]]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plain.csv", rows_of(LOWER)),
        ("nan.csv", rows_of(LOWER, ",", "nan")),
        ("percent.csv", rows_of(100 * LOWER)),
        ("signs.csv", "90%,,\n60%,85%,\n50%,70%,95%"),
        ("ragged.txt", "0.9\n0.6 0.85\n0.5 0.7 0.95"),
        ("pandas.csv", ",0,1,2\n0,0.9,,\n1,0.6,0.85,\n2,0.5,0.7,0.95"),
        ("names.csv", "after,cat,dog,ant\ncat,90,,\ndog,60,85,\nant,50,70,95"),
        ("header.csv", "1,2,3\n" + rows_of(100 * LOWER)),
        ("decimal.csv", "0,9;;\n0,6;0,85;\n0,5;0,7;0,95"),
        ("tabs.tsv", rows_of(LOWER, "\t")),
        ("zeros.csv", rows_of(np.nan_to_num(LOWER))),
        ("turned.csv", rows_of(LOWER.T)),
        ("savetxt.csv", "# made by NumPy\n" + rows_of(LOWER, " ", "nan")),
        ("bom.csv", "\ufeff" + rows_of(LOWER)),
        ("logs.pyd", mammoth_line(LOWER_ROWS)),
        ("numpy2.pyd", mammoth_line(LOWER_ROWS).replace("85.0", "np.float64(85.0)")),
        (
            "eval_results.csv",
            "eval_exp,training_exp,eval_accuracy,eval_loss,forgetting\n"
            "0,0,0.9000,0.1,0\n0,1,0.6000,0.1,0.3000\n1,1,0.8500,0.1,0\n"
            "0,2,0.5000,0.1,0.4000\n1,2,0.7000,0.1,0.1500\n2,2,0.9500,0.1,0\n",
        ),
    ],
)
def test_every_text_format_gives_the_same_matrix(tmp_path: Path, name: str, text: str) -> None:
    (matrix,) = read_matrices(written(tmp_path / name, text))
    np.testing.assert_allclose(matrix.accuracy, LOWER)
    assert matrix.baseline is None


def test_arrays_and_capymoa(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", A.astype(np.float32))
    np.savez(tmp_path / "a.npz", accuracy_matrix=A, other=np.zeros(3))
    np.save(tmp_path / "seeds.npy", np.stack([A, A / 2]))
    of_file = sg.score_matrix(tmp_path / "a.npy", rows="after")
    of_object = sg.score_matrix(SimpleNamespace(accuracy_matrix=A.astype(np.float32)))
    measured = sg.score_matrix(SimpleNamespace(accuracy_matrix=np.nan_to_num(LOWER)))
    assert measured["forward_transfer_capymoa"] == 0  # every task was evaluated
    assert of_file == of_object == pytest.approx(sg.score_matrix(A, rows="after"), abs=1e-6)
    assert sg.score_matrix(tmp_path / "a.npz", rows="after") == sg.score_matrix(A, rows="after")
    first, second = sg.score_matrix(tmp_path / "seeds.npy", rows="after")
    assert first["average_accuracy"] == pytest.approx(2 * second["average_accuracy"])


def test_avalanche_untrained_rows_are_the_baseline_and_tasks_come_in_order_of_training(
    tmp_path: Path,
) -> None:
    head = "eval_exp,training_exp,eval_accuracy,eval_loss,forgetting\n"
    rows = "0,None,0.1000,2,0\n1,None,0.2000,2,0\n0,1,0.3000,1,0\n1,1,0.8000,1,0\n"
    rows += "0,0,0.7000,1,0\n1,0,0.6000,1,0.2000\n"
    scores = sg.score_matrix(written(tmp_path / "eval_results.csv", head + rows))
    np.testing.assert_allclose(scores.matrix.accuracy, [[0.8, 0.3], [0.6, 0.7]])
    assert scores["forward_transfer"] == pytest.approx(0.3 - 0.1)
    assert any("order of training" in note for note in scores.notes)


def test_mammoth_rows_that_are_not_one_per_task(tmp_path: Path) -> None:
    """Evaluations within a task; the last row of a run with a validation set."""
    by_epoch = [[10.0], [90.0], [60.0, 20.0], [60.0, 85.0], LOWER_ROWS[2]]
    epochs = mammoth_line(by_epoch).replace("'eval_epochs': None", "'eval_epochs': 1")
    tested = mammoth_line([*LOWER_ROWS, [51.0, 71.0, 96.0]])
    for matrix in read_matrices(written(tmp_path / "logs.pyd", epochs + tested)):
        np.testing.assert_allclose(matrix.accuracy, LOWER)
    (_, second) = read_matrices(tmp_path / "logs.pyd")
    assert "seed 4" in second.name
    assert any("test set" in note for note in second.notes)


def test_the_first_row_may_be_the_untrained_model(tmp_path: Path) -> None:
    table = rows_of(np.vstack([[10, 10, 10], 100 * A]))
    scores = sg.score_matrix(written(tmp_path / "a.csv", table), baseline="first", rows="after")
    assert scores["forward_transfer"] == pytest.approx((0.12 + 0.2) / 2 - 0.1)
    assert scores == sg.score_matrix(A, baseline=[0.1] * 3, rows="after")


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        (rows_of(A), {}, "Say --rows after or --rows task"),
        ("1.2,\n0.8,1.1", {}, "percent or shares"),
        ("0.9,,\n0.5,0.7,", {}, "shape is 2 x 3"),
        ("a,b\n1,2\nx,y", {}, "is no number"),
        ("150,\n30,40", {}, "holds the number 150"),
        ("-1,\n30,40", {}, "holds the number -1"),
        (rows_of(LOWER), {"classes": [2, 2]}, "3 tasks adds"),
        (rows_of(LOWER), {"classes": [0, 2, 2]}, "1 or more first"),
        (rows_of(LOWER), {"baseline": [0.1]}, "each of the 3 tasks"),
        (rows_of(LOWER), {"baseline": [10, 10, 10]}, "as shares"),
        (rows_of(LOWER), {"baseline": "first"}, "one row more than columns"),
        (rows_of(LOWER), {"rows": "column"}, "--rows cannot be 'column'"),
        ("", {}, "is empty"),
        ("nan,nan\nnan,nan", {}, "holds no numbers"),
        (mammoth_line(LOWER_ROWS)[:-9], {}, "no whole line of a mammoth log"),
        (mammoth_line(LOWER_ROWS[1:]), {}, "rows of 2, 3 tasks"),
        (mammoth_line(LOWER_ROWS).replace("'seed'", "'eval_future': True, 'seed'"), {}, "future"),
        (
            "eval_exp,training_exp,eval_accuracy,eval_loss,forgetting\n0,0,0,0,0\n",
            {},
            "holds no accuracies",
        ),
        (
            "eval_exp,training_exp,eval_accuracy,eval_loss,forgetting\n0,0,0.9,0,0\n0,0,0.5,0,0\n",
            {},
            "two accuracies of experience 0",
        ),
    ],
)
def test_what_is_not_certain_is_one_sentence(
    tmp_path: Path, text: str, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(sg.StreamgaugeError, match=says):
        sg.score_matrix(written(tmp_path / "m.csv", text), **options)


def test_a_mammoth_log_without_a_matrix_and_a_pickle_are_refused(tmp_path: Path) -> None:
    with pytest.raises(sg.StreamgaugeError, match="mean accuracies only"):
        read_matrices(written(tmp_path / "logs.pyd", "{'accmean_task1': 90.0}\n"))
    np.save(tmp_path / "p.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(sg.StreamgaugeError, match="cannot be read"):
        read_matrices(tmp_path / "p.npy")


def test_a_log_of_mammoth_is_never_executed(tmp_path: Path) -> None:
    line = mammoth_line(LOWER_ROWS).replace("None}", f"open({str(tmp_path / 'made')!r}, 'w')}}")
    read_matrices(written(tmp_path / "logs.pyd", line))
    assert not (tmp_path / "made").exists()


def test_missing_cells_leave_out_the_metrics_that_need_them() -> None:
    scores = sg.score_matrix([[0.9, np.nan], [np.nan, 0.7]], classes=2)
    assert set(scores) == set()
    assert any("task 1 after task 2 is missing" in note for note in scores.notes)
    cut = sg.score_matrix(np.where(np.arange(3)[:, None] < 2, LOWER, np.nan), classes=1)
    assert cut["average_accuracy"] == pytest.approx((0.6 + 0.85) / 2)
    assert any("after 2 of 3 tasks" in note for note in cut.notes)


def test_a_running_total_of_classes_is_noticed() -> None:
    scores = sg.score_matrix(LOWER, classes=[2, 4, 6])
    assert any(note.startswith("Warning: --classes looks like") for note in scores.notes)
    assert not any("Warning" in note for note in sg.score_matrix(LOWER, classes=[2, 2, 2]).notes)


def test_a_symmetric_or_single_matrix_needs_no_orientation() -> None:
    same = np.array([[0.9, 0.5], [0.5, 0.9]])
    np.testing.assert_allclose(matrix_of(same, "m").accuracy, same)
    assert sg.score_matrix([[0.5]])["average_accuracy"] == 0.5


def test_the_command_scores_files_beside_folders(call: Any, tmp_path: Path) -> None:
    written(tmp_path / "m.csv", rows_of(100 * LOWER))
    code, out, _ = call("score", "m.csv", "--classes", "2", "--json")
    (found,) = json.loads(out)["matrices"]
    assert code == 0
    assert found["scores"] == pytest.approx(sg.score_matrix(LOWER, classes=2))
    assert found["matrix"][0][1] is None
    code, out, _ = call("score", "m.csv")
    assert code == 0
    assert "average_forgetting" in out
    assert "Rescaled metrics need" in out
    code, _, err = call("score", "m.csv", "--classes", "two")
    assert code == 2
    assert "--classes must be numbers" in err
    assert call("score", ".", "--classes", "2")[0] == 2
