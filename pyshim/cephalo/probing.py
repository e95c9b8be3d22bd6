"""Finding which tensors carry the batch: the model is called twice with other numbers of samples.

A size that follows the number of samples in both calls is a batch dimension; one that only happens
to equal the local batch (a mask of sequence by sequence, say) stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from . import compat
from .batch import Signature, kinds_of, take_samples

SAMPLES = (2, 3)
"""Samples in the two calls, the same on every rank."""


@dataclass(frozen=True)
class ProbedCall:
    """One call of a unit: tensors are on the meta device, only their shapes matter."""

    leaves: list[Any]
    spec: Any
    results: list[Any]


def note_call(leaves: Sequence[Any], spec: Any, output: Any) -> ProbedCall:
    """What a call looked like."""
    results = compat.tree_flatten(output)[0]
    return ProbedCall([_shape_only(x) for x in leaves], spec, [_shape_only(x) for x in results])


def _shape_only(leaf: Any) -> Any:
    return torch.empty_like(leaf, device="meta") if isinstance(leaf, torch.Tensor) else leaf


def carriers(
    leaves: Sequence[Any],
    batch: int,
    everywhere: Callable[[Sequence[bool]], list[bool]],
) -> list[list[bool]]:
    """Which leaves of the root's arguments may carry the local batch, the likeliest answer first.

    ``everywhere`` combines every rank's answer: a tensor carries the batch only if its dimension 0
    is the local batch on every rank. If all ranks have the same batch, and it is also another size
    in the call, a tensor may be taken for a carrier by coincidence: then there are more answers to
    try, each with one of them left out.
    """
    first = everywhere([_first_size(x) == batch for x in leaves])
    answers = [first]
    others = [size for x in leaves if isinstance(x, torch.Tensor) for size in x.shape[1:]]
    if sum(first) > 1 and batch in others:
        answers += [
            [carries and i != left for i, carries in enumerate(first)]
            for left in range(len(first))
            if first[left]
        ]
    return answers


def _first_size(leaf: Any) -> int | None:
    return leaf.shape[0] if isinstance(leaf, torch.Tensor) and leaf.dim() else None


def with_samples(
    leaves: Sequence[Any], answers: list[list[bool]], samples: int, run: Callable[[list[Any]], None]
) -> list[list[bool]]:
    """Call ``run`` with ``samples`` samples, by the first answer with which it does not raise.
    Returns that answer and the ones after it. Raises what ``run`` raised on the first one."""
    failure: Exception | None = None
    for at, answer in enumerate(answers):
        try:
            run(take_samples(leaves, answer, samples))
        except Exception as err:
            failure = failure or err
            continue
        return answers[at:]
    assert failure is not None
    raise failure


def sign(first: Sequence[ProbedCall], second: Sequence[ProbedCall], obstacle: str) -> Signature:
    """Signature of a unit from its calls in the two forwards. ``obstacle`` is a known reason not to
    cut the unit, or empty."""
    one, two = (first or second)[0], (second or first)[0]
    same = one.spec == two.spec and len(one.leaves) == len(two.leaves)
    cut = tuple(_follows(a, b) for a, b in zip(one.leaves, two.leaves)) if same else ()
    reason = obstacle
    if not reason and (len(first) != 1 or len(second) != 1):
        reason = f"it is called {max(len(first), len(second))} times in one forward"
    if not reason and not any(cut):
        reason = "no argument has the batch in dimension 0"
    return Signature(one.spec, kinds_of(one.leaves), cut, *_outcome(reason, one, two))


def _outcome(reason: str, one: ProbedCall, two: ProbedCall) -> tuple[bool, str]:
    """(can be cut, why not)."""
    if not reason:
        for a, b in zip(one.results, two.results):
            if isinstance(a, torch.Tensor):
                if not _follows(a, b):
                    reason = f"an output of shape {tuple(a.shape)} does not carry the batch"
            elif a is not None and not isinstance(a, (bool, str)):
                reason = f"an output is a {type(a).__name__}"
    return not reason, reason


def _follows(one: Any, two: Any) -> bool:
    """True if dimension 0 is the number of samples in both calls."""
    return (_first_size(one), _first_size(two)) == SAMPLES


class BufferGuard:
    """The buffers of a model, to put them back after a call that nobody asked for."""

    def __init__(self, module: nn.Module):
        self._before = [
            (owner, name, buffer, buffer.detach().clone())
            for owner in module.modules()
            for name, buffer in owner.named_buffers(recurse=False)
            if not buffer.is_meta
        ]

    def restore(self) -> set[int]:
        """Put the values back; returns the ids of the buffers that had changed."""
        changed = set()
        for owner, name, buffer, value in self._before:
            if getattr(owner, name) is not buffer or not torch.equal(buffer, value):
                changed.add(id(buffer))
                buffer.copy_(value)
                setattr(owner, name, buffer)
        return changed
