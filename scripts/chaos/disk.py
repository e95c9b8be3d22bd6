"""A small disk that can be filled up."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from pathlib import Path

SIZE = 48 << 20


class Disk:
    """A tmpfs on ``folder``. Where none can be mounted, the workers' files may not grow instead."""

    def __init__(self, folder: Path):
        self.folder, self._filler = folder, folder / "filler"
        folder.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "chaos", str(folder)]
        self.mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
        self._limited: list[int] = []

    def fill(self, leave: int, workers: list[int]) -> None:
        """Let only ``leave`` bytes be free; again and again, since others may free some."""
        if not self.mounted:
            for pid in workers:
                if pid not in self._limited:
                    self._limited.append(pid)
                    _limit(pid, leave // max(1, len(workers)))
            return
        more = shutil.disk_usage(self.folder).free - leave
        if more > 0:
            with self._filler.open("ab") as file:
                os.posix_fallocate(file.fileno(), file.tell(), more)

    def free(self) -> None:
        for pid in self._limited:
            _limit(pid, resource.RLIM_INFINITY)
        self._limited = []
        self._filler.unlink(missing_ok=True)

    def close(self) -> None:
        if self.mounted:
            subprocess.run(["umount", "--lazy", str(self.folder)], check=False)


def _limit(pid: int, size: int) -> None:
    try:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    except ProcessLookupError:
        return
