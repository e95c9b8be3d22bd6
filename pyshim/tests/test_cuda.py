"""On a GPU: the numbers of one process, and activations that travel to the host and back."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.distributed as dist
from torch import nn

from cephalo import ragged, runtime, sharding
from cephalo.plan import PPM
from cephalo.runtime import Runtime
from training import (
    SHARES,
    Case,
    Model,
    assert_equal,
    on_rank,
    one_process,
    own_part,
    plan_of,
    tokens,
)

pytestmark = pytest.mark.skipif(torch.cuda.device_count() == 0, reason="there is no GPU here")

TWO = SHARES["ragged shares, unequal counts"]
ACTIVATIONS = ("keep", "recompute", "offload")
DELAY_CYCLES = 2_000_000
"""About a millisecond before each copy; a microbatch takes less."""


def _install(activations: str, shares=TWO) -> Runtime:
    torch.cuda.set_device(0)
    ragged.install()
    made = Runtime(plan_of(shares, activations), torch.device("cuda", 0))
    runtime.install(lambda: made)
    return made


def _on_gpu(case: Case, activations: str):
    torch.cuda.set_device(0)
    return on_rank(case, plan_of(TWO, activations), torch.device("cuda", 0))


@pytest.mark.parametrize("activations", ACTIVATIONS)
def test_two_ranks_of_a_gpu_are_one_process(ranks, activations):
    case = Case(build=functools.partial(Model, tied=False))
    # A backward starts CUDA, and a process that has CUDA cannot be forked into ranks.
    (wanted,) = ranks(1, one_process, case)
    for got in ranks(2, _on_gpu, case, activations):
        assert_equal(got, wanted)


def _delay(made: Runtime) -> None:
    """Pause before everything that the copies' stream is given."""
    stream = made.offloader._stream
    wait = stream.wait_stream

    def late(other: torch.cuda.Stream) -> None:
        wait(other)
        with torch.cuda.stream(stream):
            torch.cuda._sleep(DELAY_CYCLES)

    stream.wait_stream = late


def _weights(activations: str, slow: bool):
    made = _install(activations)
    if slow:
        _delay(made)
    torch.manual_seed(0)
    model = Model(tied=False).cuda()
    for block in model.blocks:
        sharding.fully_shard(block)
    sharding.fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(5)
    for _ in range(20):
        batch = own_part(made.plan, dist.get_rank(), tokens(generator, 9, None))
        model(*(x.cuda() for x in batch)).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach().to_local().cpu() for p in model.parameters()]


@pytest.mark.parametrize("slow", [False, True])
def test_offloading_changes_no_bit_in_twenty_steps(ranks, slow):
    plain = ranks(2, _weights, "recompute", False)
    moved = ranks(2, _weights, "offload", slow)
    for wanted, got in zip(plain, moved, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))


WIDTH, LAYERS, MICROBATCHES, ROWS = 256, 16, 8, 4096


class _Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(LAYERS)
        )

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return x.mean((1, 2))


def _peak(activations: str, slow: bool) -> int:
    shares = ([MICROBATCHES], [[1] * MICROBATCHES], [PPM])
    made = _install(activations, shares)
    if slow:
        _delay(made)
    model = _Deep().cuda()
    for block in model.blocks:
        sharding.fully_shard(block)
    sharding.fully_shard(model)
    x = torch.randn(MICROBATCHES, ROWS, WIDTH, device="cuda")
    for _ in range(3):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        model(x).mean().backward()
        peak = torch.cuda.max_memory_allocated() - before
    torch.cuda.synchronize()
    return peak


def test_offloading_frees_the_device_also_behind_a_slow_link(ranks):
    activation = MICROBATCHES * ROWS * WIDTH * 4
    (kept,), (moved,), (slow,) = (
        ranks(1, _peak, activations, slow)
        for activations, slow in (("recompute", False), ("offload", False), ("offload", True))
    )
    assert kept > LAYERS * activation
    assert moved < 5 * activation
    assert slow <= moved, "compute does not run ahead of the copies"
