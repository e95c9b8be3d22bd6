"""Collectives over flat buffers, with even and unequal shares, on NCCL and Gloo.

Gather: every rank holds its own range, afterwards every rank holds the whole buffer.
Reduce: every rank holds a whole buffer, afterwards every rank holds the sum of its own range.

    backend   even shares              unequal shares
    NCCL      all_gather_single        all_gather into a list of views (grouped broadcasts, no copy)
              reduce_scatter_single    reduce_scatter of a list of views (grouped reduces, no copy)
    Gloo      all_gather_single        padded all_gather_single, or one broadcast per owner where
                                       padding would more than double the volume
              all_to_all_single, then a local sum in the accumulation dtype, in rank order: no more
              volume than a reduce-scatter, any split, and the same bits in every run
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from . import compat

PADDING_LIMIT = 2.0
"""Padded gathers may move at most this many times the buffer; beyond it owners broadcast."""


class Handle:
    """A collective under way. ``wait`` orders the caller's stream behind it; it may be called once."""

    def __init__(self, finish: Callable[[], None]):
        self._finish: Callable[[], None] | None = finish

    def wait(self) -> None:
        if self._finish is not None:
            finish, self._finish = self._finish, None
            finish()


class Comm:
    """The collectives of one process group on one device.

    ``counts`` holds how many gathers and reductions were issued, whatever transport they took.
    """

    def __init__(self, group: dist.ProcessGroup | None, device: torch.device):
        self.group = group
        self.device = device
        self.rank = dist.get_rank(group)
        self.world_size = dist.get_world_size(group)
        self.backend = compat.backend_of(group, device)
        self.counts: Counter[str] = Counter()
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def gather(self, full: torch.Tensor, shard: torch.Tensor, sizes: Sequence[int]) -> Handle:
        """Fill ``full`` (1-D, sum(sizes) elements) from every rank's ``shard`` (1-D, sizes[rank]
        elements, same dtype). ``shard`` may be the rank's own range of ``full``. Asynchronous."""
        self.counts["gather"] += 1
        if self.world_size == 1:
            if shard.data_ptr() != full.data_ptr():
                full.copy_(shard)
            return Handle(lambda: None)
        if self.backend == "nccl":
            return self._on_side_stream(lambda: self._nccl_gather(full, shard, sizes))
        if len(set(sizes)) == 1:
            work = compat.all_gather_flat(full, shard, group=self.group, async_op=True)
            return Handle(lambda: (work.wait(), shard) and None)
        if max(sizes) * self.world_size <= PADDING_LIMIT * full.numel():
            return self._padded_gather(full, shard, sizes)
        return self._broadcast_gather(full, shard, sizes)

    def reduce(self, full: torch.Tensor, sizes: Sequence[int], out_dtype: torch.dtype) -> ReduceHandle:
        """Sum ``full`` (1-D, sum(sizes) elements) over the ranks; ``wait`` of the handle returns this
        rank's range (1-D, sizes[rank] elements) in ``out_dtype``. ``full`` must stay untouched
        until then. Asynchronous."""
        self.counts["reduce"] += 1
        if self.world_size == 1:
            return ReduceHandle(lambda: full.to(out_dtype), full)
        if self.backend == "nccl":
            out = full.new_empty(sizes[self.rank])
            handle = self._on_side_stream(lambda: self._nccl_reduce(out, full, sizes))
            return ReduceHandle(lambda: (handle.wait(), out.to(out_dtype))[1], full)
        mine = sizes[self.rank]
        received = full.new_empty(mine * self.world_size)
        work = dist.all_to_all_single(
            received, full, [mine] * self.world_size, list(sizes), group=self.group, async_op=True
        )

        def finish() -> torch.Tensor:
            work.wait()
            pieces = received.view(self.world_size, mine)
            total = pieces[0].to(out_dtype, copy=True)
            for piece in pieces[1:]:
                total.add_(piece)
            return total

        return ReduceHandle(finish, full)

    def _padded_gather(self, full, shard, sizes) -> Handle:
        widest = max(sizes)
        padded = full.new_empty(widest)
        padded[: shard.numel()].copy_(shard)
        everyone = full.new_empty(widest * self.world_size)
        work = compat.all_gather_flat(everyone, padded, group=self.group, async_op=True)

        def finish() -> None:
            work.wait()
            offset = 0
            for rank, size in enumerate(sizes):
                full[offset : offset + size].copy_(everyone[rank * widest : rank * widest + size])
                offset += size

        return Handle(finish)

    def _broadcast_gather(self, full, shard, sizes) -> Handle:
        works, offset = [], 0
        for rank, size in enumerate(sizes):
            view = full[offset : offset + size]
            offset += size
            if size == 0:
                continue
            if rank == self.rank and view.data_ptr() != shard.data_ptr():
                view.copy_(shard)
            src = dist.get_global_rank(self.group, rank) if self.group is not None else rank
            works.append(dist.broadcast(view, src=src, group=self.group, async_op=True))

        def finish() -> None:
            for work in works:
                work.wait()

        return Handle(finish)

    def _nccl_gather(self, full, shard, sizes) -> None:
        if len(set(sizes)) == 1:
            compat.all_gather_flat(full, shard, group=self.group)
        else:
            dist.all_gather(list(full.split(list(sizes))), shard, group=self.group)

    def _nccl_reduce(self, out, full, sizes) -> None:
        if len(set(sizes)) == 1:
            compat.reduce_scatter_flat(out, full, group=self.group)
        else:
            dist.reduce_scatter(out, list(full.split(list(sizes))), group=self.group)

    def _on_side_stream(self, issue: Callable[[], None]) -> Handle:
        """Run a collective on our own stream, after what the current stream has queued."""
        stream = self._stream
        assert stream is not None
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            issue()
            done = stream.record_event()
        return Handle(lambda: torch.cuda.current_stream(self.device).wait_event(done))


class ReduceHandle:
    """A reduction under way; it keeps its input alive. ``wait`` returns the rank's summed range."""

    def __init__(self, finish: Callable[[], torch.Tensor], source: torch.Tensor):
        self._finish = finish
        self._source: torch.Tensor | None = source

    def wait(self) -> torch.Tensor:
        try:
            return self._finish()
        finally:
            self._source = None
            self._finish = _spent


def _spent() -> torch.Tensor:
    raise RuntimeError("a reduction was waited for twice")
