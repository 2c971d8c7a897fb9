"""`streamgauge score`, `report` and `diff`: what stored runs say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamgauge.cli.options import AsJson, RunFolders, no_settings, print_json

if TYPE_CHECKING:
    from streamgauge.record import Run


def score(context: typer.Context, folders: RunFolders, as_json: AsJson = False) -> None:
    """Compute every metric of stored runs from their logs: no GPU, no re-run.

    Examples:

        streamgauge score runs/

        streamgauge score runs/albums-er-s0-1a2b3c4d --json
    """
    no_settings(context)
    from streamgauge.record import find_runs

    runs = find_runs(list(folders))
    if as_json:
        print_json({"runs": [scored(run) for run in runs]})
        return
    from streamgauge.report.terminal import scores_text

    print(scores_text(runs))


def scored(run: Run) -> dict[str, Any]:
    """The metrics of a run, for a program to read."""
    from streamgauge.metrics import score as score_log

    return {
        "path": str(run.path),
        "id": run.id,
        "learner": run.learner,
        "stream": run.stream["name"],
        "seed": run.seed,
        "done": run.done,
        "unlabelled": run.unlabelled,
        "scores": score_log(run),
    }


def report(
    context: typer.Context,
    folders: RunFolders,
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("report.html"),
) -> None:
    """Write one HTML file that opens from disk without a network.

    Example:

        streamgauge report runs/ --out report.html
    """
    no_settings(context)
    from streamgauge.record import find_runs
    from streamgauge.report import leaderboard, write_report
    from streamgauge.report.terminal import compute_text

    runs = find_runs(list(folders))
    boards = leaderboard(runs)
    path = write_report(runs, out, boards).resolve()
    if text := compute_text(boards):
        print(f"{text}\n")
    print(f"Report: {path}")


def diff(
    context: typer.Context,
    first: Annotated[Path, typer.Argument(help="A run folder.")],
    second: Annotated[Path, typer.Argument(help="Another.")],
    as_json: AsJson = False,
) -> None:
    """Say what differs between two runs, and the first step at which their logs part.

    Exit code 0 where the logs are identical (times apart), 1 where they part.

    Example:

        streamgauge diff runs/albums-er-s0-1a2b3c4d runs/albums-er-s1-5e6f7a8b
    """
    no_settings(context)
    from streamgauge.record import Run
    from streamgauge.record.diff import differences

    result = differences(Run(first), Run(second))
    if as_json:
        print_json(result)
    else:
        from streamgauge.report.terminal import differences_text

        print(differences_text(result))
    raise typer.Exit(0 if result["same"] else 1)
