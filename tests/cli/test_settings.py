from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest

from streamgauge import catalogue
from streamgauge.errors import StreamgaugeError
from streamgauge.running.plan import Experiment, plan
from streamgauge.settings import as_plain, coerce, configure


@dataclass(frozen=True)
class Config:
    lr: float = 0.1
    passes: int = 1
    policy: Literal["fifo", "reservoir"] = "fifo"
    shifts: tuple[int, ...] = ()
    every: int | Literal["end", "never"] = "end"
    share: float | None = None
    flag: bool = False


def test_text_and_toml_values_become_what_the_field_says() -> None:
    text = {"lr": "1e-3", "passes": "3", "policy": "reservoir", "shifts": "10,20", "flag": "true",
            "every": "7", "share": "none"}  # fmt: skip
    toml = {"lr": 1e-3, "passes": 3, "policy": "reservoir", "shifts": [10, 20], "flag": True,
            "every": 7, "share": None}  # fmt: skip
    want = Config(1e-3, 3, "reservoir", (10, 20), 7, None, True)
    assert configure(Config, text, "er") == configure(Config, toml, "er") == want
    assert configure(Config, {"every": "never"}, "er").every == "never"
    assert configure(Config, as_plain(want), "er") == want
    assert coerce("fast, slow", tuple[str, ...], "--speeds") == ("fast", "slow")


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("rl", 1, "There is no setting 'er.rl'; did you mean 'er.lr'?"),
        ("lr", "fast", "er.lr must be a number, not 'fast'."),
        ("lr", True, "er.lr must be a number, not True."),
        ("passes", "1.5", "er.passes must be a whole number, not '1.5'."),
        ("passes", 1.5, "er.passes must be a whole number, not 1.5."),
        ("policy", "fif", "er.policy cannot be 'fif'; did you mean 'fifo'?"),
        ("flag", "maybe", "er.flag must be true or false, not 'maybe'."),
        ("shifts", "a", "er.shifts must be a whole number, not 'a'."),
    ],
)
def test_a_wrong_setting_is_one_sentence(name: str, value: object, sentence: str) -> None:
    with pytest.raises(StreamgaugeError) as error:
        configure(Config, {name: value}, "er")
    assert str(error.value) == sentence


@pytest.mark.parametrize("off", [False, "false"])
def test_the_setting_of_acm_in_version_0_1_is_accepted_where_it_made_no_difference(
    off: object,
) -> None:
    now = catalogue.learner("acm", k=1)
    words = r"Leave acm\.as_published=false out: .* is removed in version 0\.4"
    with pytest.warns(DeprecationWarning, match=words):
        assert catalogue.learner("acm", k=1, as_published=off) == now  # the same identity
    for owner in ("acm", "learner"):
        settings = {f"{owner}.as_published": off}
        experiment = Experiment("blobs", ("acm", "er"), settings=settings)
        with pytest.warns(DeprecationWarning, match=words):
            assert plan(experiment)[0].recipe == catalogue.learner("acm")
    with pytest.raises(StreamgaugeError, match=r"acm\.as_published=true .* is not offered"):
        catalogue.learner("acm", as_published=True)
