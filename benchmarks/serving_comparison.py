"""`hios serve` beside LitServe, Ray Serve and Triton (pytriton) on two cores, over HTTP, on the same tasks.

    python benchmarks/serving_comparison.py FOLDER [--servers NAME ...] [--loads SHARE ...] [--seconds S] [--rounds N]
                                            [--setups 1|2] [--anew] [--models NAME ...] [--output FILE]

Three models whose tasks arrive at random (Poisson) in the proportions 1 to 2 to 4. FOLDER takes their programs, ONNX
files, costs and a calibration, and an environment for each of the others (`python -m venv` and pip, some 1.2 GB); what
is there is used again; --anew measures costs and calibration again, as on another machine or after a busy one. The
first run needs the package index and some four minutes more.

The others have sessions of ONNX Runtime, as two replicas of one thread that hold all models (for pytriton two instances
of each model), and as one replica with two threads; at every load the better of the two stands for the server (--setups
1: replicas alone). All have queues of the same size and give up what waits for longer than the longest deadline, as far
as they can. hios has `engine: segments`, `--policy auto --launcher auto`, is told the rates and each model's deadline,
and is calibrated; hios-onnxruntime is `hios serve --runtime onnxruntime --policy one-per-lane --launcher deadline`,
with sessions as the others have. Tensors are binary everywhere: the Open Inference Protocol for hios and pytriton,
plain bytes for Ray Serve, a form with a file for LitServe. The client is this process. It sends every task when it is
due (open loop), and latencies count from then. An SLO is SLO_SCALE times the time of a model alone by the costs, a
deadline DEADLINE times that.

A load of 1 is what `hios serve --policy one-per-lane` completes in a closed loop with eight requests under way; what
the others complete so is printed, too. Printed for every load and server: the share of the worst-served model (its
tasks within the SLO, over those that it offered or its fair share of the machine), tasks within their SLO and completed
tasks a second, 50th and 99th percentile of the latencies, and what was refused or given up. Then the goals: at no load
below any of the others, 1.3 times the best of them at 0.8, and at 1.5 at least 90 % of the goodput at 1.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import yaml
from networks import environment, hios

from hios.files.text_tables import aligned
from hios.frontends import program as programs
from hios.frontends.onnx_export import to_onnx
from hios.machine.description import busy_share, processor, usable_cores
from hios.serving.measures import RepeatOutcome, Tally, result
from hios.serving.scenario import Scenario, draw

SHARES = (4, 2, 1)
PINS = {
    "litserve": ("litserve==0.2.19", "python-multipart==0.0.34", "onnxruntime==1.31.1", "numpy==2.4.6"),
    "ray": ("ray[serve]==2.60.0", "onnxruntime==1.31.1", "numpy==2.4.6"),
    "pytriton": ("nvidia-pytriton==0.7.0", "onnxruntime==1.31.1", "numpy==1.26.4"),
}
#: hios by segments, and with sessions of ONNX Runtime as the others have.
OURS = ("hios", "hios-onnxruntime")
#: Replicas and threads of each that the others have.
SETUPS = ((2, 1), (1, 2))
SLO_SCALE, DEADLINE, QUEUE = 6.0, 0.8, 64
#: Requests under way in the closed loop, and its seconds; seconds until a server has to be up.
CLOSED, CLOSED_S, START_S = 8, 5.0, 120.0
#: Goals: least ratio to the best of the others (2 % are noise), at 0.8, and of goodput in overload to that at 1.
LEAST, AT_08, OVERLOAD = 0.98, 1.3, 0.9
HERE = Path(__file__).parent
Row = dict[str, float]


@dataclasses.dataclass
class Task:
    """A request by model, with the head of JSON and the headers that the server takes."""

    path: str
    headers: dict[str, str]
    body: bytes


class Setting:
    """The models with their files, in a folder."""

    def __init__(self, folder: Path, models: Sequence[str], *, anew: bool) -> None:
        self.folder, self.models = folder, models
        self.onnx = folder / "onnx"
        self.onnx.mkdir(parents=True, exist_ok=True)
        self.calibration = folder / "calibration.json"
        for measured_before in [self.calibration, *folder.glob("*/costs.json")] if anew else []:
            measured_before.unlink(missing_ok=True)
        entries: dict[str, dict[str, Any]] = {}
        for model, share in zip(models, SHARES, strict=True):
            own = folder / model
            own.mkdir(exist_ok=True)
            graph, costs, weights, exported = (
                own / name for name in ("graph.json", "costs.json", "weights.safetensors", "program.pt2")
            )
            if not weights.exists():
                hios("export", model, "--output", exported, "--image-size", 224)
                hios("extract", exported, "--name", model, "--output", graph, "--weights", weights)
            if not costs.exists():
                hios("profile", graph, "--devices", 2, "--widths", 2, "--budget", 20, "--output", costs)
            if not (onnx := self.onnx / f"{model}.onnx").exists():
                onnx.write_bytes(to_onnx(programs.load(exported)))
            files = {"graph": graph, "costs": costs, "weights": weights, "program": exported}
            entries[model] = {**{key: str(path.resolve()) for key, path in files.items()}, "rate": share}
        self._file, self._sessions = folder / "scenario.yaml", folder / "sessions.yaml"
        self._write(entries)
        for served in Scenario.read(self._file).models:
            slo = round(SLO_SCALE * sum(served.problem.time), 1)
            entries[served.label] |= {"slo_ms": slo, "deadline_ms": round(DEADLINE * slo, 1), "queue": QUEUE}
        self._write(entries)
        if not self.calibration.exists():
            hios("load", self._file, "--calibrate", "--output", self.calibration)
        self.entry = {m.label: m.problem.graph.inputs[0] for m in self.at(1.0, 1.0).models}
        self.image = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)
        self.deadline_s = max(own["deadline_ms"] for own in entries.values()) / 1e3

    def _write(self, entries: Mapping[str, Any]) -> None:
        file = {"lanes": 2, "arrivals": "poisson", "launcher": "auto", "models": entries}
        self._sessions.write_text(yaml.safe_dump(file, sort_keys=False), encoding="utf-8")
        self._file.write_text(yaml.safe_dump({"engine": "segments", **file}, sort_keys=False), encoding="utf-8")

    def at(self, rate: float, seconds: float, seed: int = 0) -> Scenario:
        """The scenario at so many tasks a second in all."""
        scenario = Scenario.read(self._file, load=rate / sum(SHARES))
        return scenario.with_settings(duration_s=seconds, seed=seed, repeats=1)

    def command(self, server: str, port: int, setup: tuple[int, int], rate: float | None) -> list[str]:
        """How a server is started."""
        if server in OURS:
            file = self._file if server == "hios" else self._sessions
            command = [sys.executable, "-m", "hios", "serve", str(file), "--port", str(port)]
            if server != "hios":
                return [*command, "--runtime", "onnxruntime", "--policy", "one-per-lane", "--launcher", "deadline"]
            if rate is None:
                return [*command, "--policy", "one-per-lane", "--launcher", "open"]
            return [*command, "--calibration", str(self.calibration), "--load", str(rate / sum(SHARES))]
        python = str(self.folder / server / "bin" / "python")
        given = (str(self.onnx.resolve()), port, *setup, self.deadline_s, QUEUE)
        return [python, str(HERE / "other_servers.py"), server, *map(str, given)]

    def tasks(self, server: str) -> dict[str, Task]:
        """What is sent for each model."""
        image = self.image.tobytes()
        if server == "ray":
            return {model: Task("/", {"model": model}, image) for model in self.models}
        if server == "litserve":
            return {model: _form(model, image) for model in self.models}
        return {model: _open_inference(model, self.entry[model].name, image) for model in self.models}


def _form(model: str, image: bytes) -> Task:
    """A form as LitServe takes it."""
    edge = "hios-comparison"
    head = (
        f'--{edge}\r\nContent-Disposition: form-data; name="model"\r\n\r\n{model}\r\n--{edge}\r\n'
        'Content-Disposition: form-data; name="image"; filename="image"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    )
    body = head.encode() + image + f"\r\n--{edge}--\r\n".encode()
    return Task("/predict", {"Content-Type": f"multipart/form-data; boundary={edge}"}, body)


def _open_inference(model: str, name: str, image: bytes) -> Task:
    entry = {"name": name, "datatype": "FP32", "shape": [1, 3, 224, 224]}
    head = json.dumps(
        {
            "inputs": [{**entry, "parameters": {"binary_data_size": len(image)}}],
            "outputs": [{"name": "output_0", "parameters": {"binary_data": True}}],
        }
    ).encode()
    return Task(f"/v2/models/{model}/infer", {"Inference-Header-Content-Length": str(len(head))}, head + image)


@contextlib.contextmanager
def running(setting: Setting, server: str, setup: tuple[int, int], rate: float | None) -> Iterator[str]:
    """A server in processes of its own, up and warm; the address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    log = setting.folder / f"{server}.log"
    environ = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    if server == "pytriton":  # its stub takes the system's libpython otherwise, whose version may be another one
        environ["LD_LIBRARY_PATH"] = str(sysconfig.get_config_var("LIBDIR"))
    with log.open("w") as out:
        process = subprocess.Popen(
            setting.command(server, port, setup, rate),
            stdout=out,
            stderr=out,
            env=environ,
            start_new_session=True,
        )
    try:
        asyncio.run(_until_up(process, f"http://127.0.0.1:{port}", setting, server, log))
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGINT if server == "pytriton" else signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


async def _until_up(process: subprocess.Popen[bytes], address: str, setting: Setting, server: str, log: Path) -> None:
    """Wait until all models answer, compare the answers with those of ONNX Runtime here, and warm up."""
    until = time.monotonic() + START_S
    tasks = setting.tasks(server)
    async with _client() as client:
        for model, task in tasks.items():
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    status, body = await _send(client, address, task)
                    if status == 200:
                        break
                if process.poll() is not None or time.monotonic() > until:
                    raise SystemExit(f"{server} did not start:\n{log.read_text()[-2000:]}")
                await asyncio.sleep(0.2)
            _require_right(setting, model, body)
        for _ in range(4):
            await asyncio.gather(*(_send(client, address, task) for task in tasks.values()))


def _require_right(setting: Setting, model: str, body: bytes) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(setting.onnx / f"{model}.onnx"), providers=["CPUExecutionProvider"])
    expected = session.run(None, {session.get_inputs()[0].name: setting.image})[0].ravel()
    found = np.frombuffer(body[-expected.nbytes :], np.float32)
    if not np.allclose(found, expected, rtol=1e-3, atol=1e-3):
        raise SystemExit(f"{model}: the answer differs from ONNX Runtime's by {np.abs(found - expected).max():.3g}")


def _client() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
        headers={"Accept-Encoding": "identity"},  # LitServe compresses otherwise
    )


async def _send(client: aiohttp.ClientSession, address: str, task: Task) -> tuple[int, bytes]:
    async with client.post(address + task.path, data=task.body, headers=task.headers) as answer:
        return answer.status, await answer.read()


async def closed_loop(setting: Setting, server: str, address: str) -> float:
    """Tasks a second, with so many requests under way, in the proportions of the models."""
    tasks, names = setting.tasks(server), [m for m, s in zip(setting.models, SHARES, strict=True) for _ in range(s)]
    order = np.random.default_rng(1).permutation(names * 2000)
    done, end, turn = 0, time.perf_counter() + CLOSED_S, iter(order)

    async def work(client: aiohttp.ClientSession) -> None:
        nonlocal done
        while time.perf_counter() < end:
            status, _ = await _send(client, address, tasks[next(turn)])
            done += status == 200 and time.perf_counter() < end

    async with _client() as client:
        await asyncio.gather(*(work(client) for _ in range(CLOSED)))
    return done / CLOSED_S


async def open_loop(setting: Setting, server: str, address: str, scenario: Scenario) -> list[Tally]:
    """What became of the tasks of a scenario, by model; those refused, broken or given up count as dropped."""
    trace, tasks = draw(scenario), setting.tasks(server)
    tallies = [Tally() for _ in scenario.models]

    async def one(client: aiohttp.ClientSession, model: int, due_s: float) -> None:
        status, _ = await _send(client, address, tasks[scenario.models[model].label])
        own, taken_ms = tallies[model], (time.perf_counter() - due_s) * 1e3
        if status == 200:
            own.latencies_ms.append(taken_ms)
        elif status in (429, 503, 504, 400, 408, 500):
            own.dropped += 1
        else:
            raise SystemExit(f"{server}: found status {status}; allowed: 200, or that of a refusal")

    async with _client() as client:
        begin, sent = time.perf_counter() + 0.1, []
        for at_s, model in zip(trace.times_s, trace.models, strict=True):
            if (left := begin + at_s - time.perf_counter()) > 0:
                await asyncio.sleep(left)
            tallies[model].offered += 1
            sent.append(asyncio.create_task(one(client, model, begin + at_s)))
        _, late = await asyncio.wait(sent, timeout=4 * setting.deadline_s)
        for task in late:
            task.cancel()
        ended = await asyncio.gather(*sent, return_exceptions=True)
        for model, error in zip(trace.models, ended, strict=True):
            if isinstance(error, (aiohttp.ClientError, OSError)):
                print(f"{server}: {error}", file=sys.stderr)
            elif isinstance(error, BaseException) and not isinstance(error, asyncio.CancelledError):
                raise error
            tallies[model].dropped += error is not None
        for last in tasks.values():  # what is still queued comes before these
            await _send(client, address, last)
    return tallies


def row_of(scenario: Scenario, name: str, tallies: list[Tally]) -> Row:
    """What is printed of a run."""
    measured = result(scenario, name, "open", [RepeatOutcome(tallies, 0.0, 0.0)], simulated=False)
    total, seconds = measured.total, measured.duration_s
    row = {
        "worst %": 100 * min(own.fair_share or 0.0 for own in measured.models.values()),
        "goodput/s": total.goodput / seconds,
        "done/s": total.completed / seconds,
        "p50 ms": total.p50_ms or float("nan"),
        "p99 ms": total.p99_ms or float("nan"),
        "offered/s": sum(own.offered for own in tallies) / seconds,
        "lost": float(sum(own.dropped for own in tallies)),
    }
    return row | {
        f"{label} within SLO %": 100 * own.goodput / max(1, own.offered) for label, own in measured.models.items()
    }


def measured(
    setting: Setting, server: str, full: float, given: argparse.Namespace, number: int
) -> dict[str, list[Row]]:
    """Rows by load, one for every set-up of the server."""
    rows: dict[str, list[Row]] = {}
    for setup in SETUPS[:1] if server in OURS else SETUPS[: given.setups]:
        with contextlib.ExitStack() as own:
            address = "" if server == "hios" else own.enter_context(running(setting, server, setup, None))
            if address and not number:
                rate = asyncio.run(closed_loop(setting, server, address))
                print(f"{server}, {setup[0]} x {setup[1]} threads: closed loop {rate:.1f} tasks/s", flush=True)
            for load in given.loads:
                scenario = setting.at(load * full, given.seconds, 100 + number)
                with contextlib.ExitStack() as per_load:
                    here = address or per_load.enter_context(running(setting, server, setup, load * full))
                    row = row_of(scenario, server, asyncio.run(open_loop(setting, server, here, scenario)))
                rows.setdefault(f"{load:g}", []).append(row)
                told = ", ".join(f"{key} {value:.4g}" for key, value in row.items())
                print(f"round {number}, {server} {setup}, load {load:g}: {told}", file=sys.stderr, flush=True)
    return rows


def best_setup(rows: Sequence[Row]) -> Row:
    """The better of a server's set-ups."""
    return max(rows, key=lambda row: (round(row["worst %"]), row["goodput/s"]))


def goals(table: Mapping[str, Mapping[str, Row]]) -> list[str]:
    """Which goals are met, in words."""
    lines = []
    for load, rows in table.items():
        others = {name: row for name, row in rows.items() if name not in OURS}
        pairs = [(ours, key) for ours in OURS if ours in rows and others for key in ("worst %", "goodput/s")]
        for ours, key in pairs:
            name = max(others, key=lambda own: others[own][key])
            best, own = others[name][key], rows[ours][key]
            goal = AT_08 if float(load) == 0.8 else LEAST
            met = own >= goal * best
            most = rows[ours]["offered/s"] if key == "goodput/s" else 100.0
            why = "" if met or goal * best <= most else f"; no server could: {best:.4g} of {most:.4g} are there already"
            ratio = own / best if best else float("inf")
            judged = "met" if met else "MISSED"
            lines.append(f"{ours}, load {load}, {key}: {judged}: {ratio:.2f} times {name} (goal: {goal:g}){why}")
    if {"1", "1.5"} <= table.keys():
        for name in table["1"]:
            kept = table["1.5"][name]["goodput/s"] / table["1"][name]["goodput/s"]
            lines.append(f"{name}: goodput at 1.5 is {kept:.0%} of that at 1 (goal of hios: {OVERLOAD:.0%})")
    return lines


def main() -> None:
    """Prepare, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--servers", nargs="+", default=[*OURS, *PINS], choices=[*OURS, *PINS])
    parser.add_argument("--loads", type=float, nargs="+", default=[0.3, 0.8, 1.0, 1.2, 1.5])
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--setups", type=int, default=len(SETUPS), choices=range(1, len(SETUPS) + 1))
    parser.add_argument("--anew", action="store_true", help="measure costs and calibration again")
    parser.add_argument("--models", nargs=3, default=["squeezenet", "googlenet", "resnet34"])
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    setting = Setting(given.folder, given.models, anew=given.anew)
    for server in given.servers:
        if server in PINS:
            environment(given.folder / server, PINS[server])
    machine = f"{processor()}, {len(usable_cores())} cores, {busy_share(usable_cores()):.0%} busy before"
    with running(setting, "hios", (2, 1), None) as address:
        full = asyncio.run(closed_loop(setting, "hios", address))
    scenario = setting.at(full, given.seconds)
    slos = ", ".join(f"{own.label} {own.rate:.3g}/s within {own.settings.slo_ms:g} ms" for own in scenario.models)
    print(f"{machine}\nload 1: {full:.1f} tasks/s: {slos}", flush=True)
    found: dict[str, dict[str, list[Row]]] = {}
    for number in range(given.rounds):
        turn = number % len(given.servers)
        for server in [*given.servers[turn:], *given.servers[:turn]]:
            for load, rows in measured(setting, server, full, given, number).items():
                found.setdefault(load, {}).setdefault(server, []).append(best_setup(rows))
    table = {
        load: {
            server: {key: statistics.median(row[key] for row in own) for key in own[0]}
            for server, own in servers.items()
        }
        for load, servers in found.items()
    }
    columns = list(next(iter(next(iter(table.values())).values())))
    for load, servers in table.items():
        lines = [(f"load {load}", *columns)]
        lines += [(server, *(f"{row[key]:.4g}" for key in columns)) for server, row in servers.items()]
        print("\n" + "\n".join(aligned(lines, "<>")))
    print("\n" + "\n".join(goals(table)))
    output = given.output or given.folder / "comparison.json"
    output.write_text(json.dumps({"machine": machine, "full_per_s": full, "loads": table}, indent=1))
    print(f"\n{output}")


if __name__ == "__main__":
    main()
