"""The filter of a list of runs: `learner:er lr>0.01 status:running`. `filter.js` has the same rules
for pages without a server; the tests give both the same cases.

Terms are joined by "and". A term is a word that occurs in the run's names, or NAME:VALUE (equal,
whatever the case; `*` stands for anything, and commas separate alternatives), or NAME, one of
= != < <= > >=, and a value. A `-` in front turns a term around. Values with spaces stand in quotes.
A run that has no such setting matches no term on it, unless that is turned around.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from streamgauge.errors import StreamgaugeError, nearest

LONGEST = 1000  # characters
FREE = ("run", "stream", "learner", "seed", "status")  # what a word is looked for in
_TERM = re.compile(
    r'(?P<minus>-?)(?:(?P<name>[^\s"=<>!:]+)(?P<sign>:|!=|<=|>=|=|<|>))?'
    r'(?P<value>"[^"]*"|[^\s"]*)(?=\s|$)'
)


@dataclass(frozen=True)
class Term:
    """One condition; `name` is "" for a word that may occur anywhere."""

    name: str
    sign: str
    value: str
    inverted: bool = False

    def holds(self, facts: Mapping[str, Any]) -> bool:
        return self._plain(facts) != self.inverted

    def _plain(self, facts: Mapping[str, Any]) -> bool:
        if not self.name:
            return self.value.lower() in " ".join(text(facts.get(n)) for n in FREE).lower()
        fact = facts.get(self.name)
        if fact is None:
            return False
        if self.sign == ":":
            return any(_like(text(fact), one) for one in self.value.split(","))
        a, b = number(fact), number(self.value)
        if self.sign in ("=", "!="):
            both = not (math.isnan(a) or math.isnan(b))
            same = a == b if both else text(fact).lower() == self.value.lower()
            return same == (self.sign == "=")
        return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[self.sign]


def parse(given: str, names: Iterable[str]) -> tuple[Term, ...]:
    """The terms of a filter on runs that have these names of settings.

    >>> parse('er lr>0.01 -status:done', ["lr", "status"])[1]
    Term(name='lr', sign='>', value='0.01', inverted=False)
    """
    if len(given) > LONGEST:
        raise StreamgaugeError(f"A filter has at most {LONGEST:,} characters.")
    known, terms = list(names), []
    rest = given.strip()
    while rest:
        match = _TERM.match(rest)
        if match is None or not match[0]:
            raise StreamgaugeError(f"The filter cannot be read from {rest[:40]!r} on.")
        name, sign, value = match["name"] or "", match["sign"] or "", match["value"].strip('"')
        if name and not value:
            raise StreamgaugeError(f"{name}{sign} needs a value in the filter.")
        if sign in ("<", "<=", ">", ">=") and math.isnan(number(value)):
            raise StreamgaugeError(f"{name}{sign} needs a number in the filter, not {value!r}.")
        if name or value:
            terms.append(Term(_resolved(name, known), sign, value, bool(match["minus"])))
        rest = rest[match.end() :].lstrip()
    return tuple(terms)


def _resolved(name: str, known: list[str]) -> str:
    """A setting of the stream or the protocol may be named without the owner."""
    if not name:
        return ""
    for full in (name, f"stream.{name}", f"protocol.{name}"):
        if full in known:
            return full
    raise StreamgaugeError(f"No run has a setting '{name}'; {nearest(name, known)}")


def text(value: Any) -> str:
    """A value as filters read it, and as JSON writes it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def number(value: Any) -> float:
    """NaN for what is no number."""
    if isinstance(value, bool):
        return math.nan
    if isinstance(value, int | float):
        return float(value)
    plain = str(value)
    if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", plain, re.ASCII):
        return math.nan
    return float(plain)


def _like(value: str, pattern: str) -> bool:
    if number(value) == number(pattern):
        return True
    plain = re.sub(r"([?[])", r"[\1]", pattern.lower())  # only * stands for anything
    return fnmatchcase(value.lower(), plain)
