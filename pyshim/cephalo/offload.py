"""Activations in host memory: copied out beside the forward, and back two microbatches ahead.

All copies run in order on one stream of their own, so that a host buffer may be filled again as
soon as its copy back is issued. Memory on the device is of the compute stream alone: what is copied
out is dropped once that stream has waited for the copy, two microbatches later, so compute cannot
run further ahead of a slow link than that, and memory does not grow with how slow it is. On a CPU
device the same bookkeeping copies within the host's memory.
"""

from __future__ import annotations

import warnings
import weakref
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

AHEAD = 2
"""Microbatches whose copy is under way while another is computed, out or back."""
SLAB_BYTES = 64 << 20
PIECES_OF_SLAB = 8


class HostMemory:
    """Buffers of exact sizes, cut from pinned slabs and used again.

    The driver rounds a pinned block up to a power of two, which slabs are already; cutting many
    pieces from each keeps what is left over small. Past ``pinned_limit_bytes``, or where pinning
    fails, slabs are ordinary memory, with one warning: copies are then no longer hidden.
    """

    def __init__(self, pin: bool, pinned_limit_bytes: int | None = None):
        self._pin = pin
        self._limit = pinned_limit_bytes
        self._free: dict[int, list[torch.Tensor]] = defaultdict(list)
        self._slab = torch.empty(0, dtype=torch.uint8)
        self.slab_bytes = 0
        """All slabs together."""

    def take(self, size: int) -> torch.Tensor:
        """A buffer of ``size`` bytes (1-D, uint8)."""
        if self._free[size]:
            return self._free[size].pop()
        if self._slab.numel() < size:
            self._slab = self._new_slab(size)
        buffer, self._slab = self._slab[:size], self._slab[size:]
        return buffer

    def give(self, buffer: torch.Tensor) -> None:
        """Take a buffer back."""
        self._free[buffer.numel()].append(buffer)

    def _new_slab(self, size: int) -> torch.Tensor:
        wanted = 1 << (max(SLAB_BYTES, PIECES_OF_SLAB * size) - 1).bit_length()
        self.slab_bytes += wanted
        if self._pin and self._limit is not None and self.slab_bytes > self._limit:
            self._unpin(f"past the limit of {self._limit} bytes")
        if self._pin:
            try:
                return torch.empty(wanted, dtype=torch.uint8, pin_memory=True)
            except RuntimeError as err:
                self._unpin(str(err).splitlines()[0])
        return torch.empty(wanted, dtype=torch.uint8)

    def _unpin(self, why: str) -> None:
        self._pin = False
        warnings.warn(
            f"activations go to ordinary host memory, which is slower than pinned: {why}",
            stacklevel=2,
        )


class Stored:
    """The activations of one microbatch of one unit. Dropped before they came back, as a graph that
    gets no backward drops them, their buffers are free again."""

    def __init__(self, tensors: Sequence[torch.Tensor], memory: HostMemory):
        self.kinds = [(t.shape, t.dtype) for t in tensors]
        self.host = [memory.take(t.numel() * t.element_size()) for t in tensors]
        self.back: list[torch.Tensor] = []
        """On the device again, once their copy was issued."""
        self.arrived: torch.cuda.Event | None = None
        self.number = 0
        self._memory = memory

    def release(self) -> None:
        """Give the buffers back."""
        while self.host:
            self._memory.give(self.host.pop())

    def __del__(self) -> None:
        if self.back and self.arrived is not None:  # being copied back, and nobody will wait
            torch.cuda.current_stream(self.back[0].device).wait_event(self.arrived)
        self.release()


class Offloader:
    """Moves activations to the host in the order of the forward, and back in reverse."""

    def __init__(self, device: torch.device, pinned_limit_bytes: int | None = None):
        cuda = device.type == "cuda"
        self._device = device
        self._stream = torch.cuda.Stream(device) if cuda else None
        self.memory = HostMemory(cuda, pinned_limit_bytes)
        self._count = 0
        self._stored: weakref.WeakValueDictionary[int, Stored] = weakref.WeakValueDictionary()
        """What is on the host, numbered in the order of the forward."""
        self._leaving: deque[tuple[list[torch.Tensor], torch.cuda.Event]] = deque()
        """What is being copied out."""

    def put(self, tensors: Sequence[torch.Tensor]) -> Stored:
        """Start to copy ``tensors``. Their memory is held until the compute stream has waited for
        the copy; see ``settle``."""
        stored = Stored(tensors, self.memory)
        flats = [t.detach().contiguous().view(-1).view(torch.uint8) for t in tensors]
        with self._behind_compute():
            for flat, buffer in zip(flats, stored.host):
                buffer.copy_(flat, non_blocking=buffer.is_pinned())
        if self._stream is not None:
            self._leaving.append((flats, self._stream.record_event()))
            self.settle(AHEAD)
        stored.number = self._count = self._count + 1
        self._stored[stored.number] = stored
        return stored

    def settle(self, most: int = 0) -> None:
        """Let compute wait for the oldest copies out, until ``most`` are under way, and drop what
        they read."""
        while len(self._leaving) > most:
            _, done = self._leaving.popleft()
            torch.cuda.current_stream(self._device).wait_event(done)

    def get(self, stored: Stored) -> list[torch.Tensor]:
        """The tensors on the device again, in new memory. Starts the copies of those before them,
        which a backward wants next. Once for each."""
        self.settle()
        for number in range(stored.number, stored.number - AHEAD - 1, -1):
            other = self._stored.get(number)
            if other is not None and other.host:
                self._start(other)
        del self._stored[stored.number]
        tensors, stored.back = stored.back, []
        if stored.arrived is not None:
            torch.cuda.current_stream(self._device).wait_event(stored.arrived)
        return tensors

    def _start(self, stored: Stored) -> None:
        stored.back = [torch.empty(s, dtype=d, device=self._device) for s, d in stored.kinds]
        with self._behind_compute():
            for buffer, tensor in zip(stored.host, stored.back):
                tensor.view(-1).view(torch.uint8).copy_(buffer, non_blocking=True)
        if self._stream is not None:
            stored.arrived = self._stream.record_event()
        stored.release()

    @contextmanager
    def _behind_compute(self) -> Iterator[None]:
        """The copies' stream, behind all that compute has queued: it reads what was computed, and
        writes where that may still be read."""
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):  # None: no stream to change to
            yield
