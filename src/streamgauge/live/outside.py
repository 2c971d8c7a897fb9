"""`serve`: a stream from outside, answered and trained on as it comes."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, cast

import numpy as np

from streamgauge import catalogue
from streamgauge.catalogue import Recipe
from streamgauge.errors import StreamgaugeError
from streamgauge.files import write_json
from streamgauge.live.bench import NOTHING, Setup, gate_for, memories, room, warm_up
from streamgauge.live.desk import Desk
from streamgauge.live.door import Door, Lines, largest_message, refuse_far
from streamgauge.live.journal import Journal
from streamgauge.live.player import LONGEST_WAIT, WallClock
from streamgauge.live.service import Limits, Service
from streamgauge.live.snapshots import Snapshots
from streamgauge.live.spool import Spool, SpoolSource
from streamgauge.live.stored import FACTS, on_signals, own_identity, torch_threads
from streamgauge.live.trainer import Kind, Worker, hire
from streamgauge.models.features import device_named
from streamgauge.record import OPTIONAL, Run, RunWriter, environment
from streamgauge.record.writer import read_header
from streamgauge.running.protocol import Protocol
from streamgauge.settings import RUNS, as_plain
from streamgauge.streams import ArraySource, Gate, Spec

if TYPE_CHECKING:
    import torch

    from streamgauge.learners.base import Learner

SLACK = 2048  # places in the spool beyond what is held and waited for


def serve(
    spec: Spec,
    learner: Recipe | str | type,
    *,
    port: int | None = None,
    host: str = "127.0.0.1",
    anywhere: bool = False,
    lines: BinaryIO | None = None,
    answers: BinaryIO | None = None,
    batch: int = 10,
    inputs: Literal["float32", "uint8"] = "float32",
    class_names: Sequence[str] | None = None,
    users: bool = False,
    shifts: tuple[int, ...] = (),
    snapshots: int = 4,
    waiting: int = 1000,
    spool: int | None = None,
    connections: int = 32,
    trainer: Kind = "process",
    hang: float | None = None,
    name: str = "live",
    seed: int = 0,
    out: str | Path = RUNS,
    device: str = "auto",
    threads: int = 1,
    checkpoint: float = 30.0,
    stop: threading.Event | None = None,
    ready: Callable[[int], None] | None = None,
    said: Callable[[str], None] | None = None,
) -> Run:
    """Answer samples that come by HTTP (with a `port`; 0 is any that is free) or as JSON lines,
    train on their labels, and return the run when the input ends, on a signal, or on `stop`.

    Inputs have the shape of `spec` and are `float32` or bytes (`uint8`). `batch` labels make a step
    and a batch to train on. At most `waiting` samples are kept without a label. The `spool` has so
    many places in all; by default as many as the learner's memory, those that wait, and some more.
    A trainer that works on one batch for more than `hang` seconds is ended and started again.
    With `users` every sample must name its user. `ready` is told the port. The same call takes an
    earlier run up again, with all that it had acknowledged. `said` goes to the error stream unless
    given, since the output may be what a client reads.
    """
    said = said or _say_aside
    refuse_far(host, anywhere)
    recipe = learner if isinstance(learner, Recipe) else catalogue.learner(learner)
    _check(spec, recipe, batch, waiting, connections, class_names)
    place = device_named(device)
    asked = {
        "batch": batch, "inputs": inputs, "users": users, "trainer": trainer, "threads": threads,
        "snapshots": snapshots if shifts else 0, "waiting": waiting,
    }  # fmt: skip
    with torch_threads(threads):
        header = _header(name, spec, recipe, shifts, seed, place, class_names, asked)
    path = Path(out) / f"{name}-{recipe.name}-s{seed}-{header['id'][:8]}"
    absent = frozenset(OPTIONAL - {"time", *(["user"] if users else [])})
    stop = stop or threading.Event()
    clock = WallClock()
    with (
        torch_threads(threads),
        closing(RunWriter(path, header, absent)) as recorder,
        closing(Journal(recorder, absent, checkpoint)) as journal,
    ):
        trial = _build(recipe, spec, inputs, seed, place)
        slots, slack = _slots(trial, recipe, spec, waiting, spool)
        store = Spool(path / "spool", spec, inputs, slots, len(shifts))
        said(f"The spool has {slots} places and takes up to {store.nbytes / 1e6:.0f} MB on disk.")
        setup = Setup(spec, SpoolSource(store), batch, seed, str(place), threads)
        state = recorder.state
        worker = hire(
            trainer,
            recipe,
            setup,
            clock.wake,
            said,
            None if state is None else state["learner"],
            hang,
        )
        with closing(worker):
            worker.wait_until_ready()
            warm_up(recipe, setup)
            gate = gate_for(SpoolSource(store, follow=True), NOTHING, place)
            service = Service(
                spec,
                recipe.build(spec, gate, seed, place),
                lambda: recipe.build(spec, gate, seed, place),
                Desk(worker),
                journal,
                store,
                place,
                batch=batch,
                snapshots=Snapshots(shifts, snapshots),
                limits=Limits(waiting, max(batch, slack // 4)),
                class_names=class_names,
                users=users,
                said=said,
            )
            service.held = worker.held
            service.restore(state, *_in_the_log(path))
            if service.arrivals:
                said(
                    f"{path} goes on: {service.arrivals} samples have come, {service.labels} of "
                    f"them have their label."
                )
            began = time.perf_counter()
            why: list[str] = []

            def ended(signal: str) -> None:  # nothing may be printed inside of a signal
                why.append(signal)
                stop.set()

            with on_signals(ended):
                try:
                    if port is None:
                        _lines(service, spec, lines, answers, clock, stop)
                    else:
                        _http(service, spec, (host, port), connections, clock, stop, ready, said)
                finally:
                    service.stop()
        if why:
            said(f"The service was {why[0]}; all that was acknowledged is kept in {path}.")
        seconds = time.perf_counter() - began
        write_json(path / FACTS, {**asked, **_facts(path, service, worker, seconds)})
        _count_in_header(path, service)
    return Run(path)


def _lines(
    service: Service,
    spec: Spec,
    lines: BinaryIO | None,
    answers: BinaryIO | None,
    clock: WallClock,
    stop: threading.Event,
) -> None:
    most = largest_message(int(np.prod(spec.input_shape, dtype=np.int64)))
    # A reader of its own: the interpreter cannot end while a thread waits in its standard input.
    lines = lines or os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    reader = Lines(service, lines, answers or sys.stdout.buffer, most)
    threading.Thread(target=reader.run, name="streamgauge-lines", daemon=True).start()
    _look_after(service, clock, lambda: stop.is_set() or reader.ended.is_set())
    if reader.broken is not None:
        raise reader.broken


def _http(
    service: Service,
    spec: Spec,
    address: tuple[str, int],
    connections: int,
    clock: WallClock,
    stop: threading.Event,
    ready: Callable[[int], None] | None,
    said: Callable[[str], None],
) -> None:
    most = largest_message(int(np.prod(spec.input_shape, dtype=np.int64)))
    with Door(service, *address, connections, most) as door:
        threading.Thread(
            target=door.serve_forever, args=(0.1,), name="streamgauge-http", daemon=True
        ).start()
        said(f"Serving on http://{address[0]}:{door.port} (/predict, /label, /status).")
        if ready is not None:
            ready(door.port)
        try:
            _look_after(service, clock, lambda: stop.is_set() or door.broken is not None)
        finally:
            # Nothing more is taken; what was taken is safe before anyone hangs up.
            service.stop()
            door.shutdown()
        if door.broken is not None:
            raise door.broken


def _look_after(service: Service, clock: WallClock, ended: Callable[[], bool]) -> None:
    while not ended():
        service.turn()
        clock.wait(clock.now() + (0.001 if service.has_put_off else LONGEST_WAIT))


def _check(
    spec: Spec,
    recipe: Recipe,
    batch: int,
    waiting: int,
    connections: int,
    class_names: Sequence[str] | None,
) -> None:
    for what, value in (("batch", batch), ("waiting", waiting), ("connections", connections)):
        if value < 1:
            raise StreamgaugeError(f"{what} must be at least 1, not {value}.")
    if spec.classes < 1:
        raise StreamgaugeError("Say how many classes there are.")
    if class_names is not None and len(class_names) != spec.classes:
        raise StreamgaugeError(f"There are {spec.classes} classes but {len(class_names)} names.")
    if recipe.needs:
        raise StreamgaugeError(
            f"The learner {recipe.name} must be told {' and '.join(recipe.needs)}, which nobody "
            f"knows of a stream from outside: choose another."
        )


def _build(recipe: Recipe, spec: Spec, inputs: str, seed: int, device: torch.device) -> Learner:
    """A learner that only shows what it has."""
    blank = np.zeros((1, *spec.input_shape), inputs)
    source = ArraySource(blank, np.zeros(1, np.int64), classes=spec.classes)
    return recipe.build(spec, Gate(source, np.arange(1), device), seed, device)


def _slots(
    learner: Learner, recipe: Recipe, spec: Spec, waiting: int, asked: int | None
) -> tuple[int, int]:
    """Places of the spool, and how many of them nothing holds for long."""
    needed = waiting
    for memory in memories(learner):
        most = room(memory, spec)
        if most is None:
            raise StreamgaugeError(
                f"The learner {recipe.name} keeps every sample, and the spool is bounded: choose a "
                f"memory policy with a capacity."
            )
        needed += most
    slots = needed + SLACK if asked is None else asked
    least = needed + 64
    if slots < least:
        raise StreamgaugeError(
            f"A spool of {slots} samples is too small: {needed - waiting} may be in the learner's "
            f"memory and {waiting} wait for a label, so give it {least} or more."
        )
    return slots, slots - needed


def _in_the_log(path: Path) -> tuple[int, int]:
    """How many labels are in the log, and how many answers were right."""
    table = Run(path).predictions
    live = table["shift"] == 0
    right = table["label"][live] == table["prediction"][live]
    return int(live.sum()), int(right.sum())


def _header(
    name: str,
    spec: Spec,
    recipe: Recipe,
    shifts: tuple[int, ...],
    seed: int,
    device: torch.device,
    class_names: Sequence[str] | None,
    asked: dict[str, Any],
) -> dict[str, Any]:
    protocol = as_plain(Protocol(shifts=shifts, evaluate="never"))
    settings = {k: asked[k] for k in ("batch", "inputs", "users")}
    config = {
        "stream": {"origin": None, "name": name, "settings": settings},
        "learner": recipe.describe(),
        "protocol": {**protocol, "live": f"from outside, {asked['trainer']}"},
        "live": asked,
        "seed": seed,
        "device": device.type,
    }
    learner = {k: v for k, v in recipe.describe().items() if k in ("settings", "needs", "code")}
    run_id = own_identity(name, spec, learner, protocol, asked, seed, device.type, class_names)
    return {
        "id": run_id,
        "config": config,
        "stream": {
            "name": name,
            "settings": settings,
            "samples": 0,
            "steps": 0,
            "step_size": asked["batch"],
            "albums": False,
            "tasks": 0,
            "input_shape": list(spec.input_shape),
            "classes": spec.classes,
            "class_names": None if class_names is None else list(class_names),
            "class_task": None,
            "data_hash": run_id,
            "order_hash": run_id,
        },
        "environment": environment(str(device)),
    }


def _count_in_header(path: Path, service: Service) -> None:
    """How long the stream was is known at its end only."""
    header = read_header(path)
    header["stream"]["samples"] = service.labels
    header["stream"]["steps"] = -(-service.labels // service.batch)
    write_json(path / "run.json", header)


def _facts(path: Path, service: Service, worker: Worker, seconds: float) -> dict[str, Any]:
    try:
        before = json.loads((path / FACTS).read_text())
    except (OSError, ValueError):
        before = {}
    status = service.status()
    return {
        "duration": before.get("duration", 0.0) + seconds,
        "arrivals": service.arrivals,
        "expired": service.expired,
        "offered": service.desk.offered,
        "skipped": service.desk.offered - service.desk.finished,
        "lost": service.desk.lost,
        "restarts": before.get("restarts", []) + worker.restarts,
        "refused": status["refused"],
        "near_future_left_out": service.near_future_left_out,
        "stopped": "",
    }


def _say_aside(sentence: str) -> None:
    print(sentence, file=cast(Any, sys.stderr), flush=True)
