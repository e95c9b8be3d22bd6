"""Training where one rank owns everything and nothing is accumulated: the modules as they are.

With nothing to gather, to reduce or to cut, a unit's forward is that of its module between two
casts, and its parameters are views of the shard (of a copy in the compute dtype, under mixed
precision, which one cast makes at the start of a forward and which the end of the backward frees).
Autograd keeps their gradients as it does without us; at the end of the backward they are handed to
the parameters that the script knows. All that scripts may call is the engine's, as ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from . import compat
from .engine import Engine
from .flat import FlatShard, ParamRef, shaped, sparse_gradient
from .gathered import FlatBuffer
from .ragged import add_gradients
from .runtime import Runtime
from .unit import State, Unit
from .weighting import StepWeight


def engine_kind(runtime: Runtime) -> type[Engine]:
    """What runs the units of a root."""
    return AloneEngine if runtime.alone else Engine


def buffer_kind(runtime: Runtime) -> type[FlatShard]:
    """What holds the parameters of a unit."""
    return AloneBuffer if runtime.alone else FlatBuffer


class AloneBuffer(FlatShard):
    """Parameters that are all here. ``gather`` and its relatives cast them, if anything."""

    gathering = False

    def _make_compute_parameters(self) -> None:
        self._pending: dict[ParamRef, torch.Tensor] = {}
        """Gradients that the script has not been given yet."""
        self._cast: torch.Tensor | None = None
        """Where the values in the compute dtype are while they are needed."""
        if self.compute_dtype != self.dtype:
            self._cast = torch.empty(
                self.layout.numel, dtype=self.compute_dtype, device=self.comm.device
            )
        values = self.shard if self._cast is None else self._cast
        for ref, span in zip(self.refs, self.layout.spans):
            ref.compute = nn.Parameter(torch.empty(0, dtype=values.dtype, device=values.device))
            # Through .data, so that neither the optimizer nor the next cast is taken for a change
            # to a tensor that a graph has saved.
            ref.compute.data = values[span.offset : span.end].view(span.shape)
        if self._cast is not None:
            self._cast.untyped_storage().resize_(0)

    def start_gather(self) -> None:
        """Cast the values, if the modules compute in another dtype."""
        if self._cast is not None:
            self._cast.untyped_storage().resize_(self._cast.nbytes)
            self._cast.copy_(self.shard)

    def wait(self) -> None:
        """There is nothing to wait for."""

    def show_gathered(self) -> None:
        """Put the plain parameters into the modules."""
        self.show_compute()

    def free(self) -> None:
        """Put the parameters that the script knows into the modules, and free the others."""
        self.show_sharded()
        if self._cast is not None:
            self._cast.untyped_storage().resize_(0)

    # -- gradients ------------------------------------------------------------------------------

    def take_gradients(self, factor: float, handed_out: bool) -> None:
        """Take what autograd left in the plain parameters, times ``factor``: at once to those that
        the script knows, or, if it does not want gradients yet, to what it will get."""
        refs, grads = [], []
        for ref, compute in zip(self.refs, self._computes):
            grad = compute.grad
            if grad is not None:
                compute.grad = None
                if grad.is_sparse:
                    raise sparse_gradient(ref.name)
                refs.append(ref)
                grads.append(grad)
        if not grads or factor == 0.0:
            refs, rows = [], []
        else:
            as_they_are = handed_out and not self._pending
            rows = self._in_dtype(grads, self.dtype if as_they_are else self.sum_dtype)
            if factor != 1.0:
                compat.foreach_mul_(rows, factor)
        if self._pending or not handed_out:
            self._add(refs, rows)
            refs, rows = [], []
        if handed_out and self._pending:
            pending, self._pending = self._pending, {}
            refs, rows = list(pending), [row.to(self.dtype) for row in pending.values()]
        add_gradients([ref.param for ref in refs], rows)

    def _in_dtype(self, grads: list[torch.Tensor], dtype: torch.dtype) -> list[torch.Tensor]:
        """The gradients in ``dtype``: themselves, or copies in one piece of memory."""
        if grads[0].dtype == dtype:
            return [grad.detach() if grad.requires_grad else grad for grad in grads]
        sizes = [grad.numel() for grad in grads]
        flat = torch.empty(sum(sizes), dtype=dtype, device=grads[0].device)
        rows = [shaped(part, grad) for part, grad in zip(flat.split(sizes), grads)]
        compat.foreach_copy_(rows, grads)
        return rows

    def _add(self, refs: list[ParamRef], rows: list[torch.Tensor]) -> None:
        known = [(self._pending[ref], row) for ref, row in zip(refs, rows) if ref in self._pending]
        if known:
            compat.foreach_add_([a for a, _ in known], [b for _, b in known])
        for ref, row in zip(refs, rows):
            self._pending.setdefault(ref, row)

    def drop_gradients(self) -> None:
        """Forget the gradients that the script was not given."""
        self._pending = {}
        for ref in self.refs:
            ref.compute.grad = None


class AloneEngine(Engine):
    """Runs the units as plain modules: all parameters are there from the start of a forward to the
    end of its backward."""

    def _begin_forward(self) -> None:
        self._gather()

    def _end_forward(self) -> None:
        pass

    def _prepare_backward(self) -> None:
        self._place.enter("backward", self.root.name)
        self._gather()  # a forward without gradients may have come between

    def _gather(self) -> None:
        for unit in self.units:
            if unit.state is not State.GATHERED:
                unit.gather()

    def _unit_forward(self, unit: Unit, run, args, kwargs, cut: bool) -> Any:
        self._place.enter(self._phase, unit.name)
        args, kwargs = unit.cast_inputs(args, kwargs)
        if cut and self.layers(unit):  # the plan keeps what the script would run again
            run = compat.without_checkpoint(unit.modules[0]) or run
        output = unit.cast_outputs(run(*args, **kwargs))
        if unit is not self.root and torch.is_grad_enabled():
            weight = self._forward_weight
            self._watch_unit(unit, output, weight)
        return output

    def _watch_unit(self, unit: Unit, output: Any, weight: StepWeight) -> None:
        """Learn when the backward comes to the unit, which may be before it comes to the root."""

        def begin(grads: tuple[torch.Tensor, ...]) -> None:
            if not self.in_backward:
                self._begin_backward(weight)
            self._place.enter("backward", unit.name)

        for tensor in compat.tensors_of(output):
            if tensor.grad_fn is not None:
                tensor.grad_fn.register_prehook(begin)

    def _notes(self, synced: bool) -> list[float]:
        notes = []
        for unit in self.units:
            if unit.scalars.refs:
                unit.scalars.weigh(self._weight.of(unit.divide_factor))
                notes += unit.scalars.take_notes() if synced else []
        return notes

    def _hand_out(self, totals: Iterator[float], synced: bool) -> None:
        for unit in self.units:
            factor = self._weight.of(unit.divide_factor)
            for buffer in unit.buffers:
                buffer.take_gradients(factor, synced)
            if synced:
                unit.scalars.hand_out(totals)
