"""Batches dealt by the plan: together they are exactly the batches of one device."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.utils.data as public
from torch.utils.data import BatchSampler, DataLoader, Dataset, SequentialSampler, Subset
from torch.utils.data.distributed import DistributedSampler

from cephalo import data
from cephalo.data import Feed, Source
from cephalo.plan import PPM, Plan, RankPlan


class Numbers(Dataset):
    def __init__(self, count: int):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.tensor(index)


def plan(batches):
    share = [PPM] + [0] * (len(batches) - 1)
    return Plan(
        sum(batches),
        "ragged",
        tuple(
            RankPlan(i, "d", b, (b,) if b else (), share[i], "recompute")
            for i, b in enumerate(batches)
        ),
    )


def draw(batches, rank, make, epochs=1, source=None):
    """([samples of every batch], [how many count], lengths, feed) of one rank."""
    feed = Feed(plan(batches), rank, source)
    undo = data.install(feed)
    try:
        loader = make(len(batches), rank)
        drawn, counted = [], []
        for epoch in range(epochs):
            if isinstance(loader.sampler, DistributedSampler):
                loader.sampler.set_epoch(epoch)
            for batch in loader:
                drawn.append(batch.tolist())
                counted.append(feed.last_counted)
        return drawn, counted, len(loader), feed
    finally:
        undo()


def distributed(count, batch_size, drop_last=False, shuffle=True, seed=3, **options):
    def make(world, rank):
        sampler = DistributedSampler(
            Numbers(count), num_replicas=world, rank=rank, shuffle=shuffle, seed=seed
        )
        return DataLoader(
            sampler.dataset, batch_size, sampler=sampler, drop_last=drop_last, **options
        )

    return make


def one_device(count, batch, drop_last, epochs, shuffle=True):
    """Global batches as one device with a DistributedSampler of one replica draws them."""
    sampler = DistributedSampler(Numbers(count), num_replicas=1, rank=0, shuffle=shuffle, seed=3)
    loader = DataLoader(sampler.dataset, batch, sampler=sampler, drop_last=drop_last)
    wanted = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        wanted += [b.tolist() for b in loader]
    return wanted


CASES = {
    "whole batches": ([4, 3, 2], 27, False),
    "a rest": ([4, 3, 2], 31, False),
    "a rest that is dropped": ([4, 3, 2], 31, True),
    "a rank without samples": ([5, 0, 4], 20, False),
    "a rest of one sample": ([2, 2, 2], 13, False),
    "less than one batch": ([4, 3, 2], 5, False),
    "one rank": ([6], 20, False),
    "even": ([3, 3], 19, False),
}


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_global_batches_are_those_of_one_device(name, shuffle):
    batches, count, drop_last = CASES[name]
    make = distributed(count, 4, drop_last, shuffle)
    per_rank = [draw(batches, rank, make, epochs=3) for rank in range(len(batches))]
    wanted = one_device(count, sum(batches), drop_last, 3, shuffle)
    assert len({length for _, _, length, _ in per_rank}) == 1
    assert per_rank[0][2] == len(wanted) // 3
    got = []
    for step in range(len(wanted)):
        parts = [(drawn[step], counted[step]) for drawn, counted, _, _ in per_rank]
        for samples, counts in parts:
            assert len(samples) == max(counts, 1), "a rank without samples sees one"
        got.append([s for samples, counts in parts for s in samples[:counts]])
    assert got == wanted


def test_workers_do_not_change_the_order_or_the_counts():
    plain = [draw([4, 2], r, distributed(19, 3), 2)[:2] for r in (0, 1)]
    with_workers = [draw([4, 2], r, distributed(19, 3, num_workers=2), 2)[:2] for r in (0, 1)]
    assert plain == with_workers


def test_evaluation_loaders_keep_even_batches():
    training = Source(3, 40)
    drawn, counted, length, feed = draw([5, 1], 1, distributed(20, 3, shuffle=False), 1, training)
    sampler = DistributedSampler(Numbers(20), num_replicas=2, rank=1, shuffle=False)
    assert drawn == [b.tolist() for b in DataLoader(sampler.dataset, 3, sampler=sampler)]
    assert length == 4 and counted == [None] * 4 and feed.last_loader is None
    drawn, counted, _, feed = draw([5, 1], 1, distributed(40, 3, shuffle=False), 1, training)
    assert counted[0] == 1 and feed.last_loader == training


class Reversed(DistributedSampler):
    def __iter__(self):
        return reversed(list(super().__iter__()))


class Pairs(BatchSampler):
    def __iter__(self):
        yield from ([i, i] for i in self.sampler)


def _of_its_own(kind):
    def make(world, rank):
        numbers = Numbers(12)
        if kind == "sampler":
            sampler = Reversed(numbers, num_replicas=world, rank=rank, shuffle=False)
            return DataLoader(numbers, 3, sampler=sampler)
        if kind == "replicas":
            sampler = DistributedSampler(numbers, num_replicas=world + 1, rank=rank, shuffle=False)
            return DataLoader(numbers, 3, sampler=sampler)
        if kind == "no distributed sampler":
            return DataLoader(numbers, 3)
        sampler = DistributedSampler(numbers, num_replicas=world, rank=rank, shuffle=False)
        return DataLoader(numbers, batch_sampler=Pairs(sampler, 2, False))

    return make


@pytest.mark.parametrize("kind", ["sampler", "replicas", "no distributed sampler", "batch sampler"])
def test_what_the_script_made_itself_stays_as_it_is(kind):
    drawn, counted, length, _ = draw([3, 1], 1, _of_its_own(kind))
    plain = _of_its_own(kind)(2, 1)
    assert drawn == [b.tolist() for b in plain] and length == len(plain)
    assert set(counted) == {None}


def test_a_batch_sampler_that_the_script_makes_is_dealt_too():
    def make(world, rank):
        sampler = DistributedSampler(Numbers(9), num_replicas=world, rank=rank, shuffle=False)
        return DataLoader(sampler.dataset, batch_sampler=BatchSampler(sampler, 2, False))

    assert draw([3, 1], 0, make)[0] == [[0, 1, 2], [4, 5, 6], [8]]
    assert draw([3, 1], 1, make)[:2] == ([[3], [7], [8]], [1, 1, 0])


def test_public_classes_stay_themselves():
    undo = data.install(Feed(plan([3, 1]), 0))
    try:
        assert (
            public.BatchSampler is BatchSampler and public.DistributedSampler is DistributedSampler
        )
        batches = BatchSampler(SequentialSampler(range(5)), 2, False)
        assert list(batches) == [[0, 1], [2, 3], [4]] and len(batches) == 3
        loader = DataLoader(Subset(Numbers(9), range(4)), 2)
        assert isinstance(loader.batch_sampler, BatchSampler) and len(list(loader)) == 2
        ahead = iter(DataLoader(Numbers(6), 2))
        assert len(ahead) == 3 and [b.tolist() for b in itertools.islice(ahead, 2)] == [
            [0, 1],
            [2, 3],
        ]
    finally:
        undo()
    assert BatchSampler.__iter__.__qualname__ == "BatchSampler.__iter__"
    assert DataLoader.__iter__.__qualname__ == "DataLoader.__iter__"


def test_feed_parts():
    feed = Feed(plan([4, 3, 2]), 1)
    assert feed.part(9) == (4, 3) and feed.part(0) == (0, 0)
    assert sum(Feed(plan([4, 3, 2]), r).part(5)[1] for r in range(3)) == 5


def test_a_training_loader_of_another_batch_size_is_refused():
    profiled, others = Source(2, 9), {4: "batch size 4", 2: None}
    for size, message in others.items():
        feed = draw([3, 1], 0, distributed(9, size), source=profiled)[3]
        if message is None:
            feed.check()
        else:
            with pytest.raises(RuntimeError, match=message):
                feed.check()
    draw([3, 1], 0, distributed(5, 4), source=profiled)[3].check()  # an evaluation's
