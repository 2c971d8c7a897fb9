"""The command `demo`: the suite of the same name, and a sentence on its result."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from streamgauge.report import Board, leaderboard, write_report
from streamgauge.report.leaderboard import NEAR_FUTURE, share
from streamgauge.report.terminal import board_text
from streamgauge.suites.running import run_small
from streamgauge.suites.spec import load

SMALL = 0.05  # a smaller loss is not called a fall


def demo(out: Path, seeds: int) -> Path:
    """Run the suite, print its leaderboard and a sentence on it, and write the report."""
    suite = load("demo")
    (shift,) = suite.rows[0].settings["protocol.shifts"]
    runs = run_small(suite, seeds, out)
    (board,) = leaderboard(runs)
    sentence = meaning(accuracies(board, shift), shift)
    width = min(100, shutil.get_terminal_size((100, 24)).columns)
    print(f"\n{board_text(board)}\n\n{textwrap.fill(sentence, width)}\n")
    report = write_report(runs, out / "report.html", [board]).resolve()
    print(f"Report: {report}")
    return report


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


def meaning(accuracies: Mapping[str, Accuracies], shift: int) -> str:
    """One sentence on the result; each claim in it is tested first."""
    blind, majority, newest, er = (
        accuracies[name] for name in ("blind", "majority", "newest", "er")
    )
    gain = blind.online - majority.online
    compared = f"{100 * gain:.1f} points above" if gain > 0 else "no more than"
    more = "even" if newest.online > blind.online else "no more than blind,"
    if er.loss < min(SMALL, blind.loss, newest.loss):
        replay = f"while er, which replays old photos, holds at {share(er.ahead)}"
    else:
        replay = f"and er, although it replays old photos, {_moved(er)}"
    if min(blind.loss, newest.loss) >= SMALL and newest.loss > er.loss:
        so = "so part of a high online accuracy can be the mere repetition of recent labels"
    else:
        so = "so here online accuracy did not mislead as it can"
    return (
        f"Online, blind is right {share(blind.online)} of the time without a look at any photo "
        f"({compared} always answering the most frequent label) and newest, trained hard on the "
        f"newest photos alone, {more} {share(newest.online)}; asked {shift} photos ahead, past "
        f"the reach of repeating labels, blind {_moved(blind)} and newest {_moved(newest)}, "
        f"{replay} (online {share(er.online)}): {so}."
    )


def _moved(learner: Accuracies) -> str:
    if learner.loss >= SMALL:
        verb = "falls to"
    elif learner.loss > 0:
        verb = "slips to"
    else:
        verb = "stays at" if learner.loss == 0 else "rises to"
    return f"{verb} {share(learner.ahead)}"
