"""Answers for PyTorch's public FSDP names, so that a script need not know that we exist."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.utils.checkpoint
from torch import nn
from torch.distributed import fsdp

from . import compat, data, module, sharding
from .module import engine_of, state_of

_FSDP_MODULES = (
    "torch.distributed.fsdp",
    "torch.distributed.fsdp._fully_shard",
    "torch.distributed._composable.fsdp",
    "torch.distributed._composable.fsdp.fully_shard",
)
"""Where scripts and libraries import FSDP2's names from."""


class Patches:
    """Replaced attributes, which ``undo`` puts back."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []
        self._undo: list[Callable[[], None]] = []

    def set(self, holder: Any, name: str, value: Any) -> None:
        self._before.append((holder, name, getattr(holder, name)))
        setattr(holder, name, value)

    def also(self, undo: Callable[[], None]) -> None:
        self._undo.append(undo)

    def undo(self) -> None:
        for undo in reversed(self._undo):
            undo()
        for holder, name, value in reversed(self._before):
            setattr(holder, name, value)


def install(
    feed: data.Feed, note_loss: Callable[[torch.Tensor], None], backend: str | None = None
) -> Patches:
    """Replace the public names. Call it before the script is imported.

    ``note_loss(tensor)`` hears of every scalar whose backward is called; ``backend`` is used
    in place of what the script asks for (parts of one GPU cannot use NCCL among themselves).
    """
    patches = Patches()
    for name in _FSDP_MODULES:
        try:
            holder = importlib.import_module(name)
        except ImportError:
            continue
        if not isinstance(holder, type(sys)):
            continue
        for attribute, value in (
            ("fully_shard", sharding.fully_shard),
            ("UnshardHandle", module.UnshardHandle),
            ("register_fsdp_forward_method", register_fsdp_forward_method),
            ("share_comm_ctx", share_comm_ctx),
        ):
            if callable(getattr(holder, attribute, None)):
                patches.set(holder, attribute, value)
    for holder in (fsdp, fsdp.fully_sharded_data_parallel):
        patches.set(holder, "FullyShardedDataParallel", _RefusedFSDP1)
    patches.also(data.install(feed))
    checkpoint = _checkpoint(torch.utils.checkpoint.checkpoint)
    patches.set(torch.utils.checkpoint, "checkpoint", checkpoint)
    patches.set(*compat.CHECKPOINT_OF_WRAPPERS, checkpoint)
    patches.set(torch.Tensor, "backward", _backward(torch.Tensor.backward, note_loss))
    patches.set(torch.amp.GradScaler, "scale", _scale(torch.amp.GradScaler.scale, note_loss))
    if backend is not None:
        for holder in (dist, dist.distributed_c10d, dist.device_mesh):
            patches.set(holder, "init_process_group", _init(dist.init_process_group, backend))
    return patches


class _RefusedFSDP1:
    @staticmethod
    def fsdp_modules(module: nn.Module, root_only: bool = False) -> list[nn.Module]:
        """None: DCP's functions for state dicts ask for the modules of FSDP1."""
        return []

    def __init__(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError(
            "FullyShardedDataParallel (FSDP1) is not supported under cephalorun; "
            "use torch.distributed.fsdp.fully_shard"
        )


def register_fsdp_forward_method(target: nn.Module, method_name: str) -> None:
    """Gather the module's parameters around another method than ``forward`` too."""
    if state_of(target) is None:
        return
    method = getattr(target, method_name)

    def run(*args: Any, **kwargs: Any) -> Any:
        return engine_of(target).call(state_of(target).unit, method, args, kwargs, cut=False)

    object.__setattr__(target, method_name, run)


def share_comm_ctx(modules: list[nn.Module]) -> None:
    """Accepted: all units of a process share one communication stream already."""


def _checkpoint(original: Callable) -> Callable:
    """Checkpointing of a whole unit adds nothing to what the plan decided but a third forward."""

    own = {
        name
        for name, parameter in inspect.signature(original).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }

    @functools.wraps(original)
    def checkpoint(function: Callable | None = None, *args: Any, **kwargs: Any) -> Any:
        target = function
        while isinstance(target, functools.partial):
            target = target.func
        target = getattr(target, "__self__", target)
        state = state_of(target) if isinstance(target, nn.Module) else None
        if state is None or state.engine is None or not state.engine.layers(state.unit):
            return original(function, *args, **kwargs)
        return function(*args, **{k: v for k, v in kwargs.items() if k not in own})

    return checkpoint


def _backward(original: Callable, note_loss: Callable[[torch.Tensor], None]) -> Callable:
    def backward(self: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        if self.numel() == 1 and not getattr(self, _NOTED, False):
            note_loss(self.detach())
        return original(self, *args, **kwargs)

    return backward


_NOTED = "_cephalo_noted"
"""Marks a scaled loss whose unscaled value was noted already."""


def _scale(original: Callable, note_loss: Callable[[torch.Tensor], None]) -> Callable:
    def scale(self: Any, outputs: Any) -> Any:
        scaled = original(self, outputs)
        if isinstance(outputs, torch.Tensor) and outputs.numel() == 1:
            note_loss(outputs.detach())
            setattr(scaled, _NOTED, True)
        return scaled

    return scale


def _init(original: Callable, backend: str) -> Callable:
    def init_process_group(*args: Any, **kwargs: Any) -> None:
        if args:
            args = (backend, *args[1:])
        else:
            kwargs["backend"] = backend
        kwargs.pop("device_id", None)
        original(*args, **kwargs)

    return init_process_group
