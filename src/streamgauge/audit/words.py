"""What an audit found, in sentences."""

from __future__ import annotations

import math

from streamgauge.audit.auditor import Audit
from streamgauge.audit.repeats import Level

RECORD = (
    "record, for every prediction, its shift (how many samples old the newest label was that the "
    "model had learnt) or the model's age, and the answers of models of several shifts"
)


def percent(value: float) -> str:
    """A fraction as a percentage with one decimal; finer where it is tiny."""
    if math.isnan(value):
        return "unknown"
    return f"{100 * value:.2f} %" if 0 < abs(value) < 0.005 else f"{100 * value:.1f} %"


def with_interval(found: Level) -> str:
    """A level with its 95 % interval."""
    if math.isnan(found.low):
        return percent(found.value)
    return f"{percent(found.value)} [{100 * found.low:.1f}, {100 * found.high:.1f}]"


def window_words(window: float) -> str:
    """Which labels the blind classifier looks at."""
    if math.isinf(window):
        return "the most frequent label so far"
    return (
        "the last label" if window == 1 else f"the most frequent of the last {window:,.0f} labels"
    )


def sentences(found: Audit) -> list[str]:
    """The answers, in the order of the questions."""
    return [s for s in (_labels(found), _shift(found), *_model(found), *_repeats(found)) if s]


def _labels(found: Audit) -> str:
    steps = "" if found.step <= 1 else f" in steps of {found.step:,.3g} samples"
    return (
        f"A classifier that never looks at the input and answers with "
        f"{window_words(found.window)} is right {with_interval(found.blind)} of the time{steps}; "
        f"the majority so far is right {percent(found.levels.majority)}, the best constant "
        f"{percent(found.levels.constant)} ({found.samples:,} samples, {found.classes:,} classes)."
    )


def _shift(found: Audit) -> str:
    choice = found.choice
    reason = choice.reason[0].upper() + choice.reason[1:] + "."
    text = f"There is no shift at which the label correlation is gone. {reason}"
    if choice.shift is not None:
        text = f"The label correlation is gone from a shift of {choice.in_words()} on. {reason}"
        if choice.shift == 0:
            text = reason
        if choice.periods:
            names = " and ".join(dict.fromkeys(p.name for p in choice.periods))
            text += f" The labels also have a period: {names}."
    known = [s.shift for s in choice.spans if s.shift is not None]
    # Short parts see less than the whole: they say something only where they see as much.
    if choice.shift and len(known) > 1 and choice.shift / 2 <= max(known) > 4 * max(1, min(known)):
        unit = "seconds" if choice.unit == "seconds" else "samples"
        text += (
            f" It drifts: in parts of the stream it lies between {min(known):,} and "
            f"{max(known):,} {unit}."
        )
    return text


def _model(found: Audit) -> list[str]:
    if "prediction" not in found.columns:
        return [
            "There are no predictions in this log: it was audited as a stream of labels. Any "
            f"online accuracy reported on it should be read against {percent(found.blind.value)}."
        ]
    said = []
    if found.online.samples:
        share = found.share
        said.append(
            f"The model's online accuracy is {with_interval(found.online)}. Behind the first fifth "
            f"of the log, on which its window is chosen, the blind classifier alone reaches "
            f"{with_interval(share)} of it"
            + (
                ": nothing in this number shows that the model uses its input."
                if share.high >= 1
                else "."
            )
        )
        wrong = found.where_blind_fails
        if wrong.samples:
            said.append(
                f"On the {wrong.samples:,} samples that the blind classifier gets wrong, the model "
                f"is right {with_interval(wrong)} of the time."
            )
    if not found.futures:
        said.append(
            "Near-future accuracy cannot be computed from this log, because it does not say how "
            f"old the model was that gave each answer. Next time {RECORD}."
        )
        return said
    choice, at = found.choice, found.near_future_shift
    what = "behind by" if found.by == "shift" else "of age"
    text = (
        f"Near-future accuracy, of a model {what} {at:,.0f} samples"
        f"{' or more' if found.by == 'age' else ''}, is {with_interval(found.near_future)}; the "
        f"blind classifier gets {percent(found.blind_shifted)} there."
    )
    if choice.shift is None or choice.unit != "samples":
        text += " Since no shift removes the correlation, this is the largest shift of the log."
    elif at < choice.shift:
        text += (
            f" The log reaches no shift of {choice.in_words()}, so part of this is still label "
            "correlation."
        )
    return [*said, text]


def _repeats(found: Audit) -> list[str]:
    said = []
    without = found.without
    if without.blind_album.samples:
        said.append(
            "With the same album left out the blind classifier is right "
            f"{with_interval(without.blind_album)} of the time"
            + (
                f", with the same user left out {with_interval(without.blind_user)}"
                if without.blind_user.samples
                else ""
            )
            + f" ({without.albums:,} albums"
            + (f", {without.users:,} users)." if without.users else ").")
        )
    if without.online_first.samples:
        said.append(
            "On the first sample of every album only, the model is right "
            f"{with_interval(without.online_first)} of the time."
        )
    for name, levels in found.neighbours.items():
        short, everything = levels.levels[0], levels.levels[-1]
        said.append(
            f"Inputs ({name}): the nearest neighbour among the last {levels.windows[0]:,.0f} is "
            f"right {with_interval(short)}, among all earlier inputs {with_interval(everything)}"
            + _compare(short.value - everything.value)
        )
    return said


def _compare(gain: float) -> str:
    if gain > 0.01:
        return ": recent inputs do better than all, so it is they that come again."
    if gain >= -0.01:
        return ": recent inputs alone do as well, so it is they that come again."
    return "."
