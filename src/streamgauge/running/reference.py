"""The ceiling: a model trained offline on the whole stream, shuffled, and then evaluated.

It is no learner: it sees every sample before it answers any, several times and in any order. So it
does not run in the loop, and has no online accuracy.

    python -m streamgauge.running.reference blobs epochs=5 lr=0.1 stream.classes=20
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from streamgauge import catalogue
from streamgauge.errors import StreamgaugeError, nearest, packages_for

with packages_for("Training offline"):
    import torch

from streamgauge.learners.adaptive import er_cosine
from streamgauge.learners.base import Batch
from streamgauge.learners.replay import er
from streamgauge.learners.scaled import build_scaled
from streamgauge.models.features import device_named
from streamgauge.settings import configure
from streamgauge.streams import Gate, Stream
from streamgauge.streams.gate import fetch

BLOCK = 512  # held-out samples answered at once


@dataclass(frozen=True)
class Config(er.Config):
    recall: int = 0
    memory: int = 1
    epochs: int = 1
    batch: int = 10
    schedule: Literal["constant", "cosine"] = "constant"  # of the learning rate, over all epochs


class Reference(NamedTuple):
    """`accuracy` and `answers` have one entry per held-out split."""

    accuracy: dict[str, float]
    answers: dict[str, NDArray[np.int64]]  # by position in the split
    loss: list[float]  # mean training loss of each epoch
    steps: int  # gradient steps taken


def offline(
    stream: Stream, config: Config | None = None, seed: int = 0, device: str = "auto"
) -> Reference:
    """Train on all samples of a stream in `epochs` shuffled passes and answer what it holds out.
    The supervised reference of CLOC (Cai et al. 2021, Figure 8: 1 and 5 epochs). Network, optimiser
    and augmentation are those of ER with the same settings, so that the two can be compared."""
    config = config or Config()
    if not stream.splits:
        raise StreamgaugeError(
            "The stream holds nothing out to evaluate on: give it a share, such as held_out=0.1."
        )
    if config.epochs < 1 or config.batch < 1:
        raise StreamgaugeError("epochs and batch must be 1 or more.")
    torch_device = device_named(device)
    gate = Gate(stream.source, stream.preparation, torch_device)
    gate.reveal(stream.order)
    gate.label_due(stream.order)
    shared = {f.name: getattr(config, f.name) for f in fields(er.Config)}

    def make(gate: Gate) -> er.ER:
        given = (stream.spec, gate, seed, torch_device)
        if config.schedule == "constant":
            return er.ER(*given, er.Config(**shared))
        learner = er_cosine.ERCosine(*given, er_cosine.Config(**shared))
        learner.tell(horizon=config.epochs * -(-stream.samples // config.batch))
        return learner

    learner = build_scaled(make, gate)
    rng = np.random.default_rng(seed)
    losses, steps = [], 0
    for _ in range(config.epochs):
        batches = _epoch(stream, gate, config, rng)
        epoch_losses = [learner.learn(batch, None)["loss"] for batch in batches]
        losses.append(float(torch.stack(epoch_losses).mean()))
        steps += len(epoch_losses) * config.passes
    answers = {name: _answers(learner, stream, split.index) for name, split in
               stream.splits.items()}  # fmt: skip
    accuracy = {name: float(np.mean(answer == stream.source.label[stream.splits[name].index]))
                for name, answer in answers.items()}  # fmt: skip
    return Reference(accuracy, answers, losses, steps)


def _epoch(stream: Stream, gate: Gate, config: Config, rng: np.random.Generator) -> Iterator[Batch]:
    order = rng.permutation(stream.order).astype(np.int64)
    for start in range(0, len(order), config.batch):
        index = order[start : start + config.batch]
        yield Batch(gate.read(index), gate.label(index), index)


def _answers(learner: er.ER, stream: Stream, index: NDArray[Any]) -> NDArray[np.int64]:
    blocks = (index[start : start + BLOCK] for start in range(0, len(index), BLOCK))
    scores = [learner.predict(fetch(stream.source, block, learner.device)) for block in blocks]
    answers: NDArray[np.int64] = torch.cat(scores).argmax(1).cpu().numpy()
    return answers


def main(
    stream: Annotated[str, typer.Argument(help="Name of a stream, or FILE.py.")],
    settings: Annotated[list[str] | None, typer.Argument(help="NAME=VALUE; stream.NAME=VALUE.")]
    = None,
    preset: Annotated[str | None, typer.Option(help="A paper's settings, such as cloc.")] = None,
    seed: Annotated[int, typer.Option(help="Of weights, shuffling and augmentation.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:  # fmt: skip
    """Train offline on a whole stream and print the accuracy on what it holds out, as JSON."""
    known = catalogue.presets().get("offline", {})
    if preset is not None and preset not in known:
        raise StreamgaugeError(f"There is no preset 'offline@{preset}'; {nearest(preset, known)}")
    offline_settings: dict[str, Any] = dict(known[preset]) if preset is not None else {}
    stream_settings: dict[str, Any] = {}
    for setting in settings or []:
        name, equals, value = setting.partition("=")
        if not equals:
            raise StreamgaugeError(f"'{setting}' is no setting: write NAME=VALUE.")
        group = stream_settings if name.startswith("stream.") else offline_settings
        group[name.removeprefix("stream.")] = value
    data = catalogue.stream(stream, **stream_settings)
    result = offline(data, configure(Config, offline_settings, "offline"), seed, device)
    print(json.dumps({"accuracy": result.accuracy, "loss": result.loss, "steps": result.steps}))


if __name__ == "__main__":
    try:
        typer.run(main)
    except StreamgaugeError as error:
        raise SystemExit(f"streamgauge: {error}") from None
