"""Every policy under every launcher on the same tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hios.errors import HiosError
from hios.formats.serving_result_file import ResultFile
from hios.serving.policies import LAUNCHERS, LEARNED_POLICIES, policies_of
from hios.serving.scenario import Scenario
from hios.serving.simulate import Tell, no_one, simulate

#: In place of the name of a policy or of a launcher.
ALL = "all"


@dataclass(frozen=True)
class PolicyGrid:
    """Results of policies under launchers.

    Attributes:
        results: by policy and launcher, in the order in which they were asked for.
        left_out: by policy, why it cannot run the scenario.
    """

    results: Mapping[tuple[str, str], ResultFile]
    left_out: Mapping[str, str]


def simulate_grid(
    scenario: Scenario,
    policies: Sequence[str],
    launchers: Sequence[str],
    *,
    compiled: bool | None = None,
    tell: Tell = no_one,
) -> PolicyGrid:
    """Simulate policies under launchers, all with the same tasks.

    Policies of a trained launcher have intervals of their own, so they run once.

    Raises:
        HiosError: no policy can run the scenario.
    """
    results: dict[tuple[str, str], ResultFile] = {}
    left_out: dict[str, str] = {}
    for name in policies:
        for launcher in launchers[:1] if name in LEARNED_POLICIES else launchers:
            try:
                result = simulate(scenario, name, launcher=launcher, compiled=compiled, tell=tell)
            except HiosError as error:
                left_out[name] = str(error)
                break
            results[name, result.launcher] = result
            tell(f"{name}, launcher {result.launcher}: goodput {result.goodput_per_s:.4g} tasks/s")
    if not results:
        raise HiosError("; ".join(left_out.values()))
    return PolicyGrid(results, left_out)


def chosen_policies(scenario: Scenario, name: str) -> list[str]:
    """The policy of a name, or with ``all`` every one that the scenario can be compared under."""
    return policies_of(scenario) if name == ALL else [name]


def chosen_launchers(scenario: Scenario, name: str | None) -> list[str]:
    """The launcher of a name, that of the scenario if None, or with ``all`` every one."""
    return list(LAUNCHERS) if name == ALL else [name or scenario.file.launcher]
