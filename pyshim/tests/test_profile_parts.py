"""The parts of measuring, one at a time."""

from __future__ import annotations

import functools
import time

import pytest
import torch
from torch import nn

from cephalo import offloadcost
from cephalo.capture import Example
from cephalo.clock import Clock
from cephalo.collectivecost import CollectiveTimes, enough, even_shares, shares, uneven_shares
from cephalo.linkcost import LinkTimes
from cephalo.memory import Meter
from cephalo.oom import out_of_memory
from cephalo.optimizercost import clone_optimizer, find_optimizers, state_bytes
from cephalo.overlapcost import known, lost
from cephalo.timing import STEADY_SPREAD, Laps, Stopwatch, Together, repeat, spread
from cephalo.unitcost import growing

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("most", "sizes"),
    [
        (1, [1]),
        (2, [1, 2]),
        (3, [1, 2, 3]),
        (7, [1, 2, 3, 4, 6]),
        (24, [1, 2, 3, 4, 6, 8, 12, 16, 24]),
    ],
)
def test_sizes_grow_by_halves(most, sizes):
    assert list(growing(most)) == sizes


def test_spread_ignores_one_outlier_and_falls_with_more_runs():
    assert spread([1.0, 1.0]) == 1.0
    assert spread([1.0] * 9 + [50.0]) == 0.0
    noisy = [1.0, 1.1, 0.9, 1.05, 0.95]
    assert STEADY_SPREAD < spread(noisy) and spread(noisy * 20) < STEADY_SPREAD


def test_shares_sum_to_a_million():
    for world in range(1, 9):
        assert sum(even_shares(world)) == sum(uneven_shares(world)) == 1_000_000
    assert even_shares(4) == [250_000] * 4
    assert uneven_shares(4) == [750_000, 62_500, 62_500, 125_000]
    assert shares([1, 1, 1]) == [333_333, 333_333, 333_334]


@pytest.mark.parametrize(
    ("compute_ms", "link_ms", "both_ms", "part"),
    [
        (10.0, 20.0, 20.0, 0.0),
        (20.0, 10.0, 22.5, 0.25),
        (10.0, 20.0, 30.0, 1.0),
        (10.0, 20.0, 40.0, 1.0),
        (10.0, 20.0, 19.0, 0.0),
        (0.0, 20.0, 21.0, 0.0),
    ],
)
def test_what_is_lost_by_running_at_once(compute_ms, link_ms, both_ms, part):
    assert lost(compute_ms, link_ms, both_ms) == pytest.approx(part)


@pytest.mark.parametrize(
    ("losses", "took_ms", "answer"),
    [
        ([0.2] * 6, 1.0, False),
        ([0.2] * 7, 1.0, True),
        ([0.0, 1.0] * 10, 1.0, False),
        ([0.0, 1.0] * 30, 1.0, True),
        ([0.0, 1.0] * 10, 7000.0, True),
    ],
)
def test_a_loss_is_measured_until_it_is_known_or_late(losses, took_ms, answer):
    assert known(losses, took_ms) is answer


@pytest.mark.parametrize(
    ("runs", "answer"),
    [
        ([[100.0, 200.0]] * 4, False),
        ([[100.0, 200.0]] * 5, True),
        ([[1.0, 2.0]] * 5, False),  # in 15 ms a link says little
        ([[20.0, 40.0], [20.0, 80.0]] * 4, False),  # one of both is not steady
        ([[20.0, 40.0], [20.0, 80.0]] * 7, True),
        ([[1.0, 1.0], [1.0, 3.0]] * 80, True),
    ],
)
def test_collectives_are_measured_until_both_are_steady_or_late(runs, answer):
    assert enough(runs) is answer


def test_a_link_costs_what_it_cost_on_average():
    early = LinkTimes({"Block": CollectiveTimes(2.0, 4.0), "Head": CollectiveTimes(1.0, 0.0)}, 1.0)
    late = LinkTimes({"Block": CollectiveTimes(4.0, 5.0), "Head": CollectiveTimes(1.0, 2.0)}, 1.5)
    mean = {"Block": CollectiveTimes(3.0, 4.5), "Head": CollectiveTimes(1.0, 1.0)}
    assert early.mean(late) == LinkTimes(mean, 1.25)


def _sgd(**options):
    return functools.partial(torch.optim.SGD, lr=0.1, **options)


@pytest.mark.parametrize(
    ("make", "dtype", "expected"),
    [
        (torch.optim.AdamW, torch.float32, 16),
        (functools.partial(torch.optim.AdamW, amsgrad=True), torch.float32, 20),
        (functools.partial(torch.optim.AdamW, fused=True), torch.float32, 16),
        (torch.optim.Adam, torch.float64, 32),
        (torch.optim.Adam, torch.bfloat16, 8),
        (_sgd(momentum=0.9), torch.float32, 12),
        (_sgd(), torch.float32, 8),
        (torch.optim.RMSprop, torch.float32, 12),
    ],
)
def test_state_of_an_optimizer_is_counted_on_a_clone(make, dtype, expected):
    parameter = nn.Parameter(torch.ones(5, 3, dtype=dtype))
    optimizer = make([parameter])
    assert state_bytes(optimizer, dtype, CPU) == expected
    assert not optimizer.state and torch.equal(parameter, torch.ones_like(parameter))


def test_a_clone_has_the_settings_but_no_hooks_and_no_scheduler():
    parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=0.5)
    heard = []
    optimizer.register_step_post_hook(lambda *_: heard.append("step"))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    other = nn.Parameter(torch.ones(2))
    other.grad = torch.ones(2)
    clone_optimizer(optimizer, [[other]]).step()
    assert torch.equal(other, torch.full((2,), 0.5)) and torch.equal(parameter, torch.ones(2))
    assert heard == [] and scheduler.last_epoch == 0
    assert find_optimizers([parameter]) == [optimizer] and find_optimizers([other]) == []


def test_meter_counts_what_lives():
    x = torch.randn(256, 256, requires_grad=True)  # 256 KiB
    size = x.nbytes
    with Meter(CPU) as meter:
        y = (x * 2).exp()  # exp keeps its result
        assert meter.live_bytes() == size
        z = y.view(-1).sin()  # a view is no new memory
        del y
        assert meter.live_bytes() == 2 * size
        del z
        assert meter.live_bytes() == 0
        x.mul(3)
    assert meter.peak_bytes == 2 * size


@pytest.mark.parametrize(
    ("err", "is_memory"),
    [
        (torch.OutOfMemoryError("x"), True),
        (MemoryError(), True),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
            True,
        ),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("shapes do not match"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_out_of_memory_is_told_from_other_failures(err, is_memory):
    assert out_of_memory(err) is is_memory


def _busy(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_a_slow_device_is_measured_as_slow_as_it_runs():
    def once(mark):
        _busy(0.01)
        mark()

    (lap,) = Stopwatch(Clock(CPU, slowdown=4.0)).laps(once)
    assert lap >= 40.0


def _company(world: int) -> tuple[int, bool]:
    rank = torch.distributed.get_rank()
    runs = []

    def once(mark):
        runs.append(1)
        _busy(0.001)
        if rank == 1 and len(runs) == 2:
            raise torch.OutOfMemoryError("full")
        mark()

    laps = repeat(Stopwatch(Clock(CPU)), Together(None), None if rank == 2 else once, 1.0, 0.2)
    return len(runs), laps is None


def test_ranks_without_memory_keep_the_others_company(ranks):
    first, second, third = ranks(3, _company, 3)
    assert first[0] >= 3 and not first[1]
    assert second == (2, True) and third == (0, True)


def test_laps_are_summed_up_by_run():
    laps = Laps(((1.0, 5.0), (2.0, 5.0), (3.0, 5.5)))
    assert laps.median(lambda run: run[0]) == 2.0
    assert laps.median(lambda run: run[1] - run[0]) == 3.0


def test_the_activations_of_a_call_are_moved_to_the_host_and_back(monkeypatch):
    went, came = [], []
    put, get = offloadcost.Offloader.put, offloadcost.Offloader.get
    monkeypatch.setattr(
        offloadcost.Offloader, "put", lambda o, tensors: went.append(tensors) or put(o, tensors)
    )
    monkeypatch.setattr(
        offloadcost.Offloader, "get", lambda o, stored: came.append(get(o, stored)) or came[-1]
    )
    carried, unwanted, whole = torch.randn(2, 8), torch.randn(2, 4), torch.randn(3, 3)
    example = Example(
        run=lambda *_: None,
        leaves=[carried, unwanted, whole],
        spec=None,
        wants=[True, False, True],
        samples=2,
        cut=[True, True, False],
    )
    samples, out, back = offloadcost._moves(example, CPU)
    out()
    assert [len(t) for t in went] == [1] * (samples // 2) and went[0][0] is carried
    back()
    assert len(came) == len(went) and all(torch.equal(t, carried) for (t,) in came)


def test_a_processor_has_nothing_to_offload_to():
    example = Example(lambda *_: None, [torch.randn(2, 8)], None, [True], 2, [True])
    assert offloadcost.measure_offload(example, CPU, None, None) is None
