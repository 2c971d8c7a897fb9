"""A stream whose inputs are permuted against its labels: the inputs say nothing about the labels.

Labels, times, users, steps and tasks stay in order, so a learner can still use label history.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from streamgauge.streams.prefix import SourcePart
from streamgauge.streams.source import IntArray, Source, SourceView
from streamgauge.streams.stream import Stream


def permuted_inputs(stream: Stream, seed: int = 0) -> Stream:
    """The same stream, in which every sample has the input of a random other position.

    The preparation part and each held-out part are permuted on their own. A sample that occurs
    twice in the order has two addresses here, with two inputs.

    >>> from streamgauge.streams.named import blobs
    >>> permuted_inputs(blobs.build(blobs.Config()))
    Stream('blobs-placebo': 1800 samples in 180 steps, 5 tasks)
    """
    parts = [stream.order, stream.preparation, *(s.index for s in stream.splits.values())]
    ends = np.cumsum([0, *map(len, parts)])
    order, preparation, *held_out = (np.arange(start, end) for start, end in pairwise(ends))
    splits = {
        name: replace(split, index=index)
        for (name, split), index in zip(stream.splits.items(), held_out, strict=True)
    }
    return replace(
        stream,
        name=f"{stream.name}-placebo",
        source=_PermutedInputs(stream.source, parts, seed),
        order=order,
        preparation=preparation,
        splits=splits,
        settings={**stream.settings, "permuted_inputs": seed},
        known=None,
    )


class _PermutedInputs(SourcePart):
    """Samples of a source at new addresses, part after part, with the inputs permuted per part."""

    def __init__(self, source: Source, parts: Sequence[IntArray], seed: int) -> None:
        SourceView.__init__(self, source)
        rng = np.random.default_rng(seed)
        index = np.concatenate(parts).astype(np.int64)
        self.label = source.label[index]
        self.columns = {name: column[index] for name, column in source.columns.items()}
        self._index = np.concatenate([rng.permutation(part) for part in parts]).astype(np.int64)
