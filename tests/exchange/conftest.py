"""One run with tasks, in which tasks are forgotten, shared by the tests of this folder."""

from __future__ import annotations

import pytest

import streamgauge as sg


@pytest.fixture(scope="session")
def task_run(tmp_path_factory: pytest.TempPathFactory) -> sg.Run:
    stream = sg.stream("blobs", batch=10)
    protocol = sg.Protocol(shifts=(200,))
    return sg.run(
        stream, "finetune", out=tmp_path_factory.mktemp("runs"), protocol=protocol, progress=False
    )
