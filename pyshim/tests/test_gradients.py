"""Gradients of a flat buffer, added up: the same bits as one after another, in few operators."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cephalo import gradients
from cephalo.gradients import FlatGradients
from cephalo.layout import build_layout
from operators import Operators

SHAPES = [(5, 4), (3,), (2, 3, 2), (1, 1)]
NUMEL = 5 * 4 + 3 + 12 + 1


def made(dtype=torch.float32):
    layout = build_layout([torch.Size(s) for s in SHAPES], [1_000_000])
    names = [f"p{i}" for i in range(len(SHAPES))]
    return FlatGradients(layout, names, dtype, torch.device("cpu"))


def give(flat, index, grad):
    param = nn.Parameter(torch.zeros(SHAPES[index], dtype=grad.dtype))
    param.grad = grad
    flat.take(index, param)
    assert param.grad is None


def drawn(rounds, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [[torch.randn(s, generator=generator).to(dtype) for s in SHAPES] for _ in range(rounds)]


def one_by_one(rounds, dtype):
    total = torch.zeros(NUMEL, dtype=dtype)
    for grads in rounds:
        total += torch.cat([g.reshape(-1) for g in grads]).to(dtype)
    return total


@pytest.mark.parametrize(
    "given, summed",
    [
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
@pytest.mark.parametrize("at_once", [0, 30, 1 << 20])
def test_the_sum_has_the_bits_of_one_after_another(monkeypatch, given, summed, at_once):
    monkeypatch.setattr(gradients, "AT_ONCE_BYTES", at_once)
    flat, rounds = made(summed), drawn(3, given)
    for grads in rounds:
        for index in (2, 0, 3, 1):
            give(flat, index, grads[index].clone())
    expected = one_by_one(rounds, summed)
    assert torch.equal(flat.total(1.0), expected)
    assert not flat
    give(flat, 0, rounds[0][0].clone())
    assert torch.equal(flat.total(0.25)[:20], rounds[0][0].to(summed).reshape(-1) * 0.25)


def test_parameters_without_a_gradient_are_zeros():
    flat, (grads,) = made(), drawn(1, torch.float32)
    give(flat, 1, grads[1].clone())
    assert [flat.has(i) for i in range(4)] == [False, True, False, False]
    total = flat.total(2.0)
    assert torch.equal(total[20:23], grads[1] * 2)
    assert not total[:20].any() and not total[23:].any()


@pytest.mark.parametrize("factor", [0.0, 1.0])
def test_nothing_counts_as_zeros(factor):
    flat, (grads,) = made(), drawn(1, torch.float32)
    if not factor:
        give(flat, 0, grads[0] * torch.nan)
    assert torch.equal(flat.total(factor), torch.zeros(NUMEL))
    assert not flat and not flat.has(0)


def test_a_gradient_with_other_strides():
    flat, (grads,) = made(), drawn(1, torch.float32)
    give(flat, 0, grads[0].t().contiguous().t())
    assert torch.equal(flat.total(1.0)[:20].view(5, 4), grads[0])


def test_one_copy_and_one_addition_for_all_parameters():
    flat, rounds = made(), drawn(2, torch.bfloat16)
    with Operators() as operators:
        for grads in rounds:
            for index, grad in enumerate(grads):
                give(flat, index, grad)
        flat.total(1.0)
    moved = [n for n in operators.names if "copy" in n or "add" in n]
    assert moved == ["_foreach_copy_", "_foreach_add_"]


def test_a_sparse_gradient_is_refused_by_name():
    flat = made()
    with pytest.raises(RuntimeError, match="p0 has a sparse gradient"):
        give(flat, 0, torch.zeros(5, 4).to_sparse())
