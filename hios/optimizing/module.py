"""The module that ``optimize`` returns: called like the model, which runs itself if the chosen way fails.

A call that fails in the chosen way fails alone: the model itself runs, which raises what it raises, and the next call
is run in the chosen way again. Only what cannot run any more, such as workers of which one died, is given up, and a way
that fails in three calls in a row which the model itself computes: each of them takes the time of both.

Guards: whether a model has changed since it was optimized, as the graph holds copies of its weights.

Dynamo's guards cannot take the place of these (torch 2.13): its graphs have weights as inputs, so weights that were
changed or replaced, another submodule of the same type, hooks, and another ``forward`` of a module pass its guards.

Fused operators that PyTorch uses in eval mode, decomposed: frontends support only their parts.

In eval mode nn.TransformerEncoderLayer is one operator of ATen, which torch.export avoids and Dynamo keeps.
"""

from __future__ import annotations

import contextlib
import copy
import multiprocessing
import os
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, fx, nn
from torch._compile import _disable_dynamo
from torch.nn.modules import module as torch_modules

from hios import errors
from hios.errors import FailedCallError, HiosError
from hios.optimizing.background import Background
from hios.optimizing.choice_cache import WITHOUT_EFFECT
from hios.optimizing.mutation_detection import Untouched, told
from hios.optimizing.other_inputs import Limits, outside
from hios.optimizing.report import Report
from hios.optimizing.tracing import ModelInputs, ModelOutputs, same

#: Tables of a module, and what their entries are.
_TABLES = {"_parameters": "parameter", "_buffers": "buffer", "_modules": "submodule"}
#: Hooks of a module that may change what a call returns.
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
#: Folders of installed packages, by their names in ``sysconfig``.
_LIBRARIES = ("purelib", "platlib")
#: Hooks of torch that every module calls.
_EVERYWHERE = (torch_modules._global_forward_hooks, torch_modules._global_forward_pre_hooks)
#: Calls in a row that fail, while the model itself computes them, before the chosen way is given up.
_FAILURES = 3


def has_hooks(model: nn.Module) -> bool:
    """Whether hooks are registered on all modules, or on one of the model by others than the library it is from."""
    hooks = [hook for module in model.modules() for table in _HOOKS for hook in vars(module)[table].values()]
    own = {_top(type(module)) for module in model.modules()} - {"torch"}
    return any(_EVERYWHERE) or any(_top(hook) not in own or not _is_of_a_library(hook) for hook in hooks)


def _top(code: Any) -> str:
    """The package of a class or function."""
    return str(getattr(code, "__module__", None)).partition(".")[0]


def _is_of_a_library(code: Any) -> bool:
    """Whether a function is in an installed package, so that it is not the user's."""
    file = getattr(sys.modules.get(str(getattr(code, "__module__", None))), "__file__", None)
    return file is not None and any(Path(file).is_relative_to(sysconfig.get_path(name)) for name in _LIBRARIES)


class Guards:
    """Compares a model with its earlier state, fast enough for every call.

    What it sees: parameters, buffers and submodules that were added, removed, replaced or reordered, changed in place
    (by the version counters that autograd keeps), moved to other memory or given other strides (``tensor.data = ...``);
    attributes of any module that were set to another value, ``forward`` and the mode of train and eval among them;
    hooks of calls; another class of a module, or another ``forward`` of its class. What is undone is no change any
    more.

    What it does not see: what is inside other objects that are attributes, such as lists; writes that bypass torch, as
    through ``tensor.numpy()`` or ``tensor.data``; changes in place of tensors that were made in inference mode; and
    whatever the model's code reads that no module holds. Hooks of gradients, and what torch.compile sets on the model
    that it is given, are no changes, as outputs stay the same.

    Every call compares only what `hios.optimizing.mutation_detection` does; names and values only where that differs.

    The model is in the state that counts, without hooks but those of the library that it is from.
    """

    def __init__(self, model: nn.Module) -> None:
        self._modules = dict(model.named_modules())
        self._classes: list[Any] = list(dict.fromkeys(map(type, self._modules.values())))
        self._state = self._held()
        self._tensors = {what: value for what, value in self._state.items() if isinstance(value, Tensor)}
        self._told = list(map(told, self._tensors.values()))
        self._untouched, self._forwards = self._watched()

    def changed(self) -> str:
        """What has changed, in words; empty if nothing has."""
        if (
            self._untouched.holds()
            and self._forwards == [own.forward for own in self._classes]
            and not any(_EVERYWHERE)
        ):
            return ""
        watched = self._watched()
        if any(_EVERYWHERE):
            return "hooks were added to all modules"
        if change := self._changed_held():
            return change
        for (what, tensor), before in zip(self._tensors.items(), self._told, strict=True):
            if told(tensor) != before:
                return f"{what} was changed"
        self._untouched, self._forwards = watched  # everything was set to what it is
        return ""

    def _watched(self) -> tuple[Untouched, list[Any]]:
        """What every call compares, as it is now: the state of the modules, and the code of their classes."""
        modules = list(self._modules.values())
        tables = [vars(module)[name] for module in modules for name in (*_TABLES, *_HOOKS)]
        untouched = Untouched(
            [*(module.__dict__ for module in modules), *tables], modules, list(self._tensors.values())
        )
        return untouched, [kind.forward for kind in self._classes]

    def _held(self) -> dict[str, Any]:
        """Everything that modules hold, by what it is in words."""
        held: dict[str, Any] = {}
        for path, module in self._modules.items():
            of, prefix = path or "the model", f"{path}." if path else ""
            for table, kind in _TABLES.items():
                held |= {f"its {kind} {prefix}{name}": value for name, value in vars(module)[table].items()}
            held[f"the class of {of}, or its forward,"] = [type(module), type(module).forward]
            own = {name: value for name, value in vars(module).items() if name not in WITHOUT_EFFECT}
            held[f"the mode (train or eval) of {of}"] = own.pop("training")
            held |= {f"its attribute {prefix}{name}": value for name, value in own.items()}
            if hooks := [hook for table in _HOOKS for hook in vars(module)[table].values()]:
                held[f"hooks of {of}"] = hooks
        return held

    def _changed_held(self) -> str:
        held, missing = self._held(), object()
        for what in {**self._state, **held}:
            before, after = self._state.get(what, missing), held.get(what, missing)
            if before is not after and (isinstance(before, Tensor) or not same(before, after)):
                if what.startswith("hooks"):
                    return f"{what} were {'added' if before is missing else 'changed'}"
                return f"{what} was set or replaced"
        order = [[what for what in state if not what.startswith("its attribute")] for state in (self._state, held)]
        return "" if order[0] == order[1] else "its parameters, buffers or submodules were reordered"


#: Code in these folders is not the user's.
_NOT_THE_USER = (str(Path(torch.__file__).parent),)


def warn(message: str) -> None:
    """Issue a ``HiosWarning`` at the user's line."""
    errors.warn(message, _NOT_THE_USER)


#: Whether this process was forked from one whose threads it lacks: torch would wait for these.
_forked = isinstance(multiprocessing.current_process(), ForkProcess)


def _note_fork() -> None:
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_note_fork)


@contextlib.contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Set the number of intra-operator threads of torch in the calling thread; one in a forked process.

    Torch keeps the number for each thread, so callers neither wait for nor disturb each other, and calls may be nested.
    However, a thread that uses torch for the first time during the context inherits this number and keeps it: threads
    that should use more must have used torch before.
    """
    before, count = torch.get_num_threads(), 1 if _forked else count
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
    """Runs a traced model elsewhere, from the tensors of its inputs to those of its outputs, while guards allow it.

    Inputs have whole numbers within the limits, as runtimes answer to indices outside of a table, where models raise.
    """

    inputs: ModelInputs
    outputs: ModelOutputs
    guards: Guards
    run: Callable[[list[Tensor]], list[Tensor]]
    close: Callable[[], None]
    limits: Sequence[Limits] = ()

    def tensors(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor] | str:
        """The tensors of a call in order, or why these inputs do not fit."""
        tensors = self.inputs.tensors(args, kwargs)
        return tensors if isinstance(tensors, str) else self.outputs.unfit(tensors) or tensors


#: Attributes of an `OptimizedModule` beside what every module has.
_OWN = frozenset({"report", "runner", "threads", "background", "_warned", "_failures", "_settling", "_ended"})


class OptimizedModule(nn.Module):
    """A model, run in the way that was chosen for it.

    Its inputs and outputs are those of the model. Parameters, buffers, submodules and ``state_dict`` are the model's
    own; other attributes are read from the model and set on it, except for those that this class or every module has.
    It is for inference: outputs carry no gradient. The model itself runs, with one ``HiosWarning`` for each cause,
    where inputs are not of the example's structure, shapes and dtypes (and strides, if it returns them), require a
    gradient or are transformed by torch.func, or have whole numbers beyond those that the model was found to take;
    under autocast; when the model has changed since (`hios.optimizing.module` says what is detected); in a forked
    process, there with one thread; for a call that fails in the chosen way; and once a worker has died, or three calls
    in a row have failed.

    Without a runner the model itself runs, with ``threads`` of torch where these were chosen; 0 for as many as there
    are.
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
        #: What may still find a faster way.
        self.background: Background | None = None
        self._warned: set[str] = set()
        #: Calls in a row that failed in the chosen way and not in the model.
        self._failures = 0
        self._settling, self._ended = threading.Lock(), False
        self.__dict__["_model"] = model  # from here on all other attributes belong to the model

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model computes."""
        if torch.compiler.is_dynamo_compiling():
            return _around_dynamo(self, args, kwargs)
        return self._run(args, kwargs)

    def _run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        runner = self.runner
        if runner is None:
            return self._itself(self.threads, args, kwargs)
        if changed := runner.guards.changed():
            why = f"{changed} since it was optimized; undo that, or call hios.optimize again"
            return self._instead(changed, why, args, kwargs)
        if torch._C._is_tracing():  # by torch.jit
            return self._instead("tracing", "torch.jit.trace would keep this call's outputs", args, kwargs)
        if torch.is_autocast_enabled("cpu"):
            return self._instead("autocast", "autocast would change its precision", args, kwargs)
        tensors = runner.tensors(args, kwargs)
        if isinstance(tensors, str):
            return self._instead("inputs", tensors, args, kwargs)
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            return self._instead("gradient", "an input requires a gradient", args, kwargs)
        if runner.limits and (which := outside(tensors, runner.limits)):
            return self._unless_it_raises("numbers", which, args, kwargs)
        try:
            results = runner.run(tensors)
        except FailedCallError as error:
            outputs = self._unless_it_raises("call", f"a call failed: {error}", args, kwargs)
            self._failures += 1
            if self._failures >= _FAILURES and self.runner is runner:
                self.runner = None
                self._warn("given up", f"{_FAILURES} calls in a row failed, so no more are tried: {error}")
            return outputs
        except HiosError as error:
            if self.runner is not runner:  # another one was settled on meanwhile, and this one closed
                return self._run(args, kwargs)
            self.runner = None
            return self._instead("failed", str(error), args, kwargs)
        self._failures = 0
        return runner.outputs.rebuilt(results, tensors)

    def _itself(self, threads: int, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if not threads and not _forked:
            return self._model(*args, **kwargs)
        with torch_threads(threads):
            return self._model(*args, **kwargs)

    def _instead(self, kind: str, why: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run the model itself, with a warning on the first failure of each kind."""
        self._warn(kind, why)
        return self._itself(0, args, kwargs)

    def _unless_it_raises(self, kind: str, why: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run the model itself in a single call, with such a warning only if it does not refuse the inputs too."""
        outputs = self._itself(0, args, kwargs)
        self._warn(kind, f"{why}; this concerns only such calls")
        return outputs

    def _warn(self, kind: str, why: str) -> None:
        """Say why the model itself runs, once for each kind of reason."""
        if kind not in self._warned:
            self._warned.add(kind)
            forked = " (with one thread, as this process was forked)" if _forked else ""
            warn(f"{self.report.model} runs as it was before hios.optimize{forked}: {why}")

    @property
    def original(self) -> nn.Module:
        """The model itself."""
        model: nn.Module = self.__dict__["_model"]
        return model

    def settle(self, final: OptimizedModule) -> None:
        """Switch to the final choice that another module of the same model runs; after the end, close that instead."""
        with self._settling:
            if not self._ended:
                self.report, self.runner, self.threads = final.report, final.runner, final.threads
                self._failures = 0
                return
        final.close()

    def close(self) -> None:
        """Stop the workers, and the search for a faster way; afterwards the model itself runs."""
        if self.background is not None:
            self.background.end()
        with self._settling:
            self._ended = True
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
        if name in _OWN:  # a weight or submodule of the model may have the same name, in tables that are the model's
            self.__dict__[name] = value
        elif self._is_own(name):
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


def without_fast_paths(part: fx.GraphModule) -> fx.GraphModule:
    """A module with such operators decomposed; the module itself if it has none."""
    if not any(map(_is_plain_layer, part.graph.nodes)):
        return part
    written = fx.GraphModule(part, copy.deepcopy(part.graph))
    for node in list(written.graph.nodes):
        if _is_plain_layer(node):
            node.target = encoder_layer
    written.recompile()
    return written


def _is_plain_layer(node: fx.Node) -> bool:
    """Whether a node is an encoder layer without a mask."""
    return (
        node.op == "call_function"
        and node.target is torch._transformer_encoder_layer_fwd
        and all(value is None for value in node.args[20:])
        and not any(value is not None for name, value in node.kwargs.items() if name.startswith("mask"))
    )


def encoder_layer(
    x: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    *_: Any,
) -> Tensor:
    """What ``torch._transformer_encoder_layer_fwd`` computes without a mask.

    Args: as of that function; ``x`` is batch x length x ``embed_dim``.
    """

    def attend(value: Tensor) -> Tensor:
        batch, length, _ = value.shape
        parts = F.linear(value, qkv_weight, qkv_bias).chunk(3, -1)
        heads = [part.reshape(batch, length, num_heads, embed_dim // num_heads).transpose(1, 2) for part in parts]
        attended = F.scaled_dot_product_attention(heads[0], heads[1], heads[2])
        return F.linear(attended.transpose(1, 2).reshape(batch, length, embed_dim), proj_weight, proj_bias)

    def feed(value: Tensor) -> Tensor:
        inner = F.linear(value, ffn_weight_1, ffn_bias_1)
        return F.linear(F.gelu(inner) if use_gelu else F.relu(inner), ffn_weight_2, ffn_bias_2)

    def norm_1(value: Tensor) -> Tensor:
        return F.layer_norm(value, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def norm_2(value: Tensor) -> Tensor:
        return F.layer_norm(value, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    if norm_first:
        x = x + attend(norm_1(x))
        return x + feed(norm_2(x))
    x = norm_1(x + attend(x))
    return norm_2(x + feed(x))
