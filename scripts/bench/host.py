"""What a training step takes the host: host.py [--ranks N] [--profile "ENGINE DTYPE"].

Models so small that computing is next to nothing, on the processor: plain PyTorch, FSDP2 and
cephalorun with everything kept, one microbatch. On a fast GPU this is what a step waits for.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).resolve().parents[2] / "pyshim")]

import models  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import worker  # noqa: E402

from cephalo import ragged, runtime, sharding  # noqa: E402
from cephalo.plan import even_plan  # noqa: E402

PHASES = ("forward", "backward", "clip", "optimizer", "zero_grad")
CPU = torch.device("cpu")
TURN, WARM = 10, 3
"""Steps of one engine before the next has its turn, and those before that are not counted."""


def make(engine: str, shape: models.Shape, dtype: str, ranks: int):
    """The model and its optimizer, and what calls the model."""
    policy = worker.policy_of(torch, dtype)
    if engine == "plain":
        model = models.small(shape)
        made = model, torch.optim.AdamW(model.parameters(), lr=1e-4)
        cast = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": None}[dtype]

        def call(*batch):
            with torch.autocast("cpu", cast, enabled=cast is not None):
                return model(*batch)

        return *made, call
    if engine == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (ranks,))
        model, optimizer = models.build(
            shape, CPU, lambda m, **options: fully_shard(m, mesh=mesh, **options), policy
        )
        return model, optimizer, model
    current = runtime.Runtime(even_plan(ranks, 1, "keep"), CPU)
    runtime.install(lambda: current)
    current.samples_of_batch = lambda: 1
    model, optimizer = models.build(shape, CPU, sharding.fully_shard, policy)
    return model, optimizer, model


def step(model, optimizer, call, batch) -> list[float]:
    """One step; milliseconds of its phases."""
    times = [time.perf_counter()]
    loss = call(*batch).mean()
    times.append(time.perf_counter())
    loss.backward()
    times.append(time.perf_counter())
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    times.append(time.perf_counter())
    optimizer.step()
    times.append(time.perf_counter())
    optimizer.zero_grad()
    times.append(time.perf_counter())
    return [(b - a) * 1e3 for a, b in zip(times, times[1:])]


def lower(values) -> float:
    """The lower quartile: what else the machine does only adds to a time."""
    return statistics.quantiles(values, n=4)[0]


def rank(number: int, args: argparse.Namespace, meeting: str) -> None:
    torch.set_num_threads(1)
    ragged.install()  # before the first optimizer is made
    os.environ |= {"RANK": str(number), "WORLD_SIZE": str(args.ranks), "LOCAL_RANK": str(number)}
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=number, world_size=args.ranks
    )
    shape = models.Shape("vit", args.layers, 8, 1, 4, 10)
    batch = models.batch(shape, 1, 0)
    runs = {
        f"{engine} {dtype}": make(engine, shape, dtype, args.ranks)
        for dtype in args.dtypes
        for engine in args.engines
        if args.ranks == 1 or engine != "plain"
    }
    times: dict[str, list[list[float]]] = {name: [] for name in runs}
    for _, optimizer, _ in runs.values():
        optimizer.param_groups[0]["foreach"] = True  # as PyTorch takes it on a GPU
    for _ in range(-(-args.steps // TURN)):
        for name, run in runs.items():  # in turn, so that all see the same machine
            times[name] += [step(*run, batch) for _ in range(TURN + WARM)][WARM:]
    if number == 0:
        print(f"{'ms':16} {'step':>8} " + " ".join(f"{p:>9}" for p in PHASES))
        for name, steps in times.items():
            whole = lower(map(sum, steps))
            parts = [lower(column) for column in zip(*steps)]
            print(f"{name:16} {whole:8.3f} " + " ".join(f"{p:9.3f}" for p in parts), flush=True)
    if args.profile:
        watch = cProfile.Profile()
        for _ in range(args.steps):
            watch.enable()
            step(*runs[args.profile], batch)
            watch.disable()
        if number == 0:
            pstats.Stats(watch).sort_stats("tottime").print_stats(45)
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--dtypes", nargs="*", default=["fp32", "bf16"])
    parser.add_argument("--engines", nargs="*", default=["plain", "fsdp2", "cephalo"])
    parser.add_argument("--profile", help="engine and dtype, as in the table")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        meeting = f"{folder}/meeting"
        if args.ranks == 1:
            rank(0, args, meeting)
        else:
            torch.multiprocessing.spawn(rank, (args, meeting), args.ranks)


if __name__ == "__main__":
    main()
