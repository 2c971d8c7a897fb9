"""One run over several GPUs: `torchrun --nproc-per-node 8 -m streamgauge run ...`.

Every rank runs the same loop on the same stream with the same seed, so each knows what the memory
keeps and recalls. A rank answers its part of the samples and trains on its part of every batch, new
and recalled together. Answers are gathered and gradients summed, so all ranks hold the same network
at all times. Rank 0 writes the log.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor, distributed, nn

from streamgauge.catalogue import Recipe
from streamgauge.errors import StreamgaugeError
from streamgauge.learners.adapter import LearnerAdapter, class_prepares, same_methods
from streamgauge.learners.base import Batch
from streamgauge.learners.network import Network
from streamgauge.learners.replay.er import ER
from streamgauge.models.features import device_named
from streamgauge.record import RunWriter
from streamgauge.running.execution import Execution
from streamgauge.running.plan import PlannedRun

# A learner that trains as ER does is shared out; what else it may do (its schedule, its memory, how
# many steps) is on the host, and the same everywhere.
LIKE_ER = ("train", "choose", "loss", "update")
LIKE_NETWORK = ("scores", "view", "predict", "build_memory")


def launched() -> bool:
    """Whether `torchrun` started this process, as one of several."""
    return distributed.is_torchelastic_launched() and int(os.environ.get("WORLD_SIZE", "1")) > 1


def first() -> bool:
    """Whether this process is the one that writes the log and prints."""
    return not launched() or os.environ["RANK"] == "0"


def leave(code: int) -> NoReturn:
    """End this rank with an exit code, without the destructors of Python and C++: under load, a
    thread of torch that is still alive there aborts the process ("terminate called without an
    active exception"), and torchrun then stops the other ranks."""
    if code == 0 and distributed.is_initialized():
        distributed.barrier()  # no rank closes connections that another still uses
        distributed.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@cache
def of_torchrun() -> Ranks | None:
    """The ranks that `torchrun` started; None where it did not."""
    if not launched():
        return None
    if not distributed.is_initialized():
        gpus = torch.cuda.is_available()
        distributed.init_process_group("cpu:gloo,cuda:nccl" if gpus else "gloo")
        atexit.register(distributed.destroy_process_group)
    return Ranks(distributed.get_rank(), distributed.get_world_size())


def over_ranks(planned: Sequence[PlannedRun], execution: Execution) -> Execution:
    """The execution of runs one by one over all ranks; refuses learners that cannot be shared."""
    ranks = of_torchrun()
    if ranks is not None:
        for planned_run in planned:
            ranks.check(planned_run.recipe)
    return replace(execution, engine="eager", side_by_side=1)


def synchronised(model: nn.Module) -> nn.Module:
    """The network with the mean and variance of its batch norms taken over all ranks' samples.
    Parameters and buffers stay the same objects under the same names: the optimiser and checkpoints
    know them."""
    made: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    return made


class Ranks:
    """The processes of one run, seen from one of them."""

    def __init__(self, rank: int, count: int) -> None:
        self.rank, self.count = rank, count

    def device(self, requested: str) -> str:
        """A GPU each."""
        if requested.startswith("cuda:"):
            raise StreamgaugeError(f"torchrun gives every rank its GPU: use --device cuda, "
                                   f"not {requested}.")  # fmt: skip
        device = device_named(requested)
        if device.type != "cuda":
            return str(device)
        local = int(os.environ["LOCAL_RANK"])
        if local >= torch.cuda.device_count():
            raise StreamgaugeError(
                f"There are {torch.cuda.device_count()} GPUs for {local + 1} or more ranks: give "
                f"torchrun --nproc-per-node {torch.cuda.device_count()}."
            )
        torch.cuda.set_device(local)
        return f"cuda:{local}"

    def check(self, recipe: Recipe) -> None:
        """Refuse learners whose step is not ER's: sharing them out would change what they do."""
        kind = recipe.kind
        same = same_methods(kind, ER, LIKE_ER) and same_methods(kind, Network, LIKE_NETWORK)
        if not same or class_prepares(kind):  # `prepare` trains where nobody shares its work out
            raise StreamgaugeError(
                f"The learner {recipe.name} cannot run over several ranks: only learners that "
                f"train as ER does can (er, er_batch, er_cosine, er_minus, er_plus, finetune)."
            )

    def share(self, learner: Any) -> Any:
        """Share the work of a learner out; its own code stays as it is."""
        model: nn.Module = learner.model
        on_gpu = learner.device.type == "cuda"
        if any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in model.modules()):
            if not on_gpu:
                raise StreamgaugeError(
                    f"{learner.config.model} has batch norm, which is shared on GPUs only: "
                    "choose a network without it, or run in one process."
                )
            learner.model = model = synchronised(model)
        shared = nn.parallel.DistributedDataParallel(
            model, device_ids=[learner.device] if on_gpu else None
        )
        adapter = LearnerAdapter(learner)
        adapter.replace_method("loss", lambda _: partial(self._loss, learner, shared))
        adapter.replace_method("update", lambda _: partial(self._update, learner))
        adapter.replace_method("predict", lambda _: partial(self._predict, learner))
        return learner

    def part(self, count: int) -> slice:
        """This rank's of so many samples. Fewer than there are ranks are done by all of them."""
        if count < self.count:
            return slice(0, count)
        return slice(self.rank * count // self.count, (self.rank + 1) * count // self.count)

    def _loss(self, learner: ER, shared: nn.Module, batch: Batch, recalled: Batch) -> Tensor:
        """ER's mean over all samples is the mean over ranks of this. Every rank draws the views of
        all samples, since the draws are one sequence."""
        y = torch.cat([batch.y, recalled.y])
        x = learner.view(torch.cat([batch.x, recalled.x]))
        part = self.part(len(y))
        total = F.cross_entropy(shared(x[part]), y[part], reduction="sum")
        copies = self.count if len(y) < self.count else 1
        return total * (self.count / copies / len(y))

    def _update(self, learner: ER, loss: Tensor) -> None:
        ER.update(learner, loss)  # backward takes the mean of gradients over ranks
        value = loss.detach()  # the same number in memory, which the log is told afterwards
        distributed.all_reduce(value)
        value /= self.count

    def _predict(self, learner: ER, x: Tensor) -> Tensor:
        if len(x) < self.count:
            return Network.predict(learner, x)
        own = Network.predict(learner, x[self.part(len(x))])
        scores = own.new_zeros(len(x), own.shape[1])
        scores[self.part(len(x))] = own
        distributed.all_reduce(scores)  # a sum with zeros, which is exact
        return scores

    def total(self, value: float) -> float:
        """A number summed over ranks."""
        total = torch.tensor(value, dtype=torch.float64)
        distributed.all_reduce(total)
        return float(total)

    def told(self, value: Any = None) -> Any:
        """The value that rank 0 passes."""
        box = [value]
        distributed.broadcast_object_list(box, device=torch.device("cpu"))
        return box[0]

    def recorder(self, make: Callable[[], RunWriter]) -> Any:
        """Rank 0 writes; the others start from the state that it loaded."""
        recorder, problem, state = None, "", None
        if self.rank == 0:
            try:
                recorder = make()
                state = (recorder.peek, recorder.threads)
            except StreamgaugeError as error:
                problem = str(error)
        problem, state = self.told((problem, state))
        if problem:
            raise StreamgaugeError(problem)
        return recorder or SilentWriter(*state)

    def and_wait(self, steps: Iterator[None]) -> Iterator[None]:
        """The same steps; at their end, what rank 0 has written is there for all."""
        yield from steps
        distributed.barrier()


class SilentWriter:
    """A recorder that writes nothing."""

    full = False
    done = False
    step = 0

    def __init__(self, state: dict[str, Any] | None, threads: int | None) -> None:
        self.state, self.threads = state, threads
        self.rows = _Nothing()

    def checkpoint(self, step: int, state: dict[str, Any], done: bool = False) -> None:
        self.step = step

    def discard(self) -> None:
        pass

    def close(self) -> None:
        pass


class _Nothing(dict[str, Any]):
    """Tables that forget every row."""

    def __missing__(self, name: str) -> _Nothing:
        return self

    def append(self, rows: int, **values: Any) -> None:
        pass
