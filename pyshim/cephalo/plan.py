"""The plan of a run as a worker reads it (plan v1), checked before anything is built on it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

PPM = 1_000_000
ACTIVATIONS = ("keep", "recompute", "offload")


@dataclass(frozen=True)
class RankPlan:
    """What one rank does: ``batch`` samples a step, cut into ``micro_batches``, and the share of
    the training state it stores, in parts per million. ``class_state_ppm`` names the unit classes
    whose share is another one. ``kept_units`` says of how many units of a class, the last in
    forward order, activations are kept whatever ``activations`` says."""

    rank: int
    device: str
    batch: int
    micro_batches: tuple[int, ...]
    state_ppm: int
    activations: str
    class_state_ppm: Mapping[str, int] = field(default_factory=dict)
    kept_units: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """A whole plan: ``ranks[i]`` is rank i's part; batches sum to ``global_batch``."""

    global_batch: int
    shares: str
    ranks: tuple[RankPlan, ...]

    @property
    def world_size(self) -> int:
        return len(self.ranks)

    @property
    def plain(self) -> bool:
        """True if no rank accumulates or recomputes anything. Units then run as one graph: on all
        ranks, since their collectives must come in one order."""
        return all(r.activations == "keep" and len(r.micro_batches) <= 1 for r in self.ranks)

    @property
    def batches(self) -> tuple[int, ...]:
        """Samples of every rank in one full global batch."""
        return tuple(r.batch for r in self.ranks)

    @property
    def state_ppm(self) -> tuple[int, ...]:
        """Share of the training state of every rank; sums to 1,000,000."""
        return tuple(r.state_ppm for r in self.ranks)

    def shares_of(self, names: Iterable[str]) -> tuple[int, ...]:
        """Share of every rank in a unit whose class has one of these names; sums to 1,000,000.
        Where the plan names several of them and does not divide them alike, ``state_ppm``."""
        found = {
            tuple(r.class_state_ppm[name] for r in self.ranks)
            for name in names
            if name in self.ranks[0].class_state_ppm
        }
        return found.pop() if len(found) == 1 else self.state_ppm

    def split(self, samples: int) -> tuple[int, ...]:
        """How ``samples`` (at most the global batch) are dealt to the ranks.

        A full batch gives every rank its own batch; fewer samples are dealt in proportion, by
        largest remainder with ties to the lower rank, so that every rank computes the same answer.
        """
        total = self.global_batch
        if samples == total:
            return self.batches
        if not 0 <= samples <= total:
            raise ValueError(f"{samples} samples do not fit a global batch of {total}")
        parts = [samples * b // total for b in self.batches]
        order = sorted(range(len(parts)), key=lambda i: (-(samples * self.batches[i] % total), i))
        for i in order[: samples - sum(parts)]:
            parts[i] += 1
        return tuple(parts)


def even_plan(world_size: int, batch: int, activations: str = "recompute") -> Plan:
    """The plan that stock FSDP would follow: ``batch`` samples and an equal share on each rank."""
    cuts = [PPM * i // world_size for i in range(world_size + 1)]
    ranks = tuple(
        RankPlan(i, f"rank{i}", batch, (batch,), cuts[i + 1] - cuts[i], activations)
        for i in range(world_size)
    )
    return Plan(batch * world_size, "even", ranks)


def load_plan(path: str | Path) -> Plan:
    """Read and check a plan v1 file. Raises ValueError that names the file and the field."""
    try:
        raw = json.loads(Path(path).read_text(encoding="utf-8"))
    except json.JSONDecodeError as err:
        raise ValueError(f"{path}: not a whole JSON file: {err}") from err
    try:
        return parse_plan(raw)
    except ValueError as err:
        raise ValueError(f"{path}: {err}") from err


def parse_plan(raw: dict) -> Plan:
    """Build a Plan from decoded plan v1 JSON. Raises ValueError that names the field."""
    if not isinstance(raw, dict):
        raise ValueError(f"a plan is a JSON object, not {type(raw).__name__}")
    if raw.get("version") != 1:
        raise ValueError(f"version: plan version {raw.get('version')!r} is not 1")
    ranks = []
    for i, item in enumerate(_field(raw, "ranks", list, "")):
        where = f"ranks[{i}]."
        if not isinstance(item, dict):
            raise ValueError(f"ranks[{i}]: expected an object, found {item!r}")
        part = RankPlan(
            rank=_field(item, "rank", int, where),
            device=_field(item, "device", str, where),
            batch=_field(item, "batch", int, where),
            micro_batches=tuple(_field(item, "micro_batches", list, where)),
            state_ppm=_field(item, "state_ppm", int, where),
            activations=_field(item, "activations", str, where),
            class_state_ppm=_counts(item, "class_state_ppm", where),
            kept_units=_counts(item, "kept_units", where),
        )
        _check_rank(part, i, where)
        ranks.append(part)
    plan = Plan(
        _field(raw, "global_batch", int, ""), str(raw.get("shares", "ragged")), tuple(ranks)
    )
    if not ranks:
        raise ValueError("ranks: a plan needs at least one rank")
    if sum(plan.batches) != plan.global_batch:
        raise ValueError(
            f"global_batch: {plan.global_batch}, but the ranks' batches sum to {sum(plan.batches)}"
        )
    if sum(plan.state_ppm) != PPM:
        raise ValueError(f"state_ppm: the ranks' shares sum to {sum(plan.state_ppm)}, not {PPM}")
    _check_classes(plan)
    return plan


def _check_classes(plan: Plan) -> None:
    names = plan.ranks[0].class_state_ppm.keys()
    for part in plan.ranks:
        if part.class_state_ppm.keys() != names:
            raise ValueError(
                f"ranks[{part.rank}].class_state_ppm: names {sorted(part.class_state_ppm)}, "
                f"and rank 0 names {sorted(names)}"
            )
    for name in names:
        total = sum(part.class_state_ppm[name] for part in plan.ranks)
        if total != PPM:
            raise ValueError(f"class_state_ppm.{name}: the shares sum to {total}, not {PPM}")


def _counts(item: dict, name: str, where: str) -> dict[str, int]:
    """An optional object of numbers that are not negative."""
    if name not in item:
        return {}
    counts = _field(item, name, dict, where)
    for key, value in counts.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ValueError(f"{where}{name}.{key}: expected a count of 0 or more, found {value!r}")
    return counts


def _field(item: dict, name: str, kind: type, where: str):
    value = item.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{where}{name}: expected {kind.__name__}, found {value!r}")
    return value


def _check_rank(part: RankPlan, index: int, where: str) -> None:
    if part.rank != index:
        raise ValueError(f"{where}rank: {part.rank} stands at place {index}")
    if part.batch < 0 or part.state_ppm < 0:
        raise ValueError(f"{where}batch, state_ppm: must not be negative")
    if any(not isinstance(m, int) or m < 1 for m in part.micro_batches):
        raise ValueError(
            f"{where}micro_batches: {list(part.micro_batches)} must be counts of 1 or more"
        )
    if sum(part.micro_batches) != part.batch:
        raise ValueError(
            f"{where}micro_batches: {list(part.micro_batches)} sum to {sum(part.micro_batches)}, "
            f"not to the batch of {part.batch}"
        )
    if part.activations not in ACTIVATIONS:
        raise ValueError(
            f"{where}activations: {part.activations!r} is none of {', '.join(ACTIVATIONS)}"
        )
