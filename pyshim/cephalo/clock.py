"""Where a step's time goes: computing, or waiting for other ranks."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager

import torch

from .place import Place

Wait = float | tuple[torch.cuda.Event, torch.cuda.Event]
"""Milliseconds, or the two events around a wait on the device."""


class Clock:
    """Notes the waits of a rank in collectives; the rest of a step is its own compute.

    On CPU a wait is the time the thread is blocked. On CUDA it is the time the compute stream
    stands still, from a pair of events around the wait, so that queued work does not count as
    waiting. ``slowdown`` is for virtual devices: ``pace`` sleeps so long that the compute since the
    last call took that many times as long.
    """

    def __init__(self, device: torch.device, slowdown: float = 1.0, place: Place | None = None):
        self.device = device
        self.slowdown = slowdown
        self.place = place or Place()
        """Where the rank is, for the heartbeats."""
        self._waits: list[Wait] = []
        self._paced = time.thread_time()

    def waiting(self, what: str = "collective") -> AbstractContextManager[None]:
        """Everything inside counts as waiting for other ranks, in the collective ``what``."""
        return _Waiting(self, what)

    def _begin(self) -> torch.cuda.Event | float:
        if self.device.type == "cuda":
            before = torch.cuda.Event(enable_timing=True)
            before.record()
            return before
        self.pace()
        return time.perf_counter()

    def _end(self, before: torch.cuda.Event | float) -> None:
        if isinstance(before, torch.cuda.Event):
            after = torch.cuda.Event(enable_timing=True)
            after.record()
            self._waits.append((before, after))
            return
        self._waits.append((time.perf_counter() - before) * 1e3)
        self._paced = time.thread_time()

    def pace(self) -> None:
        """Sleep in proportion to the compute since the last call (virtual slow devices only)."""
        if self.slowdown > 1.0:
            now = time.thread_time()
            time.sleep(max(0.0, (now - self._paced) * (self.slowdown - 1.0)))
            self._paced = time.thread_time()

    def restart(self) -> None:
        """Forget the waits and the compute so far."""
        self._waits, self._paced = [], time.thread_time()

    def take(self) -> list[Wait]:
        """The waits since the last call."""
        waits, self._waits = self._waits, []
        return waits

    @staticmethod
    def total_ms(waits: list[Wait]) -> float:
        """Their sum in milliseconds; on CUDA it waits until they have ended."""
        total = 0.0
        for wait in waits:
            if isinstance(wait, tuple):
                wait[1].synchronize()
                total += wait[0].elapsed_time(wait[1])
            else:
                total += wait
        return total


class _Waiting(AbstractContextManager):
    """One wait. A class, since generators would take longer than most waits last."""

    __slots__ = ("_before", "_clock", "_what")

    def __init__(self, clock: Clock, what: str):
        self._clock, self._what = clock, what

    def __enter__(self) -> None:
        self._clock.place.wait(self._what)
        self._before = self._clock._begin()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._clock._end(self._before)
        self._clock.place.wait("")
