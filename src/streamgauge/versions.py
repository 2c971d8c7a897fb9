"""The version, and old names: each is kept for two minor versions, with a warning that names its
successor. What is public is listed in `docs/versions.md`."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
VERSION = "0.2.0"

# Folder of old paths, folder of new paths -> modules that kept their names. All since 0.2, to be
# removed in 0.4.
_MOVED_TOGETHER = {
    ("", "cost"): "clock energy flops",
    ("", "running"): "conformance evaluation lookahead loop profile reference runner threads",
    ("learners", "learners.adaptive"): "adrep er_batch er_cosine polrs polrs_adrep",
    ("learners", "learners.gradient_free"): "acm blind majority ncm random slda",
    ("learners", "learners.replay"): (
        "ace agem cosine_fc derpp er er_ace er_lwf er_minus er_plus fc_only finetune "
        "gdumb gss lwf mir overadapt rar replay_only rwalk scr"
    ),
    ("streams", "streams.datasets"): "tinyimagenet",
    ("streams", "streams.named"): "_generate albums blobs cglm clear cloc elec2 markov",
    ("streams", "streams.own"): "arrays folder huggingface manifest tabular webdataset",
}
# Old path -> new path, both below `streamgauge`, or `module:attribute` for what a module makes.
MOVED = {
    f"{old}.{name}".lstrip("."): f"{new}.{name}"
    for (old, new), names in _MOVED_TOGETHER.items()
    for name in names.split()
} | {
    "audit._kernels": "audit.kernels",
    "audit.durations": "history.durations",
    "audit.intervals": "history.intervals",
    "audit.periods": "history.periods",
    "audit.spread": "audit.parallel",
    "cli.cluster": "cli.options",
    "cli_cluster": "cli.options",
    "cli_data": "cli.data",
    "cli_options": "cli.options",
    "cli_streams": "cli.streams",
    "cli_suite": "cli.suite",
    "cli_tune": "cli.tune",
    "cluster": "running.executors.cluster",
    "counting": "engine.counting",
    "demo": "suites.demo",
    "features": "models.features",
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
    "live.bench": "live.local_trainer",
    "live.child": "live.trainer_process",
    "live.desk": "live.dispatcher",
    "live.door": "live.http_server",
    "live.outside": "live.serving",
    "live.stored": "live.stored_stream",
    "models.layout": "models.placement",
    "pretrain": "models.pretrain",
    "ranks": "running.executors.torchrun",
    "reading": "running.prefetch",
    "realtime": "suites.realtime",
    "remote": "running.executors.on_ray",
    "report.html": "report.page",
    "report.places": "report.class_map",
    "sheet": "pages.page",
    "speed": "running.costs",
    "streams._cifar": "streams.datasets.cifar_files",
    "streams._data": "streams.datasets.data_set",
    "streams._download": "streams.datasets.download",
    "streams._files": "streams.datasets.archive",
    "streams._idx": "streams.datasets.idx_files",
    "streams._own": "streams.own._common",
    "streams._photos": "streams.datasets.photos",
    "streams._pickle": "streams.datasets.safe_pickle",
    "streams._split": "streams.named.splits",
    "streams._workers": "streams.workers",
    "streams.ahead": "streams.prefetch",
    "streams.cifar10": "streams.datasets.published:cifar10",
    "streams.cifar100": "streams.datasets.published:cifar100",
    "streams.blurry_cifar100": "streams.named.splits:blurry_cifar100",
    "streams.fashion_mnist": "streams.named.splits:fashion_mnist",
    "streams.items": "streams.images.items",
    "streams.kept": "streams.stored_order",
    "streams.mnist": "streams.named.splits:mnist",
    "streams.packed": "streams.pack.packed",
    "streams.packing": "streams.pack.packing",
    "streams.realtime_cifar10": "streams.named.splits:realtime_cifar10",
    "streams.realtime_cifar100": "streams.named.splits:realtime_cifar100",
    "streams.split_cifar10": "streams.named.splits:split_cifar10",
    "streams.split_cifar100": "streams.named.splits:split_cifar100",
    "streams.split_tinyimagenet": "streams.named.splits:split_tinyimagenet",
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


def _successor(name: str) -> tuple[str, str]:
    """New path of an old module, and the attribute that it is there, if any; warns."""
    path, _, attribute = MOVED[name.partition(".")[2]].partition(":")
    successor = f"streamgauge.{path}.{attribute}".removesuffix(".")
    warnings.warn(
        f"{name} is now {successor}; the old path is removed in version 0.4.",
        DeprecationWarning,
        stacklevel=3,
    )
    return f"streamgauge.{path}", attribute


class _Moved(MetaPathFinder, Loader):
    """Imports the new module and registers it under the old path as well."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] != "streamgauge" or name.partition(".")[2] not in MOVED:
            return None
        return ModuleSpec(name, self, origin=f"{name.rpartition('.')[2]}.py")

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        path, attribute = _successor(spec.name)
        module: ModuleType = importlib.import_module(path)
        module = getattr(module, attribute) if attribute else module
        self._own_spec = module.__spec__
        return module

    def get_code(self, name: str) -> CodeType | None:
        """For `python -m OLD_PATH`."""
        spec = importlib.util.find_spec(_successor(name)[0])
        return None if spec is None else spec.loader.get_code(spec.name)  # type: ignore[union-attr]

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._own_spec  # the import system has replaced it


def install() -> None:
    """Let old module paths be imported; called once by `streamgauge/__init__`."""
    if not any(isinstance(finder, _Moved) for finder in sys.meta_path):
        sys.meta_path.append(_Moved())
