"""A small network of a user's own file for whole pipelines."""

#: Two branches of different lengths, so that a second device helps in principle.
SOURCE = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.left = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1))
        self.right = nn.Conv2d(16, 16, 5, padding=2)

    def forward(self, x):
        x = self.stem(x).relu()
        return torch.cat([self.left(x), self.right(x)], 1)


def build():
    return Net(), (torch.randn(1, 3, 32, 32),)
"""
#: It as an entry of ``models:``, for a checkout with the file (`Checkout.add_own_network`).
OWN_NETWORK = {"net": {"model": "own_network:build"}}
