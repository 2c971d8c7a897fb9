"""The header of a run folder: what was run, on which stream, where; and the identity of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamgauge.files import json_hash
from streamgauge.learners.behaviour import current_learner
from streamgauge.record import OPTIONAL, PATH_SETTINGS, environment
from streamgauge.streams import Stream


def identity(config: Mapping[str, Any], stream: Mapping[str, Any]) -> str:
    """Hash of what determines the result: equal commands have equal identities. The name a learner
    is shown under, where files lie, and the machine do not count; the stream's data and order, the
    learner's behaviour and settings, protocol, seed and kind of device do."""
    stored = current_learner(config["learner"])
    learner = {k: stored[k] for k in ("settings", "needs", "code", "weights")}
    settings = {k: v for k, v in stream["settings"].items() if k not in PATH_SETTINGS}
    # What lies there is hashed: the data, with the features of them, and the weights.
    if "features" in settings:
        settings["features"] = _without(settings["features"], "weights")
    if learner["weights"] is not None:
        learner["settings"] = _without(learner["settings"], "weights")
    determines = {
        "stream": {
            "settings": settings,
            **{k: stream[k] for k in ("name", "data_hash", "order_hash")},
        },
        "learner": learner,
        "protocol": config["protocol"],
        "seed": config["seed"],
        "device": config["device"],
    }
    if "engine" in config:
        determines["engine"] = config["engine"]
    return json_hash(determines, sort_keys=True, default=str)


def _without(settings: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {k: v for k, v in settings.items() if k != name}


def run_config(
    stream_name: str,
    stream_settings: Mapping[str, Any],
    learner: Mapping[str, Any],
    protocol: Mapping[str, Any],
    seed: int,
    device_type: str,
    origin: str | None = None,
    notes: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The settings of a run; `learner` is from `Recipe.describe`, `origin` is for `resume`."""
    return {
        "stream": {"origin": origin, "name": stream_name, "settings": dict(stream_settings)},
        "learner": dict(learner),
        "protocol": dict(protocol),
        "seed": seed,
        "device": device_type,
        **(notes or {}),
    }


def run_header(
    run_id: str, config: Mapping[str, Any], stream: Mapping[str, Any], device: str
) -> dict[str, Any]:
    """What `run.json` holds from the start; `stream` is as `Stream.describe` gives it."""
    return {
        "id": run_id,
        "config": dict(config),
        "stream": dict(stream),
        "environment": environment(device),
    }


def absent_columns(stream: Stream) -> frozenset[str]:
    """Optional columns of the log that this stream has no values for."""
    absent = OPTIONAL - set(stream.source.columns)
    return frozenset(absent if stream.task is None else absent - {"task"})
