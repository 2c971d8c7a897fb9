"""Sources, orders, steps, splits and the gate, against slow and obvious versions of themselves."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import streamgauge as sg
from streamgauge.errors import StreamgaugeError
from streamgauge.streams import (
    Arrangement,
    ArraySource,
    Gate,
    Leak,
    Spec,
    Stream,
    arrange,
    order,
)
from streamgauge.streams.gate import fetch, fetch_labels

CPU = torch.device("cpu")
patient = settings(deadline=None)  # other work on the machine is no failure


def numbers(count: int) -> np.ndarray:
    """Inputs that say which sample they are."""
    return np.arange(count, dtype=np.float32)[:, None]


def source_of(y: Any, **columns: Any) -> ArraySource:
    return ArraySource(numbers(len(y)), np.asarray(y), **columns)


def mixed(count: int = 60, classes: int = 6, seed: int = 0) -> ArraySource:
    rng = np.random.default_rng(seed)
    return source_of(
        rng.integers(0, classes, count),
        classes=classes,
        time=rng.integers(0, 20, count),
        user=np.sort(rng.integers(0, 9, count)),
        domain=rng.integers(0, 3, count),
    )


# --- sources ---------------------------------------------------------------------------------


def test_a_source_reads_by_address_and_keeps_labels_as_they_are() -> None:
    source = source_of([7, 3, 3, 0], classes=10)
    assert source.spec == Spec((1,), 10)
    assert len(source) == 4
    assert source.read(np.array([2, 0, 2]))[:, 0].tolist() == [2, 0, 2]
    assert source.label.tolist() == [7, 3, 3, 0]
    assert source.class_names is None


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.uint16, np.int32, np.int64])
def test_labels_keep_their_type(kind: type) -> None:
    assert source_of(np.array([1, 0], kind)).label.dtype == kind


def test_text_labels_are_coded_by_first_appearance_or_as_the_names_given() -> None:
    source = source_of(np.array(["cat", "ant", "cat", "bee"]))
    assert source.label.tolist() == [0, 1, 0, 2]
    assert source.class_names == ["cat", "ant", "bee"]
    named = source_of(np.array(["cat", "ant"], object), class_names=["cat", "dog", "ant"])
    assert named.label.tolist() == [0, 2]
    assert named.class_names == ["cat", "dog", "ant"]
    assert named.spec.classes == 3


def test_yes_and_no_are_classes_and_wide_numbers_become_narrow() -> None:
    source = ArraySource(np.array([[1.5], [2.5]], np.float64), np.array([True, False]))
    assert source.label.tolist() == [1, 0]
    assert source.spec.classes == 2
    assert source.read(np.array([0])).dtype == np.float32
    assert ArraySource(np.array([[1], [2]]), np.array([0, 1])).read(np.array([1])) == 2.0


def test_users_by_name_stay_apart() -> None:
    user = source_of([0, 0, 0], user=np.array(["eve", "bob", "eve"])).columns["user"]
    assert user[0] == user[2] != user[1]


@pytest.mark.parametrize(
    ("user", "kept"),
    [
        (np.array([7, -3, 7], np.int32), [7, -3, 7]),
        (np.array([7, 2**63 - 1, 7], np.uint64), [7, 2**63 - 1, 7]),
        (np.array([5.0, 2.0, 5.0], np.float32), [5, 2, 5]),
        (np.array([2**64 - 1, 2**63, 2**64 - 1], np.uint64), [1, 0, 1]),  # beyond the log's type
        (np.array([1.5, 1.25, 1.5]), [1, 0, 1]),
        (np.array([1e300, 2.0, 1e300]), [1, 0, 1]),
        (torch.tensor([4, 9, 4]), [4, 9, 4]),
    ],
)
def test_users_stay_apart_in_the_type_of_the_log(user: Any, kept: list[int]) -> None:
    column = source_of([0, 0, 0], user=user).columns["user"]
    assert column.astype(np.int64).tolist() == kept


@pytest.mark.parametrize("unit", ["s", "ms", "ns", "m"])
def test_dates_are_seconds_since_1970(unit: str) -> None:
    dates = np.array(["2004-01-01T00:01", "1970-01-01", "1969-12-31T23:59"], f"M8[{unit}]")
    source = source_of([0, 0, 0], time=dates, taken=dates)
    assert source.columns["time"].dtype == np.float64
    assert source.columns["time"].tolist() == [1_072_915_260.0, 0.0, -60.0]
    assert arrange(source, Arrangement(order="time")).order.tolist() == [2, 1, 0]
    assert len(source.fingerprint) == 32
    days = source_of([0, 0], time=np.array(["1970-01-03", "1970-02-01"], "M8[D]"))
    assert days.columns["time"].tolist() == [2 * 86_400, 31 * 86_400]
    part = source_of([0, 0], time=np.array([1500, 250], "M8[ms]"))
    assert part.columns["time"].tolist() == [1.5, 0.25]


def test_tensors_are_arrays_also_when_they_require_a_gradient() -> None:
    x = torch.arange(8.0).reshape(4, 2).requires_grad_()
    source = sg.stream(x, torch.tensor([0, 1, 2, 1]), time=torch.arange(4.0)).source
    assert source.read(np.array([1, 3])).tolist() == [[2, 3], [6, 7]]
    assert source.label.tolist() == [0, 1, 2, 1]
    assert source.columns["time"].tolist() == [0, 1, 2, 3]


def test_numpy_numbers_are_numbers() -> None:
    one, names = np.int64(1), np.array(["a", "b", "c"])
    source = ArraySource(x4, y4, classes=np.int16(5), class_names=names)
    how = Arrangement(batch=np.int64(2), seed=one, held_out=np.float32(0.25))  # type: ignore[arg-type]
    said = json.loads(json.dumps(arrange(source, how).describe()))
    assert (said["classes"], said["class_names"]) == (5, ["a", "b", "c"])
    assert (said["settings"]["batch"], said["settings"]["seed"]) == (2, 1)
    assert sg.stream(x4, y4, classes=np.uint8(3), batch=np.int32(2)).size == 2


def test_a_memory_mapped_file_is_a_source(tmp_path: Any) -> None:
    np.save(tmp_path / "x.npy", np.arange(24, dtype=np.uint8).reshape(4, 6))
    source = ArraySource(np.load(tmp_path / "x.npy", mmap_mode="r"), np.arange(4))
    assert source.read(np.array([3])).tolist() == [[18, 19, 20, 21, 22, 23]]
    assert fetch(source, np.array([3]), CPU).tolist() == [[18, 19, 20, 21, 22, 23]]


def test_the_fingerprint_knows_every_part() -> None:
    x, y, time = numbers(3), np.array([0, 1, 1]), np.array([5, 6, 7])
    changed = x.copy()
    changed[1] = 9
    every = [
        ArraySource(x, y),
        ArraySource(changed, y),
        ArraySource(x, np.array([0, 1, 0])),
        ArraySource(x, y, time=time),
        ArraySource(x, y, time=time[::-1].copy()),
        ArraySource(x, y, domain=time),
        ArraySource(x, y, time=time, domain=time),
        ArraySource(x, y, classes=50),
        ArraySource(x, y, class_names=["a", "b"]),
        ArraySource(x, y, class_names=["b", "a"]),
        ArraySource(x, y, class_names=["a, b", "c"]),
        ArraySource(x, y, class_names=["a", "b, c"]),
    ]
    assert len({source.fingerprint for source in every}) == len(every)
    assert ArraySource(x.copy(), y.copy()).fingerprint == every[0].fingerprint


# --- orders ----------------------------------------------------------------------------------


def test_in_order_of_time_with_ties_as_they_were() -> None:
    source = source_of([0] * 5, time=np.array([3, 1, 2, 1, 3]))
    assert order.by_time(source).index.tolist() == [1, 3, 2, 0, 4]
    sorted_already = source_of([0] * 3, time=np.array([1.0, 1.0, 2.0]))
    assert order.by_time(sorted_already).index.tolist() == [0, 1, 2]


def test_iid_is_a_permutation_of_its_own_seed() -> None:
    source = source_of([0] * 100)
    a, b = order.iid(source, 1).index, order.iid(source, 2).index
    assert sorted(a) == sorted(b) == list(range(100))
    assert a.tolist() != b.tolist()
    assert a.tolist() == order.iid(source, 1).index.tolist()


def test_the_order_of_classes_is_that_of_torch() -> None:
    torch.manual_seed(7)
    assert order.class_order(20, 7).tolist() == torch.randperm(20).tolist()


@pytest.mark.parametrize(("classes", "tasks"), [(6, 3), (7, 3), (5, 5), (4, 1)])
def test_class_incremental(classes: int, tasks: int) -> None:
    source = mixed(200, classes)
    made = order.class_incremental(source, tasks, class_seed=3, seed=4)
    assert made.task is not None
    assert made.class_task is not None
    expected = np.array_split(order.class_order(classes, 3), tasks)
    for number, chunk in enumerate(expected):
        inside = made.index[made.task == number]
        assert set(source.label[inside]) == set(chunk)
        assert set(np.flatnonzero(made.class_task == number)) == set(chunk)
        assert inside.tolist() != sorted(inside)  # shuffled
    assert (np.diff(made.task) >= 0).all()
    assert sorted(made.index) == list(range(200))
    again = order.class_incremental(source, tasks, class_seed=3, seed=5)
    assert (again.class_task == made.class_task).all()
    assert again.index.tolist() != made.index.tolist()


def test_blurry_lies_between_class_incremental_and_iid() -> None:
    source = mixed(20_000, 10)
    clean = order.class_incremental(source, 5, 1, 2)
    none = order.blurry(source, 5, 0.0, 1, 2)
    assert (none.index == clean.index).all()
    for overlap in (0.3, 1.0):
        made = order.blurry(source, 5, overlap, 1, 2)
        assert made.task is not None
        assert made.class_task is not None
        assert (made.class_task == clean.class_task).all()
        away = (made.class_task[source.label[made.index]] != made.task).mean()
        assert away == pytest.approx(overlap * 4 / 5, abs=0.02)
        for number in range(5):  # strays go everywhere
            inside = source.label[made.index[made.task == number]]
            assert len(np.unique(inside)) == 10


def test_domain_incremental_goes_up_in_value() -> None:
    source = source_of([0, 1, 2, 3, 4], domain=np.array([2014, 2004, 2014, 2009, 2004]))
    made = order.domain_incremental(source, 0)
    assert made.task is not None
    assert made.task.tolist() == [0, 0, 1, 2, 2]
    assert source.columns["domain"][made.index].tolist() == [2004, 2004, 2009, 2014, 2014]
    assert made.class_task is None


# --- streams: parts and steps ------------------------------------------------------------------

arrangements = st.builds(
    Arrangement,
    order=st.sampled_from(["given", "time", "iid", "classes", "blurry", "domains"]),
    batch=st.integers(1, 12),
    step=st.sampled_from(["batch", "album"]),
    tasks=st.integers(1, 4),
    overlap=st.floats(0, 1),
    held_out=st.sampled_from([0.0, 0.05, 0.3, 1 / 3, 0.5]),
    held_out_by=st.sampled_from(["time", "task", "random"]),
    preparation=st.sampled_from([0.0, 0.1, 0.25]),
    seed=st.integers(0, 50),
)


def slow_steps(
    stream: Stream, user: np.ndarray, position_task: list[int] | None
) -> list[list[int]]:
    """Walk along the stream; start anew when full, at another task, at another user (albums)."""
    steps: list[list[int]] = []
    for place, address in enumerate(stream.order.tolist()):
        fresh = not steps or len(steps[-1]) == stream.size
        if not fresh and position_task is not None:
            fresh = position_task[place] != position_task[place - 1]
        if not fresh and stream.albums:
            fresh = user[address] != user[steps[-1][-1]]
        if fresh:
            steps.append([])
        steps[-1].append(address)
    return steps


@settings(max_examples=150, deadline=None)
@given(how=arrangements, count=st.integers(40, 90), data_seed=st.integers(0, 5))
def test_every_sample_is_in_exactly_one_part_and_steps_are_as_the_slow_walk_cuts_them(
    how: Arrangement, count: int, data_seed: int
) -> None:
    source = mixed(count, 6, data_seed)
    before = source.label.copy()
    stream = arrange(source, how)
    held = stream.splits["held_out"].index.tolist() if stream.splits else []
    every = [*stream.preparation.tolist(), *held, *stream.order.tolist()]
    assert sorted(every) == list(range(count))
    assert len(stream.preparation) == round(count * how.preparation)
    assert (source.label == before).all()  # never renumbered

    position_task = None
    if stream.task is not None:
        position_task = np.repeat(stream.task, np.diff(stream.starts)).tolist()
        assert sorted(position_task) == position_task
        if how.order == "classes":
            assert stream.class_task is not None
            home = stream.class_task[source.label[stream.order]]
            assert home.tolist() == position_task
        if how.order == "domains":
            assert source.columns["domain"][stream.order].tolist() == position_task
    expected = slow_steps(stream, source.columns["user"], position_task)
    assert [stream.index(t).tolist() for t in range(len(stream))] == expected


def test_albums_are_runs_of_one_user_and_split_when_long() -> None:
    user = np.array([5, 5, 5, 5, 5, 2, 5, 5, 9])
    stream = arrange(source_of(range(9), user=user), Arrangement(step="album", batch=3))
    assert [stream.index(t).tolist() for t in range(len(stream))] == [
        [0, 1, 2],
        [3, 4],
        [5],
        [6, 7],
        [8],
    ]
    assert not any(stream.is_remainder(t) for t in range(len(stream)))
    assert stream.describe()["albums"] is True


def test_a_step_never_crosses_a_task_and_short_last_batches_are_remainders() -> None:
    domain = np.repeat([0, 1], [7, 4])
    stream = arrange(source_of([0] * 11, domain=domain), Arrangement(order="domains", batch=3))
    assert [len(stream.index(t)) for t in range(len(stream))] == [3, 3, 1, 3, 1]
    assert [stream.is_remainder(t) for t in range(5)] == [False, False, True, False, True]
    assert stream.task is not None
    assert stream.task.tolist() == [0, 0, 0, 1, 1]
    assert stream.tasks == 2
    exact = arrange(source_of([0] * 6), Arrangement(batch=3))
    assert len(exact) == 2
    assert not exact.is_remainder(1)
    assert exact.task is None
    assert exact.tasks == 0


def test_what_a_run_stores_of_its_stream_is_json_and_names_the_class_map() -> None:
    stream = arrange(mixed(), Arrangement(order="classes", tasks=3, held_out=0.1))
    said = json.loads(json.dumps(stream.describe()))
    assert stream.class_task is not None
    assert said["class_task"] == stream.class_task.tolist()
    assert said["samples"] + said["held_out"]["held_out"] == 60
    assert said["steps"] == len(stream)
    assert said["data_hash"] == stream.source.fingerprint


def test_the_order_hash_knows_order_steps_and_splits() -> None:
    how = Arrangement(order="iid", held_out=0.2)
    every = [
        how,
        replace(how, order="given"),
        replace(how, batch=5),
        replace(how, split_seed=9),
        replace(how, order_seed=9),
    ]
    assert len({arrange(mixed(), one).order_hash for one in every}) == len(every)
    assert arrange(mixed(), how).order_hash == arrange(mixed(), how).order_hash


def test_the_order_hash_knows_tasks_preparation_and_where_held_out_samples_belong() -> None:
    how = Arrangement(order="classes", tasks=3, held_out=0.2, preparation=0.1)
    stream = arrange(mixed(), how)
    assert stream.task is not None
    held = stream.splits["held_out"]
    assert held.task is not None
    every = [
        stream,
        replace(stream, task=None),
        replace(stream, task=stream.task[::-1].copy()),
        replace(stream, preparation=stream.preparation[::-1].copy()),
        replace(stream, preparation=stream.preparation[1:]),
        replace(stream, splits={}),
        replace(stream, splits={"other": held}),
        replace(stream, splits={"held_out": replace(held, position=held.position + 1)}),
        replace(stream, splits={"held_out": replace(held, task=held.task + 1)}),
        replace(stream, splits={"held_out": replace(held, task=None)}),
        replace(stream, splits={"held_out": replace(held, at_boundaries=True)}),
    ]
    assert len({one.order_hash for one in every}) == len(every)
    wider = replace(stream, order=stream.order.astype(np.int64), task=stream.task.astype(np.int64))
    assert wider.order_hash == stream.order_hash  # the type of the numbers says nothing


# --- streams: what is set apart ------------------------------------------------------------------


@patient
@given(
    count=st.integers(20, 400),
    share=st.sampled_from([0.01, 0.05, 0.1, 0.25, 1 / 3, 0.5, 0.7]),
    seed=st.integers(0, 20),
)
def test_held_out_uniformly_over_time(count: int, share: float, seed: int) -> None:
    how = Arrangement(held_out=share, seed=seed)
    stream = arrange(source_of([0] * count), how)
    if round(count * share) == 0:
        assert not stream.splits
        return
    held = stream.splits["held_out"]
    assert len(held) == round(count * share)
    for number, address in enumerate(held.index.tolist()):  # one in each stretch of 1/share
        assert int(number / share) <= address < max((number + 1) / share, number / share + 1)
    order_of = stream.order.tolist()
    for address, position in zip(held.index.tolist(), held.position.tolist(), strict=True):
        assert position == sum(other < address for other in order_of)
    assert held.task is None
    assert not held.at_boundaries


def test_held_out_by_task_takes_the_same_share_of_each() -> None:
    source = source_of(np.repeat(np.arange(4), [10, 20, 30, 47]))
    how = Arrangement(order="classes", tasks=4, held_out=0.1, held_out_by="task")
    stream = arrange(source, how)
    held = stream.splits["held_out"]
    assert held.task is not None
    assert stream.class_task is not None
    counts = np.bincount(source.label[held.index])
    assert counts.tolist() == [1, 2, 3, 4]
    assert (held.task == stream.class_task[source.label[held.index]]).all()


def test_without_tasks_held_out_by_task_is_at_random_and_tasks_have_no_effect() -> None:
    how = Arrangement(order="iid", held_out=0.2, held_out_by="random")
    left_over = arrange(mixed(), replace(how, held_out_by="task", tasks=5))
    assert left_over.order_hash == arrange(mixed(), how).order_hash
    assert len(sg.stream("blobs", order="iid", per_class=10).splits["held_out"]) == 10


@pytest.mark.parametrize("order_name", ["classes", "blurry", "domains"])
def test_own_arrays_can_be_held_out_by_task(order_name: str) -> None:
    tasks = 1 if order_name == "domains" else 2
    settings = {"domain": np.arange(4) % 2, "tasks": tasks, "held_out": 0.5, "overlap": 0.0}
    stream = sg.stream(x4, [0, 1, 0, 1], order=order_name, held_out_by="task", **settings)
    assert stream.splits["held_out"].task is not None
    assert sorted(stream.splits["held_out"].task.tolist()) == [0, 1]


def test_the_split_has_a_seed_of_its_own() -> None:
    source, how = mixed(400), Arrangement(order="given", held_out=0.1, held_out_by="random")

    def held(how: Arrangement) -> list[int]:
        return arrange(source, how).splits["held_out"].index.tolist()

    assert held(how) == held(how)
    assert held(replace(how, seed=1)) != held(how)
    assert held(replace(how, seed=1, split_seed=0)) == held(how)
    assert held(replace(how, order_seed=5, class_seed=5)) == held(how)


def test_one_seed_sets_the_three_unless_they_are_given() -> None:
    source = mixed(300)
    how = Arrangement(order="classes", tasks=3, held_out=0.2)
    a = arrange(source, replace(how, seed=4))
    b = arrange(source, replace(how, seed=9, order_seed=4, class_seed=4, split_seed=4))
    assert a.order_hash == b.order_hash
    c = arrange(source, replace(how, seed=4, class_seed=5))
    assert a.class_task is not None
    assert c.class_task is not None
    assert a.class_task.tolist() != c.class_task.tolist()


def test_the_first_part_prepares_and_is_in_no_step() -> None:
    stream = arrange(source_of([0] * 40), Arrangement(preparation=0.25, held_out=0.1, batch=4))
    assert stream.preparation.tolist() == list(range(10))
    assert len(stream.splits["held_out"]) == 3
    assert min(stream.order) >= 10


def test_blurry_strays_are_evaluated_with_the_home_task_of_their_class() -> None:
    source = mixed(600)
    how = Arrangement(
        order="blurry", tasks=3, overlap=0.5, held_out=0.2, held_out_by="task", seed=2
    )
    stream = arrange(source, how)
    held = stream.splits["held_out"]
    assert held.task is not None
    assert stream.class_task is not None
    assert (held.task == stream.class_task[source.label[held.index]]).all()


def test_an_official_test_set_is_never_streamed_and_is_evaluated_at_boundaries() -> None:
    source, test = mixed(100), np.arange(70, 100)
    stream = arrange(source, Arrangement(order="classes", tasks=3), test=test)
    assert max(stream.order) < 70
    split = stream.splits["test"]
    assert split.at_boundaries
    assert split.index.tolist() == test.tolist()
    assert split.task is not None
    assert stream.task is not None
    assert stream.class_task is not None
    assert (split.task == stream.class_task[source.label[test]]).all()
    begin = {int(t): int(stream.starts[np.flatnonzero(stream.task == t)[0]]) for t in range(3)}
    assert split.position.tolist() == [begin[t] for t in split.task.tolist()]


def test_a_test_set_of_domains_knows_its_domain() -> None:
    source = source_of([0, 1] * 10, domain=np.repeat([3, 8], 10))
    stream = arrange(source, Arrangement(order="domains"), test=np.array([2, 15]))
    task = stream.splits["test"].task
    assert task is not None
    assert task.tolist() == [0, 1]


def test_a_test_set_lies_where_its_time_is_if_the_stream_is_in_order_of_time() -> None:
    time = np.array([0, 10, 20, 30, 15, 5, 99])
    source, test = source_of([0] * 7, time=time), np.array([4, 5, 6])
    by_time = arrange(source, Arrangement(order="time"), test=test).splits["test"]
    assert by_time.position.tolist() == [2, 1, 4]
    shuffled = arrange(source, Arrangement(order="iid", seed=3), test=test)
    assert np.any(np.diff(time[shuffled.order]) < 0)
    assert shuffled.splits["test"].position.tolist() == [0, 0, 0]


# --- the gate ----------------------------------------------------------------------------------


def test_the_gate_opens_with_the_clock() -> None:
    source = ArraySource(numbers(6), np.array([3, 1, 2, 0, 1, 3], np.uint8))
    gate = Gate(source, preparation=np.array([0, 1]), device=CPU)
    assert gate.spec == source.spec
    assert gate.label(np.array([1, 0])).tolist() == [1, 3]
    assert gate.label(np.array([0])).dtype == torch.int64
    with pytest.raises(Leak, match="the input of sample 3, which is not revealed yet"):
        gate.read(np.array([0, 3]))
    gate.reveal(np.array([2, 3]))
    assert gate.read(np.array([3, 2, 0]))[:, 0].tolist() == [3, 2, 0]
    with pytest.raises(Leak, match="the label of sample 2, which is not due yet"):
        gate.label(np.array([0, 2]))
    gate.label_due(np.array([2, 3]))
    assert gate.label(np.array([2, 3])).tolist() == [2, 0]
    gate.reveal(np.array([2, 4]))  # a sample that comes again, and a new one
    assert gate.label(np.array([2])).tolist() == [2]
    assert gate.read(np.array([4]))[:, 0].tolist() == [4]
    with pytest.raises(Leak):
        gate.read(np.array([5]))
    x, y = gate.samples(np.array([3, 0]))
    assert (x[:, 0].tolist(), y.tolist()) == ([3, 0], [0, 3])
    with pytest.raises(Leak, match="the label of sample 4, which is not due yet"):
        gate.samples(np.array([0, 4]))
    with pytest.raises(Leak, match="the input of sample 5, which is not revealed yet"):
        gate.samples(np.array([4, 5]))


def test_the_loop_stands_above_the_gate() -> None:
    source = ArraySource(np.zeros((2, 0), np.uint8), np.array([1, 0], np.uint16))
    assert fetch(source, np.array([0, 1, 0]), CPU).shape == (3, 0)
    assert fetch_labels(source, np.array([0, 1]), CPU).tolist() == [1, 0]


# --- bad input ---------------------------------------------------------------------------------

x4, y4 = numbers(4), np.array([0, 1, 2, 1])
nan4 = x4.copy()
nan4[2] = np.nan
huge4 = x4.astype(np.float64)
huge4[3] = 1e300
lists4 = np.empty(4, object)
lists4[:] = [np.arange(2)] * 4


def arranged(how: Arrangement, **columns: Any) -> Stream:
    return arrange(source_of(y4, **columns), how)


def with_order(addresses: list[int]) -> Stream:
    return Stream("own", source_of(y4), np.array(addresses), np.array([0, len(addresses)]), 10)


class Empty:
    spec, label, columns, class_names, fingerprint = Spec((1,), 2), y4[:0], {}, None, ""

    def __len__(self) -> int:
        return 0

    def read(self, index: np.ndarray) -> np.ndarray:
        return x4[index]


def nothing_left(held_out_by: Any) -> Stream:
    how = Arrangement(order="classes", tasks=2, held_out=0.5, held_out_by=held_out_by)
    return arrange(source_of(y4), how, test=np.arange(4))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: ArraySource(x4[:0], y4[:0]), "stream is empty"),
        (lambda: arrange(Empty()), "stream is empty"),
        (lambda: ArraySource(x4, y4[:3]), "4 inputs but 3 labels"),
        (lambda: ArraySource(x4, np.zeros((4, 2), int)), r"not of shape \(4, 2\)"),
        (lambda: ArraySource(x4, np.array(3)), "Labels must be an array"),
        (lambda: ArraySource(np.array(1.0), y4), "Inputs must be an array"),
        (lambda: ArraySource([[1.0], [1.0, 2.0]], [0, 1]), "Inputs must have one shape"),
        (lambda: ArraySource(x4, y4, classes=2), "Label 2 of sample 2 lies outside .* 0..1"),
        (lambda: ArraySource(x4, y4 - 1, classes=3), "Label -1 of sample 0 lies outside"),
        (lambda: ArraySource(x4, y4 + 7, class_names=["7", "8"]), "label '9' is not among"),
        (lambda: ArraySource(x4, y4 / 2), "targets are floats: regression is not supported"),
        (
            lambda: ArraySource(x4, np.array(["a", None, "b", "a"], object)),
            "1 of 4 labels are missing",
        ),
        (
            lambda: ArraySource(x4, pandas.Series(["a", None, "b", "a"], dtype="string")),
            "1 of 4 labels are missing, the first of sample 1",
        ),
        (lambda: ArraySource(x4, lists4), "whole numbers or text, not object"),
        (lambda: ArraySource(x4, y4.astype("M8[s]")), "whole numbers or text, not datetime64"),
        (lambda: ArraySource(x4, ["a", "b", "x", "a"], class_names=["a", "b"]), "label 'x'"),
        (lambda: ArraySource(nan4, y4), "Input 2 holds a NaN"),
        (lambda: ArraySource(huge4, y4), "Input 3 holds a NaN.* too large"),
        (lambda: ArraySource(np.array(["a"] * 4), y4), "Inputs must be numbers"),
        (lambda: ArraySource(x4[:, 0], y4), r"shape \(4,\) .* give x.reshape\(-1, 1\)"),
        (lambda: ArraySource(x4[:, 0].astype(np.uint8), y4), "no axis of features"),
        (lambda: ArraySource(torch.zeros(4, 1, dtype=torch.bfloat16), y4), "convert them first"),
        (lambda: sg.stream(x4, y4, classes="5"), "classes must be a whole number .* not '5'"),
        (lambda: sg.stream(x4, y4, classes=5.0), "classes must be a whole number .* not 5.0"),
        (lambda: ArraySource(x4, y4 * 0, classes=True), "classes must be .* not True"),
        (lambda: ArraySource(x4, y4 * 0, classes=0), "classes must be .* not 0"),
        (lambda: source_of(y4, time=["9", "10", "11", "12"]), "'time' must hold numbers or date"),
        (lambda: source_of(y4, time=[1, None, 2, 3]), "'time' must hold .* not object"),
        (lambda: source_of(y4, latitude=["9", "1", "2", "3"]), "'latitude' must hold numbers, not"),
        (lambda: source_of(y4, time=[1.0, 2.0, np.nan, 3.0]), "'time' is nan at sample 2"),
        (lambda: source_of(y4, time=[1.0, np.inf, 2.0, 3.0]), "'time' is inf at sample 1"),
        (
            lambda: source_of(y4, time=np.array(["2004", "NaT", "2005", "2006"], "M8[s]")),
            "'time' is nan at sample 1",
        ),
        (lambda: source_of(y4, user=[1.0, 2.0, 3.0, np.nan]), "'user' is nan at sample 3"),
        (lambda: source_of(y4, user=["eve", None, "bob", "al"]), "'user' is None at sample 1"),
        (
            lambda: source_of(y4, domain=np.array(["a", "b", np.nan, "c"], object)),
            "'domain' is nan at sample 2",
        ),
        *(
            (lambda o=o: sg.stream(x4, y4, order=o, tasks=2), f"order '{o}' does not divide")
            for o in ("given", "time", "iid", "domains")
        ),
        *(
            (lambda o=o: sg.stream(x4, y4, order=o, held_out_by="task"), f"'{o}' has no tasks")
            for o in ("given", "time", "iid")
        ),
        (lambda: source_of(y4, time=np.arange(3)), r"'time' has shape \(3,\), where \(4,\)"),
        (lambda: arranged(Arrangement(batch=0)), "at least one sample; batch is 0"),
        (lambda: arranged(Arrangement(held_out=1.0)), "held_out is a share .* it is 1.0"),
        (lambda: arranged(Arrangement(held_out=float("nan"))), "held_out is a share"),
        (lambda: arranged(Arrangement(preparation=-0.1)), "preparation is a share"),
        (lambda: arranged(Arrangement(preparation=0.99)), "No sample is left"),
        (lambda: nothing_left("task"), "No sample is left"),
        (lambda: nothing_left("time"), "No sample is left"),
        (lambda: nothing_left("random"), "No sample is left"),
        (lambda: arranged(Arrangement(order="time")), "needs a column 'time'; .* no columns"),
        (
            lambda: arranged(Arrangement(order="domains"), user=np.arange(4)),
            "needs a column 'domain'; this source has user",
        ),
        (lambda: arranged(Arrangement(step="album")), "Albums need a column 'user'"),
        (lambda: arranged(Arrangement(order="classes", tasks=4)), "3 classes .* 4 tasks"),
        (lambda: arranged(Arrangement(order="blurry", tasks=0)), "3 classes .* 0 tasks"),
        (lambda: arranged(Arrangement(order="blurry", overlap=1.5)), "overlap .* 1.5"),
        (lambda: arranged(Arrangement(order="tiem")), "order cannot be 'tiem'; .* 'time'"),  # type: ignore[arg-type]
        (lambda: arranged(Arrangement(held_out_by="tasks")), "did you mean 'task'"),  # type: ignore[arg-type]
        (lambda: arranged(Arrangement(seed=-1)), "seed is a whole number from 0 on; it is -1"),
        (lambda: arranged(Arrangement(split_seed=-2)), "split_seed is a whole number"),
        (lambda: arrange(source_of(y4), test=np.array([1, 4])), "sample 4, outside .* of 4"),
        (lambda: with_order([0, 9]), "The order points at sample 9, outside its source of 4"),
        (lambda: with_order([-1, 0]), "The order points at sample -1"),
    ],
)
def test_bad_input_gets_a_sentence(make: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(StreamgaugeError, match=sentence) as caught:
        make()
    said = str(caught.value)
    assert said.endswith((".", "?"))
    assert "\n" not in said


@pytest.mark.parametrize(("how", "bytes_a_sample"), [("batch", 12), ("album", 14)])
def test_arranging_needs_little_more_than_the_order_itself(how: Any, bytes_a_sample: int) -> None:
    count = 400_000
    source = ArraySource(
        np.empty((count, 0), np.uint8),
        np.zeros(count, np.uint8),
        time=np.arange(count),
        user=np.repeat(np.arange(count // 8, dtype=np.int32), 8),
    )
    arrangement = Arrangement(order="time", step=how, held_out=0.05)
    arrange(source, arrangement)  # so that what is imported at first use is not counted
    tracemalloc.start()
    stream = arrange(source, arrangement)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    assert stream.order_hash
    hashing = tracemalloc.get_traced_memory()[1] - kept
    tracemalloc.stop()
    assert peak < bytes_a_sample * count
    assert kept < 7 * count  # an address of four bytes, and where steps start
    assert hashing < 9 * (1 << 20)


def test_steps_lie_side_by_side() -> None:
    stream = arrange(mixed(), Arrangement(batch=7))
    assert stream.starts[0] == 0
    assert stream.starts[-1] == stream.samples
    assert all(0 < b - a <= 7 for a, b in pairwise(stream.starts.tolist()))
