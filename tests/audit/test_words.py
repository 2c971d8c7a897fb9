"""Sentences of an audit: they follow from the values, and none contradicts another."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgauge.audit import audit, holds
from streamgauge.audit.words import (
    ABOUT_LOG,
    SENTENCES,
    Findings,
    _Template,
    amount,
    bits,
    percent,
    plain_name,
)
from streamgauge.history.periods import Period

ROOT = Path(__file__).parents[2]
WORDS = {"family": "the label 24 back", "carriers": "Most of it comes from the last label.",
         "missing": " (the log has no column of users)", "unit": "samples", "periods": "day",
         "long_periods": "more than 500 samples", "behind": "64 samples behind", "albums": "",
         "neighbour": "next sample"}  # fmt: skip
POINTS = ("online", "online_scored", "blind", "last_label", "majority", "uniform",
          "near_future", "blind_shifted", "where_blind_fails", "where_blind_fails_constant",
          "blind_other_album", "blind_other_user", "online_first", "neighbour_recent",
          "neighbour_all")  # fmt: skip
nan = math.nan


@st.composite
def estimates(draw, least=0.0, most=1.0):
    """A value in an interval."""
    ends = sorted(draw(st.lists(st.floats(least, most), min_size=3, max_size=3)))
    return ends[1], ends[0], ends[2]


@st.composite
def findings(draw):
    """Values that an audit can have: what belongs together is known together."""
    values: dict[str, float] = {}

    def put(name, figure):
        values[name], values[f"{name}_low"], values[f"{name}_high"] = figure

    tiny = draw(st.sampled_from([0.05, 0.5, 3.0]))  # so that figures fall on both sides of limits
    put("history_bits", draw(estimates(-0.1 * tiny, tiny)))
    put("remaining_bits", draw(estimates(0, tiny)))
    values["base_bits"] = values["history_bits"] + values["remaining_bits"]
    values["base_bits_low"], values["base_bits_high"] = values["base_bits"], values["base_bits"]
    has_answers, has_permuted = draw(st.booleans()), draw(st.booleans())
    for name in ("added_bits", "placebo_bits", "permuted_bits"):
        known = has_answers and (name != "permuted_bits" or has_permuted)
        put(name, draw(estimates(-0.02, tiny)) if known else (nan, nan, nan))
    values["predictions"] = draw(st.integers(1, 10_000)) if has_answers else 0
    for name in POINTS:
        model = name in ("online", "online_scored", "near_future", "where_blind_fails",
                         "where_blind_fails_constant", "online_first")  # fmt: skip
        put(name, draw(estimates()) if has_answers or not model else (nan, nan, nan))
    if draw(st.booleans()):  # answers at a shift only
        put("online", (nan, nan, nan))
    if math.isnan(values["online"]) or draw(st.booleans()):
        values["online_scored"] = nan
        put("where_blind_fails", (nan, nan, nan))
    known_share = not math.isnan(values["online_scored"])
    put("share", draw(estimates(0, 3)) if known_share else (nan, nan, nan))
    kappas = ("kappa", "kappa_t", "kappa_m", "kappa_combined")
    values |= dict.fromkeys(kappas, 0.5 if has_answers else nan)
    largest = draw(st.integers(1, 5_000))
    shift = draw(st.one_of(st.just(nan), st.integers(0, largest)))
    values |= {"shift": shift, "shift_largest": largest, "tolerance": 0.02}
    low = draw(st.integers(0, largest))
    later = st.one_of(st.integers(low, 9_000), st.just(math.inf))
    estimate, high = sorted([draw(later), draw(later)])
    values |= {"shift_low": low, "shift_estimate": estimate, "shift_high": high}
    values["excess"] = draw(st.floats(-0.1, 0.019 if shift >= 0 else 0.5))
    values["last_excess"] = draw(st.sampled_from([nan, 0.3]))
    values["last_excess_shift"] = 7 if values["last_excess"] > 0 else nan
    values["excess_high"] = draw(st.floats(0.02, 1)) if math.isnan(shift) else nan
    if math.isnan(shift) and draw(st.booleans()):  # too short a log
        values |= dict.fromkeys(("shift_largest", "shift_low", "shift_estimate", "shift_high",
                                 "excess_high"), nan)  # fmt: skip
    values["shift_samples"] = draw(st.sampled_from([nan, shift]))
    values["more_labels"] = draw(st.sampled_from([nan, 25_000.0]))
    if draw(st.booleans()) or not has_answers:
        put("near_future", (nan, nan, nan))
    values["near_future_shift"] = nan if math.isnan(values["near_future"]) else 64
    values |= {"tolerance_bits": draw(st.sampled_from([0.02, 0.1])), "samples": 20_000,
               "blocks": draw(st.floats(2, 60)), "more_rows": draw(st.floats(1, 1e8)),
               "answer_shift": draw(st.sampled_from([0, 50])), "late_labels": draw(st.floats(0, 9)),
               "early_labels": draw(st.sampled_from([0.0, 0.005, 0.5])),
               "unlabelled": draw(st.integers(0, 3)), "periods": draw(st.integers(0, 2)),
               "long_periods": draw(st.integers(0, 1)), "neighbour_window": 10}  # fmt: skip
    return Findings(values, WORDS)


@settings(max_examples=250, deadline=None)
@given(findings())
def test_no_two_sentences_contradict_each_other(found):
    values, names = found.values, [s.name for s in found.chosen()]
    text = "\n".join(found.paragraphs().values())
    first = text.split(". ")[0]
    assert not re.search(r"nan|unknown|inf\b|[{}]", text), text
    assert len(names) == len({s.group for s in found.chosen()})  # one sentence per group

    # The first sentence answers the question, and nothing after it gives another answer.
    starts = {"yes": "Yes", "no": "No,", "cannot tell": "Cannot tell", "": "There are no"}
    assert first.startswith(starts[found.answer])
    others = [start for answer, start in starts.items() if answer != found.answer]
    assert not any(re.search(rf"(^|\. |\n){start}", text) for start in others)
    tolerance = values["tolerance_bits"]
    if found.answer == "yes":
        assert values["added_bits_low"] > max(tolerance, values["placebo_bits_high"])
        assert values["remaining_bits"] >= 2 * tolerance
        assert values["blocks"] >= 20
        assert not values["permuted_bits_high"] >= values["added_bits_low"]
        assert "nothing shows" not in text
        assert "if every answer was given before its label" in text
    if found.answer == "no":
        assert values["added_bits_high"] < tolerance
        assert "nothing shows" in text
        assert "if every answer" not in text
    assert ("more rows" in text or "another tolerance" in text or "Record" in text) <= (
        found.answer == "cannot tell"
    )
    assert (found.answer == "") == (values["predictions"] == 0)

    # The shift.
    gone = not math.isnan(values["shift"])
    assert ("correlation is gone" in text) == (gone and values["shift"] > 0)
    assert ("nothing to shift away" in text) == (gone and values["shift"] == 0)
    unsure = "No shift can be shown" in text or "No shift removes" in text
    assert unsure == (not gone and values["excess_high"] > 0)
    assert ("although none was detected" in text) <= (not values["last_excess"] > 0)
    assert ("No shift was examined" in text) == (not gone and math.isnan(values["excess_high"]))
    assert ("more labels would settle" in text) <= (not gone)
    assert ("No shift is shown to remove" in text) <= math.isnan(values["shift_samples"])
    assert ("still label correlation" in text) <= (gone and values["shift"] > 64)

    if "at a shift of" in text.split("By estimate")[-1]:
        assert values["excess"] < values["tolerance"]
        assert values["shift_estimate"] >= values["last_excess_shift"]

    # Reference levels: the one of these samples, and never more than all of the accuracy.
    quoted = re.findall(r"the label 24 back\) are right ([0-9.]+) %", text)
    assert all(float(q) == pytest.approx(100 * values["blind"], abs=0.06) for q in quoted)
    for share in re.findall(r"reach ([0-9.]+) % (?:\[.*\] )?of the", text):
        assert float(share) <= 100
    assert ("more often than the model" in text) == (values["share_low"] > 1)
    if "about as often" in text:
        assert 0.9 < values["share_low"] <= values["share_high"] < 1.1


def plain(**values):
    """Values of a log with answers, some of them given."""
    known = dict.fromkeys(POINTS, (0.5, 0.4, 0.6))
    known |= {"history_bits": (1.0, 0.9, 1.1), "remaining_bits": (1.0, 0.9, 1.1),
              "base_bits": (2.0, 1.9, 2.1), "placebo_bits": (0.0, -0.01, 0.01),
              "permuted_bits": (nan, nan, nan), "share": (1.0, 0.9, 1.1)}  # fmt: skip
    figures = {name: figure for name, figure in values.items() if isinstance(figure, tuple)}
    everything = {
        f"{name}{end}": number
        for name, figure in {**known, **figures}.items()
        for end, number in zip(("", "_low", "_high"), figure, strict=True)
    }
    rest = {"predictions": 100, "blocks": 50, "tolerance_bits": 0.02, "samples": 1_000, "shift": 0,
            "shift_samples": 0, "more_rows": 300, "answer_shift": 0, "late_labels": 0, "kappa": nan,
            "early_labels": 0,
            "shift_largest": 50, "tolerance": 0.02, "excess": 0.0, "excess_high": nan,
            "last_excess": nan, "last_excess_shift": nan, "more_labels": nan, "shift_low": 0,
            "shift_estimate": 0, "shift_high": 0, "periods": 0, "long_periods": 0,
            "near_future_shift": nan, "neighbour_window": 10}  # fmt: skip
    single = {name: value for name, value in values.items() if name not in figures}
    return Findings({**everything, **rest, **single}, WORDS)


@pytest.mark.parametrize(
    ("added", "more", "name"),
    [
        ((0.2, 0.1, 0.3), {}, "yes"),
        ((0.2, 0.1, 0.3), {"placebo_bits": (0.1, 0.0, 0.1)}, "cannot tell: placebo"),
        ((0.2, 0.1, 0.3), {"placebo_bits": (0.05, 0.0, 0.099)}, "yes"),
        ((0.2, 0.02, 0.3), {}, "cannot tell: wide interval"),
        ((0.0, -0.1, 0.019), {}, "no"),
        ((0.0, -0.1, 0.02), {}, "cannot tell: wide interval"),
        ((0.2, 0.1, 0.3), {"blocks": 19.9}, "cannot tell: few blocks"),
        ((0.2, 0.1, 0.3), {"remaining_bits": (0.039, 0.0, 0.1)}, "cannot tell: nothing left"),
        ((0.0, -0.1, 0.0), {"remaining_bits": (0.039, 0.0, 0.1)}, "cannot tell: nothing left"),
        ((0.2, 0.1, 0.3), {"permuted_bits": (0.1, 0.05, 0.15)}, "cannot tell: permuted inputs"),
        ((0.2, 0.1, 0.3), {"permuted_bits": (0.0, -0.1, 0.01)}, "yes"),
        ((0.2, 0.1, 0.3), {"tolerance_bits": 0.1}, "cannot tell: wide interval"),
        ((nan, nan, nan), {}, "cannot tell: no bits"),
        ((nan, nan, nan), {"predictions": 0}, "no predictions"),
        ((0.2, 0.1, 0.3), {"predictions": 0}, "yes"),  # log-probabilities alone
    ],
)
def test_the_rule_of_the_answer(added, more, name):
    assert plain(added_bits=added, **more).answer_name == name


def test_what_would_settle_it():
    wide = plain(added_bits=(0.03, 0.0, 0.06))
    assert "About 300 more rows would settle it." in wide.paragraphs()["answer"]
    near = plain(added_bits=(0.03, 0.0, 0.06), more_rows=1e9)
    assert "another tolerance" in near.paragraphs()["answer"]
    few = plain(added_bits=(0.03, 0.0, 0.06), blocks=5)
    assert "Record about 300 more rows" in few.paragraphs()["answer"]
    nothing = plain(added_bits=(0.0, 0.0, 0.0), remaining_bits=(0.01, 0.0, 0.02))
    assert "Record answers at a larger shift" in nothing.paragraphs()["answer"]


def test_names_of_forecasters():
    day = Period(48.0, "samples", 0.2, "day")
    assert plain_name("the label 48 samples back", [day]) == "the label one day before"
    assert plain_name("the label 50 samples back", [day]) == "the label 50 samples before"
    phase = "the most frequent label at this phase of"
    assert plain_name(f"{phase} 48 samples", [day]) == f"{phase} one day"
    assert plain_name("the usual follower of the last label") == "what follows the last label"


def test_figures_as_text():
    assert bits(0.1234, 0.1, 0.15) == "0.123 [0.100, 0.150] bits"
    assert amount(1, "samples") == "1 sample"
    assert amount(76, "samples", 2 * 86_400.0) == "76 samples (about 2 days)"
    assert amount(7_200, "seconds") == "2 hours"


def test_the_table_in_the_docs_is_that_of_the_code():
    script = ROOT / "docs" / "write_sentences.py"
    done = subprocess.run([sys.executable, script, "--check"], check=False)
    assert done.returncode == 0, "run python docs/write_sentences.py"
    assert len({s.name for s in SENTENCES}) == len(SENTENCES)


def sticky(count: int, stay: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    redraw = rng.random(count) >= stay
    redraw[0] = True
    drawn = rng.integers(0, 10, count)
    return drawn[np.maximum.accumulate(np.where(redraw, np.arange(count), 0))]


def test_sentences_of_logs_whose_truth_is_known():
    """A copy of the last label is right more often than the model that sees, and adds nothing."""
    labels = sticky(8_000, 0.9, 0)
    rng = np.random.default_rng(1)
    wrong = (labels + rng.integers(1, 10, labels.size)) % 10
    sees = audit({"label": labels, "prediction": np.where(rng.random(8_000) < 0.7, labels, wrong)})
    copies = audit({"label": labels, "prediction": np.concatenate([[0], labels[:-1]])})
    assert sees.online.value < copies.online.value - 0.15
    assert (sees.answer, copies.answer) == ("yes", "no")
    assert sees.words[0].startswith("Yes, the model uses its input")
    assert copies.words[0].startswith("No, nothing shows")
    assert "blind classifiers are right more often than the model" in " ".join(sees.words)
    assert "the last label (" in sees.words[1]  # which history it is
    assert holds("added_bits_low < 0.02", copies.values)
    assert not holds("added_bits_low < 0.02", sees.values)
    assert holds("share > 90%", sees.values)  # why that gate is not recommended
    # Every value that a sentence reads is a value of an audit.
    names = set(re.findall(r"[a-z_]+(?![a-z_]*\()", " ".join(s.condition for s in ABOUT_LOG)))
    assert names - {"and", "or", "yes", "undecided"} <= set(sees.values)


def test_nothing_is_left_to_explain():
    """Labels 0, 1, ..., 9, 0, 1, ...: answers that are always right show nothing."""
    labels = np.arange(3_000) % 10
    found = audit({"label": labels, "prediction": labels})
    assert found.online.value == 1
    assert found.answer == "cannot tell"
    assert "leave only 0.000" in found.words[0]
    assert "No shift removes the label correlation" in " ".join(found.words)


def test_numbers_are_written_as_precisely_as_they_are_read() -> None:
    assert [percent(value) for value in (0.0, 0.004, 0.005, -0.001, math.nan)] == [
        "0.0 %", "0.40 %", "0.5 %", "-0.10 %", "unknown",
    ]  # fmt: skip
    found = Findings({"few": 9.46, "some": 10.4, "many": 12345.6}, {})
    assert _Template(found).format("{few:n} {some:n} {many:n}") == "9.46 10 12,346"
