"""OpenML against a server in the test: the description says what the label is, and what is no
input; wrong, large and hostile answers are refused."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamgauge as sg
from streamgauge.streams.own import openml

ROWS = 200


class Server(ThreadingHTTPServer):
    """Answers with `files`, by path."""

    files: dict[str, bytes]
    asked: list[str]

    def describe(self, number: int = 7, **more: Any) -> None:
        about = {
            "id": str(number), "name": "weather", "version": "2", "format": "ARFF",
            "url": f"{self.url}/file.arff", "licence": "CC-BY", "status": "active",
            "md5_checksum": hashlib.md5(self.files["file.arff"]).hexdigest(),
            "default_target_attribute": "sky", "row_id_attribute": "row",
            "ignore_attribute": ["station, north", "note"],
        }  # fmt: skip
        content = {"data_set_description": about | more}
        self.files[f"api/v1/json/data/{number}"] = json.dumps(content).encode()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        body = self.server.files.get(self.path.strip("/"))
        if body is None:
            self.send_error(412)
            return
        self.send_response(200)
        if not self.path.endswith("endless"):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


SKY = np.random.default_rng(0).choice(["clear sky", "rain"], ROWS)
HEAT = np.random.default_rng(1).normal(size=ROWS).round(3)


def arff() -> bytes:
    names = ("row numeric", "heat numeric", "'station, north' {a,b}", "note string")
    lines = ["@relation weather", *(f"@attribute {name}" for name in names)]
    lines += ["@attribute sky {'clear sky',rain,snow}", "@attribute wet {yes,no}", "@data"]
    for row in range(ROWS):
        wet = "yes" if row % 2 else "no"
        lines.append(f"{row},{HEAT[row]},a,'row {row}','{SKY[row]}',{wet}")
    return "\n".join(lines).encode()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    made = Server(("127.0.0.1", 0), Handler)
    made.files, made.asked = {"file.arff": arff()}, []
    made.describe()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setattr(openml, "SERVER", made.url)
    monkeypatch.setenv("STREAMGAUGE_DATA", str(tmp_path / "data"))
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def test_the_description_names_label_and_inputs(server: Server) -> None:
    stream = sg.stream("openml:7")
    assert stream.name == "openml-7"
    names = list(stream.source.class_names or ())
    assert [names[code] for code in np.asarray(stream.source.label)] == SKY.tolist()
    x = np.asarray(stream.source.read(np.arange(ROWS)))
    np.testing.assert_allclose(x[:, 0], HEAT, rtol=1e-6)  # heat, then 16 columns of wet
    assert x.shape[1] == 1 + 16
    asked = len(server.asked)
    again = sg.stream("openml:7")
    assert again.source.fingerprint == stream.source.fingerprint
    assert len(server.asked) == asked  # kept


def test_a_run_on_openml_resumes_by_its_name(server: Server, call: Any, tmp_path: Path) -> None:
    words = ("run", "--stream", "openml:7", "--learner", "majority", "--out", "runs")
    code, _, _ = call(*words, "--stream.batch", "20", "--steps", "4")
    assert code == 0
    code, out, _ = call("resume", "runs")
    assert code == 0
    (run,) = sg.find_runs(tmp_path / "runs")
    assert run.done
    assert run.stream["name"] == "openml-7"
    assert "openml-7" in out


def test_another_label_and_several_targets(server: Server) -> None:
    stream = sg.stream("openml:7", label="wet")
    assert stream.source.class_names == ["no", "yes"]
    server.describe(8, default_target_attribute="sky,wet")
    with pytest.raises(sg.StreamgaugeError, match=r"several targets: .* such as sky, wet"):
        sg.stream("openml:8")
    server.describe(9, default_target_attribute=None)
    with pytest.raises(sg.StreamgaugeError, match="no target"):
        sg.stream("openml:9")


def test_parquet_where_there_is_no_arff(server: Server, tmp_path: Path) -> None:
    table = pa.table({"heat": HEAT, "sky": SKY})
    pq.write_table(table, tmp_path / "t.parquet")
    server.files["t.parquet"] = (tmp_path / "t.parquet").read_bytes()
    server.describe(5, format="parquet", parquet_url=f"{server.url}/t.parquet")
    assert sg.stream("openml:5").source.class_names == list(dict.fromkeys(SKY.tolist()))


def test_bad_answers_are_one_sentence(server: Server, tmp_path: Path) -> None:
    with pytest.raises(sg.StreamgaugeError, match="no description of data set 404"):
        sg.stream("openml:404")
    with pytest.raises(sg.StreamgaugeError, match="openml:NUMBER"):
        sg.stream("openml")
    server.describe(2, url="file:///etc/hostname")
    with pytest.raises(sg.StreamgaugeError, match="no file that can be read"):
        sg.stream("openml:2")
    server.describe(3, md5_checksum="0" * 32)
    with pytest.raises(sg.StreamgaugeError, match="md5"):
        sg.stream("openml:3")
    server.files["api/v1/json/data/4"] = b"<html>"
    with pytest.raises(sg.StreamgaugeError, match="no description of a data set"):
        sg.stream("openml:4")
    server.describe(4)
    assert len(sg.stream("openml:4")) == ROWS  # the wrong answer was not kept


def test_large_files_are_refused_before_and_while_they_come(server: Server, tmp_path: Path) -> None:
    server.files["large.arff"] = server.files["endless"] = b"x" * 3_000_000
    for number, name in ((11, "large.arff"), (12, "endless")):
        server.describe(number, url=f"{server.url}/{name}", md5_checksum=None)
        with pytest.raises(sg.StreamgaugeError, match="more than 1 MB"):
            sg.stream(f"openml:{number}", max_megabytes=1)
        left = [path.name for path in (tmp_path / "data" / "openml" / str(number)).iterdir()]
        assert left == ["description.json"]
