"""The module that ``optimize`` returns: called like the model, which runs itself if the chosen way fails."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo

from hios import errors
from hios.errors import HiosError
from hios.optimizing.guards import Guards
from hios.optimizing.report import Report
from hios.optimizing.tracing import ModelInputs, ModelOutputs

#: Code in these folders is not the user's.
_NOT_THE_USER = (str(Path(torch.__file__).parent),)


def warn(message: str) -> None:
    """Issue a ``HiosWarning`` at the user's line."""
    errors.warn(message, _NOT_THE_USER)


@contextlib.contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Set the number of intra-operator threads of torch in the calling thread.

    Torch keeps the number for each thread, so callers neither wait for nor disturb each other, and calls may be nested.
    However, a thread that uses torch for the first time during the context inherits this number and keeps it: threads
    that should use more must have used torch before.
    """
    before = torch.get_num_threads()
    if before == count:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True, slots=True)
class TracedRunner:
    """Runs a traced model elsewhere, from the tensors of its inputs to those of its outputs, while guards allow it."""

    inputs: ModelInputs
    outputs: ModelOutputs
    guards: Guards
    run: Callable[[list[Tensor]], list[Tensor]]
    close: Callable[[], None]


class OptimizedModule(nn.Module):
    """A model, run in the way that was chosen for it.

    Its inputs and outputs are those of the model. Parameters, buffers, submodules and ``state_dict`` are the model's
    own; other attributes are read from the model and set on it, except for those that this class or every module has.
    It is for inference: outputs carry no gradient. The model itself runs, with one ``HiosWarning`` for each cause,
    where inputs are not of the example's structure, shapes and dtypes, require a gradient or are transformed by
    torch.func, under autocast, when the model has changed since (`hios.optimizing.guards` says what is detected), in a
    forked process, and when a worker failed.

    Args:
        model: the model.
        report: what was chosen for it, and why.
        runner: what runs it; None where the model itself does.
        threads: torch's threads for the model itself where it was chosen; 0 for as many as there are.
    """

    report: Report
    #: An attribute that torch.compile sets; not a change of the model.
    _is_torch_compile: bool = False

    def __init__(self, model: nn.Module, report: Report, runner: TracedRunner | None = None, threads: int = 0) -> None:
        super().__init__()
        self.report = report
        # The model's own tables, not copies, so that torch sees the same as for the model.
        for table in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
            self.__dict__[table] = model.__dict__[table]
        self.training = model.training
        self.runner = runner
        self.threads = threads
        self._warned: set[str] = set()
        self.__dict__["_model"] = model  # from here on all other attributes belong to the model

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model computes."""
        if torch.compiler.is_dynamo_compiling():
            return _around_dynamo(self, args, kwargs)
        return self._run(args, kwargs)

    def _run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        runner = self.runner
        if runner is None:
            return self._itself(args, kwargs)
        if changed := runner.guards.changed():
            return self._instead("changed", f"{changed} since it was optimized", args, kwargs)
        if torch.is_autocast_enabled("cpu"):
            return self._instead("autocast", "autocast would change its precision", args, kwargs)
        tensors = runner.inputs.tensors(args, kwargs)
        if isinstance(tensors, str):
            return self._instead("inputs", tensors, args, kwargs)
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            return self._instead("gradient", "an input requires a gradient", args, kwargs)
        try:
            results = runner.run(tensors)
        except HiosError as error:
            self.runner = None
            return self._instead("failed", str(error), args, kwargs)
        return runner.outputs.rebuilt(results, tensors)

    def _itself(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if not self.threads:
            return self._model(*args, **kwargs)
        with torch_threads(self.threads):
            return self._model(*args, **kwargs)

    def _instead(self, kind: str, why: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run the model itself, with a warning on the first failure of each kind."""
        if kind not in self._warned:
            self._warned.add(kind)
            warn(f"{self.report.model} runs as it was before hios.optimize: {why}")
        return self._model(*args, **kwargs)

    @property
    def original(self) -> nn.Module:
        """The model itself."""
        model: nn.Module = self.__dict__["_model"]
        return model

    def settle(self, final: OptimizedModule) -> None:
        """Switch to the final choice that another module of the same model runs."""
        self.report, self.runner, self.threads = final.report, final.runner, final.threads

    def close(self) -> None:
        """Stop the workers; afterwards the model itself runs."""
        runner, self.runner = self.runner, None
        if runner is not None:
            runner.close()

    def train(self, mode: bool = True) -> OptimizedModule:
        """Switch the mode of the model; in train mode the model itself runs."""
        self._model.train(mode)
        self.training = mode
        return self

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The state dict of the model."""
        return self._model.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Load into the model, which runs itself afterwards."""
        return self._model.load_state_dict(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if "_model" not in self.__dict__:
                raise
            return getattr(self.__dict__["_model"], name)

    def _is_own(self, name: str) -> bool:
        """Whether an attribute belongs to this module rather than the model; a new forward is the model's."""
        own = name in self.__dict__ or "_model" not in self.__dict__
        return own or (name != "forward" and hasattr(type(self), name))

    def __setattr__(self, name: str, value: Any) -> None:
        if self._is_own(name):
            super().__setattr__(name, value)
        else:
            setattr(self.__dict__["_model"], name, value)

    def __delattr__(self, name: str) -> None:
        if self._is_own(name):
            super().__delattr__(name)
        else:
            delattr(self.__dict__["_model"], name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise HiosError(
            f"an optimized {self.report.model} cannot be copied or pickled, as it has workers; allowed: to save its "
            "state_dict, and to optimize the model again, for which the measurements are kept"
        )


@_disable_dynamo  # as torch.compiler.disable, which imports all of Dynamo at once
def _around_dynamo(module: OptimizedModule, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """A function that torch.compile calls without tracing it."""
    return module._run(args, kwargs)
