"""Collectives over flat buffers, with even and unequal shares, on NCCL and Gloo.

Gather: every rank holds its own range, afterwards every rank holds the whole buffer.
Reduce: every rank holds a whole buffer, afterwards every rank holds the sum of its own range.

    backend   gather                                  reduce
    NCCL      even: all_gather_single                 even: reduce_scatter_single
              unequal: a list of views (grouped       unequal: a list of views (grouped reduces,
              broadcasts, no copy), or padded         no copy), or padded
    Gloo      one broadcast per owner                 all_to_all_single, then a sum in the
                                                      accumulation dtype, in rank order: the same
                                                      bits in every run, and any split

Gloo moves each collective with one thread over one set of connections; several lanes (groups over
the same ranks) side by side move several times as much, so large buffers are spread over them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from . import compat
from .clock import Clock
from .unequal import choose

LANES = 4
"""Gloo groups that share a large collective."""
LANE_BYTES = 1 << 20
"""Smallest piece worth a lane of its own."""


class Handle:
    """A collective under way. ``wait``, once, orders the caller's stream behind it. Without
    ``finish`` it has ended, and there is nothing to wait for."""

    def __init__(self, finish: Callable[[], None] | None = None):
        self._finish = finish

    @property
    def ended(self) -> bool:
        """True if the caller's stream is behind it."""
        return self._finish is None

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
        self._under_way: deque[tuple[str, torch.cuda.Event]] = deque(maxlen=64)
        self._connect()

    def _connect(self) -> None:
        self._lanes = [self.group]
        if self.backend == "gloo":
            ranks = dist.get_process_group_ranks(self.group)
            self._lanes += [dist.new_group(ranks, backend="gloo") for _ in range(LANES - 1)]
        if self.backend == "nccl":
            self._unequal = choose(self.group, self.device)
        self._stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None

    def gather(self, full: torch.Tensor, shard: torch.Tensor, sizes: Sequence[int]) -> Handle:
        """Fill ``full`` (1-D, sum(sizes) elements) from every rank's ``shard`` (1-D, sizes[rank]
        elements, same dtype). ``shard`` may be the rank's own range of ``full``. Asynchronous."""
        self.counts["gather"] += 1
        if self.backend == "nccl":
            return self._on_side_stream(lambda: self._nccl_gather(full, shard, sizes), "gather")
        return self._gloo_gather(full, shard, sizes)

    def reduce(
        self, full: torch.Tensor, sizes: Sequence[int], out_dtype: torch.dtype
    ) -> ReduceHandle:
        """Sum ``full`` (1-D, sum(sizes) elements) over the ranks; ``wait`` of the handle returns
        this rank's range (1-D, sizes[rank] elements) in ``out_dtype``. ``full`` must stay untouched
        until then. Asynchronous."""
        self.counts["reduce"] += 1
        if self.backend == "nccl":
            out = full.new_empty(sizes[self.rank])
            handle = self._on_side_stream(lambda: self._nccl_reduce(out, full, sizes), "reduction")
            return ReduceHandle(lambda: (handle.wait(), full, out.to(out_dtype))[2])
        return self._gloo_reduce(full, sizes, out_dtype)

    def _gloo_gather(self, full, shard, sizes) -> Handle:
        own = full.split(list(sizes))[self.rank]
        if own.data_ptr() != shard.data_ptr():
            own.copy_(shard)
        widest = max(LANE_BYTES // full.element_size(), -(-full.numel() // LANES))
        works = []
        for rank, view in enumerate(full.split(list(sizes))):
            root = rank if self.group is None else dist.get_global_rank(self.group, rank)
            for piece in view.split(widest) if view.numel() else ():
                lane = self._lanes[len(works) % LANES]
                works.append(dist.broadcast(piece, src=root, group=lane, async_op=True))
        return Handle(lambda: [work.wait() for work in works] and None)

    def _gloo_reduce(self, full, sizes, out_dtype) -> ReduceHandle:
        lanes = LANES if full.numel() * full.element_size() >= LANES * LANE_BYTES else 1
        device = full.device
        cuts = [[size * lane // lanes for lane in range(lanes + 1)] for size in sizes]
        ranges = full.split(list(sizes))
        own = cuts[self.rank]
        parts = []
        for lane in range(lanes):
            pieces = [r[c[lane] : c[lane + 1]] for r, c in zip(ranges, cuts)]
            sent = torch.cat(pieces) if lanes > 1 else full
            mine = own[lane + 1] - own[lane]
            received = full.new_empty(mine * self.world_size)
            work = dist.all_to_all_single(
                received,
                sent,
                [mine] * self.world_size,
                [piece.numel() for piece in pieces],
                group=self._lanes[lane],
                async_op=True,
            )
            parts.append((work, sent, received.view(self.world_size, mine)))

        def finish() -> torch.Tensor:
            total = torch.empty(sizes[self.rank], dtype=out_dtype, device=device)
            for (work, _, received), segment in zip(parts, _segments(total, own)):
                work.wait()
                segment.copy_(received[0])
                for piece in received[1:]:
                    segment.add_(piece)
            return total

        return ReduceHandle(finish)

    def _nccl_gather(self, full, shard, sizes) -> None:
        if len(set(sizes)) == 1:
            compat.all_gather_flat(full, shard, group=self.group)
        else:
            self._unequal.gather(full, shard, sizes, self.group)

    def _nccl_reduce(self, out, full, sizes) -> None:
        if len(set(sizes)) == 1:
            compat.reduce_scatter_flat(out, full, group=self.group)
        else:
            self._unequal.reduce(out, full, sizes, self.group)

    def pending(self) -> str:
        """The oldest collective that the device has not ended; empty if it waits for none."""
        while self._under_way:
            name, done = self._under_way[0]
            if not done.query():
                return name
            self._under_way.popleft()
        return ""

    def _on_side_stream(self, issue: Callable[[], None], name: str) -> Handle:
        """Run a collective on our own stream, after what the current stream has queued."""
        stream = self._stream
        assert stream is not None
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            issue()
            done = stream.record_event()
        self._under_way.append((name, done))

        def finish() -> None:
            nonlocal issue
            torch.cuda.current_stream(self.device).wait_event(done)
            issue = None  # until here it keeps the tensors alive that our stream reads and writes

        return Handle(finish)


class CommOfOne(Comm):
    """The same where there is no other rank."""

    def _connect(self) -> None:
        pass

    def gather(self, full: torch.Tensor, shard: torch.Tensor, sizes: Sequence[int]) -> Handle:
        self.counts["gather"] += 1
        if shard.data_ptr() != full.data_ptr():
            full.copy_(shard)
        return Handle()

    def reduce(
        self, full: torch.Tensor, sizes: Sequence[int], out_dtype: torch.dtype
    ) -> ReduceHandle:
        self.counts["reduce"] += 1
        return ReduceHandle(lambda: full.to(out_dtype), ended=True)


def comm_of(group: dist.ProcessGroup | None, device: torch.device) -> Comm:
    """The collectives of ``group``. Collective."""
    return (CommOfOne if dist.get_world_size(group) == 1 else Comm)(group, device)


class HostSum:
    """A sum of a few numbers over the ranks of ``group`` (Gloo) under way on the host, in fp64."""

    def __init__(self, values: Sequence[float], group: dist.ProcessGroup):
        self._values: Sequence[float] | torch.Tensor = values
        self._work: dist.Work | None = None
        """None where there is one rank."""
        if dist.get_world_size(group) > 1:
            self._values = torch.tensor(values, dtype=torch.float64)
            self._work = dist.all_reduce(self._values, group=group, async_op=True)

    def wait(self, clock: Clock, what: str) -> list[float]:
        """The sums; ``what`` they are, for messages."""
        if self._work is None:
            clock.pace()  # as a wait would
            return [float(value) for value in self._values]
        with clock.waiting(what):
            self._work.wait()
        return self._values.tolist()


class ReduceHandle:
    """A reduction under way; it keeps what it sends alive. ``wait`` returns the rank's summed range
    and may be called once. With ``ended`` there is no other rank to wait for."""

    def __init__(self, finish: Callable[[], torch.Tensor], ended: bool = False):
        self._finish = finish
        self.ended = ended

    def wait(self) -> torch.Tensor:
        finish, self._finish = self._finish, _spent
        return finish()


def _spent() -> torch.Tensor:
    raise RuntimeError("a reduction was waited for twice")


def _segments(tensor: torch.Tensor, cuts: Sequence[int]) -> list[torch.Tensor]:
    return [tensor[a:b] for a, b in zip(cuts, cuts[1:])]
