"""Random state and autocast of a call, so that a second run of it repeats the first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch


class RandomState:
    """The random state of the CPU and of one device at a moment."""

    def __init__(self, device: torch.device):
        self._device = device
        self._cpu = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def restore(self) -> None:
        torch.set_rng_state(self._cpu)
        if self._cuda is not None:
            torch.cuda.set_rng_state(self._cuda, self._device)


@contextmanager
def untouched_randomness(device: torch.device) -> Iterator[None]:
    """Leave the random state as it was before."""
    state = RandomState(device)
    try:
        yield
    finally:
        state.restore()


class AutocastState:
    """The autocast settings of a moment, for device and CPU; ``context`` brings them back."""

    def __init__(self, device: torch.device):
        self._kinds = [
            (kind, torch.get_autocast_dtype(kind), torch.is_autocast_cache_enabled())
            for kind in {device.type, "cpu"}
            if torch.is_autocast_enabled(kind)
        ]

    def context(self):
        if not self._kinds:
            return nullcontext()
        return _nested(self._kinds)


@contextmanager
def _nested(kinds) -> Iterator[None]:
    if not kinds:
        yield
        return
    kind, dtype, cache = kinds[0]
    with torch.autocast(kind, dtype=dtype, cache_enabled=cache), _nested(kinds[1:]):
        yield
