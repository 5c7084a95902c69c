"""Opara, figure 1: efficiency of the SMs."""

from hios.study.registry import Figure, register

register(
    Figure(
        id="opara_fig1",
        title="SM efficiency under sequential execution",
        varies="model and batch size; share of time in which SMs have a warp",
        needs=("GPU counters",),
        missing="the efficiency of SMs is read from performance counters of a GPU",
        command=("ncu --metrics sm__cycles_active.avg.pct_of_peak_sustained_elapsed hios execute ... --platform cuda"),
    )
)
