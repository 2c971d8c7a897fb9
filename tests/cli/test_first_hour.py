"""What a new user types first: own files, short options, mistakes in each."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import streamgauge as sg


def write_table(path: Path, rows: int = 120) -> None:
    """Two inputs that tell three classes apart, by name."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 3, rows)
    x = rng.normal(size=(rows, 2)) + 3 * np.eye(3)[label][:, :2]
    names = ["low", "mid", "high"]
    lines = [f"{a:.3f},{b:.3f},{names[c]}" for (a, b), c in zip(x, label, strict=True)]
    path.write_text("\n".join(["a,b,class", *lines]) + "\n")


def header_of(folder: Path) -> dict[str, Any]:
    (file,) = folder.glob("runs/*/run.json")
    return dict(json.loads(file.read_text()))


def test_a_file_is_a_stream_and_vectors_get_an_mlp(call: Any, tmp_path: Path) -> None:
    write_table(tmp_path / "mine.csv")
    code, out, err = call("run", "--stream", "mine.csv", "--learner", "er")
    assert code == 0
    assert "is read as the stream 'tabular'" in err
    assert "label = 'class'" in err
    config = header_of(tmp_path)["config"]
    assert config["learner"]["settings"]["model"] == "mlp"
    assert config["stream"]["origin"] == "tabular"  # so that `resume` finds it from any folder
    assert config["stream"]["settings"]["path"] == str(tmp_path / "mine.csv")
    code, out, err = call("run", "--stream", "mine.csv", "--learner", "er")
    assert "complete already" in out


def test_images_get_a_cnn_and_a_name_still_means_the_built_in_stream(
    call: Any, tmp_path: Path
) -> None:
    (tmp_path / "albums").mkdir()
    words = ("run", "--stream", "albums", "--stream.length", "100", "--learner", "er")
    assert call(*words)[0] == 0
    assert header_of(tmp_path)["config"]["learner"]["settings"]["model"] == "cnn4"


def test_each_kind_of_data_finds_its_stream(tmp_path: Path) -> None:
    from streamgauge.streams.own.guess import stream_for

    photos = tmp_path / "photos" / "cat"
    photos.mkdir(parents=True)
    Image.new("RGB", (4, 4)).save(photos / "1.png")
    assert stream_for(tmp_path / "photos") == "folder"
    (tmp_path / "list.csv").write_text("path,label\nphotos/cat/1.png,cat\n")
    assert stream_for(tmp_path / "list.csv") == "manifest"
    (tmp_path / "file_sizes.csv").write_text("file,size,label\n1,2,cat\n2,3,dog\n")
    assert stream_for(tmp_path / "file_sizes.csv") == "tabular"
    np.savez(tmp_path / "a.npz", x=np.zeros((3, 2)), y=np.arange(3))
    assert stream_for(tmp_path / "a.npz") == "arrays"
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "train-0.tar").write_bytes(b"")
    assert stream_for(tmp_path / "shards") == "webdataset"
    (tmp_path / "notes.docx").write_bytes(b"x")
    with pytest.raises(sg.StreamgaugeError, match="No stream reads"):
        stream_for(tmp_path / "notes.docx")


def test_a_file_that_is_not_there_is_a_sentence(call: Any, tmp_path: Path) -> None:
    write_table(tmp_path / "mine.csv")
    code, _, err = call("run", "--stream", "mein.csv", "--learner", "er")
    assert (code, "did you mean 'mine.csv'?" in err) == (2, True)
    code, _, err = call("run", "--stream", "someone/photos", "--learner", "er")
    assert (code, "--stream huggingface --stream.path someone/photos" in err) == (2, True)


def test_a_zipped_table_is_the_same_stream(tmp_path: Path) -> None:
    write_table(tmp_path / "mine.csv")
    with zipfile.ZipFile(tmp_path / "mine.csv.zip", "w") as archive:
        archive.write(tmp_path / "mine.csv", "mine.csv")
        archive.writestr("__MACOSX/._mine.csv", b"\0\5")  # as one system adds
    plain, zipped = (sg.stream(str(tmp_path / name)) for name in ("mine.csv", "mine.csv.zip"))
    assert plain.source.fingerprint == zipped.source.fingerprint


MISTAKES = [
    ("run --stream mine.csv --learner er er", "er stands alone: write --learner before each"),
    ("run --learner er albums", "albums is a stream: write --stream albums."),
    (
        "run --stream mine.csv --learner er --learning-rate 1",
        "--learning-rate: did you mean --er.lr",
    ),
    ("run --stream mine.csv --learner er --batch-size 5", "did you mean --stream.batch?"),
    ("run --stream mine.csv --learner er --epochs 5", "did you mean --er.passes?"),
    ("run --stream mine.csv --learner er --er.buffer_size 5", "did you mean 'er.memory'?"),
    ("run --stream mine.csv --learner er --er.lr nan", "er.lr must be a number, not 'nan'."),
    (
        "run --stream mine.csv --learner er --seeds two",
        "streamgauge: --seeds must be a whole number.",
    ),
    ("run --stream mine.csv --learner er --checkpoint -1", "--checkpoint must be at least 0."),
    (
        "run --stream mine.csv --learner er --on-bad drop",
        "--on-bad cannot be 'drop'; it can be 'ref",
    ),
    ("run --stream mine.csv --learner er --er.augment flip", "'augment' is for images, and these"),
    ("run --stream https://a.b/c.csv --learner er", "is an address, not a file: download the file"),
    ("run --stream mine.csv --learner river:tree", "such as river:tree.Extr"),
    ("run --stream notes.xlsx --learner er", "or sg.stream(pandas.read_excel(...))"),
    ("power --deviation 0.1 --difference 2", "is a share below 1, not 2: 2 points are 0.02"),
    ("power --deviation big", "--deviation must be a number."),
    ("run --stream mine.csv --learner ER", "There is no learner 'ER'; did you mean 'er'?"),
    ("run --stream mine.csv --learner a=er --learner a=mir", "name one of them: OTHER=mir"),
    ("run --stream mine.csv --learner ncm --out mine.csv", "a file has the name of a folder; ch"),
    ("check mine.csv", "'mine.csv' is no learner: give a name (`streamgauge list learners`), or"),
    ("check --loop loop.py:nope", "no function 'nope' in loop.py; there is no other."),
    ("audit log.csv --label truth", "'truth' for the label: the columns are label."),
    ("run --stream log.csv --learner er", "has no column left for features: add one of numbers"),
    ("run --stream shares.csv --learner er", "turn numbers into classes, or choose another col"),
    ("suite table demo --runs nothere", "There is no folder nothere; check --runs."),
    ("data pack --stream mine.csv --out mine.csv", "File exists (mine.csv); choose another fold"),
    ("score mine", "There is no folder mine."),
    ("report mine.csv", "mine.csv is a file, not a folder of runs."),
    ("score .", "There is no run in this folder."),
    ("score", "Missing argument 'FOLDER'. See `streamgauge score --help`."),
    ("export runs", "Missing option '--to'. See `streamgauge export --help`."),
    ("scores runs", "No such command 'scores'. Did you mean 'score', "),
    ("suite rum demo", "No such command 'rum'. Did you mean 'run'?"),
    ("frobnicate", "No such command 'frobnicate'. The commands are audit, check,"),
    ("list er finetune", "Unexpected argument 'finetune'."),
    ("list metric", "did you mean 'metrics'?"),
    ("audit log.csv --shifts x", "'x' is not a duration: write a number and a unit"),
    ("audit log.csv --shifts 1h", "shifts are durations but the log has no times"),
    ("live --learner ncm --port 99999 --shape 3 --classes 2", "0-65535; choose another port."),
]


@pytest.mark.parametrize(("words", "sentence"), MISTAKES)
def test_a_mistake_is_a_sentence(call: Any, tmp_path: Path, words: str, sentence: str) -> None:
    if "river:" in words:
        pytest.importorskip("river")
    write_table(tmp_path / "mine.csv")
    (tmp_path / "notes.xlsx").write_bytes(b"PK")
    (tmp_path / "log.csv").write_text("label\n" + "0\n1\n" * 200)
    (tmp_path / "shares.csv").write_text("a,label\n" + "1,0.25\n2,0.75\n" * 20)
    (tmp_path / "loop.py").write_text("import numpy\n")
    code, _, err = call(*words.split())
    assert code == 2
    assert sentence in err


def test_the_figures_of_realtime_are_drawn_of_a_file(call: Any, tmp_path: Path) -> None:
    write_table(tmp_path / "mine.csv")
    words = ("realtime", "--stream", "mine.csv", "--speeds", "fast", "--methods", "er")
    code, out, err = call(*words, "--seeds", "1", "--json")
    assert code == 0, err
    assert json.loads(out)["pictures"][0]["speed"] == "fast"


def test_learners_that_fail_alike_share_a_sentence(call: Any, tmp_path: Path) -> None:
    learner = LEARNER.format(predict="torch.full((len(x), self.classes), torch.nan)", learn="{}")
    (tmp_path / "mine.py").write_text(learner)
    code, _, err = call("run", *SMALL, "--learner", "a=mine.py", "--learner", "b=mine.py")
    assert code == 2
    assert len(re.findall("scores hold a NaN", err)) == 1
    assert re.search(r"albums-a-s0-\w+, albums-b-s0-\w+: The learner's scores", err)


def test_exports_do_not_go_into_a_file(call: Any, tmp_path: Path) -> None:
    assert call("run", *SMALL, "--learner", "majority")[0] == 0
    (tmp_path / "taken").touch()
    code, _, err = call("export", "runs", "--to", "csv", "--out", "taken")
    assert (code, "Cannot export to taken: a file has that name" in err) == (2, True)


def test_tasks_that_an_order_does_not_make_are_announced(call: Any, tmp_path: Path) -> None:
    write_table(tmp_path / "mine.csv")
    words = ("run", "--stream", "mine.csv", "--learner", "majority", "--stream.tasks", "3")
    assert "The order 'given' makes no tasks, so tasks = 3 has no effect" in call(*words)[2]
    assert "makes no tasks" not in call(*words, "--stream.order", "classes")[2]


@pytest.mark.parametrize(
    ("what", "lines"),
    [
        ("metrics", ["online_accuracy", "worst_window", "near_future_accuracy"]),
        ("suites", ["survey-cifar100", "demo"]),
    ],
)
def test_metrics_and_suites_are_listed(call: Any, what: str, lines: list[str]) -> None:
    code, out, _ = call("list", what)
    named = [line.split()[0] for line in out.splitlines()[1:] if line.startswith("  ")]
    assert (code, set(lines) - set(named)) == (0, set())
    assert all(len(line.split()) > 2 for line in out.splitlines()[1:-2])
    found = json.loads(call("list", what, "--json")[1])[what]
    assert list(found) == named


SMALL = ("--stream", "albums", "--stream.length", "100")


def test_a_short_setting_is_that_of_the_only_learner(call: Any, tmp_path: Path) -> None:
    code, _, _ = call("run", *SMALL, "--learner", "a=er", "--lr", "0.125", "--weight-decay=0.5")
    settings = header_of(tmp_path)["config"]["learner"]["settings"]
    assert (code, settings["lr"], settings["weight_decay"]) == (0, 0.125, 0.5)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--learner", "er", "--learner", "mir", "--lr", "1"), "write --er.lr or --mir.lr, or"),
        (("--learner", "er", "--lr"), "--lr needs a value"),
        (("--learner", "er", "--seed", "1"), "did you mean --stream.seed or --er.seed?"),
        (("--learner", "er", "--batch", "5"), "did you mean --stream.batch?"),
        (("--learner", "er", "--basleines"), "Did you mean --baselines? The options are --addr"),
        (("--learner", "er", "--er.lrr", "5"), "did you mean 'er.lr'?"),
    ],
)
def test_a_wrong_option_says_what_there_is(call: Any, words: Any, sentence: str) -> None:
    code, _, err = call("run", *SMALL, *words)
    assert code == 2
    assert sentence in err


def test_a_wrong_option_of_another_command_lists_its_options(call: Any) -> None:
    code, _, err = call("diff", "--jsn")
    assert code == 2
    assert "The options of `streamgauge diff` are --help, --json." in err


def test_every_setting_has_a_sentence() -> None:
    from streamgauge.catalogue import names, summary

    for room in ("streams", "learners", "protocol"):
        for name in names(room):
            facts = summary(room, name)
            without = [s for s in facts["settings"] if not facts["notes"].get(s)]
            assert not without, (name, without)


LEARNER = """
import torch

class Mine:
    def __init__(self, spec, source, seed, device):
        self.classes = spec.classes
    def predict(self, x):
        return {predict}
    def learn(self, batch, predicted):
        return {learn}
    def state_dict(self):
        return {{}}
    def load_state_dict(self, state):
        pass
"""
GOOD = "torch.zeros(len(x), self.classes)"


@pytest.mark.parametrize(
    ("predict", "learn", "code", "sentence"),
    [
        ("None", "{}", 2, "one column per class, not None."),
        ("[0] * len(x)", "{}", 2, "one column per class, not a list."),
        ("torch.zeros(len(x)).long()", "{}", 2, "Class numbers become scores by torch.eye("),
        (f"{GOOD}.numpy().astype(complex)", "{}", 2, "not an array of type complex128"),
        (f"{GOOD}.numpy().astype(str)", "{}", 2, "predict must return numbers, a score per class"),
        (f"{GOOD} * 1j", "{}", 2, "real numbers as scores"),
        (GOOD, "0.5", 2, "learn must return a dictionary"),
        (GOOD, "{'loss': 1 / 0}", 3, "mine.py, line 10, in learn: ZeroDivisionError"),
        (GOOD, "{1: 0.5}", 2, "learn returned a value named 1; names are text."),
        (GOOD, "exit(5)", 3, "mine.py, line 10, in learn: SystemExit: 5"),
    ],
)
def test_mistakes_in_a_learner_are_sentences(
    call: Any, tmp_path: Path, predict: str, learn: str, code: int, sentence: str
) -> None:
    (tmp_path / "mine.py").write_text(LEARNER.format(predict=predict, learn=learn))
    found, _, err = call("run", *SMALL, "--learner", "mine.py")
    assert found == code
    assert sentence in err


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ("None", "state_dict of the learner Mine must return a dictionary, not None"),
        ("{'model': object()}", "could not be resumed: state_dict()['model'] is of type object"),
    ],
)
@pytest.mark.parametrize("scaled", [True, False])
def test_a_state_that_cannot_be_stored_is_a_sentence(
    call: Any, tmp_path: Path, state: str, sentence: str, scaled: bool
) -> None:
    write_table(tmp_path / "mine.csv")
    text = LEARNER.format(predict=GOOD, learn="None")
    (tmp_path / "mine.py").write_text(text.replace("return {}", f"return {state}"))
    stream = ("--stream", "mine.csv") if scaled else SMALL
    code, _, err = call("run", *stream, "--learner", "mine.py:Mine")
    assert (code, "Traceback" in err) == (2, False)
    assert sentence in err


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("learn(self, batch, predicted)", "learn(self, x)", "write def learn(self, batch, pred"),
        ("predict(self, x)", "predict(self)", "write def predict(self, x)."),
        ("seed, device)", "seed, device, lr)", "Settings are fields of a parameter `config`"),
        ("class Mine:", "def Mine(x): return x\nclass Other:", "The function Mine is not a lear"),
        ("class Mine:", "Mine = torch.nn.Linear\nclass Other:", "The torch module Linear is a net"),
    ],
)
def test_a_learner_that_cannot_be_called_is_a_sentence(
    call: Any, tmp_path: Path, old: str, new: str, sentence: str
) -> None:
    text = LEARNER.format(predict=GOOD, learn="{}")
    assert text.count(old) == 1
    (tmp_path / "mine.py").write_text(text.replace(old, new))
    code, _, err = call("run", *SMALL, "--learner", "mine.py:Mine")
    assert (code, "Traceback" in err) == (2, False)
    assert sentence in err


def test_a_stream_of_one_class_is_announced(call: Any, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,label\n" + "1,cat\n" * 5)
    code, out, err = call("run", "--stream", "t.csv", "--learner", "ncm")
    assert code == 0
    assert "All labels are of the class 'cat': answering it always is right" in out + err


def test_data_in_place_of_an_experiment_are_named(call: Any, tmp_path: Path) -> None:
    write_table(tmp_path / "mine.csv")
    code, _, err = call("run", "mine.csv", "--learner", "er")
    assert (code, "stream it with --stream mine.csv" in err) == (2, True)


def test_a_wrong_choice_lists_what_there_is(call: Any, tmp_path: Path) -> None:
    write_table(tmp_path / "mine.csv")
    words = ("run", "--stream", "mine.csv", "--learner", "er", "--stream.scale", "yes")
    code, _, err = call(*words)
    assert (code, "stream.scale cannot be 'yes'; it can be online or none." in err) == (2, True)


def test_steps_ends_a_run_early_and_the_same_command_goes_on(call: Any, tmp_path: Path) -> None:
    words = ("run", *SMALL, "--learner", "finetune")
    code, out, _ = call(*words, "--steps", "4")
    assert code == 0
    assert "4 steps (" in out
    assert "ended after 4 of 10 steps (--steps)" in out
    (folder,) = (tmp_path / "runs").iterdir()
    assert (sg.Run(folder).done, sg.Run(folder).step) == (False, 4)
    code, out, _ = call(*words)
    assert "goes on from step 4" in out
    assert "10 steps (6 of them now, " in out
    assert sg.Run(folder).done
    code, _, err = call(*words, "--steps", "0")
    assert (code, "--steps must be at least 1" in err) == (2, True)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("er", ["--er.memory 2000  samples stored", "docs/methods/er.md", "--learner er"]),
        ("manifest", ["--stream.image ''  the column with paths", "--stream.path PATH"]),
        ("split_cifar100", ["--stream.batch", "docs/streams.md"]),
        ("demo", ["Why online accuracy alone misleads", "streamgauge suite run demo"]),
        ("online_accuracy", ["docs/metrics.md"]),
    ],
)
def test_list_explains_a_name(call: Any, name: str, expected: list[str]) -> None:
    code, out, _ = call("list", name)
    assert code == 0
    assert all(text in out for text in expected), out


def all_commands(command: Any, path: str = "") -> list[tuple[str, Any]]:
    parts = getattr(command, "commands", {})
    inner = [pair for name, part in parts.items() for pair in all_commands(part, f"{path} {name}")]
    return [(path.strip(), command), *inner]


def test_help_has_one_style(call: Any) -> None:
    """Placeholders are words, not Python types; every default is shown in one way."""
    from streamgauge.cli import app
    from streamgauge.cli.help import build

    for path, command in all_commands(build(app)):
        code, out, _ = call(*path.split(), "--help")
        assert code == 0
        prose = out.partition("Examples:")[0].partition("\nOptions:")[0]
        assert not re.search(r"\b([Ii]t|[Tt]hem)\b", prose), (path, prose)
        types = re.findall(r"<\w[^|>]*>|\b(?:TEXT|INTEGER|FLOAT)\b", out)
        assert not types, (path, types)
        odd = re.findall(r"default: \(|[<>]=|default: \d+\.0(?![.\d])|[{}]|\.\.\.\n\w", out)
        assert not odd, (path, odd)
        examples = out.count("\n      streamgauge ")
        assert ("Examples:" in out) == (examples > 1), path
        brackets = re.findall(
            r"(?<![\w=/])\[(?!default|required|x>=|stream\]|protocol\]|er\])[a-z][^\]]*\]", out
        )
        assert not brackets, (path, brackets)
        for parameter in command.params:
            if parameter.name == "show_completion":  # Typer's
                continue
            words = getattr(parameter, "help", "") or ""
            assert parameter.hidden or words.endswith("."), (path, parameter.name)
            assert not re.search(r"\b(it|its|them|so many|so long)\b", words), (path, words)


def test_the_shell_completes_names() -> None:
    code = "import sys; sys.argv = ['streamgauge']; from streamgauge.cli import main; main()"
    variables = {
        "_STREAMGAUGE_COMPLETE": "complete_bash",
        "COMP_WORDS": "streamgauge run --learner small=ma",
        "COMP_CWORD": "3",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | variables
    )
    assert done.stdout.split() == ["small=majority"], done.stderr


@pytest.mark.parametrize(
    ("path", "parameter", "begun", "expected"),
    [
        ("run", "stream", "split_cifar10", ["split_cifar10", "split_cifar100"]),
        ("cost", "learners", "ma", ["majority"]),
        ("suite run", "name", "de", ["demo"]),
        ("data info", "name", "cifar100", ["cifar100"]),
        ("list", "what", "worst_w", ["worst_window"]),
        ("tune", "objective", "online_a", ["online_accuracy"]),
    ],
)
def test_each_kind_of_name_is_completed(
    path: str, parameter: str, begun: str, expected: list[str]
) -> None:
    from streamgauge.cli import app
    from streamgauge.cli.help import build

    commands = dict(all_commands(build(app)))
    (found,) = [p for p in commands[path].params if p.name == parameter]
    context = type("Context", (), {"params": {}, "command": commands[path]})()
    assert [item.value for item in found.shell_complete(context, begun)] == expected
