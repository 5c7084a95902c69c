"""What schedules gain on one GPU, in steps: the most valuable facts first, each kept as soon as it is known.

    python benchmarks/gpu.py run FACTS [SECONDS] [NETWORK ...]   where the GPU is: needs torch, not TVM
    python benchmarks/gpu.py step STEP FACTS [NETWORK]           one step, in this process
    python benchmarks/gpu.py show FACTS                          the ratios of an earlier run beside the goals, anywhere
    python benchmarks/gpu.py prepare [NETWORK ...]               where TVM is: graphs and recipes of the weights

FACTS is a folder: ``facts.jsonl`` has a line for each fact, written to disk at once. Every step is a process with a
limit of its own, so that a crash or a time-out costs one step; ``run`` goes on where an earlier one stopped. It begins
no step in the last 25 of its seconds (600), and ends the one that they do not suffice for. Networks are GoogLeNet,
Inception-v3, NASNet-large, SqueezeNet, four layers of BERT, and RandWire, batch 1, from ``benchmarks/gpu_networks``;
their weights are those of seed 0, made on the machine at hand.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from weight_recipes import recipe_of, weights_of

import hios
from hios.core.evaluate import evaluate, latency_ms
from hios.files import artifacts
from hios.formats.run import Latency, Run
from hios.platforms.cuda.devices import RUNTIMES
from hios.profiling.contention import fit

PREPARED = Path(__file__).with_name("gpu_networks")
NETWORKS = ("googlenet", "inception_v3", "nasnet_large", "squeezenet", "bert", "randwire")
#: What some are built with.
OPTIONS: dict[str, dict[str, Any]] = {"bert": {"layers": 4, "sequence_length": 32}}
#: Weights without a recipe.
REST = "rest.safetensors"
#: Algorithms for one device; ios measures the stages it tries, which are too many for NASNet, and 161,052 for RandWire.
ALGORITHMS = ("sequential", "greedy", "nimble", "lios", "opara", "ios")
TOO_LARGE = {"nasnet_large": {"ios"}, "randwire": {"ios"}}
#: Goals: least ratio of the plain CUDA graph over the sequential schedule; of that over the best schedule; and of
#: torch.compile with max-autotune over it.
PLAIN, GAIN, COMPILED = 0.97, {"googlenet": 1.4, "inception_v3": 1.4, "nasnet_large": 1.4}, 1.0
GRAPH, AUTOTUNED = "cudagraph", "compile-max-autotune"
#: What names of schedules end with whose devices run segments.
BY_SEGMENTS = ", by segments"
#: Convolutions of Inception-v3, GoogLeNet and NASNet-large: channels in and out, filter, image, groups.
LAYOUTS = (
    (3, 64, 7, 224, 1),
    (192, 64, 1, 35, 1),
    (64, 96, 3, 35, 1),
    (768, 192, 1, 17, 1),
    (160, 192, 7, 17, 1),
    (2048, 320, 1, 8, 1),
    (480, 192, 1, 14, 1),
    (96, 208, 3, 14, 1),
    (1008, 168, 1, 42, 1),
    (168, 168, 5, 42, 168),
    (336, 336, 7, 21, 336),
)
#: Max pools of GoogLeNet: channels, window, image, stride.
POOLS = ((64, 3, 112, 2), (256, 3, 28, 1), (480, 3, 14, 1), (832, 3, 7, 1))
#: What is served together, by which policies, and at which shares of what the GPU could do by the costs.
SERVED, POLICIES, LOADS = ("googlenet", "squeezenet"), ("sequential", "nimble", "ios", "pos-relaxed", "top"), (0.5, 3.0)
#: Operators of the graphs by which overheads are measured, and replays.
CHAIN, REPLAYS = 1000, 50
#: Shortest time that is left for a step to begin.
_LEAST_S = 20.0


class Facts:
    """The facts of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._path = folder, folder / "facts.jsonl"

    def add(self, step: str, **facts: object) -> None:
        """Write a fact, so that it survives whatever comes next."""
        self.folder.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"step": step, **facts})
        print(line, flush=True)
        cut = self._path.exists() and not self._path.read_bytes().endswith(b"\n")
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{chr(10) * cut}{line}\n")
            file.flush()
            os.fsync(file.fileno())

    def all(self) -> list[dict[str, Any]]:
        """All facts, but for a line that was cut off."""
        if not self._path.exists():
            return []
        facts = []
        for line in self._path.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                facts.append(json.loads(line))
        return facts


def prepare(networks: Sequence[str], folder: Path = PREPARED, **changes: Any) -> None:
    """Write the graphs of networks, and the recipes of their weights."""
    from hios.frontends.export import build_model

    for name in networks:
        own, options = folder / name, OPTIONS.get(name, {}) | changes
        own.mkdir(parents=True, exist_ok=True)
        graph, tensors = hios.extract(hios.export(name, options=options), name=name)
        module, _ = build_model(name, options, 0)
        graph.write(own / "graph.json")
        recipe = recipe_of(tensors, module)
        if rest := {key: tensor for key, tensor in tensors.items() if key not in recipe}:
            save_file(rest, own / REST)
        (own / "recipe.json").write_text(f"{json.dumps({'options': options, 'weights': recipe})}\n", encoding="utf-8")
        print(f"{own}: {len(graph.operators)} operators, {len(recipe)} weights")


def loaded(name: str, folder: Path = PREPARED) -> tuple[hios.Graph, dict[str, torch.Tensor], Any]:
    """Graph, weights and program of a prepared network, without TVM."""
    from hios.frontends.export import build_model

    if not (folder / name / "recipe.json").exists():
        sys.exit(f"{folder / name}: found no recipe.json; required: what `gpu.py prepare {name}` writes")
    recipe = json.loads((folder / name / "recipe.json").read_text(encoding="utf-8"))
    module, _ = build_model(name, recipe["options"], 0)
    program = hios.export(name, options=recipe["options"])
    rest = load_file(folder / name / REST) if (folder / name / REST).exists() else {}
    return hios.Graph.read(folder / name / "graph.json"), weights_of(recipe["weights"], module) | rest, program


class Steps:
    """The steps; each adds facts. ``platform`` is another one in tests only."""

    def __init__(self, facts: Facts, platform: str = "cuda", prepared: Path = PREPARED) -> None:
        self._facts, self._platform, self._prepared = facts, platform, prepared

    def machine(self, _: str) -> None:
        """Versions, settings of the GPU, and how its clock rate rises from idle."""
        from hios import platforms
        from hios.files.versions import checkout
        from hios.platforms.cuda import environment

        described = platforms.describe("cuda", 1)
        software = {"hios": hios.__version__, "commit": checkout(), "torch": torch.__version__}
        self._facts.add("machine", **software, settings=environment.settings(described))
        value, times = torch.randn(4096, 4096, device="cuda"), list[float]()
        for _number in range(200):
            began = time.perf_counter()
            value @ value
            torch.cuda.synchronize()
            times.append((time.perf_counter() - began) * 1e3)
        self._facts.add("machine", ramp_ms=[round(times[place], 3) for place in (0, 1, 2, 4, 8, 16, 32, 64, 128, 199)])

    def capture(self, _: str) -> None:
        """Whether a capture that fails spoils the next one."""
        from hios.platforms.cuda.backend import CudaBackend
        from hios.platforms.cuda.plan import Lane

        backend, value = CudaBackend([0]), torch.ones(1, device="cuda")
        try:
            backend.capture((Lane(0),), lambda: backend.run(Lane(0), lambda x: x.item(), [value], 1))
        except RuntimeError as error:
            self._facts.add("capture", failed=str(error).partition("\n")[0])
        replay, (made,) = backend.capture((Lane(0),), lambda: backend.run(Lane(0), lambda x: x + 1, [value], 1))
        replay()
        torch.cuda.synchronize()
        self._facts.add("capture", after=made.item())

    def overheads(self, _: str) -> None:
        """What an operator costs: launched, in a graph, and in a graph of two streams with an event between any two."""
        for name, times in _overheads():
            self._facts.add("overheads", name=name, us={key: round(1e3 * each, 4) for key, each in times.items()})

    def layouts(self, _: str) -> None:
        """Pools, and convolutions with bias and ReLU by torch's calls and cuDNN's fused one, in orders of channels."""
        for shape in LAYOUTS:
            self._facts.add("layouts", shape=shape, us=_layouts(*shape))
        for pool in POOLS:
            self._facts.add("layouts", pool=pool, us=_pools(*pool))

    def race(self, network: str) -> None:
        """All algorithms for one device, with costs that are measured here."""
        names = [name for name in ALGORITHMS if name not in TOO_LARGE.get(network, ())]
        self._execute("race", network, names, ["eager", GRAPH])

    def segments(self, network: str) -> None:
        """The sequential and the best schedule of the race by operators, then by segments in inductor's kernels too."""
        names = list(dict.fromkeys(["sequential", self._best(network)]))
        for engine in ("operators", "segments"):
            self._execute("segments", network, names, ["eager", GRAPH], engine)

    def compiled(self, network: str) -> None:
        """The best schedule of the race beside torch.compile."""
        self._execute("compiled", network, [self._best(network)], ["eager", "compile", "compile-reduce-overhead"])

    def autotuned(self, network: str) -> None:
        """The same beside torch.compile with max-autotune, which compiles for minutes; a later try continues."""
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(self._facts.folder.resolve() / "inductor")
        os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "0"  # as hios switches them off
        self._execute("autotuned", network, [self._best(network)], ["eager", AUTOTUNED])

    def serving(self, _: str) -> None:
        """Two networks behind one GPU: tasks one at a time, in rounds, and in blocks that are combined."""
        import yaml

        from hios.serving.gpu_lane import first_gpu
        from hios.serving.load import load
        from hios.serving.scenario import Scenario

        models, folder = {}, self._facts.folder.resolve()
        for name in SERVED:
            _graph, weights, program = loaded(name, self._prepared)
            save_file(weights, folder / f"{name}.safetensors")
            program.write(folder / f"{name}.pt2")
            files = {"graph": str(self._prepared.resolve() / name / "graph.json")}
            files |= {"costs": f"{name}.costs.json", "weights": f"{name}.safetensors", "program": f"{name}.pt2"}
            models[name] = {**files, "rate": 1.0}
        settings = {"models": models, "lanes": 1, "duration_s": 1.0, "rates": "of-capacity"}
        (folder / "scenario.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
        for share in LOADS:
            given = Scenario.read(folder / "scenario.yaml", load=share)
            for policy in POLICIES:
                with warnings.catch_warnings(record=True) as told:
                    report = load(given, policy, gpu=first_gpu(), tolerance=1e-3)
                result = artifacts.plain(report.result)
                kept = ("completed", "p50_ms", "p99_ms")
                served = {own: {key: made.get(key) for key in kept} for own, made in result["models"].items()}
                said = sorted({str(warning.message) for warning in told})
                total = {key: result["total"][key] for key in ("offered", "completed", "failed")}
                self._facts.add("serving", load=share, policy=policy, **total, models=served, warnings=said)

    def _best(self, network: str) -> str:
        medians = dict(_sessions(self._facts.all(), "race")).get(network, {})
        schedules = {name: median for (kind, name), median in medians.items() if kind == "schedule"}
        if not schedules:
            sys.exit(f"{network}: found no race in {self._facts.folder}; required: one that succeeded")
        return min(schedules, key=schedules.__getitem__)

    def _execute(
        self, step: str, network: str, algorithms: Sequence[str], baselines: Sequence[str], engine: str = "operators"
    ) -> None:
        graph, weights, program = loaded(network, self._prepared)
        problem = self._problem(step, network, graph, algorithms)
        schedules = {name: hios.schedule(problem, name) for name in algorithms}
        allowed = [name for name in baselines if self._platform == "cuda" and name in RUNTIMES]
        run = hios.execute(
            graph,
            weights,
            schedules,
            program=program,
            platform=self._platform,
            devices=1,
            baselines=allowed,
            engine=engine,
            tolerance=1e-3,
            timeout_s=600.0,
            runs=21,
        )
        for row in rows_of(run):
            self._facts.add(step, **{**row, "network": network})

    def _problem(self, step: str, network: str, graph: hios.Graph, algorithms: Sequence[str]) -> hios.Problem:
        """Measured costs for a race, which later steps read."""
        path = self._facts.folder / f"{network}.costs.json"
        if step == "race":
            options: dict[str, Any] = {
                "stages_of": [name for name in algorithms if name in {"greedy", "ios"}],
                "cache": self._facts.folder / "cache",
                "options": {"contention": "resources"},
            }
            began = time.monotonic()
            costs = hios.profile(graph, devices=1, repeats=7, budget_s=30.0, platform=self._platform, **options)
            artifacts.write(path, "costs", costs)
            seconds, sum_ms = time.monotonic() - began, sum(hios.Costs.read(path).time_ms.values())
            self._facts.add(step, network=network, profile_s=round(seconds, 1), sum_of_operators_ms=sum_ms)
        if not path.exists():
            sys.exit(f"{path}: missing; required: the costs that the step race writes for {network}")
        return hios.Problem(graph, hios.Costs.read(path))


#: Steps of one process each with their limits in seconds, those without networks first.
MACHINE = (("machine", 60), ("capture", 60), ("overheads", 60), ("layouts", 90))
NETWORK = (("race", 300), ("segments", 400), ("compiled", 300), ("autotuned", 590))
#: The last one, as it takes the costs of races.
SERVING = ("serving", 120)


def run(facts: Facts, seconds: float, networks: Sequence[str], start: Callable[..., Any] = subprocess.run) -> None:
    """All steps that have not succeeded yet, as far as time is left."""
    ends = time.monotonic() + seconds
    done = {tuple(fact["ran"]) for fact in facts.all() if fact["step"] == "run" and fact["status"] == "0"}
    steps = [(step, "", limit_s) for step, limit_s in MACHINE]
    steps += [(step, network, limit_s) for step, limit_s in NETWORK for network in networks]
    steps += [(SERVING[0], "", SERVING[1])] * set(SERVED).issubset(networks)
    for step, network, limit_s in steps:
        if (step, network) in done:
            continue
        left_s = min(limit_s, ends - time.monotonic() - 5)
        if left_s < _LEAST_S:
            facts.add("run", ran=[step, network], status="no time")
            continue
        command = [sys.executable, __file__, "step", step, str(facts.folder), *([network] if network else [])]
        began = time.monotonic()
        try:
            ended = start(command, timeout=left_s, stderr=subprocess.PIPE, text=True, check=False)
            status, said = str(ended.returncode), str(ended.stderr)
        except subprocess.TimeoutExpired as error:
            status, said = "time-out", (error.stderr or b"").decode(errors="replace")  # bytes, also with text=True
        facts.add(
            "run",
            ran=[step, network],
            status=status,
            seconds=round(time.monotonic() - began, 1),
            **({} if status == "0" else {"said": said[-1500:]}),
        )
    show(facts)


def rows_of(run: Run) -> Iterator[dict[str, Any]]:
    """Rows of a run: the schedules, then what else ran the model.

    Args:
        run: what run.json holds.
    """
    platform = run.platform
    told = {
        "gpu": " ".join(dict.fromkeys(platform.gpus or (platform.processor or "",))),
        "driver": platform.driver or "",
        "cuda": platform.cuda or "",
        "cudnn": platform.cudnn or "",
        "torch": run.versions.get("torch", ""),
        "measured_at": run.measured_at,
        "network": run.graph,
    }
    for result in run.results:
        more: dict[str, Any] = {"predicted_ms": round(result.predicted_ms, 5), "launch": result.launch or ""}
        if (segments := result.segments) is not None:
            more["segments"] = Counter(segment.runtime for segment in segments)
            more["refused"] = sorted({why for segment in segments for why in (segment.refused or {}).values()})
        name = result.label + ("" if segments is None else BY_SEGMENTS)
        yield {**told, "kind": "schedule", "name": name, **_latency(result.latency_ms), **more}
    for reference in run.references:
        yield {**told, "kind": "runtime", "name": reference.kind, **_latency(reference.latency_ms)}


def _latency(latency: Latency) -> dict[str, float]:
    return {
        "median_ms": round(latency.median, 5),
        "p20_ms": round(latency.p20, 5),
        "p80_ms": round(latency.p80, 5),
    }


def _timed(function: Callable[[], object], count: int) -> list[float]:
    """Milliseconds of one of ``count`` operators that a function launches, in every repetition."""
    taken = []
    for _ in range(REPLAYS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        function()
        end.record()
        torch.cuda.synchronize()
        taken.append(begin.elapsed_time(end) / count)
    return taken


def _captured(function: Callable[[], object]) -> Callable[[], None]:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph.replay


def _overheads() -> Iterator[tuple[str, dict[str, float]]]:
    """Milliseconds an operator of a chain of the smallest operators.

    On two streams every operator waits for the event of the one before it on the other stream.
    """
    value = torch.zeros(1, device="cuda")
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]

    def one() -> None:
        for _ in range(CHAIN):
            value.add_(1)

    def two() -> None:
        origin = torch.cuda.current_stream()
        event = origin.record_event()
        for number in range(CHAIN):
            stream = streams[number % 2]
            stream.wait_event(event)
            with torch.cuda.stream(stream):
                value.add_(1)
            event = stream.record_event()
        origin.wait_event(event)

    ways: dict[str, Callable[[], object]] = {
        "an operator, launched": one,
        "an operator, in a graph": _captured(one),
        "an operator and an event, in a graph of two streams": _captured(two),
    }
    for name, function in ways.items():
        p20, _, _, p80 = statistics.quantiles(taken := _timed(function, CHAIN), n=5, method="inclusive")
        yield name, {"median": statistics.median(taken), "p20": p20, "p80": p80}


def _layouts(into: int, out: int, size: int, image: int, groups: int) -> dict[str, float]:
    """Microseconds of a convolution with bias and ReLU in a graph, in several layouts and calls."""
    torch.backends.cudnn.benchmark = True
    pad, count = size // 2, 64
    given = (
        torch.randn(1, into, image, image, device="cuda"),
        torch.randn(out, into // groups, size, size, device="cuda"),
    )
    bias = torch.randn(out, device="cuda")
    layouts = {"NCHW": given, "NHWC": [each.contiguous(memory_format=torch.channels_last) for each in given]}
    calls: dict[str, Callable[..., object]] = {
        "apart": lambda x, w: torch.relu_(torch.conv2d(x, w, bias, 1, pad, 1, groups)),
        "fused": lambda x, w: torch.cudnn_convolution_relu(x, w, bias, (1, 1), (pad, pad), (1, 1), groups),
    }
    taken = {}
    with torch.inference_mode():
        for layout, tensors in layouts.items():
            for name, call in calls.items():
                replay = _captured(lambda call=call, own=tensors: [call(*own) for _ in range(count)])  # type: ignore[misc]
                taken[f"{layout}, {name}"] = round(1e3 * statistics.median(_timed(replay, count)), 2)
    return taken


def _pools(channels: int, size: int, image: int, stride: int) -> dict[str, float]:
    """Microseconds of a max pool in a graph: in both orders of channels, and through the default one."""
    count, value = 64, torch.randn(1, channels, image, image, device="cuda")
    last = value.contiguous(memory_format=torch.channels_last)

    def pool(x: torch.Tensor) -> torch.Tensor:
        return torch.max_pool2d(x, size, stride, size // 2)

    calls: dict[str, Callable[[], object]] = {
        "NCHW": lambda: pool(value),
        "NHWC": lambda: pool(last),
        "NHWC, through NCHW": lambda: pool(last.contiguous()).contiguous(memory_format=torch.channels_last),
    }
    taken = {}
    with torch.inference_mode():
        for name, call in calls.items():
            replay = _captured(lambda call=call: [call() for _ in range(count)])  # type: ignore[misc]
            taken[name] = round(1e3 * statistics.median(_timed(replay, count)), 2)
    return taken


#: Milliseconds of a session by kind and name.
Medians = dict[tuple[str, str], float]


def _sessions(facts: Sequence[Mapping[str, Any]], step: str) -> list[tuple[str, Medians]]:
    """The network of every session of a step, and what took turns in it."""
    medians: dict[tuple[str, str], Medians] = defaultdict(dict)
    for fact in facts:
        if "median_ms" in fact and fact["step"] == step:
            medians[fact["network"], fact["measured_at"]][fact["kind"], fact["name"]] = fact["median_ms"]
    return [(network, own) for (network, _), own in medians.items()]


def show(facts: Facts) -> None:
    """Print what is known, and the ratios beside the goals: each of one step, in which all took turns."""
    known = facts.all()
    for fact in known:
        if fact["step"] in {"machine", "capture", "overheads", "layouts", "serving"}:
            print(json.dumps(fact))
        elif fact["step"] == "run" and fact["status"] != "0":
            print(f"{' '.join(fact['ran']).strip()}: not finished ({fact['status']})")
    for step, _ in NETWORK:
        for network, medians in (sessions := _sessions(known, step)):
            print(f"{network}, {step}")
            for line in (*compared(network, medians), *_predicted(facts, step, network, medians)):
                print(f"  {line}")
        for line in _by_segments(sessions):
            print(line)
    for fact in known:
        if counts := fact.get("segments"):
            print(
                f"{fact['network']}, {fact['name']}: {counts.get('inductor', 0)} of {sum(counts.values())} in inductor"
            )


def _by_segments(sessions: Sequence[tuple[str, Medians]]) -> Iterator[str]:
    """What segments gain: each schedule in two sessions, relative to the CUDA graph that took turns with it."""
    relative: dict[tuple[str, str], float] = {}
    for network, medians in sessions:
        for (kind, name), median in medians.items():
            if kind == "schedule" and ("runtime", GRAPH) in medians:
                relative[network, name] = medians["runtime", GRAPH] / median
    for (network, name), gain in relative.items():
        if (other := relative.get((network, name + BY_SEGMENTS))) is not None:
            yield f"{network}, {name}: by segments {other / gain:.3f} times as fast, relative to the CUDA graph"


def _predicted(facts: Facts, step: str, network: str, medians: Medians) -> Iterator[str]:
    """Errors of predictions from costs of this folder, also by the blend that is fitted to the measured stages."""
    path = facts.folder / f"{network}.costs.json"
    if step != "race" or not path.exists():
        return
    graph, costs = hios.Graph.read(PREPARED / network / "graph.json"), hios.Costs.read(path)
    models = [costs]
    if costs.stages:
        fitted = fit({tuple(sorted(stage)): time for stage, time in costs.stages.items()}, costs.time_ms)
        models.append(replace(costs, contention="blend", alpha=fitted.alpha, utilization=fitted.utilization))
    problems = {own.contention: hios.Problem(graph, own) for own in models}
    for (kind, name), median in medians.items():
        if kind == "schedule":
            plan = hios.schedule(problems[costs.contention], name).plan(graph)
            times = {by: latency_ms(evaluate(problem, plan)) for by, problem in problems.items()}
            errors = ", ".join(f"{time:.4f} ms by {by} ({time / median - 1:+.1%})" for by, time in times.items())
            yield f"predicted {name:<25}{errors}"


def compared(network: str, medians: Mapping[tuple[str, str], float]) -> Iterator[str]:
    """Lines on a network: all medians, then ratios with their goals.

    Args:
        network: its name.
        medians: milliseconds by kind and name.
    """
    for (kind, name), median in medians.items():
        yield f"{kind} {name:<26}{median:>10.4f} ms"
    schedules = {name: median for (kind, name), median in medians.items() if kind == "schedule"}
    best = min(schedules, key=schedules.__getitem__)
    sequential = "sequential" + BY_SEGMENTS * best.endswith(BY_SEGMENTS)
    for kind, goal in ((GRAPH, PLAIN), (AUTOTUNED, None)):
        if (other := medians.get(("runtime", kind))) is not None:
            if sequential in schedules:
                yield f"{kind} over {sequential}: {_ratio(other / schedules[sequential], goal)}"
            yield f"{kind} over {best}: {_ratio(other / schedules[best], COMPILED if kind == AUTOTUNED else None)}"
    if len(schedules) > 1 and sequential in schedules:
        yield f"{sequential} over {best}: {_ratio(schedules[sequential] / schedules[best], GAIN.get(network))}"


def _ratio(ratio: float, goal: float | None) -> str:
    return f"{ratio:.3f}" + ("" if goal is None else f" (goal {goal:g}: {'reached' if ratio >= goal else 'missed'})")


def main(arguments: Sequence[str]) -> None:
    """Do what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", help=argparse.SUPPRESS)
    match parser.parse_args(arguments).what:
        case ["prepare", *networks]:
            prepare(networks or NETWORKS)
        case ["run", folder, *more]:
            seconds = [float(text) for text in more[:1] if text.replace(".", "").isdigit()]
            run(Facts(Path(folder)), (seconds or [600.0])[0], more[len(seconds) :] or NETWORKS)
        case ["step", ("machine" | "capture" | "overheads" | "layouts" | "serving") as step, folder]:
            getattr(Steps(Facts(Path(folder))), step)("")
        case ["step", ("race" | "segments" | "compiled" | "autotuned") as step, folder, network]:
            getattr(Steps(Facts(Path(folder))), step)(network)
        case ["show", folder]:
            show(Facts(Path(folder)))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
