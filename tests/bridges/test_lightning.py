# ruff: noqa: E402
"""The bridge to Lightning, against the library; `test_environments.py` runs it in its own
environment."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
lightning = pytest.importorskip("lightning.pytorch")

import streamgauge as sg
from streamgauge.bridges import lightning as bridge
from streamgauge.bridges.torch import loader


def stream(samples: int = 103) -> Any:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(samples, 4)).astype(np.float32)
    return sg.stream(x, (x @ rng.normal(size=(4, 3))).argmax(1), batch=10)


class Module(lightning.LightningModule):  # type: ignore[misc,name-defined]
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(
            torch.nn.Linear(4, 16),
            torch.nn.BatchNorm1d(16),
            torch.nn.Dropout(0.5),
            torch.nn.Linear(16, 3),
        )
        self.asked: list[Any] = []

    def forward(self, x: Any) -> Any:
        return self.net(x)

    def training_step(self, batch: Any, number: int) -> Any:
        assert self.net[2].training
        with torch.no_grad():  # what an honest loop answers: before the step, in evaluation mode
            self.asked += copy.deepcopy(self.net).eval()(batch[0]).argmax(1).tolist()
        return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(folder: Path | None, epochs: int = 1, **settings: Any) -> Module:
    module = Module()
    callbacks = [] if folder is None else [bridge.recorder(folder, stream="mine", **settings)]
    trainer = lightning.Trainer(
        max_epochs=epochs,
        callbacks=callbacks,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*num_workers.*")
        trainer.fit(module, loader(stream()))
    return module


def test_answers_are_those_before_each_step_in_evaluation_mode(tmp_path: Path) -> None:
    module = fit(tmp_path / "run", classes=3)
    run = sg.Run(tmp_path / "run")
    predictions = run.table("predictions")["prediction"].tolist()
    assert predictions == module.asked
    labels = stream().source.label
    assert sg.score(run)["online_accuracy"] == pytest.approx(np.mean(predictions == labels))
    assert run.table("predictions")["version"].tolist()[-1] == 10
    described = run.header["config"]["learner"]
    assert described["name"] == "Module"
    assert described["library"] == f"lightning {lightning.__version__}"


def test_recording_changes_no_weight(tmp_path: Path) -> None:
    recorded, plain = fit(tmp_path / "run").state_dict(), fit(None).state_dict()
    assert all(torch.equal(recorded[name], plain[name]) for name in plain)


def test_only_the_first_epoch_is_recorded(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="only the answers of the first epoch"):
        fit(tmp_path / "run", epochs=2)
    assert len(sg.Run(tmp_path / "run").table("predictions")["prediction"]) == 103


def test_batches_of_another_form(tmp_path: Path) -> None:
    half = lambda batch: (batch[0][:5], batch[1][:5])  # noqa: E731
    forward = lambda module, x: module.net(x) * 2  # noqa: E731
    fit(tmp_path / "run", unpack=half, forward=forward)
    assert len(sg.Run(tmp_path / "run").table("predictions")["prediction"]) == 53
