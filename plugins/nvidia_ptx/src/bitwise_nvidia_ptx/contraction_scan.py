"""The instructions of a PTX text with their exact positions, for analyses that rewrite the text."""

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
_NO_RESULT = frozenset({"st", "bra", "brx", "bar", "barrier", "ret", "exit", "membar", "fence", "trap", "stmatrix"})


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
        """The mnemonic and its modifiers."""
        return tuple(self.opcode.split("."))

    @property
    def base(self) -> str:
        """The mnemonic without modifiers."""
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
        """A multiplication that ptxas may fuse, written or hidden."""
        return self.hidden_product or (self.base == "mul" and self.contractible)

    @cached_property
    def results(self) -> tuple[str, ...]:
        """Names of the registers that are written, and of what else stands in the first operand."""
        if self.base in _NO_RESULT or not self.operands:
            return ()
        return tuple(_REGISTER.findall(self.operands[0]))

    @cached_property
    def sources(self) -> tuple[tuple[str, ...], ...]:
        """Register names of each operand that is read; () where the operand is a literal."""
        read = self.operands if self.base in _NO_RESULT else self.operands[1:]
        return tuple(tuple(_REGISTER.findall(operand)) for operand in read)


@dataclass(frozen=True)
class Program:
    """The instructions of a text and the position after each function's opening brace."""

    text: str
    statements: tuple[Statement, ...]
    bodies: tuple[int, ...]

    @cached_property
    def definitions(self) -> dict[str, list[int]]:
        """For each register: the statements that write it."""
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
            if header and brace >= 0 and (semicolon < 0 or brace < semicolon) and "=" not in masked[position:brace]:
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
