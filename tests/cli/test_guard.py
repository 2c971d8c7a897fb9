"""Code that a folder names, git, what reaches a terminal, and the truth of error paths."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import streamgauge as sg
from helpers import rewrite
from streamgauge.catalogue import code_of_learner, untrusted
from streamgauge.pages.console import SafeConsole
from streamgauge.pages.screen import Screen, visible
from streamgauge.record.environment import git_state

BAD = "a\x1b]0;x\x07\x1b[2J\u202eb"  # a title, a bell, a cleared screen, a change of direction
ACTING = ("\x1b", "\x07", "\u202e", "\x9b")
LEARNER = """
open({mark!r}, "w").close()
class Mine:
    def __init__(self, spec, source, seed, device):
        self.classes = spec.classes
    def predict(self, x):
        import torch
        return torch.zeros(len(x), self.classes)
    def learn(self, batch, predicted):
        return {{}}
    def state_dict(self):
        return {{}}
    def load_state_dict(self, state):
        pass
"""
SMALL = ("--stream", "albums", "--stream.length", "200")


@pytest.fixture
def begun(call: Any, tmp_path: Path) -> tuple[Path, Path]:
    """An interrupted run of a learner in a file, and the mark that the file leaves."""
    mark = tmp_path / "executed"
    (tmp_path / "mine.py").write_text(LEARNER.format(mark=str(mark)))
    assert call("run", *SMALL, "--learner", "mine.py:Mine", "--steps", "3")[0] == 0
    mark.unlink()
    return next((tmp_path / "runs").iterdir()), mark


def edit(folder: Path, change: Any) -> None:
    """As a stranger would: with the checksum of the new content, and an id that cannot be checked
    since another version made it."""

    def altered(header: dict[str, Any]) -> dict[str, Any]:
        header["environment"]["streamgauge"] = "0.1"
        change(header["config"])
        text = json.dumps(header).replace("MINE", str(folder.parents[1] / "mine.py"))
        return dict(json.loads(text))

    rewrite(folder / "run.json", altered)


def test_resume_executes_only_what_the_command_line_names(
    call: Any, begun: tuple[Path, Path]
) -> None:
    folder, mark = begun
    for words in ((), ("--code", "other.py")):
        code, _, complaint = call("resume", "runs", *words)
        assert code == 2
        assert "names code of its own" in complaint
        assert "--code" in complaint
        assert not mark.exists()
    with pytest.raises(sg.StreamgaugeError, match="names code"):
        sg.resume("runs")
    assert not mark.exists()
    assert call("resume", "runs", "--code", "mine.py")[0] == 0
    assert sg.Run(folder).done


@pytest.mark.parametrize(
    "change",
    [
        lambda config: config["learner"].update(where="antigravity:X"),
        lambda config: config["learner"].update(where="er", name="a=MINE:X/"),
        lambda config: config["learner"].update(where="MINE"),
        lambda config: (
            config["learner"].update(where="er", name="er"),
            config["stream"].update(origin="MINE"),
        ),
    ],
)
def test_every_way_to_name_code_is_refused(
    call: Any, begun: tuple[Path, Path], change: Any
) -> None:
    folder, mark = begun
    edit(folder, change)
    before = set(sys.modules)
    code, _, complaint = call("resume", str(folder))
    assert code == 2
    assert "names code of its own" in complaint
    assert not mark.exists()
    assert "antigravity" not in set(sys.modules) - before


def test_a_study_executes_nothing_that_the_command_line_does_not_name(
    call: Any, tmp_path: Path
) -> None:
    mark = tmp_path / "executed"
    (tmp_path / "mine.py").write_text(LEARNER.format(mark=str(mark)))
    (tmp_path / "study").mkdir()
    study = {"stream": "blobs", "learner": f"Mine={tmp_path / 'mine.py'}:Mine", "name": "Mine",
             "given": {}, "choice": {"lr": 1}}  # fmt: skip
    (tmp_path / "study" / "study.json").write_text(json.dumps(study))
    code, _, complaint = call("run", "--tuned", "study")
    assert code == 2
    assert "names code" in complaint
    assert not mark.exists()


def test_what_is_code_and_what_is_trusted(tmp_path: Path) -> None:
    assert code_of_learner("river:forest.ARFClassifier") == ""
    assert code_of_learner("x=er") == ""
    assert code_of_learner("os:system") == "os"
    assert untrusted(["", str(tmp_path / "a.py")], ()) == [str(tmp_path / "a.py")]
    assert untrusted([str(tmp_path / "b" / ".." / "a.py")], [str(tmp_path / "a.py")]) == []
    assert untrusted(["os"], True) == []


# Git.


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    return subprocess.run(["git", *identity, *words], cwd=folder, check=True, text=True,
                          capture_output=True).stdout.strip()  # fmt: skip


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "a.txt").write_text("1")
    (tmp_path / "b.txt").write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    return tmp_path


def test_git_state_is_read_without_executing_what_a_repository_names(repository: Path) -> None:
    head = git(repository, "rev-parse", "HEAD")
    mark = repository.parent / f"{repository.name}-ran"
    hook = repository / "hook.sh"
    hook.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    hook.chmod(0o755)
    (repository / ".gitattributes").write_text("*.txt filter=evil diff=evil\n")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "two")
    head = git(repository, "rev-parse", "HEAD")
    for name in ("core.fsmonitor", "filter.evil.clean", "filter.evil.process", "diff.evil.textconv",
                 "diff.external", "core.sshCommand", "core.pager", "core.editor"):  # fmt: skip
        git(repository, "config", name, str(hook))
    git(repository, "config", "core.hooksPath", str(repository))
    for name in ("post-index-change", "fsmonitor-watchman"):
        (repository / ".git" / "hooks").mkdir(exist_ok=True)
        (repository / ".git" / "hooks" / name).write_text(hook.read_text())
        (repository / ".git" / "hooks" / name).chmod(0o755)
    (repository / "a.txt").write_text("22")
    os.utime(repository / "b.txt", (1, 1))  # touched: its content is compared
    subprocess.run(["git", "status"], cwd=repository, capture_output=True, check=False)
    assert mark.exists()  # it is armed
    mark.unlink()
    state = git_state(repository)
    assert not mark.exists()
    assert state == {"commit": head, "changed_files": 1}


def test_git_state_of_all_kinds_of_heads(repository: Path, monkeypatch: Any) -> None:
    head = git(repository, "rev-parse", "HEAD")
    (repository / "below").mkdir()
    assert git_state(repository / "below") == {"commit": head, "changed_files": 0}
    git(repository, "pack-refs", "--all")
    assert git_state(repository) == {"commit": head, "changed_files": 0}
    git(repository, "worktree", "add", "-q", "../tree-of-" + repository.name)
    assert git_state(repository.parent / ("tree-of-" + repository.name)) == {
        "commit": head, "changed_files": 0}  # fmt: skip
    git(repository, "checkout", "-q", "--detach")
    (repository / "new").write_text("")
    assert git_state(repository) == {"commit": head, "changed_files": 1}
    monkeypatch.setenv("PATH", "")
    assert git_state(repository) == {"commit": head, "changed_files": None}
    for text in ("ref: ../../secret", "ref: refs/heads/none", "nonsense", "ref: refs/x\0y"):
        (repository / ".git" / "HEAD").write_text(text)
        assert git_state(repository) is None
    assert git_state(Path("/")) is None


# Terminals.


def test_names_cannot_act_on_a_terminal(call: Any, begun: tuple[Path, Path]) -> None:
    folder, _ = begun
    edit(folder, lambda config: config["learner"].update(name=BAD))
    outputs = [
        call("score", "runs"),
        call("diff", str(folder), str(folder)),
        call("resume", "runs"),
        call("score", BAD),
        call("run", "--stream", BAD, "--learner", "er"),
        call("report", "runs"),
    ]
    for _, out, complaint in outputs:
        assert not any(c in out + complaint for c in ACTING)
    assert "\\x1b" in outputs[0][1]
    assert "\\u202e" in outputs[3][2]
    page = Path("report.html").read_text()
    shown = page[: page.index("<script")] + page[page.rindex("</script>") :]
    assert not any(c in shown for c in ACTING)
    assert "[U+202E]" in page
    assert "\\u202e" not in page.lower().replace("\\\\u202e", "")[-200_000:]


def test_a_console_keeps_its_own_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.text import Text

    out = io.StringIO()
    console = SafeConsole(file=out, force_terminal=True, color_system="standard", width=80)
    console.print(Text(BAD, style="red"))
    text = out.getvalue()
    assert text.startswith("\x1b[31m")
    assert "\\x1b[2J" in text
    assert "\u202e" not in text
    assert text.count("\x1b") == 2  # colour on and off
    monkeypatch.setattr(sys, "stdout", Screen(out))
    assert SafeConsole().file is out
    assert visible("tab\there\nü") == "tab\there\nü"


def command(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "streamgauge", *words], text=True, check=False,
                          timeout=300, **options)  # fmt: skip


def test_an_ascii_terminal_gets_the_results(call: Any, begun: tuple[Path, Path]) -> None:
    folder, _ = begun
    edit(folder, lambda config: config["learner"].update(name="größe"))
    for encoding in ("ascii", "latin-1"):
        raw = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        screen = Screen(raw)
        before, sys.stdout = sys.stdout, screen  # type: ignore[assignment]
        try:
            from streamgauge.report.terminal import scores_text

            print(scores_text([sg.Run(folder)]), "− … → 漢", flush=True)
        finally:
            sys.stdout = before
        text = raw.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]
        assert "- ... -> \\u6f22" in text
        assert "\\u2500" not in text
        assert ("gr\\xf6\\xdfe" if encoding == "ascii" else "größe") in text


# The truth of error paths.


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_no_success(begun: tuple[Path, Path]) -> None:
    folder, _ = begun
    with open("/dev/full", "w") as full:
        ended = command("score", str(folder), stdout=full, stderr=subprocess.PIPE)
    assert ended.returncode == 2
    assert "The output cannot be written" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.long
def test_a_reader_that_leaves_is_no_error(call: Any, begun: tuple[Path, Path]) -> None:
    folder, _ = begun
    reading, writing = os.pipe()
    os.close(reading)
    ended = command("score", str(folder), stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert ended.returncode == 141
    assert ended.stderr == ""


def test_a_report_on_a_full_disk_leaves_the_old_one(
    call: Any, begun: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("report.html").write_text("old")
    real = Path.write_text

    def full(self: Path, text: str, *args: Any, **named: Any) -> int:
        if "report.html" not in self.name:
            return real(self, text, *args, **named)
        real(self, text[: len(text) // 2], *args, **named)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    code, _, complaint = call("report", "runs")
    assert code == 2
    assert "Cannot write report.html: No space left on device" in complaint
    assert Path("report.html").read_text() == "old"
    assert not list(Path().glob("report.html.*"))


def test_a_folder_that_is_renamed_during_a_run_is_said(call: Any, tmp_path: Path) -> None:
    stream = sg.stream("albums", length=200)
    moved = tmp_path / "elsewhere"

    def move(loop: Any) -> None:
        if loop.step == 10:
            next((tmp_path / "runs").iterdir()).rename(moved)

    with pytest.raises(sg.StreamgaugeError, match=r"renamed or removed.*up to step \d+.*go on"):
        sg.run(stream, "ncm", out=tmp_path / "runs", progress=move, checkpoint=0, device="cpu")
    assert sg.Run(moved).step >= 9


@pytest.mark.long
def test_an_interrupt_says_what_is_kept(begun: tuple[Path, Path], tmp_path: Path) -> None:
    slow = LEARNER.replace("return {{}}", "import time; time.sleep(0.05); return {{}}", 1)
    (tmp_path / "slow.py").write_text(slow.format(mark=str(tmp_path / "started")))
    process = subprocess.Popen(
        [sys.executable, "-m", "streamgauge", "run", *SMALL, "--learner", "slow.py:Mine",
         "--checkpoint", "0", "--out", "slow"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until = time.monotonic() + 120
    while not list(tmp_path.glob("slow/*/progress.json")) and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=60)
    assert process.returncode == 130
    assert complaint.endswith("What was checkpointed is safe: run the same command to go on.\n")
    assert "Traceback" not in complaint
    (run,) = sg.find_runs([tmp_path / "slow"])
    assert run.step > 0


def test_ten_to_the_eleven_seeds_are_refused_at_once(call: Any) -> None:
    began = time.monotonic()
    code, _, complaint = call("run", *SMALL, "--learner", "er", "--seeds", str(10**11))
    assert code == 2
    assert "at most 100,000" in complaint
    for text in (str(10**11), f"0-{10**11}", str(10**30)):
        code, _, complaint = call("suite", "plan", "demo", "--seeds", text)
        assert code == 2
    assert time.monotonic() - began < 60


FAILING = LEARNER.replace(
    "import torch",
    """import torch
        self.asked = getattr(self, "asked", 0) + 1
        if self.asked > 6:
            raise {kind}("no more")""",
)


@pytest.mark.parametrize("kind", ["ValueError", "MemoryError", "torch.OutOfMemoryError"])
def test_one_failing_run_does_not_end_the_others(call: Any, tmp_path: Path, kind: str) -> None:
    (tmp_path / "mine.py").write_text(FAILING.format(mark=str(tmp_path / "m"), kind=kind))
    words = ("run", *SMALL, "--learner", "mine.py:Mine", "--learner", "ncm")
    code, out, complaint = call(*words)
    assert code == 3
    assert "no more" in complaint
    assert "ncm" in out
    assert "Mine, seed 0, is incomplete" in out
    assert "It failed: " in out
    runs = {run.learner: run for run in sg.find_runs("runs")}
    assert runs["ncm"].done
    assert "mine.py, line" in runs["Mine"].failure
    assert set(runs["Mine"].predictions["step"].tolist()) == set(range(6))  # all whole steps
    again = call(*words)  # starts again, without what the failed attempt had left
    assert again[0] == 3
    assert set(sg.Run(runs["Mine"].path).predictions["step"].tolist()) == set(range(6))
    code, out, complaint = call("resume", "runs", "--trust")
    assert code == 3
    assert "mine.py, line" in complaint
