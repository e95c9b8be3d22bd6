"""A unit's parameters and gradients where they are shared out: gathered, and reduced."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import nn

from . import compat
from .comm import Handle, ReduceHandle
from .flat import FlatShard, shaped
from .gradients import FlatGradients
from .ragged import add_gradients


class FlatBuffer(FlatShard):
    """Parameters that are gathered before they are computed with, and their gradients reduced.

    ``full`` is the gathered buffer in the compute dtype; its storage exists only between
    ``start_gather`` and ``free``.
    """

    def _make_compute_parameters(self) -> None:
        self._handle: Handle | None = None
        self._gradients = FlatGradients(
            self.layout, [r.name for r in self.refs], self.sum_dtype, self.comm.device
        )
        self.full = torch.empty(
            self.layout.numel, dtype=self.compute_dtype, device=self.comm.device
        )
        start, end = self.layout.range_of(self.comm.rank)
        self._own_full = self.full[start:end]
        for index, (ref, span) in enumerate(zip(self.refs, self.layout.spans)):
            compute = nn.Parameter(
                torch.empty(0, dtype=self.compute_dtype, device=self.full.device)
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
        self.show_compute()

    def free(self) -> None:
        """Give the gathered buffer back and put the sharded parameters into the modules."""
        self.show_sharded()
        self.full.untyped_storage().resize_(0)

    # -- gradients ------------------------------------------------------------------------------

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
            got = [i for i, used_somewhere in enumerate(used) if used_somewhere]
            params = [self.refs[i].param for i in got]
            add_gradients(
                params, [shaped(pieces[i], compat.local_of(p)) for i, p in zip(got, params)]
            )
        for ref in self.refs:
            ref.seen = False

    def drop_gradients(self) -> None:
        """Forget the gradients that were not reduced yet."""
        self._gradients.drop()
        for ref in self.refs:
            ref.seen = False
