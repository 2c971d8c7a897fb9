"""Metrics of the stream's own predictions against per-sample loops."""

from __future__ import annotations

import math
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge import metrics as m
from streamgauge.errors import StreamgaugeError

NAN = float("nan")
answered = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=40)


def split(pairs):
    return np.array([p[0] for p in pairs], dtype=int), np.array([p[1] for p in pairs], dtype=int)


@given(answered, st.integers(1, 8))
def test_online_and_running_accuracy(pairs, window):
    label, prediction = split(pairs)
    hits = [a == b for a, b in pairs]
    running = m.running_accuracy(label, prediction)
    moving = m.running_accuracy(label, prediction, window)
    assert len(running) == len(moving) == len(pairs)
    for n in range(len(pairs)):
        assert running[n] == pytest.approx(float(Fraction(sum(hits[: n + 1]), n + 1)))
        last = hits[max(0, n + 1 - window) : n + 1]
        expected = sum(last) / window if len(last) == window else NAN
        np.testing.assert_allclose(moving[n], expected)
    overall = m.online_accuracy(label, prediction)
    if pairs:
        assert overall == running[-1]  # bit for bit
        assert overall == float(Fraction(sum(hits), len(hits)))
    else:
        assert math.isnan(overall)


def test_labels_may_be_words():
    assert m.online_accuracy(np.array(["cat", "dog"]), np.array(["cat", "cat"])) == 0.5


@given(answered)
def test_per_class_and_macro(pairs):
    label, prediction = split(pairs)
    each = m.per_class_accuracy(label, prediction, classes=6)
    known = []
    for c in range(6):
        mine = [a == b for a, b in pairs if a == c]
        if mine:
            known.append(sum(mine) / len(mine))
            assert each[c] == pytest.approx(known[-1])
        else:
            assert math.isnan(each[c])
    macro = m.macro_accuracy(label, prediction)
    assert macro == pytest.approx(sum(known) / len(known)) if known else math.isnan(macro)


def test_macro_of_perfect_constant_and_balanced():
    label = np.repeat(np.arange(5), 8)
    assert m.macro_accuracy(label, label) == 1
    assert m.macro_accuracy(label, np.zeros(40, int)) == pytest.approx(0.2)
    rng = np.random.default_rng(1)
    guess = rng.integers(0, 5, 40)
    assert m.macro_accuracy(label, guess) == pytest.approx(m.online_accuracy(label, guess))


def slow_calibration(pairs, sure, bins):
    total = 0.0
    for b in range(bins):
        low, high = b / bins, (b + 1) / bins
        mine = [i for i, c in enumerate(sure) if low < c <= high or (b == 0 and c == 0)]
        if mine:
            accuracy = sum(pairs[i][0] == pairs[i][1] for i in mine) / len(mine)
            total += len(mine) / len(sure) * abs(accuracy - sum(sure[i] for i in mine) / len(mine))
    return total


@given(st.data(), st.sampled_from([1, 4, 8, 16]))
def test_calibration_error(data, bins):
    pairs = data.draw(answered.filter(bool))
    # Sixty-fourths are exact, so that both sides agree on which side of an edge they lie.
    parts = st.lists(st.integers(0, 64), min_size=len(pairs), max_size=len(pairs))
    sure = [s / 64 for s in data.draw(parts)]
    found = m.calibration_error(*split(pairs), sure, bins=bins)
    assert found == pytest.approx(slow_calibration(pairs, sure, bins), abs=1e-12)
    assert 0 <= found <= 1


def test_calibrated_and_overconfident():
    rng = np.random.default_rng(2)
    sure = rng.uniform(0.5, 1, 40_000)
    right = rng.random(40_000) < sure
    label = np.zeros(40_000, int)
    assert m.calibration_error(label, np.where(right, 0, 1), sure) < 0.01
    assert m.calibration_error(label, np.ones(40_000, int), np.ones(40_000)) == 1
    # 0.5 belongs to the lower of two bins, together with 0.3: |1 - 0.8| / 2.
    assert m.calibration_error([0, 0], [0, 1], [0.5, 0.3], bins=2) == pytest.approx(0.1)
    assert math.isnan(m.calibration_error([0], [0], [NAN]))
    assert math.isnan(m.calibration_error([], [], []))


# --- albums ----------------------------------------------------------------------------------


def slow_album(rows):
    """rows: (step, user, correct) in stream order."""
    batches: dict[int, list[tuple[int, bool]]] = {}
    for step, user, right in rows:
        batches.setdefault(step, []).append((user, right))
    last_user = object()
    scores = []
    for _, batch in sorted(batches.items()):
        i = 0
        while i < len(batch) and batch[i][0] == last_user:
            i += 1
        album = []
        while i < len(batch) and (not album or batch[i][0] == batch[i - 1][0]):
            album.append(batch[i][1])
            i += 1
        if album:
            scores.append(sum(album) / len(album))
        last_user = batch[-1][0]
    return sum(scores) / len(scores) if scores else NAN


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2), st.booleans()), max_size=30),
    st.integers(1, 6),
)
def test_album_accuracy(runs, batch):
    users = [user for length, user, _ in runs for _ in range(length)]
    right = [(i * 7 + ok) % 3 > 0 for i, (length, _, ok) in enumerate(runs) for _ in range(length)]
    steps = [3 * (i // batch) for i in range(len(users))]  # gaps in the numbering do not matter
    found = m.album_accuracy(np.zeros(len(users)), [0 if r else 1 for r in right], users, steps)
    np.testing.assert_allclose(found, slow_album(list(zip(steps, users, right, strict=True))))


def test_album_accuracy_by_hand():
    # Step 1 goes on with user 8, so its first new album is user 9's; step 2 has none at all.
    user = [7, 7, 8, 8, 9, 9, 9, 9, 3]
    step = [0, 0, 0, 1, 1, 1, 2, 2, 3]
    right = [1, 0, 1, 1, 1, 1, 1, 1, 0]
    found = m.album_accuracy(np.zeros(9, int), 1 - np.array(right), user, step)
    assert found == pytest.approx((0.5 + 1.0 + 0.0) / 3)
    words = np.array(list("aabbccccd"))
    assert m.album_accuracy(np.zeros(9, int), 1 - np.array(right), words, step) == found


# --- near future -----------------------------------------------------------------------------


def make_log(n, batch, shifts, seed, stride=1):
    """Rows as a run would log them: shift S has no rows for the first S samples."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 3, n)
    rows = []
    for S in shifts:
        for i in range(n):
            step = i // batch
            if i >= S and step % stride == 0:
                rows.append((step, 1000 + (i * 7) % n, label[i], rng.integers(0, 3), S))
    rng.shuffle(rows)
    table = np.array(rows, dtype=int).reshape(-1, 5)
    names = ("step", "sample", "label", "prediction", "shift")
    return SimpleNamespace(predictions=dict(zip(names, table.T, strict=True))), rows


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("stride", [1, 2])
def test_near_future_accuracy(seed, stride):
    shifts = [0, 3, 10, 16]
    log, rows = make_log(41, 4, shifts, seed, stride)
    asked = [16, 0, 5, 3, 10, 0]
    plain = m.near_future_accuracy(log, asked)
    common = m.near_future_accuracy(log, asked, common=True)
    targets = [{(r[0], r[1]) for r in rows if r[4] == S} for S in shifts]
    shared = set.intersection(*targets)
    for value, same, S in zip(plain, common, asked, strict=True):
        mine = [r for r in rows if r[4] == S]
        if not mine:
            assert math.isnan(value)
            assert math.isnan(same)
            continue
        assert value == pytest.approx(np.mean([r[2] == r[3] for r in mine]))
        some = [r[2] == r[3] for r in mine if (r[0], r[1]) in shared]
        assert same == pytest.approx(np.mean(some))


@given(answered)
def test_shift_zero_is_online_accuracy_bit_for_bit(pairs):
    label, prediction = split(pairs)
    n = len(pairs)
    log = SimpleNamespace(
        predictions={
            "step": np.arange(n),
            "sample": np.arange(n),
            "label": label,
            "prediction": prediction,
            "shift": np.zeros(n, int),
        }
    )
    online = m.online_accuracy(label, prediction)
    for common in (False, True):
        (found,) = m.near_future_accuracy(log, 0, common=common)
        assert found == online or (math.isnan(found) and math.isnan(online))


def test_a_sample_that_returns_is_another_target():
    rows = np.array([[0, 5, 1, 1, 0], [1, 5, 1, 0, 0], [1, 5, 1, 1, 1]]).T
    names = ("step", "sample", "label", "prediction", "shift")
    log = SimpleNamespace(predictions=dict(zip(names, rows, strict=True)))
    np.testing.assert_array_equal(m.near_future_accuracy(log, [0, 1], common=True), [0, 1])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: m.online_accuracy([1, 2], [1]), "equal lengths"),
        (lambda: m.online_accuracy([[1]], [[1]]), "one-dimensional"),
        (lambda: m.running_accuracy([1], [1], window=0), "1 or more samples"),
        (lambda: m.album_accuracy([1, 1], [1, 1], [1, 2], [1, 0]), "step decreases"),
        (lambda: m.per_class_accuracy([-1], [0]), "integer labels from 0"),
        (lambda: m.per_class_accuracy([0.5], [0]), "integer labels from 0"),
        (lambda: m.per_class_accuracy([7], [0], classes=3), "outside the 3 classes"),
        (lambda: m.calibration_error([0], [0], [3.0]), "softmax"),
        (lambda: m.calibration_error([0], [0], [0.5], bins=0), "1 bin or more"),
        (
            lambda: m.near_future_accuracy(SimpleNamespace(predictions={"labels": []}), 0),
            "no column 'shift'",
        ),
        (
            lambda: m.near_future_accuracy(make_log(5, 1, [0], 0)[0], -1),
            "0 or more",
        ),
    ],
)
def test_bad_input_gets_a_sentence(call, words):
    with pytest.raises(StreamgaugeError, match=words):
        call()


def test_samples_with_random_numbers_stay_apart():
    """Step times range of the numbers is 2^64 here, which an integer takes for 0."""
    rows = {
        "step": np.array([0, 4, 4]),
        "sample": np.array([0, 2**62 - 1, 0]),
        "label": np.array([0, 0, 1]),
        "prediction": np.array([0, 0, 0]),
        "shift": np.array([0, 0, 1]),
    }
    # (0, 0) and (4, 2^62 - 1) at shift 0, (4, 0) at shift 1: nothing is common.
    found = m.near_future_accuracy(SimpleNamespace(predictions=rows), [0, 1], common=True)
    assert np.isnan(found).all()


def test_macro_of_labels_that_are_large_numbers():
    small = m.macro_accuracy([0, 0, 1], [0, 1, 1])
    large = m.macro_accuracy(np.array([5, 5, 10**15]), np.array([5, 10**15, 10**15]))
    assert small == large == 0.75


def test_targets_are_pairs_of_step_and_sample():
    """A step that is a multiple of the number of samples is no other sample's target."""
    rows = {
        "step": np.array([2, 0, 5, 2]),
        "sample": np.array([0, 1, 0, 0]),
        "shift": np.array([0, 0, 0, 1]),
        "label": np.array([3, 3, 3, 3]),
        "prediction": np.array([3, 1, 1, 3]),
    }
    found = m.near_future_accuracy(SimpleNamespace(predictions=rows), [0, 1], common=True)
    np.testing.assert_array_equal(found, [1, 1])
