"""A distributed checkpoint as one safetensors file, under the bare model's names.

The format is written here: 8 bytes with the length of the header, the header in JSON, the data.
Only one tensor is in memory at a time.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import struct
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

from .checkpoint_files import BrokenCheckpoint, read_chunk, read_metadata, tensors_of, verify

_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_WRAPPERS = ("_checkpoint_wrapped_module.", "_orig_mod.")
_OPTIMIZERS = ("optim", "optimizer", "optimizers", "optimizer_state_dict")


class NotWritten(OSError):
    """The file to export to cannot be written; the checkpoint has no part in it."""


def model_tensors(
    metadata: Metadata, part: str | None = None
) -> dict[str, tuple[str, TensorStorageMetadata]]:
    """The model's tensors: bare name to (name in the checkpoint, entry).

    ``part`` is the key of the state that the script saved the model under; without it "model", or
    what is left when the optimizer is taken away. Raises BrokenCheckpoint.
    """
    paths = metadata.planner_data or {}
    entries = []
    for name, entry in tensors_of(metadata):
        path = [str(p) for p in paths.get(name, (name,))]
        entries.append((path, name, entry))
    roots = sorted({path[0] for path, _, _ in entries if len(path) > 1})
    if part is None and "model" in roots:
        part = "model"
    found = {}
    for path, name, entry in entries:
        inside = path[1:] if part is not None and path[0] == part else path
        outside = inside is path if part is not None else path[0] in _OPTIMIZERS
        if outside:
            continue
        bare = ".".join(inside)
        for wrapper in _WRAPPERS:
            bare = bare.replace(wrapper, "")
        found[bare] = (name, entry)
    if not found:
        raise BrokenCheckpoint(f"there is no tensor under {part!r}; there are {', '.join(roots)}")
    return found


def export(
    path: Path,
    out: Path,
    part: str | None = None,
    aside: Path | None = None,
    tell: Callable[[int, int], None] = lambda done, of: None,
) -> dict[str, int]:
    """Write the model of the checkpoint ``path`` to ``out``, and until it is whole to ``aside``,
    which whoever ends this process in the middle removes. Says to ``tell`` how many bytes are
    written of how many. Raises BrokenCheckpoint, also for one that is not whole, and NotWritten."""
    report = verify(path)
    if report.problems:
        raise BrokenCheckpoint("; ".join(report.problems[:3]))
    metadata = read_metadata(path)
    found = model_tensors(metadata, part)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name in sorted(found):
        entry = found[name][1]
        dtype = entry.properties.dtype
        if dtype not in _DTYPES:
            raise BrokenCheckpoint(f"{name}: safetensors has no {dtype}")
        end = position + entry.size.numel() * dtype.itemsize
        header[name] = {
            "dtype": _DTYPES[dtype],
            "shape": list(entry.size),
            "data_offsets": [position, end],
        }
        position = end
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    aside = aside or out.with_name(f".{out.name}.part")
    try:
        with aside.open("wb") as file:
            file.write(struct.pack("<Q", len(head)) + head)
            for name in sorted(found):
                _write(file, _whole(path, metadata, *found[name]))
                tell(header[name]["data_offsets"][1], position)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, out)
    except OSError as err:
        raise NotWritten(f"{out} cannot be written: {err.strerror or err}") from err
    finally:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)
    return {"tensors": len(found), "bytes": position}


def _whole(path: Path, metadata: Metadata, name: str, entry: TensorStorageMetadata) -> torch.Tensor:
    full = torch.empty(entry.size, dtype=entry.properties.dtype)
    for chunk in entry.chunks:
        block = read_chunk(path, metadata, name, chunk)
        target = full
        for dim, (offset, size) in enumerate(zip(chunk.offsets, chunk.sizes)):
            target = target.narrow(dim, offset, size)
        target.copy_(block)
    return full


def _write(file: Any, tensor: torch.Tensor) -> None:
    """The bytes of a tensor, without NumPy and without a copy."""
    size = tensor.numel() * tensor.element_size()
    if size:
        file.write(memoryview((ctypes.c_char * size).from_address(tensor.data_ptr())))


def _told(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return work()
    except NotWritten as err:
        return {"not_written": str(err)}
    except (BrokenCheckpoint, OSError) as err:
        return {"problems": [str(err)]}


class Teller:
    """Prints how far the work is, a JSON object a line, but not too often."""

    PAUSE_S = 0.5

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, done: int, of: int) -> None:
        if time.monotonic() - self._last >= self.PAUSE_S:
            self._last = time.monotonic()
            print(json.dumps({"done": done, "of": of}), flush=True)


def main(argv: list[str]) -> int:
    """``verify PATH...``, ``verify-deep PATH...``, ``export PATH OUT ASIDE [PART]``: prints JSON
    objects, one a line: how far it is, and a report of each path as soon as it is there."""
    verb, *rest = argv
    tell = Teller()
    works: list[Callable[[], dict[str, Any]]]
    if verb == "export":
        path, out, aside, *part = rest
        works = [partial(export, Path(path), Path(out), *part, aside=Path(aside), tell=tell)]
    else:
        deep = verb == "verify-deep"
        works = [lambda p=path: asdict(verify(Path(p), deep, tell)) for path in rest]
    for work in works:
        print(json.dumps({"report": _told(work)}), flush=True)
    return 0
