"""What the collectives of all units take with even shares, and with strongly uneven ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .capture import UnitClass
from .collectivecost import CollectiveTimes, even_shares, measure_collectives, uneven_shares
from .engine import Engine
from .footprint import is_held
from .timing import Stopwatch, Together


@dataclass(frozen=True)
class LinkTimes:
    """``times`` by class with even shares; strongly uneven ones take ``ragged_factor`` times as
    long, at least 1."""

    times: dict[str, CollectiveTimes]
    ragged_factor: float

    def mean(self, other: LinkTimes) -> LinkTimes:
        """Of two measurements of the same units."""
        times = {
            name: CollectiveTimes(
                (mine.all_gather_ms + other.times[name].all_gather_ms) / 2,
                (mine.reduce_scatter_ms + other.times[name].reduce_scatter_ms) / 2,
            )
            for name, mine in self.times.items()
        }
        return LinkTimes(times, (self.ragged_factor + other.ragged_factor) / 2)


def measure_links(
    engine: Engine,
    classes: list[UnitClass],
    stopwatch: Stopwatch,
    together: Together,
    progress: Callable[[str], None],
) -> LinkTimes:
    """Measure every class with even shares, and the one with the longest collectives with uneven
    ones too. Collective."""
    world = engine.runtime.comm.world_size

    def measure(made: UnitClass, shares: list[int]) -> CollectiveTimes:
        held = is_held(engine, made)
        unit, count = made.units[0], len(made.units)
        return measure_collectives(unit, count, shares, stopwatch, together, alone=held)

    times = {}
    for made in classes:
        progress(f"{made.name} collectives")
        times[made.name] = measure(made, even_shares(world))
    heaviest = max(classes, key=lambda c: times[c.name].total_ms)
    even = times[heaviest.name].total_ms
    if world == 1 or even <= 0:
        return LinkTimes(times, 1.0)
    uneven = measure(heaviest, uneven_shares(world))
    return LinkTimes(times, max(1.0, uneven.total_ms / even))
