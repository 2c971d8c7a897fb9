"""The header of a run folder: what was run, on which stream, where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamgauge.record import OPTIONAL, environment
from streamgauge.streams import Stream


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
    """The settings of a run. `learner` is as `Recipe.describe` gives it; `origin` names the stream
    for `resume`."""
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
