"""The papers' networks as graphs, from `hios.study.reference_networks`, for scripts of this folder and tests."""

from hios.study.reference_networks import (
    KIND,
    RANDWIRE_FILES,
    googlenet,
    inception_v3,
    nasnet_large,
    randwire,
    resnet50,
    squeezenet,
    synthetic_costs,
)

__all__ = [
    "KIND",
    "RANDWIRE_FILES",
    "googlenet",
    "inception_v3",
    "nasnet_large",
    "randwire",
    "resnet50",
    "squeezenet",
    "synthetic_costs",
]
