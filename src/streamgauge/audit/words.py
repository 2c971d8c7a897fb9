"""The result of an audit in sentences."""

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


def with_interval(level: Level) -> str:
    """A level with its 95 % interval, as text."""
    if math.isnan(level.low):
        return percent(level.value)
    return f"{percent(level.value)} [{100 * level.low:.1f}, {100 * level.high:.1f}]"


def sentences(audit: Audit) -> list[str]:
    """The answers, in the order of the questions."""
    return [
        _label_sentence(audit),
        _shift_sentence(audit),
        *_model_sentences(audit),
        *_repeat_sentences(audit),
    ]


def _label_sentence(audit: Audit) -> str:
    steps = "" if audit.step <= 1 else f" in steps of {audit.step:,.3g} samples"
    return (
        f"A classifier that never looks at the input and answers with "
        f"{audit.family.name} is right {with_interval(audit.blind)} of the time{steps}; "
        f"the majority so far is right {percent(audit.levels.majority)}, the best constant "
        f"{percent(audit.levels.constant)} ({audit.samples:,} samples, {audit.classes:,} classes)."
    )


def _shift_sentence(audit: Audit) -> str:
    choice = audit.choice
    text = choice.reason[0].upper() + choice.reason[1:] + "."
    if choice.shift is not None and choice.periods:
        names = " and ".join(dict.fromkeys(p.name for p in choice.periods))
        text += f" The labels also have a period: {names}."
    return text


def _model_sentences(audit: Audit) -> list[str]:
    if "prediction" not in audit.columns:
        return [
            "There are no predictions in this log: it was audited as a stream of labels. Any "
            f"online accuracy reported on it should be read against {percent(audit.blind.value)}."
        ]
    parts = []
    if audit.online.samples:
        share = audit.share
        parts.append(
            f"The model's online accuracy is {with_interval(audit.online)}. After the first fifth "
            f"of the log, on which its window is chosen, the blind classifier alone reaches "
            f"{with_interval(share)} of it"
            + (
                ": nothing in this number shows that the model uses its input."
                if share.high >= 1
                else "."
            )
        )
        wrong = audit.where_blind_fails
        if wrong.samples:
            parts.append(
                f"On the {wrong.samples:,} samples that the blind classifier gets wrong, the model "
                f"is right {with_interval(wrong)} of the time."
            )
    if not audit.futures:
        parts.append(
            "Near-future accuracy cannot be computed from this log, because it does not say how "
            f"old the model was that gave each answer. Next time {RECORD}."
        )
        return parts
    choice, shift = audit.choice, audit.near_future_shift
    unit = "behind by" if audit.by == "shift" else "of age"
    text = (
        f"Near-future accuracy, of a model {unit} {shift:,.0f} samples"
        f"{' or more' if audit.by == 'age' else ''}, is {with_interval(audit.near_future)}; the "
        f"blind classifier gets {percent(audit.blind_shifted)} there."
    )
    if choice.shift is None or choice.unit != "samples":
        text += " Since no shift removes the correlation, this is the largest shift of the log."
    elif shift < choice.shift:
        text += (
            f" The log reaches no shift of {choice.in_words()}, so part of this is still label "
            "correlation."
        )
    return [*parts, text]


def _repeat_sentences(audit: Audit) -> list[str]:
    parts = []
    without = audit.without
    if without.blind_album.samples:
        parts.append(
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
        parts.append(
            "On the first sample of every album only, the model is right "
            f"{with_interval(without.online_first)} of the time."
        )
    for name, levels in audit.neighbours.items():
        short, everything = levels.levels[0], levels.levels[-1]
        parts.append(
            f"Inputs ({name}): the nearest neighbour among the last {levels.windows[0]:,.0f} is "
            f"right {with_interval(short)}, among all earlier inputs {with_interval(everything)}"
            + _compare(short.value - everything.value)
        )
    return parts


def _compare(gain: float) -> str:
    if gain > 0.01:
        return ": recent inputs do better than all, so the same inputs come again."
    if gain >= -0.01:
        return ": recent inputs alone do as well, so the same inputs come again."
    return "."
