"""What a call over HTTP takes beyond the same call in the process of the server.

    python benchmarks/serving_overhead.py SCENARIO [--calls 200] [--rounds 5] [--json] [--virtual]

SCENARIO is as `hios serve` takes it; its first model is called, one call at a time, by a client in another process with
a connection that stays open, and in turns from the server's own process. Printed is the median latency of each round of
calls with the processor time of the server's process for a call, and at the end by how much more both are over HTTP, in
milliseconds. Processor time says more where other programs use the cores. Tensors are binary, or JSON.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import statistics
import threading
import time
from multiprocessing.connection import Connection

from hios.frontends.example_inputs import example_inputs
from hios.serving.http_server import HttpServer
from hios.serving.open_inference import ModelInterface
from hios.serving.scenario import Scenario
from hios.serving.server import Server


def client(pipe: Connection, address: str, path: str, body: bytes, length: int | None) -> None:
    """In a process of its own: for each number that the pipe brings, latencies of so many calls."""
    headers = {} if length is None else {"Inference-Header-Content-Length": str(length)}
    connection = http.client.HTTPConnection(address, timeout=60)
    while calls := pipe.recv():
        taken = []
        for _ in range(calls):
            began = time.perf_counter()
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            text = answer.read()
            taken.append(time.perf_counter() - began)
            if answer.status != 200:
                raise SystemExit(text.decode(errors="replace"))
        pipe.send(taken)


def main() -> None:
    """Measure in turns, and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("scenario")
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--virtual", action="store_true")
    chosen = parser.parse_args()
    scenario = Scenario.read(chosen.scenario)
    model = scenario.models[0]
    inputs = list(example_inputs(model.problem.graph.inputs, 0))
    stated = [entry.metadata for entry in ModelInterface(model).inputs.values()]
    for entry, value in zip(stated, inputs, strict=True):
        entry |= (
            {"data": value.reshape(-1).tolist()} if chosen.json else {"parameters": {"binary_data_size": value.nbytes}}
        )
    head = json.dumps({"inputs": stated, "parameters": {"binary_data_output": not chosen.json}}).encode()
    tensors = b"" if chosen.json else b"".join(value.numpy().tobytes() for value in inputs)
    spawned = multiprocessing.get_context("spawn")
    with Server(scenario, "one-per-lane", virtual=chosen.virtual) as server:
        front = HttpServer(server, port=0)
        thread = threading.Thread(target=front.run)
        thread.start()
        ours, theirs = spawned.Pipe()
        address, path = front.address.removeprefix("http://"), f"/v2/models/{model.label}/infer"
        length = None if chosen.json else len(head)
        process = spawned.Process(target=client, args=(theirs, address, path, head + tensors, length), daemon=True)
        process.start()
        rounds: list[tuple[float, ...]] = []
        try:
            for number in range(chosen.rounds + 1):
                used = time.process_time()
                ours.send(chosen.calls)
                there, used_there = ours.recv(), time.process_time() - used
                used, here = time.process_time(), []
                for _ in range(chosen.calls):
                    began = time.perf_counter()
                    server.infer(model.label, inputs, timeout_s=60)
                    here.append(time.perf_counter() - began)
                spent = (used_there / chosen.calls, (time.process_time() - used) / chosen.calls)
                measured = tuple(1e3 * value for value in (statistics.median(there), statistics.median(here), *spent))
                if number:  # the first round warms up
                    rounds.append(measured)
                    _tell(f"round {number}", measured)
        finally:
            ours.send(0)
            process.join()
            front.stop()
            thread.join()
    middle = tuple(map(statistics.median, zip(*rounds, strict=True)))
    _tell(f"{model.label}, {'JSON' if chosen.json else 'binary tensors'}, median of rounds", middle)
    print(f"HTTP takes {middle[0] - middle[1]:.2f} ms more, and {middle[2] - middle[3]:.2f} ms of processor time")


def _tell(what: str, measured: tuple[float, ...]) -> None:
    http_ms, alone_ms, http_used_ms, alone_used_ms = measured
    print(
        f"{what}: HTTP {http_ms:.2f} ms (processor {http_used_ms:.2f}), in the process {alone_ms:.2f} ms "
        f"({alone_used_ms:.2f})",
        flush=True,
    )


if __name__ == "__main__":
    main()
