"""The algorithms in words."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace

import pytest

from hios import ALGORITHMS, Problem
from hios.core.schedule import StagedPlan
from hios.report.algorithm_listing import described, listing, parameter_help, parameters
from hios.schedulers.registry import Algorithm, Parameter, register


@pytest.mark.parametrize("width", [60, 80, 120])
def test_texts_keep_to_the_width(width: int) -> None:
    """The list and every algorithm in full are wrapped at the width that is given."""
    for text in (listing(width), *(described(algorithm, width) for algorithm in ALGORITHMS.values())):
        assert max(map(len, text.splitlines())) <= width


def test_listing_has_a_column_of_names() -> None:
    """Names stand at the left, everything else is indented, and the order is that of the registry."""
    *lines, empty, chosen, hint = listing(80).splitlines()
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == list(ALGORITHMS)
    assert chosen == "auto, the fastest of all as measured, is chosen in hios execute --auto."
    assert (empty, hint) == ("", "hios algorithms NAME tells more about one.")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_described_says_what_the_code_says(name: str) -> None:
    """Paper, devices, help and allowed values of parameters and the docstring are all there, for readers only."""
    algorithm = ALGORITHMS[name]
    text = described(algorithm, 100)
    words = " ".join(text.split())
    assert f"Paper {algorithm.paper} Devices {'any number' if algorithm.several_devices else 'one'} Demand " in words
    assert (algorithm.demand or "not used") in words
    assert f"Code {algorithm.run.__module__}" in words
    for parameter in algorithm.parameters:
        assert f"{parameter.help} (default {parameter.default_text}; {parameter.allowed})" in words
    first = (inspect.getdoc(algorithm.run) or "").split("\n\n")[0]
    assert " ".join(first.replace("``", "'").split()) in words
    assert "``" not in text
    assert "Args:" not in text


def test_described_follows_names_of_code() -> None:
    """What a docstring names and leaves to the docstring of another function is told, too."""
    text = described(ALGORITHMS["hios-lp"], 100)
    assert "\nmap_longest_paths:\n  Inter-GPU operator parallelization (HIOS section IV-A).\n" in text
    assert "\nparallelize:\n" in text
    assert "\n  - Line 12: " in text


def test_lists_of_docstrings_stay_lists() -> None:
    """Items with numbers begin lines of their own, and their lines are indented."""
    text = described(ALGORITHMS["hios-opt"], 80)
    assert re.search(r"\n1\. Every other algorithm .*\n   .*(\n   .*)*\n2\. Two chains", text)


def _algorithm(name: str, *owned: Parameter) -> Algorithm:
    return replace(ALGORITHMS["sequential"], name=name, parameters=owned)


def test_shared_parameters_are_told_once() -> None:
    """Algorithms that take a parameter for the same share one text; others have a text of their own."""
    one, other = Parameter("x", 1, "width", minimum=1), Parameter("x", 2, "width", minimum=1)
    same = [(_algorithm("a", one), one), (_algorithm("b", one), one)]
    assert parameter_help(same) == "width; a whole number of at least 1, default 1 (a, b)"
    assert parameter_help([*same, (_algorithm("c", other), other)]) == (
        "width; a whole number of at least 1, default 1 (a, b); or: width; a whole number of at least 1, default 2 (c)"
    )


def test_parameters_of_the_registry_are_grouped() -> None:
    """Each parameter of each algorithm is in the group of its name, and groups hold nothing else."""
    expected = {(p.name, a.name) for a in ALGORITHMS.values() for p in a.parameters}
    assert {(name, a.name) for name, users in parameters().items() for a, _ in users} == expected
    assert all(parameter.name == name for name, users in parameters().items() for _, parameter in users)


def test_one_name_has_one_type() -> None:
    """A parameter named as another algorithm's must have its type, since they are one option."""

    def other(problem: Problem, devices: int, *, window: float = 2.5) -> StagedPlan:
        raise NotImplementedError

    with pytest.raises(ValueError, match="algorithm other: window has another type than in hios-"):
        register("other", paper="", summary="", several_devices=False, parameters=(Parameter("window", 2.5, ""),))(
            other
        )
    assert "other" not in ALGORITHMS
