"""Which products of a PTX text the assembler may still fuse: statements, data flow and candidate pairs.

PTX lets ptxas treat a floating-point `add`, `sub` or `mul` without a rounding modifier "aggressively": a product
may be fused into a sum (one rounding instead of two), and on some targets a product followed by a
multiplication with 1/8, 1/4, 1/2, 2, 4 or 8 becomes one scaled product.  Three more products carry no rounding
modifier at all, because they are inside the expansion of another instruction, and ptxas fuses these too:
the last step of `div.full` and `div.approx` (reciprocal times numerator), of `rcp.approx`, `sqrt.approx` and
`rsqrt.approx` (undoing a range scaling), and of `ex2.approx` (a squaring); the last four only without `.ftz`.

The analysis is an over-approximation: flow-insensitive, scopes merged, every definition of a register counts.
It works on the text, not on parsed records, because the rewriting needs exact positions.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

FLOAT_TYPES = frozenset({"f16", "f16x2", "bf16", "bf16x2", "f32", "f32x2", "f64"})
ROUNDINGS = frozenset({"rn", "rz", "rm", "rp", "rna", "rs"})
_REGISTER = re.compile(r"(?<![\w$.%])[%A-Za-z_$][\w$]*(?:\.[xyzw](?![\w$]))?")
_LABEL = re.compile(r"[A-Za-z_$%][\w$]*\s*:(?!:)")
_INSTRUCTION = re.compile(r"(?:@(?P<guard>!?\s*[%\w$]+)\s+)?(?P<opcode>[a-z_][\w.:]*)\s*(?P<rest>.*)", re.S)
_LINE_DIRECTIVE = re.compile(r"\.(?:loc|file|version|target|address_size|minnctapersm)\b")
_HEADER = re.compile(r"\.(?:visible|extern|weak|common|entry|func)\b")
_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.S)
_ZERO = re.compile(r"[+-]?(?:0[xX]0+|0[fF]0+|0[dD]0+|0+|0[fF]80000000|0[dD]8000000000000000|0*\.0*)[uU]?$")

# Results of these never carry an operand on unchanged, so a product does not flow through them.
_OPAQUE = frozenset(
    {"shfl", "mma", "wgmma", "tcgen05", "ldmatrix", "atom", "red", "vote", "match", "activemask", "setp", "ex2", "lg2"}
    | {"sin", "cos", "tanh", "sqrt", "rsqrt", "rcp", "div", "cp", "mbarrier", "redux", "tex", "suld"}
)
_NO_RESULT = frozenset({"st", "bra", "brx", "bar", "barrier", "ret", "exit", "membar", "fence", "trap", "stmatrix"})
# ptxas cannot know what these return.
_UNKNOWN_RESULT = _OPAQUE - {"setp", "ex2", "lg2", "sin", "cos", "tanh", "sqrt", "rsqrt", "rcp", "div"}
_KEEPS_ZERO = frozenset({"mov", "add", "sub", "mul", "fma", "mad", "cvt", "neg", "abs", "shl", "shr", "min", "max"})
_KEEPS_ZERO_TOO = _KEEPS_ZERO | {"and", "or", "xor", "selp", "prmt", "bfe", "ld", "cvta"}
_ARITHMETIC = frozenset({"add", "sub", "mul", "fma", "mad"})
_STRICT = _ARITHMETIC | {"div", "ex2", "lg2", "sin", "cos", "tanh", "sqrt", "rsqrt", "rcp", "neg", "abs", "cvt", "mov"}


@dataclass(frozen=True)
class Statement:
    """One instruction: `start`/`end` delimit it in the text (guard included, semicolon not); `block` numbers the
    stretch between labels and branches it stands in."""

    start: int
    end: int
    line: int
    block: int
    guard: str | None
    opcode: str
    operands: tuple[str, ...]

    @cached_property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.opcode.split("."))

    @property
    def base(self) -> str:
        return self.parts[0]

    @cached_property
    def kind(self) -> str | None:
        """The floating-point type of the result, None for anything else."""
        return next((part for part in self.parts[1:] if part in FLOAT_TYPES), None)

    @cached_property
    def contractible(self) -> bool:
        """A floating-point add, sub or mul without a rounding modifier."""
        return self.base in ("add", "sub", "mul") and self.kind is not None and not ROUNDINGS.intersection(self.parts)

    @cached_property
    def hidden_product(self) -> bool:
        """An instruction whose expansion ends with a product that ptxas may fuse."""
        if self.base == "div":
            return "full" in self.parts or "approx" in self.parts
        if self.base in ("rcp", "sqrt", "rsqrt", "ex2"):
            return "approx" in self.parts and "ftz" not in self.parts and self.kind == "f32"
        return False

    @property
    def product(self) -> bool:
        return self.hidden_product or (self.base == "mul" and self.contractible)

    @cached_property
    def results(self) -> tuple[str, ...]:
        if self.base in _NO_RESULT or not self.operands:
            return ()
        return tuple(_REGISTER.findall(self.operands[0]))

    @cached_property
    def sources(self) -> tuple[tuple[str, ...], ...]:
        """Register names of each operand that is read; () where the operand is a literal."""
        read = self.operands if self.base in _NO_RESULT else self.operands[1:]
        return tuple(tuple(_REGISTER.findall(operand)) for operand in read)


@dataclass(frozen=True)
class Pair:
    """Indices of a product and of the instruction it may be fused into; `scale` if that is a multiplication."""

    product: int
    consumer: int
    scale: bool


@dataclass(frozen=True)
class Program:
    """The instructions of a text and the position after each function's opening brace."""

    text: str
    statements: tuple[Statement, ...]
    bodies: tuple[int, ...]

    @cached_property
    def definitions(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = defaultdict(list)
        for index, statement in enumerate(self.statements):
            for name in statement.results:
                found[name].append(index)
        return found

    @cached_property
    def uses(self) -> dict[str, list[tuple[int, int]]]:
        """For each register: (statement, operand position among the sources) of every read."""
        found: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for index, statement in enumerate(self.statements):
            for position, names in enumerate(statement.sources):
                for name in names:
                    found[name].append((index, position))
            if statement.base in ("wgmma", "tcgen05", "call"):
                for name in statement.results:
                    found[name].append((index, -1))
        return found

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        return tuple(_pairs(self))


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match.group())


def without_debug(text: str) -> str:
    """The text without what only serves readers and debuggers.  The code ptxas makes is the same."""
    text = re.sub(r"^[ \t]*\.(?:loc|file)\b[^\n]*", "", text, flags=re.M)
    text = re.sub(r"^[ \t]*\.section\b[^{]*\{[^}]*\}", "", text, flags=re.M)
    text = _COMMENT.sub(lambda match: match.group() if match.group().startswith('"') else " ", text)
    return re.sub(r"[ \t]*\n\s*", "\n", text)


def scan(text: str) -> Program:
    """The instructions of a PTX text, with their positions.  Text that is not PTX gives fewer instructions, so an
    assembler run is what tells whether it is."""
    masked = _COMMENT.sub(_blank, text)
    statements: list[Statement] = []
    bodies: list[int] = []
    targets = None if "brx" in masked else set(re.findall(r"\bbra(?:\.uni)?\s+([\w$%]+)", masked))
    position, line, counted, block, depth, header = 0, 1, 0, 0, 0, False
    size = len(masked)
    while position < size:
        character = masked[position]
        if character.isspace() or character == ";":
            position += 1
        elif character in "{}":
            depth += 1 if character == "{" else -1
            if character == "{" and header:
                bodies.append(position + 1)
                header = False
            position += 1
        elif character == "." and masked.startswith(".section", position):
            closing = masked.find("}", position)
            position = size if closing < 0 else closing + 1
        elif character == "." and _LINE_DIRECTIVE.match(masked, position):
            newline = masked.find("\n", position)
            position = size if newline < 0 else newline
        elif character == ".":
            if depth == 0 and _HEADER.match(masked, position):
                header = True
            semicolon, brace = masked.find(";", position), masked.find("{", position)
            if header and 0 <= brace and (semicolon < 0 or brace < semicolon) and "=" not in masked[position:brace]:
                position = brace
            else:
                header = False
                position = size if semicolon < 0 else semicolon + 1
        elif label := _LABEL.match(masked, position):
            if targets is None or label.group()[:-1].strip() in targets:
                block += 1
            position = label.end()
        else:
            end = masked.find(";", position)
            end = size if end < 0 else end
            line, counted = line + masked.count("\n", counted, position), position
            if match := _INSTRUCTION.match(masked[position:end].rstrip()):
                statement = Statement(
                    position,
                    position + match.end(),
                    line,
                    block,
                    match["guard"],
                    match["opcode"],
                    tuple(_operands(match["rest"])),
                )
                statements.append(statement)
                if statement.base in ("bra", "brx", "ret", "exit", "call"):
                    block += 1
            position = end + 1
    return Program(text, tuple(statements), tuple(bodies))


def _operands(text: str) -> Iterable[str]:
    if "{" not in text and "[" not in text and "(" not in text:
        if text.strip():
            yield from (part.strip() for part in text.split(","))
        return
    depth, start = 0, 0
    for index, character in enumerate(text):
        if character in "{[(":
            depth += 1
        elif character in "}])":
            depth -= 1
        elif character == "," and depth == 0:
            yield text[start:index].strip()
            start = index + 1
    yield text[start:].strip()


def _constants(program: Program) -> dict[str, int]:
    """What ptxas may come to know of a register: 2 it may be a non-zero constant, 1 only a zero, absent nothing.

    A register that is compared for equality counts as constant: behind the branch it may be replaced.
    """
    level: dict[str, int] = {}

    def of(names: tuple[str, ...], operand: str) -> int:
        if not names:
            return 1 if _ZERO.match(operand) else 2
        return max((0 if n.startswith("%") and "." in n else level.get(n, 0)) for n in names)

    work = list(range(len(program.statements)))
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
            if statement.base == "ld" and "const" not in statement.parts:
                continue
            read = statement.operands[1:]
            levels = [of(names, operand) for names, operand in zip(statement.sources, read, strict=True)]
            vector = any("{" in operand for operand in statement.operands)
            strict = statement.base in _STRICT and not vector
            if statement.base in _ARITHMETIC and statement.kind is None:
                strict = False
            if strict:
                value = max(levels, default=2) if all(levels) else 0
            else:
                value = max(levels, default=2)
                named = [names for names in statement.sources if names]
                if len(set(named)) < len(named) and statement.base not in ("fma", "selp"):
                    value = 2
            if value and statement.base not in _KEEPS_ZERO_TOO:
                value = 2
            if statement.base == "ld":
                value = 2
            for name in statement.results:
                if value > level.get(name, 0):
                    level[name] = value
                    changed.add(name)
        work = sorted({use for name in changed for use, _ in program.uses.get(name, ())})
    return level


def _pairs(program: Program) -> Iterable[Pair]:
    statements = program.statements
    products = [i for i, s in enumerate(statements) if s.product]
    if not products:
        return
    level = _constants(program)

    def constant(index: int, position: int, least: int = 2) -> bool:
        """Whether an operand other than `position` may be a constant (a non-zero one unless `least` is 1)."""
        read = statements[index].operands[1:]
        return any(
            (max((level.get(n, 0) for n in names), default=0) >= least)
            if names
            else least < 2 or not _ZERO.match(operand)
            for other, (names, operand) in enumerate(zip(statements[index].sources, read, strict=True))
            if other != position
        )

    through_memory = [i for i, s in enumerate(statements) if s.base == "ld" and {"local", "param"} & set(s.parts)]
    for product in products:
        reached: set[str] = set()
        fresh = list(statements[product].results)
        own_constant = constant(product, -1)
        consumers: dict[int, bool] = {}
        memory = False
        while fresh:
            name = fresh.pop()
            if name in reached:
                continue
            reached.add(name)
            for index, position in program.uses.get(name, ()):
                statement = statements[index]
                if index == product and position < 0:
                    continue
                if statement.contractible and statement.base != "mul":
                    consumers[index] = False
                if statement.base == "mul" and statement.kind is not None:
                    if constant(index, position) or (own_constant and statement.contractible):
                        consumers.setdefault(index, True)
                elif statement.base == "div" and statement.hidden_product and position == 0:
                    if constant(index, position):
                        consumers.setdefault(index, True)
                if statement.base in _OPAQUE:
                    continue
                if statement.base in ("st", "call"):
                    generic = not {"global", "shared"} & {part.split("::")[0] for part in statement.parts}
                    if generic and not memory:
                        memory = True
                        fresh.extend(n for i in through_memory for n in statements[i].results)
                        if statement.base == "call":
                            fresh.extend(statement.results)
                    continue
                if statement.base == "ld":
                    continue
                if statement.base in _ARITHMETIC and statement.kind is not None:
                    if not constant(index, position, 2 if statement.base == "mul" else 1):
                        continue
                fresh.extend(statement.results)
        for index in sorted(consumers):
            yield Pair(product, index, consumers[index])
