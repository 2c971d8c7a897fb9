"""A memory of millions costs addresses, and a recall costs what is recalled: by counting.

What a recall does is counted on arrays that say which of their elements are looked at, on the raw
words its generator gives out, and on the bytes it allocates; time is for `benchmarks/memory.py`.
"""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from streamgauge import memory
from streamgauge.memory.base import Memory

SMALL, LARGE, CLASSES, RECALL = 4_000, 4_000_000, 10, 20


class Counted(np.ndarray[Any, Any]):
    """An array that counts the elements that are read from it; a slice is no reading."""

    touched = 0

    def __getitem__(self, key: Any) -> Any:
        found = self.view(np.ndarray)[key]
        parts = key if isinstance(key, tuple) else (key,)
        if all(isinstance(part, slice) for part in parts):
            return found.view(Counted)
        Counted.touched += np.size(found)
        return found

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        Counted.touched += sum(each.size for each in inputs if isinstance(each, Counted))
        plain = [_plain(each) for each in inputs]
        return getattr(ufunc, method)(*plain, **options)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        Counted.touched += sum(each.size for each in args if isinstance(each, Counted))
        return function(*[_plain(each) for each in args], **kwargs)

    def _all(self, name: str, *args: Any, **options: Any) -> Any:
        Counted.touched += self.size
        return getattr(self.view(np.ndarray), name)(*args, **options)

    def argmin(self, *args: Any, **options: Any) -> Any:
        return self._all("argmin", *args, **options)

    def argsort(self, *args: Any, **options: Any) -> Any:
        return self._all("argsort", *args, **options)

    def copy(self, *args: Any, **options: Any) -> Any:
        return self._all("copy", *args, **options)

    def astype(self, *args: Any, **options: Any) -> Any:
        return self._all("astype", *args, **options)


def _plain(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, Counted) else value


def filled(policy: str, size: int) -> Memory:
    made = memory.make(policy, size // CLASSES if policy == "ring" else size, 0)  # type: ignore[arg-type]
    for start in range(0, size, 1_000_000):
        index = np.arange(start, min(start + 1_000_000, size))
        made.add(index, index % CLASSES)
    assert len(made) == size
    return made


def arrays(made: Memory) -> dict[str, np.ndarray[Any, Any]]:
    return {name: value for name, value in vars(made).items() if isinstance(value, np.ndarray)}


def words(generator: np.random.Generator, before: dict[str, Any]) -> int:
    """Raw words drawn since a state."""
    other = np.random.PCG64()
    other.state = before
    for count in range(100 * RECALL):
        if other.state["state"] == generator.bit_generator.state["state"]:
            return count
        other.random_raw()
    raise AssertionError("more words than a recall needs")


def effort(made: Memory) -> tuple[int, int, int]:
    """Elements looked at, random words, bytes allocated, by the most expensive of ten recalls."""
    for name, value in arrays(made).items():
        setattr(made, name, value.view(Counted))
    found = []
    made.recall(RECALL)  # what is made at the first use is not counted
    for _ in range(10):
        before = made.rng.bit_generator.state
        Counted.touched = 0
        tracemalloc.start()
        index = made.index[made.recall(RECALL)]
        allocated = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert len(index) == RECALL
        found.append((Counted.touched, words(made.rng, before), allocated))
    return tuple(np.max(found, axis=0).tolist())


@pytest.mark.parametrize("policy", ["reservoir", "fifo", "everything", "mixed", "ring",
                                    "class_balanced"])  # fmt: skip
def test_four_million_samples_cost_addresses_and_a_recall_what_it_recalls(policy: str) -> None:
    size = LARGE // 10 if policy == "class_balanced" else LARGE  # which takes seconds to fill
    large = filled(policy, size)
    held = sum(array.nbytes for array in arrays(large).values())
    assert large.nbytes() == 16 * size  # an address and a label each
    assert held <= 64 * size  # with all that a policy keeps beside: an image of 32 pixels is 3072
    looked, drawn, allocated = effort(large)
    few_looked, few_drawn, few_allocated = effort(filled(policy, SMALL))
    assert looked <= few_looked + RECALL
    assert looked <= 5 * RECALL + 4 * CLASSES
    assert drawn <= 2 * few_drawn + RECALL
    assert allocated <= few_allocated + 8192


def test_the_count_sees_a_memory_that_looks_at_everything() -> None:
    """The check itself: a recall that sorts, or draws by shuffling, is found out."""

    class Slow(memory.Fifo):
        def _choose(self, n: int) -> Any:
            return np.argsort(self.label)[:n]

    for size in (SMALL, 10 * SMALL):
        made = Slow(size, 0)
        made.add(np.arange(size), np.arange(size))
        assert effort(made)[0] >= size


def test_storing_a_batch_costs_the_batch_too() -> None:
    """Of the policies that keep no order among samples."""
    for policy in ("reservoir", "fifo"):
        found = []
        for size in (SMALL, LARGE):
            made = filled(policy, size)
            tracemalloc.start()
            made.add(np.arange(RECALL), np.zeros(RECALL, np.int64))
            found.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        assert found[1] <= found[0] + 4096
