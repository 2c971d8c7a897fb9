"""Networks and heads against formulas written out, and against the layouts they promise."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from streamgauge import models
from streamgauge.errors import StreamgaugeError
from streamgauge.models import CosineHead, LinearHead, build, load_weights, to_float

IMAGE_MODELS = ["cnn4", "slim_resnet18", "resnet18", "resnet50"]
ALL = [*models.BACKBONES]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def parameters(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def randomise(model: torch.nn.Module) -> None:
    """Batch norm that does something, so that a forgotten one is noticed."""
    generator = torch.Generator().manual_seed(5)
    for name, array in model.state_dict().items():
        if "running_var" in name:
            array.copy_(torch.rand(array.shape, generator=generator) + 0.5)
        elif array.ndim == 1 and array.is_floating_point():
            array.copy_(torch.randn(array.shape, generator=generator) * 0.2 + 0.5)


# --- layouts


@pytest.mark.parametrize(
    ("side", "classes", "features", "count"),
    [(32, 100, 160, 1_109_240), (64, 200, 640, 1_221_340)],
)
def test_slim_resnet18_is_the_surveys(side: int, classes: int, features: int, count: int) -> None:
    model = build("slim_resnet18", (3, side, side), classes, seed=0)
    assert parameters(model) == count
    assert parameters(model) - parameters(model.head) == 1_093_140
    assert model.feature_size == features
    assert model.features(torch.zeros(2, 3, side, side)).shape == (2, features)


@pytest.mark.parametrize(("name", "count"), [("resnet18", 11_689_512), ("resnet50", 25_557_032)])
def test_parameter_counts_of_torchvision(name: str, count: int) -> None:
    assert parameters(build(name, (3, 224, 224), 1000, seed=0)) == count


def torchvision_layout(bottleneck: bool, depths: list[int]) -> dict[str, tuple[int, ...]]:
    """Names and shapes by the rule of torchvision's ResNet."""
    layout: dict[str, tuple[int, ...]] = {}

    def norm(name: str, width: int) -> None:
        for what in ("weight", "bias", "running_mean", "running_var"):
            layout[f"{name}.{what}"] = (width,)
        layout[f"{name}.num_batches_tracked"] = ()

    layout["conv1.weight"] = (64, 3, 7, 7)
    norm("bn1", 64)
    before = 64
    for stage, depth in enumerate(depths):
        width = 64 * 2**stage
        after = 4 * width if bottleneck else width
        for i in range(depth):
            block = f"layer{stage + 1}.{i}"
            if bottleneck:
                kernels = [(width, before, 1), (width, width, 3), (after, width, 1)]
            else:
                kernels = [(width, before, 3), (width, width, 3)]
            for k, (out, into, size) in enumerate(kernels, start=1):
                layout[f"{block}.conv{k}.weight"] = (out, into, size, size)
                norm(f"{block}.bn{k}", out)
            if i == 0 and (stage > 0 or bottleneck):
                layout[f"{block}.downsample.0.weight"] = (after, before, 1, 1)
                norm(f"{block}.downsample.1", after)
            before = after
    layout["fc.weight"] = (1000, before)
    layout["fc.bias"] = (1000,)
    return layout


@pytest.mark.parametrize(
    ("name", "bottleneck", "depths"),
    [("resnet18", False, [2, 2, 2, 2]), ("resnet50", True, [3, 4, 6, 3])],
)
def test_names_and_shapes_of_torchvision(name: str, bottleneck: bool, depths: list[int]) -> None:
    model = build(name, (3, 224, 224), 1000, seed=0)
    mine = {k: tuple(v.shape) for k, v in model.state_dict().items()}
    assert mine.pop("fc.seen") == (1000,)  # ours: which classes were met
    expected = torchvision_layout(bottleneck, depths)
    assert list(mine) == list(expected)
    assert mine == expected


def slow_resnet(w: dict[str, Tensor], x: Tensor, slim: bool, convs: int) -> Tensor:
    """A residual network read off its names, in evaluation mode."""

    def norm(name: str, x: Tensor) -> Tensor:
        scale = w[f"{name}.weight"] / (w[f"{name}.running_var"] + 1e-5).sqrt()
        shift = w[f"{name}.bias"] - w[f"{name}.running_mean"] * scale
        return x * scale[None, :, None, None] + shift[None, :, None, None]

    if slim:
        x = norm("bn1", F.conv2d(x, w["conv1.weight"], padding=1)).clamp(min=0)
    else:
        x = norm("bn1", F.conv2d(x, w["conv1.weight"], stride=2, padding=3)).clamp(min=0)
        x = F.max_pool2d(x, 3, 2, 1)
    for stage in range(1, 5):
        i = 0
        while f"layer{stage}.{i}.conv1.weight" in w:
            block, out = f"layer{stage}.{i}", x
            strided = 2 if convs == 3 else 1  # the 3 x 3 in the middle, or the first of two
            for k in range(1, convs + 1):
                kernel = w[f"{block}.conv{k}.weight"]
                stride = 2 if (k == strided and i == 0 and stage > 1) else 1
                out = F.conv2d(out, kernel, stride=stride, padding=kernel.shape[-1] // 2)
                out = norm(f"{block}.bn{k}", out)
                if k < convs:
                    out = out.clamp(min=0)
            if f"{block}.downsample.0.weight" in w:
                short = F.conv2d(x, w[f"{block}.downsample.0.weight"], stride=2 if stage > 1 else 1)
                x = norm(f"{block}.downsample.1", short)
            x = (x + out).clamp(min=0)
            i += 1
    if slim:
        b, c, h, v = x.shape
        return x.reshape(b, c, h // 4, 4, v // 4, 4).mean((3, 5)).reshape(b, -1)
    return x.mean((2, 3))


@pytest.mark.parametrize(
    ("name", "side", "convs"),
    [("slim_resnet18", 32, 2), ("slim_resnet18", 64, 2), ("resnet18", 64, 2), ("resnet50", 64, 3)],
)
def test_resnet_features_equal_a_plain_reading(name: str, side: int, convs: int) -> None:
    model = build(name, (3, side, side), 7, seed=3).eval()
    randomise(model)
    x = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = slow_resnet(model.state_dict(), x, name.startswith("slim"), convs)
        torch.testing.assert_close(model.features(x), expected, rtol=1e-3, atol=1e-3)
        assert expected.std() > 1e-2


@pytest.mark.parametrize("batch_norm", [True, False])
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 16, 16), (3, 16, 16), (1, 28, 28), (2, 5, 9)])
def test_cnn4_takes_small_images_and_a_batch_of_one(
    shape: tuple[int, ...], batch_norm: bool
) -> None:
    model = build("cnn4", shape, 5, seed=0, masked=False, batch_norm=batch_norm).train()
    loss = model(torch.randn(1, *shape)).logsumexp(1).sum()
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert model.feature_size == 128
    if shape[1] == 32:
        assert model.layers(torch.zeros(1, *shape)).shape[2:] == (2, 2)


def test_mlp_and_linear_equal_their_formula() -> None:
    x = torch.randn(4, 3, 2, 5, generator=torch.Generator().manual_seed(0))
    model = build("mlp", (3, 2, 5), 6, seed=0, masked=False, hidden=[8, 4])
    w = model.state_dict()
    out = x.reshape(4, 30)
    for i in (0, 2):
        out = (out @ w[f"layers.{i}.weight"].T + w[f"layers.{i}.bias"]).clamp(min=0)
    torch.testing.assert_close(model.features(x), out)
    torch.testing.assert_close(model(x), out @ w["fc.weight"].T + w["fc.bias"])
    assert model.feature_size == 4

    linear = build("linear", (30,), 6, seed=0, masked=False)
    assert linear.features(x.reshape(4, 30)).equal(x.reshape(4, 30))
    assert [n for n, _ in linear.named_parameters()] == ["fc.weight", "fc.bias"]
    assert build("mlp", (30,), 6, seed=0, hidden=()).feature_size == 30


@pytest.mark.parametrize("head", ["linear", "cosine"])
@pytest.mark.parametrize("name", ALL)
def test_forward_is_the_head_on_the_features(name: str, head: str) -> None:
    model = build(name, (3, 32, 32), 9, seed=0, head=head).eval()
    model.head.see(torch.arange(9))
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        features = model.features(x)
        assert features.shape == (2, model.feature_size)
        assert model(x).equal(model.head(features))
        assert model(x).shape == (2, 9)


# --- seeds


@pytest.mark.parametrize("head", ["linear", "cosine"])
@pytest.mark.parametrize("name", ["linear", "mlp", "cnn4", "slim_resnet18", "resnet18"])
def test_weights_come_from_the_seed_alone(name: str, head: str) -> None:
    torch.manual_seed(11)
    before = torch.get_rng_state()
    first = build(name, (3, 32, 32), 4, seed=7, head=head).state_dict()
    assert torch.get_rng_state().equal(before)
    torch.rand(3)
    again = build(name, (3, 32, 32), 4, seed=7, head=head).state_dict()
    other = build(name, (3, 32, 32), 4, seed=8, head=head).state_dict()
    assert all(first[k].equal(again[k]) for k in first)
    assert not first["fc.weight"].equal(other["fc.weight"])


def test_initial_weights_have_the_promised_spread() -> None:
    torchvision = build("resnet18", (3, 64, 64), 1000, seed=0).state_dict()
    conv = torchvision["layer3.0.conv2.weight"]  # normal, variance 2 / fan out
    assert conv.std().item() == pytest.approx((2 / (256 * 9)) ** 0.5, rel=0.02)
    slim = build("slim_resnet18", (3, 32, 32), 100, seed=0).state_dict()
    conv = slim["layer4.1.conv1.weight"]  # torch's own: uniform within 1 / sqrt(fan in)
    bound = (160 * 9) ** -0.5
    assert conv.abs().max().item() == pytest.approx(bound, rel=0.01)
    assert conv.std().item() == pytest.approx(bound / 3**0.5, rel=0.02)
    cosine = build("linear", (400,), 300, seed=0, head="cosine").state_dict()
    assert cosine["fc.weight"].abs().max().item() == pytest.approx(0.05, rel=0.01)
    assert cosine["fc.weight"].std().item() == pytest.approx(0.05 / 3**0.5, rel=0.02)
    assert cosine["fc.sigma"].item() == 1


# --- heads


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=9),
    st.sampled_from(["linear", "cosine"]),
    st.integers(0, 50),
)
@settings(max_examples=50, deadline=None)
def test_unseen_classes_have_no_say_and_no_gradient(seen: list[int], kind: str, seed: int) -> None:
    model = build("linear", (5,), 7, seed=seed, head=kind)
    model.head.see(torch.tensor(seen))
    met = sorted(set(seen))
    absent = [c for c in range(7) if c not in met]
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(4, 5, generator=generator)
    y = torch.tensor([met[int(i)] for i in torch.randint(len(met), (4,), generator=generator)])

    assert model.head.seen.nonzero().flatten().tolist() == met
    logits = model(x)
    assert (logits[:, absent] == models.UNSEEN).all()
    assert logits[:, met].equal(model.head.scores(x)[:, met])
    # the loss is that of a head which has the classes met and no others
    loss = F.cross_entropy(logits, y)
    small = F.cross_entropy(logits[:, met], torch.tensor([met.index(int(c)) for c in y]))
    torch.testing.assert_close(loss, small)
    loss.backward()
    grad = model.head.get_parameter("weight").grad
    assert grad is not None
    assert (grad[absent] == 0).all()
    if len(met) > 1:
        assert (grad[met] != 0).any()


def test_nothing_seen_gives_constant_scores() -> None:
    assert (build("linear", (5,), 3, seed=0)(torch.randn(2, 5)) == -1000).all()


@pytest.mark.parametrize("kind", ["linear", "cosine"])
def test_fixed_head_has_all_outputs_and_still_marks_classes(kind: str) -> None:
    model = build("linear", (5,), 4, seed=0, head=kind, masked=False)
    x = torch.randn(3, 5)
    assert model(x).equal(model.head.scores(x))
    model.head.see(torch.tensor([1]))
    assert model.head.seen.tolist() == [False, True, False, False]
    assert model(x).equal(model.head.scores(x))


@given(
    st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=12),
    st.sets(st.integers(0, 5)),
)
@settings(deadline=None)
def test_see_with_a_mask(pairs: list[tuple[int, bool]], before: set[int]) -> None:
    head = LinearHead(2, 6)
    head.see(torch.tensor(sorted(before), dtype=torch.int64))
    # padding may hold any number, such as -1
    y = torch.tensor([c if real else -1 for c, real in pairs])
    head.see(y, torch.tensor([real for _, real in pairs]))
    expected = before | {c for c, real in pairs if real}
    assert set(head.seen.nonzero().flatten().tolist()) == expected


def test_cosine_head_equals_its_formula() -> None:
    head = CosineHead(6, 4, masked=False, sigma=3.0)
    x = 10 * torch.randn(5, 6)
    expected = torch.empty(5, 4)
    for i in range(5):
        for c in range(4):
            w = head.weight[c].detach()
            expected[i, c] = 3.0 * (x[i] @ w) / (x[i].norm() * w.norm())
    torch.testing.assert_close(head(x), expected)
    head(x).square().sum().backward()
    assert head.sigma.grad is not None
    assert head.sigma.grad != 0
    assert head(torch.zeros(1, 6)).isfinite().all()


def test_seen_travels_with_the_state() -> None:
    model = build("cnn4", (1, 16, 16), 4, seed=0)
    model.head.see(torch.tensor([2]))
    other = build("cnn4", (1, 16, 16), 4, seed=1)
    other.load_state_dict(model.state_dict())
    assert other.head.seen.tolist() == [False, False, True, False]


# --- input


def test_to_float_equals_numpy_by_channel() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (4, 3, 5, 6), dtype=np.uint8)
    mean, std = [0.5, 0.4, 0.3], [0.2, 0.25, 0.3]
    expected = np.empty((4, 3, 5, 6))
    for c in range(3):
        expected[:, c] = (x[:, c] / 255 - mean[c]) / std[c]
    for m, s in [(mean, std), (torch.tensor(mean), torch.tensor(std))]:
        out = to_float(torch.from_numpy(x), m, s)
        assert out.dtype == torch.float32
        np.testing.assert_allclose(out.numpy(), expected, atol=1e-5)


def test_to_float_passes_floats_and_refuses_the_rest() -> None:
    x = torch.randn(2, 3)
    assert to_float(x, [0.5], [0.5]) is x
    with pytest.raises(StreamgaugeError, match="these are int64 of shape"):
        to_float(torch.zeros(2, 1, 4, 4, dtype=torch.int64), [0.5], [0.5])
    with pytest.raises(StreamgaugeError, match="uint8 of shape"):
        to_float(torch.zeros(2, 4, dtype=torch.uint8), [0.5], [0.5])
    with pytest.raises(StreamgaugeError, match="3 values in mean for 1 channels"):
        to_float(torch.zeros(2, 1, 4, 4, dtype=torch.uint8), [0.1, 0.2, 0.3], [0.5])
    stored = torch.full((1, 1, 2, 2), 255, dtype=torch.uint8)
    to_float(stored, [0.0], [1.0])
    assert (stored == 255).all()


# --- weights from files


def save(state: dict[str, Tensor], path: Path) -> Path:
    if path.suffix == ".safetensors":
        from safetensors.torch import save_file

        save_file(state, path)
    else:
        torch.save(state, path)
    return path


def published(classes: int = 1000) -> dict[str, Tensor]:
    """Weights of a ResNet18 as torchvision publishes them: without our flags."""
    state = build("resnet18", (3, 64, 64), classes, seed=42).state_dict()
    del state["fc.seen"]
    return {k: v.clone() for k, v in state.items()}


@pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".pt"])
def test_weights_load_and_the_classifier_may_differ(tmp_path: Path, suffix: str) -> None:
    state = published()
    path = save(state, tmp_path / f"w{suffix}")
    model = build("resnet18", (3, 64, 64), 10, seed=0)
    head = model.head.get_parameter("weight").clone()
    report = load_weights(model, path)
    assert report.kept == ("fc.weight", "fc.bias")
    assert len(report.loaded) == len(state) - 2
    assert str(report) == "120 arrays loaded; left as initialised: fc.weight, fc.bias."
    now = model.state_dict()
    assert all(now[k].equal(v) for k, v in state.items() if not k.startswith("fc."))
    assert now["fc.weight"].equal(head)

    same = build("resnet18", (3, 64, 64), 1000, seed=0)
    report = load_weights(same, path)
    assert report.kept == ()
    assert same.state_dict()["fc.weight"].equal(state["fc.weight"])
    assert not same.head.seen.any()


def test_wrapped_prefixed_and_old_files(tmp_path: Path) -> None:
    state = {f"module.{k}": v for k, v in published(10).items() if "num_batches_tracked" not in k}
    torch.save({"state_dict": state, "epoch": 3}, tmp_path / "w.pth")
    model = build("resnet18", (3, 64, 64), 10, seed=0)
    report = load_weights(model, tmp_path / "w.pth")
    assert len(report.loaded) == len(state)
    assert model.state_dict()["conv1.weight"].equal(state["module.conv1.weight"])


def test_unexpected_names_are_said_and_harmless(tmp_path: Path) -> None:
    path = save({**published(10), "teacher": torch.zeros(2)}, tmp_path / "w.pth")
    report = load_weights(build("resnet18", (3, 64, 64), 10, seed=0), path)
    assert report.unused == ("teacher",)
    assert str(report).endswith("in the file but not used: teacher.")
    cosine = load_weights(build("resnet18", (3, 64, 64), 10, seed=0, head="cosine"), path)
    assert cosine.kept == ("fc.sigma",)
    assert cosine.unused == ("fc.bias", "teacher")


def test_a_backbone_that_does_not_fit_is_refused_whole(tmp_path: Path) -> None:
    state = published()
    lacking = {k: v for k, v in state.items() if k != "layer4.1.bn2.bias"}
    path = save(lacking, tmp_path / "w.safetensors")
    model = build("resnet18", (3, 64, 64), 1000, seed=0)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with pytest.raises(StreamgaugeError, match=r"it lacks layer4\.1\.bn2\.bias; build") as caught:
        load_weights(model, path)
    assert "\n" not in str(caught.value)
    assert all(before[k].equal(v) for k, v in model.state_dict().items())

    full = save({**state, "extra": torch.zeros(1)}, tmp_path / "full.pth")
    with pytest.raises(StreamgaugeError, match=r"lacks .* and \d+ more; .*unexpectedly extra"):
        load_weights(build("resnet50", (3, 64, 64), 1000, seed=0), full)
    with pytest.raises(StreamgaugeError, match=r"conv1\.weight \(64, 3, 7, 7\) where it needs"):
        load_weights(build("resnet18", (1, 64, 64), 1000, seed=0), full)
    with pytest.raises(StreamgaugeError, match="nothing in it fits"):
        load_weights(build("linear", (3,), 2, seed=0), save({"fc.weight": torch.zeros(9, 9)}, full))


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        return (exec, ("open('ran', 'w')",))


def test_bad_files_get_a_sentence_and_nothing_in_them_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = build("linear", (3,), 2, seed=0)
    evil = tmp_path / "evil.pth"
    torch.save({"fc.weight": Evil()}, evil)
    raw = tmp_path / "raw.pth"
    raw.write_bytes(pickle.dumps(Evil(), protocol=2))
    for path in (evil, raw):
        with pytest.raises(StreamgaugeError, match=r"cannot be read .*more than arrays"):
            load_weights(model, path)
    assert not (tmp_path / "ran").exists()

    for name, content in [
        ("empty.pth", b""),
        ("noise.pth", b"\x00\x17garbage" * 9),
        ("empty.safetensors", b""),
        ("noise.safetensors", b"\xff" * 64),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(StreamgaugeError, match="cannot be read") as caught:
            load_weights(model, tmp_path / name)
        assert "\n" not in str(caught.value)
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(StreamgaugeError, match="no weights by name"):
        load_weights(model, tmp_path / "list.pth")
    with pytest.raises(StreamgaugeError, match="there is no file"):
        load_weights(model, tmp_path / "none.pth")
    (tmp_path / "w.onnx").write_bytes(b"x")
    with pytest.raises(StreamgaugeError, match=r"ends in \.safetensors, \.pth, \.pt"):
        load_weights(model, tmp_path / "w.onnx")


# --- bad settings, speed of import, and that it learns


def test_bad_settings_get_a_sentence() -> None:
    with pytest.raises(StreamgaugeError, match="did you mean 'slim_resnet18'"):
        build("slimresnet18", (3, 32, 32), 10, seed=0)
    with pytest.raises(StreamgaugeError, match="no head 'cosin': did you mean 'cosine'"):
        build("mlp", (3, 32, 32), 10, seed=0, head="cosin")
    with pytest.raises(StreamgaugeError, match="no option 'hiden': did you mean 'hidden'"):
        build("mlp", (3, 32, 32), 10, seed=0, hiden=[3])
    with pytest.raises(StreamgaugeError, match="has no option 'sigma'"):
        build("mlp", (3, 32, 32), 10, seed=0, sigma=2.0)
    with pytest.raises(StreamgaugeError, match="use 'mlp' or 'linear'"):
        build("cnn4", (64,), 10, seed=0)
    with pytest.raises(StreamgaugeError, match="1 or more"):
        build("mlp", (64,), 0, seed=0)


def test_cosine_takes_sigma_beside_the_options_of_the_network() -> None:
    model = build("mlp", (8,), 3, seed=0, head="cosine", sigma=16.0, hidden=[5])
    assert model.head.get_parameter("sigma").item() == 16
    assert model.feature_size == 5


def test_cnn4_learns_a_level_of_grey() -> None:
    generator = torch.Generator().manual_seed(0)
    model = build("cnn4", (1, 16, 16), 4, seed=0)
    model.head.see(torch.arange(4))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    hits = []
    for step in range(80):
        y = torch.randint(4, (20,), generator=generator)
        x = 0.5 * torch.randn(20, 1, 16, 16, generator=generator)
        x += torch.tensor([-1.0, -0.3, 0.3, 1.0])[y][:, None, None, None]
        if step >= 60:
            model.eval()
            with torch.no_grad():
                hits.append((model(x).argmax(1) == y).float().mean().item())
        model.train()
        optimiser.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimiser.step()
    assert np.mean(hits) > 0.9


def test_memory_and_package_do_not_load_torch() -> None:
    code = "import sys, streamgauge.memory; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
