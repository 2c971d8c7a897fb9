"""The leak prover: does a loop answer with what is not known yet?

The loop is a black box, a function from a stream to answers. It is run on pairs of streams that are
equal up to some sample and differ after it, in inputs, in labels or in order. An answer that
differs was made with something that comes later. Further runs find the first such sample, the
sample it depends on, and the reason.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamgauge.checks.base import Broken, CheckResult
from streamgauge.checks.loops import (
    SUM_ERROR,
    LoopFunction,
    LoopStream,
    answers_of,
    kind_of,
    sums,
)
from streamgauge.errors import StreamgaugeError

FEWEST, MOST = 5, 40  # pairs of streams per check
AHEAD = 30  # samples that a loop may read ahead by mistake, at least
TRIALS = 10  # of a change that is then taken to have no effect
ROUNDING = 1e-4  # relative; sums of the same numbers in another order, or in arrays of other length


class LeakReport(NamedTuple):
    """The change of an answer, the change that caused it, and what an author would do about it."""

    effect: str
    remedy: str
    hides: bool = False  # all other checks would show the same

    def __str__(self) -> str:
        return f"{self.effect}: {self.remedy}"


class Prover:
    """Runs a loop on a stream and on others that differ from it after some sample."""

    def __init__(
        self,
        function: LoopFunction,
        stream: LoopStream,
        *,
        answers: str = "auto",
        tolerance: float = 0.0,
        seconds: float = 20.0,
        length_known: bool = False,
        pretrained: bool = False,
        seed: int = 0,
    ) -> None:
        self.function, self.stream, self.claimed = function, stream, answers
        self.tolerance, self.seconds = tolerance, seconds
        self.length_known, self.pretrained = length_known, pretrained
        self._rng = np.random.default_rng(seed)
        self.count, self.kind, self.runs = len(stream.y), "scores", 0
        self.tried: dict[str, int] = {}  # pairs of streams per check
        self.trials = TRIALS
        self.base: NDArray[Any] = np.empty(0)

    # Running and comparing

    def answer(self, x: Any = None, y: Any = None, until: int | None = None) -> NDArray[Any]:
        x = self.stream.x if x is None else x
        y = self.stream.y if y is None else y
        self.runs += 1
        try:
            return answers_of(self.function, replace(self.stream, x=x[:until], y=y[:until]))
        except StreamgaugeError as error:
            if self.runs <= 2:
                raise
            raise StreamgaugeError(
                f"{error} It ran on the stream as it is, and not on one with other labels, inputs "
                "or fewer samples later."
            ) from error

    def difference(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        """By how much each answer differs from that on the base stream."""
        a, b = self.base[: len(rows)].astype(np.float64), rows.astype(np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        with np.errstate(invalid="ignore"):
            apart = np.where(same, 0.0, np.nan_to_num(np.abs(a - b), nan=np.inf, posinf=np.inf))
        apart = apart.reshape(len(rows), -1).max(1)
        return np.where(apart > self.tolerance, apart, 0.0)

    def changed(self, until: int, x: Any = None, y: Any = None, since: int = 0) -> int | None:
        """The first answer from `since` to before `until` that differs on these arrays."""
        different = np.flatnonzero(self.difference(self.answer(x, y))[since:until])
        return since + int(different[0]) if len(different) else None

    # Other streams

    def other_labels(self, start: int, within: Any = None) -> NDArray[np.int64]:
        """Labels that all differ from `start` on; `within` some classes, if that is possible."""
        y, rng = self.stream.y.copy(), self._rng
        shift = rng.integers(1, self.stream.classes, self.count - start)
        y[start:] = (y[start:] + shift) % self.stream.classes
        if within is not None and len(within) > 1:
            rank = np.searchsorted(within, self.stream.y[start:]) % len(within)
            y[start:] = within[(rank + rng.integers(1, len(within), len(rank))) % len(within)]
        return y

    def other_inputs(self, start: int, highest: bool) -> NDArray[Any]:
        """From `start` on, inputs of other samples: those with the largest or smallest norms, so
        that each is a valid input and any statistic over all of them changes."""
        norm = np.linalg.norm(self.stream.x.reshape(self.count, -1).astype(np.float64), axis=1)
        extreme = np.argsort(-norm if highest else norm)[: max(2, self.count // 4)]
        x = self.stream.x.copy()
        x[start:] = x[self._rng.choice(extreme, self.count - start)]
        return x

    def shuffled(self, start: int, stop: int | None = None) -> NDArray[np.int64]:
        order = np.arange(self.count)
        order[start:stop] = self._rng.permutation(order[start:stop])
        return order

    def ends(self) -> NDArray[np.int64]:
        """Where batches end, without the last."""
        return np.arange(self.stream.batch, self.count, self.stream.batch)

    def chosen(self, name: str, positions: NDArray[np.int64], share: float) -> Iterator[int]:
        """The first three, where a model changes most, and others drawn at random, for a share of
        the time."""
        rest = self._rng.permutation(positions[3:])[: MOST - 3].tolist()
        end = time.perf_counter() + share * self.seconds
        for tried, position in enumerate([*positions[:3].tolist(), *rest]):
            if tried >= FEWEST and time.perf_counter() > end:
                return
            yield position
            self.tried[name] = tried + 1

    # Searching

    def first_violation(
        self,
        name: str,
        share: float,
        positions: NDArray[np.int64],
        violated: Callable[[int], int | None],
    ) -> tuple[int, int] | None:
        """The first position at which `violated` gives a sample, and that sample: some positions
        are tried, then those between a passing and a failing one are bisected."""
        passed, violation = [-1], None
        for position in self.chosen(name, positions, share):
            sample = violated(position)
            if sample is not None:
                violation = position, sample
                break
            passed.append(position)
        if violation is None:
            return None
        between = positions[positions > max(p for p in passed if p < violation[0])]
        low, high = 0, int(np.searchsorted(between, violation[0]))
        while low < high:
            middle = (low + high) // 2
            sample = violated(int(between[middle]))
            if sample is None:
                low = middle + 1
            else:
                high, violation = middle, (int(between[middle]), sample)
        return violation

    def cause(self, sample: int, first: int, last: int, mixed: Callable[[int], Any]) -> int:
        """The last position from which on a change still changes the answer to a sample;
        `mixed(m)` are the keywords of `changed` for a change from m on."""
        low, high = first, last
        while low < high:
            middle = (low + high + 1) // 2
            if self.changed(sample + 1, **mixed(middle), since=sample) is None:
                high = middle - 1
            else:
                low = middle
        return low

    def effect(self, what: str, sample: int, source: int, other: NDArray[Any]) -> tuple[str, bool]:
        """The sentence that names two samples, and whether the source has the effect alone."""
        array = (self.stream.y if what == "label" else self.stream.x).copy()
        array[source] = other[source]
        alone = self.changed(sample + 1, **{_ARRAY[what]: array}, since=sample) is not None
        one, many = f"{what} of sample {source} changes", f"{what}s from sample {source} on change"
        return f"the answer to sample {sample} changes when the {one if alone else many}", alone

    def mixed(self, what: str, other: NDArray[Any], start: int) -> dict[str, Any]:
        """Keywords of `changed`: one array is another one from `start` on."""
        array = self.stream.y if what == "label" else self.stream.x
        return {_ARRAY[what]: np.concatenate([array[:start], other[start:]])}

    # Checks: each returns what it did, or raises `Broken` or `_Skip`

    def runs_alike(self) -> str:
        loaded = "torch" in sys.modules
        self.base = self.answer()
        if not loaded and "torch" in sys.modules:  # its generator could not be seeded before
            self.base = self.answer()
        self.kind = kind_of(self.base, self.claimed)
        begin = time.perf_counter()  # the first run may import and compile
        again = self.answer()
        took = time.perf_counter() - begin
        different = self.difference(again)
        if different.any():
            sample = int(np.flatnonzero(different)[0])
            raise Broken(
                f"the loop gives other answers on the same stream, from sample {sample} on, by up "
                f"to {different.max():.3g}: fix its seed first, and make its model inside the "
                "function; if it is rounding on a GPU, allow it with --tolerance"
            )
        self.trials = int(np.clip(self.seconds / (20 * took), 3, TRIALS))
        about, least = f"answers are {self.kind}; a run takes {took:.2g} s", 5 * FEWEST * took
        if least > self.seconds:
            about += f", all checks about {least:.0f} s: fewer --samples are faster"
        return about

    def valid(self) -> str:
        rows, most = self.base.reshape(self.count, -1), self.stream.classes - 1
        bad = np.isnan(rows) | (rows == np.inf)
        if self.kind == "classes":
            bad = (rows < 0) | (rows > most)
        if bad.any():
            row, column = np.argwhere(bad)[0]
            want = f"a class from 0 to {most}" if self.kind == "classes" else "finite"
            raise Broken(f"the answer to sample {row} is {rows[row, column]}: make it {want}")
        if self.kind == "classes":
            return f"classes from 0 to {most}"
        if self.kind == "label-log-probabilities":
            return self._label_sums_to_one()
        if self.kind not in ("log-probabilities", "probabilities"):
            hint = "; if they are log-probabilities, say --answers log-probabilities"
            unsure = self.kind == "scores" and self.claimed == "auto"
            return f"{self.kind}, not checked to sum to one" + hint * unsure
        total = sums(self.base, self.kind)
        wrong = np.flatnonzero(~(np.abs(total - 1) < SUM_ERROR))
        if len(wrong):
            raise Broken(
                f"the probabilities of sample {wrong[0]} sum to {total[wrong[0]]:.4g} over the "
                f"classes, not to 1 ({len(wrong)} of {self.count} samples): normalise over all "
                "classes, seen or not"
            )
        return f"{self.count} samples"

    def _label_sums_to_one(self) -> str:
        """The probability of each class as the label of a sample comes from a run of its own."""
        for sample in self.chosen("sums", np.arange(self.count), 0.2):
            total = 0.0
            for label in range(self.stream.classes):
                y = self.stream.y.copy()
                y[sample] = label
                total += float(np.exp(np.float64(self.answer(y=y)[sample])))
            if not abs(total - 1) < SUM_ERROR:
                raise Broken(
                    f"the probabilities of sample {sample} sum to {total:.4g} over the classes, "
                    "each taken as its label, not to 1: the label is used before its probability "
                    "is computed (trained on, counted, or part of a key), or probabilities are "
                    "not normalised over all classes"
                )
        return f"{self.tried['sums']} samples, each with every class as its label"

    def later_labels(self) -> str:
        others: dict[int, NDArray[np.int64]] = {}

        def violated(end: int) -> int | None:
            for within in (None, np.unique(self.stream.y[:end])):
                others[end] = self.other_labels(end, within)
                sample = self.changed(end, y=others[end])
                if sample is not None:
                    return sample
            return None

        violation = self.first_violation("labels", 0.3, self.ends(), violated)
        if violation is not None:
            raise _LeakFound(self._reason_of_labels(*violation, others[violation[0]]))
        return f"{2 * self.tried['labels']} pairs of streams"

    def _reason_of_labels(self, end: int, sample: int, other: NDArray[np.int64]) -> LeakReport:
        y = self.stream.y
        if all(self.changed(end, y=y[self.shuffled(end)]) is None for _ in range(self.trials)):
            later = np.unique(y[end:])
            drawn = self._rng.choice(later, (self.trials, self.count - end - len(later)))
            same_set = [np.concatenate([y[:end], later, labels]) for labels in drawn]
            if all(self.changed(end, y=labels) is None for labels in same_set):
                return LeakReport(
                    f"the answer to sample {sample} changes when other classes occur from sample "
                    f"{end} on",
                    "its list of classes is made from the labels of the whole stream; use "
                    "stream.classes, which is known from the start, or add classes as they come",
                )
            return LeakReport(
                f"the answer to sample {sample} changes when classes are more or less frequent "
                f"from sample {end} on",
                "class frequencies are counted over the whole stream; count labels as they come",
            )
        mixed = partial(self.mixed, "label", other)
        source = self.cause(sample, end, self.count - 1, mixed)
        effect, _ = self.effect("label", sample, source, other)
        if self._looked_up(sample, source):
            return LeakReport(effect, _LOOKED_UP, hides=True)
        far = self._far(end)
        if source < far and self.changed(end, **mixed(far)) is None:
            return LeakReport(
                effect,
                f"labels are used {_samples(source - sample)} before they are due; an index is "
                "shifted, or the loop trains on batches longer than stream.batch before it "
                "answers them",
                hides=True,
            )
        return LeakReport(
            effect,
            "it is answered after training on the whole stream (a second epoch, or a fit before "
            "the loop); answer each batch before any training on it, in the first pass",
            hides=True,
        )

    def later_inputs(self) -> str:
        others: dict[int, NDArray[Any]] = {}

        def violated(end: int) -> int | None:
            others[end] = self.other_inputs(end, highest=len(others) % 2 == 0)
            return self.changed(end, x=others[end])

        violation = self.first_violation("inputs", 0.2, self.ends(), violated)
        if violation is not None:
            raise _LeakFound(self._reason_of_inputs(*violation, others[violation[0]]))
        return f"{self.tried['inputs']} pairs of streams"

    def _reason_of_inputs(self, end: int, sample: int, other: NDArray[Any]) -> LeakReport:
        mixed = partial(self.mixed, "input", other)
        source = self.cause(sample, end, self.count - 1, mixed)
        effect, _ = self.effect("input", sample, source, other)
        if self._looked_up(sample, source):
            return LeakReport(effect, _LOOKED_UP, hides=True)
        effective = self.difference(self.answer(**mixed(end)))[:end].max()
        orders = (self.shuffled(end) for _ in range(self.trials))
        moved = (self.difference(self.answer(x=self.stream.x[order]))[:end] for order in orders)
        if all(some.max() <= ROUNDING * effective for some in moved):
            return LeakReport(
                effect,
                "inputs are standardised, or something else is fitted, over the whole stream, in "
                "whatever order; update such statistics as samples come",
            )
        far = self._far(end)
        if source < far and self.changed(end, **mixed(far)) is None:
            return LeakReport(
                effect,
                f"inputs are read {_samples(source - sample)} ahead, from a later batch; answer "
                "each batch of the stream by itself, or give the batch size of the loop with "
                "--batch",
            )
        return LeakReport(
            effect,
            "something is fitted to the inputs of the whole stream before the first answer; fit "
            "it to inputs as they come",
        )

    def later_order(self) -> str:
        def violated(end: int) -> int | None:
            order = self.shuffled(end)
            return self.changed(end, x=self.stream.x[order], y=self.stream.y[order])

        violation = self.first_violation("order", 0.1, self.ends(), violated)
        if violation is not None:
            effect = "the answer to sample {1} changes when samples from {0} on change places"
            raise _LeakFound(
                LeakReport(effect.format(*violation), "use samples in the order in which they come")
            )
        return f"{self.tried['order']} pairs of streams"

    def batch_labels(self) -> str:
        """The answer to sample t may use labels of samples before t: a loop may go one by one."""
        others: dict[int, NDArray[np.int64]] = {}
        own = self.kind != "label-log-probabilities"  # of those the own label is a part

        def violated(at: int) -> int | None:
            start, end = self._batch_of(at)
            others[at] = self._batch_changed(at, end)
            return self.changed(at + own, y=others[at], since=start)

        violation = self.first_violation("batch", 0.2, np.arange(self.count), violated)
        if violation is not None:
            raise _LeakFound(self._reason_in_batch(*violation, others[violation[0]]))
        return f"{self.tried['batch']} pairs of streams"

    def _far(self, end: int) -> int:
        """Samples from here on are no part of what a loop reads ahead."""
        return min(end + max(3 * self.stream.batch, AHEAD), self.count - 1)

    def _batch_of(self, sample: int) -> tuple[int, int]:
        start = sample // self.stream.batch * self.stream.batch
        return start, min(start + self.stream.batch, self.count)

    def _reason_in_batch(self, at: int, sample: int, other: NDArray[np.int64]) -> LeakReport:
        start, end = self._batch_of(at)
        mixed = partial(self.mixed, "label", other)
        source = self.cause(sample, at, end - 1, mixed)
        effect, alone = self.effect("label", sample, source, other)
        batches = [self._batch_of(at) for at in (start, *self.ends()[: self.trials].tolist())]
        if source == sample and alone and not self._uses_others(batches):
            return LeakReport(effect, self._reason_of_own_label(sample))
        if start and self._chooses(start, end):
            return LeakReport(
                effect,
                "labels of the batch choose among a few answers, and of the first batch they "
                "change nothing: early stopping, or another choice in the training before it; "
                "choose by labels of past batches only",
            )
        if not any(self._order_matters(*batch) for batch in batches):
            return LeakReport(
                effect,
                "the labels of the batch are counted before it is answered: their order changes "
                "nothing, their frequencies do; use labels of past batches only",
            )
        return LeakReport(
            effect, "the batch is trained on before it is answered; answer first, then train"
        )

    def _reason_of_own_label(self, sample: int) -> str:
        """Training changes the answer to sample 0, and tells two new classes apart; a table of past
        pairs does neither."""
        if self._looked_up(sample, self.count - 1):
            return _LOOKED_UP
        trained = "it is trained on before it is answered"
        if self.changed(1, y=self._batch_changed(0, 1)) is not None:
            return f"{trained}; answer first, then train"
        new = np.setdiff1d(np.arange(self.stream.classes), self.stream.y[:sample])[:2]
        y = [np.where(np.arange(self.count) == sample, label, self.stream.y) for label in new]
        first, second = (self.answer(y=labels)[sample] for labels in y) if len(new) > 1 else (0, 1)
        if np.array_equal(first, second):
            return (
                "its label is read while it is answered, in a key or a hash (two labels that are "
                "new at this sample give the same answer); look up every class, not the true one"
            )
        return f"{trained}, or its label is among its inputs; answer first, then use the label"

    def _looked_up(self, sample: int, source: int) -> bool:
        """Whether the label of a later sample matters if that has the same input, and only then."""

        def matters(row: int) -> bool:
            x, y = self.stream.x.copy(), self.stream.y.copy()
            x[source] = x[row]
            y[source] = (
                y[source] + self._rng.integers(1, self.stream.classes)
            ) % self.stream.classes
            same, other = (self.answer(x, labels)[sample] for labels in (None, y))
            return not np.array_equal(same, other)

        x = self.stream.x.reshape(self.count, -1)
        others = self._rng.permutation(np.flatnonzero((x != x[sample]).any(1)))[: self.trials]
        return matters(sample) and not any(map(matters, others.tolist()))

    def _batch_changed(self, start: int, end: int) -> NDArray[np.int64]:
        """Other labels from `start` to before `end` only."""
        return np.append(self.other_labels(start)[:end], self.stream.y[end:])

    def _uses_others(self, batches: list[tuple[int, int]]) -> bool:
        """Whether answers of a batch change with labels of the batch that come after them."""
        return any(
            self.changed(at, y=self._batch_changed(at, end), since=start) is not None
            for start, end in batches
            for at in [(start + end) // 2]
            if start < at
        )

    def _chooses(self, start: int, end: int) -> bool:
        """Whether labels of a batch lead to a few different answers only, and those of the first
        batch to none."""
        streams = [self._batch_changed(start, end) for _ in range(self.trials)]
        answers = {self.answer(y=y)[start:end].tobytes() for y in streams}
        first = self._batch_of(0)[1]
        tries = (self._batch_changed(0, first) for _ in range(self.trials))
        return 2 * len(answers) <= self.trials + 1 and all(
            self.changed(first, y=y) is None for y in tries
        )

    def _order_matters(self, start: int, end: int) -> bool:
        """Whether answers of a batch change, more than by rounding, when its labels are moved."""
        labels = self._batch_changed(start, end), self.stream.y[self.shuffled(start, end)]
        replaced, moved = (self.difference(self.answer(y=y))[start:end].max() for y in labels)
        return bool(moved > ROUNDING * replaced)

    def length(self) -> str:
        if self.length_known:
            raise _Skip("declared as known")
        violation = self.ended(ROUNDING)
        if violation is not None:
            effect = "the answer to sample {} changes when the stream ends at sample {}"
            raise _LeakFound(LeakReport(
                effect.format(*violation),
                "the number of samples is used, as in a schedule of the learning rate; use no "
                "length, or declare it with --length-known",
            ))  # fmt: skip
        return ""

    def replaced_labels(self) -> str:
        """Do answers agree with labels that the stream does not have any more?

        In half of the streams every class has become another one: a loop that learns is wrong about
        the old labels. In the others labels are shuffled: past labels and inputs tell nothing about
        the old ones, whatever the order of the stream."""
        if self.pretrained:
            raise _Skip("declared as trained before")
        if self.kind == "label-log-probabilities":
            raise _Skip("of other labels, a loop that gives these returns other answers")
        known = np.unique(self.stream.y)
        rank, agreement = np.searchsorted(known, self.stream.y), []
        for trial in range(max(2, self.trials // 3)):
            moved = known[(rank + 1 + trial % (len(known) - 1)) % len(known)]
            for labels in (moved, self._rng.permutation(self.stream.y)):
                rows = self.answer(y=labels)
                agreement.append(self._balanced(rows if rows.ndim == 1 else rows.argmax(1)))
        deviation = np.sqrt(((1 - 1 / len(known)) / len(known) / np.bincount(rank)).sum())
        chance, least = 1 / len(known), min(agreement)
        if least > chance + 3 * deviation / len(known):
            raise Broken(
                f"on streams with other labels, {100 * least:.0f} % of the answers or more are "
                f"those of the labels that were replaced ({100 * chance:.0f} % by chance, the mean "
                "over classes): they come from an earlier run (a cache by index or by input that "
                "outlives the function) or from elsewhere (a data set that the function holds, a "
                "model that was trained before); make all of it inside the function, from the "
                "stream that it is given, or declare a model of other data with --pretrained. The "
                "first weights of a loop that hardly learns may also agree by luck, most often "
                "with few classes: then the check passes with another seed of these weights"
            )
        return f"{len(agreement)} streams"

    def _balanced(self, answers: NDArray[Any]) -> float:
        """Share of answers that are the labels of the base stream, the mean over classes."""
        y = self.stream.y
        return float(np.mean([(answers[y == label] == label).mean() for label in np.unique(y)]))

    def ended(self, rounding: float) -> tuple[int, int] | None:
        """An answer that differs in a shorter stream, and where that ends. Sums over arrays of
        another length may be rounded differently: that is no leak."""
        size = np.abs(np.nan_to_num(self.base.astype(float), posinf=0, neginf=0)).max()
        allowed = 0 if self.kind == "classes" else rounding * size
        for end in self.ends()[[len(self.ends()) // 2, -1]].tolist():
            late = np.flatnonzero(self.difference(self.answer(until=end)) > allowed)
            if len(late):
                return int(late[0]), end
        return None

    def results(self) -> Iterator[CheckResult]:
        """All checks, the widest first: a loop that has seen the whole stream would fail the
        others for the same reason, so they are not made then."""
        blocked: set[Any] = set()
        for name, check in _CHECKS.items():
            if check in blocked:
                yield CheckResult(name, None, "not tried: the failure above would show here, too")
                continue
            try:
                yield CheckResult(name, True, check(self))
            except _Skip as why:
                yield CheckResult(name, None, str(why))
            except Broken as error:
                yield CheckResult(name, False, str(error))
                blocked |= _BLOCKED.get(check, set())
                hides = isinstance(error, _LeakFound) and error.leak.hides
                if hides or check is Prover.runs_alike:
                    blocked |= set(_CHECKS.values())

    def missed(self, share: float) -> float:
        """Probability that a leak is missed that shows at this share of positions."""
        return float((1 - share) ** min(self.tried[name] for name in ("labels", "inputs", "batch")))

    def leak(self) -> LeakReport | None:
        """One pair of streams that differ in all that is not known; where answers differ, the
        reason."""
        self.base = self.answer()
        at = self.count * 10 // 24
        start, end = self._batch_of(at)
        x = self.other_inputs(end, highest=True)
        if self.changed(start + 1, x=x, y=self.other_labels(start)) is None:
            return None
        for check in (Prover.later_labels, Prover.later_inputs, Prover.batch_labels):
            try:
                check(self)
            except _LeakFound as error:
                return error.leak
        return LeakReport(
            f"answers before sample {start + 1} depend on samples or labels after it", ""
        )


class _Skip(Exception):
    """A check that cannot be made, and why."""


class _LeakFound(Broken):
    def __init__(self, leak: LeakReport) -> None:
        super().__init__(str(leak))
        self.leak = leak


def _samples(count: int) -> str:
    return f"{count} sample" + "s" * (count != 1)


_LOOKED_UP = (
    "its label is looked up by its input, in a table of the labels of the whole stream; add labels "
    "to it after their samples are answered"
)
_ARRAY = {"label": "y", "input": "x"}
_CHECKS: dict[str, Callable[[Prover], str]] = {
    "same stream, same answers": Prover.runs_alike,
    "answers are finite, probabilities sum to one": Prover.valid,
    "no label of a later batch": Prover.later_labels,
    "no input of a later batch": Prover.later_inputs,
    "no order of later samples": Prover.later_order,
    "no label of its own or later in its batch": Prover.batch_labels,
    "no length of the stream": Prover.length,
    "no label from elsewhere": Prover.replaced_labels,
}
# Failed check -> checks that would fail for the same reason.
_BLOCKED: dict[Any, set[Any]] = {
    Prover.later_labels: {Prover.later_order, Prover.batch_labels, Prover.length},
    Prover.later_inputs: {Prover.later_order, Prover.length},
}
