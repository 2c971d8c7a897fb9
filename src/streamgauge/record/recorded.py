"""The header of a recording, and what its journal adds to the committed log."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamgauge.errors import StreamgaugeError
from streamgauge.record.environment import environment
from streamgauge.record.tables import TABLES, RowBuffer
from streamgauge.tables.journal import Content, parse

FRESH: dict[str, Any] = {
    "journal": -1, "columns": None, "label_columns": None, "keep_scores": False, "width": None,
    "step": 0, "version": 0, "evaluation": -1, "task": -1, "tasks": 0, "samples": 0,
    "step_size": 0, "time": None, "order_hash": 0, "data_hash": 0,
}  # fmt: skip


def recorded_header(
    stream: str,
    learner: str,
    seed: int,
    library: str | None,
    settings: Mapping[str, Any],
    classes: Sequence[Any] | int | None,
    ids: str | None,
) -> dict[str, Any]:
    for what, name in (("stream", stream), ("learner", learner)):
        if not isinstance(name, str):
            raise StreamgaugeError(f"{what} is a name, not {name!r}.")
    try:
        seed = int(seed)
    except (TypeError, ValueError):
        raise StreamgaugeError(f"seed is a whole number, not {seed!r}.") from None
    count, names = _count_and_names(classes)
    about = {"name": learner, "where": learner, "settings": _plain(settings), "needs": [],
             "sees_input": True, "code": "", "weights": None}  # fmt: skip
    config = {
        "stream": {"origin": None, "name": stream, "settings": {}},
        "learner": about | ({"library": library} if library else {}),
        "protocol": {},
        "seed": seed,
        "device": "unknown",
    }
    described = {"name": stream, "settings": {}, "albums": False, "input_shape": None,
                 "class_names": names, "class_task": None, "held_out": {}, "preparation": 0,
                 "notes": {}}  # fmt: skip
    header = {
        "id": uuid.uuid4().hex,
        "config": config,
        "stream": described,
        "environment": environment(None),
        "recorder": {"count": count, "names": names, "ids": ids},
    }
    return folded(FRESH, header, parse(b""))[1]


def _count_and_names(classes: Any) -> tuple[int | None, list[str] | None]:
    """How many classes there are and their names, as far as they are given."""
    if classes is None:
        return None, None
    if isinstance(classes, int | np.integer) and classes > 0:
        return int(classes), None
    if isinstance(classes, str | set | frozenset) or not hasattr(classes, "__len__"):
        raise StreamgaugeError(f"classes is a list of names, or their number, not {classes!r}.")
    names = [str(name) for name in classes]
    if len(set(names)) < max(len(names), 1):
        raise StreamgaugeError("classes needs at least one name, and each name once.")
    return len(names), names


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as run.json gives them back: tuples are lists, numbers of NumPy those of Python."""
    plain: dict[str, Any] = {}
    for name, value in settings.items():
        try:
            plain[name] = json.loads(json.dumps(value, default=np.generic.item))
        except (TypeError, ValueError):
            raise StreamgaugeError(
                f"The setting {name} is a number, text, or a list or dictionary of these,"
                f" not {value!r}."
            ) from None
    return plain


def check_same_recording(path: Path, stored: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse to go on in the folder of another recording or of a run."""
    if "recorder" not in stored:
        raise StreamgaugeError(f"{path} holds a run and no recording: give another folder.")

    def facts(header: Mapping[str, Any]) -> dict[str, Any]:
        config, recorder = header["config"], header["recorder"]
        learner = config["learner"]
        return {
            "stream": config["stream"]["name"], "learner": learner["name"], "seed": config["seed"],
            "library": learner.get("library"), "settings": learner["settings"],
            "classes": recorder["names"] or recorder["count"],
        }  # fmt: skip

    before, now = facts(stored), facts(given)
    hashed, hashes = stored["recorder"]["ids"], given["recorder"]["ids"]
    if hashed != hashes:
        how = "another key=" if hashed and hashes else f"hash_ids={bool(hashed)}"
        raise StreamgaugeError(f"{path} was recorded with {how}: give the same, or another folder.")
    for name in before:
        if before[name] != now[name]:
            raise StreamgaugeError(
                f"{path} was recorded with {name}={before[name]!r}, not {now[name]!r}: give the"
                " same, or another folder."
            )


def folded(
    state: Mapping[str, Any], header: Mapping[str, Any], content: Content
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The state of a recorder and the header of its log after the calls in a journal."""
    now = {**state, **content.state}
    answers, labels = content.answers, content.labels
    online = answers[answers["shift"] == 0]
    position = now["samples"] + np.arange(len(online))
    for name, values in (
        ("order_hash", online["sample"] ^ _mixed(position).view(np.int64)),
        ("data_hash", labels["sample"] ^ _mixed(labels["label"]).view(np.int64)),
    ):
        now[name] = (now[name] + int(_mixed(values).sum())) % (1 << 64)
    now["samples"] += len(online)
    tasks = [int(row["task"]) for row in content.rows.get("evaluations", ())]
    if len(online):
        now |= {"step": int(online["step"][-1]) + 1, "task": int(online["task"][-1])}
        if "time" in now["columns"]:
            now["time"] = float(online["time"][-1])
        largest = int(np.unique(online["step"], return_counts=True)[1].max())
        now["step_size"] = max(now["step_size"], largest)
        tasks.append(int(online["task"].max()))
    now["tasks"] = max([now["tasks"], *(task + 1 for task in tasks)])
    for table, name in (("jobs", "version"), ("evaluations", "evaluation")):
        if table in content.rows:
            now[name] = content.rows[table][-1][name]
    # After a kill between the writes of run.json and progress.json, the header has them already.
    known = header["stream"]["class_names"] or []
    names = [*known, *(name for name in content.classes if name not in known)] or None
    count = header["recorder"]["count"] or now["width"] or len(names or ())
    facts = {"class_names": names, "classes": count, "steps": now["step"]}
    facts |= {name: now[name] for name in ("samples", "step_size", "tasks")}
    facts |= {name: f"{now[name]:016x}" for name in ("order_hash", "data_hash")}
    return now, {**header, "stream": {**header["stream"], **facts}}


def _mixed(values: NDArray[Any]) -> NDArray[np.uint64]:
    """Each number as 64 mixed bits; sums of them do not depend on the order."""
    x = values.astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(x ^ (x >> np.uint64(31)))


class ArrowRows:
    """A finished table, as a writer takes its rows."""

    def __init__(self, table: Any) -> None:
        self.count, self._table = len(table), table

    def take(self) -> Any:
        return self._table


def rows_of(content: Content, state: Mapping[str, Any]) -> dict[str, Any]:
    """The rows of a journal by table."""
    large = content.tables(state["columns"] or (), state["keep_scores"])
    rows: dict[str, Any] = {name: ArrowRows(table) for name, table in large.items()}
    for name, some in content.rows.items():
        rows[name] = RowBuffer(TABLES[name], len(some))
        for row in some:
            rows[name].append(1, **row)
    return rows
