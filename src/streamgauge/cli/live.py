"""`streamgauge live`: a learner in real time."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from streamgauge.cli.options import Device, Out, learner_settings, settings_of
from streamgauge.errors import StreamgaugeError
from streamgauge.settings import RUNS, coerce


def live(
    context: typer.Context,
    learner: Annotated[str, typer.Option(help="NAME or FILE.py:Class.")],
    stream: Annotated[str | None, typer.Option(help="Stream to reveal by the wall clock.")] = None,
    rate: Annotated[float | None, typer.Option(help="Samples per second.")] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Stop after so long; --find-rate after 120 at the latest.")
    ] = None,
    find_rate: Annotated[
        bool, typer.Option("--find-rate", help="Find the highest rate it keeps up with.")
    ] = False,
    port: Annotated[
        int | None, typer.Option(help="Serve HTTP on this loopback port; 0 = any.")
    ] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Serve JSON lines on stdin.")] = False,
    shape: Annotated[str | None, typer.Option(help="Of one served input, such as 3,32,32.")] = None,
    classes: Annotated[
        int | None, typer.Option(help="Classes that served labels may have.")
    ] = None,
    inputs: Annotated[
        str, typer.Option(help="Of a served stream: float32 as they are, or uint8 for pixels.")
    ] = "float32",
    scale: Annotated[
        str, typer.Option(help="Of served vectors: none, or online to standardise them.")
    ] = "none",
    batch: Annotated[int, typer.Option(help="Served labels that make a step.")] = 10,
    shifts: Annotated[str, typer.Option(help="Near-future shifts in samples, such as 100.")] = "",
    snapshots: Annotated[
        int, typer.Option(help="Versions kept at a time to answer for --shifts.")
    ] = 4,
    trainer: Annotated[str, typer.Option(help="process or thread.")] = "process",
    hang: Annotated[
        float | None, typer.Option(help="Seconds on one batch after which a trainer is restarted.")
    ] = None,
    out: Out = Path(RUNS),
    device: Device = "auto",
) -> None:
    """Gauge a learner in real time: answers are given while training runs in parallel.

    Settings are --stream.X and --LEARNER.X. A stream of one's own service comes over HTTP on
    loopback or as JSON lines; docs/live.md shows the messages.

    Examples:

        streamgauge live --stream albums --learner er --rate 500 --seconds 20

        streamgauge live --stream albums --learner er --find-rate

        streamgauge live --learner er --port 8080 --shape 3,32,32 --classes 10 --inputs uint8
    """
    from streamgauge import catalogue
    from streamgauge.live import find_rate as find
    from streamgauge.live import live as run_live
    from streamgauge.live import rates_text, serve, summary_text
    from streamgauge.streams import Spec

    name = catalogue.learner(learner).name
    given = learner_settings(context, [learner], stream)
    settings = settings_of(context, "stream", name, given=given)
    recipe = catalogue.learner(learner, **settings[name])
    shift_samples = coerce(shifts, tuple[int, ...], "--shifts")
    trainer_kind = coerce(trainer, Literal["process", "thread"], "--trainer")
    options: dict[str, Any] = {"shifts": shift_samples, "snapshots": snapshots, "hang": hang}
    options |= {"trainer": trainer_kind, "out": out, "device": device}
    if port is not None and lines:
        raise StreamgaugeError("Serve either over HTTP (--port) or as lines on stdin (--lines).")
    if port is not None or lines:
        if stream is not None:
            raise StreamgaugeError("Name a stream (--stream) or serve one (--port, --lines).")
        if shape is None or classes is None:
            raise StreamgaugeError("To serve, say what comes: --shape 3,32,32 --classes 10.")
        spec = Spec(coerce(shape, tuple[int, ...], "--shape"), classes)
        kind = coerce(inputs, Literal["float32", "uint8"], "--inputs")
        how = coerce(scale, Literal["none", "online"], "--scale")
        run = serve(spec, recipe, port=port, batch=batch, inputs=kind, scale=how, **options)
        print(summary_text(run), file=sys.stderr if lines else sys.stdout)
        return
    if stream is None:
        raise StreamgaugeError("Name a stream (--stream NAME), or serve one (--port, --lines).")
    built = catalogue.stream(stream, **settings["stream"])
    if find_rate:
        if rate is not None or shift_samples:
            raise StreamgaugeError("--find-rate tries rates of its own: no --rate, no --shifts.")
        limit = 120.0 if seconds is None else seconds
        print(rates_text(find(built, recipe, trainer=trainer_kind, device=device, limit=limit)))
        return
    if rate is None:
        raise StreamgaugeError("Give a rate (--rate 500), or ask for one (--find-rate).")
    run = run_live(built, recipe, rate, seconds=seconds, origin=stream, **options)
    print(summary_text(run))
