"""Conditions for monitoring, such as ``near_future < blind + 2pt``, parsed without `eval`.

The grammar is comparisons of sums and products, joined by ``and`` and ``or``:

    condition  = comparison { ("and" | "or") comparison }      "and" binds tighter
    comparison = sum ("<" | "<=" | ">" | ">=" | "==" | "!=") sum
    sum        = product { ("+" | "-") product }
    product    = factor { ("*" | "/") factor }
    factor     = number ["pt" | "%"] | name | "-" factor | "(" sum ")"

Accuracies are fractions; ``2pt`` and ``2%`` both mean 0.02.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Mapping

from streamgauge.errors import StreamgaugeError, nearest

TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+\.?\d*(?:e[+-]?\d+)?|\.\d+)\s*(?P<unit>pts?\b|points?\b|%)?"
    r"|(?P<name>[A-Za-z_][A-Za-z_0-9]*)|(?P<sign><=|>=|==|!=|[<>+\-*/()]))"
)
COMPARE = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def holds(condition: str, values: Mapping[str, float]) -> bool:
    """Whether a condition is true of these values.

    >>> holds("near_future < blind + 2pt", {"near_future": 0.6, "blind": 0.59})
    True
    >>> holds("online > 90% or (online - blind) * 2 > 0.5", {"online": 0.8, "blind": 0.7})
    False
    """
    return _Parser(condition, values).read()


class _Parser:
    def __init__(self, condition: str, values: Mapping[str, float]) -> None:
        self.condition, self.values = condition, values
        self.tokens = self._split()
        self.position = 0

    def _split(self) -> list[tuple[str, float | None]]:
        tokens: list[tuple[str, float | None]] = []
        text, position = self.condition.rstrip(), 0
        while position < len(text):
            match = TOKEN.match(text, position)
            if not match:
                raise self._error(f"'{text[position:].split()[0]}' is unknown")
            if match["number"]:
                scale = 0.01 if match["unit"] else 1.0
                tokens.append((match[0].strip(), float(match["number"]) * scale))
            else:
                tokens.append((match["name"] or match["sign"], None))
            position = match.end()
        return tokens

    def _error(self, problem: str) -> StreamgaugeError:
        return StreamgaugeError(
            f"the condition '{self.condition}' cannot be parsed, {problem}: write it like "
            "'near_future < blind + 2pt'"
        )

    def _peek(self) -> str:
        return self.tokens[self.position][0] if self.position < len(self.tokens) else ""

    def _next(self) -> tuple[str, float | None]:
        if self.position >= len(self.tokens):
            raise self._error("it ends too early")
        self.position += 1
        return self.tokens[self.position - 1]

    def read(self) -> bool:
        result = self._all_of()
        while self._peek() == "or":
            self._next()
            other = self._all_of()
            result = result or other
        if self._peek():
            raise self._error(f"'{self._peek()}' is unexpected")
        return result

    def _all_of(self) -> bool:
        result = self._comparison()
        while self._peek() == "and":
            self._next()
            other = self._comparison()
            result = result and other
        return result

    def _comparison(self) -> bool:
        left = self._sum()
        sign = self._next()[0]
        if sign not in COMPARE:
            raise self._error(f"a comparison such as < is expected instead of '{sign}'")
        return bool(COMPARE[sign](left, self._sum()))

    def _sum(self) -> float:
        value = self._product()
        while self._peek() in ("+", "-"):
            sign = self._next()[0]
            other = self._product()
            value = value + other if sign == "+" else value - other
        return value

    def _product(self) -> float:
        value = self._factor()
        while self._peek() in ("*", "/"):
            sign = self._next()[0]
            other = self._factor()
            if sign == "/" and other == 0:
                raise self._error("it divides by zero")
            value = value * other if sign == "*" else value / other
        return value

    def _factor(self) -> float:
        text, number = self._next()
        if number is not None:
            return number
        if text == "-":
            return -self._factor()
        if text == "(":
            value = self._sum()
            if self._next()[0] != ")":
                raise self._error("a ) is missing")
            return value
        if not text[0].isalpha() and text[0] != "_":
            raise self._error(f"a number or a name is expected instead of '{text}'")
        return self._value(text)

    def _value(self, name: str) -> float:
        if name not in self.values:
            raise StreamgaugeError(
                f"the condition '{self.condition}' uses '{name}', which is no value of an audit: "
                f"{nearest(name, self.values)}"
            )
        value = self.values[name]
        if math.isnan(value):
            known = ", ".join(sorted(n for n, v in self.values.items() if not math.isnan(v)))
            raise StreamgaugeError(
                f"the condition '{self.condition}' cannot be evaluated, because {name} cannot be "
                f"computed from this log; known values are {known}"
            )
        return value
