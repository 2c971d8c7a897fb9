"""`streamgauge compare` says which of two learners is better; `power`, what it takes to tell."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamgauge.cli import options as shared
from streamgauge.errors import StreamgaugeError
from streamgauge.settings import RUNS

if TYPE_CHECKING:
    from streamgauge.record import Run
    from streamgauge.report.planning import Plan
    from streamgauge.report.scores import RunComparison

Metric = Annotated[
    str | None,
    typer.Option(
        metavar="METRIC",
        help="Metric to compare by [the largest shift, or average, retained or online accuracy].",
    ),
]
Power = Annotated[
    float, typer.Option(metavar="SHARE", help="Probability with which a true difference is found.")
]
RunsFolder = Annotated[Path, typer.Option(help="Folder in which learners are looked up by name.")]
StreamName = Annotated[
    str | None, typer.Option(metavar="NAME", help="Stream, if the learners have runs on several.")
]
MOST_SEEDS_SHOWN = 20


def compare(
    a: Annotated[
        str,
        typer.Argument(
            metavar="A",
            help="Run folder, folder with the runs of one learner, or name of a learner.",
        ),
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="The same for the other learner.")],
    metric: Metric = None,
    runs: RunsFolder = Path(RUNS),
    stream: StreamName = None,
    difference: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Smallest difference that matters; 0.01 is one point [the measured difference, "
            "if that is not settled].",
        ),
    ] = None,
    power: Power = 0.8,
    as_json: shared.AsJson = False,
) -> None:
    """Say which of two learners is better, by how much, how surely, and what would settle that.

    Runs with the same seed on the same samples are paired; accuracies along the stream also over
    ten equal stretches, so that a single run of each can be compared (docs/report.md).

    Examples:

        streamgauge compare er finetune --runs runs/

        streamgauge compare runs/albums-er-s0-1a2b3c4d runs/albums-mir-s0-5e6f7a8b

        streamgauge compare er mir --metric retained_accuracy --difference 0.01
    """
    from streamgauge.report.scores import compare_runs

    comparison = compare_runs(
        _runs_of(a, runs, stream), _runs_of(b, runs, stream), metric, difference, power
    )
    if as_json:
        shared.print_json({**vars(comparison), "plan": comparison.plan and _plain(comparison.plan)})
        return
    print(_comparison_text(comparison, measured=difference is None))


def _runs_of(text: str, folder: Path, stream: str | None) -> list[Run]:
    """The runs at a path, or those of the learner of this name."""
    from streamgauge.errors import nearest
    from streamgauge.record import find_runs
    from streamgauge.report.scores import runs_of_learner

    by_name = not Path(text).exists()
    chosen = runs_of_learner(text, folder) if by_name else find_runs(Path(text))
    streams = sorted({run.stream["name"] for run in chosen})
    if stream is not None:
        chosen = [run for run in chosen if run.stream["name"] == stream]
        if not chosen:
            raise StreamgaugeError(f"{text} has no run on '{stream}'; {nearest(stream, streams)}")
    elif len(streams) > 1:
        raise StreamgaugeError(
            f"{text} has runs on {', '.join(streams)}: choose one with --stream NAME."
        )
    return chosen


def _comparison_text(comparison: RunComparison, measured: bool) -> str:
    from streamgauge.report.planning import unit_of
    from streamgauge.report.terminal import folding, right, text_table

    show = unit_of(comparison.metric)

    def cell(value: float) -> str:
        return show(value).removesuffix(" points")

    rows = [
        [f"seed {seed}", cell(of_a), cell(of_b), cell(of_a - of_b)]
        for seed, of_a, of_b in comparison.each[:MOST_SEEDS_SHOWN]
    ]
    if len(comparison.each) > MOST_SEEDS_SHOWN:
        rows.append([f"... and {len(comparison.each) - MOST_SEEDS_SHOWN} more", "", "", ""])
    if len(comparison.each) > 1:
        rows.append(
            ["mean", cell(comparison.mean_a), cell(comparison.mean_b), cell(comparison.difference)]
        )
    head = [
        folding(comparison.metric),
        right(comparison.a),
        right(comparison.b),
        right("difference"),
    ]
    parts = [comparison.sentence, "", text_table(head, rows)]
    if comparison.plan is not None:
        parts += ["", comparison.plan.sentence]
        if measured and comparison.plan.difference:
            parts.append(
                "The true difference may be smaller than the measured one, and then takes more:"
                " --difference plans for the smallest that matters."
            )
    return "\n".join(parts)


def power(
    baseline: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="BASELINE",
            help="Runs of one learner on one stream with different seeds: folders, or the name of"
            " the learner.",
        ),
    ] = None,
    difference: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Difference to find; 0.01 is one point [a table for several designs].",
        ),
    ] = None,
    metric: Metric = None,
    deviation: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Standard deviation of the difference over seeds."),
    ] = None,
    block_deviation: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Standard deviation of the difference over tenths of a stream of --samples.",
        ),
    ] = None,
    samples: Annotated[int, typer.Option(help="Samples of the stream.")] = 0,
    power: Power = 0.8,
    correlation: Annotated[
        float,
        typer.Option(metavar="SHARE", help="Correlation of both learners' scores, for a baseline."),
    ] = 0.0,
    runs: RunsFolder = Path(RUNS),
    stream: StreamName = None,
    as_json: shared.AsJson = False,
) -> None:
    """Say how many seeds or samples a comparison needs, before the first run.

    The plan follows from runs of a baseline, or from known deviations. `compare` plans from runs of
    both learners, which is more precise.

    Examples:

        streamgauge power --deviation 0.012 --difference 0.01

        streamgauge power er --difference 0.02

        streamgauge power --block-deviation 0.03 --samples 20000 --difference 0.01
    """
    from streamgauge.report.planning import plan_power

    chosen = [run for text in baseline or () for run in _runs_of(text, runs, stream)]
    plan = plan_power(
        chosen or None,
        difference=difference,
        metric=metric,
        deviation=deviation,
        block_deviation=block_deviation,
        samples=samples,
        power=power,
        correlation=correlation,
    )
    if as_json:
        shared.print_json(_plain(plan))
        return
    print(_power_text(plan))


def _power_text(plan: Plan) -> str:
    from streamgauge.report.planning import points
    from streamgauge.report.terminal import right, text_table

    with_samples = any(samples for _, samples, _ in plan.smallest)
    head = [right("seeds"), *([right("samples")] if with_samples else [])]
    head.append(right(f"found in {100 * plan.power:g} % of cases"))
    rows = [
        [str(seeds), *([f"{samples:,}"] if with_samples else []), points(smallest)]
        for seeds, samples, smallest in plan.smallest
    ]
    table = f"{text_table(head, rows)}\n\n" if rows else ""
    return f"{table}{plan.sentence}"


def _plain(plan: Plan) -> dict[str, Any]:
    designs = [
        {"seeds": seeds, "samples": samples, "smallest_difference": smallest}
        for seeds, samples, smallest in plan.smallest
    ]
    return {**vars(plan), "smallest": designs}
