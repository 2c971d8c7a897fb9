"""Prints the lowest versions that pyproject.toml allows, as requirements for pip.

`make test-lowest` installs them into an environment of their own and runs the tests of the core and
of the extras named here. Raise a bound in pyproject.toml where the lowest version does not work.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

EXTRAS = ("torch", "weights", "images", "geo", "hdf5", "tune", "river", "sklearn", "tensorboard")


def lowest() -> list[str]:
    """numpy==1.26 for numpy>=1.26, of the core and the extras."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"])
    for extra in EXTRAS:
        wanted += project["optional-dependencies"][extra]
    pinned = []
    for requirement in wanted:
        if requirement.startswith("streamgauge["):
            continue
        match = re.fullmatch(r"([\w.-]+)>=([\d.]+)", requirement)
        if match is None:
            raise SystemExit(f"'{requirement}' has no lowest version.")
        pinned.append(f"{match[1]}=={match[2]}")
    return list(dict.fromkeys(pinned))


if __name__ == "__main__":
    print("\n".join(lowest()))
