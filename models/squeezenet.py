"""SqueezeNet v1.0 with complex bypass (Iandola et al., arXiv:1602.07360, figure 2 right and section 6)."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


class Fire(nn.Module):
    """Squeeze to few channels, expand by 1x1 and 3x3 convolutions side by side (section 3.2).

    Around it a bypass: the input itself where it has as many channels as the output, else a 1x1 convolution of
    it ("complex bypass").
    """

    def __init__(self, channels: int, squeezed: int, expanded: int, bypass: bool) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(channels, squeezed, 1)
        self.expand1x1 = nn.Conv2d(squeezed, expanded, 1)
        self.expand3x3 = nn.Conv2d(squeezed, expanded, 3, padding=1)
        self.bypass = nn.Conv2d(channels, 2 * expanded, 1) if bypass else None

    def forward(self, x: Tensor) -> Tensor:
        squeezed = F.relu(self.squeeze(x))
        expanded = torch.cat([F.relu(self.expand1x1(squeezed)), F.relu(self.expand3x3(squeezed))], 1)
        return expanded + (x if self.bypass is None else self.bypass(x))


class SqueezeNet(nn.Module):
    """Eight fire modules between two convolutions; the classifier is a softmax, conv10 gives the class scores."""

    def __init__(self, classifier: bool) -> None:
        super().__init__()
        self.classifier = classifier
        self.conv1 = nn.Conv2d(3, 96, 7, stride=2)
        self.fire2 = Fire(96, 16, 64, bypass=True)
        self.fire3 = Fire(128, 16, 64, bypass=False)
        self.fire4 = Fire(128, 32, 128, bypass=True)
        self.fire5 = Fire(256, 32, 128, bypass=False)
        self.fire6 = Fire(256, 48, 192, bypass=True)
        self.fire7 = Fire(384, 48, 192, bypass=False)
        self.fire8 = Fire(384, 64, 256, bypass=True)
        self.fire9 = Fire(512, 64, 256, bypass=False)
        self.conv10 = nn.Conv2d(512, 1000, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 3, stride=2, ceil_mode=True)
        x = self.fire4(self.fire3(self.fire2(x)))
        x = F.max_pool2d(x, 3, stride=2, ceil_mode=True)
        x = self.fire8(self.fire7(self.fire6(self.fire5(x))))
        x = F.max_pool2d(x, 3, stride=2, ceil_mode=True)
        x = F.adaptive_avg_pool2d(F.relu(self.conv10(self.fire9(x))), 1)
        return F.softmax(torch.flatten(x, 1), 1) if self.classifier else x


def build(
    *, image_size: int = 224, batch_size: int = 1, classifier: bool = False
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The network and example inputs: an image batch of (batch_size, 3, image_size, image_size)."""
    return SqueezeNet(classifier), (torch.randn(batch_size, 3, image_size, image_size),)
