"""Trains examples/train_gpt.py on CPU ranks, breaks something every so often, and compares.

At the end the weights must be those of an undisturbed run, no process may be left, and every
checkpoint must be whole. Prints each fault with the seconds until training went on.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from array import array
from datetime import datetime
from pathlib import Path

PROGRAM = Path("bin/cephalorun").absolute()
SCRIPT = Path("examples/train_gpt.py").absolute()
NAMES = ("one", "two", "three")
LIMIT_SECONDS = 180
"""How long training may take to go on after one fault."""
ORPHAN_SECONDS = 5


class Failed(Exception):
    """A promise that was not kept."""


class Run:
    """One run of cephalorun in a folder of its own, and what it is doing."""

    def __init__(self, options: argparse.Namespace, folder: Path, steps: int):
        self.options, self.folder, self.steps = options, folder, steps
        self.state = folder / "state"
        self.checkpoints = folder / "checkpoints"
        self.devices = folder.parent / "devices.yaml"
        self.output = (folder / "output.txt").open("wb")
        self.process: subprocess.Popen | None = None
        self.path: Path | None = None

    def start(self) -> None:
        args = ["--devices", self.devices, "--resume-args=--resume", "--stuck-after", "15s"]
        args += ["--max-restarts", "5", SCRIPT, "--layers", "1", "--width", "32"]
        args += [
            "--sequence",
            "32",
            "--batch-size",
            "4",
            "--steps",
            self.steps,
            "--log-every",
            "50",
        ]
        args += ["--save-every", self.options.save_every, "--checkpoint", "checkpoints"]
        self._launch(args)

    def resume(self) -> None:
        self._launch(["resume", self.path.name])

    def _launch(self, args: list) -> None:
        command = [str(a) for a in (PROGRAM, "--state-dir", self.state, *args)]
        env = {**os.environ, "CEPHALO_PYTHON": self.options.python, "CEPHALO_PROFILE_SECONDS": "5"}
        self.process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=env,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )

    def events(self) -> list[dict]:
        if self.path is None:
            latest = self.state / "runs" / "latest"
            if not latest.exists():
                return []
            self.path = latest.resolve()
        try:
            lines = (self.path / "events.jsonl").read_text(encoding="utf-8").split("\n")
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines[:-1] if line.startswith("{")]

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
        launched = False
        for event in self.events():
            at = datetime.fromisoformat(event["time"][:26].rstrip("Z") + "+00:00").timestamp()
            launched = launched or (event["kind"] == "launch" and at > since)
            if launched and event["kind"] == "step":
                return at
        return 0.0

    def last_step(self) -> int:
        return max((e["step"] for e in self.events() if e["kind"] == "step"), default=0)


# -- faults ---------------------------------------------------------------------------------------


def kill_worker(run: Run) -> None:
    os.kill(random.choice(run.attempt()[1]), signal.SIGKILL)


def kill_launcher(run: Run) -> None:
    os.kill(run.attempt()[0], signal.SIGKILL)


def kill_supervisor(run: Run) -> None:
    launcher, workers = run.attempt()
    run.process.kill()
    run.process.wait()
    wait_for(lambda: not any(map(alive, (launcher, *workers))), ORPHAN_SECONDS, "orphans are left")
    run.resume()


def stop_worker(run: Run) -> None:
    os.kill(random.choice(run.attempt()[1]), signal.SIGSTOP)


def truncate_checkpoint(run: Run) -> None:
    newest = max(run.checkpoints.glob("step-*"), default=None)
    if newest is not None:
        shard = max(newest.glob("*.distcp"))
        os.truncate(shard, shard.stat().st_size // 2)
    kill_worker(run)


def remove_device(run: Run) -> None:
    write_devices(run.devices, NAMES[:-1])
    os.kill(run.attempt()[1][-1], signal.SIGKILL)


def two_at_once(run: Run) -> None:
    launcher, workers = run.attempt()
    for pid in (random.choice(workers), launcher):
        os.kill(pid, signal.SIGKILL)


def take_memory(run: Run) -> None:
    """The rank cannot allocate any more: its data segment may not grow from here on."""
    pid = run.attempt()[1][0]
    resource.prlimit(pid, resource.RLIMIT_DATA, (1 << 20, 1 << 20))


def ask_to_stop(run: Run) -> None:
    run.process.send_signal(signal.SIGUSR1)
    code = run.process.wait(60)
    if code != 128 + signal.SIGUSR1:
        raise Failed(f"SIGUSR1 ended the run with {code}")
    run.resume()


EXACT = (kill_worker, kill_launcher, kill_supervisor, stop_worker, truncate_checkpoint, two_at_once)
EXACT += (ask_to_stop,)
"""Faults after which the same plan goes on, so that the weights are the same to the last bit."""
REPLANNED = (remove_device, take_memory)


# -- the run --------------------------------------------------------------------------------------


def write_devices(path: Path, names: tuple[str, ...]) -> None:
    lines = ["devices:"]
    lines += [f"  - {{ name: {name}, kind: cpu, threads: 1, memory: 2GiB }}" for name in names]
    aside = path.with_suffix(".part")
    aside.write_text("\n".join(lines) + "\n")
    os.replace(aside, path)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def wait_for(done, seconds: float, failure: str) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise Failed(f"{failure} after {seconds:.0f} s")
        time.sleep(0.05)


def disturb(run: Run, fault, number: int) -> float:
    """Make one fault. Returns the seconds until training went on; 0 if the run ended meanwhile."""
    began = time.time()
    try:
        fault(run)
    except ProcessLookupError:
        return 0.0  # it ended by itself at that moment

    def over() -> bool:
        return run.went_on(began) > 0 or run.process.poll() is not None

    wait_for(over, LIMIT_SECONDS, f"training does not go on: fault {number}, {fault.__name__}")
    if fault is remove_device:
        write_devices(run.devices, NAMES)
    at = run.went_on(began)
    return at - began if at else 0.0


def chaos(run: Run, options: argparse.Namespace) -> list[tuple[str, float]]:
    """Disturb the run until there were enough faults, then let it end."""
    faults = EXACT if options.exact else EXACT + REPLANNED
    done: list[tuple[str, float]] = []
    deadline = time.monotonic() + options.minutes * 60
    run.start()
    wait_for(lambda: run.last_step() > 0 or run.process.poll() is not None, 300, "no first step")
    while run.process.poll() is None and time.monotonic() < deadline:
        if options.faults and len(done) >= options.faults:
            break
        pause = time.monotonic() + random.uniform(options.least, options.most)
        while time.monotonic() < pause and run.process.poll() is None:
            time.sleep(0.05)
        if run.process.poll() is None and len(run.attempt()[1]) > 0:
            fault = faults[len(done)] if len(done) < len(faults) else random.choice(faults)
            seconds = disturb(run, fault, len(done) + 1)
            done.append((fault.__name__, seconds))
            print(
                f"{len(done):4d}  {fault.__name__:20s} {seconds:6.1f} s  at step {run.last_step()}",
                flush=True,
            )
    code = run.process.wait(options.minutes * 60 + 600)
    if code != 0:
        raise Failed(f"the disturbed run ended with {code}")
    return done


def weights(run: Run, out: Path) -> dict[str, array]:
    """The model of the run's last checkpoint, by name."""
    last = run.checkpoints / f"step-{run.steps:06d}"
    tool = [PROGRAM, "checkpoint", "export", "--python", run.options.python, last, out]
    subprocess.run([str(a) for a in tool], check=True, stdout=subprocess.DEVNULL)
    data = out.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    found = {}
    for name, entry in header.items():
        if name != "__metadata__":
            start, end = (8 + size + at for at in entry["data_offsets"])
            found[name] = array("f", data[start:end])
    return found


def difference(a: dict[str, array], b: dict[str, array]) -> float:
    """The distance of two models, relative to the size of the first."""
    if a.keys() != b.keys():
        raise Failed("the two runs have different parameters")
    square = sum((x - y) ** 2 for name in a for x, y in zip(a[name], b[name]))
    return (square / sum(x * x for v in a.values() for x in v)) ** 0.5


def check_checkpoints(run: Run) -> int:
    """Every checkpoint that has its place must be whole."""
    paths = sorted(run.checkpoints.glob("step-*"))
    tool = [PROGRAM, "checkpoint", "verify", "--python", run.options.python, *paths]
    subprocess.run([str(a) for a in tool], check=True, stdout=subprocess.DEVNULL)
    return len(paths)


def check_nothing_left(folder: Path) -> None:
    def left() -> list[str]:
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                line = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in line and int(process.name) != os.getpid():
                found.append(process.name)
        return found

    wait_for(lambda: not left(), ORPHAN_SECONDS, "processes are left")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", required=True)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--faults", type=int, default=0, help="stop disturbing after so many")
    parser.add_argument("--exact", action="store_true", help="only faults that keep the plan")
    parser.add_argument("--steps", type=int, default=0, help="default: enough for the time")
    parser.add_argument("--save-every", type=int, default=20)
    parser.add_argument("--least", type=float, default=20, help="seconds to the next fault")
    parser.add_argument("--most", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    if options.faults:
        options.least, options.most = 1, 4
        options.minutes = min(options.minutes, 2 + 1.5 * options.faults)
    steps = 250 * options.faults if options.faults else int(600 * options.minutes)
    options.steps = options.steps or steps
    return options


def main() -> int:
    options = parse()
    random.seed(options.seed)
    folder = Path(tempfile.mkdtemp(prefix="cephalo-chaos-"))
    print(f"seed {options.seed}, {options.steps} steps; files in {folder}", flush=True)
    try:
        runs = []
        for name in ("undisturbed", "disturbed"):
            (folder / name).mkdir()
            write_devices(folder / "devices.yaml", NAMES)
            runs.append(Run(options, folder / name, options.steps))
        calm, wild = runs
        calm.start()
        if calm.process.wait(options.minutes * 60 + 600) != 0:
            raise Failed("the undisturbed run failed")
        # The same numbers make the same plan.
        shutil.copytree(calm.state / "profiles", wild.state / "profiles")
        faults = chaos(wild, options)
        whole = check_checkpoints(wild)
        check_nothing_left(folder)
        off = difference(weights(calm, folder / "calm.st"), weights(wild, folder / "wild.st"))
        replanned = any(name in {f.__name__ for f in REPLANNED} for name, _ in faults)
        # Another split adds the same numbers up in another order; the same one does not.
        if off > (1e-2 if replanned else 0.0):
            raise Failed(f"the weights differ by {off:.2e}")
    except (Failed, subprocess.SubprocessError) as err:
        print(f"chaos: FAILED: {err}; files in {folder}")
        return 1
    times = sorted(seconds for _, seconds in faults if seconds)
    middle = times[len(times) // 2] if times else 0.0
    print(
        f"chaos: passed: {len(faults)} faults, training again after {middle:.1f} s (median), "
        f"{times[-1] if times else 0:.1f} s at most; {whole} checkpoints whole; "
        f"weights differ by {off:.1e}; no process left"
    )
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
