"""`streamgauge demo` and `streamgauge realtime`: ready-made comparisons."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamgauge.cli.options import AsJson, Out, StreamName, no_settings, print_json
from streamgauge.settings import RUNS, coerce


def demo(
    context: typer.Context,
    out: Out = Path(RUNS, "demo"),
    seeds: Annotated[int, typer.Option(help="Runs of each learner.")] = 2,
) -> None:
    """Show in two minutes why online accuracy alone misleads.

    Five learners on a generated photo stream: a table, a sentence that says what the figures mean,
    and an HTML report. Nothing is downloaded.

    Example:

        streamgauge demo --out runs/demo
    """
    no_settings(context)
    from streamgauge.suites.demo import demo as run_demo

    run_demo(out, seeds)


def realtime(
    context: typer.Context,
    stream: StreamName = "albums",
    seeds: Annotated[int, typer.Option(help="Runs of each method.")] = 2,
    speeds: Annotated[str, typer.Option(help="Of fast, slow, faster, 2, ...")] = "fast,slow",
    methods: Annotated[str | None, typer.Option(help="Some of them, such as er,lwf,mir.")] = None,
    out: Out = Path(RUNS, "realtime"),
    as_json: AsJson = False,
) -> None:
    """Draw the real-time paper's pictures: its methods on a fast and on a slow stream.

    Each method is shown next to the ER with equal compute. What is complete already is not run
    again; any setting is given by its dotted name, as for `run`.

    Examples:

        streamgauge realtime

        streamgauge realtime --seeds 5 --speeds fast,faster,slow --out runs/realtime
    """
    from streamgauge.suites.realtime import realtime as run_realtime
    from streamgauge.suites.realtime import text

    pictures, path = run_realtime(
        out,
        stream=stream,
        seeds=seeds,
        speeds=coerce(speeds, tuple[str, ...], "--speeds"),
        methods=None if methods is None else coerce(methods, tuple[str, ...], "--methods"),
        settings=context.obj,
        quiet=as_json,
    )
    if as_json:
        print_json({"pictures": [picture.as_plain() for picture in pictures], "page": str(path)})
        return
    print(f"\n{text(pictures)}\n\nPictures: {path.resolve()}")
