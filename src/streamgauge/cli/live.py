"""`streamgauge live`: a learner in real time."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from streamgauge.cli.options import (
    Device,
    Out,
    TrustPickle,
    learner_settings,
    settings_of,
    token_in,
)
from streamgauge.errors import StreamgaugeError
from streamgauge.settings import RUNS, coerce


def live(
    context: typer.Context,
    learner: Annotated[str, typer.Option(help="Learner: a name or FILE.py:Class.")],
    stream: Annotated[
        str | None,
        typer.Option(help="Stream to reveal by the wall clock: a name, your data or FILE.py."),
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Samples per second.")] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            help="Stop after this time; --find-rate stops after 120 seconds at the latest."
        ),
    ] = None,
    find_rate: Annotated[
        bool,
        typer.Option("--find-rate", help="Find the highest rate at which the learner keeps up."),
    ] = False,
    port: Annotated[
        int | None, typer.Option(help="Serve HTTP on this loopback port; 0: any free port.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to serve HTTP on.")] = "127.0.0.1",
    anywhere: Annotated[
        bool,
        typer.Option(
            "--anywhere", help="Accept requests from other machines; needs --host and --token-file."
        ),
    ] = False,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the token that every HTTP request must carry."),
    ] = None,
    max_rate: Annotated[
        float | None,
        typer.Option(
            help="Largest number of HTTP requests answered per second [all; 1000 with --anywhere]."
        ),
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="Serve JSON lines on stdin and stdout.")
    ] = False,
    shape: Annotated[
        str | None, typer.Option(help="Shape of one served input, such as 3,32,32.")
    ] = None,
    classes: Annotated[int | None, typer.Option(help="Number of classes of served labels.")] = None,
    inputs: Annotated[
        str, typer.Option(help="Type of served inputs: float32 (unchanged) or uint8 (pixels).")
    ] = "float32",
    scale: Annotated[
        str, typer.Option(help="Scaling of served vectors: none, or online (standardised).")
    ] = "none",
    batch: Annotated[int, typer.Option(help="Number of served labels per training step.")] = 10,
    shifts: Annotated[
        str, typer.Option(help="Near-future shifts in samples, such as 100 [none].")
    ] = "",
    snapshots: Annotated[
        int, typer.Option(help="Number of model versions kept in memory to answer for --shifts.")
    ] = 4,
    trainer: Annotated[
        str, typer.Option(help="Where training runs: in a process or in a thread.")
    ] = "process",
    hang: Annotated[
        float | None, typer.Option(help="Restart the trainer after this time on one batch.")
    ] = None,
    out: Out = Path(RUNS),
    device: Device = "auto",
    trust_pickle: TrustPickle = False,
) -> None:
    """Measure a learner in real time: answers while training runs in parallel.

    Settings are --stream.X and --LEARNER.X. Without --stream, your own service sends samples and
    labels over HTTP on loopback or as JSON lines; docs/live.md shows the messages.

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
        access: dict[str, Any] = {"host": host, "anywhere": anywhere, "max_rate": max_rate,
                  "token": token_in(token_file)}  # fmt: skip
        run = serve(spec, recipe, port=port, **access, batch=batch, inputs=kind, scale=how,
                    trust_pickle=trust_pickle, **options)  # fmt: skip
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
