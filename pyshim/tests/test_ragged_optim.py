"""Optimizers, clipping, averaging and loss scaling give what one process gives."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.distributed.tensor import DTensor, Replicate

from cephalo import optimizers
from cephalo.ragged import RaggedDTensor
from operators import Operators
from ragged_cases import LAYOUTS, SHAPES, full, mesh, parameter, randoms, shard

STEPS = 3
OPTIMIZERS = {
    "adamw": (torch.optim.AdamW, {"weight_decay": 0.1}),
    "adamw foreach": (torch.optim.AdamW, {"foreach": True, "amsgrad": True}),
    "adamw loop": (torch.optim.AdamW, {"foreach": False, "amsgrad": True}),
    "adamw fused": (torch.optim.AdamW, {"fused": True, "amsgrad": True}),
    "adam": (torch.optim.Adam, {"weight_decay": 0.01, "maximize": True}),
    "adam fused": (torch.optim.Adam, {"fused": True}),
    "sgd": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    "sgd foreach": (torch.optim.SGD, {"momentum": 0.9, "foreach": True}),
    "sgd fused": (torch.optim.SGD, {"momentum": 0.9, "fused": True}),
    "adagrad": (torch.optim.Adagrad, {}),
    "adagrad foreach": (torch.optim.Adagrad, {"foreach": True}),
    "rmsprop": (torch.optim.RMSprop, {"momentum": 0.5, "centered": True}),
    "rmsprop foreach": (torch.optim.RMSprop, {"foreach": True}),
    "nadam": (torch.optim.NAdam, {}),
    "radam": (torch.optim.RAdam, {}),
    "adamax": (torch.optim.Adamax, {}),
    "adadelta": (torch.optim.Adadelta, {}),
    "asgd": (torch.optim.ASGD, {"foreach": False}),
}


def _train(kind, options, params, grads_of):
    optimizer = kind(params, lr=0.05, **options)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for step in range(STEPS):
        for p, g in zip(params, grads_of(step)):
            p.grad = g
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return optimizer


def _optimizers(world, names, at_a_time=optimizers.AT_A_TIME_BYTES):
    optimizers.AT_A_TIME_BYTES = at_a_time
    values = randoms(SHAPES, 1)
    grads = [randoms(SHAPES, 10 + step) for step in range(STEPS)]
    for name in names:
        kind, options = OPTIMIZERS[name]
        reference = [nn.Parameter(v.clone()) for v in values]
        stock = _train(kind, options, reference, lambda s: [g.clone() for g in grads[s]])
        for weights in LAYOUTS[world]:
            params = [parameter(v, weights) for v in values]
            optimizer = _train(
                kind, options, params, lambda s, w=weights: [shard(g, w) for g in grads[s]]
            )
            for p, r, shape in zip(params, reference, SHAPES):
                where = f"{name} {weights} {shape}"
                assert torch.allclose(full(p), r.detach(), rtol=0, atol=1e-14), where
                assert optimizer.state[p].keys() == stock.state[r].keys()
                for key, value in stock.state[r].items():
                    got = optimizer.state[p][key]
                    if isinstance(value, torch.Tensor) and value.dim():
                        assert type(got) is RaggedDTensor and got.rows == p.rows, where
                        assert torch.allclose(full(got), value, rtol=0, atol=1e-13), (where, key)


@pytest.mark.parametrize("world", LAYOUTS)
@pytest.mark.parametrize("half", [0, 1])
def test_optimizers_step_as_one_process_does(ranks, world, half):
    ranks(world, _optimizers, world, sorted(OPTIMIZERS)[half::2])


def test_steps_are_made_a_part_of_the_parameters_at_a_time(ranks):
    ranks(2, _optimizers, 2, ["adamw foreach", "sgd foreach", "nadam"], 64)


def _foreach_is_default():
    from torch.optim.optimizer import _default_to_fused_or_foreach
    from torch.utils._foreach_utils import _has_foreach_support

    p = parameter(torch.randn(5, 3), (1,))
    mesh()
    assert _has_foreach_support([p, p.detach()], torch.device("cpu"))
    stock = [nn.Parameter(torch.randn(3))]
    ours = _default_to_fused_or_foreach([p], differentiable=False)
    assert ours == _default_to_fused_or_foreach(stock, differentiable=False)


def test_foreach_is_chosen_where_stock_chooses_it(ranks):
    ranks(1, _foreach_is_default)


def _clipping(world):
    grads = randoms(SHAPES, 2)
    values = randoms(SHAPES, 3)
    for p_norm in (2.0, 1.0, math.inf, 0.0, 3.0):
        for foreach in (None, True, False):
            for limit in (0.5, 1e6):
                reference = [nn.Parameter(v.clone()) for v in values]
                for r, g in zip(reference, grads):
                    r.grad = g.clone()
                expected = nn.utils.clip_grad_norm_(reference, limit, p_norm, foreach=foreach)
                for weights in LAYOUTS[world]:
                    params = [parameter(v, weights) for v in values]
                    for p, g in zip(params, grads):
                        p.grad = shard(g, weights)
                    total = nn.utils.clip_grad_norm_(params, limit, p_norm, foreach=foreach)
                    assert isinstance(total, DTensor) and total.placements == (Replicate(),)
                    for number in (total.item(), total.full_tensor().item(), float(total)):
                        assert number == pytest.approx(expected.item(), rel=1e-13)
                    for p, r in zip(params, reference):
                        torch.testing.assert_close(full(p.grad), r.grad, rtol=1e-13, atol=0)


def _norms_unpatched(world):
    """What a library does that brought its own clipping."""
    grads = randoms(SHAPES, 2)
    for weights in LAYOUTS[world]:
        pieces = [shard(g, weights) for g in grads]
        for p in (2.0, math.inf, 1.0):
            expected = torch.stack([torch.linalg.vector_norm(g, p) for g in grads])
            for norms in (
                torch._foreach_norm(pieces, p),
                [torch.linalg.vector_norm(g, p) for g in pieces],
            ):
                total = torch.linalg.vector_norm(torch.stack(norms), p)
                got = torch.stack([n.full_tensor() for n in norms])
                torch.testing.assert_close(got, expected, rtol=1e-13, atol=0)
                assert total.item() == pytest.approx(torch.linalg.vector_norm(expected, p).item())
        nn.utils.clip_grad_value_([_with_grad(p) for p in pieces], 0.1)


def _with_grad(tensor):
    p = nn.Parameter(tensor.clone())
    p.grad = tensor
    return p


def _one_collective(world):
    import torch.distributed as dist

    from cephalo import ragged_layout

    weights = LAYOUTS[world][-1]
    params = [parameter(v, weights) for v in randoms(SHAPES, 3)]
    for p in params:
        p.grad = torch.ones_like(p)
    calls = []
    plain = ragged_layout.compat.all_gather_flat
    ragged_layout.compat.all_gather_flat = lambda *a, **k: calls.append(1) or plain(*a, **k)
    for foreach in (None, True, False):
        calls.clear()
        nn.utils.clip_grad_norm_(params, 1.0, foreach=foreach)
        assert len(calls) == 1, (foreach, calls)
    calls.clear()
    nn.utils.get_total_norm([p.grad for p in params])
    assert len(calls) == 1
    with pytest.raises(RuntimeError, match="non-finite"):
        if dist.get_rank() == 0:
            params[0].grad.to_local().fill_(math.inf)
            params[1].grad.to_local().fill_(math.inf)
        else:
            params[0].grad.to_local().fill_(math.nan)
        nn.utils.clip_grad_norm_(params, 1.0, error_if_nonfinite=True)


@pytest.mark.parametrize("world", LAYOUTS)
@pytest.mark.parametrize("case", [_clipping, _norms_unpatched])
def test_clipping_uses_the_global_norm_on_every_rank(ranks, world, case):
    ranks(world, case, world)


def test_clipping_takes_one_collective_and_sees_other_ranks_nan(ranks):
    ranks(3, _one_collective, 3)


def _operators_of_a_clip(count, p_norm):
    params = [parameter(v.float(), (5, 2)) for v in randoms([(7, 3)] * count, 3)]
    for p in params:
        p.grad = p.detach().clone()
    with Operators() as operators:
        nn.utils.clip_grad_norm_(params, 1.0, p_norm, foreach=True)
    return len(operators.names)


def test_clipping_takes_as_many_operators_for_many_gradients_as_for_few(ranks):
    for p_norm in (2.0, math.inf):
        few, many = (ranks(2, _operators_of_a_clip, n, p_norm) for n in (2, 40))
        assert few == many and max(many) < 40


def _averaging(world):
    values, later = randoms(SHAPES, 4), randoms(SHAPES, 5)
    for options in (
        {},
        {"multi_avg_fn": torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)},
        {"avg_fn": torch.optim.swa_utils.get_ema_avg_fn(0.9)},
    ):
        for weights in LAYOUTS[world]:
            stock = nn.ParameterList([nn.Parameter(v.clone()) for v in values])
            average = torch.optim.swa_utils.AveragedModel(stock, **options)
            ours = nn.ParameterList([parameter(v, weights) for v in values])
            ours_average = torch.optim.swa_utils.AveragedModel(ours, **options)
            for model, averaged, new in (
                (stock, average, lambda v: v.clone()),
                (ours, ours_average, lambda v, w=weights: shard(v, w)),
            ):
                for v0, v1, p in zip(values, later, model):
                    with torch.no_grad():
                        p.copy_(new(v0))
                        averaged.update_parameters(model)
                        p.copy_(new(v1))
                averaged.update_parameters(model)
            for a, b in zip(ours_average.parameters(), average.parameters()):
                torch.testing.assert_close(full(a), b.detach(), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("world", LAYOUTS)
def test_averaged_models(ranks, world):
    ranks(world, _averaging, world)


def _scaling(world):
    import torch.distributed as dist

    values, grads = randoms(SHAPES, 6), randoms(SHAPES, 7)
    for weights in LAYOUTS[world]:
        for fused in (False, True):
            params = [parameter(v, weights) for v in values]
            optimizer = torch.optim.AdamW(params, lr=0.1, fused=fused)
            scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
            scaler.scale(torch.ones(()))
            for p, g in zip(params, grads):
                p.grad = shard(g * 8.0, weights)
            scaler.unscale_(optimizer)
            for p, g in zip(params, grads):
                torch.testing.assert_close(full(p.grad), g, rtol=0, atol=0)
            owner = max(range(world), key=lambda r: params[0].rows[r])
            for p, g in zip(params, grads):
                p.grad = shard(g, weights)
            if dist.get_rank() == owner:
                params[0].grad.to_local()[0, 0] = math.inf
            scaler.update()
            scaler.step(optimizer)
            for p, v in zip(params, values):
                assert torch.equal(full(p), v), "a step was taken in spite of an inf"
            scaler.update()
            assert scaler.get_scale() == 4.0


@pytest.mark.parametrize("world", LAYOUTS)
def test_an_inf_on_one_rank_stops_the_step_on_all(ranks, world):
    ranks(world, _scaling, world)


AFTER_ANOTHER = """
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])
from cephalo import optimizers, ragged
ragged.install()
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
rows = ragged.RaggedDTensor.wrap(torch.ones(2), init_device_mesh("cpu", (1,)), (2,), (2,))
param = torch.nn.Parameter(rows)
optimizer = torch.optim.AdamW([param], lr=0.5, weight_decay=0.0)
param.grad = param.detach().clone()
optimizer.step()
print(optimizer in optimizers._held, [round(x, 6) for x in param.to_local().tolist()])
"""


def test_a_script_that_made_an_optimizer_before_steps_on_rows_too():
    ran = subprocess.run(
        [sys.executable, "-c", AFTER_ANOTHER], capture_output=True, text=True, timeout=120
    )
    assert ran.stdout.splitlines()[-1:] == ["True [0.5, 0.5]"], ran.stderr  # Gloo may speak first
