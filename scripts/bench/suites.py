"""The benchmarks: which rows on which parts. Each suite is one table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from models import Shape
from rows import PPM, Row, even_ppm, of_plan

MICRO = 4
"""Samples of a microbatch where both sides have the same."""


@dataclass(frozen=True)
class Scale:
    """What a machine can take: sizes on a GPU, and small ones that only show that it all works."""

    gpt: Shape
    long: Shape
    wide: Shape
    large: Shape
    vit: Shape
    counts: tuple[int, ...]
    batch: int
    """Global batch of the planned rows."""
    dtypes: tuple[str, ...]
    plans: tuple[int, ...]
    """Global batches of the plans whose predictions are compared with measured steps."""


GPU = Scale(
    gpt=Shape("gpt", 12, 1024, 16, 512, 16384),
    long=Shape("gpt", 8, 1024, 16, 2048, 16384),
    wide=Shape("gpt", 8, 1024, 16, 256, 131072),
    large=Shape("gpt", 24, 2048, 16, 512, 16384),
    vit=Shape("vit", 24, 1024, 16, 256, 1000),
    counts=(2, 4, 8, 16, 32),
    batch=256,
    dtypes=("bf16", "fp16"),
    plans=(32, 64, 128, 256),
)
CPU = Scale(
    gpt=Shape("gpt", 2, 64, 4, 64, 256),
    long=Shape("gpt", 2, 64, 4, 128, 256),
    wide=Shape("gpt", 2, 64, 4, 32, 2048),
    large=Shape("gpt", 2, 64, 4, 64, 256),
    vit=Shape("vit", 2, 64, 4, 16, 10),
    counts=(2, 4),
    batch=16,
    dtypes=("fp32",),
    plans=(16, 32),
)

Planner = Callable[[Shape, str, int], dict[str, Any]]
"""The plan for a model, a dtype and a global batch, on the parts of the suite."""
MakeRows = Callable[[Scale, int, Planner], list[Row]]


@dataclass(frozen=True)
class Suite:
    """``parts`` names how the device is cut. ``make`` gets the scale, the number of parts and the
    planner. ``alone`` rows get workers of their own, since they are there to fail. Those of an
    ``at_once`` suite run right after its plans were made, before anything else."""

    title: str
    parts: str
    make: MakeRows
    alone: bool = False
    at_once: bool = False
    memory_bytes: int | None = None
    """Of all parts together; None: what the card has."""


def accumulation(scale: Scale, world: int, plan: Planner) -> list[Row]:
    """Microbatches of one size on equal parts: stock, and ours with each treatment of
    activations. The other model and dtype have one number of microbatches."""
    middle = scale.counts[len(scale.counts) // 2]
    rows = []
    for count in scale.counts:
        reduced_once = count in (scale.counts[0], middle)
        policies = ("recompute", "offload", "keep")
        rows += _accumulated(scale.gpt, scale.dtypes[0], count, world, policies, reduced_once)
    for shape in (scale.gpt, scale.vit):
        for dtype in scale.dtypes:
            if (shape, dtype) != (scale.gpt, scale.dtypes[0]):
                count = scale.counts[1]
                rows += _accumulated(shape, dtype, count, world, ("recompute",), False)
    return rows


def _accumulated(
    shape: Shape, dtype: str, count: int, world: int, policies: tuple[str, ...], reduced_once: bool
) -> list[Row]:
    """One number of microbatches: stock's row, to which the others are compared."""
    base = f"{shape.kind} {dtype}, {count} microbatches, FSDP2"
    micro = [[MICRO] * count for _ in range(world)]
    common = {"table": "accumulation", "shape": shape, "dtype": dtype, "micro": micro}
    slow = {"warm_up": 0 if count > 8 else 1, "steps": 1}
    rows = [Row(name=base, engine="fsdp2", **slow, **common)]
    if reduced_once:
        name = f"{base}, gradients reduced once"
        rows.append(Row(name=name, base=base, engine="fsdp2", sync_each=False, **slow, **common))
    for policy in policies:
        rows.append(
            Row(
                name=f"{shape.kind} {dtype}, {count} microbatches, cephalorun, {policy}",
                base=base,
                engine="cephalo",
                activations=[policy] * world,
                **common,
            )
        )
    return rows


def equal(scale: Scale, world: int, plan: Planner) -> list[Row]:
    """One microbatch on equal parts, nothing recomputed: what our machinery costs."""
    rows = []
    for shape in (scale.gpt, scale.vit):
        for dtype in scale.dtypes:
            base = f"{shape.kind} {dtype}, FSDP2"
            common = {
                "table": "equal parts",
                "shape": shape,
                "dtype": dtype,
                "steps": 10,
                "micro": [[16]] * world,
            }
            rows.append(Row(name=base, engine="fsdp2", recompute=False, **common))
            rows.append(
                Row(
                    name=f"{shape.kind} {dtype}, cephalorun, keep",
                    base=base,
                    engine="cephalo",
                    activations=["keep"] * world,
                    **common,
                )
            )
    return rows


def alone(scale: Scale, world: int, plan: Planner) -> list[Row]:
    """World size 1."""
    rows = []
    for shape in (scale.gpt, scale.vit):
        base = f"{shape.kind}, FSDP2"
        common = {
            "table": "one rank",
            "shape": shape,
            "dtype": scale.dtypes[0],
            "micro": [[16]],
            "steps": 20,
            "warm_up": 5,
        }
        rows.append(Row(name=base, engine="fsdp2", recompute=False, **common))
        rows.append(
            Row(name=f"{shape.kind}, PyTorch with autocast", base=base, engine="plain", **common)
        )
        rows.append(
            Row(
                name=f"{shape.kind}, cephalorun",
                base=base,
                engine="cephalo",
                activations=["keep"],
                **common,
            )
        )
    return rows


def shares(scale: Scale, world: int, plan: Planner) -> list[Row]:
    """Unequal shares of the state, everything else equal."""
    rows = []
    for ratio in (1, 2, 4, 8, 0):
        weights = [ratio, *[1] * (world - 1)] if ratio else [0, *[1] * (world - 1)]
        ends = [PPM * sum(weights[: i + 1]) // sum(weights) for i in range(world)]
        ppm = [b - a for a, b in zip([0, *ends], ends)]
        name = f"shares {':'.join(map(str, weights))}"
        rows.append(
            Row(
                table="shares",
                name=name,
                base="shares " + ":".join("1" * world),
                engine="cephalo",
                shape=scale.gpt,
                dtype=scale.dtypes[0],
                steps=6,
                micro=[[MICRO, MICRO]] * world,
                state_ppm=ppm if ratio != 1 else even_ppm(world),
            )
        )
    return rows


def unequal(scale: Scale, world: int, plan: Planner) -> list[Row]:
    """The planner's batches against equal ones on unequal parts, where computing binds."""
    rows = []
    for shape, batch in ((scale.long, scale.batch // 2), (scale.vit, scale.batch)):
        dtype = scale.dtypes[0]
        count = max(1, batch // world // MICRO)
        common = {"table": "unequal parts", "shape": shape, "dtype": dtype}
        even = f"{shape.kind} {shape.sequence}, even split"
        micro = [[MICRO] * count for _ in range(world)]
        rows.append(Row(name=even, engine="cephalo", micro=micro, **common))
        best = plan(shape, dtype, batch)
        rows.append(
            of_plan(best, name=f"{shape.kind} {shape.sequence}, planned", base=even, **common)
        )
        again = of_plan(
            best,
            name=f"{shape.kind} {shape.sequence}, planned batches, recomputed",
            base=even,
            **common,
        )
        cut = [_cut(sum(m)) for m in again.micro]
        rows.append(_recomputed(again, cut))
    return rows


def _recomputed(row: Row, micro: list[list[int]]) -> Row:
    """A planned row with other microbatches and everything recomputed."""
    policies = ["recompute"] * len(micro)
    return dataclasses.replace(row, micro=micro, activations=policies, details=[], predicted={})


def _cut(batch: int) -> list[int]:
    return [MICRO] * (batch // MICRO) + ([batch % MICRO] if batch % MICRO else [])


def stock_unequal(scale: Scale, world: int, plan: Planner) -> list[Row]:
    """Ordinary accumulation with the planner's global batch on unequal parts."""
    rows = []
    for shape, batch in ((scale.gpt, scale.batch // 2),):
        count = max(1, batch // world // MICRO)
        base = f"{shape.kind}, FSDP2, {count} microbatches"
        common = {"table": "unequal parts, accumulation", "shape": shape, "dtype": scale.dtypes[0]}
        rows.append(
            Row(
                name=base,
                engine="fsdp2",
                micro=[[MICRO] * count] * world,
                warm_up=0,
                steps=1,
                **common,
            )
        )
        best = plan(shape, scale.dtypes[0], batch)
        rows.append(of_plan(best, name=f"{shape.kind}, planned", base=base, **common))
        again = of_plan(
            best, name=f"{shape.kind}, planned batches in {count} microbatches", base=base, **common
        )
        cut = [[sum(m) // count + (i < sum(m) % count) for i in range(count)] for m in again.micro]
        cut = [[size for size in sizes if size] for sizes in cut]
        rows.append(_recomputed(again, cut))
    return rows


def predictions(label: str, shape_of: Callable[[Scale], Shape]) -> MakeRows:
    """Planned rows of one model whose predictions are compared with what is measured."""

    def make(scale: Scale, world: int, plan: Planner) -> list[Row]:
        shape, dtype = shape_of(scale), scale.dtypes[0]
        return [
            of_plan(
                plan(shape, dtype, batch),
                table="predictions",
                name=f"{label}, global batch {batch}",
                shape=shape,
                dtype=dtype,
                steps=15,
                warm_up=5,
            )
            for batch in scale.plans
        ]

    return make


def too_large(scale: Scale, world: int, plan: Planner) -> list[Row]:
    """A model whose even share does not fit the smallest part."""
    dtype, batch = scale.dtypes[0], 4 * world
    common = {"table": "memory", "shape": scale.large, "dtype": dtype, "steps": 2, "warm_up": 1}
    return [
        Row(
            name="FSDP2, one sample each, recomputed", engine="fsdp2", micro=[[1]] * world, **common
        ),
        of_plan(plan(scale.large, dtype, batch), name=f"planned, global batch {batch}", **common),
        of_plan(
            plan(scale.large, dtype, 4 * batch), name=f"planned, global batch {4 * batch}", **common
        ),
    ]


def predicted(label: str, shape_of: Callable[[Scale], Shape]) -> Suite:
    """Measured right after the profile: what a link carries changes by the minute on some hosts."""
    title = f"Predicted and measured, {label}"
    make = predictions(label, shape_of)
    return Suite(title, "unequal", make, at_once=True, memory_bytes=40 << 30)


SUITES = {
    "accumulation": Suite("Accumulation, four equal parts", "equal", accumulation),
    "equal": Suite("Equal parts, one microbatch, nothing recomputed", "equal", equal),
    "shares": Suite("Shares of the training state", "equal", shares),
    "one": Suite("One rank", "whole", alone),
    "unequal": Suite("Unequal parts, compute-bound", "unequal", unequal),
    "stock": Suite("Unequal parts, ordinary accumulation", "unequal", stock_unequal),
    "predictions-gpt": predicted("GPT", lambda scale: scale.gpt),
    "predictions-head": predicted("large head", lambda scale: scale.wide),
    "memory": Suite(
        "A model that does not fit evenly", "unequal", too_large, alone=True, memory_bytes=44 << 30
    ),
}
