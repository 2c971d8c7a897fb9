"""Labels that arrived after the answers, joined to predictions by sample (docs/log.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

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
    """Predictions in Parquet files, with the labels of other Parquet files.

    A label among the predictions comes first: it was known at once. In a log without such labels
    the first answer with a sample and shift counts; `repeated` are the rows of the others. `logp`
    is that of the joined label: as stored if it was stored for this label, else from the scores.
    """

    def __init__(
        self, files: Sequence[Path], labels: Sequence[Path], name: str, keep: Any = None
    ) -> None:
        super().__init__(files, name)
        self._keep = keep  # what the files need to exist
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
        shown = [name for name in self.names if name not in ("scores", "logp_label")]
        self.names = list(dict.fromkeys([*shown, "label", *timed]))
        self.repeated = np.zeros(0, np.int64)
        if "label" not in self.stored:
            self.repeated = self._repeated()

    def _repeated(self) -> Ints:
        """Rows whose sample and shift an earlier row has."""
        names = [name for name in ("sample", "shift") if name in self.stored]
        table = pa.concat_tables(super()._tables(names, ()))
        columns = [table[name].to_numpy() for name in names]
        if (np.diff(columns[0]) > 0).all():
            return self.repeated
        order = np.lexsort(columns)
        same = np.all([np.diff(column[order]) == 0 for column in columns], axis=0)
        return np.sort(order[1:][same])

    def part(self, start: int, stop: int) -> Self:
        some = super().part(start, stop)
        some._keep = None  # the whole table has it
        return some

    def _tables(self, names: Sequence[str], text: Sequence[str]) -> Iterator[pa.Table]:
        from_scores = "logp" in names and "scores" in self.stored
        joined = from_scores or "label" in names or "label_time" in names
        needed = ["sample", "label", "time"] if joined else []
        needed += ["logp_label", "scores"] if from_scores else []
        wanted = [name for name in dict.fromkeys([*names, *needed]) if name in self.stored]
        at = self.between[0] if self.between else 0
        for table in super()._tables(wanted, text):
            here = self.repeated[slice(*np.searchsorted(self.repeated, [at, at + len(table)]))]
            here, at = here - at, at + len(table)
            if len(here):
                table = table.take(np.delete(np.arange(len(table)), here))
            columns = {name: table[name] for name in table.column_names}
            if joined:
                self._join(columns, names)
            if from_scores:
                columns["logp"] = _logp(columns)
            yield pa.table({name: columns[name] for name in names})

    def _join(self, columns: dict[str, Any], names: Sequence[str]) -> None:
        """Replace the columns `label` and `label_time` by the joined ones."""
        row = self.late.find(columns["sample"].to_numpy())
        rows = pa.array(row, mask=row < 0)
        at_once = pc.is_valid(columns["label"]) if "label" in self.stored else pa.scalar(False)
        for name, own in (("label_time", "time"), ("label", "label")):
            if name == "label" or name in names:
                late = self.labels[name].take(rows)
                known = columns[own] if own in self.stored else pa.scalar(None, late.type)
                columns[name] = pc.if_else(at_once, known, late)


def _logp(columns: dict[str, Any]) -> Any:
    """The log-probability of the joined label, NaN where it is unknown."""
    label = columns["label"].fill_null(-1).to_numpy()
    logp = np.where(columns["logp_label"].to_numpy() == label, columns["logp"].to_numpy(), np.nan)
    scores = columns["scores"].combine_chunks()
    size = pc.list_value_length(scores).fill_null(0).to_numpy()
    rows = np.flatnonzero((size > label) & (label >= 0))
    begin = scores.offsets.to_numpy()[:-1]
    logp[rows] = scores.values.to_numpy()[begin[rows] + label[rows]]
    return pa.chunked_array([logp])
