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
import itertools
import operator
import weakref
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import optim
from torch.distributed.tensor import DTensor, Replicate
from torch.optim import Optimizer

from . import compat

ELEMENTWISE = (
    optim.Adam,
    optim.AdamW,
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
"""Classes whose ``step`` looks at one element at a time. AdamW has Adam's until one is made, when
torch gives it one with hooks. Subclasses that scripts write call it through ``super().step()``,
with everything of their own around it."""


AT_A_TIME_BYTES = 256 << 20
"""Parameters of one foreach call; a larger one is alone."""


def install(cls: type) -> None:
    """Replace ``step`` of these classes, and every optimizer's ``zero_grad``, for parameters of
    ``cls``. A second call does nothing."""
    if getattr(Optimizer.zero_grad, "_cephalo", False):
        return
    Optimizer.zero_grad = _forgetting(cls, Optimizer.zero_grad)
    for kind in ELEMENTWISE:
        step = kind.__dict__.get("step")
        if step is not None:
            kind.step = _on_rows(cls, step)


def _forgetting(cls: type, original: Callable) -> Callable:
    @functools.wraps(original)
    def zero_grad(self: Optimizer, set_to_none: bool = True) -> None:
        if set_to_none and not torch.compiler.is_compiling():
            forget_gradients(cls, (p for group in self.param_groups for p in group["params"]))
        original(self, set_to_none)

    zero_grad._cephalo = True
    return zero_grad


def forget_gradients(cls: type, params: Iterable[torch.Tensor]) -> None:
    """Set the gradients of parameters of ``cls`` to None, unseen."""
    for param in params:
        if type(param) is cls:
            param.grad_rows = None


_held: weakref.WeakKeyDictionary[Optimizer, _Held] = weakref.WeakKeyDictionary()


def _on_rows(cls: type, original: Callable) -> Callable:
    @functools.wraps(original)
    def step(self: Optimizer, closure: Callable | None = None) -> Any:
        # A closure runs the model, which needs the parameters as they are.
        if closure is not None or torch.compiler.is_compiling():
            return original(self, closure)
        held = _held.get(self)
        if held is None or not held.fits(self):
            _forget(self)
            if not _holds(self, cls):
                return original(self, closure)
            held = _held[self] = _Held(cls, self)
        with held.in_place(self):
            return original(self)

    return step


def _forget(optimizer: Optimizer) -> None:
    _held.pop(optimizer, None)


def _holds(optimizer: Optimizer, cls: type) -> bool:
    """True if some parameters are of ``cls``, and all others have their values whole here."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    return any(type(p) is cls for p in params) and all(
        type(p) is cls or not isinstance(p, DTensor) or p.placements == (Replicate(),)
        for p in params
    )


class _Held:
    """The local tensors of an optimizer's parameters, and its state for them.

    Kept from step to step, because making them anew takes the host longer than the step itself.
    Before each step and after it they are compared with what the script sees, object by object.
    """

    def __init__(self, cls: type, optimizer: Optimizer):
        self._groups = [list(group["params"]) for group in optimizer.param_groups]
        params = [p for group in self._groups for p in group]
        self._shared = [p for p in params if isinstance(p, DTensor)]
        self._rows = [compat.local_of(p) for p in self._shared]
        self._apart = [
            (param, rows)
            for param, rows in zip(self._shared, self._rows)
            if not (type(param) is cls and param.watched)
        ]
        """Those whose gradient is not that of their rows."""
        self._parts = [
            (at, part)
            for at, group in enumerate(self._groups)
            for part in _parts([compat.rows_of_any(p) for p in group])
        ]
        self._whole = [p for p in params if not isinstance(p, DTensor)]
        self._state: dict[torch.Tensor, dict[str, Any]] = defaultdict(dict)
        """By local tensor; of whole parameters, what the script sees itself."""
        self._seen: list[Any] = []
        """All that was in the state that the script sees, when both were alike."""
        self._own: list[Any] = []
        """The same of ``_state``."""
        # What it loads replaces state that would be kept here until the next step.
        hook = optimizer.register_load_state_dict_post_hook(_forget)
        weakref.finalize(self, hook.remove)

    def fits(self, optimizer: Optimizer) -> bool:
        """True if the optimizer still has these parameters, with these local tensors."""
        groups = optimizer.param_groups
        return (
            len(groups) == len(self._groups)
            and all(_same(g["params"], own) for g, own in zip(groups, self._groups))
            and all(map(operator.is_, map(compat.local_of, self._shared), self._rows))
        )

    @contextmanager
    def in_place(self, optimizer: Optimizer) -> Iterator[None]:
        """The optimizer holds the local tensors of its parameters, their gradients and state. What
        it then changes in place is changed in the parameters; new state is given their layout."""
        state, shown = optimizer.state, optimizer.param_groups
        if not _same(_objects(state), self._seen):
            self._learn(state)
        try:
            for param, rows in self._apart:
                rows.grad = compat.rows_of_any(param.grad)
            optimizer.param_groups = [{**shown[at], "params": part} for at, part in self._parts]
            optimizer.state = self._state
            yield
        finally:
            optimizer.param_groups, optimizer.state = shown, state
            for _, rows in self._apart:
                rows.grad = None
            if not _same(_objects(self._state), self._own):
                self._tell(state)

    def _learn(self, state: dict[torch.Tensor, dict[str, Any]]) -> None:
        self._state.clear()
        for param, rows in zip(self._shared, self._rows):
            if param in state:
                self._state[rows] = {n: compat.rows_of_any(x) for n, x in state[param].items()}
        for param in self._whole:
            if param in state:
                self._state[param] = state[param]
        self._seen, self._own = _objects(state), _objects(self._state)

    def _tell(self, state: dict[torch.Tensor, dict[str, Any]]) -> None:
        for param, rows in zip(self._shared, self._rows):
            if rows in self._state:
                _give_back(param, self._state[rows], state[param])
        for param in self._whole:
            if param in self._state:
                state[param] = self._state[param]
        self._seen, self._own = _objects(state), _objects(self._state)


def _objects(state: dict[torch.Tensor, dict[str, Any]]) -> list[Any]:
    """The dictionaries of an optimizer's state, and what is in them."""
    own = list(state.values())
    return own + list(itertools.chain.from_iterable(map(dict.values, own)))


def _same(one: Collection[Any], other: Collection[Any]) -> bool:
    """True if both hold the same objects in the same order."""
    return len(one) == len(other) and all(map(operator.is_, one, other))


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
