"""The errors that hios raises for users; the command line prints only their message."""

import contextlib
import json
import re
import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator
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
