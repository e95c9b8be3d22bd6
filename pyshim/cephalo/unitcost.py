"""What the units of one class cost on this rank, for growing numbers of samples."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from . import compat
from .batch import unflatten_call
from .capture import Example, StandIns, UnitClass, answering
from .engine import Engine
from .footprint import gradient_bytes
from .layered import LayeredCall
from .memory import Meter
from .offloadcost import measure_offload
from .oom import out_of_memory, release
from .timing import Laps, Once, Stopwatch, Together, repeat

POINT_S = 0.25
"""Time for the repeated runs of one point; slow ones still run three times."""
KEPT_SAMPLES = 2
"""Microbatch whose kept memory is looked at."""
GROWTH = 1.5
"""The next point takes about this many times as long as the last."""
STEADY_SLOPE = 0.1
"""A slope is stable when the last two differ by less than this share, or than noise explains."""
LAUNCH_BOUND = 0.6
"""Below this share of proportional growth, time is overhead and the slope says nothing yet."""


@dataclass
class Points:
    """Measured values by number of samples, in milliseconds and bytes."""

    forward_ms: dict[int, float] = field(default_factory=dict)
    backward_ms: dict[int, float] = field(default_factory=dict)
    """Without recomputation."""
    memory_bytes: dict[int, float] = field(default_factory=dict)
    """Peak of one forward and backward beyond what is there before, warm."""
    cold_bytes: dict[int, float] = field(default_factory=dict)
    """The same in the first run, with what libraries try out and load."""
    first_bytes: dict[int, float] = field(default_factory=dict)
    """The same, warm, of the first microbatch: there are no gradients yet to add its own to. The
    buffer that it makes for them is not counted."""
    kept_bytes: dict[str, float] = field(default_factory=dict)
    """Per sample, from forward to backward, by policy."""
    offload_ms: float | None = None
    """Per sample, to move the inputs to the host or back; None where that gains nothing."""
    spread: float = 0.0
    """Largest relative standard error of a median."""
    memory_ends: int | None = None
    """The number of samples that did not fit; None if all did."""
    extra_bytes: int = 0
    """See Meter."""
    late_gradient_bytes: int = 0
    """Of the root: what of its gradients is not there before the backward of all
    the units inside is over, as those of an embedding are not."""


@dataclass
class Bench:
    """What measurements share."""

    engine: Engine
    stopwatch: Stopwatch
    together: Together
    progress: Callable[[str], None]
    room_bytes: int | None
    """Memory that compute may take on this rank, to stop before it ends; None where running out
    does no harm."""

    @property
    def device(self) -> torch.device:
        return self.engine.runtime.device

    def meter(self) -> Meter:
        return Meter(self.device)


@dataclass(frozen=True)
class Peaks:
    """Bytes of one point; see Points."""

    warm: int
    cold: int
    first: int


def growing(most: int) -> Iterator[int]:
    """1, 2, 3, 4, 6, 8, 12, 16, … up to ``most``."""
    size = 1
    while size <= most:
        yield size
        if size > 1 and size + size // 2 <= most:
            yield size + size // 2
        size *= 2


def measure_class(
    bench: Bench, made: UnitClass, stand_ins: StandIns, most: int, limit_s: float
) -> Points:
    """Measure one class; collective. ``most`` is the largest number of samples of interest."""
    points = Points()
    if made.example is None or not made.calls:
        points.forward_ms = points.backward_ms = {1: 0.0}
        points.memory_bytes = points.cold_bytes = points.first_bytes = {1: 0.0}
        points.kept_bytes = {"keep": 0.0, "recompute": 0.0}
        return points
    made.example.gather()
    try:
        if made.whole_batch:
            _Whole(bench, made, stand_ins, points).measure(most, limit_s)
        else:
            _Layered(bench, made, points).measure(most, limit_s)
    finally:
        made.example.drop_gradients()
        made.example.free()
    return points


class _Measurement:
    """Grows the number of samples until the slope is stable, memory ends or time is over."""

    def __init__(self, bench: Bench, made: UnitClass, points: Points):
        self.bench, self.made, self.points = bench, made, points

    def trial(self, samples: int) -> Once:
        """The run of ``samples`` samples: its laps are forward and backward."""
        raise NotImplementedError

    def add(self, samples: int, laps: Laps, peaks: Peaks) -> None:
        """Note a point."""
        raise NotImplementedError

    def measure(self, most: int, limit_s: float) -> None:
        bench, points = self.bench, self.points
        began, alive = time.perf_counter(), True
        for samples in growing(most):
            bench.progress(f"{self.made.name} m={samples}")
            point_began = time.perf_counter()
            alive = alive and self._fits(samples)
            once, warm_ms, peaks = None, 0.0, None
            if alive:
                once, warm_ms, peaks = self._warm(samples)
                alive = once is not None
            if not alive and points.memory_ends is None:
                points.memory_ends = samples
            laps = repeat(bench.stopwatch, bench.together, once, warm_ms, POINT_S)
            once = None
            if laps is not None:
                self.add(samples, laps, peaks)
                points.spread = max(points.spread, laps.spread)
            elif alive:
                alive, points.memory_ends = False, samples
            if not alive:
                release(bench.device)
            if not bench.together.any(alive):
                break
            now = time.perf_counter()
            (end,) = bench.together.largest(now - began + GROWTH * (now - point_began))
            if samples > 1 and end > limit_s:
                break
            if not bench.together.any(alive and not self._stable()):
                break
        if not points.forward_ms:
            raise torch.OutOfMemoryError(
                f"one sample does not fit: {self.made.name} runs out of memory with a batch of 1"
            )

    def _warm(self, samples: int) -> tuple[Once | None, float, Peaks | None]:
        """The run, what it takes, and its peaks; no run if memory ends."""
        bench, example = self.bench, self.made.example
        try:
            once = self.trial(samples)
            peaks = []
            for _ in range(2):
                example.drop_gradients()
                with bench.meter() as meter:
                    bench.stopwatch.laps(once)
                # Their buffer is made anew, and is counted with the unit.
                peaks.append(meter.peak_bytes - gradient_bytes(example))
            cold, first = peaks
            with bench.meter() as warm:
                took = sum(bench.stopwatch.laps(once))
            self.points.extra_bytes = max(self.points.extra_bytes, warm.extra_bytes)
            return once, took, Peaks(warm.peak_bytes, max(first, cold), first)
        except Exception as err:
            if not out_of_memory(err):
                raise
        release(bench.device)
        return None, 0.0, None

    def _fits(self, samples: int) -> bool:
        """False if the points so far say that memory would end."""
        known = self.points.memory_bytes
        if self.bench.room_bytes is None or not known:
            return True
        last = max(known)
        expected = known[last] / last * samples
        kept = max(self.points.kept_bytes.values(), default=0.0) * samples
        return expected + kept <= self.bench.room_bytes

    def _stable(self) -> bool:
        sizes = sorted(self.points.forward_ms)
        if len(sizes) < 4:
            return False
        times = [self.points.forward_ms[m] + self.points.backward_ms[m] for m in sizes]
        slopes = [
            (times[i] - times[i - 1]) / (sizes[i] - sizes[i - 1]) for i in range(1, len(sizes))
        ]
        proportional = slopes[-1] * sizes[-1] >= LAUNCH_BOUND * times[-1]
        tolerance = max(STEADY_SLOPE, self.points.spread)
        return proportional and abs(slopes[-1] - slopes[-2]) <= tolerance * slopes[-1]


class _Layered(_Measurement):
    """A class that runs microbatch by microbatch.

    A run is the engine's own: forward without a graph, then backward with recomputation. The
    backward without recomputation is the difference of the two, so that both policies add up to
    what they take: recompute f + (f + w), keep (f + w).
    """

    def measure(self, most: int, limit_s: float) -> None:
        super().measure(most, limit_s)
        kept = self._kept(KEPT_SAMPLES) or self._kept(1)
        self.points.kept_bytes = kept or {"recompute": 0.0, "keep": 0.0}
        self.points.offload_ms = measure_offload(
            self.made.calls[0], self.bench.device, self.bench.stopwatch, self.bench.together
        )
        if self.points.offload_ms is not None:
            # Every input is another unit's result, or the root's: the next unit moves it away.
            self.points.kept_bytes["offload"] = 0.0

    def trial(self, samples: int) -> Once:
        return layered_run(self.bench, self.made, [samples])

    def add(self, samples: int, laps: Laps, peaks: Peaks) -> None:
        points = self.points
        points.forward_ms[samples] = laps.median(lambda run: run[0])
        points.backward_ms[samples] = max(0.0, laps.median(lambda run: run[1] - run[0]))
        # The gradients of the arguments belong to the local batch, not to the microbatch.
        whole = self.made.calls[0].gradient_bytes_per_sample() * samples
        points.memory_bytes[samples] = max(0.0, peaks.warm - whole)
        points.cold_bytes[samples] = max(peaks.warm, peaks.cold) - whole
        points.first_bytes[samples] = peaks.first - whole

    def _kept(self, samples: int) -> dict[str, float] | None:
        """Bytes that a forward leaves per sample: its results, which are the next unit's inputs
        (so that inputs are counted once), and with "keep" all that its graph saves."""
        kept: dict[str, float] = {}
        for policy in ("recompute", "keep"):
            try:
                leaves = self.made.calls[0].leaves_of(2 * samples)
                call, tensors = _layered_call(
                    self.bench, self.made, leaves, [samples, samples], policy == "keep"
                )
                with self.bench.meter() as meter, torch.no_grad():
                    outputs = call.forward(tensors)
                    kept[policy] = max(0.0, meter.live_bytes() / (2 * samples))
                del outputs, call
            except Exception as err:
                if not out_of_memory(err):
                    raise
                release(self.bench.device)
                return None
        return kept


def _layered_call(
    bench: Bench, made: UnitClass, leaves: list[Any], sizes: list[int], keep: bool
) -> tuple[LayeredCall, list[torch.Tensor]]:
    """A call of the engine's kind over microbatches of ``sizes``; the unit is gathered already."""
    example = made.calls[0]
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    call = LayeredCall(
        run=example.run,
        around=lambda phase: nullcontext(),
        after_backward=made.example.add_up_gradients,
        leaves=leaves,
        spec=example.spec,
        cut=example.cut,
        bounds=list(zip([0, *ends], ends, strict=False)),
        device=bench.device,
        keep=keep,
    )
    return call, [x for x in leaves if isinstance(x, torch.Tensor)]


def layered_run(bench: Bench, made: UnitClass, sizes: list[int]) -> Once:
    """Forward and backward with recomputation over microbatches of ``sizes``."""
    leaves = made.calls[0].leaves_of(sum(sizes))
    grads: list[torch.Tensor | None] = []

    @torch.no_grad()
    def once(mark: Callable[[], None]) -> None:
        call, tensors = _layered_call(bench, made, leaves, sizes, keep=False)
        outputs = call.forward(tensors)
        if not grads:
            grads.extend(torch.ones_like(x) if x.is_floating_point() else None for x in outputs)
        del outputs
        mark()
        call.backward(tensors, grads)
        mark()

    return once


class _Whole(_Measurement):
    """A class that sees its local batch at once: the root, and what cannot be cut.

    Units inside of it are stand-ins. A loss that the script computes outside of the model cannot be
    seen: the backward starts from ones at every result, as if the loss were their sum.
    """

    def __init__(self, bench: Bench, made: UnitClass, stand_ins: StandIns, points: Points):
        super().__init__(bench, made, points)
        self._stand_ins = stand_ins
        self._calls: list[tuple[Example, list[Any]]] = []
        self._kept: dict[int, float] = {}
        self._peaks: dict[int, Peaks] = {}

    def measure(self, most: int, limit_s: float) -> None:
        with answering(self.bench.engine, self._stand_ins.call), torch.enable_grad():
            super().measure(most, limit_s)
        sizes = sorted(self._kept)
        first, last = sizes[0], sizes[-1]
        kept = self._kept[last] / last
        if last > first:
            kept = (self._kept[last] - self._kept[first]) / (last - first)
        kept = max(0.0, kept)
        self.points.kept_bytes = {"keep": kept, "recompute": kept}
        for size, peaks in self._peaks.items():
            # There is no second microbatch.
            self.points.first_bytes[size] = peaks.first - kept * size
            self.points.memory_bytes[size] = max(0.0, self.points.first_bytes[size])
            self.points.cold_bytes[size] = peaks.cold - kept * size
        if self.made.root:
            with answering(self.bench.engine, self._stand_ins.call), torch.enable_grad():
                self.points.late_gradient_bytes = self._late_gradients(first)

    def _late_gradients(self, samples: int) -> int:
        """Bytes of the gradients that are not there at the backward of any unit inside."""
        unit, early = self.made.example, 0

        def note() -> None:
            nonlocal early
            early = max(early, sum(b.gradient_bytes for b in unit.buffers))

        unit.drop_gradients()
        self._stand_ins.on_backward = note
        try:
            self.trial(samples)(lambda: None)
        finally:
            self._stand_ins.on_backward = lambda: None
        return max(0, gradient_bytes(unit) - early)

    def trial(self, samples: int) -> Once:
        self._stand_ins.prepare(samples)
        self._calls = calls = [(c, c.leaves_of(samples)) for c in self.made.calls]

        def once(mark: Callable[[], None]) -> None:
            outputs = [self._run(call, leaves) for call, leaves in calls]
            mark()
            for output in reversed(outputs):
                wanted = [x for x in compat.tensors_of(output) if x.requires_grad]
                if wanted:
                    compat.backward(wanted, [torch.ones_like(x) for x in wanted])
            mark()
            for _, leaves in calls:
                for leaf in leaves:
                    if isinstance(leaf, torch.Tensor):
                        leaf.grad = None

        return once

    def _run(self, call: Example, leaves: list[Any]) -> Any:
        args, kwargs = unflatten_call(leaves, call.spec)
        return call.run(*args, **kwargs)

    def add(self, samples: int, laps: Laps, peaks: Peaks) -> None:
        self.points.forward_ms[samples] = laps.median(lambda run: run[0])
        self.points.backward_ms[samples] = laps.median(lambda run: run[1])
        self._peaks[samples] = peaks
        self.points.memory_bytes[samples] = float(max(0, peaks.first))
        with self.bench.meter() as meter:
            outputs = [self._run(call, leaves) for call, leaves in self._calls]
            self._kept[samples] = float(meter.live_bytes())
        del outputs
