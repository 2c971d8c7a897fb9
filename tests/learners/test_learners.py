from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import streamgauge as sg
from helpers import batch_of, build, small_stream
from streamgauge.audit import blind_accuracy
from streamgauge.learners.base import Batch
from streamgauge.models.augment import augment
from streamgauge.running.plan import Experiment, plan
from streamgauge.streams import Gate


@pytest.mark.parametrize("window", [1, 3, 10, 40])
@pytest.mark.parametrize("step", [1, 7])
def test_blind_equals_the_audit_and_the_formula(tmp_path: Path, window: int, step: int) -> None:
    stream = sg.stream("markov", length=700, rho=0.8, classes=5, skew=1.0, batch=step)
    recipe = sg.learner("blind", window=window)
    run = sg.run(stream, recipe, protocol=sg.Protocol(evaluate="never"), out=tmp_path)
    label, said = run.predictions["label"], run.predictions["prediction"]
    for t in range(0, len(label), 13):
        known = label[: t // step * step][-window:].tolist()
        if known:
            most = max(known.count(c) for c in known)
            mode = next(c for c in reversed(known) if known.count(c) == most)
            assert said[t] == mode
    start = -(-window // step) * step  # from where on the window is full
    if step == 1:
        expected = blind_accuracy(label, [window], [0])[0, 0]
        assert np.mean((said == label)[start:]) == pytest.approx(expected)


def test_majority_answers_the_most_frequent_so_far(tmp_path: Path) -> None:
    stream = small_stream(20)
    run = sg.run(stream, "majority", out=tmp_path, protocol=sg.Protocol(evaluate="never"))
    for t in range(1, 20):
        known = stream.source.label[: t * 5]
        assert run.predictions["prediction"][t * 5] == np.bincount(known).argmax()


@pytest.mark.parametrize("distance", ["l2", "cosine"])
def test_nearest_class_mean_by_hand(distance: str) -> None:
    stream = small_stream(8, classes=3)
    learner, gate = build(stream, "ncm", distance=distance)
    batches = [batch_of(stream, t, gate) for t in range(6)]
    for batch in batches:
        learner.learn(batch, None)  # type: ignore[attr-defined]
    x = (torch.cat([b.x for b in batches]).flatten(1).double() / 255 - 0.5) / 0.25
    y = torch.cat([b.y for b in batches])
    query = batch_of(stream, 7, gate).x
    flat = (query.flatten(1).double() / 255 - 0.5) / 0.25
    chosen = []
    for row in flat:
        means = [x[y == c].mean(0) for c in range(3)]
        if distance == "l2":
            chosen.append(int(np.argmin([torch.dist(row, m) for m in means])))
        else:
            chosen.append(int(np.argmax([F.cosine_similarity(row, m, dim=0) for m in means])))
    assert learner.predict(query).argmax(1).tolist() == chosen  # type: ignore[attr-defined]


def test_er_is_sgd_on_new_and_recalled_together() -> None:
    stream = small_stream(6)
    settings = {"lr": 0.1, "recall": 4, "model": "mlp"}
    learner, gate = build(stream, "er", **settings)
    twin, _ = build(stream, "er", **settings)
    for step in range(6):
        batch = batch_of(stream, step, gate)
        recalled = _recalled(learner, gate)
        twin.model.train()  # type: ignore[attr-defined]
        twin.model.head.see(batch.y)  # type: ignore[attr-defined]
        x = torch.cat([batch.x, recalled.x]).float().div(255).sub(0.5).div(0.25)
        y = torch.cat([batch.y, recalled.y])
        logits = twin.model(x)  # type: ignore[attr-defined]
        loss = -F.log_softmax(logits, 1)[torch.arange(len(y)), y].mean()
        parameters = list(twin.model.parameters())  # type: ignore[attr-defined]
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for weight, gradient in zip(parameters, gradients, strict=True):
                weight -= 0.1 * gradient
        said = learner.learn(batch, None)  # type: ignore[attr-defined]
        assert said["loss"] == pytest.approx(loss.item(), rel=1e-5)
        assert said["recalled"] == (0 if step == 0 else 4)
        for mine, theirs in zip(learner.model.parameters(), parameters, strict=True):  # type: ignore[attr-defined]
            assert torch.allclose(mine, theirs, atol=1e-6)


def _recalled(learner: object, gate: Gate) -> Batch:
    """What the learner will recall next, taken from a copy of its memory."""
    import copy

    memory = copy.deepcopy(learner.memory)  # type: ignore[attr-defined]
    index = memory.index[memory.recall(4)]
    return Batch(gate.read(index), gate.label(index), index)


def test_finetune_is_er_without_recall(tmp_path: Path) -> None:
    stream = small_stream(10)
    a = sg.run(stream, "finetune", out=tmp_path)
    b = sg.run(stream, sg.learner("er", recall=0), out=tmp_path)
    assert (a.predictions["confidence"] == b.predictions["confidence"]).all()
    assert set(a.jobs["recalled"]) == {0.0}


def test_replay_keeps_what_finetuning_forgets(tmp_path: Path) -> None:
    stream = sg.stream("blobs")
    kept = {
        name: sg.score(sg.run(stream, name, out=tmp_path))["retained_accuracy"]
        for name in ("er", "finetune")
    }
    assert kept["er"] > kept["finetune"] + 0.2


def test_recall_never_holds_the_batch_being_learnt() -> None:
    stream = small_stream(12)
    learner, gate = build(stream, "er", policy="fifo", memory=10)
    seen: list[tuple[set[int], set[int]]] = []
    original = learner.loss  # type: ignore[attr-defined]

    def loss(batch: Batch, recalled: Batch) -> torch.Tensor:
        seen.append((set(batch.index.tolist()), set(recalled.index.tolist())))
        return original(batch, recalled)

    learner.loss = loss  # type: ignore[attr-defined]
    for step in range(12):
        learner.learn(batch_of(stream, step, gate), None)  # type: ignore[attr-defined]
    assert all(not new & old for new, old in seen)
    assert seen[-1][1] <= set(range(45, 55))  # FIFO of ten: the two batches before


@pytest.mark.parametrize("policy", ["class_balanced", "ring", "everything", "mixed"])
def test_every_memory_policy_runs(tmp_path: Path, policy: str) -> None:
    stream = small_stream(12)
    run = sg.run(stream, sg.learner("er", policy=policy, memory=20), out=tmp_path)
    assert run.done
    assert run.training["value"][run.training["name"] == "memory"].max() > 0


def test_flips_are_drawn_for_each_image_or_for_all() -> None:
    x = torch.arange(6.0).reshape(1, 1, 1, 6).expand(400, 1, 1, 6)
    each = augment(x, "flip", torch.Generator().manual_seed(0))[:, 0, 0, 0] == 5
    assert 150 < int(each.sum()) < 250
    # The published code's second flip turns all images of the batch or none: against the same
    # first draws, either nothing or everything differs.
    turned = set()
    for seed in range(12):
        first = augment(x, "flip", torch.Generator().manual_seed(seed))
        both = augment(x, "flip_batch", torch.Generator().manual_seed(seed))
        differ = (first != both).any(dim=3).flatten()
        assert bool(differ.all()) or not bool(differ.any())
        turned.add(bool(differ.all()))
    assert turned == {True, False}


@pytest.mark.parametrize(
    ("name", "settings", "kinds"),
    [
        ("er", {"recall": 10}, ["filling", "filling", "steady", "steady", "steady", "steady"]),
        ("lwf", {"recall": 5, "warmup": 15}, ["warmup", "warmup", "warmup", "steady"]),
        ("rwalk", {"recall": 5, "warmup": 10}, ["warmup", "warmup", "steady", "steady"]),
        ("scr", {"recall": 5, "refresh": 2}, ["filling", "steady", "refresh", "steady", "refresh"]),
    ],
)
def test_kinds_of_jobs(name: str, settings: dict[str, Any], kinds: list[str]) -> None:
    """Steps of five samples; what a kind costs is the clock's to say."""
    rng = np.random.default_rng(0)
    stream = sg.stream(rng.integers(0, 256, (60, 3, 8, 8)).astype(np.uint8),
                       rng.integers(0, 3, 60), batch=5)  # fmt: skip
    gate = Gate(stream.source, stream.preparation, torch.device("cpu"))
    learner: Any = sg.learner(name, model="mlp", memory=40, **settings).build(
        stream.spec, gate, 0, torch.device("cpu")
    )
    said = []
    for step in range(len(kinds)):
        index = stream.index(step).astype(np.int64)
        gate.reveal(index)
        gate.label_due(index)
        said.append(learner.job_kind())
        learner.learn(Batch(gate.read(index), gate.label(index), index), None)
    assert said == kinds


def test_a_learner_with_a_preset_is_set_by_its_own_name_too() -> None:
    """As all pages in docs/methods write it. What is said of fewer learners holds."""

    def rates(*learners: str, **settings: float) -> list[float]:
        given = {name.replace("__", "."): value for name, value in settings.items()}
        given |= {"stream.length": 100}
        planned = plan(Experiment("albums", learners, settings=given))
        return [one.recipe.config.lr for one in planned]

    two = ("er@rescaled", "gdumb@rescaled")
    assert rates(*two, er__lr=0.25) == [0.25, 0.1]
    assert rates(*two, er__lr=0.25, learner__lr=0.5) == [0.25, 0.5]
    assert rates(*two, **{"er@rescaled.lr": 0.75, "er__lr": 0.25}) == [0.75, 0.1]
    assert rates("er", "er@rescaled", er__lr=0.25) == [0.25, 0.1]  # `er` is the plain one here
    with pytest.raises(sg.StreamgaugeError, match=r"no setting 'er\.rl'"):
        rates(*two, er__rl=0.25)
