"""Writing into ragged tensors: copies from any layout, and random numbers as one process draws."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.tensor import DTensor, Shard

from . import compat
from .ragged_layout import RowLayout, gather_rows, gather_values, move_rows
from .ragged_ops import call_name, check_same, handles, refuse, wrap_like


def rows_of(source: torch.Tensor, layout: RowLayout, shape: torch.Size) -> torch.Tensor:
    """Return this rank's rows of ``source`` under ``layout``; all ranks call it together.

    ``source``: a full plain tensor or a DTensor of any one-dimensional layout on the same mesh,
    of global ``shape``. The result may alias a full source. Raises ValueError on every rank if
    the shapes differ or the source's pieces do not add up.
    """
    if source.shape != shape:
        raise ValueError(
            f"shape {tuple(source.shape)} given for a tensor of shape {tuple(shape)}; "
            f"give the whole tensor on every rank, or a DTensor"
        )
    if not isinstance(source, DTensor):
        return layout.narrow(source)
    ragged = getattr(source, "_ragged", None)
    local = compat.local_of(source)
    if ragged is not None and ragged.mesh == layout.mesh:
        return local if ragged.same(layout) else move_rows(local, ragged, layout)
    if ragged is None and all(p.is_replicate() for p in source.placements):
        return layout.narrow(local)
    if source.device_mesh != layout.mesh or source.placements != (Shard(0),):
        return layout.narrow(source.full_tensor())
    own = torch.tensor([local.shape[0]], device=local.device)
    held = [int(n) for n in gather_values(own, layout).flatten().tolist()]
    if sum(held) != shape[0]:
        raise ValueError(f"a DTensor of shape {tuple(shape)} has rows {held} on the ranks")
    return move_rows(local, layout.with_rows(held), layout)


@handles("copy")
def _copy(cls: type, func: Any, args: tuple, kwargs: dict) -> Any:
    """``p.copy_(source)``: a full tensor, a scalar, or a DTensor of any layout."""
    target, source = args[0], args[1]
    if type(target) is not cls:
        raise refuse(call_name(func), "copied into a tensor of another kind")
    if not isinstance(source, DTensor) and source.dim() == 0:
        rows = source
    elif type(source) is cls and source._ragged.same(target._ragged):
        check_same(func, target, source)
        rows = source.piece
    else:
        rows = rows_of(source, target._ragged, target.shape)
    func(target.piece, rows, *args[2:], **kwargs)
    return target


@handles("_foreach_copy")
def _foreach_copy(cls: type, func: Any, args: tuple, kwargs: dict) -> None:
    targets, sources = args[0], args[1]
    blocking = args[2:]
    if all(
        type(t) is cls and type(s) is cls and t._ragged.same(s._ragged) and t.shape == s.shape
        for t, s in zip(targets, sources)
    ):
        func([t.piece for t in targets], [s.piece for s in sources], *blocking)
        return
    for target, source in zip(targets, sources):
        target.copy_(source)


@handles("normal", "uniform", "exponential", "log_normal", "cauchy", "geometric", "random")
@handles("bernoulli")
def _draw(cls: type, func: Any, args: tuple, kwargs: dict) -> Any:
    """Draw the whole tensor, as one process would, and keep this rank's rows."""
    target = args[0]
    whole_inputs = not any(isinstance(a, torch.Tensor) for a in args[1:])
    if not func._schema.is_mutable or type(target) is not cls or not whole_inputs:
        raise refuse(call_name(func))
    local = target.piece
    if not local.is_meta:
        whole = torch.empty(target.shape, dtype=local.dtype, device=local.device)
        local.copy_(target._ragged.narrow(func(whole, *args[1:], **kwargs)))
    return target


@handles("rand_like", "randn_like", "randint_like")
def _draw_like(cls: type, func: Any, args: tuple, kwargs: dict) -> Any:
    source = args[0]
    local = source.piece
    if local.is_meta:
        return wrap_like(source, func(local, *args[1:], **kwargs))
    whole = func(
        torch.empty(source.shape, dtype=local.dtype, device=local.device), *args[1:], **kwargs
    )
    return wrap_like(source, source._ragged.narrow(whole).clone())


def fill_through(target: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an in-place initialiser on a whole plain tensor and keep this rank's rows of it."""
    local = target.piece
    if not local.is_meta:
        with torch.no_grad():
            whole = torch.empty(target.shape, dtype=local.dtype, device=local.device)
            function(whole, *args, **kwargs)
            local.copy_(target._ragged.narrow(whole))
    return target


def gather_full(source: Any) -> torch.Tensor:
    """Return the whole tensor of a ragged one on every rank, in new memory."""
    return gather_rows(source.piece, source._ragged)
