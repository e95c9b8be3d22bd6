"""How much a rank's gradient counts, so that the sum over ranks is what one device would compute.

With a loss that is a mean over samples and a local batch of b_i of B samples, one device's gradient
is the sum of (b_i / B) * g_i. With a mean over tokens b_i and B are the targets that are not
ignored. A script that already divides by a global count wants the plain mean over ranks; one that
sets a divide factor wants the sum divided by it.
"""

from __future__ import annotations

import warnings

import torch
import torch.distributed as dist

from .clock import Clock

SAMPLES = "samples"
TOKENS = "tokens"
MEAN = "mean"
KINDS = (SAMPLES, TOKENS, MEAN)


class Targets:
    """The targets of the losses that follow a forward. ``count`` may stay on the device until it is
    needed, at the first reduction."""

    def __init__(self) -> None:
        self._counts: list[torch.Tensor] = []

    def note(self, count: torch.Tensor) -> None:
        """A loss is a mean over ``count`` targets (0-dim)."""
        self._counts.append(count)

    @property
    def seen(self) -> bool:
        """True if there was a loss."""
        return bool(self._counts)

    def total(self) -> float:
        """All targets together."""
        return sum(float(c) for c in self._counts)


class StepWeight:
    """The weight of this rank in one forward and its backward.

    ``samples`` are this rank's samples that count: 0 on a rank that only takes part. The total is
    summed over ``group`` (on CPU): samples beside the forward, tokens when the backward needs them.
    """

    def __init__(
        self, samples: int, kind: str, group: dist.ProcessGroup, clock: Clock, targets: Targets
    ):
        self.samples = samples
        self._clock = clock
        self._kind = kind
        self._group = group
        self._targets = targets
        self._mine = float(samples)
        self._total = self._knowing = 0.0
        """What counts on all ranks, and the number of ranks that know."""
        self._started = False
        self._sums: torch.Tensor | None = None
        self._work: dist.Work | None = None
        """The sum of both under way; None where there is one rank."""
        self._known = False
        if kind != TOKENS:
            self._start(True)

    def _start(self, known: bool) -> None:
        self._total, self._knowing = self._mine, float(known)
        self._started = True
        if dist.get_world_size(self._group) > 1:
            self._sums = torch.tensor([self._total, self._knowing], dtype=torch.float64)
            self._work = dist.all_reduce(self._sums, group=self._group, async_op=True)

    def _finish(self) -> None:
        if not self._started:
            self._mine = self._targets.total() if self.samples else 0.0
            self._start(self._targets.seen)
        if self._work is not None:
            with self._clock.waiting("sum of what counts"):
                self._work.wait()
            self._total, self._knowing = self._sums.tolist()
        self._known = True
        if self._knowing == 0:
            raise RuntimeError(
                "--weighting tokens counts the targets of torch.nn.functional.cross_entropy, and "
                "no loss of this step came from there; use samples or mean"
            )
        if self._kind == TOKENS and self._total == 0:
            warnings.warn("no counted token in this step: it has no gradients", stacklevel=2)

    def of(self, divide_factor: float | None) -> float:
        """Factor for this rank's gradients before they are summed over the ranks.
        ``divide_factor`` is what the script set for the unit in place of weights, or None.
        Collective when called for the first time."""
        if not self._known:
            self._finish()
        if self.samples == 0 or self._mine == 0:
            return 0.0
        if divide_factor is not None:
            return 1.0 / divide_factor
        if self._kind == MEAN:
            return 1.0 / dist.get_world_size(self._group)
        return self._mine / self._total
