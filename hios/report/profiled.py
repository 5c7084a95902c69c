"""What a profile found, in one line."""

from __future__ import annotations

from hios.artifacts import Json


def profile_in_words(costs: Json) -> str:
    """How much was measured, what came from the cache, and how certain all of it is.

    Args:
        costs: contents of costs.json, as the profiler made them.
    """
    parts = [
        f"{len(costs['operators'])} operators, {len(costs['stages'])} stages, {len(costs['merges'])} merges and "
        f"{len(costs['transfers'])} transfers, all t(v) together "
        f"{sum(entry['time_ms'] for entry in costs['operators'].values()):.4g} ms",
        *_effort(costs["profile"]),
        *_not_kept(costs),
    ]
    if "probe" in costs:
        compute, copies = (costs["probe"]["speed"][part] for part in ("compute_ms", "copy_ms"))
        parts.append(
            f"probe of the machine's speed {_certain(compute)} ms of convolutions, {_certain(copies)} ms of copies"
        )
    contention = costs["contention"]
    if "error" in contention:
        error = contention["error"]
        parts.append(
            f"contention model with alpha {contention['alpha']:g}, off by {error['median']:.1%} (median; p90 "
            f"{error['p90']:.1%}) on {error['stages']} stages held out"
        )
    if "corun" in costs:
        factors = ", ".join(f"{entry['devices']} devices {entry['factor']:.3f}" for entry in costs["corun"])
        parts.append(f"co-run factor of {factors}")
    if "link" in costs:
        link, error = costs["link"], costs["link"]["error"]
        parts.append(
            f"link of {1000 * link['latency_ms']:.3g} us and {link['bandwidth_gbps']:.3g} Gbit/s, off by "
            f"{error['median']:.0%} (median; largest {error['largest']:.0%})"
        )
    if costs["platform"].get("virtual"):
        parts.append("virtual devices: times say little")
    return "; ".join(parts)


def _certain(estimate: Json) -> str:
    """A time with half the width of its interval in per cent."""
    value = estimate["value"]
    return f"{value:.4g} (+-{(estimate['high'] - estimate['low']) / (2 * value):.1%})"


def _not_kept(costs: Json) -> list[str]:
    if costs["profile"].get("kept", True):
        return []
    return [
        f"none kept in the cache, as other work took {costs['platform']['busy_share']:.0%} of the cores' time before"
    ]


def _effort(profile: Json) -> list[str]:
    parts = [f"{profile['measured']} measurements in {profile['seconds']:.0f} s"]
    if profile["cached"]:
        ends = list(dict.fromkeys(profile[key][:10] for key in ("cached_from", "cached_until")))
        parts.append(f"{profile['cached']} taken from the cache, made {' to '.join(ends)}")
    elif "drift" in profile:
        parts.append(
            f"operators took {profile['drift']:.2f} times as long as the cache says, so all were measured anew"
        )
    if profile["imprecise"]:
        parts.append(f"{profile['imprecise']} not certain within {profile['precision']:.0%}")
    if profile["modelled"]:
        parts.append(f"{profile['modelled']} stages or merges left to the models, as the budget was spent")
    return parts
