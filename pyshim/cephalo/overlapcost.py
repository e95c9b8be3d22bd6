"""How much computing and collectives slow each other down when both are under way."""

from __future__ import annotations

import statistics

from .capture import UnitClass
from .collectivecost import ROUNDS, CollectiveTimes, carry, even_shares, issues_of
from .oom import out_of_memory
from .timing import Once, error_of_median
from .unit import Unit
from .unitcost import Bench, Points, layered_run

FEWEST_RUNS = 7
MOST_RUNS, MOST_MS = 60, 6000.0
STEADY = 0.03
"""A part lost is known well enough once the standard error of its median is below this."""
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
    rounds = min(ROUNDS, len(made.units))
    sizes = _sizes(points, link_ms)
    once: Once | None = None
    fits = True

    def computing() -> None:
        nonlocal once, fits
        try:
            if fits:
                once = once or layered_run(bench, made, sizes)
                once(lambda: None)
        except Exception as err:
            if not out_of_memory(err):
                raise
            once, fits = None, False  # the others' times are enough

    made.example.gather()

    def computing_all() -> None:
        for _ in range(rounds):
            computing()

    ways = (
        computing_all,
        lambda: carry(gathers, reductions, rounds),
        lambda: carry(gathers, reductions, rounds, computing),
    )
    losses: list[float] = []
    took_ms = 0.0
    while not known(losses[1:], took_ms):
        times = []
        for way in ways:
            bench.together.barrier()
            times.append(bench.stopwatch.wall_ms(way))
        times = bench.together.largest(*times)
        # Of times taken one after another: a link may be faster a second later.
        losses.append(lost(*times))
        took_ms += sum(times)
    made.example.drop_gradients()
    made.example.free()
    return statistics.median(losses[1:])


def known(losses: list[float], took_ms: float) -> bool:
    """True once more runs would not change the median much, or would take too long."""
    if len(losses) < FEWEST_RUNS:
        return False
    late = len(losses) >= MOST_RUNS or took_ms >= MOST_MS
    return late or error_of_median(losses) < STEADY


def lost(compute_ms: float, link_ms: float, both_ms: float) -> float:
    """The part of the shorter one that both at once take longer than the longer one alone."""
    shorter, longer = sorted((compute_ms, link_ms))
    return min(1.0, max(0.0, (both_ms - longer) / shorter)) if shorter > 0 else 0.0


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
