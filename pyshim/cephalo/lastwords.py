"""What a worker says when its script fails or ends the process."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence

from . import oom
from .events import Events

MOST_CHARACTERS = 4000
"""Of an exception's text in an event."""


def announce_exit(events: Events, last_words: Sequence[Callable[[], None]]) -> None:
    """Have the supervisor hear of ``os._exit`` too, and of the last step before it: a worker that
    is gone without a word was killed."""
    end, own = os._exit, os.getpid()

    def announced(code: int) -> None:
        if os.getpid() == own and not events.ended:
            for flush in last_words:
                flush()
            events.send("exit", code=code)
        end(code)

    os._exit = announced


def tell_failure(
    events: Events, err: BaseException, script: str, peak: Sequence[Callable[[], int]]
) -> None:
    """Print the traceback and send the failure, naming the last frame of the user's own code."""
    here = os.path.dirname(os.path.abspath(__file__))
    frames = traceback.extract_tb(err.__traceback__)
    own = [
        f
        for f in frames
        if not f.filename.startswith((here, "<frozen")) and "site-packages" not in f.filename
    ]
    own = [f for f in own if os.path.basename(f.filename) not in ("shim.py", "runpy.py")]
    frame = f"{own[-1].filename}:{own[-1].lineno} in {own[-1].name}" if own else script
    text = "".join(traceback.format_exception(err))
    events.send(
        "error",
        exception=type(err).__name__,
        message=_cut(str(err)),
        user_frame=frame,
        traceback=_cut(text),
        **_memory_need(err, peak),
    )
    with contextlib.suppress(OSError, ValueError):  # the script may have closed it
        if not isinstance(err, SystemExit):
            print(text, file=sys.stderr, flush=True)
        elif not isinstance(err.code, int):
            print(err.code, file=sys.stderr, flush=True)


def _cut(text: str) -> str:
    """``text`` without its middle if it is very long; the log has all of it."""
    if len(text) <= MOST_CHARACTERS:
        return text
    half = MOST_CHARACTERS // 2
    return f"{text[:half]} [{len(text) - 2 * half} characters left out] {text[-half:]}"


def _memory_need(err: BaseException, peak: Sequence[Callable[[], int]]) -> dict[str, object]:
    """If the device had no memory left: what the rank would have held at once."""
    if not oom.out_of_memory(err):
        return {}
    tried = oom.tried_bytes(err)
    needed = sum(look() for look in peak) + tried if tried else 0
    return {"out_of_memory": True, "needed_bytes": needed}
