"""Pinning of the reductions in a module of Triton IR, as text.

A reduction whose combine is a single floating-point addition or multiplication becomes a placeholder with its steps,
which is lowered once its layout is known. Of any other reduction, every step becomes a reduction over two elements
here. Such a combine may depend on the order of its operands, so the element index is reduced with them and puts the
operands in ascending order. Its additions, subtractions and products are rounded one by one, since a compiler could
contract them on one side only. Its quotients and square roots are the correctly rounded ones, since an assembler
rewrites a division by a known number. A combine with an operation that is not known to have a unique result is not
pinned.
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
# Operations with a unique result in every compiler, also after constant folding. Rounding arithmetic is rewritten.
_EXACT = re.compile(
    r"arith\.(constant|cmp[fi]|select|(max|min)(numf|imumf|si|ui)|(add|sub|mul|and|or|xor)i|sh(li|rsi|rui)|ext(si|ui|f)|"
    r"trunc[if]|[su]itofp|negf|bitcast)\Z|math\.(absf|fma)\Z|tt\.(bitcast|precise_divf|precise_sqrt)\Z"
)
# A three-operand maximum drops its first operand if the second is a signalling NaN; two binary ones do not.
_SIGNALLING = "its maximum or minimum depends on the order if an operand is a signalling NaN"
_REWRITTEN = frozenset(["arith.addf", "arith.subf", "arith.mulf", "arith.divf", "math.sqrt"])
_ASSEMBLY = re.compile(
    r'"(?:(?:add|sub|mul)\.rn\.f(?:16|32|64) \$0, \$1, \$2;|v_(?:add|sub|mul)_f(?:16|32|64) \$0, \$1, \$2|'
    r'mov\.b32 \$0, \$1;|v_mov_b32 \$0, \$1)"'
)


@dataclass(frozen=True)
class ReductionOutcome:
    """The outcome of one reduction: its source location, whether it is pinned, and the reason if not."""

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
    """Why a reduction is not pinned, as a clause."""


def check_rewritable(order: Order) -> None:
    """Raise OrderError for an order with a chain, which a rewritten kernel cannot implement."""
    if order.text.strip() != AUTO and any(isinstance(step, Chain) for step in order.steps(1 << 30)):
        raise OrderError(f"The order {order.text!r} has a chain; kernels are rewritten to trees only.")


def rewrite(text: str, order: Order, backend: str) -> tuple[str, tuple[ReductionOutcome, ...]]:
    """A module's text with its floating-point reductions pinned, and the outcome of each in order.

    `backend` is Triton's name, "cuda" or "hip". Reductions of integers only, of one element, and of a single maximum or
    minimum do not depend on the order; they are unchanged and not listed, except a maximum or minimum on "hip".
    Raises OrderError if `order` does not fold an extent.
    """
    # `allow_reorder` lets a reduction over all axes merge them in any order; remove it.
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
    """Why a line that is no reduction has an order of its own, as a clause; empty if it has none."""
    if re.search(r"\btt\.atomic_rmw fadd,", line):
        return "its atomic additions are performed in the order in which blocks arrive"
    if re.search(r"= tt\.cat ", line):
        return "the compiler chooses the order of the elements of a concatenation"
    if '"tt.scan"(' in line and any(kind.startswith(("f", "bf")) for _, kind in _TENSOR.findall(_ending(lines))):
        return "the compiler chooses the order of a scan"
    return ""


def _ending(lines: Sequence[str]) -> str:
    """The line that ends the operation at the start of `lines`."""
    return next((line for line in lines if _TAIL.match(line)), "")


def _location(lines: Sequence[str]) -> str:
    text = _ending(lines) if '"tt.scan"(' in lines[0] else lines[0]
    match = re.search(r" loc\((.*)\)\Z", text)
    return match[1] if match else ""


def _renamed(lines: Sequence[str], name: str) -> list[str]:
    """The lines after a reduction that gained a result, with `name` replaced by its first result up to the function's
    end.
    """
    use = re.compile(re.escape(name) + r"(?![\w#$.-])")
    stop = next((number for number, line in enumerate(lines) if line.lstrip().startswith("tt.func ")), len(lines))
    return [use.sub(f"{name}#{0}", line) for line in lines[:stop]] + list(lines[stop:])


def source_location(location: str, aliases: Mapping[str, str]) -> str:
    """`file:line` of a location; for inlined code, of the outermost call."""
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
        raise _NotPinnable("its IR has an unsupported form")
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
    """Raise _NotPinnable for a line of a combine whose operation may have several results."""
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
    """The lines that replace a reduction. `number` makes their names unique."""
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
        # The result of the last step has the original axes.
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
    """The reduction with a placeholder as its combine."""
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
    """A reduction of `values` over `axis`. `types` are the extents before and after it, and the element types."""
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
    """The kind of a reduction whose combine is a single addition or multiplication; empty for others."""
    step, end = _STEP.match(reduction.body[0]), _RETURN.match(reduction.body[-1])
    if len(reduction.body) != 2 or step is None or end is None or len(reduction.types) != 1:
        return ""
    if {step["a"], step["b"]} != set(reduction.arguments) or end["values"] != step["name"]:
        return ""
    if step["type"] != "bf16" and step["type"] not in _REGISTERS:
        return ""
    return {"add": "sum", "mul": "product"}.get(step["kind"], "")


def _index(reduction: _Reduction, name: str) -> list[str]:
    """The index along the axis as a tensor of the operands' shape."""
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
    """The region of a reduction with the element index as an additional operand that orders the two sides."""
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
        raise _NotPinnable("its combine function ends in an unsupported form")
    return [*lines, f"tt.reduce.return {end['values']}, %pinned_least : {', '.join(kinds)}"]


def _rounded(line: str, backend: str) -> list[str]:
    """A line of a region, with its own rounding for an addition, subtraction or product.

    bfloat16 is computed in float32 and rounded again, which gives the same result: float32 has more than twice the
    digits.
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
            raise _NotPinnable("its combine function has arithmetic in an unsupported form")
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
