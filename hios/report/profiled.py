"""What a profile found, in one line."""

from __future__ import annotations

from hios.costs import predicted_for
from hios.formats.costs_file import CostsFile, LinkModel, ProfileSummary
from hios.formats.probe_record import Estimate


def profile_in_words(costs: CostsFile) -> str:
    """How much was measured, what came from the cache, and how certain all of it is.

    Args:
        costs: what the profiler made.
    """
    parts = [
        *([] if (words := predicted_for(costs.platform)) is None else [words]),
        f"{len(costs.operators)} operators, {len(costs.stages)} stages, {len(costs.merges)} merges and "
        f"{0 if isinstance(costs.transfers, LinkModel) else len(costs.transfers)} transfers, all t(v) together "
        f"{sum(entry.time_ms for entry in costs.operators.values()):.4g} ms",
        *([] if costs.profile is None else _effort(costs.profile)),
        *_not_kept(costs),
    ]
    if costs.probe is not None:
        speed = costs.probe.speed
        parts.append(
            f"probe of the machine's speed {_certain(speed.compute_ms)} ms of convolutions, "
            f"{_certain(speed.copy_ms)} ms of copies"
        )
    contention = costs.contention
    if contention is not None and (error := contention.error) is not None:
        parts.append(
            f"contention model with alpha {contention.alpha:g}, off by {error.median:.1%} (median; p90 "
            f"{error.p90:.1%}) on {error.stages} stages held out"
        )
    if costs.corun:
        factors = ", ".join(f"{entry.devices} devices {entry.factor:.3f}" for entry in costs.corun)
        parts.append(f"co-run factor of {factors}")
    if (link := costs.link) is not None and (fit := link.error) is not None:
        parts.append(
            f"link of {1000 * link.latency_ms:.3g} us and {link.bandwidth_gbps:.3g} Gbit/s, off by "
            f"{fit.median:.0%} (median; largest {fit.largest:.0%})"
        )
    if costs.platform is not None and costs.platform.virtual:
        parts.append("virtual devices: times say little")
    return "; ".join(parts)


def _certain(estimate: Estimate) -> str:
    """A time with half the width of its interval in per cent."""
    return f"{estimate.value:.4g} (+-{(estimate.high - estimate.low) / (2 * estimate.value):.1%})"


def _not_kept(costs: CostsFile) -> list[str]:
    if costs.platform is None or costs.profile is None or costs.profile.kept is not False:
        return []
    return [f"none kept in the cache, as other work took {costs.platform.busy_share:.0%} of the cores' time before"]


def _effort(profile: ProfileSummary) -> list[str]:
    parts = [f"{profile.measured} measurements in {profile.seconds:.0f} s"]
    if profile.cached:
        ends = dict.fromkeys(moment[:10] for moment in (profile.cached_from, profile.cached_until) if moment)
        parts.append(f"{profile.cached} taken from the cache, made {' to '.join(ends)}")
    elif profile.drift is not None:
        parts.append(f"operators took {profile.drift:.2f} times as long as the cache says, so all were measured anew")
    if profile.imprecise:
        parts.append(f"{profile.imprecise} not certain within {profile.precision:.0%}")
    if profile.modelled:
        parts.append(f"{profile.modelled} stages or merges left to the models, as the budget was spent")
    return parts
