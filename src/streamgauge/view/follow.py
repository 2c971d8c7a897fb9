"""Run folders as they are now: status, progress and counts, from two threads that only read.

One thread looks at the folders every second; every file that is replaced changes the time of its
folder, so an unchanged run costs one `stat`. The other counts segments that were committed since.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamgauge.errors import StreamgaugeError
from streamgauge.files import open_regular, read_bytes
from streamgauge.metrics import score
from streamgauge.pages.units import duration
from streamgauge.record import Run
from streamgauge.record.heartbeat import NAME as HEARTBEAT
from streamgauge.record.heartbeat import STALLED, Heartbeat, read_heartbeat
from streamgauge.record.run import FAILED
from streamgauge.record.writer import read_header
from streamgauge.report.leaderboard import NEAR_FUTURE
from streamgauge.tables.commit import read_progress
from streamgauge.tables.journal import journal_path
from streamgauge.view.tally import RunTally

STATUSES = ("running", "done", "stalled", "failed", "stopped")
LOOK = 1.0  # seconds between two looks at the folders while pages are open
REST = 10.0  # while none is
OPEN = 60.0  # seconds after a request for which a page counts as open
RECENT = 2.0  # seconds: the times of files may be this coarse
SHARE = 0.1  # of one core, for logs that have to be read from the beginning each time
STUDY = "study.json"
MOST_FAILURE = 2000  # characters of a reason that are shown
Json = dict[str, Any]


@dataclass(eq=False)
class Followed:
    """A run folder, as it was at the last look."""

    number: int  # stays the same while the server runs
    folder: Path
    study: Path | None = None
    header: Json = field(default_factory=dict)
    progress: Json = field(default_factory=dict)
    beat: Heartbeat | None = None
    beat_seen: float = -math.inf  # monotonic time at which it was last seen to change
    failure: str = ""
    problem: str = ""  # why it cannot be read
    tally: RunTally = field(default_factory=lambda: RunTally(0))
    scores: dict[str, float] | None = None  # of a complete run, once they are known
    recorded: bool = False  # by a loop that is not ours
    stale: bool = False  # a recording that has to be counted again,
    due: float = -math.inf  # not before this monotonic time
    _stamps: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _counted: dict[str, Any] = field(default_factory=dict)  # checksums of counted segments
    _results: Json = field(default_factory=dict)  # of the log as it is
    _facts: Json = field(default_factory=dict)
    _read_at: tuple[int, float] = (-1, -math.inf)  # the folder's time, and when it was read

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def done(self) -> bool:
        return bool(self.progress.get("done")) and not (self.recorded and self._journal())

    @property
    def learner(self) -> Json:
        config: Json = self.header.get("config", {})
        learner: Json = config.get("learner", {"name": "?", "settings": {}})
        return learner

    def _journal(self) -> Path | None:
        """Of a recording that is open."""
        state = self.progress.get("recorder")
        file = journal_path(self.folder, state["journal"]) if state else None
        return file if file is not None and file.exists() else None

    def look(self, now: float) -> set[str]:
        """Read what has changed: which of "facts", "alive" and "log". A folder that is gone is a
        FileNotFoundError."""
        changed: set[str] = set()
        modified = os.stat(self.folder).st_mtime_ns
        known, when = self._read_at
        if modified == known and time.time() - when > RECENT + 1 and not self.recorded:
            return changed
        if modified != known:
            self._read_at = (modified, time.time())
        header_changed, log_changed = self._new("run.json"), self._new("progress.json")
        if header_changed or log_changed:
            changed |= self._read_log(header_changed)
        if self._new(HEARTBEAT):
            beat = read_heartbeat(self.folder)
            if beat is not None and self.beat is None:
                age = max(0.0, time.time() - (self.folder / HEARTBEAT).stat().st_mtime)
                self.beat_seen = now - age
            elif beat is not None:
                self.beat_seen = now
            self.beat = beat
            changed.add("alive")
        if self._new(FAILED):
            file = self.folder / FAILED
            self.failure = ""
            with suppress(OSError), open_regular(file) as opened:
                self.failure = opened.read(4 * MOST_FAILURE).decode(errors="replace")[:MOST_FAILURE]
            changed.add("alive")
        journal = self._journal() if self.recorded else None
        if journal is not None and self._new(journal.name):
            seen = now - max(0.0, time.time() - journal.stat().st_mtime)
            self.beat_seen, self.stale = max(self.beat_seen, seen), True
            changed |= {"alive", "log"}
        return changed

    def unreadable(self, problem: str) -> None:
        """Its folder cannot be read now: everything in it is read at the next look."""
        self.problem, self._read_at = problem, (-1, -math.inf)
        self._stamps.clear()

    def _new(self, name: str) -> bool:
        """Whether a file is not what it was when this was last asked."""
        try:
            about = os.stat(self.folder / name)
            stamp: tuple[int, ...] = (about.st_size, about.st_mtime_ns, about.st_ino)
        except FileNotFoundError:
            if name == "run.json":
                raise
            stamp = ()
        changed = self._stamps.get(name, ()) != stamp
        self._stamps[name] = stamp
        return changed

    def _read_log(self, header_changed: bool) -> set[str]:
        before = self.problem, self.done
        try:
            header = read_header(self.folder) if header_changed else self.header
            self.progress = read_progress(self.folder) or {}
            self.problem = ""
        except (StreamgaugeError, OSError) as error:
            self.problem = str(error)
            return {"facts", "alive", "log"}
        changed = {"log", "alive"}
        if header != self.header:
            self.header, self._facts = _shared(header), {}
            changed.add("facts")
        self.recorded = self.stale = "recorder" in self.progress
        files = self.progress.get("files", {})
        if any(files.get(name) != sums for name, sums in self._counted.items()):
            self._counted.clear()  # another log
        if not self._counted:
            self.tally = self._fresh()
        self.scores, self._results = None, {}
        return changed | ({"facts"} if before != (self.problem, self.done) else set())

    def _fresh(self) -> RunTally:
        config = self.header["config"]
        shifts = config["protocol"].get("shifts", ())
        return RunTally(int(self.header["stream"]["steps"] or 0), shifts, ages="live" in config)

    # Counts.

    @property
    def uncounted(self) -> int:
        """Segments that were committed and are not counted."""
        if self.problem or self.recorded:
            return 0
        return int(self.progress.get("segments", {}).get("predictions", 0)) - self.tally.segments

    def count(self) -> None:
        """Count the next segment; damage becomes the reason of a failure."""
        tally, progress = self.tally, self.progress
        segments = int(progress.get("segments", {}).get("predictions", 0))
        try:
            tally.read(self.folder, progress, segments)
        except (StreamgaugeError, OSError, ValueError) as error:
            if tally is self.tally and progress is self.progress:
                self.problem = str(error)  # not of a log that was replaced meanwhile
            return
        files = progress.get("files", {})
        counted = [n for n in files if n.startswith("log/predictions/")][: tally.segments]
        if tally is self.tally:
            self._counted = {n: files[n] for n in (*counted[:1], *counted[-1:])}

    def count_again(self, now: float) -> None:
        """Count a recording from its beginning: labels that came late belong to earlier rows."""
        start = time.process_time()
        tally, self.stale = self._fresh(), False  # what changes from here on is counted later
        try:
            table = Run(self.folder).predictions
            for piece in table.pieces(["step", "label", "prediction", "shift"]):
                tally.add(*(piece[name] for name in ("step", "label", "prediction", "shift")))
            self.tally = tally
        except (StreamgaugeError, OSError, ValueError, KeyError) as error:
            self.problem = str(error)
        self.due = now + (time.process_time() - start) / SHARE

    def score(self) -> None:
        """The scores of a complete run: those of answers from the counts, the others from the
        tables of evaluations, which are small."""
        scores: dict[str, float] = {}
        try:
            scores = score(_HeldOut(Run(self.folder)))
        except (StreamgaugeError, OSError, ValueError, KeyError) as error:
            self.problem = str(error)
        self.scores = {**scores, **self.so_far()}

    def so_far(self) -> dict[str, float]:
        """Accuracies of the answers that are counted."""
        tally = self.tally
        named = {0: "online_accuracy"} | {s: f"{NEAR_FUTURE}{s}" for s in tally.shifts if s}
        accuracies = {named[shift]: tally.accuracy(shift) for shift in tally.shifts}
        return {name: value for name, value in accuracies.items() if not math.isnan(value)}

    def result(self, name: str, compute: Callable[[], Any]) -> Any:
        """What is computed from the log of a complete run, once."""
        if name not in self._results:
            self._results[name] = compute()
        return self._results[name]

    def run(self) -> Run:
        """As leaderboards take it: scores and steps are those that are counted."""
        counted: Any = _IndexOfRun(self)
        return Run(self.folder, counted)

    # What is shown.

    def status(self, now: float) -> tuple[str, str]:
        """One of STATUSES, and its reason or ""."""
        if self.problem:
            return "failed", self.problem
        beat, silent = self.beat, now - self.beat_seen
        if beat is not None and silent <= STALLED and "live" in self.header["config"]:
            return "running", ""  # a service may go on after an orderly end
        if self.done:
            return "done", ""
        if self.recorded:
            if self._journal() is None:
                return "stopped", ""
            return ("running", "") if silent <= STALLED else (
                "stalled", f"no call was recorded for {duration(silent)}")  # fmt: skip
        if beat is not None:
            if silent <= STALLED:
                return "running", ""
            why = "its process has ended without a word, perhaps it was killed"
            if not beat.ended:
                why = f"process {beat.pid} on {beat.host} is stopped, hangs or is gone"
            return (
                "stalled",
                f"No heartbeat for {duration(silent)}: {why}. Repeat the command to continue.",
            )
        if self.failure:
            return "failed", self.failure
        return "stopped", "It ended before its stream did. Repeat the command to continue."

    def alive(self, now: float) -> Json:
        """Progress: small, and asked for every two seconds."""
        status, reason = self.status(now)
        beat = self.beat if status in ("running", "stalled") else None
        step = max(int(self.progress.get("step", 0)), beat.step if beat else 0)
        steps = (beat.steps if beat else 0) or int(self.header.get("stream", {}).get("steps") or 0)
        online = self.tally.accuracy(0)
        if beat is not None and beat.asked >= self.tally.asked():
            online = beat.right / beat.asked if beat.asked else math.nan
        left = beat.left if beat is not None and status == "running" else math.nan
        return {
            "status": status,
            "reason": reason,
            "step": step,
            "steps": steps,
            "online": None if math.isnan(online) else round(online, 5),
            "left": round(left) if math.isfinite(left) else None,
            "more": dict(beat.more) if beat is not None else {},
        }

    def facts(self) -> Json:
        """What filters ask for: names, and settings of learner, stream and protocol."""
        if self._facts:
            return self._facts
        config = self.header.get("config", {})
        stream = config.get("stream", {})
        facts: Json = {
            "run": self.name,
            "stream": self.header.get("stream", {}).get("name", "?"),
            "learner": self.learner["name"],
            "seed": config.get("seed"),
            "device": config.get("device"),
            "study": self.study.name if self.study else None,
            "trial": config.get("trial", {}).get("number") if self.study else None,
        }
        plain = dict(self.learner.get("settings") or {})
        plain |= {f"stream.{k}": v for k, v in (stream.get("settings") or {}).items()}
        plain |= {f"protocol.{k}": v for k, v in config.get("protocol", {}).items()}
        for name, value in plain.items():
            facts.setdefault(name, _flat(value))
        self._facts = facts
        return facts


class _IndexOfRun:
    """Stands for the index of a folder: the run's content and results, as far as they are known."""

    file = None

    def __init__(self, of: Followed) -> None:
        progress = of.progress or {"step": 0, "done": False, "segments": {}}
        self._of, self.content = of, {"header": of.header, "progress": progress}

    def entry(self, *_: Any) -> _IndexOfRun:
        return self

    def result(self, name: str, compute: Callable[[], Any], keep: bool = True) -> Any:
        if name == "score":
            return self._of.scores if self._of.scores is not None else self._of.so_far()
        if name.startswith("steps@"):
            return [values.tolist() for values in self._of.tally.steps(int(name[6:]))]
        return self._of.result(name, compute)

    def save(self) -> None:
        """Nothing is written."""


class _HeldOut:
    """The log of a run without its answers along the stream; of these only what says which tasks
    there were."""

    def __init__(self, run: Run) -> None:
        self.evaluations, self.answers, self.jobs = run.evaluations, run.answers, run.jobs
        table = run.predictions if run.stream["tasks"] else {}
        self.predictions: Mapping[str, Any] = _LazyColumns(table, ("task", "step", "label"))


class _LazyColumns(Mapping[str, Any]):
    """Some columns of a table, each read at its first use."""

    def __init__(self, table: Mapping[str, Any], names: Sequence[str]) -> None:
        self._table, self._names = table, [name for name in names if name in table]

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        return self._table[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class RunFollower:
    """All runs of some folders. `changed` counts changes of each kind, for ETags."""

    def __init__(
        self, paths: Sequence[str | Path], now: Callable[[], float] = time.monotonic
    ) -> None:
        self.paths = [Path(path) for path in paths]
        self.runs: dict[Path, Followed] = {}
        self.studies: dict[Path, Json] = {}
        self.boot = secrets.token_hex(4)
        self.changed = dict.fromkeys(("facts", "alive", "status", "log", "studies"), 0)
        self.now = now
        self.lock = threading.Lock()  # of `changed`
        self._asked = -math.inf  # when a page last asked
        self.error: Exception | None = None  # of a thread, which is ours
        self._numbers = itertools.count()
        self.statuses: dict[int, str] = {}  # of runs by number, at the last look
        self._states: dict[int, tuple[str, str]] = {}  # with their reasons
        self._stop, self._wake = threading.Event(), threading.Event()
        self._look = threading.Event()  # a page was opened
        self._threads: list[threading.Thread] = []
        self._study_stamps: dict[Path, int] = {}

    def touch(self) -> None:
        """A page has asked: look often from here on."""
        now = self.now()
        if now - self._asked >= OPEN:
            self._look.set()
        self._asked = now

    # Looks.

    def scan(self) -> None:
        """Look at all folders once."""
        now = self.now()
        changed: set[str] = set()
        runs: dict[Path, Followed] = {}
        studies: dict[Path, Json] = {}
        for folder, study in self._folders(studies):
            run = self.runs.get(folder) or Followed(next(self._numbers), folder, study)
            try:
                changed |= run.look(now)
            except FileNotFoundError:
                continue
            except OSError as error:
                run.unreadable(f"{folder} cannot be read: {error.strerror or error}.")
            runs[folder] = run
        if runs.keys() != self.runs.keys():
            changed |= {"facts", "alive", "log"}
        self.runs = runs  # as a whole: other threads read it
        states = {run.number: run.status(now) for run in self.runs.values()}
        if states != self._states:  # a reason says for how long, so it changes by itself
            self._states = states
            changed.add("alive")
        statuses = {number: status for number, (status, _) in states.items()}
        if statuses != self.statuses:
            self.statuses = statuses
            changed.add("status")
        if self._read_studies(studies):
            changed.add("studies")
        self.note(*changed)
        if "log" in changed or "facts" in changed:
            self._wake.set()

    def _folders(self, studies: dict[Path, Json]) -> Iterator[tuple[Path, Path | None]]:
        """Run folders, and the studies that they are trials of, which are added to `studies`."""
        for path in self.paths:
            if os.path.exists(path / "run.json"):
                yield path, None
                continue
            for folder in [path, *_folders_in(path)]:
                if folder in self.runs:
                    yield folder, None
                elif os.path.exists(folder / STUDY) or os.path.exists(folder / "study.db"):
                    studies[folder] = self.studies.get(folder, {})
                    for trial in _folders_in(folder / "trials"):
                        if trial in self.runs or os.path.exists(trial / "run.json"):
                            yield trial, folder
                elif folder != path and os.path.exists(folder / "run.json"):
                    yield folder, None

    def _read_studies(self, studies: dict[Path, Json]) -> bool:
        """Whether a study has changed, came or went."""
        changed = studies.keys() != self.studies.keys()
        for folder in studies:
            with suppress(OSError, ValueError, RecursionError):
                stamp = os.stat(folder / STUDY).st_mtime_ns
                if self._study_stamps.get(folder) != stamp:
                    self._study_stamps[folder] = stamp
                    read = json.loads(read_bytes(folder / STUDY))
                    studies[folder] = read if isinstance(read, dict) else {}
                    changed = True
        self.studies = studies  # as a whole: other threads read it
        return changed

    # Counts.

    def pending(self) -> list[Followed]:
        """Runs with something to count, those with the least first."""
        now = self.now()
        waiting = [
            run for run in self.runs.values()
            if run.uncounted > 0 or self._unscored(run)
            or (run.stale and not run.problem and run.due <= now)
        ]  # fmt: skip
        return sorted(waiting, key=lambda run: run.uncounted)

    def _unscored(self, run: Followed) -> bool:
        return run.done and run.scores is None and not run.problem and run.uncounted == 0

    def count(self, run: Followed) -> None:
        """The next piece of work for a run."""
        if run.recorded:
            before = run.tally.rows
            if run.stale:
                run.count_again(self.now())
            if run.done and not run.stale:
                run.score()
            if run.tally.rows != before or run.done:
                self.note("log")
            return
        if run.uncounted > 0:
            run.count()
        elif self._unscored(run):
            run.score()
        if run.uncounted <= 0 and not self._unscored(run):
            self.note("log")

    def note(self, *kinds: str) -> None:
        """What has changed, after it has."""
        with self.lock:
            for kind in kinds:
                self.changed[kind] += 1

    def count_all(self) -> None:
        """Until everything that is committed is counted."""
        while waiting := self.pending():
            for run in waiting:
                self.count(run)

    # Threads.

    def start(self) -> None:
        self.scan()
        for work in (self._keep_looking, self._keep_counting):
            thread = threading.Thread(target=self._guarded, args=(work,), daemon=True)
            thread.name = f"streamgauge-{work.__name__.strip('_')}"
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        self._stop.set()
        self._wake.set()
        self._look.set()
        for thread in self._threads:
            thread.join(5)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self.error = error

    def _keep_looking(self) -> None:
        while not self._stop.is_set():
            start = self.now()
            self.scan()
            took = self.now() - start
            is_open = self.now() - self._asked < OPEN
            self._look.wait(max(LOOK if is_open else REST, took / SHARE))
            self._look.clear()

    def _keep_counting(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            for run in self.pending():
                if self._stop.is_set():
                    return
                self.count(run)
            if not self.pending():
                self._wake.wait(REST)


def _folders_in(path: Path) -> list[Path]:
    try:
        with os.scandir(path) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [path / name for name in names if not name.startswith(".")]


_NAMES: dict[str, list[str]] = {}


def _shared(header: Json) -> Json:
    """The header, its names of classes shared with other runs: there may be thousands of both."""
    names = header["stream"].get("class_names")
    if names:
        header["stream"]["class_names"] = _NAMES.setdefault("\n".join(names), names)
    return header


def _flat(value: Any) -> Any:
    if isinstance(value, list):
        return ",".join(str(item) for item in value)
    return value if isinstance(value, int | float | str | None) else json.dumps(value)


def progress_text(alive: Mapping[str, Any]) -> str:
    """
    >>> progress_text({"status": "running", "step": 30, "steps": 120, "left": 90})
    'running, 25 %'
    """
    if alive["status"] == "done" or not alive["steps"]:
        return str(alive["status"])
    return f"{alive['status']}, {100 * alive['step'] // alive['steps']} %"
