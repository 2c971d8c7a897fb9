"""What a study gave: its summary as text, its choice as settings of runs, and a note about the
search in their header."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from streamgauge import catalogue
from streamgauge.errors import StreamgaugeError
from streamgauge.files import read_sealed
from streamgauge.pages.units import flop
from streamgauge.tuning.space import short

# Fields of a study that a run with its choice keeps in its configuration.
NOTED = (
    "study", "stream", "like", "prefix", "steps", "samples", "objective", "sampler", "prune",
    "seed", "search", "choice", "value", "error", "trials", "pruned", "failed", "flops", "seconds",
    "data", "order",
)  # fmt: skip
# Entries of `study.json` that are read.
STUDY = {"stream": str, "learner": str, "name": str, "given": dict, "choice": (None, dict)}


def load(folder: str | Path) -> dict[str, Any]:
    """The content of a folder's `study.json`."""
    file = Path(folder) / "study.json"
    try:
        study = read_sealed(file, STUDY, "the command that made the study writes it again")
    except FileNotFoundError:
        raise StreamgaugeError(
            f"{folder} is no study: it has no study.json. Make one with `streamgauge tune`."
        ) from None
    study.pop("format", None)
    if not study["choice"]:
        raise StreamgaugeError(f"No trial of the study in {folder} has given a value yet.")
    return study


def into(
    given: Mapping[str, Any],
    folders: Sequence[str | Path],
    trust: bool | Sequence[str] = False,
) -> dict[str, Any]:
    """Add the choices of studies to an experiment: stream, learners, settings and notes.
    Settings of the experiment override those of the studies. Seeds and protocol are not taken from
    a study. Code that a study names is refused, unless the experiment or `trust` names it."""
    result = {**given, "notes": {}}
    settings: dict[str, Any] = {}
    set_here = given.get("settings", {})
    learners = list(given.get("learners", ()))
    for folder in folders:
        study = load(folder)
        _refuse_foreign_code(study, folder, given, trust)
        stream = result.setdefault("stream", study["stream"])
        if given.get("stream") is None and stream != study["stream"]:
            raise StreamgaugeError(
                f"The studies were made on different streams, {stream} and"
                f" {study['stream']}: name the one to run on with --stream."
            )
        of_stream = {
            name: value
            for name, value in study["given"].items()
            if name.startswith(("stream.", "features.")) and not name.endswith(".seed")
        }
        if given.get("stream") is None and result.setdefault("_like", of_stream) != of_stream:
            differ = sorted({*of_stream, *result["_like"]} - set(set_here))
            if differ:
                raise StreamgaugeError(
                    f"The studies are of streams with other settings ({', '.join(differ)}): tune"
                    " both on the same, or name the stream and its settings here."
                )
        if study["learner"] not in learners:
            learners.append(study["learner"])
        for name, value in study["given"].items():
            owner, _, setting = name.partition(".")
            other = owner in ("stream", "features") and result["stream"] != study["stream"]
            if setting == "seed" or owner == "protocol" or other:
                continue
            own = f"{study['name']}.{setting}" if owner == "learner" else name
            if settings.setdefault(own, value) != value and own not in set_here:
                raise StreamgaugeError(f"The studies have different {own}: say which, as --{own}.")
        for name, value in study["choice"].items():
            for owner in (study["name"], "learner"):
                if f"{owner}.{name}" in set_here:
                    raise StreamgaugeError(
                        f"{owner}.{name} is set here and chosen by the study in {folder}: leave one"
                        " of them out."
                    )
            settings[f"{study['name']}.{name}"] = value
        result["notes"][study["name"]] = {
            "tuned": {**{name: study.get(name) for name in NOTED}, "folder": str(folder)}
        }
    result.pop("_like", None)
    result["learners"] = learners
    result["settings"] = {**settings, **set_here}
    return result


def _refuse_foreign_code(
    study: Mapping[str, Any],
    folder: str | Path,
    given: Mapping[str, Any],
    trust: bool | Sequence[str],
) -> None:
    own = [catalogue.code_of_learner(str(text)) for text in given.get("learners", ())]
    own.append(catalogue.code_of_stream(str(given.get("stream"))))
    codes = [catalogue.code_of_learner(str(study["learner"]))]
    codes.append(catalogue.code_of_stream(str(study["stream"])))
    allowed = trust if isinstance(trust, bool) else [*trust]
    named = True if allowed is True else [*filter(None, own), *(allowed or [])]
    if foreign := catalogue.untrusted(codes, named):
        raise StreamgaugeError(
            f"The study in {folder} names code, {foreign[0]}, which would be executed: if you trust"
            f" it, give --code {foreign[0]}, or --trust for all that the study names."
        )


def summary_text(summary: Mapping[str, Any]) -> str:
    """The choice, its standard error, the compute of the search, and the next command."""
    took = [f"{summary['seconds']:.3g} s"] if summary["seconds"] is not None else []
    if summary["flops"] is not None:
        took.insert(0, f"{flop(summary['flops'])} of training")
    counts = [f"{summary['trials']} trials"]
    if summary["trials"] < summary["asked"]:
        counts[0] = f"{summary['trials']} of {summary['asked']} trials"
    if summary["pruned"]:
        counts.append(f"{summary['pruned']} of them given up early")
    if summary["failed"]:
        counts.append(f"{summary['failed']} without a value")
    seen = f"{summary['samples']} samples, {summary['prefix']} of {summary['stream']}"
    if summary["prefix"] == "preparation":
        seen = f"the {summary['samples']} samples that prepare {summary['stream']}"
    lines = [
        f"{', '.join(counts)}; each saw {seen}.",
        f"They took {' and '.join(took)}." if took else "",
    ]
    if summary["choice"] is None:
        why = f" The first problem: {summary['why']}" if summary["why"] else ""
        return "\n".join([*filter(None, lines), f"None gave a value.{why}"])
    choice = ", ".join(f"{name} = {short(value)}" for name, value in summary["choice"].items())
    lines.append(
        f"Best is trial {summary['trial']}: {choice}, with {summary['objective']} accuracy"
        f" {100 * summary['value']:.2f} %."
    )
    if summary["error"] is not None:
        others = {0: "No other trial lies", 1: "One other trial lies"}.get(
            summary["within"], f"{summary['within']} other trials lie"
        )
        lines.append(
            f"Its standard error is at least {100 * summary['error']:.2f} points"
            f" ({summary['count']:.0f} answers). {others} within it"
            + (": which of them is best is chance." if summary["within"] else ".")
        )
        if summary["trials"] > 1:
            lines.append(
                "The best of many is flattered by chance: report what the run gives, not this."
            )
    lines += summary["ends"]
    lines.append(f"\nTo run the whole stream with it: streamgauge run --tuned {summary['folder']}")
    return "\n".join(filter(None, lines))
