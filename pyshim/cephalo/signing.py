"""How the units of a model are called, and which of their arguments carry the batch: found by two
forwards with other numbers of samples, before the first training forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .batch import Signature, flatten_call, unflatten_call
from .compilers import uncompiled
from .probing import SAMPLES, BufferGuard, ProbedCall, carriers, note_call, sign, with_samples
from .randomness import untouched_randomness
from .runtime import Runtime
from .unit import Unit


class Signing:
    """Calls a root module with samples of its own choice. Meanwhile ``under_way`` is True, and the
    calls of units belong to ``call``."""

    def __init__(self, runtime: Runtime, root: Unit, module: nn.Module, units: list[Unit]):
        self._runtime, self._root, self._module, self._units = runtime, root, module, units
        self._calls: dict[Unit, list[ProbedCall]] | None = None

    @property
    def under_way(self) -> bool:
        """True inside a forward of ``find``."""
        return self._calls is not None

    @torch.no_grad()
    def find(
        self, run: Callable[..., Any], leaves: list[Any], spec: Any, batch: int | None, cut: bool
    ) -> tuple[dict[Unit, Signature], list[Unit]]:
        """The signatures of all units that are called, and these units in the order of the forward.
        ``leaves`` and ``spec`` are the root's arguments, ``batch`` the samples in them, if it is
        known. Collective; raises what the model raises."""
        runtime = self._runtime
        calls: list[dict[Unit, list[ProbedCall]]] = []
        changed: set[int] = set()

        def probe(sampled: list[Any]) -> None:
            calls.append(self._forward(run, sampled, spec, cut, changed))

        runtime.agree_on("the arguments of the model", str(spec))
        answers = [] if batch is None else carriers(leaves, batch, runtime.true_everywhere)
        if not answers:
            return {self._root: Signature(spec, (), (), False, "no tensor argument")}, []
        for samples in SAMPLES:
            answers = with_samples(leaves, answers, samples, probe)
        signatures = {}
        for unit in self._units:
            first, second = (c.get(unit, []) for c in calls)
            if first or second:
                signatures[unit] = sign(first, second, self._obstacle(unit, changed))
        runtime.agree_on(
            "the arguments that carry the batch",
            [(unit.kind, s.digest()) for unit, s in signatures.items()],
        )
        return signatures, [u for u in calls[-1] if u in signatures]

    def _forward(
        self, run, leaves: list[Any], spec: Any, cut: bool, changed: set[int]
    ) -> dict[Unit, list[ProbedCall]]:
        """The calls of the units in one forward, of which nothing stays. ``changed`` gets the ids
        of the buffers that it changed for a while."""
        self._calls = calls = {}
        self._runtime.busy.add(self)
        guard = BufferGuard(self._module)
        try:
            with untouched_randomness(self._runtime.device), uncompiled():
                self.call(self._root, run, *unflatten_call(leaves, spec), cut)
        finally:
            changed.update(guard.restore())
            self._calls = None
            self._runtime.busy.discard(self)
            for unit in self._units:
                unit.free()
            torch.clear_autocast_cache()  # its casts have no history
        return calls

    def call(
        self, unit: Unit, run: Callable[..., Any], args: tuple, kwargs: dict, cut: bool
    ) -> Any:
        """A unit's module is called inside of such a forward."""
        args, kwargs = unit.cast_inputs(args, kwargs)
        leaves, spec = flatten_call(args, kwargs)
        unit.gather()
        output = unit.cast_outputs(run(*args, **kwargs))
        if unit is not self._root and unit.absorber is None and len(unit.modules) == 1:
            unit.free()
        if cut:
            self._calls.setdefault(unit, []).append(note_call(leaves, spec, output))
        return output

    def _obstacle(self, unit: Unit, changed: set[int]) -> str:
        nested = [u for u in self._units if u.absorber is not unit and u is not unit]
        if any(u.inside(unit) for u in nested):
            return "there are units inside of it"
        return unit.obstacle(changed)
