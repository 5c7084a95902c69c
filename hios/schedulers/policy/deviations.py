"""Where training deviates from TOP: said by ``hios algorithms gpg`` and ``hios train --help`` alike."""

from __future__ import annotations

#: What, of the training of stages (GPG, Algorithm 2) and of the launcher (MADDPG, Algorithm 1).
TRAINING = (
    "Replay: transitions are drawn uniformly; the paper cites prioritized replay. GPG keeps 20000 steps, the launcher "
    "as many as it needs to begin learning (the paper: 2000).",
    "Targets: target networks follow by a hundredth a step; the paper does not say how they follow. The launcher's "
    "critics learn by the TD error, which (3) lacks.",
    "Optimizer: Adam, for the paper's plain steps; actors learn at a rate of 0.0001 (the paper: 0.001, at which "
    "actions run into an end of their range) and are kept from the ends.",
    "Warm-up: critics learn alone for 200 steps. Random decisions fill the launcher's replay buffer, and its agents "
    "begin with the best of them; the paper explores by its policy alone.",
    "Reward: of GPG, minus the latency over the sequential one, undiscounted (--reward paper: exp(-l)), as a sum of "
    "exp(-l) grows with the number of stages; of the launcher, (2) with z-scores that are frozen after the warm-up and "
    "count as 3 at most. What is kept is the best by the scenario's objective.",
)


def listed() -> str:
    """The deviations as a list, one paragraph a deviation."""
    return "\n".join(f"- {text}" for text in TRAINING)
