"""Reductions and gradients of ragged tensors are those of the whole tensor, or refused."""

from __future__ import annotations

import math

import pytest
import torch
from torch.distributed.tensor import DTensor, Partial, Replicate

from cephalo import compat
from cephalo.ragged import RaggedDTensor, RaggedError
from ragged_cases import LAYOUTS, full, mesh, parameter, randoms, shard

SHAPES = [(5, 3), (1,), (1, 17), (3, 5), (4, 2, 3)]

WHOLE = {
    "sum": lambda t: t.sum(),
    "sum dtype": lambda t: t.sum(dtype=torch.float32),
    "mean": lambda t: t.mean(),
    "prod": lambda t: t.prod(),
    "min": lambda t: t.min(),
    "max": lambda t: t.max(),
    "amax": lambda t: t.amax(),
    "abs max": lambda t: t.abs().max(),
    "norm": lambda t: t.norm(),
    "norm 1": lambda t: t.norm(1),
    "norm inf": lambda t: t.norm(math.inf),
    "norm -inf": lambda t: torch.linalg.vector_norm(t, -math.inf),
    "norm 0": lambda t: torch.linalg.vector_norm(t.round(), 0),
    "norm 3": lambda t: torch.linalg.vector_norm(t, 3, dtype=torch.float64),
    "linalg": lambda t: torch.linalg.vector_norm(t),
    "any": lambda t: (t > 1).any(),
    "all": lambda t: (t > 1).all(),
    "finite": lambda t: t.isfinite().all(),
    "nan": lambda t: t.isnan().any(),
    "count": lambda t: (t > 0).sum(),
    "count_nonzero": lambda t: torch.count_nonzero(t > 0),
    "int": lambda t: (t * 10).int().max(),
    "nansum": lambda t: t.nansum(),
    "std": lambda t: t.std(correction=0),
    "var": lambda t: t.var(correction=0),
    "bf16": lambda t: t.bfloat16().float().sum(),
    "keepdim": lambda t: t.sum(0, keepdim=True),
}
BY_DIM = {
    "sum": lambda t, d: t.sum(d),
    "mean": lambda t, d: t.mean(d, keepdim=True),
    "amax": lambda t, d: t.amax(d),
    "norm": lambda t, d: t.norm(dim=d),
    "inf": lambda t, d: torch.linalg.vector_norm(t, math.inf, d, keepdim=True),
    "all": lambda t, d: (t > -1).all(d),
    "prod": lambda t, d: t.prod(d),
}


def _close(got, want, where):
    assert isinstance(got, DTensor) and got.dtype == want.dtype and got.shape == want.shape, where
    low = want.dtype.is_floating_point and want.dtype != torch.float64
    limits = {"rtol": 1e-6, "atol": 1e-6} if low else {"rtol": 1e-13, "atol": 1e-14}
    torch.testing.assert_close(full(got), want, msg=lambda m: f"{where}: {m}", **limits)
    if want.numel() == 1:
        assert got.item() == pytest.approx(want.item(), rel=limits["rtol"], abs=limits["atol"])


def _reductions(world):
    for weights in LAYOUTS[world]:
        for shape, value in zip(SHAPES, randoms(SHAPES, 1)):
            p = shard(value, weights)
            for name, reduce in WHOLE.items():
                got = reduce(p)
                _close(got, reduce(value), (name, shape, weights))
                assert got.placements == (Replicate(),)
            for name, reduce in BY_DIM.items():
                for dim in (*range(len(shape)), -1):
                    _close(reduce(p, dim), reduce(value, dim), (name, dim, shape, weights))
            assert torch.equal(p, shard(value, weights)) and not torch.equal(p, p + 1)
            assert torch.allclose(p, p + 1e-12)
        with pytest.raises(RaggedError, match="max"):
            p.max(dim=0)


def _nan_and_items(world):
    rank, owner = mesh().get_local_rank(), world - 1
    weights = [0] * owner + [1]
    p = shard(torch.zeros(3, 2), weights)
    if rank == owner:
        p.to_local()[1, 1] = math.nan
    assert math.isnan(p.max().item()) and math.isnan(p.norm(math.inf).item())
    assert p.isnan().any().item() and math.isnan(p.sum().item())
    one = shard(torch.tensor([4.5]), weights)
    assert one.item() == 4.5 and float(one) == 4.5 and bool(one)
    with pytest.raises(RuntimeError, match="6 elements"):
        p.item()


LOSSES = {
    "pow sum": lambda p: p.pow(2).sum(),
    "sum": lambda p: p.sum(),
    "mean": lambda p: (3 * p).mean(),
    "norm": lambda p: p.norm(),
    "abs": lambda p: p.abs().sum(),
    "amax": lambda p: p.amax(),
    "by rows": lambda p: p.square().sum(-1).sqrt().sum(),
    "by columns": lambda p: (p.sum(0) ** 2).sum(),
    "chain": lambda p: (p.exp() / p.exp().sum()).log().mean(),
}


def _losses(world):
    for weights in LAYOUTS[world]:
        for shape, value in zip(SHAPES, randoms(SHAPES, 2)):
            for name, loss in LOSSES.items():
                reference = value.clone().requires_grad_()
                loss(reference).backward()
                p = parameter(value, weights)
                got = loss(p)
                torch.testing.assert_close(full(got), loss(value), rtol=1e-12, atol=1e-14)
                if compat.DISPATCH_OVERRIDE_IGNORED:
                    with pytest.raises(NotImplementedError, match="gradient is out of reach"):
                        got.backward()
                    continue
                got.backward()
                assert type(p.grad) is RaggedDTensor and p.grad.rows == p.rows
                torch.testing.assert_close(
                    full(p.grad), reference.grad, rtol=1e-12, atol=1e-13, msg=f"{name} {shape}"
                )
                loss(p).backward()
                torch.testing.assert_close(full(p.grad), 2 * reference.grad, rtol=1e-12, atol=1e-13)


def _gathers(world):
    for weights in LAYOUTS[world]:
        for value in randoms(SHAPES, 3):
            for gather, times in (
                (lambda p: p.full_tensor(), 1),
                (lambda p: p.full_tensor(grad_placements=[Partial()]), world),
                (lambda p: p.redistribute(placements=[Replicate()]).to_local(), 1),
            ):
                p = parameter(value, weights)
                gather(p).pow(3).sum().backward()
                got = full(p.grad)
                torch.testing.assert_close(got, times * 3 * value**2, rtol=1e-13, atol=0)
            p = parameter(value, weights)
            p.to_local().pow(2).sum().backward()
            torch.testing.assert_close(full(p.grad), 2 * value, rtol=1e-13, atol=0)


@pytest.mark.parametrize("world", LAYOUTS)
@pytest.mark.parametrize("case", [_reductions, _nan_and_items, _losses, _gathers])
def test_numbers_are_those_of_the_whole(ranks, world, case):
    ranks(world, case, world)
