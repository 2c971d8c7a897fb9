"""The process that trains: `python -m streamgauge.live.trainer_process DESCRIPTOR`.

`trainer.ProcessBackend` starts it. It ends when its pipe is closed.
"""

from __future__ import annotations

import contextlib
import pickle
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any

from streamgauge import catalogue
from streamgauge.errors import StreamgaugeError
from streamgauge.live.local_trainer import LocalTrainer, pack, stored_addresses, unpack
from streamgauge.live.trainer import failure


def main(descriptor: int) -> None:
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that answers
    pipe = Connection(descriptor)
    described, setup, state, known = pickle.loads(pipe.recv_bytes())
    torch.set_num_threads(setup.threads)
    try:
        recipe = catalogue.learner(
            f"{described['name']}={described['where']}", **described["settings"]
        )
        trainer = LocalTrainer(recipe, setup, None if state is None else unpack(state), known)
    except Exception as error:
        _reply(pipe, False, _sentence(error, "The learner could not be built"))
        return
    _reply(pipe, True, stored_addresses(trainer.adapter))
    while True:
        request = pickle.loads(pipe.recv_bytes())
        try:
            update = trainer.train(request)
        except Exception as error:
            traceback.print_exc()
            _reply(pipe, False, failure(request, error))
            continue
        _reply(pipe, True, (tuple(update._replace(state={})), pack(update.state)))


def _reply(pipe: Connection, good: bool, value: Any) -> None:
    pipe.send_bytes(pickle.dumps((good, value), protocol=5))


def _sentence(error: Exception, what: str) -> str:
    if isinstance(error, StreamgaugeError):
        return str(error)
    traceback.print_exc()
    return f"{what} in the trainer's process ({type(error).__name__}: {error})."


if __name__ == "__main__":
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        main(int(sys.argv[1]))
