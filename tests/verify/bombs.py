"""Small files that ask for gigabytes, and what reads them.

``python -m tests.verify.bombs light``, or ``programs``, prints what was said of each and how much memory it took. Each
is read by a process of its own that may take a gigabyte more than it has, as ``ulimit -v`` would have it.
"""

from __future__ import annotations

import io
import json
import os
import re
import resource
import sys
import tempfile
import traceback
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from hios import Graph
from hios.errors import HiosError
from hios.files import read_limits
from hios.files.json_cache import JsonCache
from hios.files.yaml_file import read_yaml
from hios.formats.archive import unpacked
from hios.pipeline import config
from hios.platforms.model import descriptions
from hios.serving.scenario import Scenario
from hios.verify import verify

_MORE_BYTES = 1_000_000_000
_MB = 1_000_000


class Bomb(NamedTuple):
    """A file, what reads it, a pattern of the message that refuses it (if empty, it is read), and what it may take."""

    write: Callable[[Path], object]
    read: Callable[[Path], object]
    refused: str
    most_megabytes: int = 350


class Outcome(NamedTuple):
    """What the process that read a file said, and the memory that it took beyond what it had."""

    message: str
    megabytes: float


def _aliases(levels: int, last: str = "") -> str:
    """Each level is a list of nine times the one before."""
    lists = (f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, levels))
    return "\n".join(("a0: &a0 [x, x, x, x, x, x, x, x, x]", *lists, last)) + "\n"


def _merges(levels: int) -> str:
    """Each level is a mapping of nine times the one before."""
    maps = (f"a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 9)}]}}" for level in range(1, levels))
    return "\n".join(("a0: &a0 {x: 1}", *maps)) + "\n"


def _text(contents: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(contents, encoding="utf-8")


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _zip(entries: dict[str, list[bytes]], method: int = zipfile.ZIP_DEFLATED) -> Callable[[Path], object]:
    """A zip file of entries in pieces."""

    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w", method, compresslevel=1) as made:
            for name, pieces in entries.items():
                with made.open(name, "w", force_zip64=True) as stream:
                    for piece in pieces:
                        stream.write(piece)

    return write


def _unpack(path: Path) -> None:
    with unpacked(path):
        pass


def _cached(path: Path) -> object:
    cache = JsonCache(path.parent / "cache", "")
    cache.put({}, {"a": 1})
    (file,) = path.parent.glob("cache/*/*.json")
    file.unlink()
    file.symlink_to("/dev/zero")
    return cache.get({}, lambda entry: entry)


def _verified(path: Path) -> None:
    (path.parent / "graph.json").write_bytes(path.read_bytes())
    (checked,) = verify(path.parent)
    assert len(checked.problems) == read_limits.MOST_PROBLEMS
    raise HiosError(checked.problems[-1])


_NESTED = r"more than 100,000 values, those that aliases stand for included"
_SPACES = [b" " * _MB]
_EMPTY = b"{}," * 333_333
#: Of files that take no torch to read.
LIGHT = {
    "aliases": Bomb(_text(_aliases(8)), read_yaml, _NESTED),
    "aliases in a configuration": Bomb(
        _text(_aliases(9, "models: *a8")), lambda path: config.without_files(read_yaml(path), path.name), _NESTED
    ),
    "aliases in a scenario": Bomb(_text(_aliases(9)), Scenario.read, _NESTED),
    "aliases in a GPU": Bomb(_text(_aliases(9)), lambda path: descriptions.gpu(str(path)), _NESTED),
    "aliases in a link": Bomb(
        _text(_aliases(9)), lambda path: descriptions.link(str(path), descriptions.gpu("a40")), _NESTED
    ),
    "merges": Bomb(_text(_merges(8)), read_yaml, _NESTED),
    "long YAML": Bomb(_text("[" + "x," * 30_000_000 + "]"), read_yaml, r"more than 1 MB of text"),
    "endless YAML": Bomb(_endless, read_yaml, r"more than 1 MB of text"),
    "endless JSON": Bomb(_endless, Graph.read, r"more than \d+ MB of text"),
    "endless cache": Bomb(_text(""), _cached, ""),
    "long JSON": Bomb(_text('[{"":0}' + ',{"":0}' * 20_000_000 + "]"), Graph.read, r"more than \d+ MB of text"),
    "many errors": Bomb(
        _text('{"format_version":1,"name":"x","inputs":[' + "{}," * 3_000_000 + "{}]}"),
        Graph.read,
        r"inputs\[?.*missing",
    ),
    "many errors, verified": Bomb(
        _text('{"format_version":1,"name":"x","operators":[],"edges":[],"inputs":[' + "{}," * 400_000 + "{}]}"),
        _verified,
        r"inputs\[\d+\]: .*missing",
    ),
    "list of an archive": Bomb(
        _zip({"archive.json": _SPACES * 60, "SHA256SUMS": []}), _unpack, r"archive.json: found 6\d* bytes"
    ),
    "objects in an archive": Bomb(
        _zip({"archive.json": [_EMPTY] * 300, "SHA256SUMS": []}), _unpack, r"that unpack to 300.0 MB, more than"
    ),
    "archive by LZMA": Bomb(
        _zip({"archive.json": [b" "], "SHA256SUMS": []}, zipfile.ZIP_LZMA), _unpack, r"compressed by method 14"
    ),
}


def programs() -> dict[str, Bomb]:
    """Of programs, pages and policies, which need more packages to be read."""
    import onnx
    import torch
    from onnx import TensorProto, helper

    from hios.frontends import onnx_file
    from hios.frontends import program as programs
    from hios.report.archive import read_origin
    from hios.report.results import read_configuration
    from hios.schedulers.policy.network import read_policy

    stream = io.BytesIO()
    torch.export.save(torch.export.export(torch.nn.Linear(4, 4).eval(), (torch.ones(1, 4),)), stream)
    with zipfile.ZipFile(stream) as saved:
        records = {name: [saved.read(name)] for name in saved.namelist()}
    (model,) = (name for name in records if name.endswith("models/model.json"))
    (examples,) = (name for name in records if name.endswith("model.pt"))
    weights = {name: [bytes(_MB)] * 600 for name in records if re.search(r"weight_\d+$", name)}
    nested = io.BytesIO()
    torch.save((torch.zeros(400_000_000, dtype=torch.uint8),), nested)
    with zipfile.ZipFile(nested) as inner:
        parts = {name: [inner.read(name)] for name in inner.namelist()}

    def shrunk(path: Path) -> None:
        _zip(parts)(path)
        _zip({**records, examples: [path.read_bytes()]}, zipfile.ZIP_STORED)(path)

    def wide(path: Path) -> None:
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2**36]) for name in "xy"]
        graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", values[:1], values[1:])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)

    def filled(path: Path) -> None:  # onnx itself makes every value that a shape might depend on
        shape = helper.make_tensor("s", TensorProto.INT64, [1], [2**36])
        nodes = [helper.make_node("ConstantOfShape", ["s"], ["c"]), helper.make_node("Add", ["x", "c"], ["y"])]
        values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])]
        outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2**36])]
        graph = helper.make_graph(nodes, "g", values, outputs, [shape])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)

    growing = r"that unpack to [\d,.]+ MB, more than"
    return {
        "weights of a program": Bomb(_zip({**records, **weights}), programs.load, growing),
        "spaces in a program": Bomb(_zip({**records, model: _SPACES * 1200}), programs.load, growing),
        "objects in a program": Bomb(
            _zip({**records, model: [b"[", *[_EMPTY] * 60, b"0]"]}),
            programs.load,
            r"model.json in memory: found 1\.8 GB",
        ),
        "declarations of a program": Bomb(
            _zip({**records, "program/extra/hios.json": _SPACES * 1200}), programs.declarations, growing
        ),
        "examples in a program": Bomb(shrunk, programs.load, ""),
        "dimension in ONNX": Bomb(wide, onnx_file.load, r"the value x: found 274\.9 GB; allowed: at most"),
        "constant in ONNX": Bomb(
            filled, onnx_file.load, r"takes more than 0\.\d GB; the memory here is \d\.\d GB", 700
        ),
        "endless ONNX": Bomb(_endless, onnx_file.load, r"no regular file"),
        "endless page": Bomb(_endless, read_origin, r"more than \d+ MB of text"),
        "endless configuration of a page": Bomb(_endless, read_configuration, r"more than 1 MB of text"),
        "endless policy": Bomb(_endless, read_policy, r"damaged or not a safetensors file"),
    }


def _own_bytes(field: str) -> int:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(re.search(rf"{field}:\s+(\d+)", status)[1]) * 1024  # type: ignore[index]


def outcome(bomb: Bomb, path: Path) -> Outcome:
    """What a process said that read a file: one line, or the traceback of an error that is none of hios."""
    bomb.write(path)
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        said = "read"
        try:
            began = _own_bytes("VmRSS")
            resource.setrlimit(resource.RLIMIT_AS, (_own_bytes("VmSize") + _MORE_BYTES,) * 2)
            try:
                bomb.read(path)
            except HiosError as error:
                said = str(error)
        except BaseException:
            said = f"not refused:\n{traceback.format_exc()[-2000:]}"
        finally:
            os.write(writing, json.dumps((said, (_own_bytes("VmHWM") - began) / _MB)).encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    return Outcome(*json.loads(data)) if data else Outcome("killed", 0)


def defects(bombs: dict[str, Bomb], folder: Path) -> Iterator[tuple[str, Outcome, bool]]:
    """Each file, what was said and taken, and whether it was refused as it should be."""
    for number, (name, bomb) in enumerate(bombs.items()):
        place = folder / str(number)
        place.mkdir()
        found = outcome(bomb, place / "file.yaml")
        right = re.search(bomb.refused, found.message) if bomb.refused else found.message == "read"
        yield name, found, bool(right) and "\n" not in found.message and found.megabytes < bomb.most_megabytes


def main(part: str) -> int:
    """Read the files of a part, print a line for each, and return how many were not refused as they should be."""
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, found, right in defects(LIGHT if part == "light" else programs(), Path(folder)):
            wrong += not right
            sys.stdout.write(f"{'' if right else 'WRONG '}{name}: {found.megabytes:.0f} MB: {found.message}\n")
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
