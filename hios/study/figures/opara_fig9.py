"""Opara, figure 9: another GPU."""

from __future__ import annotations

from hios.study import machine_rows as machines
from hios.study import network_runs as runs
from hios.study.figure_data import FigureData
from hios.study.registry import Figure, Rows, register
from hios.study.verdicts import Comparison

_ID = "opara_fig9"
_NETWORK = "inception_v3"


def rows(data: FigureData) -> Rows:
    """A row for every machine, network and schedule by Opara or Nimble, of networks that ran with both."""
    return machines.machine_rows(data, _of_machine)


def _of_machine(data: FigureData) -> Rows:
    rows = runs.schedule_rows(data, ("nimble", "opara"), devices=1)
    nimble, opara = (runs.latencies(rows, name) for name in ("nimble", "opara"))
    return [
        {**row, "over nimble": nimble[row["network"]] / row["ms"]}
        for row in rows
        if row["network"] in nimble.keys() & opara.keys()
    ]


def compare(rows: Rows) -> list[Comparison]:
    """Speedup of Opara over Nimble on Inception-v3, on every machine with GPUs."""
    own = [row for row in rows if row["network"].partition("-")[0] == _NETWORK]
    return machines.comparisons(_ID, "over_nimble", own, lambda rows: runs.latencies(rows, "opara", "over nimble"))


def finding(rows: Rows) -> str:
    """Speedup of Opara over Nimble by network."""
    texts = [f"{row['over nimble']:.2f} on {row['network']}" for row in rows if row["algorithm"] == "opara"]
    return f"Speedup of Opara over Nimble: {'; '.join(texts)}."


register(
    Figure(
        id=_ID,
        title="Speedup over Nimble on several machines (the paper: A100)",
        varies="machine and network; speedup of Opara over Nimble (the paper: Inception-v3, batch 1 to 8)",
        needs=("several machines",),
        sessions=("networks", "archives"),
        rows=rows,
        chart=lambda rows: machines.panels(rows, "over nimble", "speedup over Nimble"),
        compare=compare,
        finding=machines.findings(finding),
        reason=machines.hardware,
        command="python benchmarks/gpu.py run FOLDER",
    )
)
