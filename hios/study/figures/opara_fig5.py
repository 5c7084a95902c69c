"""Opara, figure 5: speedup, SM efficiency and memory."""

from hios.study.registry import Figure, register

register(
    Figure(
        id="opara_fig5",
        title="Speedup over PyTorch, CUDA graph and Nimble",
        varies="model; speedup, efficiency of the SMs and peak memory",
        needs=("cuda",),
        missing="CUDA graphs and the efficiency of SMs need a GPU",
        command="python benchmarks/gpu.py run FOLDER",
    )
)
