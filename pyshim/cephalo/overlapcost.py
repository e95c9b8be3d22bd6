"""How much computing and collectives slow each other down when both are under way."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from .capture import UnitClass
from .collectivecost import CollectiveTimes, even_shares, issues_of
from .oom import out_of_memory
from .timing import Once
from .unit import Unit
from .unitcost import Bench, Points, layered_run

RUNS = 7
MOST_MICROBATCHES = 8
SHORTEST_MS = 0.2
"""Collectives below this are over before anything runs beside them."""


def measure_overlap(
    bench: Bench,
    classes: list[UnitClass],
    points: dict[str, Points],
    collectives: dict[str, CollectiveTimes],
    order: list[Unit],
) -> dict[str, float]:
    """By class, the part of the shorter one that is not gained by running a unit's compute and its
    gather and reduction at once: 0 if both run as if alone, 1 if they could as well run one after
    the other. Measured on the class with most units, and taken for all others. Of a class that is
    only the last unit of the forward all is lost: the backward begins where the forward ended, so
    that its collectives have no other unit to run beside. Collective.
    """
    layered = [c for c in classes if not c.whole_batch and c.calls]
    heavy = [c for c in layered if collectives[c.name].total_ms >= SHORTEST_MS]
    if not heavy or bench.engine.runtime.comm.world_size == 1:
        return {}
    made = max(heavy, key=lambda c: (len(c.units), c.name))
    bench.progress(f"{made.name} beside its collectives")
    loss = _loss(bench, made, points[made.name], collectives[made.name].total_ms)
    return {c.name: 1.0 if c.units == order[-1:] else loss for c in layered}


def _loss(bench: Bench, made: UnitClass, points: Points, link_ms: float) -> float:
    world = bench.engine.runtime.comm.world_size
    gathers, reductions = issues_of(made.units[0], even_shares(world))
    issues = [*gathers, *reductions]
    made.example.gather()
    compute: Once | None = layered_run(bench, made.calls[0], _sizes(points, link_ms))

    def computing() -> None:
        nonlocal compute
        try:
            if compute is not None:
                compute(lambda: None)
        except Exception as err:
            if not out_of_memory(err):
                raise
            compute = None  # the others' times are enough

    def both() -> None:
        handles = [issue() for issue in issues]
        computing()
        for handle in handles:
            handle.wait()

    def link() -> None:
        for handle in [issue() for issue in issues]:
            handle.wait()

    runs = [
        bench.together.largest(*[_wall_ms(bench, what) for what in (computing, link, both)])
        for _ in range(RUNS)
    ]
    made.example.drop_gradients()
    made.example.free()
    alone, carried, joined = (statistics.median(r[i] for r in runs[1:]) for i in range(3))
    shorter = min(alone, carried)
    return min(1.0, max(0.0, (joined - max(alone, carried)) / shorter)) if shorter > 0 else 0.0


def _sizes(points: Points, link_ms: float) -> list[int]:
    """Microbatches that take about as long as the collectives, of a size of which two fit: buffers
    of collectives are there as well."""

    def takes(samples: int) -> float:
        return 2 * points.forward_ms[samples] + points.backward_ms[samples]

    most = max(1, max(points.forward_ms) // 2)
    sizes = [m for m in points.forward_ms if m <= most] or [min(points.forward_ms)]
    size = min(sizes, key=lambda m: (abs(takes(m) - link_ms), m))
    count = round(link_ms / takes(size)) if takes(size) > 0 else 1
    return [size] * max(1, min(MOST_MICROBATCHES, count))


def _wall_ms(bench: Bench, run: Callable[[], None]) -> float:
    bench.together.barrier()
    bench.stopwatch.settle()
    start = time.perf_counter()
    run()
    bench.stopwatch.settle()
    return (time.perf_counter() - start) * 1e3
