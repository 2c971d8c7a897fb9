"""Records a loop of another library through `sg.Recorder`. The samples of such a loop have no ids,
so they are numbered in the order of the answers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamgauge.record.values import as_array

if TYPE_CHECKING:
    from streamgauge.record.recorder import Recorder


class Hook:
    """A recorder that is opened at the first call, so that a hook can be pickled with the loop it
    is part of. A hook that is read again goes on in the same folder."""

    def __init__(self, path: str | Path, **facts: Any) -> None:
        self.path, self.facts = Path(path), facts
        self._recorder: Recorder | None = None
        self._next = 0
        self._started: float | None = None
        self._right = self._asked = 0  # of the evaluation that goes on

    def __getstate__(self) -> dict[str, Any]:
        if self._recorder is not None:
            self._recorder.flush()
        return {"path": self.path, "facts": self.facts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["path"], **state["facts"])  # type: ignore[misc]

    def __deepcopy__(self, memo: dict[int, Any]) -> Hook:
        return self  # a folder has one writer

    @property
    def recorder(self) -> Recorder:
        if self._recorder is None:
            from streamgauge.record.recorder import Recorder

            self._recorder = Recorder(self.path, **self.facts)
            self._next = self._recorder.samples
        return self._recorder

    def default(self, **facts: Any) -> None:
        """Facts that the caller did not give; they count until the first row is recorded."""
        if self._recorder is None:
            self.facts = {**facts, **{k: v for k, v in self.facts.items() if v is not None}}

    def answer(self, answers: Any, labels: Any = None, ids: Any = None, **columns: Any) -> Any:
        """Record a batch of classes [B] or of scores [B, C]; returns the ids."""
        recorder, answers = self.recorder, as_array(answers)
        if answers.ndim == 2:
            answers, columns = self._widened(answers), {"kind": "logits", **columns}
        if ids is None:
            ids = np.arange(self._next, self._next + len(answers))
        ids_given, labels_given = as_array(ids), None if labels is None else as_array(labels)
        if labels_given is not None:  # before the answers are recorded
            recorder.check_labels(
                ids_given, labels_given, answers.shape[1] if answers.ndim == 2 else None
            )
        recorder.predict(ids_given, answers, **columns)
        self._next += len(answers)
        if labels_given is not None:
            recorder.label(ids_given, labels_given)
        self._started = time.perf_counter()
        self.begin_evaluation()  # an error may have ended the one before
        return ids

    def trained(self) -> None:
        """A training job ended; it began when the last answer was recorded."""
        seconds = np.nan if self._started is None else time.perf_counter() - self._started
        self.recorder.trained(seconds=seconds)

    def begin_evaluation(self) -> None:
        """What was counted belongs to an evaluation that an error ended."""
        self._right = self._asked = 0

    def count(self, predictions: Any, labels: Any) -> None:
        """A batch of an evaluation: predicted classes and labels."""
        self._right += int((as_array(predictions) == as_array(labels)).sum())
        self._asked += len(labels)

    def evaluated(self, task: int) -> None:
        """The evaluation on a task ended."""
        right, asked = self._right, self._asked
        self.begin_evaluation()  # also where the next line raises an error
        self.recorder.evaluate(task=task, correct=right, count=asked, split="test")

    def close(self) -> None:
        if self._recorder is not None:
            self._recorder.close()
            self._recorder = None

    def _widened(self, scores: NDArray[Any]) -> NDArray[Any]:
        """Scores of a network that has not met all classes yet, with -inf for the others."""
        classes = self.facts.get("classes")
        count = classes if isinstance(classes, int) else len(classes or ())
        missing = count - scores.shape[1]
        if missing <= 0:
            return scores
        return np.pad(scores, ((0, 0), (0, missing)), constant_values=-np.inf)
