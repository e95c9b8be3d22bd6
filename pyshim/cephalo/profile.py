"""The measurement worker: the costs of the script's own units, at its first training forward.

Every rank measures at the same time as the others, since in training all are busy together, and
writes ``measure/rank-N.json`` into the run directory. Then the script ends on all ranks.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from .batch import flatten_call, local_batch
from .capture import StandIns, UnitClass, capture, classify
from .classes import parameters_of
from .collectivecost import CollectiveTimes
from .data import Feed
from .devicefacts import allocator_slack_bytes, device_facts, overhead_bytes, room_bytes
from .devices import DeviceEntry
from .engine import Engine
from .events import Events
from .footprint import held_bytes, is_held, received_bytes, static_of
from .linkcost import measure_links
from .measurefile import write_measurement
from .oom import release
from .optimizercost import OptimizerCost, measure_optimizers
from .overhead import measure_overhead
from .overlapcost import measure_overlap
from .probing import BufferGuard
from .randomness import untouched_randomness
from .runtime import Runtime
from .timing import Stopwatch, Together
from .unit import Unit
from .unitcost import Bench, Points, measure_class

MOST_SAMPLES = 32
"""Samples of interest at least; more if the script's own global batch is larger."""


class Profiler:
    """Measures once, then ends the script by raising ``stop``."""

    def __init__(
        self,
        runtime: Runtime,
        run_dir: Path,
        entry: DeviceEntry,
        events: Events,
        feed: Feed,
        budget_s: float,
        stop: type[BaseException],
    ):
        self._runtime, self._run_dir, self._entry = runtime, run_dir, entry
        self._events, self._feed, self._stop = events, feed, stop
        self._budget_s = budget_s
        runtime.alone = False  # what is measured serves every plan
        self._overhead_bytes = 0
        self._together = Together(runtime.control)
        self._stopwatch = Stopwatch(runtime.clock)

    def __call__(self, engine: Engine, run: Any, args: tuple, kwargs: dict) -> None:
        """A root's first training forward is about to run."""
        if self._runtime.device.type == "cpu":
            # Before anything is measured: freed memory does not all go back to the system.
            self._overhead_bytes = self._overhead(engine)
        buffers = BufferGuard(engine.module)
        with untouched_randomness(self._runtime.device):
            path = self._measure(engine, run, args, kwargs)
        with torch.no_grad():
            buffers.restore()
        self._events.send("profile", path=str(path))
        self._together.barrier()
        raise self._stop

    def _progress(self, detail: str) -> None:
        self._events.send("phase", phase="measure", detail=detail)

    def _measure(self, engine: Engine, run: Any, args: tuple, kwargs: dict) -> Path:
        deadline = time.perf_counter() + self._budget_s
        runtime, device = self._runtime, self._runtime.device
        leaves, spec = flatten_call(args, kwargs)
        batch = local_batch(leaves, runtime.samples_of_batch())
        self._progress("calls")
        if not engine.signatures:
            engine.sign(run, leaves, spec, batch, cut=True)
        classes = classify(engine)
        order = capture(engine, classes, run, args, kwargs)
        links = measure_links(engine, classes, self._stopwatch, self._together, self._progress)
        held = held_bytes(engine, classes)
        room = room_bytes(self._entry, device)
        bench = Bench(
            engine,
            self._stopwatch,
            self._together,
            self._progress,
            None if room is None else max(0, room - sum(held.values())),
        )
        most = self._most(batch)
        points: dict[str, Points] = {}
        stand_ins = StandIns(engine, classes)
        for at, made in enumerate(classes):
            left = self._left(deadline)
            points[made.name] = measure_class(
                bench, made, stand_ins, most, left / (len(classes) - at)
            )
            release(device)
        overhead = measure_overhead(bench, classes, points)
        overlap = measure_overlap(bench, classes, points, links.times, order)
        release(device)
        # Half a minute later: what a link carries changes while others use it, or the host.
        links = links.mean(
            measure_links(engine, classes, self._stopwatch, self._together, self._progress)
        )
        self._progress("optimizer")
        parameters = [r.param for u in engine.units for b in u.buffers for r in b.refs]
        optimizer = measure_optimizers(parameters, device, self._stopwatch, self._together)
        control_ms = self._control_ms()
        runtime.clock.take()
        late = {name: points[name].late_gradient_bytes for name in held}
        held = {name: size - late[name] for name, size in held.items()}
        outside = self._outside(engine, points)
        document = {
            "rank": runtime.comm.rank,
            "device": device_facts(self._entry, device),
            "torch": torch.__version__.split("+")[0],
            "script": self._script(batch),
            "model": _model(engine, optimizer),
            "units": [_unit(engine, made, overlap.get(made.name, 0.0)) for made in classes],
            "reserved_bytes": sum(held.values()) + outside,
            "outside_bytes": outside,
            "fixed_ms": optimizer.step_ms + control_ms,
            "ragged_factor": links.ragged_factor,
            "microbatch_overhead_ms": {"forward": overhead[0], "backward": overhead[1]},
            "costs": _costs(classes, points, order, held, late),
            "collectives": {
                made.name: _collective(made, links.times[made.name], order) for made in classes
            },
            "spread": {name: p.spread for name, p in points.items()},
            "memory_ends": {n: p.memory_ends for n, p in points.items() if p.memory_ends},
        }
        return write_measurement(self._run_dir, document)

    def _most(self, batch: int | None) -> int:
        """The largest number of samples of interest, the same on every rank."""
        if batch is None:
            return 1
        mine = batch * self._runtime.comm.world_size
        return int(self._together.largest(max(mine, MOST_SAMPLES))[0])

    def _left(self, deadline: float) -> float:
        """Seconds of the budget that are left on the slowest rank."""
        return -self._together.largest(time.perf_counter() - deadline)[0]

    def _control_ms(self) -> float:
        """The small vector over the control group that ends every backward."""
        times = []
        for _ in range(5):
            self._together.barrier()
            start = time.perf_counter()
            self._together.barrier()
            times.append((time.perf_counter() - start) * 1e3)
        return sorted(times)[2]

    def _script(self, batch: int | None) -> dict[str, Any]:
        loader = self._feed.last_loader
        if loader is None:
            return {"batch_per_rank": batch or 1, "data": "fixed", "samples": 0}
        return {
            "batch_per_rank": loader.batch_per_rank,
            "data": "distributed-sampler",
            "samples": loader.samples,
        }

    def _outside(self, engine: Engine, points: dict[str, Points]) -> int:
        """Bytes that no tensor of the run can have: what the process takes beside tensors, and how
        far allocations outgrow the tensors in them."""
        extra = max(p.extra_bytes for p in points.values())
        if self._runtime.device.type == "cuda":
            # After everything: kernels and buffers of collectives are loaded when first used.
            self._overhead_bytes = self._overhead(engine)
            extra = max(extra, allocator_slack_bytes(self._entry, self._runtime.device))
        return extra + self._overhead_bytes

    def _overhead(self, engine: Engine) -> int:
        shards = sum(b.shard.nbytes for u in engine.units for b in u.buffers)
        return overhead_bytes(self._entry, self._runtime.device, shards)


def prepare(
    runtime: Runtime,
    run_dir: Path,
    entry: DeviceEntry,
    events: Events,
    feed: Feed,
    budget_s: float,
    stop: type[BaseException],
) -> None:
    """Measure at the first training forward of ``runtime``, then end the script with ``stop``."""
    runtime.on_training_forward.append(
        Profiler(runtime, run_dir, entry, events, feed, budget_s, stop)
    )


def _model(engine: Engine, optimizer: OptimizerCost) -> dict[str, Any]:
    units = [u for u in engine.units if u.absorber is None]
    weights: Counter[str] = Counter()
    for unit in engine.units:
        for buffer in unit.buffers:
            weights[str(buffer.compute_dtype).removeprefix("torch.")] += buffer.layout.numel
    return {
        "name": engine.root.kind,
        "parameters": sum(parameters_of(u) for u in units),
        "trainable_parameters": sum(parameters_of(u, trainable=True) for u in units),
        "state_bytes_per_parameter": optimizer.state_bytes,
        "gradient_bytes_per_parameter": optimizer.gradient_bytes,
        "step_bytes_per_parameter": optimizer.step_bytes,
        "optimizer": optimizer.name,
        "dtype": weights.most_common(1)[0][0] if weights else "float32",
    }


def _unit(engine: Engine, made: UnitClass, overlap_loss: float) -> dict[str, Any]:
    return {
        "class": made.name,
        "count": len(made.units),
        "parameters": parameters_of(made.units[0]),
        "trainable_parameters": parameters_of(made.units[0], trainable=True),
        "whole_batch": made.whole_batch,
        "held": is_held(engine, made),
        "overlap_loss": overlap_loss,
        "received_bytes": received_bytes(made.units[0]),
        "whole_batch_reason": made.reason,
        "inside": sorted({u.kind for u in made.units[0].absorbed}),
    }


def _collective(made: UnitClass, times: CollectiveTimes, order: list[Unit]) -> dict[str, float]:
    """The last unit of a forward is not gathered again for its backward, so its reduction takes
    that much less: a backward counts both."""
    gather, reduction = times.all_gather_ms, times.reduce_scatter_ms
    if made.units == order[-1:]:
        reduction = max(0.0, reduction - gather)
    return {"all_gather_ms": gather, "reduce_scatter_ms": reduction}


def _costs(
    classes: list[UnitClass],
    points: dict[str, Points],
    order: list[Unit],
    held: dict[str, int],
    late: dict[str, int],
) -> dict[str, Any]:
    """The costs by class. Between two units the gradients of the local batch are passed on: of one
    unit's results, and of its arguments. They are there once, whatever the number of units, so they
    are counted with the root. With offloading a third such tensor is there: in the forward what is
    leaving for the host beside a unit's arguments and results, in the backward what has come back
    for three microbatches, which are no more than the local batch where there are as many."""
    layered = [c for c in classes if not c.whole_batch]
    widest = max((k.gradient_bytes_per_sample() for c in layered for k in c.calls), default=0.0)
    passed = {"keep": 2 * widest, "recompute": 2 * widest, "offload": 3 * widest}
    offloads = bool(layered) and all(points[c.name].offload_ms is not None for c in layered)
    costs = {}
    for made in classes:
        own = points[made.name]
        static = static_of(order, made, held.get(made.name, 0), late.get(made.name, 0))
        kept = dict(own.kept_bytes)
        if offloads and made.whole_batch:
            kept["offload"] = kept["recompute"]
        if made.root:
            kept = {policy: size + passed[policy] for policy, size in kept.items()}
        costs[made.name] = {
            "forward_ms": _pairs(own.forward_ms),
            "backward_ms": _pairs(own.backward_ms),
            "memory_bytes": _above(static.most, own.memory_bytes),
            "cold_memory_bytes": _above(static.most, own.cold_bytes),
            "first_memory_bytes": _above(static.most, own.first_bytes),
            "least_memory_bytes": max(0, static.issuing),
            "last_unit_bytes": static.most - static.first,
            "kept_bytes_per_sample": kept,
        }
        if offloads:
            costs[made.name]["offload_ms_per_sample"] = own.offload_ms or 0.0
    return costs


def _above(held: int, values: dict[int, float]) -> list[list[float]]:
    """Peaks of compute with what is held around it."""
    return _pairs({m: max(0.0, held + v) for m, v in values.items()})


def _pairs(values: dict[int, float]) -> list[list[float]]:
    return [[m, values[m]] for m in sorted(values)]
