"""Loss scaling: an overflow on one rank is one decision on all of them."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.distributed as dist
from torch import nn

from cephalo import intercept
from cephalo.data import Feed
from training import BATCH, SHARES, Case, Model, build, full, install, own_part, plan_of, tokens

PLAN = plan_of(SHARES["ragged shares, unequal counts"])
OPTIMIZERS = {
    "sgd": functools.partial(torch.optim.SGD, lr=0.2, momentum=0.9),
    "adamw, foreach": functools.partial(torch.optim.AdamW, lr=0.01, foreach=True),
    "adamw, fused": functools.partial(torch.optim.AdamW, lr=0.01, fused=True),
}
STEPS = 5
OVERFLOWS_AT = 2
OVERFLOWS_FOR = BATCH - 1
"""The sample whose loss is infinite in that step; the last rank has it."""


def loop(model, optimizer, draw, clip):
    """Losses, scales after every step, and whether the optimizer stepped."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)
    generator, scales = torch.Generator().manual_seed(5), []
    for step in range(STEPS):
        batch = tokens(generator, BATCH, None)
        factor = torch.ones(BATCH, dtype=torch.float64)
        if step == OVERFLOWS_AT:
            factor[OVERFLOWS_FOR] = float("inf")
        *batch, factor = draw((*batch, factor))
        scaler.scale((model(*batch) * factor).mean()).backward()
        if clip:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        scales.append(scaler.get_scale())
    return scales


def _scaled(optimizer, clip):
    install(PLAN)
    noted = []
    patches = intercept.install(Feed(PLAN, dist.get_rank()), noted.append)
    sharded = build(Case())
    torch.manual_seed(0)
    plain = Model().double()
    whole = loop(plain, optimizer(plain.parameters()), lambda batch: batch, clip)
    del noted[:]
    draw = functools.partial(own_part, PLAN, dist.get_rank())
    scales = loop(sharded, optimizer(sharded.parameters()), draw, clip)
    patches.undo()
    pairs = [
        (full(p).detach(), q.detach())
        for p, q in zip(sharded.parameters(), plain.parameters(), strict=True)
    ]
    return scales, whole, pairs, [float(x) for x in noted]


@pytest.mark.parametrize("clip", [False, True], ids=["as they are", "clipped"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_overflow_on_one_rank_skips_the_step_on_all(ranks, optimizer, clip):
    for scales, whole, pairs, noted in ranks(2, _scaled, optimizer, clip):
        assert scales == whole == [1024.0, 2048.0, 1024.0, 1024.0, 2048.0]
        for got, wanted in pairs:
            assert torch.allclose(got, wanted, rtol=1e-9, atol=1e-13)
        assert len(noted) == STEPS and max(noted[:OVERFLOWS_AT]) < 10, "losses are noted unscaled"
