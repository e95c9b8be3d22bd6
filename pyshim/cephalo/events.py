"""The line to the supervisor: one JSON object a line, both ways (events v1)."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any


class Events:
    """Sends events to the supervisor and listens for what it says.

    When the supervisor is gone the worker's process group is killed at once: a worker without a
    supervisor would hold its device for ever. Without a socket path events go nowhere.
    """

    def __init__(self, path: str | None, rank: int, local_rank: int):
        self._rank = rank
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self.ended = False
        """True once an exit was sent."""
        self.on_command: Callable[[dict[str, Any]], None] = lambda command: None
        if path:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.connect(path)
            self.send("hello", local_rank=local_rank, pid=os.getpid())
            threading.Thread(target=self._listen, name="cephalo-events", daemon=True).start()

    def send(self, kind: str, **fields: Any) -> None:
        """Send one event. Values must be JSON; NaN and infinities become null."""
        self.ended = self.ended or kind == "exit"
        if self._socket is None:
            return
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        event = {"time": now.replace("+00:00", "Z"), "kind": kind, "rank": self._rank}
        event.update({k: _finite(v) for k, v in fields.items()})
        line = json.dumps(event, allow_nan=False).encode() + b"\n"
        try:
            with self._lock:
                self._socket.sendall(line)
        except OSError:
            _die()

    def _listen(self) -> None:
        assert self._socket is not None
        buffer = b""
        while True:
            try:
                data = self._socket.recv(65536)
            except OSError:
                data = b""
            if not data:
                _die()
            buffer += data
            *lines, buffer = buffer.split(b"\n")
            for line in lines:
                self.on_command(json.loads(line))


def _die() -> None:
    """End this process at once, with its helpers if it leads a group of its own."""
    if os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value
