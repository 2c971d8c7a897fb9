"""The forecasters and their mixture."""

from __future__ import annotations

import numpy as np
import pytest
from slow_forecasters import slow_bits

from streamgauge.history.forecasters import (
    Forecaster,
    family_right,
    forecast,
    groups_of,
)
from streamgauge.history.known import Regular, known_labels


def test_hits_of_simple_forecasters_are_those_of_plain_loops() -> None:
    rng = np.random.default_rng(0)
    y = np.where(rng.random(500) < 0.6, np.arange(500) // 3 % 5, rng.integers(0, 5, 500))
    y = y.astype(np.int32)
    for shift in (0, 3):
        done = forecast(y, 5, Regular(shift), block=100, start=50)
        hits, tries = done.hits, done.tries
        right, points = family_right(y, 5, Regular(shift))
        assert points == done.names
        bits = right[:, None] >> np.arange(len(points), dtype=np.uint64) & np.uint64(1)
        np.testing.assert_array_equal(bits[50:].sum(axis=0), hits[:, :-1].sum(axis=0))
        assert tries.tolist() == [100, 100, 100, 100, 50]
        last = [y[j] == y[j - 1 - shift] for j in range(50, 500)]
        seen = {c: max(np.flatnonzero(y[:60] == c)) for c in range(5)}
        assert len(seen) == 5
        rare = []
        for j in range(50, 500):
            past = y[: j - shift].tolist()
            oldest = min(set(past), key=lambda c: len(past) - past[::-1].index(c))
            rare.append(y[j] == oldest)
        for name, slow in (("the last label", last), ("the least recently seen class", rare)):
            column = hits[:, done.names.index(name)]
            assert column.tolist() == [sum(slow[b : b + 100]) for b in range(0, 450, 100)]


def test_one_label_at_a_time_is_the_batch() -> None:
    rng = np.random.default_rng(1)
    y = ((np.arange(600) % 12 // 2 + (rng.random(600) < 0.1)) % 6).astype(np.int32)
    for step in (1, 4):
        forecaster = Forecaster(6, delayed=step > 1)
        hits = []
        for j in range(0, 600, step):
            hits += [forecaster.top(ahead=i) == c for i, c in enumerate(y[j : j + step])]
            forecaster.learn(y[j : j + step])
            if j == 300:
                saved = forecaster.save()
                forecaster = Forecaster(6)
                forecaster.load(saved)
        assert abs(forecaster.probabilities().sum() - 1) < 1e-12
        batch = forecast(y, 6, Regular(0, step), block=600)
        assert any("samples back" in name for name in batch.names)
        assert batch.hits[0, -1] == sum(hits)


def stream(n: int, classes: int, seed: int) -> np.ndarray:
    """Sticky labels, then a noisy period of 12, then rounds of permutations."""
    rng = np.random.default_rng(seed)
    sticky = np.cumsum(rng.random(n // 3) < 0.2) % classes
    pattern = rng.integers(0, classes, 12)
    period = np.where(rng.random(n) < 0.9, np.tile(pattern, n)[:n], rng.integers(0, classes, n))
    rounds = np.concatenate([rng.permutation(classes) for _ in range(n)])
    y = np.concatenate([period[: n // 2], sticky, rounds])[:n]
    return y.astype(np.int32)


CASES: dict[str, dict[str, object]] = {
    "shift 0": {},
    "shift": {"shift": 4},
    "steps": {"step": 7, "shift": 2},
    "late": {"late": True},
    "ages": {"ages": True},
    "users": {"users": True, "times": True},
    "all": {"late": True, "ages": True, "users": True, "times": True, "step": 3, "own": True},
}


@pytest.mark.parametrize("case", CASES)
def test_a_slow_version_gives_the_same_bits(case: str) -> None:
    n, classes = 260, 5
    given = CASES[case]
    rng = np.random.default_rng(len(case))
    y = stream(n, classes, seed=1)
    times = np.cumsum(rng.integers(1, 9000, n))
    users, albums = rng.integers(0, 6, n), np.arange(n) // 9
    known = known_labels(
        n,
        shift=rng.integers(0, 9, n) if "ages" in given else given.get("shift", 0),
        step=given.get("step", 1),
        times=times,
        label_times=times + rng.integers(0, 50_000, n) if "late" in given else None,
    )
    columns: dict[str, np.ndarray] = {}
    if "users" in given:
        columns |= {"user": users, "album": albums}
    lasting = list(columns)
    if "times" in given:
        columns |= {"h": times // 3600 % 24, "d": times // 86400 % 7, "w": times // 3600 % 168}
    answers = np.where(rng.random(n) < 0.5, y, rng.integers(-1, classes, n)).astype(np.int32)
    logp, sure = (np.log(rng.random(n)), rng.random(n)) if "own" in given else (None, None)
    groups = groups_of(
        n,
        times=times if "times" in given else None,
        users=users if "users" in given else None,
        albums=albums if "users" in given else None,
    )
    right = np.zeros(n, np.uint64)
    got = forecast(
        y, classes, known, groups, answers=answers, logp=logp, confidence=sure, block=1, right=right
    )
    order = range(n) if known.order is None else known.order.tolist()
    rows = [{name: int(c[j]) for name, c in columns.items()} for j in range(n)]
    bits, tops, weights, periods = slow_bits(
        y.tolist(),
        classes,
        order,
        known.known.tolist(),
        answers.tolist(),
        rows,
        lasting,
        logp,
        sure,
    )
    np.testing.assert_allclose(got.bits, bits, atol=1e-9)
    np.testing.assert_array_equal(right >> np.uint64(63), np.array(tops) == y)
    np.testing.assert_allclose(got.state.weights[0, : len(weights)], weights, atol=1e-9)
    assert got.state.periods[: len(periods)].tolist() == periods
    assert periods or case not in ("shift 0", "users")
