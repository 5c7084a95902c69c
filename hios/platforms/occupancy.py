"""How many thread blocks of a kernel an SM of a GPU holds at once, and the share of that room which a kernel takes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hios.core.costs import BlockResources

#: Shared memory that the system keeps of every block from compute capability 8.0 on (CUDA C++ programming guide).
RESERVED_BYTES = 1024


@dataclass(frozen=True, slots=True)
class SmRoom:
    """What an SM has for thread blocks: their number, and threads, registers and bytes of shared memory for all.

    ``reserved_bytes`` is the shared memory that the system keeps of every block.
    """

    blocks: int
    threads: int
    registers: int
    shared_memory_bytes: int
    reserved_bytes: int

    def held(self, asked: BlockResources) -> int:
        """Blocks of a kernel that fit at once (CUDA C++ programming guide, occupancy); 0 if one is too large."""
        return min(
            self.blocks,
            self.threads // asked.threads,
            self.registers // max(asked.registers, 1),
            self.shared_memory_bytes // max(asked.shared_memory_bytes + self.reserved_bytes, 1),
        )


def mean_share(blocks: int, held: int) -> float:
    """Share of the room for ``held`` blocks that a kernel takes on average over its waves.

    Examples:
        >>> mean_share(50, 100), mean_share(150, 100)
        (0.5, 0.75)
    """
    return blocks / (held * math.ceil(blocks / held))
