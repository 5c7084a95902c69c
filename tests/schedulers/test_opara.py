"""Opara: stream allocation and launch order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.networks import googlenet, inception_v3, nasnet_large, randwire, squeezenet
from hios import Costs, Graph, HiosError, Operator, Problem, schedule
from hios.core.costs import BlockResources
from hios.files import artifacts
from hios.schedulers.opara import RIDGE, Demands, allocate_streams, demands, launch_order
from tests.external_data import data_folder
from tests.operators import operator_from
from tests.problems import problem, problems, synthetic_problem


@pytest.mark.parametrize(
    ("build", "released", "paper"),
    [
        (inception_v3, 36, 36),
        (squeezenet, 13, 13),
        (nasnet_large, 159, 159),
        (googlenet, 28, 28),  # as the paper prints it (section 5.2)
        pytest.param(lambda: randwire(data_folder("randwire")), 35, 40, id="randwire"),
    ],
)
def test_networks(build: Callable[[], Graph], released: int, paper: int) -> None:
    """The released rule gives as many streams as the authors' program; the paper's, which ends streams early, more."""
    instance = synthetic_problem(build())
    assert len(allocate_streams(instance, "released")) == released
    assert len(allocate_streams(instance, "paper")) == paper


@pytest.fixture
def crossed() -> Problem:
    """Two sources; x takes p first, then q; y takes q only, and comes after x."""
    edges = {("p", "x"): 0.0, ("q", "x"): 0.0, ("q", "y"): 0.0}
    return problem(dict.fromkeys("pqxy", 1.0), edges)


def _named(instance: Problem, streams: tuple[tuple[int, ...], ...]) -> list[str]:
    return ["".join(instance.ids[operator] for operator in stream) for stream in streams]


def test_rules_differ(crossed: Problem) -> None:
    """The first successor of q is x, which follows p: by the paper y starts a stream, as released it follows q."""
    assert _named(crossed, allocate_streams(crossed, "paper")) == ["px", "q", "y"]
    assert _named(crossed, allocate_streams(crossed, "released")) == ["px", "qy"]


def test_rule_is_a_parameter(crossed: Problem) -> None:
    """The paper's rule is the default, and other rules are refused."""

    def streams(parameters: dict[str, Any]) -> int:
        return len({row.stream for row in schedule(crossed, "opara", parameters=parameters).placements})

    assert [streams({}), streams({"rule": "paper"}), streams({"rule": "released"})] == [3, 3, 2]
    with pytest.raises(HiosError, match="parameter rule: found 'nimble'; allowed: one of paper, released"):
        streams({"rule": "nimble"})


def test_predecessors_in_the_order_in_which_they_are_taken() -> None:
    """An operator joins the first predecessor among its inputs, which need not be the first in topological order."""
    instance = problem(dict.fromkeys("pqx", 1.0), {("q", "x"): 0.0, ("p", "x"): 0.0})
    assert _named(instance, allocate_streams(instance, "paper")) == ["p", "qx"]


@given(instance=problems(), rule=st.sampled_from(["paper", "released"]))
def test_streams_are_paths(instance: Problem, rule: str) -> None:
    """An operator on a stream depends directly on the one before it, and by the paper is its first successor."""
    streams = allocate_streams(instance, rule)
    assert sorted(operator for stream in streams for operator in stream) == list(range(len(instance)))
    for before, after in (pair for stream in streams for pair in pairwise(stream)):
        successors = [successor for successor, _ in instance.successors[before]]
        assert after == successors[0] if rule == "paper" else after in successors
    assert len(allocate_streams(instance, "released")) <= len(allocate_streams(instance, "paper"))


def _order(instance: Problem, amount: Mapping[str, float], memory_intensive: str) -> str:
    needs = Demands(
        [amount[operator] for operator in instance.ids],
        [operator in memory_intensive for operator in instance.ids],
        "",
        "",
    )
    return "".join(instance.ids[operator] for operator in launch_order(instance, needs))


def test_launch_order() -> None:
    """Algorithm 2 by hand: the lists in turn, least resources first, and successors join when they become ready."""
    instance = problem(
        dict.fromkeys("abcdefg", 1.0), {("a", "e"): 0.0, ("c", "f"): 0.0, ("e", "g"): 0.0, ("f", "g"): 0.0}
    )
    amount = dict(zip("abcdefg", [1.0, 2.0, 5.0, 4.0, 9.0, 3.0, 0.0], strict=True))
    # Memory a b, compute c d: a makes e ready (memory). d before c. b, then c, which makes f ready (compute).
    # e is alone in the memory list; f; g is last however little it needs.
    assert _order(instance, amount, "abe") == "adbcefg"
    # In one list the least resources decide alone.
    assert _order(instance, amount, "") == _order(instance, amount, "abcdefg") == "abdcfeg"


def test_equals_are_launched_as_they_come() -> None:
    """Operators that ask for the same are launched in the order in which they became ready."""
    instance = problem(dict.fromkeys("abcd", 1.0), {("a", "d"): 0.0})
    assert _order(instance, dict.fromkeys("abcd", 1.0), "") == "abcd"
    # d became ready when a was launched, before b was.
    assert _order(instance, dict.fromkeys("abcd", 1.0), "a") == "abcd"


@given(instance=problems(), data=st.data())
def test_every_launch_follows_algorithm_2(instance: Problem, data: st.DataObject) -> None:
    """At every launch the operator was ready, of the class whose turn it was if any, and the smallest of its class."""
    demand = demands(instance)
    memory = data.draw(st.lists(st.booleans(), min_size=len(instance), max_size=len(instance)))
    demand = demand._replace(memory_intensive=memory)
    launched: list[int] = []
    turn = True
    for operator in launch_order(instance, demand):
        ready = [
            v
            for v in range(len(instance))
            if v not in launched and all(u in launched for u, _ in instance.predecessors[v])
        ]
        assert operator in ready
        assert memory[operator] == turn or all(memory[v] != turn for v in ready)
        assert demand.amount[operator] == min(demand.amount[v] for v in ready if memory[v] == memory[operator])
        launched.append(operator)
        turn = not memory[operator]
    assert len(launched) == len(instance)


def _detailed(
    details: Mapping[str, Mapping[str, Any]], resources: Mapping[str, BlockResources] | None = None
) -> Problem:
    """Independent operators with the given entries of graph.json."""
    graph = Graph("test", tuple(operator_from(name, "task", entry) for name, entry in details.items()), ())
    times = {name: float(number) for number, name in enumerate(details, start=1)}
    return Problem(graph, Costs(times, {}, resources=resources or {}))


def test_opaque_operators_count_as_bound_by_memory() -> None:
    """Operators whose FLOPs are unknown do not keep the others from being classed by theirs."""
    opaque = {"calls": [{"function": "aten.erfc.default", "arguments": [], "attributes": {}}], "bytes": 100}
    busy = {"calls": [], "flops": 100_000, "bytes": 100}
    graph = Graph("test", (operator_from("a", "erfc", opaque), operator_from("b", "conv2d", busy)), ())
    given = demands(synthetic_problem(graph))
    assert (given.memory_intensive, given.class_from) == ([True, False], "arithmetic intensity")


def test_demands_from_a_profile() -> None:
    """Profiled operators ask for the largest of their shares of a block's shared memory, registers and threads."""
    demand = demands(
        _detailed(
            {"memory": {}, "registers": {}, "threads": {}},
            {
                "memory": BlockResources(12 * 1024, 8 * 1024, 128),
                "registers": BlockResources(0, 32 * 1024, 256),
                "threads": BlockResources(0, 0, 1024),
            },
        )
    )
    assert demand.amount == [0.25, 0.5, 1.0]
    assert (demand.amount_from, demand.class_from) == ("GPU profile", "times")


def test_demands_from_flops_and_bytes() -> None:
    """Else bytes and FLOPs count, each relative to the largest; below 12.54 FLOPs a byte memory is what limits."""
    details = {
        "convolution": {"flops": 1000.0, "bytes": 10},
        "pool": {"flops": 60.0, "bytes": 20},
        "add": {"flops": 10.0, "bytes": 5},
        "below": {"flops": 125.0, "bytes": 10},
        "above": {"flops": 126.0, "bytes": 10},
    }
    demand = demands(_detailed(details))
    assert demand.amount == [1.0, 1.0, 0.25, 0.5, 0.5]
    assert demand.memory_intensive == [False, True, True, True, False]
    assert (demand.amount_from, demand.class_from) == ("FLOPs and bytes", "arithmetic intensity")
    profiled = demands(_detailed(details, dict.fromkeys(details, BlockResources(0, 0, 512))))
    assert profiled == Demands([0.5] * 5, demand.memory_intensive, "GPU profile", "arithmetic intensity")


def test_ridge_in_the_help_is_that_of_the_code() -> None:
    """The FLOPs per byte that divide the classes are one number, and the help states it."""
    assert f"below {RIDGE} FLOPs per byte" in " ".join((demands.__doc__ or "").split())
    just = {"below": {"flops": RIDGE * 1000 - 1, "bytes": 1000}, "at": {"flops": RIDGE * 1000, "bytes": 1000}}
    assert demands(_detailed(just)).memory_intensive == [True, False]


def test_demands_of_nothing() -> None:
    """Operators without FLOPs and bytes, such as reshapes, ask for nothing and divide by nothing."""
    assert demands(_detailed({"a": {"flops": 0, "bytes": 0}})).amount == [0.0]


def test_demands_from_times() -> None:
    """Where an operator lacks FLOPs or bytes, times of all operators decide: the shorter half is memory-intensive."""
    demand = demands(_detailed({"a": {"flops": 1.0, "bytes": 1}, "b": {"flops": 1.0}, "c": {}, "d": {}}))
    assert demand == Demands([1.0, 2.0, 3.0, 4.0], [True, True, False, False], "times", "times")
    partly = {"a": BlockResources(0, 0, 32)}
    assert demands(_detailed({"a": {}, "b": {}}, partly)).amount_from == "times"


def test_notes(crossed: Problem) -> None:
    """The schedule states what demands and classes are derived from, and is in launch order."""
    scheduled = schedule(crossed, "opara")
    assert scheduled.notes == {"resource demands": "times", "operator classes": "times"}
    order = [crossed.ids[operator] for operator in launch_order(crossed, demands(crossed))]
    assert [row.operator for row in scheduled.placements] == order


def test_resources_are_read(tmp_path: Path) -> None:
    """costs.json states resources for operators that were profiled, complete or not at all."""
    resources = {"shared_memory_bytes": 49152, "registers": 8192, "threads": 128}
    data = {"operators": {"a": {"time_ms": 1.0, "resources": resources}, "b": {"time_ms": 1.0}}, "transfers": []}
    path = tmp_path / "costs.json"
    artifacts.write(path, "costs", data)
    graph = Graph("test", (Operator("a", "task"), Operator("b", "task")), ())
    assert Problem(graph, Costs.read(path)).resources == [BlockResources(49152, 8192, 128), None]
    del resources["threads"]
    with pytest.raises(HiosError, match=r"resources: threads is missing"):
        artifacts.write(path, "costs", data)
