"""Which column is the label, the time, the user and so on: guessed from its name, or as set."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from streamgauge.errors import StreamgaugeError, for_caller, nearest

_SHOWN = 20  # columns that a sentence lists
# Names that columns are known by, without case and punctuation: the role's own, then these, the
# likeliest first. Between columns with names of one line nothing is guessed.
NAMES: dict[str, tuple[str, ...]] = {
    "label": (
        "labels", "y", "ytrue", "target", "targets", "truth", "groundtruth", "truelabel", "actual",
        "labelname labelid classlabel finelabel",
        "class classid classname cls category categoryid categoryname species taxon taxonid"
        " scientificname landmark landmarkid",
        "coarselabel cell cellid",
    ),
    "prediction": (
        "predictions", "pred", "preds", "predicted", "ypred", "yhat", "predictedlabel", "predlabel",
        "guess", "output",
    ),
    "time": (
        "timestamp", "ts", "datetime",
        "taken takenat timetaken datetaken observedon observedat capturedat captured eventdate"
        " datecaptured datetimeoriginal",
        "date", "unixtime", "createdat created", "uploaddate",
    ),
    "user": (
        "userid", "uid", "username", "author", "owner",
        "authorid ownerid ownernsid photographer observer observerid account accountid",
    ),
    "label_time": (
        "labeltime labeltimestamp labelledat labeledat labelat labelts labeldate labelarrival",
    ),
    "logp": ("logprob logprobability loglikelihood",),
    "confidence": ("conf", "probability prob proba", "score"),
    "album": ("albumid",),
    "step": ("batch", "stepid", "batchid"),
    "age": ("modelage", "staleness"),
    "latitude": ("lat", "decimallatitude", "gpslatitude", "poilat"),
    "longitude": ("lon", "lng", "long", "decimallongitude", "gpslongitude", "poilon"),
    "split": ("subset partition", "splitbyfolder splitbyshard"),
    "id": ("imageid photoid sampleid uuid",),
    "path": (
        "file filename filepath image imagepath imagefile imagefilename imagename img imgpath photo"
        " photopath storeloc",
    ),
    "bytes": ("image img photo jpg jpeg png webp data content",),
    "x": ("data images image input inputs features feature embedding embeddings",),
}  # fmt: skip


def choose(
    columns: Sequence[str],
    roles: Sequence[str],
    given: Mapping[str, str | None],
    table: str,
    option: str = "--stream.",
    needed: Sequence[str] = (),
    usual_label: str = "",
    suggest: Callable[[], str] = str,
) -> dict[str, str]:
    """Role -> column. `given` names a column for a role, "none" to leave it out, "" to guess.
    `usual_label` is the label where no name tells (see `TableReader`).

    `option` begins the options by which users name a column; "" where there are none. A role in
    `needed` without a column is an error; `suggest` is called for a sentence that ends it.

    >>> choose(["File name", "species", "lat"], ["path", "label", "latitude", "time"], {}, "a.csv")
    {'path': 'File name', 'label': 'species', 'latitude': 'lat'}
    >>> choose(["class", "category"], ["label"], {}, "a.csv")
    Traceback (most recent call last):
    streamgauge.errors.StreamgaugeError: Which column of a.csv is the label? It may be 'class' or
    'category': set --stream.label to one of them, or to none.
    """

    def remedy(role: str, before: str, after: str = "") -> str:
        option_name = option + role.replace("_", "-")
        return f"{before} {option_name}{after}" if option else f"rename the right one to '{role}'"

    chosen = {}
    for role in roles:
        name = given.get(role)
        if name and (name.lower() != "none" or name in columns):
            chosen[role] = require(columns, name, role, table)
    for role in roles:
        if given.get(role):
            continue
        free = [column for column in columns if column not in chosen.values()]
        fits = likeliest(free, role)
        if len(fits) > 1:
            listed = ", ".join(f"'{name}'" for name in fits[:-1]) + f" or '{fits[-1]}'"
            raise StreamgaugeError(
                f"Which column of {table} is the {role}? It may be {listed}: "
                f"{remedy(role, 'set', ' to one of them, or to none')}."
            )
        if fits:
            chosen[role] = fits[0]
    free = [column for column in columns if column not in chosen.values()]
    if "label" in roles and not chosen.get("label") and not given.get("label"):
        chosen |= {"label": usual_label} if usual_label in free else {}
    more = f" and {len(columns) - _SHOWN} more" if len(columns) > _SHOWN else ""
    for role in needed:
        if role not in chosen:
            taken = [(r, name) for r, name in chosen.items() if name in likeliest(columns, role)]
            but = "".join(
                f" but '{name}', which {option}{r.replace('_', '-')} takes" for r, name in taken[:1]
            )
            raise StreamgaugeError(
                f"No column of {table} looks like the {role}{but}: "
                f"{remedy(role, 'name it with')}; the columns are "
                f"{', '.join(columns[:_SHOWN]) or 'none'}{more}. {suggest()}".rstrip()
            )
    return {role: chosen[role] for role in roles if role in chosen}


def plain_name(name: str) -> str:
    """A name without case and punctuation."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def columns_named(columns: Sequence[str], role: str) -> list[str]:
    """All columns with a name of a role, however likely.

    >>> columns_named(["x", "y", "Class"], "label")
    ['y', 'Class']
    """
    words = " ".join((role, *NAMES.get(role, ()))).split()
    names = [name for name in columns if plain_name(name) in words]
    return _without_coordinates(names, columns) if role == "label" else names


def _without_coordinates(names: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Without `y`, where there are columns x and z, too: the axes of a sensor."""
    axes = {plain_name(name) for name in columns}
    return [name for name in names if plain_name(name) != "y" or not {"x", "z"} <= axes]


def likeliest(columns: Sequence[str], role: str) -> list[str]:
    """The columns with the likeliest name of a role that any column has."""
    plain = {name: plain_name(name) for name in columns}
    for line in (role, *NAMES.get(role, ())):
        fits = [name for name in columns if plain[name] in line.split()]
        if role == "label":
            fits = _without_coordinates(fits, columns)
        if fits:
            return fits
    return []


def require(columns: Sequence[str], name: str, role: str, table: str) -> str:
    """The name of a column, or a sentence with the nearest one."""
    if name not in columns:
        hint = nearest(name, columns)
        hint = "the" if hint.startswith("there is") else f"{hint} The"
        raise StreamgaugeError(
            f"{table} has no column '{name}' for the {role}: {hint} columns are"
            f" {', '.join(columns) or 'none'}."
        )
    return name


def describe(
    chosen: Mapping[str, str],
    given: Mapping[str, str | None],
    rest: Sequence[str],
    what: str = "not used",
    option: str = "--stream.",
) -> str:
    """One line that says which column is what, and how to say otherwise.

    >>> describe({"label": "species", "time": "date"}, {"label": "species"}, ["colour"])
    "label = 'species' (as set), time = 'date'; not used: colour; say --stream.time
    COLUMN, and so on, to change it."
    """
    as_set = {role for role in chosen if given.get(role)}
    parts = [f"{role} = '{name}'" + " (as set)" * (role in as_set) for role, name in chosen.items()]
    line = ", ".join(parts)
    if rest:
        more = f" and {len(rest) - 6} more" if len(rest) > 6 else ""
        line += f"; {what}: {', '.join(rest[:6])}{more}"
    guessed = [role for role in chosen if role not in as_set]
    return line + (
        f"; say {option}{guessed[0]} COLUMN, and so on, to change it." if guessed else "."
    )


@cache
def announce(line: str) -> None:
    """Print a line to standard error, once per process; with keywords where Python called."""
    print(for_caller(line), file=sys.stderr)
