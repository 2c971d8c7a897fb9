"""The result of an audit in sentences.

A sentence is data: a condition over the values of an audit, in the language of ``--fail-if``, and a
template. Of every group of sentences the first whose condition is true is printed. `python
docs/write_sentences.py` writes the same table into `docs/audit.md`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamgauge.audit.gate import holds
from streamgauge.history.durations import in_words

if TYPE_CHECKING:
    from streamgauge.audit.auditor import Audit

QUESTION = "whether the model uses its input beyond what past labels predict"
# What an album is in a log that has users and no column of albums.
ALBUMS = " (the log has no albums: consecutive samples of one user are taken as an album)"
WHAT_TO_RECORD = (
    "record, for every prediction, its shift or the model's age (how many of the newest earlier "
    "labels the model had not learnt: 0 if it had learnt all), and the answers of models of "
    "several shifts"
)


class Sentence(NamedTuple):
    """One sentence of a group; ``condition`` is empty where it is printed if no other one is."""

    section: str
    """Sentences of one section form a paragraph."""
    group: str
    name: str
    condition: str
    text: str


SENTENCES = (
    Sentence("answer", "answer", "no predictions", "predictions == 0 and unknown(added_bits)",
        "There are no predictions in this log, so it was audited as a stream of labels: read any "
        "accuracy on it against that of blind classifiers, {blind:%}."),
    Sentence("answer", "answer", "cannot tell: no bits", "unknown(added_bits)",
        f"Cannot tell {QUESTION}: the bits could not be computed for this log."),
    Sentence("answer", "answer", "cannot tell: nothing left", "remaining_bits < 2 * tolerance_bits",
        f"Cannot tell {QUESTION}: past labels leave only {{remaining_bits:b}} per sample to "
        "explain, less than twice the tolerance of {tolerance_bits:g} bits. Record answers at a "
        "larger shift, where past labels predict less."),
    Sentence("answer", "answer", "cannot tell: labels before answers", "early_labels > 1%",
        f"Cannot tell {QUESTION}: by the times in the log, {{early_labels:%}} of the labels were "
        "known before their own sample was answered. Check the columns of times."),
    Sentence("answer", "answer", "cannot tell: few blocks", "blocks < 20",
        f"Cannot tell {QUESTION}: the log has {{blocks:n}} independent blocks, and 20 are needed. "
        "Record about {more_rows:about} more rows."),
    Sentence("answer", "answer", "cannot tell: permuted inputs",
        "added_bits_low > tolerance_bits and permuted_bits_high >= added_bits_low",
        f"Cannot tell {QUESTION}: its answers add {{added_bits:b}} per sample, but the same "
        "learner with permuted inputs adds {permuted_bits:b}. It uses label history that none of "
        "the forecasters uses."),
    Sentence("answer", "answer", "yes",
        "added_bits_low > tolerance_bits and added_bits_low > placebo_bits_high",
        "Yes, the model uses its input beyond what past labels predict: its answers add "
        "{added_bits:b} per sample."),
    Sentence("answer", "answer", "no", "added_bits_high < tolerance_bits",
        "No, nothing shows that the model uses its input beyond what past labels predict: its "
        "answers add {added_bits:b} per sample, less than the tolerance of {tolerance_bits:g} "
        "bits."),
    Sentence("answer", "answer", "cannot tell: placebo", "added_bits_low > tolerance_bits",
        f"Cannot tell {QUESTION}: its answers add {{added_bits:b}} per sample, but answers made "
        "from past labels alone (the placebo) add {placebo_bits:b}."),
    Sentence("answer", "answer", "cannot tell: wide interval", "",
        f"Cannot tell {QUESTION}: its answers add {{added_bits:b}} per sample, and the interval "
        "contains the tolerance of {tolerance_bits:g} bits."),
    Sentence("answer", "more", "more rows", "undecided == 1 and more_rows <= 100 * samples",
        "About {more_rows:about} more rows would settle it."),
    Sentence("answer", "more", "too many rows", "undecided == 1 and known(more_rows)",
        "Not even 100 times as many rows would settle it: set another tolerance with "
        "--tolerance-bits."),
    Sentence("answer", "condition", "yes, if", "yes == 1",
        "This holds if every answer was given before its label, and before the labels of its own "
        "batch, were known. Label history that only other columns show is not excluded{missing}."),
    Sentence("answer", "shift of the answers", "answers at a shift",
        "predictions > 0 and answer_shift > 0",
        "The answers are {answer_shift:n} samples behind on average; they are compared with "
        "forecasts from the labels that were known then."),
    Sentence("answer", "late labels", "late labels", "late_labels > 0",
        "Labels arrive late: when a sample was answered, the labels of {late_labels:n} earlier "
        "samples on average had not arrived, and no forecaster uses them."),

    Sentence("history", "history", "history predicts nothing",
        "history_bits_high < tolerance_bits",
        "Past labels say next to nothing about a label: they save {history_bits:b} per sample of "
        "the {base_bits:b} that running class frequencies need."),
    Sentence("history", "history", "history predicts", "history_bits_low > 0",
        "Past labels alone save {history_bits:b} per sample of the {base_bits:b} that running "
        "class frequencies need; {remaining_bits:b} remain. {carriers}"),
    Sentence("history", "history", "history is unclear", "known(history_bits)",
        "Whether past labels predict a label is unclear: they save {history_bits:b} per sample of "
        "the {base_bits:b} that running class frequencies need."),
    Sentence("history", "placebo", "placebo", "known(placebo_bits)",
        "Answers made from past labels alone (the placebo) add {placebo_bits:b} per sample."),
    Sentence("history", "permuted", "permuted inputs", "known(permuted_bits)",
        "The same learner with inputs permuted against labels adds {permuted_bits:b} per sample."),

    Sentence("accuracy", "accuracy", "accuracy", "known(online) and known(online_scored)",
        "The model is right {online:%} of the time. After the first fifth of the log, on which "
        "blind classifiers are chosen, it is right {online_scored:p}, and blind classifiers (at "
        "the end: {family}) are right {blind:%}."),
    Sentence("accuracy", "accuracy", "accuracy, not scored", "known(online)",
        "The model is right {online:%} of the time. It gave no answer after the first fifth of the "
        "log, where blind classifiers are scored."),
    Sentence("accuracy", "accuracy", "blind accuracy", "",
        "After the first fifth of the log, on which they are chosen, blind classifiers (at the "
        "end: {family}) are right {blind:%} of the time."),
    Sentence("accuracy", "share", "blind is better", "share_low > 1",
        "So blind classifiers are right more often than the model."),
    Sentence("accuracy", "share", "blind is worse", "share_high < 1",
        "So blind classifiers reach {share:%} of the model's accuracy."),
    Sentence("accuracy", "share", "blind is as good", "share_low > 0.9 and share_high < 1.1",
        "So blind classifiers are right about as often as the model."),
    Sentence("accuracy", "share", "blind may be as good", "known(share_low)",
        "So this log does not show which of the two is right more often: the accuracy of blind "
        "classifiers is {share:%} of the model's."),
    Sentence("accuracy", "share", "share without an interval", "known(share)",
        "So the accuracy of blind classifiers is {share:p} of the model's; the log has too few "
        "blocks for an interval."),
    Sentence("accuracy", "references", "last label and majority",
        "last_label < blind or last_label > blind",
        "On the same samples the last known label is right {last_label:p} and the majority so far "
        "{majority:p}."),
    Sentence("accuracy", "references", "majority", "known(majority)",
        "On the same samples the majority so far is right {majority:p}."),
    Sentence("accuracy", "where", "where blind fails", "known(where_blind_fails)",
        "On the samples that blind classifiers get wrong, the model is right "
        "{where_blind_fails:%}; the most frequent label so far is right "
        "{where_blind_fails_constant:%} there, and a uniform guess {uniform:p}."),
    Sentence("accuracy", "kappa", "kappas", "known(kappa)",
        "Agreement beyond chance is {kappa:k} (kappa), beyond the last label {kappa_t:k} "
        "(kappa_t), beyond the majority {kappa_m:k} (kappa_m), combined {kappa_combined:k}."),

    Sentence("shift", "shift", "no help at any shift", "shift == 0",
        "At every examined shift, from 0 to {shift_largest:d}, past labels raise blind accuracy "
        "over the best constant by less than {tolerance:pt} (95 % upper bounds): there is nothing "
        "to shift away."),
    Sentence("shift", "shift", "correlation gone", "shift > 0",
        "The label correlation is gone from a shift of {shift:d} to {shift_largest:d}, the "
        "largest that was examined: at each of them past labels raise blind accuracy over the "
        "best constant by less than {tolerance:pt} (95 % upper bounds)."),
    Sentence("shift", "shift", "not gone", "known(excess_high) and excess >= tolerance",
        "No shift removes the label correlation: at {shift_largest:d}, the largest that was "
        "examined, past labels still raise blind accuracy over the best constant by {excess:pt}, "
        "and up to {excess_high:pt} are not excluded."),
    Sentence("shift", "shift", "not shown to be gone",
        "known(excess_high) and known(last_excess)",
        "No shift can be shown to remove the label correlation. The largest examined shift at "
        "which past labels raise blind accuracy over the best constant by {tolerance:pt} or more "
        "is {last_excess_shift:d} ({last_excess:pt}); at {shift_largest:d}, the largest of all, up "
        "to {excess_high:pt} are not excluded."),
    Sentence("shift", "shift", "not shown to be small", "known(excess_high)",
        "No shift can be shown to remove the label correlation, although none was detected: at "
        "{shift_largest:d}, the largest that was examined, an advantage of past labels of up to "
        "{excess_high:pt} is not excluded; the tolerance is {tolerance:pt}."),
    Sentence("shift", "shift", "too short for a shift", "",
        "No shift was examined: the log has too few blocks for any."),
    Sentence("shift", "labels", "more labels", "unknown(shift) and known(more_labels)",
        "About {more_labels:about} more labels would settle it."),
    Sentence("shift", "estimate", "estimated shift",
        "excess < tolerance and shift_estimate >= last_excess_shift and shift_high <= "
        "shift_largest",
        "By estimate the advantage falls below the tolerance at a shift of {shift_estimate:d} "
        "(95 % interval {shift_low:d} to {shift_high:d})."),
    Sentence("shift", "estimate", "estimated shift, open",
        "excess < tolerance and shift_estimate >= last_excess_shift and shift_estimate <= "
        "shift_largest",
        "By estimate the advantage falls below the tolerance at a shift of {shift_estimate:d} "
        "(95 % interval {shift_low:d} to beyond {shift_largest:d})."),
    Sentence("shift", "estimate", "estimated shift beyond",
        "excess >= tolerance and shift_estimate > shift_largest",
        "By estimate the advantage falls below the tolerance beyond {shift_largest:d} (95 % "
        "interval from {shift_low:d} on)."),
    Sentence("shift", "periods", "periods", "periods > 0", "Periods of the labels: {periods}."),
    Sentence("shift", "long periods", "long periods", "long_periods > 0",
        "Periods that the log is too short to exclude: {long_periods}."),

    Sentence("future", "future", "no near future", "predictions > 0 and unknown(near_future)",
        "Near-future accuracy cannot be computed from this log, because it does not say how old "
        f"the model was that gave each answer. Next time {WHAT_TO_RECORD}."),
    Sentence("future", "future", "near future, correlated", "near_future_shift < shift_samples",
        "Near-future accuracy, of a model {behind}, is {near_future:%}; blind classifiers reach "
        "{blind_shifted:p} there. The log has no shift of {shift:d} or more, so part of this "
        "is still label correlation."),
    Sentence("future", "future", "near future", "known(near_future) and known(shift_samples)",
        "Near-future accuracy, of a model {behind}, is {near_future:%}; blind classifiers reach "
        "{blind_shifted:p} there."),
    Sentence("future", "future", "near future, no shift", "known(near_future)",
        "Near-future accuracy, of a model {behind}, is {near_future:%}; blind classifiers reach "
        "{blind_shifted:p} there. No shift is shown to remove the correlation, so this is the "
        "largest shift of the log."),

    Sentence("repeats", "album", "other albums", "known(blind_other_album)",
        "Without the labels of the same album{albums}, {blind_other_album:%} of blind answers are "
        "right."),
    Sentence("repeats", "user", "other users", "known(blind_other_user)",
        "Without the labels of the same user, {blind_other_user:%} of blind answers are right."),
    Sentence("repeats", "first", "first of album", "known(online_first)",
        "On the first sample of every album, the model is right {online_first:%} of the time."),

    Sentence("inputs", "inputs", "recent inputs are better",
        "neighbour_recent > neighbour_all + 1pt",
        "Inputs ({neighbour}): the nearest neighbour among the last {neighbour_window:n} is right "
        "{neighbour_recent:%}, among all earlier inputs {neighbour_all:%}: recent inputs do better "
        "than all, so the same inputs come again."),
    Sentence("inputs", "inputs", "recent inputs are as good",
        "neighbour_recent >= neighbour_all - 1pt",
        "Inputs ({neighbour}): the nearest neighbour among the last {neighbour_window:n} is right "
        "{neighbour_recent:%}, among all earlier inputs {neighbour_all:%}: recent inputs alone do "
        "as well, so the same inputs come again."),
    Sentence("inputs", "inputs", "recent inputs are worse", "known(neighbour_all)",
        "Inputs ({neighbour}): the nearest neighbour among the last {neighbour_window:n} is right "
        "{neighbour_recent:%}, among all earlier inputs {neighbour_all:%}."),
)  # fmt: skip

# Answers that an interval leaves open: more rows settle them.
UNDECIDED = ("cannot tell: placebo", "cannot tell: wide interval")
# Those about inputs are printed once per way of searching neighbours.
ABOUT_LOG = tuple(s for s in SENTENCES if s.section != "inputs")


@dataclass(frozen=True)
class Findings:
    """What sentences are made of: the values of an audit (NaN: unknown), and words by name."""

    values: Mapping[str, float]
    words: Mapping[str, str]

    @property
    def answer_name(self) -> str:
        """The name of the sentence that answers the question of the audit."""
        return self.chosen()[0].name

    @property
    def answer(self) -> str:
        """Do the answers add to history: "yes", "no", "cannot tell", or "" without predictions."""
        name = self.answer_name.partition(":")[0]
        return "" if name == "no predictions" else name

    def chosen(self, among: Sequence[Sentence] = ABOUT_LOG) -> list[Sentence]:
        """The sentences that are printed: of each group the first whose condition is true."""
        chosen: dict[str, Sentence] = {}
        values = dict(self.values)
        for sentence in among:
            if sentence.group in chosen or not applies(sentence, values):
                continue
            chosen[sentence.group] = sentence
            if sentence.group == "answer":
                name = sentence.name
                values |= {"yes": name == "yes", "undecided": name in UNDECIDED}
        return list(chosen.values())

    def paragraphs(self, among: Sequence[Sentence] = ABOUT_LOG) -> dict[str, str]:
        """The sentences as text, one paragraph per section."""
        sections: dict[str, list[str]] = {}
        for sentence in self.chosen(among):
            sections.setdefault(sentence.section, []).append(self.say(sentence))
        return {section: " ".join(texts) for section, texts in sections.items()}

    def say(self, sentence: Sentence) -> str:
        """The text of a sentence."""
        return _Template(self).format(sentence.text).strip()


def findings(audit: Audit) -> Findings:
    """What the sentences of an audit are made of."""
    choice = audit.choice
    words = {
        "family": plain_name(audit.family.name, choice.periods),
        "carriers": _main_forecasters(audit),
        "missing": missing_columns(audit.columns),
        "albums": "" if "album" in audit.columns else ALBUMS,
        "unit": choice.unit,
        "periods": ", ".join(dict.fromkeys(p.name for p in choice.periods)),
        "long_periods": ", ".join(choice.long_periods),
        "behind": behind(audit.near_future_shift, audit.by),
    }
    return Findings(audit.values, words)


def paragraphs(audit: Audit) -> dict[str, str]:
    """The result in paragraphs, by section; the first answers the question of the audit."""
    sentences = findings(audit)
    inputs = [s for s in SENTENCES if s.section == "inputs"]
    texts: list[str] = []
    for name, neighbours in audit.neighbours.items():
        values: dict[str, float] = {"neighbour_window": float(neighbours.windows[0])}
        for part, level in (("recent", neighbours.levels[0]), ("all", neighbours.levels[-1])):
            ends = {"": level.value, "_low": level.low, "_high": level.high}
            values |= {f"neighbour_{part}{end}": value for end, value in ends.items()}
        texts += Findings(values, {"neighbour": name}).paragraphs(inputs).values()
    return sentences.paragraphs() | ({"inputs": " ".join(texts)} if texts else {})


def plain_name(name: str, periods: Sequence[Any] = ()) -> str:
    """A forecaster (see `streamgauge.history.forecasters`) in plain words.

    Forecasters that give the same answer have one name; a period of the labels has its own.

    >>> plain_name("the last label, rate by class"), plain_name("the label 48 samples back")
    ('the last label', 'the label 48 samples before')
    """
    name = re.sub(r"(the last label), rate .*", r"\1", name)
    name = name.replace("the most frequent label, half-life 0.5", "the last label")  # it outweighs
    name = name.replace("the usual follower of", "what follows")
    back = re.compile(r"(\d+) samples( back)?$")
    return back.sub(lambda m: _period(int(m[1]), periods) + (" before" if m[2] else ""), name)


def _period(length: int, periods: Sequence[Any]) -> str:
    for period in periods:
        if period.unit == "samples" and abs(period.length - length) <= 0.01 * length:
            return period.name if period.name[0].isdigit() else f"one {period.name}"
    return f"{length:,} samples"


class ForecasterWeight(NamedTuple):
    """Forecasters of one plain name: their mean weight, and their weight in parts of the stream."""

    name: str
    weight: float
    weights: NDArray[np.float64]


def forecaster_weights(audit: Audit) -> list[ForecasterWeight]:
    """What the mixture of forecasters relies on, the largest weight first."""
    together: dict[str, ForecasterWeight] = {}
    for expert in () if audit.bits is None else audit.bits.experts:
        name = plain_name(expert.name, audit.choice.periods)
        before = together.get(name, ForecasterWeight(name, 0.0, np.zeros(len(expert.weights))))
        weights = before.weights + np.asarray(expert.weights)
        together[name] = ForecasterWeight(name, before.weight + expert.weight, weights)
    return sorted(together.values(), key=lambda forecaster: -forecaster.weight)


def _main_forecasters(audit: Audit) -> str:
    named = [
        f"{c.name} ({100 * c.weight:.0f} %)"
        for c in forecaster_weights(audit)[:4]
        if c.weight >= 0.05
    ]
    if not named:
        return "No forecaster has more than a twentieth of the weight."
    return f"The forecasters with most of the weight: {', '.join(named)}."


def missing_columns(columns: Mapping[str, str]) -> str:
    """Which columns, if the log had them, would show more label history."""
    missing = [role for role in ("user", "album", "time") if role not in columns]
    return f" (columns that the log lacks: {', '.join(missing)})" if missing else ""


def behind(shift: float, by: str) -> str:
    """How old a model was."""
    if math.isnan(shift):
        return ""
    return f"{shift:,.0f} samples behind" + (" or more" if by == "age" else "")


def applies(sentence: Sentence, values: Mapping[str, float]) -> bool:
    """Whether the condition of a sentence is true."""
    return not sentence.condition or holds(sentence.condition, values, strict=False)


class _Template(Formatter):
    """Formats `{name:kind}`. % is a percentage with its interval, p one without; pt percentage
    points; b bits per sample with their interval; d an amount of samples and the time that they
    take; k a kappa; n a count; about a count to two digits. A word has no kind."""

    def __init__(self, findings: Findings) -> None:
        self.values, self.words = findings.values, findings.words

    def get_value(self, key: int | str, args: Any, kwargs: Any) -> Any:
        return key

    def format_field(self, value: Any, format_spec: str) -> str:
        name, known = str(value), self.values
        if not format_spec:
            return self.words[name]
        number = known[name]
        low, high = (known.get(f"{name}_{end}", math.nan) for end in ("low", "high"))
        match format_spec:
            case "%":
                return with_interval(number, low, high)
            case "p":
                return percent(number)
            case "b":
                return bits(number, low, high)
            case "pt":
                return f"{100 * number:.1f} points"
            case "d":
                return amount(number, self.words["unit"], known.get(f"{name}_seconds", math.nan))
            case "k":
                return "unknown" if math.isnan(number) else f"{number:.2f}"
            case "n":
                return f"{number:,.0f}" if number >= 10 else f"{number:.3g}"
            case "about":
                return f"{float(f'{number:.2g}'):,.0f}"
        return format(number, format_spec)


def percent(value: float) -> str:
    """A fraction as a percentage with one decimal; finer where it is tiny."""
    if math.isnan(value):
        return "unknown"
    return f"{100 * value:.2f} %" if 0 < abs(value) < 0.005 else f"{100 * value:.1f} %"


def with_interval(value: float, low: float, high: float) -> str:
    """A fraction with its 95 % interval."""
    if math.isnan(low):
        return percent(value)
    return f"{percent(value)} [{100 * low:.1f}, {100 * high:.1f}]"


def bits(value: float, low: float = math.nan, high: float = math.nan) -> str:
    """Bits with their 95 % interval.

    >>> bits(0.1234, 0.1, 0.15), bits(-0.0001)
    ('0.123 [0.100, 0.150] bits', '0.000 bits')
    """
    number, *ends = map(bit_number, (value, low, high))
    return f"{number} bits" if math.isnan(low) else f"{number} [{', '.join(ends)}] bits"


def bit_number(value: float) -> str:
    """A number of bits."""
    return f"{value:.3f}".replace("-0.000", "0.000")


def amount(value: float, unit: str, seconds: float = math.nan) -> str:
    """A shift in words: a number of samples, with its duration if that is known, or a duration."""
    if unit == "seconds":
        return in_words(value) if value else "0"
    text = f"{value:,.0f} sample{'' if value == 1 else 's'}"
    return text if math.isnan(seconds) else f"{text} (about {in_words(seconds)})"
