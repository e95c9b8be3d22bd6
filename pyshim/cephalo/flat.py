"""A unit's parameters in one flat buffer, as the script sees them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from . import compat
from .comm import Comm
from .layout import Layout, build_layout
from .ragged import RaggedDTensor
from .ragged_layout import RowLayout
from .ragged_write import rows_of


@dataclass(eq=False)
class ParamRef:
    """One parameter and every place in the model where it hangs (ties share one ParamRef)."""

    name: str
    places: list[tuple[nn.Module, str]]
    param: nn.Parameter
    """What the script sees between steps: a RaggedDTensor once the parameter is sharded."""
    compute: nn.Parameter | None = None
    """What the module computes with: a plain parameter that views the gathered values."""
    seen: bool = False
    """True if a gradient that counts was reduced since the script last got gradients."""

    def show(self, param: nn.Parameter) -> None:
        """Put ``param`` into every place of the model where this parameter hangs."""
        for module, name in self.places:
            compat.parameters_of(module)[name] = param

    def shown(self) -> nn.Parameter | None:
        """The parameter that hangs in the model now."""
        module, name = self.places[0]
        return compat.parameters_of(module).get(name)


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """Gradients are added up in fp32, or in fp64 for fp64 parameters."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def shaped(flat: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A view of ``flat`` (1-D) in the shape of another tensor. Most parameters of a model have one
    dimension, and need none."""
    return flat if like.dim() == 1 else flat.view(like.shape)


def sparse_gradient(name: str) -> RuntimeError:
    """What to raise when a parameter gets one."""
    return RuntimeError(f"parameter {name} has a sparse gradient, which is not supported")


def on_meta(names: Sequence[str]) -> RuntimeError:
    """What to raise when parameters have no values at a forward."""
    return RuntimeError(
        f"parameters on the meta device at the first forward: {', '.join(names)}; "
        f"call to_empty and initialise or load them first"
    )


class FlatShard:
    """Parameters of one unit with one dtype, all trainable or all frozen when they were sharded.

    ``shard`` is this rank's range in the parameters' own dtype; each parameter that the script sees
    is a RaggedDTensor whose local rows view it. Subclasses say what the modules compute with, and
    where its gradients go.
    """

    def __init__(
        self,
        refs: Sequence[ParamRef],
        comm: Comm,
        mesh: DeviceMesh,
        state_ppm: Sequence[int],
        compute_dtype: torch.dtype | None,
        reduce_dtype: torch.dtype | None,
    ):
        self.refs = list(refs)
        self.comm = comm
        self.mesh = mesh
        self.layout: Layout = build_layout([r.param.shape for r in refs], state_ppm)
        self.dtype = refs[0].param.dtype
        self.compute_dtype = compute_dtype or self.dtype
        self.reduce_dtype = reduce_dtype or self.compute_dtype
        self.sum_dtype = accumulation_dtype(self.dtype)
        self._pieces = [
            (self.layout.rows_of(span), self.layout.local_slice(span, comm.rank))
            for span in self.layout.spans
        ]
        self._own_sizes = [end - start for _, (start, end) in self._pieces]
        """This rank's elements of each parameter."""
        self._shard_parameters()
        self._make_compute_parameters()
        self._note_all()

    def _make_compute_parameters(self) -> None:
        """Give every ref its ``compute`` parameter, and forget gradients of those before."""
        raise NotImplementedError

    def _note_all(self) -> None:
        """Note what hangs where, once all rows are known to view the shard, so that a step need not
        ask every ParamRef."""
        self._places = [
            (compat.parameters_of(module), name, ref.param, ref.compute)
            for ref in self.refs
            for module, name in ref.places
        ]
        """Of every place in the model its table, its name there, and both parameters."""
        firsts = [(compat.parameters_of(r.places[0][0]), r.places[0][1]) for r in self.refs]
        self._first_tables = [table for table, _ in firsts]
        self._first_names = [name for _, name in firsts]
        self._params = [ref.param for ref in self.refs]
        self._computes = [ref.compute for ref in self.refs]
        self._rows = [compat.local_of(param) for param in self._params]
        self._addresses = [rows.data_ptr() for rows in self._rows]
        self._noted = not self.shard.is_meta
        """False if the shard may not hold the parameters' values."""
        for param in self._params:
            param.watch_gradient()

    def _as_noted(self) -> bool:
        """True if nothing has changed since; all of it is C, since it is asked in every step."""
        shown = map(dict.get, self._first_tables, self._first_names)
        return (
            self._noted
            and all(map(operator.is_, shown, self._params))
            and all(map(operator.is_, map(compat.local_of, self._params), self._rows))
            and list(map(torch.Tensor.data_ptr, self._rows)) == self._addresses
        )

    # -- what the script sees -------------------------------------------------------------------

    def _shard_parameters(self) -> None:
        rank, size = self.comm.rank, self.layout.sizes[self.comm.rank]
        meta = any(r.param.is_meta for r in self.refs)
        device = torch.device("meta") if meta else self.comm.device
        self.shard = torch.empty(size, dtype=self.dtype, device=device)
        for ref, span, (rows, (start, end)) in zip(self.refs, self.layout.spans, self._pieces):
            if not meta:
                first = sum(rows[:rank])
                own = ref.param.detach()[first : first + rows[rank]]
                self.shard[start:end].copy_(own.reshape(-1))
            sharded = nn.Parameter(
                self._wrap(self.shard, span, rows, start, end),
                requires_grad=ref.param.requires_grad,
            )
            for key, value in vars(ref.param).items():
                setattr(sharded, key, value)
            ref.param = sharded
            ref.show(sharded)

    def _wrap(self, flat, span, rows, start, end) -> RaggedDTensor:
        local = flat[start:end].view(rows[self.comm.rank], *span.shape[1:])
        return RaggedDTensor.wrap(local, self.mesh, rows, torch.Size(span.shape))

    def adopt(self) -> None:
        """Take over Parameters that the script put in the place of ours, as
        ``load_state_dict(assign=True)`` does. Collective if one has another layout."""
        adopted = False
        for ref, span, (rows, _) in zip(self.refs, self.layout.spans, self._pieces):
            shown = ref.shown()
            if shown is not ref.param and shown is not ref.compute and shown is not None:
                self._adopt(ref, span, rows, shown)
                adopted = True
        if adopted:
            self._note_all()
            self._noted = False

    def refresh(self) -> None:
        """Make the shard hold the parameters' values again where the script gave them storages of
        their own: ``to_empty``, ``.to``, ``.data = …``; learn which want gradients. Raises
        RuntimeError if there are no values."""
        if not self._as_noted():
            self._look_closely()
        for param, compute in zip(self._params, self._computes):
            wanted = param.requires_grad
            if compute.requires_grad is not wanted:
                compute.requires_grad_(wanted)

    def _look_closely(self) -> None:
        self.adopt()
        base, width, dtype = self.shard.data_ptr(), self.shard.element_size(), self.dtype
        stale = self.shard.is_meta
        for ref, (_, (start, end)) in zip(self.refs, self._pieces):
            local = compat.local_of(ref.param)
            stale = stale or local.dtype is not dtype or local.is_meta
            stale = stale or (end > start and local.data_ptr() != base + start * width)
        if stale:
            self._rebuild()
        self._note_all()

    def _adopt(self, ref: ParamRef, span, rows: tuple[int, ...], value: nn.Parameter) -> None:
        """Make what hangs in the place of a parameter the parameter, laid out as planned."""
        if not isinstance(value, RaggedDTensor) or value.rows != rows:
            shape = torch.Size(span.shape)
            layout = RowLayout.of(self.mesh, rows, len(shape))
            try:
                local = rows_of(value.detach(), layout, shape).to(self.comm.device, copy=True)
            except ValueError as err:
                raise RuntimeError(f"parameter {ref.name} was replaced: {err}") from err
            value = nn.Parameter(
                RaggedDTensor.wrap(local, self.mesh, rows, shape), requires_grad=value.requires_grad
            )
        ref.param = value
        ref.show(value)

    @torch.no_grad()
    def _rebuild(self) -> None:
        locals_ = [compat.local_of(ref.param) for ref in self.refs]
        empty = [r.name for r, t in zip(self.refs, locals_) if t.is_meta]
        if empty:
            raise on_meta(empty)
        dtypes = {t.dtype for t in locals_}
        if len(dtypes) > 1:
            raise RuntimeError(f"parameters of one unit have become {sorted(map(str, dtypes))}")
        if self.compute_dtype == self.dtype:
            self.compute_dtype = locals_[0].dtype
        self.dtype = locals_[0].dtype
        self.sum_dtype = accumulation_dtype(self.dtype)
        flat = torch.empty(self.shard.numel(), dtype=self.dtype, device=self.comm.device)
        for ref, local, (_, (start, end)) in zip(self.refs, locals_, self._pieces):
            flat[start:end].copy_(local.reshape(-1))
            ref.param.put(flat[start:end].view(local.shape))
        self.shard = flat
        self._make_compute_parameters()

    # -- in turn in the model -------------------------------------------------------------------

    def show_compute(self) -> None:
        """Put the plain parameters into the modules."""
        for table, name, _, compute in self._places:
            table[name] = compute

    def show_sharded(self) -> None:
        """Put the parameters that the script knows into the modules."""
        for table, name, param, _ in self._places:
            table[name] = param

    @property
    def trainable(self) -> bool:
        """True if any parameter wants a gradient; the same on every rank."""
        return any(r.param.requires_grad for r in self.refs)
