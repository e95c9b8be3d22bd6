"""Running out of device memory, as an answer and not as a failure."""

from __future__ import annotations

import ctypes
import gc

import torch

_SIGNS = ("can't allocate memory", "not enough memory", "out of memory", "std::bad_alloc")
"""What messages of failed allocations contain: PyTorch's CPU allocator, CUDA and its libraries, and
a bare C++ failure."""


def out_of_memory(err: BaseException) -> bool:
    """True if ``err`` says that the device has no memory left."""
    if isinstance(err, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(err, RuntimeError) and any(sign in str(err) for sign in _SIGNS)


def release(device: torch.device) -> None:
    """Give memory that nothing uses back to the device."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
