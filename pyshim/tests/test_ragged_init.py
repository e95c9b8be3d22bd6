"""Filling ragged tensors: random numbers and copies give the rows that one process would have."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from cephalo.ragged import RaggedError
from ragged_cases import LAYOUTS, full, mesh, parameter, randoms, shard

SHAPES = [(5, 3), (1,), (1, 17), (3, 5), (40, 6), (4, 2, 3)]

IN_PLACE = {
    "normal_": lambda t: t.normal_(1.0, 0.5),
    "uniform_": lambda t: t.uniform_(-2, 3),
    "exponential_": lambda t: t.exponential_(),
    "bernoulli_": lambda t: t.bernoulli_(0.3),
    "random_": lambda t: t.random_(0, 10),
    "log_normal_": lambda t: t.log_normal_(),
    "cauchy_": lambda t: t.cauchy_(),
    "geometric_": lambda t: t.geometric_(0.4),
    "data.normal_": lambda t: t.data.normal_(),
    "generator": lambda t: t.normal_(generator=torch.Generator().manual_seed(3)),
    "rand_like": lambda t: t.copy_(torch.rand_like(t) + torch.randn_like(t)),
    "dropout": lambda t: t.fill_(1.0).copy_(nn.functional.dropout(t, 0.5)),
    "fill_": lambda t: t.fill_(3.0),
    "init.normal_": lambda t: nn.init.normal_(t, 1, 2),
    "init.uniform_": lambda t: nn.init.uniform_(t),
    "init.trunc_normal_": lambda t: nn.init.trunc_normal_(t, std=0.02),
    "init.constant_": lambda t: nn.init.constant_(t, 0.25),
    "init.ones_": lambda t: nn.init.ones_(t),
    "init.zeros_": lambda t: nn.init.zeros_(t),
}
MATRICES = {
    "xavier_uniform_": nn.init.xavier_uniform_,
    "xavier_normal_": nn.init.xavier_normal_,
    "kaiming_uniform_": nn.init.kaiming_uniform_,
    "kaiming_normal_": nn.init.kaiming_normal_,
    "orthogonal_": lambda t: nn.init.orthogonal_(t, gain=1.5),
}
PLAIN_MATRICES = {
    "eye_": lambda t: nn.init.eye_(t),
    "sparse_": lambda t: nn.init.sparse_(t, 0.4),
}


def _same_rows(world, kind):
    for weights in LAYOUTS[world]:
        for shape in SHAPES:
            fills = dict(IN_PLACE)
            if len(shape) > 1:
                # by name: the installed function must be the one that is called
                fills |= {n: lambda t, n=n: getattr(nn.init, n)(t) for n in MATRICES}
            if len(shape) == 2:
                fills |= PLAIN_MATRICES
            if len(shape) == 3:
                fills["dirac_"] = lambda t: nn.init.dirac_(t)
            for name, fill in fills.items():
                whole = torch.zeros(shape, dtype=kind)
                p = parameter(whole, weights)
                torch.manual_seed(7)
                with torch.no_grad():
                    fill(whole)
                    after = torch.rand(1)
                    torch.manual_seed(7)
                    fill(p)
                own = whole[p.row_offset : p.row_offset + p.rows[mesh().get_local_rank()]]
                assert torch.equal(p.detach().to_local(), own), (name, shape, weights)
                assert torch.equal(torch.rand(1), after), f"{name}: generator out of step"


def _module_resets(world):
    """The usual meta-device script: build on meta, shard, to_empty, then every reset_parameters."""
    for weights in LAYOUTS[world]:

        def build():
            return nn.Sequential(
                nn.Embedding(7, 4, padding_idx=2), nn.Linear(4, 5), nn.LayerNorm(5),
                nn.Conv1d(4, 6, 3), nn.MultiheadAttention(4, 2), nn.Bilinear(3, 4, 5),
            )  # fmt: skip

        plain = build()
        sharded = build()
        for owner in sharded.modules():
            for name, param in list(owner._parameters.items()):
                if param is not None:
                    setattr(owner, name, parameter(param.detach(), weights))
        for model in (plain, sharded):
            torch.manual_seed(11)
            for module in model.modules():
                reset = getattr(module, "reset_parameters", None) or getattr(
                    module, "_reset_parameters", None
                )
                if reset is not None:
                    reset()
        for (name, a), b in zip(plain.named_parameters(), sharded.parameters()):
            assert torch.equal(a.detach(), full(b)), (name, weights)


def _copies(world):
    (value, other) = randoms([(5, 3), (5, 3)], 1)
    for weights in LAYOUTS[world]:
        p = parameter(value, weights)
        for source in (
            other,
            shard(other, weights),
            shard(other, weights[::-1]),
            distribute_tensor(other, mesh(), [Shard(0)]),
            distribute_tensor(other, mesh(), [Shard(1)]),
            distribute_tensor(other, mesh(), [Replicate()]),
            other.float().to(torch.float64),
        ):
            with torch.no_grad():
                p.copy_(value)
                assert torch.equal(full(p), value)
                p.copy_(source)
            torch.testing.assert_close(full(p), other, rtol=1e-6, atol=1e-6)
        with torch.no_grad():
            torch._foreach_copy_([p, p.detach()], [shard(value, weights[::-1]), value])
            assert torch.equal(full(p), value)
            p.copy_(torch.tensor(2.0))
            assert torch.equal(full(p), torch.full_like(value, 2.0))
            with pytest.raises(ValueError, match="give the whole tensor"):
                p.copy_(torch.ones(1, 3))
            uneven = DTensor.from_local(
                value[: world - mesh().get_local_rank()], mesh(), [Shard(0)], run_check=False,
                shape=value.shape, stride=value.stride(),
            )  # fmt: skip
            held = sum(range(1, world + 1))
            if held != 5:
                with pytest.raises(ValueError, match="has rows"):
                    p.copy_(uneven)
            with pytest.raises(RaggedError, match="copy_"):
                value.copy_(p)


def _loading(world):
    (weight, bias) = randoms([(5, 3), (5,)], 2)
    for weights in LAYOUTS[world]:
        for make in (
            lambda t, w: t.clone(),
            lambda t, w: shard(t, w),
            lambda t, w: shard(t, w[::-1]),
            lambda t, w: distribute_tensor(t, mesh(), [Shard(0)]),
        ):
            module = nn.Linear(3, 5, dtype=torch.float64)
            module.weight = parameter(module.weight.detach().zero_(), weights)
            module.bias = parameter(module.bias.detach().zero_(), weights)
            kept, rows = module.weight, module.weight.rows
            module.load_state_dict({"weight": make(weight, weights), "bias": make(bias, weights)})
            assert module.weight is kept and kept.rows == rows
            assert torch.equal(full(module.weight), weight)
            assert torch.equal(full(module.bias), bias)


@pytest.mark.parametrize("world,kind", [(1, torch.float32), (2, torch.float64), (3, torch.float32)])
def test_random_fills_give_the_rows_of_one_process(ranks, world, kind):
    ranks(world, _same_rows, world, kind)


def _module_casts(world):
    (weight, bias) = randoms([(5, 3), (5,)], 6)
    for weights in LAYOUTS[world]:
        module = nn.Linear(3, 5)
        module.weight, module.bias = parameter(weight, weights), parameter(bias, weights)
        kept = module.weight
        kept.grad = torch.ones_like(kept)
        module.to(torch.float32)
        assert (
            module.weight is kept and kept.dtype == torch.float32 and kept.grad.dtype == kept.dtype
        )
        assert torch.equal(full(kept), weight.float()) and torch.equal(
            full(kept.grad), torch.ones(5, 3)
        )
        rows = kept.rows
        module.to("meta")
        assert module.weight.is_meta and module.weight.rows == rows
        module.to_empty(device="cpu")
        torch.manual_seed(3)
        module.reset_parameters()
        torch.manual_seed(3)
        assert torch.equal(full(module.weight), nn.Linear(3, 5).weight.detach())
        assert module.weight.rows == rows and module.weight.requires_grad


@pytest.mark.parametrize("world", LAYOUTS)
@pytest.mark.parametrize("case", [_module_resets, _module_casts, _copies, _loading])
def test_filling(ranks, world, case):
    ranks(world, case, world)
