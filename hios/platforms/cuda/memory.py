"""When the memory of a value may be reused.

torch's allocator gives freed memory to the next operator on the stream that it was allocated on, at once, whatever
other streams are doing. So a value is freed right before the first launch on that stream that begins after all launches
that read the value, or share its memory, have finished.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from hios.platforms.cuda.launches import Flow, Lane, Step, Value, VectorClocks


def let_go(
    steps: Sequence[Step],
    order: VectorClocks,
    flow: Flow,
    home: Mapping[str, int],
    outputs: Iterable[tuple[int, Value]],
) -> Mapping[int, list[Value]]:
    """The values that can be freed right before each launch.

    Args:
        steps: all launches.
        order: of these.
        flow: values of the network.
        home: device of every operator.
        outputs: of the network, with their devices; they stay.
    """
    memory = _Memory(steps, flow, home)
    following: dict[Lane, list[int]] = defaultdict(list)
    for place, step in enumerate(steps):
        following[step.lane].append(place)
    kept = {block for device, value in outputs for block in memory.blocks(device, value)}
    freed: dict[int, list[Value]] = defaultdict(list)
    for block, users in memory.users.items():
        made = memory.made[block]
        own = following[steps[made].lane][order.place[made] :]
        first = None if block in kept else next((place for place in own if order.begins_after(place, users)), None)
        if first is not None:
            freed[first] += memory.values[block]
    return freed


class _Memory:
    """Blocks of memory, each named by its device and the value that it was allocated for.

    Attributes:
        made: launch that allocates every block.
        users: launches that read or write it.
        values: that lie in it.
    """

    def __init__(self, steps: Sequence[Step], flow: Flow, home: Mapping[str, int]) -> None:
        self._home = home
        self._views = dict(flow.views)
        self.made: dict[tuple[int, Value], int] = {}
        self.users: dict[tuple[int, Value], list[int]] = defaultdict(list)
        self.values: dict[tuple[int, Value], list[Value]] = defaultdict(list)
        for step in steps:
            if len(step.operators) > 1:  # what one convolution makes is cut into parts
                self._views.update(dict.fromkeys(step.makes[1:], step.makes[:1]))
        for place, step in enumerate(steps):
            device = step.lane.device
            for value in step.makes:
                self.made.setdefault((device, value), place)
                for block in self.blocks(device, value):
                    self.users[block].append(place)
                    self.values[block].append(value)
            for value in step.reads:
                for block in self.blocks(device if step.copied is None else self._home[value[1]], value):
                    self.users[block].append(place)

    def blocks(self, device: int, value: Value) -> set[tuple[int, Value]]:
        """The blocks that may hold a value on a device; none for inputs, which are never freed."""
        if value[0] == "input":
            return set()
        if self._home[value[1]] != device or value not in self._views:
            return {(device, value)}
        return {block for other in self._views[value] for block in self.blocks(device, other)}
