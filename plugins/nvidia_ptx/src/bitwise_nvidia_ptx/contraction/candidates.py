"""Candidate pairs: the products of a PTX text that ptxas may fuse.

PTX allows ptxas to treat a floating-point `add`, `sub` or `mul` without a rounding modifier "aggressively": a product
may be fused into a sum (one rounding instead of two), and on some targets a product followed by a multiplication by
1/8, 1/4, 1/2, 2, 4 or 8 becomes one scaled product.  Three more kinds of products have no rounding modifier, because
they are inside the expansion of another instruction; ptxas fuses them as well: the last step of `div.full` and
`div.approx` (reciprocal times numerator), of `rcp.approx`, `sqrt.approx` and `rsqrt.approx` (undoing a range scaling),
and of `ex2.approx` (a squaring); the last four only without `.ftz`.

The analysis is an over-approximation: it is flow-insensitive, merges scopes, and counts every definition of a register.
It rests on three assumptions about ptxas, each observed in 12.8 and 13.4: a product is scaled only by a constant that
ptxas can derive, and the maximum (minimum) of a constant and of a value without an upper (a lower) bound is none; the
range scalings inside approximate instructions are fused only if ptxas can derive that they always apply; its value
ranges are sound and not relational, so that a loaded value has no range.  ptxas does not forward stores to loads from
global and shared memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from bitwise_core.assembly.module import Immediate, Operand, symbols_of
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.time_limit import check_time
from bitwise_nvidia_ptx.contraction.program import Program, Statement
from bitwise_nvidia_ptx.inner_blocks import spelling
from bitwise_nvidia_ptx.special_register_names import SPECIAL_REGISTERS

_SIGN = {"f32": 1 << 31, "f64": 1 << 63}
_INFINITE = {"f32": (0x7F800000, 0xFF800000), "f64": (0x7FF << 52, 0xFFF << 52)}
_NARROW_TYPES = frozenset({"b8", "u8", "s8", "b16", "u16", "s16", "f16", "bf16"})
_FLOAT_SOURCE = re.compile(r"\.(?:b?f16|f32|f64)$")

# The result of these is never an unchanged operand, so a product does not flow through them.
_OPAQUE = frozenset(
    {"mma", "wgmma", "tcgen05", "ldmatrix", "atom", "red", "vote", "match", "activemask", "setp", "ex2", "lg2", "sin"}
    | {"cos", "tanh", "sqrt", "rsqrt", "rcp", "div", "cp", "mbarrier", "tex", "suld"}
)
# The result of these is the first source if ptxas derives that it is uniform across lanes.
_ACROSS_LANES = frozenset({"shfl", "redux"})
# ptxas cannot derive the results of these.
_UNKNOWN_RESULT = _OPAQUE - {"setp", "ex2", "lg2", "sin", "cos", "tanh", "sqrt", "rsqrt", "rcp", "div"}
# The result of these is a zero if all their sources are; any other result may be a non-zero constant.
_ZERO_PRESERVING = frozenset(
    {"mov", "add", "sub", "mul", "fma", "mad", "cvt", "neg", "abs", "shl", "shr", "min", "max"}
    | {"shfl", "redux", "and", "or", "xor", "selp", "prmt", "bfe", "ld", "cvta"}
)
# A predicate that is computed from literals comes from these.
_OF_LITERALS = frozenset({"mov", "not", "and", "or", "xor", "selp", "setp", "set"})
_ARITHMETIC = frozenset({"add", "sub", "mul", "fma", "mad"})
# The result of these is constant only if all their sources are.
_STRICT = _ARITHMETIC | {"div", "ex2", "lg2", "sin", "cos", "tanh", "sqrt", "rsqrt", "rcp", "neg", "abs", "cvt", "mov"}


@dataclass(frozen=True)
class Pair:
    """The indices of a product and of the instruction that may absorb it; `scale` if that is a multiplication."""

    product: int
    consumer: int
    scale: bool


def _is_zero(operand: Operand) -> bool:
    """Return whether an operand is a literal zero of either sign."""
    return isinstance(operand, Immediate) and operand.value in (0, _SIGN.get(operand.kind, 0))


def _constant_levels(program: Program) -> dict[str, int]:
    """Return what ptxas may derive of each register: 2 a non-zero constant, 1 only a zero, absent nothing.

    A register that is compared for equality counts as constant: after the branch, ptxas may replace it by the constant.
    """
    level: dict[str, int] = {}

    def of(names: tuple[str, ...], operand: Operand) -> int:
        if not names:
            return 1 if _is_zero(operand) else 2
        return max(0 if "." in name and name in SPECIAL_REGISTERS else level.get(name, 0) for name in names)

    defaults = _load_defaults(program)
    work = [i for i in range(len(program.statements)) if i not in defaults]
    kept = set(work)
    extrema = any(each.base in ("max", "min") and each.kind in _SIGN for each in program.statements)
    above, below = _unbounded_by_all(program, defaults) if extrema else (frozenset[str](), frozenset[str]())
    for statement in program.statements:
        if statement.base in ("setp", "set") and {"eq", "ne", "equ", "neu"}.intersection(statement.parts):
            for names in statement.sources:
                for name in names:
                    level[name] = 2
    while work:
        changed: set[str] = set()
        for index in work:
            statement = program.statements[index]
            if not statement.results or statement.base in _UNKNOWN_RESULT:
                continue
            if statement.base == "ld" and "const" not in statement.parts and not _may_forward_store(program, statement):
                continue
            levels = [of(names, operand) for names, operand in zip(statement.sources, statement.read, strict=True)]
            strict = statement.base in _STRICT and not statement.vector
            if statement.base in _ARITHMETIC and statement.kind is None:
                strict = False
            if statement.base in _ACROSS_LANES:
                value = levels[0]
            elif strict:
                value = max(levels, default=2) if all(levels) else 0
            elif statement.base in ("max", "min") and statement.kind in _SIGN and not all(levels):
                # The extremum of a constant and of a value without a bound on its side is no constant.
                unbounded = above if statement.base == "max" else below
                sources = zip(levels, statement.sources, strict=True)
                value = 0 if any(not each and unbounded.issuperset(names) for each, names in sources) else max(levels)
            else:
                value = max(levels, default=2)
                named = [names for names in statement.sources if names]
                if len(set(named)) < len(named) and statement.base not in ("fma", "selp"):
                    value = 2
            if value and statement.base not in _ZERO_PRESERVING:
                value = 2
            if statement.base == "ld":
                value = 2
            for name in statement.results:
                if value > level.get(name, 0):
                    level[name] = value
                    changed.add(name)
        work = sorted({use for name in changed for use, _ in program.uses.get(name, ())} & kept)
    return level


def _loads_private(statement: Statement) -> bool:
    """Return whether a statement loads from local memory, from a parameter or through a generic address.

    ptxas may forward a store to such a load.
    """
    if statement.base != "ld":
        return False
    return not {"global", "shared", "const"} & {part.split("::")[0] for part in statement.parts}


def _may_forward_store(program: Program, statement: Statement) -> bool:
    """Return whether ptxas may forward a store of the module to a load: `_loads_private`, except kernel parameters."""
    if not _loads_private(statement):
        return False
    function = program.functions[statement.function]
    own = {parameter.name for parameter in function.parameters}
    return not (function.entry and "param" in statement.parts and symbols_of(statement.read[0]) & own)


def _load_defaults(program: Program) -> frozenset[int]:
    """Return the statements that set the default of a load: `mov r, 0; @p ld r`.

    Later instructions read the merge of both, which is not a constant, or only the load if it has no guard.  Where a
    literal may disable the load, the default is not among them.
    """
    literals = _literal_predicates(program)
    return frozenset(
        index
        for index, each in enumerate(program.statements)
        if each.base == "mov" and _is_default(program, index, literals)
    )


def _is_default(program: Program, index: int, literals: tuple[frozenset[str], frozenset[str]]) -> bool:
    statement = program.statements[index]
    if statement.guard or len(statement.results) != 1:
        return False
    name = statement.results[0]
    definitions = program.definitions[name]
    if len(definitions) != 2 or definitions[0] != index:
        return False
    load = program.statements[definitions[1]]
    if load.base != "ld" or load.block != statement.block or "const" in load.parts or _is_disabled(load, literals):
        return False
    return all(not index < use <= definitions[1] for use, _ in program.uses.get(name, ()))


def _literal_predicates(program: Program) -> tuple[frozenset[str], frozenset[str]]:
    """Return the registers that literals may make zero, as a predicate false, and those that they may make another."""
    found: tuple[set[str], set[str]] = (set(), set())
    sources = [i for i, each in enumerate(program.statements) if each.base in _OF_LITERALS]
    work = set(sources)
    while work:
        changed: set[str] = set()
        for index in work:
            statement = program.statements[index]
            known = [
                [isinstance(operand, Immediate) and (operand.value != 0) == side for side in (False, True)]
                if not names
                else [any(name in found[side] for name in names) for side in (False, True)]
                for names, operand in zip(statement.sources, statement.read, strict=True)
            ]
            if statement.base in ("mov", "not"):
                values = known[0] if statement.base == "mov" else known[0][::-1]
            else:
                constant = all(map(any, known)) if statement.base in ("setp", "set") else any(map(any, known))
                values = [constant, constant]
            for name in statement.results:
                for side in (False, True):
                    if values[side] and name not in found[side]:
                        found[side].add(name)
                        changed.add(name)
        work = {use for name in changed for use, _ in program.uses.get(name, ())}.intersection(sources)
    return frozenset(found[0]), frozenset(found[1])


def _is_disabled(statement: Statement, literals: tuple[frozenset[str], frozenset[str]]) -> bool:
    """Return whether the guard of a statement may be a literal that disables it."""
    guard = statement.guard
    return guard is not None and spelling(guard.register) in literals[guard.negated]


def _unbounded_registers(program: Program) -> tuple[frozenset[str], frozenset[str]]:
    """Return the registers for which ptxas can derive no upper bound, and those for which it can derive no lower bound.

    Bounds are of floating-point values.
    """
    above: set[str] = set()
    below: set[str] = set()
    work: set[int] = set(range(len(program.statements)))
    while work:
        changed: set[str] = set()
        for index in sorted(work):
            statement = program.statements[index]
            up, down = (
                (False, False) if _may_forward_store(program, statement) else _unbounded_result(statement, above, below)
            )
            for name in statement.results:
                if (up and name not in above) or (down and name not in below):
                    changed.add(name)
                if up:
                    above.add(name)
                if down:
                    below.add(name)
        work = {use for name in changed for use, _ in program.uses.get(name, ())}
    return frozenset(above), frozenset(below)


def _unbounded_by_all(program: Program, defaults: frozenset[int]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the registers of which no definition has an upper bound, and those of which none has a lower bound.

    The `defaults` of loads are no definitions.  A register that is defined by itself, as in a loop, is in neither.
    """
    literals = _literal_predicates(program)
    above: set[str] = set()
    below: set[str] = set()
    kept = {name: [i for i in written if i not in defaults] for name, written in program.definitions.items()}
    work = set(kept)
    while work:
        check_time()
        changed: set[str] = set()
        for name in sorted(work):
            results = [
                _unbounded_result(program.statements[i], above, below)
                if _may_be_unbounded(program, program.statements[i], literals)
                else (False, False)
                for i in kept[name]
            ]
            for found, side in ((above, 0), (below, 1)):
                if name not in found and all(each[side] for each in results):
                    found.add(name)
                    changed.add(name)
        uses = {use for name in changed for use, _ in program.uses.get(name, ())}
        work = {result for use in uses for result in program.statements[use].results if result in kept}
    return frozenset(above), frozenset(below)


def _may_be_unbounded(program: Program, statement: Statement, literals: tuple[frozenset[str], frozenset[str]]) -> bool:
    """Return whether a result has no bound if the operands have none.

    That excludes narrow loads, infinite literals, selections of one value, and statements that may never be executed.
    """
    if _may_forward_store(program, statement) or _is_disabled(statement, literals):
        return False
    if statement.base == "ld":
        return not _NARROW_TYPES.intersection(statement.parts)
    infinite = any(
        isinstance(each, Immediate) and each.value in _INFINITE.get(each.kind, ()) for each in statement.read
    )
    return statement.base != "selp" and not infinite


def _unbounded_result(statement: Statement, above: set[str], below: set[str]) -> tuple[bool, bool]:
    base = statement.base
    if base in ("mma", "wgmma", "ldmatrix") or (base == "ld" and "const" not in statement.parts):
        return True, True
    operands = statement.read
    ups = [any(name in above for name in names) for names in statement.sources]
    downs = [any(name in below for name in names) for names in statement.sources]
    if base == "shfl":
        return ups[0], downs[0]
    to_float = statement.kind is not None and "sat" not in statement.parts
    if base == "mov" or (base == "cvt" and to_float and _FLOAT_SOURCE.search(statement.instruction.opcode)):
        return any(ups), any(downs)
    if base == "selp":
        return any(ups[:2]), any(downs[:2])
    if not to_float or len(operands) not in (1, 2, 3):
        return False, False
    if base == "neg":
        return downs[0], ups[0]
    if base == "add":
        return any(ups), any(downs)
    if base == "sub":
        same = operands[0] == operands[1]
        return not same and (ups[0] or downs[1]), not same and (downs[0] or ups[1])
    if base == "max":
        return any(ups), all(downs)
    if base == "min":
        return all(ups), any(downs)
    if base in ("mul", "fma"):
        up, down = _unbounded_product(operands[:2], ups, downs)
        return up or (base == "fma" and ups[2]), down or (base == "fma" and downs[2])
    return False, False


def _unbounded_product(operands: tuple[Operand, ...], ups: list[bool], downs: list[bool]) -> tuple[bool, bool]:
    if operands[0] == operands[1]:
        return ups[0] or downs[0], False
    for position in (0, 1):
        literal = operands[position]
        if isinstance(literal, Immediate) and literal.kind in _SIGN:
            other = 1 - position
            if _is_zero(literal):
                return False, False
            negative = literal.value >= _SIGN[literal.kind]
            return (downs[other], ups[other]) if negative else (ups[other], downs[other])
    wide = any(ups[i] and downs[i] and (ups[1 - i] or downs[1 - i]) for i in (0, 1))
    return wide, wide


def candidate_pairs(program: Program) -> tuple[Pair, ...]:
    """Return every pair that ptxas may fuse, or for which the analysis cannot exclude it, in text order.

    Raises Unsupported for a text that no assembler accepts.
    """
    try:
        return tuple(_pairs(program))
    except IndexError:
        raise Unsupported("an instruction lacks operands of its opcode") from None


def leaves_choice(program: Program, rounded: frozenset[str]) -> bool:
    """Return whether ptxas may fuse a product, other than one of the instructions in `rounded`."""
    try:
        return any(program.statements[pair.product].base not in rounded for pair in _pairs(program))
    except IndexError:
        raise Unsupported("an instruction lacks operands of its opcode") from None


def _pairs(program: Program) -> Iterator[Pair]:
    statements = program.statements
    products = [i for i, s in enumerate(statements) if s.product]
    if not products:
        return
    if any(statements[i].base == "ex2" for i in products):
        above = _unbounded_registers(program)[0]
        products = [
            i for i in products if statements[i].base != "ex2" or not above.intersection(statements[i].sources[0])
        ]
    level = _constant_levels(program)

    def constant(index: int, position: int, least: int = 2) -> bool:
        """Return whether an operand other than `position` may be a constant, non-zero unless `least` is 1."""
        statement = statements[index]
        return any(
            (max((level.get(n, 0) for n in names), default=0) >= least) if names else least < 2 or not _is_zero(operand)
            for other, (names, operand) in enumerate(zip(statement.sources, statement.read, strict=True))
            if other != position
        )

    flow = _Flow(program, constant)
    for product in products:
        check_time(program.line(product))
        statement = statements[product]
        scaled_by_own = not statement.hidden_product and constant(product, -1)
        for index in flow.consumers(statement.results, scaled_by_own):
            yield Pair(product, index, statements[index].base in ("mul", "div"))


@dataclass(slots=True)
class _Reached:
    """What a value of a register reaches, as sets of bits: consumers, and products that a constant product scales."""

    consumers: int = 0
    scaled: int = 0


_MEMORY = "memory"
"""The node of everything that ptxas may forward stores to; it is the name of no register."""


class _Flow:
    """Where unchanged values of registers may arrive.

    `constant` (statement, position, least level) tells whether another operand of a statement may be a constant.  The
    registers that reach each other, as in a loop, reach the same, so that each register is followed once.
    """

    def __init__(self, program: Program, constant: Callable[[int, int, int], bool]) -> None:
        self.program, self.constant = program, constant
        self.places: dict[int, int] = {}
        """The bit of each consumer."""
        self.reached: dict[str, _Reached] = {}

    def consumers(self, names: Iterable[str], scaled_by_own: bool) -> list[int]:
        """Return the statements that may absorb a product with these results, in text order."""
        bits = 0
        for name in names:
            if name not in self.reached:
                self._follow(name)
            found = self.reached[name]
            bits |= found.consumers | (found.scaled if scaled_by_own else 0)
        return sorted(index for index, place in self.places.items() if bits >> place & 1) if bits else []

    def _bit(self, index: int) -> int:
        return 1 << self.places.setdefault(index, len(self.places))

    def _follow(self, start: str) -> None:
        """Find what a register reaches: Tarjan's algorithm for strongly connected components."""
        order: dict[str, int] = {}
        lowest: dict[str, int] = {}
        own: dict[str, _Reached] = {}
        path: list[str] = []
        stack: list[tuple[str, list[str]]] = []

        def enter(name: str) -> None:
            order[name] = lowest[name] = len(order)
            own[name], following = self._uses(name)
            path.append(name)
            stack.append((name, following))

        enter(start)
        while stack:
            name, following = stack[-1]
            if following:
                each = following.pop()
                known = self.reached.get(each)
                if known is not None:
                    own[name].consumers |= known.consumers
                    own[name].scaled |= known.scaled
                elif each in order:
                    lowest[name] = min(lowest[name], order[each])
                else:
                    enter(each)
                continue
            stack.pop()
            if lowest[name] == order[name]:
                component = [name]
                while (each := path.pop()) != name:
                    component.append(each)
                whole = own[name]
                for each in component:
                    whole.consumers |= own[each].consumers
                    whole.scaled |= own[each].scaled
                self.reached.update(dict.fromkeys(component, whole))
            if stack:
                before = stack[-1][0]
                lowest[before] = min(lowest[before], lowest[name])
                own[before].consumers |= own[name].consumers
                own[before].scaled |= own[name].scaled

    def _uses(self, name: str) -> tuple[_Reached, list[str]]:
        """Return the consumers of a register, and the registers that its value may be copied to."""
        found = _Reached()
        program, constant = self.program, self.constant
        if name == _MEMORY:
            return found, [each for one in program.statements if _loads_private(one) for each in one.results]
        following: list[str] = []
        for index, position in program.uses.get(name, ()):
            statement = program.statements[index]
            base = statement.base
            if statement.contractible and base != "mul":
                found.consumers |= self._bit(index)
            if base == "mul" and statement.kind is not None:
                if constant(index, position, 2):
                    found.consumers |= self._bit(index)
                elif statement.contractible:
                    found.scaled |= self._bit(index)
            elif base == "div" and statement.hidden_product and position == 0 and constant(index, 0, 2):
                found.consumers |= self._bit(index)
            if base in _OPAQUE or (base in _ACROSS_LANES and position != 0):
                continue
            if base in ("st", "call"):
                if not {"global", "shared"} & {part.split("::")[0] for part in statement.parts}:
                    following.append(_MEMORY)
                    if base == "call":
                        following += statement.results
                continue
            if base == "ld":
                continue
            arithmetic = base in _ARITHMETIC and statement.kind is not None
            if arithmetic and not constant(index, position, 2 if base == "mul" else 1):
                continue
            following += statement.results
        return found, following
