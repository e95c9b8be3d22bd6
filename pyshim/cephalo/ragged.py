"""A parameter with unequal shards, shown to scripts as a DTensor that never answers wrongly.

``RaggedDTensor`` is a DTensor on ``Shard(0)`` whose ranks own unequal numbers of rows. Stock torch
takes any ``Shard(0)`` for the split of ``torch.chunk`` and would gather, save and load wrong rows
without a word; this class answers every operator itself (``ragged_ops`` and its neighbours) or
raises ``RaggedError``, which names the call.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.utils._python_dispatch import TorchDispatchMode

from . import (  # noqa: F401
    compat,
    optimizers,
    ragged_patches,
    ragged_reduce,
    ragged_views,
    ragged_write,
)
from .ragged_layout import RowLayout, even_rows, move_rows, sum_over_ranks
from .ragged_ops import RaggedError, dispatch, refuse, wrap_like

__all__ = ["RaggedDTensor", "RaggedError"]

_get_grad, _set_grad = torch.Tensor.grad.__get__, torch.Tensor.grad.__set__

_OWN = ("_ragged", "watched", "_shown")
"""Attributes that a copy does not take over: it has its own."""


class RaggedDTensor(DTensor):
    """A DTensor on ``Shard(0)`` of a one-dimensional mesh, with ``rows[i]`` rows on rank ``i``.

    Shape, stride and element count are those of the whole tensor; ``to_local()`` aliases this
    rank's rows; ``full_tensor()`` gathers. Layout and class travel with every result of the same
    rows: gradients, optimizer state, ``state_dict`` values, copies.
    """

    _ragged: RowLayout
    piece = compat.local_slot

    @staticmethod
    def wrap(
        local: torch.Tensor, mesh: DeviceMesh, rows: Sequence[int], shape: torch.Size
    ) -> RaggedDTensor:
        """Show ``local`` as this rank's rows of a tensor of ``shape``, sharing its storage.

        local: shape (rows[rank], *shape[1:]), any dtype and device. No collective: all ranks must
        give the same mesh, rows and shape. Raises ValueError if they do not fit together.
        """
        layout = RowLayout.of(mesh, rows, len(shape))
        shape = torch.Size(shape)
        if len(shape) == 0 or sum(layout.rows) != shape[0]:
            raise ValueError(f"rows {layout.rows} do not share out a tensor of {tuple(shape)}")
        if tuple(local.shape) != (layout.own, *shape[1:]):
            raise ValueError(
                f"rank {layout.rank} owns {layout.own} rows of {tuple(shape)} but holds a piece "
                f"of shape {tuple(local.shape)}"
            )
        spec = compat.make_spec(mesh, shape, local.dtype, True)
        out = compat.construct(RaggedDTensor, local.detach(), spec)
        out._ragged = layout
        return out

    def like(self, local: torch.Tensor) -> RaggedDTensor:
        """Show ``local`` (this rank's rows; any dtype) with this tensor's layout, as a gradient."""
        if local.shape != self.piece.shape:
            raise ValueError(f"{tuple(local.shape)} is not {tuple(self.piece.shape)}")
        return wrap_like(self, local.detach())

    # -- gradients ------------------------------------------------------------------------------

    watched = False
    """True for parameters of units. The rows of their gradient are the ``grad`` of their own rows,
    where optimizers find it. Torch holds it as a DTensor only once somebody has asked for ``grad``:
    most steps clip, update and forget gradients without looking at one, and DTensors for all of
    them, or asking torch whether there is one, would take longer than that."""
    _shown = False
    """True if torch holds it."""

    def watch_gradient(self) -> None:
        """Let the rows of the gradient live with the rows. For leaves that want a gradient."""
        if not self.watched and self.requires_grad:
            found = self.grad
            self.register_post_accumulate_grad_hook(_came_without_us)
            self.watched = True
            self.grad = found

    @property
    def grad_rows(self) -> torch.Tensor | None:
        """This rank's rows of ``grad``, a plain tensor, or None. Set (shape and dtype of the local
        tensor), ``grad`` becomes a view of them."""
        if self.watched:
            return self.piece.grad
        found = self.grad
        return None if found is None else found.piece

    @grad_rows.setter
    def grad_rows(self, rows: torch.Tensor | None) -> None:
        if not self.watched:
            _set_grad(self, None if rows is None else wrap_like(self, rows))
            return
        self.piece.grad = rows
        if self._shown:
            self._shown = False
            _set_grad(self, None)

    @property
    def grad(self) -> torch.Tensor | None:
        """The gradient: ragged like the tensor, or None."""
        if self.watched and not self._shown:
            rows = self.piece.grad
            if rows is None:
                return None
            found = wrap_like(self, rows)
            self._shown = True
        else:
            found = _get_grad(self)
            if found is None or type(found) is RaggedDTensor:
                return found
            found = _as_gradient(self, found)
        _set_grad(self, found)
        return found

    @grad.setter
    def grad(self, value: torch.Tensor | None) -> None:
        if value is None:
            self.grad_rows = None
            return
        if type(value) is not RaggedDTensor:
            value = _as_gradient(self, value)
        elif value._ragged is not self._ragged and not value._ragged.same(self._ragged):
            raise ValueError(f"gradient has rows {value.rows}, the tensor has rows {self.rows}")
        _set_grad(self, value)
        if self.watched:
            self.piece.grad, self._shown = value.piece, True

    @grad.deleter
    def grad(self) -> None:
        self.grad_rows = None

    def put(self, rows: torch.Tensor) -> None:
        """Let other rows of the same shape be the local tensor; the gradient stays, unless it is of
        another dtype."""
        grad = self.piece.grad if self.watched else None
        compat.set_local(self, rows)
        if grad is not None and grad.dtype == rows.dtype:
            rows.grad = grad

    # -- layout ---------------------------------------------------------------------------------

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of every rank."""
        return self._ragged.rows

    @property
    def row_offset(self) -> int:
        """This rank's first row."""
        return self._ragged.offset

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return (
            f"RaggedDTensor(local_tensor={self.piece}, shape={tuple(self.shape)}, "
            f"rows={self.rows}, device_mesh={self.device_mesh}, placements={self.placements})"
        )

    # -- operators ------------------------------------------------------------------------------

    if compat.DISPATCH_OVERRIDE_IGNORED:

        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
        ) -> Any:
            return _through_mode(func, types, args, kwargs or {})
    else:
        __torch_function__ = compat.no_torch_function

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        return dispatch(RaggedDTensor, func, args, kwargs or {})

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["piece"], (self._ragged, self.shape, self.requires_grad)

    @staticmethod
    def __tensor_unflatten__(inner: dict, context: Any, size: Any, stride: Any) -> RaggedDTensor:
        layout, shape, requires_grad = context
        local = inner["piece"]
        spec = compat.make_spec(layout.mesh, shape, local.dtype, True)
        out = compat.construct(RaggedDTensor, local, spec, requires_grad)
        out._ragged = layout
        return out

    # -- gathering ------------------------------------------------------------------------------

    def to_local(self, *, grad_placements: Any = None) -> torch.Tensor:
        """Return this rank's rows, aliasing the storage; gradients flow back to these rows."""
        if not (torch.is_grad_enabled() and self.requires_grad):
            return self.piece
        if grad_placements is not None and tuple(grad_placements) != (Shard(0),):
            raise refuse("to_local", f"with gradient placements {grad_placements}")
        return _ToLocal.apply(self)

    def full_tensor(self, *, grad_placements: Any = None) -> torch.Tensor:
        """Return the whole tensor on every rank, in new memory. All ranks call it together.

        The gradient of the result goes to its rows' owners, each taking its own rank's rows;
        with ``grad_placements=[Partial()]`` the ranks' gradients are added up first.
        """
        partial = False
        if grad_placements is not None:
            partial = tuple(grad_placements) == (Partial(),)
            if not partial and tuple(grad_placements) != (Replicate(),):
                raise refuse("full_tensor", f"with gradient placements {grad_placements}")
        if not (torch.is_grad_enabled() and self.requires_grad):
            return ragged_write.gather_full(self)
        return _FullTensor.apply(self, partial)

    def redistribute(
        self,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Any] | None = None,
        *,
        async_op: bool = False,
        forward_dtype: torch.dtype | None = None,
        backward_dtype: torch.dtype | None = None,
    ) -> DTensor:
        """Return a stock DTensor on ``Replicate`` or on the even ``Shard(0)``. Collective.

        Raises RaggedError for other placements, another mesh or dtypes.
        """
        mesh = self._ragged.mesh
        wanted = tuple(placements or ())
        if device_mesh is not None and device_mesh != mesh:
            raise refuse("redistribute", f"to another mesh, {device_mesh}")
        if forward_dtype is not None or backward_dtype is not None:
            raise refuse("redistribute", "with forward_dtype or backward_dtype")
        if wanted not in ((Replicate(),), (Shard(0),), (Shard(-self.dim()),)):
            raise refuse("redistribute", f"to {wanted}")
        return _Redistribute.apply(self, wanted[0].is_replicate())

    # -- what torch keeps outside its dispatcher --------------------------------------------------

    @property
    def data(self) -> torch.Tensor:
        """The tensor without its history, on the same storage."""
        return self.detach()

    @data.setter
    def data(self, value: torch.Tensor) -> None:
        if value is self:
            return
        with torch.no_grad():
            if (
                type(value) is RaggedDTensor
                and value._ragged.same(self._ragged)
                and value.shape == self.shape
                and value.dtype == self.dtype
            ):
                self.put(value.piece.detach())
                return
            self.detach().copy_(value)

    def __deepcopy__(self, memo: dict) -> RaggedDTensor:
        if not self.is_leaf:
            raise RuntimeError("only leaves of the graph can be deep-copied")
        if id(self) in memo:
            return memo[id(self)]
        out = wrap_like(self.detach(), self.piece.clone())
        memo[id(self)] = out
        for key, value in self.__dict__.items():
            if key not in _OWN:
                setattr(out, key, copy.deepcopy(value, memo))
        out.requires_grad_(self.requires_grad)
        if self.grad is not None:
            out.grad = copy.deepcopy(self.grad, memo)
        return out

    def __reduce_ex__(self, protocol: int) -> Any:
        parameter = isinstance(self, torch.nn.Parameter)
        state = (self.piece.detach(), self._ragged.mesh, self.rows, tuple(self.shape))
        return _rebuild, (*state, self.requires_grad, parameter)

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        """Refused: a NumPy array has no layout."""
        raise refuse("numpy")

    def tolist(self) -> Any:
        """Refused: a list has no layout."""
        raise refuse("tolist")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise refuse("numpy")

    # -- distributed checkpoints ------------------------------------------------------------------

    def __create_write_items__(self, fqn: str, _: Any) -> list[Any]:
        from .checkpoint import write_items

        return write_items(fqn, self)

    def __create_chunk_list__(self) -> list[Any]:
        from .checkpoint import chunk_list

        return chunk_list(self)

    def __get_tensor_shard__(self, index: Any) -> torch.Tensor:
        from .checkpoint import local_chunk

        return local_chunk(self, index)


def _came_without_us(param: RaggedDTensor) -> None:
    """Autograd has reached the parameter itself, not the one that its unit computes with."""
    rows, found = param.piece.grad, _get_grad(param)
    if type(found) is not RaggedDTensor:
        found = _as_gradient(param, found)
    if rows is not None and not param._shown:
        found = wrap_like(param, rows.add_(found.piece))
    param.grad = found


def add_gradients(params: Sequence[RaggedDTensor], rows: Sequence[torch.Tensor]) -> None:
    """Add this rank's rows of gradients (as for ``grad_rows``) to those of the parameters."""
    known, more = [], []
    for param, piece in zip(params, rows):
        before = param.grad_rows
        if before is None:
            param.grad_rows = piece
        else:
            known.append(before)
            more.append(piece)
    if known:
        compat.foreach_add_(known, more)


class _LocalRows(TorchDispatchMode):
    """Routes operators to ``dispatch`` where torch ignores the class's own override."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        if RaggedDTensor in types:
            return dispatch(RaggedDTensor, func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


def _through_mode(func: Any, types: Any, args: tuple, kwargs: dict) -> Any:
    plainly = compat.no_torch_function
    if func.__class__ is _GETTER or torch.compiler.is_compiling():
        return plainly(func, types, args, kwargs)
    with _LocalRows():
        out = plainly(func, types, args, kwargs)
    if torch.is_grad_enabled():
        name = getattr(func, "__name__", str(func))
        for result in out if isinstance(out, (list, tuple)) else (out,):
            if isinstance(result, DTensor) and result.requires_grad and not result.is_leaf:
                result.register_hook(lambda _, name=name: _refuse_backward(name))
    return out


def _refuse_backward(name: str) -> None:
    raise refuse(name, "its gradient is out of reach in torch 2.10 and 2.11")


_GETTER = type(torch.Tensor.shape.__get__)


def _rebuild(
    local: torch.Tensor,
    mesh: DeviceMesh,
    rows: tuple[int, ...],
    shape: tuple[int, ...],
    requires_grad: bool,
    parameter: bool,
) -> RaggedDTensor:
    """Undo pickling: what ``__reduce_ex__`` names."""
    out = RaggedDTensor.wrap(local, mesh, rows, torch.Size(shape))
    return (
        torch.nn.Parameter(out, requires_grad) if parameter else out.requires_grad_(requires_grad)
    )


def _as_gradient(owner: RaggedDTensor, grad: torch.Tensor) -> RaggedDTensor:
    """Show a gradient of another kind with its tensor's layout, without a collective.

    Autograd gives DTensors on ``Replicate`` for broadcast sums, and (torch 2.10 and 2.11) plain
    DTensors around local rows.
    """
    if isinstance(grad, DTensor) and grad.shape == owner.shape:
        local = compat.local_of(grad)
        if all(p.is_replicate() for p in grad.placements):
            return owner.like(owner._ragged.narrow(local).contiguous())
        even = even_rows(owner.shape[0], owner._ragged.world)
        if grad.placements == (Shard(0),) and (
            compat.DISPATCH_OVERRIDE_IGNORED or owner.rows == even
        ):
            return owner.like(local)
    raise ValueError(
        f"a gradient of shape {tuple(grad.shape)} and kind {type(grad).__name__} is not laid out "
        f"like its tensor, whose rows are {owner.rows}; build it from zeros_like(parameter)"
    )


class _ToLocal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, source: RaggedDTensor) -> torch.Tensor:
        ctx.like = source.detach()
        return source.piece.view_as(source.piece)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> RaggedDTensor:
        return ctx.like.like(grad.contiguous())


class _FullTensor(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, source: RaggedDTensor, partial: bool) -> torch.Tensor:
        ctx.like, ctx.partial = source.detach(), partial
        return ragged_write.gather_full(source)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[RaggedDTensor, None]:
        layout = ctx.like._ragged
        if ctx.partial:
            grad = sum_over_ranks(grad, layout)
        return ctx.like.like(layout.narrow(grad).clone()), None


class _Redistribute(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, source: RaggedDTensor, replicate: bool) -> DTensor:
        layout = source._ragged
        ctx.like = source.detach()
        if replicate:
            return compat.replicated(ragged_write.gather_full(source), layout.mesh)
        even = layout.with_rows(even_rows(source.shape[0], layout.world))
        local = move_rows(source.piece, layout, even)
        spec = compat.make_spec(layout.mesh, source.shape, local.dtype, True)
        return compat.construct(DTensor, local, spec)

    @staticmethod
    def backward(ctx: Any, grad: DTensor) -> tuple[RaggedDTensor, None]:
        rows = ragged_write.rows_of(grad, ctx.like._ragged, ctx.like.shape)
        return ctx.like.like(rows.clone()), None


def install() -> None:
    """Teach torch's public functions about ragged tensors. Call once, before user code runs.

    Torch's own optimizers step on the local rows, others choose their foreach forms; ``nn.init``
    functions that build whole matrices keep their rows; norms over lists take one collective;
    ``torch.load(weights_only=True)`` knows the class.
    """
    compat.allow_foreach(RaggedDTensor)
    torch.serialization.add_safe_globals([_rebuild])
    ragged_patches.install(RaggedDTensor)
    optimizers.install(RaggedDTensor)
