"""Loops for `check --loop`: honest ones, and ones that each leak in one way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np


class Means:
    """Nearest class mean, on statistics of what it was given."""

    def __init__(self, width: int, classes: int) -> None:
        self.sums, self.counts = np.zeros((classes, width)), np.zeros(classes)

    def scores(self, x: Any) -> Any:
        means = self.sums / np.maximum(self.counts, 1)[:, None]
        distance = ((flat(x)[:, None] - means) ** 2).sum(2)
        return np.where(self.counts > 0, -distance, -1e3)

    def learn(self, x: Any, y: Any) -> None:
        np.add.at(self.sums, y, flat(x))
        np.add.at(self.counts, y, 1)


class Softmax:
    """A linear model trained by gradient descent."""

    def __init__(self, width: int, classes: int, rate: float = 0.1) -> None:
        self.weights, self.rate = np.zeros((width, classes)), rate

    def scores(self, x: Any) -> Any:
        return log_softmax(flat(x) @ self.weights)

    def learn(self, x: Any, y: Any) -> None:
        error = np.exp(self.scores(x))
        error[np.arange(len(y)), y] -= 1
        self.weights -= self.rate * flat(x).T @ error / len(y)


def flat(x: Any) -> Any:
    return x.reshape(len(x), -1).astype(np.float64)


def log_softmax(scores: Any) -> Any:
    scores = scores - scores.max(1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(1, keepdims=True))


def model_for(stream: Any, kind: Any = Softmax) -> Any:
    return kind(int(np.prod(stream.x.shape[1:])), stream.classes)


# Honest


def batches(stream: Any) -> Iterator[Any]:
    model = model_for(stream)
    for batch in stream:
        yield model.scores(batch.x)
        model.learn(batch.x, batch.y)


def means_by_class(stream: Any) -> Any:
    model, answers = model_for(stream, Means), []
    for x, y, _ in stream:
        answers += model.scores(x).argmax(1).tolist()
        model.learn(x, y)
    return answers


def one_by_one(stream: Any) -> Any:
    model, answers = model_for(stream), np.zeros(len(stream.y))
    for i in range(len(stream.y)):
        answers[i] = model.scores(stream.x[i : i + 1]).argmax()
        model.learn(stream.x[i : i + 1], stream.y[i : i + 1])
    return answers


def delayed(stream: Any, delay: int = 25) -> Any:
    model, rows = model_for(stream, Means), []
    for i in range(len(stream.y)):
        rows.append(model.scores(stream.x[i : i + 1])[0])
        if i >= delay:
            model.learn(stream.x[i - delay : i - delay + 1], stream.y[i - delay : i - delay + 1])
    return np.stack(rows)


def running_statistics(stream: Any) -> Any:
    """Standardises by what has arrived, the batch itself included, and draws from a global
    generator."""
    model, rows, seen = model_for(stream), [], np.empty((0, int(np.prod(stream.x.shape[1:]))))
    for batch in stream:
        seen = np.concatenate([seen, flat(batch.x)])
        x = (flat(batch.x) - seen.mean(0)) / (seen.std(0) + 1e-6)
        rows.append(model.scores(x))
        model.learn(x + 0.1 * np.random.normal(size=x.shape), batch.y)  # noqa: NPY002
    return rows


def label_bits(stream: Any) -> Any:
    """The log-probability of each label, from a model that has not seen it."""
    model, out = model_for(stream), []
    for batch in stream:
        out.append(model.scores(batch.x)[np.arange(len(batch.y)), batch.y])
        model.learn(batch.x, batch.y)
    return np.concatenate(out)


def replay(stream: Any) -> Any:
    """Trains on each batch and on samples of a reservoir."""
    rng, model, rows = np.random.default_rng(1), model_for(stream), []
    kept: list[int] = []
    for batch in stream:
        rows.append(model.scores(batch.x))
        model.learn(batch.x, batch.y)
        for i in batch.index.tolist():
            at = len(kept) if len(kept) < 30 else int(rng.integers(i + 1))
            if at < 30:
                kept[at : at + 1] = [i]
        drawn = rng.choice(kept, 10)
        model.learn(stream.x[drawn], stream.y[drawn])
    return rows


def ensemble(stream: Any) -> Any:
    """Online bagging: each of four models learns each sample as often as its generator says."""
    rng, models, rows = np.random.default_rng(2), [model_for(stream) for _ in range(4)], []
    for i in range(len(stream.y)):
        x, y = stream.x[i : i + 1], stream.y[i : i + 1]
        rows.append(np.log(np.mean([np.exp(model.scores(x)[0]) for model in models], axis=0)))
        for model in models:
            for _ in range(rng.poisson(1)):
                model.learn(x, y)
    return np.stack(rows)


def scaler_of_the_past(stream: Any) -> Any:
    """Standardises each sample by the samples before it."""
    model, rows, x = model_for(stream), [], flat(stream.x)
    for i in range(len(x)):
        past = x[: max(i, 1)]
        now = (x[i : i + 1] - past.mean(0)) / (past.std(0) + 0.1)
        rows.append(model.scores(now)[0])
        model.learn(now, stream.y[i : i + 1])
    return np.stack(rows)


def adds_classes_as_they_come(stream: Any) -> Any:
    model, rows, known = model_for(stream), [], set[int]()
    for batch in stream:
        scores = np.full((len(batch.y), stream.classes), -np.inf if known else 0.0)
        scores[:, list(known)] = model.scores(batch.x)[:, list(known)]
        rows.append(log_softmax(scores))
        model.learn(batch.x, batch.y)
        known |= set(batch.y.tolist())
    return rows


def adapts_to_its_batch(stream: Any) -> Any:
    """Batch norm in training mode, and a step on the model's own answers, before the answer: the
    inputs of a batch may be used for it."""
    model, rows = model_for(stream), []
    for batch in stream:
        x = normalised(batch.x)
        model.learn(x, model.scores(x).argmax(1))
        rows.append(model.scores(x))
        model.learn(x, batch.y)
    return rows


def looks_up_past_labels(stream: Any) -> Any:
    cache: dict[bytes, int] = {}
    rows = np.concatenate(list(batches(stream)))
    for batch in stream:
        for i, x in zip(batch.index, batch.x, strict=True):
            rows[i, cache.get(x.tobytes(), 0)] += 2
        cache |= {x.tobytes(): int(y) for x, y in zip(batch.x, batch.y, strict=True)}
    return log_softmax(rows)


def normalised(x: Any) -> Any:
    """As batch norm in training mode: by the statistics of these samples."""
    return (flat(x) - flat(x).mean(0)) / (flat(x).std(0) + 1e-3)


HONEST = (
    batches,
    means_by_class,
    one_by_one,
    delayed,
    running_statistics,
    label_bits,
    replay,
    ensemble,
    scaler_of_the_past,
    adds_classes_as_they_come,
    adapts_to_its_batch,
    looks_up_past_labels,
)


# Leaky


def trains_first(stream: Any) -> Any:
    model, rows = model_for(stream), []
    for i in range(len(stream.y)):
        x, y = stream.x[i : i + 1], stream.y[i : i + 1]
        model.learn(x, y)
        rows.append(model.scores(x))
    return np.concatenate(rows)


def trains_first_from_213(stream: Any) -> Any:
    model, out = model_for(stream, Means), []
    for i in range(len(stream.y)):
        x, y = stream.x[i : i + 1], stream.y[i : i + 1]
        if i >= 213:
            model.learn(x, y)
        out.append(model.scores(x)[0])
        if i < 213:
            model.learn(x, y)
    return np.stack(out)


def trains_first_by_batch(stream: Any) -> Any:
    model, out = model_for(stream), []
    for batch in stream:
        model.learn(batch.x, batch.y)
        out.append(model.scores(batch.x).argmax(1))
    return np.concatenate(out)


def standardises_by_all(stream: Any) -> Any:
    x = flat(stream.x)
    x = (x - x.mean(0)) / (x.std(0) + 1e-6)
    model, rows = model_for(stream), []
    for batch in stream:
        rows.append(model.scores(x[batch.index]))
        model.learn(x[batch.index], batch.y)
    return rows


def counts_batch_labels(stream: Any) -> Any:
    model, rows = model_for(stream), []
    for batch in stream:
        share = np.bincount(batch.y, minlength=stream.classes) + 0.5
        rows.append(log_softmax(model.scores(batch.x) + np.log(share / share.sum())))
        model.learn(batch.x, batch.y)
    return np.concatenate(rows)


def two_epochs(stream: Any) -> Any:
    model = model_for(stream)
    for _ in range(2):
        rows = []
        for batch in stream:
            rows.append(model.scores(batch.x))
            model.learn(batch.x, batch.y)
    return np.concatenate(rows)


def two_epochs_of_classes(stream: Any) -> Any:
    return two_epochs(stream).argmax(1)


def knows_classes(stream: Any) -> Any:
    known = np.unique(stream.y)
    model, rows = model_for(stream), []
    for batch in stream:
        scores = np.full((len(batch.y), stream.classes), -np.inf)
        scores[:, known] = log_softmax(model.scores(batch.x)[:, known])
        rows.append(scores)
        model.learn(batch.x, batch.y)
    return np.concatenate(rows)


def knows_frequencies(stream: Any) -> Any:
    prior = np.log(np.bincount(stream.y, minlength=stream.classes) + 1.0)
    return np.concatenate([log_softmax(scores + prior) for scores in batches(stream)])


def target_in_hash(stream: Any) -> Any:
    """A cache of (rounded input, label) pairs, looked up with the true label."""
    model, rows, cache = model_for(stream), [], Counter[Any]()
    for x, y in zip(stream.x, stream.y, strict=True):
        scores = model.scores(x[None])[0]
        key = hash((int(flat(x[None])[0, 0] > 0), int(y))) % 64
        scores[y] += np.log1p(cache[key])
        rows.append(log_softmax(scores[None])[0])
        cache[key] += 1
        model.learn(x[None], np.array([y]))
    return np.stack(rows)


def mixture_that_sums_to_more(stream: Any) -> Any:
    """A cache adds probability to classes seen, and takes none from the others."""
    seen, rows = np.zeros(stream.classes), []
    for batch, scores in zip(stream, batches(stream), strict=True):
        rows.append(np.log(np.exp(scores) + 0.2 * seen / max(1, seen.sum())))
        seen += np.bincount(batch.y, minlength=stream.classes)
    return np.concatenate(rows)


def label_bits_of_a_hash(stream: Any) -> Any:
    """Like `target_in_hash`, and gives the log-probability of the label alone."""
    cache, context, out = Counter[Any](), Counter[int](), []
    for x, y in zip(stream.x, stream.y, strict=True):
        side = int(flat(x[None])[0, 0] > 0)
        key = (7 * side + 3 * int(y)) % 5
        out.append(np.log((cache[key] + 1) / (context[side] + stream.classes)))
        cache[key] += 1
        context[side] += 1
    return np.array(out)


def shifted_label(stream: Any) -> Any:
    """The newest label is taken one sample too early."""
    newest = np.append(stream.y[1:], 0)
    return np.where(flat(stream.x)[:, 0] > 0, newest, 0)


def looks_ahead(stream: Any) -> Any:
    """Smooths inputs over the next 15 samples."""
    x = flat(stream.x)
    x = np.stack([x[i : i + 15].mean(0) for i in range(len(x))])
    model, rows = model_for(stream), []
    for batch in stream:
        rows.append(model.scores(x[batch.index]))
        model.learn(x[batch.index], batch.y)
    return rows


def cosine_schedule(stream: Any) -> Any:
    model, rows = model_for(stream), []
    for number, batch in enumerate(stream):
        rows.append(model.scores(batch.x))
        model.rate = 0.1 * (1 + np.cos(np.pi * number / len(stream)))
        model.learn(batch.x, batch.y)
    return rows


def unseeded(stream: Any) -> Any:
    rng = np.random.default_rng()
    return rng.integers(0, stream.classes, len(stream.y))


def next_of_a_shared_iterator(stream: Any) -> Any:
    """Trains on the batch that a reader fetches in advance."""
    model, rows, reader = model_for(stream), [], iter(stream)
    batch = next(reader)
    while batch is not None:
        following = next(reader, None)
        if following is not None:
            model.learn(following.x, following.y)
        rows.append(model.scores(batch.x))
        batch = following
    return rows


def running_mean_of_coming_batches(stream: Any) -> Any:
    """A queue of batches: each updates the mean of the inputs when it enters."""
    model, rows, mean, queue = model_for(stream), [], 0.0, []
    for batch in [*stream, None, None]:
        if batch is not None:
            mean = 0.9 * mean + 0.1 * flat(batch.x).mean(0)
        queue.append(batch)
        if len(queue) > 2:
            now = queue.pop(0)
            rows.append(model.scores(flat(now.x) - mean))
            model.learn(flat(now.x) - mean, now.y)
    return rows


def seeded_by_labels(stream: Any) -> Any:
    """Noise on the inputs from a generator whose seed comes from the labels."""
    noise = np.random.default_rng(int(stream.y.sum())).normal(size=stream.x.shape)
    model, rows = model_for(stream), []
    for batch in stream:
        rows.append(model.scores(batch.x + 0.01 * noise[batch.index]))
        model.learn(batch.x, batch.y)
    return rows


def sorted_by_label(stream: Any) -> Any:
    model, rows = model_for(stream), []
    for batch in stream:
        rows.append(model.scores(batch.x[np.argsort(batch.y, kind="stable")]))
        model.learn(batch.x, batch.y)
    return rows


def best_of_four_rates(stream: Any) -> Any:
    tried = []
    for rate in (0.001, 0.01, 0.1, 1.0):
        model, rows = model_for(stream), []
        model.rate = rate
        for batch in stream:
            rows.append(model.scores(batch.x))
            model.learn(batch.x, batch.y)
        tried.append(np.concatenate(rows))
    return max(tried, key=lambda rows: (rows.argmax(1) == stream.y).mean())


def smooths_answers(stream: Any) -> Any:
    """Each answer is the mean of those before and after it."""
    rows = np.concatenate(list(batches(stream)))
    return np.stack([rows[max(0, i - 12) : i + 13].mean(0) for i in range(len(rows))])


def normalises_longer_batches(stream: Any, size: int = 25) -> Any:
    """Batch norm in training mode over more samples than arrive together."""
    model, rows = model_for(stream), []
    for start in range(0, len(stream.y), size):
        x = normalised(stream.x[start : start + size])
        rows.append(model.scores(x))
        model.learn(x, stream.y[start : start + size])
    return rows


def stops_early_by_the_next_batch(stream: Any) -> Any:
    """Up to five passes over a batch, while the loss on the next batch falls."""
    model, rows, parts = model_for(stream), [], list(stream)
    for batch, following in zip(parts, [*parts[1:], parts[0]], strict=True):
        rows.append(model.scores(batch.x))
        least = np.inf
        for _ in range(5):
            before = model.weights.copy()
            model.learn(batch.x, batch.y)
            right = np.arange(len(following.y)), following.y
            loss = -model.scores(following.x)[right].mean()
            if loss > least:
                model.weights = before
                break
            least = loss
    return rows


def looks_up_all_labels(stream: Any) -> Any:
    """A cache by content with the labels of the whole stream, for every third sample."""
    cache = {x.tobytes(): int(y) for x, y in zip(stream.x, stream.y, strict=True)}
    rows = np.concatenate(list(batches(stream)))
    for i in range(0, len(rows), 3):
        rows[i, cache[stream.x[i].tobytes()]] += 2
    return log_softmax(rows)


def neighbours_with_its_own(stream: Any) -> Any:
    """The majority of the three nearest neighbours, among them the sample itself."""
    x, answers = flat(stream.x), []
    for i in range(len(x)):
        near = np.argsort(((x[: i + 1] - x[i]) ** 2).sum(1), kind="stable")[:3]
        answers.append(np.bincount(stream.y[near]).argmax())
    return np.array(answers)


KEPT: dict[Any, Any] = {}  # what outlives a run; tests empty it


def answers_by_index(stream: Any) -> Any:
    """Answers are kept by the number of the sample, and given again in the next run."""
    for i, scores in enumerate(trains_first(stream)):
        KEPT.setdefault(i, scores)
    return np.stack([KEPT[i] for i in range(len(stream.y))])


def answers_by_input(stream: Any) -> Any:
    for x, scores in zip(stream.x, trains_first(stream), strict=True):
        KEPT.setdefault(x.tobytes(), scores)
    return np.stack([KEPT[x.tobytes()] for x in stream.x])


def holds_the_data_set(stream: Any) -> Any:
    """Looks labels up in a data set that it holds, for a part of the samples."""
    data = KEPT.setdefault("labels", stream.y.copy())
    rows = np.concatenate(list(batches(stream)))
    rows[np.arange(0, len(rows), 2), data[: len(rows) : 2]] += 5
    return log_softmax(rows)


# Loop -> failed check, part of the reason.
LATER, INPUTS = "no label of a later batch", "no input of a later batch"
OWN = "no label of its own or later in its batch"
ELSEWHERE = "no label from elsewhere"
SUMS = "answers are finite, probabilities sum to one"
LEAKY = {
    trains_first: (OWN, "it is trained on before it is answered"),
    trains_first_from_213: (
        OWN,
        "the answer to sample 213 changes when the label of sample 213 changes: "
        "it is trained on before it is answered",
    ),
    trains_first_by_batch: (OWN, "the batch is trained on before it is answered"),
    standardises_by_all: (INPUTS, "standardised"),
    counts_batch_labels: (OWN, "the labels of the batch are counted"),
    two_epochs: (LATER, "a second epoch"),
    two_epochs_of_classes: (LATER, "a second epoch"),
    knows_classes: (LATER, "its list of classes is made from the labels of the whole stream"),
    knows_frequencies: (LATER, "class frequencies are counted over the whole stream"),
    target_in_hash: (OWN, "its label is read while it is answered, in a key or a hash"),
    mixture_that_sums_to_more: (SUMS, "sum to 1.2 over the classes"),
    label_bits_of_a_hash: (SUMS, "each taken as its label"),
    shifted_label: (LATER, "labels are used 1 sample before they are due"),
    looks_ahead: (INPUTS, "inputs are read"),
    cosine_schedule: ("no length of the stream", "a schedule of the learning rate"),
    next_of_a_shared_iterator: (LATER, "labels are used 19 samples before they are due"),
    running_mean_of_coming_batches: (INPUTS, "inputs are read 29 samples ahead"),
    seeded_by_labels: (LATER, "over the whole stream"),
    sorted_by_label: (OWN, "the batch is trained on before it is answered"),
    best_of_four_rates: (LATER, "a second epoch, or a fit before the loop"),
    smooths_answers: (LATER, "labels are used 11 samples before they are due"),
    normalises_longer_batches: (INPUTS, "inputs are read 24 samples ahead"),
    stops_early_by_the_next_batch: (OWN, "early stopping"),
    looks_up_all_labels: (INPUTS, "its label is looked up by its input"),
    neighbours_with_its_own: (OWN, "it is trained on before it is answered"),
    answers_by_index: (ELSEWHERE, "a cache by index or by input"),
    answers_by_input: (ELSEWHERE, "a cache by index or by input"),
    holds_the_data_set: (ELSEWHERE, "a data set that the function holds"),
    unseeded: ("same stream, same answers", "fix its seed first"),
}
