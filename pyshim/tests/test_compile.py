"""Compiled modules: whatever is compiled, units run as planned, with the gradients of one process."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
import torch.distributed as dist
from torch import nn

from cephalo import intercept
from cephalo.data import Feed
from training import SHARES, Case, Model, assert_equal, on_rank, one_process, plan_of

PLAN = plan_of(SHARES["ragged shares, unequal counts"])
RUNS: Counter[int] = Counter()
"""Runs of compiled code, by number of samples."""
COMPILED: list[tuple] = []


def backend(graph, inputs):
    """Counts; computes as written."""
    COMPILED.append(tuple(tuple(x.shape) for x in inputs if isinstance(x, torch.Tensor)))

    def run(*args):
        RUNS[
            max(
                (x.shape[0] for x in args if isinstance(x, torch.Tensor) and x.dim() == 3),
                default=0,
            )
        ] += 1
        return graph(*args)

    return run


def untied():
    return Model(tied=False)


def blocks_in_place(model):
    for block in model.blocks:
        block.compile(backend=backend)
    return [*model.blocks, model]


class CompiledBlocks(Model):
    def __init__(self):
        super().__init__(tied=False)
        self.blocks = nn.ModuleList(torch.compile(b, backend=backend) for b in self.blocks)


def root_in_place(model):
    model.compile(backend=backend)
    return [*model.blocks, model]


_roots: dict[int, nn.Module] = {}


def loss_of_compiled_root(model, *batch):
    whole = _roots.setdefault(id(model), torch.compile(model, backend=backend))
    return whole(*batch).mean()


CASES = {
    "blocks, in place": Case(build=untied, units=blocks_in_place, steps=3),
    "blocks, wrapped": Case(build=CompiledBlocks, steps=3),
    "the root, in place": Case(build=untied, units=root_in_place, steps=3),
    "the root, wrapped": Case(build=untied, loss=loss_of_compiled_root, steps=3),
}


def _compiled(case):
    patches = intercept.install(Feed(PLAN, dist.get_rank()), lambda loss: None)
    result = on_rank(case, PLAN)
    patches.undo()
    return result, dict(RUNS), len(COMPILED)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_compiled(ranks, case):
    wanted = one_process(Case(build=untied, steps=3))
    for rank, (result, runs, compiled) in enumerate(ranks(2, _compiled, case)):
        result.parameters = dict(zip(wanted.parameters, result.parameters.values()))
        result.last_gradients = dict(zip(wanted.last_gradients, result.last_gradients.values()))
        assert_equal(result, wanted)
        if "blocks" in next(k for k, c in CASES.items() if c is case):
            size, count = ((2, 3), (3, 1))[rank]
            assert runs == {size: 3 * 3 * 2 * count}, "3 steps, 3 blocks, forward and backward"
            assert compiled == 2, "one shape: compiled once without gradients and once with"
