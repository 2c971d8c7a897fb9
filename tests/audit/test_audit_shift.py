"""Choosing the shift: streams whose truth is known in closed form."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from streamgauge.audit import blind_accuracy, select_shift, shift
from streamgauge.audit.shift import LabelStream, shift_grid
from streamgauge.audit.verdict import at_whole_periods, labels_to_settle
from streamgauge.errors import StreamgaugeError
from streamgauge.history.durations import in_words, period_name, seconds
from streamgauge.history.family import Excess, FamilyHits, RightBits, crossing
from streamgauge.history.intervals import influence, interval, long_sums, ratio_error, run_error
from streamgauge.history.periods import (
    Period,
    burst_length,
    find_periods,
    match_curve,
    match_curve_in_time,
)


def sticky(n, rho, classes, seed):
    """Stay with probability rho, otherwise redraw uniformly."""
    rng = np.random.default_rng(seed)
    draws = rng.integers(0, classes, n)
    redraw = rng.random(n) >= rho
    redraw[0] = True
    return draws[np.maximum.accumulate(np.where(redraw, np.arange(n), 0))]


def excess_of_sticky(shift, rho, classes):
    """The last label is right (1 - 1/C) rho^(S+1) more often than any constant."""
    return (1 - 1 / classes) * rho ** (shift + 1)


def drifting(n, classes, changes, seed):
    """Labels whose frequencies are redrawn now and then, and those frequencies per sample."""
    rng = np.random.default_rng(seed)
    starts = np.sort(rng.choice(n, changes, replace=False))
    share = rng.dirichlet(np.ones(classes), changes + 1)[np.searchsorted(starts, np.arange(n))]
    return (share.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(0, classes - 1), share


@pytest.mark.parametrize(("n", "rho"), [(20_000, 0.99), (2_000, 0.9)])
def test_a_named_shift_never_leaves_more_than_the_tolerance(n, rho):
    """20 classes, 12 streams: too few labels to show much, so mostly nothing is named."""
    shifts = [0, 16, 22, 32, 45] if n < 10_000 else [0, 181, 256, 362, 512]
    for seed in range(12):
        found = select_shift(sticky(n, rho, 20, seed), shifts)
        if found.shift is None:
            assert found.not_excluded >= 0.02 or math.isnan(found.largest)
            assert "not excluded" in found.reason or "still" in found.reason
        else:
            assert excess_of_sticky(found.shift, rho, 20) < 0.02


def test_the_shift_of_a_sticky_chain_is_shown():
    """Enough labels: the excess falls below two points at a shift of 36."""
    found = select_shift(sticky(200_000, 0.9, 20, 0), [0, 8, 16, 26, 32, 38, 45, 64, 512, 4_000])
    true = math.log(0.02 / 0.95) / math.log(0.9) - 1
    assert found.shift in (38, 45)
    assert found.low < true <= found.high
    assert found.estimate == pytest.approx(true, rel=0.25)
    assert found.largest == 4_000
    assert "to 4,000 samples" in found.reason
    assert found.long_periods == ["more than 4,000 samples"]


def test_the_interval_of_the_shift_covers_the_truth():
    """Stay .7: the excess falls below two points at a shift of 9.8."""
    true = math.log(0.02 / 0.9) / math.log(0.7) - 1
    inside, estimates = 0, []
    for seed in range(12):
        found = select_shift(sticky(6_000, 0.7, 10, seed), [0, 4, 6, 8, 10, 12, 24])
        inside += found.low < true <= found.high
        estimates.append(min(found.estimate, 50))
    assert inside >= 11
    assert 7 <= np.median(estimates) <= 14


@pytest.mark.parametrize("seed", range(3))
def test_independent_labels_need_no_shift(seed):
    found = select_shift(np.random.default_rng(seed).integers(0, 10, 20_000), [0, 1, 8, 64, 500])
    assert (found.shift, found.low, found.high) == (0, 0, 0)
    assert "from a shift of 0 samples to 500 samples" in found.reason


def test_few_labels_show_nothing_and_say_how_many_would():
    found = select_shift(np.random.default_rng(0).integers(0, 2, 1_000))
    assert found.shift is None
    assert 0.02 < found.not_excluded < 0.2
    assert 1_000 < found.more < 1_000_000
    last = Excess(0, 0, found.excess[-1], 0, 0, 0, 0, found.upper[-1])
    assert found.more == labels_to_settle(last, 0.02, 1_000)
    assert "more labels would settle it" in found.reason
    assert found.low == 0
    assert found.high == math.inf


def test_an_excess_at_the_tolerance_is_settled_by_no_number_of_labels():
    assert math.isnan(labels_to_settle(Excess(0, 0, 0.02, 0, 0, 0, 0, 0.05), 0.02, 1_000))


def test_whole_periods_are_counted_from_the_newest_known_label():
    """With a gap of 1, the newest known label is 7 samples before the target at a shift of 6."""
    period = Period(7.0, "samples", 0.5, "7 samples")
    found = at_whole_periods(np.array([0.0, 6, 7, 8, 13]), [period], 1)
    assert found.tolist() == [False, True, False, False, True]


def test_skewed_labels_are_not_compared_with_chance():
    """90 % of one class: far above 1/C at every shift, and still nothing to shift away."""
    labels = np.random.default_rng(0).choice(5, 20_000, p=[0.9, 0.04, 0.03, 0.02, 0.01])
    found = select_shift(labels, [0, 8, 64, 500])
    assert found.shift == 0
    assert found.accuracy[0] > 0.8


def test_few_changes_of_the_label_show_nothing():
    """68 changes in 50,000 labels: the last label is right 99.9 %, and no shift is called gone."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        starts = np.sort(rng.choice(50_000, 68, replace=False))
        runs = rng.choice(5, 69, p=[0.6, 0.1, 0.1, 0.1, 0.1])
        labels = runs[np.searchsorted(starts, np.arange(50_000), side="right")]
        found = select_shift(labels, [0, 16, 256])
        assert found.shift is None
        assert found.shifts.size == 0 or found.excess[0] > 0.1


def test_a_drifting_prior_is_not_called_gone():
    """Frequencies that hold for 2,000 samples: only where they hold no longer is there no gain."""
    for seed in range(3):
        labels, share = drifting(40_000, 5, 20, seed)
        found = select_shift(labels, [0, 64, 512, 1_000])
        if found.shift is None:
            continue
        shift = int(found.shift)
        j = np.arange(8_000 + shift, 40_000)
        best = share[j - shift - 1].argmax(axis=1)
        constant = [np.bincount(labels[: i - shift]).argmax() for i in j[::50]]
        gain = share[j, best].mean() - share[j[::50], constant].mean()
        assert gain < 0.02


def test_periodic_labels_have_no_shift_and_the_period_a_name():
    rng = np.random.default_rng(0)
    n = 6_000
    half_hour = np.arange(n) % 48
    labels = ((half_hour >= 24) ^ (rng.random(n) < 0.2)).astype(int)
    found = select_shift(labels, every="30min")
    assert found.shift is None
    assert found.periods[0].length == 48
    assert "periodic (day)" in found.reason
    assert found.estimate == math.inf
    assert found.long_periods == ["week", "year"]
    assert "48 samples" in select_shift(labels, [0, 47, 95]).reason


def test_a_noisy_period_is_seen_in_a_thousand_labels():
    """Period 24, a fifth of the labels wrong: no shift is called gone."""
    rng = np.random.default_rng(0)
    pattern = rng.integers(0, 5, 24)
    labels = np.where(rng.random(1_000) < 0.2, rng.integers(0, 5, 1_000), np.resize(pattern, 1_000))
    found = select_shift(labels)
    assert found.shift is None
    assert found.excess[0] > 0.2


def test_a_chain_that_no_window_sees():
    """Labels 0, 1, ..., 9, 0, ...: every mode fails, and the family is always right."""
    found = select_shift(np.arange(3_000) % 10, [0, 1, 5])
    assert found.shift is None
    assert np.all(found.accuracy > 0.99)
    assert np.all(found.excess > 0.85)


def test_long_streams_are_examined_at_few_shifts(monkeypatch):
    """The windows pick the shifts; a chain that no window sees is seen all the same."""
    monkeypatch.setattr(shift, "LONG_STREAM", 2_000)
    independent = select_shift(np.random.default_rng(0).integers(0, 10, 20_000))
    assert independent.shift == 0
    assert independent.shifts.size <= 8
    chain = select_shift(np.arange(6_000) % 10)
    assert chain.shift is None
    assert chain.excess[0] > 0.85
    labels = sticky(60_000, 0.7, 10, 0)
    found = select_shift(labels)
    assert found.shift is None or found.shift >= 9
    assert found.low < 9.8 <= found.high


def test_steps_are_consistent():
    """The excess at a shift in steps of ten is that of the gaps it spans."""
    labels = sticky(20_000, 0.9, 10, 0)
    single = select_shift(labels, [0, 4, 9])
    steps = select_shift(labels, [0], step=10)
    assert steps.excess[0] == pytest.approx(single.excess.mean(), abs=0.1)
    same = select_shift(labels, [0], step=np.arange(20_000) // 10)
    np.testing.assert_array_equal(steps.excess, same.excess)
    assert (single.shift, steps.shift) == (None, None)


def test_the_whole_curve_is_kept():
    labels = sticky(10_000, 0.9, 10, 0)
    found = select_shift(labels, shifts=[0, 4, 64, 200], windows=[1, 10])
    np.testing.assert_array_equal(found.shifts, [0, 4, 64, 200])
    np.testing.assert_allclose(found.excess, found.accuracy - found.constant)
    assert np.all(found.upper >= found.excess)
    assert np.all(found.blocks >= 30)
    # Behind the prefix, the curve is the plain blind accuracy of the chosen forecaster.
    expected = blind_accuracy(labels, [1, math.inf], [0])[:, 0]
    assert found.accuracy[0] == pytest.approx(expected[0], abs=0.01)
    assert found.constant[0] == pytest.approx(expected[1], abs=0.03)
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert plain["curve"]["shifts"] == [0, 4, 64, 200]
    assert plain["tolerance"] == 0.02


def test_the_old_name_of_the_tolerance():
    labels = sticky(2_000, 0.5, 10, 0)
    with pytest.warns(DeprecationWarning, match="tolerance"):
        old = select_shift(labels, [0, 8], margin=0.05)
    assert old.tolerance == 0.05


def test_forecasters_are_chosen_on_the_past_only():
    """A forecaster that is best in hindsight but was not before is not used."""
    rng = np.random.default_rng(0)
    names = ("constant", "a", "b")
    hits = np.concatenate([np.tile([5, 9, 0], (50, 1)), np.tile([5, 0, 15], (50, 1))])
    family = FamilyHits(names, hits + rng.integers(0, 2, hits.shape), np.full(100, 20), 20, 0.0)
    picked, constant, tries = family.scored
    assert family.first == 20
    assert np.all(picked[:30] >= 9)
    # The first segments behind the change still use what was best before it.
    assert picked[31] <= 1
    assert family.name == "b"
    assert constant.sum() / tries.sum() == pytest.approx(5.5 / 20, rel=0.1)
    # With labels 60 samples late, the choice is three blocks older.
    late = FamilyHits(names, family.hits, family.tries, 20, 60.0)
    assert np.flatnonzero(late.chosen == 2)[0] >= np.flatnonzero(family.chosen == 2)[0]


def test_bits_count_only_scored_samples():
    rng = np.random.default_rng(0)
    words = rng.integers(0, 8, 1_003).astype(np.uint64)
    scored = rng.random(1_003) < 0.5
    right = RightBits(words, ("a", "b", "c"), block=50, gap=1.0, offset=7)
    found = right.hits(scored)
    for b in range(found.tries.size):
        rows = np.arange(7 + 50 * b, min(1_003, 57 + 50 * b))
        rows = rows[scored[rows]]
        assert found.tries[b] == rows.size
        for f in range(3):
            assert found.hits[b, f] == sum(int(words[j]) >> f & 1 for j in rows)
    hit, counted = right.right(found)
    assert np.array_equal(counted, np.arange(1_003) >= 7 + 50 * found.first)
    assert hit[counted & scored].sum() == found.scored[0].sum()


def test_crossing_of_a_noisy_curve():
    """Isotonic regression: a bump is averaged with its neighbours, then the level is met."""
    shifts = np.array([0.0, 1.0, 3.0, 7.0])
    errors = np.full(4, 0.01)
    assert crossing(shifts, np.array([0.4, 0.1, 0.3, 0.0]), errors, 0.2) == pytest.approx(3)
    assert crossing(shifts, np.array([0.1, 0.0, 0.0, 0.0]), errors, 0.2) == 0
    assert crossing(shifts, np.array([0.5, 0.4, 0.4, 0.3]), errors, 0.2) == math.inf


def test_errors_of_correlated_differences():
    """The standard error of the excess is the spread of the excess over many streams."""
    excess, errors = [], []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        walk = np.convolve(rng.normal(size=2_079), np.ones(80) / 80, "valid")
        hits = np.stack([np.full(2_000, 5), 5 + np.round(40 * walk)], axis=1).astype(np.int64)
        found = FamilyHits(("constant", "other"), hits, np.full(2_000, 20), 20, 0.0).excess(1)
        excess.append(found.excess)
        errors.append(found.error)
    chosen = np.array(errors)[np.array(errors) > 0]
    assert np.mean(chosen) > 0.6 * np.std(excess)


def test_durations_against_brute_force():
    rng = np.random.default_rng(2)
    n = 400
    times = np.sort(rng.integers(0, 4_000, n))
    labels = rng.integers(0, 3, n).astype(np.int32)
    for step in (1, 4):
        stream = LabelStream(labels, 3, n, step=step, clock=times)
        durations = stream.durations(["60s", "100s"])
        for wait in durations:
            known = stream.known(duration=wait).known
            expected = [min(j - j % step, sum(times[i] <= times[j - j % step] - wait
                        for i in range(j - j % step))) for j in range(n)]  # fmt: skip
            np.testing.assert_array_equal(known, expected)


def test_durations_find_the_length_of_a_burst():
    """Labels that hold for an hour: half an hour is too short a shift."""
    rng = np.random.default_rng(0)
    times = np.sort(rng.integers(0, 3_600 * 4_000, 40_000))
    labels = rng.integers(0, 10, 4_000)[times // 3_600]
    found = select_shift(labels, ["10min", "30min", "1h", "4h", "1d"], times=times)
    assert found.unit == "seconds"
    assert found.low == 1_800
    assert found.shift in (3_600, 4 * 3_600, 86_400)
    assert found.in_words() in ("1 hour", "4 hours", "1 day")


def test_a_shift_in_samples_tells_its_duration():
    labels = sticky(20_000, 0.3, 10, 0)
    found = select_shift(labels, [0, 4, 8], times=np.arange(20_000) * 60)
    assert found.shift in (4, 8)
    assert found.duration == (found.shift + 1) * 60
    assert "minutes" in found.in_words()


def test_grid_leaves_thirty_blocks_and_holds_periods():
    labels = np.tile([0, 0, 0, 1, 1, 1, 2], 600).astype(np.int32)
    periods, _ = find_periods(labels, None, None, labels.size // 20)
    grid = shift_grid(labels.size, periods)
    assert periods[0].length == 7
    assert grid.max() <= 0.8 * labels.size / 30
    assert {6, 13, 27}.issubset(grid.tolist())
    assert select_shift(np.arange(4_000) % 3, [0, 100, 104, 5_000]).shifts.max() == 104


def test_match_curves_against_brute_force():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 120).astype(np.int32)
    curve = match_curve(labels, 20)
    for lag in range(21):
        assert curve[lag] == np.mean(labels[:100] == labels[lag : 100 + lag])
    times = np.sort(rng.integers(0, 300, 120))
    got = match_curve_in_time(labels, times, 10, 12)
    for b in range(12):
        pairs = [
            labels[u] == labels[t]
            for t in range(120)
            for u in range(t + 1, 120)
            if (times[u] - times[t] + 5) // 10 == b
        ]
        assert got[b] == pytest.approx(np.mean(pairs))


def test_weekly_period_in_irregular_times():
    rng = np.random.default_rng(1)
    times = np.sort(rng.integers(0, 86_400 * 400, 20_000))
    weekday = times // 86_400 % 7
    labels = np.where(weekday == 5, 0, rng.integers(1, 6, 20_000)).astype(np.int32)
    periods, _ = find_periods(labels, times, None, 1_000)
    assert "week" in [p.name for p in periods]


def test_burst_length_is_the_memory_of_a_chain():
    curve = match_curve(sticky(200_000, 0.9, 20, 0).astype(np.int32), 2_000)
    assert 15 <= burst_length(curve) <= 30  # 0.9^22 is a tenth


def test_block_standard_error_of_a_correlated_stream():
    """Against the spread of the mean over many independent streams."""
    means, errors = [], []
    for seed in range(200):
        hits = (sticky(4_000, 0.9, 2, seed) == 0).astype(float)
        means.append(hits.mean())
        errors.append(ratio_error(hits, np.ones(4_000), 100)[0])
    assert np.mean(errors) == pytest.approx(np.std(means), rel=0.2)
    naive = np.sqrt(0.25 / 4_000)
    assert np.mean(errors) > 3 * naive


def test_interval_pieces():
    values = np.arange(6.0)
    expected = [sum(values[(i + j) % 6] for j in range(4)) for i in range(6)]
    np.testing.assert_allclose(long_sums(values, 4), expected)
    assert math.isnan(run_error(np.ones(3), 2)[0])
    top, bottom = np.array([1.0, 3.0]), np.array([2.0, 4.0])
    assert influence(top, bottom).sum() == pytest.approx(0)
    # Student's t with 9 degrees of freedom.
    assert interval(0.0, 1.0, 10)[1] == pytest.approx(2.262, abs=0.01)


def test_durations_in_words():
    assert seconds("1h") == 3_600
    assert seconds("2 days") == 172_800
    assert in_words(5_400) == "1.5 hours"
    assert period_name(604_000) == "week"
    for bad in ("soon", "5 parsecs", "h"):
        with pytest.raises(StreamgaugeError, match="not a duration"):
            seconds(bad)


def test_bad_input_is_a_sentence():
    with pytest.raises(StreamgaugeError, match="too few"):
        select_shift([0, 1] * 20)
    with pytest.raises(StreamgaugeError, match="same class"):
        select_shift(np.zeros(500, int))
    labels = np.arange(1_000) % 3
    with pytest.raises(StreamgaugeError, match="no times"):
        select_shift(labels, ["1h"])
    with pytest.raises(StreamgaugeError, match="same unit"):
        select_shift(labels, ["1h", "10"], times=np.arange(1_000))
    with pytest.raises(StreamgaugeError, match="not sorted"):
        select_shift(labels, times=np.arange(1_000)[::-1])
    with pytest.raises(StreamgaugeError, match="999 times for 1000"):
        select_shift(labels, times=np.arange(999))
    with pytest.raises(StreamgaugeError, match="leave 30 blocks"):
        select_shift(labels, [500])
