"""The demonstration: its sentence must be true of whatever figures it is made from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.record import find_runs
from streamgauge.report import watching
from streamgauge.streams.named import albums
from streamgauge.suites import load, spec
from streamgauge.suites.demo import SMALL, Accuracies, demo, meaning

share = st.integers(0, 1000).map(lambda n: n / 1000)
some = st.builds(Accuracies, share, share, share)


def test_the_story_where_it_holds() -> None:
    found = {
        "blind": Accuracies(0.4, 0.1, 0.1),
        "majority": Accuracies(0.3, 0.3, 0.3),
        "newest": Accuracies(0.7, 0.5, 0.6),
        "er": Accuracies(0.8, 0.78, 0.9),
    }
    text = meaning(found, 40)
    assert (
        "blind is right 40.0 % of the time without a look at any photo (10.0 points above" in text
    )
    assert "even 70.0 %; asked 40 photos ahead" in text
    assert "blind falls to 10.0 % and newest falls to 50.0 %, while er" in text
    assert "holds at 78.0 % (online 80.0 %): so part of a high online accuracy" in text


@given(blind=some, majority=some, newest=some, er=some)
def test_every_claim_is_one_of_the_figures(
    blind: Accuracies, majority: Accuracies, newest: Accuracies, er: Accuracies
) -> None:
    text = meaning({"blind": blind, "majority": majority, "newest": newest, "er": er}, 30)
    assert text.count(".") - len(re.findall(r"\d\.\d", text)) == 1  # one sentence
    assert ("points above always" in text) == (blind.online > majority.online)
    assert ("alone, even" in text) == (newest.online > blind.online)
    for name, one in (("blind", blind), ("newest", newest)):
        fell = f"{name} falls to {100 * one.ahead:.1f} %" in text
        assert fell == (one.online - one.ahead >= SMALL)
        if one.ahead > one.online:
            assert f"{name} rises to {100 * one.ahead:.1f} %" in text
    if "holds" in text:
        assert er.loss < SMALL
        assert er.loss < min(blind.loss, newest.loss)
    if "can be the mere repetition" in text:
        assert min(blind.loss, newest.loss) >= SMALL
        assert newest.loss > er.loss
    else:
        assert "did not mislead" in text


def test_the_shift_lies_past_the_correlation_in_whole_steps() -> None:
    """The last label is worth less than half a point there, by the closed form of the stream."""
    config = albums.Config()
    (shift,) = load("demo").rows[0].settings["protocol.shifts"]
    assert shift % config.batch == 0
    excess = 1 - albums.truth(config).collision
    stay = 1 - 1 / config.album_length
    assert excess * stay ** (shift + 1) < 0.005
    # A step less would not do, but for what rounding up to steps adds.
    assert excess * stay ** (shift - config.batch + 1) >= 0.005


def test_the_demo_from_end_to_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own code, with one seed of a short stream."""
    short = spec.read("demo")
    short["stream"]["length"] = 400
    monkeypatch.setattr(spec, "read", lambda name: short)
    monkeypatch.setattr(watching, "EVERY", 0.0)  # a line at every chance
    path = demo(tmp_path, seeds=1)
    out = capsys.readouterr().out
    assert path == tmp_path / "report.html"
    assert f"Report: {path}" in out
    # Where there is no terminal: which run of how many, and the time for all.
    assert re.search(r"^run 3 of 5: newest, seed 0: step .* left for all$", out, re.MULTILINE)
    runs = find_runs([tmp_path])
    learners = {"blind", "majority", "newest", "er", "ncm"}
    assert {run.learner for run in runs} == learners
    assert all(run.header["config"]["protocol"]["shifts"] == [40] for run in runs)
    settings = {run.learner: run.header["config"]["learner"]["settings"] for run in runs}
    assert settings["newest"]["passes"] == 3
    assert settings["blind"]["window"] == 1
    told = (Path(__file__).parents[2] / "docs" / "report.md").read_text()
    assert f"`blind` (window {settings['blind']['window']})" in told
    for name in learners:
        assert re.search(rf"^{name} +[=?]? *\d+\.\d +\d+\.\d +\d+\.\d +1$", out, re.MULTILINE)
    for title in ("online", "near future, 40 ahead", "retained"):
        assert title in out
    assert re.search(r"^Online, blind is right", out, re.MULTILINE)
    assert "Streamgauge" in path.read_text()
