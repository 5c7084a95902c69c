"""How stages and merges are named, and what is measured of them."""

from __future__ import annotations

#: Groups of operator ids, sorted.
Stage = tuple[tuple[str, ...], ...]
#: Ids of operators that run as one, sorted.
Merge = tuple[str, ...]
#: Times of something in milliseconds, a pair a round: together, and one after another, right after each other.
Pairs = list[tuple[float, float]]
