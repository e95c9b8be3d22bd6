"""What the microbatches of this rank gave as gradients, added up in one flat buffer."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from . import compat
from .layout import Layout

AT_ONCE_BYTES = 64 << 20
"""Gradients that may wait to be added up together: so much more memory than one at a time."""


class FlatGradients:
    """The gradients of a flat buffer's parameters since the last reduction.

    Gradients are kept as they arrive and added up together, once per microbatch as a rule: on a GPU
    one kernel for all, where one for each parameter takes the host longer than the unit computes.
    Whoever runs microbatches calls ``add_up`` after each, so that no more than one is there twice.
    """

    def __init__(
        self, layout: Layout, names: Sequence[str], dtype: torch.dtype, device: torch.device
    ):
        self._layout, self._names, self._device = layout, list(names), device
        self._numels = [span.numel for span in layout.spans]
        self.dtype = dtype
        """What gradients are added up in."""
        self._arrived: dict[int, torch.Tensor] = {}
        """By parameter, what is not in the sum yet."""
        self._bytes = 0
        self._sum: torch.Tensor | None = None
        self._summed: set[int] = set()
        """Parameters that are in the sum; the rest of it holds anything."""

    def take(self, index: int, param: torch.Tensor) -> None:
        """Take the gradient of the parameter at ``index`` out of ``param.grad``; any dtype."""
        grad = param.grad
        param.grad = None
        if grad.is_sparse:
            raise RuntimeError(
                f"parameter {self._names[index]} has a sparse gradient, which is not supported"
            )
        if index in self._arrived:
            self.add_up()
        self._arrived[index] = grad.detach() if grad.requires_grad else grad
        self._bytes += grad.nbytes
        if self._bytes > AT_ONCE_BYTES:
            self.add_up()

    def __bool__(self) -> bool:
        return self._sum is not None or bool(self._arrived)

    def has(self, index: int) -> bool:
        """True if the parameter got a gradient."""
        return index in self._summed or index in self._arrived

    @property
    def nbytes(self) -> int:
        """What they take now."""
        return self._bytes + (0 if self._sum is None else self._sum.nbytes)

    def add_up(self) -> None:
        """Put what has arrived into the sum."""
        if not self._arrived:
            return
        arrived, self._arrived, self._bytes = self._arrived, {}, 0
        if self._sum is None:
            self._sum = torch.empty(self._layout.numel, dtype=self.dtype, device=self._device)
        parts = self._sum.split(self._numels)
        flat = {i: grad if grad.dim() == 1 else grad.reshape(-1) for i, grad in arrived.items()}
        first = [i for i in flat if i not in self._summed]
        again = [i for i in flat if i in self._summed]
        if first:
            compat.foreach_copy_([parts[i] for i in first], [flat[i] for i in first])
            self._summed.update(first)
        if again:
            compat.foreach_add_([parts[i] for i in again], [flat[i] for i in again])

    def total(self, factor: float) -> torch.Tensor:
        """The sum times ``factor``, shape (numel,); parameters without a gradient are zeros.
        Everything is forgotten."""
        if factor != 0.0:
            self.add_up()
        total, summed = self._sum, self._summed
        self.drop()
        if total is None or factor == 0.0:
            return torch.zeros(self._layout.numel, dtype=self.dtype, device=self._device)
        if len(summed) < len(self._numels):
            for index, span in enumerate(self._layout.spans):
                if index not in summed:
                    total[span.offset : span.end].zero_()
        return total if factor == 1.0 else total.mul_(factor)

    def drop(self) -> None:
        """Forget everything."""
        self._arrived, self._bytes, self._sum, self._summed = {}, 0, None, set()
