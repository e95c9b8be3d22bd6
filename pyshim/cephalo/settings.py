"""What the environment of a worker says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PROFILE_SECONDS = 40.0
"""Time for measuring a script's units, unless CEPHALO_PROFILE_SECONDS says otherwise."""


@dataclass(frozen=True)
class Settings:
    """What the environment of a worker says. Nothing else in the package reads it."""

    mode: str
    run_dir: Path
    plan: Path
    devices: Path
    socket: str | None
    weighting: str
    rank: int
    device_rank: int
    local_rank: int
    profile_seconds: float
    restart: int
    must_resume: bool
    run_id: str

    @classmethod
    def read(cls, env: Mapping[str, str]) -> Settings:
        """Raises KeyError that names a missing variable. Hardware is measured without a plan."""
        mode = env.get("CEPHALO_MODE", "train")
        return cls(
            mode=mode,
            run_dir=Path(env["CEPHALO_RUN_DIR"]),
            plan=Path(env.get("CEPHALO_PLAN", "") if mode == "hardware" else env["CEPHALO_PLAN"]),
            devices=Path(env["CEPHALO_DEVICES"]),
            socket=env.get("CEPHALO_SOCKET") or None,
            weighting=env.get("CEPHALO_WEIGHTING", "samples"),
            rank=int(env["RANK"]),
            device_rank=int(env["RANK"]),
            local_rank=int(env["LOCAL_RANK"]),
            profile_seconds=float(env.get("CEPHALO_PROFILE_SECONDS") or PROFILE_SECONDS),
            restart=int(env.get("CEPHALO_RESTART_COUNT") or 0),
            must_resume=env.get("CEPHALO_MUST_RESUME") == "1",
            run_id=env.get("CEPHALO_RUN_ID", ""),
        )
