"""Where a rank is: in which phase and unit, and for which collective it waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .events import Events

SCRIPT = "script"
"""The phase outside of everything that is ours: data, optimizer, the script's own code."""
HEARTBEAT_SECONDS = 1.0


class Place:
    """Written by the thread that trains, read by the one that sends heartbeats.

    ``moves`` grows whenever anything changes, so that two equal looks at it mean standing still.
    """

    def __init__(self) -> None:
        self.phase = SCRIPT
        self.unit = ""
        self.collective = ""
        self.moves = 0
        self.pending: Callable[[], str] = lambda: ""
        """What the device itself waits for, where the host runs ahead of it."""

    def enter(self, phase: str, unit: str = "") -> None:
        """The rank goes to ``phase``, in ``unit``."""
        self.phase, self.unit = phase, unit
        self.moves += 1

    @contextmanager
    def doing(self, phase: str) -> Iterator[None]:
        """In ``phase`` inside, and back to where it was behind."""
        before = (self.phase, self.unit)
        self.enter(phase)
        try:
            yield
        finally:
            self.enter(*before)

    def wait(self, what: str) -> None:
        """From now on the rank waits for the others in the collective ``what``, or no longer if it
        is empty."""
        self.collective = what
        self.moves += 1

    def report(self, ask_device: bool = True) -> dict[str, object]:
        """The fields of a heartbeat. Only one thread may ask what the device waits for."""
        return {
            "phase": self.phase,
            "unit": self.unit,
            "collective": self.collective or (self.pending() if ask_device else ""),
            "moves": self.moves,
            "cpu_ms": time.process_time() * 1e3,
        }


def start_heartbeats(
    events: Events, place: Place, step: Callable[[], int], seconds: float = HEARTBEAT_SECONDS
) -> None:
    """Say every ``seconds`` where the rank is, from a thread of its own."""

    def beat() -> None:
        while True:
            events.send("heartbeat", step=step(), **place.report())
            time.sleep(seconds)

    threading.Thread(target=beat, name="cephalo-heartbeat", daemon=True).start()
