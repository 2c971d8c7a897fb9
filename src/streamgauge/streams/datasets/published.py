"""Published data sets in idx or CIFAR files; `published.toml` lists them.

Every table there becomes a module-like object here with the data set `DATA`.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from streamgauge.streams.datasets import cifar_files, idx_files
from streamgauge.streams.datasets.data_set import DataSet, Remote


@cache
def published() -> dict[str, dict[str, Any]]:
    """The facts of every data set by name, with those of its family."""
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
    return {
        name: tables["families"][table["family"]] | table
        for name, table in tables["datasets"].items()
    }


@cache
def published_module(name: str) -> ModuleType:
    """A data set in the form of a data set's file: `DATA`."""
    facts = published()[name]
    module = ModuleType(f"{__name__}.{name}", facts["title"])
    read, files, remotes = (_idx if facts["family"] == "idx" else _cifar)(facts)
    texts = {key: facts[key] for key in DataSet.TEXTS if key in facts}
    checksums = dict(zip(files, facts["md5"], strict=True))
    data = DataSet(name=name, read=read, remotes=remotes, checksums=checksums, **texts)
    vars(module).update(DATA=data)
    return module


def _idx(facts: dict[str, Any]) -> tuple[Any, tuple[str, ...], tuple[Remote, ...]]:
    parts = idx_files.PARTS
    remotes = tuple(
        Remote(f"{part}.gz", tuple(f"{site}{part}.gz" for site in facts["sites"]), md5, megabytes)
        for part, (md5, megabytes) in zip(parts, facts["downloads"], strict=True)
    )
    return idx_files.reader(facts["class_names"]), parts, remotes


def _cifar(facts: dict[str, Any]) -> tuple[Any, tuple[str, ...], tuple[Remote, ...]]:
    *train, test = files = tuple(facts["files"])
    archive, md5, megabytes = facts["download"]
    urls = (  # the authors' old address and the one it leads to now
        f"https://www.cs.toronto.edu/~kriz/{archive}",
        f"https://cave.cs.toronto.edu/kriz/{archive}",
    )
    reader = cifar_files.reader(train, test, facts["labels"], facts["class_names"])
    return reader, files, (Remote(archive, urls, md5, megabytes),)


def __getattr__(name: str) -> ModuleType:
    if name not in published():
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return published_module(name)
