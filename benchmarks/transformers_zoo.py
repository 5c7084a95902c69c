"""Which architectures of transformers `hios.optimize` takes, and which runtimes give their outputs.

    python benchmarks/transformers_zoo.py [--timeout SECONDS] [NAME ...]

Each has a small configuration, random weights, and a process of its own. The row of a runtime says whether its outputs
equal the model's, on the example and on inputs made from it, or why it does not take part; the last column whether the
module that was made computes, for other inputs, what the model does. The exit status is 1 if a model is left as it is,
or computed wrongly. The models with a decoder return their cache of keys and values.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from zoo import TIMEOUT_S, in_own_process

if TYPE_CHECKING:
    from torch import Tensor

_LAYERS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
_TEXT = {**_LAYERS, "vocab_size": 99, "max_position_embeddings": 64}
_GROUPED = {**_TEXT, "num_key_value_heads": 2}
_IMAGE = {**_LAYERS, "image_size": 32, "patch_size": 8}
_CODER = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4} | {
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
}
_IDS = ("input_ids",)
_CODED = ("input_ids", "decoder_input_ids")
_PIXELS = ("pixel_values",)
_CLIP = {**_LAYERS, "projection_dim": 16}

#: The class of each model, its configuration, and the names of its inputs.
MODELS: Mapping[str, tuple[str, Mapping[str, Any], Sequence[str]]] = {
    "albert": ("AlbertModel", {**_TEXT, "embedding_size": 16}, _IDS),
    "bart": ("BartModel", {**_CODER, "vocab_size": 99, "max_position_embeddings": 64}, _CODED),
    "bert": ("BertModel", _TEXT, ("input_ids", "attention_mask")),
    "clip": (
        "CLIPModel",
        {
            "text_config": {**_TEXT, **_CLIP, "eos_token_id": 98},
            "vision_config": {**_IMAGE, **_CLIP},
            "projection_dim": 16,
        },
        ("input_ids", "pixel_values"),
    ),
    "deberta-v2": ("DebertaV2Model", {**_TEXT, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}, _IDS),
    "distilbert": (
        "DistilBertModel",
        {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "vocab_size": 99},
        _IDS,
    ),
    "dpt": (
        "DPTForDepthEstimation",
        {
            **_IMAGE,
            "num_hidden_layers": 4,
            "is_hybrid": False,
            "backbone_out_indices": [0, 1, 2, 3],
            "neck_hidden_sizes": [8, 8, 16, 16],
            "fusion_hidden_size": 16,
        },
        _PIXELS,
    ),
    "electra": ("ElectraModel", {**_TEXT, "embedding_size": 16}, _IDS),
    "gpt2": ("GPT2LMHeadModel", {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99, "n_positions": 64}, _IDS),
    "llama": ("LlamaForCausalLM", _GROUPED, _IDS),
    "mamba": ("MambaForCausalLM", {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 99, "state_size": 8}, _IDS),
    "mistral": ("MistralForCausalLM", _GROUPED, _IDS),
    "roberta": ("RobertaModel", {**_TEXT, "output_hidden_states": True}, _IDS),
    "segformer": (
        "SegformerForSemanticSegmentation",
        {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "decoder_hidden_size": 16, "num_labels": 5},
        _PIXELS,
    ),
    "t5": (
        "T5Model",
        {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 99},
        _CODED,
    ),
    "vit": ("ViTModel", _IMAGE, _PIXELS),
    "wav2vec2": (
        "Wav2Vec2Model",
        {
            **_LAYERS,
            "conv_dim": [16] * 7,
            "num_conv_pos_embeddings": 16,
            "num_conv_pos_embedding_groups": 4,
            "vocab_size": 32,
        },
        ("input_values",),
    ),
    "whisper": (
        "WhisperModel",
        {**_CODER, "vocab_size": 99, "max_source_positions": 40, "max_target_positions": 20, "num_mel_bins": 16}
        | {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1},
        ("input_features", "decoder_input_ids"),
    ),
    "xlnet": ("XLNetModel", {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64, "vocab_size": 99}, _IDS),
    "yolos": ("YolosForObjectDetection", {**_IMAGE, "image_size": [32, 32], "num_detection_tokens": 10}, _PIXELS),
}
#: The runtimes, and the seconds for all of them.
_WAYS, _BUDGET_S = ("openvino", "onnxruntime", "schedule"), 300.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row for every model; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="NAME")
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.one:
        print(json.dumps(optimized(given.models[0])))
        return 0
    came = 0
    print(f"| model | {' | '.join(_WAYS)} | seconds | result |\n|{'---|' * (len(_WAYS) + 3)}", flush=True)
    for name in given.models:
        began = time.monotonic()
        row = in_own_process(name, None, given.timeout, __file__)
        came += row.get("result") == "equal outputs"
        cells = [*(row.get(way, "") for way in _WAYS), f"{time.monotonic() - began:.0f}"]
        cells.append(row.get("result") or row["reason"])
        print(f"| {name} | {' | '.join(str(cell).replace('|', '&#124;') for cell in cells)} |", flush=True)
    print(f"\n{came} of {len(given.models)} come through", flush=True)
    return 0 if came == len(given.models) else 1


def optimized(name: str) -> dict[str, str]:
    """What became of every runtime for a model, and whether the optimized module computes what the model does."""
    import torch
    from torch.utils import _pytree as pytree

    import hios

    torch.manual_seed(0)
    model = build(name).eval()
    inputs, others = made_inputs(name), made_inputs(name)
    fast = hios.optimize(model, (), inputs, cache=False, way=_WAYS, least_ms=0, budget_s=_BUDGET_S)
    if not fast.report.ways:
        return {"reason": fast.report.reason}
    row = {}
    for way in _WAYS:
        ways = [own for own in fast.report.ways if own.kind == way]
        row[way] = "equal" if any(own.equal for own in ways) else ways[0].why if ways else ""
    with torch.no_grad():
        made, right = (pytree.tree_leaves(call(**others)) for call in (fast, model))
    pairs = [(own, other) for own, other in zip(made, right, strict=True) if isinstance(own, torch.Tensor)]
    equal = all(torch.allclose(own, other, rtol=1e-3, atol=1e-4) for own, other in pairs)
    came = any(value == "equal" for value in row.values())
    row["result"] = "wrong outputs" if not equal else "equal outputs" if came else "the model itself"
    return row


def build(name: str) -> Any:
    """A model with random weights."""
    import transformers

    kind, settings, _ = MODELS[name]
    model = getattr(transformers, kind)
    return model(model.config_class(**settings))


def made_inputs(name: str) -> dict[str, Tensor]:
    """Random inputs."""
    import torch

    make: Mapping[str, Callable[[], Tensor]] = {
        "input_ids": lambda: torch.randint(3, 98, (1, 12)),
        "decoder_input_ids": lambda: torch.randint(3, 98, (1, 6)),
        "attention_mask": lambda: torch.ones(1, 12, dtype=torch.int64),
        "pixel_values": lambda: torch.randn(1, 3, 32, 32),
        "input_values": lambda: torch.randn(1, 2000),
        "input_features": lambda: torch.randn(1, 16, 80),
    }
    return {own: make[own]() for own in MODELS[name][2]}


if __name__ == "__main__":
    sys.exit(main())
