"""Bringing the arguments of a call into the form of the example: a value may be given by position or by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hios.errors import ExampleInputsError

_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Binding:
    """Rearranges arguments into the form of an example.

    Args:
        function: what is called.
        args: positional arguments of the example.
        kwargs: keyword arguments of the example.
        name: of the model, for messages.

    Raises:
        ExampleInputsError: the function does not take the example's arguments.
    """

    def __init__(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], name: str = "the model"
    ) -> None:
        self._signature: inspect.Signature | None
        try:
            self._signature = inspect.signature(function)
        except (TypeError, ValueError):  # compiled code has none
            self._signature = None
            return
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ExampleInputsError(
                f"example inputs of {name}: {error}; its forward is {self._signature}, found {len(args)} positional "
                f"argument(s){_named(kwargs)}"
            ) from None
        parameters = list(self._signature.parameters.values())
        if any(parameter.kind in _VARIABLE for parameter in parameters):
            self._signature = None  # arguments without names cannot be distinguished
        self._by_position = [parameter.name for parameter in parameters[: len(args)]]
        self._by_name = list(kwargs)

    def as_in_the_example(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """The arguments in the form of the example; None if that is impossible.

        An argument that the example leaves out has to have its default.
        """
        if self._signature is None:
            return None
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError:
            return None  # the model itself says what is wrong
        bound.apply_defaults()
        values = dict(bound.arguments)
        if not all(name in values for name in (*self._by_position, *self._by_name)):
            return None
        positional = tuple(values.pop(name) for name in self._by_position)
        named = {name: values.pop(name) for name in self._by_name}
        defaults = self._signature.parameters
        if any(value is not defaults[name].default for name, value in values.items()):
            return None
        return positional, named


def _named(kwargs: Mapping[str, Any]) -> str:
    return f" and {', '.join(kwargs)}" if kwargs else ""
