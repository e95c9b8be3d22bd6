"""What the supervisor asks of a worker."""

from __future__ import annotations

import faulthandler
from pathlib import Path

from .events import Events


class Commands:
    """Remembers requests to stop, and writes stacks on request.

    The ranks hear of a stop at different moments; they agree on it in a backward. Stacks are
    written by the thread that listens, so a thread that hangs does not hinder it.
    """

    def __init__(self, events: Events, stacks: Path):
        self._events, self._stacks = events, stacks
        self._stop = self._save = False
        events.on_command = self._hear

    def stop_asked(self) -> bool:
        """True if the run is to stop after a step."""
        return self._stop

    def save_asked(self) -> bool:
        """True if the run is to stop after the script's next checkpoint."""
        return self._save

    def _hear(self, command: dict) -> None:
        kind = command.get("kind")
        if kind == "stop":
            self._stop = True
        elif kind == "save-and-stop":
            self._save = True
        elif kind == "stacks":
            self._write_stacks()

    def _write_stacks(self) -> None:
        try:
            self._stacks.parent.mkdir(exist_ok=True)
            with self._stacks.open("w", encoding="utf-8") as file:
                faulthandler.dump_traceback(file, all_threads=True)
        except OSError as err:
            self._events.send("stacks", message=str(err))
            return
        self._events.send("stacks", path=str(self._stacks))
