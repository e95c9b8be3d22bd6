"""A unit's microbatches by themselves: what lives from the forward to the backward."""

from __future__ import annotations

import weakref
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from cephalo.batch import flatten_call
from cephalo.layered import LayeredCall


class Double(torch.autograd.Function):
    """Of Python's own, as many libraries end their layers with one."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


@pytest.mark.parametrize("last", [nn.Identity(), Double.apply], ids=["linear", "function"])
@pytest.mark.parametrize("keep", [True, False], ids=["keep", "recompute"])
def test_results_of_microbatches_are_not_held_beside_the_whole(keep, last):
    torch.manual_seed(3)
    unit, made = nn.Linear(5, 7, dtype=torch.float64), []

    def run(x):
        result = last(unit(x))
        made.append(weakref.ref(result))
        return result

    x = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    leaves, spec = flatten_call((x,), {})
    call = LayeredCall(
        run=run,
        around=lambda phase: nullcontext(),
        after_backward=lambda: None,
        leaves=leaves,
        spec=spec,
        cut=[True],
        bounds=[(0, 4), (4, 6)],
        device=x.device,
        keep=keep,
    )
    with torch.no_grad():
        (out,) = call.forward([x])
        assert [ref() for ref in made] == [None, None]
        grad = torch.randn_like(out)
        (got,) = call.backward([x], [grad])
    weight = unit.weight.grad.clone()
    unit.weight.grad = None
    expected = last(unit(x))
    assert torch.allclose(out, expected, rtol=1e-14)
    expected.backward(grad)
    assert torch.allclose(got, x.grad, rtol=1e-14)
    assert torch.allclose(weight, unit.weight.grad, rtol=1e-14)
