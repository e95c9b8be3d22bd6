"""Cutting a call's arguments into microbatches along dimension 0, and joining the results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from . import compat


@dataclass(frozen=True)
class Signature:
    """What a unit's call looks like: which tensors carry the batch in dimension 0.

    Found by calling the model once with another number of samples (see ``probe``): sizes that
    follow the number of samples are batch dimensions, equal sizes are a coincidence.
    """

    spec: Any
    """Nesting of the arguments."""
    cut: tuple[bool, ...]
    """For each leaf of the arguments: cut it along dimension 0, or pass it whole."""
    layered: bool
    """False if the call cannot be cut: the unit then runs the whole local batch at once."""
    reason: str
    """Why the call cannot be cut; empty if it can."""

    def digest(self) -> tuple:
        """What must be the same on every rank."""
        return (str(self.spec), self.cut, self.layered)


def flatten_call(args: tuple, kwargs: dict) -> tuple[list[Any], Any]:
    """Leaves and nesting of a call's arguments."""
    return compat.tree_flatten((args, kwargs))


def unflatten_call(leaves: Sequence[Any], spec: Any) -> tuple[tuple, dict]:
    """The inverse of ``flatten_call``."""
    return compat.tree_unflatten(leaves, spec)


def local_batch(leaves: Sequence[Any]) -> int | None:
    """Samples in a call: dimension 0 of its first tensor that has one, or None."""
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor) and leaf.dim():
            return leaf.shape[0]
    return None


def take_samples(leaves: Sequence[Any], batch: int, samples: int) -> list[Any]:
    """The leaves with ``samples`` samples in place of ``batch``; samples repeat if there are more."""
    out = []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor) and leaf.dim() and leaf.shape[0] == batch:
            index = torch.arange(samples, device=leaf.device) % batch
            leaf = leaf.index_select(0, index)
        out.append(leaf)
    return out


def sign_call(
    leaves: Sequence[Any], spec: Any, outputs: Any, samples: int, calls: int, obstacle: str
) -> Signature:
    """Signature of a unit from one call with ``samples`` samples. ``obstacle`` is a known reason
    not to cut the unit, or empty."""
    cut = tuple(
        isinstance(x, torch.Tensor) and x.dim() > 0 and x.shape[0] == samples for x in leaves
    )
    reason = obstacle
    if not reason and calls != 1:
        reason = f"it is called {calls} times in one forward"
    if not reason and not any(cut):
        reason = "no argument has the batch in dimension 0"
    if not reason:
        for leaf in compat.tree_flatten(outputs)[0]:
            if isinstance(leaf, torch.Tensor):
                if not leaf.dim() or leaf.shape[0] != samples:
                    reason = f"an output of shape {tuple(leaf.shape)} does not carry the batch"
            elif leaf is not None and not isinstance(leaf, (bool, str)):
                reason = f"an output is a {type(leaf).__name__}"
    return Signature(spec, cut, not reason, reason)


def microbatch_bounds(batch: int, planned: Sequence[int]) -> list[tuple[int, int]]:
    """Cut ``batch`` samples as planned; another number of samples is cut in the largest planned size."""
    sizes = list(planned)
    if sum(sizes) != batch:
        widest = max(planned, default=1)
        sizes = [widest] * (batch // widest) + ([batch % widest] if batch % widest else [])
    bounds, start = [], 0
    for size in sizes:
        bounds.append((start, start + size))
        start += size
    return bounds


class Joiner:
    """Joins the results of the microbatches into results for the whole local batch."""

    def __init__(self, batch: int, inputs: Sequence[Any]):
        self._batch = batch
        self._inputs = {id(t) for t in inputs}
        self.spec: Any = None
        self.leaves: list[Any] = []

    def add(self, start: int, end: int, result: Any) -> None:
        """Put the result of samples start..end in its place."""
        leaves, spec = compat.tree_flatten(result)
        if self.spec is None:
            self.spec = spec
            whole = end - start == self._batch
            self.leaves = [self._place(leaf, whole) for leaf in leaves]
            if whole:
                return
        elif spec != self.spec:
            raise RuntimeError(f"microbatches returned different structures: {self.spec} and {spec}")
        for target, leaf in zip(self.leaves, leaves):
            if isinstance(leaf, torch.Tensor):
                target[start:end].copy_(leaf)
            elif leaf != target:
                raise RuntimeError(f"microbatches returned different values: {target!r} and {leaf!r}")

    def _place(self, leaf: Any, whole: bool) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if whole:
            return leaf.clone() if id(leaf) in self._inputs else leaf
        return leaf.new_empty((self._batch, *leaf.shape[1:]))
