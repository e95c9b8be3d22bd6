"""The script's own distributed checkpoints, made so that they cannot be lost half-way.

``torch.distributed.checkpoint.save`` writes to a name aside; when every rank has written and synced
its part, rank 0 renames it. So a checkpoint is there whole or not at all, and an older one of the
same name stays until then. A disk without room costs the checkpoint and not the training.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.tensor import DTensor

from .diskfaults import Fault, failure_of, fault_numbered, fault_of, no_room
from .events import Events
from .place import Place

ASIDE = "saving-"
"""Begins the name of a checkpoint that is being written."""
REPLACED = "replaced-"
"""Begins the name of an older checkpoint while the new one takes its place."""
ATTEMPTS = 10
"""At giving a checkpoint its name while another run does the same."""


class Saves:
    """Stands in for DCP's ``save``, ``async_save`` and ``load``, and tells the supervisor.

    ``total`` sums numbers over all ranks on the host; None until the runtime is there. ``saved`` is
    called on every rank after a save that succeeded.
    """

    def __init__(self, events: Events, place: Place, step: Callable[[], int], run_id: str = ""):
        self._events, self._place, self._step = events, place, step
        self.total: Callable[[list[float]], list[float]] | None = None
        self.saved: Callable[[], None] = lambda: None
        self._run_id = f"{run_id}-" if run_id else ""
        """In the names of what is being saved, since runs may save into one folder."""
        self._claimed: dict[Path, int] = {}
        """Open folders, by which locks on them are held."""
        self._shared: set[Path] = set()
        """Folders that another process saves into, which was told."""
        self.loaded = False
        """True once the script has loaded a distributed checkpoint."""

    def install(self) -> Callable[[], None]:
        """Replace the public functions. Returns a function that takes it back."""
        before = (dcp.save, dcp.async_save, dcp.load)
        save, load = self._save(dcp.save), self._load(dcp.load)
        put = _put(save, self._async_save(dcp.async_save), load)
        put()
        return _put(*before)

    # -- saving ---------------------------------------------------------------------------------

    def _save(self, original: Callable) -> Callable:
        def save(state_dict: dict[str, Any], **options: Any) -> Any:
            path = options.get("checkpoint_id")
            aside = path is not None and self._may_be_aside(options)
            with self._place.doing("save"):
                self._tell("saving", path)
                if aside:
                    result, fault = self._save_aside(original, state_dict, options)
                else:
                    result, fault = original(state_dict, **options), None
            if fault is not None:
                self._tell("failed", path, message=fault.said, cause=fault.kind)
                return result
            self._tell("saved", path, placed=aside)
            self.saved()
            return result

        return functools.wraps(original)(save)

    def _may_be_aside(self, options: Mapping[str, Any]) -> bool:
        plain = all(
            options.get(name) is None for name in ("storage_writer", "process_group")
        ) and not options.get("no_dist")
        remote = "://" in str(options["checkpoint_id"])
        return plain and not remote and self.total is not None and dist.is_initialized()

    def _save_aside(self, original, state_dict, options) -> tuple[Any, Fault | None]:
        """Returns what DCP returned, and why the disk did not take it, if it did not."""
        final = Path(options["checkpoint_id"]).absolute()
        aside = final.with_name(f"{ASIDE}{self._run_id}{final.name}")
        first = dist.get_rank() == 0
        if first:
            self._claim(final.parent)
            shutil.rmtree(aside, ignore_errors=True)
        fault = self._lack_of_space(state_dict, final.parent, first)
        if fault is not None:
            return None, fault
        try:
            result = original(state_dict, **{**options, "checkpoint_id": aside})
        except CheckpointException as err:
            if first:
                shutil.rmtree(aside, ignore_errors=True)
            fault = fault_of(err)
            if fault is None:
                raise
            return None, fault
        fault = self._take_place(aside, final, first)
        return (result if fault is None else None), fault

    def _claim(self, folder: Path) -> None:
        """Share a lock on the folder that checkpoints are saved into with whoever else saves there,
        for as long as the process lives. Nobody gets it alone as soon as there are two, so at its
        next save each of them learns of the other, and tells the supervisor once. The lock is the
        kernel's and leaves no file."""
        if folder in self._shared or not folder.exists():  # the first save makes it
            return
        descriptor = self._claimed.get(folder)
        if descriptor is None:
            try:
                descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return  # the save will say why
            self._claimed[folder] = descriptor
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._tell("shared", folder)
            self._shared.add(folder)
        except OSError:
            return  # not every file system has locks
        with contextlib.suppress(OSError):  # while another one looks; the next save tries again
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def _lack_of_space(self, state_dict: Any, folder: Path, first: bool) -> Fault | None:
        """Why the checkpoint does not fit, if it does not; the same answer on every rank."""
        needed = int(self.total([float(bytes_of(state_dict, whole=first))])[0])
        free = _free_bytes(folder) if first else 0
        free = int(self.total([float(free)])[0])
        return no_room(needed, free)

    def _take_place(self, aside: Path, final: Path, first: bool) -> Fault | None:
        """Give the checkpoint its name, on the first rank. Returns why the disk does not take it,
        the same on every rank; any other failure is raised on all."""
        failure: OSError | None = None
        try:
            if first:
                _take_place(aside, final)
        except OSError as err:
            failure = err
        number = int(self.total([float(failure.errno or -1) if failure else 0.0])[0])
        fault = fault_numbered(number)
        if number and fault is None:
            raise failure or OSError("rank 0 could not give the checkpoint its name")
        if number and first:
            shutil.rmtree(aside, ignore_errors=True)
        return fault

    def _async_save(self, original: Callable) -> Callable:
        def async_save(state_dict: dict[str, Any], **options: Any) -> Any:
            path, step = options.get("checkpoint_id"), self._step()
            self._tell("saving", path)
            response = original(state_dict, **options)

            def done(future: Any) -> None:
                problem = future.exception()
                if problem is None:
                    self._tell("saved", path, step=step)
                else:
                    fault = failure_of(problem)
                    self._tell("failed", path, step=step, message=fault.said, cause=fault.kind)

            getattr(response, "upload_completion", response).add_done_callback(done)
            return response

        return functools.wraps(original)(async_save)

    # -- loading --------------------------------------------------------------------------------

    def _load(self, original: Callable) -> Callable:
        def load(state_dict: dict[str, Any], **options: Any) -> Any:
            path = options.get("checkpoint_id") or getattr(
                options.get("storage_reader"), "path", None
            )
            try:
                with self._place.doing("load"):
                    result = original(state_dict, **options)
            except (Exception, CheckpointException) as err:  # the latter is a BaseException
                self._tell("not-loaded", path, message=f"{type(err).__name__}: {err}"[:1000])
                raise
            self.loaded = True
            self._tell("loaded", path)
            return result

        return functools.wraps(original)(load)

    def _tell(self, phase: str, path: Any, **more: Any) -> None:
        if path is None:
            return
        fields = {"step": self._step(), **more}
        if phase in ("saved", "loaded"):
            fields["files"] = _files(Path(path))
        place = os.fspath(path)
        if "://" not in place:
            place = os.path.abspath(place)
        self._events.send("checkpoint", phase=phase, path=place, **fields)


def _put(save: Callable, async_save: Callable, load: Callable) -> Callable[[], None]:
    def put() -> None:
        for holder in (dcp, state_dict_saver):
            holder.save, holder.async_save = save, async_save
        for holder in (dcp, state_dict_loader):
            holder.load = load

    return put


@torch.no_grad()
def bytes_of(value: Any, whole: bool) -> int:
    """Bytes of ``value``'s tensors that this rank writes: its pieces of sharded ones, and those
    that every rank has alike if ``whole``."""
    if isinstance(value, DTensor):
        piece = value.to_local()
        return piece.numel() * piece.element_size()
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size() if whole else 0
    if isinstance(value, Mapping):
        return sum(bytes_of(v, whole) for v in value.values())
    if isinstance(value, (list, tuple)):
        return sum(bytes_of(v, whole) for v in value)
    return 0


def _free_bytes(folder: Path) -> int:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _take_place(aside: Path, final: Path) -> None:
    """Rename ``aside`` to ``final``; what stood there goes only when the new one stands."""
    old = final.with_name(REPLACED + final.name)
    shutil.rmtree(old, ignore_errors=True)
    for attempt in range(ATTEMPTS):
        if final.exists():
            shutil.rmtree(old, ignore_errors=True)
            os.rename(final, old)
        try:
            os.rename(aside, final)
            break
        except OSError as err:  # another run has put its own there meanwhile
            if err.errno not in (errno.ENOTEMPTY, errno.EEXIST) or attempt == ATTEMPTS - 1:
                with contextlib.suppress(OSError):  # not there, or the supervisor will do it
                    os.rename(old, final)
                raise
    folder = os.open(final.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    shutil.rmtree(old, ignore_errors=True)


def _files(path: Path) -> dict[str, int]:
    """The files of a checkpoint with their sizes, by their names inside of it."""
    try:
        return {
            str(file.relative_to(path)): file.stat().st_size
            for file in sorted(path.rglob("*"))
            if file.is_file()
        }
    except OSError:
        return {}
