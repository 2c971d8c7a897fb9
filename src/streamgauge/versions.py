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

# Prefix of old paths, prefix of new paths -> modules that kept their names; after a colon, what a
# module makes. All since 0.2, to be removed in 0.4.
_MOVED_TOGETHER = {
    ("", "checks."): "conformance",
    ("", "cost."): "clock energy flops",
    ("", "models."): "features pretrain",
    ("", "running."): "evaluation lookahead loop profile reference runner",
    ("audit.", "history."): "durations intervals periods",
    ("cli_", "cli."): "data options suite tune",
    ("learners.", "learners.adaptive."): "adrep er_batch er_cosine polrs polrs_adrep",
    ("learners.", "learners.gradient_free."): "acm blind majority ncm random slda",
    ("learners.", "learners.replay."): (
        "ace agem cosine_fc derpp er er_ace er_lwf er_minus er_plus fc_only finetune "
        "gdumb gss lwf mir overadapt rar replay_only rwalk scr"
    ),
    ("learners._", "learners.parts."): "contrast gradients losses population sgd",
    ("running.", "checks."): "conformance",
    ("streams.", "streams.datasets."): "tinyimagenet",
    ("streams.", "streams.datasets.published:"): "cifar10 cifar100",
    ("streams.", "streams.named."): "_generate albums blobs cglm clear cloc elec2 markov",
    ("streams.", "streams.named.splits:"): (
        "blurry_cifar100 fashion_mnist mnist realtime_cifar10 realtime_cifar100 split_cifar10 "
        "split_cifar100 split_tinyimagenet"
    ),
    ("streams.", "streams.own."): "arrays folder huggingface manifest tabular webdataset",
    ("streams.", "streams.pack."): "packed packing",
    ("streams._", "streams."): "workers",
}
# New path -> old paths.
_RENAMED = {
    "audit.kernels": "audit._kernels",
    "audit.parallel": "audit.spread",
    "cli.data": "cli_streams",
    "cli.options": "cli.cluster cli_cluster",
    "engine.counting": "counting",
    "learners.network": "learners._network learners._progress",
    "learners.parts.gradient_free": "learners._neighbours",
    "learners.parts.gradients": "learners._probe",
    "learners.parts.replay_batch": "learners._deal",
    "learners.parts.sgd": "learners._rate learners._small",
    "live.dispatcher": "live.desk",
    "live.http_server": "live.door",
    "live.serving": "live.outside",
    "live.stored_stream": "live.player live.stored",
    "live.trainer": "live.bench live.child",
    "memory.by_class": "memory.class_balanced memory.classes memory.ring",
    "memory.policies": "learners._window memory.everything memory.fifo memory.reservoir",
    "models.augment": "learners._augment learners._views",
    "models.base": "models.heads models.inputs",
    "models.build": "models.layout",
    "models.layouts": "models.keras_files",
    "models.small": "models.closed",
    "models.weights": "models.hub",
    "models.wide": "models.padding",
    "pages.page": "sheet",
    "report.figures": "report.places",
    "report.leaderboard": "report.ties",
    "report.page": "report.html",
    "running.costs": "speed",
    "running.determinism": "threads",
    "running.executors.cluster": "cluster",
    "running.executors.dispatch": "together",
    "running.executors.on_ray": "remote",
    "running.executors.torchrun": "ranks",
    "running.prefetch": "reading",
    "streams.datasets.archive": "streams._download streams._files",
    "streams.datasets.data_set": "streams._data",
    "streams.datasets.photos": "streams._photos",
    "streams.datasets.published": "streams._cifar streams._idx",
    "streams.datasets.safe_pickle": "streams._pickle",
    "streams.gate": "streams.resident",
    "streams.images.items": "streams.items",
    "streams.named.splits": "streams._split",
    "streams.order": "streams.kept",
    "streams.own._common": "streams._own",
    "streams.prefetch": "streams.ahead",
    "suites.demo": "demo",
    "suites.realtime": "realtime",
    "suites.running": "suites.finding",
    "suites.text": "suites.page",
    "tuning.chosen": "tuning.text",
}
# Old path -> new path, both below `streamgauge`.
MOVED = {
    old + name: new + name
    for (old, new), names in _MOVED_TOGETHER.items()
    for name in names.split()
} | {old: new for new, paths in _RENAMED.items() for old in paths.split()}


def warn_deprecated(sentence: str, stacklevel: int) -> None:
    """Warn of an old name; `stacklevel` counts from the caller."""
    sentence = f"{sentence} is removed in version 0.4."
    warnings.warn(sentence, DeprecationWarning, stacklevel=stacklevel + 1)


def renamed(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """A `__getattr__` for a module: old names give the new object, with a warning. The values of
    `names` are new names in the same module, or `package.module:name` elsewhere in
    `streamgauge`."""

    def __getattr__(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        path, _, successor = names[name].rpartition(":")
        target = f"streamgauge.{path}" if path else module
        warn_deprecated(f"{module}.{name} is now {target}.{successor}; the old name", 2)
        return getattr(importlib.import_module(target), successor)

    return __getattr__


def renamed_parameter(old: str, new: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator: the old name of a keyword parameter is still accepted, with a warning."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **named: P.kwargs) -> R:
            take_renamed(named, old, new, 3)
            return function(*args, **named)

        return call

    return decorate


def take_renamed(named: dict[str, Any], old: str, new: str, stacklevel: int) -> None:
    """Give the value of an old keyword to the new one, with a warning."""
    if old in named:
        warn_deprecated(f"The parameter {old} is now {new}; the old name", stacklevel)
        named[new] = named.pop(old)


def _successor(name: str) -> tuple[str, str]:
    """New path of an old module, and the attribute that it is there, if any; warns."""
    path, _, attribute = MOVED[name.partition(".")[2]].partition(":")
    successor = f"streamgauge.{path}.{attribute}".removesuffix(".")
    warn_deprecated(f"{name} is now {successor}; the old path", 3)
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
