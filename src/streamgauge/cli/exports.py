"""`streamgauge export`, and what `run --log-to` and `score MATRIX` need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamgauge.cli import options as shared
from streamgauge.errors import StreamgaugeError

if TYPE_CHECKING:
    from streamgauge.exchange import LiveLog
    from streamgauge.record import Run
    from streamgauge.report.watching import Watcher

Window = Annotated[int, typer.Option(help="Samples per point of windowed accuracy.")]


def export(
    folders: shared.RunFolders,
    to: Annotated[
        str, typer.Option(metavar="TOOL", help="Tool: tensorboard, mlflow, wandb (offline) or csv.")
    ],
    out: Annotated[
        str,
        typer.Option(
            metavar="FOLDER|URI",
            help="Folder, or a tracking URI of MLflow [a folder with the name of the tool].",
        ),
    ] = "",
    window: Window = 1000,
) -> None:
    """Write stored runs to another tool: accuracies over the stream, scores, settings.

    Exporting a run again replaces what was exported. `run --log-to` does the same during a run.

    Examples:

        streamgauge export runs/ --to tensorboard --out tb/

        streamgauge export runs/ --to mlflow --out sqlite:///mlflow.db

        streamgauge export runs/ --to wandb

        streamgauge export runs/ --to csv --out csv/ --window 200
    """
    from streamgauge.exchange import export as write

    runs = write(list(folders), to, out, window)
    print(f"{len(runs)} run{'s' * (len(runs) > 1)} exported. {look_at(to, out)}")


def look_at(to: str, out: str | None) -> str:
    """How to see what was written."""
    from streamgauge.exchange.sinks import SINKS

    where = out or SINKS[to][1]
    if to == "mlflow":
        uri = where if "://" in where else f"sqlite:///{Path(where).resolve() / 'mlflow.db'}"
        return f"To see it: mlflow ui --backend-store-uri {uri}"
    return {
        "tensorboard": f"To see it: tensorboard --logdir {where}",
        "wandb": f"To upload it: wandb sync {Path(where) / 'wandb'}/offline-run-*",
        "csv": f"The files are in {where}",
    }[to]


@dataclass(frozen=True, kw_only=True)
class MatrixOptions:
    """Options of `score` for accuracy matrices."""

    classes: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Matrix: classes that each task adds, such as 5,5,5."),
    ] = None
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="LIST|first",
            help="Matrix: accuracies of the untrained model, or first: the first row.",
        ),
    ] = None
    rows: Annotated[
        str | None,
        typer.Option(
            metavar="after|task",
            help="Matrix: a row is all tasks after one training (after) or one task over time.",
        ),
    ] = None
    unit: Annotated[
        str | None, typer.Option(metavar="percent|share", help="Matrix: unit of the accuracies.")
    ] = None


def score_files(files: Sequence[Path], options: MatrixOptions, as_json: bool) -> None:
    """`streamgauge score` of accuracy matrices."""
    from streamgauge.exchange import MatrixScores, score_matrix
    from streamgauge.exchange.matrix import matrices_text

    baseline = options.baseline
    given: dict[str, Any] = {
        "classes": None if options.classes is None else _numbers(options.classes, "--classes"),
        "baseline": baseline
        if baseline in (None, "first")
        else _numbers(str(baseline), "--baseline"),
        "rows": options.rows,
        "unit": options.unit,
    }
    scored: list[MatrixScores] = []
    for file in files:
        scores = score_matrix(file, **given)
        scored += [scores] if isinstance(scores, MatrixScores) else scores
    if not as_json:
        print(matrices_text(scored))
        return
    shared.print_json(
        {
            "matrices": [
                {
                    "name": one.matrix.name,
                    "matrix": one.matrix.accuracy,
                    "scores": dict(one),
                    "curves": one.curves,
                    "notes": one.notes,
                }
                for one in scored
            ]
        }
    )


def _numbers(text: str, option: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise StreamgaugeError(f"{option} must be numbers such as 5,5, not {text}.") from None


class LiveLogs:
    """The live logs of one `run` command, one per run; without `to` there are none."""

    def __init__(self, to: str | None, out: str | None, on: str) -> None:
        self.to, self.out = to, out or ""
        self._logs: list[LiveLog] = []
        if to is None:
            if out is not None:
                raise StreamgaugeError("--log-out has a meaning with --log-to only.")
            return
        if on != "local":
            raise StreamgaugeError("--log-to works with runs of this process, not with --on ray.")
        from streamgauge.exchange.sinks import check_sink

        check_sink(to)

    def watch(self, watcher: Watcher) -> Any:
        """The callback before each run, as the watcher's, with a live log for each."""
        if self.to is None:
            return watcher.watch
        from streamgauge.exchange import LiveLog

        def watch(planned: Any, stream: Any) -> LiveLog:
            log = LiveLog(str(self.to), self.out).combined_with(watcher.watch(planned, stream))
            self._logs.append(log)
            return log

        return watch

    def close(self) -> None:
        for log in self._logs:
            log.close()

    def sentences(self, runs: Sequence[Run]) -> list[str]:
        """Where the live logs are, and which runs have none."""
        if self.to is None:
            return []
        logged = {log.path.resolve() for log in self._logs if log.path is not None}
        skipped = [str(run.path) for run in runs if run.path.resolve() not in logged]
        problems = [log.problem for log in self._logs if log.problem]
        written = [f"Live log: {look_at(self.to, self.out)}"] if logged else []
        return [*written, *problems] + [
            f"{path} was complete already: streamgauge export {path} --to {self.to}"
            for path in skipped
        ]
