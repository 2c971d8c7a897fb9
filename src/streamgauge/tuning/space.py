"""What is searched: ranges and choices of a learner's settings, as plain text."""

from __future__ import annotations

import itertools
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

from streamgauge.catalogue import Recipe
from streamgauge.errors import StreamgaugeError, nearest
from streamgauge.settings import coerce

EDGE = 0.02  # of a range: this near to one of its ends, the best may well lie beyond
MOST_POINTS = 10_000  # of a grid


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def suggest(self, trial: Any, name: str) -> float:
        if self.whole:
            return int(trial.suggest_int(name, int(self.low), int(self.high), log=self.log))
        return float(trial.suggest_float(name, self.low, self.high, log=self.log))

    def points(self) -> list[Any] | None:
        """All values of a grid; None where there is no end of them."""
        return list(range(int(self.low), int(self.high) + 1)) if self.whole else None

    def end(self, value: Any) -> str:
        """Which end of the range a value lies at, if it does."""
        low, high, at = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        if high == low:
            return ""
        share = (at - low) / (high - low)
        return "lower" if share < EDGE else "upper" if share > 1 - EDGE else ""

    def __str__(self) -> str:
        return f"{'log:' * self.log}{self.low:g}:{self.high:g}"


@dataclass(frozen=True)
class Choice:
    """One of several values."""

    values: tuple[Any, ...]

    def suggest(self, trial: Any, name: str) -> Any:
        return trial.suggest_categorical(name, self.values)

    def points(self) -> list[Any] | None:
        return list(self.values)

    def end(self, value: Any) -> str:
        """Of a row of numbers, the ends are its smallest and largest."""
        numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in self.values)
        if not numbers or len(self.values) < 3:
            return ""
        return {min(self.values): "lower", max(self.values): "upper"}.get(value, "")

    def __str__(self) -> str:
        return ",".join(map(str, self.values))


Space = dict[str, Range | Choice]


def read(searches: Iterable[str] | Mapping[str, str], recipe: Recipe) -> Space:
    """From `NAME.SETTING=WHAT`, `learner.SETTING=WHAT` or `SETTING=WHAT` to what is searched.

    >>> from streamgauge import catalogue
    >>> space = read(["er.lr=log:0.001:0.1", "memory=100,500"], catalogue.learner("er"))
    >>> {name: str(searched) for name, searched in space.items()}
    {'lr': 'log:0.001:0.1', 'memory': '100,500'}
    """
    if isinstance(searches, Mapping):
        searches = [f"{name}={what}" for name, what in searches.items()]
    known = recipe.known_settings
    space: Space = {}
    for text in searches:
        name, equals, what = text.partition("=")
        if not equals or not what:
            raise StreamgaugeError(
                f"'{text}' is no search: write {recipe.name}.lr=log:0.001:0.1,"
                f" {recipe.name}.lr=0.1:0.9 or {recipe.name}.memory=100,500,2000."
            )
        owner, _, setting = name.rpartition(".")
        full = f"{recipe.name}.{setting}"
        if owner not in ("", "learner", recipe.name) or setting not in known:
            hint = nearest(name, [f"{recipe.name}.{setting}" for setting in known])
            raise StreamgaugeError(f"There is no setting '{name}' to search; {hint}")
        if setting in space:
            raise StreamgaugeError(f"{full} is searched twice: give one --search for it.")
        space[setting] = _read_one(what, known[setting], full)
    return space


def _read_one(what: str, kind: Any, name: str) -> Range | Choice:
    log = what.startswith("log:")
    parts = (what[4:] if log else what).split(":")
    if not log and len(parts) == 1:
        values = tuple(coerce(part, kind, name) for part in what.split(",") if part)
        if not values or len(set(values)) < len(values):
            raise StreamgaugeError(f"The choices of {name} must differ: '{what}'.")
        if any(not isinstance(v, (int, float, str, bool, type(None))) for v in values):
            raise StreamgaugeError(f"{name} is a list, and only single values can be searched.")
        return Choice(values)
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if float not in kinds and int not in kinds:
        raise StreamgaugeError(f"{name} is no number: list its values, as {name}=one,other.")
    number = float if float in kinds else int
    ends = [coerce(part, number, name) for part in parts]
    if len(ends) != 2 or not all(map(math.isfinite, ends)) or not ends[0] <= ends[1]:
        raise StreamgaugeError(f"'{what}' is no range of {name}: write LOW:HIGH or log:LOW:HIGH.")
    if log and ends[0] <= 0:
        raise StreamgaugeError(f"A range in the logarithm lies above 0, unlike '{what}' of {name}.")
    return Range(ends[0], ends[1], log, number is int)


def grid(space: Space) -> list[dict[str, Any]]:
    """Every combination."""
    axes = []
    for name, searched in space.items():
        points = searched.points()
        if points is None:
            raise StreamgaugeError(
                f"A grid needs values, and '{name}={searched}' is a range: list them, as"
                f" {name}=1,2,3, or take --sampler tpe."
            )
        axes.append(points)
    if math.prod(map(len, axes)) > MOST_POINTS:
        raise StreamgaugeError(f"The grid has more than {MOST_POINTS} points: take --sampler tpe.")
    return [dict(zip(space, point, strict=True)) for point in itertools.product(*axes)]


def at_the_end(space: Space, choice: Mapping[str, Any]) -> list[str]:
    """A sentence for every setting whose best value lies at an end of what was searched."""
    told = []
    for name, value in choice.items():
        end = space[name].end(value)
        if end:
            told.append(
                f"{name} = {short(value)} lies at the {end} end of {space[name]}: the best may lie"
                " beyond it."
            )
    return told


def short(value: Any) -> str:
    """
    >>> short(0.0598728574654861), short(2000), short("fifo")
    ('0.05987', '2000', 'fifo')
    """
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@cache
def published() -> dict[str, dict[str, Any]]:
    """The papers' searches: how, and under `search` what, by learner."""
    return tomllib.loads((Path(__file__).parent / "spaces.toml").read_text())


def like(name: str) -> dict[str, Any]:
    """How a paper searched."""
    known = published()
    if name not in known:
        raise StreamgaugeError(f"There is no search like '{name}'; {nearest(name, known)}")
    return known[name]


def ready_made(recipe: Recipe, paper: str | None) -> dict[str, str]:
    """What a paper searched for a learner; by default that of its preset, or the first there is."""
    learner = recipe.where.partition("@")[0]
    preset = recipe.name.partition("@")[2]
    papers = [paper] if paper else sorted(published(), key=lambda name: not preset.startswith(name))
    for name in papers:
        search: dict[str, str] | None = like(name)["search"].get(learner)
        if search is not None:
            return search
    where = f"of {paper} " if paper else ""
    raise StreamgaugeError(
        f"There is no ready-made search {where}for {recipe.name}: say what to search, as"
        f" --search {recipe.name}.lr=log:0.001:0.1."
    )
