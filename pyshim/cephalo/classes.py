"""Names of unit classes: one rule for the profile, which names them, and for the runtime, which
looks them up in the plan."""

from __future__ import annotations

from collections.abc import Iterable


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
