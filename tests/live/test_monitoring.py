"""`/metrics` of a service: the format of Prometheus, and figures that a slow version confirms."""

from __future__ import annotations

import http.client
import json
import math
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from test_live_serve import Bare, Server

from streamgauge.live import monitoring
from streamgauge.live.monitoring import ServiceFigures, metrics_text
from streamgauge.live.service import Limits
from streamgauge.record.heartbeat import read_heartbeat

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\\\|\\"|\\n)*"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (\S+)")


def parsed(text: str) -> dict[tuple[str, str], float]:
    """Values by name and labels, as the format's own description reads them: every family has one
    HELP and one TYPE before its samples, no sample comes twice, and the last line ends."""
    assert text.endswith("\n")
    found: dict[tuple[str, str], float] = {}
    helps, types, family = set(), {}, ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            family = line.split(" ")[2]
            assert family not in helps
            helps.add(family)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == family
            assert kind in ("counter", "gauge")
            assert name.endswith("_total") == (kind == "counter")
            types[name] = kind
        else:
            match = SAMPLE.fullmatch(line)
            assert match, line
            assert match[1] == family
            assert match[1] in types
            key = match[1].removeprefix("streamgauge_"), match[2] or ""
            assert key not in found
            found[key] = float(match[3])
    assert helps == set(types)
    return found


def test_a_fresh_service_has_counters_and_no_shares(bare: Bare) -> None:
    found = parsed(metrics_text(bare.service))
    assert found["samples_total", ""] == found["labels_total", ""] == 0
    assert found["training", ""] == 1
    assert not any(name.endswith("accuracy") for name, _ in found)


@pytest.fixture
def bare(tmp_path: Path) -> Bare:
    return Bare(tmp_path)


def test_figures_are_those_of_a_slow_version(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    bare = Bare(tmp_path, slots=200, shifts=(4,), keep=4, limits=Limits(waiting=20))
    open_samples: list[int] = []
    known: list[int] = []  # labels in the order of their arrival
    guesses, online, last, frequent = {}, [], [], []
    for _ in range(300):
        if rng.random() < 0.5 or not open_samples:
            sample = bare.sample(float(rng.random()))
            newest = known[-1] if known else None
            counts = Counter(known)
            first = {label: at for at, label in reversed(list(enumerate(known)))}
            assert set(first) == set(counts)
            guesses[sample] = (newest, counts)
            open_samples.append(sample)
        else:
            sample = open_samples.pop(int(rng.integers(len(open_samples))))
            label = int(rng.choice(4, p=[0.6, 0.2, 0.1, 0.1]))
            bare.label(sample, label)
            newest, counts = guesses[sample]
            last.append(newest == label)
            most = max(counts.values(), default=0)
            frequent.append([name for name, n in counts.items() if n == most])
            known.append(label)
        while len(open_samples) > 20:
            open_samples.pop(0)
        bare.service.advance()
    rows = bare.journal.rows["predictions"]
    shift, label = rows.peek("shift"), rows.peek("label")
    right = label == rows.peek("prediction")
    online = right[shift == 0]
    found = parsed(metrics_text(bare.service))
    assert found["labels_total", ""] == len(known) == len(online)
    assert found["right_total", ""] == online.sum()
    assert found["waiting_samples", ""] == len(open_samples)
    assert found["online_accuracy", ""] == pytest.approx(online.mean())
    blind = found["blind_accuracy", 'forecaster="last_label"']
    assert blind == pytest.approx(np.mean(last))
    # Of equally frequent labels the service takes the one that was ahead first.
    hits = [label in names for label, names in zip(known, frequent, strict=True)]
    sure = [label in names for label, names in zip(known, frequent, strict=True) if len(names) < 2]
    most = found["blind_accuracy", 'forecaster="most_frequent_label"'] * len(known)
    assert sum(sure) <= round(most) <= sum(hits)
    near = right[shift >= 4]
    assert len(near) > 3
    assert found["near_future_accuracy", 'shift="4"'] == pytest.approx(near.mean())
    gap = found["near_future_gap", 'shift="4"']
    assert gap == pytest.approx(online.mean() - near.mean())


def test_only_the_newest_labels_count_and_expired_samples_are_forgotten() -> None:
    figures = ServiceFigures((10, 100))
    for number in range(monitoring.WINDOW):
        figures.arrived(number)
        figures.labelled(number, 0, 1)
    assert figures.online == 0
    for number in range(monitoring.WINDOW):
        figures.arrived(number)
        figures.labelled(number, 0, 0)
    assert figures.online == 1
    assert figures.blind == {"last_label": 1.0, "most_frequent_label": 1.0}
    figures.arrived(5)
    figures.expired(5)
    assert not figures._guesses
    figures.labelled(7, 0, 1)  # of an earlier process: no guess was made then
    assert figures.online == 1
    # An age counts for the largest shift that it reaches.
    for age in (9, 10, 99, 100, 5000):
        figures.near(age, age >= 100)
    assert figures.near_future == {10: 0.0, 100: 1.0}
    assert math.isnan(ServiceFigures((1,)).near_future[1])


def test_latencies_are_quantiles_of_the_newest_answers(bare: Bare) -> None:
    for number in range(200):
        bare.service.latencies.append(number / 1000)
    found = parsed(metrics_text(bare.service))
    assert found["answer_seconds", 'quantile="0.99"'] == pytest.approx(0.19701)
    assert found["answer_seconds", 'quantile="0.5"'] == pytest.approx(0.0995)


def test_names_of_reasons_are_escaped(bare: Bare) -> None:
    bare.service.refused['odd "name"\n\\'] = 3
    found = parsed(metrics_text(bare.service))
    assert found["refused_total", 'reason="odd \\"name\\"\\n\\\\"'] == 3


def test_metrics_and_heartbeat_of_a_service_that_runs(tmp_path: Path) -> None:
    server = Server(tmp_path)
    client = http.client.HTTPConnection("127.0.0.1", server.ports[0], timeout=20)

    def send(path: str, message: object) -> dict[str, int]:
        client.request("POST", path, json.dumps(message))
        answer = client.getresponse()
        assert answer.status == 200
        return dict(json.loads(answer.read()))

    for number in range(5):
        sample = send("/predict", {"x": [0, 0, number]})["sample"]
        if number < 3:
            send("/label", {"sample": sample, "label": 1})
    client.request("GET", "/metrics")
    answer = client.getresponse()
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = parsed(answer.read().decode())
    assert found["samples_total", ""] == 5
    assert found["labels_total", ""] == 3
    assert found["waiting_samples", ""] == 2
    assert 0 < found["answer_seconds", 'quantile="0.99"'] < 20
    client.request("GET", "/metrics", headers={"Origin": "http://example.org"})
    assert client.getresponse().status == 400
    client.close()
    (folder,) = (path.parent for path in tmp_path.rglob("heartbeat.json"))
    beat = read_heartbeat(folder)
    assert beat is not None
    assert beat.steps == 0
    server.end()
    assert read_heartbeat(folder) is None
