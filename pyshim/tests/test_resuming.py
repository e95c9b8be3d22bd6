"""Whether a script resumed shows at its first step; heartbeats, stacks and stops."""

from __future__ import annotations

import json
import socket
import threading

import pytest
import torch
from torch import nn

from cephalo import api, oom
from cephalo.clock import Clock
from cephalo.commands import Commands
from cephalo.events import Events
from cephalo.place import Place, start_heartbeats
from cephalo.resuming import Resume, StartedOver


class Heard:
    def __init__(self) -> None:
        self.events: list[tuple[str, dict]] = []

    def send(self, kind: str, **fields) -> None:
        self.events.append((kind, fields))


def _trained(make, steps: int) -> torch.optim.Optimizer:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = make(model.parameters())
    for _ in range(steps):
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
    return optimizer


def _first_step(optimizer, loaded: bool = False, must: bool = False) -> tuple[int, list]:
    heard = Heard()
    resume = Resume(heard, lambda: loaded, must)
    resume.before_step(optimizer)
    for group in optimizer.param_groups:
        for param in group["params"]:
            param.grad = torch.ones_like(param)
    optimizer.step()
    return resume.after_step(optimizer), heard.events


ADAM = torch.optim.AdamW


def SGD(params):
    return torch.optim.SGD(params, lr=0.1)


def MOMENTUM(params):
    return torch.optim.SGD(params, lr=0.1, momentum=0.9)


@pytest.mark.parametrize(
    ("make", "steps", "loaded", "want"),
    [
        (ADAM, 0, False, None),
        (ADAM, 40, False, 40),
        (ADAM, 40, True, 40),
        (ADAM, 1, False, None),  # a rehearsal for the optimizer's state, as DCP makes one
        (SGD, 0, False, None),
        (SGD, 0, True, 0),
        (MOMENTUM, 5, False, 0),
    ],
)
def test_a_resume_shows_at_the_first_step(make, steps, loaded, want):
    before, events = _first_step(_trained(make, steps), loaded)
    assert before == (want or 0)
    assert events == ([] if want is None else [("resume", {"step": want})])


def test_a_script_that_starts_over_is_an_error_when_it_must_resume():
    with pytest.raises(StartedOver, match="--resume-args"):
        _first_step(_trained(ADAM, 0), must=True)
    assert _first_step(_trained(ADAM, 4), must=True)[0] == 4


@pytest.fixture
def supervisor(tmp_path):
    """A listening socket, and the stream of one worker."""
    path = str(tmp_path / "events")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    made: list[Events] = []
    thread = threading.Thread(target=lambda: made.append(Events(path, 3, 3)))
    thread.start()
    stream, _ = listener.accept()
    stream.settimeout(20)
    thread.join(20)
    lines = stream.makefile("r")
    assert json.loads(lines.readline())["kind"] == "hello"
    yield made[0], stream, lines
    # The stream stays open: its end would end this process.
    _kept.append((stream, lines, listener))


_kept: list = []


def test_heartbeats_say_where_the_rank_is(supervisor):
    events, _, lines = supervisor
    place = Place()
    place.enter("forward", "Block 3")
    with Clock(torch.device("cpu"), place=place).waiting("gather"):
        start_heartbeats(events, place, lambda: 12, seconds=0.01)
        beat = json.loads(lines.readline())
    assert beat["kind"] == "heartbeat" and beat["rank"] == 3 and beat["step"] == 12
    assert (beat["phase"], beat["unit"], beat["collective"]) == ("forward", "Block 3", "gather")
    while beat["moves"] < 3:  # the end of the wait is a move
        beat = json.loads(lines.readline())
    assert beat["collective"] == "" and beat["cpu_ms"] > 0


def test_stacks_and_stops_on_request(supervisor, tmp_path):
    events, stream, lines = supervisor
    commands = Commands(events, tmp_path / "logs" / "stacks.txt")
    assert not commands.stop_asked() and not commands.save_asked()
    stream.sendall(b'{"kind":"save-and-stop"}\n{"kind":"stop"}\n{"kind":"stacks"}\n')
    answer = json.loads(lines.readline())
    while answer["kind"] == "heartbeat":
        answer = json.loads(lines.readline())
    assert answer["kind"] == "stacks"
    text = (tmp_path / "logs" / "stacks.txt").read_text()
    assert "test_stacks_and_stops_on_request" in text
    assert commands.stop_asked() and commands.save_asked()


def test_what_a_script_registers_is_announced():
    heard: list[str] = []
    api.announce_to(lambda: heard.append("can save"))

    def save() -> None:
        pass

    api.on_stop(save)
    assert heard == ["can save"] and api.saves() == [save]


@pytest.mark.parametrize(
    ("message", "want"),
    [
        ("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has", int(2.5 * 2**30)),
        ("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes.", 4096),
        ("std::bad_alloc", 0),
    ],
)
def test_user_case_22_what_was_asked_for(message, want):
    assert oom.tried_bytes(RuntimeError(message)) == want
