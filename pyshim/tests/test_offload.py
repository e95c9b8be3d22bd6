"""Activations on the host: the same bits come back, and the memory is used again."""

from __future__ import annotations

import gc
import warnings
import weakref

import pytest
import torch
import torch.distributed as dist
from torch import nn

from cephalo import offload, sharding
from cephalo.offload import AHEAD, HostMemory, Offloader
from training import SHARES, Case, Model, build, install, own_part, plan_of, tokens

CPU = torch.device("cpu")
TWO = SHARES["ragged shares, unequal counts"]


def test_tensors_come_back_as_they_were():
    moved = Offloader(CPU)
    one = [torch.randn(3, 4), torch.randn(3, 0), torch.randn(4, 3, dtype=torch.float64).t()]
    other = [torch.randn(5).bfloat16(), torch.tensor(2.5)]
    first, second = moved.put(one), moved.put(other)
    kept = [t.clone() for t in (*one, *other)]
    for tensor in (*one, *other):
        tensor.zero_()
    back = [*moved.get(second), *moved.get(first)]
    assert all(torch.equal(a, b) for a, b in zip(back, kept[3:] + kept[:3], strict=True))
    assert all(t.is_contiguous() for t in back)


def test_copies_back_run_ahead():
    moved = Offloader(CPU)
    stored = [moved.put([torch.full((4,), float(i))]) for i in range(6)]
    moved.get(stored[5])
    assert [bool(s.back) for s in stored] == [False] * (5 - AHEAD) + [True] * AHEAD + [False]
    assert moved.get(stored[3])[0][0] == 3 and moved.get(stored[4])[0][0] == 4


def test_buffers_are_used_again(monkeypatch):
    monkeypatch.setattr(offload, "SLAB_BYTES", 1 << 10)
    memory = HostMemory(pin=False)
    one = [memory.take(100) for _ in range(8)]
    assert memory.slab_bytes == 1 << 10, "800 bytes fit one slab"
    places = {b.data_ptr() for b in one}
    for buffer in one:
        memory.give(buffer)
    assert {memory.take(100).data_ptr() for _ in range(8)} == places
    assert memory.take(300).numel() == 300 and memory.slab_bytes == (1 << 10) + (1 << 12)


def test_what_gets_no_backward_is_free_again():
    moved = Offloader(CPU)
    stored = moved.put([torch.zeros(1000)])
    place = stored.host[0].data_ptr()
    del stored
    gc.collect()
    again = moved.put([torch.zeros(1000)])
    assert again.host[0].data_ptr() == place


def test_past_the_limit_memory_is_not_pinned(monkeypatch):
    asked = []
    empty = torch.empty
    monkeypatch.setattr(
        torch,
        "empty",
        lambda *a, pin_memory=False, **k: asked.append(pin_memory) or empty(*a, **k),
    )
    memory = HostMemory(pin=True, pinned_limit_bytes=offload.SLAB_BYTES)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            memory.take(offload.SLAB_BYTES // offload.PIECES_OF_SLAB)
            memory.take(offload.SLAB_BYTES)
    assert True in asked and asked[-1] is False
    assert len([w for w in caught if "ordinary host memory" in str(w.message)]) == 1


def _weights(activations, steps):
    made = install(plan_of(TWO, activations))
    model = build(Case(build=lambda: Model(tied=False), dtype=torch.float32))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    generator, sizes = torch.Generator().manual_seed(5), []
    for _ in range(steps):
        batch = own_part(made.plan, dist.get_rank(), tokens(generator, 9, None))
        model(*batch).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if activations == "offload":
            sizes.append(made.offloader.memory.slab_bytes)
    return [p.detach().to_local().clone() for p in model.parameters()], sizes


def test_twenty_steps_have_the_same_bits_with_and_without(ranks):
    plain, moved = (ranks(2, _weights, a, 20) for a in ("recompute", "offload"))
    for (wanted, _), (got, sizes) in zip(plain, moved, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))
        assert len(set(sizes)) == 1 and sizes[0] > 0, "no growth after the first step"


class Chain(nn.Module):
    """Notes what passes from layer to layer."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.passed: list[weakref.ref] = []

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
            self.passed.append(weakref.ref(x))
        return x.square().flatten(1).mean(1)


def _passed_and_alive(activations):
    made = install(plan_of(TWO, activations))
    model = Chain()
    for layer in model.layers:
        sharding.fully_shard(layer)
    sharding.fully_shard(model)
    x = torch.randn(made.plan.batches[dist.get_rank()], 8, requires_grad=True)
    model(x).mean().backward()  # the first step has probes
    model.passed.clear()
    loss = model(x).mean()
    gc.collect()
    alive = sum(ref() is not None for ref in model.passed[:-1])
    loss.backward()
    return alive


def test_inputs_of_units_leave_the_device(ranks):
    assert ranks(2, _passed_and_alive, "recompute") == [3, 3]
    assert ranks(2, _passed_and_alive, "offload") == [0, 0]


def test_a_second_backward_is_refused(ranks):
    ranks(2, _second_backward)


def _second_backward():
    made = install(plan_of(TWO, "offload"))
    model = build(Case(build=lambda: Model(tied=False)))
    batch = own_part(made.plan, dist.get_rank(), tokens(torch.Generator().manual_seed(5), 9, None))
    loss = model(*batch).mean()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="kept or offloaded"):
        loss.backward()
    model.reset_iter_state()
