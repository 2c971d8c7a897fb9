"""Generated streams: the same everywhere, and as their closed forms say."""

from __future__ import annotations

import hashlib
import itertools
import time
import tracemalloc
from bisect import bisect_right
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgauge.errors import StreamgaugeError
from streamgauge.streams import Stream
from streamgauge.streams.named import _generate, albums, blobs, markov
from streamgauge.streams.named._generate import Chain

patient = settings(deadline=None)  # other work on the machine is no failure


def words_of(seed: int, purpose: int, count: int) -> list[int]:
    made: list[int] = _generate.words(seed, purpose).random_raw(count).tolist()
    return made


# --- the same on every machine ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "config", "pinned"),
    [
        (
            markov,
            markov.Config(length=300_000, rho=0.5, skew=0.7),
            "ad9d3e32e85dd36ee1ed796f74f1a8c0",
        ),
        (albums, albums.Config(), "4960882a958b2174e4070b898150a827"),
        (
            albums,
            albums.Config(length=700, classes=300, size=5, seed=3, drift=0.3),
            "a4325692ae2ce5bc08a17a843e8d4e0b",
        ),
        (blobs, blobs.Config(), "466e4c388f93709790fd3754ea4ac98d"),
        (blobs, blobs.Config(size=5, domains=3, seed=7), "69ee025849dc498c7aa1f2ea7c23bb78"),
    ],
)
def test_bytes_are_pinned(module: Any, config: Any, pinned: str) -> None:
    stream = module.build(config)
    source = stream.source
    digest = hashlib.sha256(source.read(np.arange(len(source))).tobytes())
    digest.update(source.label.astype("<i8").tobytes())
    for name in sorted(source.columns):
        digest.update(source.columns[name].astype("<f8").tobytes())
    assert digest.hexdigest()[:32] == pinned
    assert stream.settings == vars(config)
    other = module.build(replace(config, seed=config.seed + 1))
    assert other.source.fingerprint != source.fingerprint
    assert module.build(config).source.fingerprint == source.fingerprint


def test_the_words_of_the_generator_are_pinned() -> None:
    assert words_of(0, 100, 2) == [11960154304382168097, 4292958911375783932]


# --- draws --------------------------------------------------------------------------------------


@patient
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_every_number_is_drawn_as_often_as_its_weight_says(weight: list[int]) -> None:
    raw = np.arange(sum(weight), dtype=np.uint64)
    drawn = _generate.draw(raw, np.array(weight))
    assert np.bincount(drawn, minlength=len(weight)).tolist() == weight
    again = _generate.draw(raw + np.uint64(7 * sum(weight)), np.array(weight))
    assert again.tolist() == drawn.tolist()


@patient
@given(
    weight=st.lists(st.integers(1, 9), min_size=3, max_size=6),
    raw=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=30),
)
def test_neighbours_differ(weight: list[int], raw: list[int]) -> None:
    drawn = _generate.draw_unlike_neighbours(np.array(raw, np.uint64), np.array(weight))
    assert len(drawn) == len(raw)
    assert (drawn[1:] != drawn[:-1]).all()
    assert drawn.min() >= 0
    assert drawn.max() < len(weight)


@patient
@given(weight=st.lists(st.integers(1, 9), min_size=3, max_size=5), data=st.data())
def test_between_two_neighbours_the_rest_is_drawn_by_weight(
    weight: list[int], data: st.DataObject
) -> None:
    before, after = (data.draw(st.integers(0, len(weight) - 1)) for _ in range(2))
    left = {c: w for c, w in enumerate(weight) if c not in (before, after)}
    starts = np.append(0, np.cumsum(weight))
    seen = [
        int(
            _generate.draw_unlike_neighbours(
                np.array([starts[before], word, starts[after]], np.uint64), np.array(weight)
            )[1]
        )
        for word in range(sum(left.values()))
    ]
    assert {c: seen.count(c) for c in left} == left


def test_weights_are_whole_long_tailed_and_never_zero() -> None:
    assert set(_generate.weights(7, 0.0).tolist()) == {2**20}
    assert _generate.weights(3, 1.0).tolist() == [2**20, 2**19, 2**20 // 3]
    assert _generate.weights(100_000, 1000.0).min() == 1


def test_noise_is_two_dice() -> None:
    made = _generate.noise(_generate.words(0, 1), 500, 9).astype(np.int8).ravel()
    expected = np.convolve(np.ones(32), np.ones(32)) / 1024
    counts = np.bincount(made + 31, minlength=63)
    assert len(counts) == 63
    assert np.exp(albums._LOG_NOISE) == pytest.approx(expected)
    chi_square = np.sum((counts - made.size * expected) ** 2 / (made.size * expected))
    assert chi_square < 62 + 4 * np.sqrt(2 * 62)


@pytest.mark.parametrize("size", [1, 2, 3, 8, 16, 31])
def test_scenes_interpolate_between_the_points_of_a_grid(size: int) -> None:
    made = _generate.scenes(_generate.words(5, 1), 2, size)
    grid = np.array([55 + word % 146 for word in words_of(5, 1, 2 * 3 * 16)]).reshape(2, 3, 4, 4)
    assert made.shape == (2, 3, size, size)
    for image, channel, row, column in itertools.product(
        range(2), range(3), range(size), range(size)
    ):
        down, right = (row + 0.5) / size * 3, (column + 0.5) / size * 3
        i, j = int(down), int(right)
        a, b = down - i, right - j
        corner = grid[image, channel, i : i + 2, j : j + 2]
        value = (1 - a) * ((1 - b) * corner[0, 0] + b * corner[0, 1]) + a * (
            (1 - b) * corner[1, 0] + b * corner[1, 1]
        )
        assert made[image, channel, row, column] == pytest.approx(value - 0.5, abs=0.5 + 1e-6)


# --- the chain's closed forms -------------------------------------------------------------------

chains = st.builds(
    lambda weight, stay: Chain(np.array(weight) / sum(weight), stay),
    st.lists(st.integers(1, 20), min_size=1, max_size=5),
    st.floats(0, 0.99),
)


def transition(chain: Chain, gap: int) -> np.ndarray:
    """Written out and multiplied: from any class to any other in one step, `gap` times."""
    classes = len(chain.p)
    once = np.array(
        [
            [chain.stay * (a == b) + (1 - chain.stay) * chain.p[b] for b in range(classes)]
            for a in range(classes)
        ]
    )
    return np.linalg.matrix_power(once, gap)


@patient
@given(chain=chains, shift=st.integers(0, 9), step=st.integers(1, 6))
def test_blind_accuracies_equal_those_of_the_transition_matrix(
    chain: Chain, shift: int, step: int
) -> None:
    last, best = [], []
    for place in range(step):
        matrix = transition(chain, shift + 1 + place)
        last.append(sum(chain.p[c] * matrix[c, c] for c in range(len(chain.p))))
        best.append(sum(chain.p[c] * matrix[c].max() for c in range(len(chain.p))))
    assert chain.blind_accuracy(shift, step) == pytest.approx(np.mean(last))
    assert chain.best_blind_accuracy(shift, step) == pytest.approx(np.mean(best))
    assert chain.best_blind_accuracy(shift, step) >= chain.unlimited_history - 1e-12


@patient
@given(chain=chains, margin=st.floats(1e-4, 0.5))
def test_the_true_shift_is_the_first_below_the_margin(chain: Chain, margin: float) -> None:
    excess = 1 - sum(share**2 for share in chain.p)
    shift = next(s for s in range(10_000) if excess * chain.stay ** (s + 1) < margin)
    assert chain.true_shift(margin) == shift


@patient
@given(chain=chains, margin=st.floats(1e-4, 0.5))
def test_the_blind_shift_is_the_first_of_no_use(chain: Chain, margin: float) -> None:
    excess = [chain.best_blind_accuracy(s) - chain.p.max() for s in range(1200)]
    shift = next(s for s, over in enumerate(excess) if over < margin)
    assert abs(chain.blind_shift(margin) - shift) <= (abs(excess[shift] - margin) < 1e-12)
    assert all(over < margin + 1e-12 for over in excess[shift:])


def test_the_two_shifts_agree_where_classes_are_equally_frequent() -> None:
    for rho in (0.0, 0.5, 0.9, 0.99):
        config = markov.Config(rho=rho)
        assert markov.blind_shift(config) == markov.true_shift(config)
    skewed = albums.Config()
    assert albums.blind_shift(skewed) < albums.true_shift(skewed)


def test_the_true_shift_of_a_long_memory_is_found_at_once() -> None:
    chain = Chain(np.array([0.5, 0.5]), 1 - 1e-9)
    assert chain.true_shift(0.005) == pytest.approx(4.6e9, rel=0.01)


# --- markov -------------------------------------------------------------------------------------


def slow_markov(config: markov.Config) -> list[int]:
    """One label after the other."""
    weight = [max(1, int(2**20 / (1 + config.skew * r))) for r in range(config.classes)]
    edges = list(itertools.accumulate(weight))
    choices = iter(words_of(config.seed, 101, config.length))
    labels: list[int] = []
    for move in words_of(config.seed, 100, config.length):
        if labels and (move >> 11) / 2**53 < config.rho:
            labels.append(labels[-1])
        else:
            labels.append(bisect_right(edges, next(choices) % edges[-1]))
    return labels


@pytest.mark.parametrize(
    ("length", "rho"), [(1, 0.8), (2, 0.8), (1000, 0.8), (1000, 0.0), ((1 << 18) + 50, 0.9999)]
)
def test_markov_is_the_chain(length: int, rho: float) -> None:
    config = markov.Config(length=length, classes=7, rho=rho, skew=0.5, seed=1)
    stream = markov.build(config)
    assert stream.source.label.tolist() == slow_markov(config)
    assert stream.order.tolist() == list(range(length))


@pytest.mark.parametrize(("classes", "bytes_each"), [(1, 1), (256, 1), (257, 2), (70_000, 4)])
def test_labels_take_the_smallest_type(classes: int, bytes_each: int) -> None:
    stream = markov.build(markov.Config(length=50, classes=classes))
    assert stream.source.label.itemsize == bytes_each
    assert stream.spec.classes == classes


def test_markov_has_nothing_to_look_at() -> None:
    stream = markov.build(markov.Config(length=25))
    assert stream.spec.input_shape == (0,)
    shapes = [stream.source.read(stream.index(step)).shape for step in range(len(stream))]
    assert shapes == [(10, 0), (10, 0), (5, 0)]


def test_a_long_label_stream_costs_its_labels() -> None:
    config = markov.Config(length=4_000_000, rho=0.5)
    tracemalloc.start()
    markov._labels(config)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * 4_000_000 + 24 * (1 << 20)  # labels, where they change, and one piece


def last_label_right(y: np.ndarray, shift: int, step: int) -> np.ndarray:
    """Target by target, by hand: the last label before the step in which target − shift lies."""
    right = []
    for target in range(shift + step, len(y)):
        begin = (target - shift) // step * step
        right.append(y[begin - 1] == y[target])
    return np.array(right)


def standard_error(right: np.ndarray, block: int = 500) -> float:
    """Neighbours are not independent; blocks much longer than an album nearly are."""
    whole = right[: len(right) // block * block].reshape(-1, block).mean(axis=1)
    return float(whole.std(ddof=1) / np.sqrt(len(whole)))


@pytest.mark.parametrize(
    ("module", "config"),
    [
        (markov, markov.Config(rho=0.9)),
        (markov, markov.Config(rho=0.0, skew=2.0)),
        (markov, markov.Config(rho=0.6, classes=40, skew=1.0)),
        (albums, albums.Config(length=100_000, size=0, held_out=0.0)),
        (albums, albums.Config(length=100_000, size=0, album_length=3.0, skew=0.0)),
    ],
)
def test_repeating_the_last_label_is_worth_what_the_formula_says(module: Any, config: Any) -> None:
    y = module.build(config).source.label
    for shift, step in [(0, 1), (3, 1), (0, 10), (20, 10), (7, 4)]:
        right = last_label_right(y, shift, step)
        expected = module.blind_accuracy_truth(config, shift, step)
        assert abs(right.mean() - expected) < 4 * standard_error(right)
    often = np.cumsum(np.eye(config.classes)[y], axis=0).argmax(axis=1)  # the mode so far
    right = (often[:-1] == y[1:])[len(y) // 2 :]
    expected = module.unlimited_history_truth(config)
    assert abs(right.mean() - expected) < 4 * standard_error(right) + 0.002
    assert module.true_shift(config) == module.truth(config).true_shift(0.005)


# --- albums -------------------------------------------------------------------------------------

SMALL = albums.Config(length=900, classes=6, users=20, size=4, album_length=6.0)


def test_an_album_is_one_user_at_one_place() -> None:
    stream = albums.build(albums.Config(length=50_000, size=0))
    label, user, when = (
        stream.source.label,
        stream.source.columns["user"],
        stream.source.columns["time"],
    )
    edge = user[1:] != user[:-1]
    assert not (label[1:] != label[:-1])[~edge].any()
    assert (label[1:] == label[:-1])[edge].any()  # two users may come to one place
    gap = np.diff(when)
    assert gap[~edge].min() >= 1
    assert gap[~edge].max() <= 120
    assert gap[edge].min() >= 900
    assert len(label) / (edge.sum() + 1) == pytest.approx(8.0, rel=0.05)
    # The end of an album does not depend on its age: geometric lengths.
    length = np.diff(np.flatnonzero(np.concatenate([[True], edge, [True]])))
    for at_least in (1, 5, 10, 20):
        assert (length > at_least).mean() == pytest.approx((7 / 8) ** at_least, abs=0.02)
    counts = np.bincount(user)
    assert counts.max() / len(user) > 0.05  # long-tailed users
    assert np.median(counts) < counts.mean() / 2


def test_classes_follow_their_long_tail() -> None:
    stream = albums.build(albums.Config(length=400_000, size=0, places=False))
    share = np.bincount(stream.source.label, minlength=20) / 400_000
    truth = albums.truth(albums.Config()).p
    assert truth[0] / truth[9] == pytest.approx(10, rel=1e-3)
    assert share == pytest.approx(truth, abs=0.01)


def test_places_lie_around_their_centres() -> None:
    stream = albums.build(SMALL)
    centre = albums.class_centres(SMALL)[stream.source.label]
    where = np.stack([stream.source.columns["latitude"], stream.source.columns["longitude"]], 1)
    assert np.abs(where - centre).max() < 0.0501
    assert np.abs(where - centre).max() > 0.04
    assert np.abs(where[:, 0]).max() <= 61
    assert np.abs(where[:, 1]).max() <= 180
    without = albums.build(replace(SMALL, places=False))
    assert set(without.source.columns) == {"time", "user"}
    assert (without.source.read(np.arange(900)) == stream.source.read(np.arange(900))).all()


def test_a_stream_without_images_has_the_same_labels() -> None:
    with_images, without = albums.build(SMALL), albums.build(replace(SMALL, size=0))
    assert without.spec.input_shape == (0,)
    assert (without.source.label == with_images.source.label).all()
    assert (without.order == with_images.order).all()


def shown_of(config: albums.Config) -> np.ndarray:
    """Which scene each photo shows, by the scenes themselves: the nearest, casts removed."""
    stream = albums.build(config)
    x = stream.source.read(np.arange(config.length)).astype(float)
    scenery = albums._Scenery(config)
    shown = []
    for number, image in enumerate(x):
        scene = scenery.at(number * albums.SLOTS // config.length).astype(float)
        rest = image - scene
        rest -= rest.mean(axis=(2, 3), keepdims=True)
        shown.append((rest**2).sum(axis=(1, 2, 3)).argmin())
    return np.array(shown)


def test_a_photo_is_scene_plus_cast_of_its_album_plus_bounded_noise() -> None:
    config = albums.Config(length=3000)
    stream = albums.build(config)
    x = stream.source.read(np.arange(config.length)).astype(np.int64)
    shown = shown_of(config)
    on_topic = shown == stream.source.label
    pi = albums.truth(config).collision
    assert on_topic.mean() == pytest.approx(0.9 + 0.1 * pi, abs=4 * np.sqrt(0.09 / 3000))
    scenery, user = albums._Scenery(config), stream.source.columns["user"]
    album = np.cumsum(np.append(0, user[1:] != user[:-1]))
    scene = np.stack(
        [scenery.at(n * albums.SLOTS // 3000)[d].astype(np.int64) for n, d in enumerate(shown)]
    )
    rest = (x - scene).reshape(3000, 3, -1)
    cast = 24 * np.rint(rest.mean(axis=2) / 24)
    assert np.abs(rest - cast[:, :, None]).max() == 31
    for number in range(album[-1] + 1):  # one cast an album
        assert len(np.unique(cast[album == number], axis=0)) == 1
    used = np.unique(cast, axis=0)
    assert len(used) > 20
    assert set(used.ravel().tolist()) == {-24.0, 0.0, 24.0}


def test_scenes_move_slowly_and_only_in_their_share() -> None:
    for drift in (0.0, 0.5, 1.0):
        scenery = albums._Scenery(albums.Config(drift=drift))
        film = np.stack([scenery.at(slot) for slot in range(albums.SLOTS)]).astype(float)
        assert film.min() >= 55
        assert film.max() <= 200
        by_step = np.abs(np.diff(film, axis=0)).max()
        over_all = np.abs(film[-1] - film[0]).mean()
        assert by_step <= 146 * 4 / albums.SLOTS * drift + 1.01 * (drift > 0)
        assert over_all == pytest.approx(drift * 37, rel=0.35)
    still = albums._Scenery(albums.Config(key_frames=1))
    assert (still.at(0) == still.at(127)).all()


def test_twenty_thousand_photos_take_less_than_a_second() -> None:
    begin = time.process_time()
    albums.build(albums.Config(length=20_000))
    assert time.process_time() - begin < 1


# --- what can be known at all -------------------------------------------------------------------


def known_by_hand(stream: Stream, place: int, shift: int) -> int | None:
    """The address of the last label revealed before the step in which place − shift lies."""
    if place - shift < 0:
        return None
    for step in range(len(stream)):
        if stream.starts[step] <= place - shift < stream.starts[step + 1]:
            before = [*stream.preparation.tolist(), *stream.order[: stream.starts[step]].tolist()]
            return before[-1] if before else None
    raise AssertionError


def posterior_by_hand(stream: Stream, config: albums.Config, place: int, shift: int | None) -> Any:
    """Bayes' rule in exact fractions: every label, every scene shown, all 27 casts."""
    weight = [max(1, int(2**20 / (1 + config.skew * r))) for r in range(config.classes)]
    p = [Fraction(w, sum(weight)) for w in weight]
    q = Fraction(config.off_topic)
    address = int(stream.order[place])
    image = stream.source.read(np.array([address]))[0].astype(int)
    scene = albums._Scenery(config).at(address * albums.SLOTS // config.length).astype(int)

    def density(d: int) -> Fraction:
        total = Fraction(0)
        for casts in itertools.product((-24, 0, 24), repeat=3):
            chance = Fraction(1, 27)
            for channel, cast in enumerate(casts):
                for value in (image[channel] - scene[d, channel] - cast).ravel().tolist():
                    chance *= Fraction(max(0, 32 - abs(value)), 1024)
            total += chance
        return total

    shows = [density(d) for d in range(config.classes)]
    last = None if shift is None else known_by_hand(stream, place, shift)
    joint = []
    for c in range(config.classes):
        prior = p[c]
        if last is not None:
            kept = (1 - 1 / Fraction(config.album_length)) ** (address - last)
            prior = kept * (c == stream.source.label[last]) + (1 - kept) * p[c]
        off = sum(p[d] * shows[d] for d in range(config.classes))
        joint.append(prior * ((1 - q) * shows[c] + q * off))
    return joint


@pytest.mark.parametrize("shift", [None, 0, 3])
@pytest.mark.parametrize("preparation", [0.0, 0.2])
def test_the_oracle_is_bayes_rule_written_out(shift: int | None, preparation: float) -> None:
    config = albums.Config(
        length=70,
        classes=4,
        size=1,
        off_topic=0.25,
        album_length=4.0,
        batch=4,
        held_out=0.1,
        preparation=preparation,
        seed=1,
    )
    stream = albums.build(config)
    prediction = albums.oracle(stream, shift)
    assert len(prediction) == stream.samples
    unsure = 0
    for place in range(stream.samples):
        joint = posterior_by_hand(stream, config, place, shift)
        assert float(joint[prediction[place]]) == pytest.approx(float(max(joint)), rel=1e-9)
        unsure += float(max(joint)) < 0.9 * float(sum(joint))
    assert unsure > 10  # the case is not trivial


def last_known_labels(stream: Stream, shift: int) -> np.ndarray:
    known = [known_by_hand(stream, place, shift) for place in range(stream.samples)]
    return np.array([-1 if k is None else int(stream.source.label[k]) for k in known])


@pytest.mark.parametrize("size", [1, 2, 8])
def test_nothing_beats_the_oracle(size: int) -> None:
    config = albums.Config(
        length=3000, classes=8, size=size, album_length=5.0, off_topic=0.2, held_out=0.1, batch=5
    )
    stream = albums.build(config)
    label = stream.source.label[stream.order]
    x = stream.source.read(stream.order).astype(float)
    scenery = albums._Scenery(config)
    scene = np.stack(
        [scenery.at(int(n)) for n in stream.order.astype(np.int64) * albums.SLOTS // 3000]
    ).astype(float)
    rest = x[:, None] - scene
    near = (rest**2).sum(axis=(2, 3, 4))
    p = albums.truth(config).p
    image_only = {
        "nearest scene": near.argmin(axis=1),
        "nearest with prior": (near / (2 * 13.1**2) - np.log(p)).argmin(axis=1),
        "nearest, cast removed": ((rest - rest.mean(axis=(3, 4), keepdims=True)) ** 2)
        .sum(axis=(2, 3, 4))
        .argmin(axis=1)
        if size > 1
        else near.argmin(axis=1),
        "commonest": np.zeros(len(label), int),
    }
    last = last_known_labels(stream, 0)
    online = {
        **image_only,
        "image alone": albums.oracle(stream),
        "last label": last,
        "last label if near": np.where(
            near[np.arange(len(label)), np.maximum(last, 0)] < 2 * near.min(axis=1),
            last,
            near.argmin(axis=1),
        ),
    }
    for rivals, shift in ((image_only, None), (online, 0)):
        best = albums.oracle(stream, shift) == label
        assert best.mean() <= albums.ceiling(stream, shift) + 3 * np.sqrt(0.25 / len(label))
        for name, rival in rivals.items():
            lead = best.astype(float) - (rival == label)
            assert lead.mean() > -3 * lead.std() / np.sqrt(len(lead)) - 1e-12, name


@pytest.mark.parametrize("shift", [None, 0, 10, 100])
def test_the_default_oracle_reaches_its_ceiling(shift: int | None) -> None:
    for seed in range(2):
        stream = albums.build(albums.Config(seed=seed))
        right = albums.oracle(stream, shift) == stream.source.label[stream.order]
        ceiling = albums.ceiling(stream, shift)
        assert right.mean() == pytest.approx(ceiling, abs=4 * np.sqrt(0.08 / stream.samples))
    pi = albums.truth(albums.Config()).collision
    assert albums.ceiling(stream) == pytest.approx(1 - 0.1 + 0.1 * pi)


@pytest.mark.parametrize(("off_topic", "shift"), [(0.1, 0), (0.6, 0), (0.9, 4), (1.0, None)])
def test_the_ceiling_is_the_sum_over_all_that_can_happen(off_topic: float, shift: Any) -> None:
    config = albums.Config(
        length=60, classes=3, size=0, off_topic=off_topic, album_length=3.0, held_out=0.2, batch=4
    )
    stream, p, total = albums.build(config), albums.truth(config).p, 0.0
    for place in range(stream.samples):
        last = None if shift is None else known_by_hand(stream, place, shift)
        kept = 0.0 if last is None else (2 / 3) ** (int(stream.order[place]) - last)
        for was, shown in itertools.product(range(3), range(3)):
            prior = [kept * (c == was) + (1 - kept) * p[c] for c in range(3)]
            total += p[was] * max(
                prior[c] * ((1 - off_topic) * (c == shown) + off_topic * p[shown]) for c in range(3)
            )
    assert albums.ceiling(stream, shift) == pytest.approx(total / stream.samples)


@pytest.mark.parametrize("shift", [0, 4, 10])
@pytest.mark.parametrize("preparation", [0.0, 0.1])
def test_held_out_photos_leave_gaps_that_the_expectation_knows(
    shift: int, preparation: float
) -> None:
    config = albums.Config(length=30_000, size=0, held_out=0.2, preparation=preparation)
    stream = albums.build(config)
    last = albums._last_known(stream, shift)
    for place in (0, 3, 9, 10, 11, 57, 400):
        by_hand = known_by_hand(stream, place, shift)
        assert last[place] == (-1 if by_hand is None else by_hand)
    label = stream.source.label
    right = (label[last] == label[stream.order])[last >= 0]
    expected = albums.blind_accuracy_expected(stream, shift)
    assert abs(right.mean() - expected) < 4 * standard_error(right)
    assert expected < albums.blind_accuracy_truth(config, shift, step=10) - 0.005
    whole = albums.build(replace(config, held_out=0.0))
    assert albums.blind_accuracy_expected(whole, shift) == pytest.approx(
        albums.blind_accuracy_truth(config, shift, step=10), abs=1e-3
    )


# --- blobs --------------------------------------------------------------------------------------


def test_blobs_arrive_class_by_class() -> None:
    stream = blobs.build(blobs.Config())
    assert stream.spec == ((3, 8, 8), 10)
    assert np.bincount(stream.source.label).tolist() == [200] * 10
    assert stream.tasks == 5
    assert stream.task is not None
    for number in range(5):
        steps = np.flatnonzero(stream.task == number)
        seen = {c for t in steps for c in stream.source.label[stream.index(t)].tolist()}
        assert len(seen) == 2
    held = stream.splits["held_out"]
    assert held.task is not None
    assert np.bincount(held.task).tolist() == [40] * 5


@pytest.mark.parametrize("domains", [1, 4])
def test_blobs_are_told_apart_by_their_patterns(domains: int) -> None:
    config = blobs.Config(domains=domains)
    stream = blobs.build(config)
    x = stream.source.read(np.arange(2000))
    assert (blobs.nearest_prototype(config, x) == stream.source.label).mean() > 0.999


def test_domains_are_colour_casts_in_equal_parts() -> None:
    config = blobs.Config(domains=4, order="domains")
    stream = blobs.build(config)
    domain, x = stream.source.columns["domain"], stream.source.read(np.arange(2000)).astype(int)
    rest = x - blobs.prototypes(config)[stream.source.label].astype(int)
    assert np.bincount(domain).tolist() == [500] * 4
    casts = set()
    for number in range(4):
        mean = rest[domain == number].mean(axis=(0, 2, 3))
        casts.add(tuple((24 * np.rint(mean / 24)).astype(int)))
        assert np.abs(rest[domain == number] - 24 * np.rint(mean / 24)[:, None, None]).max() == 31
    assert len(casts) == 4
    assert stream.tasks == 4
    assert "domain" not in blobs.build(blobs.Config()).source.columns


def test_no_two_domains_share_a_cast() -> None:
    assert len(np.unique(blobs._casts(blobs.Config(domains=27)), axis=0)) == 27


# --- bad settings -------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**40), length=st.integers(1, 40), classes=st.integers(1, 5))
def test_small_streams_of_any_seed_can_be_built(seed: int, length: int, classes: int) -> None:
    stream = albums.build(
        albums.Config(length=length, classes=classes, size=2, seed=seed, held_out=0.0)
    )
    assert (albums.oracle(stream, 0) < classes).all()


@pytest.mark.parametrize(
    ("module", "wrong", "sentence"),
    [
        (markov, {"length": 0}, "stream is empty: length is 0"),
        (markov, {"rho": 1.0}, "rho is a probability"),
        (markov, {"rho": float("nan")}, "rho is a probability"),
        (markov, {"classes": 0}, "at least one class"),
        (markov, {"skew": -1.0}, "skew must be between 0"),
        (markov, {"seed": -1}, "seed is a whole number from 0 on"),
        (markov, {"order": "time"}, "needs a column 'time'"),
        (albums, {"length": 0}, "stream is empty: length is 0"),
        (albums, {"users": 2}, "three users or more, not 2"),
        (albums, {"album_length": 0.5}, "album_length is 0.5"),
        (albums, {"album_length": float("nan")}, "album_length is nan"),
        (albums, {"off_topic": 1.5}, "off_topic must be between 0 and 1"),
        (albums, {"drift": -0.5}, "drift must be between 0 and 1"),
        (albums, {"key_frames": 0}, "one key frame or more, not 0"),
        (albums, {"size": -1}, "not -1"),
        (albums, {"classes": 0}, "at least one class"),
        (blobs, {"per_class": 0}, "stream is empty: 10 classes of 0 samples"),
        (blobs, {"size": 0}, "one pixel per side or more"),
        (blobs, {"domains": 28}, "from 1 to 27 domains, not 28"),
        (blobs, {"tasks": 11}, "10 classes cannot be divided into 11 tasks"),
    ],
)
def test_a_wrong_setting_gets_a_sentence(module: Any, wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(StreamgaugeError, match=sentence):
        module.build(module.Config(**wrong))


def test_what_has_no_closed_form_says_so() -> None:
    for stream in (
        albums.build(replace(SMALL, step="album")),
        albums.build(replace(SMALL, order="iid")),
    ):
        assert albums.oracle(stream).shape == (stream.samples,)  # the image alone is fine
        for ask in (albums.oracle, albums.ceiling, albums.blind_accuracy_expected):
            with pytest.raises(StreamgaugeError, match="only for steps of a fixed batch"):
                ask(stream, 0)
    with pytest.raises(StreamgaugeError, match="no oracle without images"):
        albums.oracle(albums.build(replace(SMALL, size=0)))
    with pytest.raises(StreamgaugeError, match="A shift is a number of samples from 0 on"):
        albums.oracle(albums.build(SMALL), -1)
    with pytest.raises(StreamgaugeError, match="Only the stream 'albums' has an oracle"):
        albums.oracle(markov.build(markov.Config(length=50)))
    with pytest.raises(StreamgaugeError, match="margin must be above 0"):
        markov.true_shift(markov.Config(), 0.0)
