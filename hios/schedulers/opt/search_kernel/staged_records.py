"""The arrays of the search over lists of stages.

They are records (numpy structured types), which numba reaches fastest; what they hold is said below. n operators,
e edges, M devices; times in milliseconds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hios.schedulers.opt.search_kernel.shared_moves import Array

#: Largest number of operators in a stage of a candidate.
MOST_MEMBERS = 16

#: An operator: t(v), t(v)*u(v), the longest path after it without transfers, its place in topological order, its
#: first edge in ``inputs`` and ``outputs`` (its last is the one before that of the next operator), its stage.
OPERATOR = np.dtype(
    [
        ("time", np.float64),
        ("work", np.float64),
        ("tail", np.float64),
        ("place", np.int64),
        ("first_input", np.int64),
        ("first_output", np.int64),
        ("stage", np.int64),
    ]
)
#: A measured stage, see `stage_key` of staged_durations.
MEASURED = np.dtype([("key", np.uint64), ("time", np.float64)])
#: A stage: its place in the list, device, operators, t(S), finish, longest path after it to the end of the list; its
#: finish in the candidate of iteration ``changed``; the iteration in which it must be timed again.
STAGE = np.dtype(
    [
        ("position", np.int64),
        ("device", np.int64),
        ("size", np.int64),
        ("duration", np.float64),
        ("finish", np.float64),
        ("after", np.float64),
        ("new_finish", np.float64),
        ("changed", np.int64),
        ("marked", np.int64),
        ("members", np.int64, (MOST_MEMBERS,)),
    ]
)
#: Share of serialization (negative without contention), random numbers, count of iterations, latency of the
#: candidate and of the best, lengths of the lists, and the move: its kind, the operator and the stages it leaves
#: and joins, its device, the first and the last place that it changes, and how many stages were in the list.
STATE = np.dtype(
    [
        ("alpha", np.float64),
        ("random", np.uint64),
        ("iteration", np.int64),
        ("latency", np.float64),
        ("best", np.float64),
        ("count", np.int64),
        ("spares", np.int64),
        ("criticals", np.int64),
        ("touched", np.int64),
        ("kind", np.int64),
        ("operator", np.int64),
        ("source", np.int64),
        ("target", np.int64),
        ("device", np.int64),
        ("first", np.int64),
        ("last", np.int64),
        ("old_count", np.int64),
    ]
)
#: Rows of ``lists``: operators on a critical path, free numbers of stages, stages that changed their device, the
#: devices they were on, and the list as it was before the move.
CRITICAL, SPARE, TOUCHED, WAS_ON, SAVED_ORDER = range(5)


class StagedSearch(NamedTuple):
    """The arrays: of the problem, of the current candidate, of the best so far, and of the move."""

    operators: Array  # (n+1,) OPERATOR
    inputs: Array  # (e,) EDGE, by consumer
    outputs: Array  # (e,) EDGE, by producer
    measured: Array  # (k,) MEASURED, ascending keys
    stages: Array  # (n+1,) STAGE; a stage is known by its number here and is either in the list or spare
    order: Array  # (n+1,) int, the list: the stage at each place
    best_stages: Array  # (n+1,) STAGE
    best_order: Array  # (n+1,) int
    devices: Array  # (M,) DEVICE
    saved: Array  # (2,) STAGE, copies of the stage that an operator leaves and of the one it joins
    lists: Array  # (SAVED_ORDER + 1, n+1) int, rows CRITICAL to SAVED_ORDER
    states: Array  # (1,) STATE
    members: Array  # (3, MOST_MEMBERS) int, room while the groups of a stage are worked out
    starts: Array  # (n+1,) float, start of each stage of the list at the end
