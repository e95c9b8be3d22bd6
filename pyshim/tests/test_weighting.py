"""Losses that are means over tokens: a rank counts by its targets that are not ignored."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from cephalo import intercept, sharding
from cephalo.data import Feed
from training import full, install, own_part, plan_of

CLASSES, WIDTH, SEQUENCE, BATCH = 7, 6, 5, 9
SHARES = ([4, 4, 1], [[2, 2], [4], [1]], [300_000, 700_000, 0])
IDLE = ([6, 3, 0], [[3, 3], [2, 1], []], [300_000, 300_000, 400_000])
IGNORED = -100


class Tagger(nn.Module):
    """Logits of every token; with targets, their mean loss, computed inside of the model."""

    def __init__(self):
        super().__init__()
        self.embed, self.body = nn.Embedding(CLASSES, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, CLASSES)

    def forward(self, tokens, targets=None):
        logits = self.out(torch.tanh(self.body(self.embed(tokens))))
        return logits if targets is None else mean_loss(logits, targets)


def mean_loss(logits, targets, **options):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), **options)


def batch(kept):
    """Tokens and targets; sample i keeps ``kept[i]`` targets."""
    generator = torch.Generator().manual_seed(3)
    tokens, targets = torch.randint(0, CLASSES, (2, BATCH, SEQUENCE), generator=generator)
    for sample, count in enumerate(kept):
        targets[sample, count:] = IGNORED
    return tokens, targets


def _gradients(kept, options, inside, shares):
    plan = plan_of(shares)
    made = install(plan, weighting="tokens")
    made.samples_of_batch = lambda: plan.batches[dist.get_rank()]
    patches = intercept.install(
        Feed(plan, dist.get_rank()), lambda loss: None, note_targets=made.note_targets
    )
    torch.manual_seed(0)
    plain = Tagger().double()
    torch.manual_seed(0)
    model = Tagger().double()
    for unit in (model.body, model):
        sharding.fully_shard(unit)
    whole = batch(kept)
    own = own_part(plan, dist.get_rank(), whole)
    for _ in range(2):  # the second step has probes and orders of the first behind it
        for one, (tokens, targets) in ((plain, whole), (model, own)):
            one.zero_grad()
            loss = one(tokens, targets) if inside else mean_loss(one(tokens), targets, **options)
            loss.backward()
        with torch.no_grad():
            mean_loss(model(own[0]), own[1])  # an evaluation's loss weighs nothing
    patches.undo()
    return [
        (None if p.grad is None else full(p.grad), q.grad)
        for p, q in zip(model.parameters(), plain.parameters(), strict=True)
    ]


KEPT = {
    "unequal counts": (5, 1, 2, 5, 3, 4, 1, 2, 5),
    "a rank with ignored targets alone": (5, 1, 2, 5, 0, 0, 0, 0, 3),
}
WEIGHTS = torch.linspace(0.5, 2.0, CLASSES, dtype=torch.float64)


@pytest.mark.parametrize("options", [{}, {"weight": WEIGHTS}, {"label_smoothing": 0.1}], ids=str)
@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
def test_user_case_12_gradients_are_those_of_all_counted_tokens(ranks, kept, options):
    check(ranks, kept, options, False, SHARES)


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
def test_the_model_may_compute_the_loss(ranks, kept):
    check(ranks, kept, {}, True, SHARES)


def test_a_rank_without_samples_counts_nothing(ranks):
    check(ranks, KEPT["unequal counts"], {}, False, IDLE)


def check(ranks, kept, options, inside, shares):
    for gradients in ranks(3, functools.partial(_gradients, kept, options, inside, shares)):
        for got, wanted in gradients:
            assert torch.allclose(got, wanted, rtol=1e-9, atol=1e-13)


def test_user_case_13_no_counted_token_anywhere(ranks):
    """The step has no gradients, so that an optimizer leaves the parameters alone."""
    for gradients in ranks(3, _gradients, (0,) * BATCH, {}, False, SHARES):
        assert all(got is None for got, _ in gradients)


def _other_loss():
    plan = plan_of(SHARES)
    install(plan, weighting="tokens")
    model = sharding.fully_shard(nn.Linear(4, 4))
    loss = model(torch.ones(plan.batches[dist.get_rank()], 4)).square().mean()
    with pytest.raises(RuntimeError, match="no loss of this step came from there; use samples"):
        loss.backward()


def test_other_losses_are_refused(ranks):
    ranks(3, _other_loss)
