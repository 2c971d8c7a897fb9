"""`streamgauge tune`: a learner's settings, chosen on the beginning of a stream."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from streamgauge.cli.options import (
    AsJson,
    ExecutionOptions,
    StreamName,
    expand_options,
    learner_settings,
)
from streamgauge.errors import StreamgaugeError


@dataclass(frozen=True, kw_only=True)
class TrialOptions(ExecutionOptions):
    side_by_side: Annotated[
        int | None, typer.Option(min=1, help="Trials at once on a GPU [as many as fit].")
    ] = None


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Options of `tuning.study.Ask`, by its names."""

    stream: StreamName
    learner: Annotated[str, typer.Option(help="[ALIAS=]NAME[@PRESET] or FILE.py:Class.")]
    search: Annotated[
        list[str] | None,
        typer.Option(help="LEARNER.X=log:LOW:HIGH, =LOW:HIGH or =a,b,c; repeatable."),
    ] = None
    like: Annotated[
        str | None, typer.Option(help="A paper's protocol and search: survey or realtime.")
    ] = None
    prefix: Annotated[
        str | None,
        typer.Option(help="What trials see: '4 tasks', '5 %', '5 % of time' or preparation."),
    ] = None
    objective: Annotated[
        str | None, typer.Option(help="held_out, online, or another accuracy by its name.")
    ] = None
    trials: Annotated[int | None, typer.Option(help="Of the study in all [50].")] = None
    sampler: Annotated[str | None, typer.Option(help="tpe, random or grid [tpe].")] = None
    prune: Annotated[
        str | None, typer.Option(help="Give up trials early: median, halving or none [median].")
    ] = None
    seed: Annotated[int, typer.Option(min=0, help="Of what the sampler draws.")] = 0


@expand_options
def tune(
    context: typer.Context,
    search: SearchOptions,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the study [studies/STREAM-LEARNER].")
    ] = None,
    storage: Annotated[
        str | None, typer.Option(help="URL of another storage, such as postgresql://...")
    ] = None,
    study: Annotated[
        str | None, typer.Option(help="Its name in the storage [that of the folder].")
    ] = None,
    *,
    options: TrialOptions,
    as_json: AsJson = False,
) -> None:
    """Choose a learner's settings on the beginning of a stream, and say what that took.

    Trials see the given prefix of the stream and nothing after it. The same command goes on where
    it stopped. Settings that stay are given by their dotted names, as for `run`; with no --search,
    what the paper of the preset searched is taken.

    Examples:

        streamgauge tune --stream blobs --learner er --search er.lr=log:0.001:1 --trials 20

        streamgauge tune --stream split_cifar100 --learner er@survey-cifar100 --like survey

        streamgauge tune --stream realtime_cifar10 --learner mir@realtime-cifar10 --like realtime

        streamgauge tune --stream blobs --learner er --search er.lr=log:0.001:1 --on ray

        streamgauge run --tuned studies/blobs-er --seeds 5
    """
    from streamgauge.tuning.chosen import summary_text
    from streamgauge.tuning.study import Ask
    from streamgauge.tuning.study import tune as search_for

    def log(sentence: str) -> None:
        if not as_json:
            print(sentence, flush=True)

    settings = learner_settings(context, [search.learner], search.stream)
    intervals = {"search": tuple(search.search or ()), "settings": settings}
    ask = Ask(**vars(search) | intervals)
    execution = options.execution(log=log)
    summary = search_for(ask, out=out, storage=storage, study=study, execution=execution)
    if as_json:
        print(json.dumps(summary, indent=1))
    else:
        print(f"\n{summary_text(summary)}")
    if summary["choice"] is None:
        raise StreamgaugeError("There is nothing to choose: no trial gave a value.")
