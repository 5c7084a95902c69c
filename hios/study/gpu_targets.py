"""The GPUs of the papers for which the platform model predicts what the papers measured on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Target:
    """The hardware of a paper's figures.

    ``gpu`` is the name of a description in hios/platforms/model/gpus, ``link`` a word of that description, the first
    that it lists if None. Algorithms for several devices are scheduled for all of them. ``launches`` is how the paper's
    engine launches kernels: on streams, or in one CUDA graph. ``of_ios`` are more schedules by IOS: its parameters, by
    label.
    """

    gpu: str
    link: str | None
    devices: int
    algorithms: tuple[str, ...]
    launches: str
    of_ios: Mapping[str, Mapping[str, int | str]] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, str]:
        """Options of the platform model; operators share resources, so that streams and launch orders tell apart."""
        link = {"link": self.link} if self.link else {}
        return {"gpu": self.gpu, **link, "contention": "resources", "launches": self.launches}


#: LIOS, and what random choices in its place lead to (figure 8 of its paper).
LIOS_VARIANTS = ("lios", "lios-rand1", "lios-rand2", "lios-rand")
_HIOS = ("sequential", "ios", "hios-mr-inter", "hios-mr", "hios-lp-inter", "hios-lp")
_IOS = ("sequential", "greedy", "ios")
_IOS_MODES = {f"ios-{mode}-1": {"mode": mode} for mode in ("merge", "parallel")}
_IOS_PRUNED = {f"ios-r{r}-s{s}-1": {"r": r, "s": s} for r in (1, 2, 3) for s in (3, 8)}
_OPARA = ("sequential", "nimble", "opara")
#: By paper; Opara measured its networks on two GPUs. IOS has its own for batches, pruned searches, and its second GPU.
TARGETS: Mapping[str, Target] = {
    "hios": Target("a40", "nvlink", 2, _HIOS, "streams"),
    "ios": Target("v100-sxm2", None, 1, _IOS, "streams", _IOS_MODES),
    "ios-batches": Target("v100-sxm2", None, 1, ("sequential", "ios"), "streams"),
    "ios-pruning": Target("v100-sxm2", None, 1, ("sequential",), "streams", _IOS_PRUNED),
    "ios-rtx2080ti": Target("rtx2080-ti", None, 1, _IOS, "streams"),
    "lios": Target("rtx3080", None, 1, ("sequential", "greedy", "nimble", "ios", *LIOS_VARIANTS), "streams"),
    "opara-a100": Target("a100-pcie-40gb", None, 1, _OPARA, "graph"),
    "opara-rtx2080s": Target("rtx2080-super", None, 1, _OPARA, "graph"),
}
#: Networks that Opara measured on the A100, and on both GPUs (launch orders), by how the labels of variants begin.
_ON_A100, _ON_BOTH = ("bert", "t5"), ("googlenet",)
#: Networks that IOS prunes the search of.
_PRUNED = ("inception_v3", "nasnet_large")


def targets_of(label: str) -> tuple[str, ...]:
    """The targets of a network by its label in the configuration, or its folder within the results."""
    session, _, name = label.removeprefix("study/").rpartition("/")
    if session == "batches":
        return ("ios-batches", "opara-a100", "opara-rtx2080s")
    if session == "transformers" and name.startswith(_ON_BOTH):
        return ("opara-a100", "opara-rtx2080s")
    if session == "transformers":
        return ("opara-a100",) if name.startswith(_ON_A100) else ("opara-rtx2080s",)
    pruned = ("ios-pruning",) if name in _PRUNED else ()
    return ("hios",) if session else ("hios", "ios", *pruned, "ios-rtx2080ti", "lios")
