"""Measuring a script's own units on all ranks at its first training forward."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import torch
from torch import nn

from cephalo import linkcost, overlapcost, profile, unitcost
from cephalo.collectivecost import CollectiveTimes
from profiled import (
    BLOCK_PARAMETERS,
    LAYERS,
    SEQUENCE,
    VOCAB,
    WIDTH,
    Block,
    Model,
    Run,
)

ACTIVATION = SEQUENCE * WIDTH * 4
"""Bytes of one sample between two units."""


def measured(folder: str, world: int, **options) -> dict:
    return Run(folder, world, **options).measure()


@pytest.mark.parametrize("world", [1, 2, 3])
def test_file_says_what_the_units_are_and_cost(ranks, tmp_path, world):
    adamw = functools.partial(torch.optim.AdamW, lr=1e-3)
    found = ranks(world, functools.partial(measured, str(tmp_path), world, optimizer=adamw))
    assert [f["rank"] for f in found] == list(range(world))
    normed = WIDTH * WIDTH + WIDTH + 2 * SEQUENCE
    root = 2 * VOCAB * WIDTH
    for one in found:
        assert [u["held"] for u in one["units"]] == [False, False, True]
        units = [(u["class"], u["count"], u["parameters"], u["whole_batch"]) for u in one["units"]]
        assert units == [
            ("Block", LAYERS, BLOCK_PARAMETERS, False),
            ("Normed", 1, normed, True),
            ("Model (root)", 1, root, True),
        ]
        # Adam's denominators, of one parameter after the other.
        assert 0 < one["model"].pop("step_bytes_per_parameter") < 8
        assert one["model"] == {
            "name": "Model",
            "parameters": LAYERS * BLOCK_PARAMETERS + normed + root,
            "trainable_parameters": LAYERS * BLOCK_PARAMETERS + normed + root,
            "state_bytes_per_parameter": 16.0,
            "gradient_bytes_per_parameter": 4.0,
            "optimizer": "AdamW",
            "dtype": "float32",
        }
        assert one["script"] == {"batch_per_rank": 3, "data": "distributed-sampler", "samples": 100}
        assert one["device"]["uuid"] == f"virtual-{one['rank']}"
        assert one["ragged_factor"] >= 1.0 and one["fixed_ms"] > 0 and one["reserved_bytes"] > 0
        assert set(one["collectives"]) == set(one["costs"]) == set(one["spread"])
        for cost in one["costs"].values():
            for name in ("forward_ms", "backward_ms", "memory_bytes"):
                sizes = [m for m, _ in cost[name]]
                assert sizes[:2] == [1, 2] and sizes == sorted(set(sizes))
                assert all(value >= 0 for _, value in cost[name])
            assert all(value > 0 for _, value in cost["forward_ms"])
            assert set(cost["kept_bytes_per_sample"]) == {"keep", "recompute"}


def _untouched(folder: str) -> tuple[bool, ...]:
    run = Run(folder, 2, optimizer=functools.partial(torch.optim.SGD, lr=1.0, momentum=0.9))
    before, random, groups = (
        run.weights(),
        torch.get_rng_state(),
        dict(run.optimizer.param_groups[0]),
    )
    run.measure()
    return (
        all(torch.equal(a, b) for a, b in zip(before, run.weights(), strict=True)),
        torch.equal(random, torch.get_rng_state()),
        not run.optimizer.state and run.optimizer.param_groups[0] == groups,
        all(p.grad is None for p in run.model.parameters()),
        "call" not in vars(run.model._cephalo_state.engine),
    )


def test_weights_state_and_randomness_stay_as_they_are(ranks, tmp_path):
    assert ranks(2, _untouched, str(tmp_path)) == [(True,) * 5] * 2


def _memory(folder: str) -> dict:
    return Run(folder, 1, units=lambda m: [*m.blocks, m.normed, m]).measure()


def test_memory_on_cpu_is_counted_to_the_byte(ranks, tmp_path):
    (found,) = ranks(1, _memory, str(tmp_path))
    kept = found["costs"]["Block"]["kept_bytes_per_sample"]
    # The result alone, which is the next unit's input; or with it what the graph saves: the result
    # of tanh (the input was there before).
    assert kept == {"recompute": ACTIVATION, "keep": 2 * ACTIVATION}
    points = found["costs"]["Block"]["memory_bytes"]
    (one, least), (before, low), (last, high) = points[0], points[-2], points[-1]
    slope = (high - low) / (last - before)
    # Of a microbatch the result of tanh and its gradient; its own result is gone by then.
    assert one == 1 and 2 * ACTIVATION <= slope <= 4 * ACTIVATION
    gathered = BLOCK_PARAMETERS * 4
    normed = (WIDTH * WIDTH + WIDTH + 2 * SEQUENCE) * 4
    # Itself, its gradients as they arrive and their sum, the gather before it, the reductions (sent,
    # received) behind it.
    static = gathered + 2 * gathered + gathered + 2 * (normed + gathered)
    assert static < least < static + gathered + 4 * ACTIVATION
    root = found["costs"]["Model (root)"]["kept_bytes_per_sample"]["recompute"]
    logits = SEQUENCE * VOCAB * 4
    # Logits live in the root, and the gradients that units pass on.
    assert root >= logits + 2 * ACTIVATION


def head_apart(model: Model) -> list:
    return [*model.blocks, model.normed, model.head, model]


def _late(folder: str, units) -> int:
    late, measure = {}, profile.measure_class

    def noting(bench, made, *rest):
        points = measure(bench, made, *rest)
        late[made.name] = points.late_gradient_bytes
        return points

    profile.measure_class = noting
    Run(folder, 1, units=units).measure()
    assert not any(value for name, value in late.items() if name != "Model (root)")
    return late["Model (root)"]


@pytest.mark.parametrize("units", [head_apart, lambda m: [*m.blocks, m.normed, m]])
def test_gradients_of_an_embedding_come_after_those_of_all_units(ranks, tmp_path, units):
    # Where the head belongs to the root too, its gradients come before those of all units.
    assert ranks(1, _late, str(tmp_path), units) == [VOCAB * WIDTH * 4]


def _overlap(folder: str, memory_ends: bool) -> dict:
    overlapcost.lost = lambda *ms: 0.25 if all(x >= 0 for x in ms) else -1.0
    linkcost.measure_collectives = lambda *_, alone: CollectiveTimes(3.0, 7.0 if alone else 5.0)
    run = Run(folder, 2, units=head_apart)
    if memory_ends and run.runtime.comm.rank == 0:

        def fail(*_):
            raise torch.OutOfMemoryError("out of memory")

        overlapcost.layered_run = fail
    return run.measure()


@pytest.mark.parametrize("memory_ends", [False, True])
def test_the_last_unit_overlaps_with_nothing_and_is_gathered_once(ranks, tmp_path, memory_ends):
    for found in ranks(2, _overlap, str(tmp_path), memory_ends):
        loss = {u["class"]: u["overlap_loss"] for u in found["units"]}
        assert loss == {"Block": 0.25, "Normed": 0.0, "Linear": 1.0, "Model (root)": 0.0}
        # The root is gathered before all and reduced after all others: nothing runs beside it.
        reductions = {n: c["reduce_scatter_ms"] for n, c in found["collectives"].items()}
        assert reductions == {"Block": 5.0, "Normed": 5.0, "Linear": 2.0, "Model (root)": 7.0}


def _offloaded(folder: str, answers: tuple[float | None, ...]) -> dict:
    rank = torch.distributed.get_rank()
    unitcost.measure_offload = lambda *_: answers[rank]
    return Run(folder, 2).measure()["costs"]


def test_offloading_is_counted_where_the_link_was_measured(ranks, tmp_path):
    for costs in ranks(2, _offloaded, str(tmp_path), (0.25, 0.5)):
        block, root = costs["Block"], costs["Model (root)"]
        assert block["offload_ms_per_sample"] in (0.25, 0.5)
        assert block["kept_bytes_per_sample"]["offload"] == 0
        assert root["offload_ms_per_sample"] == 0
        kept = root["kept_bytes_per_sample"]
        assert kept["offload"] == kept["recompute"] + ACTIVATION, "what is leaving for the host"


class _Greedy(nn.Linear):
    """Runs out of memory on one rank once there are more than three samples."""

    def __init__(self):
        super().__init__(WIDTH, WIDTH)

    def forward(self, x):
        if torch.distributed.get_rank() == 1 and x.shape[0] > 3:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return super().forward(x)


def test_running_out_of_memory_is_a_data_point(ranks, tmp_path):
    model = functools.partial(Model, _Greedy)
    first, second = ranks(2, functools.partial(measured, str(tmp_path), 2, model=model, batch=16))
    assert second["memory_ends"] == {"_Greedy": 4} and first["memory_ends"] == {}
    assert [m for m, _ in second["costs"]["_Greedy"]["forward_ms"]] == [1, 2, 3]
    assert [m for m, _ in first["costs"]["_Greedy"]["forward_ms"]][:3] == [1, 2, 3]


class _Stack(nn.Module):
    """Norm and head are one unit of two modules; one block is called twice; one is never called."""

    def __init__(self):
        super().__init__()
        self.embed, self.twice, self.never = nn.Embedding(VOCAB, WIDTH), Block(), nn.Linear(3, 3)
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB)

    def forward(self, tokens, targets):
        x = self.twice(self.twice(self.embed(tokens)))
        return self.head(self.norm(x)).sum((1, 2))


def _stack_units(model: _Stack) -> list:
    return [model.twice, model.never, [model.norm, model.head], model]


def test_units_that_cannot_be_cut_are_measured_whole(ranks, tmp_path):
    for one in ranks(
        2, functools.partial(measured, str(tmp_path), 2, model=_Stack, units=_stack_units)
    ):
        whole = {u["class"]: u["whole_batch"] for u in one["units"]}
        assert whole == {"Block": True, "Linear": True, "LayerNorm": True, "_Stack (root)": True}
        reasons = {u["class"]: u["whole_batch_reason"] for u in one["units"]}
        assert reasons == {
            "Block": "it is called 2 times in one forward",
            "Linear": "",
            "LayerNorm": "it is a group of modules",
            "_Stack (root)": "",
        }
        assert one["costs"]["Linear"]["forward_ms"] == [[1, 0.0]]
        assert one["costs"]["LayerNorm"]["forward_ms"][0][1] > 0
        # The optimizer is made later, or never: counted as Adam.
        assert one["model"]["optimizer"] == "unknown"
        assert one["model"]["state_bytes_per_parameter"] == 16.0


def _flat(folder: str) -> dict:
    return Run(folder, 2, units=lambda m: [m], model=lambda: _Plain()).measure()


class _Plain(Model):
    def __init__(self):
        super().__init__()
        self.normed = nn.Identity()

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x).sum((1, 2))


def test_a_model_of_one_unit_is_cut_like_any_other(ranks, tmp_path):
    for one in ranks(2, _flat, str(tmp_path)):
        assert [(u["class"], u["whole_batch"]) for u in one["units"]] == [("_Plain (root)", False)]


def _events(folder: str) -> tuple[list, bool]:
    run = Run(folder, 2)
    run.measure()
    sent = run.events.sent
    (profile,) = [fields for kind, fields in sent if kind == "profile"]
    return [f["detail"] for k, f in sent if k == "phase" and f["phase"] == "measure"], profile[
        "path"
    ]


def test_progress_is_told(ranks, tmp_path):
    for rank, (details, path) in enumerate(ranks(2, _events, str(tmp_path))):
        assert {"Block m=1", "Normed m=2", "Model (root) m=1", "Block collectives"} <= set(details)
        assert Path(path) == tmp_path / "measure" / f"rank-{rank}.json"
    assert not list((tmp_path / "measure").glob("*.tmp"))
