"""HIOS, figure 1: two convolutions beside each other over one after the other."""

from hios.study.registry import Figure, register

register(
    Figure(
        id="hios_fig1",
        title="Two equal convolutions beside each other and one after the other",
        varies=(
            "image size 8 to 1024 px; latency of two convolutions (5x5, stride 1, 48 channels) at "
            "once over one after the other"
        ),
        needs=("cpu",),
        missing=(
            "hios has no session of convolutions alone yet; on cores it would ask the same question, "
            "of one operator and the cores of one device"
        ),
    )
)
