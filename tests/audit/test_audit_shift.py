"""Choosing the shift: streams whose truth is known in closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest

from streamgauge.audit import blind_accuracy, select_shift
from streamgauge.audit.shift import LabelStream, shift_grid
from streamgauge.errors import StreamgaugeError
from streamgauge.history.durations import in_words, period_name, seconds
from streamgauge.history.intervals import (
    critical,
    errors_for,
    influence,
    long_sums,
    ratio_error,
    run_error,
)
from streamgauge.history.periods import burst_length, find_periods, match_curve, match_curve_in_time


def sticky(n, rho, classes, seed):
    """Stay with probability rho, otherwise redraw uniformly."""
    rng = np.random.default_rng(seed)
    draws = rng.integers(0, classes, n)
    redraw = rng.random(n) >= rho
    redraw[0] = True
    return draws[np.maximum.accumulate(np.where(redraw, np.arange(n), 0))]


def albums(n, mean_length, classes, seed):
    """Bursts of one label each, with lengths that vary, several going on side by side."""
    rng = np.random.default_rng(seed)
    current = rng.integers(0, classes, 4)
    labels = np.empty(n, np.int64)
    for t, (source, ends, label) in enumerate(
        zip(rng.integers(0, 4, n), rng.random(n) < 1 / mean_length, rng.integers(0, classes, n),
            strict=True)
    ):  # fmt: skip
        labels[t] = current[source]
        if ends:
            current[source] = label
    return labels


@pytest.mark.parametrize(("rho", "classes"), [(0.9, 20), (0.97, 100)])
@pytest.mark.parametrize("seed", range(2))
def test_true_shift_of_a_sticky_chain(rho, classes, seed):
    """The excess of k = 1 is (1 - pi) rho^(S+1); it falls below half a point at the true shift."""
    pi = 1 / classes
    true = math.log(0.005 / (1 - pi)) / math.log(rho) - 1
    found = select_shift(sticky(200_000, rho, classes, seed), parts=1)
    assert found.shift is not None
    assert true / 2 <= found.shift <= true * 2


def test_true_shift_of_albums():
    """Four sources side by side: two samples share a burst with chance 1/4 · (1 - 1/4L)^(S+1)."""
    length, classes = 10, 50
    true = math.log(0.005 * 4 / (1 - 1 / classes)) / math.log(1 - 1 / (4 * length)) - 1
    found = select_shift(albums(100_000, length, classes, 0), parts=1)
    assert found.shift is not None
    assert true / 2 <= found.shift <= true * 2


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n", [2_000, 50_000])
def test_shuffled_labels_need_no_shift(seed, n):
    labels = sticky(n, 0.95, 10, seed)
    shuffled = np.random.default_rng(seed).permutation(labels)
    found = select_shift(shuffled)
    assert found.shift == 0
    assert "no label correlation" in found.reason


def test_skewed_labels_are_not_compared_with_chance():
    """90 % of one class: far above 1/C at every shift, and still nothing to shift away."""
    labels = np.random.default_rng(0).choice(5, 30_000, p=[0.9, 0.04, 0.03, 0.02, 0.01])
    found = select_shift(labels)
    assert found.shift == 0
    assert found.accuracy[0] > 0.8


def test_periodic_labels_have_no_shift_and_the_period_a_name():
    rng = np.random.default_rng(0)
    n = 20_000
    half_hour = np.arange(n) % 48
    labels = ((half_hour >= 24) ^ (rng.random(n) < 0.2)).astype(int)
    found = select_shift(labels, every="30min")
    assert found.shift is None
    assert found.periods[0].length == 48
    assert found.periods[0].name == "day"
    assert "periodic (day)" in found.reason
    assert "48 samples" in select_shift(labels).reason


def test_drifting_labels_have_no_shift():
    labels = np.repeat(np.arange(6), 5_000)[np.argsort(np.random.default_rng(0).random(30_000) * 2
                                                       + np.arange(30_000) / 5_000)]  # fmt: skip
    found = select_shift(labels)
    assert found.shift is None
    assert "drift" in found.reason


def test_the_whole_curve_is_kept():
    labels = sticky(30_000, 0.9, 10, 0)
    found = select_shift(labels, shifts=[0, 4, 64, 1000], windows=[1, 10])
    np.testing.assert_array_equal(found.shifts, [0, 4, 64, 1000])
    assert set(found.windows) <= {1, 10}
    assert np.all(found.margins >= 0.005)
    assert np.all(found.margins >= 2 * found.errors - 1e-12)
    # Behind the prefix, the curve is the plain blind accuracy of the chosen window.
    expected = blind_accuracy(labels, [1], [0])[0, 0]
    assert found.accuracy[0] == pytest.approx(expected, abs=0.01)
    assert found.excess[0] == pytest.approx(found.accuracy[0] - found.unlimited[0])
    plain = found.to_dict()
    assert plain["curve"]["shifts"] == [0, 4, 64, 1000]


def test_windows_are_chosen_on_the_past_only():
    """A window that is best in hindsight but was not before is not used."""
    rng = np.random.default_rng(0)
    calm = rng.integers(0, 5, 8_000)
    found = select_shift(np.concatenate([calm, sticky(2_000, 0.99, 5, 1)]), prefix=0.8, parts=1)
    hindsight = blind_accuracy(np.concatenate([calm, sticky(2_000, 0.99, 5, 1)])[8_000:], [1], [0])
    # The first segment behind the prefix still uses a window chosen on calm labels.
    assert found.accuracy[0] < hindsight[0, 0] - 0.01


def test_moving_windows_see_a_change():
    labels = np.concatenate([sticky(60_000, 0.5, 10, 0), sticky(60_000, 0.95, 10, 1)])
    spans = select_shift(labels, parts=4).spans
    assert len(spans) == 4
    early, late = spans[0].shift, spans[-1].shift
    assert early is not None
    assert late is not None
    assert late > 4 * early
    assert spans[-1].stop == 120_000


def test_steps_count():
    labels = sticky(60_000, 0.9, 10, 0)
    found = select_shift(labels, [0, 10], step=10, windows=[1], parts=1)
    expected = blind_accuracy(labels, [1], [0, 10], step=10)[0]
    np.testing.assert_allclose(found.accuracy, expected, atol=0.01)
    same = select_shift(labels, [0, 10], step=np.arange(60_000) // 10, windows=[1], parts=1)
    np.testing.assert_array_equal(found.accuracy, same.accuracy)


def test_durations_against_brute_force():
    rng = np.random.default_rng(2)
    n = 400
    times = np.sort(rng.integers(0, 4_000, n))
    labels = rng.integers(0, 3, n).astype(np.int32)
    windows = np.array([1.0, 5.0, math.inf])
    for step in (1, 4):
        stream = LabelStream(labels, 3, labels.size, step, "recent", times, None)
        durations = stream.durations(["0s", "1min", "150s"])
        counts = stream.count_in_time(durations, windows)
        for w, k in enumerate(windows):
            for s, wait in enumerate([0, 60, 150]):
                hits = tries = 0
                for j in range(n):
                    known = min(j, sum(times <= times[j] - wait))
                    known -= known % step
                    if known < (1 if math.isinf(k) else k):
                        continue
                    last = labels[:known] if math.isinf(k) else labels[known - int(k) : known]
                    best = max(set(last.tolist()), key=lambda c: (sum(last == c),
                               max(np.flatnonzero(last == c))))  # fmt: skip
                    tries += 1
                    hits += best == labels[j]
                assert counts.tries[:, w, s].sum() == tries
                assert counts.hits[:, w, s].sum() == hits


def test_durations_find_the_length_of_a_burst():
    """Labels that hold for an hour: half an hour is too short a shift, four hours are enough."""
    rng = np.random.default_rng(0)
    times = np.sort(rng.integers(0, 3_600 * 4_000, 40_000))
    labels = rng.integers(0, 10, 4_000)[times // 3_600]
    found = select_shift(labels, ["10min", "30min", "1h", "4h", "1d"], times=times)
    assert found.unit == "seconds"
    assert found.shift in (3_600, 4 * 3_600)
    assert found.in_words() in ("1 hour", "4 hours")


def test_a_shift_in_samples_tells_its_duration():
    labels = sticky(20_000, 0.8, 10, 0)
    found = select_shift(labels, times=np.arange(20_000) * 60)
    assert found.shift is not None
    assert found.duration == (found.shift + 1) * 60
    assert "minutes" in found.in_words()


def test_grid_stops_at_a_twentieth_and_holds_periods():
    labels = np.tile([0, 0, 0, 1, 1, 1, 2], 600).astype(np.int32)
    periods, _ = find_periods(labels, None, None, labels.size // 20)
    grid = shift_grid(labels.size, periods)
    assert periods[0].length == 7
    assert grid.max() <= labels.size // 20
    assert {6, 13, 27}.issubset(grid.tolist())
    assert select_shift(np.arange(2_000) % 3, [0, 100, 101, 5_000]).shifts.max() == 100


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
    # Student's t with 9 degrees of freedom at the tail of two normal standard errors is 2.32.
    assert critical(2, 10) == pytest.approx(2.32, abs=0.05)
    assert critical(2, 1e12) == pytest.approx(2)
    # One in a thousand shared among ten looks is one in ten thousand for each.
    assert errors_for(0.001, 10) == pytest.approx(3.719, abs=0.001)


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
    with pytest.raises(StreamgaugeError, match="beyond a twentieth"):
        select_shift(labels, [500])


def test_a_return_at_the_far_end_of_a_short_stream_is_seen():
    """Runs of 10 and 11: at shift 15 the last ten labels are those of a whole period before."""
    labels = (np.arange(300) % 21 < 10).astype(int)
    ten, everything = blind_accuracy(labels, [10, math.inf], [15])[:, 0]
    assert ten > everything + 0.2
    found = select_shift(labels)
    assert found.shifts[-1] == 15
    assert found.windows[-1] == 10
    assert found.shift is None
    assert "at a shift of 15 samples" in found.reason
    assert "drift" not in found.reason  # nearer to 15 it was gone
