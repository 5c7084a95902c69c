"""An exported program of torch as a Relax function, read into calls."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram, default_decompositions
from tvm import relax
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from hios.errors import UnsupportedError, first_line
from hios.frontends.program_interface import arguments_of, dtype_name
from hios.frontends.relax_calls import (
    STAND_IN,
    Lowered,
    OpaqueCall,
    Result,
    Weight,
    canonical,
    origins,
    read,
    type_difference,
    with_opaque_calls,
)
from hios.frontends.source_location import of_node
from hios.frontends.torch_converters import CONVERTERS
from hios.kernels.table import aten

#: ATen operators, without overload, that stay one: patterns would not match their parts, or these check values.
_KEPT_WHOLE = {
    *("linear", "gelu", "softmax", "log_softmax", "adaptive_avg_pool2d", "scaled_dot_product_attention"),
    *("silu", "selu", "prelu", "softplus", "hardswish", "hardsigmoid", "pixel_shuffle", "upsample_bicubic2d"),
    *("inverse", "linalg_cholesky", "linalg_inv", "linalg_solve", "one_hot"),
}


def _resizes_otherwise(node: fx.Node) -> bool:
    """Whether a factor of a resizing is not the ratio of the sizes, such as 1.3: Relax knows sizes only."""
    given = arguments_of(node)
    factors = () if given.get("align_corners") else given.get("scale_factors") or ()
    image = given["input"] if "input" in given else given["self"]
    sizes = zip(image.meta["val"].shape[2:], node.meta["val"].shape[2:], strict=True)
    return any(own * factor != made for (own, made), factor in zip(sizes, factors, strict=False))


#: Parts of decomposed operators that trust their indices, and the operators that check them.
_CHECKED: Mapping[Any, Any] = {
    torch.ops.aten._unsafe_index.Tensor: torch.ops.aten.index.Tensor,
    torch.ops.aten._unsafe_index_put.default: torch.ops.aten.index_put.default,
}


def _always(node: fx.Node) -> bool:
    return True


#: ATen operators that Relax's importer gets wrong, and the calls for which it does: it ignores some arguments, lets ids
#: of tables count from the end, takes any of several maxima, and mixes up axes of several indices.
_WRONG: Mapping[str, Callable[[fx.Node], bool]] = {
    "aten::_upsample_bilinear2d_aa": _always,
    "aten::any": _always,
    "aten::avg_pool2d": lambda node: arguments_of(node)["divisor_override"] is not None,
    "aten::div": lambda node: arguments_of(node).get("rounding_mode") is not None,
    "aten::elu": lambda node: any(arguments_of(node)[name] != 1 for name in ("scale", "input_scale")),
    "aten::embedding": _always,
    "aten::floor_divide": _always,
    "aten::index": _always,
    "aten::index_put": _always,
    "aten::index_select": _always,
    "aten::max": lambda node: 1 in _used(node),
    "aten::one_hot": _always,
    "aten::upsample_bicubic2d": _always,
    "aten::upsample_bilinear2d": _resizes_otherwise,
    "aten::upsample_nearest2d": _resizes_otherwise,
}


def lower(program: ExportedProgram, use: Callable[[Lowered], Result]) -> Result:
    """Import a program into Relax, canonicalize it, remove dead code, read the result and return what ``use`` makes.

    Calls of ATen operators that Relax cannot import, or of whose import ``use`` says in a `NodeError` that hios has no
    kernel for it, become opaque calls.

    An `UnsupportedError` says that an operator cannot be such a call either, or that a shape is not fixed.
    """
    decomposed = _decomposed(program)
    parameters = _parameters(decomposed)
    return with_opaque_calls(lambda opaque: use(_imported(decomposed, parameters, opaque)))


def _decomposed(program: ExportedProgram) -> ExportedProgram:
    table = default_decompositions()
    for overload in list(table):
        namespace, name, *_ = str(overload).split(".")
        if namespace == "aten" and name.removesuffix("_") in _KEPT_WHOLE:
            del table[overload]
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
    return decomposed


class _TorchImporter(ExportedProgramImporter):  # type: ignore[misc]
    """Relax's importer, extended to track the current node, and to make opaque calls of what it cannot import.

    ``opaque`` are nodes that become such calls in any case, with the reason.
    """

    def __init__(self, opaque: Mapping[fx.Node, str]) -> None:
        super().__init__()
        self.convert_map: dict[str, Any]
        self.node: fx.Node | None = None
        self.opaque_calls: dict[str, OpaqueCall] = {}
        self._opaque = opaque

    @staticmethod
    def _convert_data_type(input_type: Any, env: Any = None) -> str:
        try:
            return str(ExportedProgramImporter._convert_data_type(input_type, env))
        except NotImplementedError:
            return STAND_IN

    def update_convert_map(self, custom_convert_map: dict[str, Any]) -> None:
        super().update_convert_map(custom_convert_map)
        self.convert_map = {name: self._watched(convert) for name, convert in self.convert_map.items()}

    def _watched(self, convert: Callable[..., Any]) -> Callable[..., Any]:
        def watched(node: fx.Node, *importer: Any) -> Any:
            self.node = node
            reason = self._opaque.get(node)
            if reason is None and (not isinstance(node.target, torch._ops.OpOverload) or "val" not in node.meta):
                return convert(node, *importer)  # what takes an output of several, or checks a value
            reason = reason or _known_as_wrong(node)
            if reason is None:
                try:
                    value = convert(node, *importer)
                    reason = _difference(value, node)
                except Exception as error:  # the importer raises many types; all mean the same to the user
                    reason = first_line(error)
            return value if reason is None else self._opaque_call(node, reason)

        return watched

    def _opaque_call(self, node: fx.Node, reason: str) -> Any:
        """The outputs of a node as those of an opaque call; None for those that are not used."""
        own = _CHECKED.get(node.target, node.target)
        if refusal := aten.refusal(own):
            raise UnsupportedError(f"{reason}, and PyTorch cannot run it as it is: {refusal}")
        made = node.meta["val"]
        parts = made if isinstance(made, list | tuple) else [made]
        used = _used(node)
        if any(not isinstance(size, int) for item in used for size in parts[item].shape):
            raise UnsupportedError(f"the shape of its result depends on values; allowed: fixed shapes ({reason})")
        tensors, arguments = aten.described(own, arguments_of(node), _is_tensor)
        call = OpaqueCall(
            str(own),
            {"arguments": arguments} | ({} if len(used) == len(parts) else {"outputs": used}),
            [tuple(parts[item].shape) for item in used],
            [dtype_name(parts[item].dtype) for item in used],
        )
        name = f"opaque_{len(self.opaque_calls)}"
        self.opaque_calls[name] = call
        outputs = call.emit(self.block_builder, name, [self.env[tensor] for tensor in tensors])
        if not isinstance(made, list | tuple):
            return outputs[0]
        by_item = dict(zip(used, outputs, strict=True))
        return [by_item.get(item) for item in range(len(parts))]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, fx.Node) and isinstance(value.meta.get("val"), Tensor)


def _missing(node: fx.Node, *importer: Any) -> Any:
    raise UnsupportedError("it has no converter for this operator")


def _used(node: fx.Node) -> list[int]:
    """The positions of those results of a node that others use; 0 for the only one."""
    made = node.meta["val"]
    if not isinstance(made, list | tuple):
        return [0]
    used = [user.args[1] for user in node.users if user.target is operator.getitem]
    return [item for item in range(len(made)) if item in used]


def _known_as_wrong(node: fx.Node) -> str | None:
    """Why Relax would import a node wrongly; None if nothing is known."""
    own: Any = node.target
    if (wrong := _WRONG.get(own._schema.name)) is not None and wrong(node):
        return "Relax would import it wrongly"
    values = [node.meta.get("val"), *(other.meta.get("val") for other in node.all_input_nodes)]
    for value in values:
        for part in value if isinstance(value, list | tuple) else [value]:
            if isinstance(part, Tensor) and _TorchImporter._convert_data_type(part.dtype) != dtype_name(part.dtype):
                return f"Relax has no {dtype_name(part.dtype)}"
    return None


def _difference(value: Any, node: fx.Node) -> str | None:
    """In what the types of what Relax made of a node differ from the node's, in words; None if in nothing."""
    made = node.meta.get("val")
    if isinstance(made, Tensor):
        return type_difference(value, tuple(made.shape), dtype_name(made.dtype))
    if not isinstance(made, list | tuple):
        return None
    for item in _used(node):
        if isinstance(value, list | tuple | relax.Tuple):
            part = value[item]
        elif isinstance(getattr(value, "ty", None), relax.TupleType):
            part = SimpleNamespace(ty=value.ty.fields[item])
        else:
            part = value
        if difference := type_difference(part, tuple(made[item].shape), dtype_name(made[item].dtype)):
            return difference
    return None


def _user_inputs(program: ExportedProgram) -> list[fx.Node]:
    given = set(program.graph_signature.user_inputs)
    return [node for node in program.graph.nodes if node.op == "placeholder" and node.name in given]


def _imported(program: ExportedProgram, parameters: Mapping[str, Weight], opaque: Mapping[fx.Node, str]) -> Lowered:
    """The program as calls, some nodes as opaque ones."""
    importer = _TorchImporter(opaque)
    for value in _user_inputs(program):
        if _TorchImporter._convert_data_type(value.meta["val"].dtype) != (dtype := dtype_name(value.meta["val"].dtype)):
            raise UnsupportedError(
                f"input {value.name}: found {dtype}; allowed: dtypes of Relax; let the model make it"
            )
    names = {node.target.__name__ for node in program.graph.nodes if isinstance(node.target, torch._ops.OpOverload)}
    converters = {**dict.fromkeys(names - importer.convert_map.keys(), _missing), **CONVERTERS}
    try:
        # The parameters of the result share their memory with the program's.
        module = importer.from_exported_program(program, True, False, False, converters)
    except Exception as error:  # the importer raises many types; all mean the same to the user
        place = of_node(importer.node).place if importer.node is not None else "the program"
        raise UnsupportedError(f"Relax cannot import {place}: {first_line(error)}") from error
    module, _ = relax.frontend.detach_params(module)
    places = origins(module, ((of_node(node), importer.env.get(node)) for node in program.graph.nodes))
    return read(canonical(module), parameters, places, importer.opaque_calls)


def _parameters(program: ExportedProgram) -> dict[str, Weight]:
    signature = program.graph_signature
    named = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    held = {**program.state_dict, **program.constants}
    weights = {argument: Weight(name, held[name].detach()) for argument, name in named.items() if name in held}
    for argument, name in signature.inputs_to_lifted_tensor_constants.items():
        weights[argument] = Weight(name, program.constants[name].detach())
    return weights
