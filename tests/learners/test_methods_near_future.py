"""The near-future paper's methods, each against a slow and obvious version of itself."""

from __future__ import annotations

import copy
import math
import runpy
import sys
import tomllib
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import streamgauge as sg
from helpers import CPU, batch_of, build, same_log, small_stream
from streamgauge import catalogue, models
from streamgauge.errors import StreamgaugeError
from streamgauge.learners.base import Batch
from streamgauge.learners.gradient_free import acm, ncm, slda
from streamgauge.learners.parts import gradient_free as _neighbours
from streamgauge.learners.parts.gradient_free import Exact, NeighbourGraph, vote
from streamgauge.models import features
from streamgauge.models.augment import augment
from streamgauge.record.renamed import current_settings
from streamgauge.streams import Gate, Stream

PRESETS = Path(features.__file__).parents[1] / "learners" / "presets" / "near_future.toml"


def normalised(x: torch.Tensor) -> torch.Tensor:
    return x.float().div(255).sub(0.5).div(0.25)


def spy_on_recall(learner: Any) -> list[list[int]]:
    """The addresses of every recall from now on."""
    seen: list[list[int]] = []
    recall = learner.recall

    def spy(batch: Batch) -> Batch:
        recalled = recall(batch)
        seen.append(recalled.index.tolist())
        return recalled

    learner.recall = spy
    return seen


# Replay only: what is recalled.


def test_fifo_recalls_the_newest_with_the_batch_at_hand() -> None:
    stream = small_stream(6)
    learner, gate = build(stream, "replay_only", sampler="fifo", recall=7, model="linear")
    seen = spy_on_recall(learner)
    for step in range(6):
        learner.learn(batch_of(stream, step, gate), None)
    for step, recalled in enumerate(seen):
        end = 5 * (step + 1)
        assert recalled == list(range(max(0, end - 7), end))


def test_fifo_over_several_updates_goes_forward_through_the_newest() -> None:
    stream = small_stream(4)
    learner, gate = build(stream, "replay_only", sampler="fifo", recall=4, passes=3, model="linear")
    seen = spy_on_recall(learner)
    for step in range(4):
        learner.learn(batch_of(stream, step, gate), None)
    # Five samples are stored at first: two windows of four are all there is, one of them twice.
    assert seen[:3] == [[0, 1, 2, 3], [0, 1, 2, 3], [1, 2, 3, 4]]
    assert seen[-3:] == [[8, 9, 10, 11], [12, 13, 14, 15], [16, 17, 18, 19]]


def test_mixed_is_half_newest_and_half_uniform() -> None:
    stream = small_stream(80)
    learner, gate = build(stream, "replay_only", sampler="mixed", recall=5, model="linear")
    seen = spy_on_recall(learner)
    for step in range(80):
        learner.learn(batch_of(stream, step, gate), None)
    uniform = []
    for step, recalled in list(enumerate(seen))[2:]:
        end = 5 * (step + 1)
        assert recalled[:2] == [end - 2, end - 1]
        assert len(recalled) == 5
        uniform += [(address + 0.5) / end for address in recalled[2:]]
    assert np.mean(uniform) == pytest.approx(0.5, abs=0.07)  # 234 draws: four deviations


def test_uniform_recalls_everything_alike_the_batch_at_hand_too() -> None:
    stream = small_stream(20, batch=1)
    learner, gate = build(stream, "replay_only", recall=5, model="linear")
    for step in range(20):
        learner.learn(batch_of(stream, step, gate), None)
    last = batch_of(stream, 19, gate)
    drawn = np.concatenate([learner.recall(last).index for _ in range(2000)])
    counts = np.bincount(drawn, minlength=20)
    assert np.abs(counts - 500).max() < 100  # deviation of each about 19
    for _ in range(20):
        assert len(set(learner.recall(last).index.tolist())) == 5  # none twice


def test_storing_and_memory_are_declared_unbounded() -> None:
    stream = small_stream(6)
    learner, gate = build(stream, "replay_only")
    learner.store(batch_of(stream, 0, gate))
    said = learner.learn(batch_of(stream, 1, gate), None)
    assert learner.unbounded
    assert said["memory"] == 10
    with pytest.raises(StreamgaugeError, match="policy"):
        catalogue.learner("replay_only", policy="reservoir")


# Replay only: the update.


@pytest.mark.parametrize("sampler", ["uniform", "fifo", "mixed"])
@pytest.mark.parametrize("loss", ["ce", "ace"])
def test_an_update_is_sgd_on_the_recalled_samples_alone(sampler: str, loss: str) -> None:
    stream = small_stream(6)
    own = {"sampler": sampler, "loss": loss, "recall": 6, "passes": 2, "model": "mlp", "lr": 0.05}
    learner, gate = build(stream, "replay_only", **own)
    twin = copy.deepcopy(learner.model)
    momentum = [torch.zeros_like(p) for p in twin.parameters()]
    recalls = spy_on_recall(learner)
    for step in range(6):
        batch = batch_of(stream, step, gate)
        said = learner.learn(batch, None)
        twin.head.see(batch.y)
        for index in recalls[-2:]:
            value = slow_loss(twin, gate, np.array(index), batch, loss)
            gradients = torch.autograd.grad(value, list(twin.parameters()))
            with torch.no_grad():
                for p, g, m in zip(twin.parameters(), gradients, momentum, strict=True):
                    m.mul_(0.9).add_(g + 1e-4 * p)
                    p -= 0.05 * m
        assert said["loss"].item() == pytest.approx(value.item(), rel=1e-4)
        for mine, theirs in zip(learner.model.parameters(), twin.parameters(), strict=True):
            assert torch.allclose(mine, theirs, atol=1e-5)


def slow_loss(model: models.Model, gate: Gate, index: Any, batch: Batch, loss: str) -> torch.Tensor:
    """Sample by sample: a softmax over the classes it competes with, and no others."""
    logits = model(normalised(gate.read(index)))
    terms = []
    for row, address, label in zip(logits, index, gate.label(index), strict=True):
        classes = torch.nonzero(model.head.seen)[:, 0].tolist()
        if loss == "ace" and address in batch.index:
            classes = sorted(set(gate.label(index).tolist()))  # of the training batch (EvalOCL)
        share = torch.softmax(row[classes], 0)
        terms.append(-share[classes.index(int(label))].log())
    return torch.stack(terms).mean()


def test_ace_leaves_absent_classes_alone_where_all_is_new() -> None:
    """Hammoud et al. 2023, their code: the mask has the classes of the training batch."""
    stream = small_stream(6, batch=3)
    moved = {}
    for loss in ("ce", "ace"):
        own = {"sampler": "fifo", "recall": 3, "model": "linear", "momentum": 0, "weight_decay": 0}
        learner, gate = build(stream, "replay_only", loss=loss, **own)
        for step in range(6):
            before = learner.model.head.weight.detach().clone()
            seen = learner.model.head.seen.clone()
            batch = batch_of(stream, step, gate)
            learner.learn(batch, None)
            absent = seen.clone()
            absent[batch.y] = False
            change = (learner.model.head.weight.detach() - before)[absent].abs().sum().item()
            moved[loss] = moved.get(loss, 0.0) + change
    assert moved["ace"] == 0
    assert moved["ce"] > 0


def test_ace_masks_by_the_classes_of_the_training_batch() -> None:
    """Hammoud et al. 2023, section 4.1, ACE in ER (Replay Only), as in their code: a sample of the
    stream's batch competes with the classes of the training batch, which is what was recalled: not
    with those of the stream's batch (as in Caccia et al. 2022), nor with all classes seen."""
    learner, _ = build(small_stream(6), "replay_only", loss="ace", model="linear")
    learner.model.head.see(torch.arange(4))
    logits = torch.tensor([[0.5, 1.0, -0.3, 2.0], [1.5, 0.2, 0.7, -1.0], [0.1, 0.9, 0.4, 0.8]])
    learner.scores = lambda x: logits
    x = torch.zeros(3, 3, 8, 8, dtype=torch.uint8)
    # Of the stream's batch (addresses 7 to 9, classes 0 and 3) two were recalled, and an old one.
    batch = Batch(x, torch.tensor([0, 0, 3]), np.array([7, 8, 9]))
    recalled = Batch(x, torch.tensor([0, 0, 1]), np.array([7, 8, 2]))
    new = [math.log(math.exp(a) + math.exp(b)) - a for a, b in ((0.5, 1.0), (1.5, 0.2))]
    old = math.log(sum(map(math.exp, (0.1, 0.9, 0.4, 0.8)))) - 0.9
    assert learner.loss(batch, recalled).item() == pytest.approx((sum(new) + old) / 3, rel=1e-5)


def test_ace_is_cross_entropy_where_nothing_is_new() -> None:
    stream = small_stream(6)
    learner, gate = build(stream, "replay_only", loss="ace", model="linear")
    plain, _ = build(stream, "replay_only", loss="ce", model="linear")
    old, new = batch_of(stream, 0, gate), batch_of(stream, 1, gate)
    for one in (learner, plain):
        one.model.head.see(torch.cat([old.y, new.y]))
    assert learner.loss(new, old).item() == pytest.approx(plain.loss(new, old).item())
    assert learner.loss(old, old).item() < plain.loss(old, old).item()


# One thing changed each.


def log_of(stream: Stream, name: str, out: Path, **settings: Any) -> Any:
    return sg.run(stream, sg.learner(f"x={name}", **settings), out=out / name)


@pytest.mark.parametrize(
    ("name", "own", "as_replay"),
    [
        ("fc_only", {}, {"train": "head"}),
        ("overadapt", {}, {"train": "head", "sampler": "fifo"}),
        ("overadapt", {"train": "all", "sampler": "uniform"}, {}),
        ("cosine_fc", {}, {"head": "cosine"}),
    ],
)
def test_each_method_is_replay_with_its_setting(
    tmp_path: Path, name: str, own: dict[str, Any], as_replay: dict[str, Any]
) -> None:
    stream = small_stream(12, held_out=0.1)
    mine = log_of(stream, name, tmp_path, **own)
    theirs = log_of(stream, "replay_only", tmp_path, **as_replay)
    assert (mine.predictions["confidence"] == theirs.predictions["confidence"]).all()
    assert not same_log(mine, log_of(stream, "replay_only", tmp_path / "plain", lr=0.004))


def test_head_only_changes_the_head_and_nothing_else() -> None:
    stream = small_stream(8)
    learner, gate = build(stream, "fc_only")
    before = copy.deepcopy(learner.model.state_dict())
    for step in range(8):
        learner.learn(batch_of(stream, step, gate), None)
    for name, value in learner.model.state_dict().items():
        assert torch.equal(value, before[name]) != name.startswith("fc."), name


def test_as_published_batch_norm_of_the_frozen_network_trains_on() -> None:
    """The published code left the frozen network in training mode: its weights stay, but features
    depend on the rest of the batch, and the running statistics move."""
    stream = small_stream(8)
    learner, gate = build(stream, "fc_only", as_published=True)
    before = copy.deepcopy(learner.model.state_dict())
    for step in range(8):
        learner.learn(batch_of(stream, step, gate), None)
    after = learner.model.state_dict()
    for name, value in after.items():
        moves = name.startswith("fc.") or "running" in name or "num_batches" in name
        assert torch.equal(value, before[name]) != moves, name
    layer = learner.model.layers[0]
    maps = layer(normalised(gate.read(np.arange(40))))
    expected = maps.mean((0, 2, 3))
    # With ten recalled at a time, eight steps in, more than half of the way to the true mean.
    gap = after["layers.1.running_mean"] - expected
    assert gap.norm() < 0.5 * expected.norm()


def test_the_head_sees_features_in_evaluation_mode() -> None:
    """The loss of a head on features that were computed one by one beforehand."""
    stream = small_stream(4)
    learner, gate = build(stream, "fc_only", sampler="fifo", recall=5)
    batch = batch_of(stream, 0, gate)
    head = copy.deepcopy(learner.model.head)
    head.see(batch.y)
    learner.model.eval()
    one_by_one = torch.cat([learner.model.features(normalised(x[None])) for x in batch.x])
    expected = F.cross_entropy(head(one_by_one), batch.y)
    assert learner.learn(batch, None)["loss"].item() == pytest.approx(expected.item(), rel=1e-4)


def test_cosine_scores_by_hand_and_scale_learnt() -> None:
    stream = small_stream(30)
    learner, gate = build(stream, "cosine_fc", lr=0.05)
    said = {}
    assert learner.model.head.sigma.item() == 1.0
    for step in range(30):
        said = learner.learn(batch_of(stream, step, gate), None)
    head, x = learner.model.head, batch_of(stream, 0, gate).x
    assert said["sigma"].item() == head.sigma.item() > 1.0
    f = learner.features(x)
    scores = learner.predict(x)
    for i in range(len(x)):
        for c in range(4):
            cosine = torch.dot(f[i], head.weight[c]) / f[i].norm() / head.weight[c].norm()
            assert scores[i, c].item() == pytest.approx((head.sigma * cosine).item(), abs=1e-5)


# Nearest neighbours.


def spread(seed: int, count: int, size: int = 6, classes: int = 5) -> tuple[Any, Any]:
    rng = torch.Generator().manual_seed(seed)
    return (
        torch.randn(count, size, generator=rng),
        torch.randint(0, classes, (count,), generator=rng),
    )


def slow_neighbours(stored: torch.Tensor, query: torch.Tensor, k: int) -> list[int]:
    cosine = [float(F.cosine_similarity(query, one, dim=0)) for one in stored]
    return sorted(range(len(stored)), key=lambda i: -cosine[i])[:k]


def test_exact_search_in_blocks_is_the_search_of_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_neighbours, "PRODUCTS", 1)  # blocks of 1024
    stored, label = spread(0, 2500)
    memory = Exact(6, CPU)
    for part in torch.arange(2500).split(7):
        memory.add(stored[part], label[part])
    queries, _ = spread(1, 5)
    found = memory.search(queries, 4)
    assert found.tolist() == [slow_neighbours(stored, q, 4) for q in queries]
    assert memory.nbytes() == 2500 * (6 * 4 + 8)


@given(
    st.lists(st.lists(st.integers(0, 3), min_size=5, max_size=5), min_size=1, max_size=4),
    st.integers(1, 5),
)
def test_a_vote_goes_to_the_commonest_or_else_the_nearest(rows: list[list[int]], k: int) -> None:
    labels = torch.tensor(rows)[:, :k]
    scores = vote(labels, 4)
    assert torch.allclose(scores.exp().sum(1), torch.ones(len(rows)))
    for i, row in enumerate(labels.tolist()):
        # Counter keeps the order of first appearance among equals, so of nearness.
        assert scores[i].argmax().item() == Counter(row).most_common(1)[0][0]


def run_acm(stream: Stream, **own: Any) -> tuple[Any, torch.Tensor, torch.Tensor, torch.Tensor]:
    learner, gate = build(stream, "acm", **own)
    batches = [batch_of(stream, t, gate) for t in range(len(stream) - 4)]
    for batch in batches:
        learner.learn(batch, None)
    x, y = torch.cat([b.x for b in batches]), torch.cat([b.y for b in batches])
    query = torch.cat([batch_of(stream, len(stream) - 1 - t, gate).x for t in range(4)])
    return learner, normalised(x).flatten(1), y, query


def noisy_stream(steps: int = 40) -> Stream:
    """Neighbours disagree here, so that the number of them and ties matter."""
    rng = np.random.default_rng(2)
    x = rng.integers(0, 256, (steps * 5, 1, 3, 3)).astype(np.uint8)
    return sg.stream(x, rng.integers(0, 4, steps * 5), batch=5)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_acm_against_a_loop_and_two_neighbours_are_one(k: int) -> None:
    learner, x, y, query = run_acm(noisy_stream(), k=k)
    chosen = []
    for row in normalised(query).flatten(1):
        near = [int(y[i]) for i in slow_neighbours(x, row, 1 if k == 2 else k)]
        chosen.append(Counter(near).most_common(1)[0][0])
    assert learner.predict(query).argmax(1).tolist() == chosen
    assert learner.unbounded
    assert learner.memory_bytes() == len(y) * (9 * 4 + 8)


def test_acm_has_one_way_to_break_ties() -> None:
    """Hammoud et al. 2023, section 4.1, and their code: the nearest decides, not the smallest
    class. The setting of old runs is read and has no effect."""
    learner, _ = build(noisy_stream(), "acm", k=2)  # four classes
    learner.seen = Exact(3, CPU)
    learner.seen.add(torch.eye(3), torch.tensor([3, 1, 0]))
    near = torch.tensor([[0.9, 0.4, 0.1], [0.1, 0.3, 0.9], [0.3, 0.9, 0.1]])
    learner.features = lambda x: F.normalize(x)
    assert learner.predict(near).argmax(1).tolist() == [3, 0, 1]
    assert "as_published" not in catalogue.learner("acm").known_settings
    assert current_settings("acm", {"k": 2, "as_published": False}) == {"k": 2}


def test_acm_before_anything_was_seen_and_with_less_than_k() -> None:
    stream = noisy_stream(4)
    learner, gate = build(stream, "acm", k=9)
    batch = batch_of(stream, 0, gate)
    assert torch.isfinite(learner.predict(batch.x)).all()
    learner.learn(batch, None)
    assert learner.predict(batch.x).argmax(1).tolist() != []
    one, _ = build(stream, "acm", k=1)
    one.learn(batch, None)
    assert one.predict(batch.x).argmax(1).tolist() == batch.y.tolist()


class ForgetfulIndex:
    """In place of a graph: exact, but blind to every vector whose number is divisible by five."""

    def __init__(self, size: int, links: int, metric: int) -> None:
        self.hnsw = SimpleNamespace()
        self.rows = np.empty((0, size), np.float32)

    def add(self, rows: Any) -> None:
        self.rows = np.concatenate([self.rows, rows])

    def search(self, queries: Any, k: int) -> tuple[Any, Any]:
        assert k > 0  # as faiss does
        near = queries @ self.rows.T
        near[:, ::5] = -2
        place = np.argsort(-near, axis=1)[:, :k]
        return np.take_along_axis(near, place, 1), place


@pytest.fixture
def fake_faiss(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = SimpleNamespace(
        IndexHNSWFlat=ForgetfulIndex,
        METRIC_INNER_PRODUCT=0,
        omp_get_max_threads=lambda: 1,
        omp_set_num_threads=lambda n: None,
    )
    monkeypatch.setitem(sys.modules, "faiss", fake)


@pytest.mark.usefixtures("fake_faiss")
def test_recall_of_a_graph_is_what_it_finds_of_the_true_neighbours() -> None:
    stored, label = spread(0, 400)
    memory = NeighbourGraph(6, CPU)
    memory.add(stored, label)
    queries, _ = spread(1, 50)
    true = [slow_neighbours(stored, q, 2) for q in queries]
    share = np.mean([[place % 5 != 0 for place in row] for row in true])
    assert memory.recall(queries, 2).item() == pytest.approx(share)
    assert 0.6 < share < 0.95


@pytest.mark.usefixtures("fake_faiss")
def test_acm_reports_the_recall_of_its_graph() -> None:
    stream = noisy_stream(30)
    learner, gate = build(stream, "acm", search="hnsw", measure=10)
    assert torch.isfinite(learner.predict(batch_of(stream, 0, gate).x)).all()
    said = [learner.learn(batch_of(stream, t, gate), None) for t in range(30)]
    assert [t for t in range(30) if "neighbour_recall" in said[t]] == [10, 20]  # none at first
    assert 0 < said[20]["neighbour_recall"].item() < 1
    assert "neighbour_recall" not in build(stream, "acm")[0].learn(batch_of(stream, 0, gate), None)


def test_a_graph_by_faiss_finds_them_and_survives_a_checkpoint() -> None:
    pytest.importorskip("faiss")
    stored, label = spread(0, 3000, size=16)
    memory, other = NeighbourGraph(16, CPU), NeighbourGraph(16, CPU)
    for part in torch.arange(2000).split(10):
        memory.add(stored[part], label[part])
    queries, _ = spread(1, 200, size=16)
    assert memory.recall(queries, 2).item() > 0.97
    other.load_state_dict(memory.state_dict())
    for one in (memory, other):
        for part in torch.arange(2000, 3000).split(10):
            one.add(stored[part], label[part])
    assert torch.equal(memory.search(queries, 5), other.search(queries, 5))


def test_what_to_install_for_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(StreamgaugeError, match=r"pip install 'streamgauge\[knn\]'"):
        build(noisy_stream(4), "acm", search="hnsw")


# Class means and covariance.


def test_a_class_without_a_mean_wins_only_as_published() -> None:
    """Published: its mean is 0, which is nearer than a mean on the other side."""
    x = np.array([[-1.0, -1.0], [-1.0, -0.8], [1.0, 1.0], [1.0, 0.9]], np.float32)
    stream = sg.stream(x, np.array([0, 0, 1, 1]), classes=3, batch=2)
    for name, own in [("ncm", {"distance": "cosine"}), ("ncm", {"distance": "l2"}), ("slda", {})]:
        usual, gate = build(stream, name, **own)
        published, _ = build(stream, name, as_published=True, **own)
        batch = batch_of(stream, 0, gate)
        usual.learn(batch, None)
        published.learn(batch, None)
        query = torch.tensor([[0.9, 0.9]])
        assert usual.predict(query).argmax().item() == 0, name
        assert published.predict(query).argmax().item() in (1, 2), name
        assert torch.isfinite(usual.predict(query).softmax(1)).all()


def slow_slda(x: Any, y: Any, classes: int, published: bool = False) -> tuple[Any, Any]:
    """One sample after the other, straight from the formula."""
    size = x.shape[1]
    mean, count = np.zeros((classes, size)), np.zeros(classes)
    sigma = np.zeros((size, size))
    for n, (sample, label) in enumerate(zip(x, y, strict=True)):
        away = sample - mean[label]
        if count[label] == 0 and not published:
            away = np.zeros(size)
        sigma = (n * sigma + n / (n + 1) * np.outer(away, away)) / (n + 1)
        mean[label] += (sample - mean[label]) / (count[label] + 1)
        count[label] += 1
    return mean, sigma


def slda_of(stream: Stream, **own: Any) -> tuple[slda.SLDA, Gate]:
    learner, gate = build(stream, "slda", **own)
    assert isinstance(learner, slda.SLDA)
    return learner, gate


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.lists(st.integers(1, 8), min_size=1, max_size=6), st.booleans())
def test_slda_in_batches_is_slda_sample_by_sample(
    seed: int, sizes: list[int], published: bool
) -> None:
    rng = np.random.default_rng(seed)
    count = sum(sizes)
    x = (3 + rng.normal(size=(count, 4))).astype(np.float32)
    y = rng.integers(0, 3, count)
    learner, _ = slda_of(sg.stream(x, y, classes=4), as_published=published)
    start = 0
    for size in sizes:
        rows = slice(start, start + size)
        learner.learn(Batch(torch.from_numpy(x[rows]), torch.from_numpy(y[rows]), y[rows]), None)
        start += size
    mean, sigma = slow_slda(x.astype(np.float64), y, 4, published)
    have = learner.sums / learner.counts.clamp(min=1)[:, None]
    np.testing.assert_allclose(have.numpy(), mean, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose((learner.scatter / count).numpy(), sigma, rtol=1e-11, atol=1e-11)


def test_slda_scores_by_pseudo_inverse() -> None:
    stream = small_stream(12, classes=3)
    learner, gate = slda_of(stream)
    batches = [batch_of(stream, t, gate) for t in range(11)]
    for batch in batches:
        learner.learn(batch, None)
    x = normalised(torch.cat([b.x for b in batches])).flatten(1).double().numpy()
    y = torch.cat([b.y for b in batches]).numpy()
    mean, sigma = slow_slda(x, y, 3)
    precision = np.linalg.pinv((1 - 1e-4) * sigma + 1e-4 * np.eye(len(sigma)))
    query = batch_of(stream, 11, gate).x
    rows = normalised(query).flatten(1).double().numpy()
    score = rows @ precision @ mean.T - 0.5 * np.diag(mean @ precision @ mean.T)
    said = learner.predict(query).numpy()
    expected = score - score.max(axis=1, keepdims=True)
    np.testing.assert_allclose(said, expected, rtol=1e-4, atol=1e-2)


def test_slda_as_published_counts_the_first_of_a_class_from_zero() -> None:
    x = np.array([[1.0, 2.0], [3.0, 1.0], [5.0, 5.0]], np.float32)
    y = np.array([0, 0, 1])
    usual, _ = slda_of(sg.stream(x, y))
    published, _ = slda_of(sg.stream(x, y), as_published=True)
    for one in (usual, published):
        one.learn(Batch(torch.from_numpy(x), torch.from_numpy(y), y), None)
    away = np.array([2.0, -1.0])
    np.testing.assert_allclose(usual.scatter, np.outer(away, away) / 2)
    extra = published.scatter - usual.scatter
    np.testing.assert_allclose(extra, np.full((2, 2), 25.0) * 2 / 3)  # third of three: 2 / 3


def test_slda_solves_anew_only_when_due_whoever_asks() -> None:
    stream = small_stream(12)
    asked, gate = slda_of(stream, refresh=10)
    quiet, _ = slda_of(stream, refresh=10)
    always, _ = slda_of(stream)
    query = batch_of(stream, 11, gate).x
    solved = []
    for step in range(7):
        batch = batch_of(stream, step, gate)
        for one in (asked, quiet, always):
            one.learn(batch, None)
        weight = asked.weight.clone()
        asked.predict(query)
        assert torch.equal(asked.weight, weight)
        solved.append(asked.waiting == 0)
    assert solved == [False, True, False, True, False, True, False]
    assert torch.equal(asked.predict(query), quiet.predict(query))
    assert not torch.equal(asked.predict(query), always.predict(query))
    fresh, _ = slda_of(stream, refresh=10)
    fresh.load_state_dict(asked.state_dict())
    assert torch.equal(fresh.predict(query), asked.predict(query))


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("slda", {"shrinkage": 0}),
        ("slda", {"refresh": 0}),
        ("acm", {"k": 0}),
        ("ncm", {"model": "x"}),
    ],
)
def test_settings_that_cannot_be(name: str, own: dict[str, Any]) -> None:
    with pytest.raises(StreamgaugeError):
        build(small_stream(4), name, **own)


# All together.


def test_retention_beats_finetuning_where_classes_come_in_turn(tmp_path: Path) -> None:
    stream, end = sg.stream("blobs"), sg.Protocol(evaluate="end")
    kept = {
        name: sg.score(sg.run(stream, name, protocol=end, out=tmp_path))["retained_accuracy"]
        for name in ("finetune", "replay_only", "cosine_fc", "acm", "ncm", "slda")
    }
    for name in ("replay_only", "cosine_fc", "acm", "ncm", "slda"):
        assert kept[name] > kept["finetune"] + 0.2, kept
    fifo = sg.learner("new=replay_only", sampler="fifo")
    newest = sg.run(stream, fifo, protocol=end, out=tmp_path)
    assert sg.score(newest)["retained_accuracy"] < kept["replay_only"] - 0.2


def test_every_preset_is_a_learner_with_the_papers_settings() -> None:
    presets = tomllib.loads(PRESETS.read_text())
    assert {"replay_only", "fc_only", "overadapt", "cosine_fc", "acm", "ncm", "slda"} <= set(
        presets
    )
    for name, sets in presets.items():
        for preset, given_settings in sets.items():
            config = catalogue.learner(f"{name}@{preset}").config
            assert preset.startswith("evalocl-")
            assert given_settings["model"] == "resnet50"
            if hasattr(config, "lr"):
                assert (config.lr, config.momentum, config.weight_decay) == (0.005, 0.9, 1e-4)
                assert config.recall == {"cglm": 64, "cloc": 128}[preset.split("-")[1]]
                slow = {"cglm": 10, "cloc": 5}[preset.split("-")[1]]
                assert config.passes == (slow if preset.endswith("slow") else 1)
    assert isinstance(catalogue.learner("ncm@evalocl-cglm").config, ncm.Config)
    assert isinstance(catalogue.learner("acm@evalocl-cglm").config, acm.Config)


def test_the_papers_views_are_crops_stretched_to_the_old_size() -> None:
    generator = torch.Generator().manual_seed(0)
    ramp = torch.arange(16, dtype=torch.uint8).mul(16).expand(64, 3, 16, 16)  # left to right
    view = augment(ramp, "resized_crop_flip", generator)
    assert view.shape == ramp.shape
    assert view.dtype == torch.uint8
    rows = view.float()
    assert (rows == rows[:, :1, :1]).all()  # still a ramp: all rows and channels alike
    width = (rows[:, 0, 0, -1] - rows[:, 0, 0, 0]).abs() / 240
    assert width.min() < 0.45
    assert width.max() > 0.85
    turned = rows[:, 0, 0, 0] > rows[:, 0, 0, -1]
    assert 16 < turned.sum() < 48


def test_the_example_asks_for_learners_that_there_are() -> None:
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "near_future.py"))
    assert set(example["TABLES"]) == {"overadapt", "samplers", "features"}
    for learners in example["TABLES"].values():
        for name, (learner, own) in learners.items():
            assert catalogue.learner(f"{name}={learner}", **own).name == name
