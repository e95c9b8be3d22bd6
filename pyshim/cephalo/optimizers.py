"""The step of torch's own optimizers, on the local rows themselves.

An optimizer that treats every element alone gives the same numbers on this rank's rows as on the
whole tensor, so its step runs on plain tensors: in the form (foreach, fused, loop) that PyTorch
takes for them on one device, without a DTensor's dispatch for every operator. Before and after the
step, and in every hook, scripts see the parameters, gradients and state that they know.

The foreach form makes temporary copies of all that it is given, which is a quarter of the state of
Adam; so it is given a part at a time, and a device may be filled with state.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import optim
from torch.distributed.tensor import DTensor, Replicate
from torch.optim import Optimizer

from . import compat

ELEMENTWISE = (
    optim.Adam,
    optim.SGD,
    optim.Adagrad,
    optim.RMSprop,
    optim.NAdam,
    optim.RAdam,
    optim.Adamax,
    optim.Adadelta,
    optim.ASGD,
    optim.Rprop,
)
"""Classes whose ``step`` looks at one element at a time. AdamW has Adam's. Subclasses that scripts
write call it through ``super().step()``, with everything of their own around it."""


AT_A_TIME_BYTES = 256 << 20
"""Parameters of one foreach call; a larger one is alone."""


def install(cls: type) -> None:
    """Replace ``step`` of these classes, for parameters of ``cls``. Before the first optimizer is
    made: torch wraps hooks around ``step`` then. A second call does nothing."""
    for kind in ELEMENTWISE:
        step = kind.__dict__.get("step")
        if step is not None and not getattr(step, "_cephalo", False):
            kind.step = _on_rows(cls, step)


def _on_rows(cls: type, original: Callable) -> Callable:
    @functools.wraps(original)
    def step(self: Optimizer, closure: Callable | None = None) -> Any:
        # A closure runs the model, which needs the parameters as they are.
        if closure is not None or torch.compiler.is_compiling() or not _holds(self, cls):
            return original(self, closure)
        with _rows_in_place(self):
            return original(self)

    step._cephalo = True
    return step


def _holds(optimizer: Optimizer, cls: type) -> bool:
    """True if some parameters are of ``cls``, and all others have their values whole here."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    return any(type(p) is cls for p in params) and all(
        type(p) is cls or not isinstance(p, DTensor) or p.placements == (Replicate(),)
        for p in params
    )


@contextmanager
def _rows_in_place(optimizer: Optimizer) -> Iterator[None]:
    """The optimizer holds the local tensors of its parameters, their gradients and state. What it
    then changes in place is changed in the parameters; new state is given their layout."""
    state, shown = optimizer.state, optimizer.param_groups
    pieces: list[tuple[DTensor, torch.Tensor, dict[str, Any] | None]] = []
    try:
        groups = []
        for group in shown:
            own = []
            for param in group["params"]:
                piece = compat.rows_of_any(param)
                if piece is not param:
                    piece.grad = compat.rows_of_any(param.grad)
                    known = state.get(param)
                    pieces.append((param, piece, known))
                    if known is not None:
                        state[piece] = {name: compat.rows_of_any(x) for name, x in known.items()}
                own.append(piece)
            groups += [{**group, "params": part} for part in _parts(own)]
        optimizer.param_groups = groups
        yield
    finally:
        optimizer.param_groups = shown
        for param, piece, known in pieces:
            piece.grad = None
            new = state.pop(piece, None)  # each look into the state costs a tensor's hash
            if new is not None:
                _give_back(param, new, state[param] if known is None else known)


def _parts(params: list[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """The list in parts of AT_A_TIME_BYTES at most, or of one tensor."""
    part: list[torch.Tensor] = []
    size = 0
    for param in params:
        if part and size + param.nbytes > AT_A_TIME_BYTES:
            yield part
            part, size = [], 0
        part.append(param)
        size += param.nbytes
    yield part


def _give_back(param: DTensor, new: dict[str, Any], known: dict[str, Any]) -> None:
    """Put state of the rows into the parameter's: tensors of their shape get their layout."""
    for name, value in new.items():
        if compat.rows_of_any(known.get(name)) is value:
            continue
        if (
            isinstance(value, torch.Tensor)
            and value.dim()
            and value.shape == compat.rows_of_any(param).shape
        ):
            value = param.like(value)
        known[name] = value
