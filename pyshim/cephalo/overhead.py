"""What a unit pays for every microbatch after the first, besides its compute."""

from __future__ import annotations

from collections.abc import Callable

from .capture import UnitClass
from .oom import out_of_memory
from .timing import Laps, Once, repeat
from .unitcost import POINT_S, Bench, Points, layered_run

MICROBATCHES = 4
LARGEST = 4
"""Samples in a microbatch at most, so that the time lost between two is seen beside its compute."""


def measure_overhead(
    bench: Bench, classes: list[UnitClass], points: dict[str, Points]
) -> tuple[float, float]:
    """Milliseconds (forward, backward) by which n microbatches in one call take longer than n calls
    of one, shared out to n - 1; that of the backward includes its recomputation. Measured on the
    class with most units; both kinds of call by turns, since machines get warm. Collective."""
    layered = [c for c in classes if not c.whole_batch and c.calls]
    if not layered:
        return 0.0, 0.0
    made = max(layered, key=lambda c: (len(c.units), c.name))
    # The smallest of the ranks' sizes.
    size = -int(bench.together.largest(-float(_size(points[made.name])))[0])
    bench.progress(f"{made.name} microbatches of {size}")
    made.example.gather()
    both, took = None, 0.0
    try:
        both = _both(bench, made, size)
        took = sum(bench.stopwatch.laps(both))
    except Exception as err:
        if not out_of_memory(err):
            raise
        both = None
    laps = repeat(bench.stopwatch, bench.together, both, took, 2 * POINT_S)
    made.example.drop_gradients()
    made.example.free()
    return _overhead(laps)


def _both(bench: Bench, made: UnitClass, size: int) -> Once:
    one = layered_run(bench, made, [size])
    many = layered_run(bench, made, [size] * MICROBATCHES)

    def run(mark: Callable[[], None]) -> None:
        one(mark)
        many(mark)

    return run


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
