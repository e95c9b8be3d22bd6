"""Public torch functions that have to know of ragged tensors, replaced once by ``install``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.nn.utils import clip_grad

from . import compat
from .ragged_reduce import list_norms
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
    clip = _clip_grad_norm(cls, nn.utils.clip_grad_norm_, norm, nn.utils.clip_grads_with_norm_)
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
        ragged = next((t for t in tensors if type(t) is cls), None)
        if ragged is None:
            return original(tensors, norm_type, error_if_nonfinite, foreach)
        with torch.no_grad():
            norms = list_norms(cls, tensors, float(norm_type), None)
            first = norms[0].device
            total = torch.linalg.vector_norm(
                torch.stack([n.to(first) for n in norms]), float(norm_type)
            )
            if error_if_nonfinite and not bool(total.isfinite()):
                raise RuntimeError(
                    f"The total norm of order {float(norm_type)} for gradients from `parameters` "
                    f"is non-finite, so it cannot be clipped. To disable this error and scale the "
                    f"gradients by the non-finite norm anyway, set `error_if_nonfinite=False`"
                )
            return compat.replicated(total, ragged._ragged.mesh)

    return _marked(original, get_total_norm)


class _Rows:
    """Stands for a parameter of whose gradient this rank's rows are scaled."""

    __slots__ = ("grad",)

    def __init__(self, grad: torch.Tensor):
        self.grad = compat.rows_of_any(grad)


def _clip_grad_norm(
    cls: type, original: Callable, total_norm: Callable, clip_with_norm: Callable
) -> Callable:
    def clip_grad_norm_(
        parameters: torch.Tensor | Iterable[torch.Tensor],
        max_norm: float,
        norm_type: float = 2.0,
        error_if_nonfinite: bool = False,
        foreach: bool | None = None,
    ) -> torch.Tensor:
        parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        if not any(type(p) is cls for p in parameters):
            return original(parameters, max_norm, norm_type, error_if_nonfinite, foreach)
        grads = [grad for p in parameters if (grad := p.grad) is not None]
        total = total_norm(grads, norm_type, error_if_nonfinite, foreach)
        # Scaling treats every element alone, so the rows themselves are scaled, as on one device.
        rows = [_Rows(grad) for grad in grads]
        clip_with_norm(rows, max_norm, compat.rows_of_any(total), foreach)
        return total

    return _marked(original, clip_grad_norm_)
