"""The class that a sharded module becomes: FSDP2's methods over our units."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule

from .engine import Engine
from .runtime import Runtime
from .unit import Unit

_STATE = "_cephalo_state"


class ModuleState:
    """What a sharded module knows about itself."""

    def __init__(self, runtime: Runtime, unit: Unit):
        self.runtime = runtime
        self.unit = unit
        self.engine: Engine | None = None
        """Set when the module ran inside, or as, a root."""
        self.requires_sync = True


def state_of(module: nn.Module) -> ModuleState | None:
    """The module's state, or None if it is not sharded by us."""
    return module.__dict__.get(_STATE)


def attach(module: nn.Module, runtime: Runtime, unit: Unit) -> None:
    """Turn ``module`` into a sharded one, in place: its class becomes a subclass of itself."""
    module.__dict__[_STATE] = ModuleState(runtime, unit)
    module.__class__ = _sharded_class(type(module))
    module.register_state_dict_pre_hook(_show_shards)


@functools.cache
def _sharded_class(cls: type[nn.Module]) -> type[nn.Module]:
    return type(f"FSDP{cls.__name__}", (ShardedModule, cls), {"__module__": cls.__module__})


def _show_shards(module: nn.Module, *_: Any) -> None:
    engine = state_of(module).engine
    if engine is not None:
        engine.free_unless_running()


class UnshardHandle:
    """What ``unshard(async_op=True)`` returns."""

    def __init__(self, unit: Unit):
        self._unit = unit

    def wait(self) -> None:
        """Return with the parameters gathered."""
        self._unit.gather()


class ShardedModule(FSDPModule):
    """A module whose parameters live in unequal shards. Subclass of FSDP2's FSDPModule, so that
    ``isinstance`` tests of libraries hold; every method is ours."""

    def __new__(cls, *args: Any, **kwargs: Any):
        # Indexing a sharded container makes a plain one of the original class, as with FSDP2.
        original = cls.__mro__[cls.__mro__.index(FSDPModule) + 1]
        made = original.__new__(original, *args, **kwargs)
        made.__init__(*args, **kwargs)
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        run = functools.partial(super(FSDPModule, self).__call__)
        return self._run_unit(run, args, kwargs)

    def _run_unit(self, run, args: tuple, kwargs: dict) -> Any:
        state = state_of(self)
        if state.engine is None:
            state.engine = _make_root(self, state)
        return state.engine.call(state.unit, run, args, kwargs)

    def __deepcopy__(self, memo: dict) -> Any:
        raise AssertionError("FSDP does not support deepcopy. Please use state dict for serialization.")

    # -- what FSDPModule promises ---------------------------------------------------------------

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """Gather this module's parameters."""
        unit = state_of(self).unit
        unit.refresh()
        unit.start_gather()
        if async_op:
            return UnshardHandle(unit)
        unit.gather()
        return None

    def reshard(self) -> None:
        """Free this module's gathered parameters."""
        state_of(self).unit.free()

    def set_requires_gradient_sync(
        self, requires_gradient_sync: bool, *, recurse: bool = True
    ) -> None:
        """With False, gradients are reduced and added up in the shards but not handed to ``grad``
        until a backward with True, so that no unsharded gradient is ever kept."""
        for module in self.modules() if recurse else [self]:
            state = state_of(module)
            if state is not None:
                state.requires_sync = requires_gradient_sync

    def set_gradient_divide_factor(self, factor: float) -> None:
        """Gradients become the sum over ranks divided by ``factor``, without weights."""
        state_of(self).runtime.divide_factor = float(factor)

    def set_reduce_scatter_divide_factor(self, factor: float) -> None:
        """The older name of ``set_gradient_divide_factor``."""
        self.set_gradient_divide_factor(factor)

    def set_post_optim_event(self, event: torch.Event) -> None:
        """Gathers of the next forward wait for this event of the optimizer's stream."""
        state = state_of(self)

        def wait_once() -> None:
            torch.accelerator.current_stream().wait_event(event)
            state.unit.before_gather = None

        state.unit.before_gather = wait_once

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Accepted: every backward ends whole, so there is nothing to defer."""

    def set_requires_all_reduce(self, requires_all_reduce: bool, *, recurse: bool = True) -> None:
        """Accepted: there is one group, and no all-reduce beside the reduction."""

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Accepted as a hint: when units are freed does not change any result."""

    def set_reshard_after_backward(
        self, reshard_after_backward: bool, *, recurse: bool = True
    ) -> None:
        """Accepted as a hint: when units are freed does not change any result."""

    def set_modules_to_forward_prefetch(self, modules: list[FSDPModule]) -> None:
        """Accepted as a hint: the order of units is learnt from the first step."""

    def set_modules_to_backward_prefetch(self, modules: list[FSDPModule]) -> None:
        """Accepted as a hint: the order of units is learnt from the first step."""

    def set_unshard_in_backward(self, unshard_in_backward: bool) -> None:
        """Accepted as a hint: units are gathered in backward whenever their parameters are needed."""

    def set_reduce_scatter_unused_params(self, *_: Any, **__: Any) -> None:
        """Accepted: parameters unused on some ranks always count as zeros there."""

    def set_reduce_scatter_max_input_buffers(self, *_: Any, **__: Any) -> None:
        """Accepted as a hint."""

    def set_separate_reduce_scatter_group(self, *_: Any, **__: Any) -> None:
        """Accepted as a hint."""

    def set_allocate_memory_from_process_group_for_comm(self, *_: Any, **__: Any) -> None:
        """Accepted as a hint."""

    def set_force_sum_reduction_for_comms(self, *_: Any, **__: Any) -> None:
        """Accepted: reductions are sums of weighted gradients already."""

    def reset_iter_state(self) -> None:
        """Forget a forward whose backward will not come."""
        state = state_of(self)
        if state.engine is not None:
            state.engine.reset()

    def _get_fsdp_state(self) -> Any:
        raise NotImplementedError("FSDP2's private state does not exist under cephalorun")

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        state_of(self).unit.free()
        return super(FSDPModule, self)._apply(*args, **kwargs)


def _refuse(name: str):
    def refuse(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError(f"FSDPModule.{name} is not supported under cephalorun")

    return refuse


for _name in (
    "set_all_reduce_hook",
    "set_custom_all_gather",
    "set_custom_reduce_scatter",
    "set_symm_mem_for_comm",
):
    setattr(ShardedModule, _name, _refuse(_name))


def _make_root(module: nn.Module, state: ModuleState) -> Engine:
    """The first module to run becomes the root of everything inside it."""
    states = [s for s in map(state_of, module.modules()) if s is not None]
    units = list(dict.fromkeys(s.unit for s in states))
    engine = Engine(state.runtime, state.unit, module, units)
    engine.sync_wanted = lambda: state.requires_sync
    for inner in states:
        inner.engine = engine
    return engine
