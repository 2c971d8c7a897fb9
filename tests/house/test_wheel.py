"""The wheel: it holds every data file, and it works in an empty environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _call(*command: str | Path, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


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


@pytest.mark.skipif(sys.platform == "win32", reason="the folders of an environment differ")
def test_the_wheel_works_in_an_environment_of_its_own(wheel: Path, tmp_path: Path) -> None:
    """Installed without dependencies, which are then read from where the tests run."""
    home = tmp_path / "environment"
    venv.EnvBuilder(with_pip=False).create(home)
    python = home / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet")
    _call(*pip, "--disable-pip-version-check", "--no-deps", "--no-index", wheel, cwd=tmp_path)
    (site,) = home.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    empty = tmp_path / "empty"
    empty.mkdir()
    command = home / "bin" / "streamgauge"
    where = "import streamgauge; print(streamgauge.__file__, streamgauge.__version__)"
    file, version = _call(python, "-I", "-c", where, cwd=empty).split()
    assert Path(file).is_relative_to(home)
    assert _call(command, "--version", cwd=empty).split() == ["streamgauge", version]
    assert "split_cifar100" in _call(command, "list", cwd=empty)
    words = ("run", "--stream", "blobs", "--stream.per_class", "5", "--learner", "er")
    _call(command, *words, "--er.model", "mlp", "--out", "runs", cwd=empty)
    _call(command, "report", "runs", "--out", "report.html", cwd=empty)
    assert "Plotly" in (empty / "report.html").read_text()
