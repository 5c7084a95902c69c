"""IOS, figure 15: figure 7 on another GPU."""

from hios.study import machine_rows as machines
from hios.study import network_runs as runs
from hios.study import run_findings
from hios.study.figure_data import FigureData
from hios.study.registry import Figure, Rows, register


def rows(data: FigureData) -> Rows:
    """A row for every machine and the sequential schedule, IOS and every framework that ran on it."""
    return machines.machine_rows(data, _of_machine)


def _of_machine(data: FigureData) -> Rows:
    return runs.with_throughput(runs.schedule_rows(data, ("sequential", "ios"), devices=1) + runs.reference_rows(data))


register(
    Figure(
        id="ios_fig15",
        title="Frameworks on several machines (the paper: RTX 2080 Ti)",
        varies="machine, network and framework; throughput over that of the best",
        needs=("several machines",),
        sessions=("networks", "archives"),
        rows=rows,
        finding=machines.findings(run_findings.speedups),
        chart=lambda rows: machines.panels(rows, "normalized throughput", "throughput over the best"),
        reason=machines.hardware,
        command="snakemake --cores all ios_fig7",
    )
)
