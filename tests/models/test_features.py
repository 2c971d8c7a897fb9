"""Frozen features, their cache, and backbones trained on the preparation part of a stream."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import streamgauge as sg
from helpers import small_stream
from streamgauge import catalogue, models
from streamgauge.errors import StreamgaugeError
from streamgauge.learners.base import Batch
from streamgauge.models import features
from streamgauge.models import pretrain as pretraining
from streamgauge.models.features import Backbone, Config, with_features
from streamgauge.models.pretrain import pretrain
from streamgauge.streams import Gate, Spec, Stream

CPU = torch.device("cpu")
QUICK = {"epochs": 2, "batch": 16, "embedding": 6}


class Spied:
    """A source that counts what is read from it."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self.asked: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def __len__(self) -> int:
        return len(self._source)

    def read(self, index: Any) -> Any:
        self.asked += np.asarray(index).tolist()
        return self._source.read(index)


def spied(stream: Stream) -> tuple[Stream, list[int]]:
    source = Spied(stream.source)
    return replace(stream, source=source), source.asked


def by_hand(stream: Stream, index: Any, seed: int = 0) -> Any:
    """Features of single samples, each by itself."""
    model = models.build("cnn4", stream.spec.input_shape, 1, seed).eval()
    x = torch.from_numpy(stream.source.read(index)).float().div(255).sub(0.5).div(0.25)
    with torch.no_grad():
        return torch.cat([model.features(one[None]) for one in x]).numpy()


def test_a_backbone_sees_each_sample_by_itself_and_never_changes() -> None:
    stream = small_stream(8)
    backbone = Backbone(stream.spec, Config(model="cnn4"))
    before = backbone.fingerprint
    found = backbone(torch.from_numpy(stream.source.read(np.arange(40))))
    np.testing.assert_allclose(found.numpy(), by_hand(stream, np.arange(40)), atol=1e-5)
    assert backbone.fingerprint == before
    assert not found.requires_grad


def test_a_fingerprint_tells_networks_apart() -> None:
    spec = Spec((3, 8, 8), 4)
    made = [
        Backbone(spec, Config(model="cnn4")),
        Backbone(spec, Config(model="cnn4"), seed=1),
        Backbone(spec, Config(model="cnn4", mean=(0.4,))),
        Backbone(spec, Config(model="mlp")),
        Backbone(spec, Config()),
    ]
    assert len({one.fingerprint for one in made}) == 5
    assert Backbone(Spec((3, 8, 8), 9), Config(model="cnn4")).fingerprint == made[0].fingerprint


def test_features_are_read_from_files_in_any_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "SHARD_BYTES", 128 * 4 * 30)
    stream = small_stream(20, held_out=0.1, preparation=0.1)
    over = with_features(stream, "cnn4", out=tmp_path)
    assert len(list(tmp_path.glob("*/*.npy"))) == 4  # 100 samples, 30 a file
    index = np.array([99, 0, 31, 31, 60, 29, 30])
    np.testing.assert_allclose(over.source.read(index), by_hand(stream, index), atol=1e-5)
    assert over.source.read(np.array([], np.int64)).shape == (0, 128)
    assert over.spec == Spec((128,), 4)
    assert over.source.label is stream.source.label
    assert over.source.columns is stream.source.columns
    assert (over.order == stream.order).all()
    assert (over.splits["held_out"].index == stream.splits["held_out"].index).all()
    assert over.order_hash == stream.order_hash
    json.dumps(over.describe())


def test_what_is_there_is_not_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "SHARD_BYTES", 128 * 4 * 30)
    stream, asked = spied(small_stream(20))
    first = with_features(stream, "cnn4", out=tmp_path)
    assert sorted(asked) == list(range(100))
    asked.clear()
    told: list[tuple[int, int]] = []
    again = with_features(stream, "cnn4", out=tmp_path, progress=lambda *at: told.append(at))
    assert asked == []
    assert told == [(100, 100)]
    assert again.source.fingerprint == first.source.fingerprint
    folder = tmp_path / first.source.fingerprint
    (folder / "00001.npy").unlink()  # as if it had been interrupted here
    whole = (folder / "00002.npy").read_bytes()
    (folder / "00002.npy").write_bytes(whole[:200])  # as no interruption leaves it, but a full disk
    third = with_features(stream, "cnn4", out=tmp_path)
    assert sorted(asked) == list(range(30, 90))
    everything = np.arange(100)
    assert (third.source.read(everything) == first.source.read(everything)).all()
    assert list(folder.glob("*.part")) == []


def test_an_interrupted_computation_leaves_nothing_half_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "SHARD_BYTES", 128 * 4 * 30)
    stream, asked = spied(small_stream(20))

    def stop(done: int, total: int) -> None:
        if done == 60:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        with_features(stream, "cnn4", out=tmp_path, progress=stop)
    asked.clear()
    with_features(stream, "cnn4", out=tmp_path)
    assert sorted(asked) == list(range(60, 100))


def test_a_killed_computation_goes_on_inside_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed for real, in the middle of the only file: what lies there is not computed again, but
    for the last block, and what comes out is what one go gives."""
    monkeypatch.setattr(features, "BATCH", 10)
    stream, asked = spied(small_stream(20))
    child = os.fork()
    if child == 0:

        def stop(done: int, total: int) -> None:
            if done == 70:
                os.kill(os.getpid(), signal.SIGKILL)

        with_features(stream, "cnn4", out=tmp_path / "killed", progress=stop)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    asked.clear()
    resumed = with_features(stream, "cnn4", out=tmp_path / "killed")
    assert sorted(asked) == list(range(60, 100))
    whole = with_features(stream, "cnn4", out=tmp_path / "whole")
    everything = np.arange(100)
    np.testing.assert_array_equal(resumed.source.read(everything), whole.source.read(everything))
    folder = next((tmp_path / "killed").iterdir())
    (folder / "00000.npy").rename(folder / "00000.npy.begun")
    with (folder / "00000.npy.begun").open("r+b") as begun:
        begun.write(b"another header")  # of other data: nothing of it is taken over
    asked.clear()
    with_features(stream, "cnn4", out=tmp_path / "killed")
    assert sorted(asked) == list(range(100))


def test_two_do_not_compute_the_same_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, _ = spied(small_stream(20))

    def meanwhile(done: int, total: int) -> None:
        if done < total:
            with_features(stream, "cnn4", out=tmp_path)

    monkeypatch.setattr(features, "BATCH", 10)
    with pytest.raises(StreamgaugeError, match="Another process"):
        with_features(stream, "cnn4", out=tmp_path, progress=meanwhile)


def test_other_data_or_another_network_is_another_folder(tmp_path: Path) -> None:
    streams = [small_stream(4), small_stream(4, data_seed=1)]
    prints = {with_features(s, "cnn4", out=tmp_path).source.fingerprint for s in streams}
    prints.add(with_features(streams[0], "cnn4", seed=1, out=tmp_path).source.fingerprint)
    prints.add(with_features(streams[0], "linear", out=tmp_path).source.fingerprint)
    assert len(prints) == 4


def test_features_that_are_not_numbers_are_refused(tmp_path: Path) -> None:
    stream = small_stream(4)
    with pytest.raises(StreamgaugeError, match="sample 0 hold a NaN or an infinity"):
        with_features(stream, "cnn4", std=(0.0,), out=tmp_path)


@pytest.mark.parametrize("name", ["ncm", "slda", "acm"])
def test_a_learner_on_features_is_the_same_learner(tmp_path: Path, name: str) -> None:
    stream = small_stream(20, held_out=0.1)
    over = with_features(stream, "cnn4", out=tmp_path / "features")
    recipe = sg.learner(name, model="cnn4")
    images = sg.run(stream, recipe, out=tmp_path)
    stored = sg.run(over, name, out=tmp_path)
    assert images.id != stored.id
    for table in ("predictions", "answers"):
        a, b = images.table(table), stored.table(table)
        assert (a["prediction"] == b["prediction"]).all()
        np.testing.assert_allclose(a["confidence"], b["confidence"], atol=1e-3)


def test_a_trained_head_on_features_is_the_same_head(tmp_path: Path) -> None:
    stream = small_stream(10)
    over = with_features(stream, "cnn4", out=tmp_path)
    pair: list[Any] = []
    for one, model in ((stream, "cnn4"), (over, "linear")):
        gate = Gate(one.source, one.preparation, CPU)
        gate.reveal(one.order)
        gate.label_due(one.order)
        learner: Any = catalogue.learner("fc_only", model=model).build(one.spec, gate, 0, CPU)
        pair.append(learner)
    pair[1].model.fc.load_state_dict(pair[0].model.fc.state_dict())  # other first draws
    for step in range(10):
        for learner, one in zip(pair, (stream, over), strict=True):
            index = one.index(step).astype(np.int64)
            gate = learner.source
            learner.learn(Batch(gate.read(index), gate.label(index), index), None)
    weights = [learner.model.fc.weight for learner in pair]
    assert torch.allclose(*weights, atol=1e-5)
    assert not torch.equal(weights[0], models.build("cnn4", (3, 8, 8), 4, 0).fc.weight)


# Backbones from the preparation part.


def prepared(seed: int = 0, steps: int = 40, **settings: Any) -> Stream:
    return small_stream(steps, preparation=0.4, data_seed=seed, **settings)


def test_only_the_preparation_part_is_used(tmp_path: Path) -> None:
    stream, asked = spied(prepared())
    file = pretrain(stream, out=tmp_path, **QUICK)
    assert set(asked) == set(stream.preparation.tolist())
    assert not set(asked) & set(stream.order.tolist())
    about = json.loads(file.with_suffix(".json").read_text())
    assert about["samples"] == 80
    assert about["settings"]["epochs"] == 2


def test_the_file_holds_a_backbone_and_an_embedding_and_no_classifier(tmp_path: Path) -> None:
    stream = prepared()
    file = pretrain(stream, out=tmp_path, **QUICK)
    kept = torch.load(file, weights_only=True)
    model = models.build("cnn4", (3, 8, 8), 4, 0)
    assert {n for n in kept if not n.startswith("embedding.")} == {
        n for n in model.state_dict() if not n.startswith("fc.")
    }
    loaded = models.load_weights(model, file)
    assert set(loaded.kept) == {"fc.weight", "fc.bias"}
    backbone = Backbone(stream.spec, Config("cnn4", str(file), embedding=6))
    x = torch.from_numpy(stream.source.read(np.arange(3)))
    f = model.eval().features(x.float().div(255).sub(0.5).div(0.25))
    linear = f @ kept["embedding.0.weight"].T + kept["embedding.0.bias"]
    scaled = (linear - kept["embedding.1.running_mean"]) / (
        kept["embedding.1.running_var"] + 1e-5
    ).sqrt()
    expected = F.relu(scaled * kept["embedding.1.weight"] + kept["embedding.1.bias"])
    assert torch.allclose(backbone(x), expected, atol=1e-5)
    with pytest.raises(StreamgaugeError, match=r"\(6, 128\) where it needs \(7, 128\)"):
        Backbone(stream.spec, Config("cnn4", str(file), embedding=7))


def test_the_same_call_trains_nothing_and_other_settings_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = pretrain(prepared(), out=tmp_path, **QUICK)
    other = pretrain(prepared(), out=tmp_path / "other", **QUICK)
    assert file.name == other.name
    first, second = (torch.load(f, weights_only=True) for f in (file, other))
    assert all(torch.equal(first[name], second[name]) for name in first)  # and repeatable
    assert pretrain(prepared(1), out=tmp_path, **QUICK) != file
    assert pretrain(prepared(), out=tmp_path, **{**QUICK, "lr": 0.01}) != file
    monkeypatch.setattr(pretraining, "_train", None)
    assert pretrain(prepared(), out=tmp_path, **QUICK) == file


def test_training_helps_and_leaves_global_randomness_alone(tmp_path: Path) -> None:
    stream = sg.stream("albums", length=2500, preparation=0.3)
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    file = pretrain(stream, out=tmp_path, epochs=6)
    assert torch.equal(torch.rand(1), expected)
    assert json.loads(file.with_suffix(".json").read_text())["training_accuracy"] > 0.8
    score = {}
    for weights in ("", str(file)):
        over = with_features(stream, "cnn4", weights, out=tmp_path / "features")
        run = sg.run(over, "ncm", out=tmp_path, protocol=sg.Protocol(evaluate="end"))
        score[weights] = sg.score(run)["online_accuracy"]
    assert score[str(file)] > score[""] + 0.1


def test_the_embedding_alone_can_be_trained_on_given_weights(tmp_path: Path) -> None:
    stream = prepared()
    given = models.build("cnn4", (3, 8, 8), 4, 3)
    torch.save(given.state_dict(), tmp_path / "given.pt")
    own = {**QUICK, "weights": str(tmp_path / "given.pt"), "train": "embedding"}
    kept = torch.load(pretrain(stream, out=tmp_path, **own), weights_only=True)
    for name, array in given.state_dict().items():
        if not name.startswith("fc."):
            assert torch.equal(kept[name], array), name
    assert kept["embedding.1.running_mean"].abs().sum() > 0


def test_learning_rate_falls_linearly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rates: list[float] = []
    step = torch.optim.SGD.step

    def spy(self: torch.optim.SGD, *rest: Any) -> Any:
        rates.append(self.param_groups[0]["lr"])
        return step(self, *rest)

    monkeypatch.setattr(torch.optim.SGD, "step", spy)
    told: list[tuple[int, int]] = []
    pretrain(prepared(), out=tmp_path, progress=lambda *at: told.append(at), **QUICK)
    assert rates == pytest.approx([0.05 * (1 - i / 10) for i in range(10)])  # 80 / 16 · 2
    assert told[-1] == (10, 10)


def test_a_folder_gives_each_stream_the_backbone_made_for_it(tmp_path: Path) -> None:
    files = [pretrain(prepared(seed), out=tmp_path, **QUICK) for seed in (0, 1)]
    for seed in (0, 1):
        stream = prepared(seed)
        gate = Gate(stream.source, stream.preparation, CPU)
        config = Config("cnn4", str(tmp_path))
        found = Backbone(stream.spec, config, source=gate)
        named = Backbone(stream.spec, Config("cnn4", str(files[seed])))
        assert found.fingerprint == named.fingerprint
        recipe = catalogue.learner("overadapt", weights=str(tmp_path))
        learner: Any = recipe.build(stream.spec, gate, 0, CPU)
        kept = torch.load(files[seed], weights_only=True)
        assert torch.equal(learner.model.state_dict()["layers.0.weight"], kept["layers.0.weight"])
        over = with_features(stream, "cnn4", tmp_path, out=tmp_path / "features")
        assert over.settings["features"]["weights"] == str(tmp_path)
    stranger = prepared(2)
    gate = Gate(stranger.source, stranger.preparation, CPU)
    with pytest.raises(StreamgaugeError, match="no backbone of the model 'cnn4' for this stream"):
        Backbone(stranger.spec, Config("cnn4", str(tmp_path)), source=gate)
    pretrain(prepared(), out=tmp_path, **{**QUICK, "lr": 0.01})
    stream = prepared()
    gate = Gate(stream.source, stream.preparation, CPU)
    with pytest.raises(StreamgaugeError, match="2 backbones"):
        Backbone(stream.spec, Config("cnn4", str(tmp_path)), source=gate)


def test_what_cannot_be_done_is_said(tmp_path: Path) -> None:
    with pytest.raises(StreamgaugeError, match=r"stream\.preparation"):
        pretrain(small_stream(8), out=tmp_path)
    with pytest.raises(StreamgaugeError, match=r"did you mean 'pretrain\.epochs'"):
        pretrain(prepared(), out=tmp_path, epoch=3)
    with pytest.raises(StreamgaugeError, match="no embedding to train"):
        pretrain(prepared(), out=tmp_path, train="embedding", embedding=0)
    with pytest.raises(StreamgaugeError, match="An embedding is learnt"):
        Backbone(Spec((3, 8, 8), 4), Config(model="cnn4", embedding=8))
    with pytest.raises(StreamgaugeError, match="no device 'gpu'"):
        with_features(small_stream(4), device="gpu", out=tmp_path)
