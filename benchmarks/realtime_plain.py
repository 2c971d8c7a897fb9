"""The real-time paper's methods once more, as plainly as they can be written, to check ours by.

    python benchmarks/realtime_plain.py rwalk --folder DATA --lr 0.005 --seed 1
    python benchmarks/realtime_plain.py polrs --folder DATA --lr 0.001 --cost 3
    python benchmarks/realtime_plain.py er --folder DATA --lr 0.001 --steps 6 --to 1000
    python benchmarks/realtime_plain.py er --folder DATA --lr 0.001 --seed 123 --as-drawn

One run on CIFAR-100 (or `--data cifar10`), by one thread; every 500 batches the online accuracy so
far, in %. DATA is where `streamgauge data` has packed them. It follows what the code does as
released, quirks included but for one: that code trains on CIFAR-100 normalised as CIFAR-10, which
the published numbers do not show. The first public commit of that code cannot build MIR, so the
tables were made by an earlier state of it. Nothing is Streamgauge's: not the network, the memory,
the loop or the clock. A run of ER takes ten minutes.

With `--as-drawn` a seed is what it is in that code: the first weights are drawn, then the split,
and four loaders in turn draw flips and recalled samples, in another order within a batch.
"""

from __future__ import annotations

import argparse
import copy
import math
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

BATCH, MEMORY, STEPS = 10, 100, 4900
WARM_UP, REFRESH = 0.05, 1000  # LwF and RWalk: share of the stream, and batches
PARTS, PARTS_A_RATE = 90, 5  # PoLRS: the stream in parts, and parts to a change of the rates
# Which batches of the stream are trained on, by what a method costs; and the steps on each.
TRAINS = {str(cost): lambda i, cost=cost: i % cost == 0 for cost in range(1, 7)}
TRAINS |= {"4/3": lambda i: i % 4 < 3, "5/2": lambda i: i % 5 in (0, 2)}
STEPS_OF = {str(steps): lambda i, steps=steps: steps for steps in range(1, 7)}
STEPS_OF |= {"4/3": lambda i: 2 if i % 3 == 0 else 1, "5/2": lambda i: 2 + i % 2}
NORMAL = {
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}


class Block(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.two = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm_one, self.norm_two = nn.BatchNorm2d(after), nn.BatchNorm2d(after)
        self.shortcut: nn.Module = nn.Identity()
        if before != after:
            short = nn.Conv2d(before, after, 1, stride, bias=False)
            self.shortcut = nn.Sequential(short, nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        inner = F.relu(self.norm_one(self.one(x)))
        return F.relu(self.norm_two(self.two(inner)) + self.shortcut(x))


def slim_resnet18(classes: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 20, 3, 1, 1, bias=False), nn.BatchNorm2d(20), nn.ReLU()]
    for before, after, stride in ((20, 20, 1), (20, 40, 2), (40, 80, 2), (80, 160, 2)):
        layers += [Block(before, after, stride), Block(after, after, 1)]
    return nn.Sequential(*layers, nn.AvgPool2d(4), nn.Flatten(), nn.Linear(160, classes))


class Data:
    """The stream: 49,000 of the 50,000 training images in random order."""

    def __init__(self, folder: Path, name: str, device: str) -> None:
        self.images, self.labels = (np.load(folder / name / f"{n}.npy") for n in ("x", "label"))
        self.mean, self.std = (
            torch.tensor(part, device=device).view(3, 1, 1) for part in NORMAL[name]
        )
        self.classes, self.device = int(self.labels.max()) + 1, device
        self.generator: torch.Generator | None = None  # of the loader whose turn it is

    def shuffle(self) -> None:
        order = torch.randperm(50_000)[: BATCH * STEPS].numpy()
        self.x = torch.from_numpy(self.images[order]).to(self.device)
        self.y = torch.from_numpy(self.labels[order]).long().to(self.device)

    def plain(self, index: Tensor) -> Tensor:
        return (self.x[index].float() / 255 - self.mean) / self.std

    def loaded(self, index: Tensor) -> Tensor:
        """As a loader gives them: each mirrored or not."""
        x, mirrored = self.plain(index), torch.rand(len(index), generator=self.generator) < 0.5
        return torch.where(mirrored[:, None, None, None].to(self.device), x.flip(3), x)

    def recalled(self, memory: Tensor) -> Tensor:
        """Indices from these, with replacement."""
        return memory[torch.randint(0, len(memory), (BATCH,), generator=self.generator)]


def turned(x: Tensor) -> Tensor:
    """All mirrored, or none."""
    return x.flip(3) if torch.rand(1) < 0.5 else x


def sgd(model: nn.Module, lr: float) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=1e-4)


class ER:
    """The last 100 samples trained on, recalled with replacement; several steps (ER++) take the new
    ones as they were loaded, each with freshly recalled ones."""

    def __init__(self, data: Data, args: argparse.Namespace) -> None:
        self.data, self.args = data, args
        self.model = slim_resnet18(data.classes).to(memory_format=torch.channels_last)
        self.model.to(data.device)
        self.optimizer = sgd(self.model, args.lr)
        self.memory = torch.zeros(0, dtype=torch.long)
        self.answering: list[nn.Module] = [self.model]

    def keep(self) -> None:
        """What answers while the model is being trained."""
        self.answering = copy.deepcopy([self.model])

    def hits(self, index: Tensor) -> list[int]:
        x, hits = self.data.plain(index), []
        for model in self.answering:
            model.eval()
            with torch.no_grad():
                hits.append(int((model(x).argmax(1) == self.data.y[index]).sum()))
            model.train()
        return hits

    def answer(self, index: Tensor) -> int:
        return self.hits(index)[0]

    def prepare(self, index: Tensor) -> None:
        """What comes before the answers."""

    def batches(self, index: Tensor, steps: int) -> list[tuple[Tensor, Tensor]]:
        new, labels, made = self.data.loaded(index), self.data.y[index], []
        for _ in range(steps):
            x, y = new, labels
            if len(self.memory):
                old = self.data.recalled(self.memory)
                x, y = torch.cat([new, self.data.loaded(old)]), torch.cat([y, self.data.y[old]])
            made.append((turned(x), y))
        self.memory = torch.cat([self.memory, index])[-MEMORY:]
        return made

    def learn(self, index: Tensor, number: int) -> None:
        for x, y in self.batches(index, STEPS_OF[self.args.steps](number)):
            self.step(x, y, number)

    def step(self, x: Tensor, y: Tensor, number: int) -> None:
        self.optimizer.zero_grad()
        F.cross_entropy(self.model(x), y).backward()
        self.optimizer.step()

    def after(self, number: int) -> None:
        """What comes after every batch of the stream, trained on or not."""


class LwF(ER):
    """A teacher that stays in training mode, over the classes met when it was kept."""

    def __init__(self, data: Data, args: argparse.Namespace) -> None:
        super().__init__(data, args)
        self.teacher: nn.Module | None = None
        self.met: set[int] = set()
        self.known: list[int] = []
        self.trained = 0

    def step(self, x: Tensor, y: Tensor, number: int) -> None:
        self.optimizer.zero_grad()
        scores = self.model(x)
        loss = F.cross_entropy(scores, y)
        if self.teacher is not None:
            with torch.no_grad():
                target = (self.teacher(x)[:, self.known] / 2).softmax(1)
            ours = (scores[:, self.known] / 2).log_softmax(1)
            loss = loss + F.kl_div(ours, target, reduction="batchmean")
        loss.backward()
        self.optimizer.step()
        self.met |= set(y[:BATCH].tolist())
        self.trained += 1
        if number / STEPS > WARM_UP and (self.teacher is None or self.trained % REFRESH == 0):
            self.teacher, self.known = copy.deepcopy(self.model), sorted(self.met)


class RWalk(ER):
    """Importance by the squared gradient in evaluation mode, and by how far each weight let the
    loss fall; the first consolidation comes with the first step after the warm-up."""

    def __init__(self, data: Data, args: argparse.Namespace) -> None:
        super().__init__(data, args)
        self.weights = list(self.model.parameters())
        self.start, self.path, self.score = self.now(), self.zeros(), self.zeros()
        self.fisher: list[Tensor] = []
        self.kept_score: list[Tensor] = []
        self.penalty: list[Tensor] = []
        self.count = 0

    def now(self) -> list[Tensor]:
        return [weight.detach().clone() for weight in self.weights]

    def zeros(self) -> list[Tensor]:
        return [torch.zeros_like(weight) for weight in self.weights]

    def step(self, x: Tensor, y: Tensor, number: int) -> None:
        warm = number / STEPS > WARM_UP
        if warm:
            aside = copy.deepcopy(self.model).eval()
            slopes = torch.autograd.grad(F.cross_entropy(aside(x), y), list(aside.parameters()))
            old = self.fisher or [slope.square() for slope in slopes]
            self.fisher = [0.9 * g.square() + 0.1 * f for g, f in zip(slopes, old, strict=True)]
        before = self.now()
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        if self.penalty:
            parts = zip(self.penalty, self.weights, self.anchor, strict=True)
            loss = loss + self.args.strength * sum((p * (w - a) ** 2).sum() for p, w, a in parts)
        loss.backward()
        self.optimizer.step()
        if warm:
            moved = [new - old for new, old in zip(self.now(), before, strict=True)]
            self.path = [p - g * m for p, g, m in zip(self.path, slopes, moved, strict=True)]
            self.walk(number)

    def walk(self, number: int) -> None:
        now, first = self.now(), self.count == 0
        if first or (self.count + 1) % 10 == 0:
            eps = torch.finfo(torch.float32).eps
            parts = zip(self.score, self.path, self.fisher, now, self.start, strict=True)
            self.score = [s + p / (f * (w - b) ** 2 / 2 + eps) for s, p, f, w, b in parts]
            self.path, self.start = self.zeros(), now
        if first or (self.count + 1) % REFRESH == 0:
            kept = self.kept_score or self.score
            self.kept_score = [(a + b) / 2 for a, b in zip(kept, self.score, strict=True)]
            most_f = max(f.max() for f in self.fisher)
            most_s = max(s.max() for s in self.kept_score)
            parts = zip(self.fisher, self.kept_score, strict=True)
            self.penalty = [f / most_f + s.relu() / most_s for f, s in parts]
            self.anchor, self.score, self.count = now, self.zeros(), number
        self.count += 1


class PoLRS(ER):
    """Rates are first changed after the first batch, where all are equal: to the higher ones. The
    three are judged by answers of what answers, on batches that are not trained on as well."""

    def __init__(self, data: Data, args: argparse.Namespace) -> None:
        super().__init__(data, args)
        self.models = [self.model, *(copy.deepcopy(self.model) for _ in range(2))]
        self.answering, self.best, self.right = self.models, 1, [0, 0, 0]
        self.set_rates(2 * args.lr)

    def set_rates(self, highest: float) -> None:
        self.optimizers = [sgd(m, highest / 2**k) for k, m in enumerate(self.models)]

    def keep(self) -> None:
        self.answering = copy.deepcopy(self.models)

    def answer(self, index: Tensor) -> int:
        hits, chosen = self.hits(index), self.best
        self.right = [a + b for a, b in zip(self.right, hits, strict=True)]
        self.best = self.right.index(max(self.right))
        return hits[chosen]

    def step(self, x: Tensor, y: Tensor, number: int) -> None:
        for model, optimizer in zip(self.models, self.optimizers, strict=True):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    def after(self, number: int) -> None:
        if number % (PARTS_A_RATE * math.ceil(STEPS / PARTS)) == 0:
            rate = self.optimizers[self.best].param_groups[0]["lr"]
            state = copy.deepcopy(self.models[self.best].state_dict())
            for model in self.models:
                model.load_state_dict(state)
            self.set_rates(2 * rate)
            self.right = [0, 0, 0]
            print(f"{number:>6}  rates from {2 * rate:g} on", flush=True)


class MIR(ER):
    """A reservoir of images as they were loaded. Interference is that of the step before, taken in
    training mode, which moves batch norm's statistics before the batch is answered."""

    def __init__(self, data: Data, args: argparse.Namespace) -> None:
        super().__init__(data, args)
        self.images = torch.zeros(0, 3, 32, 32, device=data.device)
        self.labels = torch.zeros(0, dtype=torch.long, device=data.device)
        self.keys = torch.zeros(0)
        self.chosen: tuple[Tensor, Tensor] | None = None

    def prepare(self, index: Tensor) -> None:
        if not len(self.labels):
            return
        some = torch.randperm(len(self.labels))[: 5 * BATCH]
        x, y = turned(self.images[some]), self.labels[some]
        ahead = copy.deepcopy(self.model)
        with torch.no_grad():
            for there, here in zip(ahead.parameters(), self.model.parameters(), strict=True):
                there -= self.args.lr * here.grad  # of the step before
            losses = (F.cross_entropy(m(x), y, reduction="none") for m in (self.model, ahead))
            now, then = losses
        most = (then - now).argsort(descending=True)[:BATCH]
        self.chosen = x[most], y[most]

    def batches(self, index: Tensor, steps: int) -> list[tuple[Tensor, Tensor]]:
        loaded, labels = self.data.loaded(index), self.data.y[index]
        x, y = turned(loaded), labels
        if self.chosen is not None:
            x, y = torch.cat([x, self.chosen[0]]), torch.cat([y, self.chosen[1]])
        keys = torch.cat([self.keys, torch.rand(BATCH)])
        best = keys.argsort(descending=True)[:MEMORY]
        self.keys, self.labels = keys[best], torch.cat([self.labels, labels])[best]
        self.images = torch.cat([self.images, loaded])[best]
        return [(x, y)]


class ACE(ER):
    """New samples compete among the classes of their batch and those never seen, recalled ones
    among all; two passes, each with its own statistics of batch norm, and the sum of both means."""

    def __init__(self, data: Data, args: argparse.Namespace) -> None:
        super().__init__(data, args)
        self.seen: set[int] = set()

    def step(self, x: Tensor, y: Tensor, number: int) -> None:
        self.seen |= set(y[:BATCH].tolist())
        absent = sorted(self.seen - set(y[:BATCH].tolist()))
        self.optimizer.zero_grad()
        scores = self.model(x[:BATCH])
        mask = torch.zeros_like(scores)
        mask[:, absent] = -1e9
        loss = F.cross_entropy(scores + mask, y[:BATCH])
        if len(y) > BATCH:
            loss = loss + F.cross_entropy(self.model(x[BATCH:]), y[BATCH:])
        loss.backward()
        self.optimizer.step()


class GSS(ER):
    """Images as they were loaded, each with the largest cosine of its gradient with those of ten
    parts of the memory, in evaluation mode. A full memory changes only where the gradient of the
    batch is below 0 with all parts. Recalled without replacement."""

    SUBSETS = 10

    def __init__(self, data: Data, args: argparse.Namespace) -> None:
        super().__init__(data, args)
        self.images = torch.zeros(0, 3, 32, 32, device=data.device)
        self.labels = torch.zeros(0, dtype=torch.long, device=data.device)
        self.scores = torch.zeros(0)

    def batches(self, index: Tensor, steps: int) -> list[tuple[Tensor, Tensor]]:
        self.loaded, self.new = self.data.loaded(index), self.data.y[index]
        x, y = self.loaded, self.new
        some = torch.randperm(len(self.labels))[:BATCH]
        return [(turned(torch.cat([x, self.images[some]])), torch.cat([y, self.labels[some]]))]

    def step(self, x: Tensor, y: Tensor, number: int) -> None:
        super().step(x, y, number)
        self.model.eval()
        self.select(turned(self.loaded))
        self.model.train()

    def gradient(self, x: Tensor, y: Tensor) -> Tensor:
        loss = F.cross_entropy(self.model(x), y)
        parts = torch.autograd.grad(loss, list(self.model.parameters()))
        return F.normalize(torch.cat([part.flatten() for part in parts]), dim=0)

    def select(self, x: Tensor) -> None:
        """Which new samples are stored; their gradients are of the mirrored or plain batch `x`."""
        room = MEMORY - len(self.labels)
        score = torch.full((BATCH,), 0.1)
        if len(self.labels):
            order = torch.randperm(len(self.labels)).split(BATCH)[: self.SUBSETS]
            others = [self.gradient(turned(self.images[p]), self.labels[p]) for p in order]
            directions = torch.stack(others)
            if room <= 0 and (directions @ self.gradient(x, self.new)).max() >= 0:
                return
            each = [self.gradient(x[i : i + 1], self.new[i : i + 1]) for i in range(BATCH)]
            score = torch.stack([(directions @ own).max() for own in each]).cpu()
        if room > 0:
            self.images = torch.cat([self.images, self.loaded[:room]])
            self.labels = torch.cat([self.labels, self.new[:room]])
            self.scores = torch.cat([self.scores, score[:room]])
            return
        weight = (self.scores - self.scores.min()).clamp(min=1e-9)
        slots = torch.multinomial(weight, BATCH, replacement=False)
        old, young = self.scores[slots] + 1, score + 1
        won = torch.rand(BATCH) * (old + young) < old
        self.images[slots[won]], self.labels[slots[won]] = self.loaded[won], self.new[won]
        self.scores[slots[won]] = score[won]


METHODS = {
    "er": ER, "ace": ACE, "lwf": LwF, "rwalk": RWalk, "polrs": PoLRS, "mir": MIR, "gss": GSS,
}  # fmt: skip


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("method", choices=METHODS)
    parser.add_argument("--data", choices=NORMAL, default="cifar100")
    parser.add_argument("--folder", type=Path, required=True, help="where data sets are packed")
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--steps", choices=STEPS_OF, default="1", help="a batch, of ER (ER++)")
    parser.add_argument("--cost", choices=TRAINS, default="1", help="batches that one takes")
    parser.add_argument("--strength", type=float, default=2.0, help="of RWalk's penalty")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--as-drawn", action="store_true", help="a seed is what it is in that code")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--to", type=int, default=STEPS, help="batches of the stream to go through")
    return parser


def online_accuracy(args: argparse.Namespace) -> float:
    """Of one run, in %."""
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    data, loaders = Data(args.folder, args.data, args.device), [None]
    if not args.as_drawn:
        data.shuffle()
    method, right = METHODS[args.method](data, args), 0
    if args.as_drawn:
        data.shuffle()
        base = int(torch.empty((), dtype=torch.int64).random_())
        loaders = [torch.Generator().manual_seed(base + number) for number in range(4)]
    for number in range(args.to):
        data.generator = loaders[number % len(loaders)]
        index = torch.arange(number * BATCH, (number + 1) * BATCH)
        trains = TRAINS[args.cost](number)
        if trains and args.cost != "1":
            method.keep()
        if trains:
            method.prepare(index)
        right += method.answer(index)
        if trains:
            method.learn(index, number)
        method.after(number)
        if (number + 1) % 500 == 0 or number + 1 == args.to:
            print(f"{number + 1:>6}  {100 * right / (number + 1) / BATCH:.2f}", flush=True)
    return 100 * right / args.to / BATCH


if __name__ == "__main__":
    given = parser().parse_args()
    if given.steps != "1" and given.method != "er":
        parser().error("--steps is for er")
    online_accuracy(given)
