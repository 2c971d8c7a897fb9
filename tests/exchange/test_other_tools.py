"""Accuracy matrices that Avalanche and CapyMOA wrote themselves, in the environments that
`tests/bridges/environments.py` makes; a library that is not installed is skipped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import streamgauge as sg

TASKS, PER_TASK, WIDTH = 3, 2, 6


def task_data(seed: int, samples: int = 120) -> list[tuple[np.ndarray, np.ndarray]]:
    """Noisy classes, two per task."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(0).normal(size=(TASKS * PER_TASK, WIDTH))
    parts = []
    for task in range(TASKS):
        y = rng.integers(task * PER_TASK, (task + 1) * PER_TASK, samples)
        x = centres[y] + rng.normal(size=(samples, WIDTH))
        parts.append((x.astype(np.float32), y))
    return parts


def test_the_csv_logger_of_avalanche(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("avalanche")
    from avalanche.benchmarks import tensors_benchmark
    from avalanche.evaluation.metrics import accuracy_metrics, forgetting_metrics
    from avalanche.logging import CSVLogger
    from avalanche.models import SimpleMLP
    from avalanche.training.plugins import EvaluationPlugin
    from avalanche.training.supervised import Naive

    parts = [[(torch.tensor(x), torch.tensor(y)) for x, y in task_data(seed)] for seed in (1, 2)]
    benchmark = tensors_benchmark(*parts, task_labels=[0] * TASKS)
    torch.manual_seed(0)
    model = SimpleMLP(num_classes=TASKS * PER_TASK, input_size=WIDTH, hidden_size=16)
    plugin = EvaluationPlugin(
        accuracy_metrics(experience=True),
        forgetting_metrics(experience=True, stream=True),
        loggers=[CSVLogger(log_folder=str(tmp_path))],
    )
    strategy = Naive(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        criterion=torch.nn.CrossEntropyLoss(),
        train_mb_size=10,
        train_epochs=2,
        evaluator=plugin,
    )
    found = [strategy.eval(benchmark.test_stream)]
    for experience in benchmark.train_stream:
        strategy.train(experience)
        found.append(strategy.eval(benchmark.test_stream))
    names = [f"Top1_Acc_Exp/eval_phase/test_stream/Task000/Exp00{j}" for j in range(TASKS)]
    reported = np.array([[values[name] for name in names] for values in found])
    scores = sg.score_matrix(tmp_path / "eval_results.csv", classes=PER_TASK)
    np.testing.assert_allclose(scores.matrix.accuracy, reported[1:], atol=6e-5)
    np.testing.assert_allclose(scores.matrix.baseline, reported[0], atol=6e-5)
    # Avalanche's forgetting is relative to the accuracy right after training a task.
    forgetting = found[-1]["StreamForgetting/eval_phase/test_stream"]
    assert scores["backward_transfer"] == pytest.approx(-forgetting, abs=2e-4)
    assert forgetting > 0.2


def test_the_metrics_of_capymoa(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("capymoa")
    from capymoa.classifier import NaiveBayes
    from capymoa.ocl.evaluation import ocl_train_eval_loop
    from capymoa.stream import Schema
    from torch.utils.data import DataLoader, TensorDataset

    schema = Schema.from_custom(
        features=[*(f"x{n}" for n in range(WIDTH)), "class"],
        target="class",
        categories={"class": [str(c) for c in range(TASKS * PER_TASK)]},
    )
    train, test = (
        [
            DataLoader(TensorDataset(torch.tensor(x), torch.tensor(y)), batch_size=10)
            for x, y in task_data(seed)
        ]
        for seed in (1, 2)
    )
    found = ocl_train_eval_loop(NaiveBayes(schema), train, test)
    scores = sg.score_matrix(found, classes=PER_TASK)
    np.testing.assert_allclose(scores.matrix.accuracy, found.accuracy_matrix, atol=1e-6)
    assert scores["average_accuracy"] == pytest.approx(found.accuracy_final, abs=1e-6)
    assert scores["backward_transfer_capymoa"] == pytest.approx(found.backward_transfer, abs=1e-6)
    assert scores["forward_transfer_capymoa"] == pytest.approx(found.forward_transfer, abs=1e-6)
    assert scores["anytime_accuracy"] == pytest.approx(found.accuracy_seen_avg, abs=1e-6)
    assert scores["anytime_accuracy_capymoa"] == pytest.approx(found.accuracy_all_avg, abs=1e-6)
    np.save(tmp_path / "matrix.npy", found.accuracy_matrix)
    of_file = sg.score_matrix(tmp_path / "matrix.npy", classes=PER_TASK)
    assert of_file == {name: scores[name] for name in of_file}
    assert set(scores) - set(of_file) == {
        "forward_transfer_capymoa", "forward_transfer_continuum", "anytime_accuracy_capymoa"
    }  # fmt: skip
