"""Optional members of a learner are resolved once, in one place."""

from __future__ import annotations

import copy
import re
import warnings
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import streamgauge
from helpers import batch_of, build, small_stream
from streamgauge import catalogue
from streamgauge.errors import StreamgaugeError
from streamgauge.learners.adapter import LearnerAdapter, has_methods_of, same_methods
from streamgauge.learners.base import Batch, StepExecutor
from streamgauge.learners.parts import replay_batch
from streamgauge.learners.published.realtime import RealTimeMIR
from streamgauge.learners.replay import er
from streamgauge.learners.replay.mir import MIR, Config

SOURCE = Path(streamgauge.__file__).parent


class Plain:
    """The four methods and nothing else."""

    def predict(self, x: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(x), 4)

    def learn(self, batch: Batch, predicted: Any) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def test_four_methods_are_enough() -> None:
    adapter = LearnerAdapter(Plain())
    assert adapter.needs == frozenset()
    assert adapter.sees_input
    assert not adapter.unbounded
    assert not adapter.answers_cheaply
    methods = ("store", "skipped", "prepare", "work", "features", "stored_addresses", "tell")
    assert all(getattr(adapter, name) is None for name in methods)
    assert adapter.job_kind() == "learn"
    assert not adapter.has_job_kinds
    assert adapter.cycle(10) == 1
    assert np.isnan(adapter.memory_bytes())
    assert adapter.eager  # not recordable
    assert adapter.prefetch_copy() is None
    adapter.prepare_test()
    adapter.tell_facts()


def test_labels_come_before_answers_in_our_bridges_only() -> None:
    pytest.importorskip("river")
    from streamgauge.bridges.river import Learner

    class Peeking(Learner):
        """Could answer with the labels that it is given."""

    for kind, trusted in ((Learner, True), (Peeking, False)):
        assert LearnerAdapter(object.__new__(kind)).takes_turns is trusted


def test_turns_are_taken_only_if_all_three_methods_are_wrapped_alike() -> None:
    pytest.importorskip("river")
    from streamgauge.bridges.river import Learner

    def wrapped(method: Any) -> Any:
        return wraps(method)(lambda *inputs: method(*inputs))

    adapter = LearnerAdapter(object.__new__(Learner))
    for name, turns in (("predict", False), ("learn", False), ("answer_and_learn", True)):
        adapter.replace_method(name, wrapped)
        assert adapter.takes_turns is turns
    adapter.replace_method("predict", lambda _: lambda x: None)
    assert not adapter.takes_turns


def test_members_of_a_network_are_its_own() -> None:
    learner, _ = build(small_stream(3), "er", memory=7)
    adapter = LearnerAdapter(learner)
    assert adapter.eager == ""
    assert adapter.work is not None
    assert adapter.work() == learner.work()
    assert adapter.job_kind() == "filling"
    assert adapter.has_job_kinds
    assert adapter.memory_bytes() == learner.memory.nbytes()
    assert adapter.memory is learner.memory


def test_unknown_needs_are_refused() -> None:
    class Curious(Plain):
        needs = frozenset({"horizon", "tomorrow"})

    with pytest.raises(StreamgaugeError, match="cannot need tomorrow"):
        LearnerAdapter(Curious()).check_needs()


def test_old_names_are_honoured_with_a_warning_that_names_the_new_one() -> None:
    calls = []

    class Old(Plain):
        def conclude(self) -> None:
            calls.append("conclude")

        def held(self) -> list[int]:
            return [3]

    with pytest.warns(DeprecationWarning, match=r"Old\.(conclude|held) is now called") as given:
        adapter = LearnerAdapter(Old())
    assert {"prepare_test", "stored_addresses"} == {
        str(one.message).split("called ")[1].split(";")[0] for one in given
    }
    adapter.prepare_test()
    assert calls == ["conclude"]
    assert adapter.stored_addresses is not None
    assert adapter.stored_addresses() == [3]


def test_an_old_name_in_a_subclass_wins_over_the_new_one_above_it() -> None:
    class Old(er.ER):
        def foresee(self, batch: Batch) -> list[Any]:
            return [np.array([1, 2])]

    class Both(Old):
        def upcoming_reads(self, batch: Batch) -> list[Any]:
            return [np.array([7])]

    stream = small_stream(3)
    gate = streamgauge.streams.Gate(stream.source, stream.preparation, torch.device("cpu"))
    learners = [
        kind(stream.spec, gate, 0, torch.device("cpu"), er.Config()) for kind in (Old, Both)
    ]
    batch = batch_of(stream, 0, gate)
    with pytest.warns(DeprecationWarning, match="foresee is now called upcoming_reads"):
        old = LearnerAdapter(learners[0]).prefetch_copy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        both = LearnerAdapter(learners[1]).prefetch_copy()
    assert old is not None
    assert both is not None
    assert old.upcoming_reads(batch)[0].tolist() == [1, 2]
    assert both.upcoming_reads(batch)[0].tolist() == [7]


def test_a_method_that_is_only_wrapped_counts_as_unchanged() -> None:
    learner, _ = build(small_stream(3), "er")
    adapter = LearnerAdapter(learner)
    assert has_methods_of(learner, er.ER, ("loss", "store"))

    def timed(method: Any) -> Any:
        return wraps(method)(lambda *given: method(*given))

    adapter.replace_method("store", timed)
    adapter.replace_method("is_not_there", timed)
    assert has_methods_of(learner, er.ER, ("loss", "store"))
    assert adapter.store is learner.store
    adapter.replace_method("loss", lambda _: lambda batch, recalled: 0)
    assert not has_methods_of(learner, er.ER, ("loss", "store"))
    assert same_methods(type(learner), er.ER, ("loss", "store"))


def test_a_class_that_extends_a_method_has_its_settings_and_its_published_variant() -> None:
    class Mine(MIR):
        def loss(self, batch: Batch, recalled: Batch) -> torch.Tensor:
            return 2 * super().loss(batch, recalled)

    stream = small_stream(3)
    gate = streamgauge.streams.Gate(stream.source, stream.preparation, torch.device("cpu"))
    recipe = streamgauge.learner(Mine, as_published=True, code="realtime", candidates=9)
    assert isinstance(recipe.config, Config)
    learner: Any = recipe.build(stream.spec, gate, 0, torch.device("cpu"))
    assert isinstance(learner, Mine)
    assert isinstance(learner, RealTimeMIR)
    assert type(learner).loss is Mine.loss
    plain = streamgauge.learner(Mine).build(stream.spec, gate, 0, torch.device("cpu"))
    assert type(plain) is Mine
    assert type(copy.copy(learner)) is type(learner)


def test_every_method_with_the_setting_as_published_names_its_variant() -> None:
    files = {file.stem for file in (SOURCE / "learners" / "published").glob("[a-z]*.py")}
    used = set()
    for name in catalogue.names("learners"):
        recipe = catalogue.learner(name)
        paths = recipe.kind.published if hasattr(recipe.config, "as_published") else ()  # type: ignore[attr-defined]
        for path in paths.values() if isinstance(paths, dict) else filter(None, [paths]):
            file, _, variant = path.partition(".")
            module = import_module(f"streamgauge.learners.published.{file}")
            assert getattr(module, variant).__doc__, path
            used.add(file)
        assert paths or not hasattr(recipe.config, "as_published"), name
    assert used == files


def test_a_method_may_still_import_the_old_name_of_a_draw() -> None:
    with pytest.warns(DeprecationWarning, match="is now .*ReplayDraw"):
        from streamgauge.learners.parts.replay_batch import Drawn  # type: ignore[attr-defined]
    assert Drawn is replay_batch.ReplayDraw


def test_the_plain_executor_calls() -> None:
    executor = StepExecutor()
    assert executor.run(divmod, 7, 2) == (3, 1)
    with executor.inference():
        pass


def test_nobody_else_asks_what_a_learner_has() -> None:
    asks = re.compile(r"\b(getattr|hasattr|setattr)\(\s*[\w.]*(learner|\.kind)\b")
    found = {
        str(file.relative_to(SOURCE))
        for file in SOURCE.rglob("*.py")
        if asks.search(file.read_text())
    }
    assert found == {"learners/adapter.py"}
