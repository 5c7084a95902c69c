"""Every entry of the kernel table against numpy or a definition, in all dtypes; what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from torch import Tensor

from hios.core.merging import ACTIVATIONS
from hios.errors import UnsupportedError
from hios.kernels import build
from hios.kernels.table import ALLOCATES, IN_PLACE, KERNELS, kernel
from tests.kernels.table import CHECKS
from tests.operators import CONVOLUTION


def _run(function: str, attributes: dict[str, Any], *arguments: Any) -> Any:
    """Run a kernel and look whether it left its arguments alone, and shares memory only where it may."""
    before = [argument.clone() if isinstance(argument, Tensor) else argument for argument in arguments]
    result = build(function, attributes, "test")(*arguments)
    for argument, old in zip(arguments, before, strict=True):
        if isinstance(argument, Tensor):
            torch.testing.assert_close(argument, old, rtol=0, atol=0, equal_nan=True)
    if function in ALLOCATES:
        own = result.untyped_storage().data_ptr()
        tensors = [argument for argument in arguments if isinstance(argument, Tensor)]
        assert not result.numel() or own not in [tensor.untyped_storage().data_ptr() for tensor in tensors]
    return result


@pytest.mark.parametrize("name", ["max", "mean", "min", "prod", "std", "sum", "variance"])
def test_reductions_of_a_number_are_new(name: str) -> None:
    """A number has no axes, and yet what reduces it returns memory of its own, which may then be overwritten."""
    _run(f"relax.{name}", {"axis": None, "keepdims": False}, torch.tensor(2.0))
    _run(f"relax.{name}", {"axis": [], "keepdims": False}, torch.tensor(2.0))


@pytest.mark.parametrize(
    ("function", "attributes", "indices"),
    [
        ("relax.index_tensor", {}, [torch.tensor(1)]),
        ("relax.gather_nd", {"batch_dims": 0}, [torch.tensor([1])]),
        ("relax.gather_nd", {"batch_dims": 0}, [torch.zeros(0, dtype=torch.int64)]),
    ],
)
def test_parts_by_numbers_may_be_views(function: str, attributes: dict[str, Any], indices: list[Tensor]) -> None:
    """An index without dimensions, or none at all, selects a part or all of a tensor, which nothing may overwrite."""
    assert _run(function, attributes, torch.ones(2, 3), *indices).sum() >= 3


def _parts(result: Any) -> list[Tensor]:
    return list(result) if isinstance(result, tuple | list) else [result]


@pytest.mark.parametrize("function", sorted(KERNELS))
@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data())
def test_kernel_equals_definition(function: str, data: st.DataObject) -> None:
    """Whatever shapes and attributes, a kernel gives what its definition gives and leaves its arguments alone."""
    assert function in CHECKS, f"{function} has no check: add one to tests/kernels/table"
    actual, expected = CHECKS[function](data.draw, _run)
    for ours, theirs in zip(_parts(actual), _parts(expected), strict=True):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_every_check_has_a_kernel() -> None:
    """No check is left of an entry that is gone."""
    assert set(CHECKS) == set(KERNELS)


#: Relative and absolute error of a result, as a part of its largest number.
_TOLERANCE = {torch.float64: 1e-5, torch.float16: 1e-2, torch.bfloat16: 6e-2}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", list(_TOLERANCE), ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("function", sorted(KERNELS))
def test_kernel_in_other_precision(function: str, dtype: torch.dtype) -> None:
    """On numbers of another precision a kernel gives the same, in that precision."""
    ran, lacking = list[str](), list[str]()

    @settings(max_examples=5, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.filter_too_much])
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        CHECKS[function](data.draw, run)
        ran.append(function)

    def run(name: str, attributes: dict[str, Any], *arguments: Any) -> Any:
        rounded = [_in(dtype, argument) for argument in arguments]
        expected = _run(name, attributes, *(_in(torch.float32, argument) for argument in rounded))
        try:
            result = _run(name, attributes, *rounded)
        except (RuntimeError, NotImplementedError) as error:
            if "not implemented for" not in str(error):
                raise
            lacking.append(name)
            if ran or len(lacking) < 20:
                reject()  # it may have one for other shapes or attributes
            pytest.skip(f"{name}: torch has no kernel for {dtype} on this CPU")
        for ours, theirs in zip(_parts(result), _parts(expected), strict=True):
            if theirs.dtype == torch.float32 and "float32" not in (
                attributes.get("dtype"),
                attributes.get("out_dtype"),
            ):
                assert ours.dtype == (dtype if any(map(_is_fraction, arguments)) else torch.float32)
            else:
                assert ours.dtype == theirs.dtype
            finite = theirs[theirs.isfinite()].double()
            size = max(1.0, finite.abs().max().item() if finite.numel() else 0.0)
            tolerance = _TOLERANCE[dtype]
            torch.testing.assert_close(
                ours.double(), theirs.double(), rtol=tolerance, atol=tolerance * size, equal_nan=True
            )
        return expected

    check()


def _is_fraction(argument: Any) -> bool:
    return isinstance(argument, Tensor) and argument.is_floating_point()


def _in(dtype: torch.dtype, argument: Any) -> Any:
    return argument.to(dtype) if _is_fraction(argument) else argument


@pytest.mark.parametrize("function", sorted(IN_PLACE))
def test_in_place_equals_plain(function: str) -> None:
    """What may overwrite its argument gives the same as what does not, in the argument's memory."""
    x, attributes = torch.linspace(-3, 3, 12).reshape(3, 4), {"alpha": 0.2}
    more = (-1.0, 2.0) if function == "relax.clip" else ()
    expected = build(function, attributes, "test")(x, *more)
    target = x.clone()
    output = IN_PLACE[function](attributes)(target, *more)
    torch.testing.assert_close(output, expected, rtol=1e-6, atol=0)
    assert output.data_ptr() == target.data_ptr()


def test_merges_overwrite_with_every_activation() -> None:
    """Activations that merged convolutions may end with have a kernel that overwrites."""
    assert set(IN_PLACE) >= ACTIVATIONS


def test_kernels_cast_to_the_dtype_that_relax_states() -> None:
    """A float16 product whose output is float32 in Relax gives float32."""
    x = torch.ones(2, 2, dtype=torch.float16)
    assert build("relax.matmul", {"out_dtype": "float32"}, "test")(x, x).dtype == torch.float32
    convolution = build("relax.nn.conv2d", {**CONVOLUTION, "out_dtype": "float32"}, "test")
    assert convolution(x[None, None], x[None, None]).dtype == torch.float32


def test_max_pool_takes_wide_padding() -> None:
    """More padding than half a window, which torch's own pool refuses, reads minus infinity."""
    run = build("relax.nn.max_pool2d", {**_POOL, "padding": [2, 1, 2, 1]}, "test")
    result = run(torch.tensor([[[[-1.0, -2.0]]]]))
    expected = [[-torch.inf] * 3, [-1.0, -1.0, -2.0], [-1.0, -1.0, -2.0], [-torch.inf] * 3]
    assert result.tolist() == [[expected]]


_POOL = {"pool_size": [2, 2], "ceil_mode": False, "count_include_pad": True, **CONVOLUTION}
_RESIZE = {
    "shape": [4, 4],
    "method": "linear",
    "coordinate_transformation_mode": "half_pixel",
    "rounding_method": "round",
}
_AFFINE = {"epsilon": 1e-5, "center": True, "scale": True}
_PAD = {"pad_width": [0, 0, 1, 1], "pad_value": 0.0, "pad_mode": "constant"}
_TOPK = {"k": 1, "axis": 0, "largest": True, "dtype": "int64", "ret_type": "both"}
_ATTENTION = {"scale": None, "causal_mask": None, "window_size": None}


@pytest.mark.parametrize(
    ("function", "attributes", "message"),
    [
        ("nn.conv2d", {**CONVOLUTION, "data_layout": "NHWC"}, "data_layout NHWC is not supported, only NCHW"),
        ("nn.conv2d", {**CONVOLUTION, "kernel_layout": "HWIO"}, "kernel_layout HWIO is not supported, only OIHW"),
        ("nn.conv2d", {**CONVOLUTION, "out_layout": "NHWC"}, "out_layout NHWC is not supported, only NCHW"),
        (
            "nn.conv2d",
            {**CONVOLUTION, "out_dtype": "float99"},
            "out_dtype float99 is not supported, only dtypes of torch",
        ),
        (
            "nn.conv2d_transpose",
            {**CONVOLUTION, "output_padding": [0, 0], "padding": [0, 0, 1, 1]},
            r"padding \[0, 0, 1, 1\] is not supported, only equal padding on both sides",
        ),
        ("nn.max_pool2d", {**_POOL, "layout": "NHWC"}, "layout NHWC is not supported, only NCHW"),
        ("nn.avg_pool2d", {**_POOL, "layout": "NHWC"}, "layout NHWC is not supported, only NCHW"),
        (
            "nn.avg_pool2d",
            {**_POOL, "padding": [0, 0, 1, 1], "count_include_pad": False},
            r"padding \[0, 0, 1, 1\] is not supported",
        ),
        ("nn.avg_pool2d", {**_POOL, "padding": [2, 2, 2, 2]}, r"padding \[2, 2, 2, 2\] is not supported, only half"),
        ("nn.avg_pool2d", {**_POOL, "dilation": [2, 1]}, r"dilation \[2, 1\] is not supported, only 1"),
        ("nn.adaptive_avg_pool2d", {"output_size": [1, 1], "layout": "NHWC"}, "layout NHWC is not supported"),
        ("nn.adaptive_avg_pool2d", {"output_size": None}, "output_size None is not supported, only a size"),
        ("nn.batch_norm", {"axis": 3, "epsilon": 1e-5}, "axis 3 is not supported, only 1"),
        ("nn.batch_norm", {"axis": 1, "epsilon": 1e-5, "training": True}, "training True is not supported, only False"),
        ("nn.layer_norm", {**_AFFINE, "axes": [-1], "center": False}, "center False is not supported, only True"),
        ("nn.group_norm", {**_AFFINE, "num_groups": 1, "axes": [2], "channel_axis": 2}, "channel_axis 2 is not"),
        ("nn.instance_norm", {**_AFFINE, "axes": [2], "channel_axis": 2}, "channel_axis 2 is not supported, only 1"),
        ("nn.pad", {**_PAD, "pad_mode": "symmetric"}, "pad_mode symmetric is not supported, only constant or reflect"),
        ("astype", {"dtype": "float99"}, "dtype float99 is not supported, only dtypes of torch"),
        ("astype", {"dtype": "void"}, "dtype void is not supported, only a dtype of torch"),
        ("take", {"axis": 0, "mode": "nan"}, "mode nan is not supported, only fast, clip or wrap"),
        ("gather_nd", {"batch_dims": 1}, "batch_dims 1 is not supported, only 0"),
        ("scatter_elements", {"axis": 0, "reduction": "xor"}, "reduction xor is not supported, only update, add, mul"),
        ("scatter_nd", {"reduction": "max"}, "reduction max is not supported, only update or add"),
        ("cumsum", {"axis": 0, "dtype": None, "exclusive": True}, "exclusive True is not supported, only False"),
        ("topk", {**_TOPK, "ret_type": "neither"}, "ret_type neither is not supported, only both, values or indices"),
        ("nn.attention", {**_ATTENTION, "window_size": 4}, "window_size 4 is not supported, only None"),
        ("nn.attention", {**_ATTENTION, "causal_mask": "Left"}, "causal_mask Left is not supported, only TopLeft"),
        ("image.resize2d", {**_RESIZE, "layout": "NHWC"}, "layout NHWC is not supported, only NCHW"),
        ("image.resize2d", {**_RESIZE, "method": "area"}, "method area is not supported, only nearest_neighbor"),
        ("image.resize2d", {**_RESIZE, "out_dtype": "float16"}, "out_dtype float16 is not supported, only None"),
        ("image.resize2d", {**_RESIZE, "method": "cubic", "cubic_alpha": -0.5}, "cubic_alpha -0.5 is not supported"),
        (
            "image.resize2d",
            {**_RESIZE, "coordinate_transformation_mode": "asymmetric"},
            "coordinate_transformation_mode asymmetric is not supported, only half_pixel or align_corners",
        ),
        (
            "image.resize2d",
            {**_RESIZE, "shape": [1, 4], "coordinate_transformation_mode": "pytorch_half_pixel"},
            "coordinate_transformation_mode pytorch_half_pixel is not supported",
        ),
        (
            "image.resize2d",
            {**_RESIZE, "method": "nearest_neighbor", "rounding_method": "ceil"},
            "rounding_method half_pixel and ceil is not supported, only half_pixel and round, or",
        ),
    ],
)
def test_unsupported_attributes_are_named(function: str, attributes: dict[str, Any], message: str) -> None:
    """Attributes that the table cannot run name the operator of the graph, the function and the value."""
    with pytest.raises(UnsupportedError, match=rf"operator stem: relax\.{function}: .*{message}"):
        build(f"relax.{function}", attributes, "stem")


@pytest.mark.parametrize(
    ("function", "attributes"),
    [
        ("nn.group_norm", {**_AFFINE, "num_groups": 1, "axes": [2], "channel_axis": 1}),
        ("nn.instance_norm", {**_AFFINE, "axes": [2], "channel_axis": 1}),
        ("nn.instance_norm", {**_AFFINE, "axes": [0, 2], "channel_axis": 1}),
    ],
)
def test_normalizing_some_axes_is_refused(function: str, attributes: dict[str, Any]) -> None:
    """Torch normalizes all axes behind the channels; a tensor that has more than those named is refused."""
    run = build(f"relax.{function}", attributes, "stem")
    with pytest.raises(UnsupportedError, match=r"axes \[2\] of a tensor of 4 dimensions are not supported"):
        run(torch.ones(1, 2, 3, 4), torch.ones(2), torch.ones(2))


def test_unknown_function_is_named() -> None:
    """A function without an entry says where to add one."""
    message = (
        r"operator stem: the kernel table has no entry for relax\.vision\.roi_align; add a builder to hios/kernels"
    )
    with pytest.raises(UnsupportedError, match=message):
        build("relax.vision.roi_align", {}, "stem")


def test_table_refuses_duplicates() -> None:
    """A function stands in the table once."""
    before = dict(KERNELS)
    with pytest.raises(ValueError, match=r"has an entry for relax\.add already"):
        kernel("relax.add")(before["relax.add"])
    assert before == KERNELS
