"""Cutting a call's arguments into microbatches along dimension 0, and joining the results."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from . import compat


@dataclass(frozen=True)
class Signature:
    """What a unit's call looks like: which tensors carry the batch in dimension 0.

    Found by ``probing``: sizes that follow the number of samples are batch dimensions, equal sizes
    are a coincidence.
    """

    spec: CallSpec
    """Nesting of the arguments."""
    kinds: tuple[int | None, ...]
    """For each leaf of the arguments its number of dimensions, or None for what is no tensor."""
    cut: tuple[bool, ...]
    """For each leaf of the arguments: cut it along dimension 0, or pass it whole."""
    layered: bool
    """False if the call cannot be cut: the unit then runs the whole local batch at once."""
    reason: str
    """Why the call cannot be cut; empty if it can."""

    def digest(self) -> tuple:
        """What must be the same on every rank."""
        return (str(self.spec), self.kinds, self.cut, self.layered)

    def batch_of(self, leaves: Sequence[Any], spec: Any) -> int | None:
        """Samples in a call that can be cut as this signature says, or None if it cannot."""
        if not self.layered or kinds_of(leaves) != self.kinds or spec != self.spec:
            return None
        sizes = {x.shape[0] for x, cut in zip(leaves, self.cut) if cut}
        return sizes.pop() if len(sizes) == 1 else None


def kinds_of(leaves: Sequence[Any]) -> tuple[int | None, ...]:
    """For each leaf its number of dimensions, or None for what is no tensor."""
    return tuple(x.dim() if isinstance(x, torch.Tensor) else None for x in leaves)


class CallSpec:
    """Nesting of a call's arguments; compares and prints as its tree.

    ``names`` are those of the keyword arguments after ``count`` others if no argument is nested,
    as in most calls: then the trees, which cost more than the rest of a call, need not be walked.
    """

    __slots__ = ("count", "names", "tree")

    def __init__(self, tree: Any, count: int = 0, names: tuple[str, ...] | None = None):
        self.tree, self.count, self.names = tree, count, names

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, CallSpec) and self.tree == other.tree)

    __hash__ = None

    def __str__(self) -> str:
        return str(self.tree)


_LEAVES = frozenset({torch.Tensor, torch.nn.Parameter, type(None), bool, int, float, str})
"""Types of arguments that hold no others."""


@functools.lru_cache(maxsize=1024)
def _not_nested(count: int, names: tuple[str, ...]) -> CallSpec:
    tree = compat.tree_flatten(((None,) * count, dict.fromkeys(names)))[1]
    return CallSpec(tree, count, names)


def flatten_call(args: tuple, kwargs: dict) -> tuple[list[Any], CallSpec]:
    """Leaves and nesting of a call's arguments."""
    leaves = [*args, *kwargs.values()]
    if _LEAVES.issuperset(map(type, leaves)):
        return leaves, _not_nested(len(args), tuple(kwargs))
    leaves, tree = compat.tree_flatten((args, kwargs))
    return leaves, CallSpec(tree)


def unflatten_call(leaves: Sequence[Any], spec: CallSpec) -> tuple[tuple, dict]:
    """The inverse of ``flatten_call``."""
    if spec.names is None:
        return compat.tree_unflatten(leaves, spec.tree)
    return tuple(leaves[: spec.count]), dict(zip(spec.names, leaves[spec.count :]))


def local_batch(leaves: Sequence[Any], drawn: int | None = None) -> int | None:
    """Samples in a call: ``drawn``, what the data loader gave, if a tensor has that many in
    dimension 0; else dimension 0 of the first tensor that has one, or None."""
    sizes = [x.shape[0] for x in leaves if isinstance(x, torch.Tensor) and x.dim()]
    if drawn in sizes:
        return drawn
    return sizes[0] if sizes else None


def take_samples(leaves: Sequence[Any], carry: Sequence[bool], samples: int) -> list[Any]:
    """The leaves with ``samples`` samples where ``carry`` says that they carry the batch; samples
    repeat if there are more, and are zeros if there are none."""
    out = []
    for leaf, cut in zip(leaves, carry):
        if cut and leaf.shape[0]:
            leaf = leaf.index_select(0, torch.arange(samples, device=leaf.device) % leaf.shape[0])
        elif cut:
            leaf = leaf.new_zeros((samples, *leaf.shape[1:]))
        out.append(leaf)
    return out


def microbatch_bounds(batch: int, planned: Sequence[int]) -> list[tuple[int, int]]:
    """Cut ``batch`` samples as planned; another number of samples is cut in the largest planned
    size. No sample at all is one empty microbatch."""
    if batch == 0:
        return [(0, 0)]
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
        """Put the result of samples start..end in its place. Raises RuntimeError if it does not
        carry these samples, or differs in kind from that of another microbatch."""
        leaves, spec = compat.tree_flatten(result)
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor) and (not leaf.dim() or leaf.shape[0] != end - start):
                raise RuntimeError(
                    f"a microbatch of {end - start} samples gave an output of shape "
                    f"{tuple(leaf.shape)}, which does not carry them in dimension 0"
                )
        if self.spec is None:
            self.spec = spec
            whole = end - start == self._batch
            self.leaves = [self._place(leaf, whole) for leaf in leaves]
            if whole:
                return
        elif spec != self.spec:
            raise RuntimeError(
                f"microbatches returned different structures: {self.spec} and {spec}"
            )
        for target, leaf in zip(self.leaves, leaves):
            if isinstance(target, torch.Tensor) and isinstance(leaf, torch.Tensor):
                target[start:end].copy_(leaf)
            elif type(leaf) is not type(target) or leaf != target:
                raise RuntimeError(
                    f"microbatches returned different values: {target!r} and {leaf!r}"
                )

    def _place(self, leaf: Any, whole: bool) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if whole:
            return leaf.clone() if id(leaf) in self._inputs else leaf
        return leaf.new_empty((self._batch, *leaf.shape[1:]))
