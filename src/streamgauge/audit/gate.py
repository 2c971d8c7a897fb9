"""Conditions for monitoring, such as ``near_future < blind + 2pt``, parsed without `eval`.

The grammar is comparisons of sums and products, joined by ``and`` and ``or``:

    condition  = comparison { ("and" | "or") comparison }      "and" binds tighter
    comparison = sum ("<" | "<=" | ">" | ">=" | "==" | "!=") sum
               | ("known" | "unknown") "(" name ")"
    sum        = product { ("+" | "-") product }
    product    = factor { ("*" | "/") factor }
    factor     = number ["pt" | "%"] | name | "-" factor | "(" sum ")"

Accuracies are fractions; ``2pt`` and ``2%`` both mean 0.02.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

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


def holds(condition: str, values: Mapping[str, float], *, strict: bool = True) -> bool:
    """Whether a condition is true of these values.

    NaN is an unknown value. To compare with one is an error or, if not ``strict``, false.

    >>> holds("near_future < blind + 2pt", {"near_future": 0.6, "blind": 0.59})
    True
    >>> holds("online > 90% or (online - blind) * 2 > 0.5", {"online": 0.8, "blind": 0.7})
    False
    """
    return _Parser(condition, values, strict).read()


@cache
def _tokens(condition: str) -> tuple[tuple[str, float | None], ...]:
    """Names and signs of a condition, and its numbers with their values."""
    tokens: list[tuple[str, float | None]] = []
    text, position = condition.rstrip(), 0
    while position < len(text):
        match = TOKEN.match(text, position)
        if not match:
            raise _unparsable(condition, f"'{text[position:].split()[0]}' is unknown")
        if match["number"]:
            scale = 0.01 if match["unit"] else 1.0
            tokens.append((match[0].strip(), float(match["number"]) * scale))
        else:
            tokens.append((match["name"] or match["sign"], None))
        position = match.end()
    return tuple(tokens)


def _unparsable(condition: str, problem: str) -> StreamgaugeError:
    return StreamgaugeError(
        f"the condition '{condition}' cannot be parsed, {problem}: write it like "
        "'near_future < blind + 2pt'"
    )


class _Parser:
    def __init__(self, condition: str, values: Mapping[str, float], strict: bool) -> None:
        self.condition, self.values, self.strict = condition, values, strict
        self.tokens = _tokens(condition)
        self.position = 0

    def _error(self, problem: str) -> StreamgaugeError:
        return _unparsable(self.condition, problem)

    def _peek(self) -> str:
        return self.tokens[self.position][0] if self.position < len(self.tokens) else ""

    def _next(self) -> tuple[str, float | None]:
        if self.position >= len(self.tokens):
            raise self._error("it ends too early")
        self.position += 1
        return self.tokens[self.position - 1]

    def read(self) -> bool:
        result = self._fold(self._all_of, {"or": lambda a, b: a or b})
        if self._peek():
            raise self._error(f"'{self._peek()}' is unexpected")
        return bool(result)

    def _fold(self, operand: Callable[[], Any], operators: Mapping[str, Callable[..., Any]]) -> Any:
        """Operands joined by operators of equal precedence, evaluated from left to right."""
        value = operand()
        while self._peek() in operators:
            combine = operators[self._next()[0]]
            value = combine(value, operand())
        return value

    def _all_of(self) -> bool:
        return bool(self._fold(self._comparison, {"and": lambda a, b: a and b}))

    def _comparison(self) -> bool:
        if self._peek() in ("known", "unknown"):
            return self._known()
        left = self._sum()
        sign = self._next()[0]
        if sign not in COMPARE:
            raise self._error(f"a comparison such as < is expected instead of '{sign}'")
        return bool(COMPARE[sign](left, self._sum()))

    def _known(self) -> bool:
        function, bracket, name = (self._next()[0] for _ in range(3))
        if bracket != "(" or self._next()[0] != ")":
            raise self._error(f"{function} is followed by a name in brackets")
        return math.isnan(self._value(name)) == (function == "unknown")

    def _sum(self) -> float:
        return float(self._fold(self._product, {"+": operator.add, "-": operator.sub}))

    def _product(self) -> float:
        return float(self._fold(self._factor, {"*": operator.mul, "/": self._divide}))

    def _divide(self, a: float, b: float) -> float:
        if b == 0:
            raise self._error("it divides by zero")
        return a / b

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
        value = self._value(text)
        if math.isnan(value) and self.strict:
            known = ", ".join(sorted(n for n, v in self.values.items() if not math.isnan(v)))
            raise StreamgaugeError(
                f"the condition '{self.condition}' cannot be evaluated, because {text} cannot be "
                f"computed from this log; known values are {known}"
            )
        return value

    def _value(self, name: str) -> float:
        if name not in self.values:
            raise StreamgaugeError(
                f"the condition '{self.condition}' uses '{name}', which is no value of an audit: "
                f"{nearest(name, self.values)}"
            )
        return self.values[name]
