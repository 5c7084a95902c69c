"""What an inference on one core consists of, as oneDNN, ONNX Runtime and the engine say it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import benchmarks.networks
from tests.frontends.small_networks import write_squeezenet

_VERBOSE = """\
onednn_verbose,v1,info,oneDNN v3.11 (commit abc)
onednn_verbose,v1,primitive,info,template:operation,engine,primitive,implementation,prop_kind,exec_time
onednn_verbose,v1,primitive,create:cache_miss,cpu,convolution,brg_conv_fwd:avx512_core,forward_training,src:f32,,4.5
onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,src:f32 dst:f32,attr-scratchpad:user,,64x64x3x3,0.25
onednn_verbose,v1,primitive,exec,cpu,convolution,brg_conv_fwd:avx512_core,forward_training,src:f32,mb1_ic64oc64,1.5
onednn_verbose,exec,cpu,convolution,jit:avx2,forward_inference,src_f32,alg:convolution_direct,mb1_ic64oc64,0.5
"""


@pytest.fixture
def one_core(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The script, which imports the module beside it as a script does."""
    monkeypatch.syspath_prepend(str(Path(benchmarks.networks.__file__).parent))
    yield importlib.import_module("one_core")
    for name in ("one_core", "primitive_times"):
        sys.modules.pop(name, None)


def test_what_onednn_prints(one_core: ModuleType) -> None:
    """Executions are counted, in logs of old and new versions; primitive creation and other messages are not."""
    assert one_core.primitive_times.primitive_times(_VERBOSE) == {"layout": 0.25, "convolution": 2.0}


def test_what_onnx_runtime_profiles(one_core: ModuleType) -> None:
    """Kernel times by kind and what is between them, for each inference; what makes the session does not count."""
    node = {"cat": "Node", "args": {"op_name": "FusedConv"}}
    events = [
        {"cat": "Session", "name": "model_loading_uri", "ts": 0, "dur": 900},
        {"cat": "Session", "name": "model_run", "ts": 1000, "dur": 500},
        {**node, "name": "a_kernel_time", "ts": 1010, "dur": 300},
        {**node, "name": "a_fence_before", "ts": 1005, "dur": 1},
        {"cat": "Node", "name": "b_kernel_time", "ts": 1320, "dur": 50, "args": {"op_name": "ReorderOutput"}},
        {**node, "name": "a_kernel_time", "ts": 2010, "dur": 200},
        {"cat": "Session", "name": "model_run", "ts": 2000, "dur": 400},
    ]
    first, second = one_core.primitive_times.node_times(events)
    assert first == pytest.approx({"convolution": 0.3, "layout": 0.05, "between": 0.15})
    assert second == pytest.approx({"convolution": 0.2, "between": 0.2})


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("relax.nn.conv2d", "convolution"),
        ("FusedConv", "convolution"),
        ("relax.nn.adaptive_avg_pool2d", "pooling"),
        ("relax.concat", "concatenation"),
        ("Gemm", "matrix product"),
        ("relax.matmul", "matrix product"),
        ("ReorderInput", "layout"),
        ("Softmax", "other"),
    ],
)
def test_kinds(one_core: ModuleType, name: str, kind: str) -> None:
    """Functions of Relax and nodes of ONNX Runtime that do the same are of one kind."""
    assert one_core.kind_of(name) == kind


@pytest.mark.slow
def test_a_network_is_measured(one_core: ModuleType, tmp_path: Path) -> None:
    """A small network runs for real: both sides have convolutions, and all of them are in the table."""
    write_squeezenet(tmp_path)
    ours, theirs = one_core.measure(tmp_path, runs=2)
    assert {"convolution", "oneDNN convolution"} <= ours.keys()
    assert theirs["convolution"] > 0
    rows = list(one_core.table(ours, theirs))
    assert {row.split("  ")[2] for row in rows if row.startswith("    ") and row[4] != " "} == {
        kind for kind in {*ours, *theirs} if kind not in one_core.FRAME and not kind.startswith("oneDNN ")
    }


def test_the_table(one_core: ModuleType) -> None:
    """Parts stand under what they are part of; what torch does is what oneDNN leaves of the convolutions."""
    ours = {"call": 10.0, "copies": 0.5, "waking": 0.25, "run": 9.25, "between": 0.25, "operators": 9.0}
    ours |= {
        "convolution": 8.0,
        "pooling": 1.0,
        "oneDNN convolution": 7.0,
        "oneDNN layout": 0.75,
        "oneDNN around": 0.25,
    }
    theirs = {"call": 8.0, "between": 0.5, "operators": 7.5, "convolution": 7.0, "layout": 0.5}
    assert [row.split() for row in one_core.table(ours, theirs)] == [
        ["ms", "hios", "ONNX", "Runtime"],
        ["whole", "call", "10.00", "8.00"],
        ["inputs", "and", "outputs", "copied", "0.50"],
        ["worker", "woken,", "and", "its", "answer", "0.25"],
        ["between", "operators", "0.25", "0.50"],
        ["operators", "9.00", "7.50"],
        ["convolution", "8.00", "7.00"],
        ["oneDNN's", "convolutions", "7.00"],
        ["oneDNN's", "changes", "of", "layout", "0.75"],
        ["torch", "around", "them", "0.25"],
        ["pooling", "1.00"],
        ["layout", "0.50"],
    ]


def test_what_is_missing_is_named(one_core: ModuleType, tmp_path: Path) -> None:
    """A folder without the files is refused in one line."""
    with pytest.raises(SystemExit, match=r"found no program\.pt2; required: the results of the pipeline"):
        one_core.main([str(tmp_path)])
