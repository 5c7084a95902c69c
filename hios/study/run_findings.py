"""Sentences on the results of measured networks; their numbers come from the rows of figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from hios.charts import marks
from hios.formats.run_file import ReferenceKind

if TYPE_CHECKING:
    from hios.study.registry import Row, Rows

#: What a device is, by platform.
_DEVICES = {"cpu": "cores", "cuda": "GPUs"}
#: Share of a latency up to which schedules of a core differ by little.
_LITTLE = 0.05
#: Values of the column `algorithm` for references; empty in older runs, which do not state the kind.
_REFERENCES = ("", *get_args(ReferenceKind))


def speedups(rows: Rows) -> str:
    """Speedup over the sequential schedule on one device of everything that was measured, by network."""
    texts = [
        f"{_name(row)} {row['speedup']:.2f} on {row['network']}"
        for row in measured(rows)
        if row["speedup"] is not None and not _is_baseline(row)
    ]
    return f"Speedup over the sequential schedule on one device, measured on {_where(rows)}: {'; '.join(texts)}."


def spreads(rows: Rows) -> str:
    """How far the quartiles of the runs are apart, as a share of their median."""
    texts = [
        f"{_name(row)} {100 * (row['q3 ms'] - row['q1 ms']) / row['ms']:.1f} % on {row['network']}"
        for row in measured(rows)
    ]
    return f"Interquartile range of the runs on {_where(rows)}, relative to the median: {'; '.join(texts)}."


def scheduling_times(rows: Rows) -> str:
    """Seconds of scheduling of every algorithm, by network."""
    texts = [f"{row['algorithm']} {row['scheduling s']:.3g} s on {row['network']}" for row in rows]
    return f"Scheduling takes here: {'; '.join(texts)}."


def on_cores(text: Callable[[Rows], str]) -> Callable[[Rows], str]:
    """A sentence that holds for cores alone: it is empty for rows of other platforms."""
    return lambda rows: text(rows) if rows and all(row.get("platform") == "cpu" for row in rows) else ""


def one_operator_fills_a_core(rows: Rows) -> str:
    """How far apart the medians of schedules of one device are, and why, where that is little.

    Where they are farther apart nothing is explained: busy cores can do that too.
    """
    shares = {
        network: max(times) / min(times) - 1 for network, times in _times(rows, devices=1).items() if len(times) > 1
    }
    if not shares:
        return ""
    apart = " and ".join(f"{100 * share:.1f} % on {network}" for network, share in shares.items())
    spread = f"The slowest schedule of one core is above the fastest by {apart}"
    if max(shares.values()) > _LITTLE:
        return f"{spread}; that is too much for what one operator on a core leaves to gain, and is not explained."
    return f"{spread}: one operator fills a core, so streams and stages of one device gain next to nothing."


def stand_ins(rows: Rows, instead_of: str) -> str:
    """Which runtimes stand for frameworks that did not run.

    Args:
        rows: of schedules and references.
        instead_of: the frameworks of the paper.
    """
    names = dict.fromkeys(row["schedule"] for row in measured(rows) if row["algorithm"] in _REFERENCES)
    return f"Instead of {instead_of}, this figure shows {', '.join(names)}." if names else ""


def gain_of_groups(rows: Rows, algorithm: str) -> str:
    """The change of measured latency by grouping operators on a device, relative to the inter-GPU part alone.

    Args:
        rows: of schedules.
        algorithm: hios-lp or hios-mr.
    """
    times = {(row["network"], row["devices"], row["algorithm"]): row["ms"] for row in measured(rows)}
    changes = [
        f"{100 * (time / before - 1):+.1f} % on {network} with {devices} devices"
        for (network, devices, name), time in times.items()
        if name == algorithm and devices > 1 and (before := times.get((network, devices, f"{algorithm}-inter")))
    ]
    return f"Groups change the latency of {algorithm} by {' and '.join(changes)}." if changes else ""


def measured(rows: Rows) -> list[Row]:
    """The rows that were measured."""
    return [row for row in rows if row["mark"] == marks.MEASURED.name]


def _times(rows: Rows, devices: int) -> Mapping[str, Sequence[float]]:
    """Medians in milliseconds of schedules for a number of devices, by network."""
    times: dict[str, list[float]] = {}
    for row in measured(rows):
        if row["devices"] == devices:
            times.setdefault(row["network"], []).append(row["ms"])
    return times


def _name(row: Mapping[str, Any]) -> str:
    """A schedule or reference in words; those of several devices or threads say of how many."""
    name, count = row["schedule"], row["devices"]
    unit = "threads" if row["algorithm"] in _REFERENCES else "devices"
    return name if count == 1 else f"{name} ({count} {unit})"


def _is_baseline(row: Mapping[str, Any]) -> bool:
    return (row["algorithm"], row["devices"]) == ("sequential", 1)


def _where(rows: Rows) -> str:
    platforms = dict.fromkeys(str(row["platform"]) for row in rows)
    return " and ".join(_DEVICES.get(platform, platform) for platform in platforms)
