"""Recorded steps give the log that called ones give; without a GPU by the stand-in that refuses
whatever a graph could not hold."""

from __future__ import annotations

import gc
import math
import weakref
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import streamgauge as sg
from helpers import same_log
from streamgauge.cost.flops import Meter
from streamgauge.engine import make
from streamgauge.engine.graph import Graph
from streamgauge.engine.steps import WARM_UP, CannotRecord, CudaTape, EngineExecutor, HostTape
from streamgauge.errors import StreamgaugeError
from streamgauge.models import build
from streamgauge.models.folded import Folded
from streamgauge.record.tables import TABLES, RowBuffer, columns_of
from streamgauge.running.determinism import make_deterministic
from streamgauge.running.evaluation import Heldout
from streamgauge.running.loop import Loop
from streamgauge.running.protocol import Protocol
from streamgauge.streams import ArraySource, arrange
from streamgauge.streams.gate import Resident
from streamgauge.streams.stream import Arrangement

CPU = torch.device("cpu")
ON_GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
DEVICES = ["cpu", pytest.param("cuda", marks=ON_GPU)]
ENGINES = [("operations", "cpu"), ("graph", "cpu"), pytest.param("graph", "cuda", marks=ON_GPU)]

# `cost` is the protocol's: batches are dropped, and a learner may look at them.
LEARNERS: list[tuple[str, dict[str, Any]]] = [
    ("er", {}),
    ("er", {"passes": 3, "policy": "class_balanced", "wait": True, "augment": "crop_flip"}),
    ("er", {"momentum": 0.9, "weight_decay": 1e-3}),
    ("er_ace", {"as_published": True, "passes": 2}),
    ("er_lwf", {"as_published": True}),
    ("mir", {"as_published": True, "candidates": 12}),
    ("mir", {"select": "batch", "passes": 2, "candidates": 12}),
    ("rar", {"as_published": True}),
    ("rar", {}),
    ("derpp", {}),
    ("derpp", {"as_published": True}),
    ("agem", {}),
    ("scr", {}),
    ("scr", {"as_published": True, "refresh": 1}),
    ("gdumb", {"epochs": 2, "batch": 8, "momentum": 0.9}),
    ("gdumb", {"epochs": 1, "batch": 8}),
    ("lwf", {"warmup": 30}),
    ("gss", {"subset": 2, "subsets": 2}),
    ("gss", {"subset": 2, "subsets": 2, "as_published": True, "augment": "crop_flip"}),
    ("er_plus", {"steps": "3/2"}),
    ("ace", {}),
    ("finetune", {}),
    ("er_batch", {"train_batch": 5}),
    ("rwalk", {"warmup": 30, "refresh": 7, "path_steps": 3}),
    ("rwalk", {"warmup": 30, "refresh": 6, "path_steps": 3, "passes": 2, "momentum": 0.9}),
    ("rwalk", {"warmup": 30, "refresh": 8, "path_steps": 3, "as_published": True, "stride": 2}),
    ("polrs", {"rate_interval": 50, "passes": 2}),
    ("polrs", {"rate_interval": 40, "judge": "answers", "as_published": True, "cost": 3}),
    ("polrs", {"rate_interval": 40, "judge": "answers", "as_published": True, "momentum": 0.9}),
    ("mir", {"as_published": True, "code": "realtime", "candidates": 12, "momentum": 0.9}),
    ("mir", {"as_published": True, "code": "realtime", "candidates": 9, "passes": 2}),
    ("er_cosine", {"lr": 0.05}),
    ("er_cosine", {"as_published": True, "train_batch": 5, "weight_decay": 1e-3}),
    ("adrep", {"size_interval": 50, "tolerance": 0.0}),
    ("adrep", {"size_interval": 30, "memory": 16, "as_published": True}),
    ("adrep_cosine", {"size_interval": 50, "tolerance": 0.0}),
    ("polrs_adrep", {"train_batch": 5, "size_interval": 50, "rate_interval": 40}),
    ("ncm", {}),
]
# The last of each: a second pass, copies, a pass under other weights, passes in evaluation mode.
MODES = ("rwalk", "polrs", "mir", "gss")
BATCH_NORM = list({row[0]: row for row in LEARNERS if row[0] in MODES}.values())


class Shelf:
    """A record in memory."""

    full = False

    def __init__(self) -> None:
        self.rows = {
            name: RowBuffer(columns_of(name, frozenset({"user", "time"}))) for name in TABLES
        }
        self.state: dict[str, Any] = {}

    def checkpoint(self, step: int, state: dict[str, Any], done: bool = False) -> None:
        self.state = state


def a_stream(seed: int = 0) -> sg.Stream:
    """Three tasks of steps of seven, so that each task ends in a short batch."""
    rng = np.random.default_rng(seed)
    label = np.repeat(np.arange(6), 40)
    x = rng.integers(60, 196, (6, 3, 8, 8))[label] + rng.integers(-60, 60, (240, 3, 8, 8))
    how = Arrangement(order="classes", tasks=3, batch=7, held_out=0.1, held_out_by="task")
    return arrange(ArraySource(x.astype(np.uint8), label), how)


class Operations(TorchDispatchMode):
    """A tape that repeats operations on the memory they were first made on, as a CUDA graph does,
    and runs none of the learner's own code: what that code would put elsewhere, or count on the
    host, is not there for the next step."""

    def record(self, function: Any, fixed: list[Any]) -> tuple[Any, Any]:
        self.made: list[Any] = []
        with self:
            outputs = function(*fixed)
        made, fresh = self.made, [True]

        def replay() -> None:
            if fresh:
                fresh.clear()
                return
            with torch.no_grad():
                for operation, args, kwargs, result in made:
                    again = operation(*args, **kwargs)
                    for old, new in zip(tree_leaves(result), tree_leaves(again), strict=True):
                        if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                            old.copy_(new)

        return replay, outputs

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = operation(*args, **(kwargs or {}))
        self.made.append((operation, args, kwargs or {}, result))
        return result


def go(
    name: str, settings: dict[str, Any], engine: str, device: str, model: str = "mlp"
) -> tuple[Shelf, Loop]:
    """The engine `operations` is `graph` with the tape above."""
    stream, place = a_stream(), torch.device(device)
    slow = {"cost": settings["cost"], "as_published": True} if "cost" in settings else {}
    settings = {name: value for name, value in settings.items() if name != "cost"}
    if name not in ("ncm",):
        settings = {"model": model, "memory": 30, "lr": 0.02, "recall": 5, **settings}
    recipe = sg.learner(name, **settings)
    shelf = Shelf()
    loop = Loop(
        stream,
        lambda gate: recipe.build(stream.spec, gate, 0, place),
        Protocol(evaluate=1, shifts=(14,), **slow),
        shelf,
        place,
        make("graph" if engine == "operations" else engine, place, "fp32"),  # type: ignore[arg-type]
    )
    if engine == "operations" and not loop.engine.reason:
        loop.engine._steps._tape = Operations()  # type: ignore[attr-defined]
    loop.run(1e9)
    return shelf, loop


called: dict[str, tuple[Shelf, Loop]] = {}  # step by step, once for all engines


@pytest.mark.parametrize(("engine", "device"), ENGINES)
@pytest.mark.parametrize(("name", "settings"), LEARNERS)
def test_recorded_steps_give_the_log_of_called_ones(
    name: str, settings: dict[str, Any], engine: str, device: str
) -> None:
    key = f"{name} {settings} {device}"
    if key not in called:
        called[key] = go(name, settings, "eager", device)
    replayed = go(name, settings, engine, device)
    if name != "ncm":
        assert replayed[1].engine.reason == ""
        assert len(replayed[1].engine._steps._recorded) >= 3  # type: ignore[attr-defined]
    compare(called[key], replayed, device)


class CountingTape(HostTape):
    """By function and plain inputs, how often a recording was replayed after its first time."""

    def __init__(self) -> None:
        super().__init__()
        self.replayed: dict[Any, int] = {}

    def record(self, function: Any, fixed: list[Any]) -> tuple[Any, Any]:
        replay, outputs = super().record(function, fixed)
        plain = (one for one in fixed if not isinstance(one, torch.Tensor))
        key, first = (function.__name__, *plain), [True]

        def counted() -> None:
            self.replayed[key] = self.replayed.get(key, 0) + (0 if first else 1)
            first.clear()
            replay()

        return counted, outputs


@pytest.mark.parametrize("settings", [row[1] for row in LEARNERS if row[0] == "gss"])
def test_all_that_gss_computes_is_replayed(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While its memory fills and after, where samples take the place of others and where not."""
    monkeypatch.setattr("streamgauge.engine.graph.HostTape", CountingTape)
    shelf, loop = go("gss", settings, "graph", "cpu")
    replayed = loop.engine._steps._tape.replayed  # type: ignore[attr-defined]
    assert replayed["survey", False] >= 1
    assert replayed["survey", True] >= 10
    assert replayed["cosines",] >= 2
    rows = shelf.rows["training"]
    name, value = rows.peek("name"), rows.peek("value")
    similarity, replaced = value[name == "similarity"], value[name == "replaced"]
    assert 2 <= (similarity < 0).sum() < len(similarity) - 2
    later = replaced[-len(similarity) + 1 :]  # what a batch replaced is decided at the next
    assert (later > 0).sum() >= 2
    assert (later[similarity[:-1] >= 0] == 0).all()


@pytest.mark.parametrize(("name", "settings"), BATCH_NORM)
def test_recorded_steps_move_batch_norm_as_called_ones_do(
    name: str, settings: dict[str, Any]
) -> None:
    runs = [go(name, settings, engine, "cpu", "cnn4") for engine in ("eager", "operations")]
    compare(*runs, "cpu")
    states = [loop.learner.model.state_dict() for _, loop in runs]  # type: ignore[attr-defined]
    for array, other in zip(*(state.values() for state in states), strict=True):
        assert torch.allclose(array.float(), other.float(), atol=1e-5)


def compare(called: tuple[Shelf, Loop], replayed: tuple[Shelf, Loop], device: str) -> None:
    shelves, (one, two) = zip(*(called, replayed), strict=True)
    for table, exact, near in (
        ("predictions", ("step", "sample", "label", "version", "shift"), ("confidence",)),
        ("evaluations", ("step", "task", "count"), ()),
        ("training", ("step",), ("value",)),
        ("jobs", ("step", "version", "recalled", "flops"), ()),
    ):
        for column in exact:
            a, b = (shelf.rows[table].peek(column) for shelf in shelves)
            assert np.array_equal(a, b, equal_nan=True), (table, column)
        for column in near:
            a, b = (shelf.rows[table].peek(column) for shelf in shelves)
            close = 1e-3 if device == "cuda" else 1e-5
            assert np.allclose(a, b, rtol=close, atol=close), (table, column)
    a, b = (shelf.rows["predictions"].peek("prediction") for shelf in shelves)
    assert (a == b).mean() > (0.99 if device == "cuda" else 0.9999)
    a, b = (shelf.rows["evaluations"].peek("correct") for shelf in shelves)
    assert np.abs(a - b).max() <= (2 if device == "cuda" else 0)
    assert abs(one.right - two.right) <= (3 if device == "cuda" else 0)
    assert one.asked == two.asked == one.stream.samples


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("er", {"augment": "crop_flip"}),
        ("rwalk", {"warmup": 30, "refresh": 7, "path_steps": 4}),
        ("rwalk", {"warmup": 30, "refresh": 9, "path_steps": 3, "as_published": True}),
        ("polrs", {"rate_interval": 50, "momentum": 0.9}),
        ("mir", {"as_published": True, "code": "realtime", "candidates": 12}),
        ("er_cosine", {"momentum": 0.9}),
        ("adrep", {"size_interval": 30}),
        ("gss", {"subset": 2, "subsets": 2, "as_published": True, "augment": "crop_flip"}),
    ],
)
def test_a_run_that_is_resumed_goes_on_as_if_it_had_not_stopped(
    name: str, settings: dict[str, Any], device: str
) -> None:
    """Halfway between two of whatever the learner does at intervals."""
    place = torch.device(device)
    recipe = sg.learner(name, **{"model": "mlp", "memory": 30, "lr": 0.02, "recall": 5, **settings})
    whole, _ = go(name, settings, "graph", device)

    def loop(shelf: Shelf) -> Loop:
        stream = a_stream()
        return Loop(stream, lambda gate: recipe.build(stream.spec, gate, 0, place),
                    Protocol(evaluate=1, shifts=(14,)), shelf, place,
                    make("graph", place, "fp32"))  # fmt: skip

    first, second = Shelf(), Shelf()
    loop(first).run(1e9, until=15)
    rest = loop(second)
    rest.load_state_dict(first.state)
    rest.run(1e9)
    for table, columns in {
        "predictions": ("sample", "prediction", "confidence"),
        "training": ("step", "value"),
    }.items():
        for column in columns:
            parts = [part.rows[table].peek(column) for part in (first, second)]
            assert np.array_equal(whole.rows[table].peek(column), np.concatenate(parts))


class Odd:
    """Functions that no graph can hold."""

    def __init__(self) -> None:
        self.calls = 0

    def waits(self, x: torch.Tensor) -> torch.Tensor:
        return x * x.sum().item()

    def fetches(self, x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.numpy() + 1)

    def decides(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x

    def picks(self, x: torch.Tensor) -> torch.Tensor:
        return x[x > 0]

    def grows(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x.repeat(self.calls)

    def does_nothing(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def is_fine(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(x > 0, x, 0).cumsum(0)


@pytest.mark.parametrize("name", ["waits", "fetches", "decides", "picks", "grows"])
def test_the_stand_in_refuses_what_a_graph_could_not_hold(name: str) -> None:
    steps = EngineExecutor(HostTape(), print)
    function = getattr(Odd(), name)
    steps.run(function, torch.arange(4.0))
    steps.run(function, torch.arange(4.0))
    assert WARM_UP == 2
    with pytest.raises(StreamgaugeError, match=f"{name} cannot be recorded"):
        [steps.run(function, torch.arange(4.0)) for _ in range(2)]


def test_what_a_step_put_out_stays_when_others_are_replayed() -> None:
    steps = EngineExecutor(HostTape(), print)
    said = [steps.run(Odd().is_fine, torch.full((3,), float(n))) for n in range(WARM_UP + 3)]
    for _ in range(WARM_UP + 3):  # another recording, in the memory of the first
        steps.run(Odd().is_fine, torch.ones(4))
    assert [one.tolist() for one in said] == [[n, 2.0 * n, 3.0 * n] for n in range(WARM_UP + 3)]
    same = [steps.run(Odd().does_nothing, torch.full((3,), float(n))) for n in range(WARM_UP + 3)]
    assert [one.tolist() for one in same] == [[n, n, n] for n in range(WARM_UP + 3)]
    assert steps.run(Odd().is_fine, torch.ones(5)).tolist() == [
        1,
        2,
        3,
        4,
        5,
    ]  # another shape: called


@pytest.mark.parametrize("device", DEVICES)
def test_inputs_of_any_kind_reach_a_recorded_step(device: str) -> None:
    """Types and sizes of their own, one number, none at all, and what is no tensor."""
    steps = EngineExecutor(HostTape(), print)

    def all_of_it(
        x: torch.Tensor, y: torch.Tensor, one: torch.Tensor, none: torch.Tensor, plain: int
    ) -> torch.Tensor:
        return plain * (x.sum() + y.sum() + one + none.sum())

    for n in range(WARM_UP + 4):
        x = torch.full((2, 3), n, dtype=torch.uint8, device=device)
        y, none = torch.arange(n, n + 4, device=device), torch.empty(0, device=device)
        said = steps.run(all_of_it, x.T, y, torch.tensor(0.5, device=device), none, 2)
        assert float(said) == 2 * (6 * n + 4 * n + 6 + 0.5)
    assert float(steps.run(all_of_it, x.T, y, torch.tensor(1.5, device=device), none, 2)) == 2 * (
        10 * n + 7.5
    )
    assert len(steps._recorded) == 1


def test_a_step_whose_flops_are_counted_is_called() -> None:
    steps, meter = EngineExecutor(HostTape(), print), Meter()
    left = torch.ones(3, 4)

    def product(right: torch.Tensor) -> torch.Tensor:
        return left @ right

    for _ in range(6):
        with meter.job("learn"):
            steps.run(product, torch.ones(4, 5))
        assert meter.flops == 2 * 3 * 4 * 5


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize(
    ("name", "shape"), [("slim_resnet18", (3, 32, 32)), ("slim_resnet18", (3, 28, 28)),
                        ("resnet18", (3, 64, 64)),
                        ("resnet50", (3, 64, 64))],
)  # fmt: skip
def test_a_folded_network_answers_as_the_network_does(
    name: str, shape: tuple[int, ...], precision: str, device: str
) -> None:
    if device == "cpu" and precision == "fp16":
        pytest.skip("convolutions in fp16 are slow on a CPU")
    torch.manual_seed(0)
    model = build(name, shape, 10, 0).to(device)
    model.head.seen.fill_(True)
    model.train()
    with torch.no_grad():
        for _ in range(3):  # statistics that are not those of the beginning
            model(torch.randn(16, *shape, device=device) * 2 + 1)
    model.eval()
    x = torch.randn(12, *shape, device=device)
    folded = Folded(model, precision)
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        with torch.no_grad():
            folded.refresh()
            own, quick = model(x), folded(x)
            assert folded.features(x).shape == model.features(x).shape
    finally:
        torch.backends.cudnn.allow_tf32 = before
    size = own.abs().max()
    close = {"fp32": 1e-4, "fp16": 2e-2, "bf16": 1e-1}[precision]
    assert (own - quick).abs().max() < close * size
    with torch.no_grad():  # weights that change are seen after a refresh
        model.conv1.weight.mul_(0.5)  # type: ignore[operator,union-attr]
        folded.refresh()
        assert not torch.equal(folded(x), quick)


def test_a_graph_on_a_cpu_evaluates_in_fp32() -> None:
    assert Graph(CPU).precision == "fp32"
    assert make("auto", CPU).name == "eager"
    with pytest.raises(StreamgaugeError, match="no engine 'fast'"):
        make("fast", CPU)  # type: ignore[arg-type]


def test_a_resident_source_gives_what_its_source_gives() -> None:
    stream = a_stream()
    resident = Resident(stream.source, CPU)
    index = np.array([3, 200, 3])
    there = torch.from_numpy(index)
    assert np.array_equal(resident.fetch(there).numpy(), stream.source.read(index))
    assert resident.fetch_labels(there).tolist() == stream.source.label[index].tolist()
    assert resident.fingerprint == stream.source.fingerprint
    assert len(resident) == len(stream.source)


@pytest.mark.parametrize("engine", ["eager", "graph"])
@pytest.mark.parametrize(
    ("name", "protocol"),
    [
        ("er", Protocol(evaluate="never")),
        ("er", Protocol(shifts=(14,), cost="4/3", busy="queue")),
        ("er", Protocol(label_delay=2, cost="2", busy="store", remainder="store")),
        ("derpp", Protocol(predict=False)),
        ("majority", Protocol()),
    ],
)
def test_a_run_on_a_resident_source_writes_the_same_log(
    name: str, protocol: Protocol, engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, runs = a_stream(), []
    recipe = sg.learner(name, model="mlp", memory=40) if name != "majority" else sg.learner(name)
    for resident in (False, True):
        monkeypatch.setattr("streamgauge.running.active_run.fits", lambda *_, there=resident: there)
        where = tmp_path / str(resident)
        runs.append(
            sg.run(stream, recipe, protocol=protocol, out=where, device="cpu", engine=engine)
        )
    assert same_log(*runs)


def test_of_a_resident_source_only_recalled_addresses_are_sent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sent: list[int] = []
    monkeypatch.setattr("streamgauge.running.active_run.fits", lambda *_: True)
    for place in ("streams.gate", "learners._network", "loop"):
        monkeypatch.setattr(f"streamgauge.{place}.to_device", spying(sent))
    stream = a_stream()
    recipe = sg.learner("er", model="mlp", passes=3, recall=5, memory=40)
    sg.run(stream, recipe, protocol=Protocol(evaluate="never"), out=tmp_path, device="cpu")
    assert sent == [stream.samples, 0, *[15] * (len(stream) - 1)]  # nothing to recall at first


def spying(sent: list[int]) -> Any:
    def spy(values: Any, device: torch.device) -> Any:
        sent.append(len(values))
        return torch.from_numpy(values)

    return spy


def test_only_few_samples_of_tasks_are_asked_by_a_recording(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = a_stream()
    assert Heldout(stream, stream.splits["held_out"]).recurs
    plain = arrange(stream.source, Arrangement(batch=7, held_out=0.1))  # by time: ever more of them
    assert not Heldout(plain, plain.splits["held_out"]).recurs
    monkeypatch.setattr("streamgauge.running.evaluation.CACHE_BYTES", 1000)
    assert not Heldout(stream, stream.splits["held_out"]).recurs


@pytest.mark.parametrize("by", ["task", "time"])
def test_what_is_known_of_held_out_samples_lies_in_one_place(by: str) -> None:
    """However many are asked: a recording finds it, and evaluations by time, each of other samples
    than the one before, leave nothing behind."""
    stream = a_stream()
    if by == "time":
        stream = arrange(stream.source, Arrangement(batch=7, held_out=0.1))
    heldout = Heldout(stream, stream.splits["held_out"])
    whole = heldout.marks(len(heldout), CPU)
    for asked in range(len(heldout) + 1):
        numbers, count = np.unique(heldout.task[:asked], return_counts=True)
        assert [v.tolist() for v in heldout.tasks_of(asked)] == [numbers.tolist(), count.tolist()]
        marks = heldout.marks(asked, CPU)
        assert marks.label.tolist() == heldout.label[:asked].tolist()
        assert marks.task.tolist() == heldout.task[:asked].tolist()
        assert marks.tasks.tolist() == numbers.tolist()
        for part, all_of_it in zip(marks, whole, strict=True):
            assert part.untyped_storage().data_ptr() == all_of_it.untyped_storage().data_ptr()


@pytest.mark.parametrize("engine", ["eager", "graph"])
@pytest.mark.parametrize(
    ("learner", "rate"),
    [("er", r"learning rate \(lr\)"), ("slda", ""), ("ncm", ""), ("own", "learning rate, or")],
)
def test_scores_without_a_number_advise_what_the_learner_has(
    learner: str, rate: str, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_number(self: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.full((len(x), 2), math.nan)

    class Own:
        def __init__(self, spec: Any, source: Any, seed: int, device: torch.device) -> None:
            pass

        predict = no_number

        def learn(self, batch: Any, predicted: Any) -> None: ...
        def state_dict(self) -> dict[str, Any]:
            return {}

        def load_state_dict(self, state: dict[str, Any]) -> None: ...

    if learner in ("slda", "ncm"):
        monkeypatch.setattr(sg.learner(learner).kind, "predict", no_number)
    x = np.full((40, 3), 3e38, np.float32)  # in which training diverges
    stream = sg.stream(x, np.arange(40) % 2, batch=4)
    words = f"scores hold a NaN.*{rate}.* inputs that are not"
    with pytest.raises(StreamgaugeError, match=words) as error:
        sg.run(stream, Own if learner == "own" else learner, out=tmp_path, device="cpu",
               engine=engine, log=str)  # fmt: skip
    assert ("learning rate" in str(error.value)) == bool(rate)


def test_scores_without_a_number_are_refused_at_the_next_checkpoint() -> None:
    with pytest.raises(StreamgaugeError, match="hold a NaN"):
        go("er", {"lr": 1e30}, "graph", "cpu")


@pytest.mark.parametrize("device", DEVICES)
def test_counts_at_a_boundary_are_those_of_called_steps(device: str) -> None:
    """Of each task, within the classes of each earlier one, with a probe, and what was said."""
    logs = []
    for engine in ("eager", "graph"):
        stream, place = a_stream(), torch.device(device)
        recipe = sg.learner("er", model="mlp", memory=30, lr=0.02)
        shelf = Shelf()
        Loop(
            stream,
            lambda gate: recipe.build(stream.spec, gate, 0, place),  # noqa: B023
            Protocol(probe="end", milestones=(0.5, 1.0)),
            shelf,
            place,
            make(engine, place, "fp32"),  # type: ignore[arg-type]
        ).run(1e9)
        logs.append(shelf.rows)
    called, replayed = logs
    counted = called["evaluations"]
    assert {"held_out", "probe"} <= set(counted.peek("split"))
    assert counted.peek("within").max() == 2
    assert len(called["answers"].peek("prediction")) > 0
    for table, columns in (
        ("evaluations", ("step", "split", "task", "within", "count")),
        ("answers", ("step", "sample", "label")),
    ):
        for column in columns:
            assert list(called[table].peek(column)) == list(replayed[table].peek(column))
    a, b = (rows["evaluations"].peek("correct") for rows in logs)
    assert np.abs(a - b).max() <= (3 if device == "cuda" else 0)
    a, b = (rows["answers"].peek("prediction") for rows in logs)
    assert (a == b).mean() > 0.95


def test_flops_do_not_depend_on_the_network_that_answers() -> None:
    """SCR asks for its means of the folded network, whose channels are padded, and whose fused
    convolutions on a GPU no counter knows."""
    flops = []
    for precision in ("fp32", "tf32"):
        stream, shelf, engine = a_stream(), Shelf(), Graph(CPU)
        engine.precision = precision  # tf32 is fp32 on a CPU, but folds
        recipe = sg.learner("scr", model="slim_resnet18", memory=8, recall=4, refresh=2)
        loop = Loop(stream, lambda gate: recipe.build(stream.spec, gate, 0, CPU),  # noqa: B023
                    Protocol(evaluate="never"), shelf, CPU, engine)  # fmt: skip
        loop.run(1e9, until=4)
        assert (engine._folded is None) == (precision == "fp32")
        flops.append(shelf.rows["jobs"].peek("flops").tolist())
    assert flops[0] == flops[1]
    assert len(set(flops[0])) > 1  # of steps with means and of steps without


@pytest.mark.parametrize("name", ["er", "scr", "gdumb", "mir"])
def test_mean_and_std_work_where_held_out_images_are_stored_normalised(name: str) -> None:
    """The folded network on a GPU reads held-out images that are floats already."""
    shares = []
    for precision in ("fp32", "tf32"):
        stream, shelf, engine = a_stream(), Shelf(), Graph(CPU)
        engine.precision = precision  # tf32 is fp32 on a CPU, but folds
        recipe = sg.learner(name, model="slim_resnet18", memory=8, mean=(0.4,), std=(0.3,))
        loop = Loop(stream, lambda gate: recipe.build(stream.spec, gate, 0, CPU),  # noqa: B023
                    Protocol(evaluate=1), shelf, CPU, engine)  # fmt: skip
        loop.run(1e9, until=6)
        assert (engine._folded is None) == (precision == "fp32")
        shares.append(shelf.rows["evaluations"].peek("correct"))
    assert len(shares[0]) >= 6
    np.testing.assert_allclose(shares[0], shares[1], atol=1)  # a tie may be broken otherwise


def test_mean_of_images_that_are_floats_is_refused_at_the_first_training() -> None:
    x, y = np.random.default_rng(0).random((40, 3, 8, 8), np.float32), np.arange(40) % 2
    with pytest.raises(StreamgaugeError, match="'mean' is for images of bytes"):
        sg.run(sg.stream(x, y, batch=10), sg.learner("er", mean=(0.4,)), progress=False)


class Unguarded:
    """As a user might write it: neither `no_grad` in predict nor fp32 scores."""

    def __init__(self, classes: int, kind: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(0)
        self.weight = torch.randn(192, classes, generator=generator).to(kind).requires_grad_()

    def predict(self, x: torch.Tensor) -> torch.Tensor:
        return (x.flatten(1) / 255).to(self.weight.dtype) @ self.weight

    def learn(self, batch: Any, predicted: Any) -> dict[str, Any]:
        return {"loss": self.predict(batch.x).logsumexp(1).mean()}

    def state_dict(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_scores_with_a_history_or_in_half_precision_are_recorded(kind: torch.dtype) -> None:
    logs = []
    for engine in ("eager", "graph"):
        stream, shelf = a_stream(), Shelf()
        Loop(stream, lambda _: Unguarded(stream.spec.classes, kind),  # type: ignore  # noqa: B023
             Protocol(evaluate=1), shelf, CPU, make(engine, CPU)).run(1e9)  # type: ignore  # fmt: skip
        logs.append(shelf.rows)
    for table, column in (
        ("predictions", "prediction"),
        ("predictions", "confidence"),
        ("evaluations", "correct"),
        ("evaluations", "count"),
        ("answers", "confidence"),
    ):
        a, b = (rows[table].peek(column) for rows in logs)
        assert len(a) > 0
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_class_means_of_the_folded_network_are_those_of_its_own() -> None:
    """SCR's, in fp16 and in fp32; the first steps' training is the same, so the means are near."""
    make_deterministic("cuda")  # otherwise two trainings in fp32 differ by more than the precisions
    means = []
    for precision in ("fp32", "fp16"):
        stream, place = a_stream(), torch.device("cuda")
        recipe = sg.learner("scr", model="slim_resnet18", memory=30, recall=5, refresh=1)
        loop = Loop(
            stream,
            lambda gate: recipe.build(stream.spec, gate, 0, place),  # noqa: B023
            Protocol(evaluate="never"),
            Shelf(),
            place,
            make("graph", place, precision),  # type: ignore[arg-type]
        )
        loop.run(1e9, until=6)
        assert loop.engine.reason == ""
        means.append(loop.learner.nearest.means.cpu())  # type: ignore[attr-defined]
    met = means[0].isfinite()  # a class that was not met yet has no mean
    assert met.any()
    assert torch.equal(met, means[1].isfinite())
    assert 0 < (means[0] - means[1])[met].abs().max() < 0.02


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_bfloat16_learns_as_float32_does() -> None:
    """Recorded and called alike; losses of the first steps differ by rounding alone."""
    losses = []
    for precision, engine in (("fp32", "eager"), ("bf16", "eager"), ("bf16", "graph")):
        shelf, loop = go("er", {"precision": precision}, engine, "cuda", "slim_resnet18")
        assert (loop.learner.model.wide is not None) == (precision == "bf16")  # type: ignore[attr-defined]
        rows = shelf.rows["training"]
        losses.append(rows.peek("value")[rows.peek("name") == "loss"])
    plain, called, replayed = losses
    assert np.abs(called - plain)[:3].max() < 0.1  # later, small differences grow
    assert np.abs(replayed - called)[:5].max() < 0.1
    assert abs(replayed.mean() - plain.mean()) < 0.15 * plain.mean()


@pytest.mark.parametrize("device", DEVICES)
def test_no_learner_takes_what_may_differ_from_time_to_time(tmp_path: Any, device: str) -> None:
    from streamgauge.running.plan import Experiment
    from streamgauge.running.runner import run_all

    settings = {f"k{i}.{n}": v for i, (_, how) in enumerate(LEARNERS) for n, v in how.items()}
    settings |= {"learner.memory": 30, "learner.recall": 5, "stream.per_class": 8}
    names = tuple(f"k{i}={name}" for i, (name, _) in enumerate(LEARNERS))
    experiment = Experiment("blobs", names, settings=settings)
    try:
        runs = list(run_all(experiment, out=tmp_path, device=device, deterministic=True))
    finally:
        make_deterministic("cpu")
    assert len(runs) == len(LEARNERS)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_runs_side_by_side_write_what_they_write_alone(tmp_path: Any) -> None:
    from streamgauge.record.diff import differences
    from streamgauge.running.plan import Experiment
    from streamgauge.running.runner import run_all

    experiment = Experiment("blobs", ("er", "derpp"), seeds=2, settings={"er.passes": 2})
    alone = list(run_all(experiment, out=tmp_path / "alone", device="cuda", side_by_side=1))
    beside = list(run_all(experiment, out=tmp_path / "beside", device="cuda"))
    for one in alone:
        other = next(run for run in beside if run.id == one.id)
        assert differences(one, other)["same"]


class FakeGraph:
    """A CUDA graph without a GPU: notes what is called, and whether garbage is collected then."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def register_generator_state(self, generator: Any) -> None:
        self.calls.append("generator")

    def capture_begin(self, pool: Any, capture_error_mode: str) -> None:
        self.calls.append(f"begin {pool}")

    def capture_end(self) -> None:
        self.calls.append("end")

    def replay(self) -> None:
        self.calls.append("replay")


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[FakeGraph]:
    made: list[FakeGraph] = []
    pools = iter(range(10))

    def make_graph() -> FakeGraph:
        made.append(FakeGraph())
        return made[-1]

    monkeypatch.setattr(torch.cuda, "CUDAGraph", make_graph)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: next(pools))
    return made


def test_no_garbage_is_collected_while_a_cuda_graph_is_recorded(graphs: list[FakeGraph]) -> None:
    """A graph that is freed meanwhile, of a run that was closed, makes the recording fail."""
    tape = CudaTape(torch.device("cuda"), [torch.Generator()])
    replay, output = tape.record(lambda x: gc.isenabled(), [torch.zeros(1)])
    assert output is False
    assert gc.isenabled()
    replay()
    assert graphs[0].calls == ["generator", "begin 0", "end", "replay"]


def test_after_a_failed_recording_the_next_one_has_memory_of_its_own(
    graphs: list[FakeGraph],
) -> None:
    tape = CudaTape(torch.device("cuda"), [])

    def fails(x: Any) -> None:
        raise RuntimeError("operation not permitted\nwhen stream is capturing")

    with pytest.raises(CannotRecord, match=r"^operation not permitted$"):
        tape.record(fails, [0])
    assert gc.isenabled()
    tape.record(lambda x: x, [0])
    assert [graph.calls[0] for graph in graphs] == ["begin 0", "begin 1"]


@pytest.mark.parametrize("engine", ["eager", "graph"])
def test_a_loop_is_freed_without_the_garbage_collector(engine: Any) -> None:
    """So the memory of a closed run is free for the next one at once."""
    stream = a_stream()
    cpu = torch.device("cpu")
    recipe = sg.learner("er", model="mlp", memory=30)
    loop = Loop(stream, lambda gate: recipe.build(stream.spec, gate, 0, cpu), Protocol(), Shelf(),
                cpu, make(engine, cpu, "fp32"))  # fmt: skip
    gc.disable()
    try:
        loop.run(1e9, until=5)
        gone = weakref.ref(loop)
        del loop
        assert gone() is None
    finally:
        gc.enable()
