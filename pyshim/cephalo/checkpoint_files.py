"""Distributed checkpoints as files: what is in one, and whether all of it is there.

Runs on CPU and without a process group. ``.metadata`` is a pickle; it is read with a reader that
knows the classes of such files and refuses every other.
"""

from __future__ import annotations

import io
import math
import pickle
import stat
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorStorageMetadata,
)

METADATA = ".metadata"
MOST_METADATA = 1 << 30
"""More bytes than the metadata of any checkpoint has."""
_ALLOWED = {
    ("collections", "OrderedDict"),
    ("builtins", "set"),
    ("pathlib", "Path"),
    ("pathlib", "PosixPath"),
    ("pathlib", "PurePosixPath"),
    ("pathlib._local", "PosixPath"),
    ("torch", "Size"),
    ("torch.serialization", "_get_layout"),
}


class BrokenCheckpoint(ValueError):
    """A checkpoint that cannot be read; the message says what is wrong with it."""


class _Strict(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        known = (module, name) in _ALLOWED or module.startswith("torch.distributed.checkpoint.")
        if not known and module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            known = True
        if not known or "." in name:
            raise BrokenCheckpoint(f"{METADATA} names {module}.{name}, which does not belong there")
        return super().find_class(module, name)


@dataclass
class Report:
    """What ``verify`` found."""

    path: str
    problems: list[str] = field(default_factory=list)
    tensors: int = 0
    bytes: int = 0
    files: int = 0


def open_file(path: Path, most: int | None = None) -> BinaryIO:
    """Open a regular file for reading. Raises BrokenCheckpoint for anything else, such as a pipe,
    which would be waited for without end, and for more than ``most`` bytes."""
    state = path.stat()
    if not stat.S_ISREG(state.st_mode):
        raise BrokenCheckpoint(f"{path.name} is not a file")
    if most is not None and state.st_size > most:
        raise BrokenCheckpoint(f"{path.name} has {state.st_size} bytes, more than any has")
    return path.open("rb")


def read_metadata(path: Path) -> Metadata:
    """Read ``.metadata``. Raises BrokenCheckpoint."""
    try:
        with open_file(path / METADATA, MOST_METADATA) as file:
            found = _Strict(file).load()
    except FileNotFoundError as err:
        raise BrokenCheckpoint(
            f"{METADATA} is missing: it is written last, when all is there"
        ) from err
    except BrokenCheckpoint:
        raise
    except Exception as err:  # a pickle that is cut short can raise nearly anything
        raise BrokenCheckpoint(f"{METADATA} cannot be read: {err}") from err
    if not isinstance(found, Metadata) or not isinstance(found.storage_data, dict):
        raise BrokenCheckpoint(f"{METADATA} holds a {type(found).__name__}")
    return found


def tensors_of(metadata: Metadata) -> Iterator[tuple[str, TensorStorageMetadata]]:
    """The tensors of a checkpoint by name, in order."""
    for name in sorted(metadata.state_dict_metadata):
        entry = metadata.state_dict_metadata[name]
        if isinstance(entry, TensorStorageMetadata):
            yield name, entry


def read_chunk(
    path: Path, metadata: Metadata, name: str, chunk: ChunkStorageMetadata
) -> torch.Tensor:
    """Read one block of one tensor and check its checksum. Raises BrokenCheckpoint."""
    info = metadata.storage_data.get(MetadataIndex(name, chunk.offsets))
    if info is None:
        raise BrokenCheckpoint(f"{name}: nobody wrote the block at {list(chunk.offsets)}")
    try:
        with open_file(path / info.relative_path) as file:
            file.seek(info.offset)
            data = file.read(info.length)
        # torch.load does not compare the checksums that torch.save has written.
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            damaged = archive.testzip()
        if damaged is not None:
            raise ValueError(f"the checksum of {damaged} differs")
        block = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as err:
        raise BrokenCheckpoint(f"{name}: {info.relative_path} cannot be read: {err}") from err
    if not isinstance(block, torch.Tensor):
        raise BrokenCheckpoint(f"{name}: {info.relative_path} holds something else there")
    if block.shape != chunk.sizes:
        raise BrokenCheckpoint(f"{name}: a block of {list(block.shape)}, not {list(chunk.sizes)}")
    return block


def verify(
    path: Path, deep: bool = False, tell: Callable[[int, int], None] = lambda done, of: None
) -> Report:
    """Look whether every file and every row is there; ``deep`` reads every block too, and says to
    ``tell`` how many bytes are read of how many."""
    report = Report(str(path))
    try:
        metadata = read_metadata(path)
    except BrokenCheckpoint as err:
        report.problems.append(str(err))
        return report
    _check_files(path, metadata, report)
    read, stored = 0, metadata.storage_data
    of = sum(info.length for info in stored.values())
    for name, entry in tensors_of(metadata):
        report.tensors += 1
        size = math.prod(entry.size) * entry.properties.dtype.itemsize
        report.bytes += size
        held = sum(math.prod(c.sizes) for c in entry.chunks)
        if held != math.prod(entry.size):
            report.problems.append(f"{name}: {held} of {math.prod(entry.size)} elements are there")
        for chunk in entry.chunks:
            index = MetadataIndex(name, chunk.offsets)
            if index not in stored:
                report.problems.append(
                    f"{name}: the block at {list(chunk.offsets)} was not written"
                )
            elif deep:
                try:
                    read_chunk(path, metadata, name, chunk)
                except BrokenCheckpoint as err:
                    report.problems.append(str(err))
                read += stored[index].length
                tell(read, of)
    return report


def _check_files(path: Path, metadata: Metadata, report: Report) -> None:
    ends: dict[str, int] = {}
    for info in (metadata.storage_data or {}).values():
        ends[info.relative_path] = max(ends.get(info.relative_path, 0), info.offset + info.length)
    report.files = len(ends)
    for name, end in sorted(ends.items()):
        file = path / name
        if not file.exists():
            report.problems.append(f"{name} is missing")
        elif not file.is_file():
            report.problems.append(f"{name} is not a file")
        elif file.stat().st_size < end:
            report.problems.append(
                f"{name} has {file.stat().st_size} bytes, and {end} were written"
            )
