"""One run of cephalorun, and what its journal says."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

MANY_STEPS = 10_000_000
MODEL = ("--layers", 1, "--width", 32, "--sequence", 32, "--batch-size", 4)
MODEL += ("--dtype", "fp64", "--lr", 5e-4)
"""In fp64 and with small steps, so that another order of additions is told from a wrong sum: with
2e-3, training makes 1e-16 to 3e-7 in 13,000 steps, of plain PyTorch too."""
PROCESSORS = tuple(
    f"{{ name: {name}, kind: cpu, threads: 1, memory: 2GiB }}" for name in ("one", "two", "three")
)
"""The devices of a run that is given none, as lines of a devices file."""


class Failed(Exception):
    """A promise that was not kept."""


class Run:
    """One run in a folder of its own."""

    def __init__(self, options: argparse.Namespace, folder: Path):
        self.options, self.folder = options, folder
        self.state = folder / "state"
        self.checkpoints = folder / "checkpoints"
        self.devices = folder.parent / "devices.yaml"
        self.output = (folder / "output.txt").open("wb")
        self.process: subprocess.Popen | None = None
        self.path: Path | None = None
        self.plans: set[str] = set()
        """What was seen of ``plan`` so far."""
        self._events: list[dict] = []
        self._read = 0

    def start(self) -> None:
        """Train many steps."""
        model = [*MODEL, "--steps", MANY_STEPS, "--log-every", 50]
        model += ["--save-every", self.options.save_every, "--checkpoint", "checkpoints"]
        ours = ["--devices", self.devices, "--resume-args=--resume", "--stuck-after", "15s"]
        ours += ["--max-restarts", 5, "--keep-checkpoints", 8]
        # Ranks that share two cores are never as fast as planned.
        ours += ["--replan-after", 0]
        self._launch([*ours, self.options.script, *model])

    def resume(self) -> None:
        self._launch(["resume", self.path.name])

    def _launch(self, args: list) -> None:
        command = [str(a) for a in (self.options.program, "--state-dir", self.state, *args)]
        env = {**os.environ, "CEPHALO_PYTHON": self.options.python, "CEPHALO_PROFILE_SECONDS": "5"}
        # Every tensor asks the kernel for its memory, so that a rank without any notices.
        env["MALLOC_MMAP_THRESHOLD_"] = "16384"
        if self.options.plugin is not None:
            env["CEPHALO_NVML_PLUGIN"] = str(self.options.plugin)
            env["CEPHALO_READ_ALL_GPUS"] = "1"
        self.process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=env,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )

    def running(self) -> bool:
        return self.process.poll() is None

    def events(self) -> list[dict]:
        """All events so far. What a killed supervisor wrote half of is left out."""
        if self.path is None:
            latest = self.state / "runs" / "latest"
            if not latest.exists():
                return []
            self.path = latest.resolve()
        try:
            with (self.path / "events.jsonl").open("rb") as file:
                file.seek(self._read)
                new = file.read()
        except FileNotFoundError:
            return []
        whole = new.rfind(b"\n") + 1
        self._read += whole
        for line in new[:whole].splitlines():
            try:
                self._events.append(json.loads(line))
            except ValueError:
                continue
        return self._events

    def attempt(self) -> tuple[int, list[int]]:
        """The pids of the newest launcher and of its workers."""
        launcher, workers = 0, {}
        for event in self.events():
            if event["kind"] == "launch":
                launcher, workers = event["pid"], {}
            elif event["kind"] == "start":
                workers[event["rank"]] = event["pid"]
        return launcher, [workers[rank] for rank in sorted(workers)]

    def went_on(self, since: float) -> float:
        """When the first step of an attempt that was launched after ``since`` ended; 0 if none."""
        launched = self.first(since, "launch")
        return self.first(launched, "step") if launched else 0.0

    def trains(self) -> bool:
        """True when the newest attempt has done a step."""
        for event in reversed(self.events()):
            if event["kind"] in ("launch", "step"):
                return event["kind"] == "step"
        return False

    def first(self, since: float, kind: str, **fields: object) -> float:
        """When the first such event after ``since`` was; 0 if there is none."""
        found = 0.0
        for event in reversed(self.events()):
            at = time_of(event)
            if at + 60 < since:  # ranks' clocks are one, but their events may be late
                break
            if at > since and event["kind"] == kind:
                if all(event.get(name) == value for name, value in fields.items()):
                    found = at
        return found

    def plan(self) -> str:
        """What the plan gives to each rank, its predictions left out."""
        self.events()
        ranks = json.loads((self.path / "plan.json").read_text())["ranks"]
        return json.dumps([{k: v for k, v in r.items() if k != "predicted"} for r in ranks])

    def worlds(self) -> set[int]:
        """With how many ranks it trained."""
        launches = (e for e in self.events() if e["kind"] == "launch" and e["phase"] == "train")
        return {e["world_size"] for e in launches}

    def last_step(self) -> int:
        steps = (e["step"] for e in reversed(self.events()) if e["kind"] == "step")
        return next(steps, 0)

    def saved(self) -> list[Path]:
        """The checkpoints that have their place, oldest first."""
        return sorted(self.checkpoints.glob("step-*"))


def time_of(event: dict) -> float:
    return datetime.fromisoformat(event["time"][:26].rstrip("Z") + "+00:00").timestamp()


def read_devices(path: Path) -> tuple[str, ...]:
    """The devices of a file that has each on a line of its own."""
    lines = (line.strip() for line in path.read_text().splitlines())
    return tuple(line.removeprefix("- ") for line in lines if line.startswith("- {"))


def write_devices(path: Path, devices: tuple[str, ...]) -> None:
    aside = path.with_suffix(".part")
    aside.write_text("\n".join(["devices:", *(f"  - {device}" for device in devices)]) + "\n")
    os.replace(aside, path)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == pid:
            found.append(int(stat.parent.name))
    return found


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def wait_for(done: Callable[[], object], seconds: float, failure: str) -> None:
    """Wait, with a limit. A machine that stood still meanwhile is not held against the run."""
    waited, last = 0.0, time.monotonic()
    while not done():
        time.sleep(0.05)
        now = time.monotonic()
        waited, last = waited + min(1.0, now - last), now
        if waited > seconds:
            raise Failed(f"{failure} after {seconds:.0f} s")
