"""Memories against loops over single samples, and against what their docstrings promise."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgauge.errors import StreamgaugeError
from streamgauge.memory import (
    POLICIES,
    ClassBalanced,
    Everything,
    Fifo,
    Memory,
    Mixed,
    Reservoir,
    RingPerClass,
    make,
)

Batches = list[np.ndarray]  # of labels; addresses are 1000, 1001, ... in order of arrival


def with_addresses(batches: Batches) -> list[tuple[np.ndarray, np.ndarray]]:
    ends = np.cumsum([len(b) for b in batches])
    return [(1000 + np.arange(e - len(b), e), b) for b, e in zip(batches, ends, strict=True)]


def label_batches(classes: int = 6, most: int = 12) -> st.SearchStrategy[Batches]:
    batch = st.lists(st.integers(0, classes - 1), max_size=most)
    return st.lists(batch.map(lambda b: np.array(b, dtype=np.int64)), max_size=12)


# --- the policies, one sample after another, written to be obviously right


def slow_fifo(labels: list[int], capacity: int) -> set[int]:
    return set(range(len(labels))[-capacity:])


def slow_reservoir(n: int, capacity: int, draws: list[int]) -> list[int]:
    held: list[int] = []
    coming = iter(draws)
    for t in range(n):
        if t < capacity:
            held.append(t)
        else:
            j = next(coming)
            if j < capacity:
                held[j] = t
    return held


def slow_class_balanced(labels: list[int], keys: list[float], capacity: int) -> set[int]:
    """After every single sample: new quotas, and the smallest keys of a class beyond them go."""
    held: dict[int, list[tuple[float, int]]] = {}
    for t, (label, key) in enumerate(zip(labels, keys, strict=True)):
        held.setdefault(label, []).append((key, t))
        for position, cls in enumerate(held):  # a dict remembers the order of first appearance
            quota = capacity // len(held) + (1 if position < capacity % len(held) else 0)
            held[cls] = sorted(held[cls], reverse=True)[:quota]
    return {t for items in held.values() for _, t in items}


def slow_ring(labels: list[int], per_class: int) -> set[int]:
    held: dict[int, list[int]] = {}
    for t, label in enumerate(labels):
        held[label] = [*held.get(label, []), t][-per_class:]
    return {t for items in held.values() for t in items}


def run(memory: Memory, batches: Batches) -> list[int]:
    """Add all; check at every step what holds for every policy; return all labels seen."""
    seen: list[int] = []
    for index, label in with_addresses(batches):
        before = {int(s): int(memory.index[s]) for s in memory.slots()}
        returned = memory.add(index, label)
        seen.extend(int(y) for y in label)

        assert returned.shape == label.shape
        assert returned.dtype == np.int64
        filled = memory.slots()
        assert len(set(filled.tolist())) == len(filled) == len(memory)
        if memory.capacity is not None:
            assert len(memory) <= memory.capacity
        held = memory.index[filled]
        assert len(set(held.tolist())) == len(held)
        assert [seen[i - 1000] for i in held] == memory.label[filled].tolist()
        for address, slot in zip(index, returned, strict=True):
            # a sample is where `add` said, or nowhere
            assert (memory.index[slot] == address) if slot >= 0 else (address not in held)
        new = set(index.tolist())
        now = {int(memory.index[s]): int(s) for s in filled}
        for slot, address in before.items():
            assert now.get(address, slot) == slot, "a sample that stays keeps its slot"
        assert set(now) <= new | set(before.values()), "nothing comes back"
    return seen


def held(memory: Memory) -> set[int]:
    return {int(i) - 1000 for i in memory.index[memory.slots()]}


@given(label_batches(), st.integers(1, 15), st.integers(0, 99))
def test_fifo_equals_loop(batches: Batches, capacity: int, seed: int) -> None:
    memory = Fifo(capacity, seed)
    seen = run(memory, batches)
    assert held(memory) == slow_fifo(seen, capacity)
    for n in (0, 1, 3, 50):
        expected = list(range(1000, 1000 + len(seen)))[-capacity:]
        expected = expected[len(expected) - min(n, len(expected)) :]
        assert memory.index[memory.newest(n)].tolist() == expected


@given(label_batches(), st.integers(1, 15), st.integers(0, 99))
def test_reservoir_equals_loop_with_the_same_draws(
    batches: Batches, capacity: int, seed: int
) -> None:
    memory = Reservoir(capacity, seed)
    twin = np.random.default_rng(seed)
    draws: list[int] = []
    t = 0
    for batch in batches:
        late = [u for u in range(t, t + len(batch)) if u >= capacity]
        if late:
            draws += twin.integers(0, np.array(late) + 1).tolist()
        t += len(batch)
    seen = run(memory, batches)
    expected = slow_reservoir(len(seen), capacity, draws)
    assert (memory.index - 1000).tolist() == expected


@settings(max_examples=300)
@given(label_batches(classes=9, most=20), st.integers(1, 15), st.integers(0, 99))
def test_class_balanced_equals_loop(batches: Batches, capacity: int, seed: int) -> None:
    memory = ClassBalanced(capacity, seed)
    seen = run(memory, batches)
    keys = np.random.default_rng(seed).random(len(seen)).tolist()
    assert held(memory) == slow_class_balanced(seen, keys, capacity)

    order = list(dict.fromkeys(seen))
    counts = Counter(memory.label[memory.slots()].tolist())
    for position, cls in enumerate(order):
        quota = capacity // len(order) + (position < capacity % len(order))
        assert counts[cls] == min(quota, seen.count(cls))
    empty = np.setdiff1d(np.arange(capacity), memory.slots())
    assert (memory.index[empty] == -1).all()
    assert (memory.label[empty] == -1).all()


@pytest.mark.parametrize("size", [1, 10, 333, 4000])
def test_class_balanced_is_the_same_for_any_batch_size(size: int) -> None:
    labels = np.random.default_rng(3).zipf(1.5, 4000) % 60
    memory = ClassBalanced(200, seed=1)
    for start in range(0, 4000, size):
        part = labels[start : start + size]
        memory.add(1000 + np.arange(start, start + len(part)), part)
    keys = np.random.default_rng(1).random(4000)
    order = list(dict.fromkeys(labels.tolist()))
    expected: set[int] = set()
    for position, cls in enumerate(order):
        quota = 200 // len(order) + (position < 200 % len(order))
        of_class = np.flatnonzero(labels == cls)
        expected |= set(of_class[np.argsort(-keys[of_class])[:quota]].tolist())
    assert held(memory) == expected


def test_class_balanced_quotas_of_the_survey() -> None:
    # CIFAR-100 in tasks of five classes, memory 2000: 400 a class in task 1, 20 at the end.
    memory = ClassBalanced(2000, seed=0)
    rng = np.random.default_rng(0)
    for task in range(20):
        labels = 5 * task + rng.permutation(np.repeat(np.arange(5), 475))
        for start in range(0, len(labels), 25):
            memory.add(np.arange(25), labels[start : start + 25])
        counts = np.bincount(memory.label[memory.slots()])
        share = 2000 // (5 * (task + 1))
        assert len(memory) == 2000
        assert set(counts.tolist()) <= {share, share + 1}


@given(label_batches(), st.integers(1, 5), st.integers(0, 99))
def test_ring_equals_loop(batches: Batches, per_class: int, seed: int) -> None:
    memory = RingPerClass(per_class, seed)
    seen = run(memory, batches)
    assert held(memory) == slow_ring(seen, per_class)
    assert memory.capacity == per_class * len(set(seen))


@given(label_batches(most=300), st.integers(0, 99))
def test_everything_and_mixed_hold_all_in_order(batches: Batches, seed: int) -> None:
    for memory in (Everything(seed), Mixed(seed)):
        seen = run(memory, batches)
        assert memory.index.tolist() == list(range(1000, 1000 + len(seen)))
        assert memory.label.tolist() == seen
        assert memory.capacity is None
        assert not memory.bounded
        assert memory.newest(3).tolist() == list(range(len(seen)))[-3:]


# --- recall


def any_memory(policy: str, seed: int = 0, capacity: int = 7) -> Memory:
    return make(policy, capacity, seed)


@pytest.mark.parametrize("policy", POLICIES)
@given(batches=label_batches(), n=st.integers(0, 30), seed=st.integers(0, 9))
@settings(max_examples=40)
def test_recall_gives_filled_slots_and_changes_nothing(
    policy: str, batches: Batches, n: int, seed: int
) -> None:
    memory = any_memory(policy, seed)
    assert len(memory.recall(n)) == 0
    run(memory, batches)
    before = memory.state_dict()
    slots = memory.recall(n)
    after = memory.state_dict()
    del before["rng"], after["rng"]
    assert same(before, after)
    assert set(slots.tolist()) <= set(memory.slots().tolist())
    if memory.replacement:
        assert len(slots) == (n if len(memory) else 0)
    elif policy == "mixed":
        assert len(slots) == min(n // 2, len(memory)) + min(n - n // 2, len(memory))
    else:
        assert len(slots) == min(n, len(memory))
        assert len(set(slots.tolist())) == len(slots)


@pytest.mark.parametrize("policy", POLICIES)
def test_no_negative_recall(policy: str) -> None:
    memory = any_memory(policy)
    memory.add([1], [0])
    with pytest.raises(StreamgaugeError, match="cannot recall -1"):
        memory.recall(-1)


def frequencies(memory: Memory, n: int, times: int) -> np.ndarray:
    """How often each slot was recalled."""
    return np.bincount(
        np.concatenate([memory.recall(n) for _ in range(times)]), minlength=len(memory)
    )


def chi2_ok(observed: np.ndarray, expected: np.ndarray) -> bool:
    """Chi-square within 5 standard deviations of its mean (the seeds are fixed)."""
    freedom = len(observed) - 1
    statistic = float(((observed - expected) ** 2 / expected).sum())
    return statistic < freedom + 5 * np.sqrt(2 * freedom)


@pytest.mark.parametrize(
    "memory",
    [
        Fifo(20, 0),
        Fifo(20, 0, replacement=False),
        Reservoir(20, 0),
        Reservoir(20, 0, replacement=True),
        ClassBalanced(20, 0),
        ClassBalanced(20, 0, replacement=True),
        Everything(0),
        Everything(0, replacement=True),
    ],
    ids=lambda m: f"{type(m).__name__}-{m.replacement}",
)
def test_recall_is_uniform(memory: Memory) -> None:
    for start in range(0, 40, 10):
        memory.add(np.arange(start, start + 10), np.arange(10) % 4)
    count = frequencies(memory, 6, 4000)
    assert chi2_ok(count, np.full(len(memory), 24000 / len(memory)))
    assert not chi2_ok(count + np.arange(len(memory)) * 40, np.full(len(memory), count.mean()))


def test_ring_draws_the_class_first() -> None:
    memory = RingPerClass(8, seed=0)
    memory.add(np.arange(11), [3] * 8 + [9] * 2 + [5])
    count = frequencies(memory, 10, 3000)
    weight = np.array([1 / 8] * 8 + [1 / 2] * 2 + [1.0]) / 3
    assert chi2_ok(count, 30000 * weight)


def test_ring_without_replacement_is_successive_drawing() -> None:
    # First and second of a batch of two, against the two-step law worked out by hand.
    memory = RingPerClass(3, seed=0, replacement=False)
    memory.add(np.arange(4), [0, 0, 0, 1])
    p = np.array([1 / 6, 1 / 6, 1 / 6, 1 / 2])
    pairs = np.zeros((4, 4))
    for _ in range(6000):
        a, b = memory.recall(2)
        pairs[a, b] += 1
    law = p[:, None] * p[None, :] / (1 - p[:, None])
    off = ~np.eye(4, dtype=bool)
    assert pairs[~off].sum() == 0
    assert chi2_ok(pairs[off], 6000 * law[off])


def test_ring_without_replacement_falls_back_on_a_race_with_the_same_law() -> None:
    memory = RingPerClass(3, seed=0, replacement=False)
    memory.add(np.arange(4), [0, 0, 0, 1])
    last = np.zeros(4)
    for _ in range(6000):
        last[memory._race(np.array([3]), 3)[-1]] += 1
        assert sorted(memory.recall(9)) == [0, 1, 2, 3]
    assert last[3] == 0  # was taken before
    assert chi2_ok(last[:3], np.full(3, 2000))
    first = np.zeros(4)
    for _ in range(6000):
        first[memory._race(np.array([], dtype=np.int64), 1)[0]] += 1
    assert chi2_ok(first, 6000 * np.array([1 / 6, 1 / 6, 1 / 6, 1 / 2]))


def test_mixed_is_half_newest_half_uniform() -> None:
    memory = Mixed(seed=0)
    memory.add(np.arange(30), np.zeros(30))
    slots = np.array([memory.recall(7) for _ in range(5000)])
    assert (slots[:, :3] == [27, 28, 29]).all()
    uniform = slots[:, 3:]
    assert all(len(set(row)) == 4 for row in uniform.tolist())
    assert chi2_ok(np.bincount(uniform.ravel(), minlength=30), np.full(30, 20000 / 30))


def test_reservoir_holds_each_sample_equally_often() -> None:
    count = np.zeros(60)
    for seed in range(3000):
        memory = Reservoir(12, seed)
        for start in range(0, 60, 20):
            memory.add(np.arange(start, start + 20), np.zeros(20))
        count[memory.index] += 1
    # 12 of 60 without replacement: the variance of a count is that of a binomial.
    expected, sd = 600, np.sqrt(3000 * 0.2 * 0.8)
    assert np.abs(count - expected).max() < 4.5 * sd
    assert count.std() == pytest.approx(sd, rel=0.4)


def test_class_balanced_is_uniform_within_a_class() -> None:
    count = np.zeros(60)
    labels = np.arange(60) // 30  # the quota of class 0 shrinks from 10 to 5 when 1 appears
    for seed in range(3000):
        memory = ClassBalanced(10, seed)
        for start in range(0, 60, 20):
            memory.add(np.arange(start, start + 20), labels[start : start + 20])
        count[memory.index[memory.slots()]] += 1
    expected, sd = 500, np.sqrt(3000 * (1 / 6) * (5 / 6))
    assert np.abs(count - expected).max() < 4.5 * sd


# --- side arrays


@pytest.mark.parametrize("policy", POLICIES)
@given(batches=label_batches(), seed=st.integers(0, 9))
@settings(max_examples=40)
def test_side_arrays_stay_with_their_sample(policy: str, batches: Batches, seed: int) -> None:
    memory = any_memory(policy, seed)
    for index, label in with_addresses(batches):
        logits = np.stack([index, -index, 2 * index], axis=1).astype(np.float32)
        memory.add(index, label, logits=logits, score=index / 8)
    if any(len(b) for b in batches):
        slots = memory.slots()
        address = memory.index[slots]
        assert memory.side["logits"].dtype == np.float32
        assert (memory.side["logits"][slots] == np.stack([address, -address, 2 * address], 1)).all()
        assert (memory.side["score"][slots] == address / 8).all()
        assert memory.nbytes() == len(memory) * (8 + 8 + 12 + 8)


def test_side_arrays_must_come_every_time() -> None:
    memory = Fifo(5, 0)
    memory.add([1], [0], score=[0.5])
    with pytest.raises(StreamgaugeError, match=r"stores \['score'\].* brings nothing"):
        memory.add([2], [0])
    plain = Fifo(5, 0)
    plain.add([1], [0])
    assert plain.nbytes() == 16
    with pytest.raises(StreamgaugeError, match=r"stores nothing.* brings \['score'\]"):
        plain.add([2], [0], score=[0.5])
    with pytest.raises(StreamgaugeError, match="one row per sample"):
        Fifo(5, 0).add([1, 2], [0, 0], score=[0.5])


# --- resizing


@given(label_batches(), label_batches(), st.integers(1, 12), st.integers(1, 12), st.integers(0, 9))
def test_resized_fifo_keeps_the_newest(
    first: Batches, then: Batches, old: int, new: int, seed: int
) -> None:
    memory = Fifo(old, seed)
    batches = with_addresses([*first, *then])
    for index, label in batches[: len(first)]:
        memory.add(index, label, twice=2 * index)
    kept = memory.index[memory.newest(new)].tolist()
    memory.resize(new)
    assert memory.capacity == new
    assert memory.index.tolist() == kept
    for index, label in batches[len(first) :]:
        memory.add(index, label, twice=2 * index)
        kept = [*kept, *index.tolist()][-new:]
    assert memory.index[memory.newest(new)].tolist() == kept
    if kept:
        assert (memory.side["twice"][: len(memory)] == 2 * memory.index).all()


# --- state and planning


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    return type(a) is type(b) and bool(a == b)


def plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(type(k) is str and plain(v) for k, v in value.items())
    if isinstance(value, list):
        return all(plain(v) for v in value)
    return value is None or type(value) in (int, float, str, bool, np.ndarray)


@pytest.mark.parametrize("policy", POLICIES)
@given(first=label_batches(), then=label_batches(), seed=st.integers(0, 9))
@settings(max_examples=40)
def test_state_round_trip_continues_identically(
    policy: str, first: Batches, then: Batches, seed: int
) -> None:
    memory = any_memory(policy, seed)
    batches = with_addresses([*first, *then])
    for index, label in batches[: len(first)]:
        memory.recall(3)
        memory.add(index, label, score=index / 2)
    state = memory.state_dict()
    assert plain(state)
    frozen = copy.deepcopy(state)

    other = any_memory(policy, seed=99)
    other.load_state_dict(state)
    assert same(other.state_dict(), frozen)
    for index, label in batches[len(first) :]:
        assert np.array_equal(memory.recall(3), other.recall(3))
        mine = memory.add(index, label, score=index / 2)
        assert np.array_equal(mine, other.add(index, label, score=index / 2))
    assert same(memory.state_dict(), other.state_dict())
    assert memory.nbytes() == other.nbytes()
    assert same(state, frozen), "a state does not change with the memory it came from"


def test_state_of_a_resized_fifo_loads_into_a_new_one() -> None:
    memory = Fifo(4, 0)
    memory.add(np.arange(9), np.zeros(9))
    memory.resize(6)
    other = Fifo(4, 1)
    other.load_state_dict(memory.state_dict())
    assert other.capacity == 6
    assert same(other.state_dict(), memory.state_dict())


def test_a_state_of_something_else_is_refused() -> None:
    with pytest.raises(StreamgaugeError, match="of a Fifo memory, not of a Reservoir"):
        Reservoir(5, 0).load_state_dict(Fifo(5, 0).state_dict())
    with pytest.raises(StreamgaugeError, match="capacity 5, not 6"):
        Reservoir(6, 0).load_state_dict(Reservoir(5, 0).state_dict())
    with pytest.raises(StreamgaugeError, match="ring of 5 samples per class"):
        RingPerClass(6, 0).load_state_dict(RingPerClass(5, 0).state_dict())
    with pytest.raises(StreamgaugeError, match="replacement=False, not True"):
        Reservoir(5, 0, replacement=True).load_state_dict(Reservoir(5, 0).state_dict())


# --- by name, and bad input


def test_same_seed_same_memory_other_seed_another() -> None:
    def recalled(seed: int) -> list[int]:
        memory = make("reservoir", 50, seed)
        memory.add(np.arange(500), np.zeros(500))
        return memory.index[memory.recall(20)].tolist()

    assert recalled(1) == recalled(1)
    assert recalled(1) != recalled(2)


def test_global_random_state_is_left_alone() -> None:
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    for policy in POLICIES:
        memory = make(policy, 5, 0)
        memory.add(np.arange(20), np.arange(20) % 3)
        memory.recall(4)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.parametrize("policy", ["fifo", "reservoir", "class_balanced", "ring"])
@pytest.mark.parametrize("capacity", [None, 0, -3])
def test_capacity_has_to_be_one_or_more(policy: str, capacity: int | None) -> None:
    with pytest.raises(StreamgaugeError, match="1 or more"):
        make(policy, capacity, 0)


def test_unknown_policy_and_bad_batches_get_a_sentence() -> None:
    with pytest.raises(StreamgaugeError, match="did you mean 'class_balanced'"):
        make("class-balanced", 5, 0)
    with pytest.raises(StreamgaugeError, match="two arrays of equal length"):
        Fifo(5, 0).add([1, 2], [0])
    for policy in ("class_balanced", "ring"):
        with pytest.raises(StreamgaugeError, match="cannot store label -2"):
            make(policy, 5, 0).add([1, 2, 3], [0, -2, 70])


def test_recall_without_replacement_does_not_cost_the_whole_memory() -> None:
    # Space, not time, so that the test is the same on a busy machine.
    import tracemalloc

    memory = Everything(seed=0)
    memory.add(np.arange(1_000_000), np.zeros(1_000_000, dtype=np.int64))
    tracemalloc.start()
    slots = memory.recall(100)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(set(slots.tolist())) == 100
    assert peak < 100_000
