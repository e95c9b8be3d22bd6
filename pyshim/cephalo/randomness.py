"""Random state and autocast of a call, so that a second run of it repeats the first."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

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
    """Leave the random state as it was before, Python's own included."""
    state, python = RandomState(device), random.getstate()
    try:
        yield
    finally:
        state.restore()
        random.setstate(python)


class AutocastState:
    """The autocast settings of a moment, for device and CPU; ``context`` brings them back, off
    included."""

    def __init__(self, device: torch.device):
        cache = torch.is_autocast_cache_enabled()
        self._settings = [
            (kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind), cache)
            for kind in dict.fromkeys((device.type, "cpu"))
        ]

    def forget_casts(self) -> None:
        """Drop the weights that autocast keeps in its cache: they have no history if they were cast
        without gradients, and would outlive the gathered parameters."""
        if any(enabled for _, enabled, _, _ in self._settings):
            torch.clear_autocast_cache()

    @contextmanager
    def context(self) -> Iterator[None]:
        with ExitStack() as stack:
            for kind, enabled, dtype, cache in self._settings:
                stack.enter_context(
                    torch.autocast(kind, dtype=dtype, enabled=enabled, cache_enabled=cache)
                )
            yield
