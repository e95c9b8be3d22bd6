"""Who owns which rows. The one place that turns shares into element ranges; nothing else rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

PPM = 1_000_000


@dataclass(frozen=True)
class ParamSpan:
    """One parameter inside the flat buffer: ``rows`` rows of ``row_numel`` elements at ``offset``.

    A row is one index of dimension 0; a 0-dim parameter is one row of one element.
    """

    shape: tuple[int, ...]
    offset: int
    rows: int
    row_numel: int

    @property
    def numel(self) -> int:
        return self.rows * self.row_numel

    @property
    def end(self) -> int:
        return self.offset + self.numel


@dataclass(frozen=True)
class Layout:
    """A flat buffer of ``numel`` elements cut at ``ends`` (element offsets, one per rank).

        params   |--- A: 4 rows ---|-- B: 2 rows --|C|
        ranks    |---- 0 ----|------- 1 -------|  2  |     every cut is on a row boundary

    Rank i owns [ends[i-1], ends[i]), which may be empty.
    """

    spans: tuple[ParamSpan, ...]
    ends: tuple[int, ...]

    @property
    def numel(self) -> int:
        return self.spans[-1].end if self.spans else 0

    @property
    def world_size(self) -> int:
        return len(self.ends)

    def range_of(self, rank: int) -> tuple[int, int]:
        """First and one past the last element that ``rank`` owns."""
        return (self.ends[rank - 1] if rank else 0, self.ends[rank])

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Elements owned by every rank; they sum to ``numel``."""
        return tuple(b - a for a, b in map(self.range_of, range(self.world_size)))

    @property
    def even(self) -> bool:
        """True if all ranks own the same number of elements."""
        return len(set(self.sizes)) == 1

    def rows_of(self, span: ParamSpan) -> tuple[int, ...]:
        """Rows of the parameter that every rank owns; they sum to ``span.rows``."""
        if span.row_numel == 0:
            return (span.rows,) + (0,) * (self.world_size - 1)
        counts = []
        for rank in range(self.world_size):
            start, end = self.range_of(rank)
            low, high = max(start, span.offset), min(end, span.end)
            counts.append((high - low) // span.row_numel if high > low else 0)
        return tuple(counts)

    def local_slice(self, span: ParamSpan, rank: int) -> tuple[int, int]:
        """Where the rank's rows of the parameter lie inside the rank's own flat shard."""
        start, end = self.range_of(rank)
        low, high = max(start, span.offset), min(end, span.end)
        if high <= low:
            return (0, 0)
        return (low - start, high - start)


def build_layout(shapes: Sequence[Sequence[int]], state_ppm: Sequence[int]) -> Layout:
    """Lay parameters of ``shapes`` one after another and cut them in proportion to ``state_ppm``.

    Each cut is the exact share in integer arithmetic, moved to the nearest row boundary (the lower
    one on a tie), so the answer is the same on every rank and machine. Raises ValueError if the
    shares are negative or do not sum to 1,000,000.
    """
    if any(p < 0 for p in state_ppm) or sum(state_ppm) != PPM:
        raise ValueError(f"shares {list(state_ppm)} must be 0 or more and sum to {PPM}")
    spans, offset = [], 0
    for shape in shapes:
        rows = shape[0] if len(shape) else 1
        row_numel = prod(shape[1:])
        spans.append(ParamSpan(tuple(shape), offset, rows, row_numel))
        offset += rows * row_numel
    ends, share = [], 0
    for part in state_ppm:
        share += part
        ends.append(_nearest_row(spans, offset, offset * share, PPM))
    return Layout(tuple(spans), tuple(ends))


def _nearest_row(spans: list[ParamSpan], numel: int, numerator: int, denominator: int) -> int:
    """Row boundary nearest to numerator/denominator elements."""
    target = numerator // denominator
    if target >= numel:
        return numel
    span = next(s for s in spans if target < s.end)
    low = span.offset + (target - span.offset) // span.row_numel * span.row_numel
    high = low + span.row_numel
    nearer_high = high * denominator - numerator < numerator - low * denominator
    return high if nearer_high else low
