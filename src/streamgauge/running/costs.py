"""How fast a stream runs for a learner: costs by name, stream speeds, budgets, and the ER that may
spend as much.

A learner's *relative cost* c says what one of its training jobs costs, with one gradient step of ER
on the same network, batch and memory as 1. It is given as a number, or by name: `paper` is what the
real-time paper (Ghunaim et al. 2023) rounded it to, `measured` what `streamgauge cost` counts in
FLOPs. The speed of the stream turns it into the time that a job lasts in stream steps, which is
what the clock goes by:

    fast     as fast as ER trains       c steps per job
    faster   twice as fast              2 c steps per job (any number s: s c)
    slow     as slow as the method      1 step per job, so that every batch is trained
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple, get_args

from streamgauge import catalogue
from streamgauge.catalogue import Recipe
from streamgauge.cost.clock import Cost, as_cost, updates_within
from streamgauge.errors import StreamgaugeError, nearest
from streamgauge.learners.adapter import class_sees_input
from streamgauge.learners.behaviour import current_learner
from streamgauge.running.protocol import Protocol
from streamgauge.settings import setting_types
from streamgauge.streams import Stream

SPEEDS = {"fast": Fraction(1), "faster": Fraction(2), "slow": None}
NAMED = ("paper", "measured")
# What costs nothing is done within any step; a clock wants a job to last nevertheless.
LEAST = Fraction(1, 1000)
# A job's FLOPs depend on what is recalled, not on what else is remembered: a memory of more batches
# than this need not be filled to measure them.
FILLED = 50
# ER with another number of steps per batch: set by `steps`, not by `passes`.
STEPPED = ("er_plus", "er_minus")
# What a method shares with its ER if there is no ER in the experiment to take it from.
_SHARED = ("lr", "momentum", "weight_decay", "memory", "policy", "recall", "wait", "augment",
           "padding", "model", "weights", "head", "mean", "std")  # fmt: skip


class Relative(NamedTuple):
    """What a learner's job costs, a gradient step of ER being 1."""

    cost: Fraction  # 0 for what does not train
    by_kind: Mapping[str, Fraction] = {}  # where its jobs are of several kinds
    measured: bool = False

    def as_plain(self) -> dict[str, Any]:
        """As a run's configuration holds it."""
        kinds = {kind: str(cost) for kind, cost in self.by_kind.items()}
        return {"relative": str(self.cost), "by_kind": kinds}


Measure = Callable[[Recipe], Relative]


@dataclass(frozen=True)
class LearnerAtCost:
    """A learner with the protocol that its cost and the stream's speed lead to."""

    recipe: Recipe
    protocol: Protocol
    relative: Relative | None = None  # None where the experiment does not need it
    steps: Fraction | None = None  # of ER that the same compute a trained batch pays for
    baseline_of: tuple[str, ...] = ()
    like: str = ""  # the ER of the experiment that a baseline takes its settings from


@dataclass(frozen=True)
class CostRequest:
    """The options of an experiment about time and compute; None where not given."""

    cost: Cost | None = None
    speed: Cost | None = None
    budget: Cost | None = None
    gradient_steps: int | None = None
    baselines: bool = False
    # Stream steps per job of cost 1; None = slow.
    factor: Fraction | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.budget is not None:
            as_budget(self.budget)
            for other, name in ((self.speed, "speed"), (self.gradient_steps, "gradient steps")):
                if other is not None:
                    raise StreamgaugeError(
                        f"A budget and {name} cannot both be given: a budget says how many updates "
                        "every batch gets."
                    )
        if self.gradient_steps is not None and self.gradient_steps < 1:
            raise StreamgaugeError(f"gradient steps must be at least 1, not {self.gradient_steps}.")
        factor = None
        if self.speed is not None:
            factor = as_speed(self.speed)
        elif self.budget is None and (self.cost is not None or self.gradient_steps is not None):
            factor = SPEEDS["fast"]
        object.__setattr__(self, "factor", factor)

    def settings(self, recipe: Recipe, given: Mapping[str, Any]) -> dict[str, Any]:
        """A learner's settings with the requested number of gradient steps."""
        settings, name = dict(given), recipe.name
        if "passes" in given and (self.budget is not None or self.gradient_steps is not None):
            raise StreamgaugeError(
                f"{name}.passes and a budget or gradient steps both set the steps per batch"
                "; leave one of them out."
            )
        if self.gradient_steps is None:
            return settings
        settings["passes"] = _passes(recipe, self.gradient_steps)
        # With several steps per batch, replayed samples are chosen once (real-time paper).
        if "select" in recipe.known_settings:
            settings.setdefault("select", "batch")
        return settings

    def timed(
        self, recipe: Recipe, given: Mapping[str, Any], protocol: Protocol, measure: Measure
    ) -> LearnerAtCost:
        """A learner's recipe and protocol by its cost, which `given` may override."""
        cost = given.get("cost", self.cost) if takes_cost(recipe) else self.cost
        factor = self.factor
        if cost is not None and self.speed is None and self.budget is None:
            factor = SPEEDS["fast"]
        relative = None
        if factor is not None or self.budget is not None or self.baselines or cost is not None:
            relative = _relative(recipe, "paper" if cost is None else cost, measure)
        timed = protocol  # by default a job lasts one step
        if factor is not None and relative is not None:
            timed = _on_clock(protocol, relative, factor)
        elif self.speed is not None or self.budget is not None:
            timed = dataclasses.replace(protocol, cost="1", costs=())
        if relative is None:
            return LearnerAtCost(recipe, timed)
        steps = relative.cost
        if self.budget is not None and relative.cost:
            updates = _updates(recipe, as_budget(self.budget), relative.cost)
            if updates != getattr(recipe.config, "passes", 1):
                config = dataclasses.replace(recipe.config, passes=_passes(recipe, updates))
                recipe = dataclasses.replace(recipe, config=config)
            steps = as_budget(self.budget)
        return LearnerAtCost(recipe, timed, relative, steps)


def as_speed(speed: Cost) -> Fraction | None:
    """Stream steps that a job of cost 1 lasts; None for `slow`, where every job lasts one.

    >>> as_speed("faster"), as_speed("2"), as_speed("3x"), as_speed("slow")
    (Fraction(2, 1), Fraction(2, 1), Fraction(3, 1), None)
    """
    if isinstance(speed, str) and speed in SPEEDS:
        return SPEEDS[speed]
    try:
        return as_cost(speed.removesuffix("x") if isinstance(speed, str) else speed)
    except StreamgaugeError:
        hint = nearest(str(speed), SPEEDS)
        raise StreamgaugeError(
            f"There is no stream speed '{speed}'; {hint} Or give how many times as fast as ER the "
            "stream is, such as 2."
        ) from None


def as_budget(budget: Cost) -> Fraction:
    """Gradient steps of ER that every batch pays for."""
    try:
        return as_cost(budget)
    except StreamgaugeError:
        raise StreamgaugeError(
            f"A budget is a number of ER's updates per batch, such as 1, 5 or 10, not {budget!r}."
        ) from None


def takes_cost(recipe: Recipe) -> bool:
    """Whether LEARNER.cost is the cost of its job: not where the learner has such a setting."""
    return "cost" not in recipe.known_settings


def published(recipe: Recipe) -> Fraction:
    """The real-time paper's rounded cost of a method, at one or two gradient steps per batch.

    >>> published(catalogue.learner("mir"))
    Fraction(5, 2)
    >>> published(catalogue.learner("mir", passes=2, select="batch"))
    Fraction(7, 2)
    """
    name, about = recipe.name, catalogue.about(recipe.where)
    if recipe.where in STEPPED:
        return as_cost(recipe.config.steps)
    if "paper" not in about:
        raise StreamgaugeError(
            f"{name} has no published cost; measure it (--{name}.cost measured) or give a number "
            f"(--{name}.cost 3/2)."
        )
    passes = getattr(recipe.config, "passes", 1)
    if about["paper"] == "0" or passes == 1:
        return as_cost(about["paper"], zero=True)
    if passes == 2 and getattr(recipe.config, "select", "batch") == "batch":
        return as_cost(about["paper_two_steps"])
    steps = "2 steps with one selection per batch (--gradient-steps 2)" if passes == 2 else "1 or 2"
    raise StreamgaugeError(
        f"{name} takes {passes} gradient steps per batch, and its published costs are for {steps}; "
        f"measure it (--{name}.cost measured) or give a number."
    )


def measured(recipe: Recipe, stream: Stream) -> Relative:
    """What `streamgauge cost` counts for the run's own network, batch and memory (or one of 50
    batches, if that is smaller), past any warm-up. FLOPs, not seconds: those vary."""
    from streamgauge.running.job_cost import measure

    changes: dict[str, Any] = {}
    if hasattr(recipe.config, "warmup"):
        changes["warmup"] = 0
    if (getattr(recipe.config, "memory", 0) or 0) > FILLED * stream.size:
        changes["memory"] = FILLED * stream.size
    like = recipe
    if changes:
        like = dataclasses.replace(recipe, config=dataclasses.replace(recipe.config, **changes))
    spec = stream.spec
    shape, batch = tuple(spec.input_shape), stream.size
    recipes = [like]
    if getattr(like.config, "recall", None) == 0:
        # A learner without replay is compared with the ER that recalls as many as are new.
        same = {s: getattr(like.config, s) for s in ("model", "head", "augment")
                if hasattr(like.config, s)}  # fmt: skip
        recipes.append(catalogue.learner("er", memory=FILLED * batch, recall=batch, **same))
    cost, *er = measure(recipes, input_shape=shape, classes=spec.classes, batch=batch, timed=False)
    if math.isnan(cost.flops):
        if not class_sees_input(recipe.kind):
            return Relative(Fraction(0), measured=True)
        raise StreamgaugeError(
            f"The FLOPs of {recipe.name} are unknown, since only torch's can be counted; give its "
            f"cost as a number (--{recipe.name}.cost 0.5). `streamgauge cost` gives its seconds "
            "relative to er."
        )
    unit = er[0].flops * cost.relative_flops / cost.flops if er else 1.0
    kinds = cost.by_kind if len(cost.by_kind) > 1 else {}
    return Relative(
        as_cost(cost.relative_flops / unit, zero=True),
        {kind: as_cost(flops / unit, zero=True) for kind, flops in kinds.items()},
        measured=True,
    )


def stored(headers: Iterable[Mapping[str, Any]], recipe: Recipe, stream: Stream) -> Relative | None:
    """What was measured for an earlier run of the same learner on a stream of the same shape."""
    described, wanted = stream.describe(), recipe.describe(stream)
    for header in headers:
        config = header["config"]
        kept, learner = config.get("measured_cost"), current_learner(config["learner"])
        shape = ("input_shape", "classes", "step_size")
        same = all(learner[k] == wanted[k] for k in ("settings", "code", "weights"))
        same = same and all(header["stream"].get(k) == described[k] for k in shape)
        if same and kept is not None:
            kinds = {kind: as_cost(cost, zero=True) for kind, cost in kept["by_kind"].items()}
            return Relative(as_cost(kept["relative"], zero=True), kinds, measured=True)
    return None


def baselines(methods: Sequence[LearnerAtCost], texts: Mapping[str, str]) -> list[LearnerAtCost]:
    """ER++ and ER-- for every method of cost c, with the settings of the experiment's ER. ER++
    takes c gradient steps per batch without delay. ER-- is limited to the method's trained batches
    and versions, and takes c steps on each. What is equal is there once, under the names of all its
    methods; so where the method is not delayed there is ER++ only, and where a method costs as much
    as the experiment's ER, that ER is its baseline."""
    from streamgauge.learners.published.realtime import PATTERNS

    ers = [method for method in methods if method.recipe.where == "er"]
    by_settings: dict[tuple[Any, Protocol], LearnerAtCost] = {}
    for method in methods:
        steps, name = method.steps, method.recipe.name
        if not steps or method.recipe.where in STEPPED:
            continue
        if method.protocol.costs:
            raise StreamgaugeError(
                f"ER-- cannot follow {name}, whose jobs cost differently by kind; give it one cost "
                f"(--{name}.cost 2), or leave out baselines."
            )
        like = _er_of(method, ers)
        settings = _er_settings(method, like, texts[name])
        settings |= {"steps": str(steps), "passes": 1}
        if method.protocol.as_published:  # what the paper's code did goes with its clock
            settings["as_published"] = steps in PATTERNS
        config = catalogue.learner("er_plus", **settings).config
        undelayed = dataclasses.replace(method.protocol, cost="1", predict_cost="0")
        for kind, where, protocol in (
            ("er++", "er_plus", undelayed),
            ("er--", "er_minus", _plain_clock(method.protocol)),
        ):
            if any(_is_same(er, config, protocol) for er in ers):
                continue  # it stands there already, as ER
            known = by_settings.get((config, protocol))
            if known is not None:
                kind, _, _ = known.recipe.name.partition("(")
                where = known.recipe.where
            owners = tuple(dict.fromkeys((*(known.baseline_of if known else ()), name)))
            by_settings[config, protocol] = LearnerAtCost(
                catalogue.learner(f"{kind}({','.join(owners)})={where}", **settings),
                protocol,
                Relative(steps),
                steps,
                owners,
                "" if like is None else like.recipe.name,
            )
    return list(by_settings.values())


def _relative(recipe: Recipe, cost: Cost, measure: Measure) -> Relative:
    if cost == "paper":
        return Relative(published(recipe))
    if cost == "measured":
        return measure(recipe)
    try:
        return Relative(as_cost("" if isinstance(cost, bool) else cost))
    except StreamgaugeError as error:
        raise StreamgaugeError(f"{str(error)[:-1]}, nor is it paper or measured.") from None


def _on_clock(protocol: Protocol, relative: Relative, factor: Fraction) -> Protocol:
    """The protocol with the time that jobs last at a speed."""
    pairs = [text.split("=") for text in protocol.costs]
    kinds = {**relative.by_kind, **{kind: as_cost(cost) for kind, cost in pairs}}
    timed = dataclasses.replace(
        protocol,
        cost=str(factor * relative.cost or LEAST),
        costs=tuple(f"{kind}={factor * cost or LEAST}" for kind, cost in kinds.items()),
    )
    return timed if relative.cost else _plain_clock(timed)


def _updates(recipe: Recipe, budget: Fraction, cost: Fraction) -> int:
    updates = updates_within(budget, cost)
    if updates < 1:
        raise StreamgaugeError(
            f"A budget of {budget} of ER's updates per batch is too small for {recipe.name}: one "
            f"of its updates costs {cost} of them."
        )
    return updates


def _passes(recipe: Recipe, number: int) -> int:
    """So many gradient steps per batch, if the learner can be told."""
    name = recipe.name
    if recipe.where in STEPPED:
        raise StreamgaugeError(
            f"{name} takes its number of gradient steps from {name}.steps; leave it out, or give "
            "it in a command of its own."
        )
    if "passes" not in recipe.known_settings:
        raise StreamgaugeError(
            f"{name} has no setting 'passes', so it cannot take {number} steps per batch."
        )
    return number


def _er_of(method: LearnerAtCost, ers: Sequence[LearnerAtCost]) -> LearnerAtCost | None:
    """The experiment's ER, the one with the method's network and memory where there are several."""

    def unlike(er: LearnerAtCost) -> int:
        mine, its = er.recipe.config, method.recipe.config
        return sum(getattr(its, s, None) != getattr(mine, s) for s in ("model", "memory"))

    return min(ers, key=unlike, default=None)


def _er_settings(method: LearnerAtCost, like: LearnerAtCost | None, text: str) -> dict[str, Any]:
    """Settings of the ER of a method: those of the experiment's ER; else of the preset for ER that
    is named like the method's; else the method's own, as far as ER has them."""
    if like is not None:
        return dict(vars(like.recipe.config))
    _, _, preset = text.partition("@")
    known = catalogue.presets().get("er", {})
    for name in (preset, preset.removesuffix("-fast")):
        if name in known:
            return dict(known[name])
    er = setting_types(type(catalogue.learner("er").config))
    config = method.recipe.config
    shared = {name: getattr(config, name) for name in _SHARED if hasattr(config, name)}
    if shared.get("policy", "reservoir") not in get_args(er["policy"]):
        del shared["policy"]
    return shared


def _plain_clock(protocol: Protocol) -> Protocol:
    """Jobs that last less than a step are seen at the next one, as if they lasted the whole."""
    charged = protocol.costs or as_cost(protocol.predict_cost, zero=True)
    if charged or as_cost(protocol.cost) > 1:
        return protocol
    return dataclasses.replace(protocol, cost="1")


def _is_same(er: LearnerAtCost, config: Any, protocol: Protocol) -> bool:
    """Whether an ER of the experiment is this baseline: as many steps, at the same time."""
    settings = vars(er.recipe.config)
    return (
        str(settings["passes"]) == config.steps
        and all(
            getattr(config, name) == value for name, value in settings.items() if name != "passes"
        )
        and _plain_clock(er.protocol) == protocol
    )
