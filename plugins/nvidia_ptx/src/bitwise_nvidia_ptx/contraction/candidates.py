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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from typing import TypeAlias

from bitwise_core.assembly.module import Immediate, Operand, symbols_of
from bitwise_core.execution.domains.domain import Unsupported
from bitwise_core.execution.time_limit import check_time
from bitwise_nvidia_ptx.contraction.program import Program, Statement
from bitwise_nvidia_ptx.special_register_names import SPECIAL_REGISTERS
from bitwise_nvidia_ptx.text.inner_blocks import spelling

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
# A bound of the result of these follows from bounds of their sources.
_BOUNDED_BY_OPERANDS = frozenset({"shfl", "mov", "cvt", "selp", "neg", "add", "sub", "max", "min", "mul", "fma"})
_EQUALITIES = frozenset({"eq", "ne", "equ", "neu"})
_SHARED_SPACES = frozenset({"global", "shared", "const"})
_STATEMENTS_BETWEEN_CHECKS = 255
_ABOVE, _BELOW = 1, 2
_SWAPPED = (0, _BELOW, _ABOVE, _ABOVE | _BELOW)
"""The sides of a negated value."""
_Literals: TypeAlias = tuple[frozenset[str], frozenset[str]]
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


def _settle(program: Program, step: Callable[[int], Iterable[str]]) -> None:
    """Apply `step` to the statements until nothing changes; it returns the registers that it changed.

    The steps only ever add to what is known of registers, so that their order does not change the end.  After a first
    pass in text order, a statement is repeated only if it reads a register that a later one changed, as in a loop.
    """
    uses = program.uses
    again: set[int] = set()
    check_time()
    for index in range(len(program.statements)):
        for name in step(index):
            again.update(use for use, _ in uses.get(name, ()) if use <= index)
    work = sorted(again)  # a sorted list is a heap
    while work:
        index = heappop(work)
        again.remove(index)
        if not index & _STATEMENTS_BETWEEN_CHECKS:
            check_time()
        for name in step(index):
            for use, _ in uses.get(name, ()):
                if use not in again:
                    again.add(use)
                    heappush(work, use)


def _constant_levels(program: Program) -> dict[str, int]:
    """Return what ptxas may derive of each register: 2 a non-zero constant, 1 only a zero, absent nothing.

    A register that is compared for equality counts as constant: after the branch, ptxas may replace it by the constant.
    """
    level: dict[str, int] = {}
    statements = program.statements
    literals = _literal_predicates(program)
    defaults = _load_defaults(program, literals)
    extrema = any(each.opcode.base in ("max", "min") and each.opcode.kind in _SIGN for each in statements)
    nothing = frozenset[str]()
    above, below = _unbounded_by_all(program, defaults, literals) if extrema else (nothing, nothing)
    for statement in statements:
        if statement.opcode.base in ("setp", "set") and _EQUALITIES.intersection(statement.opcode.parts):
            for names in statement.sources:
                for name in names:
                    level[name] = 2
    known = level.get

    def step(index: int) -> Iterable[str]:
        statement = statements[index]
        opcode = statement.opcode
        base = opcode.base
        if not statement.results or base in _UNKNOWN_RESULT or index in defaults:
            return ()
        if base == "ld":
            if "const" not in opcode.parts and not _may_forward_store(program, statement):
                return ()
            value = 2
        else:
            levels = []
            for names, operand in zip(statement.sources, statement.read, strict=True):
                if len(names) == 1:
                    (name,) = names
                    levels.append(0 if "." in name and name in SPECIAL_REGISTERS else known(name, 0))
                elif names:
                    levels.append(
                        max(0 if "." in name and name in SPECIAL_REGISTERS else known(name, 0) for name in names)
                    )
                else:
                    levels.append(1 if _is_zero(operand) else 2)
            if base in _ACROSS_LANES:
                value = levels[0]
            elif base in _STRICT and not statement.vector and (opcode.kind is not None or base not in _ARITHMETIC):
                value = max(levels, default=2) if all(levels) else 0
            elif base in ("max", "min") and opcode.kind in _SIGN and not all(levels):
                # The extremum of a constant and of a value without a bound on its side is no constant.
                unbounded = above if base == "max" else below
                sources = zip(levels, statement.sources, strict=True)
                value = 0 if any(not each and unbounded.issuperset(names) for each, names in sources) else max(levels)
            elif statement.repeats and base not in ("fma", "selp"):
                value = 2
            else:
                value = max(levels, default=2)
            if value and base not in _ZERO_PRESERVING:
                value = 2
        if not value:
            return ()
        changed = [name for name in statement.results if value > known(name, 0)]
        for name in changed:
            level[name] = value
        return changed

    _settle(program, step)
    return level


def _loads_private(statement: Statement) -> bool:
    """Return whether a statement loads from local memory, from a parameter or through a generic address.

    ptxas may forward a store to such a load.
    """
    return statement.opcode.base == "ld" and _SHARED_SPACES.isdisjoint(statement.opcode.spaces)


def _may_forward_store(program: Program, statement: Statement) -> bool:
    """Return whether ptxas may forward a store of the module to a load: `_loads_private`, except kernel parameters."""
    if not _loads_private(statement):
        return False
    function = program.functions[statement.function]
    own = {parameter.name for parameter in function.parameters}
    return not (function.entry and "param" in statement.parts and symbols_of(statement.read[0]) & own)


def _load_defaults(program: Program, literals: _Literals) -> frozenset[int]:
    """Return the statements that set the default of a load: `mov r, 0; @p ld r`.

    Later instructions read the merge of both, which is not a constant, or only the load if it has no guard.  Where a
    literal may disable the load, the default is not among them.
    """
    return frozenset(
        index
        for index, each in enumerate(program.statements)
        if each.opcode.base == "mov" and _is_default(program, index, literals)
    )


def _is_default(program: Program, index: int, literals: _Literals) -> bool:
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


def _literal_predicates(program: Program) -> _Literals:
    """Return the registers that literals may make zero, as a predicate false, and those that they may make another."""
    statements = program.statements
    sides: dict[str, int] = {}
    known = sides.get
    swapped = (0, 2, 1, 3)

    def step(index: int) -> Iterable[str]:
        statement = statements[index]
        base = statement.opcode.base
        if base not in _OF_LITERALS:
            return ()
        masks = []
        for names, operand in zip(statement.sources, statement.read, strict=True):
            mask = 0
            if names:
                for name in names:
                    mask |= known(name, 0)
            elif isinstance(operand, Immediate):
                mask = 2 if operand.value != 0 else 1
            masks.append(mask)
        if base == "mov":
            value = masks[0]
        elif base == "not":
            value = swapped[masks[0]]
        else:
            value = 3 if (all(masks) if base in ("setp", "set") else any(masks)) else 0
        changed = [name for name in statement.results if value & ~known(name, 0)]
        for name in changed:
            sides[name] = value | known(name, 0)
        return changed

    _settle(program, step)
    return _with_side(sides, 1), _with_side(sides, 2)


def _is_disabled(statement: Statement, literals: _Literals) -> bool:
    """Return whether the guard of a statement may be a literal that disables it."""
    guard = statement.guard
    return guard is not None and spelling(guard.register) in literals[guard.negated]


def _unbounded_registers(program: Program) -> frozenset[str]:
    """Return the registers for which ptxas can derive no upper bound of a floating-point value."""
    statements = program.statements
    bounds: dict[str, int] = {}
    known = bounds.get

    def step(index: int) -> Iterable[str]:
        statement = statements[index]
        value = 0 if _may_forward_store(program, statement) else _unbounded_result(statement, bounds)
        changed = [name for name in statement.results if value & ~known(name, 0)] if value else []
        for name in changed:
            bounds[name] = value | known(name, 0)
        return changed

    _settle(program, step)
    return _with_side(bounds, _ABOVE)


def _unbounded_by_all(
    program: Program, defaults: frozenset[int], literals: _Literals
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the registers of which no definition has an upper bound, and those of which none has a lower bound.

    The `defaults` of loads are no definitions.  A register that is defined by itself, as in a loop, is in neither.
    """
    statements = program.statements
    bounds: dict[str, int] = {}
    usable = [bool(each.results) and _may_be_unbounded(program, each, literals) for each in statements]
    kept = {name: [i for i in written if i not in defaults] for name, written in program.definitions.items()}

    def step(index: int) -> Iterable[str]:
        changed = []
        for name in statements[index].results:
            value = _ABOVE | _BELOW
            for each in kept[name]:
                value &= _unbounded_result(statements[each], bounds) if usable[each] else 0
                if not value:
                    break
            if value & ~bounds.get(name, 0):
                bounds[name] = value | bounds.get(name, 0)
                changed.append(name)
        return changed

    _settle(program, step)
    return _with_side(bounds, _ABOVE), _with_side(bounds, _BELOW)


def _with_side(sides: Mapping[str, int], side: int) -> frozenset[str]:
    return frozenset(name for name, found in sides.items() if found & side)


def _may_be_unbounded(program: Program, statement: Statement, literals: _Literals) -> bool:
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


def _unbounded_result(statement: Statement, bounds: Mapping[str, int]) -> int:
    """Return the sides, `_ABOVE` and `_BELOW`, on which a result has no bound, given those of registers."""
    opcode = statement.opcode
    base = opcode.base
    if base in ("mma", "wgmma", "ldmatrix") or (base == "ld" and "const" not in opcode.parts):
        return _ABOVE | _BELOW
    if base not in _BOUNDED_BY_OPERANDS:
        return 0
    operands = statement.read
    sides = []
    for names in statement.sources:
        found = 0
        for name in names:
            found |= bounds.get(name, 0)
        sides.append(found)
    if base == "shfl":
        return sides[0]
    to_float = opcode.kind is not None and "sat" not in opcode.parts
    if base == "mov" or (base == "cvt" and to_float and _FLOAT_SOURCE.search(statement.instruction.opcode)):
        return _any_side(sides)
    if base == "selp":
        return _any_side(sides[:2])
    if not to_float or len(operands) not in (1, 2, 3):
        return 0
    if base == "neg":
        return _SWAPPED[sides[0]]
    if base == "add":
        return _any_side(sides)
    if base == "sub":
        return 0 if operands[0] == operands[1] else sides[0] | _SWAPPED[sides[1]]
    if base in ("max", "min"):
        some, every = _any_side(sides), _ABOVE | _BELOW
        for each in sides:
            every &= each
        return (some & _ABOVE) | (every & _BELOW) if base == "max" else (some & _BELOW) | (every & _ABOVE)
    if base in ("mul", "fma"):
        return _unbounded_product(operands[:2], sides) | (sides[2] if base == "fma" else 0)
    return 0


def _any_side(sides: Iterable[int]) -> int:
    found = 0
    for each in sides:
        found |= each
    return found


def _unbounded_product(operands: tuple[Operand, ...], sides: list[int]) -> int:
    if operands[0] == operands[1]:
        return _ABOVE if sides[0] else 0
    for position in (0, 1):
        literal = operands[position]
        if isinstance(literal, Immediate) and literal.kind in _SIGN:
            if _is_zero(literal):
                return 0
            other = sides[1 - position]
            return _SWAPPED[other] if literal.value >= _SIGN[literal.kind] else other
    both = _ABOVE | _BELOW
    wide = any(sides[i] == both and sides[1 - i] for i in (0, 1))
    return both if wide else 0


def candidate_pairs(program: Program) -> tuple[Pair, ...]:
    """Return every pair that ptxas may fuse, or for which the analysis cannot exclude it, in text order.

    Raises Unsupported for a text that no assembler accepts.
    """
    try:
        return tuple(_pairs(program))
    except IndexError:
        raise Unsupported("an instruction lacks operands of its opcode") from None


class Facts:
    """What ptxas may derive of the registers of a program.

    Nothing here depends on the rounding modifiers of its instructions, so that programs which differ only in these
    share it.
    """

    def __init__(self, program: Program) -> None:
        self.program = program

    @cached_property
    def levels(self) -> dict[str, int]:
        """What ptxas may derive of each register: 2 a non-zero constant, 1 only a zero, absent nothing."""
        return _constant_levels(self.program)

    @cached_property
    def without_upper_bound(self) -> frozenset[str]:
        """The registers for which ptxas can derive no upper bound of a floating-point value."""
        return _unbounded_registers(self.program)


def leaves_choice(program: Program, rounded: frozenset[str], facts: Facts | None = None) -> bool:
    """Return whether ptxas may fuse a product, other than one of the instructions in `rounded`.

    `facts` are those of the program, or of one that differs in rounding modifiers only.
    """
    try:
        return any(program.statements[pair.product].base not in rounded for pair in _pairs(program, facts))
    except IndexError:
        raise Unsupported("an instruction lacks operands of its opcode") from None


def _pairs(program: Program, facts: Facts | None = None) -> Iterator[Pair]:
    statements = program.statements
    products = [i for i, s in enumerate(statements) if s.opcode.product]
    if not products:
        return
    facts = Facts(program) if facts is None else facts
    if any(statements[i].base == "ex2" for i in products):
        above = facts.without_upper_bound
        products = [
            i for i in products if statements[i].base != "ex2" or not above.intersection(statements[i].sources[0])
        ]
    level = facts.levels

    def constant(index: int, position: int, least: int = 2) -> bool:
        """Return whether an operand other than `position` may be a constant, non-zero unless `least` is 1."""
        statement = statements[index]
        return any(
            (max((level.get(n, 0) for n in names), default=0) >= least) if names else least < 2 or not _is_zero(operand)
            for other, (names, operand) in enumerate(zip(statement.sources, statement.read, strict=True))
            if other != position
        )

    flow = _Flow(program, facts.program.uses, constant)
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

    `uses` are those of the program's registers.  `constant` (statement, position, least level) tells whether another
    operand of a statement may be a constant.  The
    registers that reach each other, as in a loop, reach the same, so that each register is followed once.
    """

    def __init__(
        self,
        program: Program,
        uses: Mapping[str, Sequence[tuple[int, int]]],
        constant: Callable[[int, int, int], bool],
    ) -> None:
        self.program, self.uses, self.constant = program, uses, constant
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
        for index, position in self.uses.get(name, ()):
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
                if statement.opcode.spaces.isdisjoint(("global", "shared")):
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
