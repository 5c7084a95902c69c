"""Start times of operators while HIOS-LP maps path after path (Algorithm 1 of HIOS, Lines 6-16)."""

from __future__ import annotations

from bisect import bisect

from hios.core.problem import Problem, positions

#: Lengths of one path summed in different orders differ by less than this share.
ROUNDING = 1e-12
_INFINITY = float("inf")


class PathTimetable:
    """Lines 6-16: mapped operators at their earliest start, in descending order of priority.

    Operators are numbered by their place in that order. Mapping more operators only delays those after them, so a
    device is tried by passing on delays, in order of priority, and taking them back. The longest path that is left
    from every operator on is known (``_reach``). From it follows what latency a device cannot beat, so the most
    promising one is tried first and few others after it; a delay need not be passed on where no path through it goes
    beyond the latency so far; and a device is given up when one goes beyond that of the best device. These bounds
    allow for rounding: latencies that count are those of the whole timetable to the last bit, and so are ties.

    Once a path is mapped, start times and reaches that it changes are brought up to date only as far as the next paths
    ask for them (``_settle``), for several paths at once: all of them after every path would take most of the time.

    ``rows`` are the mapped operators of every device, in order.
    """

    def __init__(self, problem: Problem, order: list[int], devices: int) -> None:
        place = positions(order)
        count = len(order)
        self._predecessors = [[(place[u], ms) for u, ms in problem.predecessors[operator]] for operator in order]
        self._successors = [[(place[v], ms) for v, ms in problem.successors[operator]] for operator in order]
        self._place = place
        self.rows: list[list[int]] = [[] for _ in range(devices)]
        self._latency = 0.0
        # Two more that stand for the end and the beginning of every row; nothing delays or lengthens them.
        self._end, self._begin = count, count + 1
        self._time = [*(problem.time[operator] for operator in order), 0.0, 0.0]
        self._start = [0.0] * count + [_INFINITY, 0.0]
        self._reach = [0.0] * count + [0.0, _INFINITY]  # longest path from an operator's start to the last finish
        self._device = [-1] * count
        # Edges between mapped operators: first the one along the row, then those between rows with their transfers.
        # An edge within a row says no more than the row.
        self._arcs_in: list[list[tuple[int, float]]] = [[(self._begin, 0.0)] for _ in self._time]
        self._arcs_out: list[list[tuple[int, float]]] = [[(self._end, 0.0)] for _ in self._time]
        # Operators whose start has yet to delay those after them, and whose reach has yet to lengthen those before.
        self._late = bytearray(len(self._time))
        self._longer = bytearray(len(self._time))

    def map_path(self, operators: list[int]) -> None:
        """Try every device for a path and keep the best."""
        path = [self._place[operator] for operator in operators]
        self._settle(path[0], path[-1])
        bounds: list[float] = []
        for device, row in enumerate(self.rows):
            bounds.append(self._bound(path, device))
            if not row:
                break  # devices without operators are alike
        chosen = bounds.index(min(bounds))
        best = self._try(path, chosen, _INFINITY)
        for device, bound in enumerate(bounds):
            if device != chosen and bound <= best * (1 + ROUNDING):
                best, chosen = min((best, chosen), (self._try(path, device, best), device))
        self._link(path, chosen)
        self._latency = best
        for operator in path:
            self._start[operator] = self._ready(operator)
            self._late[operator] = 1
        for operator in reversed(path):
            self._reach[operator] = self._time[operator] + max(
                transfer + self._reach[other] for other, transfer in self._arcs_out[operator]
            )
            self._longer[operator] = 1
        for operator in path:
            row = self.rows[chosen]
            row.insert(bisect(row, operator), operator)

    def _bound(self, path: list[int], device: int) -> float:
        """A lower bound on the latency with the path on a device: the longest path through one of its operators.

        What they delay is not delayed here, so a path through several of them may turn out longer.
        """
        self._link(path, device)
        bound = self._latency
        for operator in path:
            self._start[operator] = self._ready(operator)
            finish = self._start[operator] + self._time[operator]
            for other, transfer in self._arcs_out[operator]:
                bound = max(bound, finish + transfer + self._reach[other])
        self._unlink(path)
        return bound

    def _try(self, path: list[int], device: int, best: float) -> float:
        """Latency with the path on a device, or infinity where that is above ``best``."""
        self._link(path, device)
        latency, delayed = self._delay(path, best, self._latency * (1 - ROUNDING))
        for operator, start in reversed(delayed):
            self._start[operator] = start
        self._unlink(path)
        return latency

    def _link(self, path: list[int], device: int) -> None:
        row = self.rows[device]
        before = -1
        for operator in path:
            self._device[operator] = device
            place = bisect(row, operator)
            before = max(before, row[place - 1] if place else -1)
            after = row[place] if place < len(row) else self._end
            self._join(before if before >= 0 else self._begin, operator)
            self._join(operator, after)
            before = operator
        for operator in path:
            for predecessor, transfer in self._predecessors[operator]:
                if self._device[predecessor] not in (-1, device):
                    self._arcs_in[operator].append((predecessor, transfer))
                    self._arcs_out[predecessor].append((operator, transfer))
            for successor, transfer in self._successors[operator]:
                if self._device[successor] not in (-1, device):
                    self._arcs_out[operator].append((successor, transfer))
                    self._arcs_in[successor].append((operator, transfer))

    def _join(self, before: int, after: int) -> None:
        """Make two operators neighbors in a row."""
        self._arcs_out[before][0] = (after, 0.0)
        self._arcs_in[after][0] = (before, 0.0)

    def _unlink(self, path: list[int]) -> None:
        for operator in reversed(path):
            self._device[operator] = -1
            (before, _), *arcs_in = self._arcs_in[operator]
            (after, _), *arcs_out = self._arcs_out[operator]
            self._join(before, after)
            for predecessor, _ in arcs_in:
                self._arcs_out[predecessor].pop()
            for successor, _ in arcs_out:
                self._arcs_in[successor].pop()
            del self._arcs_in[operator][1:], self._arcs_out[operator][1:]

    def _delay(self, path: list[int], best: float, slack: float) -> tuple[float, list[tuple[int, float]]]:
        """Start a linked path as early as can be, and delay what has to wait for it.

        Those after the path may start earlier here than they do, by delays of earlier paths that are yet to be passed
        on; what these do to the latency is in it already. After the path, delays on paths of no more length than
        ``slack`` are not passed on. Returns the latency, or infinity where it is above ``best``; and each delayed
        operator with its start before.
        """
        start, time, reach = self._start, self._time, self._reach
        pending = bytearray(len(start))
        for operator in path:
            start[operator] = self._ready(operator)
            pending[operator] = 1
        too_long = best * (1 + ROUNDING)
        last = path[-1]
        latency = self._latency
        delayed: list[tuple[int, float]] = []
        operator = path[0]
        while operator >= 0:
            finish = start[operator] + time[operator]
            latency = max(latency, finish)
            for other, transfer in self._arcs_out[operator]:
                arrival = finish + transfer
                if arrival > start[other]:
                    length = arrival + reach[other]
                    if length > too_long:
                        return _INFINITY, delayed
                    if length > slack or other <= last:
                        delayed.append((other, start[other]))
                        start[other] = arrival
                        pending[other] = 1
            operator = pending.find(1, operator + 1)
        return latency, delayed

    def _ready(self, operator: int) -> float:
        return max(self._start[other] + self._time[other] + transfer for other, transfer in self._arcs_in[operator])

    def _settle(self, first: int, last: int) -> None:
        """Bring start times before ``last`` and reaches after ``first`` up to date."""
        start, time, reach, late, longer = self._start, self._time, self._reach, self._late, self._longer
        operator = late.find(1, 0, last)
        while operator >= 0:
            late[operator] = 0
            finish = start[operator] + time[operator]
            for other, transfer in self._arcs_out[operator]:
                if finish + transfer > start[other]:
                    start[other] = finish + transfer
                    late[other] = 1
            operator = late.find(1, operator + 1, last)
        operator = longer.rfind(1, first + 1)
        while operator >= 0:
            longer[operator] = 0
            for other, transfer in self._arcs_in[operator]:
                length = time[other] + transfer + reach[operator]
                if length > reach[other]:
                    reach[other] = length
                    longer[other] = 1
            operator = longer.rfind(1, first + 1, operator)


class CompiledTimetable(PathTimetable):
    """`PathTimetable` that passes on delays and reaches by compiled code."""

    def __init__(self, problem: Problem, order: list[int], devices: int) -> None:
        from hios.schedulers import propagation_kernel

        super().__init__(problem, order, devices)
        self._kernel = kernel = propagation_kernel
        size = len(self._time)
        self._arrays = arrays = kernel.MappingArrays(
            kernel.edge_arrays(self._predecessors),
            kernel.edge_arrays(self._successors),
            kernel.floats(self._time),
            kernel.floats(self._start),
            kernel.floats(self._reach),
            device=kernel.integers([-1] * size),
            before=kernel.integers([self._begin] * size),
            after=kernel.integers([self._end] * size),
            late=kernel.flags(size),
            longer=kernel.flags(size),
            pending=kernel.flags(size),
            delayed=kernel.integers([0] * size),
            earlier=kernel.floats([0.0] * size),
        )
        self._start, self._reach, self._device = kernel.views(arrays.start, arrays.reach, arrays.device)
        self._late, self._longer = kernel.views(arrays.late, arrays.longer)
        self._before, self._after = kernel.views(arrays.before, arrays.after)

    def _join(self, before: int, after: int) -> None:
        super()._join(before, after)
        self._after[before], self._before[after] = after, before

    def _try(self, path: list[int], device: int, best: float) -> float:
        self._link(path, device)
        too_long, slack = best * (1 + ROUNDING), self._latency * (1 - ROUNDING)
        latency = self._kernel.latency_on(self._arrays, self._kernel.integers(path), self._latency, too_long, slack)
        self._unlink(path)
        return float(latency)

    def _settle(self, first: int, last: int) -> None:
        self._kernel.settle_starts(self._arrays, last)
        self._kernel.settle_reaches(self._arrays, first)
