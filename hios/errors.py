"""The errors that hios raises for users; the command line prints only their message."""

from __future__ import annotations

import builtins
import contextlib
import functools
import json
import numbers
import os
import re
import sys
import traceback
import types
import typing
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

_LONGEST_VALUE_SHOWN = 60
#: Characters of a message.
_LONGEST_MESSAGE = 4000
_LINE_BREAK = re.compile(r"\s*[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]\s*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
#: Extras of the package that provide optional dependencies of commands and functions.
_EXTRAS = {
    "torch": "torch",
    "safetensors": "opt",
    "tqdm": "torch",
    "tvm": "torch,tvm",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "onnxscript": "onnx",
    "openvino": "openvino",
    "numba": "opt",
    "numpy": "opt",
    "ortools": "opt",
    "mpi4py": "mpi",
    "altair": "report",
    "vl_convert": "report",
    "pandas": "report",
    "jinja2": "report",
    "starlette": "serve",
    "uvicorn": "serve",
    "h11": "serve",
}


def shown(value: Any, *, quoted: bool = True) -> str:
    """A value as messages show it: as JSON, shortened if it is long.

    Args:
        value: what was found, or is allowed.
        quoted: whether text is put in quotes.
    """
    if isinstance(value, str):
        value = value[: 2 * _LONGEST_VALUE_SHOWN]  # enough of very long text
    text = value if isinstance(value, str) and not quoted else json.dumps(value)
    text = text.encode(errors="backslashreplace").decode()  # a lone surrogate can neither be written nor printed
    return text if len(text) <= _LONGEST_VALUE_SHOWN else f"{text[: _LONGEST_VALUE_SHOWN - 3]}..."


def suggestion(name: str, known: Iterable[str]) -> str:
    """`` (did you mean NAME?)`` with the known name most similar to one that is not known; empty if none is similar.

    Upper and lower case count as equal, and so do ``-`` and ``_``.
    """
    from difflib import get_close_matches  # only errors need it

    spelled = {other.lower().replace("_", "-"): other for other in known}
    similar = get_close_matches(name[:_LONGEST_VALUE_SHOWN].lower().replace("_", "-"), spelled, n=1, cutoff=0.7)
    return f" (did you mean {spelled[similar[0]]}?)" if similar else ""


def first_line(error: BaseException) -> str:
    """The first line of another library's error message; the name of its type where it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def place(error: BaseException, file: str | Path) -> str:
    """``file:line`` of the innermost line of a file in an error's traceback; the file alone if it is not there."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return f"{file}:{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return f"{file}:{lines[-1]}" if lines else str(file)


class HiosError(Exception):
    """An error that the user can fix: the message says where, what was found and what is allowed.

    It is one line, without characters that a terminal would obey. The middle of a very long message is left out, as
    names and values in a file may be arbitrarily long: its beginning says where, its end what is allowed.

    Examples:
        >>> import hios
        >>> graph = hios.Graph("one", (hios.Operator("a", "conv"),), ())
        >>> problem = hios.Problem(graph, hios.Costs({"a": 1.0}, {}))
        >>> try:
        ...     hios.schedule(problem, "sequential", devices=2)
        ... except hios.HiosError as error:
        ...     print(str(error).partition(" (")[0])
        algorithm sequential schedules a single device; found devices = 2; allowed: 1
    """

    def __init__(self, message: str = "") -> None:
        if len(message) > _LONGEST_MESSAGE:
            half = _LONGEST_MESSAGE // 2
            message = f"{message[:half]} ... {message[-half:]}"
        text = _LINE_BREAK.sub(" ", message.strip())
        super().__init__(_CONTROL.sub(lambda match: ascii(match[0])[1:-1], text))


class ArtifactError(HiosError):
    """A file is missing, damaged, of another version, or breaks its schema."""


class ScheduleError(HiosError):
    """A schedule cannot run: it deadlocks, or does not fit the graph or the devices."""


class PlatformError(HiosError):
    """The requested devices do not exist, or a worker died, hung or gave wrong results."""


class FailedCallError(PlatformError):
    """One call failed, as an operator refused its values; what ran it is intact, and the next call may succeed."""


class UnsupportedError(HiosError):
    """A model uses something that a frontend or the kernel table does not support."""


class ExampleInputsError(HiosError):
    """A model cannot run on the example inputs that were given for it."""


@contextlib.contextmanager
def naming_extras(what: str) -> Iterator[None]:
    """A context that says which extra to install if a package is missing that ``what`` needs, such as a function."""
    try:
        yield
    except ModuleNotFoundError as error:
        explained = missing_extra(what, error)
        if explained is None:
            raise
        raise explained from error


def missing_extra(what: str, error: ModuleNotFoundError) -> HiosError | None:
    """What to install if a package is missing; None if no extra of hios contains it.

    Args:
        what: what needs it, such as ``hios.optimize``.
        error: as Python raised it.
    """
    package = (error.name or "").partition(".")[0]
    extra = _EXTRAS.get(package)
    if extra is None:
        return None
    return HiosError(f"{what} needs {package}, which is not installed: pip install 'hios[{extra}]'")


_Function = typing.TypeVar("_Function", bound=Callable[..., Any])
#: What may stand for a type of an annotation.
_WIDER = {int: numbers.Integral, float: numbers.Real, Path: os.PathLike, Sequence: Iterable}
#: Arguments that mean the same as an option of another name.
_ARGUMENTS = {"trust": "trusted", "no_cache": "cache=False"}


def public(function: _Function) -> _Function:
    """A function, or ``__init__``, as users call it: a `HiosError` of one line says what is wrong with a call.

    It refuses arguments that are not of the annotated type, and names missing packages. Errors that name options of the
    command line name arguments of the function instead.
    """
    import inspect  # not for all that have errors

    name, signature = function.__qualname__.removesuffix(".__init__"), inspect.signature(function)

    @functools.wraps(function)
    def checked(*arguments: Any, **keywords: Any) -> Any:
        with contextlib.suppress(TypeError):  # Python says which argument is missing, or is one too many
            for argument, value in signature.bind(*arguments, **keywords).arguments.items():
                kind = _kinds(function).get(argument, Any)
                several = signature.parameters[argument].kind is inspect.Parameter.VAR_POSITIONAL
                if wrong := [one for one in (value if several else [value]) if not _fits(one, kind)]:
                    _refuse(f"{name}: {argument}", wrong[0], function.__annotations__[argument])
        try:
            with naming_extras(f"hios.{name}"):
                return function(*arguments, **keywords)
        except HiosError as error:
            error.args = (_with_arguments(str(error), signature),)
            raise

    checked.__module__ = "hios"  # where pickle finds it
    return typing.cast("_Function", checked)


@functools.cache
def _kinds(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotated types of arguments by name; anything in place of what only type checkers import."""

    class Names(dict[str, Any]):
        def __missing__(self, name: str) -> Any:
            return getattr(builtins, name, Any)

    kinds, names = {}, Names(function.__globals__)
    for name, text in function.__annotations__.items():
        with contextlib.suppress(AttributeError):  # of a module that only type checkers import
            kinds[name] = eval(text, {}, names)  # noqa: S307 - our own annotations
    return kinds


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a type, items of lists and tuples included."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is tuple:
        return isinstance(value, tuple | list) and len(value) == len(inner) and all(map(_fits, value, inner))
    plain = _WIDER.get(origin or kind, origin or kind) or type(None)
    if not isinstance(value, plain) or (origin is not None and isinstance(value, str)):
        return False
    return all(_fits(item, one) for item in (value if isinstance(value, list | tuple) else ()) for one in inner)


def _refuse(where: str, value: Any, allowed: str) -> typing.NoReturn:
    plain = value is None or isinstance(value, str | bool | int | float)
    found = shown(repr(value), quoted=False) if plain else f"a {type(value).__name__}"
    raise HiosError(f"{where}: found {found}; allowed: {allowed}")


def _with_arguments(message: str, signature: Any) -> str:
    """A message whose options are called as the arguments of a function that mean the same."""
    *_, last = signature.parameters.values()

    def argument(option: re.Match[str]) -> str:
        name = option[1].replace("-", "_")
        names = (name, f"{name}_s", _ARGUMENTS.get(name, ""))
        known = [one for one in names if one.partition("=")[0] in signature.parameters]
        return next(iter(known), name if last.kind is last.VAR_KEYWORD else option[0])

    return re.sub(r"--([a-z][a-z-]*)", argument, message)


class HiosWarning(UserWarning):
    """Something works, but not as the user may expect, such as a model that runs unoptimized, and why.

    Examples:
        Turn these warnings into errors:

        >>> import warnings, hios
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("error", hios.HiosWarning)
    """


def warn(message: str, not_the_user: tuple[str, ...] = ()) -> None:
    """A ``HiosWarning`` at the line outside hios that led here.

    Args:
        message: what does not work as expected, and what to do.
        not_the_user: folders of other libraries on the call stack that are not the user's code either.
    """
    folders = (str(Path(__file__).parent), *not_the_user)
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(folders):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, HiosWarning, stacklevel=level)
