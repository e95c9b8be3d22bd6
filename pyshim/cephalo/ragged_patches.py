"""Public torch functions that have to know of ragged tensors, replaced once by ``install``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.nn.utils import clip_grad

from . import compat
from .ragged_reduce import row_norms, whole_or_rows
from .ragged_write import fill_through

#: Initialisers that look at the whole matrix; the others are right operator by operator.
WHOLE_MATRIX = ("orthogonal_", "eye_", "dirac_", "sparse_")


def install(cls: type) -> None:
    """Replace the functions, under every public name they have; a second call does nothing."""
    if getattr(nn.init.orthogonal_, "_cephalo", False):
        return
    for name in WHOLE_MATRIX:
        setattr(nn.init, name, _initialiser(cls, getattr(nn.init, name)))
    norm = _total_norm(cls, nn.utils.get_total_norm)
    clip = _clip_grad_norm(cls, nn.utils.clip_grad_norm_, nn.utils.clip_grads_with_norm_)
    for module in (nn.utils, clip_grad):
        if hasattr(module, "get_total_norm"):
            module.get_total_norm = norm
        module.clip_grad_norm_ = clip


def _marked(original: Callable, replacement: Callable) -> Callable:
    functools.update_wrapper(replacement, original)
    replacement._cephalo = True
    return replacement


def _initialiser(cls: type, original: Callable) -> Callable:
    def initialise(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if type(tensor) is not cls:
            return original(tensor, *args, **kwargs)
        return fill_through(tensor, original, *args, **kwargs)

    return _marked(original, initialise)


def _total_norm(cls: type, original: Callable) -> Callable:
    def get_total_norm(
        tensors: torch.Tensor | Iterable[torch.Tensor],
        norm_type: float = 2.0,
        error_if_nonfinite: bool = False,
        foreach: bool | None = None,
    ) -> torch.Tensor:
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        layouts = [t._ragged if type(t) is cls else None for t in tensors]
        layout = next((one for one in layouts if one is not None), None)
        if layout is None:
            return original(tensors, norm_type, error_if_nonfinite, foreach)
        rows = [whole_or_rows(cls, t) for t in tensors]
        return compat.replicated(
            _norm_of_rows(rows, layouts, float(norm_type), error_if_nonfinite), layout.mesh
        )

    return _marked(original, get_total_norm)


@torch.no_grad()
def _norm_of_rows(
    rows: list[torch.Tensor], layouts: list[Any], norm_type: float, error_if_nonfinite: bool
) -> torch.Tensor:
    norms = row_norms(rows, layouts, norm_type, None)
    first = norms[0].device
    total = torch.linalg.vector_norm(torch.stack([n.to(first) for n in norms]), norm_type)
    if error_if_nonfinite and not bool(total.isfinite()):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, "
            f"so it cannot be clipped. To disable this error and scale the gradients by the "
            f"non-finite norm anyway, set `error_if_nonfinite=False`"
        )
    return total


class _Rows:
    """Stands for a parameter of whose gradient this rank's rows are scaled."""

    __slots__ = ("grad",)

    def __init__(self, grad: torch.Tensor):
        self.grad = grad


def _clip_grad_norm(cls: type, original: Callable, clip_with_norm: Callable) -> Callable:
    def clip_grad_norm_(
        parameters: torch.Tensor | Iterable[torch.Tensor],
        max_norm: float,
        norm_type: float = 2.0,
        error_if_nonfinite: bool = False,
        foreach: bool | None = None,
    ) -> torch.Tensor:
        parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        layout = next((p._ragged for p in parameters if type(p) is cls), None)
        rows, layouts = [], []
        for p in parameters if layout is not None else ():
            if type(p) is cls:
                grad, own = p.grad_rows, p._ragged
            else:
                grad, own = p.grad, None
            if grad is not None:
                rows.append(grad if own is not None else whole_or_rows(cls, grad))
                layouts.append(own)
        if not rows:
            return original(parameters, max_norm, norm_type, error_if_nonfinite, foreach)
        total = _norm_of_rows(rows, layouts, float(norm_type), error_if_nonfinite)
        # Scaling treats every element alone, so the rows themselves are scaled, as on one device.
        clip_with_norm([_Rows(grad) for grad in rows], max_norm, total, foreach)
        return compat.replicated(total, layout.mesh)

    return _marked(original, clip_grad_norm_)
