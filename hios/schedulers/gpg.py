"""GPG: a learned policy that chooses the last stage of what is left, repeatedly (Algorithm 2 of TOP)."""

from __future__ import annotations

import random

from hios.core.problem import Problem, Stage
from hios.core.schedule import StagedPlan
from hios.core.sums import add_up
from hios.schedulers.policy.endings import (
    Action,
    CombinedState,
    Passes,
    combined,
    labels_of,
    largest,
    model_blocks,
    sub_blocks,
)
from hios.schedulers.registry import Parameter, register

#: Where training deviates from TOP, that of stages (GPG, Algorithm 2) and that of the launcher (MADDPG, Algorithm 1):
#: said by ``hios algorithms gpg`` and ``hios train --help`` alike.
TRAINING = (
    "Replay: transitions are drawn uniformly; the paper cites prioritized replay. GPG keeps 20000 steps, the launcher "
    "as many as it needs to begin learning (the paper: 2000).",
    "Targets: target networks follow by a hundredth a step; the paper does not say how they follow. The launcher's "
    "critics learn by the TD error, which (3) lacks.",
    "Optimizer: Adam, for the paper's plain steps; actors learn at a rate of 0.0001 (the paper: 0.001, at which "
    "actions run into an end of their range) and are kept from the ends.",
    "Episodes: every 50 steps, or at the end of arrivals from a file, the launcher finds the device and all queues "
    "empty; Algorithm 1 goes on without an end. A full replay buffer replaces steps at random. Latencies count tasks "
    "that have not ended; a run counts as busy in the step in which it starts.",
    "Warm-up: critics learn alone for 200 steps. Random decisions fill the launcher's replay buffer, and its agents "
    "begin with the best of them; the paper explores by its policy alone.",
    "Reward: of GPG, minus the latency over the sequential one, undiscounted (--reward paper: exp(-l)), as a sum of "
    "exp(-l) grows with the number of stages; of the launcher, (2) with z-scores that are frozen after the warm-up and "
    "count as 3 at most. What is kept is the best by the scenario's objective.",
)


@register(
    "gpg",
    paper="TOP (Lin et al., IEEE TPDS 2025), Algorithm 2",
    summary="stages of one device chosen by a learned policy, block by block, improved by further passes",
    several_devices=False,
    demand="slots, arithmetic and bandwidth, in t(S)",
    parameters=(
        Parameter("r", 3, "largest number of operators in a group", minimum=1),
        Parameter("s", 8, "largest number of groups in a stage", minimum=1),
        Parameter("weights", "", "file of a policy that hios train wrote; an untrained policy if left out"),
        Parameter("passes", 64, "passes of Algorithm 2 over each block; the best is kept; 1: as published", minimum=1),
        Parameter("seed", 0, "seed of the random numbers", minimum=0),
    ),
)
def gpg(
    problem: Problem, devices: int, *, r: int = 3, s: int = 8, weights: str = "", passes: int = 64, seed: int = 0
) -> StagedPlan:
    """Chooses an ending of each block as its last stage, then of what is left, until nothing is.

    A graph network embeds what is left, a policy network maps it to one number m in [0, 1), and the ending with the
    number floor(m M) of M is taken. Endings have at most ``s`` groups of at most ``r`` operators, as in IOS; they are
    counted and found by number (`hios.schedulers.policy.endings`), never listed.

    Without ``weights`` the policy is untrained: the first pass takes the last ending in every step, one of those with
    the most groups. With them, the policy chooses; that needs numpy and weights from `hios train`.

    Deviations from the paper:

    - Further passes take random endings in some steps and keep, for every state, the best that is known for it; their
      times come from the costs. ``passes=1`` is the single pass of the paper.
    - Where more than 32 groups are connected by operators that they have in common or that depend on each other, those
      of several operators are left out.
    - A block whose stages take no less time than its operators one after another runs them like this.
    - A learned matrix maps features to the size of an embedding, as (5) adds the two.
    - Blocks are those that the graph states; operators in none are cut after each that all paths lead through.

    Deviations of the training, as ``hios train --help`` has them:

    [training]

    A pass takes O(|V|) for the embedding, once, and for each stage O(g^2) for g operators that could head a group.

    Raises:
        ArtifactError: ``weights`` is not a file that `hios train` wrote.
        ModuleNotFoundError: ``weights`` is given, and numpy or safetensors is not installed (extra ``opt``).
    """
    starts, action = chooser(problem, r, s, weights)
    chance = random.Random(seed)
    stages: list[Stage] = []
    for start in starts:
        ending, latency = Passes(problem.stage_ms, action, chance.getrandbits(64)).run(start, passes)
        operators = sorted((v for state in start.states for v in state.block.operators), key=problem.place.__getitem__)
        sequence = add_up(problem.time[v] for v in operators)
        stages += ending if latency < sequence else [((v,),) for v in operators]
    return StagedPlan((tuple(stages),))


gpg.__doc__ = (gpg.__doc__ or "").replace("[training]", "\n    ".join(f"- {text}" for text in TRAINING))


def chooser(problem: Problem, r: int, s: int, weights: str) -> tuple[list[CombinedState], Action]:
    """The blocks of a problem with nothing chosen yet, and the policy.

    ``weights`` is the file of the policy; "": none, the last ending is always taken.
    """
    predecessors = [[u for u, _ in before] for before in problem.predecessors]
    labels = labels_of(problem)
    blocks = model_blocks("", problem)
    starts = [combined(sub_blocks(block.operators, predecessors, labels, r, s)) for block in blocks]
    if not weights:
        return starts, largest
    from hios.schedulers.policy.network import GpgPolicy, Structure, features, read_policy

    policy = GpgPolicy(read_policy(weights))
    home = {v: number for number, block in enumerate(blocks) for v in block.operators}
    within = [[u for u in before if home[u] == home[v]] for v, before in enumerate(predecessors)]
    embedding = policy.embed(Structure(features(problem.graph), within))
    return starts, lambda state: policy.action(embedding, state.leaves)
