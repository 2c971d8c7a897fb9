"""The notebooks in examples/notebooks: stored without outputs, and they run as they are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def test_there_are_five() -> None:
    assert [path.stem for path in NOTEBOOKS] == [
        "audit_your_log", "near_future", "real_time", "reproduce_a_row", "river_in_our_loop"
    ]  # fmt: skip


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs(notebook: Path) -> None:
    cells = json.loads(notebook.read_text())["cells"]
    assert cells[0]["cell_type"] == "markdown"
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) >= 2
    for cell in code:
        assert cell["outputs"] == []
        assert cell["execution_count"] is None
        compile("".join(cell["source"]), notebook.name, "exec")


@pytest.mark.long
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    pytest.importorskip("nbmake")
    pytest.importorskip("ipykernel")
    copy = tmp_path / notebook.name
    copy.write_text(notebook.read_text())
    options = ["--nbmake", "--nbmake-timeout=600", "-p", "no:cacheprovider", "--rootdir", "."]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, copy.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


CELLS = [
    "import numpy as np, torch, streamgauge as sg\n"
    "stream = sg.stream(np.zeros((60, 2), np.float32), np.arange(60) % 2, batch=5)",
    "def answer():\n    return 0",
    "class Mine:\n"
    "    def __init__(self, spec, source, seed, device):\n        self.classes = spec.classes\n"
    "    def predict(self, x):\n"
    "        return torch.eye(self.classes)[torch.full((len(x),), answer())]\n"
    "    def learn(self, batch, predicted): ...\n"
    "    def state_dict(self): return {}\n"
    "    def load_state_dict(self, state): ...",
    "print(set(sg.run(stream, Mine).predictions['prediction'].tolist()))",
    "print(set(sg.run(stream, Mine).predictions['prediction'].tolist()))",
    "def answer():\n    return 1",
    "print(set(sg.run(stream, Mine).predictions['prediction'].tolist()))",
]


@pytest.mark.long
def test_a_class_of_a_cell_and_its_helper_in_jupyter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Progress is shown, a run is used again, and a changed helper is another run."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.chdir(tmp_path)
    cells = [nbformat.v4.new_code_cell(cell) for cell in CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    first, again, changed = (
        "".join(output.text for output in notebook.cells[at].outputs) for at in (3, 4, 6)
    )
    assert "{0}" in first
    assert "Mine, seed 0: 12 steps" in first
    assert "complete already" in again
    assert "{1}" in changed
