"""`serve`: answer samples that clients send, and train on their labels."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import numpy as np

from streamgauge import catalogue
from streamgauge.bridges.foreign import refusal, trust_pickles
from streamgauge.catalogue import Recipe
from streamgauge.errors import StreamgaugeError
from streamgauge.files import read_sealed, write_json, write_sealed
from streamgauge.live import stored_stream
from streamgauge.live import trainer as trainers
from streamgauge.live.access import Access, access_for
from streamgauge.live.dispatcher import Dispatcher
from streamgauge.live.http_server import HttpServer, JsonLinesServer, largest_message
from streamgauge.live.journal import Journal
from streamgauge.live.service import Limits, Service
from streamgauge.live.snapshots import Snapshots
from streamgauge.live.spool import Spool, SpoolSource
from streamgauge.models.features import device_named
from streamgauge.record import OPTIONAL, Run, RunWriter
from streamgauge.record.heartbeat import HeartbeatWriter
from streamgauge.record.writer import read_header
from streamgauge.report.figures import online_answers
from streamgauge.running.header import run_config, run_header
from streamgauge.running.protocol import Protocol
from streamgauge.settings import CHECKPOINT, RUNS, as_plain
from streamgauge.streams import ArraySource, Gate, Spec
from streamgauge.versions import renamed_parameter

if TYPE_CHECKING:
    import torch

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
    token: str | None = None,
    max_rate: float | None = None,
    trainer: trainers.Kind = "process",
    hang: float | None = None,
    name: str = "live",
    seed: int = 0,
    out: str | Path = RUNS,
    device: str = "auto",
    threads: int = 1,
    checkpoint: float = CHECKPOINT,
    trust_pickle: bool = False,
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
    `waiting`, plus some more. Other machines are let in only with `anywhere` and a `token`, which
    every request carries. At most `max_rate` HTTP requests per second are answered; by default that
    is limited for other machines only. A trainer that works on one batch for more than `hang`
    seconds is killed and restarted. With `users` every sample must have a user. `ready` is called
    with the
    port. The same call resumes an earlier run, with all messages that it had acknowledged; that of
    a model of another library needs `trust_pickle`, as reading its state can execute code. `log`
    gets messages; by default they go to stderr, since a client may read stdout.
    """
    log = log or partial(print, file=sys.stderr, flush=True)
    access = access_for(host, anywhere, token, max_rate)
    recipe = learner if isinstance(learner, Recipe) else catalogue.learner(learner)
    recipe = recipe.for_inputs(spec.input_shape)
    _check(spec, recipe, batch, waiting, connections, class_names, scale)
    torch_device = device_named(device)
    asked: dict[str, Any] = {
        "batch": batch, "inputs": inputs, "users": users, "trainer": trainer, "threads": threads,
        "snapshots": snapshots if shifts else 0, "waiting": waiting,
    }  # fmt: skip
    if scale == "online":
        asked["scale"] = scale
    with stored_stream.torch_threads(threads):
        header = _header(name, spec, recipe, shifts, seed, torch_device, class_names, asked)
    path = Path(out) / f"{name}-{recipe.name}-s{seed}-{header['id'][:8]}"
    absent = frozenset(OPTIONAL - {"time", *(["user"] if users else [])})
    stop = stop or threading.Event()
    clock = stored_stream.WallClock()
    with (
        stored_stream.torch_threads(threads),
        closing(RunWriter(path, header, absent)) as recorder,
        closing(Journal(recorder, absent, checkpoint)) as journal,
    ):
        slots, slack = _slots(recipe, spec, inputs, torch_device, waiting, spool)
        scaled = spec.input_shape[0] if scale == "online" else 0
        store = Spool(path / "spool", spec, inputs, slots, len(shifts), scaled)
        log(f"The spool has {slots} slots and takes up to {store.nbytes / 1e6:.0f} MB on disk.")
        setup = trainers.Setup(spec, SpoolSource(store), batch, seed, str(torch_device), threads)
        state = recorder.state
        learnt = None if state is None else state["learner"]
        _refuse_pickle(path, recipe, learnt, trust_pickle)
        with trainers.start_trainer(
            trainer, recipe, setup, clock.wake, log, learnt, hang
        ) as background:
            trainers.warm_up(recipe, setup)
            gate = trainers.gate_for(
                SpoolSource(store, follow=True), trainers.NO_ADDRESSES, torch_device
            )
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
            service.restarts = background.restarts
            label, prediction = online_answers(Run(path))
            service.restore(_with_facts(state, path), len(label), int((label == prediction).sum()))
            # From here on the checkpoint has the figures, and an old file would contradict the log.
            (path / stored_stream.FACTS).unlink(missing_ok=True)
            if service.arrivals:
                log(
                    f"{path} goes on: {service.arrivals} samples have arrived, {service.labels} of "
                    f"them have a label."
                )
            why: list[str] = []

            def ended(signal: str) -> None:  # a signal handler must not print
                why.append(signal)
                stop.set()

            with stored_stream.on_signals(ended):
                try:
                    with (
                        HeartbeatWriter(path, service.heartbeat),
                        _transport(
                            service, host, port, connections, access, lines, answers, ready, log
                        ) as transport,
                    ):
                        while not (stop.is_set() or transport.ended.is_set()):
                            service.advance()
                            clock.wait(
                                clock.now() + (0.001 if service.delayed else stored_stream.MAX_WAIT)
                            )
                finally:
                    service.stop()
        if why:
            log(f"The service was {why[0]}; all acknowledged messages are kept in {path}.")
        facts = {**asked, "duration": service.duration(), **service.facts(service.restarts)}
        write_json(path / stored_stream.FACTS, facts)
        _count_in_header(path, service)
    return Run(path)


@contextmanager
def _transport(
    service: Service,
    host: str,
    port: int | None,
    connections: int,
    access: Access,
    lines: BinaryIO | None,
    answers: BinaryIO | None,
    ready: Callable[[int], None] | None,
    log: Logger,
) -> Iterator[HttpServer | JsonLinesServer]:
    """A thread that passes messages to the service: from HTTP if there is a port, or from lines."""
    max_bytes = largest_message(int(np.prod(service.spec.input_shape, dtype=np.int64)))
    if port is None:
        # A copy of stdin: the interpreter cannot exit while a thread waits in `sys.stdin`.
        lines = lines or os.fdopen(os.dup(sys.stdin.fileno()), "rb")
        transport: HttpServer | JsonLinesServer = JsonLinesServer(
            service, lines, answers or sys.stdout.buffer, max_bytes
        )
    else:
        transport = HttpServer(service, host, port, connections, max_bytes, access)
    threading.Thread(target=transport.run, name="streamgauge-messages", daemon=True).start()
    try:
        if isinstance(transport, HttpServer):
            log(f"Serving on http://{host}:{transport.port} (/predict, /label, /status, /metrics).")
            if ready is not None:
                ready(transport.port)
        yield transport
    finally:
        service.stop()  # accepted messages are on disk before the connections are closed
        transport.close()
    if transport.error is not None:
        raise transport.error


def _with_facts(state: dict[str, Any] | None, path: Path) -> dict[str, Any] | None:
    """A checkpoint with the figures that versions before 0.2 stored in `live.json` alone."""
    file = path / stored_stream.FACTS
    if state is None or "duration" in state or not file.exists():
        return state
    shape = {"duration?": float, "restarts?": [str]}
    facts = read_sealed(file, shape, "restore it from a copy, or remove it")
    return {**{name: facts[name] for name in ("duration", "restarts") if name in facts}, **state}


def _refuse_pickle(path: Path, recipe: Recipe, state: Any, trust: bool) -> None:
    """Refuse the state of a foreign learner from disk, unless the caller trusts it."""
    if recipe.library and state is not None:
        with trust_pickles(trust):
            if why := refusal(state):
                raise StreamgaugeError(f"{path} cannot go on with its state: {why}.")


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


def _slots(
    recipe: Recipe, spec: Spec, inputs: str, device: torch.device, waiting: int, asked: int | None
) -> tuple[int, int]:
    """Slots of the spool, and how many of them are used only briefly; from the memories of a
    temporary learner."""
    zeros = np.zeros((1, *spec.input_shape), inputs)
    source = ArraySource(zeros, np.zeros(1, np.int64), classes=spec.classes)
    learner = recipe.build(spec, Gate(source, np.arange(1), device), 0, device)
    needed = waiting
    for memory in trainers.memories(learner):
        most = trainers.max_samples(memory, spec)
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
    run_id = stored_stream.hash_identity(
        name, spec, learner, protocol, asked, seed, device.type, class_names
    )
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
    write_sealed(path / "run.json", header)
