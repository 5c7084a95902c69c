"""Sets of groups without a common operator, counted and found by number, never listed.

Groups that share an operator are in conflict, so the sets are the independent sets of a graph of conflicts. Their
numbers by size are a polynomial: those of parts without conflicts between them multiply, and those of a part are the
sets without one of its groups plus those with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

#: Groups of a connected part beyond which counting could take exponential time.
LARGEST = 32


class Choices(Protocol):
    """Sets of groups; ``counts[k]`` is the number of those with k groups."""

    counts: tuple[int, ...]

    def choice(self, size: int, index: int) -> tuple[int, ...]:
        """The set of ``size`` groups with a number from 0 to ``counts[size]`` - 1, as positions of groups."""


class _OneOf:
    """No group, or one of several that are all in conflict."""

    def __init__(self, members: tuple[int, ...]) -> None:
        self._members = members
        self.counts: tuple[int, ...] = (1, len(members)) if members else (1,)

    def choice(self, size: int, index: int) -> tuple[int, ...]:
        return (self._members[index],) if size else ()


class _Branch:
    """The sets without a group, then those with it."""

    def __init__(self, member: int, without: Choices, beside: Choices, most: int) -> None:
        self._member, self._without, self._beside = member, without, beside
        self.counts: tuple[int, ...] = _sum(without.counts, (0, *beside.counts))[: most + 1]

    def choice(self, size: int, index: int) -> tuple[int, ...]:
        first = self._without.counts[size] if size < len(self._without.counts) else 0
        if index < first:
            return self._without.choice(size, index)
        return (self._member, *self._beside.choice(size - 1, index - first))


class _Product:
    """A set from each of several parts, in the order of the first part, then of the second, and so on."""

    def __init__(self, parts: Sequence[Choices], most: int) -> None:
        self._parts = parts
        self._rest: list[tuple[int, ...]] = [(1,)]
        for part in reversed(parts):
            self._rest.append(product(part.counts, self._rest[-1], most))
        self._rest.reverse()
        self.counts = self._rest[0]

    def choice(self, size: int, index: int) -> tuple[int, ...]:
        chosen: tuple[int, ...] = ()
        for part, rest in zip(self._parts, self._rest[1:], strict=True):
            for own, count in enumerate(part.counts[: size + 1]):
                others = rest[size - own] if size - own < len(rest) else 0
                if index < count * others:
                    break
                index -= count * others
            place, index = divmod(index, others)
            chosen += part.choice(own, place)
            size -= own
        return chosen


def independent_sets(groups: Sequence[int], most: int) -> Choices:
    """The sets of at most ``most`` groups, given as sets of operators, that have no operator in common.

    Where more than ``LARGEST`` groups are connected, each in conflict with only some of the others, those of several
    operators with the most conflicts are left out.
    """
    conflicts = [
        sum(1 << other for other, group in enumerate(groups) if group & own and other != place)
        for place, own in enumerate(groups)
    ]
    return _counted((1 << len(groups)) - 1, groups, conflicts, most, {})


def _counted(
    among: int, groups: Sequence[int], conflicts: Sequence[int], most: int, known: dict[int, Choices]
) -> Choices:
    if among not in known:
        parts = list(_connected(among, conflicts))
        made = [_part(part, groups, conflicts, most, known) for part in parts]
        known[among] = made[0] if len(made) == 1 else _Product(made, most)
    return known[among]


def _part(part: int, groups: Sequence[int], conflicts: Sequence[int], most: int, known: dict[int, Choices]) -> Choices:
    """The sets within a connected part."""
    members = tuple(_members(part))
    degree = {member: (conflicts[member] & part).bit_count() for member in members}
    if all(count == len(members) - 1 for count in degree.values()):
        return _OneOf(members)
    worst = max(members, key=degree.__getitem__)
    if len(members) > LARGEST:
        worst = max((m for m in members if groups[m].bit_count() > 1), key=degree.__getitem__)
        return _counted(part ^ (1 << worst), groups, conflicts, most, known)
    without = _counted(part ^ (1 << worst), groups, conflicts, most, known)
    beside = _counted(part & ~(1 << worst) & ~conflicts[worst], groups, conflicts, most, known)
    return _Branch(worst, without, beside, most)


def _connected(among: int, conflicts: Sequence[int]) -> Iterator[int]:
    """The parts without conflicts between them, by their first groups."""
    while among:
        part = waiting = among & -among
        while waiting:
            member = (waiting & -waiting).bit_length() - 1
            added = conflicts[member] & among & ~part
            part |= added
            waiting = (waiting & (waiting - 1)) | added
        yield part
        among &= ~part


def product(first: Sequence[int], second: Sequence[int], most: int) -> tuple[int, ...]:
    """The product of two polynomials up to the power ``most``."""
    counts = [0] * min(len(first) + len(second) - 1, most + 1)
    for i, a in enumerate(first):
        for j, b in enumerate(second[: len(counts) - i]):
            counts[i + j] += a * b
    return tuple(counts)


def _sum(first: Sequence[int], second: Sequence[int]) -> tuple[int, ...]:
    size = max(len(first), len(second))
    return tuple((first[i] if i < len(first) else 0) + (second[i] if i < len(second) else 0) for i in range(size))


def _members(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
