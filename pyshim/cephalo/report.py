"""What a training step took, sent to the supervisor."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from .clock import Clock
from .events import Events


@dataclass
class _Step:
    number: int
    step_ms: float
    samples: int
    losses: list[torch.Tensor] = field(default_factory=list)
    waits: list = field(default_factory=list)


class Reporter:
    """Turns losses, backwards and optimizer steps into ``step`` events.

    On CUDA a step is reported when the next one ends, so that reading its loss or its events never
    makes the device wait; only its number is told at once, for a process that dies has no last
    word. On CPU there is nothing to wait for, and a step is reported when it ends.
    """

    def __init__(self, events: Events, device: torch.device):
        self._events = events
        self._device = device
        self._clock: Clock | None = None
        self._base_bytes = _resident_bytes() if device.type == "cpu" else 0
        self._losses: list[torch.Tensor] = []
        self._samples = 0
        self._number = 0
        self._stepped = False
        self._began: float | None = None
        self._unsent: _Step | None = None
        self._backwards = 0
        self.on_first_step: Callable[[], int] = lambda: 0
        """Called at the first step of this process: after which step the script goes on."""
        self.held_back: Callable[[], None] = lambda: None
        """Called when a step was done whose report waits for the next one."""

    def watch(self, clock: Clock) -> None:
        """Take waiting times from ``clock``."""
        self._clock = clock

    def note_loss(self, loss: torch.Tensor) -> None:
        """A scalar whose backward is called; those of one step are added up."""
        if loss.device.type == "cuda":
            host = torch.empty(loss.shape, dtype=loss.dtype, pin_memory=True)
            loss = host.copy_(loss, non_blocking=True)
        self._losses.append(loss)

    def note_forward(self) -> None:
        """A training forward begins. The first one begins the first step: what the script does
        before it, its imports for one, is not training."""
        if self._began is None:
            if self._clock is not None:
                self._clock.restart()
            self._began = time.perf_counter()

    def note_backward(self, samples: int) -> None:
        """A backward over ``samples`` samples that count has ended."""
        self._samples += samples
        self._backwards += 1

    def note_step(self) -> None:
        """The optimizer has made a step."""
        if not self._backwards or self._began is None:
            return
        if self._clock is not None:
            self._clock.pace()
        now = time.perf_counter()
        step_ms = (now - self._began) * 1e3
        self.flush()
        if not self._stepped:
            self._stepped, self._number = True, self.on_first_step()
        self._number += 1
        waits = self._clock.take() if self._clock is not None else []
        self._unsent = _Step(self._number, step_ms, self._samples, self._losses, waits)
        self._began, self._losses, self._samples, self._backwards = now, [], 0, 0
        if self._device.type == "cuda":
            self.held_back()
        else:
            self.flush()

    @property
    def steps(self) -> int:
        """The number of the last step, those before a resume included."""
        return self._number

    @property
    def began(self) -> bool:
        """True once there was a training forward."""
        return self._began is not None

    @property
    def training(self) -> bool:
        """True if a backward has come since the last optimizer step: the next one is real."""
        return self._backwards > 0 and self._began is not None

    def flush(self) -> None:
        """Send the step that is not sent yet."""
        step, self._unsent = self._unsent, None
        if step is None:
            return
        wait_ms = self._clock.total_ms(step.waits) if self._clock is not None else 0.0
        loss = sum(float(x) for x in step.losses) if step.losses and step.samples else None
        self._events.send(
            "step",
            step=step.number,
            loss=loss,
            samples=step.samples,
            step_ms=step.step_ms,
            compute_ms=max(0.0, step.step_ms - wait_ms),
            wait_ms=wait_ms,
            peak_memory_bytes=self.peak_bytes(),
        )

    def flush_quickly(self) -> None:
        """Send the step that is not sent yet, although the process is about to fail: without its
        loss and its waits where the device must be asked for them, since it may not answer."""
        step = self._unsent
        if step is not None and self._device.type == "cuda":
            step.losses, step.waits = [], []
        self.flush()

    def peak_bytes(self) -> int:
        """Most memory the step's tensors took: from the allocator on CUDA, from the process's
        resident size on CPU."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        return max(0, _resident_bytes(peak=True) - self._base_bytes)


def _resident_bytes(peak: bool = False) -> int:
    key = "VmHWM:" if peak else "VmRSS:"
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    return 0
