"""An exported program of torch as a Relax function, read into calls."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
import tvm
from torch import fx
from torch.export import ExportedProgram, default_decompositions
from tvm import relax
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from hios.errors import UnsupportedError, first_line
from hios.frontends.program_interface import arguments_of
from hios.frontends.relax_calls import Lowered, Weight, canonical, origins, read
from hios.frontends.source_location import Origin, of_node
from hios.frontends.torch_converters import CONVERTERS

#: ATen operators, without overload, that Relax imports as one; if decomposed, patterns would not match them.
_KEPT_WHOLE = {
    *("linear", "gelu", "softmax", "log_softmax", "adaptive_avg_pool2d", "scaled_dot_product_attention"),
    *("silu", "selu", "prelu", "softplus", "hardswish", "hardsigmoid", "pixel_shuffle"),
}

#: Arguments of ATen operators that Relax's importer ignores, with the value for which that is correct.
_DROPPED: Mapping[str, Mapping[str, Any]] = {
    "aten::avg_pool2d": {"divisor_override": None},
    "aten::elu": {"scale": 1, "input_scale": 1},
}


def lower(program: ExportedProgram) -> Lowered:
    """Import a program into Relax, canonicalize it, remove dead code and read the result.

    An `UnsupportedError` says that Relax lacks an operator, or that a shape is not fixed.
    """
    table = default_decompositions()
    kept = _KEPT_WHOLE | {"upsample_bicubic2d"} if _resizes_exactly(program) else _KEPT_WHOLE
    for operator in list(table):
        namespace, name, *_ = str(operator).split(".")
        if namespace == "aten" and name.removesuffix("_") in kept:
            del table[operator]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's own pytree deprecation
        try:
            decomposed = program.run_decompositions(table)
        except Exception as error:  # torch runs every operator on shapes here; a damaged program fails in many ways
            raise UnsupportedError(
                f"torch cannot decompose the program: {first_line(error)}; export it again"
            ) from error
    signature = decomposed.graph_signature
    if changed := sorted(signature.buffers_to_mutate.values()):
        raise UnsupportedError(f"the model changes its buffer {changed[0]} in every inference; export it in eval mode")
    if changed := sorted(signature.user_inputs_to_mutate.values()):
        raise UnsupportedError(f"the model changes its input {changed[0]} in place; let it work on a copy")
    _refuse_dropped_arguments(decomposed)
    module, origins = _imported(decomposed)
    return read(canonical(module), _parameters(decomposed), origins)


class _TorchImporter(ExportedProgramImporter):  # type: ignore[misc]
    """Relax's importer, extended to track the current node."""

    def __init__(self) -> None:
        super().__init__()
        self.convert_map: dict[str, Any]
        self.node: fx.Node | None = None

    def update_convert_map(self, custom_convert_map: dict[str, Any]) -> None:
        super().update_convert_map(custom_convert_map)
        self.convert_map = {name: self._watched(convert) for name, convert in self.convert_map.items()}

    def _watched(self, convert: Callable[..., Any]) -> Callable[..., Any]:
        def watched(node: fx.Node, *importer: Any) -> Any:
            self.node = node
            return convert(node, *importer)

        return watched


def _imported(program: ExportedProgram) -> tuple[tvm.IRModule, dict[str, Origin]]:
    """The program in Relax, and the origins of its variables."""
    importer = _TorchImporter()
    known = {*importer.convert_map, *CONVERTERS}
    for node in program.graph.nodes:
        if node.op == "call_function" and getattr(node.target, "__name__", "") not in known:
            raise UnsupportedError(
                f"Relax cannot import {of_node(node).place}: it has no converter for this operator; write the model "
                "with other operators there, or add a converter to CONVERTERS in hios/frontends/torch_converters.py"
            )
    try:
        # The parameters of the result share their memory with the program's.
        module = importer.from_exported_program(program, True, False, False, CONVERTERS)
    except Exception as error:  # the importer raises many types; all mean the same to the user
        place = of_node(importer.node).place if importer.node is not None else "the program"
        raise UnsupportedError(f"Relax cannot import {place}: {first_line(error)}") from error
    module, _ = relax.frontend.detach_params(module)
    nodes = program.graph.nodes
    return module, origins(module, ((of_node(node), importer.env.get(node)) for node in nodes))


def _resizes_exactly(program: ExportedProgram) -> bool:
    """Whether no bicubic resizing has a factor that its size does not show, such as 1.3: Relax knows sizes only."""
    nodes = [node for node in program.graph.nodes if node.target is torch.ops.aten.upsample_bicubic2d.vec]
    for given, node in ((arguments_of(node), node) for node in nodes):
        factors = () if given["align_corners"] else given["scale_factors"] or ()
        sizes = zip(given["input"].meta["val"].shape[2:], node.meta["val"].shape[2:], strict=True)
        if any(own * factor != made for (own, made), factor in zip(sizes, factors, strict=False)):
            return False
    return True


def _refuse_dropped_arguments(program: ExportedProgram) -> None:
    for node in program.graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        for argument, harmless in _DROPPED.get(node.target._schema.name, {}).items():
            if (given := arguments_of(node)[argument]) != harmless:
                raise UnsupportedError(
                    f"Relax cannot import {of_node(node).place}: {argument} is {given}; "
                    f"allowed: {harmless}, as Relax would ignore it"
                )


def _parameters(program: ExportedProgram) -> dict[str, Weight]:
    signature = program.graph_signature
    named = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    held = {**program.state_dict, **program.constants}
    weights = {argument: Weight(name, held[name].detach()) for argument, name in named.items() if name in held}
    for argument, name in signature.inputs_to_lifted_tensor_constants.items():
        weights[argument] = Weight(name, program.constants[name].detach())
    return weights
