"""What a row of a benchmark trains, and what came of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from models import Shape

PPM = 1_000_000


@dataclass(frozen=True)
class Row:
    """``engine`` is "fsdp2" (stock; ordinary accumulation of ``micro`` on every rank), "plain"
    (PyTorch alone, one rank) or "cephalo".

    ``micro[i]`` are rank i's microbatches; ``state_ppm`` and ``activations`` are cephalo's.
    ``base`` names the row of the same table that the ratio is taken to.
    """

    table: str
    name: str
    engine: str
    shape: Shape
    micro: list[list[int]]
    base: str = ""
    dtype: str = "bf16"
    recompute: bool = True
    """Stock rows alone: checkpoint every block."""
    sync_each: bool = True
    """Stock rows alone: reduce gradients after each microbatch, as a script without
    ``set_requires_gradient_sync`` does."""
    state_ppm: list[int] = field(default_factory=list)
    activations: list[str] = field(default_factory=list)
    details: list[dict[str, Any]] = field(default_factory=list)
    """What else a plan says of each rank: shares by unit class, units that are kept."""
    predicted: dict[str, Any] = field(default_factory=dict)
    """From the plan: ``iteration_ms``, and by rank ``peak_bytes`` and ``usable_memory_bytes``."""
    steps: int = 3
    warm_up: int = 2

    @property
    def batches(self) -> list[int]:
        return [sum(m) for m in self.micro]

    @property
    def global_batch(self) -> int:
        return sum(self.batches)

    def plan(self) -> dict[str, Any]:
        """As plan v1."""
        ppm = self.state_ppm or even_ppm(len(self.micro))
        ranks = [
            {
                "rank": rank,
                "device": f"rank-{rank}",
                "batch": sum(micro),
                "micro_batches": micro,
                "state_ppm": ppm[rank],
                "activations": self.activations[rank] if self.activations else "recompute",
                **(self.details[rank] if self.details else {}),
            }
            for rank, micro in enumerate(self.micro)
        ]
        shares = "even" if len(set(ppm)) == 1 else "ragged"
        return {"version": 1, "global_batch": self.global_batch, "shares": shares, "ranks": ranks}

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(raw: dict[str, Any]) -> Row:
        return Row(**raw | {"shape": Shape(**raw["shape"])})


def even_ppm(world: int) -> list[int]:
    """Equal shares."""
    return [PPM * (i + 1) // world - PPM * i // world for i in range(world)]


def of_plan(plan: dict[str, Any], **fields: Any) -> Row:
    """The row that trains by a plan, with what the plan predicts."""
    ranks = plan["ranks"]
    predicted = {
        "iteration_ms": plan["predicted"]["iteration_ms"],
        "peak_bytes": [r["predicted"]["peak_memory_bytes"] for r in ranks],
        "usable_memory_bytes": [r["predicted"]["usable_memory_bytes"] for r in ranks],
    }
    return Row(
        engine="cephalo",
        micro=[r["micro_batches"] for r in ranks],
        state_ppm=[r["state_ppm"] for r in ranks],
        activations=[r["activations"] for r in ranks],
        details=[{k: r[k] for k in ("class_state_ppm", "kept_units") if k in r} for r in ranks],
        predicted=predicted,
        **fields,
    )
