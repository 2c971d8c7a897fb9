"""The identity of a run holds what built-in methods do and what users' files say."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import streamgauge as sg
from streamgauge.learners import behaviour
from streamgauge.learners.behaviour import current_learner, method_code, stored_code
from streamgauge.record import renamed
from streamgauge.suites.measured import OTHER_CODE, RESULTS, UNKNOWN_CODE, recorded

CORPUS = Path(__file__).parents[1] / "corpus" / "v0.1"
OLD = sorted(path for path in CORPUS.glob("*/*") if "live" not in path.name)


@pytest.mark.parametrize(
    ("settings", "same"),
    [
        ({"lr": 0.1}, True),  # a setting is in the identity itself
        ({"as_published": True}, False),
        ({"augment": "flip"}, False),
        ({"policy": "ring"}, False),
        ({"model": "mlp"}, False),
        ({"head": "cosine"}, False),
        ({"momentum": 0.9}, False),
    ],
)
def test_the_code_of_a_method_is_that_of_its_variant_and_parts(
    settings: dict[str, Any], same: bool
) -> None:
    assert (sg.learner("mir").code == sg.learner("mir", **settings).code) == same


def test_a_model_that_is_not_recorded_counts_with_its_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = method_code("er", {"model": "new_one"})
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: "edited")
    assert method_code("er", {"model": "new_one"}) != before


def test_another_behaviour_is_another_code(monkeypatch: pytest.MonkeyPatch) -> None:
    before = sg.learner("er").code
    changed = json.loads(json.dumps(behaviour.table()))
    changed["methods"]["er"]["default"] = "0" * 16
    monkeypatch.setattr(behaviour, "table", lambda: changed)
    assert sg.learner("er").code != before


def test_a_users_file_counts_with_its_text_and_the_behaviour_of_its_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mine.py"
    text = "from streamgauge.learners.replay.er import ER, Config\nclass Mine(ER):\n    pass\n"
    file.write_text(text)
    first = sg.learner(f"{file}:Mine").code
    assert first != sg.learner("er").code
    assert first != sg.learner(f"{file}:Mine", augment="flip").code
    file.write_text(text + "# edited\n")
    edited = sg.learner(f"{file}:Mine").code
    assert edited != first
    changed = json.loads(json.dumps(behaviour.table()))
    changed["methods"]["er"]["default"] = "0" * 16
    monkeypatch.setattr(behaviour, "table", lambda: changed)
    assert sg.learner(f"{file}:Mine").code != edited


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.name)
def test_a_source_hash_of_an_old_run_is_the_behaviour_of_today(path: Path) -> None:
    learner = sg.Run(path).header["config"]["learner"]
    assert learner["code"] in behaviour.table()["sources"]
    now = sg.learner(learner["where"], **(learner["settings"] or {}))
    # DER++ stores other logits since 0.2: runs made before are other runs.
    assert (stored_code(learner) == now.code) == (learner["where"] != "derpp")


def test_unknown_source_hashes_stay_as_they_are() -> None:
    learner = {"where": "er", "settings": {}, "code": "0123456789abcdef"}
    assert stored_code(learner) == "0123456789abcdef"
    # Code that was today's in one variant is not so in all.
    codes = behaviour.table()["sources"]
    blind = next(code for code, same in codes.items() if same == ["blind/default"])
    learner = {"where": "blind", "settings": {"as_published": True}, "code": blind}
    assert stored_code(learner) == blind


def test_an_old_complete_run_is_found_by_what_it_means(tmp_path: Path) -> None:
    (path,) = (
        path for path in OLD if path.name.startswith("albums-er-s0") and "finished" in str(path)
    )
    shutil.copytree(path, tmp_path / path.name)
    config = sg.Run(path).header["config"]
    said: list[str] = []

    def again(**changes: Any) -> sg.Run:
        return sg.run(
            sg.stream("albums", **config["stream"]["settings"]),
            sg.learner("er", **{**config["learner"]["settings"], **changes}),
            protocol=sg.Protocol(**config["protocol"]),
            out=tmp_path, device="cpu", log=said.append,
        )  # fmt: skip

    assert again().path == tmp_path / path.name
    assert "complete already" in said[0]
    assert again(lr=0.01).path != tmp_path / path.name


def test_renamed_settings_and_keys_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(renamed.SETTINGS, "er", {"rehearse": "recall"})
    monkeypatch.setitem(renamed.STATE, "er", {"network": "model"})
    old = {"where": "er", "settings": {"rehearse": 5}, "code": "x"}
    assert current_learner(old)["settings"] == {"recall": 5}
    assert renamed.current_state("er", {"network": 1, "memory": 2}) == {"model": 1, "memory": 2}
    # RWalk's state had no such key when the rows of the ledger were run.
    assert renamed.current_state("rwalk", {"steps": 3}) == {"steps": 3, "ended": False}
    assert renamed.current_state("rwalk", {"ended": True}) == {"ended": True}
    (path,) = (CORPUS / "interrupted").glob("albums-er-*")
    folder = tmp_path / path.name
    shutil.copytree(path, folder)
    header = json.loads((folder / "run.json").read_text())
    settings = header["config"]["learner"]["settings"]
    settings["rehearse"] = settings.pop("recall")
    (folder / "run.json").write_text(json.dumps(header))
    (resumed,) = sg.resume(folder, device="cpu", log=lambda _: None)
    assert resumed.done


def test_a_setting_that_came_later_has_its_default_in_an_old_run(tmp_path: Path) -> None:
    (path,) = (CORPUS / "interrupted").glob("albums-er-*")
    folder = tmp_path / path.name
    shutil.copytree(path, folder)
    header = json.loads((folder / "run.json").read_text())
    del header["config"]["learner"]["settings"]["wait"]
    del header["config"]["protocol"]["probe_copies"]
    (folder / "run.json").write_text(json.dumps(header))
    (resumed,) = sg.resume(folder, device="cpu", log=lambda _: None)
    assert resumed.done


def test_a_run_of_another_behaviour_is_not_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = (CORPUS / "interrupted").glob("albums-er-*")
    folder = tmp_path / path.name
    shutil.copytree(path, folder)
    header = json.loads((folder / "run.json").read_text())
    header["config"]["learner"]["code"] = "of code that nobody knows"
    (folder / "run.json").write_text(json.dumps(header))
    with pytest.raises(sg.StreamgaugeError, match="the code of the learner er changed"):
        sg.resume(folder, device="cpu", log=lambda _: None)


def test_rows_of_the_ledger_stand_by_behaviour(tmp_path: Path) -> None:
    shown = [row for row in recorded("survey-cifar100") if OTHER_CODE in row.remarks]
    assert shown == []
    text = (RESULTS / "survey-cifar100.toml").read_text()
    (tmp_path / "survey-cifar100.toml").write_text(text.replace("(2a7be2b)", "(f8701af236)"))
    # At that commit, ER-ACE's behaviour was not recorded: its row cannot stand by it.
    rows = recorded("survey-cifar100", tmp_path)
    marked = [row.row for row in rows if UNKNOWN_CODE in row.remarks]
    assert marked == ["ER-ACE"]


def test_the_state_of_a_users_learner_stays_as_it_is() -> None:
    assert renamed.current_state("mine.py:Mine", 7) == 7
    assert renamed.current_state("rwalk", {"walk": 1}) == {"ended": False, "walk": 1}
