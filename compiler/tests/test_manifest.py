"""Manifest arguments from types and values, without a compiler."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("triton")

from bitwise_triton import Buffer, CaptureError, manifest
from bitwise_triton.arguments import PointerStandIn, pointer_address

PTX = """
.visible .entry other(
	.param .u64 other_param_0
)
.visible .entry k(
	.param .u64 .ptr .global .align 1 k_param_0,
	.param .align 64 .b8 k_param_1[128],
	.param .u32 k_param_2,
	.param .f32 k_param_3,
	.param .u8 k_param_4,
	.param .align 2 .b8 k_param_5[2],
	.param .u64 .ptr .global .align 1 k_param_6
)
.reqntid 128
{
"""

AMDGCN = """
amdhsa.kernels:
  - .agpr_count:     0
    .args:
      - .address_space:  global
        .offset:         0
        .size:           8
        .value_kind:     global_buffer
      - .offset:         8
        .size:           4
        .value_kind:     by_value
      - .offset:         16
        .size:           8
        .value_kind:     hidden_block_count_x
    .group_segment_fixed_size: 0
    .name:           k
"""


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("i32", 3000, {"i32": 3000}),
        ("i32", -1, {"i32": -1}),
        ("i64", 1 << 40, {"i64": 1 << 40}),
        ("u64", (1 << 64) - 1, {"u64": (1 << 64) - 1}),
        ("u1", True, {"i1": 1}),
        ("i8", 255 - 256, {"i8": -1}),
        ("fp32", 0.1, {"fp32": 0.100000001490116119384765625}),
        ("fp32", 1e300, {"fp32": "inf"}),
        ("fp16", 0.1, {"fp16": 0.0999755859375}),
        ("fp64", 0.1, {"fp64": 0.1}),
        # 1.00390625 is halfway between two bf16 numbers, 1.005859375 is above it: both are truncated, not rounded.
        ("bf16", 1.005859375, {"bf16": 1.0}),
        ("bf16", -1.0078125, {"bf16": -1.0078125}),
    ],
)
def test_a_scalar_is_what_the_launcher_passes(kind: str, value: Any, expected: dict[str, Any]) -> None:
    assert manifest.scalar("x", kind, value) == expected


@pytest.mark.parametrize(("kind", "value"), [("i32", 1 << 31), ("u8", -1), ("i8", 128), ("fp16", 65520.0)])
def test_a_scalar_beyond_its_type_is_rejected(kind: str, value: Any) -> None:
    with pytest.raises(CaptureError, match=r"'x' is .* cannot hold"):
        manifest.scalar("x", kind, value)


def test_constants_are_omitted_and_tuples_flattened() -> None:
    pointer = PointerStandIn(Buffer("X", "float16", offset=32))
    signature = {"x": "*kfp16", "block": "constexpr", "pair": ("i32", ("constexpr", "fp32")), "none": "*i8"}
    values = {"x": pointer, "block": 64, "pair": (7, (1, 0.5)), "none": PointerStandIn(Buffer(None, "i8"))}
    assert manifest.manifest_arguments(signature, values, None) == [
        {"buffer": "X", "dtype": "fp16", "offset": 32},
        {"i32": 7},
        {"fp32": 0.5},
        {"buffer": None},
    ]


def descriptor(**more: Any) -> Any:
    base = PointerStandIn(Buffer("A", "fp16"))
    return SimpleNamespace(base=base, shape=[128, 256], strides=[256, 1], block_shape=[64, 128], padding="nan", **more)


TAIL = [{"i32": 128}, {"i32": 256}, {"i64": 256}, {"i64": 1}]


def test_tensor_map_takes_box_and_swizzle_from_the_compiled_kernel() -> None:
    compiled = [{"swizzle": 2, "elem_size": 2, "elem_type": 6, "block_size": [64, 32], "fp4_padded": False}]
    found = manifest.manifest_arguments({"a": "tensordesc<fp16[64, 128]>"}, {"a": descriptor()}, compiled)
    assert found == [
        {
            "tensor_map": {
                "buffer": "A",
                "dtype": "fp16",
                "shape": [128, 256],
                "strides": [256, 1],
                "block": [64, 32],
                "swizzle": 64,
                "padding": "nan",
            }
        },
        *TAIL,
    ]


def test_descriptor_without_a_tensor_map_passes_shape_and_strides_twice() -> None:
    wide = [{"i64": 128}, {"i64": 256}, {"i64": 256}, {"i64": 1}, {"i1": 1}]
    kind = {"a": "tensordesc<fp16[64, 128]>"}
    head = {"buffer": "A", "dtype": "fp16"}
    assert manifest.manifest_arguments(kind, {"a": descriptor()}, []) == [head, *wide, *TAIL]
    newer = descriptor(round_f32_to_tf32=False)
    assert manifest.manifest_arguments(kind, {"a": newer}, []) == [head, *wide, {"i1": 0}, *TAIL]


def test_an_im2col_tensor_map_is_rejected() -> None:
    compiled = [{"swizzle": 0, "block_size": [64, 32], "is_im2col": True}]
    with pytest.raises(CaptureError, match="'a' is an im2col tensor map"):
        manifest.manifest_arguments({"a": "tensordesc<fp16[64, 128]>"}, {"a": descriptor()}, compiled)


def test_parameter_sizes_are_read_from_the_named_kernel() -> None:
    assert manifest.ptx_parameter_bytes(PTX, "k") == [8, 128, 4, 4, 1, 2, 8]
    assert manifest.ptx_parameter_bytes(PTX, "other") == [8]
    assert manifest.amdgcn_parameter_bytes(AMDGCN, "k") == [8, 4]
    for read, text in ((manifest.ptx_parameter_bytes, PTX), (manifest.amdgcn_parameter_bytes, AMDGCN)):
        with pytest.raises(CaptureError, match="'missing'"):
            read(text, "missing")


@pytest.mark.parametrize("sizes", [[8], [8, 4, 8, 8], [8, 8, 4, 8, 8], [8, 4, 8, 8, 8, 8], [8, 4, 4, 4], [8, 4]])
def test_arguments_that_do_not_match_the_parameters_are_rejected(sizes: list[int]) -> None:
    arguments: list[dict[str, Any]] = [{"buffer": "X", "dtype": "fp32"}, {"i32": 4}, {"fp32": 1.0}]
    with pytest.raises(CaptureError, match="one configuration: the assembly takes"):
        manifest.check_parameters("one configuration", arguments, sizes)


@pytest.mark.parametrize("sizes", [[8, 4, 4], [8, 4, 4, 8], [8, 4, 4, 8, 8]])
def test_scratch_pointers_may_follow(sizes: list[int]) -> None:
    manifest.check_parameters("it", [{"buffer": "X", "dtype": "fp32"}, {"i32": 4}, {"fp32": 1.0}], sizes)


@pytest.mark.parametrize(
    ("alignment", "offset", "divisible"),
    [(16, 0, True), (256, 32, True), (16, 8, False), (8, 0, False), (4, 12, False), (8, 8, False), (1, 16, False)],
)
def test_a_pointer_is_divisible_only_if_its_description_says_so(alignment: int, offset: int, divisible: bool) -> None:
    address = pointer_address(Buffer("X", "fp32", offset=offset, alignment=alignment))
    assert (address % 16 == 0) is divisible
