"""HIOS, figure 14: time of scheduling, profiling counted."""

from hios.study.registry import Figure, register

register(
    Figure(
        id="hios_fig14",
        title="Time cost of scheduling algorithms",
        varies="image size; minutes of scheduling by IOS, HIOS-LP and HIOS-MR, profiling counted",
        needs=("cpu",),
        missing=(
            "profiles are made for all algorithms at once and share a budget of time, so that no "
            "algorithm has a time of its own"
        ),
    )
)
