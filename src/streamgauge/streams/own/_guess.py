"""Which column is which: guessed from its name, shown, and never guessed where two would do."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache

from streamgauge.errors import StreamgaugeError, nearest

# Role -> names that are taken for it, without case and punctuation. The role's own name goes
# before the others; among the others two candidates are an error.
NAMES: dict[str, tuple[str, ...]] = {
    "path": (
        "file", "filename", "filepath", "image", "imagepath", "imagefile", "imagefilename",
        "imagename", "img", "imgpath", "photo", "photopath",
    ),
    "bytes": ("image", "img", "photo", "jpg", "jpeg", "png", "webp", "data", "content"),
    "label": (
        "labels", "labelname", "labelid", "class", "classid", "classname", "classlabel", "category",
        "categoryid", "categoryname", "target", "y", "cls", "species", "taxon", "taxonid",
        "scientificname", "landmark", "landmarkid", "finelabel", "coarselabel",
    ),
    "time": (
        "timestamp", "datetime", "date", "taken", "takenat", "timetaken", "datetaken", "observedon",
        "observedat", "createdat", "created", "capturedat", "captured", "eventdate", "datecaptured",
        "datetimeoriginal",
    ),
    "user": (
        "userid", "username", "owner", "ownerid", "ownernsid", "photographer", "author", "authorid",
        "observer", "observerid", "account", "accountid", "uid",
    ),
    "latitude": ("lat", "decimallatitude"),
    "longitude": ("lon", "lng", "long", "decimallongitude"),
    "domain": (),
    "split": ("subset", "partition", "splitbyfolder", "splitbyshard"),
    "id": ("imageid", "photoid", "sampleid", "uuid"),
    "x": (
        "data", "images", "image", "input", "inputs", "features", "feature", "embedding",
        "embeddings",
    ),
}  # fmt: skip


def guess(
    columns: Sequence[str], roles: Sequence[str], given: Mapping[str, str], where: str
) -> dict[str, str]:
    """Role -> column. `given` says a column for a role, "none" to leave it out, "" to guess.

    >>> guess(["File name", "species", "lat"], ["path", "label", "latitude", "time"], {}, "a.csv")
    {'path': 'File name', 'label': 'species', 'latitude': 'lat'}
    >>> guess(["class", "category"], ["label"], {}, "a.csv")
    Traceback (most recent call last):
    streamgauge.errors.StreamgaugeError: Which column of a.csv is the label? It may be 'class' or
    'category': set --stream.label to one of them, or to none.
    """
    found = {}
    for role in roles:
        choice = given.get(role, "")
        if choice == "none":
            continue
        if choice:
            if choice not in columns:
                raise StreamgaugeError(
                    f"There is no column '{choice}' in {where} for the {role};"
                    f" {nearest(choice, columns)}"
                )
            found[role] = choice
            continue
        plain = {name: re.sub(r"[^a-z0-9]", "", name.lower()) for name in columns}
        fits = [n for n in columns if plain[n] == role]
        fits = fits or [n for n in columns if plain[n] in NAMES[role]]
        if len(fits) > 1:
            listed = ", ".join(f"'{name}'" for name in fits[:-1]) + f" or '{fits[-1]}'"
            raise StreamgaugeError(
                f"Which column of {where} is the {role}? It may be {listed}: set --stream.{role}"
                " to one of them, or to none."
            )
        if fits:
            found[role] = fits[0]
    return found


def shown(chosen: Mapping[str, str], given: Mapping[str, str], left: Sequence[str]) -> str:
    """One line that says which column is what, and how to say otherwise.

    >>> shown({"label": "species", "time": "date"}, {"label": "species"}, ["colour"])
    "label = 'species' (as set), time = 'date'; not used: colour; say --stream.time
    COLUMN, and so on, to change it."
    """
    set_ = {role for role in chosen if given.get(role)}
    parts = [f"{role} = '{name}'" + " (as set)" * (role in set_) for role, name in chosen.items()]
    line = ", ".join(parts)
    if left:
        more = f" and {len(left) - 6} more" if len(left) > 6 else ""
        line += f"; not used: {', '.join(left[:6])}{more}"
    guessed = [role for role in chosen if role not in set_]
    return line + (
        f"; say --stream.{guessed[0]} COLUMN, and so on, to change it." if guessed else "."
    )


@cache
def say(line: str) -> None:
    """Tell whoever opens the data, beside the program's output, and once a process."""
    print(line, file=sys.stderr)
