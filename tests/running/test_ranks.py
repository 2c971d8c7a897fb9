"""One run over several processes: the log of one process, to floating-point tolerance."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from helpers import batch_of, build, small_stream
from streamgauge import catalogue
from streamgauge.errors import StreamgaugeError
from streamgauge.record import Run, find_runs
from streamgauge.running.executors.torchrun import Ranks, synchronised
from streamgauge.running.loop import Loop
from streamgauge.running.plan import Experiment
from streamgauge.running.runner import run_all

SETTINGS = {
    "stream.length": 600,
    "er.model": "mlp",
    "er.momentum": 0.9,
    "er.augment": "crop_flip",
    "er.passes": 2,
    "protocol.shifts": "40",
}


def alone(out: Path, stop: int | None = None) -> None:
    """In this process; cut off after `stop` steps, with a checkpoint at each."""

    def progress(loop: Loop) -> None:
        if loop.step == stop:
            raise KeyboardInterrupt

    experiment = Experiment("albums", ("er",), settings=SETTINGS)
    said = [].append
    list(run_all(experiment, out=out, checkpoint=0.0, watch=lambda *_: progress, log=said))


def torchrun(out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    words = [word for name, value in SETTINGS.items() for word in (f"--{name}", str(value))]
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        "-m", "streamgauge", "run", "--stream", "albums", "--out", str(out), *words, *more,
    ]  # fmt: skip
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)


def test_two_processes_write_the_log_of_one(tmp_path: Path) -> None:
    """Two learners' runs: one from the start, one taken up from a checkpoint of one process."""
    alone(tmp_path / "one")
    with pytest.raises(KeyboardInterrupt):
        alone(tmp_path / "two", stop=20)
    (begun,) = find_runs([tmp_path / "two"])
    assert 0 < begun.step < 21
    assert not begun.done
    made = torchrun(
        tmp_path / "two", "--learner", "er", "--learner", "plus=er_plus", "--plus.model", "mlp"
    )
    assert made.returncode == 0, made.stdout + made.stderr
    assert made.stdout.count(f"goes on from step {begun.step}") == 1, made.stdout  # one speaks
    by_learner = {run.learner: run for run in find_runs([tmp_path / "two"])}
    assert by_learner["plus"].done
    assert by_learner["plus"].header["environment"]["ranks"] == 2
    (one,) = find_runs([tmp_path / "one"])
    two = Run(by_learner["er"].path)
    assert two.done
    assert two.id == one.id  # ranks are how, not what
    for table in ("predictions", "training", "jobs", "evaluations"):
        left, right = one.table(table), two.table(table)
        assert left.rows == right.rows
        for column in left:
            if left[column].dtype.kind == "f":
                np.testing.assert_allclose(left[column], right[column], rtol=1e-4, atol=1e-5)
            else:
                assert (left[column] == right[column]).all(), (table, column)


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize("samples", [1, 2, 3, 7, 8, 100])
def test_parts_cover_every_sample_once(count: int, samples: int) -> None:
    parts = [np.arange(samples)[Ranks(rank, count).part(samples)] for rank in range(count)]
    if samples < count:
        assert all(list(part) == list(range(samples)) for part in parts)
    else:
        assert np.concatenate(parts).tolist() == list(range(samples))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_which_learners_can_be_shared_out() -> None:
    can = {name for name in catalogue.names("learners") if _accepted(name)}
    assert can == {"er", "er_batch", "er_cosine", "er_minus", "er_plus", "finetune"}
    with pytest.raises(StreamgaugeError, match="mir cannot run over several ranks"):
        Ranks(0, 2).check(catalogue.learner("mir"))
    learner, _ = build(small_stream(), "er", model="cnn4")
    with pytest.raises(StreamgaugeError, match="cnn4 has batch norm, which is shared on GPUs only"):
        Ranks(0, 2).share(learner)
    with pytest.raises(StreamgaugeError, match="torchrun gives every rank its GPU"):
        Ranks(0, 2).device("cuda:1")


def _accepted(name: str) -> bool:
    try:
        Ranks(0, 2).check(catalogue.learner(name))
    except StreamgaugeError:
        return False
    return True


@pytest.mark.parametrize("model", ["cnn4", "slim_resnet18", "resnet18", "resnet50"])
def test_batch_norms_become_synchronised_ones_and_nothing_else_changes(model: str) -> None:
    """What the network becomes on GPUs, seen here without any: with one rank, a synchronised norm
    is a plain one."""
    stream = small_stream()
    learner, gate = build(stream, "er", model=model, momentum=0.9)
    plain, other = build(stream, "er", model=model, momentum=0.9)
    norms = [n for n, part in plain.model.named_modules() if isinstance(part, _BatchNorm)]
    known = dict(learner.model.named_parameters())
    buffers = dict(learner.model.named_buffers())
    learner.model = synchronised(learner.model)
    found = dict(learner.model.named_modules())
    assert norms
    assert all(type(found[name]) is nn.SyncBatchNorm for name in norms)
    assert set(found) == {name for name, _ in plain.model.named_modules()}
    for name in norms:
        before = plain.model.get_submodule(name)
        for setting in ("eps", "momentum", "affine", "track_running_stats", "num_features"):
            assert getattr(found[name], setting) == getattr(before, setting), (name, setting)
    now = dict(learner.model.named_parameters())
    assert list(now) == list(known)  # the order that an optimiser's state is stored in
    assert all(now[name] is known[name] for name in known)
    assert all(one is buffers[name] for name, one in learner.model.named_buffers())
    assert all(p is q for p, q in zip(learner.optimizer.param_groups[0]["params"], now.values(),
                                      strict=True))  # fmt: skip
    for step in range(2):
        for one, its in ((learner, gate), (plain, other)):
            batch = batch_of(stream, step, its)
            one.learn(batch, one.predict(batch.x))
    x = batch_of(stream, 2, gate).x
    assert torch.equal(learner.predict(x), plain.predict(x))
    state = learner.model.state_dict()
    assert list(state) == list(plain.model.state_dict())
    plain.model.load_state_dict(state)  # a run that eight ranks began, one may finish
    learner.model.load_state_dict(plain.model.state_dict())
