"""What holds the memory of a step at its peak, by the line that asked for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

NAMED = 6
"""Lines that a summary names."""
ENTRIES = 500_000
"""Allocations and frees that are remembered: more than a step of any row has."""
OURS = ("/cephalo/", "/bench/")


def held_at_peak(torch: Any, step: Callable[[], Any]) -> dict[str, int]:
    """Run ``step`` with the allocator's history recorded (CUDA only).

    Returns bytes at the moment when most was allocated, the largest first: what was there before
    the step, and for each line of code what it had asked for and was not yet freed.

    The history is torch's own memory profiler, documented in spite of the underscores.
    """
    before = torch.cuda.memory_allocated()
    torch.cuda.memory._record_memory_history(stacks="python", max_entries=ENTRIES)
    try:
        step()
        torch.cuda.synchronize()
        snapshot = torch.cuda.memory._snapshot()
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    lines = at_peak(snapshot["device_traces"][torch.cuda.current_device()])
    held = Counter({"before the step": before})
    for event in lines:
        held[line_of(event["frames"])] += event["size"]
    return dict(held.most_common(NAMED))


def at_peak(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The allocations that were alive when their sum was largest. Frees of what was allocated
    before the first event make the sum smaller too."""
    now = most = 0
    alive: dict[int, dict[str, Any]] = {}
    peak: list[dict[str, Any]] = []
    for event in events:
        if event["action"] == "alloc":
            alive[event["addr"]] = event
            now += event["size"]
        elif event["action"] == "free_completed":
            alive.pop(event["addr"], None)
            now -= event["size"]
        if now > most:
            most, peak = now, list(alive.values())
    return peak


def line_of(frames: list[dict[str, Any]]) -> str:
    """The innermost line of ours among the frames, else the innermost of all."""
    ours = [f for f in frames if any(part in f["filename"] for part in OURS)]
    for frame in ours or frames:
        return f"{Path(frame['filename']).name}:{frame['line']} {frame['name']}"
    return "backward or C++"
