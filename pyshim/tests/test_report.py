"""What the supervisor hears of a step, and when."""

from __future__ import annotations

import os
import subprocess
import sys

import torch

from cephalo.place import Place
from cephalo.report import Reporter


class _Heard(list):
    def send(self, kind: str, **fields) -> None:
        self.append((kind, fields))


def _steps(reporter: Reporter, count: int) -> None:
    for _ in range(count):
        reporter.note_forward()
        reporter.note_backward(4)
        reporter.note_step()


def test_a_step_on_cpu_is_reported_when_it_ends():
    heard = _Heard()
    reporter = Reporter(heard, torch.device("cpu"))
    reporter.note_loss(torch.tensor(2.5))
    _steps(reporter, 2)
    assert [(kind, e["step"], e["loss"]) for kind, e in heard] == [
        ("step", 1, 2.5),
        ("step", 2, None),
    ]
    reporter.flush()
    assert len(heard) == 2


def test_the_number_of_a_step_that_is_held_back_is_told_at_once():
    reporter = Reporter(_Heard(), torch.device("cuda"))  # which is not asked for anything
    told: list[int] = []
    reporter.held_back = lambda: told.append(reporter.steps)
    _steps(reporter, 1)
    assert told == [1]


def test_only_the_heartbeats_thread_asks_the_device():
    place = Place()
    place.pending = lambda: "gather"
    assert place.report()["collective"] == "gather"
    assert place.report(ask_device=False)["collective"] == ""


def test_the_last_step_is_told_before_an_exit_without_an_end():
    code = (
        "import os\n"
        "from cephalo import lastwords\n"
        "class E:\n"
        "    ended = False\n"
        "    def send(self, kind, **f): print(kind, f, flush=True)\n"
        "lastwords.announce_exit(E(), [lambda: print('the last step', flush=True)])\n"
        "os._exit(3)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=os.environ
    )
    assert done.returncode == 3
    assert done.stdout.splitlines() == ["the last step", "exit {'code': 3}"]
