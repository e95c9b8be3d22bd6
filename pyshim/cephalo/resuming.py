"""Whether the script goes on from a checkpoint, and after which step.

An unmodified script resumes by its own logic; nothing is told to it but its arguments. What it did
shows at its first optimizer step: a distributed checkpoint was loaded, or the optimizer has steps
behind it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from .events import Events


class StartedOver(RuntimeError):
    """The script was to go on from a checkpoint and began again at step 1."""


class Resume:
    """Looks at the optimizer around the first real step.

    ``loaded`` says whether the script has loaded a distributed checkpoint. ``must`` makes a script
    that starts over an error, on every rank alike.
    """

    def __init__(self, events: Events, loaded: Callable[[], bool], must: bool):
        self._events, self._loaded, self._must = events, loaded, must
        self._had_state = False
        self._after = 0

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Called before the first real step."""
        self._had_state = any(bool(state) for state in optimizer.state.values())

    def after_step(self, optimizer: torch.optim.Optimizer) -> int:
        """Called after it. Returns the number of steps before it. Raises StartedOver."""
        steps = _steps_of(optimizer)
        # One step may be a rehearsal: DCP makes one to have the optimizer's state.
        resumed = self._loaded() or steps > 2 or (self._had_state and steps == 0)
        if not resumed:
            if self._must:
                raise StartedOver(
                    "the script was started again to go on from its newest checkpoint, and has "
                    "loaded none: it would begin again at step 1. Let it resume by itself, or name "
                    "the arguments that make it resume with --resume-args"
                )
            return 0
        before = max(0, steps - 1)
        self._events.send("resume", step=before)
        return before


def _steps_of(optimizer: torch.optim.Optimizer) -> int:
    """The steps that the optimizer counted; 0 if it does not count."""
    return max((int(s["step"]) for s in optimizer.state.values() if "step" in s), default=0)
