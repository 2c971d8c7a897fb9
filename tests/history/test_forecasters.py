"""The forecasters and their mixture."""

from __future__ import annotations

import numpy as np

from streamgauge.history.forecasters import Forecaster, family_hits, family_right
from streamgauge.history.known import Regular


def test_hits_of_simple_forecasters_are_those_of_plain_loops() -> None:
    rng = np.random.default_rng(0)
    y = np.where(rng.random(500) < 0.6, np.arange(500) // 3 % 5, rng.integers(0, 5, 500))
    y = y.astype(np.int32)
    for shift in (0, 3):
        names, hits, tries = family_hits(y, 5, Regular(shift), block=100, start=50)
        right, points = family_right(y, 5, Regular(shift))
        assert [*points, "the mixture"] == names
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
            column = hits[:, names.index(name)]
            assert column.tolist() == [sum(slow[b : b + 100]) for b in range(0, 450, 100)]


def test_one_label_at_a_time_is_the_batch() -> None:
    rng = np.random.default_rng(1)
    y = ((np.arange(600) % 12 // 2 + (rng.random(600) < 0.1)) % 6).astype(np.int32)
    for step in (1, 4):
        forecaster = Forecaster(6)
        hits = []
        for j in range(0, 600, step):
            hits += [forecaster.top(ahead=i) == c for i, c in enumerate(y[j : j + step])]
            forecaster.learn(y[j : j + step])
            if j == 300:
                saved = forecaster.save()
                forecaster = Forecaster(6)
                forecaster.load(saved)
        assert abs(forecaster.probabilities().sum() - 1) < 1e-12
        names, batch, _ = family_hits(y, 6, Regular(0, step), block=600)
        assert any("samples back" in name for name in names)
        assert batch[0, -1] == sum(hits)
