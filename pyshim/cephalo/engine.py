"""One training step over the units of a model: the order of gathers, runs, frees and reductions.

Forward of the root: gather it, keep it; each unit inside is gathered once, run over its microbatches
and freed, while the gather of the next one is under way. Backward is the same in reverse; each unit
is reduced once, after its last microbatch. What a unit class cannot do layer by layer it does whole:
gather, run the local batch, free, and again for its backward.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from . import compat
from .batch import (
    Signature,
    flatten_call,
    local_batch,
    microbatch_bounds,
    sign_call,
    take_samples,
    unflatten_call,
)
from .layered import LayeredCall
from .randomness import untouched_randomness
from .runtime import Runtime
from .unit import Unit
from .weighting import StepWeight

REDUCTIONS_IN_FLIGHT = 2
"""Reductions that may be under way at once; each keeps one unit's gradients alive."""


class Engine:
    """Runs one root module and the units inside it. One exists for each root."""

    def __init__(self, runtime: Runtime, root: Unit, module: nn.Module, units: list[Unit]):
        self.runtime = runtime
        self.root = root
        self.module = module
        self.units = units
        self.signatures: dict[Unit, Signature] = {}
        self.order: list[Unit] = []
        self._running_order: list[Unit] = []
        self._probe: dict[Unit, list] | None = None
        self.in_forward = False
        self.in_backward = False
        self._held: list[Unit] = []
        self._reducing: list[Unit] = []
        self._pending: dict[Any, torch.Tensor] = {}
        self._calls_left: dict[Unit, int] = {}
        self._weight: StepWeight | None = None
        self._anchor = torch.zeros((), requires_grad=True)
        self._flat_root = len(units) == 1
        self.sync_wanted: Callable[[], bool] = lambda: True
        """False while the script accumulates without wanting gradients yet."""
        self._absorb()

    # -- forward --------------------------------------------------------------------------------

    def call(self, unit: Unit, run: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        """A unit's module is called by the script or by a module around it."""
        if self._probe is not None:
            return self._probe_call(unit, run, args, kwargs)
        if not self.in_forward and not self.in_backward:
            return self._root_forward(unit, run, args, kwargs)
        return self._unit_forward(unit, run, args, kwargs)

    def _root_forward(self, unit: Unit, run, args, kwargs) -> Any:
        if unit is not self.root:
            raise RuntimeError(
                f"{unit.kind} is called outside of the forward of its root {self.root.kind}; "
                f"call the root, or register the method with register_fsdp_forward_method"
            )
        for member in self.units:
            member.free()
            member.refresh()
        leaves, spec = flatten_call(args, kwargs)
        leaves = [self._to_device(x) for x in leaves]
        args, kwargs = unflatten_call(leaves, spec)
        training = torch.is_grad_enabled()
        batch = local_batch(leaves)
        if training:
            self.runtime.before_training_forward(self, run, args, kwargs)
            if not self.signatures:
                self._sign(run, leaves, spec, batch)
            self._weight = self.runtime.weigh(batch)
        self.in_forward, self._running_order = True, []
        try:
            if self.order:
                self.root.start_gather()
                self.order[0].start_gather()
            output = self._unit_forward(unit, run, args, kwargs)
        finally:
            self.in_forward = False
        self.order = self._running_order or self.order
        if not (training and self._watch(output)):
            self._free_all()
        return output

    def _to_device(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.device != self.runtime.device:
            return leaf.to(self.runtime.device, non_blocking=True)
        return leaf

    def _unit_forward(self, unit: Unit, run, args, kwargs) -> Any:
        if unit.absorber is not None:
            return self._cast_run(unit, run, args, kwargs)
        args, kwargs = unit.cast_inputs(args, kwargs)
        if unit is self.root and not self._flat_root:
            unit.gather()
            return unit.cast_outputs(run(*args, **kwargs))
        if not torch.is_grad_enabled():
            with self._gathered(unit, "forward"):
                return unit.cast_outputs(run(*args, **kwargs))
        leaves, spec = flatten_call(args, kwargs)
        signature = self.signatures.get(unit)
        if signature is not None and signature.layered and signature.spec == spec:
            output = self._layered(unit, run, leaves, spec, signature)
        else:
            output = self._whole(unit, run, leaves, spec)
        return unit.cast_outputs(output)

    def _cast_run(self, unit: Unit, run, args, kwargs) -> Any:
        args, kwargs = unit.cast_inputs(args, kwargs)
        return unit.cast_outputs(run(*args, **kwargs))

    def _layered(self, unit: Unit, run, leaves, spec, signature: Signature) -> Any:
        batch = next(x.shape[0] for x, cut in zip(leaves, signature.cut) if cut)
        part = self.runtime.part
        call = LayeredCall(
            run=run,
            around=lambda phase: self._gathered(unit, phase),
            leaves=leaves,
            spec=spec,
            cut=signature.cut,
            bounds=microbatch_bounds(batch, part.micro_batches),
            device=self.runtime.device,
            keep=part.activations == "keep",
        )
        return call.apply(self._anchor if unit.trainable else self._anchor.detach())

    def _whole(self, unit: Unit, run, leaves, spec) -> Any:
        """The classic way: the whole local batch at once, with an ordinary graph."""
        wants = [isinstance(x, torch.Tensor) and x.requires_grad for x in leaves]
        if any(wants):
            self._calls_left[unit] = self._calls_left.get(unit, 0) + 1
            tensors = [x for x, want in zip(leaves, wants) if want]
            marked = iter(_AfterBackward.apply(lambda: self._whole_done(unit), *tensors))
            leaves = [next(marked) if want else x for x, want in zip(leaves, wants)]
        args, kwargs = unflatten_call(leaves, spec)
        unit.gather()
        self._note_order(unit)
        self._prefetch(unit, +1)
        output = run(*args, **kwargs)
        if len(unit.modules) == 1:
            unit.free()
        if len(unit.modules) > 1 or not any(wants):
            self._hold(unit)
        for tensor in compat.tensors_of(output):
            if tensor.requires_grad:
                tensor.register_hook(lambda grad: self._whole_begins(unit))
        return output

    def _whole_begins(self, unit: Unit) -> None:
        unit.gather()
        self._prefetch(unit, -1)

    def _whole_done(self, unit: Unit) -> None:
        self._calls_left[unit] -= 1
        if self._calls_left[unit]:
            return
        if unit in self._held:
            return
        unit.free()
        self._start_reduce(unit)

    @contextmanager
    def _gathered(self, unit: Unit, phase: str):
        """Parameters of the unit are there inside; the neighbour's gather runs beside it."""
        unit.gather()
        if phase == "forward":
            self._note_order(unit)
        self._prefetch(unit, +1 if phase == "forward" else -1)
        yield
        unit.free()
        if phase == "backward":
            self._start_reduce(unit)

    def _note_order(self, unit: Unit) -> None:
        if self.in_forward:
            self._running_order.append(unit)

    def _prefetch(self, unit: Unit, step: int) -> None:
        if unit in self.order:
            at = self.order.index(unit) + step
            if 0 <= at < len(self.order):
                self.order[at].start_gather()

    def _hold(self, unit: Unit) -> None:
        """Keep the unit gathered until the end of the step, and reduce it there."""
        if unit not in self._held:
            self._held.append(unit)

    # -- backward -------------------------------------------------------------------------------

    def _watch(self, output: Any) -> bool:
        """Learn when the backward begins. False if the output has no graph."""
        tensors = [t for t in compat.tensors_of(output) if t.requires_grad]
        for tensor in tensors:
            tensor.register_hook(self._begin_backward)
        return bool(tensors)

    def _begin_backward(self, grad: torch.Tensor) -> None:
        if self.in_backward:
            return
        self.in_backward = True
        compat.queue_callback(self._end_backward)
        if not self._flat_root:
            self.root.gather()
            if self.order:
                self.order[-1].start_gather()

    def _start_reduce(self, unit: Unit) -> None:
        if not unit.trainable:
            return
        while len(self._reducing) >= REDUCTIONS_IN_FLIGHT:
            self._finish_reduce(self._reducing.pop(0))
        unit.start_reduce(self._weight.local())
        self._reducing.append(unit)

    @torch.no_grad()
    def _finish_reduce(self, unit: Unit) -> None:
        for member in (unit, *unit.absorbed):
            for buffer, handle in member.reduce_in_flight:
                with self.runtime.clock.waiting():
                    reduced = handle.wait()
                known = self._pending.get(buffer)
                self._pending[buffer] = reduced if known is None else known.add_(reduced)
            member.reduce_in_flight = []

    def _end_backward(self) -> None:
        """Reduce what is left, in an order that is the same on every rank, and hand out gradients."""
        if not self._flat_root:
            self._hold(self.root)
        waiting = [u for u in self.units if u in self._held or self._calls_left.get(u)]
        for unit in waiting:
            unit.free()
            self._start_reduce(unit)
        for unit in self._reducing:
            self._finish_reduce(unit)
        self._held, self._reducing, self._calls_left = [], [], {}
        self._free_all()
        self.in_backward = False
        if self.sync_wanted():
            self._hand_out()
        self.runtime.after_backward(self._weight.samples)

    def _hand_out(self) -> None:
        seen = [b.take_seen() for u in self.units for b in u.buffers]
        scalars = [u.scalars.take_pending() for u in self.units]
        control = [float(x) for flags in seen for x in flags]
        control += [x for pairs in scalars for pair in pairs for x in pair]
        vector = torch.tensor(control, dtype=torch.float64)
        with self.runtime.clock.waiting():
            dist.all_reduce(vector, group=self.runtime.control)
        values = iter(vector.tolist())
        for unit in self.units:
            for buffer in unit.buffers:
                used = [next(values) > 0 for _ in buffer.refs]
                reduced = self._pending.pop(buffer, None)
                if reduced is not None:
                    buffer.add_gradients(reduced, used)
        for unit, pairs in zip(self.units, scalars):
            unit.scalars.add_gradients([(next(values), next(values)) for _ in pairs])

    def _free_all(self) -> None:
        for unit in self.units:
            unit.free()

    # -- which arguments carry the batch --------------------------------------------------------

    def _absorb(self) -> None:
        """Small nested units run together with the unit around them, so that a unit stays one
        gather and one reduction; shells around many layers stay shells."""
        for unit in self.units:
            inner = [u for u in self.units if u is not unit and u.inside(unit)]
            if unit is self.root or not inner:
                continue
            kinds = [u.kind for u in inner]
            if len(set(kinds)) == len(kinds) and len(unit.modules) == 1:
                unit.absorbed = [u for u in inner if u.absorber is None]
                for nested in unit.absorbed:
                    nested.absorber = unit

    @torch.no_grad()
    def _sign(self, run, leaves, spec, batch: int | None) -> None:
        """Find the signatures of all units by one forward with another number of samples."""
        if batch is None:
            self.signatures = {u: Signature(None, (), False, "no tensor argument") for u in self.units}
            return
        samples = 3 if batch == 2 else 2
        buffers = {n: b.detach().clone() for n, b in self.module.named_buffers()}
        self._probe = {}
        try:
            with untouched_randomness(self.runtime.device):
                args, kwargs = unflatten_call(take_samples(leaves, batch, samples), spec)
                self._probe_call(self.root, run, args, kwargs)
            changed = set()
            for name, buffer in self.module.named_buffers():
                if not torch.equal(buffer, buffers[name]):
                    changed.add(id(buffer))
                    buffer.copy_(buffers[name])
            calls, self.signatures = self._probe, {}
            for unit in self.units:
                found = calls.get(unit, [])
                if found:
                    inputs, nesting, outputs = found[0]
                    self.signatures[unit] = sign_call(
                        inputs, nesting, outputs, samples, len(found), self._obstacle(unit, changed)
                    )
        finally:
            self._probe = None
            self._free_all()
        self.runtime.agree_on(
            "the arguments that carry the batch",
            [(u.kind, s.digest()) for u, s in self.signatures.items()],
        )

    def _obstacle(self, unit: Unit, changed: set[int]) -> str:
        nested = [u for u in self.units if u.absorber is not unit and u is not unit]
        if any(u.inside(unit) for u in nested):
            return "there are units inside of it"
        return unit.obstacle(changed)

    def _probe_call(self, unit: Unit, run, args, kwargs) -> Any:
        args, kwargs = unit.cast_inputs(args, kwargs)
        leaves, spec = flatten_call(args, kwargs)
        unit.gather()
        output = unit.cast_outputs(run(*args, **kwargs))
        if unit is not self.root and unit.absorber is None and len(unit.modules) == 1:
            unit.free()
        shapes = [_shape_only(x) for x in leaves]
        result = compat.tree_map_tensors(_shape_only, output)
        self._probe.setdefault(unit, []).append((shapes, spec, result))
        return output

    # -- for the script -------------------------------------------------------------------------

    def recomputes(self, unit: Unit) -> bool:
        """True if the unit's backward runs its forward again by itself."""
        signature = self.signatures.get(unit)
        layered = signature is not None and signature.layered
        return layered and self.runtime.part.activations != "keep"

    def reset(self) -> None:
        """Forget a forward whose backward will not come."""
        self._held, self._calls_left = [], {}
        self._free_all()

    def free_unless_running(self) -> None:
        """Show the sharded parameters, as ``state_dict`` wants them."""
        if not self.in_forward and not self.in_backward:
            self._free_all()


def _shape_only(leaf: Any) -> Any:
    return torch.empty_like(leaf, device="meta") if isinstance(leaf, torch.Tensor) else leaf


class _AfterBackward(torch.autograd.Function):
    """Passes tensors through; calls back once their gradients are known, when the module between
    here and its output has had its backward."""

    @staticmethod
    def forward(ctx, done: Callable[[], None], *tensors: torch.Tensor):
        ctx.done = done
        return tuple(t.view_as(t) for t in tensors)

    @staticmethod
    def backward(ctx, *grads):
        ctx.done()
        return (None, *grads)
