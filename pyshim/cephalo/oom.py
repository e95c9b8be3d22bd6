"""Running out of device memory, as an answer and not as a failure."""

from __future__ import annotations

import ctypes
import gc
import re

import torch

_SIGNS = ("can't allocate memory", "not enough memory", "out of memory", "std::bad_alloc")
"""What messages of failed allocations contain: PyTorch's CPU allocator, CUDA and its libraries, and
a bare C++ failure."""


def out_of_memory(err: BaseException) -> bool:
    """True if ``err`` says that the device has no memory left."""
    if isinstance(err, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(err, RuntimeError) and any(sign in str(err) for sign in _SIGNS)


_TRIED = re.compile(r"tried to allocate ([\d.]+) *(bytes|[KMGT]iB)", re.IGNORECASE)
_UNITS = {"bytes": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}


def tried_bytes(err: BaseException) -> int:
    """What the failed allocation asked for, as its message says; 0 if it does not."""
    found = _TRIED.search(str(err))
    return int(float(found[1]) * _UNITS[found[2].lower()]) if found else 0


def release(device: torch.device) -> None:
    """Give memory that nothing uses back to the device."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
