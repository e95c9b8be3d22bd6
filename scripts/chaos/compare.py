"""What must hold at the end."""

from __future__ import annotations

import argparse
import json
import os
import struct
import subprocess
from array import array
from pathlib import Path

from .faults import ORPHAN_SECONDS
from .run import MODEL, Failed, Run, wait_for

Model = dict[str, array]
"""Weights by name."""


def weights(run: Run, checkpoint: Path, out: Path) -> Model:
    """The model of a checkpoint, by name."""
    tool = [run.options.program, "checkpoint", "export", "--python", run.options.python]
    subprocess.run(
        [str(a) for a in (*tool, checkpoint, out)], check=True, stdout=subprocess.DEVNULL
    )
    data = out.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    found = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            start, end = (8 + size + at for at in entry["data_offsets"])
            found[name] = array({"F64": "d", "F32": "f"}[entry["dtype"]], data[start:end])
    return found


class Plain:
    """The same training in one process of plain PyTorch (plain.py), beside whatever else runs."""

    def __init__(self, options: argparse.Namespace, folder: Path, steps: int):
        self._out = folder / "plain.json"
        script = Path(__file__).with_name("plain.py")
        command = [options.python, script, options.script, len(options.devices), self._out, *MODEL]
        command += ["--steps", steps]
        self._process = subprocess.Popen([str(a) for a in command], stdin=subprocess.DEVNULL)

    def weights(self, seconds: float) -> Model:
        """What it came to. Waits for it."""
        if self._process.wait(seconds) != 0:
            raise Failed(f"plain PyTorch ended with {self._process.returncode}")
        found = json.loads(self._out.read_text())
        return {name: array("d", values) for name, values in found.items()}

    def end(self) -> None:
        """Leave no process behind."""
        self._process.kill()
        self._process.wait()


def difference(a: Model, b: Model) -> float:
    """The distance of two models, relative to the size of the first."""
    if a.keys() != b.keys():
        raise Failed("the two runs have different parameters")
    square = sum((x - y) ** 2 for name in a for x, y in zip(a[name], b[name]))
    return (square / sum(x * x for v in a.values() for x in v)) ** 0.5


def check_checkpoints(run: Run) -> int:
    """Every checkpoint that has its place must be whole."""
    paths = run.saved()
    tool = [run.options.program, "checkpoint", "verify", "--python", run.options.python, *paths]
    subprocess.run([str(a) for a in tool], check=True, stdout=subprocess.DEVNULL)
    return len(paths)


def check_nothing_left(folder: Path) -> None:
    def left() -> list[str]:
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                line = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in line and int(process.name) != os.getpid():
                found.append(process.name)
        return found

    wait_for(lambda: not left(), ORPHAN_SECONDS, "processes are left")
