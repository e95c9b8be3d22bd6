"""What the collectives of a unit take on the real group, as the units issue them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .flat import FlatBuffer
from .layout import PPM, build_layout
from .timing import Stopwatch, Together
from .unit import Unit

FEWEST_RUNS = 5
ENOUGH_MS = 400.0
"""Of measuring one unit: short collectives are repeated until their median is steady."""
MOST_RUNS = 40
UNEVEN = (4, 2, 1, 1)
"""Weights of the strongly uneven shares that are compared with even ones, over and over."""


@dataclass(frozen=True)
class CollectiveTimes:
    """Milliseconds of one unit's gather and reduction."""

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
    """Shares of 4:2:1:1:4:2:1:1:…"""
    return shares([UNEVEN[i % len(UNEVEN)] for i in range(world_size)])


def measure_collectives(
    unit: Unit, state_ppm: Sequence[int], stopwatch: Stopwatch, together: Together
) -> CollectiveTimes:
    """Median times of the unit's gather and reduction with these shares, on buffers of their own:
    cast, collective and copies. Collective; the slowest rank's time counts on each."""
    buffers = [b for u in (unit, *unit.absorbed) for b in u.buffers if b.layout.numel]
    if not buffers:
        return CollectiveTimes(0.0, 0.0)
    runs: list[list[float]] = []
    while len(runs) <= FEWEST_RUNS or (
        len(runs) <= MOST_RUNS and sum(map(sum, runs[1:])) < ENOUGH_MS
    ):
        together.barrier()
        gather = sum(_gather_ms(b, state_ppm, stopwatch) for b in buffers)
        together.barrier()
        reduce = sum(_reduce_ms(b, state_ppm, stopwatch) for b in buffers if b.trainable)
        runs.append(together.largest(gather, reduce))
    runs = runs[1:]
    return CollectiveTimes(*(statistics.median(r[i] for r in runs) for i in range(2)))


def _sizes(buffer: FlatBuffer, state_ppm: Sequence[int]) -> tuple[int, ...]:
    return build_layout([s.shape for s in buffer.layout.spans], state_ppm).sizes


def _gather_ms(buffer: FlatBuffer, state_ppm: Sequence[int], stopwatch: Stopwatch) -> float:
    comm, sizes = buffer.comm, _sizes(buffer, state_ppm)
    shard = torch.zeros(sizes[comm.rank], dtype=buffer.dtype, device=comm.device)

    def gather() -> None:
        full = torch.empty(sum(sizes), dtype=buffer.compute_dtype, device=comm.device)
        comm.gather(full, shard.to(buffer.compute_dtype), sizes).wait()

    return _wall_ms(gather, stopwatch)


def _reduce_ms(buffer: FlatBuffer, state_ppm: Sequence[int], stopwatch: Stopwatch) -> float:
    comm, sizes = buffer.comm, _sizes(buffer, state_ppm)
    full = torch.zeros(sum(sizes), dtype=buffer.sum_dtype, device=comm.device)
    wire = buffer.reduce_dtype
    if wire.itemsize >= buffer.sum_dtype.itemsize:
        wire = buffer.sum_dtype

    def reduce() -> None:
        comm.reduce(full.mul_(0.5).to(wire), sizes, buffer.sum_dtype).wait()

    return _wall_ms(reduce, stopwatch)


def _wall_ms(run, stopwatch: Stopwatch) -> float:
    """By the wall clock: transports that go through the host are not on a CUDA stream."""
    stopwatch.settle()
    start = time.perf_counter()
    run()
    stopwatch.settle()
    return (time.perf_counter() - start) * 1e3
