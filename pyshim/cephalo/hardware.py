"""What the devices themselves can do, measured without a script: compute, memory, links."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from .clock import Clock
from .comm import Comm, comm_of
from .devicefacts import device_facts
from .devices import DeviceEntry
from .events import Events
from .measurefile import write_measurement
from .oom import out_of_memory, release
from .timing import Stopwatch, Together

BUDGET_S = 15.0
"""No new measurement begins after this time."""
POINT_S = 0.5
"""Time for the repeated runs of one measurement."""
MATRIX = {"cuda": 8192, "cpu": 512}
"""Rows and columns of the square matrices that are multiplied."""
COPY_BYTES = {"cuda": 1 << 30, "cpu": 64 << 20}
"""Bytes of the buffer whose copy shows the memory's bandwidth; far more than any cache."""
LINK_BYTES = {"cuda": 256 << 20, "cpu": 0}
COLLECTIVE_BYTES = (4 << 10, 1 << 20, 16 << 20)
"""Sizes of the whole buffer in a collective; the first shows its latency."""

Progress = Callable[[str], None]


def measure(run_dir: Path, entry: DeviceEntry, device: torch.device, events: Events) -> Path:
    """Measure this rank's device beside the other ranks' and write ``measure/rank-N.json``.

    Collective: makes the process group from the environment that torchrun sets. Parts of one GPU
    use Gloo, as in training.
    """
    nccl = device.type == "cuda" and not entry.shared_gpu
    dist.init_process_group("nccl" if nccl else "gloo")
    try:
        bench = HardwareBench(entry, device, events)
        path = write_measurement(run_dir, bench.document())
        events.send("profile", path=str(path))
        bench.together.barrier()
        return path
    finally:
        dist.destroy_process_group()


class HardwareBench:
    """Measures one device; all methods are collective."""

    def __init__(self, entry: DeviceEntry, device: torch.device, events: Events):
        self._entry, self._device, self._events = entry, device, events
        self.together = Together(dist.new_group(backend="gloo"))
        self._stopwatch = Stopwatch(Clock(device, entry.slowdown))
        self._began = time.perf_counter()

    def document(self) -> dict[str, Any]:
        """The measurement file's content."""
        return {
            "rank": dist.get_rank(),
            "device": device_facts(self._entry, self._device),
            "torch": torch.__version__.split("+")[0],
            "hardware": {
                "matmul_tflops": self.matmul(),
                "memory_gb_per_s": self.memory(),
                "host_link_gb_per_s": self.host_link(),
                "collectives": self.collectives(),
            },
        }

    def matmul(self) -> dict[str, float]:
        """TFLOP/s of a large square product, by dtype: only what the device computes natively."""
        size = MATRIX[self._device.type]
        found = {}
        for name, dtype, tf32 in _dtypes(self._device):
            with _tf32(tf32):
                took = self._time(
                    f"matmul {name}", lambda dtype=dtype: _product(size, dtype, self._device)
                )
            if took:
                found[name] = 2 * size**3 / took / 1e9
        return found

    def memory(self) -> float | None:
        """GB/s of a copy within the device's memory, read and write counted."""
        size = COPY_BYTES[self._device.type]
        took = self._time("memory", lambda: _copy(size, self._device, self._device))
        return 2 * size / took / 1e6 if took else None

    def host_link(self) -> dict[str, float] | None:
        """GB/s between host and device, each way, from pinned and pageable host memory."""
        size, host = LINK_BYTES[self._device.type], torch.device("cpu")
        if not size:
            return None
        found = {}
        for kind, pinned in (("pinned", True), ("pageable", False)):
            for way, ends in (
                ("to_device", (host, self._device)),
                ("to_host", (self._device, host)),
            ):
                took = self._time(
                    f"host link {kind}", lambda ends=ends, pinned=pinned: _copy(size, *ends, pinned)
                )
                if took:
                    found[f"{kind}_{way}"] = size / took / 1e6
        return found

    def collectives(self) -> list[dict[str, Any]]:
        """Milliseconds and GB/s (bytes of the whole buffer by time) of the collectives that
        training uses, even shares; the slowest rank's time."""
        found = []
        comm = comm_of(None, self._device)
        for wanted in COLLECTIVE_BYTES:
            count = max(1, wanted // 4 // comm.world_size) * comm.world_size
            for name, make in _COLLECTIVES.items():
                took = self._time(
                    f"{name} {wanted} bytes", lambda make=make, count=count: make(comm, count)
                )
                if took:
                    (slowest,) = self.together.largest(took)
                    found.append(
                        {
                            "collective": name,
                            "bytes": 4 * count,
                            "ms": slowest,
                            "gb_per_s": 4 * count / slowest / 1e6,
                        }
                    )
        return found

    def _time(self, what: str, make: Callable[[], Callable[[], Any]]) -> float | None:
        """Median milliseconds of what ``make`` returns, on all ranks at the same time and equally
        often. None on every rank if time is over or it does not fit into the memory of one."""
        (late,) = self.together.largest(time.perf_counter() - self._began)
        if late > BUDGET_S:
            return None
        self._events.send("phase", phase="measure", detail=what)
        run = None
        try:
            run = make()
        except Exception as err:
            if not out_of_memory(err):
                raise
        if self.together.any(run is None):
            return None
        first = self._once(run)
        (slowest,) = self.together.largest(max(first, self._once(run)))
        times = max(3, min(50, int(POINT_S * 1e3 / max(slowest, 1e-3))))
        self.together.barrier()
        median = statistics.median(self._once(run) for _ in range(times))
        del run
        release(self._device)
        return median

    def _once(self, run: Callable[[], Any]) -> float:
        def once(mark: Callable[[], None]) -> None:
            run()
            mark()

        return self._stopwatch.laps(once)[0]


def _dtypes(device: torch.device) -> list[tuple[str, torch.dtype, bool]]:
    """(name, dtype, TF32 allowed) of what the device multiplies natively. What PyTorch calls
    supported is not asked: it counts emulation."""
    if device.type == "cpu":
        return [("fp32", torch.float32, False)]
    major, minor = torch.cuda.get_device_capability(device)
    found = [("fp32", torch.float32, False)]
    if major >= 8:
        found.append(("tf32", torch.float32, True))
    if (major, minor) >= (5, 3):
        found.append(("fp16", torch.float16, False))
    if major >= 8:
        found.append(("bf16", torch.bfloat16, False))
    return found


class _tf32:
    """Allows TF32 in products, or not, and puts the setting back."""

    def __init__(self, allowed: bool):
        self._wanted = "high" if allowed else "highest"

    def __enter__(self) -> None:
        self._before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(self._wanted)

    def __exit__(self, *_: Any) -> None:
        torch.set_float32_matmul_precision(self._before)


def _product(size: int, dtype: torch.dtype, device: torch.device) -> Callable[[], Any]:
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=out)


def _copy(
    size: int, source: torch.device, target: torch.device, pinned: bool = False
) -> Callable[[], Any]:
    def buffer(device: torch.device) -> torch.Tensor:
        made = torch.empty(
            size, dtype=torch.uint8, device=device, pin_memory=pinned and device.type == "cpu"
        )
        return made.zero_()  # host pages exist once they are written

    a, b = buffer(source), buffer(target)
    return lambda: b.copy_(a, non_blocking=pinned)


def _gather(comm: Comm, count: int) -> Callable[[], Any]:
    sizes = [count // comm.world_size] * comm.world_size
    full, shard = (torch.zeros(n, device=comm.device) for n in (count, sizes[0]))
    return lambda: comm.gather(full, shard, sizes).wait()


def _reduce(comm: Comm, count: int) -> Callable[[], Any]:
    sizes = [count // comm.world_size] * comm.world_size
    full = torch.zeros(count, device=comm.device)
    return lambda: comm.reduce(full, sizes, torch.float32).wait()


def _broadcast(comm: Comm, count: int) -> Callable[[], Any]:
    full = torch.zeros(count, device=comm.device)
    return lambda: dist.broadcast(full, src=0)


_COLLECTIVES = {"all_gather": _gather, "reduce_scatter": _reduce, "broadcast": _broadcast}
