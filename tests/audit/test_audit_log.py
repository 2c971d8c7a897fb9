"""Reading logs of any system, and a sentence for everything that can be wrong with one."""

from __future__ import annotations

import gzip
import json
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamgauge.audit import audit, run_audit
from streamgauge.audit.log import PredictionLog
from streamgauge.audit.tally import join, scan
from streamgauge.errors import StreamgaugeError
from streamgauge.tables import base


def table(n=400, seed=0):
    rng = np.random.default_rng(seed)
    label = np.repeat(rng.integers(0, 4, n // 4), 4)
    guess = np.where(rng.random(n) < 0.7, label, rng.integers(0, 4, n))
    return {
        "when": 1_000_000_000 + np.arange(n) * 60,
        "user": np.repeat(rng.integers(0, 9, n // 8), 8),
        "truth": label,
        "y_pred": guess,
    }


def write_csv(path, columns, delimiter=","):
    rows = [delimiter.join(columns)]
    rows += [delimiter.join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    path.write_text("\n".join(rows) + "\n")
    return path


def write(folder, kind, columns):
    path = folder / f"log.{kind}"
    if kind in ("csv", "tsv"):
        return write_csv(path, columns, "\t" if kind == "tsv" else ",")
    if kind == "csv.gz":
        path.write_bytes(gzip.compress(write_csv(folder / "plain.csv", columns, ";").read_bytes()))
    elif kind == "csv.zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("inside.csv", write_csv(folder / "p.csv", columns).read_text())
    elif kind == "parquet":
        pq.write_table(pa.table(columns), path, row_group_size=64)
    elif kind == "npz":
        np.savez_compressed(path, **columns)
    else:
        names = list(columns)
        lines = (
            dict(zip(names, map(int, r), strict=True)) for r in zip(*columns.values(), strict=True)
        )
        path.write_text("\n".join(map(json.dumps, lines)))
    return path


@pytest.mark.parametrize("kind", ["csv", "tsv", "csv.gz", "csv.zip", "parquet", "npz", "jsonl"])
def test_every_format_gives_the_same_rows(tmp_path, kind, monkeypatch):
    """Read in pieces so small that every format has many of them."""
    monkeypatch.setattr(base, "PIECE_ROWS", 100)
    monkeypatch.setattr(base, "PIECE_BYTES", 2_000)
    columns = table()
    log = PredictionLog(write(tmp_path, kind, columns), time="when")
    assert log.roles == {"label": "truth", "prediction": "y_pred", "time": "when", "user": "user"}
    assert log.guessed == ["label", "prediction", "user"]
    pieces = list(log.pieces())
    assert len(pieces) > 1
    rows = join(pieces)
    names = np.array(list(log.classes.numbers))
    np.testing.assert_array_equal(names[rows.label], columns["truth"])
    np.testing.assert_array_equal(names[rows.prediction], columns["y_pred"])
    np.testing.assert_array_equal(rows.time, columns["when"])
    who = np.array(list(log.groups["user"].numbers))
    np.testing.assert_array_equal(who[rows.user], columns["user"])
    # A second pass gives the same numbers.
    np.testing.assert_array_equal(join(list(log.pieces())).label, rows.label)


def test_a_folder_of_segments(tmp_path):
    columns = table()
    folder = tmp_path / "run" / "log" / "predictions"
    folder.mkdir(parents=True)
    for i in range(2):
        part = {n: v[i * 200 : i * 200 + 200] for n, v in columns.items()}
        pq.write_table(pa.table(part), folder / f"{i:05d}.parquet")
    rows = join(list(PredictionLog(tmp_path / "run").pieces()))
    assert rows.label.size == 400
    with pytest.raises(StreamgaugeError, match="no Parquet files"):
        PredictionLog(tmp_path)


def test_names_of_classes(tmp_path):
    """Words, zero-padded codes and numbers written as text all stay what they are."""
    words = {
        "label": ["cat", "dog", "007", "7"] * 100,
        "prediction": ["dog", "dog", "7", "7"] * 100,
    }
    rows = join(list(PredictionLog(write_csv(tmp_path / "a.csv", words)).pieces()))
    assert np.mean(rows.label == rows.prediction) == 0.5
    # Numbers in one column and floats without a fraction in the other are the same classes.
    mixed = {"label": np.arange(300) % 3, "prediction": (np.arange(300) % 3).astype(float)}
    mixed["prediction"][5] = np.nan
    path = tmp_path / "b.parquet"
    pq.write_table(pa.table({n: pa.array(v, from_pandas=True) for n, v in mixed.items()}), path)
    found = scan(PredictionLog(path))
    assert found.unpredicted == 1
    assert np.sum(found.in_memory.label == found.in_memory.prediction) == 299


def test_smallest_class_is_by_number_or_name():
    log = PredictionLog({"label": np.array([10, 9, 2, 10] * 100)})
    list(log.pieces())
    assert dict(zip(log.classes.numbers, log.classes.sorted_ranks().tolist(), strict=True)) == {
        10: 2, 9: 1, 2: 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    "values",
    [
        1_000_000_000 + np.arange(400),
        (1_000_000_000 + np.arange(400)) * 1_000,
        (np.datetime64("2001-09-09T01:46:40") + np.arange(400)).astype("datetime64[us]"),
        [
            str(np.datetime64("2001-09-09T01:46:40") + i).replace("T", " ") + " UTC"
            for i in range(400)
        ],
        [str(np.datetime64("2001-09-09T01:46:40") + i) + "Z" for i in range(400)],
    ],
    ids=["seconds", "milliseconds", "stamps", "text", "iso"],
)
def test_times(values):
    rows = join(list(PredictionLog({"label": np.arange(400) % 2, "time": values}).pieces()))
    np.testing.assert_array_equal(rows.time, 1_000_000_000 + np.arange(400))


def test_a_column_can_be_left_out():
    log = PredictionLog({"label": [0, 1], "time": [2, 1]}, time="none")
    assert "time" not in log.roles
    with pytest.raises(StreamgaugeError, match="go back at row 2"):
        scan(PredictionLog({"label": [0, 1], "time": [2, 1]}))


def test_sorting_only_on_request():
    columns = table()
    order = np.random.default_rng(0).permutation(400)
    mixed = {n: v[order] for n, v in columns.items()}
    with pytest.raises(StreamgaugeError, match="--sort"):
        audit(mixed, time="when")
    found = audit(mixed, time="when", sort=True)
    expected = audit(columns, time="when")
    assert found.values["blind"] == expected.values["blind"]
    assert found.values["online"] == expected.values["online"]
    with pytest.raises(StreamgaugeError, match="no time column to sort by"):
        audit({"label": columns["truth"]}, sort=True)


def test_times_may_go_back_between_shifts():
    """Answers about later samples stand between those about the present: no disorder."""
    n = 400
    label = np.arange(n) % 3
    columns = {
        "label": np.stack([label[:-10], label[10:]], axis=1).ravel(),
        "prediction": np.stack([label[:-10], label[10:]], axis=1).ravel(),
        "shift": np.tile([0, 10], n - 10),
        "time": np.stack([np.arange(n - 10), np.arange(10, n)], axis=1).ravel(),
    }
    found = scan(PredictionLog(columns))
    assert {shift: stream.rows for shift, stream in found.streams.items()} == {0: 390, 10: 390}
    assert found.length == 390


BAD = {
    "empty.csv": ("", "is empty"),
    "blank.csv": ("\n\n", "is empty"),
    "header.csv": ("label,prediction\n", "has no rows"),
    "float.csv": ("label\n" + "0.5\n1.5\n" * 200, "floating-point"),
    "unlabelled.csv": ("label,a\n" + ",1\n,1\n" * 200, "no label in any row"),
    "case.csv": ("label,prediction\n" + "OK,ok\nBAD,bad\n" * 200, "'OK', 'BAD', .* 'ok', 'bad'"),
    "codes.csv": ("label,prediction\n" + "cat,0\ndog,1\n" * 200, "'cat', 'dog', .* '0', '1'"),
    "percent.csv": ("label,prob\n" + "0,0.9\n1,90\n" * 200, "line 3 .* 90 in column 'prob'"),
    "loss.csv": ("label,logp\n" + "0,-0.1\n1,0.7\n" * 200, "line 3 .* 0.7 .* at most 0"),
    "late.csv": ("label,time,labelled_at\n" + "0,1,2\n1,1,\n" * 200, "line 3 .* label but no time"),
    "single.csv": ("label\n" + "7\n" * 300, "same class"),
    "few.csv": ("label\n" + "7\n8\n" * 10, "too few"),
    "names.csv": ("klasse,vorhersage\n" + "1,1\n" * 300, "columns are klasse, vorhersage"),
    "ragged.csv": ("label,prediction\n" + "1,1\n2,1,9\n" * 300, "cannot be read"),
    "probabilities.csv": ("label,prediction\n" + "0,0.3\n1,0.8\n" * 200, "such as 0.3"),
    "steps.csv": ("label,step\n" + "0,2\n1,1\n" * 200, "step numbers .* decrease"),
    "agenot.csv": ("label,age\n" + "0,old\n1,new\n" * 200, "holds no numbers"),
    "times.csv": ("label,time\n" + "0,noon\n1,dusk\n" * 200, "has times that cannot be read"),
    "unsorted.csv": ("label,time\n" + "0,5\n1,6\n" * 200, "go back at line 4"),
    "nothing.csv": ("label,prediction\n" + "0,\n1,\n" * 200, "contains no predictions"),
    "broken.jsonl": ('{"label": 1}\n{"label": \n', "cannot be read"),
    "cut.parquet": ("PAR1 and then nothing", "damaged or cut off"),
    "cut.npz": ("PK not really", "damaged or cut off"),
    "cut.csv.gz": ("no gzip", "cannot be read"),
    "log.docx": ("text", "of no kind that can be read"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_files_get_a_sentence_and_leave_nothing(tmp_path, name):
    text, expected = BAD[name]
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(StreamgaugeError, match=expected) as caught:
        run_audit(path, report=tmp_path / "report.html")
    assert "\n" not in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_other_bad_input(tmp_path):
    columns = table()
    with pytest.raises(StreamgaugeError, match="no file"):
        audit(tmp_path / "nowhere.csv")
    with pytest.raises(StreamgaugeError, match=r"did you mean 'truth'.*columns are when, user"):
        audit(columns, label="trut")
    with pytest.raises(StreamgaugeError, match="no column 'speed'"):
        audit(columns, features=["speed"])
    with pytest.raises(StreamgaugeError, match="410 entries in y_pred for 400 in truth"):
        audit(columns | {"y_pred": np.zeros(410, int)})
    with pytest.raises(StreamgaugeError, match="2 dimensions"):
        audit(columns | {"truth": np.zeros((400, 2), int)})
    with pytest.raises(StreamgaugeError, match="step 0"):
        audit(columns, step=0)
    np.savez(tmp_path / "o.npz", label=np.array(["a", None] * 300, dtype=object))
    with pytest.raises(StreamgaugeError, match="Python objects"):
        audit(tmp_path / "o.npz")
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    whole = (tmp_path / "t.parquet").read_bytes()
    (tmp_path / "t.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StreamgaugeError, match="damaged or cut off"):
        audit(tmp_path / "t.parquet")


def test_steps_may_be_any_whole_numbers():
    """Dates written as numbers are far apart; beyond 2^53 floats know no neighbours."""
    label = table()["truth"]
    for step in (np.arange(400) // 4 * 10**12, 2**53 + np.arange(400) // 4):
        assert audit({"label": label, "step": step}).step == 4
    with pytest.raises(StreamgaugeError, match="fractions such as"):
        audit({"label": label, "step": np.arange(400) / 2})


def test_steps_out_of_order_are_refused_after_sorting_too():
    columns = table()
    shifted = {
        "label": np.tile(columns["truth"], 2),
        "time": np.tile(columns["when"], 2),
        "shift": np.repeat([0, 1], 400),
        "step": np.tile(np.arange(400)[::-1], 2),
    }
    with pytest.raises(StreamgaugeError, match="decrease"):
        audit(shifted, sort=True)


@pytest.mark.parametrize("ending", [".123456", "+02:00", ".5-01:30"])
def test_times_with_parts_of_seconds_and_distance_from_utc(ending):
    base = np.datetime64("2026-01-01T00:00:00")
    text = [f"{base + np.timedelta64(60 * i, 's')}{ending}" for i in range(200)]
    read = join(
        list(PredictionLog({"label": np.arange(200) % 3, "time": np.array(text)}).pieces())
    ).time
    away = {".123456": 0, "+02:00": -7_200, ".5-01:30": 5_400}[ending]
    np.testing.assert_array_equal(read, base.astype(int) + away + 60 * np.arange(200))


def test_predictions_that_are_nan_or_infinite(tmp_path):
    """NaN is no prediction, whoever wrote the file; infinity is no class."""
    label = table()["truth"]
    guess = label.astype(float)
    guess[::4] = np.nan
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table({"label": label, "prediction": pa.array(guess)}), path)
    assert audit(path).online.samples == 300
    guess[5] = np.inf
    with pytest.raises(StreamgaugeError, match="such as inf, not classes"):
        audit({"label": label, "prediction": guess})
