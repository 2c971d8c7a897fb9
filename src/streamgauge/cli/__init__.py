"""The command `streamgauge`. Each command is a thin shell around a function of the library.

Exit codes: 0 success; 1 the answer is no (a check failed, two runs differ, a gate is shut);
2 the input is wrong or a file cannot be written, explained in one sentence; 3 a user's code or
Streamgauge itself failed; 130 interrupted; 141 nobody reads the output.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any, cast

import typer

from streamgauge.cli.audits import audit
from streamgauge.cli.comparing import compare, power
from streamgauge.cli.data import data, drift
from streamgauge.cli.exports import export
from streamgauge.cli.help import build
from streamgauge.cli.live import live
from streamgauge.cli.methods import check, cost, list_, pretrain
from streamgauge.cli.options import no_settings
from streamgauge.cli.runs import diff, report, resume, run, score, verify
from streamgauge.cli.suite import app as suite
from streamgauge.cli.suite import demo, realtime
from streamgauge.cli.tune import tune
from streamgauge.cli.view import view
from streamgauge.errors import StreamgaugeError, packages_for, users_line
from streamgauge.pages.screen import NoReader, Screen
from streamgauge.versions import VERSION

app = typer.Typer(
    help="Measure how well a model learns from a live stream, and whether the number can be "
    "believed.\n\nStart here:  streamgauge demo",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    demo,
    run,
    tune,
    realtime,
    pretrain,
    cost,
    live,
    view,
    resume,
    score,
    report,
    compare,
    power,
    export,
    diff,
    verify,
    drift,
):
    app.command()(command)
app.command("list")(list_)
app.command()(audit)
app.command()(check)
app.add_typer(data, name="data")
app.add_typer(suite, name="suite")

# `--er.lr 0.1` and `--er.lr=0.1`: a setting by its dotted name.
_DOTTED = re.compile(r"--([A-Za-z_][\w@-]*)((?:\.[\w-]+)+)(?:=(.*))?", re.DOTALL)

FAILED, INTERRUPTED, BROKEN_PIPE = 3, 130, 141  # exit codes
# Errors of disks and of limits, which no code can avoid.
_OF_THE_MACHINE = {errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT, errno.EMFILE, errno.ENFILE,
                   errno.EFBIG, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG}  # fmt: skip
RESUMABLE = {"demo", "run", "realtime", "resume", "suite", "tune"}  # commands
SHORT_SETTINGS = {"check", "live", "run", "tune"}  # commands where --lr is the learner's
CHECK_SETTINGS = {
    "check",
    "cost",
    "data",
    "drift",
    "live",
    "pretrain",
    "realtime",
    "run",
    "suite",
    "tune",
}


def main() -> None:
    """Entry point. All text goes through a `Screen`; exit code 0 means that all of it was
    written."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = Screen(before[0]), Screen(before[1])
    try:
        with _plain_warnings():
            code = _run_command()
        sys.stdout.flush()
    except NoReader:
        code = BROKEN_PIPE
    except StreamgaugeError as error:  # of the output itself
        with suppress(StreamgaugeError, NoReader):
            _complain(str(error))
        code = 2
    finally:
        sys.stdout, sys.stderr = before
    if code == BROKEN_PIPE or not _flushed():
        # Python would try again to write what is left, and fail with code 120.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if "torch" in sys.modules:
        from streamgauge.running.executors import torchrun

        if torchrun.launched():
            torchrun.leave(code)
    sys.exit(code)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """A block in which a warning of ours is shown as its sentence, once."""
    shown, usual = set[str](), warnings.showwarning

    def show(message: Any, category: Any, *where: Any) -> None:
        if not category.__module__.startswith("streamgauge."):
            usual(message, category, *where)
        elif str(message) not in shown:
            shown.add(str(message))
            print(message, file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = cast(Any, show)
        yield


def _flushed() -> bool:
    try:
        sys.stdout.flush()
    except OSError:
        return False
    return True


def _run_command() -> int:
    """Run the command; errors a user can mend become one sentence and exit code 2."""
    words: list[str] = []
    try:
        words, settings = split_settings(sys.argv[1:])
        command = build(app)
        words, short = _split_short(words, command)
        settings |= short
        with packages_for("This command"):
            code = command(
                args=words or ["--help"],
                obj=settings,
                prog_name="streamgauge",
                standalone_mode=False,
            )
    except StreamgaugeError as error:
        _complain(str(error))
        code = getattr(error, "exit_code", 2)
    except typer.Exit as stop:
        code = stop.exit_code
    except KeyboardInterrupt:
        code = INTERRUPTED
    except typer.Abort as stop:  # Typer makes an EOFError one, too: nobody interrupted that
        cause = stop.__cause__
        code = _explain_failure(cause) if isinstance(cause, EOFError) else INTERRUPTED
    except SystemExit as stop:  # in a learner's code; Typer's own ends the command
        if not _explain_user_failure(stop):
            raise
        code = FAILED
    except NoReader:
        raise
    except Exception as error:
        # Errors of the command line itself (an unknown option, a missing argument) come from the
        # parser with a sentence of their own.
        sentence = getattr(error, "format_message", None)
        if sentence is not None:
            _complain(f"{_plainly(sentence())}{_options_of(error)}")
            code = 2
        else:
            code = _explain_failure(error)
    if code == INTERRUPTED:  # whichever way: newer versions of Typer return it
        hint = " What was checkpointed is safe: run the same command to go on."
        _complain("Interrupted." + (hint if {*words[:1]} & RESUMABLE else ""))
    return code if isinstance(code, int) else 0


def _complain(sentence: str) -> None:
    print(f"streamgauge: {sentence}", file=sys.stderr)


def split_settings(arguments: list[str]) -> tuple[list[str], dict[str, str]]:
    """Take the dotted settings out of a command line.

    >>> split_settings(["run", "--er.lr", "0.1", "--seeds", "3", "--stream.batch=5"])
    (['run', '--seeds', '3'], {'er.lr': '0.1', 'stream.batch': '5'})
    """
    words: list[str] = []
    settings: dict[str, str] = {}
    rest = iter(arguments)
    for word in rest:
        match = _DOTTED.fullmatch(word)
        if match is None:
            words.append(word)
            continue
        owner, setting, value = match.groups()
        name = owner + setting.replace("-", "_")
        if value is None:
            value = next(rest, None)
        if value is None or value.startswith("--"):
            raise StreamgaugeError(f"--{name} needs a value.")
        settings[name] = value
    return words, settings


def _split_short(words: list[str], command: Any) -> tuple[list[str], dict[str, str]]:
    """Take options that a command does not have out of its words: they may be settings of its
    learner, such as `--lr 0.1`. A missing value is ""."""
    if not words or words[0] not in SHORT_SETTINGS:
        return words, {}
    known = _option_names(command.commands[words[0]])
    kept, short, rest = words[:1], {}, words[1:]
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if not re.fullmatch(r"--[A-Za-z][\w-]*", name) or name in known:
            kept.append(word)
            continue
        if not equals and rest and not rest[0].startswith("--"):
            value = rest.pop(0)
        short[name.removeprefix("--").replace("-", "_")] = value
    return kept, short


def _option_names(command: Any) -> set[str]:
    return {name for parameter in command.params for name in parameter.opts} | {"--help"}


# Patterns of the parser's sentences, and our sentences.
_PARSER_SENTENCES = (
    (r"Invalid value for '(.+?)': Input should be a valid integer.*", r"\1 must be a whole number"),
    (r"Invalid value for '(.+?)': Input should be a valid number.*", r"\1 must be a number"),
    (r"Invalid value for '(.+?)': Input should be greater than or equal to (\S+)",
     r"\1 must be at least \2"),
    (r"Invalid value for '(.+?)': Value error, '(.*?)' is not one of (.*)",
     r"\1 cannot be '\2'; it can be \3"),
    (r"Got unexpected extra argument(?:s|\(s\)|) \((.*)\)", r"Unexpected argument '\1'"),
)  # fmt: skip


def _plainly(sentence: str) -> str:
    """A sentence of the parser in our words."""
    for pattern, ours in _PARSER_SENTENCES:
        sentence = re.sub(pattern, ours, sentence, flags=re.DOTALL)
    return sentence if sentence.endswith("?") else f"{sentence.rstrip('.')}."


def _options_of(error: Any) -> str:
    """After a sentence about the command line: the options or commands there are, or how to see
    what is missing."""
    context = getattr(error, "ctx", None)
    if context is None:
        return ""
    commands = getattr(context.command, "commands", {})
    sentence = error.format_message()
    if sentence.startswith("No such command"):
        return "" if "?" in sentence else f" The commands are {', '.join(sorted(commands))}."
    if "unexpected extra argument" in sentence:
        usage = " ".join([context.command_path, *context.command.collect_usage_pieces(context)])
        return (
            f" Write `{usage}`; a name with spaces needs quotes, and a pattern such as er-s* is as"
            " many words as it matches."
        )
    if sentence.startswith("Missing"):
        return f" See `{context.command_path} --help`."
    if not getattr(error, "option_name", None):
        return ""
    names = sorted(n for n in _option_names(error.ctx.command) if n.startswith("--"))
    return f" The options of `{error.ctx.command_path}` are {', '.join(names)}."


def _explain_failure(error: Exception) -> int:
    """One sentence where a user's code or the machine failed; the whole traceback where ours did.
    Gives the exit code."""
    if _explain_user_failure(error):
        return FAILED
    if isinstance(error, OSError) and error.errno in _OF_THE_MACHINE:
        file = f"{error.filename}: " if error.filename else ""
        _complain(
            f"{file}{error.strerror}. What was checkpointed is kept: run the same command to go on "
            "when this is mended."
        )
        return 2
    if isinstance(error, MemoryError):
        _complain("There is not enough memory for this. What was checkpointed is kept.")
        return FAILED
    traceback.print_exception(error)
    _complain("The error above is one of Streamgauge itself: please report it with the command.")
    return FAILED


def _explain_user_failure(error: BaseException) -> bool:
    """Whether a user's code failed; if so, one sentence says where."""
    at = users_line(error)
    if at is None:
        return False
    why = f"{type(error).__name__}: {error}"
    _complain(f"{at.filename}, line {at.lineno}, in {at.name}: {why}\n    {at.line}")
    return True


@app.callback(invoke_without_command=True)
def _before_a_command(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"streamgauge {VERSION}")
        raise typer.Exit()
    if context.invoked_subcommand not in CHECK_SETTINGS:
        no_settings(context)
