"""IOS, figure 14: figure 6 on another GPU."""

from hios.study import machine_rows as machines
from hios.study import network_runs as runs
from hios.study import run_findings
from hios.study.figure_data import FigureData
from hios.study.registry import Figure, Rows, register
from hios.study.verdicts import Comparison

_ID = "ios_fig14"


def rows(data: FigureData) -> Rows:
    """A row for every machine and schedule, with its throughput over that of the network's best on that machine."""
    return machines.machine_rows(data, _of_machine)


def _of_machine(data: FigureData) -> Rows:
    return runs.with_throughput(runs.schedule_rows(data, ("sequential", "greedy", "ios"), devices=1))


def compare(rows: Rows) -> list[Comparison]:
    """The speedup of IOS on every machine with GPUs."""
    return machines.comparisons(_ID, "speedup", rows, lambda own: runs.latencies(own, "ios", "speedup"))


register(
    Figure(
        id=_ID,
        title="Schedules of one device on several machines (the paper: RTX 2080 Ti)",
        varies="machine, network and schedule; throughput over that of the best schedule",
        needs=("several machines",),
        sessions=("networks", "archives"),
        rows=rows,
        finding=machines.findings(run_findings.speedups),
        chart=lambda rows: machines.panels(rows, "normalized throughput", "throughput over the best"),
        compare=compare,
        reason=machines.hardware,
        command="snakemake --cores all ios_fig6",
    )
)
