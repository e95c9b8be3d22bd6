"""What a script sees of a sharded module, and what it may do to it between steps."""

from __future__ import annotations

import copy
import dataclasses
import io
import weakref
from collections import OrderedDict

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from cephalo import intercept, runtime, sharding
from cephalo.data import Feed
from cephalo.module import state_of
from cephalo.ragged import RaggedDTensor
from training import (
    ALONE,
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
    sgd,
    tokens,
)

PLAN = plan_of(SHARES["ragged shares, unequal counts"])
KEEP = plan_of(SHARES["ragged shares, unequal counts"], "keep")
UNTIED = Case(build=lambda: Model(tied=False))


class Twin:
    """A sharded model and the plain one it must behave like; batches for both."""

    def __init__(self, case=UNTIED, plan=None):
        plan = plan or PLAN
        self.runtime = install(plan)
        self.plan, self.case = plan, case
        self.model = build(case)
        torch.manual_seed(0)
        self.plain = case.build().to(case.dtype)
        self.optimizers = [case.optimizer(m.parameters()) for m in (self.model, self.plain)]
        self.generator = torch.Generator().manual_seed(7)

    def batch(self):
        """(this rank's batch, the global one)."""
        whole = self.case.data(self.generator, self.plan.global_batch, self.case.dtype)
        return own_part(self.plan, dist.get_rank(), whole), whole

    def losses(self, batches=None):
        mine, whole = batches or self.batch()
        return self.model(*mine).mean(), self.plain(*whole).mean()

    def step(self):
        for loss in self.losses():
            loss.backward()
        self.check_gradients()
        self.update()

    def update(self):
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()

    def check_gradients(self):
        for (name, p), q in zip(
            self.model.named_parameters(), self.plain.parameters(), strict=True
        ):
            if q.grad is None:
                assert p.grad is None, name
            else:
                assert torch.allclose(full(p.grad), q.grad, rtol=1e-9, atol=1e-13), name

    def check_parameters(self):
        for (name, p), q in zip(
            self.model.named_parameters(), self.plain.parameters(), strict=True
        ):
            assert torch.allclose(full(p), q, rtol=1e-9, atol=1e-13), name

    def finish(self, steps=2):
        for _ in range(steps):
            self.step()
        self.check_parameters()


def _class_and_names():
    twin = Twin(Case())
    model, plain = twin.model, twin.plain
    assert isinstance(model, FSDPModule) and isinstance(model, Model)
    assert type(model).__name__ == "FSDPModel" and type(model.blocks[0]).__name__ == "FSDPBlock"
    assert [n for n, _ in model.named_parameters()] == [n for n, _ in plain.named_parameters()]
    assert list(model.state_dict()) == list(plain.state_dict())
    assert model.head.weight is model.embed.weight, "ties hold"
    for (_, p), q in zip(model.named_parameters(), plain.parameters()):
        assert isinstance(p, DTensor) and p.shape == q.shape and p.dim() == q.dim()
        assert isinstance(p, RaggedDTensor) == (q.dim() > 0) and p.is_leaf and p.requires_grad
    assert isinstance(model.blocks[:2], nn.ModuleList) and not isinstance(
        model.blocks[:2], FSDPModule
    )
    with pytest.raises(AssertionError, match="deepcopy"):
        copy.deepcopy(model)
    twin.finish()


def _every_method_is_ours():
    for name, value in vars(FSDPModule).items():
        if callable(value) and not name.startswith("__"):
            assert name in vars(type(Twin().model).__mro__[1]) or name in (
                "_set_unshard_async_op",
            ), f"FSDPModule.{name} would reach FSDP2's own state"
    model = Twin().model
    model.set_modules_to_forward_prefetch([model.blocks[1]])
    model.set_reshard_after_backward(False, recurse=False)
    model.set_is_last_backward(True)
    for name in ("set_custom_all_gather", "set_all_reduce_hook", "set_custom_reduce_scatter"):
        if hasattr(FSDPModule, name):
            with pytest.raises(NotImplementedError, match=f"FSDPModule.{name} is not supported"):
                getattr(model, name)(None)
    with pytest.raises(NotImplementedError, match="private state"):
        model._get_fsdp_state()


def _accumulation():
    twin = Twin()
    for _ in range(2):
        batches = [twin.batch() for _ in range(3)]
        for at, batch in enumerate(batches):
            twin.model.set_requires_gradient_sync(at == 2)
            for loss in twin.losses(batch):
                (loss / 3).backward()
            if at < 2:
                assert all(p.grad is None for p in twin.model.parameters())
        twin.check_gradients()
        twin.update()
    twin.check_parameters()


def _accumulation_into_grad():
    """Without asking for less synchronisation gradients add up in ``grad``."""
    twin = Twin()
    for _ in range(2):
        for _ in range(2):
            for loss in twin.losses():
                (loss / 2).backward()
        twin.check_gradients()
        for optimizer in twin.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
    twin.check_parameters()


def _divide_factor():
    twin, world = Twin(), dist.get_world_size()
    twin.model.set_gradient_divide_factor(2.0)
    twin.model.blocks[1].set_gradient_divide_factor(4.0)
    mine, whole = twin.batch()
    twin.model(*mine).mean().backward()
    ranks = [own_part(twin.plan, r, whole) for r in range(world)]
    sum(twin.plain(*part).mean() for part in ranks).backward()
    for (name, p), q in zip(twin.model.named_parameters(), twin.plain.parameters()):
        if name.startswith("blocks.1."):
            wanted = q.grad / 4
        elif name.startswith("blocks."):
            continue
        else:
            wanted = q.grad / 2
        assert torch.allclose(full(p.grad), wanted, rtol=1e-9, atol=1e-13), name


def _mean_weighting():
    """For scripts that divide by a global count themselves."""
    runtime.install(None)
    twin = Twin()
    made = install(PLAN, weighting="mean")
    assert runtime.current() is made
    twin.model = build(UNTIED)
    mine, whole = twin.batch()
    scale = dist.get_world_size() / PLAN.global_batch
    (twin.model(*mine).sum() * scale).backward()
    twin.plain(*whole).mean().backward()
    twin.check_gradients()


def _two_forwards_one_backward():
    for plan in (PLAN, KEEP):
        twin = Twin(plan=plan)
        for _ in range(2):
            one, two = twin.losses(), twin.losses()
            for a, b in zip(one, two):
                (a + b * 2).backward()
            twin.check_gradients()
            twin.update()
        twin.finish()


def _two_forwards_two_backwards():
    units = lambda m: [m.embed, *m.blocks, [m.norm, m.head], m]  # noqa: E731
    for plan in (PLAN, KEEP):
        twin = Twin(Case(build=UNTIED.build, units=units), plan)
        for order in ((0, 1), (1, 0)):
            pairs = [twin.losses(), twin.losses()]
            for at in order:
                for loss in pairs[at]:
                    loss.backward()
            twin.check_gradients()
            twin.update()
        twin.finish()


def _evaluation_between():
    twin = Twin()
    for _ in range(2):
        losses, extra = twin.losses(), twin.batch()
        with torch.no_grad():
            got, wanted = (m(*b) for m, b in zip((twin.model, twin.plain), extra))
        start = sum(PLAN.batches[: dist.get_rank()])
        assert torch.allclose(got, wanted[start : start + len(got)], rtol=1e-9)
        twin.model.eval()
        with torch.inference_mode():
            assert torch.allclose(twin.model(*extra[0]), got)
        twin.model.train()
        for loss in losses:
            loss.backward()
        twin.check_gradients()
        twin.update()
    twin.check_parameters()


def _evaluation_first():
    twin = Twin()
    with torch.no_grad():
        twin.model(*twin.batch()[0])
    assert all(isinstance(p, DTensor) for p in twin.model.parameters())
    twin.finish()


def _forward_without_backward():
    for plan in (PLAN, KEEP):
        twin = Twin(
            Case(build=UNTIED.build, units=lambda m: [m.embed, *m.blocks, [m.norm, m.head], m]),
            plan,
        )
        twin.step()
        twin.model(*twin.batch()[0])
        twin.finish()
        left = twin.model(*twin.batch()[0])
        del left
        twin.model.reset_iter_state()
        assert all(isinstance(p, DTensor) for p in twin.model.parameters())
        twin.finish()


def _state_dict_between():
    twin = Twin()
    losses = twin.losses()
    before = {n: full(v) for n, v in twin.model.state_dict().items()}
    for (name, value), q in zip(before.items(), twin.plain.state_dict().values()):
        assert torch.equal(value, q), name
    for loss in losses:
        loss.backward()
    twin.check_gradients()
    twin.update()
    twin.finish()


def _broken_backward():
    """A backward that raises leaves a model that can be reset and trained."""
    twin = Twin()
    twin.step()
    mine, _ = twin.batch()

    def fail(grad):
        raise ZeroDivisionError

    handle = twin.model.blocks[1].register_full_backward_pre_hook(lambda *_: fail(None))
    loss = twin.model(*mine)
    with pytest.raises(ZeroDivisionError):
        loss.mean().backward()
    handle.remove()
    twin.model.reset_iter_state()
    twin.finish()


def _backward_twice():
    for plan, message in ((PLAN, None), (KEEP, "kept" if KEEP.world_size > 1 else None)):
        twin = Twin(plan=plan)
        one, other = twin.losses()
        one.backward(retain_graph=True)
        other.backward(retain_graph=True)
        if message is None:
            one.backward()
            other.backward()
            twin.check_gradients()
        else:
            with pytest.raises(RuntimeError, match=message):
                one.backward()
            twin.model.reset_iter_state()


def _unshard_and_reshard():
    twin = Twin()
    block, plain = twin.model.blocks[0], twin.plain.blocks[0]
    for asynchronous in (False, True):
        handle = block.unshard(async_op=asynchronous)
        if asynchronous:
            handle.wait()
        assert not isinstance(block.up.weight, DTensor)
        assert torch.equal(block.up.weight, plain.up.weight)
        block.reshard()
        assert isinstance(block.up.weight, DTensor)
    block.unshard()
    assert all(isinstance(v, DTensor) for v in block.state_dict().values())
    twin.step()
    twin.model.unshard()
    assert torch.equal(twin.model.embed.weight, full(twin.plain.embed.weight)) or torch.allclose(
        twin.model.embed.weight, twin.plain.embed.weight, rtol=1e-9
    )
    twin.model.load_state_dict(twin.model.state_dict())
    twin.finish()


class Encoder(Model):
    def encode(self, tokens):
        return self.features(tokens)


def _forward_method():
    twin = Twin(Case(build=lambda: Encoder(tied=False)))
    patches = intercept.install(Feed(PLAN, dist.get_rank()), lambda loss: None)
    from torch.distributed import fsdp

    fsdp.register_fsdp_forward_method(twin.model, "encode")
    fsdp.register_fsdp_forward_method(twin.plain, "encode")
    patches.undo()
    assert fsdp.register_fsdp_forward_method is register_fsdp_forward_method
    for _ in range(2):
        mine, whole = twin.batch()
        twin.model.encode(mine[0]).square().mean().backward()
        twin.plain.encode(whole[0]).square().mean().backward()
        twin.check_gradients()
        twin.update()
    twin.finish()


def _unit_outside_of_its_root():
    twin = Twin()
    twin.step()
    with pytest.raises(
        RuntimeError, match="Block is called outside of the forward of its root Model"
    ):
        twin.model.blocks[0](torch.zeros(2, 6, WIDTH).double())
    twin.finish()


@dataclasses.dataclass
class Output:
    loss: torch.Tensor
    logits: torch.Tensor | None = None


class Dictionary(OrderedDict):
    """As Transformers' class for outputs."""


class Named(Model):
    kind: type = Output

    def __init__(self):
        super().__init__(tied=False)

    def forward(self, tokens, targets):
        return self.kind(loss=super().forward(tokens, targets).mean())


class NamedInDictionary(Named):
    kind = Dictionary


def _outputs_with_names():
    for kind in (Named, NamedInDictionary):
        twin = Twin(Case(build=kind))
        for _ in range(2):
            mine, whole = twin.batch()
            for output in (twin.model(*mine), twin.plain(*whole)):
                loss = output.loss if isinstance(output, Output) else output["loss"]
                loss.backward()
            twin.check_gradients()
            twin.update()
        twin.check_parameters()


def _two_roots():
    """Two models, each its own root, in one loss, as adversarial training has them."""
    one, two = Twin(), Twin()
    for _ in range(2):
        batches = one.batch()
        for a, b in zip(one.losses(batches), two.losses(batches)):
            (a + 3 * b).backward()
        for twin in (one, two):
            twin.check_gradients()
            twin.update()


def _meta():
    with torch.device("meta"):
        model = Model(tied=False).double()
    install(PLAN)
    for unit in (*model.blocks, model):
        sharding.fully_shard(unit)
    assert all(p.is_meta for p in model.parameters())
    batch = own_part(PLAN, dist.get_rank(), tokens(torch.Generator().manual_seed(7), 9, None))
    with pytest.raises(RuntimeError, match="meta device at the first forward: .*call to_empty"):
        model(*batch)
    optimizer = sgd(model.parameters())
    kept = list(model.parameters())
    model.to_empty(device="cpu")
    assert all(a is b for a, b in zip(kept, model.parameters())), "an optimizer may hold them"
    twin = Twin()
    with torch.no_grad():
        for p, q in zip(model.parameters(), twin.plain.parameters()):
            p.copy_(q)
    twin.model, twin.optimizers[0] = model, optimizer
    twin.finish()


def _initialised_in_place():
    """nn.init on the sharded parameters draws what one process draws."""
    twin = Twin()
    for model in (twin.model, twin.plain):
        torch.manual_seed(3)
        for p in model.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.1)
            elif p.dim() == 1:
                nn.init.uniform_(p, -0.1, 0.1)
            else:
                nn.init.constant_(p, 0.7)
    twin.check_parameters()
    twin.finish()


def changed(state):
    """Other values of the same shapes, whole, the same on every rank."""
    generator = torch.Generator().manual_seed(11)
    return {
        n: (0.3 * torch.randn(v.shape, generator=generator, dtype=torch.float64)).to(v.dtype)
        for n, v in state.items()
    }


def _load(assign, kind):
    twin = Twin()
    twin.step()
    values = changed(twin.plain.state_dict())
    twin.plain.load_state_dict(values)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    if kind == "even":
        values = {
            n: distribute_tensor(v, mesh, [Shard(0)]) if v.dim() else v for n, v in values.items()
        }
    twin.model.load_state_dict(values, assign=assign)
    shapes = [p.rows for p in twin.model.parameters() if p.dim()]
    plan = [
        u.layout.rows_of(s)
        for u in (b for e in _units(twin.model) for b in e.buffers)
        for s in u.layout.spans
    ]
    assert sorted(shapes) == sorted(plan), "the plan's layout stays"
    twin.check_parameters()
    if assign:  # as everywhere: the optimizer is made after a load that replaces parameters
        twin.optimizers[0] = sgd(twin.model.parameters())
        twin.optimizers[1] = sgd(twin.plain.parameters())
    twin.finish()


def _units(model):
    return list(dict.fromkeys(s.unit for s in map(state_of, model.modules()) if s is not None))


def _load_between_forward_and_step():
    """A load while parameters are gathered must not end in the gathered copy."""
    twin = Twin()
    twin.model(*twin.batch()[0])
    values = changed(twin.plain.state_dict())
    twin.plain.load_state_dict(values)
    twin.model.load_state_dict(values)
    twin.check_parameters()
    twin.finish()


def _saved_whole():
    twin = Twin()
    twin.step()
    file = io.BytesIO()
    torch.save(twin.model.state_dict(), file)
    other = Twin()
    file.seek(0)
    other.model.load_state_dict(torch.load(file, weights_only=True))
    other.plain.load_state_dict(twin.plain.state_dict())
    other.finish()


def _other_dtype():
    twin = Twin()
    twin.step()
    for model in (twin.model, twin.plain):
        model.to(torch.float32)
    assert all(p.dtype == torch.float32 for p in twin.model.parameters())
    losses = twin.losses()
    for loss in losses:
        loss.backward()
    assert abs(losses[0].item()) > 0
    for p, q in zip(twin.model.parameters(), twin.plain.parameters()):
        assert p.grad.dtype == torch.float32 and torch.allclose(
            full(p.grad), q.grad, rtol=1e-4, atol=1e-6
        )


def _data_replaced():
    twin = Twin()
    twin.step()
    for model in (twin.model, twin.plain):
        for p in model.parameters():
            if p.dim():  # stock DTensors, as scalars are, do not hear of it
                p.data = p.data * 0.5
    twin.finish()


def _refusals():
    install(PLAN)
    mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("a", "b"))
    cases = [
        (lambda m: sharding.fully_shard(m, mesh=mesh), NotImplementedError, "mesh of 2 dimensions"),
        (lambda m: sharding.fully_shard(m, mesh=mesh["a"]), NotImplementedError, "mesh of 1 of 2 ranks"),
        (lambda m: sharding.fully_shard(m, offload_policy=CPUOffloadPolicy()), NotImplementedError, "CPUOffloadPolicy"),
        (lambda m: sharding.fully_shard(m, dp_mesh_dims=object()), NotImplementedError, "dp_mesh_dims"),
        (lambda m: sharding.fully_shard(m, shard_placement_fn=lambda p: Shard(1)), NotImplementedError, "shard_placement_fn"),
        (lambda m: sharding.fully_shard(m.blocks), ValueError, "ModuleList: it has no forward"),
        (lambda m: sharding.fully_shard([]), ValueError, "at least one module"),
    ]  # fmt: skip
    for call, kind, message in cases:
        with pytest.raises(kind, match=message):
            call(Model())
    sharded = sharding.fully_shard(Model(), offload_policy=OffloadPolicy())
    with pytest.raises(ValueError, match="already been sharded"):
        sharding.fully_shard(sharded)
    tied = Model()
    sharding.fully_shard(tied.head)
    with pytest.raises(ValueError, match="embed.weight is tied to weight, which another unit owns"):
        sharding.fully_shard(tied)
    parallel = Model()
    whole = init_device_mesh("cpu", (2,))
    parallel.head.weight = nn.Parameter(distribute_tensor(torch.zeros(4, 4), whole, [Shard(0)]))
    with pytest.raises(NotImplementedError, match="is a DTensor already"):
        sharding.fully_shard(parallel)
    sparse = nn.Embedding(5, 4, sparse=True)
    install(PLAN)
    sharding.fully_shard(sparse)
    with pytest.raises(RuntimeError, match="sparse gradient"):
        sparse(torch.tensor([[1], [2]])).sum().backward()


def _ignored():
    twin = Twin()
    twin.model = Model(tied=False).double()
    twin.model.load_state_dict(twin.plain.state_dict())
    for block in twin.model.blocks:
        sharding.fully_shard(block)
    sharding.fully_shard(twin.model, ignored_params={twin.model.head.weight})
    assert type(twin.model.head.weight) is nn.Parameter
    mine, _ = twin.batch()
    twin.model(*mine).mean().backward()
    assert type(twin.model.head.weight.grad) is torch.Tensor


def _gone_when_dropped():
    install(PLAN)
    model = build(UNTIED)
    block = weakref.ref(model.blocks[0])
    mine = own_part(PLAN, dist.get_rank(), tokens(torch.Generator().manual_seed(7), 9, None))
    model(*mine).mean().backward()
    del model
    import gc

    gc.collect()
    assert block() is None, "a model that the script drops is freed"


def _agreement():
    """A model that differs by rank is refused on every rank, with the ranks named."""
    install(PLAN)
    model = build(UNTIED)
    mine = own_part(PLAN, dist.get_rank(), tokens(torch.Generator().manual_seed(7), 9, None))
    kwargs = {"targets": mine[1]} if dist.get_rank() else {}
    args = mine[:1] if dist.get_rank() else mine
    with pytest.raises(RuntimeError, match=r"ranks \[1\] differ from rank 0 in the arguments"):
        model(*args, **kwargs)


def _policy_is_per_unit():
    install(PLAN)
    model = Model(tied=False)
    sharding.fully_shard(
        model.blocks[0], mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    )
    sharding.fully_shard(model)
    kinds = {}
    for block in model.blocks:
        block.norm.register_forward_pre_hook(
            lambda m, a: kinds.setdefault(m, (a[0].dtype, m.weight.dtype)) and None
        )
    mine = own_part(PLAN, dist.get_rank(), tokens(torch.Generator().manual_seed(7), 9, None))
    model(*mine).mean().backward()
    assert kinds[model.blocks[0].norm] == (torch.bfloat16, torch.bfloat16)
    assert kinds[model.blocks[1].norm][1] == torch.float32 and isinstance(model.blocks[1], Block)


CASES = [
    _class_and_names, _every_method_is_ours, _accumulation, _accumulation_into_grad, _divide_factor,
    _mean_weighting, _two_forwards_one_backward, _two_forwards_two_backwards, _evaluation_between,
    _evaluation_first, _forward_without_backward, _state_dict_between, _broken_backward,
    _backward_twice, _unshard_and_reshard, _forward_method, _unit_outside_of_its_root, _two_roots,
    _meta, _initialised_in_place, _load_between_forward_and_step, _saved_whole, _other_dtype,
    _data_replaced, _refusals, _ignored, _gone_when_dropped, _agreement, _policy_is_per_unit, _outputs_with_names,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda f: f.__name__.strip("_"))
def test_module(ranks, case):
    ranks(2, case)


def _where_one_rank_has_all(case, *args):
    global PLAN, KEEP
    PLAN = KEEP = plan_of(ALONE, "keep")
    case(*args)


@pytest.mark.parametrize(
    "case",
    [c for c in CASES if c not in (_agreement, _refusals)],
    ids=lambda f: f.__name__.strip("_"),
)
def test_module_where_one_rank_has_all(ranks, case):
    ranks(1, _where_one_rank_has_all, case)


@pytest.mark.parametrize("kind", ["whole", "even"])
@pytest.mark.parametrize("assign", [False, True])
def test_load_state_dict(ranks, assign, kind):
    ranks(2, _load, assign, kind)
    ranks(1, _where_one_rank_has_all, _load, assign, kind)
