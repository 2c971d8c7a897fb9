"""Photos in albums: users, locations, drifting scenes. Blind and best accuracy are known.

A user takes photos at one location, an album, until it ends (after each photo with probability
1 / album_length); then another user goes on, at a location drawn afresh from a long-tailed
distribution p. So labels are a stay-or-redraw chain with stay = 1 − 1/album_length.

A photo is the scene of its location, which changes slowly over the stream, plus the album's colour
cast (per channel −24, 0 or 24), plus triangular noise per pixel from −31 to 31. With probability
`off_topic` it shows the scene of a location drawn from p instead of its own. Nothing is clipped,
so the probability of every byte is known, and with it the best possible prediction (`oracle`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

import numpy as np

from streamgauge.errors import StreamgaugeError
from streamgauge.streams.named import _generate as generate
from streamgauge.streams.named._generate import Bytes, Floats
from streamgauge.streams.source import Array, ArraySource, IntArray, pieces
from streamgauge.streams.stream import Arrangement, Stream, arrange

# Which draws a generator is for.
_MOVES, _CLASSES, _USERS, _STYLES, _GAPS, _PLACES, _JITTER, _SCENES, _SHOWN, _OTHER, _NOISE = range(
    200, 211
)
SLOTS = 128  # scenes move in this many small steps from the first photo to the last
_EPOCH = 1_072_915_200  # the first of January 2004, where CLOC's photos begin
# Logarithm of the noise's probabilities by value + 31.
_LOG_NOISE = np.log(32.0 - np.abs(np.arange(-generate.NOISE, generate.NOISE + 1))) - np.log(1024.0)


@dataclass(frozen=True)
class Config(Arrangement):
    """Settings of the photo stream. Why the defaults are what they are: docs/streams.md."""

    order: Literal["given", "time", "iid", "classes", "blurry", "domains"] = "time"
    held_out: float = 0.05
    length: int = 12_000  # photos
    classes: int = 20  # locations
    skew: float = 1.0  # of the locations' frequencies: 0 uniform, 1 Zipf's law
    users: int = 500  # their frequencies follow Zipf's law
    album_length: float = 8.0  # mean number of photos in an album
    off_topic: float = 0.1  # probability that a photo shows the scene of a location drawn from p
    drift: float = 0.5  # share of a scene that changes over the stream
    key_frames: int = 5  # patterns that the changing share passes through
    places: bool = True  # columns latitude and longitude
    size: int = 16  # pixels per side; 0 for a stream without images


def build(config: Config) -> Stream:
    """The stream of a configuration."""
    _check(config)
    return arrange(_source(config), config, name="albums", settings=vars(config))


def _source(config: Config) -> ArraySource:
    """All photos; on its own, so that what is made on the way is gone when they are arranged."""
    weight = generate.weights(config.classes, config.skew)
    count = config.length

    fresh = generate.redraws(count, truth(config).stay, generate.words(config.seed, _MOVES))
    first = np.flatnonzero(fresh)
    size = np.diff(np.append(first, count))
    number = len(first)
    album_label = generate.draw(generate.words(config.seed, _CLASSES).random_raw(number), weight)
    label = np.repeat(album_label.astype(generate.smallest_type(config.classes)), size)
    user = generate.draw_unlike_neighbours(
        generate.words(config.seed, _USERS).random_raw(number), generate.weights(config.users, 1.0)
    ).astype(np.int32)
    columns: dict[str, Array] = {"time": _times(config, fresh), "user": np.repeat(user, size)}
    if config.places:
        columns["latitude"], columns["longitude"] = _places(config, label)
    x: Array = np.empty((count, 0), np.uint8)
    if config.size:
        x = _photos(config, label, size)
    return ArraySource(x, label, classes=config.classes, class_names=None, **columns)


def truth(config: Config) -> generate.Chain:
    """All closed forms of the label process, as one object (photo by photo, nothing held out)."""
    _check(config)
    return generate.Chain(
        generate.shares(generate.weights(config.classes, config.skew)),
        1.0 - 1.0 / config.album_length,
    )


blind_accuracy_truth, unlimited_history_truth, true_shift, blind_shift = generate.closed_forms(
    truth
)


def blind_accuracy_expected(stream: Stream, shift: int = 0) -> float:
    """Expected accuracy of repeating the last known label on one arranged stream, whose held-out
    photos leave gaps and whose steps are its own: the mean of pi + (1 − pi) stay^gap over the gaps
    that this stream has."""
    gap = _gaps(stream, shift)
    return float(truth(_config(stream)).agreement(gap[gap > 0]).mean())


def ceiling(stream: Stream, shift: int | None = None) -> float:
    """The accuracy that `oracle` would have if it recognised every scene: a bound for it, and with
    scenes as distinct as the default's its expected value. The shown scene d and the prior over
    labels give sum over d of max over c of prior(c) ((1 − q) [c = d] + q p_d), with q = off_topic;
    image alone, and q < 1/2: 1 − q + q pi."""
    config = _config(stream)
    chain, q = truth(config), config.off_topic

    def best(prior: Floats) -> Floats:
        own = prior * (1 - q + q * chain.p)
        other = q * chain.p * prior.max(axis=1, keepdims=True)
        return np.asarray(np.maximum(own, other).sum(axis=1))

    if shift is None:
        return float(best(chain.p[None])[0])
    gaps, times = np.unique(_gaps(stream, shift), return_counts=True)
    total = 0.0
    for gap, count in zip(gaps.tolist(), times.tolist(), strict=True):
        kept = chain.stay**gap if gap > 0 else 0.0
        prior = kept * np.eye(config.classes) + (1 - kept) * chain.p
        total += count * float(best(prior) @ chain.p)
    return total / float(times.sum())


def oracle(stream: Stream, shift: int | None = None) -> IntArray:
    """The Bayes-optimal prediction for each sample of the stream, in the order of the stream.

    `shift=None` knows the image alone: its prior is p. With a shift it also knows the last label
    that was due when the step of the sample `shift` positions earlier began (0 is ordinary online
    prediction), so that its prior is stay^gap [c = last] + (1 − stay^gap) p. It knows how the
    stream is made, not what was drawn: colour casts and off-topic photos are summed over.

    It does not know other images, whose colour cast may betray that an album goes on: under a
    shift it is the best answer to (image, last label).
    """
    config = _config(stream)
    if config.size == 0:
        raise StreamgaugeError("There is no oracle without images; set size above 0.")
    chain, q = truth(config), config.off_topic
    last = np.full(stream.samples, -1) if shift is None else _last_known(stream, shift)
    kept = np.where(last >= 0, chain.stay ** (stream.order - last), 0.0)
    prediction = np.empty(stream.samples, np.int64)
    scenery = _Scenery(config)
    slot = _slot(config, stream.order)
    block = max(1, (1 << 22) // (config.classes * 3 * config.size**2))
    for number in range(SLOTS):
        scene = scenery.at(number)
        inside = np.flatnonzero(slot == number)
        for at in (inside[i : i + block] for i in range(0, len(inside), block)):
            log_shown = log_likelihood(stream.source.read(stream.order[at]), scene)
            shown = np.exp(log_shown - log_shown.max(axis=1, keepdims=True))
            prior = (1 - kept[at, None]) * chain.p
            known = np.flatnonzero(last[at] >= 0)
            prior[known, stream.source.label[last[at[known]]]] += kept[at[known]]
            joint = prior * ((1 - q) * shown + q * (shown @ chain.p)[:, None])
            prediction[at] = joint.argmax(axis=1)
    return prediction


def log_likelihood(x: Bytes, scene: Bytes) -> Floats:
    """log probability `[n, classes]` of images `[n, 3, size, size]` if they show a given scene. The
    cast of a channel is one of three with equal probability, independent of the other channels, so
    each channel is summed over its own casts."""
    images, classes = len(x), len(scene)
    rest = x.astype(np.int16).reshape(images, 1, 3, -1) - scene.reshape(classes, 3, -1)
    low, high = rest.min(axis=-1), rest.max(axis=-1)
    total = np.full((len(generate.CASTS), images, classes, 3), -np.inf)
    for number, cast in enumerate(generate.CASTS.tolist()):
        # Noise is bounded, so most scenes are impossible at a glance and cost nothing more.
        possible = (low - cast >= -generate.NOISE) & (high - cast <= generate.NOISE)
        total[number][possible] = _LOG_NOISE[rest[possible] - cast + generate.NOISE].sum(axis=-1)
    channel = np.logaddexp.reduce(total, axis=0) - np.log(float(len(generate.CASTS)))
    return np.asarray(channel.sum(axis=-1))


def class_centres(config: Config) -> Floats:
    """Latitude and longitude of each location, `[classes, 2]`."""
    raw = generate.words(config.seed, _PLACES).random_raw(2 * config.classes).reshape(-1, 2)
    micro = (raw % np.array([120_000_000, 358_000_000], np.uint64)).astype(np.int64)
    centre: Floats = (micro - np.array([60_000_000, 179_000_000])) / 1e6
    return centre


class _Scenery:
    """What each location looks like at each moment."""

    def __init__(self, config: Config) -> None:
        self._share = int(config.drift * 256)
        count = config.classes * (config.key_frames + 1)
        made = generate.scenes(generate.words(config.seed, _SCENES), count, config.size)
        made = made.reshape(config.classes, config.key_frames + 1, *made.shape[1:])
        self._fixed = made[:, 0].astype(np.int64)
        self._frames = made[:, 1:].astype(np.int64)

    def at(self, slot: int) -> Bytes:
        """Scenes `[classes, 3, size, size]` in one of the SLOTS short stretches of the stream."""
        frames = self._frames.shape[1]
        before, part = divmod((2 * slot + 1) * (frames - 1), 2 * SLOTS)
        after = min(before + 1, frames - 1)
        moving = self._frames[:, before] * (2 * SLOTS - part) + self._frames[:, after] * part
        mixed = self._fixed * (256 - self._share) + moving // (2 * SLOTS) * self._share
        return np.asarray(mixed // 256, np.uint8)


def _slot(config: Config, index: IntArray) -> IntArray:
    return index.astype(np.int64) * SLOTS // config.length


def _photos(config: Config, label: IntArray, size: IntArray) -> Bytes:
    """All images; `size` is the number of photos in each album."""
    count = config.length
    weight = generate.weights(config.classes, config.skew)
    threshold = np.uint64(int(config.off_topic * 2**53))
    off_topic = generate.words(config.seed, _SHOWN).random_raw(count) >> np.uint64(11) < threshold
    other = generate.draw(generate.words(config.seed, _OTHER).random_raw(count), weight)
    shown = np.where(off_topic, other, label)
    styles = generate.words(config.seed, _STYLES).random_raw(3 * len(size)) % np.uint64(3)
    cast = generate.CASTS.astype(np.uint8)[styles.reshape(-1, 3)]  # modulo 256, as all sums here
    album = np.repeat(np.arange(len(size)), size)

    scenery, bits = _Scenery(config), generate.words(config.seed, _NOISE)
    slot = _slot(config, np.arange(count))
    x = np.empty((count, 3, config.size, config.size), np.uint8)
    edges = np.searchsorted(slot, np.arange(SLOTS + 1))
    for number in np.unique(slot).tolist():
        scene = scenery.at(number)
        for start in range(edges[number], edges[number + 1], 4096):
            part = slice(start, min(start + 4096, edges[number + 1]))
            grain = generate.noise(bits, part.stop - part.start, config.size)
            x[part] = scene[shown[part]] + cast[album[part]][:, :, None, None] + grain
    return x


def _times(config: Config, fresh: Array) -> IntArray:
    """Seconds since 1970: up to 2 minutes between photos of an album, else up to 30 hours."""
    bits = generate.words(config.seed, _GAPS)
    time = np.empty(config.length, np.int64)
    now = _EPOCH
    for part in pieces(config.length):
        raw = bits.random_raw(part.stop - part.start)
        gap = np.where(fresh[part], 900 + raw % np.uint64(107_100), 1 + raw % np.uint64(120))
        time[part] = now + np.cumsum(gap.astype(np.int64))
        now = int(time[part.stop - 1])
    return time


def _places(config: Config, label: IntArray) -> tuple[Array, Array]:
    """Each location's centre, and up to a twentieth of a degree around it."""
    bits, centre = generate.words(config.seed, _JITTER), class_centres(config)
    where = np.empty((2, config.length), np.float32)
    for part in pieces(config.length):
        raw = bits.random_raw(2 * (part.stop - part.start)).reshape(-1, 2)
        jitter = ((raw % np.uint64(100_001)).astype(np.int64) - 50_000) / 1e6
        where[:, part] = (centre[label[part]] + jitter).T
    return where[0], where[1]


def _last_known(stream: Stream, shift: int) -> IntArray:
    """For each stream sample the address of the last label that was due when the step of the
    sample `shift` positions earlier began; −1 where there was none."""
    if stream.albums or stream.settings["order"] not in ("time", "given"):
        raise StreamgaugeError(
            "Label correlation is known in closed form only for steps of a fixed batch in order of"
            " time; set step to 'batch' and order to 'time'."
        )
    if shift < 0:
        raise StreamgaugeError(f"A shift is a number of samples from 0 on; it is {shift}.")
    at = np.arange(stream.samples) - shift
    begin = stream.starts[np.searchsorted(stream.starts, np.maximum(at, 0), side="right") - 1]
    due = np.concatenate([[-1], stream.preparation, stream.order])
    return np.where(at >= 0, due[begin + len(stream.preparation)], -1)


def _gaps(stream: Stream, shift: int) -> IntArray:
    """How many photos before each sample the last known label lies; 0 where there is none."""
    last = _last_known(stream, shift)
    return np.where(last >= 0, stream.order - last, 0)


def _config(stream: Stream) -> Config:
    if stream.name != "albums":
        raise StreamgaugeError(f"Only the stream 'albums' has an oracle; this is '{stream.name}'.")
    known = {field.name for field in fields(Config)}
    return Config(**{name: value for name, value in stream.settings.items() if name in known})


def _check(config: Config) -> None:
    if config.length < 1:
        raise StreamgaugeError(f"The stream is empty: length is {config.length}.")
    if config.users < 3:
        raise StreamgaugeError(
            f"Albums take turns between three users or more, not {config.users}."
        )
    if not config.album_length >= 1:
        raise StreamgaugeError(
            f"An album has one photo or more; album_length is {config.album_length}."
        )
    for setting, share in (("off_topic", config.off_topic), ("drift", config.drift)):
        if not 0 <= share <= 1:
            raise StreamgaugeError(f"{setting} must be between 0 and 1, not {share}.")
    if config.key_frames < 1:
        raise StreamgaugeError(f"There must be one key frame or more, not {config.key_frames}.")
    if config.size < 0:
        raise StreamgaugeError(f"Images have 0 or more pixels per side, not {config.size}.")
