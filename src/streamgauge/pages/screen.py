"""Text on its way to a terminal or a page: nothing in it can act on what shows it.

Names of files, classes and learners may hold escape sequences, control characters and marks that
change the direction of text. `visible` writes them out. It is applied where text leaves the
program: by `Screen`, which replaces standard output and error for the time of a command, by
`console.SafeConsole`, whose own escape sequences (colours, progress bars) stay, and by pages.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from streamgauge.errors import StreamgaugeError

_KEPT = "\n\t"
_DIRECTION = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_ACTING = [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, 0xFEFF, *_DIRECTION]
_VISIBLE = {
    code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    for code in _ACTING
    if chr(code) not in _KEPT
}
_ON_PAGES = {code: f"[U+{code:04X}]" for code in _VISIBLE}  # a backslash has a meaning in scripts
# For terminals that have ASCII only; the rest is written as \uXXXX.
_PLAIN = {"−": "-", "–": "-", "—": "-", "─": "-", "━": "-", "×": "x", "·": "*", "…": "...",
          "→": "->", "±": "+/-", "≤": "<=", "≥": ">=", "≈": "~", "’": "'", "“": '"', "”": '"',
          "│": "|"}  # fmt: skip
ENCODING_ERRORS = "streamgauge.plain"


def visible(text: str) -> str:
    """The text with control characters, escape sequences and direction marks written out.

    >>> print(visible("a\\x1b[2Jb\\u202ec"))
    a\\x1b[2Jb\\u202ec
    """
    return text.translate(_VISIBLE)


def visible_on_page(value: Any) -> Any:
    """The same for all texts of a value of lists and dictionaries that a page shows.

    >>> visible_on_page({"name": ["a\\u202eb"]})
    {'name': ['a[U+202E]b']}
    """
    if isinstance(value, str):
        return value.translate(_ON_PAGES)
    if isinstance(value, dict):
        return {visible_on_page(name): visible_on_page(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [visible_on_page(item) for item in value]
    return value


def _plain(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end]
    plain = "".join(_PLAIN.get(c) or c.encode("ascii", "backslashreplace").decode() for c in text)
    return plain, error.end


codecs.register_error(ENCODING_ERRORS, _plain)


class NoReader(Exception):
    """Nobody reads the output any more, as after `| head`."""


class Screen:
    """Standard output or error of a command. What cannot be encoded is written in ASCII, and a
    failed write is one sentence."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw
        if hasattr(raw, "reconfigure"):
            raw.reconfigure(errors=ENCODING_ERRORS)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)

    def write(self, text: str) -> int:
        with _output_errors():
            self.raw.write(visible(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        with _output_errors():
            self.raw.flush()


@contextmanager
def _output_errors() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise NoReader from None
    except OSError as error:
        raise StreamgaugeError(
            f"The output cannot be written ({error.strerror or error}); what was stored in files "
            "before is kept."
        ) from None


def raw_stream(stream: Any) -> Any:
    """The stream behind a `Screen`, for output that moves the cursor on purpose."""
    return stream.raw if isinstance(stream, Screen) else stream
