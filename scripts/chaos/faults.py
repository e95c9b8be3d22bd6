"""What is broken. Each fault is a function of the run; it returns when training had gone on, or
None if that is to be waited for: the first step of another attempt."""

from __future__ import annotations

import os
import random
import resource
import signal
import time
from collections.abc import Callable

from .disk import Disk
from .run import Failed, Run, alive, children, command, wait_for, write_devices

LIMIT_SECONDS = 180
"""How long training may take to go on after one fault."""
ORPHAN_SECONDS = 5

Fault = Callable[[Run], "float | None"]


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
    saved = run.saved()
    if len(saved) > 1:  # without another one the run ends
        shard = max(saved[-1].glob("*.distcp"))
        os.truncate(shard, shard.stat().st_size // 2)
    kill_worker(run)


def remove_device(run: Run) -> float:
    """A device is gone, and is given back when training goes on without it; what is seconds later
    the first step with it again ends the fault. Each time another one, since a device that comes
    and goes stays out."""
    began = time.time()
    whole = run.options.devices
    gone = sum(e["kind"] == "plan" for e in run.events()) % len(whole)
    write_devices(run.devices, tuple(device for i, device in enumerate(whole) if i != gone))
    os.kill(run.attempt()[1][gone], signal.SIGKILL)
    wait_for(lambda: run.went_on(began), LIMIT_SECONDS, "training does not go on on the rest")
    without = run.went_on(began)
    write_devices(run.devices, whole)
    wait_for(
        lambda: run.first(without, "launch", world_size=len(whole)) and run.trains(),
        LIMIT_SECONDS,
        "a device that is back is not used",
    )
    return without - began


def two_at_once(run: Run) -> None:
    launcher, workers = run.attempt()
    for pid in (random.choice(workers), launcher):
        os.kill(pid, signal.SIGKILL)


def take_memory(run: Run) -> float:
    """The rank cannot allocate any more: its data segment may not grow from here on. It may take
    a while until it wants to; the seconds count from then on."""
    began = time.time()
    pid = run.attempt()[1][0]
    resource.prlimit(pid, resource.RLIMIT_DATA, (1 << 20, 1 << 20))
    wait_for(lambda: run.first(began, "error"), LIMIT_SECONDS, "nothing is allocated any more")
    failed = run.first(began, "error")
    wait_for(lambda: run.went_on(failed), LIMIT_SECONDS, "training does not go on without memory")
    return run.went_on(failed) - failed


def ask_to_stop(run: Run) -> None:
    run.process.send_signal(signal.SIGUSR1)
    code = run.process.wait(60)
    if code != 128 + signal.SIGUSR1:
        raise Failed(f"SIGUSR1 ended the run with {code}")
    run.resume()


def fill_disk(run: Run, disk: Disk) -> float:
    """The disk is full: there is no room for a save, which is seen before it begins."""
    return _without_room(run, disk, leave=0)


def nearly_fill_disk(run: Run, disk: Disk) -> float:
    """A save begins, since its tensors would fit, and meets the end of the disk."""
    newest = sum(file.stat().st_size for file in run.saved()[-1].rglob("*"))
    return _without_room(run, disk, leave=int(newest * 0.95))


def _without_room(run: Run, disk: Disk, leave: int) -> float:
    """Returns the seconds from the lost save to the next step."""
    began = time.time()

    def failed() -> bool:
        disk.fill(leave, run.attempt()[1])
        return run.first(began, "checkpoint", phase="failed") > 0

    try:
        wait_for(failed, LIMIT_SECONDS, "no save has failed on a full disk")
        lost = run.first(began, "checkpoint", phase="failed")
        wait_for(lambda: run.first(lost, "step"), LIMIT_SECONDS, "a full disk stops the training")
        if list(run.checkpoints.glob("saving-*")):
            # The next save may have begun meanwhile: then that one is removed as well.
            again = run.first(lost, "checkpoint", phase="failed")
            wait_for(
                lambda: run.first(again or lost, "checkpoint", phase="failed"),
                LIMIT_SECONDS,
                "a partial checkpoint is left",
            )
    finally:
        disk.free()
    freed = time.time()
    wait_for(
        lambda: run.first(freed, "checkpoint", phase="saved"),
        LIMIT_SECONDS,
        "nothing is saved though there is room again",
    )
    if run.first(began, "launch"):
        raise Failed("a full disk ended an attempt")
    return run.first(lost, "step") - lost


def kill_plugin(run: Run) -> float:
    """The process that asks the driver is killed: training does not notice, and there is another
    one for the next reading. Returns the seconds to the next step."""

    def plugins() -> list[int]:
        return [p for p in children(run.process.pid) if "cephalorun-nvml" in command(p)]

    wait_for(plugins, LIMIT_SECONDS, "the driver is not asked")
    began, old = time.time(), plugins()
    for pid in old:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: run.first(began, "step"), LIMIT_SECONDS, "a killed plugin stops the training")
    wait_for(lambda: set(plugins()) - set(old), LIMIT_SECONDS, "no other plugin is started")
    if run.first(began, "launch"):
        raise Failed("a killed plugin ended an attempt")
    return run.first(began, "step") - began


EXACT: tuple[Fault, ...] = (
    kill_worker,
    kill_launcher,
    kill_supervisor,
    stop_worker,
    truncate_checkpoint,
    two_at_once,
    ask_to_stop,
    kill_plugin,
)
"""Faults after which the same plan goes on. (One that is taken up by another supervisor may have
a plan corrected by what the first one measured.)"""
REPLANNED: tuple[Fault, ...] = (remove_device, take_memory)


def disturb(run: Run, fault: Fault, number: int) -> float:
    """Make one fault. Returns the seconds until training went on; 0 if the run ended meanwhile."""
    wait_for(run.trains, LIMIT_SECONDS, "it does not train")  # a device may just have come back
    began = time.time()
    try:
        seconds = fault(run)
    except ProcessLookupError:
        return 0.0  # it ended by itself at that moment
    if seconds is not None:
        return seconds

    def over() -> bool:
        return run.went_on(began) > 0 or not run.running()

    name = getattr(fault, "__name__", str(fault))
    wait_for(over, LIMIT_SECONDS, f"training does not go on: fault {number}, {name}")
    if not run.running():
        raise Failed(f"the run ended with {run.process.returncode} after fault {number}, {name}")
    return run.went_on(began) - began
