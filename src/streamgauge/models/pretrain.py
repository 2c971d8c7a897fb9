"""Train a backbone on the preparation part of a stream, for methods that need one at the start."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from streamgauge import models
from streamgauge.errors import StreamgaugeError
from streamgauge.files import json_hash, write_atomic, write_text
from streamgauge.models.augment import Augmentation, augment
from streamgauge.models.features import (
    Progress,
    add_embedding,
    device_named,
    embed,
    preparation_hash,
)
from streamgauge.settings import as_plain, configure
from streamgauge.streams import Gate, Stream
from streamgauge.streams.gate import scaled_columns
from streamgauge.streams.scaling import OnlineScaler

FORMAT = 1  # part of a file's hash; raise it if the meaning of the settings changes


@dataclass(frozen=True)
class Config:
    model: str = "cnn4"
    weights: str = ""  # start from this file; without one, from the seed
    embedding: int = 64  # features of a layer on top, learnt along (for ACM); 0: none
    train: Literal["all", "embedding"] = "all"  # "embedding": the network stays as it is
    epochs: int = 20
    batch: int = 64
    lr: float = 0.05  # falls linearly to 0
    momentum: float = 0.9
    weight_decay: float = 1e-4
    augment: Augmentation = "none"
    mean: tuple[float, ...] = (0.5,)  # give the learner the same two
    std: tuple[float, ...] = (0.25,)
    seed: int = 0


def pretrain(
    stream: Stream,
    *,
    out: str | Path = "backbones",
    device: str = "auto",
    progress: Progress | None = None,
    **settings: Any,
) -> Path:
    """Train a network on the preparation part of a stream; returns the file of its weights.

    Settings are those of `Config`. Cross-entropy by SGD, the learning rate falling linearly to 0;
    the classifier on top is discarded. The file's name has a hash of the samples and one of the
    settings, so the same call finds the file and does not train again; a `.json` of the same name
    has the settings and the training accuracy. `progress` is called with the number of steps done
    and of all steps.
    """
    config = configure(Config, settings, "pretrain")
    index = np.asarray(stream.preparation, np.int64)
    if len(index) < 2 or config.batch < 2:
        raise StreamgaugeError(
            f"The stream '{stream.name}' has {len(index)} samples to prepare on and the batch is "
            f"{config.batch}, where both must be 2 or more: set stream.preparation, "
            f"for example to 0.2."
        )
    samples = preparation_hash(Gate(stream.source, index, torch.device("cpu")))
    file = Path(out) / f"{stream.name}-{config.model}-{samples}-{_settings_hash(config)}.pt"
    if file.exists():
        return file
    trained, figures = _train(stream, index, config, device_named(device), progress)
    kept = {name: array.cpu() for name, array in trained.state_dict().items()
            if not name.startswith("fc.")}  # fmt: skip
    file.parent.mkdir(parents=True, exist_ok=True)
    about = {"stream": stream.name, "samples": len(index), **figures, "settings": as_plain(config)}
    write_text(file.with_suffix(".json"), json.dumps(about, indent=1))
    with write_atomic(file) as part:
        torch.save(kept, part)
    return file


def _settings_hash(config: Config) -> str:
    settings = as_plain(config)
    if config.weights and Path(config.weights).is_file():  # by content, not by path
        settings["weights"] = hashlib.blake2b(Path(config.weights).read_bytes()).hexdigest()
    return json_hash([FORMAT, settings], 4, sort_keys=True)


def _train(
    stream: Stream, index: Any, config: Config, device: torch.device, progress: Progress | None
) -> tuple[models.Model, dict[str, float]]:
    model = _model(stream, config).to(device)
    x, y = stream.source.read(index), torch.from_numpy(stream.source.label[index].astype(np.int64))
    if scaled := scaled_columns(stream.source):  # as a learner reads the preparation part
        scaler = OnlineScaler(x.shape[1], scaled)
        scaler.update(x)
        x = scaler(x)
    mean, std = (torch.tensor(v, device=device) for v in (config.mean, config.std))
    model.head.see(y.to(device))
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(
        trained, lr=config.lr, momentum=config.momentum, weight_decay=config.weight_decay
    )
    drawn = torch.Generator().manual_seed(config.seed)
    views = torch.Generator(device).manual_seed(config.seed)
    size = min(config.batch, len(index))
    each = len(index) // size  # batches per epoch, all full: batch norm cannot train on one sample
    total = config.epochs * each

    def scores(rows: Tensor, training: bool) -> Tensor:
        inputs = torch.from_numpy(x[rows.numpy()]).to(device)
        if training:
            inputs = augment(inputs, config.augment, views)
        logits: Tensor = model.head(embed(model, models.to_float(inputs, mean, std)))
        return logits

    for step in range(total):
        model.train(config.train == "all")  # in evaluation mode if it is not trained
        if config.embedding:
            model.get_submodule("embedding").train()
        if step % each == 0:
            order = torch.randperm(len(index), generator=drawn)
        rows = order[step % each * size :][:size]
        for group in optimizer.param_groups:
            group["lr"] = config.lr * (1 - step / total)
        loss = F.cross_entropy(scores(rows, True), y[rows].to(device))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if progress is not None:
            progress(step + 1, total)
    model.eval()
    right = torch.zeros((), dtype=torch.int64, device=device)
    with torch.no_grad():
        for start in range(0, len(index), 512):
            rows = torch.arange(start, min(start + 512, len(index)))
            right += (scores(rows, False).argmax(1) == y[rows].to(device)).sum()
    return model, {"training_accuracy": float(right) / len(index)}


def _model(stream: Stream, config: Config) -> models.Model:
    model = models.build(config.model, stream.spec.input_shape, stream.spec.classes, config.seed)
    if config.weights:
        models.load_weights(model, config.weights, mean=config.mean, std=config.std)
    if config.train == "embedding":
        if config.embedding == 0:
            raise StreamgaugeError("There is no embedding to train: set embedding above 0.")
        model.requires_grad_(False)
    if config.embedding:
        model.fc = models.build("linear", (config.embedding,), stream.spec.classes, config.seed).fc
        add_embedding(model, config.embedding, config.seed)
    return model
