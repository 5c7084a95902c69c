"""Whether an exported program computes the same as its module, also for inputs other than the example."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from hios.errors import UnsupportedError, first_line
from hios.frontends.example_inputs import inputs_like
from hios.frontends.program_interface import arguments_of, flat_module, of_node
from hios.frontends.tolerances import difference

#: Arguments with which an operator that can draw random numbers draws none.
_NOT_RANDOM = {"train": False, "training": False, "p": 0, "dropout_p": 0}


def apart(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Inputs that share no memory with each other or the weights, as torch.export treats equal tensors as one value."""
    seen = {value.untyped_storage().data_ptr() for value in (*module.parameters(), *module.buffers())}
    separate = []
    for value in inputs:
        memory = value.untyped_storage().data_ptr()
        separate.append(value.clone() if memory in seen else value)
        seen.add(memory)
    return tuple(separate)


def require_faithful(program: ExportedProgram, module: nn.Module, inputs: tuple[Tensor, ...], name: str) -> None:
    """Run program and module on random inputs and compare all outputs; the module's buffers are as before afterwards.

    Raises:
        UnsupportedError: the model draws random numbers, fails on other inputs, or the program differs from it.
    """
    _require_no_randomness(program, name)
    drawn = inputs_like(inputs, seed=1)
    expected = _run(module, module, drawn, name)
    outputs = _run(flat_module(program), module, drawn, name)
    for ours, theirs in zip(outputs, expected, strict=True):
        off, allowed = difference(ours, theirs)
        if not off <= allowed:
            raise UnsupportedError(
                f"{name}: the exported program differs from the model by up to {off:.3g} on other inputs than "
                "the example inputs; make outputs depend only on inputs, weights and buffers, not on other state "
                "of the model"
            )


def _require_no_randomness(program: ExportedProgram, name: str) -> None:
    for node in program.graph.nodes:
        target = node.target
        if not isinstance(target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in target.tags:
            continue
        given = arguments_of(node)
        if not any(given.get(argument) == harmless for argument, harmless in _NOT_RANDOM.items()):
            raise UnsupportedError(
                f"{name}: found {of_node(node).place}, which draws random numbers; allowed: models that give the same "
                "outputs for the same inputs; export it in eval mode, or give the numbers as an input"
            )


def _run(run: nn.Module, module: nn.Module, inputs: tuple[Tensor, ...], name: str) -> list[Tensor]:
    """The output tensors of a module or its program; restores the buffers that both share."""
    held = [(buffer, buffer.clone()) for buffer in module.buffers()]
    with torch.no_grad():
        try:
            outputs = run(*(value.clone() for value in inputs))
        except Exception as error:  # whatever a user's model raises
            raise UnsupportedError(
                f"{name}: fails on inputs of the same shapes with other values: {first_line(error)}; allowed: models "
                "that take any numbers, whole ones up to the largest of the example inputs"
            ) from error
        finally:
            for buffer, value in held:
                buffer.copy_(value)
    return [value for value in pytree.tree_leaves(outputs) if isinstance(value, Tensor)]
