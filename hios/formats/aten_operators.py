"""What schemas of ATen operators do not say, and which of them the files of strangers may name."""

from __future__ import annotations

import functools
import re

import torch

_OPERATOR = re.compile(r"torch\.ops\.aten\.(\w+)\.(\w+)", re.ASCII)
_ARGUMENT = re.compile(r"((Optional|List)\[)*(Tensor|int|float|bool|number|complex|Device|Generator)\]*")
#: Arguments of ATen operators that are words, not names of files or text to work on.
_WORDS = re.compile(
    "UPLO|approximate|assert_msg|driver|equation|indexing|interpolation|mode|norm|ord|pad_mode|padding|padding_side|reduce|"
    "rounding_mode|side"
)
#: Operators that update running statistics, their fourth and fifth argument, if the one at this position is true.
UPDATES_STATISTICS = {
    f"aten::{name}": 5 for name in ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "instance_norm")
}
#: Names of operators that rely on indices or sizes that they do not check, so that wrong ones reach other memory.
_UNCHECKED = re.compile(
    r"sparse|nested|backward|segment_reduce|mkldnn_rnn|_convert_indices|_copy_from|"
    r"unsafe_(index|masked)|(?:^|_)(?:coo|csr|csc|bsr|bsc)(?:_|$)"
)


@functools.cache
def is_harmless(target: str) -> bool:
    """Whether a target is an ATen operator on tensors and numbers: no files, no other objects, no unchecked memory."""
    parts = _OPERATOR.fullmatch(target)
    if parts is None:
        return False
    name, overload = parts.groups()
    if _UNCHECKED.search(name):
        return False
    try:
        schema = torch._C._get_schema(f"aten::{name}", "" if overload == "default" else overload)
    except RuntimeError:
        return False  # unknown; also attributes of torch's own objects, which its loader would take
    return "..." not in str(schema) and all(
        _ARGUMENT.fullmatch(str(argument.type)) or (_WORDS.fullmatch(argument.name) and "str" in str(argument.type))
        for argument in schema.arguments
    )
