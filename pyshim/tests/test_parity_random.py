"""Dropout: the masks of a recomputation are those of its forward, and a run with them is the run of
one process with the same masks."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from training import (
    BATCH,
    SHARES,
    WIDTH,
    Block,
    Case,
    Model,
    build,
    full,
    install,
    own_part,
    plan_of,
    relative_error,
    sgd,
    tokens,
)

STEPS, LAYERS, RATE = 4, 3, 0.3


class Drop(nn.Module):
    """Dropout that records its masks, or replays given ones."""

    def __init__(self):
        super().__init__()
        self.record: list[torch.Tensor] = []
        self.replay: list[torch.Tensor] = []

    def forward(self, x):
        if self.replay:
            mask = self.replay.pop(0)
        else:
            mask = F.dropout(torch.ones_like(x), RATE)
            self.record.append(mask.detach().clone())
        return x * mask


class DropBlock(Block):
    def __init__(self):
        super().__init__()
        self.drop = Drop()

    def forward(self, x):
        return super().forward(self.drop(x))


class DropModel(Model):
    """Dropout in every block, and one in the root over the whole local batch."""

    def __init__(self):
        super().__init__(DropBlock, LAYERS)
        self.drop = Drop()

    def features(self, tokens):
        return self.drop(super().features(tokens))


def drops(model) -> list[Drop]:
    return [*(b.drop for b in model.blocks), model.drop]


def _train(plan):
    """Losses, parameters, and for every step and place the rank's own masks."""
    made, rank = install(plan), dist.get_rank()
    model = build(Case(build=DropModel))
    optimizer, count = sgd(model.parameters()), plan.batches[rank]
    if not count:
        made.samples_of_batch = lambda: 0
    generator, losses, masks = torch.Generator().manual_seed(5), [], []
    torch.manual_seed(100 + rank)
    warm = torch.zeros(max(count, 1), 6, dtype=torch.long)
    model(warm, warm)  # looks for the batch dimensions, which draws masks too
    for _ in range(STEPS):
        for drop in drops(model):
            drop.record = []
        model_batch = own_part(plan, rank, tokens(generator, BATCH, torch.float64))
        loss = model(*model_batch).mean()
        forward = [list(d.record) for d in drops(model)]
        loss.backward()
        check_recomputation(model, forward, plan.ranks[rank].activations)
        masks.append([torch.cat(m)[:count] for m in forward])
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item() * count)
    total = torch.tensor(losses, dtype=torch.float64)
    dist.all_reduce(total)
    state = torch.get_rng_state()
    return (total / BATCH).tolist(), {n: full(p) for n, p in model.named_parameters()}, masks, state


def check_recomputation(model, forward, activations):
    """Each block draws each microbatch's mask again, last microbatch first."""
    for drop, before in zip(drops(model), forward):
        again = drop.record[len(before) :]
        if drop is model.drop or activations == "keep":
            assert again == []
        else:
            assert len(again) == len(before)
            for one, other in zip(before, reversed(again)):
                assert torch.equal(one, other)


def reference(masks):
    """One process with the masks of all ranks; ``masks[rank][step][place]``."""
    torch.manual_seed(0)
    model = DropModel().to(torch.float64)
    optimizer, generator, losses = sgd(model.parameters()), torch.Generator().manual_seed(5), []
    for step in range(STEPS):
        for place, drop in enumerate(drops(model)):
            drop.replay = [torch.cat([m[step][place] for m in masks])]
        loss = model(*tokens(generator, BATCH, torch.float64)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, dict(model.named_parameters())


@pytest.mark.parametrize("activations", ["recompute", "keep"])
@pytest.mark.parametrize("shares", SHARES)
def test_dropout(ranks, shares, activations):
    plan = plan_of(SHARES[shares], activations)
    results = ranks(plan.world_size, _train, plan)
    losses, parameters = reference([r[2] for r in results])
    for got, wanted in zip(results[0][0], losses, strict=True):
        assert abs(got - wanted) <= 1e-9 * wanted
    for name, value in parameters.items():
        assert relative_error(results[0][1][name], value.detach()) <= 1e-9, name
    drawn = results[0][2][0][0]
    assert WIDTH == drawn.shape[-1] and set(drawn.unique().tolist()) == {0.0, 1 / (1 - RATE)}


def _random_state(plan, activations):
    install(plan)
    model = build(Case(build=DropModel))
    batch = own_part(plan, dist.get_rank(), tokens(torch.Generator().manual_seed(5), BATCH, None))
    torch.manual_seed(1)
    loss = model(*batch).mean()
    state = torch.get_rng_state()
    loss.backward()
    assert torch.equal(torch.get_rng_state(), state), "backward must not move the random state"


@pytest.mark.parametrize("activations", ["recompute", "keep"])
def test_backward_leaves_the_random_state(ranks, activations):
    plan = plan_of(SHARES["even shares"], activations)
    ranks(2, _random_state, plan, activations)


def _untouched(plan):
    install(plan)
    model = build(Case(build=DropModel))
    batch = own_part(plan, 0, tokens(torch.Generator().manual_seed(5), BATCH, None))
    torch.manual_seed(1)
    first = model(*batch).mean().item()
    torch.manual_seed(1)
    assert model(*batch).mean().item() == first


def test_looking_for_batch_dimensions_draws_no_numbers(ranks):
    ranks(1, _untouched, plan_of(SHARES["one rank, smaller last microbatch"]))
