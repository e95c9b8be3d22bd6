"""Who owns which rows of one tensor, and the moves of rows between layouts."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from functools import cached_property

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from . import compat


class RowLayout:
    """The rows (indices of dimension 0) that each rank of a one-dimensional mesh owns.

    Rank ``i`` owns ``rows[i]`` consecutive rows, ranks in order; a piece may be empty. Immutable.
    ``of`` gives one object for the same rows, so that a parameter, its gradient and its optimizer
    state share it; ``dims``, the tensor's number of dimensions, is part of it for that reason:
    tensors with one layout object line up.
    """

    def __init__(self, mesh: DeviceMesh, rows: Sequence[int], dims: int) -> None:
        self.mesh = mesh
        self.rows = tuple(int(n) for n in rows)
        self.dims = dims
        if mesh.ndim != 1:
            raise ValueError(f"a ragged tensor needs a mesh of 1 dimension, got {mesh.ndim}")
        if len(self.rows) != mesh.size():
            raise ValueError(f"rows {self.rows} name {len(self.rows)} ranks of {mesh.size()}")
        if min(self.rows) < 0:
            raise ValueError(f"rows {self.rows} hold a negative number")

    @staticmethod
    def of(mesh: DeviceMesh, rows: Sequence[int], dims: int) -> RowLayout:
        """Return the layout of tensors with ``dims`` dimensions; the same object every time."""
        return _layout(id(mesh), compat.ById(mesh), tuple(rows), dims)

    def __deepcopy__(self, memo: dict) -> RowLayout:
        return self

    @cached_property
    def rank(self) -> int:
        """This process's place in the mesh."""
        return self.mesh.get_local_rank()

    @cached_property
    def offset(self) -> int:
        """First row of this rank."""
        return sum(self.rows[: self.rank])

    @property
    def own(self) -> int:
        """Number of rows of this rank."""
        return self.rows[self.rank]

    @property
    def world(self) -> int:
        """Number of ranks."""
        return len(self.rows)

    @cached_property
    def group(self) -> dist.ProcessGroup:
        """The mesh's process group."""
        return self.mesh.get_group()

    def same(self, other: RowLayout) -> bool:
        """Tell whether both put every row on the same rank, whatever their dimensions."""
        return self is other or (self.rows == other.rows and self.mesh == other.mesh)

    def with_rows(self, rows: Sequence[int]) -> RowLayout:
        """Return a layout of other rows on the same mesh."""
        return RowLayout.of(self.mesh, rows, self.dims)

    def with_dims(self, dims: int) -> RowLayout:
        """Return the layout of the same rows for tensors with ``dims`` dimensions."""
        return self if dims == self.dims else RowLayout.of(self.mesh, self.rows, dims)

    def window(self, start: int, stop: int) -> RowLayout:
        """Return the layout of rows ``start`` to ``stop``, left where they are."""
        rows, first = [], 0
        for n in self.rows:
            rows.append(max(0, min(stop, first + n) - max(start, first)))
            first += n
        return self.with_rows(rows)

    def narrow(self, full: torch.Tensor) -> torch.Tensor:
        """Return this rank's rows of a full tensor, as a view."""
        return full.narrow(0, self.offset, self.own)


@functools.lru_cache(maxsize=8192)
def _layout(mesh_id: int, mesh: compat.ById, rows: tuple[int, ...], dims: int) -> RowLayout:
    del mesh_id
    return RowLayout(mesh.mesh, rows, dims)


def even_rows(total: int, world: int) -> tuple[int, ...]:
    """Return the rows per rank of stock ``Shard(0)``: what ``torch.chunk`` gives."""
    size = -(-total // world)
    return tuple(max(0, min(size, total - rank * size)) for rank in range(world))


def _to_comm(tensor: torch.Tensor, layout: RowLayout) -> torch.Tensor:
    """Bring a tensor to the mesh's kind of device (CPU copies of a GPU mesh's state)."""
    kind = layout.mesh.device_type
    return tensor if tensor.device.type == kind else tensor.to(kind)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """View a contiguous tensor as flat bytes: every backend moves them, whatever the dtype."""
    return tensor.reshape(-1).view(torch.uint8)


def gather_values(values: torch.Tensor, layout: RowLayout) -> torch.Tensor:
    """Collect one small tensor per rank: shape (n, …) in, (ranks, n, …) out, one collective."""
    if layout.world == 1:
        return values.unsqueeze(0)
    sent = _to_comm(values.contiguous(), layout)
    out = sent.new_empty((layout.world, *sent.shape))
    if sent.numel():
        compat.all_gather_flat(_bytes(out), _bytes(sent), group=layout.group)
    return out.to(values.device)


def gather_rows(local: torch.Tensor, layout: RowLayout) -> torch.Tensor:
    """Return the full tensor on every rank, in new memory: (own rows, …) in, (rows, …) out."""
    if layout.world == 1:
        return local.clone(memory_format=torch.contiguous_format)
    sent = _to_comm(local.contiguous(), layout)
    full = sent.new_empty((sum(layout.rows), *sent.shape[1:]))
    if full.numel() == 0:
        return full.to(local.device)
    if len(set(layout.rows)) == 1:
        compat.all_gather_flat(_bytes(full), _bytes(sent), group=layout.group)
        return full.to(local.device)
    layout.narrow(full).copy_(sent)
    pending, first = [], 0
    for rank, n in enumerate(layout.rows):
        if n:
            piece = _bytes(full.narrow(0, first, n))
            source = dist.get_global_rank(layout.group, rank)
            pending.append(dist.broadcast(piece, source, group=layout.group, async_op=True))
        first += n
    for work in pending:
        work.wait()
    return full.to(local.device)


def move_rows(local: torch.Tensor, old: RowLayout, new: RowLayout) -> torch.Tensor:
    """Send rows to their owners under another layout of the same mesh: one all-to-all.

    ``local`` has this rank's rows under ``old``; the result, new memory, those under ``new``.
    """
    if old.rows == new.rows:
        return local.clone(memory_format=torch.contiguous_format)
    sent = _to_comm(local.contiguous(), old)
    width = sent.element_size()
    for extent in sent.shape[1:]:
        width *= extent
    rank = old.rank
    give = _overlaps(old.rows, new.rows, rank)
    take = _overlaps(new.rows, old.rows, rank)
    out = sent.new_empty((new.rows[rank], *sent.shape[1:]))
    if width:
        dist.all_to_all_single(
            _bytes(out),
            _bytes(sent),
            [n * width for n in take],
            [n * width for n in give],
            group=old.group,
        )
    return out.to(local.device)


def _overlaps(mine: Sequence[int], theirs: Sequence[int], rank: int) -> list[int]:
    """Return how many rows of ``rank`` under ``mine`` each rank owns under ``theirs``."""
    start = sum(mine[:rank])
    stop = start + mine[rank]
    counts, first = [], 0
    for n in theirs:
        counts.append(max(0, min(stop, first + n) - max(start, first)))
        first += n
    return counts


def sum_over_ranks(tensor: torch.Tensor, layout: RowLayout) -> torch.Tensor:
    """Return the sum of the ranks' tensors (same shape everywhere), in new memory."""
    total = _to_comm(tensor, layout).clone(memory_format=torch.contiguous_format)
    if layout.world > 1:
        dist.all_reduce(total, group=layout.group)
    return total.to(tensor.device)
