"""The version, and old names: each is kept for two minor versions, with a warning that names its
successor. What is public is listed in `docs/versions.md`."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

VERSION = "0.1.0"

# Old path -> new path, both below `streamgauge`; all since 0.2, to be removed in 0.4.
MOVED = {
    "audit._kernels": "audit.kernels",
    "cli_cluster": "cli.cluster",
    "cli_data": "cli.data",
    "cli_options": "cli.options",
    "cli_streams": "cli.streams",
    "cli_suite": "cli.suite",
    "cli_tune": "cli.tune",
    "clock": "cost.clock",
    "cluster": "running.executors.cluster",
    "conformance": "running.conformance",
    "counting": "engine.counting",
    "demo": "suites.demo",
    "energy": "cost.energy",
    "evaluation": "running.evaluation",
    "features": "models.features",
    "flops": "cost.flops",
    "learners._augment": "models.augment",
    "learners._contrast": "learners.parts.contrast",
    "learners._deal": "learners.parts.replay_batch",
    "learners._gradients": "learners.parts.gradients",
    "learners._losses": "learners.parts.losses",
    "learners._neighbours": "learners.parts.neighbours",
    "learners._network": "learners.network",
    "learners._population": "learners.parts.population",
    "learners._probe": "learners.parts.probe",
    "learners._progress": "learners.parts.progress",
    "learners._rate": "learners.parts.rate",
    "learners._sgd": "learners.parts.sgd",
    "learners._small": "learners.parts.small_networks",
    "learners._views": "models.contrast_views",
    "learners._window": "learners.parts.window",
    "learners.ace": "learners.replay.ace",
    "learners.acm": "learners.gradient_free.acm",
    "learners.adrep": "learners.adaptive.adrep",
    "learners.agem": "learners.replay.agem",
    "learners.blind": "learners.gradient_free.blind",
    "learners.cosine_fc": "learners.replay.cosine_fc",
    "learners.derpp": "learners.replay.derpp",
    "learners.er": "learners.replay.er",
    "learners.er_ace": "learners.replay.er_ace",
    "learners.er_batch": "learners.adaptive.er_batch",
    "learners.er_cosine": "learners.adaptive.er_cosine",
    "learners.er_lwf": "learners.replay.er_lwf",
    "learners.er_minus": "learners.replay.er_minus",
    "learners.er_plus": "learners.replay.er_plus",
    "learners.fc_only": "learners.replay.fc_only",
    "learners.finetune": "learners.replay.finetune",
    "learners.gdumb": "learners.replay.gdumb",
    "learners.gss": "learners.replay.gss",
    "learners.lwf": "learners.replay.lwf",
    "learners.majority": "learners.gradient_free.majority",
    "learners.mir": "learners.replay.mir",
    "learners.ncm": "learners.gradient_free.ncm",
    "learners.overadapt": "learners.replay.overadapt",
    "learners.polrs": "learners.adaptive.polrs",
    "learners.polrs_adrep": "learners.adaptive.polrs_adrep",
    "learners.random": "learners.gradient_free.random",
    "learners.rar": "learners.replay.rar",
    "learners.replay_only": "learners.replay.replay_only",
    "learners.rwalk": "learners.replay.rwalk",
    "learners.scr": "learners.replay.scr",
    "learners.slda": "learners.gradient_free.slda",
    "live.bench": "live.local_trainer",
    "live.child": "live.trainer_process",
    "live.desk": "live.dispatcher",
    "live.door": "live.http_server",
    "live.outside": "live.serving",
    "live.stored": "live.stored_stream",
    "lookahead": "running.lookahead",
    "loop": "running.loop",
    "models.layout": "models.placement",
    "pretrain": "models.pretrain",
    "profile": "running.profile",
    "ranks": "running.executors.torchrun",
    "reading": "running.prefetch",
    "realtime": "suites.realtime",
    "reference": "running.reference",
    "remote": "running.executors.on_ray",
    "runner": "running.runner",
    "report.html": "report.page",
    "report.places": "report.class_map",
    "sheet": "pages.page",
    "speed": "running.costs",
    "streams._cifar": "streams.datasets.cifar_files",
    "streams._data": "streams.datasets.data_set",
    "streams._download": "streams.datasets.download",
    "streams._files": "streams.datasets.archive",
    "streams._generate": "streams.named._generate",
    "streams._guess": "streams.own._guess",
    "streams._idx": "streams.datasets.idx_files",
    "streams._own": "streams.own._common",
    "streams._photos": "streams.datasets.photos",
    "streams._pickle": "streams.datasets.safe_pickle",
    "streams._split": "streams.named._split",
    "streams._tables": "streams.own._tables",
    "streams._workers": "streams.workers",
    "streams.ahead": "streams.prefetch",
    "streams.albums": "streams.named.albums",
    "streams.arrays": "streams.own.arrays",
    "streams.blobs": "streams.named.blobs",
    "streams.blurry_cifar100": "streams.named.blurry_cifar100",
    "streams.cglm": "streams.named.cglm",
    "streams.cifar10": "streams.datasets.cifar10",
    "streams.cifar100": "streams.datasets.cifar100",
    "streams.clear": "streams.named.clear",
    "streams.cloc": "streams.named.cloc",
    "streams.elec2": "streams.named.elec2",
    "streams.fashion_mnist": "streams.named.fashion_mnist",
    "streams.folder": "streams.own.folder",
    "streams.huggingface": "streams.own.huggingface",
    "streams.items": "streams.images.items",
    "streams.kept": "streams.stored_order",
    "streams.manifest": "streams.own.manifest",
    "streams.markov": "streams.named.markov",
    "streams.mnist": "streams.named.mnist",
    "streams.packed": "streams.pack.packed",
    "streams.packing": "streams.pack.packing",
    "streams.realtime_cifar10": "streams.named.realtime_cifar10",
    "streams.realtime_cifar100": "streams.named.realtime_cifar100",
    "streams.split_cifar10": "streams.named.split_cifar10",
    "streams.split_cifar100": "streams.named.split_cifar100",
    "streams.split_tinyimagenet": "streams.named.split_tinyimagenet",
    "streams.tabular": "streams.own.tabular",
    "streams.tinyimagenet": "streams.datasets.tinyimagenet",
    "streams.webdataset": "streams.own.webdataset",
    "threads": "running.threads",
    "together": "running.executors.interleaved",
}


def renamed(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """A `__getattr__` for a module: old names give the new object, with a warning.

    The values of `names` are new names in the same module, or `package.module:name` elsewhere in
    `streamgauge`.
    """

    def __getattr__(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        path, _, successor = names[name].rpartition(":")
        target = f"streamgauge.{path}" if path else module
        warnings.warn(
            f"{module}.{name} is now {target}.{successor}; the old name is removed in version 0.4.",
            DeprecationWarning,
            stacklevel=2,
        )
        return getattr(importlib.import_module(target), successor)

    return __getattr__


P = ParamSpec("P")
R = TypeVar("R")


def renamed_parameter(old: str, new: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator: the old name of a keyword parameter is still accepted, with a warning."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **named: P.kwargs) -> R:
            if old in named:
                warnings.warn(
                    f"The parameter {old} is now {new}; the old name is removed in version 0.4.",
                    DeprecationWarning,
                    stacklevel=2,
                )
                named[new] = named.pop(old)
            return function(*args, **named)

        return call

    return decorate


class _Moved(MetaPathFinder, Loader):
    """Imports the new module and registers it under the old path as well."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] != "streamgauge" or name.partition(".")[2] not in MOVED:
            return None
        return ModuleSpec(name, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        successor = f"streamgauge.{MOVED[spec.name.partition('.')[2]]}"
        warnings.warn(
            f"{spec.name} is now {successor}; the old path is removed in version 0.4.",
            DeprecationWarning,
            stacklevel=2,
        )
        module = importlib.import_module(successor)
        self._own_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._own_spec  # the import system has replaced it


def install() -> None:
    """Let old module paths be imported; called once by `streamgauge/__init__`."""
    if not any(isinstance(finder, _Moved) for finder in sys.meta_path):
        sys.meta_path.append(_Moved())
