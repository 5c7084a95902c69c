"""Networks of other people, for networks.yaml: classes of transformers, as their default configurations make them.

Weights are random, and nothing is downloaded. The towers of CLIP do not depend on each other; MobileNet is a chain.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class _Outputs(nn.Module):
    """The first output of a network as a function of its inputs, by position."""

    def __init__(self, network: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.network, self.names = network, names

    def forward(self, *inputs: Tensor) -> Tensor:
        output: Tensor = self.network(**dict(zip(self.names, inputs, strict=True)), return_dict=False)[0]
        return output


def clip(*, words: int = 16, layers: int = 12) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """CLIP with ViT-B/32 (Radford et al., arXiv:2103.00020): how well an image and words agree."""
    import transformers

    configuration = transformers.CLIPConfig(
        text_config={"num_hidden_layers": layers}, vision_config={"num_hidden_layers": layers}
    )
    configuration._attn_implementation = "eager"
    inputs = torch.randint(1, 49_000, (1, words)), torch.rand(1, 3, 224, 224)
    return _Outputs(transformers.CLIPModel(configuration), ("input_ids", "pixel_values")), inputs


def segformer(*, image_size: int = 224) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """SegFormer-B0 (Xie et al., arXiv:2105.15203), whose decoder joins four scales."""
    import transformers

    network = transformers.SegformerForSemanticSegmentation(transformers.SegformerConfig())
    return _Outputs(network, ("pixel_values",)), (torch.rand(1, 3, image_size, image_size),)


def mobilenet(*, image_size: int = 224) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """MobileNetV1 (Howard et al., arXiv:1704.04861)."""
    import transformers

    network = transformers.MobileNetV1Model(transformers.MobileNetV1Config())
    return _Outputs(network, ("pixel_values",)), (torch.rand(1, 3, image_size, image_size),)
