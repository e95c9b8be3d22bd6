"""Layered accumulation: all microbatches through one unit before the next unit runs.

The unit's parameters are gathered once for the forward and once for the backward, and its gradients
are reduced once, however many microbatches there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.autograd.graph import GradientEdge, get_gradient_edge

from . import compat
from .batch import Joiner, unflatten_call
from .offload import Offloader, Stored
from .randomness import AutocastState, RandomState


class LayeredCall:
    """One call of a unit, cut into microbatches.

    ``run`` runs the module on one microbatch with the parameters gathered. ``around`` is called
    with "forward" or "backward" and gives a context in which they are; its exit frees them and,
    after the backward, starts the reduction. ``after_backward`` is called when that of a microbatch
    is over.
    """

    def __init__(
        self,
        run: Callable[..., Any],
        around: Callable[[str], Any],
        after_backward: Callable[[], None],
        leaves: Sequence[Any],
        spec: Any,
        cut: Sequence[bool],
        bounds: Sequence[tuple[int, int]],
        device: torch.device,
        keep: bool,
        offloader: Offloader | None = None,
    ):
        self._run, self._around, self._after_backward = run, around, after_backward
        self._leaves, self._spec, self._cut = list(leaves), spec, list(cut)
        self._bounds, self._device, self._keep = list(bounds), device, keep
        self._tensor_at = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
        self._autocast = AutocastState(device)
        self._offloader = offloader
        self._on_host: list[bool] = []
        """For each tensor whether it goes to the host: activations, cut into microbatches."""
        self._stored: list[Stored] = []
        self._random: list[RandomState] = []
        self._kept: list[tuple[list[torch.Tensor], list[GradientEdge | None]]] = []
        self.result_spec: Any = None
        self.result_leaves: list[Any] = []

    def apply(self, anchor: torch.Tensor) -> Any:
        """Run the call. ``anchor`` requires a gradient, so that the unit gets a backward even if no
        argument does."""
        tensors = [self._leaves[i] for i in self._tensor_at]
        # The tensors live in the graph, which may offload or check them; not here a second time.
        self._leaves = [None if isinstance(x, torch.Tensor) else x for x in self._leaves]
        outputs = _Layered.apply(self, anchor, *tensors)
        leaves, rest = list(self.result_leaves), iter(outputs)
        leaves = [next(rest) if x is _TENSOR else x for x in leaves]
        return compat.tree_unflatten(leaves, self.result_spec)

    def forward(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        joiner = Joiner(self._bounds[-1][1], tensors)
        self._likeness = [_Likeness(t) for t in tensors]
        self._on_host = [
            self._offloader is not None and self._cut[place] and tensor.requires_grad
            for place, tensor in zip(self._tensor_at, tensors)
        ]
        with self._around("forward"):
            for start, end in self._bounds:
                pieces = self._pieces(tensors, start, end)
                if any(self._on_host):
                    going = [p for p, goes in zip(pieces, self._on_host) if goes]
                    self._stored.append(self._offloader.put(going))
                if self._keep:
                    with torch.enable_grad():
                        result = self._call(pieces)
                    self._kept.append((pieces, _edges(result)))
                    result = compat.tree_map_tensors(torch.Tensor.detach, result)
                else:
                    self._random.append(RandomState(self._device))
                    result = self._call(pieces)
                joiner.add(start, end, result)
                del result, pieces
        self._autocast.forget_casts()
        self.result_spec = joiner.spec
        self.result_leaves = [_TENSOR if isinstance(x, torch.Tensor) else x for x in joiner.leaves]
        return tuple(x for x in joiner.leaves if isinstance(x, torch.Tensor))

    def saved(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
        """What of ``tensors`` the graph must hold until the backward; None for what is on the
        host."""
        return [None if goes else t for t, goes in zip(tensors, self._on_host)]

    def backward(
        self, tensors: Sequence[torch.Tensor | None], grads: Sequence[torch.Tensor | None]
    ) -> list[torch.Tensor | None]:
        """Gradients of the call's tensors, given what was ``saved`` and the outputs' gradients."""
        if (self._keep and not self._kept) or (any(self._on_host) and not self._stored):
            raise RuntimeError(
                "backward a second time through a unit whose activations are kept or offloaded; "
                "plan recomputation for this rank, or go backward once"
            )
        totals: list[torch.Tensor | None] = [None] * len(tensors)
        now = RandomState(self._device)
        with self._around("backward"):
            for index in reversed(range(len(self._bounds))):
                start, end = self._bounds[index]
                if self._keep:
                    pieces, edges = self._kept.pop()
                else:
                    self._random[index].restore()
                    pieces = self._pieces(tensors, start, end, fetch=any(self._on_host))
                    with torch.enable_grad(), self._autocast.context():
                        edges = _edges(self._call(pieces))
                wanted = [
                    (edge, grad[start:end])
                    for edge, grad in zip(edges, grads)
                    if grad is not None and edge is not None
                ]
                if wanted:
                    compat.backward([w[0] for w in wanted], [w[1] for w in wanted])
                del edges, wanted
                self._collect(totals, pieces, start, end)
                self._after_backward()
        self._autocast.forget_casts()
        if not self._keep:
            now.restore()
        return totals

    def _pieces(self, tensors, start: int, end: int, fetch: bool = False) -> list[torch.Tensor]:
        """The microbatch's tensors, cut from the graph but wanting gradients where it does; with
        ``fetch`` those that are on the host come from there."""
        fetched = iter(self._offloader.get(self._stored.pop()) if fetch else ())
        pieces = []
        for at, (place, tensor) in enumerate(zip(self._tensor_at, tensors)):
            if fetch and self._on_host[at]:
                piece = next(fetched)
            else:
                piece = tensor.detach()
                if self._cut[place]:
                    piece = piece[start:end]
            pieces.append(piece.requires_grad_(self._likeness[at].requires_grad))
        return pieces

    def _call(self, pieces) -> Any:
        leaves = list(self._leaves)
        for place, piece in zip(self._tensor_at, pieces):
            leaves[place] = piece
        args, kwargs = unflatten_call(leaves, self._spec)
        return self._run(*args, **kwargs)

    def _collect(self, totals, pieces, start: int, end: int) -> None:
        """Put the microbatch's input gradients in their place; whole tensors get the sum."""
        for at, (place, piece) in enumerate(zip(self._tensor_at, pieces)):
            if piece.grad is None:
                continue
            if self._cut[place]:
                if totals[at] is None:
                    totals[at] = self._likeness[at].zeros(piece.device)
                totals[at][start:end].copy_(piece.grad)
            else:
                totals[at] = piece.grad if totals[at] is None else totals[at] + piece.grad
            piece.grad = None


@torch.enable_grad()
def _edges(result: Any) -> list[GradientEdge | None]:
    """Where the gradient of each tensor of a result enters its graph; None for one that wants none.
    The graph needs no values of results that it did not save: they were copied into the call's.
    The edge is that of a view, since torch 2.8 takes none into an autograd function of Python's."""
    leaves = compat.tree_flatten(result)[0]
    return [
        get_gradient_edge(x.view_as(x)) if x.requires_grad else None
        for x in leaves
        if isinstance(x, torch.Tensor)
    ]


class _Likeness:
    """What is known of a tensor that may be elsewhere."""

    def __init__(self, tensor: torch.Tensor):
        self.requires_grad = tensor.requires_grad
        self._shape, self._dtype = tensor.shape, tensor.dtype

    def zeros(self, device: torch.device) -> torch.Tensor:
        return torch.zeros(self._shape, dtype=self._dtype, device=device)


_TENSOR = object()
"""Marks the place of a tensor among a call's result leaves."""


class _Layered(torch.autograd.Function):
    @staticmethod
    def forward(ctx, call: LayeredCall, anchor: torch.Tensor, *tensors: torch.Tensor):
        ctx.call = call
        ctx.set_materialize_grads(False)
        outputs = call.forward(tensors)
        ctx.save_for_backward(*call.saved(tensors))
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads):
        return (None, None, *ctx.call.backward(ctx.saved_tensors, grads))
