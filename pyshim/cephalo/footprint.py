"""Bytes that units and collectives hold while others compute, from their sizes alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .capture import UnitClass
from .engine import Engine
from .gathered import FlatBuffer
from .reductions import IN_FLIGHT
from .unit import Unit


def _members(unit: Unit) -> Iterable[Unit]:
    yield unit
    for inner in unit.absorbed:
        yield from _members(inner)


def gathered_bytes(unit: Unit) -> int:
    """The gathered parameters, in the compute dtype."""
    return sum(b.layout.numel * b.compute_dtype.itemsize for u in _members(unit) for b in u.buffers)


def gradient_bytes(unit: Unit) -> int:
    """The buffer that microbatches add their gradients to."""
    return sum(
        b.layout.numel * b.sum_dtype.itemsize
        for u in _members(unit)
        for b in u.buffers
        if b.trainable
    )


def reducing_bytes(unit: Unit) -> int:
    """A reduction under way with even shares: what is sent, and what has arrived."""
    return sum(_sent_bytes(buffer) for buffer in _trainable(unit)) + received_bytes(unit)


def received_bytes(unit: Unit) -> int:
    """What has arrived of a reduction with even shares; it grows with a rank's share. Gloo receives
    every rank's piece before it adds them up; NCCL adds on the way."""
    return sum(
        _sent_bytes(b) // (b.comm.world_size if b.comm.backend == "nccl" else 1)
        for b in _trainable(unit)
    )


def _trainable(unit: Unit) -> Iterable[FlatBuffer]:
    return (b for member in _members(unit) for b in member.buffers if b.trainable)


def _sent_bytes(buffer: FlatBuffer) -> int:
    wire = min(buffer.reduce_dtype.itemsize, buffer.sum_dtype.itemsize)
    return buffer.layout.numel * wire


@dataclass(frozen=True)
class Static:
    """Bytes that the units hold around the compute of one of a class, apart from the root's and
    held ones: the unit itself, its gradients, the neighbour's gather, reductions under way."""

    most: int
    """Of the unit around which most is held."""
    first: int
    """Of the first unit in forward order, the last of the backward."""
    issuing: int
    """Most bytes held after the compute, while a unit's reduction is issued."""


def static_of(order: list[Unit], made: UnitClass, held: int, late: int) -> Static:
    """``order`` is that of the units' calls in a forward, without the root. Of what the class has,
    ``held`` bytes are counted elsewhere; ``late`` ones are gradients that come with its compute."""
    if made.root and order:
        # The root has no neighbour: the first unit is gathered beside the start of its forward, the
        # last one is there until its backward.
        around = max(gathered_bytes(order[0]), gathered_bytes(order[-1])) + late
        return Static(around, around, issuing_bytes(made.units[0]) - held)
    ordered = sorted(made.units, key=lambda u: order.index(u) if u in order else len(order))
    around = [_around(order, unit) for unit in ordered]
    issuing = [_issuing(order, unit) for unit in ordered]
    return Static(max(around) + late, around[0] + late, max(issuing) - held)


def _around(order: list[Unit], unit: Unit) -> int:
    if unit not in order:
        return gathered_bytes(unit) + gradient_bytes(unit)
    at = order.index(unit)
    following = [gathered_bytes(u) for u in order[at + 1 : at + 2]]
    previous = [gathered_bytes(u) for u in order[max(0, at - 1) : at]]
    reducing = [reducing_bytes(u) for u in order[at + 1 : at + 1 + IN_FLIGHT]]
    forward = gathered_bytes(unit) + sum(following)
    backward = gathered_bytes(unit) + gradient_bytes(unit) + sum(previous) + sum(reducing)
    return max(forward, backward)


def _issuing(order: list[Unit], unit: Unit) -> int:
    """The unit is freed, and all but one of the reductions before it have ended."""
    if unit not in order:
        return issuing_bytes(unit)
    at = order.index(unit)
    previous = [gathered_bytes(u) for u in order[max(0, at - 1) : at]]
    reducing = [reducing_bytes(u) for u in order[at + 1 : at + IN_FLIGHT]]
    return issuing_bytes(unit) + sum(previous) + sum(reducing)


def issuing_bytes(unit: Unit) -> int:
    """Gradients that become a reduction under way: Gloo's parts of them are copied out."""
    return gradient_bytes(unit) + reducing_bytes(unit)


def held_bytes(engine: Engine, classes: list[UnitClass]) -> dict[str, int]:
    """By class, what is gathered, with gradients, from the start of a forward to the end of the
    backward: a root around other units, and units that run whole and cannot know when their
    backward is over (groups of modules, and units whose arguments want no gradient)."""
    return {
        made.name: sum(gathered_bytes(u) + gradient_bytes(u) for u in made.units)
        for made in classes
        if is_held(engine, made)
    }


def is_held(engine: Engine, made: UnitClass) -> bool:
    """True if units of the class are gathered once, from a forward to the end of its backward."""
    if made.root:
        return len(engine.units) > 1
    wants = any(w for call in made.calls for w in call.wants)
    grouped = len(made.units[0].modules) > 1
    return made.whole_batch and bool(made.calls) and (grouped or not wants)
