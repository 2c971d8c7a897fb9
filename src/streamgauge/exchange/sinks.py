"""Where numbers of a run go: TensorBoard, MLflow, Weights & Biases, CSV files.

A sink takes scalars of one run, by name and step. Libraries are imported when a sink is opened.
"""

from __future__ import annotations

import csv
import re
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from streamgauge.errors import StreamgaugeError, first_line, nearest, packages_for
from streamgauge.record import Run

SUFFIX = ".streamgauge"  # of our event files: an export replaces its own earlier files only
BATCH, FLUSH = 1000, 5.0  # scalars per call of MLflow, seconds between calls


class Sink(Protocol):
    """Takes the scalars of one run."""

    def scalar(self, name: str, value: float, step: int) -> None: ...
    def close(self) -> None: ...


def open_sink(to: str, out: str, run: Run) -> Sink:
    """A sink for a run, with the run's settings. `out` is a folder, for MLflow a tracking URI; ""
    is the default. A run that is there already is replaced."""
    kind, default = check_sink(to)
    try:
        return kind(out or default, run)
    except (FileExistsError, NotADirectoryError):
        raise StreamgaugeError(
            f"Cannot export to {out or default}: a file has that name, and a folder is needed."
        ) from None


def check_sink(to: str) -> tuple[Callable[[str, Run], Sink], str]:
    """The class of a sink and its default `out`; an error if there is no such sink, or if its
    packages are not installed."""
    if to not in SINKS:
        raise StreamgaugeError(f"There is no export to '{to}'; {nearest(to, SINKS)}")
    kind, out, packages = SINKS[to]
    with packages_for(f"Logging to {to}"):
        for package in packages:
            import_module(package)
    return kind, out


def settings_of(run: Run) -> dict[str, Any]:
    """The settings of a run by dotted names, as `run` takes them."""
    config = run.header["config"]
    stream = run.stream
    settings = {"stream": stream["name"], "learner": run.learner, "seed": run.seed, "id": run.id}
    groups = {
        "stream": stream.get("settings"),
        run.learner: config["learner"].get("settings"),
        "protocol": config.get("protocol"),
    }
    for group, values in groups.items():
        settings |= {f"{group}.{name}": value for name, value in (values or {}).items()}
    return settings


class TensorBoard:
    """Event files in a folder per run; settings go to the tab HPARAMS."""

    def __init__(self, out: str, run: Run) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event, self._summary = Event, Summary
        folder = Path(out) / run.path.resolve().name
        for earlier in folder.glob(f"events.out.tfevents.*{SUFFIX}"):
            earlier.unlink()
        self._writer = EventFileWriter(str(folder), flush_secs=10, filename_suffix=SUFFIX)
        plain = {name: _simple(value) for name, value in settings_of(run).items()}
        self._add(hparams_pb(plain, trial_id=run.path.resolve().name), 0)

    def _add(self, summary: Any, step: int) -> None:
        event = self._event(wall_time=time.time(), step=step)
        # Serialised in between: hparams_pb may give the message of another protobuf build.
        event.summary.ParseFromString(summary.SerializeToString())
        self._writer.add_event(event)

    def scalar(self, name: str, value: float, step: int) -> None:
        self._add(self._summary(value=[{"tag": name, "simple_value": value}]), step)

    def close(self) -> None:
        self._writer.close()


class Mlflow:
    """One MLflow run per run, in the experiment of its stream; settings are its parameters."""

    def __init__(self, out: str, run: Run) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param
        from mlflow.exceptions import MlflowException

        self._metric, self._failed = Metric, MlflowException
        if "://" not in out:  # a folder: MLflow refuses file stores since 3.13
            Path(out).mkdir(parents=True, exist_ok=True)
            out = f"sqlite:///{Path(out).resolve() / 'mlflow.db'}"
        try:
            self._client = MlflowClient(tracking_uri=out)
            experiment = self._experiment(str(run.stream["name"]), out)
            same = f"tags.`streamgauge.id` = '{re.sub('[^0-9A-Za-z]', '', run.id)}'"
            for earlier in self._client.search_runs([experiment], same):
                self._client.delete_run(earlier.info.run_id)
            name = run.path.resolve().name
            started = self._client.create_run(
                experiment, run_name=name, tags={"streamgauge.id": run.id}
            )
            self._run = started.info.run_id
            params = [
                Param(_name(name), _cut(str(value))) for name, value in settings_of(run).items()
            ]
            for first in range(0, len(params), 100):
                self._client.log_batch(self._run, params=params[first : first + 100])
        except self._failed as error:
            raise StreamgaugeError(f"MLflow at {out}: {first_line(error)}") from None
        self._waiting: list[Any] = []
        self._sent = time.monotonic()

    def _experiment(self, name: str, uri: str) -> str:
        known = self._client.get_experiment_by_name(name)
        if known is not None:
            return str(known.experiment_id)
        folder = Path(uri.removeprefix("sqlite:///")).parent / "mlartifacts"
        artifacts = folder.as_uri() if uri.startswith("sqlite:////") else None
        return str(self._client.create_experiment(name, artifact_location=artifacts))

    def scalar(self, name: str, value: float, step: int) -> None:
        self._waiting.append(self._metric(_name(name), value, int(time.time() * 1000), step))
        if len(self._waiting) >= BATCH or time.monotonic() - self._sent > FLUSH:
            self._send()

    def _send(self) -> None:
        try:
            self._client.log_batch(self._run, metrics=self._waiting)
        except self._failed as error:
            raise StreamgaugeError(f"MLflow: {first_line(error)}") from None
        self._waiting, self._sent = [], time.monotonic()

    def close(self) -> None:
        self._send()
        self._client.set_terminated(self._run)


class Wandb:
    """An offline run of Weights & Biases; `wandb sync FOLDER` uploads it."""

    def __init__(self, out: str, run: Run) -> None:
        import wandb

        Path(out).mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            mode="offline",
            dir=out,
            project=re.sub(r"[/\\#?%:]", "-", str(run.stream["name"])),
            name=run.path.resolve().name,
            id=re.sub("[^0-9A-Za-z]", "", run.id)[:32],
            config=settings_of(run),
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off"),
        )
        # Its own step must never fall; ours begins again with every curve.
        self._run.define_metric("*", step_metric="stream_step")

    def scalar(self, name: str, value: float, step: int) -> None:
        self._run.log({name: value, "stream_step": step})

    def close(self) -> None:
        self._run.finish()


class CsvFiles:
    """Two files per run: `RUN.settings.csv` and `RUN.curves.csv` (name, step, value)."""

    def __init__(self, out: str, run: Run) -> None:
        folder, name = Path(out), run.path.resolve().name
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / f"{name}.settings.csv", "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("name", "value"), *settings_of(run).items()])
        self._file = open(  # noqa: SIM115 (closed by `close`)
            folder / f"{name}.curves.csv", "w", buffering=1, newline="", encoding="utf-8"
        )
        self._rows = csv.writer(self._file)
        self._rows.writerow(("name", "step", "value"))

    def scalar(self, name: str, value: float, step: int) -> None:
        self._rows.writerow((name, step, repr(value)))

    def close(self) -> None:
        self._file.close()


# Name: class, default `out`, packages.
SINKS: Mapping[str, tuple[Callable[[str, Run], Sink], str, Sequence[str]]] = {
    "tensorboard": (TensorBoard, "tensorboard", ("tensorboard",)),
    "mlflow": (Mlflow, "mlflow", ("mlflow", "sqlalchemy", "alembic")),
    "wandb": (Wandb, ".", ("wandb",)),
    "csv": (CsvFiles, "csv", ()),
}


def _simple(value: Any) -> bool | float | str:
    """A setting as the tab HPARAMS takes it."""
    if isinstance(value, bool | float | str):
        return value
    return float(value) if isinstance(value, int) else str(value)


def _cut(text: str, most: int = 6000) -> str:
    """A parameter as long as MLflow allows."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _name(name: str) -> str:
    """A name as MLflow allows it.

    >>> _name("score/near_future_accuracy@200")
    'score/near_future_accuracy_200'
    """
    return re.sub(r"[^\w\-. /]", "_", name)
