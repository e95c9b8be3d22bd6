"""Distributed checkpoints of ragged tensors: what each rank writes, and loading into any layout.

Saved files hold the bare model's names and global shapes, cut by rows as the ranks owned them;
they load under any other layout, number of ranks, or into stock tensors.
"""

from __future__ import annotations

import torch
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
)
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

from . import checkpoint_load
from .ragged import RaggedDTensor


def _chunk(tensor: RaggedDTensor) -> ChunkStorageMetadata:
    offset = tensor.row_offset if tensor.piece.shape[0] else 0
    return ChunkStorageMetadata(
        offsets=torch.Size((offset, *[0] * (tensor.dim() - 1))), sizes=tensor.piece.shape
    )


def chunk_list(tensor: RaggedDTensor) -> list[ChunkStorageMetadata]:
    """Return the one block of the whole tensor that this rank holds; none if it is empty.

    A tensor without elements is held by rank 0, so that it does not vanish from the checkpoint.
    """
    if tensor.piece.numel() or (tensor.numel() == 0 and tensor._ragged.rank == 0):
        return [_chunk(tensor)]
    return []


def write_items(fqn: str, tensor: RaggedDTensor) -> list[WriteItem]:
    """Return what this rank writes of the tensor named ``fqn``."""
    return [
        WriteItem(
            index=MetadataIndex(fqn, chunk.offsets),
            type=WriteItemType.SHARD,
            tensor_data=TensorWriteData(
                chunk=chunk,
                properties=TensorProperties.create_from_tensor(tensor.piece),
                size=tensor.shape,
            ),
        )
        for chunk in chunk_list(tensor)
    ]


def local_chunk(tensor: RaggedDTensor, index: MetadataIndex) -> torch.Tensor:
    """Return the local rows that ``index`` names. Raises ValueError if this rank lacks them."""
    chunks = chunk_list(tensor)
    if not chunks or (index.offset is not None and index.offset != chunks[0].offsets):
        raise ValueError(
            f"{index.fqn}: the piece at {index.offset} is not held here; this rank has rows from "
            f"{tensor.row_offset}, {tensor.piece.shape[0]} of them"
        )
    return tensor.piece


def install() -> None:
    """Make loading keep the ragged layout. Call once, before user code runs."""
    checkpoint_load.install()
