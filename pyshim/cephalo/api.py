"""What a script may call, if it wants to know that it runs under cephalorun.

try:
    from cephalo import api
    api.on_stop(lambda: save(model, optimizer))
except ImportError:
    pass  # started some other way
"""

from __future__ import annotations

from collections.abc import Callable

_saves: list[Callable[[], None]] = []
_announce: list[Callable[[], None]] = []


def on_stop(save: Callable[[], None]) -> None:
    """Have ``save`` called on every rank, after an optimizer step, when the run is asked to save
    and stop (SIGTERM, SIGUSR1, SIGUSR2). Without it the run stops after the script's next save."""
    _saves.append(save)
    for announce in _announce:
        announce()


def announce_to(announce: Callable[[], None]) -> None:
    """Have ``announce`` called when the script registers a function. For the worker only."""
    _announce.append(announce)


def saves() -> list[Callable[[], None]]:
    """What the script registered. For the worker only."""
    return list(_saves)
