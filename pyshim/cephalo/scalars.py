"""0-dim parameters: kept whole on every rank, because a scalar has no rows to share out."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate

from .flat import ParamRef


class ScalarBuffer:
    """The 0-dim parameters of a unit, shown to the script as replicated DTensors.

    Their gradients travel with the small control vector at the end of backward, which gives every
    rank the same bits, so that the copies can never drift apart.
    """

    def __init__(
        self,
        refs: Sequence[ParamRef],
        device: torch.device,
        mesh: DeviceMesh,
        compute_dtype: torch.dtype | None,
    ):
        self.refs = list(refs)
        self._sums = [0.0] * len(refs)
        for index, ref in enumerate(self.refs):
            local = ref.param.detach() if ref.param.is_meta else ref.param.detach().to(device, copy=True)
            sharded = nn.Parameter(
                DTensor.from_local(local, mesh, [Replicate()], run_check=False),
                requires_grad=ref.param.requires_grad,
            )
            for key, value in vars(ref.param).items():
                setattr(sharded, key, value)
            ref.compute = nn.Parameter(
                torch.zeros((), dtype=compute_dtype or local.dtype, device=device),
                requires_grad=ref.param.requires_grad,
            )
            ref.compute.register_post_accumulate_grad_hook(
                lambda param, index=index: self._take_gradient(index, param)
            )
            ref.param = sharded
            ref.show(sharded)

    def refresh(self) -> None:
        """Take over a Parameter that the script put in the place of ours."""
        for ref in self.refs:
            shown = ref.shown()
            if shown is not ref.param and shown is not ref.compute and shown is not None:
                ref.param = shown

    @torch.no_grad()
    def gather(self) -> None:
        for ref in self.refs:
            value = ref.param.to_local() if isinstance(ref.param, DTensor) else ref.param
            ref.compute.data = value.to(ref.compute.dtype, copy=True)
            ref.compute.requires_grad_(ref.param.requires_grad)
            ref.show(ref.compute)

    def free(self) -> None:
        for ref in self.refs:
            ref.show(ref.param)

    def _take_gradient(self, index: int, param: nn.Parameter) -> None:
        self._sums[index] = self._sums[index] + param.grad.double()
        param.grad = None
        self.refs[index].used = True

    def start_reduce(self, weight: float) -> None:
        """Note the gradients times ``weight`` for the next control vector."""
        for index, ref in enumerate(self.refs):
            if ref.used:
                pending = getattr(ref, "pending", 0.0)
                ref.pending = pending + (self._sums[index] * weight if weight else 0.0)
                self._sums[index] = 0.0
                ref.seen, ref.used = True, False

    def take_pending(self) -> list[tuple[float, float]]:
        """(1 if a gradient was seen, weighted gradient) of every parameter, and forget them."""
        out = []
        for ref in self.refs:
            value = getattr(ref, "pending", 0.0)
            out.append((float(ref.seen), float(value)))
            ref.pending, ref.seen = 0.0, False
        return out

    @torch.no_grad()
    def add_gradients(self, sums: Sequence[tuple[float, float]]) -> None:
        """Hand the (count, summed gradient) pairs of all ranks to the parameters' ``grad``."""
        for ref, (count, value) in zip(self.refs, sums):
            if count == 0 or not ref.param.requires_grad:
                continue
            if ref.param.grad is None:
                ref.param.grad = torch.zeros_like(ref.param)
            ref.param.grad.to_local().add_(value)
