"""What `compare` and `power` refuse, and what they advise where nothing is settled."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import streamgauge as sg
from made_runs import finished
from streamgauge.errors import Failures, RunsFailed, StreamgaugeError
from streamgauge.metrics.power import Variances, detection
from streamgauge.report.planning import check_goal, is_share, plan


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Three seeds of er and mir in `runs`."""
    for seed in range(3):
        finished(tmp_path / "runs", learner="er", seed=seed, share=0.6)
        finished(tmp_path / "runs", learner="mir", seed=seed, share=0.65)
    return tmp_path / "runs"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--difference 5", "is a share below 1, not 5: 5 points are 0.05."),
        ("--difference 1", "is a share below 1, not 1: one point is 0.01."),
        ("--difference -0.01", "has no sign: give 0.01, not -0.01."),
        ("--difference 0", "must not be 0"),
        ("--difference nan", "must be a number, not nan."),
        ("--power 80", "a probability such as 0.8, not 80: 80 % are 0.8."),
    ],
)
def test_what_no_comparison_can_find_is_refused(
    runs: Path, call: Any, options: str, sentence: str
) -> None:
    baseline = [str(path) for path in sorted(runs.glob("made-er-*"))]
    for words in (
        ["compare", "er", "mir"],
        ["compare", "er", "mir", "--metric", "retained_accuracy"],  # has no variance
        ["power", "--deviation", "0.012"],
        ["power", *baseline, "--metric", "online_accuracy"],
    ):
        code, out, err = call(*words, *options.split())
        assert (code, out) == (2, "")
        assert sentence in err


def test_a_difference_of_what_is_no_share_may_be_above_one() -> None:
    check_goal(5.0, 0.8, is_share("log_loss"))
    with pytest.raises(StreamgaugeError, match="must be a number, not inf"):
        check_goal(math.inf, 0.8, is_share("log_loss"))


def test_one_sample_is_one_sample() -> None:
    """All blocks alike but for 1e-5: the first sample finds half of everything."""
    variances = Variances(0.0, 1e-10, 0.0, 10)
    assert "takes 3 seeds or 1 sample per run with 3 seeds." in str(plan(variances, 0.5, 3, 100))


def test_a_tolerance_of_an_audit_is_a_share() -> None:
    for wrong in (5.0, 1.0, -0.1, math.nan):
        with pytest.raises(StreamgaugeError, match="tolerance is a share from 0 to below 1, not"):
            sg.audit_log({"label": [0, 1] * 200}, tolerance=wrong)


def test_where_neither_seeds_nor_samples_suffice_both_together_are_planned() -> None:
    variances = Variances(seeds=4e-4, blocks=1e-4, both=1e-4, block_count=10)
    found = plan(variances, 0.01, 3, 1000)
    assert (found.seeds, found.samples) == (None, None)
    assert found.together is not None
    seeds, samples = found.together
    assert f"about {seeds} seeds of {samples:,} samples each: " in str(found)
    assert "(seeds more)" in str(found)
    assert detection(0.01, variances, seeds, samples / 1000) >= 0.8
    assert detection(0.01, variances, round(0.9 * seeds), 0.9 * samples / 1000) < 0.8
    assert "plan for a larger difference" in str(plan(variances, 1e-6, 3, 1000))
    assert plan(variances, 0.2, 3, 1000).together is None  # seeds alone suffice


def test_a_metric_without_variance_names_one_that_varies(runs: Path, call: Any) -> None:
    code, out, _ = call("compare", "er", "mir", "--metric", "retained_accuracy")
    assert code == 0
    assert "compare by a metric that varies, --metric online_accuracy." in out


def test_runs_of_two_settings_can_be_told_apart_in_a_shell(runs: Path, call: Any) -> None:
    slow = [finished(runs, learner="er", seed=seed, settings={"lr": 0.5}) for seed in range(3)]
    code, _, err = call("compare", "er", "mir")
    assert code == 2
    assert "lr=0.5" in err
    assert "into a folder of their own, and give that folder" in err
    assert "--learner NAME=er" in err
    assert "sg." not in err
    with pytest.raises(
        StreamgaugeError, match=r"list of the runs of one setting.*sg\.run"
    ) as python:
        sg.compare("er", "mir")
    assert "--" not in str(python.value)
    for run in slow:  # as the sentence says
        (runs / "slow").mkdir(exist_ok=True)
        run.rename(runs / "slow" / run.name)
    code, out, _ = call("compare", "er", "runs/slow", "--metric", "online_accuracy")
    assert code == 0
    assert "er (lr=0.5)" in out


def test_a_folder_of_several_learners_is_no_code_for_a_shell(runs: Path, call: Any) -> None:
    code, _, err = call("compare", "runs", "mir")
    assert code == 2
    assert "learner's name instead of a folder, such as er --runs FOLDER." in err
    with pytest.raises(StreamgaugeError, match=r"\[run for run in sg\.find_runs"):
        sg.compare(runs, "mir")


def test_a_shift_that_was_not_measured_says_how_to_measure_it(runs: Path, call: Any) -> None:
    _, _, err = call("compare", "er", "mir", "--metric", "near_future_accuracy@100")
    assert "with --protocol.shifts 100, or compare by near_future_accuracy@40." in err


def test_power_looks_learners_up_as_compare_does(runs: Path, call: Any) -> None:
    code, out, _ = call("power", "er", "--difference", "0.01", "--metric", "online_accuracy")
    folders = [str(path) for path in sorted(runs.glob("made-er-*"))]
    options = ["--difference", "0.01", "--metric", "online_accuracy"]
    assert (code, out) == call("power", *folders, *options)[:2]
    assert "did you mean 'er'?" in call("power", "err", "--difference", "0.01")[2]
    assert (
        "by a metric that varies, --metric"
        in call("power", "er", "--metric", "retained_accuracy")[1]
    )


def test_wrong_calls_from_python_are_sentences(runs: Path, call: Any) -> None:
    with pytest.raises(StreamgaugeError, match=r"write sg\.compare\(a, b"):
        sg.compare("er")  # type: ignore[call-arg]
    with pytest.raises(StreamgaugeError, match=r"write sg\.power\("):
        sg.power(diffrence=0.01)  # type: ignore[call-arg]
    with pytest.raises(StreamgaugeError, match=r"runs has no run of 'err'; did you mean 'er'\?"):
        sg.compare("err", "mir")


def test_the_same_runs_on_both_sides_are_mentioned(runs: Path, call: Any) -> None:
    assert "Both are the same runs" in call("compare", "er", "er")[1]
    assert "Both are the same runs" not in call("compare", "er", "mir")[1]


def test_words_too_many_say_what_the_command_takes(call: Any) -> None:
    _, _, err = call("compare", "a", "b", "label prediction")
    assert "Write `streamgauge compare [OPTIONS] A B`; a name with spaces needs quotes" in err


def test_a_log_of_predictions_is_no_matrix_but_can_be_audited(tmp_path: Path, call: Any) -> None:
    (tmp_path / "pred.csv").write_text("label,prediction\ncat,fish\nfish,cat\n")
    assert "streamgauge audit pred.csv" in call("score", "pred.csv")[2]


def test_runs_that_fail_alike_are_one_sentence() -> None:
    names = [f"blobs-er-s{seed}" for seed in range(10)]

    def fail() -> None:
        with Failures() as failures:
            for name in names:
                with failures.of(name):
                    raise StreamgaugeError(f"Cannot write to /full/{name}.")

    with pytest.raises(RunsFailed) as failed:
        fail()
    assert str(failed.value) == "10 runs, the first blobs-er-s0: Cannot write to /full/blobs-er-s0."
    assert failed.value.names == names
