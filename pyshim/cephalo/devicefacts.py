"""What this rank's device is, how much of it the run may use, and what is gone before tensors."""

from __future__ import annotations

import os
import re
import resource
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from .devices import DeviceEntry, data_bytes

SAFE_SHARE = 0.9
"""Share of a CPU device's memory that measuring may fill: past its end the process would die
somewhere in a thread that cannot answer."""
STACK_BYTES = 8 << 20
"""Of a thread that starts later: its stack counts as mapped."""
OFFLOAD_SHARE = 0.7
"""Share of the host memory that is free which offloading may pin: the rest is the system's page
cache, data loaders, and the slabs' rounding."""
CONTEXT_MOST_BYTES = 2 << 30
"""More than this is not a CUDA context but somebody else's memory."""
SLACK_SHARE = 0.04
"""Share of a GPU's memory that PyTorch's allocator keeps but cannot hand out, in pages that are
filled in part: 1.6 % where a step of 9.9 GiB of tensors did not fit into 10 GiB, and 3 % where
one of 3.9 GiB did not fit into 4 GiB."""


def device_facts(entry: DeviceEntry, device: torch.device) -> dict[str, Any]:
    """The ``device`` part of a measurement file."""
    facts: dict[str, Any] = {"name": entry.name, "uuid": entry.uuid}
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        free, total = torch.cuda.mem_get_info(device)
        mine = torch.cuda.memory_reserved(device)
        facts["name"] = entry.name if entry.virtual else properties.name
        facts["capability"] = [properties.major, properties.minor]
        facts["bf16"] = properties.major >= 8
        facts["total_bytes"] = entry.memory_bytes if entry.virtual else total
        facts["usable_bytes"] = entry.memory_bytes or free + mine
        facts["host_memory_bytes"] = int(free_host_bytes() * OFFLOAD_SHARE) // ranks_of_host()
        return facts
    total = host_bytes()
    facts["total_bytes"] = entry.memory_bytes or total
    facts["usable_bytes"] = entry.memory_bytes or total // ranks_of_host()
    return facts


def allocator_slack_bytes(entry: DeviceEntry, device: torch.device) -> int:
    """Bytes of a GPU that a full allocator cannot hand out."""
    total = entry.memory_bytes or torch.cuda.mem_get_info(device)[1]
    return int(total * SLACK_SHARE)


def room_bytes(entry: DeviceEntry, device: torch.device) -> int | None:
    """Bytes that measuring may still take; None where running out of memory is harmless."""
    if device.type == "cuda":
        return None
    left = int(host_bytes() // ranks_of_host() * SAFE_SHARE)
    limit = resource.getrlimit(resource.RLIMIT_DATA)[0]
    if limit != resource.RLIM_INFINITY:
        left = min(left, int((limit - data_bytes()) * SAFE_SHARE))
    return max(0, left)


def overhead_bytes(entry: DeviceEntry, device: torch.device, tensor_bytes: int) -> int:
    """Bytes of the device's limit that are gone for other things than the run's tensors.

    CUDA, a device of its own: the context with its kernels, and the buffers of the collectives:
    everything in use on the card that is not our allocator's, without what others used already
    (the card's size less what the run may use). A part of a card has its limit on the allocator
    alone, so nothing of this counts.
    CPU with a limit: what the process has mapped since the limit was set, without
    ``tensor_bytes``, which are counted as state: threads (one more may come), the script's data.
    Without a limit: 0.
    """
    if device.type == "cuda":
        if entry.virtual:
            return 0
        free, total = torch.cuda.mem_get_info(device)
        others = max(0, total - entry.memory_bytes) if entry.memory_bytes else 0
        used = total - free - torch.cuda.memory_reserved(device) - others
        return min(max(0, used), CONTEXT_MOST_BYTES)
    limit = resource.getrlimit(resource.RLIMIT_DATA)[0]
    if not entry.memory_bytes or limit == resource.RLIM_INFINITY:
        return 0
    start = limit - entry.memory_bytes
    return max(0, data_bytes() - start - tensor_bytes) + STACK_BYTES


def ranks_of_host() -> int:
    """Ranks that share this machine's memory: all, while a run has one machine."""
    return dist.get_world_size()


def host_bytes() -> int:
    """Memory of the machine, or of the container if that has less."""
    sizes = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    sizes += [limit for limit, _ in _cgroup_memory()]
    return min(sizes)


def free_host_bytes() -> int:
    """What of that nobody uses: by the kernel's estimate, and by the container's own count."""
    text = Path("/proc/meminfo").read_text(encoding="ascii")
    kibibytes = re.search(r"^MemAvailable:\s*(\d+)", text, re.MULTILINE)
    sizes = [int(kibibytes[1]) << 10] if kibibytes else [host_bytes()]
    sizes += [max(0, limit - used) for limit, used in _cgroup_memory()]
    return min(sizes)


def _cgroup_memory() -> list[tuple[int, int]]:
    """(limit, used) in bytes of this process's container, where it has a limit; page cache counts
    as used only as far as it cannot be dropped."""
    found = []
    for folder, limit_file, used_file, cache in (
        ("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
        (
            "/sys/fs/cgroup/memory",
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            "total_inactive_file",
        ),
    ):
        limit = _text(Path(folder, limit_file))
        if limit.isdigit():
            dropped = re.search(
                rf"^{cache} (\d+)", _text(Path(folder, "memory.stat")), re.MULTILINE
            )
            used = int(_text(Path(folder, used_file)) or limit)  # unknown: all of it
            found.append((int(limit), max(0, used - (int(dropped[1]) if dropped else 0))))
    return found


def _text(path: Path) -> str:
    """The file's text; empty if it cannot be read."""
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
