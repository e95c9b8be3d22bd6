"""What each operator does to tensors with unequal shards: run it on the local rows, or refuse.

Every operator that reaches torch's dispatcher with a ragged tensor among its arguments passes
``dispatch``. Operators known to be right on rows run on the local tensors; the others raise
``RaggedError``, so that nothing is ever answered wrongly. A tensor argument is one of

* ragged: stands for its local rows; all ragged arguments must share one layout,
* a DTensor on ``Replicate``, or a plain 0-dim tensor: the same on every rank; where it reaches
  dimension 0 its own rows are taken,
* a plain tensor with dimensions: refused, since nobody knows whether it is whole or a piece.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from . import compat
from .ragged_layout import RowLayout

Handler = Callable[[type, Any, tuple, dict], Any]

#: Handlers by operator name without overload and without the underscore of the in-place form.
HANDLERS: dict[str, Handler] = {}

_resolved: dict[Any, Handler] = {}

#: Operators that act on each element alone but carry no such tag in every release.
_POINTWISE = {
    "fill", "zero", "masked_fill", "copysign", "clamp", "clamp_min", "clamp_max", "nan_to_num",
    "where", "lerp", "isclose", "threshold_backward", "floor_divide", "float_power", "rsub",
    "remainder", "fmod", "addcmul", "addcdiv", "conj_physical", "resolve_conj", "resolve_neg",
}  # fmt: skip
_FOREACH_PLAIN = {"zero", "clone", "copy"}
_FUSED = {"_fused_adam", "_fused_adamw", "_fused_sgd", "_fused_adagrad"}

#: What a script most likely wrote when this operator arrives here.
_WRITTEN_AS = {
    "select": "__getitem__", "slice": "__getitem__", "index": "__getitem__",
    "index_put": "__setitem__", "split": "chunk or split", "split_with_sizes": "split",
    "view": "view or reshape", "_unsafe_view": "reshape", "_reshape_alias": "reshape",
    "mm": "matmul", "mv": "matmul", "bmm": "matmul", "addmm": "matmul or linear",
    "dot": "matmul", "linear": "linear", "t": "t or linear", "permute": "permute",
}  # fmt: skip


class RaggedError(NotImplementedError):
    """A call that a tensor with unequal shards cannot answer truthfully."""


def refuse(name: str, why: str = "") -> RaggedError:
    """Return the error for call ``name``, which says what to do instead."""
    return RaggedError(
        f'"{name}" is not supported on a tensor whose rows lie in unequal shares on the ranks'
        f"{': ' + why if why else ''}; call .full_tensor() on every rank for the whole tensor, "
        f"or .to_local() for this rank's rows"
    )


def call_name(func: Any) -> str:
    """Return an operator's name as a script would write it, with the operator's own beside it."""
    name = func._schema.name.split("::")[-1]
    written = _WRITTEN_AS.get(name.rstrip("_") if name.endswith("_") else name)
    return f"{written} ({name})" if written else name


def dispatch(cls: type, func: Any, args: tuple, kwargs: dict) -> Any:
    """Answer one operator call; ``cls`` is the ragged class. Raises RaggedError."""
    handler = _resolved.get(func)
    if handler is None:
        handler = _resolved[func] = _resolve(func)
    return handler(cls, func, args, kwargs)


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Register the decorated function for operators by name."""

    def register(handler: Handler) -> Handler:
        for name in names:
            HANDLERS[name] = handler
        return handler

    return register


def _resolve(func: Any) -> Handler:
    name = func._schema.name.split("::")[-1]
    if not func._schema.name.startswith("aten::"):
        return _refused
    base = name[:-1] if name.endswith("_") and not name.endswith("__") else name
    if base in HANDLERS:
        return HANDLERS[base]
    if torch.Tag.nondeterministic_seeded in func.tags:
        return _refused
    if base in _FUSED:
        return _foreach
    if base.startswith("_foreach_"):
        plain = base.removeprefix("_foreach_")
        return _foreach if plain in _FOREACH_PLAIN or _is_pointwise(plain) else _refused
    if torch.Tag.pointwise in func.tags or _is_pointwise(base):
        return _pointwise(func)
    return _refused


def _is_pointwise(base: str) -> bool:
    if base in _POINTWISE:
        return True
    packet = getattr(torch.ops.aten, base, None)
    if packet is None:
        return False
    return any(torch.Tag.pointwise in getattr(packet, o).tags for o in packet.overloads())


def _refused(cls: type, func: Any, args: tuple, kwargs: dict) -> Any:
    raise refuse(call_name(func))


# -- arguments and results ------------------------------------------------------------------------


def wrap_like(template: Any, local: torch.Tensor) -> Any:
    """Wrap ``local`` with ``template``'s layout and global shape; the dtype may differ."""
    out = compat.rewrap(template, local)
    if out is None:
        return wrap_shape(type(template), local, template._ragged, template.shape)
    out._ragged = template._ragged
    return out


def wrap_shape(cls: type, local: torch.Tensor, layout: RowLayout, shape: torch.Size) -> Any:
    """Wrap ``local`` as this rank's rows of a tensor of global ``shape``."""
    out = compat.construct(cls, local, compat.make_spec(layout.mesh, shape, local.dtype, True))
    out._ragged = layout.with_dims(len(shape))
    return out


def local_rows(func: Any, tensor: torch.Tensor, template: Any) -> torch.Tensor:
    """Return what a non-ragged tensor contributes beside ``template``'s local rows."""
    if isinstance(tensor, DTensor):
        if not all(p.is_replicate() for p in tensor.placements):
            raise refuse(call_name(func), f"mixed with a DTensor on {tensor.placements}")
        whole = compat.local_of(tensor)
    elif tensor.dim() == 0:
        return tensor
    else:
        raise refuse(call_name(func), f"mixed with a plain tensor of shape {tuple(tensor.shape)}")
    total, dims = template.shape[0], template.dim()
    if whole.dim() < dims:
        return whole
    if whole.dim() == dims and whole.shape[0] == total:
        return template._ragged.narrow(whole)
    if whole.dim() == dims and whole.shape[0] == 1:
        return whole
    raise refuse(call_name(func), f"shapes {tuple(template.shape)} and {tuple(whole.shape)}")


def check_same(func: Any, one: Any, other: Any) -> None:
    """Refuse two ragged tensors whose rows are not on the same ranks."""
    if one._ragged is other._ragged:
        return
    if one._ragged.dims != other._ragged.dims:
        raise refuse(call_name(func), f"shapes {tuple(one.shape)} and {tuple(other.shape)}")
    if not one._ragged.same(other._ragged):
        raise refuse(
            call_name(func), f"rows {one._ragged.rows} mixed with rows {other._ragged.rows}"
        )


# -- elementwise ----------------------------------------------------------------------------------


def _pointwise(name_of: Any) -> Handler:
    """Return the handler of one elementwise operator."""
    arguments = name_of._schema.arguments
    written = sum(a.alias_info is not None and a.alias_info.is_write for a in arguments)

    def handler(cls: type, func: Any, args: tuple, kwargs: dict) -> Any:
        first = args[0]
        if type(first) is cls:  # the common case first: ragged tensors of one layout, and numbers
            layout = first._ragged
            pieces = []
            for value in args:
                if type(value) is cls and value._ragged is layout:
                    pieces.append(value.piece)
                elif isinstance(value, (torch.Tensor, list, tuple)):
                    break
                else:
                    pieces.append(value)
            else:
                if not any(isinstance(v, torch.Tensor) for v in kwargs.values()):
                    out = func(*pieces, **kwargs)
                    if written:
                        return first
                    if isinstance(out, torch.Tensor) and out.shape == pieces[0].shape:
                        return wrap_like(first, out)
        return _pointwise_mixed(cls, func, args, kwargs, written)

    return handler


def _pointwise_mixed(cls: type, func: Any, args: tuple, kwargs: dict, written: int) -> Any:
    template = None
    shape: Any = None
    for value in (*args, *kwargs.values()):
        if type(value) is cls:
            if template is None:
                template, shape = value, value.shape
            else:
                check_same(func, template, value)
                shape = torch.broadcast_shapes(shape, value.shape)
        elif isinstance(value, (list, tuple)) and any(type(v) is cls for v in value):
            raise refuse(call_name(func))
    if template is None:
        raise refuse(call_name(func))

    def unwrap(value: Any) -> Any:
        nonlocal shape
        if type(value) is cls:
            return value.piece
        if isinstance(value, torch.Tensor):
            rows = local_rows(func, value, template)
            if rows.dim():
                shape = torch.broadcast_shapes(shape, value.shape)
            return rows
        return value

    local_args = [unwrap(a) for a in args]
    local_kwargs = {k: unwrap(v) for k, v in kwargs.items()}
    if written:
        target = kwargs["out"] if "out" in kwargs else args[0]
        if type(target) is not cls or target.shape != shape or written > 1:
            raise refuse(call_name(func), "the result would go into a tensor of another layout")
        func(*local_args, **local_kwargs)
        return target
    out = func(*local_args, **local_kwargs)
    if isinstance(out, torch.Tensor):
        return _wrap_shaped(cls, out, template, shape)
    return type(out)(_wrap_shaped(cls, o, template, shape) for o in out)


def _wrap_shaped(cls: type, local: torch.Tensor, template: Any, shape: torch.Size) -> Any:
    if shape == template.shape:
        return wrap_like(template, local)
    return wrap_shape(cls, local, template._ragged, torch.Size(shape))


def _foreach(cls: type, func: Any, args: tuple, kwargs: dict) -> Any:
    """Lists of tensors, place by place as for one tensor; a place may hold no ragged tensor."""
    lists = [a for a in args if isinstance(a, (list, tuple)) and a]
    templates: list[Any] = [None] * len(lists[0])
    pure = set()
    for values in lists:
        count = 0
        for place, value in enumerate(values):
            if type(value) is cls:
                count += 1
                template = templates[place]
                if template is None:
                    templates[place] = value
                elif template._ragged is not value._ragged:
                    check_same(func, template, value)
        if count == len(values):
            pure.add(id(values))

    def unwrap_one(value: Any, template: Any) -> Any:
        if type(value) is cls:
            return value.piece
        if not isinstance(value, torch.Tensor) or (type(value) is torch.Tensor and not value.dim()):
            return value
        if template is not None:
            return local_rows(func, value, template)
        if isinstance(value, DTensor):
            if not all(p.is_replicate() for p in value.placements):
                raise refuse(call_name(func), f"mixed with a DTensor on {value.placements}")
            return compat.local_of(value)
        return value

    def unwrap(value: Any) -> Any:
        if id(value) in pure:
            return [v.piece for v in value]
        if isinstance(value, (list, tuple)):
            return [unwrap_one(v, t) for v, t in zip(value, templates)]
        if isinstance(value, torch.Tensor) and value.dim():
            raise refuse(call_name(func), f"with one tensor of shape {tuple(value.shape)}")
        return unwrap_one(value, None)

    out = func(*[unwrap(a) for a in args], **{k: unwrap(v) for k, v in kwargs.items()})
    if out is None or func._schema.is_mutable:
        return out if out is None else args[0]
    first = args[0]
    return [
        wrap_like(t, o) if t is not None and o.shape == t.piece.shape
        else _wrap_place(func, o, t, first[place])
        for place, (t, o) in enumerate(zip(templates, out))
    ]  # fmt: skip


def _wrap_place(func: Any, out: torch.Tensor, template: Any, source: torch.Tensor) -> Any:
    if template is not None:
        raise refuse(call_name(func), "shapes that broadcast inside a list")
    if isinstance(source, DTensor):
        return compat.replicated(out, source.device_mesh)
    return out
