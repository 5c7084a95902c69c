"""Opara, figure 9: another GPU."""

from hios.study.registry import Figure, register

register(
    Figure(
        id="opara_fig9",
        title="Speedup on an A100",
        varies="batch 1 to 8; speedup of Opara over Nimble on Inception-v3",
        needs=("cuda",),
        missing="CUDA graphs need a GPU",
        command="python benchmarks/gpu.py run FOLDER",
    )
)
