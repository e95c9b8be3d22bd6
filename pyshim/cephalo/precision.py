"""Casts at the border of a unit, with the meaning of FSDP2's MixedPrecisionPolicy."""

from __future__ import annotations

from typing import Any

import torch

from . import compat
from .batch import flatten_call, unflatten_call


def cast_tree(tree: Any, dtype: torch.dtype | None) -> Any:
    """Cast every floating-point tensor in a nested structure to ``dtype``; None changes nothing."""
    if dtype is None:
        return tree
    if type(tree) is torch.Tensor:
        return _cast(tree, dtype)
    return compat.tree_map_tensors(lambda tensor: _cast(tensor, dtype), tree)


def cast_call(args: tuple, kwargs: dict, dtype: torch.dtype | None) -> tuple[tuple, dict]:
    """Cast every floating-point tensor among a call's arguments to ``dtype``."""
    if dtype is None:
        return args, kwargs
    leaves, spec = flatten_call(args, kwargs)
    cast = [_cast(x, dtype) if isinstance(x, torch.Tensor) else x for x in leaves]
    if all(a is b for a, b in zip(cast, leaves)):
        return args, kwargs
    return unflatten_call(cast, spec)


def _cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor
