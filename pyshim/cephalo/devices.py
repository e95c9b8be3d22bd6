"""This rank's device, as the supervisor chose it."""

from __future__ import annotations

import json
import resource
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True)
class DeviceEntry:
    """One entry of ``devices.json``. ``memory_bytes`` 0 means no limit but the device's own."""

    rank: int
    name: str
    kind: str
    uuid: str
    memory_bytes: int = 0
    threads: int = 0
    slowdown: float = 1.0
    virtual: bool = False

    @property
    def shared_gpu(self) -> bool:
        """True if the device is a part of a GPU that other ranks use too."""
        return self.kind == "cuda" and self.virtual


def load_device(path: str | Path, rank: int) -> DeviceEntry:
    """Read the entry of ``rank``. Raises ValueError that names the file."""
    raw = json.loads(Path(path).read_text(encoding="utf-8"))
    known = DeviceEntry.__dataclass_fields__
    for item in raw.get("devices", []):
        if item.get("rank") == rank:
            return DeviceEntry(**{k: v for k, v in item.items() if k in known})
    raise ValueError(f"{path}: no device for rank {rank}")


def claim(entry: DeviceEntry, local_rank: int) -> torch.device:
    """Make the device current and put its memory limit in force."""
    if entry.kind == "cuda":
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
        if entry.memory_bytes:
            total = torch.cuda.get_device_properties(device).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, entry.memory_bytes / total), device)
        return device
    if entry.threads:
        torch.set_num_threads(entry.threads)
    if entry.memory_bytes:
        _limit_host_memory(entry.memory_bytes)
    return torch.device("cpu")


def _limit_host_memory(limit_bytes: int) -> None:
    """Let the process allocate ``limit_bytes`` beyond what it holds now (PyTorch itself and its
    threads' stacks are not the device's memory)."""
    limit = data_bytes() + limit_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def data_bytes() -> int:
    """Private writable memory that the process has mapped, which RLIMIT_DATA counts."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    return 0
