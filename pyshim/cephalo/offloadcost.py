"""What it takes to move a unit's inputs to host memory and back."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch

from .capture import Example
from .offload import Offloader
from .oom import out_of_memory, release
from .timing import Stopwatch, Together

ENOUGH_BYTES = 64 << 20
"""Moved in one run, so that the link and not the start of a copy is timed."""
MOST_PIECES = 64
RUNS = 3


def measure_offload(
    example: Example, device: torch.device, stopwatch: Stopwatch, together: Together
) -> float | None:
    """Milliseconds per sample, one way, the slower one, with all ranks moving at the same time as
    they do in training; 0 for a call without activations to move. None on a CPU device, whose
    memory is the host's, and where moving fails on any rank. Collective."""
    if device.type != "cuda":
        return None
    if not example.gradient_bytes_per_sample():
        return 0.0
    samples, *moves = _moves(example, device)
    slowest = []
    for _ in range(RUNS + 1):  # the first makes the pinned memory
        times = []
        for move in moves:
            together.barrier()
            times.append(_attempted_ms(move, stopwatch))
        slowest.append(together.largest(*times))
    release(device)
    if any(math.isinf(took) for times in slowest for took in times):
        return None
    return max(min(times[way] for times in slowest[1:]) for way in range(len(moves))) / samples


def _moves(
    example: Example, device: torch.device
) -> tuple[int, Callable[[], None], Callable[[], None]]:
    """The number of samples that are moved, and how: out, and back."""
    each = example.gradient_bytes_per_sample() * example.samples
    goes = [want and cut for want, cut in zip(example.wants, example.cut, strict=True)]
    tensors = [leaf for leaf, go in zip(example.leaves, goes, strict=True) if go]
    count = max(1, min(MOST_PIECES, int(ENOUGH_BYTES // each)))
    offloader, stored = Offloader(device), []

    def out() -> None:
        stored.extend(offloader.put(tensors) for _ in range(count))
        offloader.settle()

    def back() -> None:
        while stored:
            offloader.get(stored.pop())

    return example.samples * count, out, back


def _attempted_ms(move: Callable[[], None], stopwatch: Stopwatch) -> float:
    """What ``move`` takes; infinity if memory ends."""
    stopwatch.settle()
    start = time.perf_counter()
    try:
        move()
    except Exception as err:
        if not out_of_memory(err):
            raise
        return math.inf
    stopwatch.settle()
    return (time.perf_counter() - start) * 1e3
