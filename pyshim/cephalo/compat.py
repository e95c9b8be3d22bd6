"""The one module for private torch names and version switches, each with its reason.

Everything else in the package uses public names only, so a torch release that moves something
breaks here and nowhere else. Supported: torch 2.8 and newer.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.utils import _pytree

#: torch 2.14 renames the single-tensor collectives and warns about the old names.
all_gather_flat = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)


def torch_version() -> tuple[int, int]:
    """Return torch's (major, minor)."""
    major, minor = torch.__version__.split(".")[:2]
    return int(major), int(minor)


#: torch 2.10 and 2.11 send every DTensor, subclasses included, to a C++ dispatcher that ignores an
#: overridden ``__torch_dispatch__`` (pytorch issue 177716, mended in 2.12). There the subclass is
#: reached through ``__torch_function__`` and a dispatch mode instead, which costs more per call.
DISPATCH_OVERRIDE_IGNORED = (2, 10) <= torch_version() < (2, 12)

#: The ``__torch_function__`` that means "none": attribute reads stay in C++.
no_torch_function = torch._C._disabled_torch_function_impl


#: The attribute of a DTensor that holds its local tensor, to give it a name of our own.
local_slot = getattr(DTensor, "_local_tensor", None) or property(
    lambda self: self._local_tensor, lambda self, value: setattr(self, "_local_tensor", value)
)


#: A DTensor's own local tensor object: no autograd node, no collective.
local_of: Callable[[DTensor], torch.Tensor] = operator.attrgetter("_local_tensor")


def rows_of_any(value: Any) -> Any:
    """Return a DTensor's own local tensor object, and anything else as it is."""
    return value._local_tensor if isinstance(value, DTensor) else value


def set_local(tensor: DTensor, local: torch.Tensor) -> None:
    """Put another local tensor (same shape and dtype) under a DTensor."""
    tensor._local_tensor = local


def spec_of(tensor: DTensor) -> Any:
    """Return the sharding spec of a DTensor; it is immutable and may be shared."""
    return tensor._spec


def rewrap(template: DTensor, local: torch.Tensor) -> Any:
    """Make a tensor like ``template`` around ``local``, or return None if the dtypes differ."""
    spec = template._spec
    if local.dtype is not spec.tensor_meta.dtype:
        return None
    return _new(type(template), local, spec, requires_grad=False)


_new = DTensor.__new__


def construct(cls: type, local: torch.Tensor, spec: Any, requires_grad: bool = False) -> Any:
    """Make a DTensor of class ``cls`` around ``local``; ``from_local`` is 20 times slower."""
    return DTensor.__new__(cls, local, spec, requires_grad=requires_grad)


@functools.lru_cache(maxsize=8192)
def _spec(mesh_id: int, holder: ById, shape: torch.Size, dtype: torch.dtype, sharded: bool) -> Any:
    del mesh_id
    meta = torch.empty(shape, dtype=dtype, device="meta")
    placement = Shard(0) if sharded else Replicate()
    made = DTensor.from_local(
        meta, holder.mesh, [placement], run_check=False, shape=shape, stride=meta.stride()
    )
    return made._spec


class ById:
    """Carries a mesh past a cache's key, beside its ``id``: equal meshes may have other groups."""

    __slots__ = ("mesh",)

    def __init__(self, mesh: DeviceMesh) -> None:
        self.mesh = mesh

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ById)


def make_spec(mesh: DeviceMesh, shape: torch.Size, dtype: torch.dtype, sharded: bool) -> Any:
    """Return the spec of a contiguous tensor on ``mesh``: ``Shard(0)`` or ``Replicate``."""
    return _spec(id(mesh), ById(mesh), shape, dtype, sharded)


def replicated(local: torch.Tensor, mesh: DeviceMesh) -> DTensor:
    """Show ``local``, the same on every rank, as a DTensor on ``Replicate``."""
    return construct(DTensor, local, make_spec(mesh, local.shape, local.dtype, False))


def allow_foreach(cls: type) -> None:
    """Let optimizers and clipping choose their foreach form for ``cls``.

    Stock torch adds DTensor to these two lists; they compare exact types.
    """
    from torch.optim import optimizer
    from torch.utils import _foreach_utils

    for types in (optimizer._foreach_supported_types, _foreach_utils._foreach_supported_types):
        if cls not in types:
            types.append(cls)


# -- used by the units ---------------------------------------------------------------------------

#: torch 2.14 renames this one too.
reduce_scatter_flat = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)

#: The engine's own entry, taken before anything can replace the public name.
backward = torch.autograd.backward

#: Nested structures: no release from 2.8 to 2.15 has a public name for pytrees, and others
#: (Hugging Face) register their output classes in this one.
tree_flatten = _pytree.tree_flatten
tree_unflatten = _pytree.tree_unflatten


def tree_map_tensors(function: Callable[[torch.Tensor], Any], tree: Any) -> Any:
    """Apply ``function`` to every tensor in a nested structure."""
    return _pytree.tree_map_only(torch.Tensor, function, tree)


def tensors_of(tree: Any) -> list[torch.Tensor]:
    """Return all tensors in a nested structure, dataclasses and dictionaries of any kind included,
    which torch's trees take for leaves unless somebody registered them."""
    if type(tree) is torch.Tensor:
        return [tree]
    found = []
    for leaf in tree_flatten(tree)[0]:
        if isinstance(leaf, torch.Tensor):
            found.append(leaf)
        elif isinstance(leaf, Mapping):
            found += tensors_of(list(leaf.values()))
        elif dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            found += tensors_of([getattr(leaf, f.name) for f in dataclasses.fields(leaf)])
    return found


#: Copying, adding and scaling lists of tensors, of two dtypes too, in few kernels: what
#: optimizers and FSDP2 use. No public name.
foreach_copy_ = torch._foreach_copy_
foreach_add_ = torch._foreach_add_
foreach_mul_ = torch._foreach_mul_


def queue_callback(callback: Callable[[], None]) -> None:
    """Run ``callback`` at the end of the backward under way. Private, and what DDP and FSDP2
    themselves use: no public hook knows the end of a backward."""
    torch.autograd.Variable._execution_engine.queue_callback(callback)


def parameters_of(module: nn.Module) -> dict[str, nn.Parameter | None]:
    """Return the module's own table of parameters, to write it as FSDP2 does: ``setattr`` runs
    checks and user code on every swap of a hot path."""
    return module._parameters


#: Where checkpoint wrappers find ``torch.utils.checkpoint.checkpoint``: a global of their module.
CHECKPOINT_OF_WRAPPERS = (checkpoint_wrapper, "torch_utils_checkpoint")


def without_checkpoint(module: nn.Module) -> nn.Module | None:
    """Return the module inside a checkpoint wrapper, or None if ``module`` is not a bare one. The
    wrapper has no public name; scripts import it from here."""
    if isinstance(module, checkpoint_wrapper.CheckpointWrapper) and not (
        module._forward_hooks or module._forward_pre_hooks
    ):
        return module._checkpoint_wrapped_module
    return None


def saved_tensors_hooked() -> bool:
    """Tell whether hooks on saved tensors (checkpointing, offloading) are in force. Private: the
    public functions set and forbid them, but do not tell."""
    return torch._C._autograd._top_saved_tensors_default_hooks(False) is not None


def backend_of(group: dist.ProcessGroup | None, device: torch.device) -> str:
    """Return the backend that moves tensors of ``device``: "nccl", "gloo", …"""
    name = dist.get_backend(group)
    for part in name.split(","):
        kind, _, backend = part.rpartition(":")
        if kind in ("", device.type):
            return backend
    return name
