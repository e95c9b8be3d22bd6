"""One rank that owns everything and cuts nothing: the work of plain PyTorch, and its numbers."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.distributed.tensor import DTensor

from cephalo.alone import AloneBuffer, AloneEngine
from cephalo.engine import Engine
from cephalo.module import engine_of, state_of
from operators import Operators
from training import (
    ALONE,
    PPM,
    SHARES,
    VOCAB,
    WIDTH,
    Case,
    Model,
    assert_equal,
    build,
    full,
    install,
    on_rank,
    one_process,
    plan_of,
    sgd,
    tokens,
)

KEEP = plan_of(ALONE, "keep")
HALF = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32}


def adamw(parameters, **options):
    return torch.optim.AdamW(parameters, lr=1e-2, **options)


def model_of(case, plan=KEEP):
    """The sharded model, the plain one, and an optimizer for each."""
    made = install(plan)
    model = build(case)
    torch.manual_seed(0)
    plain = case.build().to(case.dtype)
    return made, model, plain, [case.optimizer(m.parameters()) for m in (model, plain)]


def batches(case, count):
    generator = torch.Generator().manual_seed(5)
    return [case.data(generator, 9, case.dtype) for _ in range(count)]


def same(model, plain, what=lambda p: p):
    for (name, p), q in zip(model.named_parameters(), plain.named_parameters(), strict=True):
        got, wanted = what(p), what(q[1])
        assert (got is None) == (wanted is None), name
        assert got is None or torch.equal(full(got), wanted), name


# -- when ----------------------------------------------------------------------------------------


def kinds(plan):
    install(plan)
    model = build(Case())
    return type(engine_of(model)), {type(b) for u in engine_of(model).units for b in u.buffers}


OTHERS = {
    "recompute": (1, plan_of(ALONE)),
    "offload": (1, plan_of(ALONE, "offload")),
    "microbatches": (1, plan_of(SHARES["one rank, smaller last microbatch"], "keep")),
    "two ranks": (2, plan_of(([5, 4], [[5], [4]], [PPM, 0]), "keep")),
}


def test_where_nothing_is_shared_out_cut_or_run_again(ranks):
    assert ranks(1, kinds, KEEP) == [(AloneEngine, {AloneBuffer})]


@pytest.mark.parametrize("name", OTHERS)
def test_otherwise_units_run_as_ever(ranks, name):
    world, plan = OTHERS[name]
    for engine, buffers in ranks(world, kinds, plan):
        assert engine is Engine and AloneBuffer not in buffers
    assert_equal(ranks(world, on_rank, Case(), plan)[0], one_process(Case()))


# -- the same work -------------------------------------------------------------------------------


def work(case, foreach):
    """Operators of a step after the first, by phase: ours, and plain PyTorch's."""
    _, model, plain, optimizers = model_of(case)
    for optimizer in optimizers:
        optimizer.param_groups[0]["foreach"] = foreach
    counted = []
    for batch in batches(case, 3):
        counted = []
        for one, optimizer in zip((model, plain), optimizers):
            phases = [Operators() for _ in range(4)]
            with phases[0]:
                loss = one(*batch).mean()
            with phases[1]:
                loss.backward()
            with phases[2]:
                nn.utils.clip_grad_norm_(one.parameters(), 0.05)
            with phases[3]:
                optimizer.step()
                optimizer.zero_grad()
            counted.append([[n for n in p.names if n != "detach"] for p in phases])
    return counted


class NoScalar(Model):
    """A 0-dim parameter is no row of anything, and has its own way."""

    def __init__(self):
        super().__init__(lambda: nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)))


@pytest.mark.parametrize("foreach", [True, False])
def test_every_operator_is_one_of_plain_pytorch(ranks, foreach):
    case = Case(build=NoScalar, optimizer=adamw, dtype=torch.float32)
    ours, plain = ranks(1, work, case, foreach)[0]
    assert ours == plain


def copies(case):
    """Operators around a step under mixed precision that plain PyTorch in bf16 does not have."""
    _, model, _, (optimizer, _) = model_of(case)
    found = []
    for batch in batches(case, 3):
        forward, backward = Operators(), Operators()
        with forward:
            loss = model(*batch).mean()
        with backward:
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found = [names.names.count("copy_") for names in (forward, backward)]
        found.append(backward.names.count("_foreach_copy_"))
    return found, len(engine_of(model).units)


def test_mixed_precision_casts_each_unit_once(ranks):
    case = Case(
        build=NoScalar,
        optimizer=adamw,
        dtype=torch.float32,
        options=lambda: {"mp_policy": MixedPrecisionPolicy(**HALF)},
    )
    (forward, backward, together), units = ranks(1, copies, case)[0]
    assert (forward, backward, together) == (units, 0, units)


# -- the same numbers ----------------------------------------------------------------------------


def bits(case, clip, options):
    """Bit for bit what plain PyTorch gives, over several steps with clipping."""
    case.optimizer = lambda parameters: adamw(parameters, **options)
    _, model, plain, optimizers = model_of(case)
    for batch in batches(case, 5):
        for one in (model, plain):
            one(*batch).mean().backward()
            norm = nn.utils.clip_grad_norm_(one.parameters(), clip)
            assert float(full(norm)) > clip
        same(model, plain, lambda p: p.grad)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        same(model, plain)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"fused": True}, {"amsgrad": True}])
def test_bits_of_plain_pytorch(ranks, dtype, options):
    ranks(1, bits, Case(build=NoScalar, dtype=dtype), 0.05, options)


def mixed(accumulate, synced):
    """Weights, gradients and state in fp32, computing in bf16; gradients add up in fp32."""
    case = Case(
        build=NoScalar,
        optimizer=adamw,
        dtype=torch.float32,
        options=lambda: {"mp_policy": MixedPrecisionPolicy(**HALF)},
    )
    _, model, plain, optimizers = model_of(case)
    for step in range(5):
        for at, batch in enumerate(batches(case, step + accumulate)[-accumulate:]):
            model.set_requires_gradient_sync(synced or at == accumulate - 1)
            (model(*batch).mean() / accumulate).backward()
            half = copy.deepcopy(plain).bfloat16()
            (half(*batch).mean() / accumulate).backward()
            for p, q in zip(plain.parameters(), half.parameters(), strict=True):
                p.grad = q.grad.float() if p.grad is None else p.grad + q.grad.float()
        same(model, plain, lambda p: p.grad)
        assert all(p.grad.dtype == torch.float32 for p in model.parameters())
        for one, optimizer in zip((model, plain), optimizers):
            nn.utils.clip_grad_norm_(one.parameters(), 0.05)
            optimizer.step()
            optimizer.zero_grad()
            for p in half.parameters():
                p.grad = None
        same(model, plain)


@pytest.mark.parametrize("accumulate, synced", [(1, True), (3, True), (3, False)])
def test_mixed_precision(ranks, accumulate, synced):
    ranks(1, mixed, accumulate, synced)


def all_half():
    """Parameters in bf16 themselves: gradients that wait are added up in fp32."""
    case = Case(build=NoScalar, optimizer=sgd, dtype=torch.bfloat16)
    _, model, plain, _ = model_of(case)
    sums = [torch.zeros_like(q, dtype=torch.float32) for q in plain.parameters()]
    for at, batch in enumerate(batches(case, 4)):
        model.set_requires_gradient_sync(at == 3)
        for one in (model, plain):
            one(*batch).mean().backward()
        for total, q in zip(sums, plain.parameters()):
            total += q.grad.float()
            q.grad = None
    for p, total in zip(model.parameters(), sums):
        assert torch.equal(full(p.grad), total.bfloat16())


def test_parameters_in_bf16(ranks):
    ranks(1, all_half)


def no_samples(weightless):
    made, model, _, _ = model_of(Case())
    made.samples_of_batch = lambda: 0 if weightless else None
    batch = batches(Case(), 1)[0]
    model(*batch).mean().backward()
    return [p.grad is None for p in model.parameters()]


def test_samples_that_do_not_count_give_no_gradient(ranks):
    assert all(ranks(1, no_samples, True)[0]) and not any(ranks(1, no_samples, False)[0])


# -- what scripts do -----------------------------------------------------------------------------


def not_through_the_root():
    """A loss on what a unit returned, of which the model's own result knows nothing."""
    _, model, plain, optimizers = model_of(Case(build=lambda: Model(tied=False)))
    for batch in batches(Case(), 2):
        for one in (model, plain):
            kept = []
            handle = one.blocks[1].register_forward_hook(lambda m, a, out, k=kept: k.append(out))
            one(*batch)
            handle.remove()
            kept[-1].square().mean().backward()
        same(model, plain, lambda p: p.grad)
        assert model.blocks[2].up.weight.grad is None
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    same(model, plain)


def differentiable_gradients():
    _, model, plain, _ = model_of(Case())
    batch = batches(Case(), 1)[0]
    for one in (model, plain):
        one(*batch).mean().backward(create_graph=True)
    same(model, plain, lambda p: p.grad)
    assert not any(p.grad.requires_grad for p in model.parameters())


def looked_at():
    """Gradients that are held, changed and put back by a script."""
    _, model, plain, optimizers = model_of(Case(build=NoScalar))
    first, second = batches(Case(), 2)
    for one in (model, plain):
        one(*first).mean().backward()
    held = [p.grad for p in model.parameters()]
    assert all(p.grad is g for p, g in zip(model.parameters(), held))
    before = [full(g) for g in held]
    for one in (model, plain):
        for p in one.parameters():
            p.grad.mul_(2.0)
    for one in (model, plain):
        one(*second).mean().backward()
    assert all(p.grad is g for p, g in zip(model.parameters(), held)), "they add up in place"
    same(model, plain, lambda p: p.grad)
    values = [full(g) for g in held]
    for optimizer in optimizers:
        optimizer.zero_grad()
    for one in (model, plain):
        one(*first).mean().backward()
    assert all(torch.equal(full(g), v) for g, v in zip(held, values)), "those of before are theirs"
    assert all(torch.equal(full(p.grad), b) for p, b in zip(model.parameters(), before))
    for one, optimizer in zip((model, plain), optimizers):
        for p in one.parameters():
            p.grad = p.grad * 3.0
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    same(model, plain)
    assert all(not full(p.grad).any() for p in model.parameters())
    model.zero_grad()
    assert all(p.grad is None for p in model.parameters())


def a_penalty_on_the_parameters():
    """Autograd reaches what the script sees, before the model's own gradients and after them."""
    case = Case(build=NoScalar)
    _, model, plain, optimizers = model_of(case)
    for at, batch in enumerate(batches(case, 4)):
        for one, optimizer in zip((model, plain), optimizers):
            penalty = sum((p * p).sum() for p in one.parameters())
            if isinstance(penalty, DTensor):
                penalty = penalty.to_local()
            losses = [penalty, one(*batch).mean()]
            for loss in losses if at % 2 else losses[::-1]:
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    for p, q in zip(model.parameters(), plain.parameters()):
        assert torch.allclose(full(p), q, rtol=1e-12)


def sparse():
    install(KEEP)
    model = Model(tied=False)
    model.embed = nn.Embedding(VOCAB, WIDTH, sparse=True)
    from cephalo import sharding

    sharding.fully_shard(model)
    with pytest.raises(RuntimeError, match=r"embed.weight has a sparse gradient"):
        model(*tokens(torch.Generator().manual_seed(1), 9, None)).mean().backward()


def moved_between_backward_and_step():
    """A gradient stays with its parameter whatever tensor is put under it."""
    _, model, plain, optimizers = model_of(Case(build=NoScalar))
    batch = batches(Case(), 1)[0]
    for one, optimizer in zip((model, plain), optimizers):
        one(*batch).mean().backward()
        for p in one.parameters():
            p.data = p.data * 0.5
        optimizer.step()
        optimizer.zero_grad()
        one(*batch).mean().backward()
    same(model, plain)
    same(model, plain, lambda p: p.grad)


def state_replaced():
    """State that the script loads, changes or throws away is what the next step works with."""
    case = Case(build=NoScalar, optimizer=adamw)
    _, model, plain, optimizers = model_of(case)
    saved = []
    for at, batch in enumerate(batches(case, 6)):
        for i, (one, optimizer) in enumerate(zip((model, plain), optimizers)):
            one(*batch).mean().backward()
            if at == 1:
                saved.append(copy.deepcopy(optimizer.state_dict()))
            if at == 3:
                optimizer.load_state_dict(saved[i])
            if at == 4:
                for p in one.parameters():
                    optimizer.state[p]["exp_avg"] = optimizer.state[p]["exp_avg"] * 2.0
            if at == 5:
                optimizer.state.clear()
            optimizer.step()
            optimizer.zero_grad()
        same(model, plain)
        for p, q in zip(model.parameters(), plain.parameters()):
            for name, value in optimizers[1].state[q].items():
                assert torch.equal(full(optimizers[0].state[p][name]), value), (at, name)


def new_group():
    """Parameters that come to the optimizer later."""
    _, model, plain, _ = model_of(Case(build=NoScalar))
    optimizers = [adamw(m.blocks.parameters()) for m in (model, plain)]
    for at, batch in enumerate(batches(Case(), 3)):
        for one, optimizer in zip((model, plain), optimizers):
            if at == 1:
                optimizer.add_param_group({"params": list(one.norm.parameters()), "lr": 0.5})
            one(*batch).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            one.zero_grad()
        same(model, plain)


SCRIPTS = [
    not_through_the_root, differentiable_gradients, looked_at, a_penalty_on_the_parameters, sparse,
    moved_between_backward_and_step, state_replaced, new_group,
]  # fmt: skip


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda f: f.__name__)
def test_scripts(ranks, script):
    ranks(1, script)


# -- checkpoints ---------------------------------------------------------------------------------

TWO = plan_of(([5, 4], [[2, 2, 1], [4]], [700_000, 300_000]))


def train(plan, folder, load, save, steps):
    """Train on from what ``load`` names; the parameters at the end."""
    case = Case(optimizer=adamw)
    install(plan)
    model = build(case)
    optimizer = adamw(model.parameters())
    if load:
        state, optim = get_state_dict(model, optimizer)
        found = {"model": state, "optim": optim}
        dcp.load(found, checkpoint_id=f"{folder}/{load}")
        set_state_dict(
            model, optimizer, model_state_dict=found["model"], optim_state_dict=found["optim"]
        )
    start = sum(plan.batches[: torch.distributed.get_rank()])
    count = plan.batches[torch.distributed.get_rank()]
    for batch in batches(case, max(steps))[min(steps) : max(steps)]:
        model(*(x[start : start + count] for x in batch)).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    state, optim = get_state_dict(model, optimizer)
    dcp.save({"model": state, "optim": optim}, checkpoint_id=f"{folder}/{save}")
    assert state_of(model).runtime.alone == (plan is KEEP or plan.world_size == 1)
    return {name: full(p) for name, p in model.named_parameters()}


def test_a_checkpoint_of_one_rank_is_one_of_two(ranks, tmp_path):
    folder = str(tmp_path)
    ranks(1, train, KEEP, folder, None, "one", (0, 2))
    ranks(2, train, TWO, folder, "one", "two", (2, 4))
    got = ranks(1, train, KEEP, folder, "two", "three", (4, 6))[0]
    wanted = ranks(1, train, KEEP, folder, None, "whole", (0, 6))[0]
    for name, value in wanted.items():
        assert torch.allclose(got[name], value, rtol=1e-9, atol=1e-12), name
