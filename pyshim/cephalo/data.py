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
        self.last_other: Source | None = None
        """The same of a loader over a DistributedSampler that is not the training loader."""
        self.last_loader: Source | None = None
        """What the loader that was drawn from last looks like; None if it was not dealt by us."""

    def check(self) -> None:
        """Raises RuntimeError if the batch drawn last is that of a training loader with another
        batch size than the profile's: the plan's batches would not be dealt."""
        other = self.last_other
        if self.last_counted is not None or other is None or self.source is None:
            return
        if other.samples == self.source.samples:
            raise RuntimeError(
                f"the profile is of a loader with batch size {self.source.batch_per_rank} over "
                f"{self.source.samples} samples, and the script draws from one with batch size "
                f"{other.batch_per_rank}: measure again (--remeasure, or leave --profile out)"
            )

    def part(self, samples: int) -> tuple[int, int]:
        """(first, count) of this rank's samples in a global batch of ``samples`` samples."""
        parts = self.plan.split(samples)
        return sum(parts[: self.rank]), parts[self.rank]


class Dealer:
    """The batches of one BatchSampler, dealt by the plan from the global batches of its sampler."""

    def __init__(self, sampler: DistributedSampler, batch_size: int, drop_last: bool, feed: Feed):
        self.source = Source(batch_size, len(sampler.dataset))
        self._sampler, self._drop_last, self._feed = sampler, drop_last, feed

    def __len__(self) -> int:
        count, batch = self.source.samples, self._feed.plan.global_batch
        return count // batch if self._drop_last else -(-count // batch)

    def __iter__(self) -> Iterator[list[int]]:
        indices, batch = self._indices(), self._feed.plan.global_batch
        for index in range(len(self)):
            share = indices[index * batch : (index + 1) * batch]
            first, count = self._feed.part(len(share))
            yield share[first : first + count] if count else share[:1]

    def counted(self, index: int) -> int:
        """Samples of this rank that count in batch ``index`` of an epoch."""
        batch = self._feed.plan.global_batch
        return self._feed.part(min(batch, self.source.samples - index * batch))[1]

    def _indices(self) -> list[int]:
        """All indices of the epoch, in the order one device would use; none is repeated or left
        out."""
        sampler = self._sampler
        if not sampler.shuffle:
            return list(range(self.source.samples))
        generator = torch.Generator()
        generator.manual_seed(sampler.seed + sampler.epoch)
        return torch.randperm(self.source.samples, generator=generator).tolist()


def dealer_of(batches: Any, feed: Feed) -> Dealer | None:
    """How the batches of a BatchSampler are dealt, or None if they stay as the script made them: it
    is a class of the script's own, or its sampler is, or the loader is not the training loader."""
    dealer = _any_dealer(batches, feed)
    return dealer if dealer is not None and feed.source in (None, dealer.source) else None


def _any_dealer(batches: Any, feed: Feed) -> Dealer | None:
    if type(batches) is not BatchSampler or type(batches.sampler) is not DistributedSampler:
        return None
    if batches.sampler.num_replicas != feed.plan.world_size:
        return None
    return Dealer(batches.sampler, batches.batch_size, batches.drop_last, feed)


class _CountingIterator:
    """The iterator of a loader, telling the feed what each batch counts as it is drawn."""

    def __init__(self, inner: Iterator, loader: DataLoader, feed: Feed):
        self._inner, self._feed, self._drawn = inner, feed, 0
        self._dealer = dealer_of(loader.batch_sampler, feed)
        other = _any_dealer(loader.batch_sampler, feed) if self._dealer is None else None
        self._other = other.source if other is not None else None

    def __iter__(self) -> _CountingIterator:
        return self

    def __len__(self) -> int:
        return len(self._inner)

    def __next__(self) -> Any:
        batch = next(self._inner)
        dealer = self._dealer
        self._feed.last_counted = dealer.counted(self._drawn) if dealer is not None else None
        self._feed.last_loader = dealer.source if dealer is not None else None
        self._feed.last_other = self._other
        self._drawn += 1
        return batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def install(feed: Feed) -> Callable[[], None]:
    """Make every BatchSampler over a DistributedSampler, and so every DataLoader, follow ``feed``.
    Returns a function that takes it back."""
    length, batches, iterate = BatchSampler.__len__, BatchSampler.__iter__, DataLoader.__iter__

    def dealt_length(self: BatchSampler) -> int:
        dealer = dealer_of(self, feed)
        return length(self) if dealer is None else len(dealer)

    def dealt_batches(self: BatchSampler) -> Iterator[list[int]]:
        dealer = dealer_of(self, feed)
        return batches(self) if dealer is None else iter(dealer)

    def iterate_counting(self: DataLoader) -> Iterator:
        return _CountingIterator(iterate(self), self, feed)

    def put(length: Any, batches: Any, iterate: Any) -> None:
        BatchSampler.__len__, BatchSampler.__iter__ = length, batches
        DataLoader.__iter__ = iterate

    put(dealt_length, dealt_batches, iterate_counting)
    return lambda: put(length, batches, iterate)
