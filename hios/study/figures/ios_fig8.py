"""IOS, figure 8: active warps over time."""

from hios.study.registry import Figure, register

register(
    Figure(
        id="ios_fig8",
        title="Active warps under the sequential and the IOS schedule",
        varies="time; number of active warps of the sample network",
        needs=("GPU counters",),
        missing="active warps are read from performance counters of a GPU; cores have none",
        command=("ncu --metrics sm__warps_active.avg.pct_of_peak_sustained_active hios execute ... --platform cuda"),
    )
)
