"""Units that are called in every way a script may call a module."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.distributed as dist
import torch.utils.checkpoint
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    checkpoint_wrapper,
)
from torch.nn import functional as F

from cephalo import intercept
from cephalo.data import Feed
from cephalo.module import state_of
from training import (
    ALONE,
    BATCH,
    SEQUENCE,
    SHARES,
    WIDTH,
    Block,
    Case,
    Model,
    assert_equal,
    build,
    install,
    on_rank,
    one_process,
    own_part,
    plan_of,
    vectors,
)

TWO = SHARES["ragged shares, unequal counts"]


class Net(nn.Module):
    """Calls two layers through ``step`` and returns the loss of every sample."""

    def __init__(self, layer, step, layers=2):
        super().__init__()
        self.blocks = nn.ModuleList(layer() for _ in range(layers))
        self.step = step
        self.first, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, y):
        x = self.first(x)  # a reentrant checkpoint gives no gradient if its input wants none
        extra = x.new_zeros(())
        for block in self.blocks:
            x, more = self.step(block, x)
            extra = extra + more
        return (self.out(x) - y).square().flatten(1).mean(1) + extra


class Attention(nn.Module):
    """Takes a (sequence, sequence) mask; sequence equals a local batch in the tests."""

    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x, mask):
        scores = self.q(x) @ self.k(x).transpose(1, 2) + mask
        return x + scores.softmax(-1) @ x


def with_mask(block, x):
    mask = torch.full((SEQUENCE, SEQUENCE), -9.0, dtype=x.dtype).triu(1)
    return block(x, mask), 0


class Nested(nn.Module):
    """Arguments in tuples and dicts, None, flags; returns a dict."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(WIDTH, WIDTH)

    def forward(self, pair, *, options, nothing=None, scale=1.0):
        (x, shift), name = pair
        assert nothing is None and name == "name"
        y = torch.tanh(self.lin(x) * scale + shift) * options["gate"]
        return {"y": y, "rest": (x, None, "text")}


def nested(block, x):
    options = {"gate": torch.linspace(0.5, 1.5, WIDTH, dtype=x.dtype), "flag": True}
    shift = x.mean(1, keepdim=True)
    out = block(((x, shift), "name"), options=options, nothing=None, scale=1.5)
    assert out["rest"][1:] == (None, "text")
    return out["y"] + out["rest"][0], 0


class WithAux(nn.Module):
    """Also returns a scalar that goes into the loss; it is a mean over samples."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        y = torch.tanh(self.lin(x))
        return y, 0.1 * y.square().mean()


def twice(block, x):
    return block(block(x)), 0


class Identity(nn.Module):
    """Gives back what it got, and holds parameters that nothing uses."""

    def __init__(self):
        super().__init__()
        self.unused = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x


class HalfUsed(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + torch.tanh(self.used(x))


class WithBuffer(nn.Module):
    """A constant buffer, and one that its forward writes: that one cannot be cut or run again."""

    def __init__(self, counts):
        super().__init__()
        self.lin, self.counts = nn.Linear(WIDTH, WIDTH), counts
        self.register_buffer("gate", torch.linspace(0.5, 1.5, WIDTH, dtype=torch.float64))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        if self.counts:
            self.calls += 1
        return x + torch.tanh(self.lin(x) * self.gate)


def checkpointed(block, x, reentrant):
    return torch.utils.checkpoint.checkpoint(block, x, use_reentrant=reentrant), 0


def pair_checkpointed(block, x):
    """Checkpoints a function over the unit, which is not recognised and costs a forward more."""
    return torch.utils.checkpoint.checkpoint(lambda x: block(x) * 1.5, x, use_reentrant=False), 0


def plain(block, x):
    return block(x), 0


def net(layer, step=plain, units=lambda m: [*m.blocks, m], **options):
    return Case(build=lambda: Net(layer, step), units=units, data=vectors, **options)


CASES = {
    "mask of sequence by sequence": net(Attention, with_mask),
    "nested arguments": net(Nested, nested),
    "a scalar beside the output": net(WithAux, lambda block, x: block(x)),
    "a unit called twice": net(Block, twice),
    "a unit that gives back its input": net(Identity),
    "a parameter that nothing uses": net(HalfUsed),
    "buffers": net(functools.partial(WithBuffer, False)),
    "reentrant checkpoint": net(Block, functools.partial(checkpointed, reentrant=True)),
    "checkpoint": net(Block, functools.partial(checkpointed, reentrant=False)),
    "checkpoint of a function": net(Block, pair_checkpointed),
    "checkpoint of a unit that is called twice": net(
        Block, lambda block, x: (torch.utils.checkpoint.checkpoint(twice, block, x, use_reentrant=False)[0], 0)
    ),
    "checkpoint of a unit with a scalar beside": net(
        WithAux, lambda block, x: torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
    ),
    "checkpoint wrapper": net(lambda: checkpoint_wrapper(Block())),
    "reentrant checkpoint wrapper": net(
        lambda: checkpoint_wrapper(Block(), CheckpointImpl.REENTRANT)
    ),
    "shells": net(
        lambda: nn.Sequential(Block(), Block()),
        units=lambda m: [*(x for s in m.blocks for x in (*s, s)), m],
    ),
    "a shell with parameters of its own": net(
        lambda: nn.Sequential(Block(), nn.Linear(WIDTH, WIDTH), Block()),
        units=lambda m: [*(x for s in m.blocks for x in (s[0], s[2], s)), m],
    ),
}  # fmt: skip


@functools.cache
def reference(name):
    return one_process(CASES[name])


@pytest.mark.parametrize("activations", ["recompute", "keep"])
@pytest.mark.parametrize("name", CASES)
def test_calls(ranks, name, activations):
    plan = plan_of(TWO, activations)
    assert SEQUENCE == plan.batches[0], "the mask's size is a local batch"
    assert_equal(ranks(2, on_rank, CASES[name], plan)[0], reference(name))


@pytest.mark.parametrize("name", CASES)
def test_calls_where_one_rank_has_all(ranks, name):
    assert_equal(ranks(1, on_rank, CASES[name], plan_of(ALONE, "keep"))[0], reference(name))


def _mask_from_the_script(plan):
    """The mask comes in through the root, and its size is the batch of every rank."""
    install(plan)
    torch.manual_seed(0)

    class Root(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(Attention() for _ in range(2))

        def forward(self, x, y, mask):
            for block in self.blocks:
                x = block(x, mask)
            return (x - y).square().flatten(1).mean(1)

    case = Case(build=Root, data=vectors)
    torch.manual_seed(0)
    alone = Root().double()
    model, mask = build(case), torch.full((SEQUENCE, SEQUENCE), -9.0).double().triu(1)
    x, y = vectors(torch.Generator().manual_seed(5), plan.global_batch, torch.float64)
    mine = own_part(plan, dist.get_rank(), [x, y])
    model(*mine, mask).mean().backward()
    alone(x, y, mask).mean().backward()
    signatures = state_of(model).engine.signatures
    assert all(
        s.layered and s.cut == (True, False) for u, s in signatures.items() if u.kind == "Attention"
    )
    for got, wanted in zip(model.parameters(), alone.parameters()):
        assert torch.allclose(got.grad.full_tensor(), wanted.grad, rtol=1e-9)


def test_a_mask_from_the_script(ranks):
    ranks(2, _mask_from_the_script, plan_of(([6, 6], [[2, 4], [6]], [400_000, 600_000])))


def _counting(plan, wrap, interception):
    """How often the wrapped block runs in one training step; what is right about gradients is
    tested above."""
    made = install(plan)
    feed = Feed(plan, dist.get_rank())
    patches = intercept.install(feed, lambda loss: None) if interception else None
    calls = []

    class Counted(Block):
        def forward(self, x):
            calls.append(x.shape[0])
            return super().forward(x)

    step = functools.partial(checkpointed, reentrant=False) if wrap == "function" else plain
    layer = (lambda: checkpoint_wrapper(Counted())) if wrap == "wrapper" else Counted
    model = build(net(layer, step))
    if wrap == "outside":
        model.blocks = nn.ModuleList(checkpoint_wrapper(b) for b in model.blocks)
    x, y = vectors(torch.Generator().manual_seed(5), plan.global_batch, torch.float64)
    mine = own_part(plan, dist.get_rank(), [x, y])
    model(*mine).mean().backward()
    calls.clear()
    model(*mine).mean().backward()
    if patches is not None:
        patches.undo()
    del made
    return calls


@pytest.mark.parametrize("wrap", ["none", "wrapper", "outside", "function"])
@pytest.mark.parametrize("activations", ["recompute", "keep"])
def test_the_scripts_checkpointing_is_not_paid_twice(ranks, wrap, activations):
    plan = plan_of(TWO, activations)
    forwards = 1 if activations == "keep" else 2
    for calls, part in zip(ranks(2, _counting, plan, wrap, True), plan.ranks):
        micro = list(part.micro_batches)
        again = micro[::-1] if forwards == 2 else []
        assert calls == micro * 2 + again * 2


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.norm = nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH)

    def forward(self, x):
        return x + self.norm(self.lin(x).transpose(1, 2)).transpose(1, 2)


def _batch_norm(plan):
    case = net(Normed)
    result = on_rank(case, plan)
    torch.manual_seed(0)
    return result


def test_batch_norm_sees_the_whole_local_batch(ranks):
    plan = plan_of(SHARES["one rank, smaller last microbatch"])
    assert_equal(ranks(1, _batch_norm, plan)[0], one_process(net(Normed)))


def _running_statistics(plan):
    install(plan)
    model = build(net(Normed))
    counting = build(net(functools.partial(WithBuffer, True)))
    x, y = vectors(torch.Generator().manual_seed(5), BATCH, torch.float64)
    for _ in range(3):
        model(x, y).mean().backward()
        counting(x, y).mean().backward()
    return model.blocks[0].norm.num_batches_tracked.item(), counting.blocks[1].calls.item()


def test_buffers_are_written_once_a_step(ranks):
    plan = plan_of(SHARES["one rank, smaller last microbatch"])
    assert ranks(1, _running_statistics, plan) == [(3, 3)]


class Branch(nn.Module):
    """Uses its second layer on some ranks only, or never."""

    ranks: tuple[int, ...] = ()

    def __init__(self):
        super().__init__()
        self.always, self.sometimes = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        x = x + torch.tanh(self.always(x))
        return x + self.sometimes(x) if dist.get_rank() in self.ranks else x


def _branch(plan, ranks_that_use):
    Branch.ranks = ranks_that_use
    install(plan)
    model = build(net(Branch))
    x, y = vectors(torch.Generator().manual_seed(5), plan.global_batch, torch.float64)
    mine = own_part(plan, dist.get_rank(), [x, y])
    model(*mine).mean().backward()
    grads = {}
    for name, p in model.named_parameters():
        grads[name] = None if p.grad is None else p.grad.full_tensor()
    return grads


@pytest.mark.parametrize("used_on", [(0,), (1,), (0, 1), ()])
def test_user_case_21_a_parameter_used_on_some_ranks(ranks, used_on):
    plan = plan_of(TWO)
    got = ranks(2, _branch, plan, used_on)[0]
    torch.manual_seed(0)
    model = Net(Branch, plain).double()
    x, y = vectors(torch.Generator().manual_seed(5), BATCH, torch.float64)
    uses = torch.cat(
        [torch.full((b, 1, 1), float(r in used_on)) for r, b in enumerate(plan.batches)]
    )

    def forward(self, x):
        x = x + torch.tanh(self.always(x))
        return x + self.sometimes(x) * uses

    for block in model.blocks:
        block.forward = functools.partial(forward, block)
    model(x, y).mean().backward()
    for name, p in model.named_parameters():
        if "sometimes" in name and not used_on:
            assert got[name] is None, "no rank used it: no zeros, which an optimizer would decay"
        else:
            assert torch.allclose(got[name], p.grad, rtol=1e-9, atol=1e-12), name


def test_the_plain_blocks_are_what_the_counting_ones_are():
    assert isinstance(Model().blocks[0], Block) and F.gelu(torch.zeros(1)).item() == 0
