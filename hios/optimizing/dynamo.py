"""``torch.compile(model, backend="hios")``: the subgraphs that Dynamo captures, each run in the fastest way measured.

Each part between two graph breaks is treated as ``hios.optimize`` treats a model. A part that takes less than
``least_ms`` (2 ms) by itself is left as it is: waking workers would cost too much. Also left as they are, with a
warning: parts with dynamic shapes, parts that need gradients, and parts that ``hios.optimize`` does not support, such
as those that write into inputs or buffers, which run exactly once per call, and those whose outputs share memory
with inputs or overlap, as the next part may write into one of them.
"""

from __future__ import annotations

import operator
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from itertools import compress
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx._lazy_graph_module import _LazyGraphModule

from hios.errors import ExampleInputsError, HiosError
from hios.optimizing.module import OptimizedModule, warn, without_fast_paths
from hios.optimizing.optimize import accelerated
from hios.optimizing.options import Options
from hios.optimizing.report import Report

#: Marks a placeholder of Dynamo's graph as a parameter or buffer, which stays the same from call to call.
_STATIC = "_dynamo_static_input_type"

#: Modes of the backend inductor: people who change the backend by one word have them.
_MODES = ("default", "lite", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")

#: The parts that were compiled last, with the reports of those that no longer exist.
_compiled: deque[tuple[weakref.ref[OptimizedModule], Report]] = deque(maxlen=1000)


def hios(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """The backend, as Dynamo calls it for each part.

    Args:
        gm: the part.
        example_inputs: its inputs; parameters and buffers are among them.
        mode: of ``torch.compile``; those of other backends are ignored with a ``HiosWarning``.
        options: of ``torch.compile``: devices, algorithm, and the other keyword arguments of ``hios.optimize``.

    Returns:
        A function called like the part.

    Raises:
        HiosError: an option is unknown or not allowed.
    """
    if mode not in (None, *_MODES):
        raise HiosError(
            f"torch.compile, backend hios: mode: found {mode}; allowed: {', '.join(_MODES)}, which are those of the "
            "backend inductor, or options instead"
        )
    if mode not in (None, "default"):
        warn(f"torch.compile, backend hios: mode {mode} is ignored: hios measures which way is the fastest")
    chosen = _options(options or {})
    if why := _left_alone(example_inputs):
        warn(f"a part of the model is left as it is: {why}")
        return gm.forward
    static = [_STATIC in (node.meta.get("tensor_dict") or {}) for node in gm.graph.nodes if node.op == "placeholder"]
    bound = ModelPart(gm, example_inputs, static)
    dynamic = [value for value, fixed in zip(example_inputs, static, strict=True) if not fixed]
    if not any(isinstance(value, Tensor) for value in dynamic):
        return gm.forward  # it computes the same in every call
    try:
        optimized = accelerated(bound, dynamic, {}, chosen)
    except ExampleInputsError:
        return gm.forward  # its call says what is wrong
    _compiled.append((weakref.ref(optimized), optimized.report))
    if optimized.runner is None and not optimized.threads:
        return gm.forward
    return _CompiledPart(gm, bound, optimized, static)


def reports() -> tuple[Report, ...]:
    """What was chosen for the parts that were compiled last in this process, in the order of their compilation.

    Each is what ``report`` of a module of ``hios.optimize`` is; printed, it is a table of all ways to run the part.
    """
    return tuple(report if (module := known()) is None else module.report for known, report in _compiled)


def _options(given: Mapping[str, Any]) -> Options:
    known = {field.name for field in fields(Options)} - {"wait", "told"}  # parts cannot be sent to another process
    if unknown := sorted(set(given) - known):
        raise HiosError(
            f"torch.compile, backend hios: options: found {unknown[0]}; allowed: {', '.join(sorted(known))}"
        )
    return Options(**given)


def _left_alone(example_inputs: Sequence[Any]) -> str:
    """Why a part cannot be taken, in words; empty if it may be."""
    if any(isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool) for value in example_inputs):
        return "its shapes are dynamic; allowed: fixed ones (torch.compile(..., dynamic=False))"
    if torch.is_grad_enabled() and any(isinstance(v, Tensor) and v.requires_grad for v in example_inputs):
        return "its outputs are to have gradients; call the model within torch.inference_mode() or torch.no_grad()"
    return ""


class ModelPart(nn.Module):
    """A part with its parameters and buffers bound: a model of the remaining inputs."""

    def __init__(self, part: fx.GraphModule, example_inputs: Sequence[Any], static: Sequence[bool]) -> None:
        super().__init__()
        _LazyGraphModule.force_recompile(part)  # the first call would do it, which looks like a change of state
        self.part = part
        #: The part in operators that every frontend has, for exporting; the part itself where it has them.
        self.__dict__["_plain"] = without_fast_paths(part)
        self._static = list(static)
        self.fixed = [value for value, fixed in zip(example_inputs, static, strict=True) if fixed]
        for number, value in enumerate(self.fixed):
            name = f"fixed_{number}"
            if isinstance(value, nn.Parameter):
                self.register_parameter(name, value)
            else:
                self.register_buffer(name, value)

    def forward(self, *dynamic: Any) -> Any:
        """What the part computes."""
        rest, number = iter(dynamic), 0
        values = []
        for fixed in self._static:
            values.append(getattr(self, f"fixed_{number}") if fixed else next(rest))
            number += fixed
        # Not a module of this one: it has the same parameters, and nothing else runs it.
        part: fx.GraphModule = self.__dict__["_plain"] if torch.compiler.is_exporting() else self.part
        return part(*values)


class _CompiledPart:
    """What Dynamo calls: the optimized part, or the part itself where parameters or buffers are others.

    Dynamo uses what it compiled for one module also for others of the same code.
    """

    def __init__(self, part: fx.GraphModule, bound: ModelPart, optimized: nn.Module, static: Sequence[bool]) -> None:
        self._part, self._optimized = part, optimized
        self._fixed = bound.fixed
        self._static = list(static)
        self._rest_at = [place for place, fixed in enumerate(static) if not fixed]
        self._warned = False

    def __call__(self, *values: Any) -> Any:
        if all(map(operator.is_, compress(values, self._static), self._fixed)):
            return self._optimized(*[values[place] for place in self._rest_at])
        if not self._warned:
            self._warned = True
            warn("a part of the model runs as it is: it has other parameters than those it was optimized with")
        return self._part(*values)
