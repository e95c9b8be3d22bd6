"""``fully_shard``: FSDP2's entry, with the plan's shares."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy
from torch.distributed.tensor import DTensor, Shard

from .alone import buffer_kind
from .classes import possible_names
from .flat import ParamRef
from .module import attach, state_of
from .runtime import Runtime, current
from .unit import Precision, Unit, kind_of

_sharded_originals: dict[int, tuple[weakref.ref, str]] = {}
"""Original parameters already in a unit, to notice ties that reach into two units."""


def fully_shard(
    module: nn.Module | Sequence[nn.Module],
    *,
    mesh: DeviceMesh | None = None,
    reshard_after_forward: bool | int | None = None,
    shard_placement_fn: Callable[[nn.Parameter], Shard | None] | None = None,
    mp_policy: MixedPrecisionPolicy = MixedPrecisionPolicy(),
    offload_policy: OffloadPolicy = OffloadPolicy(),
    ignored_params: set[nn.Parameter] | None = None,
    dp_mesh_dims: Any = None,
) -> Any:
    """Shard the parameters of ``module`` (or of several, as one unit) that no unit inside it owns.

    Arguments and result are those of ``torch.distributed.fsdp.fully_shard``. The module's class
    becomes ``FSDP<Class>``; its parameters become DTensors on ``Shard(0)`` whose local rows follow
    the plan. ``reshard_after_forward`` is a hint. Raises ValueError or NotImplementedError for what
    is not supported: a mesh of more than one dimension, CPU offload, other placements, ties across
    units.
    """
    modules = [module] if isinstance(module, nn.Module) else list(module)
    _refuse_unsupported(modules, mesh, offload_policy, dp_mesh_dims)
    runtime = current()
    if mesh is not None and mesh.size() != runtime.comm.world_size:
        raise NotImplementedError(
            f"fully_shard on a mesh of {mesh.size()} of {runtime.comm.world_size} ranks is not "
            f"supported under cephalorun; use a mesh of one dimension over all ranks"
        )
    mesh = mesh or _default_mesh(runtime)
    _move_buffers(modules, runtime.device)
    refs = _collect(modules, set(ignored_params or ()), shard_placement_fn)
    precision = Precision(
        mp_policy.param_dtype,
        mp_policy.reduce_dtype,
        mp_policy.output_dtype,
        mp_policy.cast_forward_inputs,
    )
    shares = runtime.plan.shares_of(possible_names(kind_of(modules), _sizes(modules, refs)))
    kind = buffer_kind(runtime)
    unit = Unit(modules, refs, runtime.comm, mesh, runtime.clock, shares, precision, kind)
    for member in modules:
        attach(member, runtime, unit)
    return module


def _sizes(modules: Sequence[nn.Module], refs: Sequence[ParamRef]) -> set[int]:
    """Parameters of the unit: its own, and those of the units inside of it as well."""
    inside = {id(p): p for m in modules for p in m.parameters() if isinstance(p, DTensor)}
    own = sum(r.param.numel() for r in refs)
    return {own, own + sum(p.numel() for p in inside.values())}


def _refuse_unsupported(modules, mesh, offload_policy, dp_mesh_dims) -> None:
    if not modules:
        raise ValueError("fully_shard needs at least one module")
    for member in modules:
        if isinstance(member, (nn.ModuleList, nn.ModuleDict)):
            raise ValueError(
                f"fully_shard cannot shard a {type(member).__name__}: it has no forward"
            )
        if state_of(member) is not None:
            raise ValueError(f"{type(member).__name__} has already been sharded")
    if mesh is not None and mesh.ndim != 1:
        raise NotImplementedError(
            f"fully_shard on a mesh of {mesh.ndim} dimensions is not supported under cephalorun; "
            f"use a mesh of one dimension over all ranks"
        )
    if dp_mesh_dims is not None:
        raise NotImplementedError("fully_shard(dp_mesh_dims=…) is not supported under cephalorun")
    if isinstance(offload_policy, CPUOffloadPolicy):
        raise NotImplementedError("CPUOffloadPolicy is not supported under cephalorun")


def _default_mesh(runtime: Runtime) -> DeviceMesh:
    if runtime.mesh is None:
        runtime.mesh = init_device_mesh(runtime.device.type, (runtime.comm.world_size,))
    return runtime.mesh


def _move_buffers(modules: Iterable[nn.Module], device: torch.device) -> None:
    for owner in _own_modules(modules):
        for name, buffer in owner.named_buffers(recurse=False):
            if buffer is not None and buffer.device != device and not buffer.is_meta:
                setattr(owner, name, buffer.to(device))


def _own_modules(modules: Iterable[nn.Module]) -> list[nn.Module]:
    """All modules inside that no other unit owns, each once."""
    found: dict[nn.Module, None] = {}

    def visit(member: nn.Module) -> None:
        if state_of(member) is None and member not in found:
            found[member] = None
            for child in member.children():
                visit(child)

    for member in modules:
        visit(member)
    return list(found)


def _collect(modules, ignored: set[nn.Parameter], placement) -> list[ParamRef]:
    names = {
        id(p): name
        for member in reversed(modules)
        for name, p in member.named_parameters(remove_duplicate=False)
    }
    refs: dict[int, ParamRef] = {}
    for owner in _own_modules(modules):
        for attribute, param in owner.named_parameters(recurse=False, remove_duplicate=False):
            if param in ignored:
                continue
            known = refs.get(id(param))
            if known is None:
                _check(param, names[id(param)], placement)
                known = refs[id(param)] = ParamRef(names[id(param)], [], param)
            known.places.append((owner, attribute))
    for ref in refs.values():
        key = id(ref.param)
        _sharded_originals[key] = (
            weakref.ref(ref.param, lambda _, key=key: _sharded_originals.pop(key, None)),
            ref.name,
        )
    return list(refs.values())


def _check(param: nn.Parameter, name: str, placement) -> None:
    if isinstance(param, DTensor):
        raise NotImplementedError(
            f"parameter {name} is a DTensor already (tensor parallel?); only plain parameters "
            f"can be sharded under cephalorun"
        )
    tied = _sharded_originals.get(id(param))
    if tied is not None and tied[0]() is param:
        raise ValueError(
            f"parameter {name} is tied to {tied[1]}, which another unit owns; "
            f"put both modules into one unit: fully_shard([module_a, module_b])"
        )
    if placement is not None and placement(param) not in (None, Shard(0)):
        raise NotImplementedError(f"shard_placement_fn: parameter {name} must be on Shard(0)")
