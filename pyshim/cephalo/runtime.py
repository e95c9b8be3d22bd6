"""What all units of a worker share: the plan, the groups, the clock and the sinks for events."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from .clock import Clock
from .comm import HostSum, comm_of
from .offload import Offloader
from .place import Place
from .plan import Plan, RankPlan
from .weighting import SAMPLES, StepWeight, Targets


class Runtime:
    """One per process. Made before the script's first ``fully_shard``, after the process group.

    ``on_training_forward`` hears of every forward of a root with gradients, before it runs;
    ``on_backward`` of every backward, with the samples of this rank that counted in it.
    """

    def __init__(
        self,
        plan: Plan,
        device: torch.device,
        group: dist.ProcessGroup | None = None,
        weighting: str = SAMPLES,
        slowdown: float = 1.0,
        place: Place | None = None,
    ):
        if not dist.is_initialized():
            dist.init_process_group()  # as fully_shard without a mesh does
        world_size = dist.get_world_size(group)
        if plan.world_size != world_size:
            raise ValueError(f"the plan is for {plan.world_size} ranks, the group has {world_size}")
        self.plan = plan
        self.device = device
        self.weighting = weighting
        self.group = group
        self.control = dist.new_group(backend="gloo")
        self.comm = comm_of(group, device)
        if self.comm.backend == "nccl":
            self.agree_on("the version of NCCL", torch.cuda.nccl.version())
        self.alone = world_size == 1 and plan.plain
        """True if nothing is shared out, cut or run again, so that units are plain modules."""
        self.clock = Clock(device, slowdown, place)
        self.clock.place.pending = self.comm.pending
        self.mesh: DeviceMesh | None = None
        self.samples_of_batch: Callable[[], int | None] = lambda: None
        self.on_training_forward: list[Callable[..., None]] = []
        self.on_backward: list[Callable[[int], None]] = []
        self.stop_asked: Callable[[], bool] = lambda: False
        self.busy: set[Any] = set()
        """Engines in a backward or a probe: what they compute is no new loss."""
        self.in_training_forward = False
        self._targets = Targets()
        self.stop_agreed = False
        """True once any rank was asked to stop; becomes so on all ranks in the same backward."""
        self.save_asked: Callable[[], bool] = lambda: False
        self.save_agreed = False
        """The same for stopping after the script's next checkpoint."""

    @functools.cached_property
    def offloader(self) -> Offloader:
        """Moves activations to the host and back."""
        return Offloader(self.device)

    @property
    def part(self) -> RankPlan:
        """This rank's part of the plan."""
        return self.plan.ranks[self.comm.rank]

    def before_training_forward(
        self, engine: Any, run: Callable, args: tuple, kwargs: dict
    ) -> None:
        for listener in self.on_training_forward:
            listener(engine, run, args, kwargs)

    def after_backward(self, samples: int) -> None:
        for listener in self.on_backward:
            listener(samples)

    def weigh(self, batch: int | None, counted: int | None) -> StepWeight:
        """Start to learn what this rank's samples weigh in this step. ``batch`` is the number of
        samples in the call; the data loader may know better how many of them count."""
        samples = (1 if batch is None else batch) if counted is None else counted
        if self._targets.seen:  # forwards without a loss between them share what comes after
            self._targets = Targets()
        return StepWeight(samples, self.weighting, self.control, self.clock, self._targets)

    def note_targets(self, loss: torch.Tensor, count: torch.Tensor) -> None:
        """The script, or its model, computed a loss that is a mean over ``count`` targets."""
        if not self.busy and (loss.requires_grad or self.in_training_forward):
            self._targets.note(count)

    def sum_over_ranks(self, values: list[float]) -> list[float]:
        """The sums over all ranks of a few numbers, added up in fp64."""
        return HostSum(values, self.control).wait(self.clock, "sum of the ranks' notes")

    def true_everywhere(self, flags: Sequence[bool]) -> list[bool]:
        """For each flag whether it is True on every rank."""
        return [n == self.comm.world_size for n in self.sum_over_ranks([float(f) for f in flags])]

    def agree_on(self, what: str, mine: Any) -> None:
        """Raise RuntimeError on every rank if the ranks do not have the same value. Compared by
        digest: collectives of objects need NumPy, which PyTorch works without."""
        digest = hashlib.sha256(repr(mine).encode()).digest()[:8]
        own = torch.tensor([int.from_bytes(digest, "big", signed=True)])
        everyone = [torch.empty_like(own) for _ in range(self.comm.world_size)]
        dist.all_gather(everyone, own, group=self.control)
        others = [r for r, theirs in enumerate(everyone) if not torch.equal(theirs, everyone[0])]
        if others:
            raise RuntimeError(
                f"ranks {others} differ from rank 0 in {what}; rank {self.comm.rank} has {mine!r}"
            )


_make: Callable[[], Runtime] | None = None
_current: Runtime | None = None


def install(make: Callable[[], Runtime] | None) -> None:
    """Say how the process's runtime is made; it is made when first needed. None takes it away."""
    global _make, _current
    _make, _current = make, None


def current() -> Runtime:
    """The process's runtime. Raises RuntimeError if none was installed."""
    global _current
    if _current is None:
        if _make is None:
            raise RuntimeError("cephalo is not installed in this process")
        _current = _make()
    return _current
