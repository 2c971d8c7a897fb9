"""Runs on a cluster. What needs Ray is marked: `pytest -m ray` (Ray takes its time to start)."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamgauge as sg
from helpers import same_log, small_stream
from streamgauge.audit import audit
from streamgauge.errors import StreamgaugeError
from streamgauge.record import Run
from streamgauge.running import runner
from streamgauge.running.execution import Execution
from streamgauge.running.executors.cluster import (
    Cluster,
    Shared,
    Store,
    device_of,
    gpus_for,
    has_no_room,
    spreading,
)
from streamgauge.running.executors.on_ray import RemoteJob, Workspace
from streamgauge.running.plan import Experiment, plan
from streamgauge.suites import load
from streamgauge.suites.comparing import table
from streamgauge.suites.measured import from_runs
from streamgauge.suites.running import gather
from streamgauge.suites.running import run as run_suite


def quiet(_: str) -> None:
    """Says nothing."""


# A store of run folders.


def contents(folder: Path) -> dict[str, bytes]:
    files = [f for f in folder.rglob("*") if f.is_file() and f.name != "lock"]
    return {str(f.relative_to(folder)): f.read_bytes() for f in files}


@pytest.mark.parametrize("url", ["memory://shelf/runs", "file://{}"])
def test_a_run_folder_travels_through_a_store(url: str, tmp_path: Path) -> None:
    store = Store(url.format(tmp_path / "store"), tmp_path / "scratch")
    made = sg.run(small_stream(), "er", out=tmp_path / "here", log=quiet)
    store.put(made.path)
    there = tmp_path / "there" / made.path.name
    store.get(there)
    assert contents(there) == contents(made.path)
    assert same_log(Run(there), made)
    # What is gone here goes there; what came anew, too.
    (made.path / "log" / "extra.txt").write_text("new")
    (made.path / "run.json").write_text((made.path / "run.json").read_text() + "\n")
    store.put(made.path)
    (made.path / "log" / "extra.txt").unlink()
    store.put(made.path)
    Store(url.format(tmp_path / "store")).get(there)
    assert contents(there) == contents(made.path)


def test_what_was_not_committed_is_not_taken_from_a_store(tmp_path: Path) -> None:
    store = Store(f"file://{tmp_path / 'store'}", tmp_path / "scratch")
    begun = tmp_path / "a-run"
    begun.mkdir()
    (begun / "run.json").write_text("{}")
    store.put(begun)
    there = tmp_path / "there" / "a-run"
    store.get(there)
    assert not there.exists()
    with pytest.raises(StreamgaugeError, match=r"--store nothing://x cannot be used"):
        Store("nothing://x").get(there)


def test_a_folder_that_came_half_way_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a complete run would seem to be here, with a part of its log."""
    import fsspec.implementations.local as files

    store = Store(f"file://{tmp_path / 'store'}", tmp_path / "scratch")
    made = sg.run(small_stream(), "er", out=tmp_path / "here", log=quiet)
    store.put(made.path)
    count = len(contents(made.path))
    fetch, there = files.LocalFileSystem.get_file, tmp_path / "there" / made.path.name
    for fetched in range(count):
        left = fetched

        def some(self: Any, *given: Any, **how: Any) -> None:
            nonlocal left
            if not left:
                raise Stopped
            left -= 1
            fetch(self, *given, **how)

        monkeypatch.setattr(files.LocalFileSystem, "get_file", some)
        with pytest.raises(Stopped):
            store.get(there)
        assert not (there / "progress.json").exists()
    monkeypatch.setattr(files.LocalFileSystem, "get_file", fetch)
    store.get(there)
    assert contents(there) == contents(made.path)


class Stopped(BaseException):
    """A worker that is lost, as far as the store can tell."""


def remote_job(workspace: Workspace, steps: int = 400) -> RemoteJob:
    """As another process gets it."""
    settings = {"stream.length": steps * 10, "er.model": "mlp"}
    planned = plan(Experiment("albums", ("er",), settings=settings))
    execution = Execution(checkpoint=0.0, engine="eager", precision="fp32")
    job: RemoteJob = pickle.loads(pickle.dumps(RemoteJob(planned, execution, workspace)))
    return job


def test_a_lost_run_goes_on_from_what_was_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without Ray: the first attempt is cut off after a checkpoint was stored, its scratch folder
    is lost, and a second attempt ends with the log of a run that nothing happened to."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch-1"))
    workspace = Workspace("cpu", Shared(tmp_path), f"file://{tmp_path / 'store'}")
    put, count = Store.put, 0

    def put_and_stop(self: Store, path: Path) -> None:
        nonlocal count
        put(self, path)
        count += 1
        if count == 7:
            raise Stopped

    monkeypatch.setattr(Store, "put", put_and_stop)
    with pytest.raises(Stopped):
        remote_job(workspace, 60).execute()
    monkeypatch.setattr(Store, "put", put)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch-2"))
    names, said = remote_job(workspace, 60).execute()
    assert any("goes on from step 7" in sentence for sentence in said)
    assert not (Store(workspace.store).scratch / names[0]).exists()
    Store(workspace.store).get(tmp_path / "back" / names[0])
    with Shared(tmp_path / "plain") as shared:
        remote_job(Workspace("cpu", shared), 60).execute()
    assert same_log(Run(tmp_path / "back" / names[0]), Run(tmp_path / "plain" / names[0]))
    assert remote_job(workspace, 60).execute()[0] == names  # and nothing to do


def test_a_folder_that_is_not_shared_is_noticed(tmp_path: Path) -> None:
    with Shared(tmp_path) as shared:
        shared.check()
        (tmp_path / shared.mark).unlink()  # as another machine sees its own folder of that name
        with pytest.raises(StreamgaugeError, match="is not the same folder on every machine"):
            remote_job(Workspace("cpu", shared)).execute()


class Resources:
    def __init__(self, **found: float) -> None:
        self.found = found

    def cluster_resources(self) -> dict[str, float]:
        return self.found

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": self.found}, {"Alive": False, "Resources": {"GPU": 9}}]


def test_what_a_task_takes_of_a_gpu() -> None:
    without, with_gpus = Resources(CPU=2), Resources(CPU=2, GPU=8)
    assert gpus_for("auto", Cluster(), without) == 0
    assert gpus_for("auto", Cluster(), with_gpus) == 1
    assert gpus_for("cpu", Cluster(), with_gpus) == 0
    assert gpus_for("cuda", Cluster(gpus=0.25), with_gpus) == 0.25
    assert (device_of(0), device_of(0.25)) == ("cpu", "cuda")
    with pytest.raises(StreamgaugeError, match="Ray chooses the GPU"):
        gpus_for("cuda:1", Cluster(), with_gpus)
    with pytest.raises(StreamgaugeError, match="leave out --gpus"):
        gpus_for("cpu", Cluster(gpus=0.5), with_gpus)
    with pytest.raises(StreamgaugeError, match="more than 0"):
        gpus_for("cuda", Cluster(gpus=0), with_gpus)
    with pytest.raises(StreamgaugeError, match="torchrun"):
        Cluster(gpus=2)


def test_tasks_that_no_machine_can_take_are_said_to_wait() -> None:
    with_gpus = Resources(CPU=2, GPU=1)
    assert has_no_room(Cluster(), with_gpus, 1.0) == []
    assert has_no_room(Cluster(cpus=0), with_gpus, 0.25) == []
    for cluster, gpus, found in (
        (Cluster(), 1.0, Resources(CPU=2)),
        (Cluster(cpus=3), 0.0, with_gpus),
        (Cluster(), 0.5, Resources(GPU=1)),
    ):
        (sentence,) = has_no_room(cluster, found, gpus)
        assert f"has {cluster.cpus:g} CPU and {gpus:g} GPU" in sentence


def test_options_of_a_cluster_need_a_cluster() -> None:
    from streamgauge.cli.options import cluster_of

    assert cluster_of("local", None, None, None) is None
    assert cluster_of("ray", "a:1", 0.5, 2) == Cluster("a:1", 0.5, 2)
    with pytest.raises(StreamgaugeError, match="--gpus has a meaning with --on ray only"):
        cluster_of("local", None, 0.5, None)
    with pytest.raises(StreamgaugeError, match="no executor 'rays'; did you mean 'ray'"):
        cluster_of("rays", None, None, None)


# With Ray.


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """Two workers on this machine, for all tests of this file."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray = pytest.importorskip("ray")
    ray.init(
        address="local", num_cpus=2, include_dashboard=False, object_store_memory=80 << 20,
        log_to_driver=False,
    )  # fmt: skip
    yield ray
    ray.shutdown()


def holder(lock: Path) -> int | None:
    """The process that has a file open."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(link.readlink() == lock for link in (process / "fd").iterdir()):
                return int(process.name)
        except OSError:
            continue
    return None


@pytest.mark.ray
def test_a_killed_worker_costs_no_run(ray: Any, tmp_path: Path) -> None:
    """One of two workers is killed in the middle of a run. The table is complete, and the run that
    was taken up elsewhere has the log of a run that nothing happened to."""
    suite = load("demo", generated=True)
    out, only, killed = tmp_path / "ray", ["newest", "ER", "NCM"], []

    def kill() -> None:
        """The writer of the first run of a network that has a checkpoint and is not complete."""
        until = time.monotonic() + 300
        while time.monotonic() < until and not killed:
            for path in out.glob("*-er-*/progress.json"):
                one = Run(path.parent)
                if one.step > 0 and not one.done:
                    worker = holder(path.parent / "lock")
                    if worker is not None and worker != os.getpid():
                        os.kill(worker, signal.SIGKILL)
                        killed.append((path.parent, one.step))
                        return
            time.sleep(0.01)

    killer = threading.Thread(target=kill)
    killer.start()
    said: list[str] = []
    how: dict[str, Any] = {"only": only, "seeds": [0, 1], "device": "cpu", "checkpoint": 0.05}
    runs = list(run_suite(suite, out=out, on="ray", log=said.append, **how))
    killer.join()
    ((path, step),) = killed
    assert len(runs) == 6
    assert all(one.done for one in runs)
    assert any(f"{path.name} goes on from step" in sentence for sentence in said), (step, said)
    plain = list(run_suite(suite, out=tmp_path / "plain", log=quiet, **how))
    by_name = {one.path.name: one for one in runs}
    assert all(same_log(by_name[one.path.name], one) for one in plain)
    tables = [table(suite, from_runs(suite, gather([tmp_path / one]))) for one in ("ray", "plain")]
    values = [{(c.title, c.column): c.ours.mean for c in t if c.ours} for t in tables]
    assert values[0] == values[1]
    assert len(values[0]) == 9
    assert not list(out.glob(".cluster-*"))


@pytest.mark.ray
def test_seeds_of_an_experiment_and_a_store(ray: Any, tmp_path: Path) -> None:
    """Run folders travel through a store and come back; a second time nothing is run."""
    settings = {"stream.length": 400, "er.model": "mlp"}
    experiment = Experiment("albums", ("er", "blind"), 2, settings)
    cluster = Cluster(store=f"file://{tmp_path / 'store'}")
    said: list[str] = []
    out = tmp_path / "runs"
    made = list(runner.run_all(experiment, cluster=cluster, out=out, log=said.append))
    assert len({one.path for one in made}) == 4
    plain = {one.path.name: one for one in runner.run_all(experiment, out=tmp_path, log=quiet)}
    assert all(same_log(one, plain[one.path.name]) for one in made)
    again = list(
        runner.run_all(experiment, cluster=Cluster(), out=out, log=said.append, checkpoint=1)
    )
    assert {one.path for one in again} == {one.path for one in made}
    assert sum("is complete already" in sentence for sentence in said) == 4


@pytest.mark.ray
def test_an_error_on_another_machine_is_a_sentence_here(ray: Any, tmp_path: Path) -> None:
    experiment = Experiment("albums", ("er",), settings={"stream.length": 400, "er.passes": 0})
    with pytest.raises(StreamgaugeError, match="passes must be at least 1"):
        list(runner.run_all(experiment, cluster=Cluster(), out=tmp_path, log=quiet))


@pytest.mark.ray
def test_an_audit_on_ray_is_the_audit_here(ray: Any) -> None:
    rng = np.random.default_rng(0)
    label = rng.integers(0, 12, 30_000)
    guess = rng.integers(0, 12, len(label))
    log = {
        "label": label,
        "prediction": np.where(rng.random(len(label)) < 0.6, label, guess),
        "age": rng.integers(0, 300, len(label)),
        "step": np.cumsum(rng.random(len(label)) < 0.2),
        "time": np.arange(len(label)) * 60,
    }
    with spreading(Cluster()) as spread:
        many = audit(log, hold=1_000, spread=spread, rows=9_000)
    assert many.to_dict() == audit(log, hold=1_000).to_dict()
