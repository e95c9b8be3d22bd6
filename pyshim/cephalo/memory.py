"""How much memory a piece of compute takes, above what was there before it."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import compat
from .devices import data_bytes

SAMPLE_BYTES = 1 << 20
"""On CPU the process's size is looked at when the peak has grown by this much."""


class Meter:
    """Bytes taken between ``with meter:`` and its end.

    On CUDA the numbers are the caching allocator's. The CPU allocator keeps no statistics, so there
    the storages of all tensors that operators return are watched until they die; buffers that an
    operator makes and frees inside of itself are not seen, but show in ``extra_bytes``.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._watch: _StorageWatch | None = None
        self._before = 0
        self.peak_bytes = 0
        """Most bytes alive at once, above those at the start."""
        self.extra_bytes = 0
        """What the process (CPU) or the allocator (CUDA) took beyond the tensors' bytes, at the
        peak: allocator overhead and fragmentation."""

    def __enter__(self) -> Meter:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
            torch.cuda.reset_peak_memory_stats(self._device)
            self._before = torch.cuda.memory_allocated(self._device)
            self._reserved = torch.cuda.memory_reserved(self._device) - self._before
        else:
            self._watch = _StorageWatch()
            self._watch.__enter__()
        return self

    def __exit__(self, *failure: Any) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
            self.peak_bytes = torch.cuda.max_memory_allocated(self._device) - self._before
            grown = torch.cuda.max_memory_reserved(self._device) - self._before
            self.extra_bytes = max(0, grown - max(self._reserved, 0) - self.peak_bytes)
        else:
            self._watch.__exit__(*failure)
            self.peak_bytes, self.extra_bytes = self._watch.peak, self._watch.extra

    def live_bytes(self) -> int:
        """Bytes alive now, above those at the start. Inside the ``with`` only."""
        if self._device.type == "cuda":
            return torch.cuda.memory_allocated(self._device) - self._before
        return self._watch.live


class _StorageWatch(TorchDispatchMode):
    """Counts the bytes of storages that operators make, until they die."""

    def __init__(self) -> None:
        super().__init__()
        self.live = 0
        self.peak = 0
        self.extra = 0
        self._known: dict[int, weakref.ref] = {}
        self._start = data_bytes()
        self._sampled = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        for tensor in compat.tensors_of((args, kwargs)):
            self._note(tensor, counts=False)
        result = func(*args, **kwargs)
        for tensor in compat.tensors_of(result):
            self._note(tensor, counts=True)
        return result

    def _note(self, tensor: torch.Tensor, counts: bool) -> None:
        """Count a storage seen for the first time; one that an operator only reads was there."""
        if tensor.device.type != "cpu":
            return
        storage = tensor.untyped_storage()
        key = id(storage)
        if key in self._known:
            return
        size = storage.nbytes() if counts else 0
        self._known[key] = weakref.ref(storage, lambda _: self._forget(key, size))
        self.live += size
        if self.live > self.peak:
            self.peak = self.live
            if self.peak >= self._sampled + SAMPLE_BYTES:
                self._sampled = self.peak
                self.extra = max(0, data_bytes() - self._start - self.peak)

    def _forget(self, key: int, size: int) -> None:
        self._known.pop(key, None)
        self.live -= size
