"""What the script's optimizers keep and take, found out on clones."""

from __future__ import annotations

import functools
import gc
import statistics
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import AdamW, Optimizer

from . import compat
from .memory import Meter
from .oom import out_of_memory
from .timing import Stopwatch, Together

RUNS = 3
TINY = (64, 64)
"""Shape of the parameter on which the state of an optimizer is counted: two dimensions, since some
optimizers keep less for matrices."""
UNKNOWN_STATE_BYTES = 16.0
"""Per parameter, where no optimizer is known: that of Adam in fp32, which most scripts use."""


@dataclass(frozen=True)
class OptimizerCost:
    """``state_bytes`` per parameter: the parameter, its gradient and the optimizer's state;
    ``gradient_bytes`` are those of the gradient. ``step_bytes`` per parameter of a rank are what a
    step takes beside them for a moment."""

    name: str
    state_bytes: float
    gradient_bytes: float
    step_ms: float
    step_bytes: float


def find_optimizers(parameters: Sequence[nn.Parameter]) -> list[Optimizer]:
    """Optimizers of the process that hold any of the parameters, in a fixed order."""
    ours = {id(p) for p in parameters}
    found = []
    for thing in gc.get_objects():
        if issubclass(type(thing), Optimizer) and "param_groups" in thing.__dict__:
            held = [p for group in thing.param_groups for p in group["params"]]
            if any(id(p) in ours for p in held):
                found.append((len(held), type(thing).__name__, thing))
    return [x[2] for x in sorted(found, key=lambda x: x[:2], reverse=True)]


def clone_optimizer(original: Optimizer, params: Sequence[Sequence[nn.Parameter]]) -> Optimizer:
    """An optimizer with the settings of ``original`` on other parameters (one list a group), with
    no state and no hooks. Schedulers put a bound ``step`` into the original, which is left out."""
    clone = object.__new__(type(original))
    clone.__dict__.update(original.__dict__)
    clone.__dict__.pop("step", None)
    for name in [n for n in clone.__dict__ if n.endswith("_hooks")]:
        clone.__dict__[name] = OrderedDict()
    clone.state = defaultdict(dict)
    clone.param_groups = [
        {**group, "params": list(own)}
        for group, own in zip(original.param_groups, params, strict=True)
    ]
    return clone


def state_bytes(original: Optimizer, dtype: torch.dtype, device: torch.device) -> float:
    """Bytes that one parameter of ``dtype`` takes with its gradient and state, counted after a step
    of a clone on one small parameter."""
    tiny = nn.Parameter(torch.zeros(TINY, dtype=dtype, device=device))
    tiny.grad = torch.zeros_like(tiny)
    first = [[tiny]] + [[] for _ in original.param_groups[1:]]
    clone = clone_optimizer(original, first)
    clone.step()
    state = [x for x in clone.state[tiny].values() if isinstance(x, torch.Tensor) and x.dim()]
    return (tiny.nbytes + tiny.grad.nbytes + sum(x.nbytes for x in state)) / tiny.numel()


def step_cost(
    original: Optimizer, device: torch.device, stopwatch: Stopwatch, together: Together
) -> tuple[float, float]:
    """Median milliseconds of a step of a clone on copies of the real parameters, and the bytes per
    parameter that it takes for a moment: the slowest rank's, and the greediest's. Collective. 0 if
    a clone cannot make a step, or the copies do not fit into memory."""
    clone = _attempt(
        lambda: clone_optimizer(
            original, [[_copy(p) for p in group["params"]] for group in original.param_groups]
        )
    )
    times = []

    def step() -> None:
        nonlocal clone
        if clone is not None:
            clone = _attempt(functools.partial(_stepped, clone))

    for _ in range(RUNS + 1):
        together.barrier()
        times.append(stopwatch.wall_ms(step))
    with Meter(device) as meter:
        step()
    if clone is None:
        return tuple(together.largest(0.0, 0.0))
    rows = [compat.rows_of_any(p) for group in clone.param_groups for p in group["params"]]
    own = sum(r.numel() for r in rows)
    taken = meter.peak_bytes / own if own else 0.0
    return tuple(together.largest(statistics.median(times[1:]), taken))


def _stepped(optimizer: Optimizer) -> Optimizer:
    optimizer.step()
    return optimizer


def _attempt(make: Callable[[], Any]) -> Any:
    """What ``make`` returns, or None if it raised: a measurement must not end the ranks apart."""
    try:
        return make()
    except Exception as err:
        if out_of_memory(err):
            gc.collect()
        return None


def _copy(param: nn.Parameter) -> nn.Parameter:
    """A parameter with the same values and layout and a gradient of zeros."""
    with torch.no_grad():
        copy = nn.Parameter(param.detach().clone(), requires_grad=param.requires_grad)
        if param.requires_grad:
            copy.grad = torch.zeros_like(copy)
    return copy


def measure_optimizers(
    parameters: Sequence[nn.Parameter],
    device: torch.device,
    stopwatch: Stopwatch,
    together: Together,
) -> OptimizerCost:
    """Cost of a step of all optimizers that hold ``parameters``; of a plain AdamW if none does (the
    script may make its optimizer later). Collective."""
    found = find_optimizers(parameters)
    name = "+".join(dict.fromkeys(type(o).__name__ for o in found)) or "unknown"
    bytes_of = [_state_bytes(o, device) for o in found]
    heaviest = max(bytes_of, default=(UNKNOWN_STATE_BYTES, 4.0))
    if not found:
        wanted = [p for p in parameters if p.requires_grad]
        found = [AdamW(wanted)] if wanted else []
    costs = [step_cost(optimizer, device, stopwatch, together) for optimizer in found]
    step_bytes = max((taken for _, taken in costs), default=0.0)
    return OptimizerCost(name, *heaviest, sum(ms for ms, _ in costs), step_bytes)


def _state_bytes(original: Optimizer, device: torch.device) -> tuple[float, float]:
    """state_bytes, or what Adam keeps if a clone of the optimizer cannot make a step; and what of
    that is the gradient."""
    dtypes = [
        compat.rows_of_any(p).dtype for group in original.param_groups for p in group["params"]
    ]
    dtype = max(dtypes, key=lambda d: d.itemsize)
    counted = _attempt(lambda: state_bytes(original, dtype, device))
    if counted is None:
        counted = UNKNOWN_STATE_BYTES / 4 * dtype.itemsize
    return counted, float(dtype.itemsize)
