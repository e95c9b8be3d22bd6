"""Unequal batches from an ordinary DataLoader with a DistributedSampler.

Global batch g is the slice [g*B, (g+1)*B) of the sampler's index list, as on one device; each rank
takes its own part of the slice, in rank order. A rank whose part is empty draws the slice's first
sample, which does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader
from torch.utils.data import dataloader as dataloader_module
from torch.utils.data.distributed import DistributedSampler
from torch.utils.data.sampler import BatchSampler

from .plan import Plan


@dataclass(frozen=True)
class Source:
    """How the script reads its training data, as found while profiling."""

    batch_per_rank: int
    """The batch size that the script gives its loader."""
    samples: int
    """Samples in the loader's dataset."""


class Feed:
    """Deals global batches to this rank, and knows how many samples of the last batch count.

    ``source`` names the training loader; loaders of another batch size or dataset size (evaluation)
    keep even batches. Without a source every loader over a DistributedSampler is dealt.
    """

    def __init__(self, plan: Plan, rank: int, source: Source | None = None):
        self.plan = plan
        self.rank = rank
        self.source = source
        self.last_counted: int | None = None
        """Samples that count in the batch drawn last; None if it was not dealt by us."""
        self.last_loader: Source | None = None
        """What the loader that was drawn from last looks like."""

    def deals(self, batch_size: int, samples: int) -> bool:
        """True if a loader of this shape is the training loader."""
        return self.source is None or self.source == Source(batch_size, samples)

    def part(self, samples: int) -> tuple[int, int]:
        """(first, count) of this rank's samples in a global batch of ``samples`` samples."""
        parts = self.plan.split(samples)
        return sum(parts[: self.rank]), parts[self.rank]


class PlannedSampler(DistributedSampler):
    """A DistributedSampler that keeps the whole index list, in the order one device would use.

    Drawn through a DataLoader it is dealt by the plan; drawn from directly, or by a loader that is
    not the training loader, it gives every rank the same number of indices as the original.
    """

    def global_indices(self) -> list[int]:
        """All indices of the epoch, in order; nothing is repeated or left out."""
        count = len(self.dataset)
        if not self.shuffle:
            return list(range(count))
        generator = torch.Generator()
        generator.manual_seed(self.seed + self.epoch)
        return torch.randperm(count, generator=generator).tolist()


class PlannedBatchSampler(BatchSampler):
    """Batches of indices for this rank, dealt from the global batches of a PlannedSampler."""

    def __init__(self, sampler: PlannedSampler, batch_size: int, drop_last: bool, feed: Feed):
        super().__init__(sampler, batch_size, drop_last)
        self._feed = feed

    def __len__(self) -> int:
        count, batch = len(self.sampler.dataset), self._feed.plan.global_batch
        return count // batch if self.drop_last else -(-count // batch)

    def counted(self, index: int) -> int:
        """Samples of this rank that count in batch ``index`` of an epoch."""
        batch = self._feed.plan.global_batch
        rest = min(batch, len(self.sampler.dataset) - index * batch)
        return self._feed.part(rest)[1]

    def __iter__(self) -> Iterator[list[int]]:
        indices, batch = self.sampler.global_indices(), self._feed.plan.global_batch
        for index in range(len(self)):
            share = indices[index * batch : (index + 1) * batch]
            first, count = self._feed.part(len(share))
            yield share[first : first + count] if count else share[:1]


class _CountingIterator:
    """The iterator of a loader, telling the feed what each batch counts as it is drawn."""

    def __init__(self, inner: Iterator, loader: DataLoader, feed: Feed):
        self._inner, self._feed, self._drawn = inner, feed, 0
        self._sampler = loader.batch_sampler
        self._shape = _shape_of(loader)

    def __iter__(self) -> _CountingIterator:
        return self

    def __len__(self) -> int:
        return len(self._inner)

    def __next__(self) -> Any:
        batch = next(self._inner)
        dealt = isinstance(self._sampler, PlannedBatchSampler)
        self._feed.last_counted = self._sampler.counted(self._drawn) if dealt else None
        self._feed.last_loader = self._shape
        self._drawn += 1
        return batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _shape_of(loader: DataLoader) -> Source | None:
    sampler = getattr(loader, "sampler", None)
    if isinstance(sampler, PlannedSampler) and loader.batch_size:
        return Source(loader.batch_size, len(sampler.dataset))
    return None


def install(feed: Feed) -> Callable[[], None]:
    """Make every DistributedSampler, BatchSampler and DataLoader made from now on follow ``feed``.
    Returns a function that takes it back."""
    make_batches, iterate = dataloader_module.BatchSampler, DataLoader.__iter__

    def batch_sampler(sampler: Any, batch_size: int, drop_last: bool) -> BatchSampler:
        if isinstance(sampler, PlannedSampler) and feed.deals(batch_size, len(sampler.dataset)):
            return PlannedBatchSampler(sampler, batch_size, drop_last, feed)
        return make_batches(sampler, batch_size, drop_last)

    def iterate_counting(self: DataLoader) -> Iterator:
        return _CountingIterator(iterate(self), self, feed)

    replaced = [
        (torch.utils.data, "DistributedSampler", PlannedSampler),
        (torch.utils.data.distributed, "DistributedSampler", PlannedSampler),
        (dataloader_module, "BatchSampler", batch_sampler),
        (torch.utils.data, "BatchSampler", batch_sampler),
        (DataLoader, "__iter__", iterate_counting),
    ]
    before = [(holder, name, getattr(holder, name)) for holder, name, _ in replaced]
    for holder, name, value in replaced:
        setattr(holder, name, value)

    def restore() -> None:
        for holder, name, value in before:
            setattr(holder, name, value)

    return restore
