"""Lowering of placeholders in a module with assigned layouts, as `layout_pass.choose_layout` decides."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import re
from typing import Any

import triton.language as tl

from bitwise_triton.errors import CaptureError
from bitwise_triton.reductions.kernels import steps as reduction_steps
from bitwise_triton.reductions.layout_pass import Layout, LayoutChoice, choose_layout, covers
from bitwise_triton.reductions.placeholder import LoweredReduction, Placeholder, parse_placeholder

_TYPE = re.compile(r"tensor<((?:\d+x)+)([a-z]\w*)")
_ELEMENTS = {
    "f16": tl.float16, "bf16": tl.bfloat16, "f32": tl.float32, "f64": tl.float64, "i32": tl.int32, "i64": tl.int64,
}  # fmt: skip


def lower_placeholders(module: Any, options: Any, *, move: bool) -> list[LoweredReduction]:
    """Lower the placeholders of a module in Triton's GPU dialect, with layout conversions if `move`.

    Raises CaptureError if one is left, and RuntimeError if the module is invalid afterwards.
    """
    from triton._C.libtriton import gluon_ir, ir, passes
    from triton.language.semantic import TritonSemantic

    placeholders = _placeholders(module)
    if not placeholders:
        return []
    builder = gluon_ir.GluonOpBuilder(module.context)
    builder.options = options
    semantic = TritonSemantic(builder)
    found = [_lower(operation, placeholder, semantic, move) for operation, placeholder in placeholders]
    manager = ir.pass_manager(module.context)
    # The placeholders have no uses left.
    passes.common.add_canonicalizer(manager)
    manager.run(module, "pinned_reductions")
    if _placeholders(module):
        raise CaptureError("A pinned reduction could not be lowered in its layout; report this, and use layout=False.")
    return found


def _placeholders(module: Any) -> list[tuple[Any, Placeholder]]:
    found: list[tuple[Any, Placeholder]] = []
    inside: list[Placeholder] = []

    def see(operation: Any) -> None:
        # The walk visits the operations of a region before their parent.
        if operation.get_name() == "tt.elementwise_inline_asm":
            placeholder = parse_placeholder(operation.get_str_attr("asm_string") or "")
            inside.extend([placeholder] if placeholder else [])
        elif operation.get_name() == "tt.reduce":
            if inside:
                found.append((operation, inside[0]))
            inside.clear()

    module.walk(see)
    return found


def _lower(operation: Any, placeholder: Placeholder, semantic: Any, move: bool) -> LoweredReduction:
    """Lower one placeholder and replace its uses by the result."""
    builder = semantic.builder
    builder.set_insertion_point_after(operation)
    values = [_tensor(operation.get_operand(number)) for number in range(operation.get_num_operands())]
    shape, combine = reduction_steps.shape_of(values[0]), reduction_steps.combine_function(placeholder.kind, semantic)
    chosen = LayoutChoice(0, 0, reason="the pass is off")
    if move:
        size = sum(value.type.scalar.primitive_bitwidth // 8 for value in values)
        chosen = choose_layout(_layout(values[0], shape, builder), shape, placeholder.axis, placeholder.steps, size)
    if chosen.move is not None:
        values = reduction_steps.apply_steps(
            values, placeholder.axis, placeholder.steps[: chosen.before], combine, semantic
        )
        values = [_moved(value, chosen.move, builder) for value in values]
    rest = placeholder.steps[chosen.before :]
    values = reduction_steps.apply_steps(
        values, placeholder.axis, rest, combine, semantic, ends=True, first=chosen.before
    )
    for number, value in enumerate(values):
        result, handle = operation.get_result(number), value.handle
        if str(result.get_type()) != str(handle.get_type()):
            handle = builder.create_convert_layout(result.get_type(), handle)
        result.replace_all_uses_with(handle)
    return LoweredReduction(placeholder, values[0].type.scalar.name, chosen)


def _tensor(value: Any) -> Any:
    match = _TYPE.match(str(value.get_type()))
    assert match is not None
    return tl.tensor(value, tl.block_type(_ELEMENTS[match[2]], [int(extent) for extent in match[1][:-1].split("x")]))


def _layout(value: Any, shape: list[int], builder: Any) -> Layout:
    found = builder.get_gluon_layout_from_tensor(value.handle)
    linear = builder.to_linear_layout(found._to_ir(builder), shape)
    names = ("reg_bases", "lane_bases", "warp_bases", "block_bases")
    return Layout(*(tuple(tuple(int(part) for part in basis) for basis in getattr(linear, name)) for name in names))


def _moved(value: Any, layout: Layout, builder: Any) -> Any:
    bases = [[list(basis) for basis in part] for part in (layout.registers, layout.lanes, layout.warps, layout.blocks)]
    shape = reduction_steps.shape_of(value)
    if not covers(layout, shape):
        raise CaptureError(f"The layout pass loses elements of a tensor of {shape}; report this, and use layout=False.")
    attribute = builder.get_distributed_linear_layout(*bases, shape)
    kind = builder.get_distributed_ty(value.type.scalar.to_ir(builder), shape, attribute)
    return tl.tensor(builder.create_convert_layout(kind, value.handle), value.type)
