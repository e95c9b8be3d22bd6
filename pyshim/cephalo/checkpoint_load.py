"""Loading whole or otherwise cut state into ragged parameters and optimizer state.

Three public doors are replaced by ``install``, because stock torch would take the even split for
granted behind them: ``Module.load_state_dict(assign=True)``, ``Optimizer.load_state_dict`` and the
``set_*_state_dict`` functions with ``full_state_dict=True``.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint import state_dict as stock
from torch.distributed.tensor import DTensor

from . import compat
from .ragged import RaggedDTensor
from .ragged_layout import move_rows
from .ragged_write import rows_of

# What is replaced, as stock torch has it.
_get_model = stock.get_model_state_dict
_get_optimizer = stock.get_optimizer_state_dict


def install() -> None:
    """Replace the functions; a second call does nothing."""
    if getattr(nn.Module.load_state_dict, "_cephalo", False):
        return
    nn.Module.load_state_dict = _load_module(nn.Module.load_state_dict)
    torch.optim.Optimizer.load_state_dict = _load_optimizer(torch.optim.Optimizer.load_state_dict)
    stock.set_model_state_dict = _set_model(stock.set_model_state_dict)
    stock.set_optimizer_state_dict = _set_optimizer(stock.set_optimizer_state_dict)
    stock.set_state_dict = _set_both(stock.set_state_dict)


def _marked(original: Callable, replacement: Callable) -> Callable:
    functools.update_wrapper(replacement, original)
    replacement._cephalo = True
    return replacement


# -- Module.load_state_dict -----------------------------------------------------------------------


def _load_module(original: Callable) -> Callable:
    def load_state_dict(
        self: nn.Module, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        if assign:
            state_dict = relaid(self, state_dict)
        return original(self, state_dict, strict, assign)

    return _marked(original, load_state_dict)


@torch.no_grad()
def relaid(module: nn.Module, state_dict: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return ``state_dict`` so that assigning it keeps every ragged parameter's layout.

    Values of ragged parameters are written into the parameters, which then stand for themselves;
    where dtypes differ or the parameter is on the meta device, a new one of its layout does.
    Collective if the values are DTensors of another layout.
    """
    out = OrderedDict(state_dict)
    out._metadata = getattr(state_dict, "_metadata", None)
    made: dict[int, nn.Parameter] = {}
    for name, param in module.named_parameters(remove_duplicate=False):
        value = out.get(name)
        if type(param) is not RaggedDTensor or not isinstance(value, torch.Tensor):
            continue
        if value is param or value.shape != param.shape:
            continue  # the latter is load_state_dict's to report
        if id(param) not in made:
            if value.dtype == param.dtype and not param.is_meta:
                param.copy_(value)
                made[id(param)] = param
            else:
                rows = rows_of(value, param._ragged, param.shape).clone()
                made[id(param)] = nn.Parameter(param.like(rows), param.requires_grad)
        out[name] = made[id(param)]
    return out


# -- Optimizer.load_state_dict --------------------------------------------------------------------


_optimizers = 0
"""How often the script has loaded an optimizer's state."""


def optimizer_was_loaded() -> bool:
    """True if the script goes on with an optimizer's state from before, wherever it lay."""
    return _optimizers > 0


def _load_optimizer(original: Callable) -> Callable:
    def load_state_dict(self: torch.optim.Optimizer, state_dict: dict[str, Any]) -> None:
        global _optimizers
        original(self, state_dict)
        _optimizers += 1
        for group in self.param_groups:
            for param in group["params"]:
                if type(param) is RaggedDTensor and param in self.state:
                    _relay_state(param, self.state[param])

    return _marked(original, load_state_dict)


@torch.no_grad()
def _relay_state(param: RaggedDTensor, state: dict[str, Any]) -> None:
    """Lay state tensors of the parameter's shape out as the parameter is."""
    for key, value in state.items():
        if isinstance(value, dict):
            _relay_state(param, value)
        elif isinstance(value, torch.Tensor) and value.dim() and value.shape == param.shape:
            if type(value) is not RaggedDTensor or not value._ragged.same(param._ragged):
                rows = rows_of(value, param._ragged, param.shape)
                state[key] = param.like(rows.to(param.device, copy=True))


# -- set_*_state_dict(full_state_dict=True) -------------------------------------------------------


class _Promise(NamedTuple):
    """Stands for a tensor that rank 0 has."""

    shape: torch.Size
    dtype: torch.dtype


def _wants_spreading(module: nn.Module, options: Any) -> bool:
    return (
        options is not None
        and options.full_state_dict
        and any(type(p) is RaggedDTensor for p in module.parameters())
    )


def _sharded(options: Any) -> Any:
    """Return options under which stock torch takes each rank's own tensors."""
    return dataclasses.replace(options, full_state_dict=False, broadcast_from_rank0=False)


def _set_model(original: Callable) -> Callable:
    def set_model_state_dict(
        model: nn.Module, model_state_dict: dict[str, Any], *, options: Any = None
    ) -> Any:
        if not _wants_spreading(model, options):
            return original(model, model_state_dict, options=options)
        spread = _spread_model(model, model_state_dict, options)
        if any(type(p) is RaggedDTensor and p.is_meta for p in model.parameters()):
            return model.load_state_dict(spread, strict=options.strict, assign=True)
        return original(model, spread, options=_sharded(options))

    return _marked(original, set_model_state_dict)


def _set_optimizer(original: Callable) -> Callable:
    def set_optimizer_state_dict(
        model: nn.Module, optimizers: Any, optim_state_dict: dict[str, Any], *, options: Any = None
    ) -> None:
        if _wants_spreading(model, options):
            optim_state_dict = _spread_optimizer(model, optimizers, optim_state_dict, options)
            options = _sharded(options)
        original(model, optimizers, optim_state_dict, options=options)

    return _marked(original, set_optimizer_state_dict)


def _set_both(original: Callable) -> Callable:
    def set_state_dict(
        model: nn.Module,
        optimizers: Any,
        *,
        model_state_dict: dict[str, Any],
        optim_state_dict: dict[str, Any],
        options: Any = None,
    ) -> Any:
        if _wants_spreading(model, options):
            result = stock.set_model_state_dict(model, model_state_dict, options=options)
            stock.set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
            return result
        return original(
            model,
            optimizers,
            model_state_dict=model_state_dict,
            optim_state_dict=optim_state_dict,
            options=options,
        )

    return _marked(original, set_state_dict)


def _spread_model(model: nn.Module, whole: dict[str, Any], options: Any) -> dict[str, Any]:
    if any(isinstance(key, nn.Module) for key in whole):
        raise TypeError("full_state_dict=True takes a state dict by parameter names")
    return _spread(whole, _get_model(model), options.broadcast_from_rank0)


def _spread_optimizer(
    model: nn.Module, optimizers: Any, whole: dict[str, Any], options: Any
) -> dict[str, Any]:
    target = _get_optimizer(model, optimizers, options=_sharded(options))
    return _spread(whole, target, options.broadcast_from_rank0)


@torch.no_grad()
def _spread(whole: Any, target: Any, broadcast: bool) -> Any:
    """Return ``whole`` with every tensor laid out as the tensor at its place in ``target``.

    With ``broadcast``, rank 0's tree is meant and each rank receives only its own rows.
    """
    if not broadcast:
        return _walk(whole, target, lambda value, like: _keep_own(value, like))
    outline: list[Any] = [None]
    if dist.get_rank() == 0:
        outline[0] = _walk(whole, None, lambda value, _: _promise(value))
    dist.broadcast_object_list(outline, src=0)
    source = iter(_tensors(whole) if dist.get_rank() == 0 else ())
    return _walk(
        outline[0],
        target,
        lambda promise, like: _receive(promise, like, next(source, None)),
        leaf=_Promise,
    )


def _walk(tree: Any, target: Any, at: Callable[[Any, Any], Any], leaf: type = torch.Tensor) -> Any:
    """Replace the leaves of a tree of dicts and lists, in order, with ``at(leaf, counterpart)``."""
    if isinstance(tree, leaf):
        return at(tree, target)
    if isinstance(tree, Mapping):
        inner = target if isinstance(target, Mapping) else {}
        return {k: _walk(v, inner.get(k), at, leaf) for k, v in tree.items()}
    if type(tree) in (list, tuple):
        inner = target if isinstance(target, (list, tuple)) and len(target) == len(tree) else None
        return type(tree)(
            _walk(v, inner[i] if inner else None, at, leaf) for i, v in enumerate(tree)
        )
    return tree


def _promise(value: torch.Tensor) -> Any:
    return value.cpu() if value.dim() == 0 else _Promise(value.shape, value.dtype)


def _tensors(tree: Any) -> list[torch.Tensor]:
    """Return the tensors of a tree that travel one by one, in order."""
    found: list[torch.Tensor] = []
    _walk(tree, None, lambda value, _: found.append(value) if value.dim() else None)
    return found


def _keep_own(value: torch.Tensor, like: Any) -> torch.Tensor:
    if type(like) is RaggedDTensor and value.shape == like.shape and value.dim():
        return like.like(rows_of(value, like._ragged, like.shape).to(like.device, copy=True))
    if isinstance(like, DTensor) and not isinstance(value, DTensor):
        return _on_mesh(value, like)
    return value


def _on_mesh(value: torch.Tensor, like: DTensor) -> torch.Tensor:
    if value.shape == like.shape and all(p.is_replicate() for p in like.placements):
        return compat.replicated(value.detach().to(like.device), like.device_mesh)
    return value


def _receive(promise: _Promise, like: Any, value: torch.Tensor | None) -> torch.Tensor:
    """Receive one tensor from rank 0, which gives it as ``value``; ragged ones by rows."""
    if type(like) is RaggedDTensor and promise.shape == like.shape:
        kind = like.device_mesh.device_type
        old = like._ragged.with_rows([promise.shape[0], *[0] * (like._ragged.world - 1)])
        if value is None:
            value = torch.empty((0, *promise.shape[1:]), dtype=promise.dtype)
        rows = move_rows(value.detach().to(kind), old, like._ragged)
        return like.like(rows.to(like.device))
    device = like.device if isinstance(like, torch.Tensor) else torch.device("cpu")
    sent = torch.empty(promise.shape, dtype=promise.dtype) if value is None else value.detach()
    sent = sent.to(_group_device(device)).contiguous()
    dist.broadcast(sent, src=0)
    return _keep_own(sent.to(device), like)


def _group_device(device: torch.device) -> torch.device:
    """Return a device that the default group can move tensors from."""
    if device.type != "cpu" or "gloo" in str(dist.get_backend()):
        return device
    return torch.device("cuda", torch.cuda.current_device())
