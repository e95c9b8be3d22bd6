"""Views, copies and new tensors: operators whose result is again a ragged tensor."""

from __future__ import annotations

import math
from typing import Any

import torch

from . import compat
from .ragged_ops import call_name, dispatch, handles, refuse, wrap_like, wrap_shape


@handles("detach", "alias", "lift_fresh", "view_as", "pin_memory", "clone", "contiguous")
@handles("_to_copy", "empty_like", "zeros_like", "ones_like", "full_like")
def _same_shape(cls: type, func: Any, args: tuple, kwargs: dict) -> Any:
    """One ragged tensor in, one of the same global shape out; dtype and device may change."""
    source = args[0]
    if type(source) is not cls:
        raise refuse(call_name(func))
    return wrap_like(source, func(source.piece, *args[1:], **kwargs))


@handles("new_empty", "new_zeros", "new_ones", "new_full", "new_empty_strided")
def _new(cls: type, func: Any, args: tuple, kwargs: dict) -> Any:
    """``new_*`` with the tensor's own shape: a ragged tensor; other shapes have no layout."""
    source, size, *rest = args
    if torch.Size(size) != source.shape:
        raise refuse(call_name(func), f"size {tuple(size)} differs from {tuple(source.shape)}")
    local = source.piece
    if "strided" in func._schema.name:
        rest = [torch.empty(local.shape, device="meta").stride()]
    return wrap_like(source, func(local, local.shape, *rest, **kwargs))


@handles("view", "_unsafe_view", "reshape", "_reshape_alias")
def _view(cls: type, func: Any, args: tuple, kwargs: dict) -> Any:
    """A view whose new rows are whole multiples or whole parts of every rank's old rows."""
    source = args[0]
    if not isinstance(args[1], (list, tuple)):
        raise refuse(call_name(func), "as another dtype")
    size = _full_size(args[1], source.numel())
    layout, local = source._ragged, source.piece
    if size == source.shape:
        return wrap_like(source, local.view(local.shape))
    if not size or source.numel() == 0 or size.numel() != source.numel():
        raise refuse(call_name(func), f"shape {tuple(source.shape)} as {tuple(size)}")
    old, new = math.prod(source.shape[1:]), math.prod(size[1:])
    if any(n * old % new for n in layout.rows):
        raise refuse(
            call_name(func),
            f"shape {tuple(source.shape)} as {tuple(size)} would cut a row in two",
        )
    if new != old:
        layout = layout.with_rows([n * old // new for n in layout.rows])
    return wrap_shape(cls, local.view(layout.own, *size[1:]), layout, size)


def _full_size(size: Any, numel: int) -> torch.Size:
    known = math.prod(n for n in size if n != -1)
    if -1 in size and known and numel % known == 0:
        return torch.Size(numel // known if n == -1 else n for n in size)
    return torch.Size(size)


@handles("expand")
def _expand(cls: type, func: Any, args: tuple, kwargs: dict) -> Any:
    source, size = args[0], list(args[1])
    if len(size) != source.dim() or size[0] not in (-1, source.shape[0]):
        raise refuse(call_name(func), f"shape {tuple(source.shape)} to {tuple(size)}")
    local = source.piece.expand(-1, *size[1:])
    return wrap_shape(cls, local, source._ragged, torch.Size((source.shape[0], *local.shape[1:])))


@handles("unsqueeze", "squeeze", "transpose", "permute")
def _other_dims(cls: type, func: Any, args: tuple, kwargs: dict) -> Any:
    """Shape changes that leave dimension 0 where it is."""
    source = args[0]
    name, local = func._schema.name, source.piece
    extra = 1 if name.startswith("aten::unsqueeze") else 0
    asked = args[1] if len(args) > 1 else None
    if asked is None:
        raise refuse(call_name(func), "without dimensions")
    listed = asked if isinstance(asked, (list, tuple)) else args[1:]
    dims = [d % (source.dim() + extra) for d in listed]
    if (dims[0] != 0 or 0 in dims[1:]) if "permute" in name else 0 in dims:
        raise refuse(call_name(func), "dimension 0 would move")
    out = func(local, *args[1:], **kwargs)
    return wrap_shape(cls, out, source._ragged, torch.Size((source.shape[0], *out.shape[1:])))


@handles("slice")
def _slice(cls: type, func: Any, args: tuple, kwargs: dict) -> Any:
    """``p[a:b]``: the rows stay where they are; the result aliases them."""
    source, dim, start, stop, step = (*args, *(0, None, None, 1)[len(args) - 1 :])
    dim = dim % source.dim()
    first, last, step = slice(start, stop, step).indices(source.shape[dim])
    if dim:
        local = func(source.piece, dim, first, last, step)
        shape = torch.Size((source.shape[0], *local.shape[1:]))
        return wrap_shape(cls, local, source._ragged, shape)
    if step != 1:
        raise refuse(call_name(func), f"step {step} over dimension 0")
    return _window(cls, source, first, max(first, last))


def _window(cls: type, source: Any, first: int, last: int) -> Any:
    layout = source._ragged.window(first, last)
    begin = min(max(first - source._ragged.offset, 0), source._ragged.own)
    local = source.piece.narrow(0, begin, layout.own)
    return wrap_shape(cls, local, layout, torch.Size((last - first, *source.shape[1:])))


@handles("select")
def _select(cls: type, func: Any, args: tuple, kwargs: dict) -> Any:
    """``p[i]``: the row's owner holds the result whole, the other ranks nothing of it."""
    source, dim, index = args
    dim = dim % source.dim()
    if not -source.shape[dim] <= index < source.shape[dim]:
        raise IndexError(f"index {index} is out of range for dimension {dim} of {source.shape}")
    if source.dim() == 1:
        raise refuse(call_name(func), "a single element belongs to one rank")
    if dim:
        local = source.piece.select(dim, index)
        shape = torch.Size((source.shape[0], *local.shape[1:]))
        return wrap_shape(cls, local, source._ragged, shape)
    row = _window(cls, source, index % source.shape[0], index % source.shape[0] + 1)
    extent = source.shape[1]
    layout = row._ragged.with_rows([n * extent for n in row._ragged.rows])
    local = row.piece.view(layout.own, *source.shape[2:])
    return wrap_shape(cls, local, layout, source.shape[1:])


@handles("split", "split_with_sizes", "chunk")
def _split(cls: type, func: Any, args: tuple, kwargs: dict) -> Any:
    source, sizes = args[0], args[1]
    dim = (args[2] if len(args) > 2 else kwargs.get("dim", 0)) % source.dim()
    total = source.shape[dim]
    if isinstance(sizes, int):
        count = max(1, -(-total // sizes)) if sizes else 1
        sizes = [min(sizes, total - i * sizes) for i in range(count)]
    pieces, first = [], 0
    for n in sizes:
        pieces.append(
            dispatch(cls, torch.ops.aten.slice.Tensor, (source, dim, first, first + n), {})
        )
        first += n
    return pieces


@handles("is_same_size", "is_pinned", "record_stream")
def _ask_local(cls: type, func: Any, args: tuple, kwargs: dict) -> Any:
    if func is torch.ops.aten.is_same_size.default:
        return args[0].shape == args[1].shape
    local = [compat.local_of(a) if type(a) is cls else a for a in args]
    return func(*local, **kwargs)
