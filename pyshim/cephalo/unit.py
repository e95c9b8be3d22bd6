"""A unit: a module given to ``fully_shard`` with the parameters that no nested unit owns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from . import compat
from .clock import Clock
from .comm import Comm, ReduceHandle
from .flat import FlatShard, ParamRef
from .gathered import FlatBuffer
from .precision import cast_call, cast_tree
from .scalars import ScalarBuffer
from .weighting import StepWeight

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


class State(Enum):
    SHARDED = "sharded"
    """Only the shard exists."""
    GATHERING = "gathering"
    """A gather is under way."""
    GATHERED = "gathered"
    """The modules hold plain parameters."""


@dataclass(frozen=True)
class Precision:
    """The dtypes of a unit; None means the parameters' own. Fields as in MixedPrecisionPolicy."""

    param_dtype: torch.dtype | None = None
    reduce_dtype: torch.dtype | None = None
    output_dtype: torch.dtype | None = None
    cast_forward_inputs: bool = True


def kind_of(modules: Sequence[nn.Module]) -> str:
    """The class name of a unit's first module, without a checkpoint wrapper."""
    return type(compat.without_checkpoint(modules[0]) or modules[0]).__name__


class Unit:
    """Gathers, frees and reduces the parameters of one or more modules together.

    ``kind`` is the class name of the module, by which the plan and the profile group units.
    """

    def __init__(
        self,
        modules: Sequence[nn.Module],
        refs: Sequence[ParamRef],
        comm: Comm,
        mesh: DeviceMesh,
        clock: Clock,
        state_ppm: Sequence[int],
        precision: Precision,
        buffer_kind: type[FlatShard],
    ):
        self.modules = tuple(modules)
        self.kind = kind_of(modules)
        self.name = self.kind
        """For people: the kind, and its number where there are several."""
        self.clock = clock
        self.comm = comm
        self.precision = precision
        self.scalars = ScalarBuffer(
            [r for r in refs if r.param.dim() == 0], comm.device, mesh, precision.param_dtype
        )
        groups: dict[tuple[torch.dtype, bool], list[ParamRef]] = {}
        for ref in refs:
            if ref.param.dim():
                groups.setdefault((ref.param.dtype, ref.param.requires_grad), []).append(ref)
        self.buffers = [
            buffer_kind(group, comm, mesh, state_ppm, precision.param_dtype, precision.reduce_dtype)
            for group in groups.values()
        ]
        self.state = State.SHARDED
        self.reduce_in_flight: list[tuple[FlatBuffer, ReduceHandle]] = []
        self.absorbed: list[Unit] = []
        """Nested units that gather, run and reduce together with this one."""
        self.absorber: Unit | None = None
        """The unit around this one that does its gathers and reductions."""
        self.before_gather: Callable[[], None] | None = None
        self.divide_factor: float | None = None
        """What the script set in place of weights: gradients are summed and divided by it."""

    @property
    def trainable(self) -> bool:
        """True if any parameter wants a gradient; the same on every rank."""
        return (
            any(b.trainable for b in self.buffers)
            or any(r.param.requires_grad for r in self.scalars.refs)
            or any(u.trainable for u in self.absorbed)
        )

    def inside(self, other: Unit) -> bool:
        """True if this unit's modules lie within the other's."""
        return any(self.modules[0] is m for outer in other.modules for m in outer.modules())

    def obstacle(self, changed_buffers: set[int]) -> str:
        """Why this unit must see its whole local batch at once; empty if it need not.
        ``changed_buffers`` are ids of buffers that a forward writes."""
        if len(self.modules) > 1:
            return "it is a group of modules"
        module = self.modules[0]
        for inner in module.modules():
            if isinstance(inner, BATCH_NORMS):
                return f"{type(inner).__name__} depends on the whole batch"
        if any(id(b) in changed_buffers for b in module.buffers()):
            return "its forward writes a buffer"
        return ""

    def cast_inputs(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """Arguments in the compute dtype, if the policy casts them."""
        if not self.precision.cast_forward_inputs:
            return args, kwargs
        return cast_call(args, kwargs, self.precision.param_dtype)

    def cast_outputs(self, output: Any) -> Any:
        """Results in the policy's output dtype."""
        return cast_tree(output, self.precision.output_dtype)

    @property
    def numel(self) -> int:
        """Elements of the unit's own parameters, gathered."""
        return sum(b.layout.numel for b in self.buffers)

    def adopt(self) -> None:
        """Take over Parameters that the script put in the place of ours. Collective."""
        self.scalars.adopt()
        for buffer in self.buffers:
            buffer.adopt()

    def refresh(self) -> None:
        """Take over what the script did to the parameters since the last pass."""
        self.scalars.refresh()
        for buffer in self.buffers:
            buffer.refresh()

    def start_gather(self) -> None:
        """Issue the gathers; does nothing if they are under way or done."""
        for unit in self.absorbed:
            unit.start_gather()
        if self.state is not State.SHARDED:
            return
        if self.before_gather is not None:
            self.before_gather()
        for buffer in self.buffers:
            buffer.start_gather()
        self.state = State.GATHERING

    def gather(self) -> None:
        """Return with the modules holding their plain parameters."""
        self.start_gather()
        for unit in self.absorbed:
            unit.gather()
        if self.state is State.GATHERED:
            return
        if any(buffer.gathering for buffer in self.buffers):
            with self.clock.waiting("gather"):
                for buffer in self.buffers:
                    buffer.wait()
        for buffer in self.buffers:
            buffer.show_gathered()
        if self.scalars.refs:
            self.scalars.gather()
        self.state = State.GATHERED

    def free(self) -> None:
        """Give the gathered parameters back; the modules show the sharded ones again."""
        for unit in self.absorbed:
            unit.free()
        if self.state is State.SHARDED:
            return
        if self.state is State.GATHERING:
            self.gather()
        for buffer in self.buffers:
            buffer.free()
        self.scalars.free()
        self.state = State.SHARDED

    # -- gradients ------------------------------------------------------------------------------

    @property
    def has_gradients(self) -> bool:
        """True if this rank has gradients that were not reduced yet."""
        return any(b.has_gradients for b in self.buffers) or any(
            u.has_gradients for u in self.absorbed
        )

    def add_up_gradients(self) -> None:
        """Add up the gradients of a microbatch whose backward is over."""
        for unit in self.absorbed:
            unit.add_up_gradients()
        for buffer in self.buffers:
            buffer.add_up_gradients()

    def start_reduce(self, weight: StepWeight) -> None:
        """Issue the reduction of what the microbatches left, times this rank's weight."""
        for unit in self.absorbed:
            unit.start_reduce(weight)
        factor = weight.of(self.divide_factor)
        for buffer in self.buffers:
            if buffer.trainable:
                self.reduce_in_flight.append((buffer, buffer.start_reduce(factor)))
        self.scalars.weigh(factor)

    def take_notes(self, weight: StepWeight) -> list[float]:
        """This rank's part of the vector that ``hand_out`` wants the sum of: which parameters had
        gradients since the last call, and the gradients of scalars."""
        factor = weight.of(self.divide_factor)
        self.scalars.weigh(factor)
        notes = [float(seen) for b in self.buffers for seen in b.seen(factor)]
        return notes + self.scalars.take_notes()

    def hand_out(self, totals: Iterator[float], pending: dict[FlatBuffer, torch.Tensor]) -> None:
        """Give the reduced gradients to the parameters' ``grad``."""
        for buffer in self.buffers:
            used = [next(totals) > 0 for _ in buffer.refs]
            buffer.hand_out(pending.pop(buffer, None), used)
        self.scalars.hand_out(totals)

    def drop_gradients(self) -> None:
        """Forget gradients that were not reduced yet."""
        for _, handle in self.reduce_in_flight:
            handle.wait()
        self.reduce_in_flight = []
        for buffer in self.buffers:
            buffer.drop_gradients()
        self.scalars.drop_gradients()
