"""Pinning the reductions of a module in Triton's IR, as text.

A reduction whose combine is one addition or multiplication of floats is marked with its steps, which are made once its
layout is known. Of any other, every step becomes a reduction over two elements here. Such a combine may depend on
which operand comes first, so the index of the elements goes with them and puts the operands in ascending order; its
additions, subtractions and products are rounded one by one, since a compiler could contract them on one side only, and
its quotients and square roots are the correctly rounded ones, since an assembler turns a division by a number that it
knows into another operation. A combine with an operation that is not known to have one result stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bitwise_triton.reductions import order as orders
from bitwise_triton.reductions.order import AUTO, Chain, Order, OrderError, Pair, Step
from bitwise_triton.reductions.placeholder import Placeholder

_HEAD = re.compile(r'(?P<indent>\s*)(?P<name>%[\w$.-]+)(?::\d+)? = "tt\.reduce"\((?P<operands>[^)]*)\) (?P<rest>.*)\Z')
_AXIS = re.compile(r"<\{axis = (\d+) : i32\}> \(\{\Z")
_TAIL = re.compile(r"\s*\}\) : \((?P<types>.*)\) -> (?P<result>.*?)(?: loc\((?P<loc>.*)\))?\Z")
_TENSOR = re.compile(r"tensor<((?:\d+x)+)([a-z]\w*)>")
_BLOCK = re.compile(r"(%[\w$.-]+): ([a-z]\w*)")
_STEP = re.compile(
    r"\s*(?P<name>%[\w$.-]+) = arith\.(?P<kind>add|sub|mul)f (?P<a>\S+), (?P<b>\S+) (?:fastmath<\w+> )?: (?P<type>\w+)"
)
_RETURN = re.compile(r"\s*tt\.reduce\.return (?P<values>.*?) :")
_ALIAS = re.compile(r"(#loc\d*) = loc\((.*)\)\Z")
_FILE = re.compile(r'"((?:[^"\\]|\\.)+)":(\d+):\d+\Z')
_REORDER = re.compile(r"( = tt\.reshape %\S+)(?: allow_reorder| efficient_layout)+")
_REGISTERS = {"f16": "h", "f32": "r", "f64": "d"}
_FREE = re.compile(r"arith\.(maxnumf|minnumf|maximumf|minimumf) ")
_OPERATION = re.compile(r"(?:%\S+ = )?(?P<name>\w+\.\w+)")
_ROUNDED = re.compile(r"(%[\w$.-]+) = (?:arith\.div|math\.sqrt)f? (.*?) (?:fastmath<\w+> )?: (\w+)")
_LOAD = re.compile(r" = tt\.load .*!tt\.ptr<(?:bf|f)(8|16|32|64)>")
# What has one result, known numbers or not, in every compiler; arithmetic that rounds is written anew.
_EXACT = re.compile(
    r"arith\.(constant|cmp[fi]|select|(max|min)(numf|imumf|si|ui)|(add|sub|mul|and|or|xor)i|sh(li|rsi|rui)|ext(si|ui|f)|"
    r"trunc[if]|[su]itofp|negf|bitcast)\Z|math\.(absf|fma)\Z|tt\.(bitcast|precise_divf|precise_sqrt)\Z"
)
# The maximum of three in one instruction forgets the first where the second is a signalling NaN; of two in turn do not.
_SIGNALLING = "its maximum or minimum depends on the order where a number is a signalling NaN"
_REWRITTEN = frozenset(["arith.addf", "arith.subf", "arith.mulf", "arith.divf", "math.sqrt"])
_ASSEMBLY = re.compile(
    r'"(?:(?:add|sub|mul)\.rn\.f(?:16|32|64) \$0, \$1, \$2;|v_(?:add|sub|mul)_f(?:16|32|64) \$0, \$1, \$2|'
    r'mov\.b32 \$0, \$1;|v_mov_b32 \$0, \$1)"'
)


@dataclass(frozen=True)
class ReductionOutcome:
    """What became of one reduction: where it stands in the source, whether it is pinned, and if not, why not."""

    place: str
    pinned: bool
    reason: str = ""


@dataclass(frozen=True)
class _Reduction:
    name: str
    indent: str
    axis: int
    operands: tuple[str, ...]
    shape: tuple[int, ...]
    types: tuple[str, ...]
    arguments: tuple[str, ...]
    body: tuple[str, ...]
    result: str
    location: str


class _NotPinnable(Exception):
    """Why a reduction stays as it is, as a clause."""


def check_rewritable(order: Order) -> None:
    """Raises OrderError for an order with a chain, which a rewritten kernel cannot follow."""
    if order.text.strip() != AUTO and any(isinstance(step, Chain) for step in order.steps(1 << 30)):
        raise OrderError(f"The order {order.text!r} has a chain; kernels are rewritten to trees only.")


def rewrite(text: str, order: Order, backend: str) -> tuple[str, tuple[ReductionOutcome, ...]]:
    """A module's text with its reductions over floats pinned, and what became of each in order.

    `backend` is Triton's name, "cuda" or "hip". Reductions of integers alone, of one element, and those of a maximum or
    minimum alone have no order; they stay and are not listed, but for those of a maximum or minimum in "hip".
    Raises OrderError where `order` does not fold an extent.
    """
    # A reduction over all axes joins them in any order that suits the layout, unless it is told to keep theirs.
    lines, found, outcomes = _REORDER.sub(r"\1", text).splitlines(), [], []
    locations = {match[1]: match[2] for line in lines if (match := _ALIAS.match(line))}
    size = min((int(match[1]) // 8 for line in lines if (match := _LOAD.search(line))), default=4)
    place = 0
    while place < len(lines):
        line = lines[place]
        if '"tt.reduce"(' not in line:
            reason = _other_order(line, lines[place:])
            if reason:
                outcomes.append(ReductionOutcome(source_location(_location(lines[place:]), locations), False, reason))
            found.append(line)
            place += 1
            continue
        end = next((number for number in range(place, len(lines)) if _TAIL.match(lines[number])), len(lines) - 1)
        written = lines[place : end + 1]
        tail = _TAIL.match(lines[end])
        where = source_location(tail["loc"] if tail and tail["loc"] else "", locations)
        try:
            reduction = _read(written)
            if _orderless(reduction, backend):
                found.extend(written)
            else:
                last = reduction.axis == len(reduction.shape) - 1
                resolved = order.resolved(reduction.shape[reduction.axis], size, last=last)
                found.extend(_pinned_lines(reduction, resolved, backend, len(found)))
                outcomes.append(ReductionOutcome(where, True))
                if len(reduction.types) == 1 and not _kind(reduction):
                    lines[end + 1 :] = _renamed(lines[end + 1 :], reduction.name)
        except _NotPinnable as reason:
            found.extend(written)
            outcomes.append(ReductionOutcome(where, False, str(reason)))
        place = end + 1
    return "\n".join(found) + "\n", tuple(outcomes)


def _other_order(line: str, lines: Sequence[str]) -> str:
    """Why a line that is no reduction has an order of its own, as a clause; nothing where it has none."""
    if re.search(r"\btt\.atomic_rmw fadd,", line):
        return "its atomic additions come in the order in which blocks arrive"
    if re.search(r"= tt\.cat ", line):
        return "a concatenation puts its elements in an order that the compiler chooses"
    if '"tt.scan"(' in line and any(kind.startswith(("f", "bf")) for _, kind in _TENSOR.findall(_ending(lines))):
        return "a scan's order is the compiler's"
    return ""


def _ending(lines: Sequence[str]) -> str:
    """The line that ends the operation that `lines` begin with."""
    return next((line for line in lines if _TAIL.match(line)), "")


def _location(lines: Sequence[str]) -> str:
    text = _ending(lines) if '"tt.scan"(' in lines[0] else lines[0]
    match = re.search(r" loc\((.*)\)\Z", text)
    return match[1] if match else ""


def _renamed(lines: Sequence[str], name: str) -> list[str]:
    """The lines after a reduction that has gained a result: `name` is its first one, to the end of its function."""
    use = re.compile(re.escape(name) + r"(?![\w#$.-])")
    stop = next((number for number, line in enumerate(lines) if line.lstrip().startswith("tt.func ")), len(lines))
    return [use.sub(f"{name}#{0}", line) for line in lines[:stop]] + list(lines[stop:])


def source_location(location: str, aliases: Mapping[str, str]) -> str:
    """`file:line` of a location, of the outermost call where one was inlined into another."""
    seen: set[str] = set()
    while location and location not in seen:
        seen.add(location)
        match = _FILE.match(location)
        if match:
            return f"{match[1]}:{match[2]}"
        inner = re.match(r"callsite\((.*) at (.*)\)\Z", location) or re.match(r'()"[^"]*"\((.*)\)\Z', location)
        location = inner[2] if inner else aliases.get(location, "")
    return "an unknown line"


def _read(lines: Sequence[str]) -> _Reduction:
    head, tail = _HEAD.match(lines[0]), _TAIL.match(lines[-1])
    axis = _AXIS.match(head["rest"]) if head else None
    if head is None or tail is None or axis is None:
        raise _NotPinnable("it is written in a form that this version does not know")
    types = tuple(_TENSOR.findall(tail["types"]))
    operands = tuple(part.strip() for part in head["operands"].split(","))
    arguments = tuple(_BLOCK.findall(re.sub(r'loc\((?:[^()"]|"[^"]*"|\([^()]*\))*\)', "", lines[1])))
    body = tuple(lines[2:-1])
    if len(types) != len(operands) or len(arguments) != 2 * len(operands) or not body:
        raise _NotPinnable("its operands are not tensors of plain numbers")
    if any("({" in line or line.rstrip().endswith("{") for line in body):
        raise _NotPinnable("its combine function has control flow")
    for line in body[:-1]:
        _check(line)
    return _Reduction(
        name=head["name"],
        indent=head["indent"],
        axis=int(axis[1]),
        operands=operands,
        shape=tuple(int(extent) for extent in types[0][0].split("x")[:-1]),
        types=tuple(kind for _, kind in types),
        arguments=tuple(name for name, _ in arguments),
        body=body,
        result=tail["result"],
        location=f" loc({tail['loc']})" if tail["loc"] else "",
    )


def _check(line: str) -> None:
    """Raises _CannotPin for a line of a combine whose operation could have several results."""
    match = _OPERATION.match(line.strip())
    name = match["name"] if match else "unknown"
    if name == "tt.elementwise_inline_asm":
        if "pure = true" not in line:
            raise _NotPinnable("its combine function has assembly that is not pure")
        if not _ASSEMBLY.search(line):
            raise _NotPinnable("its combine function has assembly other than one rounded operation")
    elif re.match(r"(tt|ttg|gpu)\.(load|store|atomic\w*|call|print|assert|get_program_id)\Z", name):
        raise _NotPinnable("its combine function reads or writes state")
    elif name not in _REWRITTEN and _EXACT.match(name) is None:
        raise _NotPinnable(f"its combine function has the operation {name}, which may be rounded in several ways")


def _orderless(reduction: _Reduction, backend: str) -> bool:
    if reduction.shape[reduction.axis] == 1 or not any(kind.startswith(("f", "bf")) for kind in reduction.types):
        return True
    return backend != "hip" and len(reduction.body) == 2 and _FREE.search(reduction.body[0]) is not None


def _pinned_lines(reduction: _Reduction, order: Order, backend: str, number: int) -> list[str]:
    """The lines in the place of a reduction; `number` makes its names unlike any other's."""
    steps = order.steps(reduction.shape[reduction.axis])
    kind = _kind(reduction)
    if kind:
        return _placeholder_lines(reduction, Placeholder(kind, reduction.axis, tuple(_pairs(steps)), order.text))
    at, index = reduction.axis, f"%pinned{number}_index"
    shape, lines = list(reduction.shape), _index(reduction, index)
    values, types = [*reduction.operands, index], [*reduction.types, "i32"]
    before, after = shape[:at], shape[at + 1 :]
    for first, part in orders.reshape_groups(steps):
        last = first + len(part) == len(steps)
        length = reduction.shape[at] >> first
        extents, places = orders.split_extents(part, length)
        # The result of the last step has the axes that it had.
        ahead, behind = (before, after) if last else (orders.merged_extents(before), orders.merged_extents(after))
        target = [*ahead, *extents, *behind]
        if target != shape:
            names = [f"%pinned{number}_{first}c{part}" for part in range(len(values))]
            for name, value, type_ in zip(names, values, types, strict=True):
                change = f"{_tensor(shape, type_)} -> {_tensor(target, type_)}"
                lines.append(f"{reduction.indent}{name} = tt.reshape {value} : {change}{reduction.location}")
            shape, values = target, names
        for place, axis in enumerate(places, first):
            axis += len(ahead)
            narrow = [*shape[:axis], *shape[axis + 1 :]]
            name = reduction.name if place == len(steps) - 1 else f"%pinned{number}_{place}"
            lines += _reduce(reduction, name, values, axis, (shape, narrow, types), _ordered_body(reduction, backend))
            values = [f"{name}#{each}" for each in range(len(types))]
            shape = narrow
    return lines


def _pairs(steps: Sequence[Step]) -> list[Pair]:
    return [step for step in steps if isinstance(step, Pair)]


def _placeholder_lines(reduction: _Reduction, placeholder: Placeholder) -> list[str]:
    """The reduction with a mark for its combine."""
    (kind,), shape = reduction.types, reduction.shape
    a, b = reduction.arguments
    settings = '{constraints = "=r,r,r", packed_element = 1 : i32, pure = true}'
    body = [
        f"^bb0({a}: {kind}, {b}: {kind}):",
        f'%pinned = tt.elementwise_inline_asm "{placeholder.text}" {settings} {a}, {b} : {kind}, {kind} -> {kind}',
        f"tt.reduce.return %pinned : {kind}",
    ]
    narrow = [*shape[: placeholder.axis], *shape[placeholder.axis + 1 :]]
    return _reduce(reduction, reduction.name, reduction.operands, placeholder.axis, (shape, narrow, (kind,)), body)


def _reduce(
    reduction: _Reduction,
    name: str,
    values: Sequence[str],
    axis: int,
    types: tuple[Sequence[int], Sequence[int], Sequence[str]],
    body: Sequence[str],
) -> list[str]:
    """A reduction of `values` over `axis`; `types` are the extents before and after it, and the numbers' types."""
    before, after, kinds = types
    inputs, results = (", ".join(_tensor(extents, kind) for kind in kinds) for extents in (before, after))
    results = f"({results})" if len(kinds) > 1 else results
    head = f"{name}:{len(values)}" if len(values) > 1 else name
    return [
        f'{reduction.indent}{head} = "tt.reduce"({", ".join(values)}) <{{axis = {axis} : i32}}> ({{',
        *(reduction.indent + line.lstrip() for line in body),
        f"{reduction.indent}}}) : ({inputs}) -> {results}{reduction.location}",
    ]


def _tensor(shape: Sequence[int], kind: str) -> str:
    return f"tensor<{'x'.join(map(str, shape))}x{kind}>" if shape else kind


def _kind(reduction: _Reduction) -> str:
    """The kind of a reduction whose combine is one addition or multiplication, as a mark names it; else nothing."""
    step, end = _STEP.match(reduction.body[0]), _RETURN.match(reduction.body[-1])
    if len(reduction.body) != 2 or step is None or end is None or len(reduction.types) != 1:
        return ""
    if {step["a"], step["b"]} != set(reduction.arguments) or end["values"] != step["name"]:
        return ""
    if step["type"] != "bf16" and step["type"] not in _REGISTERS:
        return ""
    return {"add": "sum", "mul": "product"}.get(step["kind"], "")


def _index(reduction: _Reduction, name: str) -> list[str]:
    """The index along the axis, as a tensor of the operands' shape."""
    count, at = reduction.shape[reduction.axis], reduction.axis
    thin = [count if place == at else 1 for place in range(len(reduction.shape))]
    types = [_tensor(shape, "i32") for shape in ([count], thin, reduction.shape)]
    texts = [
        f"{name}0 = tt.make_range {{end = {count} : i32, start = 0 : i32}} : {types[0]}",
        f"{name}1 = tt.reshape {name}0 : {types[0]} -> {types[1]}",
        f"{name} = tt.broadcast {name}1 : {types[1]} -> {types[2]}",
    ]
    return [reduction.indent + text + reduction.location for text in texts]


def _ordered_body(reduction: _Reduction, backend: str) -> list[str]:
    """The region of any reduction with the elements' index as one more operand, which puts the sides in order."""
    count = len(reduction.types)
    kinds = [*reduction.types, "i32"]
    sides = [[f"%pinned_{side}{part}" for part in range(count + 1)] for side in "ab"]
    block = ", ".join(f"{name}: {kind}" for side in sides for name, kind in zip(side, kinds, strict=True))
    left, right = sides
    lines = [f"^bb0({block}):", f"%pinned_swap = arith.cmpi sgt, {left[count]}, {right[count]} : i32"]
    for part in range(count):
        first, second = reduction.arguments[part], reduction.arguments[count + part]
        lines.append(f"{first} = arith.select %pinned_swap, {right[part]}, {left[part]} : {kinds[part]}")
        lines.append(f"{second} = arith.select %pinned_swap, {left[part]}, {right[part]} : {kinds[part]}")
    lines.append(f"%pinned_least = arith.minsi {left[count]}, {right[count]} : i32")
    lines += [new for line in reduction.body[:-1] for new in _rounded(line, backend)]
    end = _RETURN.match(reduction.body[-1])
    if end is None:
        raise _NotPinnable("its combine function ends in a form that this version does not know")
    return [*lines, f"tt.reduce.return {end['values']}, %pinned_least : {', '.join(kinds)}"]


def _rounded(line: str, backend: str) -> list[str]:
    """A line of a region, an addition, subtraction or product with its own rounding.

    In bfloat16 it is done in float32 and rounded again, which is the same: float32 has more than twice as many digits.
    """
    quotient = _ROUNDED.match(line.strip())
    if quotient is not None:
        result, operands, kind = quotient.groups()
        if kind != "f32":
            raise _NotPinnable(f"its combine function divides or takes a root in {kind}")
        return [f"{result} = tt.precise_{'divf' if 'divf' in line else 'sqrt'} {operands} : f32"]
    if backend == "hip" and _FREE.search(line):
        raise _NotPinnable(_SIGNALLING)
    step = _STEP.match(line)
    if step is None:
        if re.search(r"= (arith\.(add|sub|mul|div)f|math\.sqrt) ", line):
            raise _NotPinnable("its combine function has arithmetic in a form that this version does not know")
        return [line]
    name, kind, result, a, b = step["kind"], step["type"], step["name"], step["a"], step["b"]
    if kind == "bf16":
        wide = [f"%pinned_{side}_{result[1:]}" for side in "abr"]
        return [
            *(f"{to} = arith.extf {value} : bf16 to f32" for to, value in zip(wide, (a, b), strict=False)),
            _instruction(name, "f32", wide[2], wide[0], wide[1], backend),
            f"{result} = arith.truncf {wide[2]} : f32 to bf16",
        ]
    if kind not in _REGISTERS:
        raise _NotPinnable(f"its combine function computes in {kind}")
    return [_instruction(name, kind, result, a, b, backend)]


def _instruction(name: str, kind: str, result: str, a: str, b: str, backend: str) -> str:
    if backend == "hip":
        register, text = "v", f"v_{name}_{kind} $0, $1, $2"
        if (name, kind) == ("sub", "f64"):
            text = "v_add_f64 $0, $1, -$2"
    else:
        register, text = _REGISTERS[kind], f"{name}.rn.{kind} $0, $1, $2;"
    settings = f'constraints = "={register},{register},{register}", packed_element = 1 : i32, pure = true'
    operands = f"{a}, {b} : {kind}, {kind} -> {kind}"
    return f'{result} = tt.elementwise_inline_asm "{text}" {{{settings}}} {operands}'
