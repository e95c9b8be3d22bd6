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

    def __init__(
        self,
        samples: int,
        kind: str,
        divide_factor: float | None,
        group: dist.ProcessGroup,
        clock: Clock,
    ):
        self.samples = samples
        self._clock = clock
        self._kind = kind
        self._factor = divide_factor
        self._world_size = dist.get_world_size(group)
        self._total = torch.tensor([samples], dtype=torch.int64)
        self._work = dist.all_reduce(self._total, group=group, async_op=True)
        self._local: float | None = None

    def local(self) -> float:
        """Factor for this rank's gradients before they are summed over the ranks."""
        if self._local is None:
            with self._clock.waiting():
                self._work.wait()
            self._local = self._weigh(int(self._total.item()))
        return self._local

    def _weigh(self, total: int) -> float:
        if self.samples == 0:
            return 0.0
        if self._factor is not None:
            return 1.0 / self._factor
        if self._kind == MEAN:
            return 1.0 / self._world_size
        return self.samples / total
