"""Casts at the border of a unit, with the meaning of FSDP2's MixedPrecisionPolicy."""

from __future__ import annotations

from typing import Any

import torch

from . import compat


def cast_tree(tree: Any, dtype: torch.dtype | None) -> Any:
    """Cast every floating-point tensor in a nested structure to ``dtype``; None changes nothing."""
    if dtype is None:
        return tree

    def cast(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    return compat.tree_map_tensors(cast, tree)
