"""Training runs on ranks and in one plain process, to be compared. No test in here.

Data differ per sample and step; the reference is plain PyTorch over the whole global batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn import functional as F

from cephalo import ragged, runtime, sharding
from cephalo.plan import PPM, Plan, RankPlan
from cephalo.runtime import Runtime

CPU = torch.device("cpu")
BATCH = 9
VOCAB, WIDTH, SEQUENCE = 17, 8, 6

Shares = tuple[list[int], list[list[int]], list[int]]
"""Samples, microbatches and state_ppm of every rank."""

SHARES: dict[str, Shares] = {
    "one rank, smaller last microbatch": ([9], [[4, 4, 1]], [PPM]),
    "even shares": ([5, 4], [[2, 2, 1], [3, 1]], [500_000, 500_000]),
    "ragged shares, unequal counts": ([6, 3], [[2, 2, 2], [3]], [700_000, 300_000]),
    "a rank that owns nothing": ([4, 3, 2], [[4], [1, 1, 1], [2]], [250_000, 0, 750_000]),
    "a rank that owns everything, one without samples": (
        [4, 5, 0],
        [[2, 2], [5], []],
        [0, PPM, 0],
    ),
}


ALONE: Shares = ([9], [[9]], [PPM])
"""With everything kept, units are plain modules."""


def plan_of(
    shares: Shares,
    activations: str | list[str] = "recompute",
    classes: dict[str, list[int]] | None = None,
    kept: list[dict[str, int]] | None = None,
) -> Plan:
    """A plan of these shares; ``classes`` are those of unit classes that have others, ``kept`` the
    units that each rank keeps although it does not keep all."""
    ranks = [
        RankPlan(
            i,
            f"device-{i}",
            batch,
            tuple(micro),
            ppm,
            activations if isinstance(activations, str) else activations[i],
            {name: ppms[i] for name, ppms in (classes or {}).items()},
            kept[i] if kept else {},
        )
        for i, (batch, micro, ppm) in enumerate(zip(*shares))
    ]
    return Plan(sum(r.batch for r in ranks), "ragged", tuple(ranks))


class Block(nn.Module):
    """A residual block with a scalar parameter and one of a single row."""

    def __init__(self, width: int = WIDTH):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.scale = nn.Parameter(torch.tensor(0.9))
        self.row = nn.Parameter(torch.ones(1, width))

    def forward(self, x):
        return x + self.scale * self.down(F.gelu(self.up(self.norm(x * self.row))))


class Model(nn.Module):
    """Tied embedding, blocks of a given kind, norm and head: mean loss of every sample."""

    def __init__(self, block: Callable[[], nn.Module] = Block, layers: int = 3, tied: bool = True):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.blocks = nn.ModuleList(block() for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB, bias=False)
        if tied:
            self.head.weight = self.embed.weight

    def features(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return x

    def forward(self, tokens, targets):
        logits = self.head(self.norm(self.features(tokens)))
        return F.cross_entropy(logits.transpose(1, 2), targets, reduction="none").mean(1)


def tokens(generator: torch.Generator, batch: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """Random tokens and targets."""
    del dtype
    return tuple(torch.randint(0, VOCAB, (batch, SEQUENCE), generator=generator) for _ in range(2))


def vectors(generator: torch.Generator, batch: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """Random inputs and targets of (batch, sequence, width)."""
    return tuple(
        torch.randn(batch, SEQUENCE, WIDTH, generator=generator, dtype=torch.float64).to(dtype)
        for _ in range(2)
    )


def sgd(parameters) -> torch.optim.Optimizer:
    """Unlike Adam, it shows a gradient that is wrong by a factor."""
    return torch.optim.SGD(parameters, lr=0.2, momentum=0.9)


def blocks_then_root(model: nn.Module) -> list[Any]:
    return [*model.blocks, model]


@dataclass
class Case:
    """What is trained, and how. ``units`` lists what is given to fully_shard, in order."""

    build: Callable[[], nn.Module] = Model
    units: Callable[[nn.Module], Sequence[Any]] = blocks_then_root
    data: Callable[..., tuple] = tokens
    loss: Callable[..., torch.Tensor] = lambda model, *batch: model(*batch).mean()
    optimizer: Callable[..., torch.optim.Optimizer] = sgd
    before_step: Callable[[nn.Module, int], None] = lambda model, step: None
    steps: int = 5
    clip: float | None = None
    dtype: torch.dtype = torch.float64
    options: Callable[[], dict] = dict
    """Keyword arguments of fully_shard."""


@dataclass
class Result:
    """Losses of every step and the parameters at the end, whole; None where no gradient came."""

    losses: list[float]
    parameters: dict[str, torch.Tensor]
    last_gradients: dict[str, torch.Tensor | None]


def _loop(case: Case, model, optimizer, draw) -> tuple[list[float], dict]:
    generator, losses, grads = torch.Generator().manual_seed(5), [], {}
    for step in range(case.steps):
        case.before_step(model, step)
        loss = case.loss(model, *draw(case.data(generator, BATCH, case.dtype)))
        loss.backward()
        if case.clip is not None:
            norm = nn.utils.clip_grad_norm_(model.parameters(), case.clip)
            assert float(full(norm)) > case.clip, "the clipping does not bite"
        grads = {n: None if p.grad is None else full(p.grad) for n, p in model.named_parameters()}
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, grads


def one_process(case: Case) -> Result:
    """Train in this process, with plain PyTorch, on the whole global batch."""
    torch.manual_seed(0)
    model = case.build().to(case.dtype)
    losses, grads = _loop(case, model, case.optimizer(model.parameters()), lambda batch: batch)
    return Result(losses, {n: p.detach() for n, p in model.named_parameters()}, grads)


def install(plan: Plan, device: torch.device = CPU, **options: Any) -> Runtime:
    """Make the runtime of this rank."""
    ragged.install()
    made = Runtime(plan, device, **options)
    runtime.install(lambda: made)
    return made


def shard(model: nn.Module, units: Sequence[Any], **options: Any) -> nn.Module:
    """fully_shard every unit."""
    for unit in units:
        sharding.fully_shard(unit, **options)
    return model


def build(case: Case, device: torch.device = CPU) -> nn.Module:
    """The case's model, sharded; the same weights as in one process."""
    torch.manual_seed(0)
    model = case.build().to(device, case.dtype)
    return shard(model, case.units(model), **case.options())


def own_part(plan: Plan, rank: int, batch: Sequence[Any]) -> list[Any]:
    """The rank's samples; the first one where it has none. What is no batch stays whole."""
    start, count = sum(plan.batches[:rank]), plan.batches[rank]

    def part(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dim() and value.shape[0] == plan.global_batch:
            return value[start : start + count] if count else value[:1]
        return value

    return [part(value) for value in batch]


def on_rank(case: Case, plan: Plan, device: torch.device = CPU) -> Result:
    """Train on this rank; losses are those of the global batch."""
    made, rank = install(plan, device), dist.get_rank()
    model, count = build(case, device), plan.batches[rank]
    if not count:
        made.samples_of_batch = lambda: 0
    losses, grads = _loop(
        case, model, case.optimizer(model.parameters()), lambda b: own_part(plan, rank, b)
    )
    weighed = (
        torch.tensor(losses, dtype=torch.float64) * count if count else torch.zeros(len(losses))
    )
    weighed = weighed.double()
    dist.all_reduce(weighed)
    parameters = {n: full(p).cpu() for n, p in model.named_parameters()}
    grads = {n: None if g is None else g.cpu() for n, g in grads.items()}
    return Result((weighed / plan.global_batch).tolist(), parameters, grads)


def full(tensor: torch.Tensor) -> torch.Tensor:
    """The whole tensor of anything. Collective."""
    tensor = tensor.detach()
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor.clone()


def relative_error(got: torch.Tensor, wanted: torch.Tensor) -> float:
    """Largest difference, relative to the largest value wanted."""
    scale = wanted.abs().max().clamp(min=1e-30) if wanted.numel() else torch.ones(())
    return float((got.double() - wanted.double()).abs().max() / scale) if wanted.numel() else 0.0


def assert_equal(got: Result, wanted: Result, tolerance: float = 1e-9) -> None:
    """Every step's loss, every parameter, every gradient of the last step."""
    assert got.parameters.keys() == wanted.parameters.keys()
    for step, (a, b) in enumerate(zip(got.losses, wanted.losses, strict=True)):
        assert abs(a - b) <= tolerance * abs(b), f"loss of step {step}: {a} for {b}"
    for name, value in wanted.parameters.items():
        error = relative_error(got.parameters[name], value)
        assert error <= tolerance, f"{name} is off by {error:.2e}"
        grad = wanted.last_gradients[name]
        assert (got.last_gradients[name] is None) == (grad is None), f"{name}.grad"
        if grad is not None:
            error = relative_error(got.last_gradients[name], grad)
            assert error <= 10 * tolerance, f"{name}.grad is off by {error:.2e}"
