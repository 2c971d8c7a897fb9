"""The beginning of a stream: what is in it, and that nothing later can be had from it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import CPU, small_stream
from streamgauge import catalogue
from streamgauge.errors import StreamgaugeError
from streamgauge.streams import Arrangement, Gate, Stream, arrange
from streamgauge.streams.prefix import SourcePart, parse, prefix


def blobs(**settings: object) -> Stream:
    return catalogue.stream("blobs", **{"per_class": 40, "size": 4, **settings})


def inputs(stream: Stream, index: np.ndarray) -> list[bytes]:
    return [one.tobytes() for one in stream.source.read(index)]


def everything(stream: Stream) -> set[bytes]:
    """All inputs that any address of the stream's source gives."""
    return set(inputs(stream, np.arange(len(stream.source))))


def test_the_first_tasks_and_no_sample_of_a_later_one() -> None:
    stream = blobs(held_out=0.2)
    cut = prefix(stream, "2 tasks")
    steps = int((stream.task < 2).sum())
    assert cut.tasks == 2
    assert len(cut) == steps
    for step in range(steps):  # the same samples in the same steps
        assert inputs(cut, cut.index(step)) == inputs(stream, stream.index(step))
        assert (cut.source.label[cut.index(step)] == stream.source.label[stream.index(step)]).all()
    held = stream.splits["held_out"]
    mine = held.index[held.task < 2]  # all of the validation data of these tasks, as the survey
    assert inputs(cut, cut.splits["held_out"].index) == inputs(stream, mine)
    assert (cut.splits["held_out"].task == held.task[held.task < 2]).all()
    later = stream.order[stream.starts[steps] :]
    out = set(inputs(stream, later)) | set(inputs(stream, held.index[held.task >= 2]))
    assert len(out) > 200
    assert not everything(cut) & out
    known = np.unique(stream.source.label[stream.order[: stream.starts[steps]]])
    assert set(cut.source.label.tolist()) == set(known.tolist())
    # Not even which task brings which of the later classes.
    assert set(cut.class_task[np.setdiff1d(np.arange(10), known)].tolist()) == {2}


def test_a_gate_on_a_prefix_has_no_address_for_what_is_later() -> None:
    stream = blobs()
    cut = prefix(stream, "1 task")
    gate = Gate(cut.source, cut.preparation, CPU)
    with pytest.raises(IndexError):
        gate.read(np.array([len(cut.source)]))
    assert len(cut.source) < len(stream.source) / 4


@given(
    share=st.floats(0.02, 1.0),
    held=st.sampled_from([0.0, 0.1, 0.4]),
    by=st.sampled_from(["time", "task", "random"]),
    order=st.sampled_from(["given", "classes", "blurry", "iid"]),
    preparation=st.sampled_from([0.0, 0.1]),
)
def test_held_out_samples_of_a_share_lie_before_its_end(
    share: float, held: float, by: str, order: str, preparation: float
) -> None:
    stream = blobs(
        order=order, held_out=held, held_out_by=by, preparation=preparation, per_class=12, batch=3
    )
    try:
        cut = prefix(stream, f"{100 * share} %")
    except StreamgaugeError:
        assert share * stream.samples < 3.001
        return
    n = cut.samples
    assert n <= share * stream.samples + 1e-6
    if len(cut) < len(stream):  # and no further step would fit
        assert stream.starts[len(cut) + 1] > share * stream.samples - 1e-6
    assert inputs(cut, cut.order) == inputs(stream, stream.order[:n])
    assert inputs(cut, cut.preparation) == inputs(stream, stream.preparation)
    for name, split in cut.splits.items():
        whole = stream.splits[name]
        early = set(inputs(stream, whole.index[whole.position < n]))
        edge = set(inputs(stream, whole.index[whole.position == n]))
        found = set(inputs(cut, split.index))
        assert found <= early | edge
        if order in ("given", "iid"):
            assert early <= found
        if order == "blurry" or cut.task is None:
            assert found <= early or len(cut) == len(stream)
    parts = [cut.order, cut.preparation, *(s.index for s in cut.splits.values())]
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(cut.source)))


def test_the_first_part_of_time() -> None:
    stream = small_stream(steps=20, batch=5, order="time")
    time = stream.source.columns["time"]
    cut = prefix(stream, "30 % of time")
    last = 0.3 * time.max()
    assert cut.source.columns["time"].max() <= last
    assert cut.samples == 5 * int((last + 1) // 5)
    assert (cut.source.columns["time"] == time[: cut.samples]).all()


def test_the_preparation_part_as_a_stream_of_its_own() -> None:
    stream = small_stream(steps=40, preparation=0.25, held_out=0.1)
    cut = prefix(stream, "preparation")
    assert inputs(cut, cut.order) == inputs(stream, stream.preparation)
    assert len(cut) == 10
    assert not cut.splits
    assert not len(cut.preparation)
    assert not everything(cut) & set(inputs(stream, stream.order))
    albums = small_stream(steps=40, preparation=0.25, step="album")
    cut = prefix(albums, "preparation")
    for step in range(len(cut)):
        assert len(np.unique(cut.source.columns["user"][cut.index(step)])) == 1


def test_an_official_test_set_is_left_out() -> None:
    whole = blobs(held_out=0.0)
    test = np.arange(0, 400, 7)
    how = Arrangement(order="classes", tasks=5, held_out=0.1, held_out_by="task")
    stream = arrange(whole.source, how, test=test)
    assert "test" in stream.splits
    cut = prefix(stream, "2 tasks")
    assert set(cut.splits) == {"held_out"}
    assert not everything(cut) & set(inputs(stream, test))


def test_all_of_a_stream_keeps_all_of_it() -> None:
    stream = blobs(held_out=0.2)
    for how_much in ("5 tasks", "100 %"):
        cut = prefix(stream, how_much)
        assert inputs(cut, cut.order) == inputs(stream, stream.order)
        assert len(cut.splits["held_out"]) == len(stream.splits["held_out"])


def test_equal_prefixes_have_equal_hashes_and_others_do_not() -> None:
    stream = blobs()
    two, again, three = (prefix(stream, f"{n} tasks") for n in (2, 2, 3))
    assert two.order_hash == again.order_hash
    assert two.source.fingerprint == again.source.fingerprint
    assert len({s.source.fingerprint for s in (stream, two, three)}) == 3
    assert two.describe()["settings"]["prefix"] == "2 tasks"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("four tasks", "A prefix is"),
        ("0 %", "A prefix is"),
        ("--1 %", "A prefix is"),
        ("120 %", "100 % of a stream at the most"),
        ("2.5 tasks", "whole number"),
        ("9 tasks", "has 5 tasks"),
        ("0.01 %", "less than its first step"),
        ("5 % of time", "has no times"),
        ("preparation", "has no preparation part"),
    ],
)
def test_what_is_no_prefix_is_said_in_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(StreamgaugeError, match=sentence):
        prefix(blobs(), text)


def test_without_tasks_or_order_of_time() -> None:
    with pytest.raises(StreamgaugeError, match="has no tasks"):
        prefix(small_stream(), "1 task")
    with pytest.raises(StreamgaugeError, match="not in order of time"):
        prefix(small_stream(order="iid"), "5 % of time")
    assert parse(" 7 samples ").amount == 7


def test_encoded_images_are_read_by_their_old_address() -> None:
    class Encoded:
        """A source that decodes, as those of image files do."""

        def __init__(self) -> None:
            plain = small_stream().source
            self.spec, self.label, self.columns = plain.spec, plain.label, plain.columns
            self.class_names, self.fingerprint, self._plain = None, "f", plain

        def __len__(self) -> int:
            return len(self.label)

        def read(self, index: np.ndarray) -> np.ndarray:
            return self._plain.read(index)

        def encoded(self, index: int) -> bytes:
            return bytes([index])

        def read_into(self, index: np.ndarray, out: np.ndarray) -> None:
            out[: len(index)] = self.read(index)

    source = Encoded()
    part = SourcePart(source, [np.array([9, 4, 4, 30])])
    assert len(part) == 3
    assert part.encoded(1) == bytes([9])
    out = np.empty((2, 3, 8, 8), np.uint8)
    part.read_into(np.array([2, 0]), out)
    assert (out == source.read(np.array([30, 4]))).all()
    assert not hasattr(SourcePart(small_stream().source, [np.arange(3)]), "encoded")
    assert SourcePart(small_stream().source, [np.arange(3)]).in_memory
