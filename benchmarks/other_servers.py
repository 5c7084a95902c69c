"""Servers that people have, with a session of ONNX Runtime for every model; `serving_comparison.py` starts them.

    python other_servers.py litserve|ray|pytriton MODELS PORT REPLICAS THREADS DEADLINE_S QUEUE

MODELS is a folder with NAME.onnx of every model, each with one image as input. Each replica holds all models, and each
session has THREADS threads. Requests and answers are the bytes of a tensor (float32), for pytriton as the Open
Inference Protocol has them. Each server gives a request up that has waited for DEADLINE_S seconds, as far as it can do
so, and has a queue for QUEUE requests where it can be told. Runs in an environment of its own, without hios.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

try:
    import litserve as lit
except ImportError:  # in the environments of the others
    lit = None

SHAPE = (1, 3, 224, 224)


class Sessions:
    """The models of a folder, by name."""

    def __init__(self, folder: str, threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        self.own = {
            path.stem: onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            for path in sorted(Path(folder).glob("*.onnx"))
        }
        for session in self.own.values():
            self.run(session, np.zeros(SHAPE, np.float32))

    def run(self, session: Any, image: Any) -> Any:
        """The first output for an image."""
        return session.run(None, {session.get_inputs()[0].name: image})[0]

    def answer(self, name: str, body: bytes) -> bytes:
        """The bytes of the output for the bytes of an image."""
        image = np.frombuffer(body, np.float32).reshape(SHAPE)
        return self.run(self.own[name], image).tobytes()


class LitModels(lit.LitAPI if lit else object):  # type: ignore[misc]
    """What LitServe has every worker do; they import this file."""

    def __init__(self, folder: str, threads: int) -> None:
        super().__init__()
        self.given = folder, threads

    def setup(self, device: str) -> None:
        """In a worker, as it starts."""
        self.sessions = Sessions(*self.given)

    # Annotations of these two would be those of the path to FastAPI.
    def decode_request(self, request):  # type: ignore[no-untyped-def]
        """Of a form with the name of the model and the image as a file."""
        return request["model"], request["image"].file.read()

    def predict(self, request: tuple[str, bytes]) -> bytes:
        """The output."""
        return self.sessions.answer(*request)

    def encode_response(self, output):  # type: ignore[no-untyped-def]
        """The output as it is."""
        from fastapi import Response

        return Response(output, media_type="application/octet-stream")


def litserve(folder: str, port: int, replicas: int, threads: int, deadline_s: float, queue: int) -> None:
    """LitServe: one API for all models, whose workers are processes; files are its way to send bytes."""
    api = LitModels(folder, threads)
    server = lit.LitServer(api, accelerator="cpu", workers_per_device=replicas, timeout=deadline_s)
    server.run(host="127.0.0.1", port=port, generate_client_file=False, log_level="warning", access_log=False)


def ray(folder: str, port: int, replicas: int, threads: int, deadline_s: float, queue: int) -> None:
    """Ray Serve: one deployment whose replicas answer one request at a time."""
    import ray
    from ray import serve
    from starlette.requests import Request
    from starlette.responses import Response

    class Models:
        def __init__(self) -> None:
            self.sessions = Sessions(folder, threads)

        async def __call__(self, request: Request) -> Response:
            output = self.sessions.answer(request.headers["model"], await request.body())
            return Response(output, media_type="application/octet-stream")

    deployed = serve.deployment(
        Models,
        num_replicas=replicas,
        max_ongoing_requests=1,
        max_queued_requests=queue,
        ray_actor_options={"num_cpus": 0, "runtime_env": {"env_vars": {"OMP_NUM_THREADS": str(threads)}}},
    )
    ray.init(include_dashboard=False, num_cpus=2, log_to_driver=False, logging_level="warning")
    serve.start(http_options={"host": "127.0.0.1", "port": port, "request_timeout_s": deadline_s})
    serve.run(deployed.bind(), name="models", route_prefix="/", logging_config={"enable_access_log": False})
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    ended.wait()
    serve.shutdown()
    ray.shutdown()


def pytriton(folder: str, port: int, replicas: int, threads: int, deadline_s: float, queue: int) -> None:
    """Triton's server and scheduler: each model with so many instances, each with a session."""
    from pytriton.decorators import batch
    from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
    from pytriton.model_config.common import QueuePolicy
    from pytriton.triton import Triton, TritonConfig

    sessions = [Sessions(folder, threads) for _ in range(replicas)]
    policy = QueuePolicy(default_timeout_microseconds=int(deadline_s * 1e6), max_queue_size=queue)
    config = TritonConfig(
        http_address="127.0.0.1", http_port=port, allow_grpc=False, allow_metrics=False, log_verbose=0
    )
    with Triton(config=config) as triton:
        for name, first in sessions[0].own.items():
            entry, made = first.get_inputs()[0], first.get_outputs()[0]

            def function(own: Sessions, name: str = name) -> Any:
                def infer(**inputs: Any) -> list[Any]:
                    (image,) = inputs.values()
                    return [own.run(own.own[name], image)]

                return batch(infer)

            triton.bind(
                model_name=name,
                infer_func=[function(own) for own in sessions],
                inputs=[Tensor(name=entry.name, dtype=np.float32, shape=SHAPE[1:])],
                outputs=[Tensor(name="output_0", dtype=np.float32, shape=tuple(made.shape[1:]))],
                config=ModelConfig(max_batch_size=1, batcher=DynamicBatcher(default_queue_policy=policy)),
            )
        triton.serve()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    servers = {"litserve": litserve, "ray": ray, "pytriton": pytriton}
    parser.add_argument("server", choices=servers)
    parser.add_argument("models", metavar="MODELS")
    for name in ("port", "replicas", "threads", "deadline_s", "queue"):
        parser.add_argument(name, type=float if name == "deadline_s" else int, metavar=name.upper())
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(given.threads)
    servers[given.server](given.models, given.port, given.replicas, given.threads, given.deadline_s, given.queue)
