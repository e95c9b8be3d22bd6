"""A ragged tensor tells the truth about itself, in every layout."""

from __future__ import annotations

import copy
import re

import pytest
import torch
from torch import nn
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from cephalo import ragged
from cephalo.ragged import RaggedDTensor, RaggedError
from cephalo.ragged_layout import even_rows
from ragged_cases import LAYOUTS, SHAPES, full, mesh, parameter, randoms, rows_for, shard

RAGGED_SHAPES = [s for s in SHAPES if s]


def _each(world, check):
    for weights in LAYOUTS[world]:
        for shape, value in zip(RAGGED_SHAPES, randoms(RAGGED_SHAPES, 1)):
            check(weights, shape, value)


def _identity(world):
    def check(weights, shape, value):
        p = parameter(value, weights)
        assert type(p) is RaggedDTensor and isinstance(p, nn.Parameter) and isinstance(p, DTensor)
        assert p.shape == value.shape and p.dim() == value.dim() and p.numel() == value.numel()
        assert p.stride() == value.stride() and p.dtype == value.dtype and p.size(0) == shape[0]
        assert p.is_leaf and p.requires_grad and p.is_contiguous() and p.nbytes == value.nbytes
        assert p.placements == (Shard(0),) and p.device_mesh == mesh()
        assert p.rows == rows_for(shape[0], weights)
        local = p.detach().to_local()
        assert torch.equal(local, value[p.row_offset : p.row_offset + local.shape[0]])
        assert local.untyped_storage().data_ptr() == p.to_local().untyped_storage().data_ptr()
        assert f"rows={p.rows}" in repr(p) and "RaggedDTensor" in repr(nn.ParameterList([p])[0])

    _each(world, check)


def _gathered(world):
    def check(weights, shape, value):
        p = parameter(value, weights)
        whole = p.detach().full_tensor()
        assert type(whole) is torch.Tensor and torch.equal(whole, value)
        whole.zero_()
        assert torch.equal(full(p), value), "full_tensor aliases the parameter"
        copied = p.detach().redistribute(placements=[Replicate()])
        assert type(copied) is DTensor and torch.equal(copied.to_local(), value)
        even = p.detach().redistribute(mesh(), [Shard(0)])
        assert type(even) is DTensor and torch.equal(even.full_tensor(), value)
        assert even.to_local().shape[0] == even_rows(shape[0], world)[mesh().get_local_rank()]
        if len(shape) > 1:
            with pytest.raises(RaggedError, match="redistribute"):
                p.redistribute(placements=[Shard(1)])

    _each(world, check)


def _gradients(world):
    def check(weights, shape, value):
        p = parameter(value, weights)
        seen = []
        p.register_hook(lambda g: seen.append(("hook", type(g))))
        p.register_post_accumulate_grad_hook(lambda q: seen.append(("done", type(q.grad))))
        p.grad = torch.ones_like(p)
        assert type(p.grad) is RaggedDTensor and torch.equal(full(p.grad), torch.ones_like(value))
        optimizer = torch.optim.SGD([p], lr=1.0)
        optimizer.zero_grad(set_to_none=False)
        assert torch.equal(full(p.grad), torch.zeros_like(value))
        optimizer.zero_grad(set_to_none=True)
        assert p.grad is None
        (p.full_tensor() * value).sum().backward()
        assert type(p.grad) is RaggedDTensor and torch.equal(full(p.grad), value)
        p.to_local().sum().backward()
        assert torch.equal(full(p.grad), value + 1)
        assert [k for k, _ in seen] == ["hook", "done"] * 2
        assert all(t is RaggedDTensor for _, t in seen)
        p.grad = None
        with pytest.raises(ValueError, match="not laid out"):
            p.grad = torch.ones(p.to_local().shape).double()

    _each(world, check)


def _copies(world):
    def check(weights, shape, value):
        p = parameter(value, weights)
        p.note = ["mine"]
        p.grad = torch.full_like(p, 3.0)
        q = copy.deepcopy(p)
        assert type(q) is RaggedDTensor and isinstance(q, nn.Parameter) and q.rows == p.rows
        assert q.requires_grad and q.note == ["mine"] and q.note is not p.note
        with torch.no_grad():
            q.zero_()
            q.grad.zero_()
        assert torch.equal(full(p), value) and torch.equal(full(p.grad), torch.full_like(value, 3))
        half = p.detach().to(torch.float32)
        assert half.dtype == torch.float32 and half.rows == p.rows
        assert torch.equal(full(half), value.float())
        assert torch.equal(full(p.data), value) and p.data.rows == p.rows
        p.data = value + 1
        assert torch.equal(full(p), value + 1)
        p.data = shard(value + 2, weights)
        assert torch.equal(full(p), value + 2)

    _each(world, check)


def _pickle(world, folder):
    weights = LAYOUTS[world][-1]
    (value,) = randoms([(5, 3)], 2)
    module = nn.Module()
    module.weight = parameter(value, weights)
    file = f"{folder}/rank{mesh().get_local_rank()}.pt"
    torch.save({"model": module.state_dict(), "whole": module.weight}, file)


def _unpickle(world, folder):
    weights = LAYOUTS[world][-1]
    (value,) = randoms([(5, 3)], 2)
    module = nn.Module()
    module.weight = parameter(torch.zeros_like(value), weights)
    loaded = torch.load(f"{folder}/rank{mesh().get_local_rank()}.pt", weights_only=True)
    again = loaded["model"]["weight"]
    assert type(again) is RaggedDTensor and again.rows == module.weight.rows
    assert isinstance(loaded["whole"], nn.Parameter) and loaded["whole"].requires_grad
    assert torch.equal(full(again), value)
    module.load_state_dict(loaded["model"])
    assert torch.equal(full(module.weight), value)


@pytest.mark.parametrize("world", LAYOUTS)
def test_pickled_local_state_loads_in_a_later_run(ranks, tmp_path, world):
    ranks(world, _pickle, world, str(tmp_path))
    ranks(world, _unpickle, world, str(tmp_path))


def _views(world):
    (value,) = randoms([(7, 4, 2)], 3)
    for weights in LAYOUTS[world]:
        p = shard(value.clone(), weights)
        for read in (
            lambda t: t[2:5], lambda t: t[-3:], lambda t: t[6], lambda t: t[0], lambda t: t[3:3],
            lambda t: t[:, 1], lambda t: t[:, 1:3], lambda t: t[1:6, 2], lambda t: t.view(7, 8),
            lambda t: t.view(-1), lambda t: t.flatten(), lambda t: t.reshape(7, 2, 4),
            lambda t: t.unsqueeze(1), lambda t: t.transpose(1, 2), lambda t: t.chunk(3)[1],
            lambda t: t.split([2, 4, 1])[1], lambda t: t.view_as(t), lambda t: t.flatten(1),
            lambda t: t.view(7, 8).view(-1).view(7, 4, 2), lambda t: torch.chunk(t, 2, dim=1)[0],
        ):  # fmt: skip
            got = read(p)
            assert got.shape == read(value).shape and torch.equal(full(got), read(value))
        p[2].fill_(9.0)
        p[4:6, 1].zero_()
        p.view(-1)[3:5] = 1.0
        expected = value.clone()
        expected[2] = 9.0
        expected[4:6, 1] = 0.0
        expected.view(-1)[3:5] = 1.0
        assert torch.equal(full(p), expected)
        with pytest.raises(RaggedError, match="__getitem__"):
            p[::2]
        with pytest.raises(RaggedError, match="__getitem__"):
            p[torch.tensor([1, 2])]


REFUSED = {
    "matmul": lambda p: p @ p.full_tensor().T,
    "linear": lambda p: nn.functional.linear(torch.ones(2, 3).double(), p),
    "permute|transpose|t or": lambda p: p.T,
    "sort": lambda p: p.sort(),
    "cat": lambda p: torch.cat([p, p]),
    "numpy": lambda p: p.numpy(),
    "tolist": lambda p: p.tolist(),
    "softmax": lambda p: p.softmax(0),
    "cumsum": lambda p: p.cumsum(0),
    "argmax": lambda p: p.argmax(),
    "embedding": lambda p: nn.functional.embedding(torch.tensor([1]), p),
    "plain tensor": lambda p: p + torch.ones(5, 3).double(),
    "gradient placements": lambda p: p.full_tensor(grad_placements=[Shard(0)]),
    "topk": lambda p: p.topk(2),
    "index": lambda p: p.index_select(0, torch.tensor([0])),
    "nonzero": lambda p: p.nonzero(),
}


def _refusals(world):
    weights = LAYOUTS[world][-1]
    (value,) = randoms([(5, 3)], 4)
    p = parameter(value, weights)
    for name, call in REFUSED.items():
        try:
            call(p)
        except NotImplementedError as error:
            assert re.search(f"(?s){name}.*full_tensor", str(error)), (name, error)
        else:
            pytest.fail(f"{name} did not raise")
    if world == 2:
        with pytest.raises(RaggedError, match="view or reshape.*cut a row"):
            shard(value, (5, 2)).reshape(3, 5)
    other = shard(value, weights[::-1])
    if other.rows != p.rows:
        with pytest.raises(RaggedError, match="rows"):
            p.detach() + other
        with pytest.raises(RaggedError, match="mixed with a DTensor"):
            p.detach() + distribute_tensor(value, mesh(), [Shard(0)])
    with pytest.raises(ValueError, match="share out"):
        RaggedDTensor.wrap(value, mesh(), [9] * world, value.shape)
    with pytest.raises(ValueError, match="holds a piece"):
        RaggedDTensor.wrap(value[:0, :2], mesh(), p.rows, value.shape)


def _arithmetic(world):
    (value, row) = randoms([(5, 3), (3,)], 5)
    for weights in LAYOUTS[world]:
        p, replicated = shard(value, weights), DTensor.from_local(row, mesh(), [Replicate()])
        whole = DTensor.from_local(value + 1, mesh(), [Replicate()])
        for compute in (
            lambda t, r, w: t * 2 + r,
            lambda t, r, w: w - t,
            lambda t, r, w: torch.where(t > 0, t, w),
            lambda t, r, w: t.abs().sqrt().clamp(min=0.5).lerp(w, 0.3),
            lambda t, r, w: (t - t.mean()) / t.norm(),
            lambda t, r, w: t / t.norm(dim=1, keepdim=True),
            lambda t, r, w: t.masked_fill(t < 0, 0.0).addcmul(t, w),
            lambda t, r, w: torch.maximum(t, torch.tensor(0.1).double()),
            lambda t, r, w: t.clone().mul_(r).add_(w, alpha=2).div_(3.0),
            lambda t, r, w: t.sum(0) * r,
            lambda t, r, w: t.isfinite().all() & (t == t).all(),
        ):
            got = compute(p, replicated, whole)
            torch.testing.assert_close(
                full(got), compute(value, row, value + 1), rtol=0, atol=1e-14
            )
        with pytest.raises(RaggedError):
            p.sum(dim=1) + p[:, 0:1]


@pytest.mark.parametrize("world", LAYOUTS)
@pytest.mark.parametrize(
    "case", [_identity, _gathered, _gradients, _copies, _views, _refusals, _arithmetic]
)
def test_in_every_layout(ranks, world, case):
    ranks(world, case, world)


def test_install_twice_changes_nothing():
    ragged.install()
    first = nn.init.orthogonal_
    ragged.install()
    assert nn.init.orthogonal_ is first
