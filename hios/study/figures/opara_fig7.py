"""Opara, figure 7: timelines of T5 and BERT."""

from hios.study.registry import Figure, register

register(
    Figure(
        id="opara_fig7",
        title="Streams of T5 and BERT",
        varies="model and algorithm; number of streams",
        needs=("cpu",),
        missing="hios has no session of transformers yet",
    )
)
