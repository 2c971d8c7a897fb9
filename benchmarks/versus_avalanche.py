"""The same work through Avalanche 0.6 and through Streamgauge, in turns, in one run.

    python benchmarks/versus_avalanche.py --packages avalanche-packages            # all works
    python benchmarks/versus_avalanche.py --packages ... --works mlp --json
    python benchmarks/versus_avalanche.py --packages ... --device cuda --seeds 5 --engine graph

Works: `er` is experience replay as the survey of online continual learning sets it up (slim
ResNet18, batches of 10 with 10 replayed, 3 passes, a class-balanced memory of 2,000, random crop
and flip), without evaluation; `er_eval` the same with an evaluation of the held-out samples of all
tasks met so far after every mini-batch, in tasks 1, 10 and 20; `mlp` a network of
128-64-64-100 units on stored features, with one pass and with three, where overhead is all.

Each side is a process of its own; one waits while the other works. Times are of mini-batches after
a warm-up, and a ratio is the median over turns of (Avalanche's time / ours), each turn's two times
taken one right after the other. Streamgauge is run by `run_all`, as the command `streamgauge run`
does; a checkpoint, which on a GPU fetches what was logged, is not in these times. Neither side
answers samples before it learns them (`--predict` adds that to ours).

Avalanche evaluates in two ways here: `once`, by a call of `strategy.eval` after every mini-batch,
which is the same work as ours; and by its own option `eval_every=1`, which evaluates before the
mini-batch and after each of its passes.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import json
import multiprocessing
import os
import platform
import statistics
import sys
import tempfile
import time
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
MINI_BATCHES = 238  # of one task of Split-CIFAR100, the short last one included
TASKS = 20


@dataclass(frozen=True)
class Work:
    name: str
    kind: str  # images or features
    model: str
    task: int
    evaluation: str = "never"  # or once, eval_every
    passes: int = 3
    longer: int = 1  # so many times as many mini-batches a turn on our side, to have a time at all

    @property
    def title(self) -> str:
        how = {"never": "no evaluation", "once": "evaluated after every mini-batch",
               "eval_every": "evaluated by Avalanche's eval_every=1"}[self.evaluation]  # fmt: skip
        passes = "" if self.passes == 3 else ", 1 pass"
        return f"{self.name}, task {self.task}{passes}, {how}"


def chosen_works(
    names: list[str], evaluation: list[str], tasks: list[int], gpu: bool
) -> list[Work]:
    works = []
    longer = 10 if gpu else 1  # on a GPU steps are recorded first, and then over in 2 ms
    if "er" in names:
        works.append(Work("er", "images", "slim_resnet18", 10, longer=longer))
    if "mlp" in names:
        works += [Work("mlp", "features", "mlp", 10, passes=p, longer=60) for p in (1, 3)]
    if "er_eval" in names:
        works += [
            Work("er_eval", "images", "slim_resnet18", t, how, longer=longer)
            for how in evaluation
            for t in tasks
        ]
    return works


# The two sides. Each is a generator that does `count` mini-batches a turn and yields the seconds
# that one mini-batch of one seed took.


def ours(work: Work, options: argparse.Namespace) -> Iterator[float]:
    from streamgauge.running.plan import Experiment
    from streamgauge.running.runner import run_all

    turn = _Turn(options, work.longer)
    steps = turn.warm_up + options.turns * turn.count + 1  # the last ends with a checkpoint
    settings = {
        "stream.kind": work.kind,
        "stream.data": options.data,
        "stream.task": work.task,
        "stream.batches": steps,
        "er.model": work.model,
        "er.passes": work.passes,
        "er.policy": "class_balanced",
        "er.memory": 2000,
        "er.recall": 10,
        "er.wait": True,
        "er.augment": "crop_flip" if work.kind == "images" else "none",
        "er.precision": options.er_precision,
        "protocol.predict": options.predict,
        "protocol.evaluate": "never" if work.evaluation == "never" else 1,
        "protocol.milestones": (),
    }
    extra: dict[str, Any] = {}
    if options.engine:
        extra["engine"] = options.engine
    if options.precision:
        extra["precision"] = options.precision
    file = str(HERE / "versus_work.py")
    experiment = Experiment(file, (f"er={file}:Filled",), options.seeds, settings)

    def body(out: str) -> None:
        for _ in run_all(
            experiment,
            out=out,
            device=options.device,
            checkpoint=3600,
            watch=lambda planned, stream: turn.progress,
            log=lambda sentence: None,
            **extra,
        ):
            pass

    with tempfile.TemporaryDirectory() as out:
        yield from turn.run(lambda: body(out))


def bare(work: Work, options: argparse.Namespace) -> Iterator[float]:
    """The gradient steps alone, as one would write them in PyTorch: no stream, memory or log."""
    import torch
    from torch.nn import Linear, ReLU, Sequential
    from torch.nn.functional import cross_entropy

    torch.set_num_threads(1)  # the best for it
    model = Sequential(Linear(128, 64), ReLU(), Linear(64, 64), ReLU(), Linear(64, 100))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    x, y = torch.randn(20, 128), torch.randint(0, 100, (20,))
    count = options.warm_up * work.longer
    while True:
        start = time.perf_counter()
        for _ in range(count * work.passes):
            optimizer.zero_grad()
            cross_entropy(model(x), y).backward()
            optimizer.step()
        yield (time.perf_counter() - start) / count
        count = options.count * work.longer


class _Turn:
    """Hands control back to the other side from within a run, by its progress call.

    The run is in a thread that is let on one turn at a time.
    """

    def __init__(self, options: argparse.Namespace, longer: int) -> None:
        import threading

        self.options = options
        self.warm_up, self.count = options.warm_up * longer, options.count * longer
        self.may_go, self.is_done = threading.Semaphore(0), threading.Semaphore(0)
        self.took: list[float] = []
        self.failure: BaseException | None = None
        self._at: dict[int, int] = {}  # by loop, the step it is at
        self._done = 0
        self._start = 0.0
        self._warm = False
        self._ended = False

    def progress(self, loop: Any) -> None:
        """Called after steps; counts mini-batches of all seeds alike."""
        self._done += loop.step - self._at.get(id(loop), 0)
        self._at[id(loop)] = loop.step
        options = self.options
        wanted = options.seeds * (self.count if self._warm else self.warm_up)
        if self._done < wanted or self._ended:
            return
        if options.device.startswith("cuda"):
            import torch

            torch.cuda.synchronize()
        self.took.append((time.perf_counter() - self._start) / self._done)
        self._warm = True
        self.is_done.release()
        self.may_go.acquire()
        self._done = 0
        self._start = time.perf_counter()

    def run(self, body: Callable[[], None]) -> Iterator[float]:
        import threading

        def guarded() -> None:
            self.may_go.acquire()
            self._start = time.perf_counter()
            try:
                body()
            except BaseException as error:
                self.failure = error
            self._ended = True
            self.is_done.release()

        threading.Thread(target=guarded, daemon=True).start()
        while not self._ended:
            self.may_go.release()
            self.is_done.acquire()
            if self.failure is not None:
                raise self.failure
            if not self._ended:
                yield self.took[-1]


def theirs(work: Work, options: argparse.Namespace) -> Iterator[float]:
    # It turns on, and prints, hundreds of warnings of what its version 0.7 will remove; to print
    # them would take time that is not its own.
    warnings.warn = lambda *args, **named: None  # type: ignore[assignment]
    absent = prepare_imports(options.packages)
    import torch
    from avalanche.benchmarks.scenarios.dataset_scenario import benchmark_from_datasets
    from avalanche.benchmarks.scenarios.online import split_online_stream
    from avalanche.benchmarks.scenarios.supervised import with_classes_timeline
    from avalanche.benchmarks.utils.classification_dataset import (
        _make_taskaware_classification_dataset,
    )
    from avalanche.evaluation.metrics import accuracy_metrics
    from avalanche.training import Naive
    from avalanche.training.plugins import EvaluationPlugin, ReplayPlugin
    from avalanche.training.storage_policy import ClassBalancedBuffer

    sys.path.insert(0, str(HERE))
    import versus_work

    if absent:
        print(f"Not installed, and not used: {', '.join(absent)}.", file=sys.stderr)
    torch.manual_seed(0)
    steps = options.warm_up + options.turns * options.count
    stream = versus_work.build(
        versus_work.Config(kind=work.kind, data=options.data, task=work.task, batches=steps)
    )
    groups = _transforms() if work.kind == "images" else None

    def dataset(index: Any) -> Any:
        y = [int(v) for v in stream.source.label[index]]
        base = _Samples(stream.source.read(index), y, work.kind == "images")
        return _make_taskaware_classification_dataset(
            base, transform_groups=groups, targets=y, task_labels=0
        )

    task = stream.splits["held_out"].task
    assert task is not None
    splits = [dataset(stream.splits["held_out"].index[task == t]) for t in range(work.task)]
    benchmark = benchmark_from_datasets(
        train=[dataset(stream.order)], test=[d.eval() for d in splits]
    )
    benchmark = with_classes_timeline(benchmark)
    policy = ClassBalancedBuffer(2000, adaptive_size=True)
    if len(stream.preparation):
        policy.update_from_dataset(dataset(stream.preparation))
    model = _their_model(work)
    strategy = Naive(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05),
        criterion=torch.nn.CrossEntropyLoss(),
        train_mb_size=10,
        train_epochs=work.passes,
        eval_mb_size=128,
        device=torch.device(options.device),
        plugins=[ReplayPlugin(2000, batch_size_mem=10, storage_policy=policy)],
        evaluator=EvaluationPlugin(accuracy_metrics(experience=True, stream=True), loggers=[]),
        eval_every=1 if work.evaluation == "eval_every" else -1,
    )
    online = split_online_stream(benchmark.train_stream, experience_size=10, shuffle=False)
    test = benchmark.test_stream
    batches = iter(with_classes(online))
    count = options.warm_up
    while True:
        start = time.perf_counter()
        for _ in range(count):
            batch = next(batches, None)
            if batch is None:
                return
            strategy.train(batch, eval_streams=[test] if work.evaluation == "eval_every" else [])
            if work.evaluation == "once":
                strategy.eval(test)
        if options.device.startswith("cuda"):
            torch.cuda.synchronize()
        yield (time.perf_counter() - start) / count
        count = options.count


def with_classes(online: Any) -> Iterator[Any]:
    """Mini-batches that know which classes are in them, which their growing head asks for."""
    for experience in online:
        experience.classes_in_this_experience = list(
            dict.fromkeys(int(t) for t in experience.dataset.targets)
        )
        yield experience


class _Samples:
    """PIL images, as torchvision's CIFAR-100 gives them, or tensors of features."""

    def __init__(self, x: np.ndarray, y: list[int], images: bool) -> None:
        import torch

        self.targets, self.images = y, images
        self.x = np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if images else torch.from_numpy(x)

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, i: int) -> tuple[Any, int]:
        if not self.images:
            return self.x[i], self.targets[i]
        from PIL import Image

        return Image.fromarray(self.x[i]), self.targets[i]


def _transforms() -> dict[str, Any]:
    from torchvision import transforms as t

    to_tensor = [
        t.ToTensor(),
        t.Normalize((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    ]
    crop_flip = [t.RandomCrop(32, padding=4), t.RandomHorizontalFlip()]
    return {
        "train": (t.Compose([*crop_flip, *to_tensor]), None),
        "eval": (t.Compose(to_tensor), None),
    }


def _their_model(work: Work) -> Any:
    from avalanche.models import IncrementalClassifier, SlimResNet18
    from torch import nn

    if work.kind == "images":
        model = SlimResNet18(1)
        model.linear = IncrementalClassifier(160, 1)
        return model
    return nn.Sequential(
        nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), IncrementalClassifier(64, 1)
    )  # fmt: skip


# Importing Avalanche without everything it would like to have.

UNUSED = ("wandb", "matplotlib", "mpl_toolkits", "tensorboard", "GPUtil", "psutil", "gdown",
          "qpsolvers", "pytorchcv", "torchmetrics", "sklearn", "pandas")  # fmt: skip


def prepare_imports(packages: str) -> list[str]:
    """Make Avalanche importable; returns the names of what was put in as an empty module."""
    if packages:
        sys.path.append(str(Path(packages).resolve()))
    absent = [name for name in UNUSED if importlib.util.find_spec(name) is None]
    sys.meta_path.append(_Nothing(absent))
    if "tensorboard" in absent:
        sys.modules["torch.utils.tensorboard"] = _Empty("torch.utils.tensorboard")
    import torch

    try:
        import torchvision  # noqa: F401
    except (RuntimeError, ImportError):
        # Made for a torch with CUDA, compared with one without: the operators' names are enough.
        for name in [n for n in sys.modules if n.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        prepare_imports.library = library = torch.library.Library("torchvision", "DEF")  # type: ignore[attr-defined]
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    if importlib.util.find_spec("avalanche") is None:
        sys.exit("Avalanche is not installed: see benchmarks/requirements-avalanche.txt.")
    return absent


class _Empty(types.ModuleType):
    """A module in which every name is an empty class."""

    __path__: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _Nothing(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names: list[str]) -> None:
        self.names = names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] in self.names:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> Any:
        return _Empty(spec.name)

    def exec_module(self, module: Any) -> None:
        pass


# Taking turns.


def serve(side: str, work: Work, options: argparse.Namespace, pipe: Connection) -> None:
    """A side's process: does a turn when asked, and says what a mini-batch took."""
    try:
        import torch

        if options.threads:
            os.environ["OMP_NUM_THREADS"] = str(options.threads)
            torch.set_num_threads(options.threads)
        turns = {"avalanche": theirs, "ours": ours, "bare": bare}[side](work, options)
        while pipe.recv() == "go":
            pipe.send(next(turns))
    except BaseException as error:
        pipe.send(f"{side}: {type(error).__name__}: {error}")
        raise


def measure(work: Work, options: argparse.Namespace) -> dict[str, Any]:
    """Both sides of one work, in turns; where overhead is all, the bare gradient steps as well."""
    context = multiprocessing.get_context("spawn")
    pipes, processes = {}, []
    sides = ("avalanche", "ours", *(("bare",) if work.kind == "features" else ()))
    for side in sides:
        mine, their = context.Pipe()
        process = context.Process(target=serve, args=(side, work, options, their), daemon=True)
        process.start()
        pipes[side] = mine
        processes.append(process)
    took: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(options.turns + 1):
        for side, pipe in pipes.items():
            pipe.send("go")
            seconds = pipe.recv()
            if isinstance(seconds, str):
                sys.exit(seconds)
            if turn > 0:  # the first is the warm-up
                took[side].append(seconds)
    for process in processes:
        process.terminate()
        process.join()
    ratios = [a / o for a, o in zip(took["avalanche"], took["ours"], strict=True)]
    return {
        "work": work.name,
        "task": work.task,
        "evaluation": work.evaluation,
        "passes": work.passes,
        "avalanche_ms": 1e3 * statistics.median(took["avalanche"]),
        "streamgauge_ms": 1e3 * statistics.median(took["ours"]),
        "ratio": statistics.median(ratios),
        "lowest": min(ratios),
        "highest": max(ratios),
        "bare_ms": 1e3 * statistics.median(took["bare"]) if "bare" in took else None,
    }


def extrapolated(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Seconds of a whole run with evaluation, one seed: between the tasks measured a mini-batch's
    time is taken to grow in a straight line, as the number of held-out samples does. Only where the
    first and the last task were measured."""
    sums = []
    for evaluation in dict.fromkeys(r["evaluation"] for r in rows if r["work"] == "er_eval"):
        own = [r for r in rows if r["work"] == "er_eval" and r["evaluation"] == evaluation]
        if not {1, TASKS} <= {r["task"] for r in own}:
            continue  # nothing to draw a line between
        tasks = np.arange(1, TASKS + 1)
        total = {
            side: MINI_BATCHES
            * float(
                np.interp(tasks, [r["task"] for r in own], [r[f"{side}_ms"] for r in own]).sum()
            )
            / 1e3
            for side in ("avalanche", "streamgauge")
        }
        sums.append({
            "evaluation": evaluation,
            "tasks_measured": [r["task"] for r in own],
            "avalanche_s": total["avalanche"],
            "streamgauge_s": total["streamgauge"],
            "ratio": total["avalanche"] / total["streamgauge"],
        })  # fmt: skip
    return sums


def show(rows: list[dict[str, Any]], sums: list[dict[str, Any]], about: dict[str, Any]) -> None:
    print(f"{about['machine']}; {about['threads']} threads; torch {about['torch']}; "
          f"data: {about['data']}; {about['seeds']} seed(s), {about['precision']}"
          + (f", engine {about['engine']}" if about["engine"] else "")
          + (f", evaluation in {about['evaluation_precision']}"
             if about["evaluation_precision"] else ""))  # fmt: skip
    print(f"{'ms per mini-batch and seed':<62}{'Avalanche':>10}{'ours':>9}{'ratio':>8}  range")
    for row in rows:
        work = Work(row["work"], "", "", row["task"], row["evaluation"], row["passes"])
        print(f"{work.title:<62}{row['avalanche_ms']:>10.1f}{row['streamgauge_ms']:>9.2f}"
              f"{row['ratio']:>7.2f}x  {row['lowest']:.2f}-{row['highest']:.2f}")  # fmt: skip
        if row["bare_ms"] is not None:
            print(f"{'  its gradient steps alone, in plain PyTorch':<72}{row['bare_ms']:>9.2f}")
    for one in sums:
        title = f"whole run, EXTRAPOLATED from tasks {', '.join(map(str, one['tasks_measured']))}"
        title += f" ({one['evaluation']}), s"
        print(f"{title:<62}{one['avalanche_s']:>10.0f}{one['streamgauge_s']:>9.0f}"
              f"{one['ratio']:>7.2f}x")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--packages", default="", help="folder that Avalanche was installed in")
    parser.add_argument("--works", default="er,mlp,er_eval")
    parser.add_argument("--tasks", default="1,10,20", help="in which er_eval is measured")
    parser.add_argument("--evaluation", default="once,eval_every", help="ways of Avalanche's")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=0, help="for both; 0 = each as it likes")
    parser.add_argument("--seeds", type=int, default=1, help="side by side, on a GPU")
    parser.add_argument("--engine", default="", help="as of `streamgauge run`")
    parser.add_argument("--precision", default="", help="of evaluation, as of `streamgauge run`")
    parser.add_argument("--er-precision", default="fp32", help="of ours throughout: fp32 or bf16")
    parser.add_argument("--predict", action="store_true", help="ours also tests, then trains")
    parser.add_argument("--data", default="", help="folder with CIFAR-100")
    parser.add_argument("--warm-up", type=int, default=10, help="mini-batches not counted")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--count", type=int, default=10, help="mini-batches a turn")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    alone = options.device == "cpu" or options.engine == "eager"
    if options.seeds > 1 and alone:
        parser.error("Seeds go side by side on a GPU only, and not with --engine eager.")
    import torch

    name = torch.cuda.get_device_name() if options.device.startswith("cuda") else _processor()
    about = {
        "machine": name,
        "threads": options.threads or torch.get_num_threads(),
        "torch": torch.__version__,
        "data": "CIFAR-100" if options.data else "generated images of CIFAR-100's shape",
        "seeds": options.seeds,
        "precision": options.er_precision,
        "evaluation_precision": options.precision,
        "engine": options.engine,
    }
    tasks = [int(t) for t in options.tasks.split(",")]
    rows = []
    names, evaluation = options.works.split(","), options.evaluation.split(",")
    for work in chosen_works(names, evaluation, tasks, options.device.startswith("cuda")):
        rows.append(measure(work, options))
        print(f"measured: {work.title}", file=sys.stderr)
    sums = extrapolated(rows)
    if options.json:
        print(json.dumps({"about": about, "works": rows, "extrapolated": sums}, indent=1))
    else:
        show(rows, sums, about)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


if __name__ == "__main__":
    main()
