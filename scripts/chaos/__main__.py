"""Trains examples/train_gpt.py on CPU ranks (or given devices), breaks something, and compares.

At the end the weights must be those of an undisturbed run of as many steps, and of plain PyTorch in
one process; no process may be left, and every checkpoint must be whole. Prints each fault with the
seconds until training went on.
"""

from __future__ import annotations

import argparse
import functools
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .compare import Model, Plain, check_checkpoints, check_nothing_left, difference, weights
from .disk import Disk
from .faults import EXACT, REPLANNED, disturb, fill_disk, nearly_fill_disk
from .run import PROCESSORS, Failed, Run, read_devices, wait_for, write_devices

TOLERANCE = 1e-8
"""Of the weights, between any two of the disturbed run, the undisturbed one and plain PyTorch in
one process. Another split adds the same numbers up in another order: in fp64 that is some 1e-16 for
each sum, which training amplifies from step to step. A sample that is lost, counted twice or
weighted wrongly is 1e-4 and more."""
AMPLIFIED = 30
"""So much farther than the undisturbed run may the disturbed one be from plain PyTorch: both differ
from it by nothing but the order of additions."""


def chaos(run: Run, options: argparse.Namespace, disk: Disk) -> list[tuple[str, float]]:
    """Disturb the run until there were enough faults or the time is over."""
    faults = {f.__name__: f for f in (EXACT if options.exact else EXACT + REPLANNED)}
    for fill in (fill_disk, nearly_fill_disk):
        faults[fill.__name__] = functools.partial(fill, disk=disk)
    if options.plugin is None:
        faults.pop("kill_plugin")
    faults = {name: f for name, f in faults.items() if not options.only or name in options.only}
    done: list[tuple[str, float]] = []
    deck: list[str] = []
    deadline = time.monotonic() + options.minutes * 60

    def enough() -> bool:
        if options.faults:
            return len(done) >= options.faults
        return time.monotonic() > deadline and len(done) >= options.at_least

    while not enough():
        rest(run, random.uniform(options.least, options.most))
        if not deck:  # each as often as the others, in no order
            deck = random.sample(list(faults), len(faults))
        name = deck.pop()
        seconds = disturb(run, faults[name], len(done) + 1)
        done.append((name, seconds))
        run.plans.add(run.plan())
        print(f"{len(done):4d}  {name:20s} {seconds:6.1f} s  at step {run.last_step()}", flush=True)
    rest(run, options.least)
    return done


def rest(run: Run, seconds: float) -> None:
    """Let it train undisturbed."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not run.running():
            raise Failed(f"the run ended by itself with {run.process.returncode}")
        time.sleep(0.05)


def reach(run: Run, checkpoint: Path, seconds: float) -> None:
    """Let the run train until it has saved a checkpoint. It has the arguments of the other one,
    which are a part of what its profile is kept for, so it does not end there by itself."""
    wait_for(lambda: checkpoint.exists() or not run.running(), seconds, "no undisturbed run")
    if not run.running():
        raise Failed(f"the undisturbed run ended with {run.process.returncode}")
    end(run)


def end(run: Run) -> int:
    """Let the run save and stop. Returns the step of its newest checkpoint."""
    run.process.send_signal(signal.SIGUSR1)
    code = run.process.wait(120)
    if code != 128 + signal.SIGUSR1:
        raise Failed(f"SIGUSR1 ended the run with {code}")
    return int(run.saved()[-1].name.removeprefix("step-"))


def judge(disturbed: Model, undisturbed: Model, plain: Model, one_plan: bool) -> str:
    """Compare the weights. Returns how far apart they are, in words."""
    off = difference(undisturbed, disturbed)
    calm, wild = difference(plain, undisturbed), difference(plain, disturbed)
    said = f"{off:.1e}, from plain PyTorch by {wild:.1e} (undisturbed: {calm:.1e})"
    if one_plan and off > 0:
        raise Failed(f"the weights differ by {off:.1e}, and all of it was one plan")
    if max(off, calm, wild) > TOLERANCE or wild > AMPLIFIED * max(calm, sys.float_info.epsilon):
        raise Failed(f"the weights differ by {said}")
    return said


def table(faults: list[tuple[str, float]]) -> str:
    """Each fault with how often it was and how long it took, in Markdown."""
    lines = ["| fault | times | seconds, median | at most |", "|---|---|---|---|"]
    for name in sorted({name for name, _ in faults}):
        times = sorted(seconds for n, seconds in faults if n == name)
        lines.append(
            f"| {name.replace('_', ' ')} | {len(times)} | {middle(times):.1f} | {times[-1]:.1f} |"
        )
    return "\n".join(lines)


def middle(times: list[float]) -> float:
    return times[len(times) // 2] if times else 0.0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--python", required=True)
    parser.add_argument("--minutes", type=float, default=30, help="of disturbed training")
    parser.add_argument("--at-least", type=int, default=40, help="go on until so many faults")
    parser.add_argument("--faults", type=int, default=0, help="so many faults, whatever the time")
    parser.add_argument("--devices", type=Path, help="a devices file, a line for each device")
    parser.add_argument("--exact", action="store_true", help="only faults that keep the plan")
    parser.add_argument("--only", action="append", help="only this fault; more than once for more")
    parser.add_argument("--save-every", type=int, default=20)
    parser.add_argument("--least", type=float, default=12, help="seconds to the next fault")
    parser.add_argument("--most", type=float, default=32)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    if options.faults:
        options.least, options.most = 1, 4
    options.devices = read_devices(options.devices) if options.devices else PROCESSORS
    return options


def tools(options: argparse.Namespace, folder: Path) -> None:
    """Copies of what is run: another build meanwhile changes nothing."""
    for source in ("bin/cephalorun", "examples/train_gpt.py"):
        shutil.copy(source, folder)
    options.program, options.script = folder / "cephalorun", folder / "train_gpt.py"
    options.plugin = None  # it is built where there is a C compiler
    if Path("bin/cephalorun-nvml").exists():
        options.plugin = Path(shutil.copy("bin/cephalorun-nvml", folder))


def prove(options: argparse.Namespace, folder: Path) -> str:
    """Both runs and the comparison. Returns the last line."""
    for name in ("disturbed", "undisturbed"):
        (folder / name).mkdir()
    write_devices(folder / "devices.yaml", options.devices)
    wild = Run(options, folder / "disturbed")
    disk = Disk(wild.checkpoints)
    if not disk.mounted:
        print("no tmpfs can be mounted here: a limit on the workers' files stands for a full disk")
    try:
        wild.start()
        wait_for(
            lambda: wild.last_step() > options.save_every or not wild.running(), 300, "no steps"
        )
        # The same numbers make the same plan.
        shutil.copytree(wild.state / "profiles", folder / "undisturbed/state/profiles")
        wild.plans.add(wild.plan())
        faults = chaos(wild, options, disk)
        steps = end(wild)
        whole = check_checkpoints(wild)
        check_nothing_left(folder)
        last = wild.saved()[-1]
        result = weights(wild, last, folder / "disturbed.safetensors")
    finally:
        if wild.process is not None and wild.running():
            wild.process.kill()
            wild.process.wait()
        disk.close()
    print(table(faults), flush=True)
    write_devices(folder / "devices.yaml", options.devices)
    single = Plain(options, folder, int(last.name.removeprefix("step-")))
    calm = Run(options, folder / "undisturbed")
    try:
        calm.start()
        reach(calm, calm.checkpoints / last.name, options.minutes * 60 + 600)
        plain = single.weights(options.minutes * 60)
    finally:
        single.end()
    reference = weights(calm, calm.checkpoints / last.name, folder / "undisturbed.safetensors")
    # One plan throughout: every number is the same to the last bit.
    one = wild.plans == {calm.plan()} and wild.worlds() == {len(options.devices)}
    off = judge(result, reference, plain, one)
    times = sorted(
        seconds for name, seconds in faults if "disk" not in name and "plugin" not in name
    )
    return (
        f"{len(faults)} faults in {steps} steps, training again after {middle(times):.1f} s "
        f"(median), {max(times, default=0):.1f} s at most; {whole} checkpoints whole; "
        f"weights differ by {off}; no process left"
    )


def main() -> int:
    options = parse()
    random.seed(options.seed)
    folder = Path(tempfile.mkdtemp(prefix="cephalo-chaos-"))
    print(f"seed {options.seed}; files in {folder}", flush=True)
    try:
        tools(options, folder)
        print("chaos: passed: " + prove(options, folder))
    except (Failed, subprocess.SubprocessError) as err:
        print(f"chaos: FAILED: {err}; files in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
