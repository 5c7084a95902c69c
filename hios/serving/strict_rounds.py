"""What rounds that wait for a task of every model can complete at most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hios.formats.serving_result import ResultFile
from hios.serving.objective import by_model, evenness

_STRICT = "pos-strict"


def strict_rounds_per_s(rates: Sequence[float]) -> float:
    """Upper bound of the tasks per second of strict rounds: the number of models times the smallest rate.

    Examples:
        >>> strict_rounds_per_s([30.0, 60.0, 120.0])
        90.0
    """
    return len(rates) * min(rates)


def rounds_notes(results: Mapping[str, ResultFile]) -> list[str]:
    """What strict rounds cannot pass, and how much of the best policy's margin over them that alone explains.

    A policy that completes c tasks per second is c / s - 1 above rounds that complete s. Rounds on an infinitely fast
    device would complete b, the number of models times the smallest rate; c / b - 1 of the margin needs no scheduling.
    Results are of the same tasks, by what the notes call them; no notes without pos-strict with several models. Beside
    the margin stands what either gives the models.
    """
    strict = {name: result for name, result in results.items() if result.policy == _STRICT}
    rounds = max(strict, key=lambda name: strict[name].done_per_s, default="")
    if not rounds or len(strict[rounds].models) == 1:
        return []
    time = strict[rounds].duration_s * strict[rounds].repeats
    rates = [served.offered / time for served in strict[rounds].models.values()]
    bound = strict_rounds_per_s(rates)
    notes = [
        f"strict rounds cannot pass {bound:.4g} of {sum(rates):.4g} tasks/s: {len(rates)} models x the smallest rate"
    ]
    completed = strict[rounds].done_per_s
    others = {name: result.done_per_s for name, result in results.items() if result.policy != _STRICT}
    if not others or not completed or not bound:
        return notes
    name, most = max(others.items(), key=lambda entry: entry[1])
    margin, alone = 100 * (most / completed - 1), 100 * (most / bound - 1)
    notes.append(
        f"{name} completes {most:.4g} tasks/s, {margin:+.1f} % over {_STRICT}; that limit alone makes "
        f"{max(alone, 0.0):+.1f} %"
    )
    for label, own in ((name, results[name]), (rounds, strict[rounds])):
        notes.append(f"{label}: {by_model(own.done_by_model)} tasks/s, {evenness(own.jain, own.queue_variance)}")
    return notes
