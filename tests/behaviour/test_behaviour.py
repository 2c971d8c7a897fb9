"""Every built-in method still answers and learns as it was recorded: see `record.py`."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import record

ENTRIES = record.recorded_entries()


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_method_behaves_as_recorded(entry: str) -> None:
    assert record.differences(entry, record.record(entry)) == []


def test_every_built_in_learner_and_part_is_recorded() -> None:
    assert sorted(ENTRIES) == sorted(record.entries())


def test_the_table_holds_the_hashes_of_the_recorded_numbers() -> None:
    table = tomllib.loads(record.TABLE.read_text())
    hashes = {
        f"{name}{mark}{key}": value
        for group, mark in (("methods", "/"), ("parts", ":"))
        for name, keys in table[group].items()
        for key, value in keys.items()
    }
    assert hashes == {entry: record.behaviour_hash(record.recorded(entry)) for entry in ENTRIES}


def test_a_changed_method_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "louder.py"
    file.write_text(
        "from streamgauge.learners.replay.er import ER, Config\n"
        "class Louder(ER):\n"
        "    def loss(self, batch, recalled):\n"
        "        return 2 * super().loss(batch, recalled)\n"
    )
    settings: list[dict[str, Any]] = [given for _, given in record.entries()["er/default"]]
    now = [record.record_run(f"{file}:Louder", given) for given in settings]
    assert any("loss" in text for text in record.differences("er/default", now))


def test_variants_that_differ_have_hashes_that_differ() -> None:
    assert record.differences("mir/default", record.recorded("mir/as_published"))
    for entry in (e for e in ENTRIES if e.endswith("/as_published")):
        default = entry.replace("as_published", "default")
        if entry != "cosine_fc/as_published":  # a trained network's batch norm: nothing differs
            assert record.recorded(entry) != record.recorded(default), entry
