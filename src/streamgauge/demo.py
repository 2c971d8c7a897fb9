"""The demonstration: why online accuracy alone misleads, told from runs made on the spot."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from streamgauge.report import Board, leaderboard, write_report
from streamgauge.report.leaderboard import NEAR_FUTURE
from streamgauge.report.terminal import Watcher, leaderboard_text
from streamgauge.runner import Experiment, run_all
from streamgauge.streams import albums

LEARNERS = ("blind", "majority", "newest=finetune", "er", "ncm")
MARGIN = 0.005  # past the correlation = the last label is worth less than half a point
SMALL = 0.05  # a loss below five points is called small


def demo(out: Path, seeds: int) -> Path:
    """Run five learners on the generated photo stream; print a table and what it means; write the
    report, and return its path."""
    import torch

    shift = shift_past_correlation(albums.Config())
    experiment = Experiment(
        stream="albums",
        learners=LEARNERS,
        seeds=seeds,
        settings={"blind.window": 10, "newest.passes": 3, "protocol.shifts": (shift,)},
    )
    threads = torch.get_num_threads()
    # These networks are too small for a second thread to help, and where another program keeps a
    # core busy, two threads that wait for each other are fifty times slower than one.
    torch.set_num_threads(1)
    try:
        with Watcher() as watcher:
            runs = list(
                run_all(experiment, out=out, device="cpu", watch=watcher.watch, said=watcher.say)
            )
    finally:
        torch.set_num_threads(threads)
    (board,) = leaderboard(runs)
    print(f"\n{leaderboard_text(runs)}\n\n{meaning(accuracies(board, shift), shift)}\n")
    report = write_report(runs, out / "report.html").resolve()
    print(f"Report: {report}")
    return report


def shift_past_correlation(config: albums.Config) -> int:
    """How far ahead to ask so that repeating labels no longer help, in whole steps.

    >>> shift_past_correlation(albums.Config())
    40
    """
    return -(-albums.true_shift(config, MARGIN) // config.batch) * config.batch


class Accuracies(NamedTuple):
    """Means over seeds, as shares."""

    online: float
    ahead: float
    retained: float

    @property
    def loss(self) -> float:
        return self.online - self.ahead


def accuracies(board: Board, shift: int) -> dict[str, Accuracies]:
    names = ("online_accuracy", f"{NEAR_FUTURE}{shift}", "retained_accuracy")
    return {row.learner: Accuracies(*(row.scores[n].mean for n in names)) for row in board.rows}


def meaning(found: Mapping[str, Accuracies], shift: int) -> str:
    """One sentence that says what came out, whatever came out: each claim is tested first."""
    blind, majority, newest, er = (found[name] for name in ("blind", "majority", "newest", "er"))
    gain = blind.online - majority.online
    parts = [
        f"Online, blind is right {_share(blind.online)} of the time without a look at any photo, "
        + (f"{_points(gain)} above" if gain > 0 else "no more than")
        + " what always answering the most frequent label gives",
        f"and newest, which overfits the newest photos, {_share(newest.online)}, "
        + ("higher still" if newest.online > blind.online else "which is not above blind"),
    ]
    shifted = (
        f"asked {shift} photos ahead, past the reach of repeating labels, {_moved('blind', blind)} "
        f"and {_moved('newest', newest)}, "
    )
    others = min(blind.loss, newest.loss)
    if er.loss < SMALL and er.loss < others:
        shifted += f"while er, which replays old photos, holds ({_from_to(er)})"
    else:
        too = " too" if er.loss >= SMALL and others > 0 else ""
        shifted += f"and {_moved('er', er)}{too}, although it replays old photos"
    kept = f"on held-out photos from all of the stream, at its end, newest has " + (
        f"{_share(newest.retained)} and er {_share(er.retained)}"
    )
    if blind.loss >= SMALL and newest.loss >= SMALL and newest.loss > er.loss:
        so = "so an online accuracy can be high for repeating recent labels, and it is the others "
        so += "that tell what was learnt"
    else:
        so = "so on this stream online accuracy did not mislead as it can"
    return f"{', '.join(parts)}; {shifted}; {kept}: {so}."


def _moved(name: str, one: Accuracies) -> str:
    if one.loss >= SMALL:
        how = "falls"
    elif one.loss > 0:
        how = "loses little"
    else:
        how = "loses nothing"
    return f"{name} {how} ({_from_to(one)})"


def _from_to(one: Accuracies) -> str:
    return f"{_share(one.online)} → {_share(one.ahead)}"


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _points(value: float) -> str:
    return f"{100 * value:.1f} points"
