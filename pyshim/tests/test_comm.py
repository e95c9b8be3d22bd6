"""Gathers and reductions of every kind against a plain sum, on Gloo."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
import torch.distributed as dist

from cephalo import comm as comm_module
from cephalo import unequal
from cephalo.comm import comm_of

SIZES = {
    1: [(5,), (0,)],
    2: [(4, 4), (5, 2), (0, 7), (7, 0), (0, 0)],
    3: [(4, 4, 4), (5, 2, 1), (0, 6, 0), (9, 0, 1), (0, 0, 0), (1, 1, 10)],
}
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def everyone(sizes, dtype, seed=0):
    """A whole buffer of every rank, the same on all ranks; small whole numbers, exact in any dtype."""
    generator = torch.Generator().manual_seed(seed)
    world = dist.get_world_size()
    return [
        torch.randint(-8, 8, (sum(sizes),), generator=generator).to(dtype) for _ in range(world)
    ]


def _all_sizes(world):
    comm, rank = comm_of(None, torch.device("cpu")), dist.get_rank()
    for sizes in SIZES[world]:
        for dtype in DTYPES:
            wholes = everyone(sizes, dtype)
            start = sum(sizes[:rank])
            shard = wholes[0][start : start + sizes[rank]].clone()
            full = torch.full((sum(sizes),), 77.0).to(dtype)
            comm.gather(full, shard, sizes).wait()
            assert torch.equal(full, wholes[0]), (sizes, dtype)
            in_place = torch.full((sum(sizes),), 77.0).to(dtype)
            own = in_place[start : start + sizes[rank]]
            own.copy_(shard)
            comm.gather(in_place, own, sizes).wait()
            assert torch.equal(in_place, wholes[0])
            out_dtype = torch.float64 if dtype == torch.float64 else torch.float32
            reduced = comm.reduce(wholes[rank].clone(), sizes, out_dtype).wait()
            wanted = sum(w.to(out_dtype) for w in wholes)[start : start + sizes[rank]]
            assert reduced.dtype == out_dtype and torch.equal(reduced, wanted), (sizes, dtype)
    return dict(comm.counts)


@pytest.mark.parametrize("world", [1, 2, 3])
def test_every_split_and_dtype(ranks, world):
    calls = len(SIZES[world]) * len(DTYPES)
    assert ranks(world, _all_sizes, world) == [{"gather": 2 * calls, "reduce": calls}] * world


def _lanes(world, sizes):
    comm_module.LANE_BYTES = 64  # small buffers take the way of large ones
    comm, rank = comm_of(None, torch.device("cpu")), dist.get_rank()
    start, several = sum(sizes[:rank]), []
    for turn in range(4):
        wholes = everyone(sizes, torch.float32, seed=turn)
        full = torch.empty(sum(sizes))
        shard = wholes[0][start : start + sizes[rank]].clone()
        several.append((wholes, full, comm.gather(full, shard, sizes),
                        comm.reduce(wholes[rank].clone(), sizes, torch.float32)))  # fmt: skip
    for wholes, full, gather, reduce in several:
        reduced = reduce.wait()
        gather.wait()
        assert torch.equal(full, wholes[0])
        assert torch.equal(reduced, sum(wholes)[start : start + sizes[rank]])
    return comm.counts["gather"], comm.counts["reduce"]


@pytest.mark.parametrize("sizes", [(1001, 500), (333, 333, 333), (0, 1999, 3), (700, 0, 0)])
def test_large_buffers_over_several_lanes_at_once(ranks, sizes):
    assert ranks(len(sizes), _lanes, len(sizes), sizes) == [(4, 4)] * len(sizes)


def _sum_in_wide_dtype(world):
    comm = comm_of(None, torch.device("cpu"))
    value = torch.full((6,), 256.0 if dist.get_rank() == 0 else 1.0, dtype=torch.bfloat16)
    reduced = comm.reduce(value, (2, 2, 2), torch.float32).wait()
    assert reduced.tolist() == [258.0, 258.0], "a sum in bf16 would be 256"


def test_bf16_on_the_wire_is_summed_in_fp32(ranks):
    ranks(3, _sum_in_wide_dtype, 3)


def _references(world):
    comm = comm_of(None, torch.device("cpu"))
    sent = torch.ones(7)
    alive = weakref.ref(sent)
    reduction = comm.reduce(sent, (5, 2), torch.float32)
    del sent
    gc.collect()
    assert reduction.wait().eq(2).all()
    del reduction
    gc.collect()
    assert alive() is None, "what was sent must not outlive its reduction"
    reduction = comm.reduce(torch.ones(7), (5, 2), torch.float32)
    reduction.wait()
    with pytest.raises(RuntimeError, match="twice"):
        reduction.wait()
    gather = comm.gather(torch.ones(7), torch.ones((5, 2)[dist.get_rank()]), (5, 2))
    gather.wait()
    gather.wait()


def test_handles(ranks):
    ranks(2, _references, 2)


def _group_of_some(world):
    group = dist.new_group([1, 2])
    if dist.get_rank() == 0:
        for _ in range(3):
            dist.new_group([1, 2])
        return None
    comm = comm_of(group, torch.device("cpu"))
    full = torch.zeros(5)
    own = torch.arange(5.0)[:2] if comm.rank == 0 else torch.arange(5.0)[2:]
    comm.gather(full, own, (2, 3)).wait()
    return full.tolist(), comm.reduce(torch.ones(5), (2, 3), torch.float32).wait().tolist()


def test_a_group_of_some_ranks(ranks):
    whole = [0.0, 1.0, 2.0, 3.0, 4.0]
    assert ranks(3, _group_of_some, 3) == [None, (whole, [2.0] * 2), (whole, [2.0] * 3)]


def _unequal(transport, world):
    rank = dist.get_rank()
    for sizes in SIZES[world]:
        wholes = everyone(sizes, torch.float32)
        start = sum(sizes[:rank])
        own = wholes[0][start : start + sizes[rank]]
        full, out = torch.full((sum(sizes),), 77.0), torch.full((sizes[rank],), 77.0)
        transport.gather(full, own.clone(), sizes, None)
        assert torch.equal(full, wholes[0]), sizes
        transport.reduce(out, wholes[rank].clone(), sizes, None)
        assert torch.equal(out, sum(wholes)[start : start + sizes[rank]]), sizes


@pytest.mark.parametrize("world", [1, 2, 3])
def test_padding_moves_what_unequal_lists_would(ranks, world):
    ranks(world, _unequal, unequal.Padded(), world)


def _choice(refuse):
    def not_the_same_size(*_, **__):
        raise ValueError("must have same size")

    before = dist.all_gather, dist.reduce_scatter
    if refuse:
        dist.all_gather = not_the_same_size
    else:  # Gloo has no unequal all_gather: what NCCL's grouped broadcasts do
        dist.all_gather = _broadcasts
        dist.reduce_scatter = _reduces
    try:
        return type(unequal.choose(None, torch.device("cpu"))).__name__
    finally:
        dist.all_gather, dist.reduce_scatter = before


def _broadcasts(pieces, own, group):
    pieces[dist.get_rank()].copy_(own)
    for rank, piece in enumerate(pieces):
        dist.broadcast(piece, rank, group=group)


def _reduces(out, pieces, group):
    for rank, piece in enumerate(pieces):
        total = piece.clone()
        dist.all_reduce(total, group=group)
        if rank == dist.get_rank():
            out.copy_(total)


@pytest.mark.parametrize("refuse", [False, True])
def test_unequal_lists_are_probed(ranks, refuse):
    assert ranks(3, _choice, refuse) == ["Padded" if refuse else "Lists"] * 3
