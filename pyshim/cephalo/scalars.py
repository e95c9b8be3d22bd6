"""0-dim parameters: kept whole on every rank, because a scalar has no rows to share out."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate

from . import compat
from .flat import ParamRef, on_meta


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
        self._sums: list[float | torch.Tensor] = [0.0] * len(refs)
        self._pending: list[float | torch.Tensor] = [0.0] * len(refs)
        self._used = [False] * len(refs)
        """Which got a gradient since the last ``weigh``."""
        self._device, self._mesh = device, mesh
        for index, ref in enumerate(self.refs):
            sharded = self._sharded(ref.param)
            for key, value in vars(ref.param).items():
                setattr(sharded, key, value)
            ref.compute = nn.Parameter(
                torch.zeros((), dtype=compute_dtype or ref.param.dtype, device=device)
            )
            _hook_gradient(ref.compute, self._take_gradient, index)
            ref.param = sharded
            ref.show(sharded)

    def _sharded(self, param: nn.Parameter) -> nn.Parameter:
        local = param.detach()
        local = local if local.is_meta else local.to(self._device, copy=True)
        return nn.Parameter(
            DTensor.from_local(local, self._mesh, [Replicate()], run_check=False),
            requires_grad=param.requires_grad,
        )

    def adopt(self) -> None:
        """Take over Parameters that the script put in the place of ours."""
        for ref in self.refs:
            shown = ref.shown()
            if shown is not ref.param and shown is not ref.compute and shown is not None:
                if not isinstance(shown, DTensor):
                    shown = self._sharded(shown)
                ref.param = shown
                ref.show(shown)

    def refresh(self) -> None:
        """Raises RuntimeError if a parameter has no value yet."""
        self.adopt()
        for ref in self.refs:
            if compat.rows_of_any(ref.param).is_meta:
                raise on_meta([ref.name])

    @torch.no_grad()
    def gather(self) -> None:
        for ref in self.refs:
            ref.compute.data = compat.rows_of_any(ref.param).to(ref.compute.dtype, copy=True)
            ref.compute.requires_grad_(ref.param.requires_grad)
            ref.show(ref.compute)

    def free(self) -> None:
        for ref in self.refs:
            ref.show(ref.param)

    def _take_gradient(self, index: int, param: nn.Parameter) -> None:
        self._sums[index] = self._sums[index] + param.grad.double()
        param.grad = None
        self._used[index] = True

    def weigh(self, factor: float) -> None:
        """Note the gradients since the last call, times ``factor``, for the next vector."""
        for index, ref in enumerate(self.refs):
            if self._used[index] and factor:
                self._pending[index] = self._pending[index] + self._sums[index] * factor
                ref.seen = True
            self._sums[index], self._used[index] = 0.0, False

    def take_notes(self) -> list[float]:
        """For every parameter 1 if it had a gradient, and the gradient; they are forgotten."""
        notes = []
        for index, ref in enumerate(self.refs):
            notes += [float(ref.seen), float(self._pending[index])]
            self._pending[index], ref.seen = 0.0, False
        return notes

    def hand_out(self, totals: Iterator[float]) -> None:
        """Give the sums of all ranks' notes to the parameters' ``grad``."""
        for ref in self.refs:
            count, value = next(totals), next(totals)
            if count == 0 or not ref.param.requires_grad:
                continue
            if ref.param.grad is None:
                ref.param.grad = torch.zeros_like(ref.param)
            compat.rows_of_any(ref.param.grad).add_(value)

    def drop_gradients(self) -> None:
        """Forget what was not handed out yet."""
        for index, ref in enumerate(self.refs):
            self._sums[index], self._pending[index] = 0.0, 0.0
            self._used[index] = ref.seen = False


def _hook_gradient(
    param: nn.Parameter, take: Callable[[int, nn.Parameter], None], index: int
) -> None:
    """Have the bound method ``take`` called with ``index`` and ``param`` after each gradient. Its
    object is held weakly: Python's collector does not see through a tensor's hooks, so that a
    strong reference would keep the model for ever."""
    weak = weakref.WeakMethod(take)
    param.register_post_accumulate_grad_hook(lambda p: weak()(index, p))
