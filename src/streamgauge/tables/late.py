"""Labels that arrived after the answers, joined to predictions by sample (docs/log.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError
from streamgauge.tables.typed import ParquetTable
from streamgauge.tables.values import Ints


class LateLabels:
    """The row of each sample in a table of labels. Of several rows the one with the newest time
    counts, of equal times the last; a row without a time is the oldest."""

    def __init__(self, sample: Ints, time: NDArray[np.float64]) -> None:
        order = np.lexsort((np.where(np.isnan(time), -np.inf, time), sample))
        last = np.append(np.diff(sample[order]) != 0, True)[: len(order)]
        self.rows = order[last]
        self.sample = sample[self.rows]

    def find(self, sample: Ints) -> Ints:
        """The row of the label of each sample, -1 where there is none."""
        if not len(self.sample):
            return np.full(len(sample), -1, np.int64)
        at = np.minimum(np.searchsorted(self.sample, sample), len(self.sample) - 1)
        return np.where(self.sample[at] == sample, self.rows[at], -1)


class LabelledParquet(ParquetTable):
    """Predictions in Parquet files, with the labels of other Parquet files. A label among the
    predictions comes first: it was known at once."""

    def __init__(self, files: Sequence[Path], labels: Sequence[Path], name: str) -> None:
        super().__init__(files, name)
        empty = pa.table({"sample": pa.array([], pa.int64()), "label": pa.array([], pa.int32())})
        self.labels = ParquetTable(labels, f"the labels of {name}").read() if labels else empty
        for names in (self.names, self.labels.column_names):
            if "sample" not in names:
                raise StreamgaugeError(
                    f"{name} has no column 'sample', by which labels are joined to predictions:"
                    " name the file of the predictions instead of the folder"
                )
        unknown = pa.chunked_array([pa.nulls(len(self.labels), pa.float64())])
        stored = self.labels["label_time"] if "label_time" in self.labels.column_names else unknown
        time = stored.to_numpy().astype(np.float64)
        self.late = LateLabels(self.labels["sample"].to_numpy(), time)
        self.stored = list(self.names)
        timed = ["label_time"] if np.isfinite(time).any() else []
        self.names = list(dict.fromkeys([*self.names, "label", *timed]))

    def _tables(self, names: Sequence[str], text: Sequence[str]) -> Iterator[pa.Table]:
        joined = {"label": "label", "label_time": "time"}  # and what an answer with its label has
        needed = ("sample", *joined.values()) if set(names) & set(joined) else ()
        wanted = [name for name in dict.fromkeys([*names, *needed]) if name in self.stored]
        for table in super()._tables(wanted, text):
            columns = {name: table[name] for name in table.column_names}
            if needed:
                rows = self.late.find(table["sample"].to_numpy())
                rows = pa.array(rows, mask=rows < 0)
                at_once = (
                    pc.is_valid(table["label"]) if "label" in self.stored else pa.scalar(False)
                )
                for name, own in joined.items():
                    if name in names:
                        late = self.labels[name].take(rows)
                        known = table[own] if own in self.stored else pa.scalar(None, late.type)
                        columns[name] = pc.if_else(at_once, known, late)
            yield pa.table({name: columns[name] for name in names})
