"""A run on ranks is the run of one process: shares, microbatches and activations of every kind."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest
import torch
from torch import nn

from cephalo.module import engine_of
from cephalo.probing import SAMPLES
from training import (
    ALONE,
    PPM,
    SHARES,
    VOCAB,
    WIDTH,
    Block,
    Case,
    Model,
    assert_equal,
    on_rank,
    one_process,
    plan_of,
    sgd,
    vectors,
)

THREE = SHARES["a rank that owns nothing"]
PROBES = len(SAMPLES)
"""Runs of every unit before the first step."""


@functools.cache
def reference(name: str):
    return one_process(CASES[name])


def adamw(**options):
    return lambda p: torch.optim.AdamW(p, lr=1e-2, **options)


class LowRank(nn.Module):
    """A frozen layer and a trainable correction of low rank, as LoRA has them."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(WIDTH, WIDTH)
        self.base.requires_grad_(False)
        self.down, self.up = nn.Linear(WIDTH, 2, bias=False), nn.Linear(2, WIDTH, bias=False)

    def forward(self, x):
        return x + torch.tanh(self.base(x) + self.up(self.down(x)))


def frozen_below():
    """The embedding and the first block are frozen: no gradient reaches them."""
    model = Model(tied=False)
    model.embed.requires_grad_(False)
    model.blocks[0].requires_grad_(False)
    return model


def frozen_middle():
    model = Model()
    model.blocks[1].requires_grad_(False)
    return model


def unfreeze(model, step):
    if step == 2:
        model.blocks[1].requires_grad_(True)


class Plain(nn.Module):
    """One unit only: the root itself."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, 5), nn.Linear(5, WIDTH)

    def forward(self, x, y):
        return (self.second(torch.tanh(self.first(x))) - y).square().flatten(1).mean(1)


CASES = {
    "tied": Case(),
    "fp32": Case(dtype=torch.float32),
    "clipped": Case(clip=0.05),
    "clipped adamw": Case(clip=0.05, optimizer=adamw()),
    "adamw fused": Case(optimizer=adamw(fused=True)),
    "adamw one by one": Case(optimizer=adamw(foreach=False)),
    "sgd fused": Case(optimizer=lambda p: torch.optim.SGD(p, 0.2, momentum=0.9, fused=True)),
    "frozen below": Case(build=frozen_below),
    "frozen in the middle": Case(build=frozen_middle),
    "unfrozen later": Case(build=frozen_middle, before_step=unfreeze),
    "low rank": Case(build=lambda: Model(LowRank)),
    "norm and head as one unit": Case(
        build=lambda: Model(tied=False), units=lambda m: [*m.blocks, [m.norm, m.head], m]
    ),
    "embedding and head as one unit": Case(
        units=lambda m: [*m.blocks, [m.norm, m.head, m.embed], m]
    ),
    "embedding as a unit": Case(
        build=lambda: Model(tied=False), units=lambda m: [m.embed, *m.blocks, m]
    ),
    "head as a unit": Case(build=lambda: Model(tied=False), units=lambda m: [*m.blocks, m.head, m]),
    "nested units": Case(units=lambda m: [*(x for b in m.blocks for x in (b.norm, b.down, b)), m]),
    "inner units of one kind": Case(
        units=lambda m: [*(x for b in m.blocks for x in (b.up, b.down, b)), m]
    ),
    "root only": Case(build=Plain, units=lambda m: [m], data=vectors),
    "frozen root": Case(
        build=lambda: Model(tied=False).apply(
            lambda m: m.requires_grad_(False) if not list(m.children()) else None
        ),
        before_step=lambda model, step: [b.requires_grad_(True) for b in model.blocks] and None,
        optimizer=sgd,
    ),
}


@pytest.mark.parametrize("activations", ["recompute", "keep", "offload"])
@pytest.mark.parametrize("shares", SHARES)
def test_every_kind_of_share(ranks, shares, activations):
    plan = plan_of(SHARES[shares], activations)
    for result in ranks(plan.world_size, on_rank, CASES["tied"], plan):
        assert_equal(result, reference("tied"))


@pytest.mark.parametrize("shares", SHARES)
def test_every_kind_of_share_in_fp32(ranks, shares):
    plan = plan_of(SHARES[shares])
    assert_equal(ranks(plan.world_size, on_rank, CASES["fp32"], plan)[0], reference("fp32"), 1e-5)


PLAIN = {
    "one rank": ([9], [[9]], [PPM]),
    "three ranks, one without samples": ([5, 4, 0], [[5], [4], []], [300_000, 700_000, 0]),
}
"""One microbatch everywhere: with everything kept, units run as one graph."""


@pytest.mark.parametrize("shares", PLAIN)
@pytest.mark.parametrize("name", ["head as a unit", "embedding as a unit", "nested units"])
def test_one_graph_where_nothing_is_cut_or_recomputed(ranks, shares, name):
    plan = plan_of(PLAIN[shares], "keep")
    assert plan.plain and not plan_of(PLAIN[shares]).plain
    for result in ranks(plan.world_size, on_rank, CASES[name], plan):
        assert_equal(result, reference(name))


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_model_where_one_rank_has_all(ranks, name):
    result = ranks(1, on_rank, CASES[name], plan_of(ALONE, "keep"))[0]
    assert_equal(result, reference(name), 1e-5 if name == "fp32" else 1e-9)


@pytest.mark.parametrize("activations", ["recompute", "keep"])
@pytest.mark.parametrize("name", [n for n in CASES if n not in ("tied", "fp32")])
def test_every_kind_of_model(ranks, name, activations):
    plan = plan_of(THREE, activations)
    assert_equal(ranks(3, on_rank, CASES[name], plan)[0], reference(name))


CLASS_SHARES = {
    "blocks even, the rest ragged": {"Block": [333_334, 333_333, 333_333]},
    "root even, blocks ragged": {"Model (root)": [333_334, 333_333, 333_333]},
    "each its own": {"Block": [0, PPM, 0], "Model (root)": [100_000, 0, 900_000]},
}


def train_and_count(case: Case, plan):
    """The result, and the elements of every unit on this rank."""
    seen = []
    result = on_rank(replace(case, before_step=lambda model, step: seen.append(model)), plan)
    units = engine_of(seen[0]).units
    return result, {u.name: [b.layout.sizes for b in u.buffers] for u in units}


@pytest.mark.parametrize("activations", ["recompute", "keep"])
@pytest.mark.parametrize("classes", CLASS_SHARES)
def test_shares_of_each_class(ranks, classes, activations):
    plan = plan_of(THREE, activations, CLASS_SHARES[classes])
    for result, sizes in ranks(3, train_and_count, CASES["tied"], plan):
        assert_equal(result, reference("tied"))
        for name, buffers in sizes.items():
            kind = "Block" if name.startswith("Block") else "Model (root)"
            wanted = CLASS_SHARES[classes].get(kind, THREE[2])
            for parts in buffers:  # to the nearest row, and no row here has half of the elements
                for part, ppm in zip(parts, wanted, strict=True):
                    assert abs(part / sum(parts) - ppm / PPM) < 0.1, (name, parts, wanted)


def test_shares_of_units_inside_of_units(ranks):
    """What is inside of a block is named by its own kind."""
    plan = plan_of(THREE, "recompute", {"Block": [PPM, 0, 0], "LayerNorm": [0, 0, PPM]})
    assert_equal(ranks(3, on_rank, CASES["nested units"], plan)[0], reference("nested units"))


class Counted(Block):
    """A block that counts how often it runs, dropout included."""

    def __init__(self):
        super().__init__()
        self.runs = 0

    def forward(self, x):
        self.runs += 1
        return super().forward(x)


COUNTED = Case(build=lambda: Model(Counted))


def train_and_count_runs(case: Case, plan):
    """The result, and how often each block ran on this rank."""
    seen = []
    result = on_rank(replace(case, before_step=lambda model, step: seen.append(model)), plan)
    return result, [block.runs for block in seen[0].blocks]


KEPT = {
    "some on one rank, none on the others": (["recompute"] * 3, [{"Counted": 2}, {}, {}]),
    "some, none and all": (["recompute", "recompute", "keep"], [{"Counted": 1}, {}, {}]),
    "beside offloading": (["offload"] * 3, [{"Counted": 2}, {}, {"Counted": 1}]),
    "all of a class": (["offload", "recompute", "recompute"], [{}, {"Counted": 3}, {"Counted": 0}]),
}


@pytest.mark.parametrize("shares", ["a rank that owns nothing", "one rank without samples"])
@pytest.mark.parametrize("kept", KEPT)
def test_some_units_are_kept(ranks, kept, shares):
    activations, named = KEPT[kept]
    of_ranks = THREE if shares in SHARES else ([5, 4, 0], [[2, 2, 1], [4], []], THREE[2])
    plan = plan_of(of_ranks, activations, kept=named)
    wanted = one_process(COUNTED)
    for rank, (result, runs) in enumerate(ranks(3, train_and_count_runs, COUNTED, plan)):
        assert_equal(result, wanted)
        pieces = max(1, len(of_ranks[1][rank])) * COUNTED.steps
        keeps = 3 if activations[rank] == "keep" else named[rank].get("Counted", 0)
        # runs of the probes, equal for all blocks, and of each microbatch once or twice
        again = [pieces] * (3 - keeps) + [0] * keeps
        assert [r - pieces - a for r, a in zip(runs, again)] == [runs[0] - pieces - again[0]] * 3
        assert runs[0] - pieces - again[0] == PROBES


def refuse_a_class_that_is_not_there(plan):
    with pytest.raises(
        ValueError, match="names units of class 'Layer', and the model has Block, Mod"
    ):
        on_rank(CASES["tied"], plan)


def test_kept_units_of_another_model(ranks):
    kept = [{"Layer": 1}] * 2
    ranks(2, refuse_a_class_that_is_not_there, plan_of(SHARES["even shares"], kept=kept))


def test_the_reference_learns():
    losses = reference("tied").losses
    assert losses[-1] < losses[0] and VOCAB > 2 and isinstance(Block(), nn.Module)
