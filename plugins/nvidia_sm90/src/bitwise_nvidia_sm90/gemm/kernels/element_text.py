"""The PTX of a dependence tree on one element: an instruction for each node, in registers of one prefix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bitwise_core.ir import Constant, Load, Node, Operation, Select, descendants
from bitwise_nvidia_sm90.gemm.plan import UnsupportedGEMM

_FORMS = {"fp32": "f32", "fp16": "f16", "bf16": "bf16"}
_COMPARISONS = frozenset({"ge", "gtu", "ltu", "gt", "lt"})
_WIDENED = "convert.b32.u16"


@dataclass(frozen=True, slots=True)
class ElementText:
    """Lines of PTX, and the register that holds the result: %r_ for 32 and 8 bits, %h_ for 16."""

    lines: tuple[str, ...]
    result: str


def element_text(tree: Node, leaves: Mapping[str, str], prefix: str) -> ElementText:
    """Return the PTX of a tree whose loads are in the registers `leaves`, by the names of their buffers.

    Raises UnsupportedGEMM for an operation without an instruction.
    """
    names: dict[Node, str] = {}
    lines: list[str] = []
    for node in descendants(tree):
        if isinstance(node, Load):
            names[node] = leaves[node.buffer]
        elif isinstance(node, Constant) and node.bits == 16:  # instructions of fp16 have no immediate operands
            names[node] = f"%h_{prefix}{len(names)}"
            lines.append(f"mov.b16 {names[node]}, 0x{node.value:x};")
        elif isinstance(node, Constant):
            names[node] = f"0x{node.value:x}"
        else:
            kind = "p" if node.bits == 1 else "h" if node.bits == 16 else "r"
            names[node] = f"%{kind}_{prefix}{len(names)}"
            lines.extend(_instructions(node, names))
    if isinstance(tree, Load):  # a result is a register of its own
        names[tree] = f"%{'h' if tree.bits == 16 else 'r'}_{prefix}0"
        lines.append(f"mov.b{16 if tree.bits == 16 else 32} {names[tree]}, {leaves[tree.buffer]};")
    return ElementText(tuple(lines), names[tree])


def _instructions(node: Node, names: Mapping[Node, str]) -> Iterator[str]:
    target = names[node]
    operands = [names[each] for each in node.children]
    floats = [f"0f{each.value:08X}" if isinstance(each, Constant) else names[each] for each in node.children]
    if isinstance(node, Select):
        predicate, yes, no = operands
        yield f"selp.b32 {target}, {yes}, {no}, {predicate};"
        return
    if not isinstance(node, Operation):
        raise UnsupportedGEMM(f"an epilogue with a {node.kind} node: these kernels compute operations")
    if node.name == "shl.b32" and _is_widened(node.children[0]):
        (inner,) = node.children[0].children
        if operands[1] == "0x10":
            yield f"mov.b32 {target}, {{0, {names[inner]}}};"
            return
    verb, *rest = node.name.partition("@")[0].split(".")
    yield from _operation(verb, rest, target, floats if "fp32" in rest else operands)


def _is_widened(node: Node) -> bool:
    return isinstance(node, Operation) and node.name == _WIDENED


def _operation(verb: str, rest: list[str], target: str, operands: list[str]) -> Iterator[str]:
    listed = ", ".join(operands)
    if verb == "convert":
        yield from _conversion(rest, target, listed)
    elif verb in ("shl", "and", "or"):
        yield f"{verb}.b32 {target}, {listed};"
    elif [verb, *rest] == ["shr", "u32"]:
        yield f"shr.u32 {target}, {listed};"
    elif [verb, *rest] == ["isnan", "fp32"]:
        yield f"testp.notanumber.f32 {target}, {listed};"
    elif verb in _COMPARISONS and rest == ["fp32"]:
        yield f"setp.{verb}.f32 {target}, {listed};"
    elif verb in ("min", "max") and rest == ["nan", "fp32"]:
        yield f"{verb}.NaN.f32 {target}, {listed};"
    elif rest[-1:] == ["fp32"] and verb in ("add", "sub", "mul", "fma", "div", "neg", "abs", "ex2", "rcp"):
        modifiers = ["rm" if each == "rd" else each for each in rest[:-1]]
        yield f"{'.'.join((verb, *modifiers, 'f32'))} {target}, {listed};"
    elif rest == ["rn", "fp16"] and verb in ("add", "mul", "fma"):
        yield f"{verb}.rn.f16 {target}, {listed};"
    else:
        raise UnsupportedGEMM(f"an epilogue with {'.'.join((verb, *rest))}: these kernels have no instruction")


def _conversion(rest: list[str], target: str, operand: str) -> Iterator[str]:
    match rest:
        case ["rn", ("fp16" | "bf16") as form, "fp32"]:
            yield f"cvt.rn.{_FORMS[form]}.f32 {target}, {operand};"
        case ["fp32", "fp16"]:
            yield f"cvt.f32.f16 {target}, {operand};"
        case ["rn", "satfinite", ("e4m3" | "e5m2") as form, "fp32"]:
            half = target.replace("%r_", "%h_")
            yield f"cvt.rn.satfinite.{form}x2.f32 {half}, 0f00000000, {operand};"
            yield f"cvt.u32.u16 {target}, {half};"
        case ["b32", "u16"]:
            yield f"cvt.u32.u16 {target}, {operand};"
        case ["b32", "u8"] | ["b8", "b32"]:
            yield f"mov.b32 {target}, {operand};"
        case _:
            raise UnsupportedGEMM(f"an epilogue with convert.{'.'.join(rest)}: these kernels have no instruction")
