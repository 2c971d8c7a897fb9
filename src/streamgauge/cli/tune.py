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
        int | None,
        typer.Option(min=1, help="Trials executed concurrently per GPU [as many as fit]."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Options of `tuning.study.Ask`, by its names."""

    stream: StreamName
    learner: Annotated[
        str,
        typer.Option(
            help="Learner: NAME, NAME@PRESET or FILE.py:Class, or ALIAS= and one of these."
        ),
    ]
    search: Annotated[
        list[str] | None,
        typer.Option(
            help="Setting to search: LEARNER.X=log:LOW:HIGH, LEARNER.X=LOW:HIGH or "
            "LEARNER.X=a,b,c; may be given several times [that of the preset's paper]."
        ),
    ] = None
    like: Annotated[
        str | None, typer.Option(help="Protocol and search of a paper: survey or realtime.")
    ] = None
    prefix: Annotated[
        str | None,
        typer.Option(
            help="Part of the stream that trials see: '4 tasks', '5 %', '5 % of time' or "
            "preparation."
        ),
    ] = None
    objective: Annotated[
        str | None,
        typer.Option(help="Metric to maximise: held_out, online, or the name of an accuracy."),
    ] = None
    trials: Annotated[
        int | None, typer.Option(help="Number of trials of the whole study [50].")
    ] = None
    sampler: Annotated[
        str | None, typer.Option(help="Sampler of settings: tpe, random or grid [tpe].")
    ] = None
    prune: Annotated[
        str | None,
        typer.Option(help="Rule for ending trials early: median, halving or none [median]."),
    ] = None
    seed: Annotated[int, typer.Option(min=0, help="Seed of the sampler.")] = 0


@expand_options
def tune(
    context: typer.Context,
    search: SearchOptions,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the study [studies/STREAM-LEARNER].")
    ] = None,
    storage: Annotated[
        str | None, typer.Option(help="URL of a storage for the study, such as postgresql://...")
    ] = None,
    study: Annotated[
        str | None, typer.Option(help="Name of the study in the storage [name of the folder].")
    ] = None,
    *,
    options: TrialOptions,
    as_json: AsJson = False,
) -> None:
    """Choose settings of a learner on the beginning of a stream, and report the cost of the search.

    Trials see the given prefix of the stream and nothing later. The same command continues an
    interrupted search. Settings that are not searched are given by their dotted names, as for
    `run`. Without --search, the search of the preset's paper is used.

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
