"""Where a stream changes: false alarms, power and position on streams whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from test_drift import chain, sure_below

from streamgauge.drift.changes import LEAST, Change, changes, label_changes


def slow_scores(bins: np.ndarray) -> np.ndarray:
    """The score of every cut as the docstring writes it, in loops."""
    m, scores = len(bins), []
    for k in range(LEAST, m - LEAST + 1):
        total = 0.0
        for column in bins.T:
            if column.var() > 0:
                total += (column[:k].sum() - k / m * column.sum()) ** 2 / column.var()
        scores.append(total / (k * (m - k) / m))
    return np.array(scores)


def changed(seed: int, count: int, rho: float, share: float, at: int) -> np.ndarray:
    """From `at` on, a share of the runs of equal labels is exchanged."""
    label = chain(seed, count, rho)
    rng = np.random.default_rng([seed, 2])
    run = np.cumsum(np.diff(label, prepend=-1) != 0)
    moved = (rng.random(run[-1] + 1) < share)[run] & (np.arange(count) >= at)
    return np.where(moved, 9 - label, label)


@pytest.mark.parametrize(("count", "rho"), [(4000, 0.0), (4000, 0.9), (20_000, 0.97)])
def test_streams_that_do_not_change_have_no_mark(count: int, rho: float) -> None:
    found = [bool(label_changes(chain(seed, count, rho), chance=0.05)) for seed in range(60)]
    assert np.mean(found) <= sure_below(0.05, 60)


@pytest.mark.parametrize(("count", "rho", "share"), [(4000, 0.0, 0.4), (20_000, 0.9, 0.6)])
def test_a_change_is_found_where_it_is(count: int, rho: float, share: float) -> None:
    at = 2 * count // 5
    found = [label_changes(changed(seed, count, rho, share, at)) for seed in range(20)]
    near = [any(abs(c.position - at) < 0.05 * count for c in some or ()) for some in found]
    assert np.mean(near) >= 0.9


def test_the_cut_has_the_largest_score_of_the_formula() -> None:
    rng = np.random.default_rng(0)
    bins = rng.random((40, 3))
    bins[25:, 1] += 1
    bins[:, 2] = 7  # says nothing
    (found,) = changes(bins, size=10)
    assert found.position == 10 * (LEAST + int(slow_scores(bins).argmax())) == 250
    assert found.before == pytest.approx(bins[:25].mean(axis=0))
    assert found.after == pytest.approx(bins[25:].mean(axis=0))


@pytest.mark.parametrize("share", [0.1, 0.3, 1 / 3, 0.7, 0.95])
def test_a_class_that_is_equally_frequent_in_every_bin_hides_no_change(share: float) -> None:
    """The variance of such a column is a rounding error, not always 0."""
    rng = np.random.default_rng(0)
    for count in (64, 150, 200, 256):
        change = rng.normal(0.3, 0.1, (count, 1)) + np.repeat([0, 0.1], count // 2)[:, None]
        also = np.hstack([change, np.full((count, 1), share)])
        assert [c.position for c in changes(also)] == [c.position for c in changes(change)] != []


def test_several_changes_and_how_much_of_the_labels_moves() -> None:
    rng = np.random.default_rng(1)
    parts = [rng.integers(0, 4, 3000), rng.integers(2, 6, 3000), rng.integers(0, 4, 3000)]
    found = label_changes(np.concatenate(parts))
    assert found is not None
    assert [round(c.position, -3) for c in found] == [3000, 6000]
    assert [round(c.moved, 1) for c in found] == [0.5, 0.5]
    assert Change(1, np.array([1.0, 0]), np.array([0.0, 1])).moved == 1


def test_what_cannot_be_told_is_none_not_no_change() -> None:
    assert label_changes([0, 1, 0]) is None
    assert label_changes(np.zeros(0, int)) is None
    assert label_changes(np.repeat(np.arange(4), 2)) is None
    assert label_changes(np.zeros(1000, int)) == []
