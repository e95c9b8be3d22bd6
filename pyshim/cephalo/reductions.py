"""The reductions of a backward: how many are under way, and what they gave."""

from __future__ import annotations

import torch

from .clock import Clock
from .gathered import FlatBuffer
from .unit import Unit
from .weighting import StepWeight

IN_FLIGHT = 2
"""Reductions that may be under way at once; each keeps one unit's gradients alive."""


class Reductions:
    """Starts the reductions of units, waits for them, and keeps what they gave until the script
    wants it: ``reduced[buffer]``, this rank's range (1-D) in the accumulation dtype."""

    def __init__(self, clock: Clock):
        self._clock = clock
        self._under_way: list[Unit] = []
        self.reduced: dict[FlatBuffer, torch.Tensor] = {}

    def start(self, unit: Unit, weight: StepWeight) -> None:
        """Reduce what the unit's microbatches left."""
        if not unit.trainable:
            return
        while len(self._under_way) >= IN_FLIGHT:
            self._finish(self._under_way.pop(0))
        unit.start_reduce(weight)
        self._under_way.append(unit)

    def finish(self) -> None:
        """Wait for all."""
        for unit in self._under_way:
            self._finish(unit)
        self._under_way = []

    def forget(self) -> None:
        """Leave those under way to their units, which drop them."""
        self._under_way = []

    def _finish(self, unit: Unit) -> None:
        for member in (unit, *unit.absorbed):
            for buffer, handle in member.reduce_in_flight:
                if handle.ended:
                    reduced = handle.wait()
                else:
                    with self._clock.waiting("reduction"):
                        reduced = handle.wait()
                known = self.reduced.get(buffer)
                self.reduced[buffer] = reduced if known is None else known.add_(reduced)
            member.reduce_in_flight = []
