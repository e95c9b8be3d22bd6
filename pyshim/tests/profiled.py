"""Models and runs for the tests of measuring. No test in here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn import functional as F

from cephalo import profile, ragged, runtime, sharding, unitcost
from cephalo.data import Feed, Source
from cephalo.devices import DeviceEntry
from cephalo.plan import even_plan
from cephalo.runtime import Runtime

WIDTH, SEQUENCE, VOCAB, LAYERS = 16, 8, 32, 3
BLOCK_PARAMETERS = 2 * WIDTH * WIDTH + 2 * WIDTH


class Ended(BaseException):
    """Raised by the profiler where a worker would end the script."""


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x)))


class Normed(nn.Module):
    """Cannot be cut: its statistics are those of the whole batch."""

    def __init__(self):
        super().__init__()
        self.norm, self.mix = nn.BatchNorm1d(SEQUENCE), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.mix(self.norm(x))


class Model(nn.Module):
    """Embedding, blocks, a unit that cannot be cut, a head over a vocabulary."""

    def __init__(self, block: Callable[[], nn.Module] = Block):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.blocks = nn.ModuleList(block() for _ in range(LAYERS))
        self.normed = Normed()
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.normed(x))
        return F.cross_entropy(logits.transpose(1, 2), targets, reduction="none").mean(1)


def blocks_and_rest(model: Model) -> list[Any]:
    return [*model.blocks, model.normed, model]


class Recorded:
    """Stands for the line to the supervisor."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, dict]] = []

    def send(self, kind: str, **fields: Any) -> None:
        self.sent.append((kind, fields))


class Run:
    """A script up to its first training forward, profiled there."""

    def __init__(
        self,
        folder: str,
        world: int,
        model: Callable[[], nn.Module] = Model,
        units: Callable[[Any], list[Any]] = blocks_and_rest,
        optimizer: Callable[..., torch.optim.Optimizer] | None = None,
        batch: int = 3,
        budget_s: float = 20.0,
        slowdown: float = 1.0,
    ):
        ragged.install()
        unitcost.POINT_S = 0.01
        torch.manual_seed(3)
        self.events, self.folder = Recorded(), Path(folder)
        plan = even_plan(world, batch)
        self.runtime = Runtime(plan, torch.device("cpu"), slowdown=slowdown)
        rank = self.runtime.comm.rank
        entry = DeviceEntry(rank, f"device-{rank}", "cpu", f"virtual-{rank}", virtual=True)
        feed = Feed(plan, rank)
        feed.last_loader = Source(batch, 100)
        runtime.install(lambda: self.runtime)
        profile.prepare(self.runtime, self.folder, entry, self.events, feed, budget_s, Ended)
        self.model = model()
        for unit in units(self.model):
            sharding.fully_shard(unit)
        self.optimizer = optimizer(self.model.parameters()) if optimizer else None
        self.tokens = torch.randint(0, VOCAB, (batch, SEQUENCE + 1))

    def measure(self) -> dict[str, Any]:
        """Call the model as a script would; returns what was measured."""
        try:
            self.model(self.tokens[:, :-1], self.tokens[:, 1:])
        except Ended:
            path = self.folder / "measure" / f"rank-{self.runtime.comm.rank}.json"
            return json.loads(path.read_text())
        raise AssertionError("the profiler did not end the script")

    def weights(self) -> list[torch.Tensor]:
        """Copies of this rank's pieces of all parameters, and of all buffers."""
        params = [p.to_local() if isinstance(p, DTensor) else p for p in self.model.parameters()]
        return [x.detach().clone() for x in (*params, *self.model.buffers())]
