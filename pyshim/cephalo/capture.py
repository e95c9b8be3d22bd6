"""Examples of the calls of a model's units, and stand-ins for units inside of others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from . import compat
from .batch import flatten_call, take_samples, unflatten_call
from .classes import group
from .engine import Engine
from .probing import SAMPLES as PROBED_SAMPLES
from .unit import Unit

EXAMPLE_SAMPLES = max(PROBED_SAMPLES)
"""Samples in an example: no more than ran before, since memory may be scarce. Larger calls repeat
them."""


@dataclass(eq=False)
class Example:
    """One call of a unit's module with ``samples`` samples, as the module receives it."""

    run: Callable[..., Any]
    leaves: list[Any]
    spec: Any
    wants: list[bool]
    """Which leaves get a gradient in training."""
    samples: int
    cut: list[bool]
    """Which leaves carry the batch."""

    def leaves_of(self, samples: int) -> list[Any]:
        """The arguments of a call with another number of samples; samples repeat."""
        leaves = [
            tile(leaf, self.samples, samples) if cut else leaf
            for leaf, cut in zip(self.leaves, self.cut, strict=True)
        ]
        return [
            leaf.detach().requires_grad_(want) if isinstance(leaf, torch.Tensor) else leaf
            for leaf, want in zip(leaves, self.wants, strict=True)
        ]

    def gradient_bytes_per_sample(self) -> float:
        """Bytes of the gradients of the arguments that carry the batch."""
        wanted = zip(self.leaves, self.wants, self.cut, strict=True)
        return sum(x.nbytes / self.samples for x, want, cut in wanted if want and cut)


def tile(leaf: Any, samples: int, wanted: int) -> Any:
    """``leaf`` with ``wanted`` samples in place of ``samples``, if it carries the batch."""
    if not carries(leaf, samples):
        return leaf
    return leaf.index_select(0, torch.arange(wanted, device=leaf.device) % samples)


def carries(leaf: Any, samples: int) -> bool:
    """True if ``leaf`` is a tensor with ``samples`` rows."""
    return isinstance(leaf, torch.Tensor) and leaf.dim() > 0 and leaf.shape[0] == samples


@dataclass(eq=False)
class UnitClass:
    """Units that cost the same: modules of one class with equally many parameters."""

    name: str
    units: list[Unit]
    root: bool
    whole_batch: bool = True
    reason: str = ""
    """Why it runs on the whole local batch, where that can be helped; empty for what only holds
    other units, and for what is never called."""
    calls: list[Example] = field(default_factory=list)
    """The calls of one of the units in one forward; empty if none is called."""
    results: list[Any] = field(default_factory=list)
    """What each of these calls returned."""
    example: Unit | None = None
    shell: bool = False
    """True if there are units inside of it that run on their own."""


def classify(engine: Engine) -> list[UnitClass]:
    """The classes of the engine's units, in the order of the model, the root last. What runs cut
    into microbatches and what does not is known once the engine has signed its units."""
    classes = []
    for alike in group(engine.units, engine.root, engine.signatures):
        units = list(alike.units)
        made = UnitClass(alike.name, units, alike.root)
        called = [u for u in units if u in engine.signatures]
        made.example = called[len(called) // 2] if called else None
        made.whole_batch = not alike.layered
        if made.example is not None and not alike.layered:
            made.reason = engine.signatures[made.example].reason
        made.shell = any(
            u.absorber is None and u.inside(units[0]) for u in engine.units if u not in units
        )
        if made.shell:
            made.reason = ""
        classes.append(made)
    return classes


def capture(engine: Engine, classes: list[UnitClass], run, args: tuple, kwargs: dict) -> list[Unit]:
    """Run one forward with a few samples of the call and keep an example of each class's calls.
    Returns the units in the order of their calls, without the root.

    The root's own graph is built, so that it is known which tensors would get gradients; units run
    without one, gathered and freed one after another.
    """
    examples = {c.example: c for c in classes if c.example is not None}
    shells = {u for c in classes if c.shell for u in c.units} | {engine.root}
    samples = EXAMPLE_SAMPLES
    order: dict[Unit, None] = {}

    def record(unit: Unit, run, args: tuple, kwargs: dict, cut: bool = True) -> Any:
        args, kwargs = unit.cast_inputs(args, kwargs)
        if unit.absorber is not None:
            return unit.cast_outputs(run(*args, **kwargs))
        order.setdefault(unit)
        called, spec = flatten_call(args, kwargs)
        wants = [isinstance(x, torch.Tensor) and x.requires_grad for x in called]
        kept = [x.detach() if isinstance(x, torch.Tensor) else x for x in called]
        unit.gather()
        with torch.set_grad_enabled(torch.is_grad_enabled() and unit in shells):
            result = unit.cast_outputs(run(*args, **kwargs))
        if unit is not engine.root and len(unit.modules) == 1:
            unit.free()
        if unit in examples:
            made = examples[unit]
            signature = engine.signatures[unit]
            carry = [carries(x, samples) for x in kept]
            if cut and len(signature.cut) == len(kept):
                carry = list(signature.cut)
            if cut and signature.layered:
                run = compat.without_checkpoint(unit.modules[0]) or run
            made.calls.append(Example(run, kept, spec, wants, samples, carry))
            made.results.append(compat.tree_map_tensors(torch.Tensor.detach, result))
        if unit in shells:
            return result
        return _marked(result, any(wants) or unit.trainable)

    with answering(engine, record), torch.enable_grad():
        leaves, spec = flatten_call(args, kwargs)
        leaves = take_samples(leaves, engine.signatures[engine.root].cut, samples)
        record(engine.root, run, *unflatten_call(leaves, spec))
    for unit in engine.units:
        unit.free()
    return [u for u in order if u is not engine.root]


def _marked(result: Any, wants: bool) -> Any:
    """``result`` as the output of a unit that gets a backward, if ``wants``."""
    if not wants or not torch.is_grad_enabled():
        return result
    return compat.tree_map_tensors(
        lambda x: x.detach().requires_grad_(x.is_floating_point()), result
    )


@contextmanager
def answering(engine: Engine, call: Callable[..., Any]) -> Iterator[None]:
    """Calls of units go to ``call`` instead of the engine, with its arguments."""
    engine.call = call
    try:
        yield
    finally:
        del engine.call


class StandIns:
    """Answers calls of units inside of another one with what they returned before, at no cost, so
    that the time and memory of the outer one alone are left. Arguments are kept and gradients
    flow, as they would."""

    def __init__(self, engine: Engine, classes: list[UnitClass]):
        self._class_of = {u: c for c in classes for u in c.units}
        self._anchor = torch.zeros((), requires_grad=True, device=engine.runtime.device)
        self._made: dict[int, list[list[Any]]] = {}
        self._calls: dict[Unit, int] = {}
        self.on_backward: Callable[[], None] = lambda: None
        """Called when the backward comes to one of the units."""

    def prepare(self, samples: int) -> None:
        """Make results for ``samples`` samples."""
        self._calls = {}
        self._made = {
            id(c): [
                [tile(leaf, EXAMPLE_SAMPLES, samples) for leaf in compat.tree_flatten(result)[0]]
                for result in c.results
            ]
            for c in dict.fromkeys(self._class_of.values())
            if c.results and not c.root
        }

    def call(self, unit: Unit, run, args: tuple, kwargs: dict, cut: bool = True) -> Any:
        """Answer for ``unit``."""
        if unit.absorber is not None:
            args, kwargs = unit.cast_inputs(args, kwargs)
            return unit.cast_outputs(run(*args, **kwargs))
        made = self._class_of[unit]
        turn = self._calls[unit] = self._calls.get(unit, -1) + 1
        turn %= len(made.results)
        spec = compat.tree_flatten(made.results[turn])[1]
        leaves = list(self._made[id(made)][turn])
        places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
        anchor = self._anchor if unit.trainable else self._anchor.detach()
        tensors = compat.tensors_of((args, kwargs))
        outputs = _StandIn.apply(self, [leaves[i] for i in places], anchor, *tensors)
        for place, output in zip(places, outputs, strict=True):
            leaves[place] = output
        return compat.tree_unflatten(leaves, spec)


class _StandIn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, stand_ins: StandIns, results, anchor: torch.Tensor, *tensors: torch.Tensor):
        ctx.stand_ins = stand_ins
        ctx.save_for_backward(*tensors)
        outputs = tuple(x.detach() for x in results)
        ctx.mark_non_differentiable(*(x for x in outputs if not x.is_floating_point()))
        return outputs

    @staticmethod
    def backward(ctx, *grads):
        ctx.stand_ins.on_backward()
        found: list[torch.Tensor | None] = [None, None, None]
        for tensor, wanted in zip(ctx.saved_tensors, ctx.needs_input_grad[3:], strict=True):
            alike = [
                g
                for g in grads
                if g is not None and g.shape == tensor.shape and g.dtype == tensor.dtype
            ]
            found.append((alike[0] if alike else torch.zeros_like(tensor)) if wanted else None)
        return tuple(found)
