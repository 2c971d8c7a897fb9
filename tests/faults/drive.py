"""Faults at the n-th file operation of a run, a packing or a recording; then the same again.

    python tests/faults/drive.py --workers 2 --state build/faults.json   # all kinds, everywhere
    python tests/faults/drive.py --every 40 --kinds kill,eio --actions run

The state file holds the result; the same command goes on where it stopped (--seconds per call).
After each fault the same command goes on without one, and the result must equal that of an
undisturbed command. Prints a line per action and kind, and each kind of failure.

kill, kill-after  SIGKILL before or after the operation
half              SIGKILL in the middle of a write
short             a write that writes half and says so
eio               one operation fails with EIO
enospc, erofs     every operation from this one on fails
cut, strict       power cut: unsynced data are lost; strict: unsynced entries of folders, too
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from campaign import Campaign, Report, fast_folder, one_thread  # noqa: E402

ARMED = "FAULTS_LIBRARY"
NONE, KILL, KILL_AFTER, HALF, SHORT, FAIL, FAIL_FROM = range(7)
KINDS = {
    "kill": (KILL, 0), "kill-after": (KILL_AFTER, 0), "half": (HALF, 0), "short": (SHORT, 0),
    "eio": (FAIL, errno.EIO), "enospc": (FAIL_FROM, errno.ENOSPC),
    "erofs": (FAIL_FROM, errno.EROFS), "cut": (KILL, 0), "strict": (KILL, 0),
}  # fmt: skip


def compile_library(library: Path) -> Path | None:
    """The library, compiled; None where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or sys.platform != "linux":
        return None
    words = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(HERE / "faults.c")]
    subprocess.run([*words, "-ldl"], check=True)
    return library


def preloaded(script: Path, words: list[str], library: Path, **options: Any) -> Any:
    """Run a script of this folder with the library."""
    env = {**os.environ, "LD_PRELOAD": str(library), ARMED: str(library), "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, str(script), *words], env=env, check=False, **options)


def in_child(act: Callable[[], Any], output: Path, limit: float = 120.0) -> int:
    """Exit code of an act in a forked process: 0, 2 for a sentence, 3 for a traceback, negative for
    a signal; 124 if it did not end."""
    child = os.fork()
    if child == 0:
        code = 3
        try:
            # A file outside the folder, so that faults do not hit it.
            target = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(target, 1)
            os.dup2(target, 2)
            sys.stdout = os.fdopen(os.dup(1), "w")
            sys.stderr = os.fdopen(os.dup(2), "w")
            from streamgauge.errors import StreamgaugeError

            try:
                problem = act()
                code = 0 if not problem else 1
                print(problem or "", file=sys.stderr)
            except StreamgaugeError as error:
                code = 2
                print(error, file=sys.stderr)
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)
    end = time.monotonic() + limit
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return 124


class RunAction:
    """A run of 2 steps with a checkpoint after each."""

    def prepare(self, folder: Path) -> None:
        import streamgauge as sg
        from helpers import Spy, same_log, small_stream

        self.protocol = sg.Protocol(evaluate=5, shifts=(7,), cost="4/3")
        self.stream, self.spy, self.same = small_stream(2, held_out=0.1), Spy, same_log
        self.whole = self.act(folder)

    def act(self, folder: Path) -> Any:
        import streamgauge as sg

        return sg.run(
            self.stream, self.spy, protocol=self.protocol, out=folder / "runs", checkpoint=0,
            log=lambda _: None,
        )  # fmt: skip

    def again(self, folder: Path) -> str:
        run = self.act(folder)
        if not self.same(run, self.whole):
            return "another log"
        return "leftovers" if list(folder.rglob("*.part")) else ""


class PackAction:
    """A stream of 30 samples packed into 4 shards."""

    def prepare(self, folder: Path) -> None:
        import streamgauge as sg

        self.stream = sg.stream("blobs", per_class=3)
        self.whole = self.act(folder).fingerprint

    def act(self, folder: Path) -> Any:
        from streamgauge.streams.pack.packing import Packing, pack

        return pack(self.stream, folder / "out" / "packed", Packing(shard=8), workers=0)

    def again(self, folder: Path) -> str:
        from streamgauge.streams.pack.packed import verify

        if self.act(folder).fingerprint != self.whole:
            return "another pack"
        problems = verify(folder / "out" / "packed")
        return problems[0] if problems else ""


class RecordAction:
    """Calls of a recorder, with a commit after every few; the classes become known on the way."""

    CALLS = 24

    def prepare(self, folder: Path) -> None:
        self.act(folder)

    def _calls(self, folder: Path) -> int:
        """Calls in the log; an error if they are not the first ones, each once."""
        import streamgauge as sg

        path = folder / "out" / "mine"
        if not (path / "run.json").exists():
            return 0
        run = sg.Run(path)
        table, names = run.table("predictions"), run.header["stream"]["class_names"] or []
        assert len(set(names)) == len(names), names
        ids = table["id"].tolist() if table.rows else []
        assert ids == [f"id-{n}" for n in range(len(ids))], ids
        answers = [names[code] for code in table["prediction"]] if table.rows else []
        assert answers == [f"class {n // 5}" for n in range(len(ids))], (answers, names)
        return len(ids)

    def act(self, folder: Path) -> Any:
        import streamgauge as sg
        from streamgauge.record import recorder

        recorder.COMMIT_ROWS = 7
        first = self._calls(folder)
        with sg.Recorder(folder / "out" / "mine", stream="s", learner="l") as rec:
            for call in range(first, self.CALLS):
                rec.predict(f"id-{call}", f"class {call // 5}")
                (folder.parent / f"{folder.name}.returned").write_text(str(call + 1))

    def again(self, folder: Path) -> str:
        note = folder.parent / f"{folder.name}.returned"
        returned = int(note.read_text() or 0) if note.exists() else 0
        if not returned <= self._calls(folder) <= returned + 1:
            return f"{returned} calls returned, {self._calls(folder)} in the log"
        self.act(folder)
        return "" if self._calls(folder) == self.CALLS else "calls are missing"


ACTIONS = {"run": RunAction, "pack": PackAction, "record": RecordAction}


def power_cut(trace: str, shadow: Path, strict: bool) -> None:
    """Change the folder to what a disk may hold after a power cut."""
    undo: list[tuple[str, list[str]]] = []  # folder of the entry, operation
    synced: dict[str, int] = {}
    for line in trace.splitlines():
        _, op, path, other, value = line.split("\t")
        parent = os.path.dirname(other or path)
        if op in ("create", "mkdir", "rename", "unlink"):
            undo.append((parent, [op, path, other, value]))
        if op in ("create", "truncate"):
            synced[path] = 0
        elif op == "write":
            synced.setdefault(path, 0)
        elif op == "fsync":
            synced[path] = int(value)
        elif op == "rename":
            synced[other] = synced.pop(path, 1 << 60)
        elif op == "syncdir":
            undo = [entry for entry in undo if entry[0] != path]
    for path, size in synced.items():
        if os.path.isfile(path) and os.path.getsize(path) > size:
            os.truncate(path, size)
    for _, (op, path, other, value) in reversed(undo) if strict else ():
        kept = shadow / value
        if op == "create" and os.path.isfile(path):
            os.unlink(path)
        elif op == "mkdir":
            shutil.rmtree(path, ignore_errors=True)
        elif op == "rename" and os.path.exists(other):
            os.rename(other, path)
            if kept.exists():
                shutil.copy(kept, other)
        elif op == "unlink" and kept.exists() and os.path.isdir(os.path.dirname(path)):
            shutil.copy(kept, path)


def try_fault(action: Any, kind: str, number: int, folder: Path) -> str:
    """What went wrong; "" if nothing did."""
    library = ctypes.CDLL(os.environ[ARMED])
    shadow, trace, output = (folder.with_suffix(s) for s in (".shadow", ".trace", ".out"))
    folder.mkdir()
    shadow.mkdir()
    what, code = KINDS[kind]

    def act() -> None:
        target = os.open(trace, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        library.fault_arm(
            str(folder).encode(), str(shadow).encode(), target, ctypes.c_long(number), what, code
        )
        action.act(folder)

    problems = []
    ended = in_child(act, output)
    said = output.read_text()
    if ended in (3, 124) or "Traceback" in said:
        problems.append(f"traceback or hang ({ended}): {said[-3000:]}")
    if kind in ("cut", "strict"):
        power_cut(trace.read_text(), shadow, kind == "strict")
    ended = in_child(lambda: action.again(folder), output)
    said = output.read_text()
    if ended or "Traceback" in said:
        problems.append(f"then ({ended}): {said[-3000:]}")
    for path in (folder, shadow):
        shutil.rmtree(path, ignore_errors=True)
    return "; ".join(problems)


def operations(action: Any, folder: Path) -> int:
    """How many operations the action has."""
    library = ctypes.CDLL(os.environ[ARMED])
    folder.mkdir()
    output = folder.with_suffix(".out")

    def act() -> None:
        library.fault_arm(str(folder).encode(), b"", -1, ctypes.c_long(-1), NONE, 0)
        action.act(folder)
        print(library.fault_count())

    assert in_child(act, output) == 0, output.read_text()
    return int(output.read_text().split()[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--actions", default=",".join(ACTIONS))
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--every", type=int, default=1, help="try every N-th operation")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9, help="time of this call")
    parser.add_argument("--state", type=Path, help="result, and where to go on")
    parser.add_argument("--library", type=Path, help="faults.c compiled elsewhere")
    parser.add_argument("--compile", type=Path, help="only compile faults.c, to this file")
    chosen = parser.parse_args()
    if chosen.compile:
        sys.exit(0 if compile_library(chosen.compile) else "There is no C compiler here.")
    if ARMED not in os.environ:
        with tempfile.TemporaryDirectory() as folder:
            library = chosen.library or compile_library(Path(folder) / "faults.so")
            if library is None:
                sys.exit("There is no C compiler here, or this is not Linux.")
            sys.exit(preloaded(Path(__file__), sys.argv[1:], library.resolve()).returncode)
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="faults-", dir=fast_folder()) as folder:
        actions, plan = {}, {}
        for name in chosen.actions.split(","):
            action: Any = ACTIONS[name]()
            (Path(folder) / f"{name}-whole").mkdir()
            action.prepare(Path(folder) / f"{name}-whole")
            total = operations(action, Path(folder) / f"{name}-count")
            for kind in chosen.kinds.split(","):
                # A call that returned survives a power cut only after flush().
                if name != "record" or kind not in ("cut", "strict"):
                    actions[f"{name} {kind}"] = action
                    plan[f"{name} {kind}"] = -(-total // chosen.every)
        one_thread()

        def work(part: str, start: int, stop: int, report: Report, own: Path) -> None:
            for number in range(start, stop):
                if not report.begin(number):
                    return
                at, kind = 1 + number * chosen.every, part.partition(" ")[2]
                why = try_fault(actions[part], kind, at, own / f"{kind}-{number}")
                report.note("failed" if why else "identical", number, why)

        campaign = Campaign(
            plan, work, ("identical", "failed"), workers=chosen.workers, seconds=chosen.seconds,
            limit=300, block=40, state=chosen.state, settings={"every": chosen.every},
        )  # fmt: skip
        campaign.run()
        print(campaign.table("operations"))
    sys.exit(1 if campaign.findings else 0)


if __name__ == "__main__":
    main()
