"""States of other libraries are pickles: what another process pickled is not executed unasked."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import streamgauge as sg
from helpers import clouds, rewrite, same_log
from streamgauge.bridges import foreign
from streamgauge.files import size_and_checksum
from streamgauge.record.writer import read_checkpoint, to_plain

pytest.importorskip("river")
pytest.importorskip("sklearn")
from river import compose, naive_bayes

STEPS = 12


class Evil:
    """Writes a file when it is read from a pickle."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.write_text, (self.path, "executed"))


@pytest.fixture(params=["river:naive_bayes.GaussianNB", "sklearn:naive_bayes.BernoulliNB"])
def begun(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, Path]:
    """A run that another process began and did not finish: this one does not know its pickles."""
    x, y = clouds(5 * STEPS, 3)
    np.savez(tmp_path / "mine.npz", x=x, y=y)
    stream, said = sg.stream(tmp_path / "mine.npz", batch=5), list[str]()
    options: dict[str, Any] = {"out": tmp_path / "runs", "progress": False, "log": said.append}
    sg.run(stream, request.param, steps=5, origin=str(tmp_path / "mine.npz"), **options)
    assert "without --steps and with --trust-pickle goes on" in said[-1]
    monkeypatch.setattr(foreign, "_written", set())
    return request.param, tmp_path


def test_an_interrupted_run_starts_again_or_goes_on_with_trust(begun: tuple[str, Path]) -> None:
    name, folder = begun
    stream, said = sg.stream(folder / "mine.npz", batch=5), list[str]()
    whole = sg.run(stream, name, out=folder / "whole", progress=False, log=said.append)
    trusted = sg.resume(folder / "runs", log=said.append, trust_pickle=True)[0]
    assert any("goes on from step 5" in sentence for sentence in said)
    assert same_log(trusted, whole)


def test_without_trust_it_starts_again_and_says_so(begun: tuple[str, Path]) -> None:
    name, folder = begun
    stream, said = sg.stream(folder / "mine.npz", batch=5), list[str]()
    (path,) = (folder / "runs").glob("*-s0-*")
    _spoil(path, folder / "executed")
    again = sg.run(stream, name, out=folder / "runs", progress=False, log=said.append)
    (sentence,) = said
    assert "starts again from its first step" in sentence
    assert "reading a pickle can execute any code; give --trust-pickle" in sentence
    assert (folder / "runs" / "replaced" / f"{path.name}.1").is_dir()
    assert not (folder / "executed").exists()
    assert again.done
    assert again.path == path
    whole = sg.run(stream, name, out=folder / "whole", progress=False, log=said.append)
    assert same_log(again, whole)


def _spoil(path: Path, target: Path) -> None:
    """Put a pickle into a checkpoint that writes a file when it is read."""
    (file,) = path.glob("checkpoint-*.pt")
    state = read_checkpoint(file)
    state["learner"]["pickle"] = pickle.dumps(Evil(target))
    torch.save(to_plain(state), file)
    stored = {file.name: size_and_checksum(file)}
    rewrite(path / "progress.json", lambda progress: progress["files"].update(stored))


def test_resume_starts_again_too_and_the_command_has_the_option(
    begun: tuple[str, Path], call: Any
) -> None:
    _, folder = begun
    (path,) = (folder / "runs").glob("*-s0-*")
    _spoil(path, folder / "executed")
    assert call("resume", str(folder / "runs"))[0] == 0
    assert not (folder / "executed").exists()
    assert sg.Run(path).done
    assert call("resume", str(folder / "runs"), "--trust-pickle")[0] == 0


def test_this_process_reads_what_it_wrote_and_nothing_else(tmp_path: Path) -> None:
    stream = sg.stream(*clouds(60, 3), batch=5)
    said: list[str] = []
    options: dict[str, Any] = {"out": tmp_path, "progress": False, "log": said.append}
    sg.run(stream, "river:GaussianNB", steps=5, **options)
    assert sg.run(stream, "river:GaussianNB", **options).done
    assert any("goes on from step 5" in sentence for sentence in said)
    recipe = sg.learner("river:GaussianNB")
    learner = recipe.build(stream.spec, None, 0, torch.device("cpu"))  # type: ignore[arg-type]
    with pytest.raises(sg.StreamgaugeError, match="it is a pickle of another process"):
        learner.load_state_dict({"pickle": b"not ours"})
    with foreign.trust_pickles():
        learner.load_state_dict({"pickle": pickle.dumps((naive_bayes.GaussianNB(), None))})


def test_a_model_that_cannot_be_pickled_runs_and_is_not_resumed(tmp_path: Path) -> None:
    stream, said = sg.stream(*clouds(60, 2), batch=5), list[str]()
    model = compose.FuncTransformer(lambda x: x) | naive_bayes.GaussianNB()
    options: dict[str, Any] = {"out": tmp_path, "progress": False, "log": said.append}
    sg.run(stream, model, steps=5, **options)
    assert sg.run(stream, model, trust_pickle=True, **options).done
    assert any("the model could not be pickled" in sentence for sentence in said)


def test_a_run_around_an_object_is_not_resumed_from_its_folder(tmp_path: Path) -> None:
    x, y = clouds(60, 2)
    np.savez(tmp_path / "mine.npz", x=x, y=y)
    stream = sg.stream(tmp_path / "mine.npz", batch=5)
    model = compose.Select("x0", "x1") | naive_bayes.GaussianNB()
    sg.run(stream, model, out=tmp_path, progress=False, steps=5, origin=str(tmp_path / "mine.npz"))
    with pytest.raises(sg.StreamgaugeError, match=r"made in Python: call sg\.run with the same"):
        sg.resume(tmp_path, trust_pickle=True)
