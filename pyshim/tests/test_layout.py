"""Layouts by brute force: who owns which rows, for thousands of random shapes and shares."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from cephalo.layout import PPM, build_layout


def random_shares(draw: random.Random, world: int) -> list[int]:
    """Shares that sum to PPM: even, random, steep, or with zeros."""
    kind = draw.randrange(4)
    if kind == 0:
        cuts = [PPM * i // world for i in range(world + 1)]
    elif kind == 1:
        cuts = [0, *sorted(draw.randrange(PPM + 1) for _ in range(world - 1)), PPM]
    elif kind == 2:
        cuts = [0, *sorted(draw.choice((0, 1, PPM - 1, PPM)) for _ in range(world - 1)), PPM]
    else:
        owner = draw.randrange(world)
        return [PPM if i == owner else 0 for i in range(world)]
    return [b - a for a, b in zip(cuts, cuts[1:])]


def random_shapes(draw: random.Random) -> list[tuple[int, ...]]:
    shapes = []
    for _ in range(draw.randrange(1, 7)):
        dims = draw.randrange(4)
        shapes.append(tuple(draw.choice((0, 1, 1, 2, 3, 5, 7, 13)) for _ in range(dims)))
    return shapes


def owners(layout) -> list[int]:
    """The rank of every element, spelled out."""
    return [rank for rank, size in enumerate(layout.sizes) for _ in range(size)]


def test_random_layouts():
    draw = random.Random(1)
    for _ in range(4000):
        shapes = random_shapes(draw)
        shares = random_shares(draw, draw.randrange(1, 6))
        layout = build_layout(shapes, shares)
        check(layout, shapes, shares)


def check(layout, shapes, shares):
    assert layout.world_size == len(shares) and layout.numel == sum(s.numel for s in layout.spans)
    assert list(layout.ends) == sorted(layout.ends) and layout.ends[-1] == layout.numel
    assert all(size >= 0 for size in layout.sizes) and sum(layout.sizes) == layout.numel
    owner = owners(layout)
    held = [0] * layout.world_size
    for shape, span in zip(shapes, layout.spans):
        assert span.shape == shape
        rows = layout.rows_of(span)
        assert sum(rows) == span.rows and len(rows) == layout.world_size
        by_rank = [[] for _ in shares]
        for row in range(span.rows):
            first = span.offset + row * span.row_numel
            ranks = set(owner[first : first + span.row_numel])
            assert len(ranks) <= 1, f"row {row} of {shape} lies on ranks {ranks}"
            for rank in ranks:
                by_rank[rank].append(row)
        for rank in range(layout.world_size):
            if span.row_numel:
                assert rows[rank] == len(by_rank[rank])
            start, end = layout.local_slice(span, rank)
            assert end - start == rows[rank] * span.row_numel
            if end > start:
                assert (
                    layout.range_of(rank)[0] + start
                    == span.offset + by_rank[rank][0] * span.row_numel
                )
                assert start == held[rank], "pieces of a shard follow one another without a gap"
                held[rank] = end
    assert tuple(held) == layout.sizes
    nearest(layout, shares)


def nearest(layout, shares):
    """No row boundary is nearer to the exact share than the cut; the lower one on a tie."""
    boundaries = sorted(
        {s.offset + r * s.row_numel for s in layout.spans for r in range(s.rows + 1)}
    )
    share = 0
    for end, part in zip(layout.ends, shares):
        share += part
        exact = Fraction(layout.numel * share, PPM)
        best = min(boundaries, key=lambda b: (abs(b - exact), b))
        assert end == best


def test_example_of_the_docstring():
    layout = build_layout([(4, 2), (2, 3), (1,)], [400_000, 400_000, 200_000])
    assert layout.ends == (6, 11, 15)
    assert [layout.rows_of(s) for s in layout.spans] == [(3, 1, 0), (0, 1, 1), (0, 0, 1)]
    assert layout.local_slice(layout.spans[1], 2) == (0, 3)


@pytest.mark.parametrize("shares", [[PPM - 1], [PPM + 1], [-1, PPM + 1], [], [500_000, 500_001]])
def test_bad_shares(shares):
    with pytest.raises(ValueError, match="sum to 1000000"):
        build_layout([(3, 2)], shares)


def test_even():
    assert build_layout([(4, 2)], [500_000, 500_000]).even
    assert not build_layout([(5, 2)], [500_000, 500_000]).even
