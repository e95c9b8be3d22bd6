"""Why a disk takes no more: the kinds of it, and what is said of each."""

from __future__ import annotations

import errno
from typing import Any, NamedTuple

from torch.distributed.checkpoint.api import CheckpointException


class Fault(NamedTuple):
    """Why a checkpoint could not be saved. The supervisor knows the kinds by these names."""

    kind: str
    said: str


FULL = Fault("disk-full", "no space left on the device")
_FAULTS = (
    (
        Fault("read-only", "the file system is read-only"),
        (errno.EROFS,),
        ("Read-only file system",),
    ),
    (
        Fault("quota", "the disk quota is used up"),
        (errno.EDQUOT,),
        ("Disk quota exceeded",),
    ),
    (
        Fault("file-size", "a file would be larger than the limit on file sizes"),
        (errno.EFBIG,),
        ("File too large",),
    ),
    (
        FULL,
        (errno.ENOSPC,),
        # The latter two are of torch.save, which hides the error of a short write behind them.
        ("No space left on device", "file write failed", "unexpected pos"),
    ),
)


def fault_of(err: CheckpointException) -> Fault | None:
    """The disk's fault if every rank that failed did so because the disk, or a limit, takes no
    more; that of the one with the plainest words. None for any other failure."""
    found = [_fault(pair[0]) for pair in err.failures.values()]
    if not found or None in found:
        return None
    return min(found, key=[fault for fault, _, _ in _FAULTS].index)


def _fault(cause: Any) -> Fault | None:
    for fault, numbers, words in _FAULTS:
        if getattr(cause, "errno", None) in numbers or any(text in str(cause) for text in words):
            return fault
    return None


def fault_numbered(number: int) -> Fault | None:
    """The disk's fault behind an ``errno``; None if it is another's."""
    return next((fault for fault, numbers, _ in _FAULTS if number in numbers), None)


def failure_of(err: BaseException) -> Fault:
    """What is said of any failure to save: the disk's fault, or the error itself in one line."""
    causes: list[BaseException] = [err]
    if isinstance(err, CheckpointException):
        fault = fault_of(err)
        if fault is not None:
            return fault
        causes = [pair[0] for pair in err.failures.values()]
    else:
        fault = _fault(err)
        if fault is not None and isinstance(err, OSError):
            return fault
    said = "; ".join(sorted({f"{type(cause).__name__}: {cause}" for cause in causes}))
    return Fault("script", " ".join(said.split()))


def no_room(needed: int, free: int) -> Fault | None:
    """The fault of a disk that has too little room, if it has; sizes in bytes."""
    if needed <= free:
        return None
    sizes = (_size(needed), _size(free))
    if sizes[0] == sizes[1]:
        sizes = (f"{needed} bytes", f"{free} bytes")
    return Fault("disk-full", f"it needs {sizes[0]} and {sizes[1]} are free")


def _size(count: int) -> str:
    value = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{count} bytes" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
