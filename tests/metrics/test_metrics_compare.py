"""Comparing learners: the arithmetic, and that the error it states is the error it makes."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge import metrics as m
from streamgauge.errors import StreamgaugeError
from streamgauge.history.student import quantile, two_sided_p

NAN = float("nan")


def test_spread_of_the_survey_logs():
    """Five seeds of ER as shipped with the survey, and the two figures its table prints."""
    final = m.spread([0.2895, 0.2969, 0.2698, 0.2824, 0.2689])
    probed = m.spread([0.4530, 0.4470, 0.4523, 0.4584, 0.4346])
    assert (round(100 * final.mean, 2), round(100 * final.deviation, 2)) == (28.15, 1.22)
    assert (round(100 * probed.mean, 2), round(100 * probed.deviation, 2)) == (44.91, 0.90)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=9))
def test_spread(values):
    found = m.spread(values)
    mean = sum(values) / len(values)
    deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))
    assert found.mean == pytest.approx(mean)
    assert found.deviation == pytest.approx(deviation, abs=1e-9)


def test_spread_of_curves_and_of_one_seed():
    curve = m.spread([[0.1, 0.2], [0.3, 0.2]])
    np.testing.assert_allclose(curve.mean, [0.2, 0.2])
    np.testing.assert_allclose(curve.deviation, [math.sqrt(0.02), 0], atol=1e-12)
    assert math.isnan(m.spread([0.4]).deviation)
    assert math.isnan(m.spread([0.4, NAN]).mean)  # a failed seed is not left out in silence
    with pytest.raises(StreamgaugeError, match="got none"):
        m.spread([])


# --- Student's t -----------------------------------------------------------------------------


@pytest.mark.parametrize("freedom", [1, 2, 3.7, 4, 19, 100, 5000.5])
@pytest.mark.parametrize("t", [0.0, 0.3, 1.0, 2.5, 7.0])
def test_p_values_against_the_integral_of_the_density(freedom, t):
    log_norm = (
        math.lgamma((freedom + 1) / 2)
        - math.lgamma(freedom / 2)
        - 0.5 * math.log(freedom * math.pi)
    )
    x = np.linspace(0, t, 20_001)
    density = np.exp(log_norm - (freedom + 1) / 2 * np.log1p(x * x / freedom))
    simpson = (density[0] + density[-1] + 4 * density[1::2].sum() + 2 * density[2:-1:2].sum()) / 3
    inside = 2 * simpson * t / 20_000
    assert two_sided_p(t, freedom) == pytest.approx(1 - inside, abs=1e-10)
    assert two_sided_p(-t, freedom) == two_sided_p(t, freedom)


def test_printed_quantiles():
    printed = {1: 12.7062, 2: 4.3027, 4: 2.7764, 9: 2.2622, 19: 2.0930, 120: 1.9799}
    for freedom, value in printed.items():
        assert quantile(0.95, freedom) == pytest.approx(value, abs=6e-5)


# --- compare ---------------------------------------------------------------------------------


def slow_compare(A, B, blocks):
    """Loops over seeds and equally long blocks; blocks divide the samples."""
    S, n = len(A), len(A[0])
    size = n // blocks
    d = [
        [
            sum(A[s][i] - B[s][i] for i in range(b * size, (b + 1) * size)) / size
            for b in range(blocks)
        ]
        for s in range(S)
    ]
    mean = sum(map(sum, d)) / (S * blocks)
    by_seed = [sum(row) / blocks for row in d]
    by_block = [sum(d[s][b] for s in range(S)) / S for b in range(blocks)]
    v_seed = sum((x - mean) ** 2 for x in by_seed) / (S * (S - 1)) if S > 1 else 0
    v_block = 0
    if blocks > 1:
        own = sum((x - mean) ** 2 for x in by_block)
        beside = sum((by_block[b] - mean) * (by_block[b + 1] - mean) for b in range(blocks - 1))
        v_block = (own + max(0, 2 * beside)) / (blocks * (blocks - 1))
    v_rest = 0.0
    if S > 1 and blocks > 1:
        v_rest = sum(
            (d[s][b] - by_seed[s] - by_block[b] + mean) ** 2
            for s in range(S)
            for b in range(blocks)
        ) / (S * blocks * (S - 1) * (blocks - 1))
    return mean, math.sqrt(max(v_seed, v_block, v_seed + v_block - v_rest))


@pytest.mark.parametrize(("seeds", "blocks"), [(5, 20), (3, 2), (1, 10), (4, 1), (2, 60)])
def test_difference_and_error(seeds, blocks):
    rng = np.random.default_rng(seeds)
    A, B = rng.random((2, seeds, 60)) < [[[0.7]], [[0.5]]]
    found = m.compare(A, B, blocks=blocks)
    mean, error = slow_compare(A.astype(int), B.astype(int), blocks)
    assert found.difference == pytest.approx(mean)
    assert found.error == pytest.approx(error)
    reach = quantile(0.95, found.freedom) * error
    assert (found.low, found.high) == pytest.approx((mean - reach, mean + reach))
    assert found.p == pytest.approx(two_sided_p(mean / error, found.freedom))
    assert (found.seeds, found.blocks) == (seeds, blocks if blocks > 1 else 0)
    lower, upper = sorted([max(seeds - 1, 1), max(blocks - 1, 1)])
    assert min(lower, upper) <= found.freedom <= seeds * blocks
    # Turned around, the same; as lists, the same; with the blocks named, the same.
    turned = m.compare(B, A, blocks=blocks)
    assert (turned.difference, turned.p) == pytest.approx((-found.difference, found.p))
    assert m.compare(list(A), list(B), blocks=blocks) == found
    named = np.repeat(np.arange(blocks), 60 // blocks)
    np.testing.assert_allclose(m.compare(A, B, blocks=named), found)


def test_numbers_per_seed_are_the_paired_t_test():
    A, B = [0.30, 0.32, 0.31, 0.35], [0.28, 0.31, 0.28, 0.36]
    d = np.subtract(A, B)
    found = m.compare(A, B)
    assert found.difference == pytest.approx(d.mean())
    assert found.error == pytest.approx(d.std(ddof=1) / 2)
    assert found.freedom == 3
    assert found.blocks == 0


def test_interval_and_p_value_agree_and_equal_runs_do_not_differ():
    rng = np.random.default_rng(0)
    for _ in range(20):
        A, B = rng.random((2, 4, 100)) < [[[0.6]], [[0.5]]]
        found = m.compare(A, B, blocks=10)
        assert (found.p < 0.05) == (not found.low <= 0 <= found.high)
        same = m.compare(A, A, blocks=10)
        assert (same.difference, same.error, same.p) == (0, 0, 1)
    always = m.compare(np.ones((3, 40)), np.zeros((3, 40)), blocks=4)
    assert always.difference == 1
    assert always.p == 0
    assert math.isnan(m.compare([[1, 0, 1]], [[0, 0, 1]], blocks=1).p)


def test_streams_of_different_length_and_uneven_blocks():
    rng = np.random.default_rng(1)
    A = [rng.random(n) < 0.7 for n in (101, 97, 120)]
    B = [rng.random(n) < 0.5 for n in (101, 97, 120)]
    found = m.compare(A, B, blocks=7)
    expected = np.mean([a.mean() - b.mean() for a, b in zip(A, B, strict=True)])
    assert found.difference == pytest.approx(expected)
    assert 0 < found.error < 0.2


def bursts(rng, n, length, share):
    """Correctness that comes in runs, as mistakes on albums do."""
    change = rng.random(n) < 1 / length
    change[0] = True
    values = rng.random(change.sum()) < share
    return values[np.cumsum(change) - 1]


@pytest.mark.parametrize("world", ["one stream", "own streams", "seeds differ"])
def test_the_error_stated_is_the_error_made(world):
    """No true difference, samples that come in bursts: 5 % false alarms, not 60 %."""
    rng = np.random.default_rng(5)
    trials, n, seeds = 300, 4000, 4
    alarms = naive = 0
    for _ in range(trials):
        if world == "one stream":  # it favours A here and B there, in all seeds alike
            edge = bursts(rng, n, 40, 0.5).astype(float) - 0.5
            A = [rng.random(n) < 0.5 + 0.4 * edge for _ in range(seeds)]
            B = [rng.random(n) < 0.5 - 0.4 * edge for _ in range(seeds)]
        elif world == "own streams":
            A = [bursts(rng, n, 40, 0.5) for _ in range(seeds)]
            B = [bursts(rng, n, 40, 0.5) for _ in range(seeds)]
        else:
            A = [rng.random(n) < 0.5 + rng.normal(0, 0.05) for _ in range(seeds)]
            B = [rng.random(n) < 0.5 + rng.normal(0, 0.05) for _ in range(seeds)]
        alarms += m.compare(A, B).p < 0.05
        d = np.concatenate(A).astype(float) - np.concatenate(B)
        naive += abs(d.mean()) > 1.96 * d.std() / math.sqrt(d.size)
    assert alarms / trials < 0.08
    assert naive / trials > 0.3


def test_a_true_difference_is_found():
    rng = np.random.default_rng(6)
    found = 0
    for _ in range(40):
        A = [bursts(rng, 4000, 10, 0.60) for _ in range(5)]
        B = [bursts(rng, 4000, 10, 0.50) for _ in range(5)]
        result = m.compare(A, B)
        found += result.low > 0
        assert abs(result.difference - 0.1) < 0.06
    assert found > 30


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: m.compare([[1, 0]], [[1, 0], [0, 1]]), "runs by seed"),
        (lambda: m.compare([[1, 0]], [[1, 0, 1]]), "pairs samples"),
        (lambda: m.compare([[1, 0]], [[1, 1]], blocks=3), "cannot be cut into 3 blocks"),
        (lambda: m.compare([[1, 0]], [[1, 1]], blocks=[1]), "each of 2 samples"),
        (lambda: m.compare(np.array([True]), np.array([False])), "in a list"),
        (lambda: m.compare([[[1]]], [[[1]]]), "one entry per sample"),
        (lambda: m.compare([0.1, 0.2], [0.1, 0.3], confidence=95), "between 0 and 1, such as 0.95"),
    ],
)
def test_bad_input_gets_a_sentence(call, words):
    with pytest.raises(StreamgaugeError, match=words):
        call()


# --- Holm and the leaderboard ----------------------------------------------------------------


def slow_holm(p):
    order = sorted(range(len(p)), key=lambda i: p[i])
    result, floor = [0.0] * len(p), 0.0
    for place, i in enumerate(order):
        floor = max(floor, (len(p) - place) * p[i])
        result[i] = min(1.0, floor)
    return result


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm(p):
    np.testing.assert_allclose(m.holm(p), slow_holm(p))
    assert np.all(m.holm(p) >= np.asarray(p))
    assert np.all(m.holm(p) <= np.minimum(1, len(p) * np.asarray(p)) + 1e-15)


def test_holm_leaves_out_what_was_not_tested():
    np.testing.assert_allclose(m.holm([0.01, NAN, 0.04]), [0.02, NAN, 0.04])


def test_leaderboard_shows_ties_as_ties():
    rng = np.random.default_rng(8)

    def runs(centre):
        return [centre + x for x in rng.normal(0, 0.01, 5)]

    shared = rng.normal(0, 0.05, 5)  # what a seed does to everybody is paired away
    results = {
        "worst": np.add(runs(0.2), shared),
        "first": np.add(runs(0.800), shared),
        "second": np.add(runs(0.802), shared),
        "middle": np.add(runs(0.5), shared),
    }
    board = m.leaderboard(results)
    by_name = {line.name: line for line in board}
    assert [line.mean for line in board] == sorted((line.mean for line in board), reverse=True)
    assert {by_name["first"].rank, by_name["second"].rank} == {1}
    assert by_name["first"].groups == by_name["second"].groups == "a"
    assert by_name["first"].tied_with == ("second",)
    assert (by_name["middle"].rank, by_name["middle"].groups) == (3, "b")
    assert (by_name["worst"].rank, by_name["worst"].groups) == (4, "c")
    assert by_name["worst"].tied_with == ()


@pytest.mark.parametrize("seed", range(10))
def test_letters_say_exactly_which_pairs_differ(seed):
    rng = np.random.default_rng(seed)
    results = {
        f"m{i}": rng.random((3, 200)) < 0.4 + 0.04 * i + rng.normal(0, 0.01, (3, 1))
        for i in range(7)
    }
    board = m.leaderboard(results, blocks=10)
    pairs = list(combinations([line.name for line in board], 2))
    p = m.holm([m.compare(results[a], results[b], blocks=10).p for a, b in pairs])
    letters = {line.name: set(line.groups) for line in board}
    better = dict.fromkeys(results, 0)
    for (a, b), value in zip(pairs, p, strict=True):  # a stands above b
        assert bool(letters[a] & letters[b]) == (value >= 0.05)
        better[b] += value < 0.05
    assert {line.name: line.rank for line in board} == {n: 1 + k for n, k in better.items()}


def test_one_learner_and_one_seed():
    (line,) = m.leaderboard({"only": [[1, 0, 1, 1]]})
    assert (line.rank, line.groups, line.mean) == (1, "a", 0.75)
    # One seed and one number: nothing can be told, so all are tied.
    board = m.leaderboard({"x": [0.9], "y": [0.1]})
    assert [line.groups for line in board] == ["a", "a"]


def test_a_learner_with_a_failed_seed_does_not_unsort_the_others():
    board = m.leaderboard(
        {"a": [0.1, 0.2, 0.3], "failed": [np.nan, 0.2, 0.3], "b": [0.9, 0.9, 0.92], "c": [0.5] * 3}
    )
    assert [line.name for line in board] == ["b", "c", "a", "failed"]
    assert np.isnan(board[-1].mean)
