"""One gather per unit and pass, one reduction per unit and step, whatever the microbatches."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.nn import functional as F

from cephalo import runtime
from cephalo.module import state_of
from training import VOCAB, WIDTH, Case, Model, build, install, own_part, plan_of

LAYERS = 3


def counted(case, plan, steps, accumulate=1):
    """What every step after the first issued: gathers and reductions of units, control sums."""
    made = install(plan)
    model = build(case)
    sums = Counter()
    inner = made.sum_over_ranks

    def sum_over_ranks(values):
        sums["control"] += 1
        return inner(values)

    made.sum_over_ranks = sum_over_ranks
    optimizer = case.optimizer(model.parameters())
    generator, out = torch.Generator().manual_seed(1), []
    for _ in range(steps):
        before = made.comm.counts + sums
        for part in range(accumulate):
            model.set_requires_gradient_sync(part == accumulate - 1)
            batch = case.data(generator, plan.global_batch, case.dtype)
            case.loss(model, *own_part(plan, dist.get_rank(), batch)).backward()
        optimizer.step()
        optimizer.zero_grad()
        out.append(dict(made.comm.counts + sums - before))
    runtime.install(None)
    return out


MICROBATCHES = {
    "one": ([4, 4], [[4], [4]], [500_000, 500_000]),
    "two": ([4, 4], [[2, 2], [3, 1]], [700_000, 300_000]),
    "many": ([4, 4], [[1, 1, 1, 1], [1, 1, 2]], [0, 1_000_000]),
}
BLOCKS_AND_ROOT = {"gather": 2 * LAYERS, "reduce": LAYERS + 1, "control": 1}
"""The root and the last block are gathered once, the other blocks twice."""


@pytest.mark.parametrize("activations", ["recompute", "keep"])
@pytest.mark.parametrize("name", MICROBATCHES)
def test_counts_do_not_depend_on_microbatches(ranks, name, activations):
    plan = plan_of(MICROBATCHES[name], activations)
    for counts in ranks(2, counted, Case(), plan, 3):
        assert counts[1:] == [BLOCKS_AND_ROOT] * 2
        looking = 2 * (LAYERS + 1)  # two forwards to find the batch dimensions
        not_known_to_be_last = 1
        wanted = BLOCKS_AND_ROOT["gather"] + looking + not_known_to_be_last
        assert counts[0]["gather"] == wanted
        assert counts[0]["reduce"] == BLOCKS_AND_ROOT["reduce"]


class Loss(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, x, targets):
        logits = self.head(x)
        return F.cross_entropy(logits.transpose(1, 2), targets, reduction="none").mean(1)


class EndsWithUnit(Model):
    """The result of the last unit is the root's."""

    def __init__(self):
        super().__init__(tied=False)
        self.head = Loss()

    def forward(self, tokens, targets):
        return self.head(self.features(tokens), targets)


@pytest.mark.parametrize("activations", ["recompute", "keep"])
@pytest.mark.parametrize("name", ["one", "two"])
def test_a_unit_that_ends_the_model_is_gathered_once(ranks, name, activations):
    case = Case(build=EndsWithUnit, units=lambda m: [*m.blocks, m.head, m])
    for counts in ranks(2, counted, case, plan_of(MICROBATCHES[name], activations), 3):
        wanted = {"gather": 2 * LAYERS + 2, "reduce": LAYERS + 2, "control": 1}
        assert counts[1:] == [wanted] * 2


def frozen_below():
    model = Model(tied=False)
    model.embed.requires_grad_(False)
    model.blocks[0].requires_grad_(False)
    return model


UNITS = {
    "the root keeps its parameters": (Case(), BLOCKS_AND_ROOT),
    "a group of modules is gathered once": (
        Case(build=lambda: Model(tied=False), units=lambda m: [*m.blocks, [m.norm, m.head], m]),
        {"gather": 2 * LAYERS + 2, "reduce": LAYERS + 2, "control": 1},
    ),
    "a head of its own": (
        Case(build=lambda: Model(tied=False), units=lambda m: [*m.blocks, m.head, m]),
        {"gather": 2 * LAYERS + 1 + 1, "reduce": LAYERS + 2, "control": 1},
    ),
    "an embedding of its own": (
        Case(build=lambda: Model(tied=False), units=lambda m: [m.embed, *m.blocks, m]),
        {"gather": 2 * (LAYERS + 1), "reduce": LAYERS + 2, "control": 1},
    ),
    "nested units": (
        Case(units=lambda m: [*(x for b in m.blocks for x in (b.norm, b.down, b)), m]),
        {"gather": 3 * (2 * LAYERS - 1) + 1, "reduce": 3 * LAYERS + 1, "control": 1},
    ),
    "what has no backward is not gathered for it": (
        Case(build=frozen_below),
        {"gather": 3 + 1 + 2, "reduce": 2 + 1, "control": 1},
    ),
}


@pytest.mark.parametrize("name", UNITS)
def test_units_of_every_kind(ranks, name):
    case, wanted = UNITS[name]
    plan = plan_of(MICROBATCHES["two"])
    for counts in ranks(2, counted, case, plan, 3):
        assert counts[1:] == [wanted] * 2


def test_the_scripts_own_accumulation(ranks):
    plan = plan_of(MICROBATCHES["two"])
    wanted = {k: 2 * v for k, v in BLOCKS_AND_ROOT.items()}
    for counts in ranks(2, counted, Case(), plan, 2, 2):
        assert counts[1] == wanted


def _evaluation(plan):
    made = install(plan)
    model = build(Case())
    batch = own_part(plan, dist.get_rank(), Case().data(torch.Generator().manual_seed(1), 8, None))
    out = []
    for _ in range(3):
        before = made.comm.counts.copy()
        with torch.no_grad():
            model(*batch)
        out.append(dict(made.comm.counts - before))
    return out


def test_evaluation_gathers_once(ranks):
    for counts in ranks(2, _evaluation, plan_of(MICROBATCHES["two"])):
        assert counts == [{"gather": LAYERS + 1}] * 3


def copies_in_a_gather(plan, dtype):
    """How many operators copy or cast in the gather of one unit, and whether it is right."""
    install(plan)
    policy = MixedPrecisionPolicy(param_dtype=dtype)
    model = build(Case(dtype=torch.float32, options=lambda: {"mp_policy": policy}))
    (buffer,) = state_of(model.blocks[0]).unit.buffers
    with torch.profiler.profile() as profile:
        buffer.start_gather()
        buffer.wait()
    gathered = torch.cat([r.compute.detach().reshape(-1).float() for r in buffer.refs])
    moved = sum(e.count for e in profile.key_averages() if e.key == "aten::copy_")
    whole = torch.cat([r.param.full_tensor().detach().reshape(-1) for r in buffer.refs])
    buffer.free()
    runtime.install(None)
    return moved, torch.equal(gathered, whole.to(buffer.compute_dtype).float())


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
@pytest.mark.parametrize("world, activations", [(1, "keep"), (1, "recompute"), (2, "keep")])
def test_a_gather_casts_and_places_the_shard_in_one_pass(ranks, world, activations, dtype):
    plan = plan_of(([8], [[8]], [1_000_000]) if world == 1 else MICROBATCHES["two"], activations)
    nothing_to_do = plan.plain and world == 1 and dtype is None
    for moved, same in ranks(world, copies_in_a_gather, plan, dtype):
        assert same and moved == (0 if nothing_to_do else 1)


def collectives_alone():
    """Collectives of every step on a single rank, and whether its weight is whole."""
    install(plan_of(([8], [[4, 4]], [1_000_000])))
    calls = []
    for name in ("all_reduce", "broadcast", "all_to_all_single"):
        plain = getattr(dist, name)
        setattr(dist, name, lambda *a, f=plain, n=name, **k: calls.append(n) or f(*a, **k))
    case = Case()
    model, out = build(case), []
    plain = case.build().to(case.dtype)
    plain.load_state_dict({k: v.full_tensor() for k, v in model.state_dict().items()})
    generator = torch.Generator().manual_seed(1)
    for _ in range(2):
        calls.clear()
        batch = case.data(generator, 8, case.dtype)
        case.loss(model, *batch).backward()
        out.append(list(calls))
        case.loss(plain, *batch).backward()
    ours = {n: p.grad.full_tensor() for n, p in model.named_parameters()}
    same = all(
        torch.allclose(ours[n], p.grad, rtol=1e-9, atol=1e-12) for n, p in plain.named_parameters()
    )
    runtime.install(None)
    return out, same


def test_a_single_rank_needs_no_collective_once_it_knows_the_batch(ranks):
    (((_, second), same),) = ranks(1, collectives_alone)
    assert same and second == []
