"""What the page asks for, as JSON: the list of runs, their progress, and the tabs."""

from __future__ import annotations

import gzip
import json
import math
import threading
import time
import zlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from streamgauge.errors import StreamgaugeError
from streamgauge.pages import Page, Text
from streamgauge.pages.screen import visible_on_page
from streamgauge.view.follow import STATUSES, Followed, RunFollower
from streamgauge.view.query import parse
from streamgauge.view.studies import studies_page
from streamgauge.view.suites import ledger_page, suites_page
from streamgauge.view.tabs import Tabs

TABS = ("board", "stream", "compare", "studies", "suites")
# What a change of makes a part of the page new.
DEPENDS = {
    "alive": ("alive", "facts", "status", "log", "studies"),
    "runs": ("facts",),
    "board": ("facts", "status", "log"),
    "stream": ("facts", "status", "log"),
    "compare": ("facts", "status", "log"),
    "studies": ("facts", "status", "log", "studies"),
    "suites": ("facts", "log"),
    "ledger": (),
}
PAUSE = 10  # times as long as a tab took to make, it is not made again
KEPT = 64  # answers
COMPRESSED = 1400  # bytes from which an answer is compressed
LONGEST = 300  # characters of a name in a request


class PageAnswer(NamedTuple):
    tag: str
    body: bytes
    packed: bytes  # by gzip; empty for small ones


@dataclass
class _Made:
    answer: PageAnswer
    until: float  # monotonic time before which it is not made again
    lock: threading.Lock


class PageContent:
    """Answers by name and options, each made when something it depends on has changed, and not too
    often. May be called from several threads."""

    def __init__(self, follower: RunFollower, wait: bool = False, ledger: bool = False) -> None:
        self.follower, self.tabs, self.ledger = follower, Tabs(follower, wait), ledger
        self._made: OrderedDict[Any, _Made] = OrderedDict()
        self._lock = threading.Lock()

    def close(self) -> None:
        self.tabs.close()

    def tag(self, name: str, options: Mapping[str, str]) -> str:
        """The ETag of an answer, as it would be now."""
        follower = self.follower
        numbers = "-".join(str(follower.changed[kind]) for kind in DEPENDS[name])
        about = zlib.crc32(json.dumps([name, sorted(options.items())]).encode())
        return f'"{follower.boot}-{numbers}-{about:08x}"'

    def current(self, name: str, options: Mapping[str, str]) -> PageAnswer | None:
        """The answer that is still good, None where it has to be made."""
        made = self._made.get(_key(name, options))
        if made is None:
            return None
        fresh = made.answer.tag == self.tag(name, options)
        return made.answer if fresh or time.monotonic() < made.until else None

    def answer(self, name: str, options: Mapping[str, str]) -> PageAnswer:
        """The answer, made if need be; others that ask for it meanwhile wait."""
        key = _key(name, options)
        with self._lock:
            lock = self._made[key].lock if key in self._made else threading.Lock()
            waiting = self._made.get(key)
            if waiting is None:
                waiting = self._made[key] = _Made(PageAnswer("", b"", b""), -math.inf, lock)
            self._made.move_to_end(key)
            while len(self._made) > KEPT:
                self._made.popitem(last=False)
        with lock:
            known = self.current(name, options)
            if known is not None and known.body:
                return known
            start, tag = time.monotonic(), self.tag(name, options)
            waiting.answer = _packed(tag, self.value(name, options))
            took = time.monotonic() - start
            waiting.until = start + took + (PAUSE * took if name not in ("alive", "runs") else 0)
            return waiting.answer

    def value(self, name: str, options: Mapping[str, str]) -> Any:
        """The content of an answer, as plain values."""
        if name == "alive":
            return self.alive()
        if name == "runs":
            return self.runs()
        return self.tab(name, options)

    # The list.

    def alive(self, chosen: Sequence[Followed] | None = None) -> Any:
        """Progress of the runs, or those chosen, that are not complete, and what has changed."""
        now, follower = self.follower.now(), self.follower
        runs = list(follower.runs.values()) if chosen is None else chosen
        statuses = Counter(follower.statuses.get(run.number) for run in runs)
        done = {number for number, status in follower.statuses.items() if status == "done"}
        moving = {str(run.number): run.alive(now) for run in runs if run.number not in done}
        return {
            "changed": dict(follower.changed),
            "counts": {status: statuses[status] for status in STATUSES},
            "runs": visible_on_page(moving),
            "uncounted": sum(max(0, run.uncounted) for run in runs),
        }

    def runs(self, chosen: Sequence[Followed] | None = None) -> Any:
        """All runs, or those chosen, their facts by column: a column has one value, or values and
        their numbers."""
        now = self.follower.now()
        runs = self.chosen("") if chosen is None else chosen
        facts = [run.facts() for run in runs]
        names = dict.fromkeys(name for fact in facts for name in fact)
        columns = {name: _column([fact.get(name) for fact in facts]) for name in names}
        return {
            "numbers": [run.number for run in runs],
            "columns": visible_on_page(columns),
            "alive": visible_on_page([run.alive(now) for run in runs]),
            "tabs": [*TABS, *(["ledger"] if self.ledger else [])],
        }

    # Tabs.

    def chosen(self, filter_text: str) -> list[Followed]:
        """The runs that a filter lets through, by learner and seed."""
        runs = [run for run in self.follower.runs.values() if run.header or run.problem]
        if not filter_text.strip():
            return runs
        now = self.follower.now()
        names = {"status", "progress", "online", *(n for run in runs for n in run.facts())}
        terms = parse(filter_text, names)
        chosen = []
        for run in runs:
            alive = run.alive(now)
            share = alive["step"] / alive["steps"] if alive["steps"] else None
            facts = {**run.facts(), "status": alive["status"], "online": alive["online"]}
            if all(term.holds({**facts, "progress": share}) for term in terms):
                chosen.append(run)
        return chosen

    def tab(self, name: str, options: Mapping[str, str]) -> Any:
        if name == "ledger":
            return _titled(ledger_page())
        runs = self.chosen(options.get("filter", ""))
        if name == "compare":
            page, choices = self.tabs.compare_page(
                runs, options.get("a", "")[:LONGEST], options.get("b", "")[:LONGEST]
            )
            return {**_titled(page), "choices": visible_on_page(choices)}
        make: dict[str, Callable[[Sequence[Followed]], Page]] = {
            "board": self.tabs.board_page,
            "stream": self.tabs.stream_page,
            "studies": lambda runs: studies_page(self.follower, runs),
            "suites": suites_page,
        }
        try:
            return _titled(make[name](runs))
        except StreamgaugeError as error:  # of the runs, or a package that is missing
            return _titled(Page("", name, [Text(str(error), "warning")]))


def _titled(page: Page) -> Any:
    return {"title": visible_on_page(page.title), **page.fragment()}


def _key(name: str, options: Mapping[str, str]) -> Any:
    return name, tuple(sorted(options.items()))


def _packed(tag: str, value: Any) -> PageAnswer:
    body = json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    packed = gzip.compress(body, 5, mtime=0) if len(body) >= COMPRESSED else b""
    return PageAnswer(tag, body, packed)


def _column(values: list[Any]) -> Any:
    """
    >>> _column([1, 1]), _column(["a", "b", "a"])
    ({'all': 1}, {'values': ['a', 'b'], 'of': [0, 1, 0]})
    """
    distinct: dict[Any, int] = {}
    numbers = [distinct.setdefault((type(v), v), len(distinct)) for v in values]
    plain = [None if isinstance(v, float) and not math.isfinite(v) else v for _, v in distinct]
    return {"all": plain[0]} if len(plain) == 1 else {"values": plain, "of": numbers}
