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
from .comm import HostSum

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
        self._total = 0.0
        """What counts on all ranks."""
        self._sums: HostSum | None = None
        """Of what counts and of the ranks that know, under way."""
        self._known = False
        if kind != TOKENS:
            self._start(True)

    def _start(self, known: bool) -> None:
        self._sums = HostSum([self._mine, float(known)], self._group)

    def _finish(self) -> None:
        if self._sums is None:
            self._mine = self._targets.total() if self.samples else 0.0
            self._start(self._targets.seen)
        self._total, knowing = self._sums.wait(self._clock, "sum of what counts")
        self._known = True
        if knowing == 0:
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
