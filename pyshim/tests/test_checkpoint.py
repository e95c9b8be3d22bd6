"""Checkpoints of ragged models: saved under one layout, loaded under any other, bit for bit."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.distributed.checkpoint.state_dict as dsd
from torch import nn
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
)
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from cephalo.ragged import RaggedDTensor
from ragged_cases import LAYOUTS, full, mesh, randoms, rows_for, shard_module

EVEN = "even"  # stock DTensors
KINDS = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.1, amsgrad=True),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
}


class Net(nn.Module):
    """Every shape that is hard to cut: tied, one row, scalar, fewer rows than ranks, a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.norm = nn.LayerNorm(5)
        self.lin = nn.Linear(3, 5)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight
        self.one = nn.Parameter(torch.randn(1, 17))
        self.single = nn.Parameter(torch.randn(1))
        self.scale = nn.Parameter(torch.tensor(2.5))
        self.frozen = nn.Parameter(torch.randn(3, 2), requires_grad=False)
        self.register_buffer("seen", torch.arange(3.0))


def net(layout, seed=0):
    """Return the model in fp64 for ``layout``: None (plain), EVEN, or ragged by weights."""
    torch.manual_seed(seed)
    model = Net().double()
    if layout == EVEN:
        value = {n: distribute_tensor(p.detach(), mesh(), [Shard(0)])
                 for n, p in model.named_parameters() if p.dim()}  # fmt: skip
        for name, tensor in value.items():
            *path, leaf = name.split(".")
            owner = model.get_submodule(".".join(path))
            old = getattr(owner, leaf)
            setattr(owner, leaf, nn.Parameter(tensor, old.requires_grad))
        model.head.weight = model.embed.weight
    elif layout is not None:
        mesh()
        shard_module(model, layout)
    return model


def trained(layout, kind, steps=2):
    """Return model and optimizer after some steps with the same gradients in every layout."""
    model = net(layout)
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = KINDS[kind](params)
    for step in range(steps):
        for p, g in zip(params, randoms([tuple(p.shape) for p in params], 50 + step)):
            p.grad = torch.zeros_like(p)
            with torch.no_grad():
                if type(p) is RaggedDTensor:
                    p.grad.copy_(g)
                elif isinstance(p, DTensor):
                    even = distribute_tensor(g, mesh(), p.placements)
                    p.grad.to_local().copy_(even.to_local())
                else:
                    p.grad.copy_(g)
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


def check(model, optimizer, kind, layout, where=""):
    """Compare parameters and optimizer state bit for bit with one process's, and the layout."""
    reference, stock = trained(None, kind)
    params = dict(model.named_parameters())
    for name, want in reference.named_parameters():
        assert torch.equal(full(params[name]), want.detach()), f"{where} {name}"
        if isinstance(layout, tuple) and want.dim():
            assert params[name].rows == rows_for(want.shape[0], layout), f"{where} {name}"
        if want not in stock.state:
            continue
        for key, value in stock.state[want].items():
            got = optimizer.state[params[name]][key]
            assert torch.equal(full(got), value), f"{where} {name} {key}"
            if isinstance(layout, tuple) and value.dim():
                assert type(got) is RaggedDTensor and got.rows == params[name].rows, (where, key)
    assert model.head.weight is model.embed.weight
    assert torch.equal(model.seen, reference.seen)


def _save(folder, kind, layout, how):
    model, optimizer = trained(layout, kind)
    if how == "get_state_dict":
        state, optim = get_state_dict(model, optimizer)
    else:
        state, optim = model.state_dict(), get_optimizer_state_dict(model, optimizer)
    content = {"model": state, "optim": optim}
    if how == "async":
        dcp.async_save(content, checkpoint_id=folder).result()
    else:
        dcp.save(content, checkpoint_id=folder)


def _load(folder, kind, layout, how):
    model = net(layout, seed=1)
    optimizer = KINDS[kind]([p for p in model.parameters() if p.requires_grad])
    if how == "get_state_dict":
        state, optim = get_state_dict(model, optimizer)
    else:
        state, optim = model.state_dict(), get_optimizer_state_dict(model, optimizer)
    dcp.load({"model": state, "optim": optim}, checkpoint_id=folder)
    dsd.set_state_dict(model, optimizer, model_state_dict=state, optim_state_dict=optim)
    check(model, optimizer, kind, layout, f"{how} {layout}")


MOVES = [
    # saved on, layout, how                  loaded on, layout
    (3, (5, 2, 0), "get_state_dict", [(2, (0, 4)), (1, (1,)), (2, EVEN), (3, (1, 3, 3))]),
    (3, (0, 4, 0), "async", [(2, (1, 1)), (3, EVEN)]),
    (2, EVEN, "state_dict", [(3, (5, 2, 0)), (2, (0, 4))]),
    (1, (1,), "state_dict", [(3, (0, 4, 0)), (1, None)]),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("world,layout,how,loads", MOVES, ids=lambda v: str(v)[:24])
def test_saved_under_one_layout_loaded_under_another(
    ranks, tmp_path, kind, world, layout, how, loads
):
    ranks(world, _save, str(tmp_path), kind, layout, how)
    for other, into in loads:
        ranks(other, _load, str(tmp_path), kind, into, how if how != "async" else "state_dict")


def _save_model(folder):
    model, _ = trained((5, 2, 0), "adamw")
    dcp.save(model.state_dict(), checkpoint_id=folder)


def test_a_checkpoint_holds_the_bare_models_names_and_shapes(ranks, tmp_path):
    ranks(3, _save_model, str(tmp_path / "dcp"))
    dcp_to_torch_save(tmp_path / "dcp", tmp_path / "whole.pt")
    bare, _ = trained(None, "adamw")
    saved = torch.load(tmp_path / "whole.pt", weights_only=True)
    again = net(None, seed=3)
    again.load_state_dict(saved, strict=True)
    for (name, want), got in zip(bare.named_parameters(), again.parameters()):
        assert torch.equal(want, got), name


def _whole_out(world):
    reference, stock = trained(None, "adamw")
    wanted = get_state_dict(reference, stock)
    for layout in LAYOUTS[world]:
        model, optimizer = trained(layout, "adamw")
        for offload in (False, True):
            options = StateDictOptions(full_state_dict=True, cpu_offload=offload)
            got = get_state_dict(model, optimizer, options=options)
            if offload and dist.get_rank():
                assert got == ({}, {})
                continue
            _same(got[0], wanted[0])
            _same(got[1], wanted[1])
        local = get_model_state_dict(model, options=StateDictOptions(cpu_offload=True))
        assert local["lin.weight"].rows == model.lin.weight.rows


def _same(got, want):
    if isinstance(want, dict):
        assert got.keys() == want.keys()
        for key in want:
            _same(got[key], want[key])
    elif isinstance(want, list):
        for a, b in zip(got, want, strict=True):
            _same(a, b)
    elif isinstance(want, torch.Tensor):
        assert type(got) is not RaggedDTensor and torch.equal(got, want)
    else:
        assert got == want


def _whole_in(world):
    reference, stock = trained(None, "adamw")
    for layout in LAYOUTS[world]:
        for broadcast in (False, True):
            for flat in (False, True):
                taken = StateDictOptions(full_state_dict=True, flatten_optimizer_state_dict=flat)
                state, optim = get_state_dict(reference, stock, options=taken)
                if broadcast and dist.get_rank():
                    state, optim = {}, {}
                options = StateDictOptions(
                    full_state_dict=True,
                    broadcast_from_rank0=broadcast,
                    flatten_optimizer_state_dict=flat,
                )
                model = net(layout, seed=1)
                kept = model.lin.weight.to_local().untyped_storage().data_ptr()
                optimizer = KINDS["adamw"]([p for p in model.parameters() if p.requires_grad])
                dsd.set_state_dict(
                    model, optimizer,
                    model_state_dict=state, optim_state_dict=optim, options=options,
                )  # fmt: skip
                check(model, optimizer, "adamw", layout, f"{layout} {broadcast} {flat}")
                assert model.lin.weight.to_local().untyped_storage().data_ptr() == kept


def _assigned(world):
    reference, _ = trained(None, "adamw")
    whole = {k: v.detach().clone() for k, v in reference.state_dict().items()}
    for layout in LAYOUTS[world]:
        even = {
            k: distribute_tensor(v, mesh(), [Shard(0)]) if v.dim() and k != "seen" else v
            for k, v in whole.items()
        }
        even["scale"] = net(layout).state_dict()["scale"].copy_(whole["scale"])
        model = net(layout, seed=2)
        kept = dict(model.named_parameters())
        model.load_state_dict(even, assign=True)
        for name, param in model.named_parameters():
            assert torch.equal(full(param), whole[name]), (layout, name)
            if param.dim():
                assert param is kept[name], f"{name} was replaced"
        empty = net(layout, seed=2)
        for owner in empty.modules():  # the same model on the meta device
            for name, param in list(owner._parameters.items()):
                if param is not None:
                    blank = nn.Parameter(param.detach().to("meta"), param.requires_grad)
                    setattr(owner, name, blank)
        empty.head.weight = empty.embed.weight
        empty.load_state_dict(even, assign=True)
        for name, param in empty.named_parameters():
            assert torch.equal(full(param), whole[name]), (layout, name)
            assert not param.dim() or param.rows == rows_for(param.shape[0], layout)
        assert empty.head.weight is empty.embed.weight and not empty.frozen.requires_grad


def _optimizer_state(world):
    _, stock = trained(None, "adamw")
    reference, _ = trained(None, "adamw")
    for layout in LAYOUTS[world]:
        whole = stock.state_dict()
        for make in (
            lambda t: t.clone(),
            lambda t: distribute_tensor(t, mesh(), [Shard(0)]) if t.dim() else t.clone(),
        ):
            model, optimizer = trained(layout, "adamw", steps=0)
            model.load_state_dict(reference.state_dict())
            given = {
                "state": {i: {k: make(v) for k, v in s.items()} for i, s in whole["state"].items()},
                "param_groups": whole["param_groups"],
            }
            optimizer.load_state_dict(given)
            check(model, optimizer, "adamw", layout, f"{layout}")


@pytest.mark.parametrize("world", LAYOUTS)
@pytest.mark.parametrize("case", [_whole_out, _whole_in, _assigned, _optimizer_state])
def test_whole_state_in_and_out(ranks, world, case):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ranks(world, case, world)
