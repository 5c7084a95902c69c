"""The arrays of the search over lists of operators that may take several devices at once.

They are records (numpy structured types); n operators, e edges, o options, M devices; times in milliseconds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hios.schedulers.opt.search_kernel.shared_moves import Array

#: Sets of devices are the bits of one number.
MOST_DEVICES = 64

#: An operator: the longest path after it with the least times, its first edges and its first option (its last is the
#: one before that of the next operator). In the candidate: its place in the list, its option, the device that keeps
#: its value, all its devices, t(v, k), its finish, the longest path after it to the end of the list. While a move is
#: timed: its finish if that changed in iteration ``changed``, and the iteration in which it must be timed again.
OPERATOR = np.dtype(
    [
        ("tail", np.float64),
        ("first_input", np.int64),
        ("first_output", np.int64),
        ("first_option", np.int64),
        ("position", np.int64),
        ("option", np.int64),
        ("device", np.int64),
        ("held", np.uint64),
        ("duration", np.float64),
        ("finish", np.float64),
        ("after", np.float64),
        ("new_finish", np.float64),
        ("changed", np.int64),
        ("marked", np.int64),
    ]
)
#: A number of devices k and t(v, k).
OPTION = np.dtype([("width", np.int64), ("time", np.float64)])
#: An operator that a move gave other devices, and what it had before.
TOUCHED = np.dtype([("operator", np.int64), ("option", np.int64), ("device", np.int64), ("held", np.uint64)])
#: Random numbers, count of iterations, latency of the candidate and of the best, lengths of the lists; the move: the
#: first and the last place that it changes, and the operator whose place it changes, with the place before (or -1).
STATE = np.dtype(
    [
        ("random", np.uint64),
        ("iteration", np.int64),
        ("latency", np.float64),
        ("best", np.float64),
        ("criticals", np.int64),
        ("touched", np.int64),
        ("first", np.int64),
        ("last", np.int64),
        ("moved", np.int64),
        ("was_at", np.int64),
    ]
)


class WideSearch(NamedTuple):
    """The arrays: of the problem, of the current candidate, of the best so far, and of the move."""

    operators: Array  # (n+1,) OPERATOR
    inputs: Array  # (e,) EDGE, by consumer
    outputs: Array  # (e,) EDGE, by producer
    options: Array  # (o,) OPTION, by operator
    order: Array  # (n,) int, the list
    best_operators: Array  # (n,) OPERATOR
    best_order: Array  # (n,) int
    devices: Array  # (M,) DEVICE
    touched: Array  # (n,) TOUCHED, the operators whose devices a move changed, as they were
    critical: Array  # (n,) int, operators of a critical path
    states: Array  # (1,) STATE
    starts: Array  # (n,) float, start of each operator of the list at the end
