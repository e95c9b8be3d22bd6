"""Unit classes and their names: one rule for the profile, which names them, and for the runtime,
which looks them up in the plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .batch import Signature
    from .unit import Unit


@dataclass(frozen=True)
class Alike:
    """Units of one class: modules of one kind with equally many parameters."""

    name: str
    root: bool
    layered: bool
    units: tuple[Unit, ...]


def parameters_of(unit: Unit, trainable: bool = False) -> int:
    """Elements of a unit's parameters, those of the units that it absorbed included."""
    own = sum(b.layout.numel for b in unit.buffers if b.trainable or not trainable)
    own += sum(1 for r in unit.scalars.refs if r.param.requires_grad or not trainable)
    return own + sum(parameters_of(u, trainable) for u in unit.absorbed)


def group(units: Sequence[Unit], root: Unit, signatures: Mapping[Unit, Signature]) -> list[Alike]:
    """The classes of a model's units, in the order of the model, the root last. What runs cut into
    microbatches and what does not is known once the units are signed."""
    found: dict[tuple, list[Unit]] = {}
    for unit in units:
        if unit.absorber is None:
            signature = signatures.get(unit)
            layered = signature is not None and signature.layered
            key = (unit is root, unit.kind, parameters_of(unit), layered)
            found.setdefault(key, []).append(unit)
    kinds = [kind for is_root, kind, _, _ in found if not is_root]
    classes: list[Alike] = []
    for key, alike in sorted(found.items(), key=lambda item: item[0][0]):
        is_root, kind, numel, layered = key
        name = class_name(kind, numel, alone=kinds.count(kind) == 1)
        if any(c.name == name for c in classes):
            name = twin_name(kind, numel, layered)
        classes.append(Alike(root_name(kind) if is_root else name, is_root, layered, tuple(alike)))
    return classes


def root_name(kind: str) -> str:
    """The class of the root unit."""
    return f"{kind} (root)"


def class_name(kind: str, numel: int, alone: bool) -> str:
    """The class of units of a kind; ``alone`` says that all units of the kind are alike."""
    return kind if alone else f"{kind} ({numel})"


def twin_name(kind: str, numel: int, layered: bool) -> str:
    """The class of units that differ from others of the same name in whether they are cut."""
    return f"{kind} ({numel}, {'cut' if layered else 'whole'})"


def possible_names(kind: str, numels: Iterable[int]) -> list[str]:
    """The classes that a unit can turn out to be in. When its parameters are laid out no forward
    has run: whether it is the root, whether it is cut into microbatches and whether units inside of
    it run together with it (which makes it one of several counts of parameters) is not known."""
    names = [root_name(kind), class_name(kind, 0, alone=True)]
    for numel in numels:
        names.append(class_name(kind, numel, alone=False))
        names += [twin_name(kind, numel, layered) for layered in (True, False)]
    return names
