"""Measuring the devices themselves."""

from __future__ import annotations

import json
import math

import pytest
import torch
import torch.distributed as dist

from cephalo import hardware
from cephalo.devices import DeviceEntry
from profiled import Recorded


def _document(changes: dict) -> dict:
    for name, value in changes.items():
        setattr(hardware, name, value)
    rank, events = dist.get_rank(), Recorded()
    entry = DeviceEntry(rank, f"device-{rank}", "cpu", f"virtual-{rank}", memory_bytes=1 << 30)
    document = hardware.HardwareBench(entry, torch.device("cpu"), events).document()
    assert {"phase"} == {kind for kind, _ in events.sent} or changes.get("BUDGET_S") == -1
    return json.loads(json.dumps(document, allow_nan=False))


SMALL = {
    "POINT_S": 0.02,
    "BUDGET_S": 60,
    "COLLECTIVE_BYTES": (4 << 10, 64 << 10, 1 << 20),
    "MATRIX": {"cpu": 64},
    "COPY_BYTES": {"cpu": 1 << 20},
}


@pytest.mark.parametrize("world", [1, 2, 3])
def test_compute_memory_and_collectives(ranks, world):
    for rank, found in enumerate(ranks(world, _document, SMALL)):
        assert found["rank"] == rank and found["device"]["name"] == f"device-{rank}"
        assert found["device"]["usable_bytes"] == 1 << 30
        numbers = found["hardware"]
        assert list(numbers["matmul_tflops"]) == ["fp32"] and numbers["host_link_gb_per_s"] is None
        assert numbers["memory_gb_per_s"] > 0
        done = [(c["collective"], c["bytes"]) for c in numbers["collectives"]]
        assert len(done) == len(set(done)) == 9
        for one in numbers["collectives"]:
            assert one["ms"] > 0 and math.isclose(one["gb_per_s"], one["bytes"] / one["ms"] / 1e6)


def test_no_measurement_begins_when_time_is_over(ranks):
    for found in ranks(2, _document, {**SMALL, "BUDGET_S": -1}):
        assert found["hardware"]["matmul_tflops"] == {} and found["hardware"]["collectives"] == []
