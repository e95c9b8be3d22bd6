"""Times that can be trusted: taken on all ranks together, repeated until the median is steady."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from .clock import Clock
from .oom import out_of_memory

Once = Callable[[Callable[[], None]], None]
"""One run of what is measured. It calls its argument at the end of every lap."""

STEADY_SPREAD = 0.03
"""A median is steady once its standard error is below this share of it."""
FEWEST_RUNS = 3
SHORTEST_ROUND_S = 0.03


class Together:
    """Agreement between the ranks of a measurement, over the control group."""

    def __init__(self, group: dist.ProcessGroup | None):
        self._group = group

    def largest(self, *values: float) -> list[float]:
        """The largest of every value over the ranks; also a barrier."""
        vector = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(vector, op=dist.ReduceOp.MAX, group=self._group)
        return vector.tolist()

    def any(self, mine: bool) -> bool:
        """True on every rank if it is true on any."""
        return self.largest(float(mine))[0] > 0

    def barrier(self) -> None:
        """Return once every rank is here."""
        self.largest(0.0)


class Stopwatch:
    """Times laps on the device: by events on CUDA, by the wall clock on CPU.

    A virtual slow device is timed as slow as it will run: the clock's pause is part of every lap.
    """

    def __init__(self, clock: Clock):
        self._clock = clock
        self._cuda = clock.device.type == "cuda"

    def laps(self, once: Once) -> list[float]:
        """Milliseconds of every lap of one run."""
        marks: list = []
        self.settle()
        self._mark(marks)
        once(lambda: self._mark(marks))
        self.settle()
        if self._cuda:
            return [a.elapsed_time(b) for a, b in zip(marks, marks[1:], strict=False)]
        return [(b - a) * 1e3 for a, b in zip(marks, marks[1:], strict=False)]

    def wall_ms(self, run: Callable[[], object]) -> float:
        """Milliseconds of one run by the wall clock: what goes through the host, as collectives
        may, is not on a CUDA stream."""
        self.settle()
        start = time.perf_counter()
        run()
        self.settle()
        return (time.perf_counter() - start) * 1e3

    def settle(self) -> None:
        """Wait for queued work, and pause for the compute so far."""
        self._clock.pace()
        if self._cuda:
            torch.cuda.synchronize(self._clock.device)

    def _mark(self, marks: list) -> None:
        self._clock.pace()
        if self._cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            marks.append(event)
        else:
            marks.append(time.perf_counter())


@dataclass(frozen=True)
class Laps:
    """Repeated runs: ``runs[i][k]`` is lap k of run i in milliseconds."""

    runs: tuple[tuple[float, ...], ...]

    def median(self, of: Callable[[Sequence[float]], float]) -> float:
        """Median over the runs of a number made of a run's laps."""
        return statistics.median(of(run) for run in self.runs)

    @property
    def spread(self) -> float:
        """Relative standard error of the median of a run's total, from its quartiles."""
        totals = sorted(map(sum, self.runs))
        return spread(totals)


def spread(values: Sequence[float]) -> float:
    """Standard error of the median as a share of it. 1 for fewer than three values."""
    if len(values) < FEWEST_RUNS:
        return 1.0
    middle = statistics.median(values)
    return error_of_median(values) / middle if middle > 0 else 0.0


def error_of_median(values: Sequence[float]) -> float:
    """Standard error of the median of at least two values: 1.25 of the mean's, which is estimated
    from the quartiles so that one outlier does not count."""
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return 1.25 * (high - low) / 1.35 / len(values) ** 0.5


def repeat(
    stopwatch: Stopwatch, together: Together, once: Once | None, expected_ms: float, limit_s: float
) -> Laps | None:
    """Run ``once`` on all ranks at the same time, in rounds, until the median is steady on all of
    them or ``limit_s`` have passed; at least three runs each. Every rank keeps running until the
    slowest has done its part of a round, since in training all are busy at the same time.

    Collective. ``once`` is None on a rank that only keeps the others company; a rank that runs out
    of memory becomes one. ``expected_ms`` is what one run takes here. Returns None on such ranks.
    """
    runs: list[tuple[float, ...]] = []
    began = time.perf_counter()
    (slowest_ms,) = together.largest(expected_ms if once is not None else 0.0)
    round_s = max(FEWEST_RUNS * slowest_ms / 1e3, SHORTEST_ROUND_S)
    while True:
        end = time.perf_counter() + round_s
        try:
            while once is not None and (time.perf_counter() < end or len(runs) < FEWEST_RUNS):
                runs.append(tuple(stopwatch.laps(once)))
        except Exception as err:
            if not out_of_memory(err):
                raise
            once = None
        steady = once is None or Laps(tuple(runs)).spread < STEADY_SPREAD
        late = time.perf_counter() - began + round_s > limit_s
        if not together.any(not (steady or late)):
            return Laps(tuple(runs)) if once is not None else None
