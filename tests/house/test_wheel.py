"""The wheel: it holds every data file, and works in an empty environment, also without torch."""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "tests" / "corpus" / "v0.1"
CORE = ROOT / ".venv" / "core"  # made by `make test`
CORE_BYTES = 600e6  # the most that the core may take on a disk
CORE_ROOMS = {
    "audit", "bridges", "catalogue", "cli", "cost", "drift", "exchange", "history", "memory",
    "metrics", "pages", "places", "record", "report", "settings", "streams", "tables",
}  # fmt: skip
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="folders of environments differ")


def _call(*command: str | Path, cwd: Path, code: int = 0) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing is left in the source tree."""
    folder = tmp_path_factory.mktemp("wheel")
    skip = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", folder / "src", ignore=skip)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check")
    _call(*pip, "--no-deps", "--no-build-isolation", "--wheel-dir", "dist", ".", cwd=folder)
    (built,) = (folder / "dist").glob("streamgauge-*.whl")
    return built


def test_every_file_of_the_package_is_in_the_wheel(wheel: Path) -> None:
    package = ROOT / "src" / "streamgauge"
    files = {
        str(file.relative_to(ROOT / "src"))
        for file in package.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == files


def site_packages(environment: Path) -> Path:
    (site,) = environment.glob("lib/python*/site-packages")
    return site


def installed(wheel: Path, home: Path, dependencies: Path) -> Path:
    """Install a wheel in an environment of its own, whose dependencies are read from a folder."""
    venv.EnvBuilder(with_pip=False).create(home)
    python = home / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet")
    _call(*pip, "--disable-pip-version-check", "--no-deps", "--no-index", wheel, cwd=home)
    (site_packages(home) / "dependencies.pth").write_text(f"{dependencies}\n")
    return home / "bin"


def take_compiled(package: Path) -> None:
    """Copy the compiled loops of the source tree, so that an environment need not compile them.
    Numba takes them for files of the same size and time."""
    for compiled in (ROOT / "src" / "streamgauge").rglob("__pycache__/*.nb[ic]"):
        source = compiled.parents[1] / (compiled.name.partition(".")[0] + ".py")
        if not source.exists():  # compiled before a file was renamed
            continue
        target = package / source.relative_to(ROOT / "src" / "streamgauge")
        stat = source.stat()
        os.utime(target, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        (target.parent / "__pycache__").mkdir(exist_ok=True)
        shutil.copy(compiled, target.parent / "__pycache__")


def test_the_wheel_works_in_an_environment_of_its_own(wheel: Path, tmp_path: Path) -> None:
    """Installed without dependencies, which are then read from where the tests run."""
    home, empty = tmp_path / "environment", tmp_path / "empty"
    programs = installed(wheel, home, Path(sysconfig.get_path("purelib")))
    empty.mkdir()
    command = programs / "streamgauge"
    where = "import streamgauge; print(streamgauge.__file__, streamgauge.__version__)"
    file, version = _call(programs / "python", "-I", "-c", where, cwd=empty).split()
    assert Path(file).is_relative_to(home)
    assert _call(command, "--version", cwd=empty).split() == ["streamgauge", version]
    words = ("run", "--stream", "blobs", "--stream.per_class", "5", "--learner", "er")
    _call(command, *words, "--er.model", "mlp", "--out", "runs", cwd=empty)
    assert "er" in _call(command, "score", "runs", cwd=empty)


@pytest.fixture(scope="module")
def core(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what `pip install streamgauge` installs, and nothing else."""
    if not (ROOT / ".installed-core").exists():
        home = tmp_path_factory.mktemp("core")
        venv.EnvBuilder(with_pip=True).create(home)
        pip = (home / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check")
        _call(*pip, "-c", ROOT / "constraints.txt", wheel, cwd=home)
        return site_packages(home)
    return site_packages(CORE)


@pytest.fixture(scope="module")
def programs(wheel: Path, core: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel and the core's dependencies."""
    home = tmp_path_factory.mktemp("environment")
    made = installed(wheel, home, core)
    take_compiled(site_packages(home) / "streamgauge")
    return made


def test_the_core_is_small(core: Path) -> None:
    parts = [p for p in core.iterdir() if not p.name.startswith(("pip", "setuptools"))]
    files = [file for part in parts for file in (part, *part.rglob("*")) if file.is_file()]
    assert 100e6 < sum(file.stat().st_size for file in files) < CORE_BYTES


def test_the_rooms_of_the_core_lack_no_optional_package(programs: Path, tmp_path: Path) -> None:
    """Every other module lacks torch or says in one sentence what it lacks."""
    script = """
import importlib, json, pkgutil, streamgauge
from importlib.util import find_spec
from streamgauge.errors import PACKAGES
missing = {}
for module in pkgutil.walk_packages(streamgauge.__path__, "streamgauge.", onerror=lambda _: None):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            missing[module.name] = (error.name or "").split(".")[0] or str(error)
print(json.dumps([missing, [name for name in PACKAGES if find_spec(name)]]))
"""
    missing, there = json.loads(_call(programs / "python", "-c", script, cwd=tmp_path))
    assert there == []
    rooms = {name.split(".")[1] for name in missing}
    assert "learners" in rooms
    assert not rooms & CORE_ROOMS
    servers = {name for name in missing if name.startswith("streamgauge.view.server")}
    assert {missing.pop(name) for name in servers} == {"uvicorn"}
    sentence = "needs torch: pip install 'streamgauge[torch]'."
    assert all(lack == "torch" or lack.endswith(sentence) for lack in missing.values()), missing


LOOP = """
import random
import streamgauge as sg

with sg.Recorder("runs/mine", stream="clicks", learner="prod", classes=["no", "yes"]) as rec:
    draw, last, hits = random.Random(0), "no", 0
    for step in range(300):
        rec.predict(step, last, time=step)
        label = draw.choice(["no", "yes"]) if draw.random() < 0.1 else last
        hits, last = hits + (label == last), label
        rec.label(step, label, time=step + 0.5)
print(hits / 300)
"""


def test_the_core_audits_records_and_reports_without_torch(programs: Path, tmp_path: Path) -> None:
    def streamgauge(*words: str) -> str:
        return _call(programs / "streamgauge", *words, cwd=tmp_path)

    draw = random.Random(0)
    with open(tmp_path / "log.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["label", "prediction"])
        for step in range(600):
            label = step // 30 % 4
            table.writerow([label, label if draw.random() < 0.5 else draw.randrange(4)])
    values = json.loads(streamgauge("audit", "log.csv", "--json"))["values"]
    assert values["samples"] == 600
    assert values["last_label"] == pytest.approx(1 - 1 / 30, abs=0.01)

    accuracy = float(_call(programs / "python", "-c", LOOP, cwd=tmp_path))
    old = "albums-er-s0-dd0dadf2"
    shutil.copytree(CORPUS / "finished" / old, tmp_path / "runs" / old)
    scored = json.loads(streamgauge("score", "runs", "--json"))["runs"]
    found = {run["learner"]: run["scores"]["online_accuracy"] for run in scored}
    expected = json.loads((CORPUS / "expected.json").read_text())[f"finished/{old}"]["score"]
    assert found == pytest.approx({"prod": accuracy, "er": expected["online_accuracy"]})
    streamgauge("report", "runs", "--out", "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "Plotly" in page
    assert "clicks" in page
    assert "The logs are identical" in streamgauge("diff", f"runs/{old}", f"runs/{old}")
    assert "split_cifar100" in streamgauge("list")


@pytest.mark.parametrize(
    "words",
    [("run", "--stream", "blobs", "--learner", "er"), ("demo",), ("check", "er")],
    ids=lambda words: words[0],
)
def test_a_command_that_needs_torch_says_so_in_one_sentence(
    programs: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    complaint = _call(programs / "streamgauge", *words, cwd=tmp_path, code=2)
    (line,) = complaint.splitlines()
    assert line.endswith("needs torch: pip install 'streamgauge[torch]'.")


def test_a_python_name_that_needs_torch_says_so(programs: Path, tmp_path: Path) -> None:
    script = """
import streamgauge as sg
try:
    sg.run
except sg.StreamgaugeError as error:
    print(error)
"""
    said = _call(programs / "python", "-c", script, cwd=tmp_path)
    assert said == "streamgauge.run needs torch: pip install 'streamgauge[torch]'.\n"
