"""HIOS, figure 5: the worked example of Algorithm 2."""

from hios.study.registry import Figure, register

register(
    Figure(
        id="hios_fig5",
        title="The worked example of Algorithm 2: grouping on a GPU",
        varies="operator that a window starts at; groups and latency",
        needs=("cpu",),
        missing=(
            "the times of the figure are not printed as numbers, so its example cannot be computed; "
            "its steps are tested"
        ),
    )
)
