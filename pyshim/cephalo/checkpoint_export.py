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
import sys
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


def export(path: Path, out: Path, part: str | None = None) -> dict[str, int]:
    """Write the model of the checkpoint ``path`` to ``out``. Raises BrokenCheckpoint, also for one
    that is not whole, and NotWritten."""
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
    aside = out.with_name(f".{out.name}.part")
    try:
        with aside.open("wb") as file:
            file.write(struct.pack("<Q", len(head)) + head)
            for name in sorted(found):
                _write(file, _whole(path, metadata, *found[name]))
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


def _look(path: Path, deep: bool) -> dict[str, Any]:
    return asdict(verify(path, deep))


def _told(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return work()
    except NotWritten as err:
        return {"not_written": str(err)}
    except (BrokenCheckpoint, OSError) as err:
        return {"problems": [str(err)]}


def main(argv: list[str]) -> int:
    """``verify PATH...``, ``verify-deep PATH...``, ``export PATH OUT [PART]``: prints a list of
    reports in JSON."""
    verb, *rest = argv
    if verb == "export":
        answers = [_told(lambda: export(Path(rest[0]), Path(rest[1]), *rest[2:3]))]
    else:
        deep = verb == "verify-deep"
        answers = [_told(partial(_look, Path(path), deep)) for path in rest]
    json.dump(answers, sys.stdout)
    return 0
