"""Tasks on other machines: Ray schedules, places and retries; run folders come back.

A task is a function of this package and its arguments. Ray calls it on a machine with free
resources, and calls it again on another when its worker is lost.

Machines either share the disk of the run folders, or copy them through a `Store`: any URL that
fsspec understands, such as `s3://bucket/runs`.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from streamgauge.errors import StreamgaugeError, nearest, packages_for
from streamgauge.files import LOCK, TEMPORARY

On = Literal["local", "ray"]
EXECUTORS = ("local", "ray")
COMMIT = "progress.json"  # what a run folder's other files are valid by: it travels last


class Misplaced(StreamgaugeError):
    """A fault of a machine of the cluster, not of the task that ran there."""


@dataclass(frozen=True)
class Cluster:
    """Address of Ray, and resources per task."""

    address: str | None = None  # None: RAY_ADDRESS, a Ray that runs on this machine, or a new one
    gpus: float | None = None  # per task; None: one where there are any
    cpus: float = 1  # per task
    retries: int = 3  # per task, after a lost worker; -1: without limit
    store: str = ""  # URL that run folders are copied through, where no disk is shared

    def __post_init__(self) -> None:
        if self.cpus < 0 or (self.gpus is not None and self.gpus < 0):
            raise StreamgaugeError("A task takes 0 or more CPUs and GPUs: mend --cpus or --gpus.")
        if self.gpus is not None and self.gpus > 1 and self.gpus != int(self.gpus):
            raise StreamgaugeError(f"--gpus is a part of a GPU or a whole number, not {self.gpus}.")
        if self.gpus is not None and self.gpus > 1:
            raise StreamgaugeError(
                "A task uses one GPU or a part of it; for one run over several GPUs use torchrun "
                "(docs/cluster.md)."
            )


def check_executor(on: str) -> None:
    if on not in EXECUTORS:
        raise StreamgaugeError(f"There is no executor '{on}'; {nearest(on, EXECUTORS)}")


@contextlib.contextmanager
def connected(cluster: Cluster) -> Iterator[Any]:
    """Ray, connected for as long as this lasts; a Ray that the caller connected stays so."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
    with packages_for("Every machine of a cluster"):
        import ray
    if ray.is_initialized():
        yield ray
        return
    try:
        ray.init(
            address=cluster.address,
            include_dashboard=False,
            log_to_driver=False,  # what work has to say comes back with its result
            logging_level=logging.ERROR,
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        address = cluster.address or os.environ.get("RAY_ADDRESS") or "this machine"
        raise StreamgaugeError(f"There is no Ray at {address}: {reason}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def gpus_for(device: str, cluster: Cluster, ray: Any) -> float:
    """GPUs per task, by the requested device; a task runs on `device_of(gpus)`."""
    if device.startswith("cuda:"):
        raise StreamgaugeError(f"Ray chooses the GPU: give --device cuda, not {device}.")
    if device == "cpu":
        if cluster.gpus:
            raise StreamgaugeError("--device cpu takes no GPU: leave out --gpus.")
        return 0.0
    if device == "cuda" and cluster.gpus == 0:
        raise StreamgaugeError("--device cuda needs a GPU: give --gpus more than 0, such as 0.25.")
    if cluster.gpus is not None:
        return cluster.gpus
    return 1.0 if device == "cuda" or ray.cluster_resources().get("GPU", 0) else 0.0


def device_of(gpus: float) -> str:
    return "cuda" if gpus else "cpu"


def room(cluster: Cluster, ray: Any, gpus: float = 0.0) -> int:
    """How many tasks fit into the cluster at the same time; at least one. On several machines a few
    may wait, where no single machine has enough CPUs or GPUs left."""
    resources = ray.cluster_resources()
    fits = [resources.get("CPU", 0.0) / (cluster.cpus or 1)]
    if gpus:  # parts of different GPUs are no GPU
        fits.append(int(resources.get("GPU", 0.0)) * int(1 / gpus + 1e-9))
    return max(1, int(min(fits) + 1e-9))


def has_no_room(cluster: Cluster, ray: Any, gpus: float) -> list[str]:
    """A sentence where no machine can take a task: Ray waits without a message for one to join."""
    need = {"CPU": cluster.cpus, "GPU": gpus}
    for node in ray.nodes():
        if node["Alive"] and all(node["Resources"].get(k, 0) >= n for k, n in need.items()):
            return []
    return [
        f"No machine of this Ray has {cluster.cpus:g} CPU and {gpus:g} GPU for a task: they wait "
        f"until one comes that does (or stop this, and mend --cpus or --gpus)."
    ]


class Calls:
    """Calls of one function on the cluster, each under a key; unfinished ones are cancelled."""

    def __init__(
        self, work: Callable[..., Any], cluster: Cluster, ray: Any, gpus: float = 0.0
    ) -> None:
        made = ray.remote(num_cpus=cluster.cpus, num_gpus=gpus, max_retries=cluster.retries)
        self._remote, self._ray, self._retries = made(work), ray, cluster.retries
        self._waiting: dict[Any, Any] = {}

    def __enter__(self) -> Calls:
        return self

    def __exit__(self, *_: object) -> None:
        for left in self._waiting:
            with contextlib.suppress(Exception):  # Ray may be gone itself
                self._ray.cancel(left, force=True)

    def __len__(self) -> int:
        return len(self._waiting)

    def call(self, key: Any, *arguments: Any) -> None:
        self._waiting[self._remote.remote(*arguments)] = key

    def first(self, *others: Any) -> Any:
        """The key of the call that ends first, and a function that returns its result. `others` are
        further Ray references to wait for; such a one is its own key."""
        (ended,), _ = self._ray.wait([*others, *self._waiting], num_returns=1)
        if ended not in self._waiting:
            return ended, lambda: self._ray.get(ended)
        return self._waiting.pop(ended), lambda: self._result(ended)

    def _result(self, ended: Any) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(ended)
        except errors.RayTaskError as error:
            if not isinstance(error.cause, StreamgaugeError):
                raise
            raise StreamgaugeError(str(error.cause)) from None
        except errors.RayError as error:
            reason = str(error).strip().splitlines()[0].rstrip(".")
            raise StreamgaugeError(
                f"A task lost its worker {self._retries + 1} times ({reason}); what was "
                f"checkpointed is safe: run the same command again."
            ) from error


def scatter(
    work: Callable[..., Any],
    tasks: Sequence[tuple[Any, ...]],
    cluster: Cluster,
    ray: Any,
    gpus: float = 0.0,
) -> Iterator[tuple[int, Any]]:
    """Call `work(*task)` for every task on the cluster; yields (number of the task, result) in the
    order in which they end. A task that fails does not keep the others from their end; what was
    wrong is raised then."""
    problems: list[str] = []
    with Calls(work, cluster, ray, gpus) as calls:
        for number, task in enumerate(tasks):
            calls.call(number, *task)
        while len(calls):
            number, result = calls.first()
            try:
                value = result()
            except StreamgaugeError as problem:
                problems.append(str(problem))
            else:
                yield number, value
    if problems:
        raise StreamgaugeError(" ".join(dict.fromkeys(problems)))


@contextlib.contextmanager
def spreading(cluster: Cluster) -> Iterator[Callable[..., list[Any]]]:
    """A function that calls another for every tuple of arguments, on the cluster, and gives the
    results in the order of the arguments."""
    with connected(cluster) as ray:

        def spread(work: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> list[Any]:
            results = dict(scatter(work, tasks, cluster, ray))
            return [results[number] for number in range(len(tasks))]

        yield spread


class Shared:
    """A folder that all machines must share. A marker file in it shows whether a machine does."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).resolve()
        self.mark = f".cluster-{uuid.uuid4().hex}"

    def __enter__(self) -> Shared:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / self.mark).touch()
        except OSError as error:
            raise StreamgaugeError(f"Cannot write to {self.folder}: {error.strerror}.") from None
        return self

    def __exit__(self, *_: object) -> None:
        (self.folder / self.mark).unlink(missing_ok=True)

    def check(self) -> None:
        """Called on the other machine."""
        if not (self.folder / self.mark).exists():
            raise Misplaced(
                f"{self.folder} is not the same folder on every machine of the cluster: give --out "
                f"on a disk that all share, or --store URL for run folders to travel through."
            )


class Store:
    """Run folders at an address that fsspec understands, and a local folder to work in. That folder
    has the same name on every machine, since where a file of first weights lies is part of a run's
    configuration."""

    def __init__(self, url: str, scratch: Path | None = None) -> None:
        self.url = url.rstrip("/")
        name = hashlib.blake2b(self.url.encode(), digest_size=6).hexdigest()
        self.scratch = scratch or Path(tempfile.gettempdir()) / f"streamgauge-{name}"
        self._known: dict[Path, tuple[int, int]] = {}  # files that are stored as they are here

    def _there(self) -> tuple[Any, str]:
        with packages_for("--store, on every machine,"):
            import fsspec
        try:
            files, root = fsspec.core.url_to_fs(self.url)
        except (ValueError, ImportError) as error:
            reason = str(error).strip().splitlines()[0].rstrip(".")
            raise Misplaced(f"--store {self.url} cannot be used: {reason}.") from None
        files.invalidate_cache()
        return files, root

    def _listed(self, files: Any, folder: str) -> set[str]:
        """Files of a folder by their path in it."""
        if not files.exists(folder):
            return set()
        return {name[len(folder) + 1 :] for name in files.find(folder)}

    def get(self, path: Path) -> None:
        """Make a local run folder what the stored one is; nothing if nothing is stored. The commit
        point comes last here, too: a kill in between leaves a folder that holds nothing."""
        files, root = self._there()
        folder = f"{root}/{path.name}"
        with self._saying("read from"):
            listed = self._listed(files, folder)
            if COMMIT not in listed:
                return  # nothing was committed: whatever is there is debris
            shutil.rmtree(path, ignore_errors=True)
            for name in sorted(listed, key=lambda name: (name == COMMIT, name)):
                (path / name).parent.mkdir(parents=True, exist_ok=True)
                files.get_file(f"{folder}/{name}", str(path / name))
                self._known[path / name] = _stamp(path / name)

    def put(self, path: Path) -> None:
        """Store a run folder. The commit point comes after what it names and before the removal of
        what it no longer names, so a kill in between leaves the earlier state or this one."""
        files, root = self._there()
        folder = f"{root}/{path.name}"
        with self._saying("write to"):
            there = self._listed(files, folder)
            here = {
                str(file.relative_to(path)): file
                for file in path.rglob("*")
                if file.is_file() and file.name != LOCK and file.suffix not in TEMPORARY
            }
            for name in sorted(here, key=lambda name: (name == COMMIT, name)):
                if name not in there or self._known.get(here[name]) != _stamp(here[name]):
                    files.makedirs(f"{folder}/{name}".rpartition("/")[0], exist_ok=True)
                    files.put_file(str(here[name]), f"{folder}/{name}")
                    self._known[here[name]] = _stamp(here[name])
            for name in there - here.keys():
                files.rm_file(f"{folder}/{name}")

    @contextlib.contextmanager
    def _saying(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise Misplaced(f"Cannot {what} {self.url}: {error}.") from error


def _stamp(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_size, status.st_mtime_ns
