"""A worker process: reads what the supervisor wants, prepares PyTorch, runs the user's script."""

from __future__ import annotations

import json
import os
import runpy
import socket
import sys
from collections.abc import Callable, Sequence

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from . import api, checkpoint, checkpoint_load, intercept, ragged, runtime
from .commands import Commands
from .data import Feed, Source
from .devices import DeviceEntry, claim, load_device
from .events import Events
from .lastwords import announce_exit, tell_failure
from .place import Place, start_heartbeats
from .plan import load_plan
from .report import Reporter
from .resuming import Resume
from .runtime import Runtime
from .saving import Saves
from .settings import Settings
from .soundness import check_products
from .weighting import TOKENS

EXIT_SCRIPT_FAILED = 1


class ScriptStopped(BaseException):
    """Ends the script from inside, when the supervisor asks or a profile is done."""


def main(argv: Sequence[str]) -> int:
    """Run ``argv[0]`` with its arguments as ``python argv[0] …`` would; in hardware mode there is
    no script. Returns the exit code."""
    settings = Settings.read(os.environ)
    events = Events(settings.socket, settings.rank, settings.local_rank)
    peak: list[Callable[[], int]] = []
    last_words: list[Callable[[], None]] = []
    announce_exit(events, last_words)
    try:
        return _run(settings, events, list(argv), peak, last_words)
    except BaseException as err:
        code = _exit_code(err)
        if code:
            for flush in last_words:
                flush()
            tell_failure(events, err, argv[0] if argv else "hardware", peak)
        events.send("exit", code=code)
        return code


def _run(
    settings: Settings,
    events: Events,
    argv: list[str],
    peak: list[Callable[[], int]],
    last_words: list[Callable[[], None]],
) -> int:
    """Run the script. ``peak`` gets what says how much memory was taken, ``last_words`` what sends
    the last step when the script fails."""
    entry = load_device(settings.devices, settings.device_rank)
    device = claim(entry, settings.local_rank)
    if entry.shared_gpu:
        check_products(device, entry.name)
    if settings.mode == "hardware":
        return _run_hardware(settings, events, entry, device)
    plan = load_plan(settings.plan)
    feed = Feed(plan, settings.rank, _source(settings))
    reporter = Reporter(events, device)
    peak.append(reporter.peak_bytes)
    last_words.append(reporter.flush_quickly)
    place = Place()
    commands = Commands(events, settings.run_dir / "logs" / f"stacks-rank-{settings.rank}.txt")
    saves = Saves(events, place, lambda: reporter.steps, settings.run_id)
    resume = Resume(events, lambda: saves.loaded, settings.must_resume)
    made: list[Runtime] = []

    def make() -> Runtime:
        one = _make_runtime(plan, device, entry, settings, feed, reporter, place)
        one.stop_asked, one.save_asked = commands.stop_asked, commands.save_asked
        saves.total = one.sum_over_ranks
        made.append(one)
        if settings.mode == "profile":
            from . import profile

            profile.prepare(
                one, settings.run_dir, entry, events, feed, settings.profile_seconds, ScriptStopped
            )
        return one

    runtime.install(make)
    ragged.install()
    checkpoint.install()
    intercept.install(
        feed,
        reporter.note_loss,
        backend="gloo" if entry.shared_gpu else None,
        note_targets=_targets_of(made) if settings.weighting == TOKENS else None,
    )
    saves.install()
    saves.saved = lambda: _stop_if_agreed(made, saved=True)
    _watch_steps(reporter, resume)
    register_optimizer_step_post_hook(lambda *_: _stop_if_agreed(made))
    if settings.mode == "train":
        api.announce_to(lambda: events.send("checkpoint", phase="can-save"))
        reporter.held_back = lambda: events.send(
            "heartbeat", step=reporter.steps, **place.report(ask_device=False)
        )
    start_heartbeats(events, place, lambda: reporter.steps)
    _send_start(events, entry, plan.world_size)
    stopped = _run_script(argv)
    reporter.flush()
    went_on = saves.loaded or checkpoint_load.optimizer_was_loaded()
    events.send("exit", code=0, **_end(stopped, reporter.began, bool(made), went_on))
    return 0


def _end(stopped: bool, trained: bool, wrapped: bool, went_on: bool) -> dict[str, str]:
    """What the exit of a script that did not fail says. A script that ends without one training
    forward has found nothing left to do if it loaded what an earlier run had saved; else the
    supervisor says of all ranks together that nothing was trained."""
    if stopped:
        return {"phase": "stopped"}
    if trained:
        return {}
    if went_on:
        return {"phase": "nothing-left"}
    why = "" if wrapped else "without a call of torch.distributed.fsdp.fully_shard"
    return {"phase": "untrained", "message": why}


def _targets_of(made: Sequence[Runtime]) -> Callable[[torch.Tensor, torch.Tensor], None]:
    """Tells the process's runtime, once there is one, what losses are means over."""

    def note(loss: torch.Tensor, count: torch.Tensor) -> None:
        for one in made:
            one.note_targets(loss, count)

    return note


def _run_hardware(settings: Settings, events: Events, entry: DeviceEntry, device) -> int:
    """Measure the devices themselves; no script runs."""
    from . import hardware

    _send_start(events, entry, int(os.environ["WORLD_SIZE"]))
    hardware.measure(settings.run_dir, entry, device, events)
    events.send("exit", code=0)
    return 0


def _send_start(events: Events, entry: DeviceEntry, world_size: int) -> None:
    events.send(
        "start",
        pid=os.getpid(),
        host=socket.gethostname(),
        torch=torch.__version__,
        device=entry.uuid,
        world_size=world_size,
    )


def _watch_steps(reporter: Reporter, resume: Resume) -> None:
    """Report every real optimizer step, and look at the first one for a resume."""

    def before(optimizer, *_) -> None:
        if reporter.training and not reporter.steps:
            resume.before_step(optimizer)

    def after(optimizer, *_) -> None:
        reporter.on_first_step = lambda: resume.after_step(optimizer)
        reporter.note_step()

    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)


def _make_runtime(plan, device, entry, settings, feed, reporter, place) -> Runtime:
    made = Runtime(plan, device, weighting=settings.weighting, slowdown=entry.slowdown, place=place)
    made.samples_of_batch = lambda: feed.last_counted
    made.on_backward.append(reporter.note_backward)
    made.on_training_forward.append(lambda *_: feed.check())
    made.on_training_forward.append(lambda *_: reporter.note_forward())
    reporter.watch(made.clock)
    return made


def _source(settings: Settings) -> Source | None:
    """The training loader's shape, from the profile beside the plan."""
    path = settings.run_dir / "profile.json"
    if not path.exists():
        return None
    script = json.loads(path.read_text(encoding="utf-8")).get("script") or {}
    if script.get("data") != "distributed-sampler":
        return None
    return Source(int(script["batch_per_rank"]), int(script["samples"]))


def _run_script(argv: list[str]) -> bool:
    """Run the script to its end. True if it was ended from inside before that."""
    sys.argv = argv
    sys.path[0] = os.path.dirname(os.path.abspath(argv[0]))
    try:
        runpy.run_path(argv[0], run_name="__main__")
    except ScriptStopped:
        return True
    except SystemExit as err:
        if err.code not in (None, 0):
            raise
    return False


def _stop_if_agreed(made: Sequence[Runtime], saved: bool = False) -> None:
    """End the script if all ranks agreed on it: at once, or once it has saved. ``saved`` says that
    it just has; a function that it registered saves now."""
    if any(one.stop_agreed for one in made):
        raise ScriptStopped
    if any(one.save_agreed for one in made):
        if not saved:
            for save in api.saves():
                save()
            saved = bool(api.saves())
        if saved:
            raise ScriptStopped


def _exit_code(err: BaseException) -> int:
    if isinstance(err, SystemExit) and isinstance(err.code, int):
        return err.code
    return EXIT_SCRIPT_FAILED
