"""The devices of a benchmark: parts of one GPU by CUDA MPS, or ranks on the processor."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MPS_SECONDS = 30
USED = 0.95
"""Share of the card's memory that the parts divide."""

UNEQUAL = ((48, 40), (27, 25), (12, 20), (10, 10))
"""Percent of the multiprocessors and of the memory. Not every share computes rightly: see
docs/devices.md."""
EQUAL = ((25, 25),) * 4
WHOLE = ((100, 100),)

Part = dict[str, Any]


def gpu_parts(cut: tuple[tuple[int, int], ...], memory_bytes: int) -> list[Part]:
    """Parts of a card of which ``memory_bytes`` may be used."""
    return [
        {
            "name": f"part-{processors}-{at}",
            "kind": "cuda",
            "index": 0,
            "sm_percent": processors,
            "memory_bytes": memory_bytes * memory // 100,
        }
        for at, (processors, memory) in enumerate(cut)
    ]


def cpu_parts(count: int) -> list[Part]:
    return [
        {"name": f"cpu-{at}", "kind": "cpu", "threads": 1, "memory_bytes": 2 << 30}
        for at in range(count)
    ]


def devices_yaml(parts: list[Part]) -> str:
    """The parts as a devices file; JSON's numbers and strings are YAML's too."""
    lines = ["devices:"]
    for part in parts:
        fields = {key: value for key, value in part.items() if key != "memory_bytes"}
        fields["memory"] = f"{part['memory_bytes'] >> 20}MiB"
        lines.append(f"  - {json.dumps(fields)}")
    return "\n".join(lines) + "\n"


def ask(*command: str) -> str:
    """What a command prints, or "unknown"."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=30, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def hardware(cpu: bool) -> str:
    if not cpu:
        return ask("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    names = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return f"{os.cpu_count()} x {names[0] if names else platform.machine()}"


def gpu_memory_bytes() -> int:
    answer = ask(
        "nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits", "-i", "0"
    )
    if not answer.isdigit():
        sys.exit("bench: nvidia-smi names no GPU here; --cpu measures without one.")
    return int((int(answer) << 20) * USED)


@contextmanager
def mps(folder: Path) -> Iterator[dict[str, str]]:
    """An MPS daemon of this run's own, and the environment that leads to it."""
    environment = {
        "CUDA_MPS_PIPE_DIRECTORY": str(folder / "mps"),
        "CUDA_MPS_LOG_DIRECTORY": str(folder / "mps-log"),
    }
    for path in environment.values():
        Path(path).mkdir(exist_ok=True)
    full = os.environ | environment
    control = "nvidia-cuda-mps-control"
    subprocess.run([control, "-d"], env=full, check=True, timeout=MPS_SECONDS)
    try:
        yield environment
    finally:
        subprocess.run(
            [control], input="quit\n", text=True, env=full, timeout=MPS_SECONDS, check=False
        )
