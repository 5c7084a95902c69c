"""The server over HTTP: real clients get the outputs of the models, and what goes wrong has its status."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch
from torch import Tensor

pytest.importorskip("starlette")
from hios.errors import HiosError
from hios.serving import http_server, lane_worker
from hios.serving.http_server import HttpServer
from hios.serving.open_inference import InferRequest, ModelInterface
from hios.serving.scenario import Scenario
from hios.serving.server import Server
from tests.serving import lane_faults
from tests.serving.open_models import WORDS, answered, client_of, open_networks, open_scenario
from tests.serving.served import inputs
from tests.workers.processes import eventually


@dataclass
class Front:
    """A server that clients can reach."""

    server: Server
    address: str

    def ask(self, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any, Any]:
        """Status, headers and body of an answer."""
        return answered(self.address, path, body, **headers)

    def infer(self, label: str, **request: Any) -> tuple[int, Any, Any]:
        """The same for an inference."""
        return self.ask(f"/v2/models/{label}/infer", json.dumps(request).encode())


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """Two models on one lane, with queues of two; large inputs of ``blocks`` make its first operator fail."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lane_worker, "prepare", lane_faults.prepare)
        labels: dict[str, dict[str, Any]] = {"words": {"queue": 2, "deadline_ms": 600_000.0}, "blocks": {"queue": 2}}
        path = open_scenario(tmp_path_factory.mktemp("open"), labels)
        with Server(Scenario.read(path), "one-per-lane", virtual=True) as server, _running(server) as address:
            yield Front(server, address)


@contextlib.contextmanager
def _running(server: Server) -> Iterator[str]:
    made = HttpServer(server, port=0)
    with _runs(made):
        yield made.address


@contextlib.contextmanager
def _runs(made: HttpServer) -> Iterator[None]:
    thread = threading.Thread(target=made.run)
    thread.start()
    try:
        yield
    finally:
        made.stop()
        thread.join()


def _words(seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(WORDS, (4, 3), generator=generator), torch.rand(1, generator=generator)]


def _of_words(given: list[Tensor]) -> list[dict[str, Any]]:
    """The inputs of ``words`` in JSON, nested, and not in the order of the model."""
    words, scale = given
    return [
        {"name": "scale", "datatype": "FP32", "shape": [1], "data": scale.tolist()},
        {"name": "words", "datatype": "INT64", "shape": [4, 3], "data": words.tolist()},
    ]


def _of_blocks(value: Tensor) -> list[dict[str, Any]]:
    return [{"name": "x", "datatype": "FP32", "shape": list(value.shape), "data": value.reshape(-1).tolist()}]


def _binary(head: dict[str, Any], *tensors: bytes) -> tuple[bytes, str]:
    text = json.dumps(head).encode()
    return b"".join([text, *tensors]), str(len(text))


def _under_way(server: Server) -> int:
    """Requests that wait or run."""
    return sum(counts.waiting + counts.in_flight for counts in server.counts.values())


@contextlib.contextmanager
def _lane_stopped(server: Server, taken: int = 2) -> Iterator[None]:
    """The lane stands still with a task of ``words``, another one is to be next, and more have to wait in the queue.

    Under launchers that let only one out of the queue, it is ``taken`` alone.
    """
    assert eventually(lambda: server.lanes_up == 1 and not _under_way(server))  # whatever was asked before
    lane = server.process_ids[0]
    os.kill(lane, signal.SIGSTOP)
    try:
        answers = [server.submit("words", _words(seed)) for seed in range(taken)]
        assert eventually(lambda: server.counts["words"].in_flight == taken)
        yield
    finally:
        os.kill(lane, signal.SIGCONT)
    for seed, answer in enumerate(answers):
        torch.testing.assert_close(answer.result(60), _expected(_words(seed)))


def _expected(given: list[Tensor]) -> list[Tensor]:
    with torch.no_grad():
        return list(open_networks()["words"].module(*given))


@pytest.mark.parametrize("binary_in", [False, True])
@pytest.mark.parametrize("binary_out", [False, True])
def test_triton_clients_get_what_the_model_computes(front: Front, binary_in: bool, binary_out: bool) -> None:
    """A batch with int64 in and out, as JSON and binary: bits are those of the server, numbers those of the module."""
    triton = pytest.importorskip("tritonclient.http")
    with triton.InferenceServerClient(front.address.removeprefix("http://")) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("words")
        assert client.get_server_metadata()["extensions"] == ["binary_tensor_data", "model_configuration"]
        metadata = client.get_model_metadata("words")
        assert [entry["datatype"] for entry in metadata["inputs"]] == ["INT64", "FP32"]
        assert [entry["shape"] for entry in metadata["outputs"]] == [[4, 5], [4]]
        for seed in range(3):
            words = _words(seed)
            given = []
            for value, entry in zip(words, metadata["inputs"], strict=True):
                given.append(triton.InferInput(entry["name"], entry["shape"], entry["datatype"]))
                given[-1].set_data_from_numpy(value.numpy(), binary_data=binary_in)
            asked = [triton.InferRequestedOutput(f"output_{place}", binary_data=binary_out) for place in (1, 0)]
            answer = client.infer("words", given[::-1], outputs=asked, request_id=str(seed))
            assert answer.get_response()["id"] == str(seed)
            assert [entry["name"] for entry in answer.get_response()["outputs"]] == ["output_1", "output_0"]
            alone = front.server.infer("words", words, timeout_s=60)
            for place, (own, module) in enumerate(zip(alone, _expected(words), strict=True)):
                value = answer.as_numpy(f"output_{place}")
                assert value.dtype == own.numpy().dtype
                np.testing.assert_array_equal(value, own.numpy())
                torch.testing.assert_close(own, module)


def test_the_version_of_a_model(front: Front) -> None:
    """The one that the metadata announce can be asked for, and no other."""
    triton = pytest.importorskip("tritonclient.http")
    with triton.InferenceServerClient(front.address.removeprefix("http://")) as client:
        (version,) = client.get_model_metadata("words")["versions"]
        assert client.get_model_metadata("words", version) == client.get_model_metadata("words")
        assert client.get_model_config("words", version) == {
            "name": "words",
            "platform": "hios",
            "max_batch_size": 0,
            "input": [
                {"name": "words", "data_type": "TYPE_INT64", "dims": [4, 3]},
                {"name": "scale", "data_type": "TYPE_FP32", "dims": [1]},
            ],
            "output": [
                {"name": "output_0", "data_type": "TYPE_FP32", "dims": [4, 5]},
                {"name": "output_1", "data_type": "TYPE_INT64", "dims": [4]},
            ],
        }
        assert client.is_model_ready("words", version)
        assert not client.is_model_ready("words", "2")
        given = [triton.InferInput("words", [4, 3], "INT64"), triton.InferInput("scale", [1], "FP32")]
        for entry, value in zip(given, _words(), strict=True):
            entry.set_data_from_numpy(value.numpy())
        answer = client.infer("words", given, version)
        torch.testing.assert_close(torch.tensor(answer.as_numpy("output_0")), _expected(_words())[0])
    status, _, answer = front.ask("/v2/models/words/versions/2")
    assert (status, answer["error"]) == (404, "model words: version: found 2; allowed: 1")


@pytest.mark.parametrize("layout", [{"indent": 8}, {"indent": 100}, {"separators": (",", ":")}, {"indent": "\r\n\t"}])
def test_white_space_in_json(front: Front, layout: dict[str, Any]) -> None:
    """Lists within lists are known as such however they are set."""
    status, _, answer = front.ask(
        "/v2/models/words/infer", json.dumps({"inputs": _of_words(_words())}, **layout).encode()
    )
    assert status == 200
    torch.testing.assert_close(torch.tensor(answer["outputs"][0]["data"]).reshape(4, 5), _expected(_words())[0])


def test_indented_numbers_fit(front: Front) -> None:
    """A request of as many numbers as there may be is taken as people print it."""
    model = front.server.scenario.models[0]
    interface = ModelInterface(model)
    numbers = sum(np.prod(entry.shape) for entry in interface.inputs.values())
    text = json.dumps([[[[-0.12345678901234567] * 100] * 10]], indent=4)
    assert len(text) / 1000 * numbers < interface.most_json


def test_all_outputs_by_default(front: Front) -> None:
    """Without outputs in the request, all are answered, in order; binary ones where the request says so."""
    status, _, answer = front.infer("words", inputs=_of_words(_words()))
    assert status == 200
    assert [entry["name"] for entry in answer["outputs"]] == ["output_0", "output_1"]
    head = {"inputs": _of_words(_words()), "parameters": {"binary_data_output": True}}
    _, headers, text = front.infer("words", **head)
    length = int(headers["Inference-Header-Content-Length"])
    assert [entry["parameters"]["binary_data_size"] for entry in json.loads(text[:length])["outputs"]] == [80, 32]
    assert len(text) == length + 112
    assert np.frombuffer(text[length + 80 :], np.int64).tolist() == answer["outputs"][1]["data"]


def test_numbers_that_json_does_not_have(front: Front) -> None:
    """NaN and infinite numbers go in and out as binary tensors; JSON is refused, never made wrong."""
    words, scale = _words()
    stated = {"name": "words", "datatype": "INT64", "shape": [4, 3], "parameters": {"binary_data_size": 96}}
    binary = {"name": "scale", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": 4}}
    for number in (float("nan"), float("inf")):
        tensors = (words.numpy().tobytes(), np.float32(number).tobytes())
        for asked in (True, False):
            head = {"inputs": [stated, binary], "parameters": {"binary_data_output": asked}}
            body, length = _binary(head, *tensors)
            sent = {"Inference_Header_Content_Length": length}
            status, _, answer = front.ask("/v2/models/words/infer", body, **sent)
            assert status == (200 if asked else 406)
        assert answer["error"].startswith("model words: output_0: found NaN or infinite numbers")
    text = json.dumps({"inputs": [{**_of_words([words, scale])[0], "data": [float("nan")]}]}).encode()
    status, _, answer = front.ask("/v2/models/words/infer", text)
    assert (status, "NaN and infinite numbers need binary tensors" in answer["error"]) == (400, True)


def _changed(place: int, **changes: Any) -> list[dict[str, Any]]:
    own = _of_words(_words())
    own[place] = {key: value for key, value in {**own[place], **changes}.items() if value is not None}
    return own


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"inputs": []}, "inputs: found []; allowed: words (INT64 [4, 3]), scale (FP32 [1]), each once"),
        ({"inputs": _changed(0, name="size")}, 'inputs: found ["size", "words"]; allowed: words (INT64 [4, 3]), '),
        ({"inputs": _changed(0, datatype="FP64")}, "inputs.scale: found FP64 [1]; allowed: FP32 [1]"),
        ({"inputs": _changed(1, shape=[3, 4])}, "inputs.words: found INT64 [3, 4]; allowed: INT64 [4, 3]"),
        ({"inputs": _changed(1, data=[1] * 11)}, "inputs.words.data: Expected `array` of length >= 12"),
        ({"inputs": _changed(1, data=[[1, 2, 3]] * 5)}, "inputs.words.data: Expected `array` of length <= 4"),
        ({"inputs": _changed(1, data=[1.5] * 12)}, "inputs.words.data: Expected `int`, got `float`"),
        ({"inputs": _changed(1, data=[2**63] * 12)}, "allowed: values of words (INT64 [4, 3])"),
        ({"inputs": _changed(0, data=[1e39])}, "inputs.scale.data: found a number beyond FP32"),
        ({"inputs": _changed(0, data=["1"])}, "inputs.scale.data: Expected `float`, got `str`"),
        ({"inputs": _changed(0, data=None)}, "found neither; required: data, or the parameter binary_data_size"),
        ({"inputs": _changed(0, parameters={"binary_data_size": 4})}, "found both; required: data, or"),
        ({"inputs": _changed(0, data=None, parameters={"binary_data_size": 4})}, "and 0 bytes behind the JSON"),
        ({"inputs": _changed(0, parameters={"shared_memory_region": "a"})}, "found the parameter shared_memory_region"),
        ({"inputs": _of_words(_words()), "outputs": [{"name": "y"}]}, 'found ["y"]; allowed: output_0, output_1'),
        (
            {"inputs": _of_words(_words()), "outputs": [{"name": "output_0", "parameters": {"binary_data": 1}}]},
            "parameters.binary_data: found 1; allowed: true, false",
        ),
        ({"inputs": _of_words(_words()), "parameters": {"timeout": 5}}, "parameters: found the parameter timeout"),
        ({}, "body: Object missing required field `inputs`"),
    ],
)
def test_other_inputs_are_refused(front: Front, request_: dict[str, Any], message: str) -> None:
    """The answer says what was found, and what the model takes."""
    status, _, answer = front.infer("words", **request_)
    assert status == 400
    assert message in answer["error"]


@pytest.mark.parametrize(
    ("body", "headers", "status", "message"),
    [
        (b"[" * 60_000, {}, 400, "body: "),
        (b'{"inputs":' + b"[" * 60_000, {}, 400, "body: "),
        (b'{"inputs":[],"id":"\xff"}', {}, 400, "body: "),
        (b"", {}, 400, "body: "),
        (b"{}", {"Inference_Header_Content_Length": "3"}, 400, "found 3; allowed: 2, all there is"),
        (b"{}", {"Inference_Header_Content_Length": "-1"}, 400, "found -1; allowed: the length of the JSON"),
        (b"{}", {"Inference_Header_Content_Length": "99999999"}, 413, "found JSON of 99999999 bytes"),
        (b"{}", {"Content_Encoding": "gzip"}, 415, "Content-Encoding: found gzip; allowed: identity"),
        (b" " * 70_000, {}, 413, "body: found 70000 bytes; allowed: "),
    ],
)
def test_other_bodies_are_refused(
    front: Front, body: bytes, headers: dict[str, str], status: int, message: str
) -> None:
    """Whatever it is, it is told in a line, and costs nothing more."""
    found, _, answer = front.ask("/v2/models/words/infer", body, **headers)
    assert found == status
    assert message in answer["error"]
    assert "\n" not in answer["error"]


def test_what_there_is_not(front: Front) -> None:
    """Other models, paths and methods; and health, which has no inputs."""
    status, _, answer = front.infer("word", inputs=[])
    assert (status, answer["error"]) == (404, "model: found word; allowed: words, blocks (did you mean words?)")
    assert front.ask("/v2/models/none")[0] == front.ask("/v2/models/none/ready")[0] == front.ask("/v3")[0] == 404
    status, headers, answer = front.ask("/v2/models/words/infer")
    assert (status, headers["Allow"]) == (405, "POST")
    assert answer == {"error": "found GET /v2/models/words/infer; allowed: see /openapi.json"}


def _raw(front: Front) -> socket.socket:
    host, _, port = front.address.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=300)


_HEAD = "POST /v2/models/words/infer HTTP/1.1\r\nHost: localhost\r\n"


def test_a_body_that_is_too_large_is_not_read(front: Front) -> None:
    """A stated length is refused before anything of it is sent; without one, as soon as it is too much."""
    with _raw(front) as client:
        client.sendall(f"{_HEAD}Content-Length: 1000000000\r\nExpect: 100-continue\r\n\r\n".encode())
        assert client.recv(4096).startswith(b"HTTP/1.1 413 ")
    with _raw(front) as client:
        client.sendall(f"{_HEAD}Transfer-Encoding: chunked\r\n\r\n".encode())
        for _ in range(3):
            client.sendall(b"8000\r\n" + b" " * 0x8000 + b"\r\n")
        assert client.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_slow_and_broken_clients_hold_nothing_up(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who sends nothing, half a head or half a body is cut off; others are served meanwhile, and queues are empty."""
    monkeypatch.setattr(http_server, "_ARRIVAL_S", 6.0)  # long enough for a client of a busy machine
    begun = ("", _HEAD, f"{_HEAD}Content-Length: 100\r\n\r\n{{", f"{_HEAD}Transfer-Encoding: chunked\r\n\r\n1\r\n{{")
    with contextlib.ExitStack() as open_ones:
        slow = [open_ones.enter_context(_raw(front)) for _ in begun]
        for client, text in zip(slow, begun, strict=True):
            client.sendall(text.encode())
        broken = open_ones.enter_context(_raw(front))
        broken.sendall(b"\x16\x03\x01 what is this\r\n\r\n")
        assert broken.recv(4096).startswith(b"HTTP/1.1 400 ")
        assert front.infer("words", inputs=_of_words(_words()))[0] == 200
        for client in slow:
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(4096) == b""
    counts = front.server.counts["words"]
    assert (counts.waiting, counts.in_flight, counts.unaccounted) == (0, 0, 0)


def test_connections_that_fall_silent_are_cut(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an answer that came before the body, and in the middle of a request sent along with the one before."""
    monkeypatch.setattr(http_server, "_ARRIVAL_S", 6.0)  # long enough for a client of a busy machine
    with _raw(front) as client:
        client.sendall(f"{_HEAD}Content-Length: 1000000\r\n\r\n".encode())
        assert client.recv(4096).startswith(b"HTTP/1.1 413 ")
        with contextlib.suppress(ConnectionError):
            client.sendall(b" " * 1_000_000)
            while client.recv(4096):
                pass
    with _raw(front) as client:
        client.sendall(f"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n{_HEAD}Content-Length: 100\r\n\r\n{{".encode())
        assert client.recv(4096).startswith(b"HTTP/1.1 200 ")
        with contextlib.suppress(ConnectionResetError):
            while client.recv(4096):
                pass


def test_answers_that_are_taken_slowly_are_whole() -> None:
    """A connection is cut if nothing of an answer is taken for a while, not if it takes longer as a whole."""
    left, aborted, timers = [300], list[str](), list[Callable[[], None]]()
    connection = object.__new__(http_server._Connection)
    connection.loop = SimpleNamespace(call_later=lambda _, act: timers.append(act))  # type: ignore[assignment]
    connection.transport = SimpleNamespace(  # type: ignore[assignment]
        get_write_buffer_size=lambda: left[0], abort=lambda: aborted.append("cut")
    )
    connection._watch_leaving()
    left[0] = 200
    timers.pop()()
    assert (len(timers), aborted) == (1, [])
    timers.pop()()
    assert (timers, aborted) == ([], ["cut"])


def test_answers_do_not_wait_for_acknowledgements(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    """Head and body are written apart; with Nagle's algorithm the body waits for 40 ms."""
    without_delay: list[int] = []
    begins = http_server._Connection.connection_made

    def look(self: http_server._Connection, transport: asyncio.Transport) -> None:
        begins(self, transport)
        own = transport.get_extra_info("socket")
        without_delay.append(own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    monkeypatch.setattr(http_server._Connection, "connection_made", look)
    assert front.ask("/v2")[0] == 200
    assert without_delay == [1]


def test_connections_beyond_the_limit_are_cut(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are there are answered, about health too; the limit is less where fewer files may be open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.setattr(http_server, "_CONNECTIONS", 2)
    made = HttpServer(front.server, port=0)
    with _runs(made), contextlib.ExitStack() as open_ones:
        own = Front(front.server, made.address)
        clients = [client_of(made.address) for _ in range(2)]
        for client in (*clients, *clients):
            open_ones.callback(client.close)
            client.request("GET", "/v2/health/ready")
            answer = client.getresponse()
            assert (answer.status, answer.read()) == (200, b'{"ready":true}')
        with _raw(own) as another, contextlib.suppress(ConnectionResetError):
            assert another.recv(4096) == b""
        clients[0].request("GET", "/v2/health/ready")
        assert clients[0].getresponse().status == 200
    monkeypatch.setattr(http_server, "_CONNECTIONS", 10**9)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1024) if soft > 0 else 1024, hard))
        assert 1 <= http_server._most_connections() < 1024
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "localhost:80"}, 200),
        ({"Host": "127.0.0.1"}, 200),
        ({"Host": "[::1]:8000"}, 200),
        ({"Host": "elsewhere.org"}, 400),
        ({"Origin": "http://elsewhere.org"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
def test_web_pages_do_not_call_a_local_server(front: Front, headers: dict[str, Any], status: int) -> None:
    """Neither by the name of another site that leads here, nor from a page of one."""
    assert front.ask("/v2", **headers)[0] == status


def test_other_machines_call_by_any_name(front: Front) -> None:
    """On an address that others reach, names are for whoever stands before it."""
    made = HttpServer(front.server, "0.0.0.0", port=0)  # noqa: S104
    with _runs(made):
        own = Front(front.server, made.address.replace("0.0.0.0", "127.0.0.1"))  # noqa: S104
        assert own.ask("/v2", Host="elsewhere.org", Origin="http://elsewhere.org")[0] == 200


def test_a_full_queue_refuses(front: Front) -> None:
    """As many requests as the queue holds wait; the next one is told when to come back, and the others are answered."""
    queue = front.server._queues[0]
    with ThreadPoolExecutor(2) as pool:
        with _lane_stopped(front.server):
            waiting = [pool.submit(front.infer, "words", inputs=_of_words(_words(seed))) for seed in range(2)]
            assert eventually(lambda: len(queue) == 2)
            status, headers, answer = front.infer("words", inputs=_of_words(_words()))
            assert (status, headers["Retry-After"]) == (429, "1")
            assert answer["error"] == "model words: the queue is full, 2 requests wait; send fewer, or later"
        for seed, answered in enumerate(waiting):
            status, _, answer = answered.result(60)
            assert status == 200
            numbers = torch.tensor(answer["outputs"][0]["data"]).reshape(4, 5)
            torch.testing.assert_close(numbers, _expected(_words(seed))[0])


def test_requests_are_answered_in_the_order_of_the_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits while the lane stands still: first what is due first, then what was asked first."""
    answered: list[str] = []
    encode = ModelInterface.encode

    def noted(model: ModelInterface, request: InferRequest, outputs: list[Tensor]) -> Any:
        answered.append(request.id)
        return encode(model, request, outputs)

    monkeypatch.setattr(ModelInterface, "encode", noted)
    models: dict[str, dict[str, Any]] = {"words": {"slo_ms": 600_000.0}, "blocks": {"slo_ms": 1000.0}}
    given = Scenario.read(open_scenario(tmp_path, models, launcher="deadline"))
    with Server(given, "one-per-lane", virtual=True) as server, _running(server) as address:
        front = Front(server, address)
        with ThreadPoolExecutor(4) as pool:
            asked = []
            with _lane_stopped(server, taken=1):
                for number in range(4):
                    label = "words" if number < 2 else "blocks"
                    own = _of_words(_words()) if number < 2 else _of_blocks(inputs("blocks", number)[0])
                    asked.append(pool.submit(front.infer, label, inputs=own, id=str(number)))
                    assert eventually(lambda: _under_way(server) == 1 + len(asked))
            assert [answer.result(60)[0] for answer in asked] == [200] * 4
    assert answered == ["2", "3", "0", "1"]


def test_the_end_comes_before_the_answer(
    front: Front, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A request under way, or still arriving, when the time to end is over is told to come again; no traceback."""
    monkeypatch.setattr(http_server, "_DRAIN_S", 1)
    made = HttpServer(front.server, port=0)
    own = Front(front.server, made.address)
    with ThreadPoolExecutor(1) as pool, _lane_stopped(front.server), contextlib.ExitStack() as until:
        with _runs(made):
            arriving = until.enter_context(_raw(own))
            arriving.sendall(f"{_HEAD}Content-Length: 100\r\n\r\n{{".encode())
            asked = pool.submit(own.infer, "words", inputs=_of_words(_words()))
            assert eventually(lambda: front.server.counts["words"].waiting == 1)
        status, headers, answer = asked.result(60)
        assert arriving.recv(4096).startswith(b"HTTP/1.1 503 ")
    assert (status, headers["Retry-After"]) == (503, "1")
    assert answer["error"].startswith("the server ends before the request is answered")
    assert not any(record.exc_info for record in caplog.records)
    assert front.server.counts["words"].unaccounted == 0


def test_a_deadline_that_passes(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits longer than the scenario allows is told so, though the lane does nothing."""
    queue = front.server._queues[0]
    with _lane_stopped(front.server):
        monkeypatch.setattr(queue, "rules", dataclasses.replace(queue.rules, deadline_s=0.01))
        status, _, answer = front.infer("words", inputs=_of_words(_words()))
    assert (status, answer["error"]) == (504, "model words: the deadline passed after 10 ms in the queue")


def test_a_client_that_goes_gives_its_place_up(front: Front) -> None:
    """A request whose client has gone leaves the queue."""
    queue = front.server._queues[0]
    text = json.dumps({"inputs": _of_words(_words())})
    with _lane_stopped(front.server):
        dropped = front.server.counts["words"].dropped
        with _raw(front) as client:
            client.sendall(f"{_HEAD}Content-Length: {len(text)}\r\n\r\n{text}".encode())
            assert eventually(lambda: len(queue) == 1)
        assert eventually(lambda: len(queue) == 0)
    assert front.server.counts["words"].dropped == dropped + 1


def test_values_that_an_operator_refuses(front: Front) -> None:
    """A word that is not in the table is the client's mistake, and costs no other request."""
    status, _, answer = front.infer("words", inputs=_changed(1, data=[WORDS] * 12))
    assert status == 422
    assert "model words: operator " in answer["error"]
    assert front.infer("words", inputs=_of_words(_words()))[0] == 200


def test_a_lane_that_dies_costs_its_own_request(front: Front) -> None:
    """Its request is told to come again; once another process is there, all is as before."""
    bad = inputs("blocks", 0, scale=lane_faults.DIES)[0]
    status, headers, answer = front.infer("blocks", inputs=_of_blocks(bad))
    assert (status, headers["Retry-After"]) == (503, "1")
    assert "died by signal SIGKILL" in answer["error"]
    assert front.infer("words", inputs=_of_words(_words()))[0] == 200  # waits for the lane
    assert front.ask("/v2/health/ready")[0] == 200
    victim = front.server.process_ids[0]
    os.kill(victim, signal.SIGKILL)
    assert eventually(lambda: front.server.process_ids[0] not in (0, victim) and front.server.lanes_up == 1)
    assert front.infer("words", inputs=_of_words(_words()))[0] == 200


def test_not_ready_without_lanes(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    """No lane: not ready, but alive; none for ever: not alive."""
    monkeypatch.setattr(Server, "lanes_up", 0)  # not in the dispatcher, which would end
    paths = ("/v2/health/ready", "/v2/models/words/ready", "/v2/health/live")
    assert [front.ask(path)[0] for path in paths] == [503, 503, 200]
    monkeypatch.setattr(Server, "lost", "no such kernel")
    assert [front.ask(path)[0] for path in paths] == [503, 503, 503]


def test_metrics_count_requests(front: Front) -> None:
    """Every request is in the counters and in the histogram, the warm-up is not."""

    def sample(name: str) -> float:
        text = front.ask("/metrics")[2]
        return float(next(line for line in text.splitlines() if line.startswith(f"{name} ")).rpartition(" ")[2])

    names = ('hios_tasks_total{model="words",outcome="completed"}', 'hios_latency_seconds_count{model="words"}')
    assert front.infer("words", inputs=_of_words(_words()))[0] == 200
    completed, counted = map(sample, names)
    for _ in range(2):
        assert front.infer("words", inputs=_of_words(_words()))[0] == 200
    assert [*map(sample, names)] == [completed + 2, counted + 2]
    assert counted <= completed


def test_the_description_is_valid(front: Front) -> None:
    """It names every path, and its schemas are those of the models."""
    status, _, page = front.ask("/openapi.json")
    assert status == 200
    paths = {"/v2", "/metrics", *(f"/v2/models/words/{end}" for end in ("config", "ready", "infer"))}
    assert paths | {"/v2/models/blocks/ready"} <= page["paths"].keys()
    body = page["paths"]["/v2/models/words/infer"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    given = sorted(_of_words(_words()), key=lambda entry: entry["name"], reverse=True)
    given[0]["data"] = list(itertools.chain.from_iterable(given[0]["data"]))
    jsonschema.Draft202012Validator(body).validate({"inputs": given})


@pytest.mark.slow
def test_nothing_makes_it_fail(tmp_path: Path) -> None:
    """Schemathesis finds no request that the server has no answer for."""
    pytest.importorskip("schemathesis")
    scenario = Scenario.read(open_scenario(tmp_path, {"words": {}}))
    with Server(scenario, "one-per-lane", virtual=True) as server, _running(server) as address:
        command = [sys.executable, "-m", "schemathesis.cli", "run", f"{address}/openapi.json"]
        options = ["--checks", "not_a_server_error", "--phases", "coverage,fuzzing", "--max-examples", "20"]
        options += ["--suppress-health-check", "all", "--request-timeout", "300"]  # nothing depends on time
        environment = {**os.environ, "NO_PROXY": "*", "no_proxy": "*"}  # else it asks a proxy for 127.0.0.1
        done = subprocess.run(
            [*command, *options, "--seed", "1"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        assert server.counts["words"].completed > 0


def test_ports_that_are_taken(front: Front) -> None:
    """Two servers cannot have one port; the message says what to do."""
    port = int(front.address.rpartition(":")[2])
    with pytest.raises(HiosError, match=rf"^--host 127.0.0.1 --port {port}: Address already in use"):
        HttpServer(front.server, port=port)
