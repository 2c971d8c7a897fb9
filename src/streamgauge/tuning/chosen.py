"""From a study to runs: the choice as settings, and what it took as a note in their header."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from streamgauge.errors import StreamgaugeError

# What goes into the configuration of a run that a study chose the settings of.
NOTED = (
    "study",
    "stream",
    "like",
    "prefix",
    "steps",
    "samples",
    "objective",
    "sampler",
    "prune",
    "seed",
    "search",
    "choice",
    "value",
    "error",
    "trials",
    "pruned",
    "failed",
    "flops",
    "seconds",
    "data",
    "order",
)


def load(folder: str | Path) -> dict[str, Any]:
    """What the study in a folder found."""
    file = Path(folder) / "study.json"
    try:
        found: dict[str, Any] = json.loads(file.read_text())
    except FileNotFoundError:
        raise StreamgaugeError(
            f"{folder} is no study: it has no study.json. Make one with `streamgauge tune`."
        ) from None
    except (OSError, ValueError) as error:
        raise StreamgaugeError(f"{file} cannot be read ({error}).") from None
    if not found.get("choice"):
        raise StreamgaugeError(f"No trial of the study in {folder} has given a value yet.")
    return found


def into(given: Mapping[str, Any], folders: Sequence[str | Path]) -> dict[str, Any]:
    """Add the choices of studies to an experiment: stream, learners, settings and notes. What the
    experiment says itself goes before. Seeds and the protocol are the experiment's own."""
    result = {**given, "notes": {}}
    settings: dict[str, Any] = {}
    set_here = given.get("settings", {})
    learners = list(given.get("learners", ()))
    for folder in folders:
        found = load(folder)
        stream = result.setdefault("stream", found["stream"])
        if given.get("stream") is None and stream != found["stream"]:
            raise StreamgaugeError(
                f"The studies were made on different streams, {stream} and"
                f" {found['stream']}: name the one to run on with --stream."
            )
        of_stream = {
            name: value
            for name, value in found["given"].items()
            if name.startswith(("stream.", "features.")) and not name.endswith(".seed")
        }
        if given.get("stream") is None and result.setdefault("_like", of_stream) != of_stream:
            differ = sorted({*of_stream, *result["_like"]} - set(set_here))
            if differ:
                raise StreamgaugeError(
                    f"The studies are of streams with other settings ({', '.join(differ)}): tune"
                    " both on the same, or name the stream and its settings here."
                )
        if found["learner"] not in learners:
            learners.append(found["learner"])
        for name, value in found["given"].items():
            owner, _, setting = name.partition(".")
            other = owner in ("stream", "features") and result["stream"] != found["stream"]
            if setting == "seed" or owner == "protocol" or other:
                continue
            own = f"{found['name']}.{setting}" if owner == "learner" else name
            if settings.setdefault(own, value) != value and own not in set_here:
                raise StreamgaugeError(f"The studies have different {own}: say which, as --{own}.")
        for name, value in found["choice"].items():
            for owner in (found["name"], "learner"):
                if f"{owner}.{name}" in set_here:
                    raise StreamgaugeError(
                        f"{owner}.{name} is set here and chosen by the study in {folder}: leave one"
                        " of them out."
                    )
            settings[f"{found['name']}.{name}"] = value
        result["notes"][found["name"]] = {
            "tuned": {**{name: found.get(name) for name in NOTED}, "folder": str(folder)}
        }
    result.pop("_like", None)
    result["learners"] = learners
    result["settings"] = {**settings, **set_here}
    return result
