"""Opara, figure 8: throughput over batch sizes."""

from hios.study.registry import Figure, register

register(
    Figure(
        id="opara_fig8",
        title="Throughput of Inception-v3 for different batch sizes",
        varies="batch 1 to 32; throughput over the sequential CUDA graph",
        needs=("cuda",),
        missing="CUDA graphs need a GPU",
        command="python benchmarks/gpu.py run FOLDER",
    )
)
