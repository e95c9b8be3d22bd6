"""Runs functions on several Gloo ranks without importing torch again.

One server per test session imports torch, then forks the ranks of every case; a case's ranks meet
through a file. ``run(world, function, *args)`` returns the ranks' results in rank order, or raises
``RanksFailed`` with every rank's traceback.
"""

from __future__ import annotations

import datetime
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch.distributed as dist

TIMEOUT_S = 60.0


class RanksFailed(AssertionError):
    """Raised when a rank raised, died or did not end in time; holds all tracebacks."""


def _rank(
    rank: int, world: int, meeting: str, result: Connection, function: Callable, args: tuple
) -> None:
    """Body of one rank; never returns."""
    code = 1
    try:
        os.setpgid(0, 0)
        torch.set_num_threads(1)
        torch.manual_seed(0)
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
        dist.init_process_group(
            "gloo",
            init_method=f"file://{meeting}",
            rank=rank,
            world_size=world,
            timeout=datetime.timedelta(seconds=TIMEOUT_S / 2),
        )
        dist.barrier()  # all are connected: from here on a rank may end before the others
        value = function(*args)
        result.send_bytes(pickle.dumps((True, value)))
        code = 0
    except BaseException:
        result.send_bytes(pickle.dumps((False, traceback.format_exc())))
    finally:
        result.close()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run(
    world: int, function: Callable[..., Any], *args: Any, timeout_s: float = TIMEOUT_S
) -> list[Any]:
    """Run ``function(*args)`` on ``world`` ranks of one Gloo group, forked from this process.

    The function sees an initialised default group and seed 0; what it returns must pickle. Once a
    rank failed, the others get 2 s to fail too, so that the first cause is not buried by a
    time-out. Raises RanksFailed.
    """
    with tempfile.TemporaryDirectory() as folder:
        meeting = os.path.join(folder, "meeting")
        pids: list[int] = []
        pipes: dict[Connection, int] = {}
        sys.stdout.flush()
        sys.stderr.flush()
        for rank in range(world):
            receive, send = multiprocessing.Pipe(duplex=False)
            pid = os.fork()
            if pid == 0:
                receive.close()
                _rank(rank, world, meeting, send, function, args)
            send.close()
            pids.append(pid)
            pipes[receive] = rank
        try:
            return _collect(world, pipes, timeout_s)
        finally:
            for pid in pids:
                _end(pid)


def _collect(world: int, pipes: dict[Connection, int], timeout_s: float) -> list[Any]:
    results: list[Any] = [None] * world
    failures: dict[int, str] = {}
    deadline = time.monotonic() + timeout_s
    while pipes and (left := deadline - time.monotonic()) > 0:
        for pipe in wait(list(pipes), left):
            rank = pipes.pop(pipe)
            try:
                good, value = pickle.loads(pipe.recv_bytes())
            except EOFError:
                good, value = False, "the process died without a word"
            pipe.close()
            if good:
                results[rank] = value
            else:
                failures[rank] = value
                deadline = min(deadline, time.monotonic() + 2.0)
    for rank in pipes.values():
        failures[rank] = f"still running after {timeout_s:g} s, or 2 s after another rank failed"
    if failures:
        raise RanksFailed(
            "\n".join(f"--- rank {r} of {world} ---\n{failures[r]}" for r in sorted(failures))
        )
    return results


def _end(pid: int) -> None:
    """Reap a rank, killing it if it still runs."""
    done, _ = os.waitpid(pid, os.WNOHANG)
    if done == 0:
        for kill in (os.killpg, os.kill):
            try:
                kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        os.waitpid(pid, 0)
