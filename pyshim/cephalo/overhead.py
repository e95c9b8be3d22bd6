"""What a unit pays for every microbatch after the first, besides its compute."""

from __future__ import annotations

import time

from .capture import UnitClass
from .timing import Laps, repeat
from .unitcost import POINT_S, Bench, Points, layered_run

MICROBATCHES = 4
LARGEST = 4
"""Samples in a microbatch at most, so that the time lost between two is seen beside its compute."""


def measure_overhead(
    bench: Bench, classes: list[UnitClass], points: dict[str, Points]
) -> tuple[float, float]:
    """Milliseconds (forward, backward) by which n microbatches in one call take longer than n calls
    of one, shared out to n - 1; that of the backward includes its recomputation. Measured on the class that takes most time; both kinds of call by
    turns, since machines get warm. Collective."""
    layered = [c for c in classes if not c.whole_batch and c.calls]
    if not layered:
        return 0.0, 0.0
    made = layered[0]
    if len(layered) > 1:
        made = max(layered, key=lambda c: (len(c.units), c.name))
    smallest = bench.together.largest(-float(_size(points[made.name])))[0]
    size = int(-smallest)
    bench.progress(f"{made.name} microbatches of {size}")
    made.example.gather()
    example = made.calls[0]
    one, many = layered_run(bench, example, [size]), layered_run(bench, example, [size] * MICROBATCHES)

    def both(mark) -> None:
        one(mark)
        many(mark)

    began = time.perf_counter()
    bench.stopwatch.laps(both)
    took = (time.perf_counter() - began) * 1e3
    laps = repeat(bench.stopwatch, bench.together, both, took, 2 * POINT_S)
    made.example.drop_gradients()
    made.example.free()
    return _overhead(laps)


def _size(points: Points) -> int:
    """A measured size of which several fit where the largest measured one does."""
    largest = max(points.forward_ms)
    fitting = [m for m in points.forward_ms if m <= max(1, largest // 2) and m <= LARGEST]
    return max(fitting, default=1)


def _overhead(laps: Laps | None) -> tuple[float, float]:
    if laps is None:
        return 0.0, 0.0
    extra = [
        laps.median(lambda run, at=at: run[at + 2] - MICROBATCHES * run[at]) for at in range(2)
    ]
    forward, backward = (max(0.0, x / (MICROBATCHES - 1)) for x in extra)
    return forward, backward
