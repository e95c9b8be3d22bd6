"""NCCL's collectives with unequal shares, by whichever form the installed version takes.

Lists of views of unequal sizes become grouped broadcasts and reduces without a copy; one version of
NCCL's newer backend refuses such lists. Padding to the largest share works everywhere, at the cost
of a copy and of bytes that nobody needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
import torch.distributed as dist

from . import compat

Group = dist.ProcessGroup | None


class Unequal(Protocol):
    """Buffers are 1-D: ``full`` of sum(sizes) elements, ``shard`` and ``out`` of sizes[rank]."""

    def gather(
        self, full: torch.Tensor, shard: torch.Tensor, sizes: Sequence[int], group: Group
    ) -> None:
        """Fill ``full`` from every rank's ``shard``."""

    def reduce(
        self, out: torch.Tensor, full: torch.Tensor, sizes: Sequence[int], group: Group
    ) -> None:
        """Fill ``out`` with the sum over ranks of this rank's range of ``full``."""


class Lists:
    """Lists of views."""

    def gather(self, full, shard, sizes, group) -> None:
        dist.all_gather(list(full.split(list(sizes))), shard, group=group)

    def reduce(self, out, full, sizes, group) -> None:
        dist.reduce_scatter(out, list(full.split(list(sizes))), group=group)


class Padded:
    """Equal pieces as long as the longest share."""

    def gather(self, full, shard, sizes, group) -> None:
        sent = shard.new_zeros(max(sizes))
        sent[: shard.numel()].copy_(shard)
        received = shard.new_empty((len(sizes), max(sizes)))
        compat.all_gather_flat(received.view(-1), sent, group=group)
        for piece, mine, size in zip(full.split(list(sizes)), received, sizes):
            piece.copy_(mine[:size])

    def reduce(self, out, full, sizes, group) -> None:
        sent = full.new_zeros((len(sizes), max(sizes)))
        for mine, piece in zip(sent, full.split(list(sizes))):
            mine[: piece.numel()].copy_(piece)
        received = full.new_empty(max(sizes))
        compat.reduce_scatter_flat(received, sent.view(-1), group=group)
        out.copy_(received[: out.numel()])


def choose(group: Group, device: torch.device) -> Unequal:
    """Try lists once, with one element more on the last rank. A version that refuses them does so
    before it sends anything, and so on every rank alike. Collective."""
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    sizes = [1] * (world - 1) + [2]
    start = sum(sizes[:rank])
    wanted = torch.arange(sum(sizes), dtype=torch.float32, device=device)
    own = wanted[start : start + sizes[rank]]
    full, out = torch.empty_like(wanted), torch.empty_like(own)
    lists = Lists()
    try:
        lists.gather(full, own.clone(), sizes, group)
        lists.reduce(out, wanted, sizes, group)
    except (RuntimeError, ValueError):
        return Padded()
    if torch.equal(full, wanted) and torch.equal(out, own * world):
        return lists
    return Padded()
