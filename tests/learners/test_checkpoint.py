"""States from a declaration: keys, what is changed in place, and what is copied."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from streamgauge.learners.parts.checkpoint import Checkpointed


class Base(Checkpointed):
    checkpointed = "sums generator"

    def __init__(self) -> None:
        self.sums = torch.zeros(2)
        self.generator = torch.Generator().manual_seed(0)


class Extended(Base):
    checkpointed = "kept=labels vectors parts"

    def __init__(self) -> None:
        super().__init__()
        self.labels = np.zeros(2, np.int64)
        self.vectors = {"a": torch.zeros(1)}
        self.parts = [torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)]


def test_a_state_has_the_keys_of_all_classes_the_base_class_first() -> None:
    assert list(Extended().state_dict()) == ["sums", "generator", "kept", "vectors", "parts"]


def test_loading_changes_tensors_in_place_and_copies_arrays() -> None:
    first, second = Extended(), Extended()
    first.sums += 1
    first.vectors["a"] += 2
    first.labels[0] = 3
    torch.rand(1, generator=first.generator)
    tensors = (second.sums, second.vectors["a"], second.parts[0].weight)
    state = copy.deepcopy(first.state_dict())
    second.load_state_dict(state)
    assert [t.tolist() for t in tensors[:2]] == [[1, 1], [2]]
    assert torch.equal(tensors[2], first.parts[0].weight)
    assert tensors[0] is second.sums
    assert tensors[1] is second.vectors["a"]
    assert second.labels.tolist() == [3, 0]
    assert second.labels is not state["kept"]
    drawn = [torch.rand(3, generator=g) for g in (first.generator, second.generator)]
    assert torch.equal(*drawn)


def test_a_state_that_lacks_a_key_is_refused() -> None:
    with pytest.raises(KeyError, match="kept"):
        Extended().load_state_dict(Base().state_dict())
