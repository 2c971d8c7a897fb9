"""No file, setting or command line ends in a traceback. The long form is `make fuzz`."""

from __future__ import annotations

import dataclasses
import random
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgauge.errors import StreamgaugeError
from streamgauge.settings import configure
from streamgauge.tables.read import open_table

HERE = Path(__file__).parent
FAILED = HERE / "failed"  # TARGET-KIND-NUMBER: a folder per input that once failed
QUICK = "text tables,typed tables,roles,images,own streams,packs,archives,weights,settings"


def test_the_short_form_has_no_finding() -> None:
    command = [sys.executable, str(HERE / "driver.py"), "--quick", "30", "--only", QUICK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert "270 inputs, 0 findings." in done.stdout


def test_what_once_failed_is_refused_or_read() -> None:
    """In a process of its own: some of these inputs once ended the process."""
    code = "import driver, sys; sys.exit(driver.repeat_failed())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, cwd=HERE
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert f"{len(list(FAILED.iterdir()))} inputs" in done.stdout


def test_a_finding_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The driver itself: an exception is a finding, a sentence is none."""
    monkeypatch.syspath_prepend(HERE)
    import driver
    import targets

    def fails(folder: Path) -> None:
        raise KeyError("label")

    def refuses(folder: Path) -> None:
        raise StreamgaugeError("It is damaged.")

    target = dataclasses.replace(targets.TARGETS["settings"], run=fails)
    with pytest.raises(driver.Outcome, match="KeyError at outside"):
        driver.try_input(target, tmp_path)
    target = dataclasses.replace(target, run=refuses)
    assert driver.try_input(target, tmp_path) == "refused"
    again = [targets.make_input(target, 5, 7) for _ in range(2)]
    assert again[0] == again[1]
    assert again[0] not in target.seeds()


@pytest.mark.parametrize("depth", [10, 400, 960, 100_000])
def test_a_deep_tree_does_not_end_the_driver(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.12 reads deeper trees than it walks."""
    monkeypatch.syspath_prepend(HERE)
    import mutate

    deep = b"[" * depth + b"1" + b"]" * depth
    changed = {mutate.mutate_json(deep, random.Random(number)) for number in range(20)}
    assert len(changed) > 1


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_a_table_or_one_sentence(text: str) -> None:
    said = "one row or more"
    try:
        reader = open_table(text.encode("utf-8", "surrogatepass"), "the table")
        assert reader.read(text=reader.names).num_rows > 0
    except StreamgaugeError as error:
        said = str(error)
    assert said.strip()


@dataclasses.dataclass(frozen=True)
class Config:
    number: int = 1
    share: float = 0.5
    flag: bool = False
    word: str = ""
    choice: Literal["a", "b"] = "a"
    several: tuple[int, ...] = ()
    maybe: int | None = None


ANY: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from([f.name for f in dataclasses.fields(Config)]), ANY))
def test_any_value_of_a_setting_is_taken_or_refused(values: dict[str, Any]) -> None:
    try:
        made = configure(Config, values, "er")
    except StreamgaugeError:
        return
    for name, kind in (("number", int), ("share", float), ("flag", bool), ("word", str)):
        assert type(getattr(made, name)) is kind
    assert made.choice in ("a", "b")
