"""What the collectives of a unit take on the real group, as the units issue them."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from .comm import Handle, ReduceHandle
from .gathered import FlatBuffer
from .layout import PPM, build_layout
from .reductions import IN_FLIGHT
from .timing import STEADY_SPREAD, Stopwatch, Together, spread
from .unit import Unit

FEWEST_RUNS = 5
ENOUGH_MS = 400.0
"""Of measuring one unit: short collectives are repeated so long at least."""
MOST_MS = 1000.0
"""And so long at most, unless the medians are steady before."""
MOST_RUNS = 160
ROUNDS = 4
"""Units of a class whose collectives follow each other in a run, if it has so many: the copies of
one go on beside the transport of the next."""
UNEVEN = (12, 1, 1, 2)
"""Weights of the strongly uneven shares that are compared with even ones, over and over: plans for
a tight fit give one rank up to nine tenths."""


@dataclass(frozen=True)
class CollectiveTimes:
    """Milliseconds of one unit's gather, and of its reduction: how much longer both take together,
    since in the backward a gather is under way as well, and a transport may carry more with two
    than with one. For the unit that is reduced last, the reduction alone."""

    all_gather_ms: float
    reduce_scatter_ms: float

    @property
    def total_ms(self) -> float:
        return self.all_gather_ms + self.reduce_scatter_ms


def shares(weights: Sequence[int]) -> list[int]:
    """Shares in proportion to ``weights``, in parts per million."""
    total, ends = sum(weights), [0]
    for i in range(len(weights)):
        ends.append(PPM * sum(weights[: i + 1]) // total)
    return [b - a for a, b in zip(ends, ends[1:], strict=False)]


def even_shares(world_size: int) -> list[int]:
    """Equal shares."""
    return shares([1] * world_size)


def uneven_shares(world_size: int) -> list[int]:
    """Shares of 12:1:1:2:12:1:1:2:…"""
    return shares([UNEVEN[i % len(UNEVEN)] for i in range(world_size)])


def measure_collectives(
    unit: Unit,
    count: int,
    state_ppm: Sequence[int],
    stopwatch: Stopwatch,
    together: Together,
    alone: bool = False,
) -> CollectiveTimes:
    """Median times of one of ``count`` such units with these shares, on buffers of their own: cast,
    collective and copies. ``alone``: no gather runs beside its reduction. Collective; the slowest
    rank's time counts on each."""
    gathers, reduces = issues_of(unit, state_ppm)
    if not gathers:
        return CollectiveTimes(0.0, 0.0)
    rounds = min(ROUNDS, count)
    beside = () if alone else gathers
    runs: list[list[float]] = []
    while not enough(runs[1:]):
        together.barrier()
        gather = stopwatch.wall_ms(lambda: carry(gathers, (), rounds))
        together.barrier()
        reduction = stopwatch.wall_ms(lambda: carry(beside, reduces, rounds))
        runs.append(together.largest(gather, reduction))
    gather, reduction = (statistics.median(r[i] for r in runs[1:]) / rounds for i in range(2))
    return CollectiveTimes(gather, reduction if alone else max(0.0, reduction - gather))


def enough(runs: list[list[float]]) -> bool:
    """True once more of these times would not change their medians much, or would take too long."""
    if len(runs) < FEWEST_RUNS:
        return False
    took_ms = sum(map(sum, runs))
    steady = all(spread(times) < STEADY_SPREAD for times in zip(*runs, strict=True))
    late = took_ms >= MOST_MS or len(runs) >= MOST_RUNS
    return late or (steady and took_ms >= ENOUGH_MS)


def issues_of(unit: Unit, state_ppm: Sequence[int]) -> tuple[list[_Gather], list[_Reduce]]:
    """What issues the unit's gathers and its reductions, with these shares."""
    buffers = [b for u in (unit, *unit.absorbed) for b in u.buffers if b.layout.numel]
    gathers = [_Gather(b, state_ppm) for b in buffers]
    return gathers, [_Reduce(b, state_ppm) for b in buffers if b.trainable]


def carry(
    gathers: Sequence[_Gather],
    reduces: Sequence[_Reduce],
    rounds: int = 1,
    beside: Callable[[], object] = lambda: None,
) -> None:
    """The collectives of so many units as the engine has them under way: a gather is waited for
    before the next begins, reductions as late as it does. ``beside`` runs beside each gather."""
    reducing: deque[list[ReduceHandle]] = deque()
    for _ in range(rounds):
        gathering = [issue() for issue in gathers]
        if len(reducing) == IN_FLIGHT:
            _wait_for(reducing.popleft())
        reducing.append([issue() for issue in reduces])
        beside()
        _wait_for(gathering)
    for handles in reducing:
        _wait_for(handles)


def _wait_for(handles: Sequence[Handle | ReduceHandle]) -> None:
    for handle in handles:
        handle.wait()


def _sizes(buffer: FlatBuffer, state_ppm: Sequence[int]) -> tuple[int, ...]:
    return build_layout([s.shape for s in buffer.layout.spans], state_ppm).sizes


class _Gather:
    """Issues the gather of a buffer, as often as it is called."""

    def __init__(self, buffer: FlatBuffer, state_ppm: Sequence[int]):
        self._comm, self._sizes = buffer.comm, _sizes(buffer, state_ppm)
        self._dtype = buffer.compute_dtype
        size = self._sizes[self._comm.rank]
        self._shard = torch.zeros(size, dtype=buffer.dtype, device=self._comm.device)

    def __call__(self) -> Handle:
        full = torch.empty(sum(self._sizes), dtype=self._dtype, device=self._comm.device)
        shard = self._shard
        if shard.dtype != self._dtype:  # cast into place
            shard = full.split(self._sizes)[self._comm.rank].copy_(shard)
        return self._comm.gather(full, shard, self._sizes)


class _Reduce:
    """Issues the reduction of a buffer's gradients, as often as it is called."""

    def __init__(self, buffer: FlatBuffer, state_ppm: Sequence[int]):
        self._comm, self._sizes = buffer.comm, _sizes(buffer, state_ppm)
        self._sum_dtype = buffer.sum_dtype
        self._wire = buffer.reduce_dtype
        if self._wire.itemsize >= self._sum_dtype.itemsize:
            self._wire = self._sum_dtype
        self._full = torch.zeros(sum(self._sizes), dtype=self._sum_dtype, device=self._comm.device)

    def __call__(self) -> ReduceHandle:
        grads = self._full.mul_(0.5).to(self._wire)
        return self._comm.reduce(grads, self._sizes, self._sum_dtype)
