"""Layouts, shapes and builders that the tests of ragged tensors share. Runs on a rank."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import accumulate

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate

from cephalo import checkpoint, ragged
from cephalo.ragged import RaggedDTensor

#: Shares of the ranks by number of ranks: even, steep, with empty ranks, all on one rank.
LAYOUTS = {
    1: [(1,)],
    2: [(1, 1), (5, 2), (0, 4)],
    3: [(5, 2, 0), (0, 4, 0), (1, 3, 3)],
}
SHAPES = [(5, 3), (1,), (1, 17), (3, 5), (7,), (4, 2, 3), ()]


@functools.cache
def mesh() -> DeviceMesh:
    """Install the package's hooks and return the mesh of all ranks."""
    ragged.install()
    checkpoint.install()
    return init_device_mesh("cpu", (dist.get_world_size(),))


def rows_for(total: int, weights: Sequence[int]) -> tuple[int, ...]:
    """Share ``total`` rows out in proportion to ``weights``, by rounded running sums."""
    ends = [0, *(round(total * w / sum(weights)) for w in accumulate(weights))]
    return tuple(b - a for a, b in zip(ends, ends[1:]))


def shard(full: torch.Tensor, weights: Sequence[int]) -> DTensor:
    """Show ``full`` (the same on every rank) as the runtime would: ragged, 0-dim replicated."""
    if full.dim() == 0:
        return DTensor.from_local(full.clone(), mesh(), [Replicate()], run_check=False)
    rows = rows_for(full.shape[0], weights)
    rank = dist.get_rank()
    first = sum(rows[:rank])
    local = full.detach()[first : first + rows[rank]].clone()
    return RaggedDTensor.wrap(local, mesh(), rows, full.shape)


def parameter(full: torch.Tensor, weights: Sequence[int]) -> nn.Parameter:
    """Return ``full`` as a sharded Parameter."""
    return nn.Parameter(shard(full, weights))


def shard_module(module: nn.Module, weights: Sequence[int]) -> nn.Module:
    """Replace every parameter of ``module`` by its sharded form, ties kept."""
    seen: dict[nn.Parameter, nn.Parameter] = {}
    for owner in module.modules():
        for name, param in list(owner._parameters.items()):
            if param is None:
                continue
            if param not in seen:
                seen[param] = parameter(param.detach(), weights)
                seen[param].requires_grad_(param.requires_grad)
            setattr(owner, name, seen[param])
    return module


def full(tensor: torch.Tensor) -> torch.Tensor:
    """Return the whole plain tensor of anything. Collective."""
    return tensor.detach().full_tensor() if isinstance(tensor, DTensor) else tensor.detach()


def randoms(shapes: Sequence[tuple[int, ...]], seed: int) -> list[torch.Tensor]:
    """Return fp64 tensors, the same on every rank."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]
