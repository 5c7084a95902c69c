"""LIOS, table VI: time of scheduling."""

from hios.charts import marks
from hios.study import run_findings
from hios.study.figure_data import FigureData
from hios.study.registry import Figure, Rows, reason, register

_ALGORITHMS = ("sequential", "greedy", "nimble", "lios", "lios-rand1", "lios-rand2", "lios-rand")


def rows(data: FigureData) -> Rows:
    """A row for every network and algorithm: the algorithm alone, without profiling."""
    return [
        {
            "network": label,
            "algorithm": result.algorithm,
            "platform": network.run.platform.name,
            "mark": marks.MEASURED.name,
            "scheduling s": result.scheduling_time_s,
        }
        for label, network in data.networks.items()
        for result in network.run.results
        if result.algorithm in _ALGORITHMS and result.devices == 1
    ]


register(
    Figure(
        id="lios_tab6",
        title="Scheduling time of the other algorithms",
        varies="network and algorithm; seconds of scheduling",
        sessions=("networks",),
        rows=rows,
        finding=run_findings.scheduling_times,
        reason=reason(
            "Here profiling is done once for all algorithms and is not part of the time; the paper counts it."
        ),
    )
)
