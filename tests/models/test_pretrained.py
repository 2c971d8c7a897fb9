"""Weights that others published: their names, Keras' ResNet50, hub names."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch

from streamgauge import models
from streamgauge.errors import StreamgaugeError
from streamgauge.models import build, load_weights
from streamgauge.models.base import LinearHead
from streamgauge.models.features import Backbone, Config
from streamgauge.models.layouts import KERAS_MEAN, KERAS_STD
from streamgauge.models.resnet import Bottleneck, FirstBottleneck, ResNet
from streamgauge.streams import Spec

CLASSES = 5


def small_resnet(block: type = FirstBottleneck) -> ResNet:
    """ResNet with one block a stage: the same layers, a third of the numbers."""
    model = ResNet((3, 32, 32), block, (1, 1, 1, 1))
    model.fc = LinearHead(model.feature_size, CLASSES, masked=False)
    return model.eval()


def keras_arrays(new_names: bool = False) -> tuple[dict[str, np.ndarray], dict[str, dict]]:
    """Random weights as Keras keeps them, and its layers' settings."""
    rng = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {}
    layers: dict[str, dict] = {}

    def add(conv: str, norm: str, before: int, after: int, side: int, stride: int) -> None:
        scale = (before * side * side) ** -0.5
        arrays[f"{conv}/kernel"] = rng.normal(0, scale, (side, side, before, after))
        arrays[f"{conv}/bias"] = rng.normal(0, 0.5, after)
        arrays[f"{norm}/gamma"] = rng.uniform(0.5, 1.5, after)
        arrays[f"{norm}/beta"] = rng.normal(0, 0.2, after)
        arrays[f"{norm}/moving_mean"] = rng.normal(0, 0.5, after)
        arrays[f"{norm}/moving_variance"] = rng.uniform(0.01, 1.0, after)
        layers[conv] = {"strides": [stride, stride]}
        layers[norm] = {"epsilon": 0.001}

    first = ("conv1_conv", "conv1_bn") if new_names else ("conv1", "bn_conv1")
    add(*first, 3, 64, 7, 2)
    before = 64
    for stage, width in ((2, 64), (3, 128), (4, 256), (5, 512)):
        stride = 1 if stage == 2 else 2
        for part, a, b, side, step in (
            ("1", before, 4 * width, 1, stride),
            ("2a", before, width, 1, stride),
            ("2b", width, width, 3, 1),
            ("2c", width, 4 * width, 1, 1),
        ):
            names = (f"res{stage}a_branch{part}", f"bn{stage}a_branch{part}")
            if new_names:
                number = ["1", "2a", "2b", "2c"].index(part)
                names = tuple(f"conv{stage}_block1_{number}_{k}" for k in ("conv", "bn"))
            add(*names, a, b, side, step)
        before = 4 * width
    head = "predictions" if new_names else "fc1000"
    arrays[f"{head}/kernel"] = rng.normal(0, 0.05, (2048, CLASSES))
    arrays[f"{head}/bias"] = rng.normal(0, 0.5, CLASSES)
    return {name: values.astype(np.float32) for name, values in arrays.items()}, layers


def keras_forward(arrays: dict[str, np.ndarray], rgb: np.ndarray, eps: float = 0.001) -> np.ndarray:
    """Keras' ResNet50 written out in NumPy, pixels last: BGR less the means, padding by hand, a
    bias in every convolution, the stride on the first 1 x 1."""

    def conv(x: np.ndarray, name: str, stride: int = 1, pad: int = 0) -> np.ndarray:
        kernel = arrays[f"{name}/kernel"].astype(np.float64)
        x = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
        side = kernel.shape[0]
        high, wide = ((n - side) // stride + 1 for n in x.shape[1:3])
        out = np.zeros((len(x), high, wide, kernel.shape[3]))
        for i in range(side):
            for j in range(side):
                seen = x[:, i : i + stride * high : stride, j : j + stride * wide : stride]
                out += seen[:, :high, :wide] @ kernel[i, j]
        return out + arrays[f"{name}/bias"]

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        gamma, beta, mean, var = (
            arrays[f"{name}/{kind}"].astype(np.float64)
            for kind in ("gamma", "beta", "moving_mean", "moving_variance")
        )
        return gamma * (x - mean) / np.sqrt(var + eps) + beta

    def relu(x: np.ndarray) -> np.ndarray:
        return np.maximum(x, 0)

    x = rgb[..., ::-1].astype(np.float64) - np.array([103.939, 116.779, 123.68])
    x = relu(norm(conv(x, "conv1", 2, 3), "bn_conv1"))
    x = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))  # with zeros, as after ReLU nothing is lower
    high, wide = ((n - 3) // 2 + 1 for n in x.shape[1:3])
    x = np.max(
        [x[:, i : i + 2 * high : 2, j : j + 2 * wide : 2][:, :high, :wide]
         for i in range(3) for j in range(3)],
        axis=0,
    )  # fmt: skip
    for stage in (2, 3, 4, 5):
        stride = 1 if stage == 2 else 2
        a, b, c, s = (f"{stage}a_branch{part}" for part in ("2a", "2b", "2c", "1"))
        y = relu(norm(conv(x, f"res{a}", stride), f"bn{a}"))
        y = relu(norm(conv(y, f"res{b}", 1, 1), f"bn{b}"))
        y = norm(conv(y, f"res{c}"), f"bn{c}")
        x = relu(y + norm(conv(x, f"res{s}", stride), f"bn{s}"))
    logits = x.mean(axis=(1, 2)) @ arrays["fc1000/kernel"] + arrays["fc1000/bias"]
    return np.asarray(logits)


def tensorflow_js(folder: Path, arrays: dict[str, np.ndarray], layers: dict, half: bool) -> Path:
    kind = np.float16 if half else np.float32
    data = b"".join(values.astype(kind).tobytes() for values in arrays.values())
    cut = len(data) // 2 + 3  # an array lies across two files
    (folder / "one.bin").write_bytes(data[:cut])
    (folder / "two.bin").write_bytes(data[cut:])
    weights = [
        {"name": name, "shape": list(values.shape), "dtype": "float32"}
        | ({"quantization": {"dtype": "float16"}} if half else {})
        for name, values in arrays.items()
    ]
    topology = {"layers": [{"config": {"name": name, **about}} for name, about in layers.items()]}
    path = folder / "model.json"
    path.write_text(
        json.dumps(
            {
                "modelTopology": {"model_config": {"config": topology}},
                "weightsManifest": [{"paths": ["one.bin", "two.bin"], "weights": weights}],
            }
        )
    )
    return path


def logits_of(model: ResNet, rgb: np.ndarray) -> np.ndarray:
    x = torch.from_numpy(np.ascontiguousarray(rgb.transpose(0, 3, 1, 2)))
    with torch.no_grad():
        return model(models.to_float(x, KERAS_MEAN, KERAS_STD)).numpy()


@pytest.fixture(scope="module")
def rgb() -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (2, 32, 32, 3)).astype(np.uint8)


def test_keras_resnet_is_the_slow_version(tmp_path: Path, rgb: np.ndarray) -> None:
    arrays, layers = keras_arrays()
    want = keras_forward(arrays, rgb)
    model = small_resnet()
    path = tensorflow_js(tmp_path, arrays, layers, half=False)
    loaded = load_weights(model, path, mean=KERAS_MEAN, std=KERAS_STD)
    assert loaded.mean == KERAS_MEAN
    assert np.abs(logits_of(model, rgb) - want).max() < 1e-3 * np.abs(want).max()
    halved = {name: values.astype(np.float16) for name, values in arrays.items()}
    path = tensorflow_js(tmp_path, arrays, layers, half=True)
    load_weights(model, path)
    want = keras_forward({n: v.astype(np.float32) for n, v in halved.items()}, rgb)
    assert np.abs(logits_of(model, rgb) - want).max() < 1e-3 * np.abs(want).max()


def test_keras_hdf5_by_new_and_oldest_names(tmp_path: Path, rgb: np.ndarray) -> None:
    import h5py

    arrays, _ = keras_arrays()
    renamed, _ = keras_arrays(new_names=True)  # the same numbers
    oldest = {"kernel": "W", "bias": "b", "moving_mean": "running_mean"}
    oldest |= {"moving_variance": "running_std"}
    for given, eps, name_of in (
        (renamed, 1.001e-5, lambda layer, kind: f"{layer}/{kind}:0"),
        (arrays, 0.001, lambda layer, kind: f"{layer}_{oldest.get(kind, kind)}:0"),
    ):
        file = tmp_path / "w.h5"
        with h5py.File(file, "w") as opened:
            layers = list(dict.fromkeys(name.partition("/")[0] for name in given))
            opened.attrs["layer_names"] = [layer.encode() for layer in layers]
            for layer in layers:
                group = opened.create_group(layer)
                kinds = [name.partition("/")[2] for name in given if name.startswith(f"{layer}/")]
                group.attrs["weight_names"] = [name_of(layer, kind).encode() for kind in kinds]
                for kind in kinds:
                    group[name_of(layer, kind)] = given[f"{layer}/{kind}"]
        model = small_resnet()
        load_weights(model, file)
        want = keras_forward(arrays, rgb, eps)
        assert np.abs(logits_of(model, rgb) - want).max() < 1e-3 * np.abs(want).max()
    (tmp_path / "w.h5").write_bytes(b"no")
    with pytest.raises(StreamgaugeError, match="cannot be read"):
        load_weights(model, tmp_path / "w.h5")


def test_keras_weights_are_refused_where_they_would_be_wrong(tmp_path: Path) -> None:
    arrays, layers = keras_arrays()
    path = tensorflow_js(tmp_path, arrays, layers, half=False)
    before = {k: v.clone() for k, v in small_resnet(Bottleneck).state_dict().items()}
    other = small_resnet(Bottleneck)
    other.load_state_dict(before)
    with pytest.raises(StreamgaugeError, match="build the model 'resnet50_v1'"):
        load_weights(other, path)
    assert all(torch.equal(v, before[k]) for k, v in other.state_dict().items())
    with pytest.raises(StreamgaugeError, match=r"set mean to 0\.48502,0\.45796,0\.4076 and std"):
        load_weights(small_resnet(), path, mean=(0.5,), std=(0.25,))
    (tmp_path / "two.bin").write_bytes(b"")
    with pytest.raises(StreamgaugeError, match="are cut off"):
        load_weights(small_resnet(), path)
    (tmp_path / "two.bin").unlink()
    with pytest.raises(StreamgaugeError, match=r"lack the file 'two\.bin'"):
        load_weights(small_resnet(), path)
    path.write_text(path.read_text().replace("one.bin", "../one.bin"))
    with pytest.raises(StreamgaugeError, match="outside its folder"):
        load_weights(small_resnet(), path)
    path.write_text("{}")
    with pytest.raises(StreamgaugeError, match=r"not the model\.json"):
        load_weights(small_resnet(), path)


def hugging_face_name(name: str) -> str:
    """Ours to theirs, written by hand for a ResNet."""
    if name.startswith(("conv1.", "bn1.")):
        kind = "convolution" if name.startswith("conv1") else "normalization"
        return f"resnet.embedder.embedder.{kind}.{name.partition('.')[2]}"
    if name.startswith("fc."):
        return name.replace("fc.", "classifier.1.")
    layer, block, part, rest = name.split(".", 3)
    stem = f"resnet.encoder.stages.{int(layer[-1]) - 1}.layers.{block}"
    if part == "downsample":
        number, kind = rest.split(".", 1)
        return f"{stem}.shortcut.{['convolution', 'normalization'][int(number)]}.{kind}"
    kind = "convolution" if part.startswith("conv") else "normalization"
    return f"{stem}.layer.{int(part[-1]) - 1}.{kind}.{rest}"


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_hugging_face_names(tmp_path: Path, name: str) -> None:
    theirs = build(name, (3, 32, 32), 7, seed=1)
    state = {hugging_face_name(k): v for k, v in theirs.state_dict().items() if k != "fc.seen"}
    assert all("layer1" not in k for k in state)
    torch.save(state, tmp_path / "pytorch_model.bin")
    model = build(name, (3, 32, 32), 7, seed=2)
    loaded = load_weights(model, tmp_path / "pytorch_model.bin")
    assert not loaded.kept
    assert not loaded.unused
    for key, value in theirs.state_dict().items():
        if key != "fc.seen":
            assert torch.equal(model.state_dict()[key], value), key


def lite_forward(state: dict[str, torch.Tensor], x: np.ndarray) -> np.ndarray:
    """EfficientNet-Lite0 in NumPy by the names of the published file: an image at a time."""
    w = {k: v.numpy().astype(np.float64) for k, v in state.items()}
    kernels = [3, 3, 3, 5, 5, 3, 3, 3, 5, 5, 5, 5, 5, 5, 5, 3]
    strides = [1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1]

    def same(x: np.ndarray, kernel: int, stride: int) -> np.ndarray:
        more = [max((-(-n // stride) - 1) * stride + kernel - n, 0) for n in x.shape[1:]]
        return np.pad(x, [(0, 0), *((m // 2, m - m // 2) for m in more)])

    def conv(x: np.ndarray, name: str, stride: int = 1, alone: bool = False) -> np.ndarray:
        kernel = w[f"{name}.weight"]
        side = kernel.shape[2]
        padded = same(x, side, stride)
        high, wide = -(-x.shape[1] // stride), -(-x.shape[2] // stride)
        out = np.zeros((len(kernel), high, wide))
        for i in range(side):
            for j in range(side):
                seen = padded[:, i::stride, j::stride][:, :high, :wide]
                if alone:
                    out += kernel[:, 0, i, j, None, None] * seen
                else:
                    out += np.tensordot(kernel[:, :, i, j], seen, 1)
        return out

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        scale = w[f"{name}.weight"] / np.sqrt(w[f"{name}.running_var"] + 1e-3)
        shift = w[f"{name}.bias"] - w[f"{name}.running_mean"] * scale
        return x * scale[:, None, None] + shift[:, None, None]

    def relu6(x: np.ndarray) -> np.ndarray:
        return np.clip(x, 0, 6)

    x = relu6(norm(conv(x, "_conv_stem", 2), "_bn0"))
    for number, (kernel, stride) in enumerate(zip(kernels, strides, strict=True)):
        stem, y = f"_blocks.{number}", x
        if number:
            y = relu6(norm(conv(y, f"{stem}._expand_conv"), f"{stem}._bn0"))
        assert w[f"{stem}._depthwise_conv.weight"].shape[2] == kernel
        y = relu6(norm(conv(y, f"{stem}._depthwise_conv", stride, True), f"{stem}._bn1"))
        y = norm(conv(y, f"{stem}._project_conv"), f"{stem}._bn2")
        x = x + y if y.shape == x.shape else y
    x = relu6(norm(conv(x, "_conv_head"), "_bn1"))
    return np.asarray(x.mean(axis=(1, 2)))


def lite_name(name: str) -> str:
    if not name.startswith("blocks."):
        for ours, theirs in (
            ("conv_stem", "_conv_stem"),
            ("bn1", "_bn0"),
            ("conv_head", "_conv_head"),
            ("bn2", "_bn1"),
            ("fc", "_fc"),
        ):
            if name.startswith(ours + "."):
                return theirs + name.removeprefix(ours)
    _, stage, place, part, kind = name.split(".")
    number = [0, 1, 3, 5, 8, 11, 15][int(stage)] + int(place)
    own = {"conv_pw": "expand_conv", "bn1": "bn0", "conv_dw": "depthwise_conv", "bn2": "bn1"}
    own |= {"conv_pwl": "project_conv", "bn3": "bn2"}
    if number == 0:
        own = {"conv_dw": "depthwise_conv", "bn1": "bn1", "conv_pw": "project_conv", "bn2": "bn2"}
    return f"_blocks.{number}._{own[part]}.{kind}"


def test_efficientnet_lite0_is_the_slow_version(tmp_path: Path) -> None:
    theirs = build("efficientnet_lite0", (3, 33, 40), 4, seed=1)
    generator = torch.Generator().manual_seed(0)
    for name, value in theirs.state_dict().items():
        if name.endswith(("bn1.bias", "bn2.bias", "running_mean")):
            value.copy_(torch.randn(value.shape, generator=generator) * 0.1)
        if name.endswith("running_var"):
            value.copy_(torch.rand(value.shape, generator=generator) + 0.2)
    state = {lite_name(k): v for k, v in theirs.state_dict().items() if k != "fc.seen"}
    torch.save(state, tmp_path / "lite.pth")
    model = build("efficientnet_lite0", (3, 33, 40), 4, seed=2)
    loaded = load_weights(model, tmp_path / "lite.pth")
    assert not loaded.kept
    assert not loaded.unused
    x = torch.randn(1, 3, 33, 40, generator=generator)
    with torch.no_grad():
        found = model.eval().features(x)[0].numpy()
    want = lite_forward(state, x[0].numpy().astype(np.float64))
    assert np.abs(found - want).max() < 1e-3 * np.abs(want).max()
    timm = {k.replace("fc.", "classifier."): v for k, v in theirs.state_dict().items()}
    del timm["classifier.seen"]
    torch.save(timm, tmp_path / "timm.pth")
    assert not load_weights(model, tmp_path / "timm.pth").kept
    whole = build("efficientnet_lite0", (3, 224, 224), 1000, seed=0)
    assert sum(p.numel() for p in whole.parameters()) == 4_652_008


def test_resnet50_v1_differs_in_its_strides_alone() -> None:
    v1, usual = build("resnet50_v1", (3, 64, 64), 2, 0), build("resnet50", (3, 64, 64), 2, 0)
    assert {k: v.shape for k, v in v1.state_dict().items()} == {
        k: v.shape for k, v in usual.state_dict().items()
    }
    strides = {(name, m.stride) for name, m in v1.named_modules() if isinstance(m, torch.nn.Conv2d)}
    others = {
        (name, m.stride) for name, m in usual.named_modules() if isinstance(m, torch.nn.Conv2d)
    }
    assert {name for name, _ in strides ^ others} == {
        f"layer{stage}.0.conv{number}" for stage in (2, 3, 4) for number in (1, 2)
    }


def fake_hub(monkeypatch: pytest.MonkeyPatch, files: dict[tuple[str, str], Path]) -> None:
    def hf_hub_download(repository: str, name: str) -> str:
        if (repository, name) not in files:
            raise OSError(f"no {name} in {repository}")
        return str(files[repository, name])

    module = types.ModuleType("huggingface_hub")
    module.hf_hub_download = hf_hub_download  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)


def test_weights_by_hub_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors.torch import save_file

    theirs = build("resnet18", (3, 32, 32), 1000, seed=5)
    state = {k: v for k, v in theirs.state_dict().items() if k != "fc.seen"}
    save_file(state, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(
        json.dumps(
            {"pretrained_cfg": {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}}
        )
    )
    repository = "timm/resnet18.a1_in1k"
    fake_hub(
        monkeypatch,
        {(repository, n): tmp_path / n for n in ("model.safetensors", "config.json")},
    )
    usual = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
    config = Config(model="resnet18", weights="timm:resnet18.a1_in1k", **usual)
    backbone = Backbone(Spec((3, 32, 32), 4), config)
    assert torch.equal(backbone.model.state_dict()["conv1.weight"], state["conv1.weight"])
    with pytest.raises(StreamgaugeError, match=r"set mean to 0\.485,0\.456,0\.406 and std to"):
        Backbone(Spec((3, 32, 32), 4), Config(model="resnet18", weights="hf:" + repository))
    with pytest.raises(StreamgaugeError, match=r"'hf:who/what' cannot be fetched \(no model"):
        load_weights(build("resnet18", (3, 32, 32), 4, 0), "hf:who/what")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(StreamgaugeError, match=r"pip install 'streamgauge\[hub\]'"):
        load_weights(build("resnet18", (3, 32, 32), 4, 0), "timm:resnet18.a1_in1k")


def test_weights_of_torchvision_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = build("resnet18", (3, 32, 32), 1000, seed=5)
    state = {k: v for k, v in theirs.state_dict().items() if k != "fc.seen"}

    class Weights:
        def get_state_dict(self, **options: object) -> dict[str, torch.Tensor]:
            return state

        def transforms(self) -> object:
            return types.SimpleNamespace(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])

    def get_model_weights(name: str) -> dict[str, Weights]:
        if name != "resnet18":
            raise ValueError(f"unknown model {name}")
        return {"DEFAULT": Weights()}

    package = types.ModuleType("torchvision")
    package.models = types.SimpleNamespace(get_model_weights=get_model_weights)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchvision", package)
    model = build("resnet18", (3, 32, 32), 4, 0)
    loaded = load_weights(model, "torchvision:resnet18")
    assert loaded.mean == (0.485, 0.456, 0.406)
    assert set(loaded.kept) == {"fc.weight", "fc.bias"}
    assert torch.equal(model.state_dict()["layer4.1.conv2.weight"], state["layer4.1.conv2.weight"])
    with pytest.raises(StreamgaugeError, match="torchvision has no weights 'resnet19'"):
        load_weights(model, "torchvision:resnet19")
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(StreamgaugeError, match="pip install torchvision"):
        load_weights(model, "torchvision:resnet18")
