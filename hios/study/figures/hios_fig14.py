"""HIOS, figure 14: time of scheduling, profiling counted."""

from __future__ import annotations

from hios.charts import marks
from hios.study import network_runs as runs
from hios.study.figure_data import FigureData, ProfiledAlone
from hios.study.registry import Figure, Row, Rows, register
from hios.study.verdicts import Comparison

_ID = "hios_fig14"
_SECONDS_PER_MINUTE = 60


def rows(data: FigureData) -> Rows:
    """A row for every network and algorithm that was profiled alone: seconds, and how much was asked for."""
    return [
        _row(network, algorithm, entry)
        for network, entries in data.profiles.items()
        for algorithm, entry in entries.items()
    ]


def _row(network: str, algorithm: str, entry: ProfiledAlone) -> Row:
    costs, summary = entry.costs, entry.costs.profile
    name, _, size = network.rpartition("-")
    return {
        "network": name,
        "image size": int(size),
        "algorithm": algorithm,
        "schedule": f"{size} px, {algorithm}",
        "devices": entry.schedule.devices,
        "platform": costs.platform.name if costs.platform is not None else "",
        "mark": marks.MEASURED.name,
        "stages": len(costs.stages),
        "merges": len(costs.merges),
        "measured": None if summary is None else summary.measured,
        "left out": None if summary is None else summary.modelled,
        "repeats": None if summary is None else summary.repeats,
        "profiling s": None if summary is None else summary.seconds,
        "scheduling s": entry.schedule.scheduling_time_s,
        "minutes": entry.seconds / _SECONDS_PER_MINUTE,
    }


def compare(rows: Rows) -> list[Comparison]:
    """Minutes of HIOS-LP, and how far it is below IOS with the largest images; of GPUs alone."""
    minutes = {(row["network"], row["image size"], row["algorithm"]): row["minutes"] for row in rows}
    of_lp = {
        f"{size} px": time
        for (network, size, algorithm), time in minutes.items()
        if (network, algorithm) == ("inception_v3", "hios-lp")
    }
    largest = max((size for network, size, _ in minutes if network == "nasnet_large"), default=0)
    lp, ios = (minutes.get(("nasnet_large", largest, name)) for name in ("hios-lp", "ios"))
    below = {f"{largest} px": 100 * (1 - lp / ios)} if lp is not None and ios else {}
    return runs.comparisons(_ID, rows, {"inception_minutes": of_lp, "nasnet_below_ios": below})


def finding(rows: Rows) -> str:
    """Seconds and stages of every algorithm."""
    texts = []
    for place in dict.fromkeys((row["network"], row["image size"]) for row in rows):
        own = [row for row in rows if (row["network"], row["image size"]) == place]
        times = [
            f"{row['algorithm']} {_SECONDS_PER_MINUTE * row['minutes']:.3g} s for {row['stages']:,} stages"
            for row in own
        ]
        texts.append(f"{place[0]} with {place[1]} px {', '.join(times)}")
    return f"Profiling and scheduling take here: {'; '.join(texts)}."


def why(rows: Rows) -> str:
    """What is counted, and what was measured of it."""
    parts = [
        f"{row['measured']:,} for {row['algorithm']} on {row['network']} with {row['image size']} px"
        for row in rows
        if row["measured"] is not None
    ]
    left_out = sum(row["left out"] or 0 for row in rows)
    repeats = sorted({row["repeats"] for row in rows if row["repeats"] is not None})
    often = f" Each is measured at least {' or '.join(map(_times, repeats))}." if repeats else ""
    return (
        "Each algorithm is profiled alone, without cache and budget; for several devices, transfers and simultaneous "
        "work are measured too. Stages are those that the algorithm asks for, for every number of devices up to that "
        "of its schedule; to find them, profiling runs the algorithm until it asks for nothing new, and that time "
        f"counts.{often} Stages with equal signatures share a measurement, which leaves fewer of them: "
        f"{', '.join(parts)}. Stages that were estimated by the model instead: {left_out}."
    )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


register(
    Figure(
        id=_ID,
        title="Time cost of scheduling algorithms",
        varies="image size; minutes of scheduling by IOS, HIOS-LP and HIOS-MR, profiling counted, and stages asked for",
        sessions=("profiles",),
        rows=rows,
        chart=runs.bar_chart("schedule", "minutes", "profiling and scheduling, min"),
        compare=compare,
        finding=finding,
        reason=why,
    )
)
