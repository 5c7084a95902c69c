"""Opara, table I: time of stream allocation."""

from hios.study.registry import Figure, register

register(
    Figure(
        id="opara_tab1",
        title="Time of stream allocation",
        varies="model; milliseconds of stream allocation by Opara and Nimble, and of profiling",
        needs=("cpu",),
        missing=(
            "hios has no session of transformers yet, and the time of an algorithm is that of streams "
            "and launch order together"
        ),
    )
)
