"""Lightning: a callback that records the answers to every training batch.

Works with `lightning` and with `pytorch_lightning`, whichever the loop has imported.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from streamgauge.bridges.foreign import load
from streamgauge.bridges.hook import Hook
from streamgauge.bridges.torch import ask
from streamgauge.errors import StreamgaugeError

PACKAGE, DISTRIBUTION = "lightning.pytorch", "lightning"

Unpack = Callable[[Any], tuple[Any, ...]]


def recorder(
    path: str | Path,
    *,
    stream: str,
    learner: str | None = None,
    classes: Any = None,
    unpack: Unpack | None = None,
    forward: Callable[[Any, Any], Any] | None = None,
    **facts: Any,
) -> Any:
    """A callback for `Trainer(callbacks=[...])`. It answers each training batch in evaluation mode
    before the training step, with `module(x)` or `forward(module, x)`, and closes the log when
    `fit` ends.

    A batch is (x, y) or (x, y, ids); `unpack(batch)` gives these of any other batch. Only the first
    epoch is recorded: the samples of a second one have been trained on. Other arguments are those
    of `sg.Recorder`."""
    hook = Hook(path, stream=stream, learner=learner, classes=classes, **facts)
    return _callback_class()(hook, unpack or tuple, forward)


@cache
def _callback_class() -> Any:
    old = "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules
    package = load("pytorch_lightning" if old else PACKAGE, "The callback")

    class Recorder(package.Callback):  # type: ignore[misc,name-defined]
        def __init__(self, hook: Hook, unpack: Unpack, forward: Any) -> None:
            self.hook, self._unpack, self._forward = hook, unpack, forward
            self._warned = False

        def on_fit_start(self, trainer: Any, module: Any) -> None:
            if trainer.world_size > 1:
                raise StreamgaugeError(
                    "The callback records a loop of one process; this trainer has"
                    f" {trainer.world_size}, and each sees other samples."
                )
            library = f"{package.__name__.partition('.')[0]} {package.__version__}"
            self.hook.default(learner=type(module).__name__, library=library)

        def on_train_batch_start(
            self, trainer: Any, module: Any, batch: Any, batch_idx: int
        ) -> None:
            if self._is_again(trainer):
                return
            x, y, *ids = self._unpack(batch)
            with trainer.precision_plugin.forward_context():
                forward = self._forward
                scores = ask(module, x, forward and (lambda x: forward(module, x)))
            self.hook.answer(scores, y, *ids)

        def on_train_batch_end(
            self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int
        ) -> None:
            self.hook.trained()

        def teardown(self, trainer: Any, module: Any, stage: str) -> None:
            self.hook.close()

        def _is_again(self, trainer: Any) -> bool:
            again = bool(trainer.current_epoch > 0)
            if again and not self._warned:
                self._warned = True
                warnings.warn(
                    "Training goes on for a second epoch, whose samples have been trained on: only"
                    " the answers of the first epoch are recorded.",
                    stacklevel=2,
                )
            return again

    return Recorder
