"""A unit's parameters in one flat buffer: the local shard, the gathered copy, the gradients."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from . import compat
from .comm import Comm, Handle, ReduceHandle
from .gradients import FlatGradients
from .layout import Layout, build_layout
from .ragged import RaggedDTensor
from .ragged_layout import RowLayout
from .ragged_write import rows_of


@dataclass
class ParamRef:
    """One parameter and every place in the model where it hangs (ties share one ParamRef)."""

    name: str
    places: list[tuple[nn.Module, str]]
    param: nn.Parameter
    """What the script sees between steps: a RaggedDTensor once the parameter is sharded."""
    compute: nn.Parameter | None = None
    """What the module computes with: a plain parameter that views the gathered buffer."""
    seen: bool = False
    """True if a gradient that counts was reduced since the script last got gradients."""

    def show(self, param: nn.Parameter) -> None:
        """Put ``param`` into every place of the model where this parameter hangs."""
        compat.set_parameters(self.places, param)

    def shown(self) -> nn.Parameter | None:
        """The parameter that hangs in the model now."""
        module, attribute = self.places[0]
        return compat.parameter_of(module, attribute)


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """Gradients are added up in fp32, or in fp64 for fp64 parameters."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def on_meta(names: Sequence[str]) -> RuntimeError:
    """What to raise when parameters have no values at a forward."""
    return RuntimeError(
        f"parameters on the meta device at the first forward: {', '.join(names)}; "
        f"call to_empty and initialise or load them first"
    )


class FlatBuffer:
    """Parameters of one unit with one dtype, all trainable or all frozen when they were sharded.

    ``shard`` is this rank's range in the parameters' own dtype; each parameter that the script sees
    is a RaggedDTensor whose local rows view it. ``full`` is the gathered buffer in the compute
    dtype; its storage exists only between ``start_gather`` and ``free``.
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
        self._handle: Handle | None = None
        self._gradients = FlatGradients(
            self.layout, [r.name for r in refs], self.sum_dtype, comm.device
        )
        self._pieces = [
            (self.layout.rows_of(span), self.layout.local_slice(span, comm.rank))
            for span in self.layout.spans
        ]
        self._own_sizes = [end - start for _, (start, end) in self._pieces]
        """This rank's elements of each parameter."""
        self._shard_parameters()
        self._make_compute_parameters()

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
        for ref, span, (rows, _) in zip(self.refs, self.layout.spans, self._pieces):
            shown = ref.shown()
            if shown is not ref.param and shown is not ref.compute and shown is not None:
                self._adopt(ref, span, rows, shown)

    def refresh(self) -> None:
        """Make the shard hold the parameters' values again where the script gave them storages of
        their own: ``to_empty``, ``.to``, ``.data = …``. Raises RuntimeError if there are none."""
        self.adopt()
        base, width, dtype = self.shard.data_ptr(), self.shard.element_size(), self.dtype
        stale = self.shard.is_meta
        for ref, (_, (start, end)) in zip(self.refs, self._pieces):
            local = compat.local_of(ref.param)
            stale = stale or local.dtype is not dtype or local.is_meta
            stale = stale or (end > start and local.data_ptr() != base + start * width)
        if stale:
            self._rebuild()

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
        self.sum_dtype = self._gradients.dtype = accumulation_dtype(self.dtype)
        flat = torch.empty(self.shard.numel(), dtype=self.dtype, device=self.comm.device)
        for ref, local, (_, (start, end)) in zip(self.refs, locals_, self._pieces):
            flat[start:end].copy_(local.reshape(-1))
            compat.set_local(ref.param, flat[start:end].view(local.shape))
        self.shard = flat
        self._make_compute_parameters()

    # -- gathered parameters --------------------------------------------------------------------

    def _make_compute_parameters(self) -> None:
        self.full = torch.empty(
            self.layout.numel, dtype=self.compute_dtype, device=self.comm.device
        )
        start, end = self.layout.range_of(self.comm.rank)
        self._own_full = self.full[start:end]
        for index, (ref, span) in enumerate(zip(self.refs, self.layout.spans)):
            compute = nn.Parameter(
                torch.empty(0, dtype=self.compute_dtype, device=self.comm.device)
            )
            # Assigned through .data so that the view has a version counter of its own: the next
            # gather may then write into the buffer while a graph holds the parameter.
            compute.data = self.full[span.offset : span.end].view(span.shape)
            # The hook holds the gradients alone: Python's collector does not see through it.
            take = functools.partial(self._gradients.take, index)
            compute.register_post_accumulate_grad_hook(take)
            ref.compute = compute
        self.full.untyped_storage().resize_(0)

    def start_gather(self) -> None:
        """Issue the gather of the buffer; the current values of the shard are sent."""
        self.full.untyped_storage().resize_(self.full.nbytes)
        shard = self.shard
        if shard.dtype != self.full.dtype:  # cast into place
            shard = self._own_full.copy_(shard)
        self._handle = self.comm.gather(self.full, shard, self.layout.sizes)

    @property
    def gathering(self) -> bool:
        """True if a gather is under way that ``wait`` would wait for."""
        return self._handle is not None and not self._handle.ended

    def wait(self) -> None:
        """Wait for the gather."""
        self._handle.wait()

    def show_gathered(self) -> None:
        """Put the plain parameters into the modules."""
        self._handle = None
        for ref in self.refs:
            wanted = ref.param.requires_grad
            if ref.compute.requires_grad is not wanted:
                ref.compute.requires_grad_(wanted)
            compat.set_parameters(ref.places, ref.compute)

    def free(self) -> None:
        """Give the gathered buffer back and put the sharded parameters into the modules."""
        for ref in self.refs:
            compat.set_parameters(ref.places, ref.param)
        self.full.untyped_storage().resize_(0)

    # -- gradients ------------------------------------------------------------------------------

    @property
    def trainable(self) -> bool:
        """True if any parameter wants a gradient; the same on every rank."""
        return any(r.param.requires_grad for r in self.refs)

    @property
    def has_gradients(self) -> bool:
        """True if this rank has gradients that were not reduced yet."""
        return bool(self._gradients)

    @property
    def gradient_bytes(self) -> int:
        """What the gradients take that were not reduced yet."""
        return self._gradients.nbytes

    def add_up_gradients(self) -> None:
        """Add up the gradients of a microbatch whose backward is over."""
        self._gradients.add_up()

    def start_reduce(self, factor: float) -> ReduceHandle:
        """Sum the gradients times ``factor`` over the ranks; parameters without one count as zeros.
        Returns the handle; its result is this rank's range in the accumulation dtype."""
        if factor != 0.0:
            for index, ref in enumerate(self.refs):
                ref.seen |= self._gradients.has(index)
        grads = self._gradients.total(factor)
        wire = self.reduce_dtype if self.reduce_dtype.itemsize < grads.itemsize else self.sum_dtype
        return self.comm.reduce(grads.to(wire), self.layout.sizes, self.sum_dtype)

    def seen(self, factor: float) -> list[bool]:
        """Which parameters had a gradient that counts on this rank since the last ``hand_out``,
        those included that will be reduced with ``factor``."""
        return [
            ref.seen or (factor != 0.0 and self._gradients.has(index))
            for index, ref in enumerate(self.refs)
        ]

    def hand_out(self, reduced: torch.Tensor | None, used: Sequence[bool]) -> None:
        """Give a reduced range (1-D, this rank's elements) to the parameters' ``grad``; parameters
        that no rank used keep theirs, None included."""
        if reduced is not None:
            pieces = reduced.to(self.dtype).split(self._own_sizes)
            for ref, piece, used_somewhere in zip(self.refs, pieces, used):
                param = ref.param
                if not used_somewhere or not param.requires_grad:
                    continue
                rows = compat.local_of(param)
                param.add_gradient(piece if rows.dim() == 1 else piece.view_as(rows))
        for ref in self.refs:
            ref.seen = False

    def drop_gradients(self) -> None:
        """Forget the gradients that were not reduced yet."""
        self._gradients.drop()
        for ref in self.refs:
            ref.seen = False
