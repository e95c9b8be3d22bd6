"""One training step over the units of a model: the order of gathers, runs, frees and reductions.

Forward of the root: gather it, keep it; each unit inside is gathered once, run over its
microbatches and freed, while the gather of the next one is under way. Backward is the same in
reverse, and begins with the last unit, which is not freed in between; each unit is reduced once,
after its last microbatch. What a unit cannot do layer by layer it does whole: gather, run the local
batch, free, and again for its backward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from . import compat
from .batch import Signature, flatten_call, local_batch, microbatch_bounds, unflatten_call
from .classes import group
from .layered import LayeredCall
from .place import SCRIPT
from .reductions import Reductions
from .runtime import Runtime
from .signing import Signing
from .unit import State, Unit
from .weighting import StepWeight


class Engine:
    """Runs one root module and the units inside it. One exists for each root.

    ``sync_wanted`` is False while the script accumulates without wanting gradients yet.
    """

    def __init__(
        self,
        runtime: Runtime,
        root: Unit,
        module: nn.Module,
        units: list[Unit],
        sync_wanted: Callable[[], bool],
    ):
        self.runtime = runtime
        self.root = root
        self.module = module
        self.units = units
        self.sync_wanted = sync_wanted

        self.signatures: dict[Unit, Signature] = {}
        """How units are called; empty until the first training forward."""
        self.kept: frozenset[Unit] = frozenset()
        """Units whose activations are kept although the plan does not keep those of all."""
        self.in_forward = False
        self.in_backward = False
        self._signing = Signing(runtime, root, module, units)
        self._order: dict[str, list[Unit]] = {"forward": [], "backward": []}
        """Units as they ran in the last pass, by which the next one prefetches."""
        self._running: dict[str, list[Unit]] = {"forward": [], "backward": []}
        self._calls_left: dict[Unit, int] = {}
        """Calls of the whole kind whose backward has not come yet."""
        self._reductions = Reductions(runtime.clock)
        self._weight: StepWeight | None = None
        """Of the backward under way."""
        self._forward_weight: StepWeight | None = None
        """Of the last training forward."""
        self._anchor = torch.zeros((), requires_grad=True)
        self._place = runtime.clock.place
        self._phase = "forward"
        self._absorb()
        self._name_units()

    def _absorb(self) -> None:
        """Small nested units run together with the unit around them, so that a unit stays one
        gather and one reduction; shells around many layers stay shells."""
        for unit in self.units:
            inner = [u for u in self.units if u is not unit and u.inside(unit)]
            if unit is self.root or not inner or len(unit.modules) > 1:
                continue
            kinds = [u.kind for u in inner]
            if len(set(kinds)) == len(kinds):
                unit.absorbed = [u for u in inner if u.absorber is None]
                for nested in unit.absorbed:
                    nested.absorber = unit

    def _name_units(self) -> None:
        """Number the units of one kind, for messages."""
        for unit in self.units:
            alike = [u for u in self.units if u.kind == unit.kind]
            unit.name = f"{unit.kind} {alike.index(unit)}" if len(alike) > 1 else unit.kind

    # -- forward --------------------------------------------------------------------------------

    def call(
        self, unit: Unit, run: Callable[..., Any], args: tuple, kwargs: dict, cut: bool = True
    ) -> Any:
        """A unit's module is called by the script or by a module around it; ``run`` is the module's
        own forward. ``cut`` is False for other methods, which run the local batch whole."""
        if self._signing.under_way:
            return self._signing.call(unit, run, args, kwargs, cut)
        if self.in_forward or self.in_backward:
            return self._unit_forward(unit, run, args, kwargs, cut)
        if unit is not self.root:
            raise RuntimeError(
                f"{unit.kind} is called outside of the forward of its root {self.root.kind}; "
                f"call the root, or register the method with register_fsdp_forward_method"
            )
        return self._root_forward(run, args, kwargs, cut)

    def _root_forward(self, run, args, kwargs, cut: bool) -> Any:
        for member in self.units:
            member.free()
            member.refresh()
        leaves, spec = flatten_call(args, kwargs)
        leaves = [self._to_device(x) for x in leaves]
        args, kwargs = unflatten_call(leaves, spec)
        training = torch.is_grad_enabled()
        self._phase = "forward" if training else "evaluation"
        self._place.enter(self._phase, self.root.name)
        weight = None
        if training:
            self.runtime.before_training_forward(self, run, args, kwargs)
            counted = self.runtime.samples_of_batch()
            batch = local_batch(leaves, counted)
            if not self.signatures:
                self.sign(run, leaves, spec, batch, cut)
            weight = self._forward_weight = self.runtime.weigh(batch, counted)
        self.runtime.in_training_forward = training
        self.in_forward, self._running["forward"] = True, []
        self._calls_left = {}
        try:
            self._begin_forward()
            output = self._unit_forward(self.root, run, args, kwargs, cut)
        finally:
            self.in_forward = self.runtime.in_training_forward = False
            self._place.enter(SCRIPT)
        if weight is None or not self._watch(output, weight):
            self.free()
        self._end_forward()
        return output

    def _begin_forward(self) -> None:
        self.root.start_gather()
        self._prefetch("forward")

    def _end_forward(self) -> None:
        self._order["forward"] = self._running["forward"]
        for unit in self.units:
            if unit.state is State.GATHERING:  # prefetched, but did not run this time
                unit.free()

    def _to_device(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.device != self.runtime.device:
            return leaf.to(self.runtime.device, non_blocking=True)
        return leaf

    def _unit_forward(self, unit: Unit, run, args, kwargs, cut: bool) -> Any:
        args, kwargs = unit.cast_inputs(args, kwargs)
        if unit.absorber is not None and unit.absorber.state is State.GATHERED:
            return unit.cast_outputs(run(*args, **kwargs))
        if unit is self.root and len(self.units) > 1:
            unit.gather()
            return unit.cast_outputs(run(*args, **kwargs))
        if not torch.is_grad_enabled():
            with self._gathered(unit, "forward"):
                return unit.cast_outputs(run(*args, **kwargs))
        leaves, spec = flatten_call(args, kwargs)
        signature = self.signatures.get(unit) if cut else None
        batch = signature.batch_of(leaves, spec) if signature is not None else None
        if batch is not None:
            run = compat.without_checkpoint(unit.modules[0]) or run
            keep = self._keeps(unit)
            if keep and self.runtime.plan.plain and _wants_gradient(leaves):
                # The same numbers and memory, without a backward inside of the backward.
                output = self._whole(unit, run, leaves, spec)
            else:
                output = self._layered(unit, run, leaves, spec, signature.cut, batch, keep)
        else:
            output = self._whole(unit, run, leaves, spec)
        return unit.cast_outputs(output)

    def _keeps(self, unit: Unit) -> bool:
        """True if the unit's activations stay until its backward. A kept graph inside the script's
        own checkpointing would be rebuilt while it is used."""
        planned = self.runtime.part.activations == "keep" or unit in self.kept
        return planned and not compat.saved_tensors_hooked()

    def _layered(
        self, unit: Unit, run, leaves, spec, cut: tuple[bool, ...], batch: int, keep: bool
    ) -> Any:
        part = self.runtime.part
        offloads = part.activations == "offload" and not keep
        call = LayeredCall(
            run=run,
            around=lambda phase: self._gathered(unit, phase),
            after_backward=unit.add_up_gradients,
            leaves=leaves,
            spec=spec,
            cut=cut,
            bounds=microbatch_bounds(batch, part.micro_batches),
            device=self.runtime.device,
            keep=keep,
            offloader=self.runtime.offloader if offloads else None,
        )
        return call.apply(self._anchor if unit.trainable else self._anchor.detach())

    def _whole(self, unit: Unit, run, leaves, spec) -> Any:
        """The classic way: the whole local batch at once, with an ordinary graph.

        The unit is freed and reduced when the gradients of its inputs are known; if no input wants
        one, or it is a group of modules that run apart, at the end of the backward. Inside a
        backward (the script's own checkpointing runs the unit again) it stays gathered, since its
        backward comes next.
        """
        wants = [isinstance(x, torch.Tensor) and x.requires_grad for x in leaves]
        if any(wants) and len(unit.modules) == 1:
            if self.in_forward:
                self._calls_left[unit] = self._calls_left.get(unit, 0) + 1
            tensors = [x for x, want in zip(leaves, wants) if want]
            marked = iter(_AfterBackward.apply(lambda: self._whole_done(unit), *tensors))
            leaves = [next(marked) if want else x for x, want in zip(leaves, wants)]
        args, kwargs = unflatten_call(leaves, spec)
        self._begin(unit, "forward")
        output = run(*args, **kwargs)
        if len(unit.modules) == 1 and self.in_forward and not self._turns(unit):
            unit.free()
        weight = self._forward_weight

        def begin(grad: torch.Tensor) -> None:
            if (
                not self.in_backward
            ):  # the unit's result is the root's, and the unit hears of it first
                self._begin_backward(weight)
            self._begin(unit, "backward")

        for tensor in compat.tensors_of(output):
            if tensor.requires_grad:
                tensor.register_hook(begin)
        return output

    def _whole_done(self, unit: Unit) -> None:
        left = self._calls_left.get(unit, 1) - 1
        self._calls_left[unit] = left
        if left <= 0:
            unit.free()
            self._reductions.start(unit, self._weight)

    @contextmanager
    def _gathered(self, unit: Unit, phase: str):
        """Parameters of the unit are there inside; the neighbour's gather runs beside it."""
        self._begin(unit, phase)
        try:
            yield
        finally:
            if len(unit.modules) == 1 and not (phase == "forward" and self._turns(unit)):
                unit.free()
        if phase == "backward":
            self._reductions.start(unit, self._weight)

    def _turns(self, unit: Unit) -> bool:
        """True if a training forward ends with the unit and the backward begins with it, as in the
        last pass: freed now, it would be gathered again at once."""
        running, order = self._running["forward"], self._order["forward"]
        ends = len(running) == len(order) and running[-1:] == [unit] == order[-1:]
        begins = self._order["backward"][:1] == [unit]
        return self.in_forward and self.runtime.in_training_forward and ends and begins

    def _begin(self, unit: Unit, phase: str) -> None:
        """Gather the unit, and start the gather of the one that came after it the last time."""
        self._place.enter(phase if phase == "backward" else self._phase, unit.name)
        unit.gather()
        if phase == "forward" and self.in_backward:
            return
        running = self._running[phase]
        if running[-1:] != [unit]:
            running.append(unit)
            self._prefetch(phase)

    def _prefetch(self, phase: str) -> None:
        running, order = self._running[phase], self._order[phase]
        at = len(running)
        if at < len(order) and running[-1:] == order[at - 1 : at]:
            order[at].start_gather()

    # -- backward -------------------------------------------------------------------------------

    def _watch(self, output: Any, weight: StepWeight) -> bool:
        """Learn when the backward begins. False if the output has no graph."""
        tensors = [t for t in compat.tensors_of(output) if t.requires_grad]
        for tensor in tensors:
            tensor.register_hook(lambda grad: self._begin_backward(weight))
        return bool(tensors)

    def _begin_backward(self, weight: StepWeight) -> None:
        if self.in_backward:
            if weight is not self._weight and weight.of(None) != self._weight.of(None):
                raise RuntimeError(
                    "one backward over two forwards whose batches weigh differently on this rank; "
                    "go backward after each forward"
                )
            return
        self._weight = weight
        self.runtime.busy.add(self)
        self.in_backward, self._running["backward"] = True, []
        compat.queue_callback(self._end_backward)
        self._prepare_backward()

    def _prepare_backward(self) -> None:
        if len(self.units) > 1:
            self.root.gather()
        self._prefetch("backward")

    @torch.no_grad()
    def _end_backward(self) -> None:
        """Hand out gradients if the script wants them.

        The ranks add up one small vector first: whether anyone was asked to stop, and what
        ``_hand_out`` has to know.
        """
        self.free()
        synced = self.sync_wanted()
        notes = [float(self.runtime.stop_asked()), float(self.runtime.save_asked())]
        totals = iter(self.runtime.sum_over_ranks(notes + self._notes(synced)))
        self.runtime.stop_agreed |= next(totals) > 0
        self.runtime.save_agreed |= next(totals) > 0
        self._hand_out(totals, synced)
        self.in_backward = False
        self.runtime.busy.discard(self)
        self._place.enter(SCRIPT)
        self.runtime.after_backward(self._weight.samples)

    def _notes(self, synced: bool) -> list[float]:
        """Who has gradients left, which parameters had any, and the gradients of scalars."""
        notes = [float(u.has_gradients) for u in self.units]
        if synced:
            for unit in self.units:
                notes += unit.take_notes(self._weight)
        return notes

    def _hand_out(self, totals: Iterator[float], synced: bool) -> None:
        """Reduce what is left on any rank. ``totals`` are the sums of the ranks' notes."""
        left = [unit for unit in self.units if next(totals) > 0]
        for unit in left:
            if unit.absorber not in left:
                self._reductions.start(unit, self._weight)
        self._reductions.finish()
        if synced:
            for unit in self.units:
                unit.hand_out(totals, self._reductions.reduced)
        self._order["backward"] = self._running["backward"]
        self._calls_left = {}

    # -- which arguments carry the batch --------------------------------------------------------

    def sign(
        self, run: Callable[..., Any], leaves: list[Any], spec: Any, batch: int | None, cut: bool
    ) -> None:
        """Find the signatures of all units, and so what the plan keeps. Collective."""
        self.signatures, order = self._signing.find(run, leaves, spec, batch, cut)
        self.kept = self._units_to_keep(order) if order else frozenset()

    def _units_to_keep(self, order: list[Unit]) -> frozenset[Unit]:
        """The last units of each class that this rank's part of the plan names, in the order of
        the forward: the backward frees them first."""
        classes = {c.name: c.units for c in group(self.units, self.root, self.signatures)}
        kept: set[Unit] = set()
        for name, count in self.runtime.part.kept_units.items():
            if count and name not in classes:
                raise ValueError(
                    f"kept_units: the plan names units of class {name!r}, and the model has "
                    f"{', '.join(classes)}; make the plan from a profile of this model"
                )
            units = [u for u in order if u in classes.get(name, ())]
            kept.update(units[max(0, len(units) - count) :])
        return frozenset(kept)

    # -- for the script -------------------------------------------------------------------------

    def layers(self, unit: Unit) -> bool:
        """True if the plan decides what the unit keeps between forward and backward, so that the
        script's own checkpointing around it would only add a forward."""
        signature = self.signatures.get(unit)
        return signature is not None and signature.layered

    def reset(self) -> None:
        """Forget a forward whose backward will not come, or a backward that was broken off."""
        for unit in self.units:
            unit.drop_gradients()
        self._reductions.forget()
        self._calls_left, self.in_backward = {}, False
        self.runtime.busy.discard(self)
        self.free()

    def free(self) -> None:
        """Show the sharded parameters of all units."""
        for unit in self.units:
            unit.free()

    def free_unless_running(self) -> None:
        """Show the sharded parameters, as ``state_dict`` wants them."""
        if not self.in_forward and not self.in_backward:
            self.free()


def _wants_gradient(leaves: list[Any]) -> bool:
    return any(isinstance(x, torch.Tensor) and x.requires_grad for x in leaves)


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
