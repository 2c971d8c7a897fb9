"""Blind classifiers against brute force that follows the definition word by word."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgauge.audit import blind_accuracy, reference_levels
from streamgauge.audit.counting import BlindCounter
from streamgauge.errors import StreamgaugeError
from streamgauge.history.known import encode

TIES = ["recent", "smallest", "evalocl"]


def mode(window: list[int], ties: str) -> int:
    counts = {c: window.count(c) for c in window}
    tied = [c for c in counts if counts[c] == max(counts.values())]
    if ties == "smallest":
        return min(tied)
    return max(tied, key=lambda c: max(i for i, v in enumerate(window) if v == c))


def published_rule(labels: list[int], k: int) -> list[int]:
    """Answer after every number of labels, by the published loop's rule."""
    counts = dict.fromkeys(range(max(labels) + 1), 0)
    answer = labels[0]
    answers = [-1]
    for t in range(1, len(labels) + 1):
        new, old = labels[t - 1], labels[t - 1 - k] if t - 1 - k >= 0 else None
        counts[new] += 1
        if old is not None:
            counts[old] -= 1
        if new == answer or counts[new] >= counts[answer]:
            answer = new
        elif old == answer:
            answer = min(c for c in counts if counts[c] == max(counts.values()))
        answers.append(answer)
    return answers


def brute(labels, windows, shifts, ties="recent", step=1, common=False):
    labels = [int(v) for v in labels]
    n = len(labels)
    steps = [t // step for t in range(n)] if np.ndim(step) == 0 else list(step)
    start = [steps.index(s) for s in steps]
    result = np.full((len(windows), len(shifts)), np.nan)
    cells = {}
    for a, k in enumerate(windows):
        path = published_rule(labels, min(k, n + 1)) if n else []
        for b, shift in enumerate(shifts):
            scored = {}
            for t in range(n - shift):
                s = start[t]
                if s < (1 if math.isinf(k) else k):
                    continue
                window = labels[:s] if math.isinf(k) else labels[s - int(k) : s]
                guess = path[s] if ties == "evalocl" else mode(window, ties)
                scored[t + shift] = guess == labels[t + shift]
            cells[a, b] = scored
    if common:
        shared = set.intersection(*(set(c) for c in cells.values()))
        cells = {at: {j: c[j] for j in shared} for at, c in cells.items()}
    for at, scored in cells.items():
        if scored:
            result[at] = np.mean(list(scored.values()))
    return result


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("step", [1, 2, 3, 10])
@pytest.mark.parametrize("common", [False, True])
def test_equals_brute_force(ties, step, common):
    rng = np.random.default_rng([len(ties), step])
    for classes in (2, 3, 7):
        labels = rng.integers(0, classes, 150)
        windows, shifts = [1, 2, 3, 7, 20, 61, math.inf], [0, 1, 5, 30]
        got = blind_accuracy(labels, windows, shifts, ties, step, common)
        np.testing.assert_allclose(got, brute(labels, windows, shifts, ties, step, common))


@pytest.mark.parametrize("ties", TIES)
def test_long_windows_slide_exactly(ties):
    """Windows beyond the reach of the backward walk, which take another way through the code."""
    labels = np.random.default_rng(7).choice(5, 900, p=[0.3, 0.3, 0.2, 0.1, 0.1])
    windows, shifts = [100, 257, 400], [0, 13]
    np.testing.assert_allclose(
        blind_accuracy(labels, windows, shifts, ties), brute(labels, windows, shifts, ties)
    )


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=40),
    st.lists(st.sampled_from([1, 2, 3, 5, 8, 50, math.inf]), min_size=1, max_size=4),
    st.lists(st.integers(0, 45), min_size=1, max_size=3),
    st.sampled_from(TIES),
    st.data(),
)
@settings(max_examples=150, deadline=None)
def test_any_stream(labels, windows, shifts, ties, data):
    """Any windows in any order, shifts beyond the end, steps of any sizes, both ways to score."""
    steps = data.draw(st.lists(st.integers(0, 2), min_size=len(labels), max_size=len(labels)))
    step = data.draw(st.sampled_from([1, 2, 7])) if steps[0] == 0 else np.cumsum(steps)
    common = data.draw(st.booleans())
    got = blind_accuracy(labels, windows, shifts, ties, step, common)
    np.testing.assert_allclose(got, brute(labels, windows, shifts, ties, step, common))


@given(st.integers(0, 10_000), st.sampled_from(TIES), st.sampled_from([1, 4, "array"]))
@settings(max_examples=40, deadline=None)
def test_pieces_give_the_same_counts(seed, ties, step):
    """Fed in random pieces, nothing is lost."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, 600).astype(np.int32)
    steps = np.cumsum(rng.random(600) < 0.3) if step == "array" else None
    windows, shifts = [1, 3, 30, 200, math.inf], [0, 9, 150]
    counter = BlindCounter(
        windows, shifts, classes=4, ties=ties, step=1 if steps is not None else step, block=16
    )
    cuts = np.sort(rng.integers(0, 601, 9))
    for a, b in zip([0, *cuts], [*cuts, 600], strict=True):
        counter.feed(labels[a:b], None if steps is None else steps[a:b])
    counter.finish()
    expected = blind_accuracy(labels, windows, shifts, ties, step if steps is None else steps)
    got = counter.hits.sum(axis=0) / counter.tries.sum(axis=0)
    np.testing.assert_allclose(got, expected)


def test_memory_does_not_grow_with_the_stream():
    """What is kept of the labels is bounded by window, shift and piece, whatever the length."""
    rng = np.random.default_rng(0)
    counter = BlindCounter([1, 300], [0, 700], classes=5, step=7, block=8)
    kept = []
    for _ in range(200):
        counter.feed(rng.integers(0, 5, 500).astype(np.int32))
        kept.append(counter._labels.size)
    counter.finish()
    assert counter.length == 100_000
    assert max(kept) <= 2 * (300 + 700 + 500 + 7 + 2)


def test_blocks_are_blocks_of_predictions():
    """Each block counts exactly the predictions made at its own samples."""
    labels = np.random.default_rng(1).integers(0, 3, 200).astype(np.int32)
    counter = BlindCounter([2, 90], [0, 7], classes=3, block=32)
    counter.feed(labels)
    counter.finish()
    for w, k in enumerate([2, 90]):
        for s, shift in enumerate([0, 7]):
            for b in range(7):
                t = [t for t in range(b * 32, min(b * 32 + 32, 200 - shift)) if t >= k]
                right = sum(mode(list(labels[u - k : u]), "recent") == labels[u + shift] for u in t)
                assert counter.tries[b, w, s] == len(t)
                assert counter.hits[b, w, s] == right


def test_hand_computed():
    labels = ["a", "a", "b", "b", "a"]
    # k = 1: a|a right, a|b wrong, b|b right, b|a wrong.
    assert blind_accuracy(labels, [1], [0])[0, 0] == 0.5
    # k = 2, most recent on ties: (a,a)->a vs b, (a,b)->b vs b, (b,b)->b vs a.
    assert blind_accuracy(labels, [2], [0])[0, 0] == pytest.approx(1 / 3)
    # smallest on ties: (a,b)->a vs b.
    assert blind_accuracy(labels, [2], [0], ties="smallest")[0, 0] == 0
    # in steps of 2: sample 2 knows a, sample 3 knows a, sample 4 knows b.
    assert blind_accuracy(labels, [1], [0], step=2)[0, 0] == 0
    assert blind_accuracy(labels, [1], [2], step=2)[0, 0] == 1


def test_shift_rounds_up_to_whole_steps():
    """In steps of B, a shift that is a multiple of B looks exactly that much further back."""
    labels = np.random.default_rng(3).integers(0, 6, 500)
    block = 5
    guess = {s: labels[s - 1] for s in range(block, 500, block)}
    for shift in (0, 5, 20):
        right = [
            guess[(j // block) * block - shift] == labels[j] for j in range(block + shift, 500)
        ]
        assert blind_accuracy(labels, [1], [shift], step=block)[0, 0] == pytest.approx(
            np.mean(right)
        )


@pytest.mark.parametrize(("rho", "classes"), [(0.9, 10), (0.97, 50)])
def test_closed_form_of_a_sticky_chain(rho, classes):
    """Stay with probability rho or redraw: k = 1 has accuracy pi + (1 - pi) rho^(S+1)."""
    rng = np.random.default_rng(classes)
    p = 1 / np.arange(1, classes + 1)
    p /= p.sum()
    n = 400_000
    draws = rng.choice(classes, n, p=p)
    redraw = rng.random(n) >= rho
    redraw[0] = True
    labels = draws[np.maximum.accumulate(np.where(redraw, np.arange(n), 0))]
    pi = np.sum(p**2)
    shifts = np.array([0, 1, 4, 16, 64])
    got = blind_accuracy(labels, [1], shifts)[0]
    np.testing.assert_allclose(got, pi + (1 - pi) * rho ** (shifts + 1), atol=0.012)


def test_reference_levels():
    labels = np.array([3, 1, 1, 3, 1, 1, 2, 1])
    levels = reference_levels(labels)
    # majority so far, the most recent on ties: 3 1 1 3 1 1 1 against 1 1 3 1 1 2 1.
    assert levels.majority == pytest.approx(3 / 7)
    assert levels.constant == 5 / 8
    assert levels.uniform == 1 / 3
    assert levels.squared == pytest.approx((25 + 4 + 1) / 64)
    stepped = reference_levels(labels, step=3, shift=2)
    assert stepped.majority == brute(labels, [math.inf], [2], step=3)[0, 0]
    assert np.isnan(reference_levels([]).majority)


def test_bad_input_is_a_sentence():
    for labels, word in [([0.5, 1.0], "floating"), ([0, -1], "negative"), ([[1]], "flat")]:
        with pytest.raises(StreamgaugeError, match=word):
            blind_accuracy(labels, [1], [0])
    with pytest.raises(StreamgaugeError, match="did you mean 'smallest'"):
        blind_accuracy([0, 1], [1], [0], ties="smalest")
    with pytest.raises(StreamgaugeError, match="window 0"):
        blind_accuracy([0, 1], [0], [0])
    with pytest.raises(StreamgaugeError, match="shift -1"):
        blind_accuracy([0, 1], [1], [-1])
    with pytest.raises(StreamgaugeError, match="step 0"):
        blind_accuracy([0, 1], [1], [0], step=0)
    with pytest.raises(StreamgaugeError, match="never decrease"):
        blind_accuracy([0, 1], [1], [0], step=[1, 0])
    with pytest.raises(StreamgaugeError, match="3 entries for 2 labels"):
        blind_accuracy([0, 1], [1], [0], step=[0, 1, 2])
    with pytest.raises(StreamgaugeError, match="missing"):
        encode(np.array(["a", None], dtype=object))


def test_large_class_numbers_and_strings_agree():
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 5, 300)
    names = np.array(["v", "w", "x", "y", "z"])[numbers]
    huge = numbers * 1_000_003_000
    expected = blind_accuracy(numbers, [1, 4], [0, 3], ties="smallest")
    for same in (names, names.tolist(), huge, numbers.astype(np.uint8)):
        np.testing.assert_array_equal(
            blind_accuracy(same, [1, 4], [0, 3], ties="smallest"), expected
        )
