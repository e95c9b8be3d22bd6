"""One rank of a benchmark: worker.py PARTS_JSON ROWS_JSON RESULTS [TRACES].

Trains all rows one after another in this process, stock FSDP2 and cephalorun alike, on the same
part of the same device. Rank 0 appends a JSON line for every row to RESULTS. torchrun starts one
worker per part. With TRACES, a folder, each row makes one more step under torch's profiler.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).resolve().parents[2] / "pyshim")]

import held  # noqa: E402
import traces  # noqa: E402
from rows import Row  # noqa: E402

MATRIX = {"cuda": 8192, "cpu": 512}
"""Rows and columns of the matrices whose product shows a part's rate."""


Pieces = list[list[Any]]
"""Microbatches, each the arguments of the model."""


@dataclass(frozen=True)
class Trained:
    """A model ready to train. ``step`` makes one step of this rank's microbatches and returns the
    sum of their losses; ``link_ms`` is what the collectives of a step take one after another."""

    step: Callable[[Pieces], float]
    link_ms: float = 0.0


def die_with_parent() -> None:
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def take_part(part: dict[str, Any]):
    """This process's device with its limits. Before CUDA starts: all workers share one GPU."""
    if part["kind"] == "cuda":
        os.environ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(part["sm_percent"])
    import torch

    if part["kind"] == "cpu":
        torch.set_num_threads(part["threads"])
        return torch.device("cpu")
    from cephalo.soundness import check_products

    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, part["memory_bytes"] / total), 0)
    if part["sm_percent"] < 100:
        check_products(device, part["name"])
    return device


class Bench:
    """What the rows of one worker share."""

    def __init__(self, device, trace_folder: Path | None = None):
        import torch
        import torch.distributed as dist

        self.torch, self.dist, self.device, self.trace_folder = torch, dist, device, trace_folder
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.control = dist.new_group(backend="gloo")

    def everyone(self, value: float) -> list[float]:
        """The value of every rank."""
        mine = self.torch.zeros(self.world, dtype=self.torch.float64)
        mine[self.rank] = value
        self.dist.all_reduce(mine, group=self.control)
        return mine.tolist()

    def settle(self) -> None:
        if self.device.type == "cuda":
            self.torch.cuda.synchronize(self.device)
        self.dist.barrier(group=self.control)

    def tflops(self) -> list[float]:
        """What every rank multiplies while the others do so too, in the compute dtype."""
        torch = self.torch
        size = MATRIX[self.device.type]
        dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        a, b = (torch.randn(size, size, device=self.device).to(dtype) for _ in range(2))
        rates = []
        for _ in range(6):
            self.settle()
            start = time.perf_counter()
            for _ in range(3):
                a @ b
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
            rates.append(3 * 2 * size**3 / (time.perf_counter() - start) / 1e12)
        return self.everyone(statistics.median(rates[1:]))

    def run(self, row: Row) -> dict[str, Any]:
        """Train one row; what it took, by rank where that differs."""
        torch = self.torch
        trained = ENGINES[row.engine](self, row)
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        losses, times = [], []
        for at in range(row.warm_up + row.steps):
            pieces = own_part(self, row, at)
            self.settle()
            start = time.perf_counter()
            loss = trained.step(pieces)
            self.settle()
            times.append((time.perf_counter() - start) * 1e3)
            losses.append(sum(self.everyone(loss)) / row.global_batch)
        peak = torch.cuda.max_memory_allocated(self.device) if self.device.type == "cuda" else 0
        result = {
            "step_ms": statistics.median(times[row.warm_up :]),
            "times_ms": times,
            "losses": losses,
            "peak_bytes": self.everyone(float(peak)),
            "link_ms": trained.link_ms,
            "gpu": self.device.type == "cuda",
        }
        if self.trace_folder is not None:
            path = self.trace_folder / traces.name_of(f"{row.table} {row.name}", self.rank)
            result["trace"] = traces.traced(torch, lambda: trained.step(pieces), path)
            result["busy_ms"] = self.everyone(result["trace"]["busy_ms"])
            if self.device.type == "cuda":
                result["held"] = held.held_at_peak(torch, lambda: trained.step(pieces))
        return result

    def free(self) -> None:
        gc.collect()
        if self.device.type == "cuda":
            self.torch.cuda.empty_cache()


def own_part(bench: Bench, row: Row, seed: int) -> Pieces:
    """This rank's microbatches of the global batch, each a list of arguments."""
    import models

    whole = models.batch(row.shape, row.global_batch, seed)
    start = sum(row.batches[: bench.rank])
    pieces = []
    for size in row.micro[bench.rank]:
        pieces.append([x[start : start + size].to(bench.device) for x in whole])
        start += size
    return pieces


def policy_of(torch, dtype: str):
    from torch.distributed.fsdp import MixedPrecisionPolicy

    if dtype == "fp32":
        return MixedPrecisionPolicy()
    compute = {"bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
    return MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=torch.float32)


def finish(torch, model, optimizer) -> None:
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def accumulated(torch, model, optimizer, call: Callable[[list[Any], bool], Any]):
    """The step of ordinary accumulation. ``call`` gets a microbatch, and whether it is the last."""

    def step(pieces: Pieces) -> float:
        total = 0.0
        for at, piece in enumerate(pieces):
            losses = call(piece, at == len(pieces) - 1)
            (losses.mean() / len(pieces)).backward()
            total += losses.detach().sum()
        finish(torch, model, optimizer)
        return float(total)

    return step


def stock(bench: Bench, row: Row) -> Trained:
    """FSDP2 with ordinary accumulation."""
    import models
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch = bench.torch
    mesh = init_device_mesh(bench.device.type, (bench.world,))
    model, optimizer = models.build(
        row.shape,
        bench.device,
        lambda m, **options: fully_shard(m, mesh=mesh, **options),
        policy_of(torch, row.dtype),
        row.recompute,
    )

    def call(piece: list[Any], last: bool) -> Any:
        model.set_requires_gradient_sync(row.sync_each or last)
        return model(*piece)

    return Trained(accumulated(torch, model, optimizer, call))


def plain(bench: Bench, row: Row) -> Trained:
    """PyTorch alone, with the casts of autocast."""
    import models

    torch = bench.torch
    model = models.small(row.shape).to(bench.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": None}[row.dtype]

    def call(piece: list[Any], last: bool) -> Any:
        with torch.autocast(bench.device.type, dtype, enabled=dtype is not None):
            return model(*piece)

    return Trained(accumulated(torch, model, optimizer, call))


def cephalo(bench: Bench, row: Row) -> Trained:
    """The runtime as the shim sets it up, by the row's plan."""
    import models

    from cephalo import ragged, runtime, sharding
    from cephalo.collectivecost import measure_collectives
    from cephalo.module import state_of
    from cephalo.plan import parse_plan
    from cephalo.runtime import Runtime
    from cephalo.timing import Stopwatch, Together

    torch = bench.torch
    ragged.install()
    made = Runtime(parse_plan(row.plan()), bench.device)
    runtime.install(lambda: made)
    model, optimizer = models.build(
        row.shape, bench.device, sharding.fully_shard, policy_of(torch, row.dtype)
    )

    # A rank without samples shows its script one that weighs nothing.
    weightless = [x.to(bench.device) for x in models.batch(row.shape, 1, 0)]

    def step(pieces: Pieces) -> float:
        args = [torch.cat(parts) for parts in zip(*pieces)] or weightless
        made.samples_of_batch = lambda: sum(row.micro[bench.rank])
        losses = model(*args)
        losses.mean().backward()
        finish(torch, model, optimizer)
        return float(losses.detach().sum()) if pieces else 0.0

    link_ms = 0.0
    if bench.world > 1:
        # The root and the last unit are gathered once in a step, every other unit twice.
        for module, units, gathers in (
            (model.blocks[0], row.shape.layers, 2),
            (model.head, 1, 1),
            (model, 1, 1),
        ):
            unit = state_of(module).unit
            shares = made.plan.shares_of([unit.kind, f"{unit.kind} (root)"])
            watch, together = Stopwatch(made.clock), Together(made.control)
            times = measure_collectives(unit, units, shares, watch, together)
            link_ms += units * (gathers * times.all_gather_ms + times.reduce_scatter_ms)
    return Trained(step, link_ms)


ENGINES = {"fsdp2": stock, "plain": plain, "cephalo": cephalo}


def main() -> None:
    die_with_parent()
    parts, rows, results = json.loads(sys.argv[1]), json.loads(sys.argv[2]), Path(sys.argv[3])
    rank = int(os.environ["RANK"])
    device = take_part(parts[rank])
    import torch.distributed as dist

    dist.init_process_group("gloo")
    bench = Bench(device, Path(sys.argv[4]) if len(sys.argv) > 4 else None)
    rates = bench.tflops()

    def tell(line: dict[str, Any]) -> None:
        if rank == 0:
            with results.open("a") as file:
                file.write(json.dumps(line) + "\n")

    tell({"tflops": rates})
    for raw in rows:
        row = Row.from_json(raw)
        if rank == 0:
            print(f"bench: {row.table}: {row.name}", file=sys.stderr, flush=True)
        try:
            result = bench.run(row)
        except Exception as err:
            from cephalo.oom import out_of_memory

            if not out_of_memory(err):
                raise
            # The other ranks wait in a collective; torchrun ends them.
            name = parts[rank]["name"]
            traceback.print_exc()
            print(f"bench: out of memory: {row.table}: {row.name} on {name}", flush=True)
            os._exit(42)
        tell({"row": raw, **result})
        bench.free()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
