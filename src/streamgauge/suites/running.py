"""Doing what is missing of a suite, one run after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from streamgauge import catalogue
from streamgauge import engine as engines
from streamgauge.errors import StreamgaugeError, nearest
from streamgauge.models.features import device_named
from streamgauge.models.pretrain import pretrain
from streamgauge.record import Run
from streamgauge.running import runner
from streamgauge.running.executors.cluster import Cluster, check_place
from streamgauge.running.executors.interleaved import Begun, take_turns
from streamgauge.running.executors.on_ray import Answer, Elsewhere, Start, scatter_runs
from streamgauge.running.runner import Planned, Progress, Said
from streamgauge.streams import Stream
from streamgauge.suites.finding import Job, build_stream, distinct, find, gather, jobs
from streamgauge.suites.spec import Row, Suite

EMBEDDING = 16  # features of the layer that the stand-in for `embedding` learns on top
Watch = Callable[[Planned, Stream], Progress | None]


def run(
    suite: Suite,
    *,
    only: Sequence[str] = (),
    seeds: Sequence[int] | None = None,
    both: bool = False,
    out: str | Path = "runs",
    runs: Sequence[str | Path] = (),
    weights: Mapping[str, str] | None = None,
    on: str = "local",
    cluster: Cluster | None = None,
    side_by_side: int | None = None,
    said: Said = print,
    **how: Any,
) -> Iterator[Run]:
    """Run what is missing and yield every run that is there in the end.

    What is complete already, in `out` or in one of the folders `runs`, is not run again; what was
    interrupted in `out` goes on. On a GPU that replays recorded steps, rows and seeds go side by
    side. `on` is where runs are made: "local" is this process, "ray" is `cluster`. `how` is passed
    on to `Worker`.
    """
    check_place(on)
    wanted = jobs(suite.choose(only, both), seeds)
    there = find(wanted, gather([out, *runs]))
    check_weights([job.row for job in wanted], weights or {})
    left = distinct(j for j in wanted if j.seed not in there.complete.get(j.row.key, {}))
    if on == "ray":
        yield from (run for of_row in there.complete.values() for run in of_row.values())
        yield from _on_ray(left, cluster or Cluster(), out, weights or {}, side_by_side, said, how)
        return
    worker = Worker(out, weights=weights or {}, said=said, **how)
    waiting: list[tuple[Path, Callable[[], Begun]]] = []
    for number, job in enumerate(wanted, 1):
        done = there.complete.get(job.row.key, {}).get(job.seed)
        if done is not None:
            yield done
            continue
        if not any(job is one for one in left):
            continue  # another row has the same run
        said(f"[{number}/{len(wanted)}] {job.row.title}, seed {job.seed}")
        path, begin = worker.prepare(job)
        if begin is None:
            yield Run(path)
        elif worker.replays and side_by_side != 1:
            waiting.append((path, begin))
        else:
            runner.to_the_end(begin)
            yield Run(path)
    if waiting:
        for path in take_turns(waiting, worker.place, side_by_side, said):
            yield Run(path)


def _on_ray(
    left: list[Job],
    cluster: Cluster,
    out: str | Path,
    weights: Mapping[str, str],
    side_by_side: int | None,
    said: Said,
    how: Mapping[str, Any],
) -> Iterator[Run]:
    if not left:
        return
    device = str(how.get("device", "auto"))
    there = {name: value for name, value in how.items() if name not in ("device", "watch")}
    there["weights"] = {name: str(Path(file).resolve()) for name, file in weights.items()}
    if not cluster.store:  # trained once, not by every task at the same time
        here = Worker(Path(out).resolve(), device="cpu", said=said)
        for job in left:
            if job.row.generated:
                here.backbones(job)
    yield from scatter_runs(
        _run_jobs,
        left,
        there,
        lambda job: f"{job.row.title}, seed {job.seed}",
        out=out,
        cluster=cluster,
        device=device,
        side_by_side=side_by_side,
        said=said,
    )


def _run_jobs(some: Sequence[Job], how: dict[str, Any], elsewhere: Elsewhere) -> Answer:
    """A task of Ray's."""

    def prepare(out: Path, said: Said) -> Iterator[Start]:
        worker = Worker(out, device=elsewhere.device, said=said, **how)
        return (worker.prepare(job) for job in some)

    return elsewhere.complete(prepare)


class Worker:
    """Runs jobs. Streams of the last settings are kept: rows that follow each other share them."""

    def __init__(
        self,
        out: str | Path,
        *,
        weights: Mapping[str, str] | None = None,
        device: str = "auto",
        checkpoint: float = 30.0,
        workers: int | None = None,
        engine: engines.Name = "auto",
        precision: engines.Precision = "fp16",
        deterministic: bool = False,
        watch: Watch | None = None,
        said: Said = print,
    ) -> None:
        self.out, self.device, self.checkpoint = Path(out), device, checkpoint
        self.workers, self.engine, self.precision = workers, engine, precision
        self.deterministic = deterministic
        # Where first weights lie is part of a run's configuration: the same from any folder.
        self.weights = {name: str(Path(file).resolve()) for name, file in (weights or {}).items()}
        self.watch, self.said = watch, said
        self.place = device_named(device)
        self.replays = self.place.type == "cuda" and engine != "eager"
        self._shared: tuple[str, dict[int, Stream]] = ("", {})

    def run(self, job: Job) -> Run:
        """One job, from where it stands to its end."""
        path, begin = self.prepare(job)
        if begin is not None:
            runner.to_the_end(begin)
        return Run(path)

    def prepare(self, job: Job) -> tuple[Path, Callable[[], Begun] | None]:
        """Where the run of a job lies, and how to begin it; None where there is nothing to do."""
        one, _, protocol = job.resolve(self.backbones(job))
        stream = self._stream(job)
        return runner.prepare(
            stream,
            one.recipe,
            protocol=protocol,
            seed=one.learner_seed,
            out=self.out,
            device=self.device,
            checkpoint=self.checkpoint,
            progress=None if self.watch is None else self.watch(one, stream),
            origin=job.row.stream,
            notes=None,
            workers=self.workers,
            engine=self.engine,
            precision=self.precision,
            deterministic=self.deterministic,
            said=self.said,
        )

    def _stream(self, job: Job) -> Stream:
        settings = job.resolve().stream
        seed = settings["seed"]
        name = repr(
            (job.row.stream, job.row.on, sorted((k, v) for k, v in settings.items() if k != "seed"))
        )
        if self._shared[0] != name:
            self._shared = (name, {})
        streams = self._shared[1]
        if seed not in streams:
            streams[seed] = build_stream(job.row, settings)
        return streams[seed]

    def backbones(self, job: Job) -> str:
        """First weights: a file that was given, or, on generated data, what `pretrain` makes of the
        part of the stream that is never scored."""
        row = job.row
        if not row.weights:
            return ""
        if not row.generated:
            return self.weights[row.weights]
        # Not the part that this row may run on alone: what `pretrain` wants is the whole stream.
        stream = catalogue.stream(row.stream, **job.resolve().stream)
        embedding = EMBEDDING if row.weights == "embedding" else 0
        folder = self.out.resolve() / "backbones"
        return str(pretrain(stream, out=folder, device="cpu", embedding=embedding, **row.pretrain))


def check_weights(rows: Sequence[Row], weights: Mapping[str, str]) -> None:
    """Before anything runs: is there a file for every backbone that is wanted?"""
    named = {row.weights: row for row in reversed(rows) if row.weights and not row.generated}
    for name in weights:
        if named and name not in named:
            raise StreamgaugeError(f"No row here begins from '{name}'; {nearest(name, named)}")
    for name, row in named.items():
        if name not in weights:
            raise StreamgaugeError(
                f"The row '{row.title}' begins from the backbone '{name}': give its weights with "
                f"--weights {name}=FILE (docs/suites.md says which they are)."
            )
        if not Path(weights[name]).exists():
            raise StreamgaugeError(f"There is no file {weights[name]} (--weights {name}).")
