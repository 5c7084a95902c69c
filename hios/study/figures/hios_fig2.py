"""HIOS, figure 2: transfers over convolutions."""

from hios.study.registry import Figure, register

register(
    Figure(
        id="hios_fig2",
        title="Transfer time over the time of a convolution",
        varies=("image size; time of a transfer between two GPUs over the time of the convolution that it follows"),
        needs=("cpu",),
        missing="hios has no session of convolutions alone yet; NVLink and PCIe need two GPUs",
    )
)
