"""Reductions over ragged tensors: reduce the local rows, gather one value per rank, combine.

The partial results of all ranks are gathered and combined in rank order on every rank, instead of
reduced in flight: every rank gets the same bits, and NaN survives minimum and maximum on every
backend. A list of tensors costs one collective. Results over dimension 0 are DTensors on
``Replicate``; results over other dimensions alone stay ragged.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from . import compat
from .ragged_layout import RowLayout, gather_values
from .ragged_ops import call_name, check_same, dispatch, handles, refuse, wrap_shape

LOW = (torch.float16, torch.bfloat16)


def _dims(asked: Any, tensor: torch.Tensor) -> list[int]:
    if asked is None or (isinstance(asked, (list, tuple)) and not asked):
        return list(range(tensor.dim()))
    if not isinstance(asked, (list, tuple)):
        asked = [asked]
    return sorted({d % tensor.dim() for d in asked})


def _named(func: Any, args: tuple, kwargs: dict) -> dict[str, Any]:
    """Return a call's arguments by name, defaults filled in."""
    named = {a.name: a.default_value for a in func._schema.arguments}
    named.update(zip((a.name for a in func._schema.arguments), args))
    named.update(kwargs)
    if "out" in named:
        raise refuse(call_name(func), "with out=")
    return named


def _finish(
    cls: type,
    source: Any,
    dims: list[int],
    keepdim: bool,
    local: Callable[[torch.Tensor], torch.Tensor],
    combine: Callable[[torch.Tensor], torch.Tensor],
) -> Any:
    """Reduce ``source`` over ``dims``.

    ``local`` reduces this rank's rows over ``dims``, dimensions kept, and must give the neutral
    element for no rows; ``combine`` reduces dimension 0 of the ranks' results, stacked.
    """
    part = local(source.piece)
    if 0 in dims:
        part = combine(gather_values(part.contiguous(), source._ragged))
    if not keepdim:
        part = part.squeeze(dims)
    if 0 in dims:
        return compat.replicated(part, source._ragged.mesh)
    shape = torch.Size((source.shape[0], *part.shape[1:]))
    return wrap_shape(cls, part, source._ragged, shape)


def _sum_dtype(dtype: torch.dtype) -> torch.dtype:
    if dtype in LOW:
        return torch.float32
    return torch.int64 if not dtype.is_floating_point and not dtype.is_complex else dtype


@handles("sum", "mean", "prod", "count_nonzero", "nansum")
def _sums(cls: type, func: Any, args: tuple, kwargs: dict) -> Any:
    call = _named(func, args, kwargs)
    source, name = call["self"], func._schema.name.split("::")[-1]
    dims = _dims(call.get("dim"), source)
    asked = call.get("dtype")
    if name == "mean" and not (asked or source.dtype).is_floating_point:
        raise TypeError(f"mean of a tensor of {source.dtype}: give a floating dtype")
    out = asked or (source.dtype if source.dtype in LOW else _sum_dtype(source.dtype))
    inner = _sum_dtype(out)
    count = math.prod(source.shape[d] for d in dims)

    def local(rows: torch.Tensor) -> torch.Tensor:
        if name == "count_nonzero":
            return (rows != 0).sum(dims, keepdim=True)
        if name == "nansum":
            rows = rows.nan_to_num(nan=0.0, posinf=math.inf, neginf=-math.inf)
        if name != "prod":
            return rows.sum(dims, keepdim=True, dtype=inner)
        for dim in dims:
            rows = rows.prod(dim, keepdim=True, dtype=inner)
        return rows

    def scale(total: torch.Tensor) -> torch.Tensor:
        return (total / count if name == "mean" else total).to(
            torch.int64 if name == "count_nonzero" else out
        )

    if 0 not in dims:
        inner_local = local
        local = lambda rows: scale(inner_local(rows))  # noqa: E731
    reduce = torch.prod if name == "prod" else torch.sum
    keep = bool(call.get("keepdim", False))
    return _finish(cls, source, dims, keep, local, lambda parts: scale(reduce(parts, 0)))


def _neutral(dtype: torch.dtype, largest: bool) -> float | int | bool:
    """Return what a maximum (``largest``) or minimum of nothing is."""
    if dtype == torch.bool:
        return not largest
    if dtype.is_floating_point:
        return -math.inf if largest else math.inf
    info = torch.iinfo(dtype)
    return info.min if largest else info.max


def _extreme(rows: torch.Tensor, dims: list[int], largest: bool) -> torch.Tensor:
    if 0 in dims and rows.shape[0] == 0:
        shape = [1 if d in dims else n for d, n in enumerate(rows.shape)]
        return rows.new_full(shape, _neutral(rows.dtype, largest))
    return (torch.amax if largest else torch.amin)(rows, dims, keepdim=True)


@handles("amax", "amin", "max", "min")
def _extremes(cls: type, func: Any, args: tuple, kwargs: dict) -> Any:
    call = _named(func, args, kwargs)
    source, name = call["self"], func._schema.name.split("::")[-1]
    if source.numel() == 0 or "other" in call or (name in ("max", "min") and "dim" in call):
        raise refuse(call_name(func), "with dim= (amax and amin take one), or of no elements")
    largest = name.endswith("max")
    reduce = torch.amax if largest else torch.amin
    return _finish(
        cls,
        source,
        _dims(call.get("dim"), source),
        bool(call.get("keepdim", False)),
        lambda rows: _extreme(rows, _dims(call.get("dim"), source), largest),
        lambda parts: reduce(parts, 0),
    )


@handles("any", "all")
def _logic(cls: type, func: Any, args: tuple, kwargs: dict) -> Any:
    call = _named(func, args, kwargs)
    source, every = call["self"], func._schema.name.endswith("all")
    reduce = torch.all if every else torch.any
    dims = _dims(call.get("dim"), source)
    return _finish(
        cls,
        source,
        dims,
        bool(call.get("keepdim", False)),
        lambda rows: reduce(rows, dims, keepdim=True),
        lambda parts: reduce(parts, 0),
    )


def _norm_of(rows: torch.Tensor, p: float, dims: list[int]) -> torch.Tensor:
    """The p-norm of the rows; of no rows, the neutral element."""
    if abs(p) == math.inf:
        return _extreme(rows.abs(), dims, p > 0)
    return torch.linalg.vector_norm(rows, p, dims, keepdim=True)


def combine_norms(parts: torch.Tensor, p: float) -> torch.Tensor:
    """Return the p-norm of a whole from those of its pieces along dimension 0; p >= 0 or -inf."""
    if p == 0:
        return parts.sum(0)
    if abs(p) == math.inf:
        return torch.amax(parts, 0) if p > 0 else torch.amin(parts, 0)
    return torch.linalg.vector_norm(parts, p, 0)


def _check_order(p: Any, func_name: str) -> float:
    if not isinstance(p, (int, float)) or (p < 0 and p != -math.inf):
        raise refuse(func_name, f"of order {p}")
    return float(p)


@handles("linalg_vector_norm", "norm")
def _norm(cls: type, func: Any, args: tuple, kwargs: dict) -> Any:
    call = _named(func, args, kwargs)
    source = call["self"]
    order = call.get("ord", call.get("p", 2))
    p = _check_order(2 if order is None else order, call_name(func))
    dims, out = _dims(call.get("dim"), source), call.get("dtype") or source.dtype
    if not out.is_floating_point or source.numel() == 0:
        raise refuse(call_name(func), f"of dtype {out} and {source.numel()} elements")
    inner = torch.float32 if out in LOW else out
    finish = 0 not in dims
    return _finish(
        cls,
        source,
        dims,
        bool(call.get("keepdim", False)),
        lambda rows: _norm_of(rows.to(inner), p, dims).to(out if finish else inner),
        lambda parts: combine_norms(parts, p).to(out),
    )


@handles("var", "std")
def _spread(cls: type, func: Any, args: tuple, kwargs: dict) -> Any:
    """Variance over the whole tensor, from every rank's count, mean and squared deviations."""
    call = _named(func, args, kwargs)
    source, layout = call["self"], call["self"]._ragged
    if len(_dims(call.get("dim"), source)) != source.dim() or call.get("keepdim"):
        raise refuse(call_name(func), "over some dimensions")
    if not source.dtype.is_floating_point:
        raise TypeError(f"{call_name(func)} of a tensor of {source.dtype}")
    free = call.get("correction", 1 if call.get("unbiased", True) else 0)
    rows = source.piece.double()
    mean = rows.mean() if rows.numel() else rows.new_zeros(())
    part = torch.stack([mean.new_tensor(float(rows.numel())), mean, (rows - mean).square().sum()])
    counts, means, squares = gather_values(part, layout).unbind(1)
    whole = (counts * means).sum() / counts.sum()
    squares = squares.sum() + (counts * (means - whole).square()).sum()
    result = squares / (counts.sum() - (1 if free is None else free)).clamp_min(0)
    if func._schema.name.endswith("std"):
        result = result.sqrt()
    return compat.replicated(result.to(source.dtype), layout.mesh)


@handles("_local_scalar_dense")
def _item(cls: type, func: Any, args: tuple, kwargs: dict) -> Any:
    """``.item()`` of one element: its owner's value, on every rank."""
    source = args[0]
    if source.numel() != 1:
        raise RuntimeError(f"a tensor with {source.numel()} elements is not one number")
    local = source.piece
    value = local.sum(dtype=local.dtype) if local.numel() else local.new_zeros(())
    values = gather_values(value.reshape(1), source._ragged)
    return values[[n > 0 for n in source._ragged.rows].index(True), 0].item()


@handles("equal")
def _equal(cls: type, func: Any, args: tuple, kwargs: dict) -> bool:
    one, other = args
    if type(one) is not cls or type(other) is not cls:
        raise refuse(call_name(func), "with a tensor of another kind")
    if one.shape != other.shape:
        return False
    check_same(func, one, other)
    same = torch.equal(one.piece, other.piece)
    flag = torch.tensor([same], device=one.piece.device)
    return bool(gather_values(flag, one._ragged).all())


@handles("allclose")
def _allclose(cls: type, func: Any, args: tuple, kwargs: dict) -> bool:
    close = dispatch(cls, torch.ops.aten.isclose.default, args, kwargs)
    return bool(compat.local_of(close.all()))


# -- lists ----------------------------------------------------------------------------------------


def list_norms(cls: type, tensors: list[Any], p: float, dtype: torch.dtype | None) -> list[Any]:
    """Return the p-norm of every tensor of a list as 0-dim plain tensors: one collective.

    Ragged tensors give their global norm; DTensors on ``Replicate`` and plain tensors, which are
    the same on every rank, their own. All ranks call it with lists of the same length.
    """
    layouts = [t._ragged if type(t) is cls else None for t in tensors]
    return row_norms([whole_or_rows(cls, t) for t in tensors], layouts, p, dtype)


def whole_or_rows(cls: type, tensor: torch.Tensor) -> torch.Tensor:
    """Return the rows of a ragged tensor, or the whole of one that every rank has alike."""
    if type(tensor) is cls:
        return tensor.piece
    if not isinstance(tensor, DTensor):
        return tensor
    if not all(q.is_replicate() for q in tensor.placements):
        raise refuse("_foreach_norm", f"mixed with a DTensor on {tensor.placements}")
    return compat.local_of(tensor)


def row_norms(
    values: list[torch.Tensor], layouts: list[RowLayout | None], p: float, dtype: torch.dtype | None
) -> list[Any]:
    """The same, of this rank's rows of tensors with these layouts; None is for whole tensors."""
    ragged = [layout is not None for layout in layouts]
    layout = next((one for one in layouts if one is not None), None)
    meshes = [one.mesh for one in set(layouts) if one is not None]
    if any(mesh is not layout.mesh and mesh != layout.mesh for mesh in meshes):
        raise refuse("_foreach_norm", "over tensors of two meshes")
    norms = _local_norms(values, p, dtype)
    if layout is None or layout.world == 1:
        return norms
    wide = torch.float64 if values[0].device.type != "mps" else torch.float32
    first = next(v for v, r in zip(values, ragged) if r).device
    parts = [n for n, r in zip(norms, ragged) if r]
    alike = len({(n.device, n.dtype) for n in parts}) == 1  # then one cast does for all
    stacked = torch.stack(parts if alike else [n.to(first, wide) for n in parts]).to(first, wide)
    combined = combine_norms(gather_values(stacked, layout), p)
    whole = iter((combined.to(parts[0].device, parts[0].dtype) if alike else combined).unbind())
    return [next(whole).to(n.device, n.dtype) if r else n for n, r in zip(norms, ragged)]


def _local_norms(
    values: list[torch.Tensor], p: float, dtype: torch.dtype | None
) -> list[torch.Tensor]:
    """Norms of local tensors in their own dtype; 0 (for -inf: inf) for those of no elements."""
    alike = len({(v.device, v.dtype) for v in values}) == 1
    if alike and all(map(torch.Tensor.numel, values)):
        return list(torch._foreach_norm(values, p, dtype=dtype))
    empty = math.inf if p == -math.inf else 0.0
    norms: list[Any] = [
        None if v.numel() else torch.full((), empty, dtype=dtype or v.dtype, device=v.device)
        for v in values
    ]
    groups: dict[Any, list[int]] = {}
    for place, (value, norm) in enumerate(zip(values, norms)):
        if norm is None:
            groups.setdefault((value.device, value.dtype), []).append(place)
    for places in groups.values():
        found = torch._foreach_norm([values[i] for i in places], p, dtype=dtype)
        for place, norm in zip(places, found):
            norms[place] = norm
    return norms


@handles("_foreach_norm")
def _foreach_norm(cls: type, func: Any, args: tuple, kwargs: dict) -> list[Any]:
    call = _named(func, args, kwargs)
    tensors = call["self"]
    p = _check_order(call.get("ord", 2), "_foreach_norm")
    norms = list_norms(cls, tensors, p, call.get("dtype"))
    mesh = next(t for t in tensors if type(t) is cls)._ragged.mesh
    return [compat.replicated(n, mesh) for n in norms]


@handles("_amp_foreach_non_finite_check_and_unscale")
def _unscale(cls: type, func: Any, args: tuple, kwargs: dict) -> None:
    """Unscale gradients; an inf or NaN on one rank is found on all, with one collective."""
    grads, found, scale = args
    layout = next(g for g in grads if type(g) is cls)._ragged
    found, scale = (compat.local_of(t) if isinstance(t, DTensor) else t for t in (found, scale))
    func([compat.local_of(g) if isinstance(g, DTensor) else g for g in grads], found, scale)
    found.copy_(gather_values(found.reshape(1), layout).amax().reshape(found.shape))
