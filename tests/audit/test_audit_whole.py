"""The audit as a whole: what it says of streams whose truth is known, gates, page, command."""

from __future__ import annotations

import io
import json
import math
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from browser import Browser, needs_browser
from streamgauge.audit import (
    audit,
    blind_accuracy,
    blind_without_album,
    blind_without_user,
    holds,
    neighbour_accuracy,
    run_audit,
)
from streamgauge.audit.counting import count_labels
from streamgauge.audit.page import audit_page
from streamgauge.audit.repeats import albums_of, level_from_answers
from streamgauge.errors import StreamgaugeError
from streamgauge.history.known import encode


def sticky(n, rho, classes, seed):
    rng = np.random.default_rng(seed)
    draws = rng.integers(0, classes, n)
    redraw = rng.random(n) >= rho
    redraw[0] = True
    return draws[np.maximum.accumulate(np.where(redraw, np.arange(n), 0))]


def right_by_chance(labels, chance, seed):
    """A model that is right with a given chance whatever the stream does."""
    rng = np.random.default_rng(seed)
    wrong = (labels + rng.integers(1, labels.max() + 1, labels.size)) % (labels.max() + 1)
    return np.where(rng.random(labels.size) < chance, labels, wrong)


def test_labels_alone():
    labels = sticky(20_000, 0.9, 10, 0)
    found = audit({"y": labels})
    assert found.columns == {"label": "y"}
    assert found.window == 1
    assert found.blind.low < 0.91 < found.blind.high + 0.01
    # All levels are on the same samples: the last four fifths.
    first = int(found.over_time["position"][0])
    assert first == pytest.approx(4_000, abs=10)
    np.testing.assert_allclose(found.table, scored_table(labels, found, first))
    frequency = np.bincount(labels[first:]) / (20_000 - first)
    assert found.levels.constant == pytest.approx(frequency.max())
    assert found.levels.squared == pytest.approx(np.sum(frequency**2))
    assert found.last_label == pytest.approx(np.mean(labels[first:] == labels[first - 1 : -1]))
    assert 20 <= found.choice.low <= 29 <= found.choice.high
    assert found.bits.history.low < np.log2(10) - sticky_entropy(0.9, 10) < found.bits.base.value
    assert "no predictions in this log" in " ".join(found.words)


def sticky_entropy(rho, classes):
    """Entropy rate in bits: stay with rho + (1 - rho) / C, else one of the other classes."""
    other = (1 - rho) / classes
    stay = rho + other
    return -stay * np.log2(stay) - (classes - 1) * other * np.log2(other)


def scored_table(labels, found, first, ties="recent", step=1):
    """Hits of blind classifiers on predictions made from sample ``first`` on."""
    columns = []
    for s in found.shown_shifts:
        c = count_labels(
            *encode(labels), found.windows, [s], step, ties, block=1 << 20, first_target=first + s
        )
        columns.append(c.hits.sum(axis=0)[:, 0] / c.tries.sum(axis=0)[:, 0])
    return np.stack(columns, axis=1)


def test_kappas_and_levels_are_on_the_answered_samples():
    """A fifth of the answers is missing: every level leaves those samples out."""
    labels = sticky(5_000, 0.6, 4, 0)
    rng = np.random.default_rng(1)
    model = np.where(rng.random(5_000) < 0.2, np.nan, right_by_chance(labels, 0.7, 2))
    found = audit({"label": labels, "prediction": model}, shifts=[0])
    scored = (np.arange(5_000) >= found.over_time["position"][0]) & ~np.isnan(model)
    at = np.flatnonzero(scored)
    p0 = np.mean(labels[at] == model[at])
    last = np.mean(labels[at] == labels[at - 1])
    majority = np.mean([np.bincount(labels[:j]).argmax() == labels[j] for j in at])
    shares = [np.bincount(x[at].astype(int), minlength=4) / at.size for x in (labels, model)]
    chance = shares[0] @ shares[1]
    assert found.predictions == np.count_nonzero(~np.isnan(model))
    assert found.online_scored == pytest.approx(p0)
    assert found.last_label == pytest.approx(last)
    assert found.levels.majority == pytest.approx(majority, abs=0.002)  # ties
    assert found.kappa == pytest.approx((p0 - chance) / (1 - chance))
    assert found.kappa_t == pytest.approx((p0 - last) / (1 - last))
    assert found.kappa_m == pytest.approx((p0 - majority) / (1 - majority), abs=0.005)
    combined = math.sqrt(max(0, found.kappa) * max(0, found.kappa_t))
    assert found.kappa_combined == pytest.approx(combined)


def test_the_comparison_is_at_the_age_of_the_model():
    """Answers that repeat a label 50 samples old: blind at that age, not at the next sample."""
    labels = sticky(20_000, 0.99, 10, 0)
    old = labels[np.maximum(np.arange(20_000) - 51, 0)]
    found = audit({"label": labels, "prediction": old, "age": np.full(20_000, 50)})
    assert found.answer_shift == 50
    assert found.blind.value == pytest.approx(0.1 + 0.9 * 0.99**51, abs=0.05)
    assert found.share.value == pytest.approx(1, abs=0.05)
    assert found.bits.added.high < 0.02
    assert [at for at, _ in found.bits_at] == [32]


def test_late_labels_are_not_known():
    """Labels that come 20 samples late: blind is that of a shift of 20."""
    labels = sticky(20_000, 0.9, 10, 0)
    model = right_by_chance(labels, 0.5, 1)
    late = audit({"label": labels, "prediction": model}, label_delay=20)
    assert late.late_labels == pytest.approx(20, abs=0.1)
    shifted = blind_accuracy(labels, [1], [20])[0, 0]
    assert late.last_label == pytest.approx(shifted, abs=0.01)
    times = np.arange(20_000) * 10
    by_time = audit({"label": labels, "prediction": model, "time": times, "arrived": times + 200},
                    label_time="arrived")  # fmt: skip
    assert by_time.last_label == pytest.approx(late.last_label)
    assert by_time.levels.majority == pytest.approx(late.levels.majority)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"step": 5_000}, "a step has 5,000 samples.* --step"),
        ({"step": 3_000}, "a step has 3,000 samples"),
        ({"step": "batch"}, "check steps"),
        ({"label_delay": 3_000}, "check steps, times and --label-delay"),
        ({"step": 5_000, "hold": 1_000}, "a step has 5,000 samples"),
    ],
)
def test_labels_that_no_answer_knows_are_refused(options, why):
    labels = sticky(3_000, 0.0, 3, 0)
    log = {"label": labels, "prediction": right_by_chance(labels, 0.8, 1)}
    log |= {"batch": np.full(3_000, 7)} if options.get("step") == "batch" else {}
    with pytest.raises(StreamgaugeError, match=f"no label of .* any of its 3,000 rows.*{why}"):
        audit(log, **options)


@pytest.mark.parametrize("step", [500, 1_000, 2_000])
def test_blind_is_not_as_good_where_the_interval_is_wide_or_unknown(step):
    """A model that is right 80 % of the time, in a log with few steps."""
    labels = sticky(3_000, 0.0, 3, 0)
    found = audit({"label": labels, "prediction": right_by_chance(labels, 0.8, 1)}, step=step)
    assert found.share.value < 0.6
    assert math.isnan(found.share.low) == math.isnan(found.share.high)
    text = " ".join(found.words)
    assert "about as often" not in text
    if math.isnan(found.share.low):
        assert "too few blocks for an interval" in text


def test_share_of_a_model_that_repeats_labels():
    """A model that repeats the last label is explained wholly; one that sees is not."""
    labels = sticky(20_000, 0.9, 10, 0)
    repeats = np.concatenate([[0], labels[:-1]])
    found = audit({"label": labels, "prediction": repeats})
    assert found.share.value == pytest.approx(1)
    assert found.where_blind_fails.value == 0
    sees = audit({"label": labels, "prediction": right_by_chance(labels, 0.95, 2)})
    assert sees.online.low < 0.95 < sees.online.high
    assert sees.share.value == pytest.approx(sees.blind.value / sees.online_scored)
    assert sees.share.high < 1
    assert sees.where_blind_fails.low < 0.95 < sees.where_blind_fails.high
    assert any("cannot be computed from this log" in s and "record" in s for s in sees.words)


def test_intervals_cover_the_truth():
    """Correlated answers: the 95 % interval of their accuracy holds the truth 95 % of the time."""
    inside = 0
    for seed in range(100):
        labels = sticky(4_000, 0.9, 10, seed)
        found = level_from_answers(labels[1:] == labels[:-1], burst=30)
        inside += found.low <= 0.91 <= found.high
    assert 89 <= inside <= 100


def test_share_interval_covers_the_truth():
    """Over many streams, the 95 % interval holds the true ratio about 95 % of the time."""
    inside = 0
    truth = (0.1 + 0.9 * 0.9) / 0.95
    for seed in range(40):
        labels = sticky(2_000, 0.9, 10, seed)
        model = right_by_chance(labels, 0.95, seed + 1_000)
        found = audit({"label": labels, "prediction": model}, windows=[1], shifts=[0])
        inside += found.share.low <= truth <= found.share.high
    assert 34 <= inside <= 40


def shifted_log(labels, shifts, seed):
    """A model that repeats the newest label it knows, answering at several shifts."""
    n = labels.size
    rows = {"label": [], "prediction": [], "shift": [], "at": []}
    for shift in shifts:
        j = np.arange(shift + 1, n)
        rows["label"].append(labels[j])
        rows["prediction"].append(labels[j - shift - 1])
        rows["shift"].append(np.full(j.size, shift))
        rows["at"].append(j - shift)
    joined = {k: np.concatenate(v) for k, v in rows.items()}
    order = np.argsort(joined.pop("at"), kind="stable")
    return {k: v[order] for k, v in joined.items()}


def test_near_future_from_a_log_with_shifts():
    labels = sticky(60_000, 0.9, 10, 0)
    log = shifted_log(labels, [0, 16, 128, 512], 0)
    found = audit(log, shifts=[0, 32, 128, 512], tolerance=0.04)
    assert [f.shift for f in found.futures] == [16, 128, 512]
    expected = blind_accuracy(labels, [1], [0, 16, 128, 512])[0]
    assert found.online.value == pytest.approx(expected[0])
    # Behind the first fifth, as the blind family at the same shift.
    first = int(found.over_time["position"][0])
    for future in found.futures:
        # The log begins with sample 1: sample 0 has no label before it.
        hit = labels[first + future.shift + 1 :] == labels[first : -1 - future.shift]
        assert future.accuracy.value == pytest.approx(hit.mean())
    # The smallest shift of the log past the correlation is taken.
    assert found.choice.shift is not None
    assert 16 < found.choice.shift <= 128
    assert found.near_future_shift == 128
    assert found.blind_shifted == pytest.approx(0.1, abs=0.03)
    assert [at for at, _ in found.bits_at] == [16, 128, 512]
    assert any("Near-future accuracy, of a model 128 samples behind" in s for s in found.words)
    short = audit(shifted_log(labels, [0, 4], 0), shifts=[0, 32, 128])
    assert short.near_future_shift == 4


def test_near_future_from_model_age():
    labels = sticky(60_000, 0.9, 10, 0)
    age = np.random.default_rng(1).integers(0, 400, labels.size)
    at = np.maximum(np.arange(labels.size) - age - 1, 0)
    log = {"label": labels, "prediction": labels[at], "age": age}
    found = audit(log, shifts=[0, 64], tolerance=0.04, age="age")  # too erratic to be guessed
    assert found.by == "age"
    pick = (age >= 64) & (np.arange(labels.size) >= found.over_time["position"][0])
    assert found.near_future_shift == 64
    assert found.near_future.value == pytest.approx(np.mean((labels[at] == labels)[pick]))
    assert found.near_future.value < 0.2 < 0.7 < found.futures[0].accuracy.value


def test_only_shifted_answers():
    labels = sticky(20_000, 0.9, 10, 0)
    log = shifted_log(labels, [64], 0)
    found = audit(log)
    assert math.isnan(found.values["online"])
    first = int(found.over_time["position"][0]) + 64
    scored = log["label"][first:] == log["prediction"][first:]
    assert found.near_future.value == pytest.approx(scored.mean())
    assert found.answer_shift == 64


@pytest.mark.parametrize("kind", ["plain", "shifts", "steps"])
def test_reading_in_pieces_changes_nothing(tmp_path, kind, monkeypatch):
    """A log too long to hold gives the same figures as one that is held."""
    from streamgauge.tables import base

    monkeypatch.setattr(base, "PIECE_ROWS", 1_500)
    labels = sticky(12_000, 0.9, 10, 0)
    columns = {"label": labels, "prediction": right_by_chance(labels, 0.8, 1)}
    if kind == "shifts":
        columns = shifted_log(labels, [0, 32, 256], 0)
    if kind == "steps":
        columns["step"] = np.cumsum(np.random.default_rng(0).random(12_000) < 0.2)
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table(columns), path)
    held = audit(path, windows=[1, 10, 100], shifts=[0, 4, 32, 256])
    pieces = audit(path, windows=[1, 10, 100], shifts=[0, 4, 32, 256], hold=5_000)
    assert any("read in pieces" in note for note in pieces.notes)
    np.testing.assert_array_equal(held.table, pieces.table)
    same = {"online", "near_future", "constant", "last_label", "samples", "classes",
            "kappa", "kappa_t"}  # fmt: skip
    for name in same:
        assert held.values[name] == pytest.approx(pieces.values[name], nan_ok=True), name
    # Among equally frequent labels, the window takes the most recent.
    assert held.values["majority"] == pytest.approx(pieces.values["majority"], abs=0.005)
    # In pieces, the family is only the windows; the rest of it chooses at least as well here.
    assert held.values["blind"] == pytest.approx(pieces.values["blind"], abs=0.01)
    np.testing.assert_allclose(held.choice.constant, pieces.choice.constant, atol=0.01)
    assert held.bits is not None
    if kind == "steps":
        assert pieces.bits is None
    else:
        assert pieces.bits is not None
        assert pieces.bits.to_dict() == held.bits.to_dict()
    with pytest.raises(StreamgaugeError, match="too many to sort"):
        audit({**columns, "time": np.arange(len(columns["label"]))}, sort=True, hold=5_000)


@pytest.mark.parametrize("ties", ["smallest", "evalocl"])
def test_tie_rules_and_steps_reach_the_table(ties):
    labels = np.random.default_rng(0).integers(3, 7, 2_000)
    found = audit({"label": labels}, step=7, ties=ties)
    first = int(found.over_time["position"][0])
    np.testing.assert_allclose(found.table, scored_table(labels, found, first, ties, 7))
    assert found.step == 7


def test_without_album_and_user_against_brute_force():
    rng = np.random.default_rng(0)
    n = 300
    users = np.repeat(rng.integers(0, 6, n // 3), 3)
    labels = rng.integers(0, 4, n)
    album = albums_of(users)
    for step in (1, 5):
        got = blind_without_album(labels, album, 3, step)
        asked, other = blind_without_user(labels, users, 3, step)
        np.testing.assert_array_equal(asked, np.arange(n))
        for j in range(n):
            known = min(j - j % step, int(np.flatnonzero(album == album[j])[0]))
            answer = -1 if known < 3 else int(mode_of(labels[known - 3 : known]) == labels[j])
            assert got[j] == answer
            past = [labels[i] for i in range(j - j % step) if users[i] != users[j]][-3:]
            answer = -1 if not past else int(mode_of(np.array(past)) == labels[j])
            assert other[j] == answer


@pytest.mark.parametrize("columns", [["user"], ["album"], ["user", "album"]])
def test_where_albums_come_from_is_said(columns):
    labels = sticky(2_000, 0.0, 3, 0)
    log = {"label": labels, "prediction": labels} | dict.fromkeys(columns, np.arange(2_000) // 5)
    text = " ".join(audit(log, shifts=[0]).words)
    assert "Without the labels of the same album" in text
    taken = "(the log has no albums: consecutive samples of one user are taken as an album)"
    assert (taken in text) == ("album" not in columns)


def mode_of(window):
    counts = {c: np.sum(window == c) for c in set(window.tolist())}
    return max(counts, key=lambda c: (counts[c], np.flatnonzero(window == c)[-1]))


def test_albums_explain_the_correlation():
    """Every user photographs one thing: without the same album nothing is left."""
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(2_000), 10)
    labels = np.repeat(rng.integers(0, 20, 2_000), 10)
    model = right_by_chance(labels, 0.6, 1)
    found = audit({"label": labels, "prediction": model, "user": users})
    assert found.blind.value > 0.85
    assert found.without.blind_album.value == pytest.approx(0.05, abs=0.03)
    assert found.without.blind_user.value == pytest.approx(0.05, abs=0.03)
    assert found.without.albums == pytest.approx(2_000, abs=120)
    assert found.without.online_first.low < 0.6 < found.without.online_first.high
    assert any("Without the labels of the same album" in s for s in found.words)


def test_neighbours_against_brute_force():
    rng = np.random.default_rng(0)
    n = 250
    x, labels, users = rng.normal(size=(n, 3)), rng.integers(0, 3, n), rng.integers(0, 4, n)
    scaled = (x - x[:50].mean(axis=0)) / x[:50].std(axis=0)
    for shift, step, who in [(0, 1, None), (5, 1, None), (0, 7, None), (0, 1, users)]:
        got = neighbour_accuracy(x, labels, (10, math.inf), shift=shift, step=step, users=who)
        for w, window in enumerate((10, n)):
            right = []
            for j in range(50 + shift, n):
                known = (j - shift) - (j - shift) % step
                near = [i for i in range(max(0, known - window), known)
                        if who is None or who[i] != who[j]]  # fmt: skip
                if near:
                    best = min(near, key=lambda i: np.sum((scaled[i] - scaled[j]) ** 2))
                    right.append(labels[best] == labels[j])
            assert got.levels[w].samples == len(right)
            assert got.levels[w].value == pytest.approx(np.mean(right))


def test_inputs_that_repeat():
    """Drifting inputs with drifting labels: the last inputs do as well as all of them."""
    rng = np.random.default_rng(0)
    labels = sticky(5_000, 0.98, 5, 0)
    tied = {"label": labels, "a": rng.normal(size=5_000) + 10 * labels, "b": rng.normal(size=5_000)}
    found = audit(tied, features=["a", "b"])
    assert found.neighbours["next sample"].levels[-1].value > 0.95
    noise = audit({"label": labels, "x": rng.normal(size=(5_000, 4))}, features=["x"])
    levels = noise.neighbours["next sample"].levels
    assert levels[0].value > levels[-1].value + 0.3
    assert any("recent inputs do better than all" in s for s in noise.words)
    with pytest.raises(StreamgaugeError, match="missing or infinite"):
        audit({"label": labels, "x": np.full(5_000, np.inf)}, features=["x"])


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("near_future < blind + 2pt", True),
        ("near_future<blind-20pt", False),
        ("online >= 90%", False),
        ("online > 0.8 and blind > 0.5", True),
        ("online > 0.9 or blind > 0.5 and shift == 3", True),
        ("online > 0.9 and blind > 0.5 or shift != 3", False),
        ("(online - blind) * 2 > 0.31", False),
        ("-online + 1 <= 15 pt / 1", True),
        ("blind > .5", True),
    ],
)
def test_conditions(condition, expected):
    values = {"near_future": 0.6, "blind": 0.7, "online": 0.85, "shift": 3.0, "none": math.nan}
    if condition.startswith("-online"):
        values["online"] = 0.9
    assert holds(condition, values) is expected


@pytest.mark.parametrize(
    ("condition", "word"),
    [
        ("online", "ends too early"),
        ("online <", "ends too early"),
        ("online < 2 < 3", "is unexpected"),
        ("(online < 2", "a \\) is missing"),
        ("online < 1 / 0", "divides by zero"),
        ("onlin < 1", "did you mean 'online'"),
        ("none < 1", "cannot be computed from this log; known values are online"),
        ("__import__('os') < 1", "is unknown"),
        ("online = 1", "is unknown"),
        ("online + 1", "ends too early"),
        ("online or 1 < 2", "a comparison"),
        ("* 2 < 1", "a number or a name"),
    ],
)
def test_bad_conditions(condition, word):
    with pytest.raises(StreamgaugeError, match=word):
        holds(condition, {"online": 0.5, "none": math.nan})


def test_command(tmp_path, capsys):
    labels = sticky(5_000, 0.9, 10, 0)
    path = tmp_path / "log.csv"
    rows = zip(labels, right_by_chance(labels, 0.5, 2), strict=True)
    path.write_text("label,prediction\n" + "".join(f"{a},{b}\n" for a, b in rows))
    report = tmp_path / "out" / "report.html"
    screen = Console(file=io.StringIO(), width=100)
    assert run_audit(path, report=report, console=screen) == 0
    shown = screen.file.getvalue()
    assert "label = 'label' (guessed)" in shown
    assert "The most frequent of the last labels" in shown
    assert "Bits per sample" in shown
    assert str(report) in shown.replace("\n", "")
    assert run_audit(path, fail_if="online < blind", as_json=True) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["gates"] == [{"fail_if": "online < blind", "fails": True}]
    assert answer["values"]["near_future"] is None
    assert answer["online"]["low"] < 0.5 < answer["online"]["high"]
    assert run_audit(path, fail_if=["online > 0.9", "blind > 1"], as_json=True) == 0
    with pytest.raises(StreamgaugeError, match="near_future cannot be computed"):
        run_audit(path, fail_if="near_future < blind", report=tmp_path / "none.html")
    assert not (tmp_path / "none.html").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(StreamgaugeError, match="Cannot write"):
        run_audit(path, report=tmp_path / "file" / "report.html", console=screen)


def test_page_holds_all_it_needs_and_escapes_names():
    labels = sticky(6_000, 0.9, 5, 0)
    columns = shifted_log(labels, [0, 64], 0)
    columns["</script><b>x"] = columns.pop("label")
    found = audit(columns, label="</script><b>x")
    page = audit_page(found, [("online < blind", True)]).render()
    assert "<b>x" not in page
    assert "the gate fails" in page
    # One library, and nothing fetched: no script, style or image from elsewhere.
    assert not re.search(r'<(script|link|img)[^>]+(src|href)="(?!data:,")', page)
    data = json.loads(re.search(r'id="figures">(.*)</script>', page)[1])
    names = [line.get("name") for figure in data for line in figure["data"]]
    assert "the model" in names
    assert "best blind classifier" in names
    assert all(f'data-figure="{i}"' in page for i in range(len(data)))


@pytest.mark.browser
@needs_browser
def test_page_in_a_browser(tmp_path):
    found = audit(shifted_log(sticky(60_000, 0.9, 5, 0), [0, 64, 256], 0))
    page = audit_page(found).write(tmp_path / "audit.html")
    browser = Browser()
    try:
        browser.open(page)
        assert browser.errors == []
        assert browser.requests == [page.resolve().as_uri()]
        drawn = browser.run("[...document.querySelectorAll('.plot')].map((p) => p.data.length)")
        assert len(drawn) == 6
        names = browser.run(
            "[...document.querySelectorAll('.legendtext')].map((t) => t.textContent)"
        )
        assert "predicted by past labels" in names
        ticks = "[...document.querySelectorAll('.plot')[4].querySelectorAll('.xtick')]"
        assert browser.run(f"{ticks}.map((t) => t.textContent)")[0] == "0"
        # A name has one colour in all figures.
        colours = browser.run(
            "[...document.querySelectorAll('.plot')].flatMap((p) => p.data.filter((t) => t.name ==="
            " 'best blind classifier').map((t) => t.line.color))"
        )
        assert len(colours) == 2
        assert len(set(colours)) == 1
    finally:
        browser.close()


def test_durations_as_shifts():
    rng = np.random.default_rng(0)
    times = np.sort(rng.integers(0, 3_600 * 1_000, 10_000))
    labels = rng.integers(0, 10, 1_000)[times // 3_600]
    found = audit({"label": labels, "time": times}, shifts=["10min", "2h", "1d"])
    assert found.choice.unit == "seconds"
    assert found.choice.low == 600
    assert found.choice.estimate <= 7_200
    assert any("1 day" in s for s in found.words)
    with pytest.raises(StreamgaugeError, match="no times"):
        audit({"label": labels}, shifts=["1h"])


def test_levels_need_blocks():
    assert level_from_answers(np.zeros(0, bool)).samples == 0
    assert math.isnan(level_from_answers(np.ones(1, bool)).low)
    # Runs of one hundred right, one hundred wrong: the interval must be far wider than for coins.
    found = level_from_answers(np.tile(np.repeat([True, False], 100), 50), burst=100)
    assert found.low < 0.5 < found.high


def test_what_is_not_known_is_not_a_number():
    """Answers in the first tenth only: nothing to score where the blind classifier is scored."""
    labels = sticky(1_000, 0.5, 3, 0)
    guess = np.where(np.arange(1_000) < 100, labels, np.nan)
    found = audit({"label": labels, "prediction": guess})
    assert math.isnan(found.online_scored)
    # A hundred answers without a mistake do not prove that there will be none.
    assert found.online.value == 1
    assert math.isnan(found.online.low)


def honest(labels, right, seed):
    rng = np.random.default_rng(seed)
    return np.where(rng.random(labels.size) < right, labels, rng.integers(0, 10, labels.size))


@pytest.mark.parametrize(("first", "step"), [(48, 1), (0, 1), (50, 10)])
def test_rows_at_a_shift_are_matched_with_their_samples(first, step):
    """They begin with sample S, with the next step, or with the first sample."""
    labels = sticky(3000, 0.9, 10, 0)
    answers, later = honest(labels, 0.7, 1), honest(labels, 0.7, 2)
    log = {
        "label": np.concatenate([labels, labels[first:]]),
        "prediction": np.concatenate([answers, later[first:]]),
        "shift": np.repeat([0, 48], [labels.size, labels.size - first]),
    }
    found = audit(log, step=step)
    assert dict(found.bits_at)[48].added.value > 1.4
    thinned = np.concatenate([np.arange(3000), np.arange(3000, 6000 - first, 2)])
    part = audit({name: column[thinned] for name, column in log.items()}, step=step)
    assert not part.bits_at
    assert any("rows at shift 48 are not consecutive" in note for note in part.notes)


def test_log_probabilities_of_the_answers_are_refused():
    labels = sticky(2000, 0.9, 10, 0)
    log = {"label": labels, "prediction": np.roll(labels, 1), "logp": np.full(2000, -0.1)}
    with pytest.raises(StreamgaugeError, match="log-probability of the true label"):
        audit(log)
    right = log["prediction"] == labels
    assert audit(log | {"logp": np.where(right, -0.1, np.log(0.09 / 9))}).answer != "yes"


def test_log_probabilities_alone_are_answers():
    labels = np.random.default_rng(0).integers(0, 4, 2000)
    found = audit({"label": labels, "logp": np.full(2000, np.log(0.9))})
    assert found.answer == "yes"
    assert not any("no predictions" in words for words in found.words)


def test_predictions_in_the_first_fifth_only():
    labels = sticky(4000, 0.9, 10, 0)
    answers = honest(labels, 0.7, 1).astype(float)
    answers[600:] = np.nan
    found = audit({"label": labels, "prediction": answers})
    assert found.predictions == 600
    assert math.isnan(found.values["majority"])
    text = " ".join(found.words)
    assert "no predictions" not in text
    assert "It gave no answer after the first fifth" in text


def test_predicted_classes_that_are_no_label_are_named():
    labels = np.random.default_rng(0).choice(["ok", "bad"], 1000)
    found = audit({"label": labels, "prediction": np.where(labels == "ok", "OK", "bad")})
    assert any("only in upper and lower case ('OK')" in note for note in found.notes)


def test_too_many_windows_are_refused():
    labels = sticky(2000, 0.9, 10, 0)
    with pytest.raises(StreamgaugeError, match="59 windows are too many"):
        audit({"label": labels}, windows=[*range(1, 59)])
