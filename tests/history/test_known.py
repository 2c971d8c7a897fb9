"""What was known when each sample was answered, against the definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgauge.errors import StreamgaugeError
from streamgauge.history.known import Regular, known_labels


@settings(max_examples=60, deadline=None)
@given(data=st.data(), count=st.integers(1, 25), delay=st.integers(0, 4))
def test_labels_that_had_arrived_at_the_start_of_the_step(
    data: st.DataObject, count: int, delay: int
) -> None:
    def numbers(low: int, high: int) -> list[int]:
        return data.draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    shift = np.array(numbers(0, 6))
    step = np.cumsum(numbers(0, 1))
    times = np.cumsum(numbers(0, 2)).astype(float)
    late = times + np.array(numbers(-2, 5))
    late[np.array(numbers(0, 9)) == 0] = np.nan
    got = known_labels(count, shift=shift, step=step, times=times, label_times=late, delay=delay)
    assert got.order is not None
    for j in range(count):
        at = j - int(shift[j])
        position = list(step).index(step[at]) if at >= 0 else -1
        known = {
            i
            for i in range(max(0, position - delay))
            if max(late[i], times[i]) < times[position] and not np.isnan(late[i])
        }
        assert set(got.order[: got.known[j]].tolist()) == known


@settings(max_examples=50, deadline=None)
@given(
    shift=st.integers(0, 9), step=st.integers(1, 7), delay=st.integers(0, 9), n=st.integers(1, 60)
)
def test_regular_steps_are_the_same_piece_by_piece(
    shift: int, step: int, delay: int, n: int
) -> None:
    whole = known_labels(n, shift=shift, step=step, delay=delay)
    regular = Regular(shift, step, delay)
    np.testing.assert_array_equal(regular.between(n // 3, n), whole.known[n // 3 :])


def test_errors_say_what_to_do() -> None:
    with pytest.raises(StreamgaugeError, match="give the time of every sample"):
        known_labels(2, label_times=[1, 2])
    with pytest.raises(StreamgaugeError, match="sort the samples by time"):
        known_labels(2, times=[2, 1], label_times=[3, 4])
    with pytest.raises(StreamgaugeError, match="one number or one per sample"):
        known_labels(3, shift=[1, 2])
