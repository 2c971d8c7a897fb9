# ruff: noqa: E402
"""The bridge to Avalanche, against the library; `test_environments.py` runs it in its own
environment. The names of the tests say which trap of Avalanche each is about."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
avalanche = pytest.importorskip("avalanche")

from avalanche.evaluation.metrics import accuracy_metrics
from avalanche.models import IncrementalClassifier, SimpleMLP
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.supervised import JointTraining, Naive, Replay

import streamgauge as sg
from streamgauge.bridges import avalanche as bridge
from streamgauge.errors import StreamgaugeError
from streamgauge.streams.gate import Gate

CLASSES, WIDTH = 4, 6


def stream(samples: int = 300, **settings: Any) -> Any:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(samples, WIDTH)).astype(np.float32)
    y = (x @ rng.normal(size=(WIDTH, CLASSES))).argmax(1)
    return sg.stream(x, y, **{"batch": 10, **settings})


def strategy(kind: Any = Replay, model: Any = None, **settings: Any) -> Any:
    torch.manual_seed(0)
    model = model or SimpleMLP(num_classes=CLASSES, input_size=WIDTH, hidden_size=16)
    settings = {"train_mb_size": 10, "eval_mb_size": 7, "evaluator": None, **settings}
    if kind is Replay:
        settings = {"mem_size": 40, **settings}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return kind(model=model, optimizer=optimizer, criterion=torch.nn.CrossEntropyLoss(), **settings)


def column(run: Any, name: str) -> list[Any]:
    values: list[Any] = run.table("predictions")[name].tolist()
    return values


# Strategies in our loop.


def test_a_strategy_in_our_loop_answers_as_in_a_loop_by_hand(tmp_path: Path) -> None:
    made = stream()
    run = sg.run(made, sg.learner(strategy()), out=tmp_path, seed=3)
    by_hand, expected = strategy(), []
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002
    import random

    random.seed(3)
    data, met = bridge.Samples(), set()
    for step in range(len(made)):
        index = made.index(step)
        x, y = torch.from_numpy(made.source.read(index)), torch.from_numpy(made.source.label[index])
        by_hand.model.eval()
        with torch.no_grad():
            expected += by_hand.model(x).argmax(1).tolist()
        by_hand.train(bridge.experience(data.add(x, y.tolist()), y.tolist(), met), eval_streams=[])
        met |= set(y.tolist())
    assert column(run, "prediction") == expected
    described = run.header["config"]["learner"]
    assert described["library"] == f"avalanche-lib {avalanche.__version__}"
    assert described["where"] == "avalanche:object"


def test_a_strategy_by_name_with_settings_by_their_own_names(tmp_path: Path) -> None:
    recipe = sg.learner("avalanche:training.supervised.Replay", mem_size=30, lr=0.05)
    run = sg.run(stream(), recipe, out=tmp_path)
    assert sg.score(run)["online_accuracy"] > 0.4
    assert run.header["config"]["learner"]["settings"]["mem_size"] == 30
    with pytest.raises(StreamgaugeError, match="mem_size"):
        sg.learner("avalanche:training.supervised.Replay", mem_siz=30)
    with pytest.raises(StreamgaugeError, match="SGD"):
        sg.run(stream(), sg.learner("avalanche:training.Naive", optimizer="SDG"), out=tmp_path)


def learner_of(made: Any, recipe: Any, seed: int = 0) -> Any:
    gate = Gate(made.source, made.preparation, torch.device("cpu"))
    return recipe.build(made.spec, gate, seed, torch.device("cpu"))


def steps_of(made: Any) -> list[Any]:
    steps = []
    for step in range(len(made)):
        index = made.index(step)
        x, y = torch.from_numpy(made.source.read(index)), torch.from_numpy(made.source.label[index])
        steps.append(sg.Batch(x, y, index))
    return steps


def test_a_state_restores_answers_memory_and_random_numbers() -> None:
    made, recipe = stream(), sg.learner(strategy())
    learner, (first, *steps) = learner_of(made, recipe), steps_of(made)
    learner.learn(first, None)
    state = learner.state_dict()
    for batch in steps:
        learner.learn(batch, None)
    again = learner_of(made, recipe, seed=9)
    again.load_state_dict(state)
    for batch in steps:
        again.learn(batch, None)
    x = torch.from_numpy(made.source.read(made.order))
    assert torch.equal(learner.predict(x), again.predict(x))


def test_answering_changes_nothing() -> None:
    """With dropout and batch norm, also for the random numbers of the caller."""
    model = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, 8),
        torch.nn.BatchNorm1d(8),
        torch.nn.Dropout(),
        torch.nn.Linear(8, 4),
    )
    made, recipe = stream(), sg.learner(strategy(Naive, model))
    learner, steps = learner_of(made, recipe), steps_of(made)
    twin = learner_of(made, recipe)
    before = torch.get_rng_state()
    for batch in steps:
        answers = [learner.predict(batch.x) for _ in range(3)]
        assert torch.equal(answers[0], answers[2])
        learner.learn(batch, None)
        twin.learn(batch, None)
    assert torch.equal(learner.predict(steps[0].x), twin.predict(steps[0].x))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_network_that_grows_with_the_classes() -> None:
    model = torch.nn.Sequential(IncrementalClassifier(WIDTH, initial_out_features=2))
    made = stream()
    learner = learner_of(made, sg.learner(strategy(Naive, model)))
    steps = steps_of(made)
    assert learner.predict(steps[0].x).shape == (10, CLASSES)
    for batch in steps:
        learner.learn(batch, None)
    assert torch.isfinite(learner.predict(steps[0].x)).all()


def test_the_evaluator_of_a_strategy_prints_nothing_in_our_loop(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from avalanche.training.plugins.evaluation import default_evaluator

    recipe = sg.learner(strategy(evaluator=default_evaluator))
    capsys.readouterr()
    sg.run(stream(), recipe, out=tmp_path, progress=False)
    assert capsys.readouterr().out == ""


def test_what_cannot_learn_online_is_refused() -> None:
    with pytest.raises(StreamgaugeError, match="trains once, on the whole stream"):
        sg.learner(strategy(JointTraining))
    trained = strategy()
    trained.train(bridge.benchmark(stream()).train_stream[0], eval_streams=[])
    with pytest.raises(StreamgaugeError, match="has been trained already"):
        sg.learner(trained)
    with pytest.raises(StreamgaugeError, match="is not a strategy"):
        sg.learner("avalanche:models.SimpleMLP")


def test_two_strategies_are_two_learners() -> None:
    made = [sg.learner(strategy(mem_size=size)).describe() for size in (40, 41, 40)]
    assert made[0] == made[2] != made[1]


def test_samples_that_no_buffer_refers_to_are_dropped() -> None:
    made, recipe = stream(900), sg.learner(strategy(mem_size=40))
    plain, dropping = learner_of(made, recipe), learner_of(made, recipe)
    dropping._samples._limit = 100
    for batch in steps_of(made):
        plain.learn(batch, None)
        dropping.learn(batch, None)
        if len(dropping._samples._x) < 100:
            dropping._samples._limit = 100
    assert len(plain._samples._x) == 900
    assert 40 <= len(dropping._samples._x) <= 120
    assert dropping.memory_bytes() == len(dropping._samples._x) * WIDTH * 4
    x = torch.from_numpy(made.source.read(made.order))
    assert torch.equal(plain.predict(x), dropping.predict(x))


# Their loop, recorded.


def test_recorded_accuracy_is_that_of_avalanches_own_evaluation(tmp_path: Path) -> None:
    plugin = bridge.Recorder(tmp_path / "run", stream="mine", classes=CLASSES)
    own = EvaluationPlugin(accuracy_metrics(experience=True))
    made = stream()
    experiences = bridge.benchmark(made).train_stream
    loop, theirs = strategy(plugins=[plugin], evaluator=own), []
    for number, experience in enumerate(experiences):
        metrics = loop.eval([experience])
        theirs.append(metrics[f"Top1_Acc_Exp/eval_phase/train_stream/Task000/Exp{number:03d}"])
        loop.train(experience, eval_streams=[])
    plugin.close()
    run = sg.Run(tmp_path / "run")
    right = np.array(column(run, "prediction")) == made.source.label[made.order]
    assert right.reshape(-1, 10).mean(1).tolist() == pytest.approx(theirs)
    assert sg.score(run)["online_accuracy"] == pytest.approx(np.mean(theirs))
    # Replayed samples are mixed into the training batches; they are not recorded.
    assert len(right) == made.samples
    assert run.header["config"]["learner"]["name"] == "Replay"
    # The evaluations are recorded too.
    evaluations = run.table("evaluations")
    assert (evaluations["correct"] / evaluations["count"]).tolist() == pytest.approx(theirs)


class Late:
    """Answers where Avalanche has adapted the network to the classes of the experience already."""

    def __init__(self) -> None:
        self.right: list[bool] = []

    def before_training_exp(self, strategy: Any, **options: Any) -> None:
        x, y, _ = zip(*strategy.experience.dataset, strict=True)
        answers = bridge.answers(strategy, torch.stack(x)).argmax(1)
        self.right += (answers == torch.tensor(y)).tolist()


def test_answers_come_before_the_network_is_adapted_to_the_classes(tmp_path: Path) -> None:
    """`IncrementalClassifier` masks classes that have not come yet. In `before_training_exp` those
    of the batch are unmasked: with one new class per task, its first answers would all be right."""
    plugin = bridge.Recorder(tmp_path / "run", stream="mine", classes=CLASSES)
    late = Late()
    model = torch.nn.Sequential(IncrementalClassifier(WIDTH))
    loop = strategy(Naive, model, plugins=[plugin, late])
    made = stream(order="classes", tasks=CLASSES)
    for experience in bridge.benchmark(made).train_stream:
        loop.train(experience, eval_streams=[])
    plugin.close()
    run = sg.Run(tmp_path / "run")
    first = made.starts[np.flatnonzero(np.diff(made.task, prepend=-1))]
    new = first[1:, None] + np.arange(10)  # the first batch of each new class
    right = np.array(column(run, "prediction")) == made.source.label[made.order]
    assert not right[new].any()
    assert np.array(late.right)[:10].all()


def test_a_recorder_is_pickled_with_its_strategy_and_goes_on(tmp_path: Path) -> None:
    plugin = bridge.Recorder(tmp_path / "run", stream="mine", classes=CLASSES)
    loop = strategy(plugins=[plugin])
    first, *others = bridge.benchmark(stream(60)).train_stream
    loop.train(first, eval_streams=[])
    saved = pickle.dumps(loop)
    plugin.close()
    again = pickle.loads(saved)
    for experience in others:
        again.train(experience, eval_streams=[])
    next(part for part in again.plugins if isinstance(part, bridge.Recorder)).close()
    assert column(sg.Run(tmp_path / "run"), "id") == [str(i) for i in range(60)]


# Our streams as benchmarks.


def test_each_task_has_one_last_step_also_where_sizes_divide() -> None:
    from avalanche.benchmarks.scenarios.online import FixedSizeExperienceSplitter

    made = stream(order="classes", tasks=2, batch=1, held_out=0.2, held_out_by="task")
    benchmark = bridge.benchmark(made, boundaries=True)
    steps = list(benchmark.train_stream)
    first = np.flatnonzero([step.is_first_subexp for step in steps])
    last = np.flatnonzero([step.is_last_subexp for step in steps])
    assert first.tolist() == [0, int(np.flatnonzero(made.task == 1)[0])]
    assert last.tolist() == [first[1] - 1, len(steps) - 1]
    assert steps[0].sub_stream_length == first[1]
    # What Avalanche's own splitter does with a task whose size is a multiple of the step's.
    split = FixedSizeExperienceSplitter(steps[0].origin_experience, 1)
    assert not any(step.is_last_subexp for step in split)


def test_a_benchmark_has_the_samples_of_the_stream_in_order() -> None:
    made = stream(order="classes", tasks=2, held_out=0.2, held_out_by="task")
    benchmark = bridge.benchmark(made)
    x = torch.cat([torch.stack([x for x, *_ in e.dataset]) for e in benchmark.train_stream])
    np.testing.assert_array_equal(x, made.source.read(made.order))
    met = [set(e.previous_classes) for e in benchmark.train_stream]
    labels = made.source.label[made.order]
    assert met == [set(labels[:start].tolist()) for start in made.starts[:-1]]
    held_out = benchmark.held_out_stream
    assert len(held_out) == 2
    assert sum(len(e.dataset) for e in held_out) == len(made.splits["held_out"])
    with pytest.raises(ValueError, match="not available"):
        _ = benchmark.train_stream[0].train().is_last_subexp  # strategies are not told


def test_strategies_that_keep_per_task_state_train_on_our_experiences() -> None:
    from avalanche.training.supervised import DER, EWC, GEM, MAS, LwF, SynapticIntelligence

    made = stream(100)
    for kind, settings in (
        (LwF, {"alpha": 1.0, "temperature": 2.0}),
        (EWC, {"ewc_lambda": 1.0}),
        (GEM, {"patterns_per_exp": 5, "memory_strength": 0.5}),
        (SynapticIntelligence, {"si_lambda": 1.0}),
        (DER, {"mem_size": 20}),
        (MAS, {}),
    ):
        learner = learner_of(made, sg.learner(strategy(kind, **settings)))
        for batch in steps_of(made):
            assert learner.predict(batch.x).shape == (len(batch.x), CLASSES)
            learner.learn(batch, None)
