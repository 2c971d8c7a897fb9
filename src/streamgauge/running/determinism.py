"""Algorithms that give the same sums every time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from streamgauge.errors import StreamgaugeError

_SWITCHED = [False]  # whether this process has switched torch to deterministic algorithms


def make_deterministic(device: str, strict: bool = False) -> None:
    """On a GPU, choose algorithms that give the same sums every time: a run that is repeated or
    resumed there must have the same log. Where torch has none it warns, or, if `strict`, refuses;
    on a processor only then. It holds until the next run says otherwise."""
    import torch

    if strict or device.startswith("cuda"):
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.backends.cudnn.benchmark = False
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        torch.use_deterministic_algorithms(True, warn_only=not strict)
        _SWITCHED[0] = True
    elif _SWITCHED[0]:
        torch.use_deterministic_algorithms(False)
        _SWITCHED[0] = False


@contextmanager
def explain_refusals() -> Iterator[None]:
    """Turn torch's refusal of a nondeterministic operation into a sentence for the user."""
    try:
        yield
    except RuntimeError as error:
        marker = " does not have a deterministic implementation"
        operation, refused, _ = str(error).partition(marker)
        if not refused:
            raise
        raise StreamgaugeError(
            f"{operation} has no algorithm in torch that gives the same result every time, and"
            " --deterministic refuses it; without, it is taken."
        ) from error
