"""The mutational fuzzer: inputs made from valid ones, each read by a forked worker with limits.

    python tests/fuzz/driver.py --inputs 1000000 --workers 2 --state build/fuzz.json

An input that takes longer than --limit seconds is a hang, and one that ends its worker is a crash.
Memory that grows by more than --memory megabytes with an input is a finding, too, as is every
exception other than `StreamgaugeError`. The state file holds the result, with the inputs of the
findings; the same command goes on where it stopped, with --seconds of time per call. The same
--seed makes the same inputs with the same versions of packages. --only TARGET --at NUMBER repeats
one, --unpack FOLDER writes those of the state file. The exit code is 1 if there is a finding.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import resource
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "src")]

from campaign import Campaign, Report, fast_folder, one_thread, unpacked  # noqa: E402

OUTCOMES = ("accepted", "refused", "traceback", "memory")
CEILING = 8 << 30  # bytes of memory of a worker, so that a finding does not end the machine


class Outcome(Exception):
    """What is wrong with an input."""


def try_input(target: Any, folder: Path) -> str:
    """ "accepted" or "refused"; raises `Outcome` with the kind and place of a finding."""
    from streamgauge.errors import StreamgaugeError

    try:
        target.run(folder)
    except StreamgaugeError as error:
        if not str(error).strip():
            raise Outcome("empty message") from error
        return "refused"
    except Exception as error:
        raise Outcome(signature(error)) from error
    return "accepted"


def signature(error: BaseException) -> str:
    """The type, and the last line of Streamgauge that it went through."""
    package = str(HERE.parents[1] / "src" / "streamgauge")
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(package)
    ]
    at = frames[-1] if frames else None
    where = f"{Path(at.filename).relative_to(package)}:{at.lineno}" if at else "outside"
    text = (str(error).splitlines() or [""])[0][:120]
    return f"{type(error).__name__} at {where}: {text}"


def peak() -> int:
    """The most memory that this process and its children had, in megabytes."""
    used = [resource.getrusage(who).ru_maxrss for who in
            (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]  # fmt: skip
    return max(used) // 1024


def work(name: str, start: int, stop: int, report: Report, base: Path, *,
         seed: int, memory: int) -> None:  # fmt: skip
    """In a worker: reads inputs start..stop-1."""
    import warnings

    from targets import TARGETS, in_folder, make_input

    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_DATA, (CEILING, CEILING))
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    target = TARGETS[name]

    for files in target.seeds():  # valid inputs first: what they load is no finding
        with in_folder(base, files) as folder:
            try_input(target, folder)
    before = peak()
    for number in range(start, stop):
        if not report.begin(number):
            return
        files = make_input(target, seed, number)
        with in_folder(base, files) as folder:
            try:
                report.note(try_input(target, folder), number)
            except Outcome as found:
                report.note("traceback", number, str(found), files)
        grown = peak() - before
        if grown > memory:
            report.note("memory", number, f"over {memory} MB: {grown} MB", files)
        # A fresh worker after much memory, and after a slow rise over many inputs.
        if grown > memory or (grown > memory // 4 and number % 2000 == 0):
            return


def prepare(targets: dict[str, Any]) -> None:
    """Imports, seeds and compiled code, once for all workers."""
    from targets import in_folder

    with (
        tempfile.TemporaryDirectory(prefix="fuzz-", dir=fast_folder()) as base,
        contextlib.redirect_stderr(io.StringIO()),  # what was guessed of each seed
    ):
        for target in targets.values():
            for files in target.seeds() if target.forks else ():
                with in_folder(Path(base), files) as folder:
                    try_input(target, folder)
    one_thread()


def quick(targets: list[Any], seed: int, count: int) -> int:
    """The same inputs without workers and limits, for a test that takes seconds."""
    from targets import in_folder, make_input

    found = 0
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=fast_folder()) as base:
        for target in targets:
            for number in range(count):
                with in_folder(Path(base), make_input(target, seed, number)) as folder:
                    try:
                        try_input(target, folder)
                    except Outcome as outcome:
                        print(f"{target.name} {number}: {outcome}")
                        found += 1
    print(f"{count * len(targets):,} inputs, {found:,} findings.")
    return 1 if found else 0


def repeat_failed() -> int:
    """Every input in `failed/`, each of which was a finding once; none may take 400 MB."""
    from targets import TARGETS, in_folder, read_files

    folders, found = sorted((HERE / "failed").iterdir()), 0
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=fast_folder()) as base:
        for one in folders:
            target = TARGETS[one.name.partition("-")[0].replace("_", " ")]
            before = peak()
            with in_folder(Path(base), read_files(one)) as folder:
                try:
                    try_input(target, folder)
                except Outcome as outcome:
                    print(f"{one.name}: {outcome}")
                    found += 1
            if one.name.partition("-")[2].startswith("memory") and peak() - before > 400:
                print(f"{one.name}: {peak() - before} MB")
                found += 1
    print(f"{len(folders)} inputs, {found} findings.")
    return 1 if found else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=1e9, help="time of this call")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=20.0, help="seconds per input")
    parser.add_argument("--memory", type=int, default=1000, help="megabytes per input")
    parser.add_argument("--only", help="targets, separated by commas")
    parser.add_argument(
        "--without", default="", help="targets left out, such as HDF5 where there is no h5py"
    )
    parser.add_argument("--at", type=int, help="repeat one input of --only, with its traceback")
    parser.add_argument("--quick", type=int, help="inputs per target, all in this process")
    parser.add_argument("--state", type=Path, help="result, and where to go on")
    parser.add_argument("--unpack", type=Path, help="write the inputs of findings into this folder")
    options = parser.parse_args()
    from targets import TARGETS, in_folder, make_input, write_files

    if options.at is not None:
        target = TARGETS[options.only]
        files = make_input(target, options.seed, options.at)
        with tempfile.TemporaryDirectory() as base, in_folder(Path(base), files) as folder:
            target.run(folder)
        return
    if options.unpack:
        for found in json.loads(options.state.read_text())["findings"]:
            name = f"{found['part'].replace(' ', '_')}-{found['kind']}-{found['numbers'][0]}"
            if found["input"]:
                write_files(options.unpack / name, unpacked(found["input"]))
        return
    names = options.only.split(",") if options.only else list(TARGETS)
    names = [name for name in names if name not in options.without.split(",")]
    if options.quick:
        sys.exit(quick([TARGETS[name] for name in names], options.seed, options.quick))
    targets = {name: TARGETS[name] for name in names}
    prepare(targets)
    whole = targets if options.only else TARGETS  # the others' shares stay without some targets
    total = sum(target.weight for target in whole.values())
    campaign = Campaign(
        {name: max(1, round(options.inputs * t.weight / total)) for name, t in targets.items()},
        lambda *given: work(*given, seed=options.seed, memory=options.memory), OUTCOMES,
        workers=options.workers, seconds=options.seconds, limit=options.limit,
        state=options.state, settings={"seed": options.seed, "inputs": options.inputs},
    )  # fmt: skip
    campaign.run()
    print(campaign.table("inputs"))
    sys.exit(1 if campaign.findings else 0)


if __name__ == "__main__":
    main()
