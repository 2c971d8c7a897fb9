"""`serve`: answer samples that clients send, and train on their labels."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, cast

import numpy as np

from streamgauge import catalogue
from streamgauge.catalogue import Recipe
from streamgauge.errors import StreamgaugeError
from streamgauge.files import write_json
from streamgauge.live.dispatcher import Dispatcher
from streamgauge.live.http_server import HttpServer, JsonLines, largest_message, require_local_host
from streamgauge.live.journal import Journal
from streamgauge.live.local_trainer import (
    NO_ADDRESSES,
    Setup,
    gate_for,
    max_samples,
    memories,
    warm_up,
)
from streamgauge.live.player import MAX_WAIT, WallClock
from streamgauge.live.service import Limits, Service
from streamgauge.live.snapshots import Snapshots
from streamgauge.live.spool import Spool, SpoolSource
from streamgauge.live.stored_stream import FACTS, hash_identity, on_signals, torch_threads
from streamgauge.live.trainer import BackgroundTrainer, Kind, start_trainer
from streamgauge.models.features import device_named
from streamgauge.record import OPTIONAL, Run, RunWriter
from streamgauge.record.writer import read_header
from streamgauge.running.header import run_config, run_header
from streamgauge.running.protocol import Protocol
from streamgauge.settings import CHECKPOINT, RUNS, as_plain
from streamgauge.streams import ArraySource, Gate, Spec
from streamgauge.versions import renamed_parameter

if TYPE_CHECKING:
    import torch

    from streamgauge.learners.base import Learner
    from streamgauge.running.execution import Logger

SLACK = 2048  # slots in the spool beyond those for the memory and for samples without a label


@renamed_parameter("said", "log")
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
    scale: Literal["none", "online"] = "none",
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
    checkpoint: float = CHECKPOINT,
    stop: threading.Event | None = None,
    ready: Callable[[int], None] | None = None,
    log: Logger | None = None,
) -> Run:
    """Answer samples that arrive over HTTP (with a `port`; 0 is any free port) or as JSON lines,
    train on their labels, and return the run when the input ends, on a signal, or on `stop`.

    Inputs have the shape of `spec` and are `float32` or bytes (`uint8`). With `scale` online,
    vectors are standardised with statistics of the samples that were trained. `batch` labels are
    one step and one batch to train on. At most `waiting` samples are kept without a label. `spool`
    is the number of slots on disk; by default as many as the learner's memory needs, plus
    `waiting`, plus some more. A trainer that works on one batch for more than `hang` seconds is
    killed and restarted. With `users` every sample must have a user. `ready` is called with the
    port. The same call resumes an earlier run, with all messages that it had acknowledged. `log`
    gets messages; by default they go to stderr, since a client may read stdout.
    """
    log = log or _print_to_stderr
    require_local_host(host, anywhere)
    recipe = learner if isinstance(learner, Recipe) else catalogue.learner(learner)
    _check(spec, recipe, batch, waiting, connections, class_names, scale)
    torch_device = device_named(device)
    asked: dict[str, Any] = {
        "batch": batch, "inputs": inputs, "users": users, "trainer": trainer, "threads": threads,
        "snapshots": snapshots if shifts else 0, "waiting": waiting,
    }  # fmt: skip
    if scale == "online":
        asked["scale"] = scale
    with torch_threads(threads):
        header = _header(name, spec, recipe, shifts, seed, torch_device, class_names, asked)
    path = Path(out) / f"{name}-{recipe.name}-s{seed}-{header['id'][:8]}"
    absent = frozenset(OPTIONAL - {"time", *(["user"] if users else [])})
    stop = stop or threading.Event()
    clock = WallClock()
    with (
        torch_threads(threads),
        closing(RunWriter(path, header, absent)) as recorder,
        closing(Journal(recorder, absent, checkpoint)) as journal,
    ):
        trial = _build(recipe, spec, inputs, seed, torch_device)
        slots, slack = _slots(trial, recipe, spec, waiting, spool)
        scaled = spec.input_shape[0] if scale == "online" else 0
        store = Spool(path / "spool", spec, inputs, slots, len(shifts), scaled)
        log(f"The spool has {slots} slots and takes up to {store.nbytes / 1e6:.0f} MB on disk.")
        setup = Setup(spec, SpoolSource(store), batch, seed, str(torch_device), threads)
        state = recorder.state
        learnt = None if state is None else state["learner"]
        with start_trainer(trainer, recipe, setup, clock.wake, log, learnt, hang) as background:
            warm_up(recipe, setup)
            gate = gate_for(SpoolSource(store, follow=True), NO_ADDRESSES, torch_device)
            service = Service(
                spec,
                setup.build(recipe, gate).learner,
                lambda: setup.build(recipe, gate).learner,
                Dispatcher(background),
                journal,
                store,
                torch_device,
                batch=batch,
                snapshots=Snapshots(shifts, snapshots),
                limits=Limits(waiting, max(batch, slack // 4)),
                class_names=class_names,
                users=users,
                log=log,
            )
            service.addresses = background.addresses
            service.restore(state, *_count_labels(path))
            if service.arrivals:
                log(
                    f"{path} goes on: {service.arrivals} samples have arrived, {service.labels} of "
                    f"them have a label."
                )
            began = time.perf_counter()
            why: list[str] = []

            def ended(signal: str) -> None:  # a signal handler must not print
                why.append(signal)
                stop.set()

            with on_signals(ended):
                try:
                    with _transport(
                        service, host, port, connections, lines, answers, ready, log
                    ) as transport:
                        while not (stop.is_set() or transport.ended.is_set()):
                            service.advance()
                            clock.wait(clock.now() + (0.001 if service.has_delayed else MAX_WAIT))
                finally:
                    service.stop()
        if why:
            log(f"The service was {why[0]}; all acknowledged messages are kept in {path}.")
        seconds = time.perf_counter() - began
        write_json(path / FACTS, {**asked, **_facts(path, service, background, seconds)})
        _count_in_header(path, service)
    return Run(path)


@contextmanager
def _transport(
    service: Service,
    host: str,
    port: int | None,
    connections: int,
    lines: BinaryIO | None,
    answers: BinaryIO | None,
    ready: Callable[[int], None] | None,
    log: Logger,
) -> Iterator[HttpServer | JsonLines]:
    """A thread that passes messages to the service: from HTTP if there is a port, or from lines."""
    max_bytes = largest_message(int(np.prod(service.spec.input_shape, dtype=np.int64)))
    if port is None:
        # A copy of stdin: the interpreter cannot exit while a thread waits in `sys.stdin`.
        lines = lines or os.fdopen(os.dup(sys.stdin.fileno()), "rb")
        transport: HttpServer | JsonLines = JsonLines(
            service, lines, answers or sys.stdout.buffer, max_bytes
        )
    else:
        transport = HttpServer(service, host, port, connections, max_bytes)
    threading.Thread(target=transport.run, name="streamgauge-messages", daemon=True).start()
    try:
        if isinstance(transport, HttpServer):
            log(f"Serving on http://{host}:{transport.port} (/predict, /label, /status).")
            if ready is not None:
                ready(transport.port)
        yield transport
    finally:
        service.stop()  # accepted messages are on disk before the connections are closed
        transport.close()
    if transport.error is not None:
        raise transport.error


def _check(
    spec: Spec,
    recipe: Recipe,
    batch: int,
    waiting: int,
    connections: int,
    class_names: Sequence[str] | None,
    scale: str,
) -> None:
    if scale == "online" and len(spec.input_shape) != 1:
        raise StreamgaugeError(
            f"Only vectors are standardised online, and inputs have the shape {spec.input_shape}:"
            " set scale to none."
        )
    for name, value in (("batch", batch), ("waiting", waiting), ("connections", connections)):
        if value < 1:
            raise StreamgaugeError(f"{name} must be at least 1, not {value}.")
    if spec.classes < 1:
        raise StreamgaugeError("Say how many classes there are.")
    if class_names is not None and len(class_names) != spec.classes:
        raise StreamgaugeError(f"There are {spec.classes} classes but {len(class_names)} names.")
    if recipe.needs:
        raise StreamgaugeError(
            f"The learner {recipe.name} needs {' and '.join(recipe.needs)}, which is "
            f"unknown for samples that clients send: choose another."
        )


def _build(recipe: Recipe, spec: Spec, inputs: str, seed: int, device: torch.device) -> Learner:
    """A temporary learner, to look at its memories."""
    zeros = np.zeros((1, *spec.input_shape), inputs)
    source = ArraySource(zeros, np.zeros(1, np.int64), classes=spec.classes)
    return recipe.build(spec, Gate(source, np.arange(1), device), seed, device)


def _slots(
    learner: Learner, recipe: Recipe, spec: Spec, waiting: int, asked: int | None
) -> tuple[int, int]:
    """Slots of the spool, and how many of them are used only briefly."""
    needed = waiting
    for memory in memories(learner):
        most = max_samples(memory, spec)
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
            f"memory and {waiting} may wait for a label, so give it {least} or more."
        )
    return slots, slots - needed


def _count_labels(path: Path) -> tuple[int, int]:
    """How many labels are in the log, and how many of their answers were correct."""
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
    settings: dict[str, Any] = {
        k: asked[k] for k in ("batch", "inputs", "users", "scale") if k in asked
    }
    described = recipe.describe()
    learner = {k: v for k, v in described.items() if k in ("settings", "needs", "code")}
    run_id = hash_identity(name, spec, learner, protocol, asked, seed, device.type, class_names)
    live = {**protocol, "live": f"from outside, {asked['trainer']}"}
    config = run_config(name, settings, described, live, seed, device.type, notes={"live": asked})
    stream = {
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
    }
    return run_header(run_id, config, stream, str(device))


def _count_in_header(path: Path, service: Service) -> None:
    """The length of the stream is known only at its end."""
    header = read_header(path)
    header["stream"]["samples"] = service.labels
    header["stream"]["steps"] = -(-service.labels // service.batch)
    write_json(path / "run.json", header)


def _facts(
    path: Path, service: Service, background: BackgroundTrainer, seconds: float
) -> dict[str, Any]:
    try:
        before = json.loads((path / FACTS).read_text())
    except (OSError, ValueError):
        before = {}
    return {
        "duration": before.get("duration", 0.0) + seconds,
        "arrivals": service.arrivals,
        "expired": service.expired,
        **service.facts(before.get("restarts", []) + background.restarts),
        "refused": dict(service.refused),
        "stopped": "",
    }


def _print_to_stderr(sentence: str) -> None:
    print(sentence, file=cast(Any, sys.stderr), flush=True)
