"""Opara, figure 5: speedup, SM efficiency and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hios.study import network_runs as runs
from hios.study import predicted_rows as predicted
from hios.study import run_findings
from hios.study.figure_data import FigureData
from hios.study.published import published
from hios.study.registry import Figure, Rows, register
from hios.study.verdicts import Comparison

if TYPE_CHECKING:
    import altair as alt

_ID = "opara_fig5"
_ALGORITHMS = ("sequential", "nimble", "opara")
_MEMORY = "peak memory, MB"
_MB = 1e6


def rows(data: FigureData) -> Rows:
    """A row for every schedule of the paper's algorithms and every other runtime, with its peak memory."""
    networks = data.variants.get("transformers", {})
    memory = {
        (label, name): size
        for label, network in networks.items()
        for name, size in [
            ("sequential", network.run.baseline.peak_memory_bytes),
            *((result.label, result.peak_memory_bytes) for result in network.run.results),
            *((reference.name, reference.peak_memory_bytes) for reference in network.run.references),
        ]
    }
    own = FigureData(networks=networks)
    timed = runs.schedule_rows(own, _ALGORITHMS, devices=1) + runs.reference_rows(own)
    return [
        {**row, _MEMORY: None if (size := memory.get((row["network"], row["schedule"]))) is None else size / _MB}
        for row in run_findings.measured(timed)
    ]


def compare(rows: Rows) -> list[Comparison]:
    """Speedups of Opara, and milliseconds of GoogLeNet; of GPUs alone."""
    kinds = {"eager": "eager", "graph": "cudagraph", "nimble": "nimble", "opara": "opara"}
    times = {name: runs.latencies(rows, kind) for name, kind in kinds.items()}
    over = {
        f"over_{name}": {network: times[name][network] / ms for network, ms in times["opara"].items() if network in own}
        for name, own in times.items()
        if name != "opara"
    }
    bert = {name: own["bert"] for name, own in over.items() if "bert" in own and name != "over_nimble"}
    t5 = {network: 100 * (gain - 1) for network, gain in over["over_nimble"].items() if network == "t5"}
    googlenet = {
        name: own["googlenet"]
        for name, own in times.items()
        if "googlenet" in own and name in published(_ID)["googlenet"].cases
    }
    return runs.comparisons(_ID, rows, {**over, "bert": bert, "t5_over_nimble": t5, "googlenet": googlenet})


def finding(rows: Rows) -> str:
    """Speedups, and the memory of every schedule and runtime."""
    texts = [f"{row['schedule']} {row[_MEMORY]:.0f} MB on {row['network']}" for row in rows if row[_MEMORY] is not None]
    memory = f" Peak memory: {'; '.join(texts)}." if texts else ""
    return f"{run_findings.speedups(rows)}{memory}"


def why(rows: Rows) -> str:
    """What memory counts, and what is not measured."""
    counted = (
        "what torch allocates on the GPU"
        if runs.on_gpu(rows)
        else "what the worker processes have for themselves, which on cores is nearly the same for all schedules, as "
        "those of a device share weights and process"
    )
    return f"Memory is {counted}. The efficiency of SMs needs performance counters of a GPU."


def chart(rows: Rows) -> alt.TopLevelMixin:
    """Speedups, and below them the memory where it is known."""
    import altair as alt

    columns = {"speedup": "speedup over the sequential schedule", _MEMORY: _MEMORY}
    panels: list[Any] = [
        runs.bar_chart("schedule", column, title)(rows)
        for column, title in columns.items()
        if any(row[column] is not None for row in rows)
    ]
    stacked: alt.VConcatChart = alt.vconcat(*panels)
    return stacked


register(
    predicted.beside(
        Figure(
            id=_ID,
            title="Speedup over PyTorch, CUDA graph and Nimble, and peak memory",
            varies="model; speedup and peak memory of Opara, Nimble, the sequential schedule and other runtimes",
            sessions=("transformers",),
            rows=rows,
            finding=finding,
            chart=chart,
            compare=compare,
            reason=why,
            command="python benchmarks/gpu.py run FOLDER",
        ),
        ("opara-a100", "opara-rtx2080s"),
        ("transformers",),
        chart=runs.bar_chart("schedule", "speedup", "speedup over the sequential schedule"),
    )
)
