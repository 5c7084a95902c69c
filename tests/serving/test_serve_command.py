"""``hios serve`` as a process: the commands of the docs, and how it ends."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("starlette")
import torch
from click.testing import CliRunner

from hios.cli.serving import serve_command
from hios.frontends.program import export, save
from tests.scripts import ROOT
from tests.serving.open_models import answered, open_scenario
from tests.serving.served import inputs, networks, require_right, scenario_file
from tests.workers.processes import children, eventually, running


@contextlib.contextmanager
def _serving(path: Path, label: str, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server of one model on a free port, and its address."""
    command = [sys.executable, "-m", "hios", "serve", str(path), "--policy", "one-per-lane", "--port", "0", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            address, _, words = process.stdout.readline().partition(" ")
            assert words == f"serves {label} by one-per-lane\n"
            yield process, address
        finally:
            process.kill()


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """SqueezeNet is served."""
    with _serving(open_scenario(tmp_path, {"squeezenet": {}}), "squeezenet") as served:
        yield served


@pytest.mark.skipif(shutil.which("curl") is None, reason="what the docs tell to type calls curl")
def test_the_docs_and_the_end(serving: tuple[subprocess.Popen[str], str], tmp_path: Path) -> None:
    """What docs/serving.md tells to type is answered; after SIGTERM, so is a request that waits; exit status 0."""
    process, address = serving
    block = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8").partition("in ten lines:\n\n")[2]
    lines = block.partition("\n\n")[0].splitlines()
    assert len(lines) == 10
    outputs = []
    environment = {**os.environ, "NO_PROXY": "*", "no_proxy": "*"}  # curl would ask a proxy for 127.0.0.1
    for line in lines[lines.index("    hios serve scenario.yaml  # the rest in another terminal") + 1 :]:
        command = line.replace("http://127.0.0.1:8000", address).replace("python -c", f"{sys.executable} -c")
        done = subprocess.run(  # noqa: S602
            command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    ready, metadata, _, answer, metrics = outputs
    assert json.loads(ready) == {"ready": True}
    assert json.loads(metadata)["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [1, 3, 224, 224]}]
    assert len(json.loads(answer)["outputs"][0]["data"]) == 1000
    assert 'hios_tasks_total{model="squeezenet",outcome="completed"} 1\n' in metrics

    lanes = [lane for lane in children(process.pid) if b"squeezenet" not in Path(f"/proc/{lane}/cmdline").read_bytes()]
    for lane in lanes:
        os.kill(lane, signal.SIGSTOP)
    statuses: list[int] = []

    def ask() -> None:
        body = (tmp_path / "request.json").read_bytes()
        statuses.append(answered(address, "/v2/models/squeezenet/infer", body)[0])

    asking = threading.Thread(target=ask)
    asking.start()
    taken = re.compile(r'hios_tasks_in_flight\{model="squeezenet"\} 1\n')
    assert eventually(lambda: taken.search(answered(address, "/metrics")[2]) is not None)
    process.terminate()
    assert eventually(lambda: not _listens(address))
    for lane in lanes:
        os.kill(lane, signal.SIGCONT)
    asking.join()
    assert statuses == [200]
    assert process.wait(300) == 0
    assert not any(map(running, lanes))


def test_another_runtime(tmp_path: Path) -> None:
    """A model in a session of another runtime, without weights; policies that run blocks are refused."""
    program = tmp_path / "blocks.pt2"
    save(export(networks()["blocks"].module, tuple(inputs("blocks", 0))), program)
    path = scenario_file(tmp_path / "scenario.yaml", {"blocks": {"program": str(program), "weights": None}}, lanes=1)
    runtime = ("--runtime", "onnxruntime")
    refused = CliRunner().invoke(serve_command, [str(path), *runtime, "--port", "0", "--policy", "top-open"])
    assert "policy: found top-open; allowed with runtime onnxruntime: sequential, one-per-lane" in str(
        refused.exception
    )
    (value,) = inputs("blocks", 1)
    given = {"name": "x", "datatype": "FP32", "shape": list(value.shape), "data": value.flatten().tolist()}
    with _serving(path, "blocks", *runtime) as (_, address):
        _, _, answer = answered(address, "/v2/models/blocks/infer", json.dumps({"inputs": [given]}).encode())
    (output,) = answer["outputs"]
    require_right("blocks", [value], [torch.tensor(output["data"]).reshape(output["shape"])])


def _listens(address: str) -> bool:
    try:
        answered(address, "/metrics")
    except (ConnectionError, http.client.HTTPException):
        return False
    return True
