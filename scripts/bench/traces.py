"""Where the time of one step goes: a row trained once more under torch's profiler."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

NAMED = 5
"""Operators that a summary names."""


def traced(torch: Any, step: Callable[[], Any], path: Path) -> dict[str, Any]:
    """Run ``step`` under the profiler and keep its trace at ``path`` (for chrome://tracing).

    Returns ``busy_ms``, the time in which the device had a kernel or a copy under way (0 on the
    processor), and ``most``, the operators with the most time of their own there, in ms (without a
    GPU: on the processor).
    """
    from torch.profiler import ProfilerActivity, profile

    gpu = torch.cuda.is_available()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if gpu else [])]
    with profile(activities=activities) as profiler:
        step()
        if gpu:
            torch.cuda.synchronize()
    profiler.export_chrome_trace(str(path))
    own = "self_device_time_total" if gpu else "self_cpu_time_total"
    events = sorted(profiler.key_averages(), key=lambda e: -getattr(e, own))
    most = {e.key[:60]: round(getattr(e, own) / 1e3, 2) for e in events[:NAMED]}
    spans = [
        (e.time_range.start, e.time_range.end)
        for e in profiler.events()
        if e.device_type == torch.autograd.DeviceType.CUDA
    ]
    return {"busy_ms": union(spans) / 1e3, "most": most}


def union(spans: list[tuple[float, float]]) -> float:
    """Length of what the spans cover together."""
    covered, end = 0.0, float("-inf")
    for first, last in sorted(spans):
        covered += max(0.0, last - max(first, end))
        end = max(end, last)
    return covered


def name_of(row: str, rank: int) -> str:
    """A file for the trace of a row on a rank."""
    return f"{re.sub(r'[^A-Za-z0-9]+', '-', row).strip('-')}-rank{rank}.json.gz"
