"""The class that a sharded module becomes: FSDP2's methods over our units."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule

from .alone import engine_kind
from .engine import Engine
from .optimizers import forget_gradients
from .ragged import RaggedDTensor
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


def engine_of(module: nn.Module) -> Engine:
    """The engine that runs a sharded module; the first module to run becomes the root of everything
    inside it."""
    state = state_of(module)
    if state.engine is None:
        state.engine = _make_root(module, state)
    return state.engine


def attach(module: nn.Module, runtime: Runtime, unit: Unit) -> None:
    """Turn ``module`` into a sharded one, in place: its class becomes a subclass of itself."""
    module.__dict__[_STATE] = ModuleState(runtime, unit)
    module.__class__ = _sharded_class(type(module))
    module.register_state_dict_pre_hook(_show_shards)
    module.register_load_state_dict_pre_hook(_show_shards)
    module.register_load_state_dict_post_hook(_adopt)


@functools.cache
def _sharded_class(cls: type[nn.Module]) -> type[nn.Module]:
    return type(f"FSDP{cls.__name__}", (ShardedModule, cls), {"__module__": cls.__module__})


def _show_shards(module: nn.Module, *_: Any) -> None:
    state = state_of(module)
    if state.engine is not None:
        state.engine.free_unless_running()
    else:
        state.unit.free()


def _adopt(module: nn.Module, *_: Any) -> None:
    state_of(module).unit.adopt()


def _call(module: ShardedModule, args: tuple, kwargs: dict) -> Any:
    state = module.__dict__[_STATE]
    engine = state.engine or engine_of(module)
    return engine.call(state.unit, super(FSDPModule, module).__call__, args, kwargs)


_enter: Callable[[ShardedModule, tuple, dict], Any] = _call


def keep_compilers_out() -> None:
    """Let torch.compile trace what a module computes, but not how its unit is run. Called before
    anything is compiled, since it loads the compiler."""
    global _enter
    _enter = torch.compiler.disable(_call)


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
        return _enter(self, args, kwargs)

    def __deepcopy__(self, memo: dict) -> Any:
        raise AssertionError(
            "FSDP does not support deepcopy. Please use state dict for serialization."
        )

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
        """This module's gradients become the sum over ranks divided by ``factor``, without weights;
        modules sharded inside of it keep what they have."""
        state_of(self).unit.divide_factor = float(factor)

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

    def reset_iter_state(self) -> None:
        """Forget a forward whose backward will not come."""
        state = state_of(self)
        if state.engine is not None:
            state.engine.reset()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As every module's."""
        if set_to_none:
            forget_gradients(RaggedDTensor, self.parameters())
        super(FSDPModule, self).zero_grad(set_to_none)

    def _get_fsdp_state(self) -> Any:
        raise NotImplementedError("FSDP2's private state does not exist under cephalorun")

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        state_of(self).unit.free()
        return super(FSDPModule, self)._apply(*args, **kwargs)


_ACCEPTED = {
    "set_is_last_backward": "every backward ends whole, so there is nothing to defer",
    "set_requires_all_reduce": "there is one group, and no all-reduce beside the reduction",
    "set_reshard_after_forward": "when units are freed does not change any result",
    "set_reshard_after_backward": "when units are freed does not change any result",
    "set_modules_to_forward_prefetch": "the order of units is learnt from the last step",
    "set_modules_to_backward_prefetch": "the order of units is learnt from the last step",
    "set_unshard_in_backward": "units are gathered whenever their parameters are needed",
    "set_reduce_scatter_unused_params": "unused parameters count as zeros on that rank",
    "set_reduce_scatter_max_input_buffers": "two reductions are under way at most",
    "set_separate_reduce_scatter_group": "collectives have an order of their own",
    "set_allocate_memory_from_process_group_for_comm": "a hint about memory",
    "set_force_sum_reduction_for_comms": "reductions are sums of weighted gradients already",
}
"""Methods of FSDPModule that a script may call although they change nothing here, and why."""


def _accept(name: str, why: str):
    def accept(self, *_: Any, **__: Any) -> None:
        pass

    accept.__name__, accept.__doc__ = name, f"Accepted: {why}."
    return accept


def _refuse(name: str):
    def refuse(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError(f"FSDPModule.{name} is not supported under cephalorun")

    refuse.__name__ = name
    return refuse


for _name, _why in _ACCEPTED.items():
    setattr(ShardedModule, _name, _accept(_name, _why))
for _name in vars(FSDPModule):  # whatever this or a later release has beside what is written here
    if not _name.startswith("_") and _name not in vars(ShardedModule):
        setattr(ShardedModule, _name, _refuse(_name))


def _make_root(module: nn.Module, state: ModuleState) -> Engine:
    states = [s for s in map(state_of, module.modules()) if s is not None]
    units = list(dict.fromkeys(s.unit for s in states))
    kind = engine_kind(state.runtime)
    engine = kind(state.runtime, state.unit, module, units, lambda: state.requires_sync)
    for inner in states:
        inner.engine = engine
    return engine
