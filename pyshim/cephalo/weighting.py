"""How much a rank's gradient counts, so that the sum over ranks is what one device would compute.

With a loss that is a mean over samples and a local batch of b_i of B samples, one device's gradient
is the sum of (b_i / B) * g_i. A script that already divides by a global count (tokens, for example)
wants the plain mean over ranks; one that sets a divide factor wants the sum divided by it.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from .clock import Clock

SAMPLES = "samples"
MEAN = "mean"
KINDS = (SAMPLES, MEAN)


class StepWeight:
    """The weight of this rank in one forward and its backward.

    ``samples`` are this rank's samples that count: 0 on a rank that only takes part. The total is
    summed over ``group`` (on CPU) beside the forward.
    """

    def __init__(self, samples: int, kind: str, group: dist.ProcessGroup, clock: Clock):
        self.samples = samples
        self._clock = clock
        self._kind = kind
        self._world_size = dist.get_world_size(group)
        self._total = torch.tensor([samples], dtype=torch.int64)
        self._work: dist.Work | None = dist.all_reduce(self._total, group=group, async_op=True)

    def of(self, divide_factor: float | None) -> float:
        """Factor for this rank's gradients before they are summed over the ranks.
        ``divide_factor`` is what the script set for the unit in place of weights, or None."""
        if self._work is not None:
            with self._clock.waiting("sum of the batch sizes"):
                self._work.wait()
            self._work = None
        if self.samples == 0:
            return 0.0
        if divide_factor is not None:
            return 1.0 / divide_factor
        if self._kind == MEAN:
            return 1.0 / self._world_size
        return self.samples / int(self._total)
