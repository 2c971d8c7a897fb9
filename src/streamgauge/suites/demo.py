"""The demonstration: why online accuracy alone misleads, told from runs made on the spot."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from streamgauge.report import Board, leaderboard, write_report
from streamgauge.report.leaderboard import NEAR_FUTURE
from streamgauge.report.terminal import Watcher, board_text
from streamgauge.running.execution import Execution
from streamgauge.running.plan import Experiment
from streamgauge.running.runner import run_all
from streamgauge.streams.named import albums

LEARNERS = ("blind", "majority", "newest=finetune", "er", "ncm")
MARGIN = 0.005  # past the correlation = the last label is worth less than half a point
SMALL = 0.05  # a loss of less than five points is no fall


def demo(out: Path, seeds: int) -> Path:
    """Run five learners on the generated photo stream; print a table and what it means; write the
    report, and return its path."""
    shift = shift_past_correlation(albums.Config())
    # A window of one label: the blind classifier whose accuracy on this stream has a closed form.
    experiment = Experiment(
        stream="albums",
        learners=LEARNERS,
        seeds=seeds,
        settings={"blind.window": 1, "newest.passes": 3, "protocol.shifts": (shift,)},
    )
    with Watcher() as watcher:
        # These networks are too small for a second thread to help, and where another program keeps
        # a core busy, two threads that wait for each other are fifty times slower than one.
        execution = Execution(device="cpu", threads=1, log=watcher.say)
        runs = list(run_all(experiment, out=out, watch=watcher.watch, execution=execution))
    (board,) = leaderboard(runs)
    sentence = meaning(accuracies(board, shift), shift)
    width = min(100, shutil.get_terminal_size((100, 24)).columns)
    print(f"\n{board_text(board)}\n\n{textwrap.fill(sentence, width)}\n")
    report = write_report(runs, out / "report.html", [board]).resolve()
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
    compared = f"{100 * gain:.1f} points above" if gain > 0 else "no more than"
    more = "even" if newest.online > blind.online else "no more than blind,"
    if er.loss < min(SMALL, blind.loss, newest.loss):
        replay = f"while er, which replays old photos, holds at {_share(er.ahead)}"
    else:
        replay = f"and er, although it replays old photos, {_moved(er)}"
    if min(blind.loss, newest.loss) >= SMALL and newest.loss > er.loss:
        so = "so part of a high online accuracy can be the mere repetition of recent labels"
    else:
        so = "so here online accuracy did not mislead as it can"
    return (
        f"Online, blind is right {_share(blind.online)} of the time without a look at any photo "
        f"({compared} always answering the most frequent label) and newest, trained hard on the "
        f"newest photos alone, {more} {_share(newest.online)}; asked {shift} photos ahead, past "
        f"the reach of repeating labels, blind {_moved(blind)} and newest {_moved(newest)}, "
        f"{replay} (online {_share(er.online)}): {so}."
    )


def _moved(one: Accuracies) -> str:
    if one.loss >= SMALL:
        how = "falls to"
    elif one.loss > 0:
        how = "slips to"
    else:
        how = "stays at" if one.loss == 0 else "rises to"
    return f"{how} {_share(one.ahead)}"


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"
