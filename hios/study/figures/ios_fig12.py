"""IOS, figure 12: TVM-AutoTune."""

from hios.study.registry import Figure, register

register(
    Figure(
        id="ios_fig12",
        title="IOS and TVM-AutoTune",
        varies="network; throughput and GPU hours of the search",
        needs=("cpu",),
        missing=(
            "hios runs operators by cuDNN or oneDNN and tunes no kernels, so the comparison with "
            "TVM-AutoTune is out of its scope"
        ),
    )
)
